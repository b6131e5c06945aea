//! Multicast snooping in NORMAL (RFC 4541).

use crate::lab::Lab;
use dp::{Action, Change, Translation};
use flow::{Field, PortNo};
use openflow::model::{self, Port};
use protocols::snooping::{Event, SourceFilter};
use std::net::IpAddr;
use switch::tables::{ControlPort, Patience};
use switch::{PortConfig, SnoopingConfig};
use testkit::Packet;
use wire::Vid;

const GROUP: [u8; 4] = [239, 1, 2, 3];
const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

fn lab(flood_unregistered: bool) -> Lab {
    let mut lab = Lab::with_ports(&["a", "b", "c", "d"]);
    lab.bridge("br0").snooping = Some(SnoopingConfig {
        flood_unregistered,
        proxy_reports: false,
    });
    lab.configure();
    lab
}

fn mac_of(group: [u8; 4]) -> [u8; 6] {
    [1, 0, 0x5e, group[1] & 0x7f, group[2], group[3]]
}

fn data(src: [u8; 4], group: [u8; 4]) -> Packet {
    Packet::new(testkit::mac(1), mac_of(group))
        .ipv4(src.into(), group.into())
        .udp(1, 2, b"x")
}

fn igmp(kind: u8) -> Packet {
    igmp_in(Packet::new(testkit::mac(1), mac_of(GROUP)), kind)
}

fn tagged(kind: u8, vid: u16) -> Packet {
    igmp_in(Packet::new(testkit::mac(1), mac_of(GROUP)).vlan(vid), kind)
}

fn igmp_in(frame: Packet, kind: u8) -> Packet {
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0, 0];
    packet.extend([A, GROUP].concat());
    packet.extend([kind, 0, 0, 0, 239, 1, 2, 3]);
    frame.payload(0x0800, &packet)
}

/// The ports that get a copy, and whether the control plane gets one.
fn out(translation: &Translation) -> (Vec<u32>, bool) {
    let (mut ports, mut punted) = (Vec::new(), false);
    for action in translation.actions.iter() {
        match action {
            Action::Output(PortNo(port)) => ports.push(*port),
            Action::Punt { handle, .. } => {
                assert_eq!(ControlPort::of(*handle).ofport, 1);
                punted = true;
            }
            _ => {}
        }
    }
    ports.sort_unstable();
    (ports, punted)
}

fn group(group: [u8; 4], members: &[(u32, SourceFilter)]) -> Event {
    Event::Group {
        vlan: Vid::NONE,
        group: IpAddr::from(group),
        members: members.to_vec(),
    }
}

fn routers(ports: &[u32]) -> Event {
    Event::Routers {
        vlan: Vid::NONE,
        ports: ports.to_vec(),
    }
}

#[test]
fn data_goes_to_members_and_routers() {
    let mut lab = lab(true);
    assert_eq!(out(&lab.translate("a", data(A, GROUP))), (vec![2, 3, 4], false));
    lab.switch.snoop(
        "br0",
        &[group(GROUP, &[(2, SourceFilter::ALL), (1, SourceFilter::ALL)])],
        false,
    );
    assert_eq!(out(&lab.translate("a", data(A, GROUP))), (vec![2], false));
    lab.switch.snoop("br0", &[routers(&[3])], false);
    assert_eq!(out(&lab.translate("a", data(A, GROUP))), (vec![2, 3], false));
    // Other groups, which nobody has joined, and link-local ones.
    assert_eq!(out(&lab.translate("a", data(A, [239, 7, 7, 7]))).0, [2, 3, 4]);
    assert_eq!(out(&lab.translate("a", data(A, [224, 0, 0, 5]))).0, [2, 3, 4]);
    let mut lab = self::lab(false);
    lab.switch.snoop("br0", &[routers(&[3])], false);
    assert_eq!(out(&lab.translate("a", data(A, [239, 7, 7, 7]))).0, [3]);
    assert_eq!(out(&lab.translate("a", data(A, [224, 0, 0, 5]))).0, [2, 3, 4]);
}

#[test]
fn a_group_with_the_same_address_below_ip_is_another() {
    let mut lab = lab(false);
    lab.switch
        .snoop("br0", &[group(GROUP, &[(2, SourceFilter::ALL)])], false);
    let other = [238, 0x81, 2, 3];
    assert_eq!(mac_of(other), mac_of(GROUP));
    assert!(out(&lab.translate("a", data(A, other))).0.is_empty());
    let translation = lab.translate("a", data(A, GROUP));
    assert_eq!(translation.mask.get(Field::Ipv4Dst), 0xffff_ffff);
}

#[test]
fn sources_matter_where_a_member_says_so() {
    let mut lab = lab(true);
    let only = SourceFilter::Only([IpAddr::from(A)].into());
    let except = SourceFilter::Except([IpAddr::from(A)].into());
    lab.switch.snoop(
        "br0",
        &[group(GROUP, &[(2, only), (3, except), (4, SourceFilter::ALL)])],
        false,
    );
    assert_eq!(out(&lab.translate("a", data(A, GROUP))).0, [2, 4]);
    assert_eq!(out(&lab.translate("a", data(B, GROUP))).0, [3, 4]);
    assert_eq!(lab.translate("a", data(A, GROUP)).mask.get(Field::Ipv4Src), 0xffff_ffff);
    lab.switch
        .snoop("br0", &[group(GROUP, &[(4, SourceFilter::ALL)])], false);
    assert_eq!(lab.translate("a", data(A, GROUP)).mask.get(Field::Ipv4Src), 0);
}

#[test]
fn reports_go_to_routers_and_queries_to_all() {
    let mut lab = lab(true);
    lab.port_mut("d").mcast_flood_reports = true;
    lab.configure();
    assert_eq!(out(&lab.translate("a", igmp(0x16))), (vec![4], true));
    lab.switch.snoop("br0", &[routers(&[3])], false);
    for kind in [0x12, 0x16, 0x17, 0x22] {
        assert_eq!(out(&lab.translate("a", igmp(kind))), (vec![3, 4], true));
    }
    assert_eq!(out(&lab.translate("a", igmp(0x11))), (vec![2, 3, 4], true));
    assert_eq!(out(&lab.translate("a", igmp(0x13))), (vec![2, 3, 4], true));
    let report = lab.translate("a", igmp(0x16));
    assert_eq!(report.mask.get(Field::TpSrc), 0xffff, "a query is another megaflow");
}

#[test]
fn a_proxy_keeps_the_reports_of_hosts_and_sends_its_own() {
    let mut lab = lab(true);
    lab.bridge("br0").snooping = Some(SnoopingConfig {
        flood_unregistered: true,
        proxy_reports: true,
    });
    lab.configure();
    lab.switch.snoop("br0", &[routers(&[3])], false);
    for kind in [0x12, 0x16, 0x17, 0x22] {
        assert_eq!(out(&lab.translate("a", igmp(kind))), (vec![], true));
    }
    assert_eq!(out(&lab.translate("a", igmp(0x11))), (vec![2, 3, 4], true));
    let frame = igmp(0x16).bytes();
    let key = flow::extract(&frame, &flow::PacketMeta::default()).unwrap();
    let state = flow::FlowState::new(key, Port::CONTROLLER.0);
    let normal = [model::Action::Output {
        port: Port::NORMAL,
        max_len: 0,
    }];
    let own = lab.switch.packet_out("br0", &state, &normal, lab.now, Patience::Whole);
    assert_eq!(out(&own.unwrap().unwrap().translation), (vec![3], false));
}

#[test]
fn flooded_ports_get_all_data() {
    let mut lab = lab(false);
    lab.port_mut("d").mcast_flood = true;
    lab.configure();
    assert_eq!(out(&lab.translate("a", data(A, GROUP))).0, [4]);
    lab.switch
        .snoop("br0", &[group(GROUP, &[(2, SourceFilter::ALL)]), routers(&[4])], false);
    assert_eq!(out(&lab.translate("a", data(A, GROUP))).0, [2, 4], "one copy each");
}

#[test]
fn a_change_of_members_is_stale_for_its_group_only() {
    let mut lab = lab(true);
    let member = (2, SourceFilter::ALL);
    lab.switch
        .snoop("br0", &[group(GROUP, std::slice::from_ref(&member))], false);
    let (own, other) = (
        lab.translate("a", data(A, GROUP)),
        lab.translate("a", data(A, [239, 7, 7, 7])),
    );
    let touches = |changes: &[Change]| [&own, &other].map(|old| changes.iter().any(|change| old.depends_on(change)));
    let same = lab
        .switch
        .snoop("br0", &[group(GROUP, std::slice::from_ref(&member))], false);
    assert!(same.is_empty());
    let joined = lab
        .switch
        .snoop("br0", &[group(GROUP, &[member, (3, SourceFilter::ALL)])], false);
    assert_eq!(touches(&joined), [true, false]);
    let gone = lab.switch.snoop("br0", &[], true);
    assert_eq!(touches(&gone), [true, false]);
    let router = lab.switch.snoop("br0", &[routers(&[3])], false);
    assert_eq!(
        touches(&router),
        [true, false],
        "what is flooded does not ask for routers"
    );
}

#[test]
fn the_control_plane_gets_the_frame_as_the_bridge_received_it() {
    let mut lab = Lab::new();
    let access = PortConfig {
        vlan_mode: switch::VlanMode::Access,
        tag: Vid::new(10).ok(),
        ..PortConfig::default()
    };
    lab.port("br0", "a", access);
    lab.port("br0", "b", PortConfig::default());
    lab.bridge("br0").snooping = Some(SnoopingConfig {
        flood_unregistered: true,
        proxy_reports: false,
    });
    lab.configure();
    let vlan = |lab: &Lab, packet: Packet, port| lab.switch.vlan_at("br0", port, &packet.bytes());
    assert_eq!(vlan(&lab, igmp(0x16), 1), Vid::new(10).ok());
    assert_eq!(vlan(&lab, tagged(0x16, 7), 1), None);
    assert_eq!(vlan(&lab, tagged(0x16, 7), 2), Vid::new(7).ok());
    assert_eq!(vlan(&lab, igmp(0x16), 3), None);
    let query = lab.translate("a", igmp(0x11));
    let punt = query
        .actions
        .iter()
        .position(|action| matches!(action, Action::Punt { .. }));
    let push = query
        .actions
        .iter()
        .position(|action| matches!(action, Action::PushVlan(_)));
    assert!(punt < push, "{:?}", query.actions);
}
