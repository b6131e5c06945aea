//! Flows out of tunnels, which depend on two megaflows.

use super::super::simulated::Simulated;
use super::{bridge, station};
use crate::bonds::BondView;
use crate::dep_epochs::{DepEpochs, PortOffload};
use crate::hash::KeyHasher;
use crate::megaflow::{Candidate, FlowTable};
use dp::offload::{OffloadTable, PacketKind};
use dp::{Action, Change, Credit, Dep, Translation};
use flow::{Field, Mask, PortNo};
use nanos::Nanos;
use netdev::{Dummy, Netdev};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use testkit::{Packet, mac};
use tunnel::format::Format;

const UNDERLAY: PortNo = PortNo(101);
const HOST: PortNo = PortNo(102);
const TUNNEL: PortNo = PortNo(4789);
const VXLAN: Format = Format::Vxlan { gbp: false, gpe: false };

fn translation(action: Action, dep: Dep, credit: u128) -> Translation {
    Translation {
        actions: Arc::from([action]),
        mask: Mask::exact(Field::InPort),
        deps: vec![dep].into(),
        effects: Default::default(),
        credits: [Credit(credit)].as_slice().into(),
        drop: None,
    }
}

fn packet() -> Vec<u8> {
    let inner = Packet::new(mac(3), mac(4)).ipv4([10, 9, 0, 1].into(), [10, 9, 0, 2].into());
    let inner = inner.udp(1, 2, b"payload").bytes();
    let len = (16 + inner.len()) as u16;
    let head = [
        &[0x80, 0, 0x12, 0xb5][..],
        &len.to_be_bytes(),
        &[0, 0, 8, 0, 0, 0, 0, 0, 42, 0],
    ]
    .concat();
    let outer = Packet::new(mac(1), mac(2)).ipv4([172, 31, 0, 1].into(), [172, 31, 0, 2].into());
    outer.protocol(17, &[&head[..], &inner].concat()).bytes()
}

#[test]
fn it_counts_for_both_megaflows_and_ends_with_either() {
    let kernel = Simulated::new();
    let deps = DepEpochs::new(OffloadTable::new(kernel.clone()));
    let ports = [1, 2].map(|ifindex| deps.table().port(ifindex).unwrap());
    let mut flows = FlowTable::new(Arc::new(KeyHasher::new()), 1000, Duration::from_secs(10));
    for (number, port) in [UNDERLAY, HOST].into_iter().zip(&ports) {
        let device = Arc::new(Dummy::open("p", &BTreeMap::new()).unwrap());
        let offload = PortOffload {
            port: port.clone(),
            deps: deps.clone(),
            device: device.state().ok(),
        };
        flows.add_offload_port(number, offload);
    }
    let packet = packet();
    let kind = PacketKind::of_tunnel(1, &packet, VXLAN, false).unwrap();
    let key = |port: PortNo, data: &[u8]| flow::extract(data, &port.into()).unwrap();
    let pop = Action::TunnelPop {
        port: TUNNEL,
        format: VXLAN,
    };
    let mut now = Nanos(1_000_000_000);
    for ends in [bridge(1), station(2, 3)] {
        let outer = translation(pop.clone(), bridge(1), 1);
        let outer = flows.insert(&key(UNDERLAY, &packet), UNDERLAY, &outer, 100, now);
        let inner = translation(Action::Output(HOST), station(2, 3), 2);
        let inner = flows.insert(&key(TUNNEL, &packet[50..]), TUNNEL, &inner, 50, now);
        assert!(flows.ends_tunnels());
        assert_eq!(flows.tunnel_end(outer), Some((TUNNEL, VXLAN)));
        assert_eq!(flows.tunnel_end(inner), None);
        let (outputs, loads) = flows
            .outputs((inner, 0), &kind, &kind.flow_key(), &mut BondView::new(Arc::default()))
            .unwrap();
        let candidate = Candidate {
            kind,
            from: UNDERLAY,
            flow: inner,
            outer: Some(outer),
            way: None,
            push: None,
            outputs,
            loads,
        };
        now += Duration::from_millis(2);
        let place = flows.offload(&candidate, || true, now).unwrap();
        let given = flows.given(place).unwrap();
        assert!(flows.settle(place, given));
        assert_eq!((flows.offloaded_of(outer), flows.offloaded_of(inner)), (1, 1));
        for _ in 0..3 {
            assert_eq!(kernel.receive(&kind, 100, now), Some(2));
        }
        flows.tell_carried(0);
        let counts = |flow: u32| {
            let mut counts = (0, 0);
            let mut next = Some(0);
            while let Some(first) = next {
                next = flows.walk(first, |number, own, _, _| {
                    if number == flow {
                        counts = (own.packets, own.bytes);
                    }
                });
            }
            counts
        };
        assert_eq!(
            (counts(outer), counts(inner)),
            ((3, 300), (3, 150)),
            "without outer headers inside"
        );
        // It is suspended when the change is published, and closed when the worker has applied it.
        kernel.receive(&kind, 100, now);
        deps.changed(&[Change::Dep(ends)]);
        assert_eq!(kernel.receive(&kind, 100, now), None);
        flows.apply(&Change::Dep(ends));
        for _ in 0..3 {
            now += Duration::from_millis(2);
            flows.tidy_offloaded(now);
        }
        assert!(!kernel.has(&kind));
        // The last packet counts for the rules of the megaflow that has gone.
        let credited: u64 = flows.credits().drain(..).map(|(_, carried)| carried.bytes).sum();
        assert!(credited >= 50, "{credited}");
        flows.apply(&Change::All);
        flows.clear();
    }
    assert_eq!(deps.len(), 0, "nothing is watched for them any more");
}
