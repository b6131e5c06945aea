//! How tags map to VLANs and back: the expectations are those of "VLAN Configuration" in
//! ovs-vswitchd.conf.db(5).

use crate::lab::{Lab, show, tags, vid};
use dp::{Action, DropCause};
use flow::Field;
use switch::{PortConfig, PriorityTags, VlanMode};
use testkit::Packet;

/// `access10`, `trunk`, `trunk:10,20`, `tagged10:20`, `untagged10:20`, `tunnel10` (with `:` the
/// customer VLANs).
fn port(text: &str) -> PortConfig {
    let (mode, vlans) = text.split_once(':').unwrap_or((text, ""));
    let digits = mode.find(|c: char| c.is_ascii_digit()).unwrap_or(mode.len());
    let vlans = vlans
        .split(',')
        .filter(|vlan| !vlan.is_empty())
        .map(|vlan| vid(vlan.parse().unwrap()))
        .collect();
    let mut port = PortConfig {
        tag: mode[digits..].parse().ok().map(vid),
        trunks: vlans,
        ..PortConfig::default()
    };
    port.vlan_mode = match &mode[..digits] {
        "access" => VlanMode::Access,
        "trunk" => VlanMode::Trunk,
        "tagged" => VlanMode::NativeTagged,
        "untagged" => VlanMode::NativeUntagged,
        "tunnel" => {
            std::mem::swap(&mut port.cvlans, &mut port.trunks);
            VlanMode::Dot1qTunnel
        }
        other => panic!("{other}"),
    };
    port
}

/// The tags of a packet that leaves `to`, after a packet with tags `sent` is received on `from`:
/// `bare` for none, `-` if no packet leaves.
fn cross(from: PortConfig, sent: &str, to: PortConfig, limit: u8) -> String {
    let mut lab = Lab::new();
    lab.config.vlan_limit = limit;
    lab.port("br0", "from", from);
    lab.port("br0", "to", to);
    lab.configure();
    let packet = Packet::new(testkit::mac(1), testkit::mac(2));
    match lab.send_packet("from", packet, &tags(sent)) {
        Err(_) => "-".to_owned(),
        Ok(out) => match out[..] {
            [ref only] => match only.strip_prefix("to ") {
                Some(tags) => tags.to_owned(),
                None => "bare".to_owned(),
            },
            _ => panic!("{out:?}"),
        },
    }
}

#[test]
fn every_mode_takes_and_gives_tags_as_the_manual_says() {
    let modes = [
        "access10",
        "trunk",
        "trunk:10,20",
        "tagged10:20",
        "untagged10:20",
        "tunnel10",
    ];
    let sent = ["", "0p5", "10", "20", "30"];
    // One block for each ingress mode, one line for each packet, one column for each egress mode.
    let expected = "
        bare   10     10     10     bare   bare
        bare   10p5   10p5   10p5   bare   bare
        -      -      -      -      -      -
        -      -      -      -      -      -
        -      -      -      -      -      -

        -      bare   -      -      -      -
        -      0p5    -      -      -      -
        bare   10     10     10     bare   bare
        -      20     20     20     20     -
        -      30     -      -      -      -

        -      -      -      -      -      -
        -      -      -      -      -      -
        bare   10     10     10     bare   bare
        -      20     20     20     20     -
        -      -      -      -      -      -

        bare   10     10     10     bare   bare
        bare   10p5   10p5   10p5   bare   bare
        bare   10     10     10     bare   bare
        -      20     20     20     20     -
        -      -      -      -      -      -

        bare   10     10     10     bare   bare
        bare   10p5   10p5   10p5   bare   bare
        bare   10     10     10     bare   bare
        -      20     20     20     20     -
        -      -      -      -      -      -

        bare   s10     s10     s10     bare  bare
        bare   s10+0p5 s10+0p5 s10+0p5 0p5   0p5
        -      s10+10  s10+10  s10+10  10    10
        -      s10+20  s10+20  s10+20  20    20
        -      s10+30  s10+30  s10+30  30    30
    ";
    let mut expected = expected.split_whitespace();
    for from in modes {
        for sent in sent {
            for to in modes {
                let got = cross(port(from), sent, port(to), 1);
                assert_eq!(Some(got.as_str()), expected.next(), "[{sent}] from {from} to {to}");
            }
        }
    }
    assert_eq!(expected.next(), None);
}

#[test]
fn a_service_tag_going_home_is_removed_by_tunnels_and_kept_by_trunks() {
    for (sent, to, limit, expected) in [
        ("s10+20", "tunnel10", 2, "20"),
        ("s10+20", "tunnel10:20,30", 2, "20"),
        ("s10+20", "tunnel10:30", 2, "-"),
        ("s10", "tunnel10:30", 2, "-"),
        ("s10", "tunnel10:0,30", 2, "bare"),
        ("s10+20", "tunnel20", 2, "-"),
        ("s10+20", "trunk", 2, "s10+20"),
        ("s10+20", "access10", 2, "-"),
        ("s10+0p5", "access10", 2, "bare"),
        ("s10+20", "access10", 1, "20"),
        ("s10+20+30", "untagged10", 2, "20+30"),
        ("s10+20+30", "trunk", 1, "s10+20+30"),
    ] {
        assert_eq!(
            cross(port("trunk"), sent, port(to), limit),
            expected,
            "[{sent}] to {to}, limit {limit}"
        );
    }
}

#[test]
fn a_tunnel_takes_its_customers_vlans_and_keeps_all_their_tags() {
    for (from, sent, expected) in [
        ("tunnel10:20,30", "20", "s10+20"),
        ("tunnel10:20,30", "40", "-"),
        ("tunnel10:20,30", "", "-"),
        ("tunnel10:0", "", "s10"),
        ("tunnel10", "20+30", "s10+20+30"),
        ("tunnel10", "s20p3+30+40", "s10+s20p3+30+40"),
        ("tunnel10", "0+30", "s10+0+30"),
    ] {
        for limit in [1, 2] {
            assert_eq!(
                cross(port(from), sent, port("trunk"), limit),
                expected,
                "[{sent}] into {from}"
            );
        }
    }
    let customer = PortConfig {
        qinq_ethertype: 0x8100,
        ..port("tunnel10")
    };
    assert_eq!(cross(customer, "20", port("trunk"), 1), "10+20");
}

#[test]
fn priority_tags_leave_where_they_are_asked_for() {
    use PriorityTags::{Always, IfNonzero, Never};
    for (from, sent, to, priority_tags, expected) in [
        ("trunk", "10p5", "access10", Never, "bare"),
        ("trunk", "10p5", "access10", IfNonzero, "0p5"),
        ("trunk", "10p5", "access10", Always, "0p5"),
        ("trunk", "10", "access10", IfNonzero, "bare"),
        ("trunk", "s10p5", "untagged10", IfNonzero, "0p5"),
        ("trunk", "10p5+20", "untagged10", IfNonzero, "20"),
        ("access10", "0p5", "untagged10", IfNonzero, "0p5"),
        ("access10", "", "access10", Always, "bare"),
        ("trunk", "0", "trunk", Never, "bare"),
        ("trunk", "0", "trunk", IfNonzero, "bare"),
        ("trunk", "0", "trunk", Always, "0"),
        ("trunk", "", "trunk", Always, "bare"),
        ("trunk", "0p5", "trunk", Never, "0p5"),
        ("trunk", "0p5", "access0", Never, "bare"),
        ("trunk", "s0p5", "access0", IfNonzero, "0p5"),
        // The tag inside would become the packet's VLAN.
        ("trunk", "0+20", "trunk", Never, "0+20"),
    ] {
        let to_port = PortConfig {
            priority_tags,
            ..port(to)
        };
        let got = cross(port(from), sent, to_port, 2);
        assert_eq!(got, expected, "[{sent}] from {from} to {to} {priority_tags:?}");
    }
}

#[test]
fn a_native_vlan_is_carried_whether_or_not_it_is_a_trunk_and_vlan_0_is_not() {
    assert_eq!(cross(port("tagged10:20"), "10", port("tagged10:20"), 1), "10");
    assert_eq!(cross(port("trunk"), "", port("tagged10"), 1), "-");
    assert_eq!(cross(port("trunk"), "", port("untagged0:20"), 1), "bare");
    assert_eq!(cross(port("untagged0"), "0p5", port("trunk"), 1), "0p5");
}

#[test]
fn a_packet_of_a_vlan_that_the_port_does_not_carry_is_dropped_as_filtered() {
    let mut lab = Lab::new();
    lab.port("br0", "a", port("access10"));
    lab.port("br0", "t", port("trunk:20"));
    lab.configure();
    let packet = || Packet::new(testkit::mac(1), testkit::mac(2));
    assert_eq!(
        lab.send_packet("a", packet(), &tags("10")),
        Err(DropCause::VlanFiltered)
    );
    assert_eq!(lab.send_packet("t", packet(), &[]), Err(DropCause::VlanFiltered));
    assert_eq!(lab.send_packet("a", packet(), &[]), Err(DropCause::NoDestination));
    assert_eq!(lab.stations("br0"), ["a 10 1"], "what is filtered teaches nothing");
    // A filtered packet's megaflow covers all addresses.
    let filtered = lab.translate("a", packet().vlan(10).payload(0x88b5, b""));
    assert_eq!(filtered.mask.get(Field::EthDst) | filtered.mask.get(Field::EthSrc), 0);
}

#[test]
fn actions_change_tags_as_rarely_as_possible_and_never_rebuild_a_packets_own() {
    let mut lab = Lab::new();
    for (name, mode) in [
        ("a1", "access10"),
        ("t1", "trunk"),
        ("a2", "access10"),
        ("t2", "trunk"),
        ("n", "untagged10"),
    ] {
        lab.port("br0", name, port(mode));
    }
    lab.configure();
    let actions = |port: &str, sent: &str| {
        let packet = Packet::new(testkit::mac(1), testkit::mac(2));
        let packet = tags(sent)
            .iter()
            .fold(packet, |packet, tag| packet.tag(tag.tpid, tag.tci));
        let actions = lab.translate(port, packet.payload(0x88b5, b"")).actions;
        actions.iter().map(Action::to_string).collect::<Vec<_>>().join(",")
    };
    // Ports are numbered a1 = 1 to n = 5.
    assert_eq!(actions("a1", ""), "3,5,push_vlan(vid=10,pcp=0),2,4");
    assert_eq!(actions("t1", "10p3"), "4,pop_vlan,1,3,5");
    assert_eq!(actions("a1", "0p5"), "pop_vlan,3,5,push_vlan(vid=10,pcp=5),2,4");
    assert_eq!(actions("t1", ""), "4");
}

#[test]
fn a_priority_is_looked_at_only_where_an_action_needs_it() {
    let mut lab = Lab::new();
    for (name, mode) in [("a", "access10"), ("t1", "trunk"), ("t2", "trunk")] {
        lab.port("br0", name, port(mode));
    }
    lab.configure();
    let bits = |port: &str, sent: &str| {
        let packet = Packet::new(testkit::mac(1), testkit::mac(2));
        let packet = tags(sent)
            .iter()
            .fold(packet, |packet, tag| packet.tag(tag.tpid, tag.tci));
        let mask = lab.translate(port, packet.payload(0x88b5, b"")).mask;
        (mask.get(Field::VlanTci0), mask.get(Field::VlanTpid0))
    };
    assert_eq!(bits("t1", "10p3"), (0x1fff, 0));
    assert_eq!(
        bits("a", "0p3"),
        (0xffff, 0xffff),
        "the new tag has the old one's priority and type"
    );
    assert_eq!(bits("t1", ""), (0x1fff, 0));
}

#[test]
fn tags_print_and_parse() {
    for text in ["", "10", "s10p5+20", "0p7"] {
        assert_eq!(show(&tags(text)), text);
    }
}
