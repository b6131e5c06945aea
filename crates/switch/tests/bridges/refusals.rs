//! Bridges without rules, with port flags or a fragment mode from a controller.

use crate::ask::Ask;
use crate::lab::Lab;
use dp::DropCause;
use flow::{Field, Frag, PortNo, extract};
use switch::{Attach, FragMode, PortConfig, PortFlags};
use testkit::Packet;

/// `a`, `b` and `c`, with the OpenFlow numbers 1, 2 and 3.
fn lab() -> Lab {
    Lab::with_ports(&["a", "b", "c"])
}

fn say(lab: &mut Lab, port: u32, set: fn(&mut PortFlags)) {
    let mut flags = PortFlags::default();
    set(&mut flags);
    lab.changes = lab.switch.set_port_flags("br0", port, flags).unwrap();
}

fn out(ports: &str) -> Result<Vec<String>, DropCause> {
    Ok(ports.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn a_port_that_shall_not_receive_does_not_without_rules_either() {
    let mut lab = lab();
    lab.bridge("br0").forward_bpdu = true;
    lab.configure();
    let packet = Packet::new(testkit::mac(1), testkit::mac(2)).payload(0x88b5, b"");
    let before = lab.translate("a", packet);
    say(&mut lab, 1, |flags| flags.no_recv = true);
    assert!(lab.changes.iter().any(|change| before.depends_on(change)));
    assert_eq!(lab.send("a", 1, 2), Err(DropCause::PortDown));
    assert_eq!(lab.send("b", 2, 1), out("a c"));
    assert_eq!(lab.stations("br0"), ["b 0 2"]);

    let spanning_tree = || Packet::new(testkit::mac(1), [0x01, 0x80, 0xc2, 0, 0, 0]);
    assert_eq!(lab.send_packet("a", spanning_tree(), &[]), out("b c"));
    say(&mut lab, 1, |flags| flags.no_recv_stp = true);
    assert_eq!(lab.send_packet("a", spanning_tree(), &[]), Err(DropCause::PortDown));
    assert_eq!(lab.send("a", 1, 2), out("b"));
    say(&mut lab, 1, |_| {});
    assert_eq!(lab.send_packet("a", spanning_tree(), &[]), out("b c"));
}

#[test]
fn a_port_that_shall_not_send_or_be_flooded_to_does_not_without_rules_either() {
    let mut lab = lab();
    lab.send("b", 2, 9).unwrap();
    say(&mut lab, 2, |flags| flags.no_flood = true);
    assert_eq!(lab.send("a", 1, 9), out("c"));
    assert_eq!(lab.send("a", 1, 2), out("b"));
    say(&mut lab, 2, |flags| flags.no_fwd = true);
    assert_eq!(lab.send("a", 1, 9), out("c"));
    assert_eq!(lab.send("a", 1, 2), Err(DropCause::NoDestination));
}

#[test]
fn a_port_refuses_behind_a_patch_as_well() {
    let mut lab = lab();
    lab.patch("br0", "x0", "x1", PortConfig::default());
    lab.patch("br1", "x1", "x0", PortConfig::default());
    lab.port("br1", "d", PortConfig::default());
    lab.configure();
    assert_eq!(lab.send("a", 1, 2), out("b c d"));
    let Attach::Patch { .. } = lab.port_mut("x1").interfaces[0].attach else {
        panic!("x1 is a patch");
    };
    let flags = PortFlags {
        no_recv: true,
        ..PortFlags::default()
    };
    lab.switch.set_port_flags("br1", 1000, flags).unwrap();
    assert_eq!(lab.send("a", 1, 2), out("b c"));
}

#[test]
fn fragments_that_shall_be_dropped_are_without_rules_either() {
    let mut lab = lab();
    let packet = Packet::new(testkit::mac(1), testkit::mac(2));
    let packet = packet
        .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
        .udp(1, 2, b"data");
    let whole = extract(&packet.bytes(), &PortNo(1).into()).unwrap();
    let fragments = [Frag::First, Frag::Later].map(|frag| {
        let mut key = whole;
        key.set(Field::IpFrag, frag as u128);
        key
    });
    let outputs = |lab: &Lab, key| lab.switch.ask(key).translation.actions.len();
    let before = lab.switch.ask(&whole).translation;
    for (mode, dropped) in [
        (FragMode::NxMatch, false),
        (FragMode::Drop, true),
        (FragMode::Normal, false),
    ] {
        let changes = lab.switch.set_frag_mode("br0", mode);
        assert!(mode == FragMode::Normal || changes.iter().any(|change| before.depends_on(change)));
        assert_eq!(outputs(&lab, &whole), 2);
        for fragment in &fragments {
            assert_eq!(outputs(&lab, fragment), if dropped { 0 } else { 2 }, "{mode:?}");
        }
        let looked_at = lab.switch.ask(&whole).translation.mask.get(Field::IpFrag);
        assert_eq!(looked_at != 0, dropped);
    }
}
