//! Bridges that are patched together.

use crate::lab::{Lab, tags, vid};
use dp::{Action, DropCause};
use flow::{PortNo, extract};
use switch::tables::Patience;
use switch::trace::Request;
use switch::{FailMode, PortConfig, VlanMode};
use testkit::Packet;

fn access(tag: u16) -> PortConfig {
    PortConfig {
        vlan_mode: VlanMode::Access,
        tag: Some(vid(tag)),
        ..PortConfig::default()
    }
}

/// `br0` with ports a and b, `br1` with ports c and d, patched by trunks.
fn pair() -> Lab {
    let mut lab = Lab::new();
    lab.port("br0", "a", access(10));
    lab.port("br0", "b", PortConfig::default());
    lab.port("br1", "c", access(10));
    lab.port("br1", "d", access(20));
    lab.patch("br0", "x0", "x1", PortConfig::default());
    lab.patch("br1", "x1", "x0", PortConfig::default());
    lab.configure();
    lab
}

#[test]
fn a_packet_goes_on_in_the_peers_bridge_with_the_tags_that_it_has_there() {
    let mut lab = pair();
    assert_eq!(lab.send("a", 1, 9), Ok(vec!["b 10".to_owned(), "c".to_owned()]));
    assert_eq!(lab.stations("br0"), ["a 10 1"]);
    assert_eq!(lab.stations("br1"), ["x1 10 1"]);
    assert_eq!(lab.send("c", 3, 1), Ok(vec!["a".to_owned()]));
    assert_eq!(lab.send("a", 1, 3), Ok(vec!["c".to_owned()]));
    let packet = Packet::new(testkit::mac(2), testkit::mac(9));
    assert_eq!(lab.send_packet("b", packet, &tags("20")), Ok(vec!["d".to_owned()]));
}

#[test]
fn a_trace_tells_the_way_through_both_bridges_and_what_an_upcall_is_answered() {
    let lab = pair();
    let packet = Packet::new(testkit::mac(1), testkit::mac(9)).payload(0x88b5, b"");
    let key = extract(&packet.clone().bytes(), &PortNo(1).into()).unwrap();
    let request = Request::new("br0", key, 1);
    let traced = lab.switch.trace(&request, lab.now, Patience::Whole);
    let traced = traced.flatten().unwrap();
    let told: Vec<&str> = traced.text.lines().map(str::trim).collect();
    let places = [
        "bridge(\"br0\")",
        "0. priority 0",
        "NORMAL",
        "-> no learned MAC for destination, flooding",
    ];
    assert_eq!(
        told[2..7],
        [places[0], &"-".repeat(13), places[1], places[2], places[3]]
    );
    assert_eq!(
        told[8..13],
        ["bridge(\"br1\")", &"-".repeat(13), places[1], places[2], places[3]]
    );
    let answer = lab.translate("a", packet);
    let actions = |all: &[Action]| all.iter().map(Action::to_string).collect::<Vec<_>>().join(",");
    // A trace has the order of ports; the datapath changes tags as rarely as possible.
    assert_eq!(
        actions(&traced.translated.translation.actions),
        "push_vlan(vid=10,pcp=0),2,pop_vlan,3"
    );
    assert_eq!(actions(&answer.actions), "3,push_vlan(vid=10,pcp=0),2");
    assert!(traced.translated.translation.mask.covers(&answer.mask));
}

#[test]
fn each_bridge_has_its_own_idea_of_the_vlan() {
    let mut lab = pair();
    // VLAN 10 of br0 is VLAN 20 of br1.
    for (name, tag) in [("x0", 10), ("x1", 20)] {
        let port = lab.port_mut(name);
        port.vlan_mode = VlanMode::Access;
        port.tag = Some(vid(tag));
    }
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), Ok(vec!["b 10".to_owned(), "d".to_owned()]));
    assert_eq!(lab.stations("br1"), ["x1 20 1"]);
}

#[test]
fn a_patch_counts_only_where_each_end_names_the_other() {
    let mut lab = pair();
    lab.patch("br1", "x1", "elsewhere", PortConfig::default());
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), Ok(vec!["b 10".to_owned()]));
    lab.patch("br0", "x0", "x0", PortConfig::default());
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), Ok(vec!["b 10".to_owned()]));
}

#[test]
fn what_the_peers_bridge_refuses_is_a_drop_for_its_reason() {
    let mut lab = pair();
    lab.bridge("br0").ports.remove("b");
    lab.bridge("br1").fail_mode = FailMode::Secure;
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), Err(DropCause::NoRule));
    let refused = lab.translate("a", Packet::new(testkit::mac(1), testkit::mac(9)).payload(0x88b5, b""));
    lab.bridge("br1").fail_mode = FailMode::Standalone;
    lab.configure();
    assert!(lab.changes.iter().any(|change| refused.depends_on(change)));
    assert_eq!(lab.send("a", 1, 9), Ok(vec!["c".to_owned()]));
}

/// A row of bridges, port `in` at one end and `out` at the other.
fn row(bridges: usize) -> Lab {
    let mut lab = Lab::new();
    lab.port("br0", "in", PortConfig::default());
    lab.port(&format!("br{}", bridges - 1), "out", PortConfig::default());
    for n in 1..bridges {
        let (left, right) = (format!("l{n}"), format!("r{n}"));
        lab.patch(&format!("br{}", n - 1), &left, &right, PortConfig::default());
        lab.patch(&format!("br{n}"), &right, &left, PortConfig::default());
    }
    lab.configure();
    lab
}

#[test]
fn a_row_of_bridges_may_be_64_patches_long() {
    let mut lab = row(65);
    assert_eq!(lab.send("in", 1, 2), Ok(vec!["out".to_owned()]));
    assert_eq!(lab.stations("br64"), ["r64 0 1"]);
    assert_eq!(row(66).send("in", 1, 2), Err(DropCause::TranslationLimit));
}

#[test]
fn a_loop_of_patches_drops_the_packet_and_teaches_nothing() {
    let mut lab = pair();
    lab.patch("br0", "y0", "y1", PortConfig::default());
    lab.patch("br1", "y1", "y0", PortConfig::default());
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), Err(DropCause::TranslationLimit));
    assert_eq!(lab.stations("br0"), [""; 0]);
    // Cut it, and the packet passes.
    lab.bridge("br0").ports.remove("y0");
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), Ok(vec!["b 10".to_owned(), "c".to_owned()]));
}

#[test]
fn a_loop_that_doubles_at_every_turn_ends_soon() {
    let mut lab = pair();
    for n in 0..20 {
        let (one, two) = (format!("y{n}"), format!("z{n}"));
        lab.patch("br0", &one, &two, PortConfig::default());
        lab.patch("br1", &two, &one, PortConfig::default());
    }
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), Err(DropCause::TranslationLimit));
}

#[test]
fn a_packet_that_comes_back_to_its_device_is_not_sent_there() {
    let mut lab = Lab::new();
    // The patch ends in the same bridge, in another VLAN. The ingress port is a trunk of that VLAN
    // too.
    lab.port("br0", "a", PortConfig::default());
    lab.port("br0", "b", PortConfig::default());
    lab.patch("br0", "x0", "x1", access(10));
    lab.patch("br0", "x1", "x0", access(20));
    lab.configure();
    let packet = Packet::new(testkit::mac(1), testkit::mac(2));
    assert_eq!(
        lab.send_packet("a", packet, &tags("10")),
        Ok(vec!["b 10".to_owned(), "b 20".to_owned()])
    );
}
