//! Control protocols: frames that they take, and ports that they keep from forwarding.

use crate::lab::Lab;
use dp::{Action, DropCause, PuntReason};
use flow::{Field, PortNo, extract};
use switch::tables::ControlPort;
use switch::{BfdFrames, LinkState, PortConfig, Punts};
use testkit::Packet;
use wire::MacAddr;

const BLOCKED: LinkState = LinkState {
    learn: false,
    forward: false,
    ..LinkState::UP
};

/// The length of a frame in the place of an EtherType.
const LENGTH: u16 = 60;

fn out(ports: &str) -> Result<Vec<String>, DropCause> {
    Ok(ports.split_whitespace().map(str::to_owned).collect())
}

fn lab_with(punts: Punts) -> Lab {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.port_mut("a").interfaces[0].punts = punts;
    lab.configure();
    lab
}

fn frame_to(dst: &str, ethertype: u16) -> Packet {
    Packet::new(testkit::mac(1), dst.parse::<MacAddr>().unwrap().0).payload(ethertype, &[0; 60])
}

fn punt(lab: &Lab, port: &str, packet: Packet) -> Option<(PuntReason, ControlPort)> {
    match &lab.translate(port, packet).actions[..] {
        [Action::Punt { reason, handle, .. }] => Some((*reason, ControlPort::of(*handle))),
        _ => None,
    }
}

#[test]
fn a_port_hands_over_the_frames_of_its_protocols_only() {
    let all = Punts {
        lacp: true,
        stp: true,
        lldp: true,
        cfm: Some("01:23:20:00:00:30".parse().unwrap()),
        bfd: Some(BfdFrames::default()),
    };
    let lab = lab_with(all);
    let frames = [
        ("01:80:c2:00:00:02", 0x8809, PuntReason::Lacp),
        ("01:80:c2:00:00:00", LENGTH, PuntReason::Stp),
        ("01:80:c2:00:00:0e", 0x88cc, PuntReason::Lldp),
        ("01:23:20:00:00:30", 0x8902, PuntReason::Cfm),
    ];
    for (dst, ethertype, reason) in frames {
        let (punted, at) = punt(&lab, "a", frame_to(dst, ethertype)).unwrap();
        assert_eq!((punted, at.ofport), (reason, 1));
        assert_eq!(punt(&lab, "b", frame_to(dst, ethertype)), None);
    }
    let bfd = |port| {
        Packet::new(testkit::mac(1), testkit::mac(2))
            .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
            .udp(49152, port, b"")
    };
    assert_eq!(punt(&lab, "a", bfd(3784)).unwrap().0, PuntReason::Bfd);
    assert_eq!(punt(&lab, "a", bfd(3785)), None);
    assert_eq!(punt(&lab, "a", frame_to("01:23:20:00:00:31", 0x8902)), None);
    assert_eq!(punt(&lab, "a", frame_to("01:80:c2:00:00:00", 0x88b5)), None);
    // The tunnel's key matters only where the session asks for it.
    let compares_key = |lab: &Lab| lab.translate("a", bfd(3784)).mask.get(Field::TunId) != 0;
    assert!(!compares_key(&lab));
    let without_key = BfdFrames {
        without_key: true,
        ..BfdFrames::default()
    };
    let lab = lab_with(Punts {
        bfd: Some(without_key),
        ..Punts::default()
    });
    assert!(compares_key(&lab));
    assert_eq!(punt(&lab, "a", bfd(3784)).unwrap().0, PuntReason::Bfd);
}

#[test]
fn a_megaflow_of_a_port_with_protocols_does_not_cover_their_frames() {
    let lab = lab_with(Punts {
        stp: true,
        ..Punts::default()
    });
    let data = lab.translate("a", frame_to("ff:ff:ff:ff:ff:ff", LENGTH));
    let key = extract(&frame_to("01:80:c2:00:00:00", LENGTH).bytes(), &PortNo(1).into()).unwrap();
    let compared = data.mask.get(Field::EthDst);
    assert_ne!(key.get(Field::EthDst) & compared, 0xffff_ffff_ffff & compared);
}

#[test]
fn a_blocked_port_neither_receives_nor_sends_and_a_learning_port_teaches() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.changes = lab.switch.set_links("br0", &[(1, BLOCKED)]);
    assert_eq!(lab.send("a", 1, 9), Err(DropCause::Blocked));
    assert_eq!(lab.send("b", 2, 9), out("c"));
    assert_eq!(lab.stations("br0"), ["b 0 2"]);
    let learning = LinkState { learn: true, ..BLOCKED };
    lab.changes = lab.switch.set_links("br0", &[(1, learning)]);
    assert_eq!(lab.send("a", 1, 9), Err(DropCause::Blocked));
    assert_eq!(lab.stations("br0"), ["b 0 2", "a 0 1"]);
    assert_eq!(lab.send("b", 2, 1), Err(DropCause::Blocked));
    lab.changes = lab.switch.set_links("br0", &[(1, LinkState::UP)]);
    assert_eq!(lab.send("b", 2, 1), out("a"));
}

#[test]
fn a_change_of_a_link_makes_stale_what_was_translated_before() {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    lab.send("a", 1, 9).unwrap();
    let packet = |src, dst| Packet::new(testkit::mac(src), testkit::mac(dst)).payload(0x88b5, b"");
    let flood = lab.translate("b", packet(2, 9));
    let known = lab.translate("b", packet(2, 1));
    let received = lab.translate("a", packet(1, 9));
    let changes = lab.switch.set_links("br0", &[(1, BLOCKED)]);
    for translation in [flood, known, received] {
        assert!(changes.iter().any(|change| translation.depends_on(change)));
    }
    assert_eq!(lab.switch.set_links("br0", &[(1, BLOCKED), (77, BLOCKED)]), []);
    assert_eq!(lab.switch.set_links("br7", &[(1, BLOCKED)]), []);
}

#[test]
fn a_port_of_several_interfaces_leaves_one_whose_other_end_is_dead() {
    let mut lab = Lab::with_ports(&["a"]);
    lab.port("br0", "b", PortConfig::default());
    lab.port("br0", "c", PortConfig::default());
    let second = lab.bridge("br0").ports.remove("c").unwrap().interfaces;
    lab.port_mut("b").interfaces.extend(second);
    lab.configure();
    assert_eq!(lab.send("a", 1, 9), out("b"));
    let dead = LinkState {
        alive: false,
        ..LinkState::UP
    };
    lab.changes = lab.switch.set_links("br0", &[(2, dead)]);
    assert_eq!(lab.send("a", 1, 9), out("c"));
}
