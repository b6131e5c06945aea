//! What mirrors and exporters change for packets, and that nothing stays of it.

use crate::lab::Lab;
use dp::Action;
use flow::Mask;
use openflow::model::FlowCommand;
use openflow::text::{Names, parse_flow};
use std::collections::BTreeMap;
use switch::{ExportConfig, IpfixConfig, MirrorConfig, MirrorOutput, PortConfig, SflowConfig, VlanSet};
use testkit::{Packet, mac};

/// Ways to see the traffic of a bridge.
#[derive(Clone, Copy, Debug)]
enum Watch {
    Mirror,
    Sflow,
    Ipfix,
    Netflow,
}

const ALL: [Watch; 4] = [Watch::Mirror, Watch::Sflow, Watch::Ipfix, Watch::Netflow];

fn watch(lab: &mut Lab, bridge: &str, by: Watch, output: &str) {
    let bridge = lab.bridge(bridge);
    let probability = u32::MAX / 1000;
    match by {
        Watch::Mirror => bridge.mirrors.push(MirrorConfig {
            id: 1,
            select_all: true,
            select_src: [].into(),
            select_dst: [].into(),
            vlans: VlanSet::new(),
            filter: None,
            output: MirrorOutput::Port(output.to_owned()),
            snaplen: None,
        }),
        Watch::Sflow => {
            bridge.export.sflow = Some(SflowConfig {
                probability,
                header: 128,
                ifindex: BTreeMap::new(),
            });
        }
        Watch::Ipfix => {
            bridge.export.ipfix = Some(IpfixConfig {
                probability,
                input: true,
                output: true,
            });
        }
        Watch::Netflow => bridge.export.netflow = true,
    }
    lab.configure();
}

fn unwatch(lab: &mut Lab, bridge: &str) {
    lab.bridge(bridge).mirrors.clear();
    lab.bridge(bridge).export = ExportConfig::default();
    lab.configure();
}

/// What workers do with packets, and which bits they tell packets apart by.
fn decisions(lab: &Lab) -> Vec<(Vec<Action>, Mask)> {
    let frame = |dst| Packet::new(mac(1), dst);
    let ip = |dst| frame(dst).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let packets = [
        frame([0xff; 6]).payload(0x88b5, b"data"),
        frame(mac(2)).payload(0x88b5, b"data"),
        frame(mac(2)).vlan(7).payload(0x88b5, b"data"),
        ip(mac(2)).udp(1000, 2000, b"data"),
        ip(mac(2)).tcp(1000, 80, 0x10, b"data"),
    ];
    let decided = packets.map(|packet| lab.translated("a", packet));
    assert!(
        decided.iter().all(|decided| decided.flow.is_none()),
        "a flow of NetFlow"
    );
    let decided = decided.map(|decided| (decided.translation.actions.to_vec(), decided.translation.mask));
    decided.into()
}

fn lab(rule: bool) -> Lab {
    let mut lab = Lab::with_ports(&["a", "b", "c"]);
    for name in ["x", "y", "z"] {
        lab.port("br1", name, PortConfig::default());
    }
    lab.configure();
    // The bridge learns where the packets go.
    lab.send("b", 2, 1).unwrap();
    if rule {
        let rule = parse_flow(FlowCommand::Add, "ip,actions=mod_vlan_vid:5,NORMAL", &Names::default()).unwrap();
        lab.switch.flow_mod("br0", &rule, lab.now).unwrap();
    }
    lab
}

#[test]
fn where_nothing_watches_packets_take_no_step_for_it() {
    for rule in [false, true] {
        let mut lab = lab(rule);
        let before = decisions(&lab);
        let is_plain = |action: &Action| !matches!(action, Action::Sample { .. } | Action::Punt { .. });
        assert!(before.iter().flat_map(|(actions, _)| actions).all(is_plain));
        let has_mirrors = |lab: &Lab| lab.switch.bridge("br0").unwrap().has_mirrors();
        for by in ALL {
            watch(&mut lab, "br1", by, "z");
            assert_eq!(decisions(&lab), before, "{by:?} of another bridge");
            assert!(!has_mirrors(&lab), "{by:?} of another bridge");
            watch(&mut lab, "br0", by, "c");
            assert_eq!(has_mirrors(&lab), matches!(by, Watch::Mirror), "{by:?}");
            let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
            let watched = lab.translated("a", packet.udp(1000, 2000, b"data"));
            let (actions, mask) = (watched.translation.actions.to_vec(), watched.translation.mask);
            match by {
                // NetFlow's only price is a megaflow that tells flows apart.
                Watch::Netflow => {
                    assert!(watched.flow.is_some());
                    assert_eq!(actions, before[3].0);
                    assert_ne!(mask, before[3].1);
                }
                Watch::Mirror | Watch::Sflow | Watch::Ipfix => assert_ne!(actions, before[3].0, "{by:?}"),
            }
            unwatch(&mut lab, "br0");
            assert_eq!(decisions(&lab), before, "{by:?} leaves nothing behind");
        }
    }
}
