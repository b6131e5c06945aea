//! Peers that talk nonsense.

use crate::world::{Lab, rule};
use ofproto::{Kind, Run};
use openflow::model::*;
use openflow::{Codec, Framer, Version};
use proptest::prelude::*;

/// Messages that make sense, to be spoilt.
fn samples(version: Version) -> Vec<Vec<u8>> {
    let mut flow = rule(9);
    flow.matching.set(flow::MatchField::EthType, 0x0800, 0xffff);
    flow.instructions = Instructions::apply(vec![
        Action::SetTtl(3),
        Action::Output {
            port: Port(2),
            max_len: 0,
        },
    ]);
    let stats = |request| Body::StatsRequest { more: false, request };
    let packet = PacketOut {
        buffer_id: None,
        in_port: Port(1),
        metadata: Match::ANY,
        actions: vec![Action::Output {
            port: Port::TABLE,
            max_len: 0,
        }],
        data: vec![0x55; 60],
    };
    let mut bodies = vec![
        Body::FlowMod(Box::new(flow.clone())),
        Body::FlowMod(Box::new(FlowMod {
            command: FlowCommand::Delete,
            ..flow.clone()
        })),
        Body::PacketOut(Box::new(packet)),
        Body::EchoRequest(vec![1, 2, 3]),
        Body::FeaturesRequest,
        Body::GetConfigRequest,
        Body::SetConfig(Config {
            flags: 0,
            miss_send_len: 100,
        }),
        Body::BarrierRequest,
        Body::SetFlowFormat { nxm: true },
        Body::SetPacketInFormat(PacketInFormat::Nxt2),
        stats(StatsRequest::Desc),
        stats(StatsRequest::Flow(FlowStatsRequest::default())),
        stats(StatsRequest::Aggregate(FlowStatsRequest::default())),
        stats(StatsRequest::Table),
        stats(StatsRequest::Port(Port::ANY)),
        stats(StatsRequest::Queue {
            port: Port::ANY,
            queue: ALL_QUEUES,
        }),
        stats(StatsRequest::PortDesc(Port::ANY)),
        stats(StatsRequest::FlowMonitor(vec![FlowMonitorRequest {
            flags: 0x1f,
            ..FlowMonitorRequest::default()
        }])),
    ];
    let bucket = Bucket {
        id: 0,
        weight: 0,
        watch_port: Port::ANY,
        watch_group: ANY_GROUP,
        actions: vec![Action::Output {
            port: Port(2),
            max_len: 0,
        }],
    };
    if version > Version::V10 {
        bodies.push(Body::GroupMod(GroupMod {
            command: GroupCommand::Add,
            kind: GroupType::All,
            group: 3,
            bucket_id: bucket_ids::ALL,
            buckets: vec![bucket],
            selection: None,
        }));
        bodies.push(stats(StatsRequest::GroupDesc(ALL_GROUPS)));
    }
    if version >= Version::V13 {
        let config = MeterConfig {
            meter: 2,
            flags: meter_flags::KBPS,
            bands: vec![MeterBand {
                kind: BandKind::Drop,
                rate: 1000,
                burst: 0,
            }],
        };
        bodies.push(Body::MeterMod(MeterMod {
            command: MeterCommand::Add,
            config,
        }));
        bodies.push(stats(StatsRequest::TableFeatures(Vec::new())));
    }
    if version >= Version::V14 {
        for kind in [0, 2, 4] {
            bodies.push(Body::BundleControl(BundleControl {
                bundle: 1,
                kind,
                flags: 3,
            }));
        }
        let message = Message {
            xid: 7,
            body: Body::FlowMod(Box::new(flow)),
        };
        let message = Codec::new(version).encode(&message);
        bodies.push(Body::BundleAdd(BundleAdd {
            bundle: 1,
            flags: 3,
            message,
        }));
    }
    let encode = |body| Codec::new(version).encode(&Message { xid: 7, body });
    bodies.into_iter().map(encode).collect()
}

/// A message, spoilt here and there; its length is right.
fn spoil(message: &[u8], places: &[(u16, u8)]) -> Vec<u8> {
    let mut message = message.to_vec();
    for (place, byte) in places {
        let len = message.len();
        if len > 8 {
            message[8 + usize::from(*place) % (len - 8)] = *byte;
        }
    }
    message
}

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(Version::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is said, what follows is answered: nothing is lost, nothing ends but by the peer.
    #[test]
    fn spoilt_messages_are_answered_and_lose_nothing(
        version in version(),
        steps in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(any::<(u16, u8)>(), 0..4)), 1..24),
        cut in 1usize..200,
    ) {
        let mut lab = Lab::new();
        let samples = samples(version);
        let id = lab.open(Kind::Primary, version);
        let mut stream = Vec::new();
        for (n, (which, places)) in steps.iter().enumerate() {
            let mut message = spoil(&samples[which.index(samples.len())], places);
            message[4..8].copy_from_slice(&(n as u32).to_be_bytes());
            stream.extend(message);
            let barrier = Message { xid: 0x1000 + n as u32, body: Body::BarrierRequest };
            stream.extend(Codec::new(version).encode(&barrier));
        }
        for part in stream.chunks(cut) {
            let run = lab.say_bytes(id, part);
            prop_assert_eq!(run, Run::Idle);
        }
        let kind = if version == Version::V10 { 19 } else { 21 };
        let heard = lab.hear_raw(id);
        let barriers: Vec<u32> = heard
            .iter()
            .filter(|m| m[1] == kind)
            .map(|m| u32::from_be_bytes([m[4], m[5], m[6], m[7]]))
            .filter(|xid| *xid >= 0x1000)
            .collect();
        let wanted: Vec<u32> = (0..steps.len() as u32).map(|n| 0x1000 + n).collect();
        prop_assert_eq!(barriers, wanted);
        lab.disconnect(id);
    }

    /// Noise ends the connection or is answered; it never takes more than its share.
    #[test]
    fn noise_does_no_harm(version in version(), noise in prop::collection::vec(any::<u8>(), 0..600), hello in any::<bool>()) {
        let mut lab = Lab::new();
        let id = if hello { lab.open(Kind::Service, version) } else { lab.connect(Kind::Service) };
        let _ = lab.say_bytes(id, &noise);
        let bytes: Vec<u8> = lab.hear_raw(id).concat();
        let mut framer = Framer::new();
        framer.push(&bytes);
        while let Ok(Some(_)) = framer.next() {}
        prop_assert_eq!(framer.pending(), 0);
        lab.disconnect(id);
        // Others go on as if nothing had been.
        let other = lab.open(Kind::Service, version);
        lab.say(other, version, 2, Body::EchoRequest(vec![9]));
        let heard = lab.hear(other, version);
        prop_assert_eq!(heard, vec![Message { xid: 2, body: Body::EchoReply(vec![9]) }]);
    }
}

#[test]
fn a_peer_that_does_not_read_is_told_of_once() {
    let version = Version::V13;
    let mut lab = Lab::new();
    let peers = [lab.open(Kind::Primary, version), lab.open(Kind::Primary, version)];
    lab.ready();
    let ask = |lab: &mut Lab, id| {
        let body = Body::EchoRequest(vec![1]);
        lab.agent
            .receive(id, &Codec::new(version).encode(&Message { xid: 1, body }));
        lab.agent.run(id, &lab.world, lab.world.now.get(), 8);
    };
    peers.iter().for_each(|id| ask(&mut lab, *id));
    assert_eq!(lab.ready(), peers);
    // Their tasks would otherwise wake each other for ever.
    assert_eq!(lab.ready(), []);
    ask(&mut lab, peers[1]);
    assert_eq!(lab.ready(), [peers[1]]);
}
