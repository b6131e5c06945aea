//! Whatever the numbers in it are, a message reads as it was written.

use super::*;
use flow::MatchField as F;
use proptest::prelude::*;

/// Takes numbers one by one; zeros when there are no more.
struct Numbers(std::vec::IntoIter<u64>);

impl Numbers {
    fn u64(&mut self) -> u64 {
        self.0.next().unwrap_or(0)
    }

    fn u32(&mut self) -> u32 {
        self.u64() as u32
    }

    fn u16(&mut self) -> u16 {
        self.u64() as u16
    }

    fn u8(&mut self) -> u8 {
        self.u64() as u8
    }

    fn port(&mut self) -> Port {
        match self.u32() {
            number @ 0xff00..=0xffff_feff => Port(number & 0x7fff),
            number => Port(number),
        }
    }

    fn duration(&mut self) -> Duration {
        Duration {
            sec: self.u32(),
            nsec: self.u32(),
        }
    }

    fn matching(&mut self) -> Match {
        let mut m = Match::ANY;
        m.set(F::Metadata, self.u64().into(), self.u64().into());
        m.set(F::EthType, 0x800, 0xffff);
        m.set(F::IpSrc, self.u32().into(), self.u32().into());
        m.set(F::NwProto, 17, 0xff);
        m.set(F::UdpDst, self.u16().into(), self.u16().into());
        m.set(
            F::VlanTci,
            u128::from(self.u16()) | 0x1000,
            u128::from(self.u16()) | 0x1000,
        );
        m.set(F::Reg7, self.u32().into(), self.u32().into());
        m
    }

    fn actions(&mut self) -> Vec<Action> {
        let group = self.u32();
        vec![
            Action::SetQueue(self.u32()),
            Action::SetTtl(self.u8()),
            Action::Group(group),
        ]
    }

    fn flow(&mut self, version: Version) -> FlowStats {
        let new = version >= Version::V15;
        FlowStats {
            table: self.u8(),
            duration: self.duration(),
            priority: self.u16(),
            idle_timeout: self.u16(),
            hard_timeout: self.u16(),
            idle_age: if new { Some(self.u16()) } else { None },
            hard_age: None,
            flags: FlowFlags(self.u16() & 0x1f),
            importance: if version >= Version::V14 { self.u16() } else { 0 },
            cookie: self.u64(),
            packets: self.u64(),
            bytes: self.u64(),
            matching: self.matching(),
            instructions: Instructions {
                apply: self.actions(),
                metadata: Some((self.u64(), self.u64())),
                goto: Some(self.u8() & 0x7f),
                ..Instructions::default()
            },
        }
    }

    fn bodies(&mut self, version: Version) -> Vec<Body> {
        let reply = |reply| Body::StatsReply { more: true, reply };
        let flows = (0..3).map(|_| self.flow(version)).collect();
        let removed = FlowRemoved {
            table: Some(self.u8()),
            reason: self.u8() % if version >= Version::V14 { 6 } else { 4 },
            priority: self.u16(),
            cookie: self.u64(),
            duration: self.duration(),
            idle_timeout: self.u16(),
            hard_timeout: self.u16(),
            packets: self.u64(),
            bytes: self.u64(),
            matching: self.matching(),
        };
        let port = PortStats {
            port: self.port(),
            rx_packets: self.u64(),
            tx_bytes: self.u64(),
            collisions: self.u64(),
            duration: self.duration(),
            ..PortStats::default()
        };
        let queue = QueueStats {
            port: self.port(),
            queue: self.u32(),
            tx_bytes: self.u64(),
            tx_packets: self.u64(),
            tx_errors: self.u64(),
            duration: self.duration(),
        };
        let group = GroupStats {
            group: self.u32(),
            ref_count: self.u32(),
            packets: self.u64(),
            bytes: self.u64(),
            duration: self.duration(),
            buckets: vec![(self.u64(), self.u64()); 3],
        };
        let meter = MeterStats {
            meter: self.u32(),
            flows: self.u32(),
            packets: self.u64(),
            bytes: self.u64(),
            duration: self.duration(),
            bands: vec![(self.u64(), self.u64()); 2],
        };
        let bucket = Bucket {
            id: if version >= Version::V15 {
                self.u32() & 0xffff
            } else {
                0
            },
            weight: self.u16(),
            watch_port: self.port(),
            watch_group: self.u32(),
            actions: self.actions(),
        };
        let desc = GroupDesc {
            group: self.u32(),
            kind: GroupType::Select,
            buckets: vec![bucket.clone()],
            selection: None,
        };
        let change = GroupMod {
            command: GroupCommand::Add,
            kind: GroupType::Select,
            group: self.u32() & 0xffff,
            bucket_id: bucket_ids::ALL,
            buckets: vec![bucket],
            selection: None,
        };
        let band = MeterBand {
            rate: self.u32(),
            burst: self.u32(),
            kind: BandKind::DscpRemark(self.u8()),
        };
        let aggregate = AggregateStats {
            packets: self.u64(),
            bytes: self.u64(),
            flows: self.u32(),
        };
        vec![
            reply(StatsReply::Flow { flows, nxm: false }),
            reply(StatsReply::Aggregate {
                stats: aggregate,
                nxm: false,
            }),
            Body::FlowRemoved(Box::new(removed)),
            reply(StatsReply::Port(vec![port; 2])),
            reply(StatsReply::Queue(vec![queue; 2])),
            reply(StatsReply::Group(vec![group; 2])),
            reply(StatsReply::GroupDesc(vec![desc])),
            Body::GroupMod(change),
            reply(StatsReply::Meter(vec![meter; 2])),
            Body::MeterMod(MeterMod {
                command: MeterCommand::Add,
                config: MeterConfig {
                    meter: self.u32() & 0xffff | 1,
                    flags: meter_flags::PKTPS,
                    bands: vec![band; 3],
                },
            }),
        ]
    }
}

proptest! {
    #[test]
    fn a_message_of_any_numbers_reads_as_it_was_written(numbers in proptest::collection::vec(any::<u64>(), 160..200)) {
        for version in [Version::V13, Version::V14, Version::V15] {
            let codec = Codec::new(version);
            for body in Numbers(numbers.clone().into_iter()).bodies(version) {
                let message = Message { xid: 7, body };
                let sent = codec.encode(&message);
                prop_assert_eq!(codec.decode(&sent), Ok(message));
            }
        }
    }
}

#[test]
fn a_group_message_of_as_many_buckets_as_it_holds_is_read_and_a_number_may_come_once() {
    let codec = Codec::new(Version::V15);
    let bucket = |id: u32| Bucket {
        id,
        weight: 0,
        watch_port: Port::ANY,
        watch_group: ANY_GROUP,
        actions: Vec::new(),
    };
    let encode = |buckets: Vec<Bucket>| {
        codec.encode(&Message {
            xid: 7,
            body: Body::GroupMod(GroupMod {
                command: GroupCommand::Add,
                kind: GroupType::All,
                group: 1,
                bucket_id: bucket_ids::ALL,
                buckets,
                selection: None,
            }),
        })
    };
    let size = encode(vec![bucket(0), bucket(1)]).len() - encode(vec![bucket(0)]).len();
    let most = ((usize::from(u16::MAX) - encode(Vec::new()).len()) / size) as u32;
    assert!(most > 1000, "{most}");
    let all: Vec<Bucket> = (0..most).rev().map(bucket).collect();
    let sent = encode(all.clone());
    match codec.decode(&sent).unwrap().body {
        Body::GroupMod(read) => assert_eq!(read.buckets, all),
        other => panic!("{other:?}"),
    }
    let mut twice = all;
    twice[0].id = 0;
    assert_eq!(codec.decode(&encode(twice)), Err(OfError::GmfcBucketExists));
}
