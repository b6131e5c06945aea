//! Requests that OVN sends, which gives up a switch that refuses one.

use crate::world::{Lab, errors};
use flow::MatchField;
use ofproto::Kind;
use openflow::Version;
use openflow::model::{Action, Body, CtFlush, FlowMod, Instructions, Match, PacketOut, Port, Value};

#[test]
fn flushes_of_connections_reach_the_datapath_and_need_no_answer() {
    for version in Version::ALL {
        let mut lab = Lab::new();
        let id = lab.open(Kind::Service, version);
        let all = CtFlush::default();
        lab.say(id, version, 2, Body::CtFlushZone(5));
        lab.say(id, version, 3, Body::CtFlush(Box::new(all)));
        assert_eq!(errors(&lab.hear(id, version)), [], "{version}");
        let zone = CtFlush { zone: Some(5), ..all };
        assert_eq!(*lab.world.flushed.borrow(), [zone, all]);
    }
}

#[test]
fn a_time_to_live_may_run_out_without_a_controller_that_is_told() {
    for version in Version::ALL {
        let mut lab = Lab::new();
        let id = lab.open(Kind::Service, version);
        let mut matching = Match::ANY;
        matching.set(MatchField::EthType, 0x0800, 0xffff);
        let rule = FlowMod {
            matching,
            instructions: Instructions::apply(vec![Action::DecTtl(Vec::new())]),
            ..crate::world::rule(1)
        };
        lab.say(id, version, 2, Body::FlowMod(Box::new(rule)));
        assert_eq!(errors(&lab.hear(id, version)), [], "{version}");
        assert_eq!(lab.rules(), 2, "it and the one that a bridge begins with");
    }
}

/// A neighbour solicitation (135) or advertisement (136).
fn discovery(kind: u8) -> Vec<u8> {
    let mut packet = vec![0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    packet.extend([0x60, 0, 0, 0, 0, 32, 58, 255]);
    packet.extend([0xfe; 32]);
    packet.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
    packet.extend([0xfe; 16]);
    packet.extend([kind - 134, 1, 2, 0, 0, 0, 0, 9]);
    packet
}

#[test]
fn a_packet_out_may_set_the_fields_that_its_packet_has() {
    let (target, sll, tll) = (MatchField::NdTarget, MatchField::NdSll, MatchField::NdTll);
    // As Debian's Open vSwitch.
    let cases = [
        (135, target, true),
        (135, sll, true),
        (135, tll, false),
        (136, target, true),
        (136, sll, false),
        (136, tll, true),
        (135, MatchField::Icmpv6Type, true),
        (135, MatchField::TcpSrc, false),
        (135, MatchField::Ipv6Src, true),
    ];
    for version in [Version::V13, Version::V15] {
        for (kind, field, is_taken) in cases {
            let mut lab = Lab::new();
            let id = lab.open(Kind::Service, version);
            let set = Action::SetField {
                field,
                value: Value::Word(7),
                mask: None,
            };
            let send = Action::Output {
                port: Port(1),
                max_len: 0,
            };
            let out = PacketOut {
                buffer_id: None,
                in_port: Port::CONTROLLER,
                actions: vec![set, send],
                data: discovery(kind),
                metadata: Match::ANY,
            };
            lab.say(id, version, 2, Body::PacketOut(Box::new(out)));
            let refused = errors(&lab.hear(id, version));
            assert_eq!(refused.is_empty(), is_taken, "{version} {kind} {field}: {refused:?}");
            assert_eq!(lab.world.sent.borrow().len(), usize::from(is_taken));
        }
    }
}
