//! A message of every kind, for the tests of the codec.

use flow::MatchField as F;
use openflow::model::*;
use openflow::{Codec, ErrorBody, OfError, Version};
use wire::MacAddr;

fn rule() -> (Match, Instructions) {
    let mut m = Match::ANY;
    m.set(F::InPortOxm, 1, u32::MAX.into());
    m.set(F::EthType, 0x800, 0xffff);
    m.set(F::IpDst, 0x0a00_0000, 0xff00_0000);
    m.set(F::NwProto, 6, 0xff);
    m.set(F::TcpDst, 80, 0xffff);
    let output = Action::Output {
        port: Port(2),
        max_len: 0,
    };
    (m, Instructions::apply(vec![Action::SetQueue(5), output]))
}

fn port(version: Version) -> PortDesc {
    let new = version > Version::V10;
    PortDesc {
        port: Port::LOCAL,
        hw_addr: MacAddr([2, 0, 0, 0, 0, 3]),
        name: "br0".into(),
        config: config::PORT_DOWN | config::NO_FWD,
        state: state::LINK_DOWN,
        current: 0x840,
        advertised: 0x2820,
        supported: 0x28ff & 0x287f,
        peer: 0,
        current_speed: if new { 10_000_000 } else { 0 },
        max_speed: if new { 40_000_000 } else { 0 },
        ..PortDesc::default()
    }
}

/// A message of every kind that a version has, but requests without content.
pub(super) fn samples(version: Version) -> Vec<Body> {
    let (matching, instructions) = rule();
    let duration = Duration {
        sec: 5,
        nsec: 6_000_000,
    };
    let later = |v: Version, duration: Duration| if version >= v { duration } else { Duration::default() };
    let old = version == Version::V10;
    let ports = if version < Version::V13 {
        vec![port(version)]
    } else {
        vec![]
    };
    let reply = |reply| Body::StatsReply { more: false, reply };
    let mut packet = PacketIn::new(Port(3), vec![1; 64]);
    packet.total_len = 70;
    packet.reason = 1;
    packet.buffer_id = Some(9);
    if version > Version::V10 {
        packet.table = 4;
    }
    let bucket = Bucket {
        id: 0,
        weight: 5,
        watch_port: Port::ANY,
        watch_group: ANY_GROUP,
        actions: instructions.apply.clone(),
    };
    let bands = vec![
        MeterBand {
            rate: 1000,
            burst: 10,
            kind: BandKind::Drop,
        },
        MeterBand {
            rate: 500,
            burst: 0,
            kind: BandKind::DscpRemark(1),
        },
    ];
    let meter = MeterConfig {
        meter: 3,
        flags: meter_flags::KBPS | meter_flags::BURST,
        bands,
    };
    let flow = FlowStats {
        table: 3,
        duration,
        priority: 7,
        idle_timeout: 1,
        hard_timeout: 2,
        idle_age: None,
        hard_age: None,
        flags: FlowFlags(if version >= Version::V13 { 1 } else { 0 }),
        importance: 0,
        cookie: 0x1234,
        packets: 5,
        bytes: 600,
        matching: matching.clone(),
        instructions: instructions.clone(),
    };
    let mut all = vec![
        Body::Error(ErrorBody::of(
            OfError::BrcBadLen,
            &[version.number(), 5, 0, 8, 0, 0, 0, 1],
        )),
        Body::EchoRequest(b"hello".to_vec()),
        Body::EchoReply(vec![]),
        Body::FeaturesRequest,
        Body::FeaturesReply(Features {
            datapath_id: 0x123,
            n_buffers: 0,
            n_tables: 254,
            auxiliary_id: 0,
            capabilities: capabilities::FLOW_STATS | capabilities::PORT_STATS,
            actions: if old { 0xfff } else { 0 },
            ports,
        }),
        Body::GetConfigRequest,
        Body::GetConfigReply(Config {
            flags: 0,
            miss_send_len: 128,
        }),
        Body::SetConfig(Config {
            flags: 1,
            miss_send_len: 0xffff,
        }),
        Body::PacketIn(Box::new(packet)),
        Body::FlowRemoved(Box::new(FlowRemoved {
            table: if old { None } else { Some(3) },
            reason: 1,
            priority: 5,
            cookie: 6,
            duration,
            idle_timeout: 7,
            hard_timeout: if old { 0 } else { 8 },
            packets: 9,
            bytes: 10,
            matching: matching.clone(),
        })),
        Body::PortStatus(Box::new(PortStatus {
            reason: 2,
            desc: port(version),
        })),
        Body::PacketOut(Box::new(PacketOut {
            buffer_id: None,
            in_port: Port::CONTROLLER,
            metadata: Match::ANY,
            actions: vec![Action::Output {
                port: Port::FLOOD,
                max_len: 0,
            }],
            data: vec![3; 60],
        })),
        Body::FlowMod(Box::new(FlowMod {
            table: if old { None } else { Some(1) },
            new_cookie: Some(5),
            matching,
            instructions,
            ..FlowMod::default()
        })),
        Body::PortMod(PortMod {
            port: Port(4),
            hw_addr: MacAddr([2, 0, 0, 0, 0, 4]),
            config: config::PORT_DOWN,
            mask: config::PORT_DOWN | config::NO_RECV,
            advertise: 0x2820,
        }),
        Body::BarrierRequest,
        Body::BarrierReply,
        reply(StatsReply::Desc(SwitchDesc {
            manufacturer: "a".into(),
            datapath: "s1".into(),
            ..SwitchDesc::default()
        })),
        reply(StatsReply::Port(vec![PortStats {
            port: Port(1),
            rx_packets: 1,
            tx_packets: 2,
            rx_bytes: 3,
            tx_bytes: 4,
            rx_dropped: 5,
            tx_dropped: 6,
            rx_errors: 7,
            tx_errors: 8,
            rx_frame_errors: 9,
            rx_over_errors: 10,
            rx_crc_errors: 11,
            collisions: u64::MAX,
            duration: later(Version::V13, duration),
            ..PortStats::default()
        }])),
        reply(StatsReply::Queue(vec![QueueStats {
            port: Port(1),
            queue: 2,
            tx_bytes: 3,
            tx_packets: 4,
            tx_errors: 5,
            duration: later(Version::V13, duration),
        }])),
        reply(StatsReply::Table(vec![TableStats {
            table: 2,
            name: if version < Version::V13 {
                "classifier".into()
            } else {
                String::new()
            },
            wildcards: if old { 0x3fffff } else { 0 },
            max_entries: if version < Version::V13 { 1_000_000 } else { 0 },
            miss: if matches!(version, Version::V11 | Version::V12) {
                2
            } else {
                0
            },
            active: 7,
            lookups: 8,
            matched: 6,
        }])),
        reply(StatsReply::Aggregate {
            stats: AggregateStats {
                packets: 1,
                bytes: 2,
                flows: 3,
            },
            nxm: false,
        }),
    ];
    // OpenFlow 1.5 describes rules and their statistics apart, which is not done yet.
    if version < Version::V15 {
        all.push(reply(StatsReply::Flow {
            flows: vec![flow.clone()],
            nxm: false,
        }));
    }
    if old {
        let nxm = FlowStats {
            idle_age: Some(3),
            hard_age: Some(0),
            ..flow
        };
        all.push(reply(StatsReply::Flow {
            flows: vec![nxm],
            nxm: true,
        }));
    }
    all.push(Body::GroupMod(GroupMod {
        command: GroupCommand::Add,
        kind: GroupType::Select,
        group: 5,
        bucket_id: u32::MAX,
        buckets: vec![bucket.clone()],
        selection: None,
    }));
    all.push(reply(StatsReply::GroupDesc(vec![GroupDesc {
        group: 5,
        kind: GroupType::Select,
        buckets: vec![bucket],
        selection: None,
    }])));
    all.push(reply(StatsReply::Group(vec![GroupStats {
        group: 5,
        ref_count: 1,
        packets: 2,
        bytes: 3,
        duration: if old { duration } else { later(Version::V13, duration) },
        buckets: vec![(4, 5)],
    }])));
    all.push(reply(StatsReply::GroupFeatures(GroupFeatures {
        types: 0xf,
        capabilities: 0xf,
        max_groups: [100; 4],
        actions: [1; 4],
    })));
    if version < Version::V15 {
        all.push(Body::QueueGetConfigReply {
            port: Port(1),
            queues: vec![QueueConfig {
                queue: 3,
                min_rate: Some(100),
                max_rate: None,
            }],
        });
        if version >= Version::V14 {
            all.pop();
        }
    }
    if version >= Version::V13 {
        all.push(Body::MeterMod(MeterMod {
            command: MeterCommand::Add,
            config: meter.clone(),
        }));
        all.push(reply(StatsReply::MeterConfig(vec![meter])));
        all.push(reply(StatsReply::Meter(vec![MeterStats {
            meter: 3,
            flows: 1,
            packets: 2,
            bytes: 3,
            duration,
            bands: vec![(1, 2), (3, 4)],
        }])));
        all.push(reply(StatsReply::MeterFeatures(MeterFeatures {
            max_meters: 100,
            band_types: 2,
            capabilities: 0xf,
            max_bands: 1,
            max_color: 0,
            features: 0,
        })));
    }
    if version > Version::V10 {
        all.push(reply(StatsReply::PortDesc(vec![port(version)])));
        all.push(Body::TableMod(TableMod {
            table: 3,
            config: 0,
            eviction: None,
            vacancy: None,
        }));
    }
    if version >= Version::V12 {
        all.push(Body::RoleRequest(RoleMsg {
            role: Role::Master,
            generation: Some(3),
            nicira: false,
            short_id: 0,
        }));
        all.push(Body::RoleReply(RoleMsg {
            role: Role::Equal,
            generation: None,
            nicira: false,
            short_id: 0,
        }));
    }
    all.push(Body::RoleRequest(RoleMsg {
        role: Role::Slave,
        generation: None,
        nicira: true,
        short_id: 0,
    }));
    let events = AsyncConfig {
        given: AsyncConfig::GIVEN_OLD,
        packet_in: [7, 0],
        port_status: [7, 7],
        flow_removed: [15, 0],
        ..AsyncConfig::default()
    };
    if version >= Version::V13 {
        all.push(Body::GetAsyncRequest);
        all.push(Body::GetAsyncReply(events));
        all.push(Body::BundleControl(BundleControl {
            bundle: 1,
            kind: 0,
            flags: 1,
        }));
        let inner = Codec::new(version).encode(&Message {
            xid: 1,
            body: Body::FlowMod(Box::new(FlowMod {
                table: Some(0),
                ..FlowMod::default()
            })),
        });
        all.push(Body::BundleAdd(BundleAdd {
            bundle: 1,
            flags: 1,
            message: inner,
        }));
    }
    all.push(Body::SetAsync(events));
    for format in [PacketInFormat::Nxt, PacketInFormat::Nxt2] {
        let mut packet = PacketIn::new(Port(3), vec![1; 64]);
        packet.format = format;
        packet.cookie = 7;
        packet.reason = 1;
        packet.metadata.set(F::Reg3, 5, u32::MAX.into());
        if format == PacketInFormat::Nxt2 {
            packet.userdata = vec![1, 2, 3];
        }
        all.push(Body::PacketIn(Box::new(packet)));
    }
    let maps = vec![TlvMap {
        class: 0xffff,
        kind: 1,
        len: 4,
        index: 0,
    }];
    if old {
        all.push(Body::SetFlowFormat { nxm: true });
        all.push(Body::FlowModTableId(true));
    }
    if version < Version::V13 {
        all.push(Body::FlowMonitorCancel(3));
        all.push(Body::FlowMonitorPaused);
        all.push(Body::FlowMonitorResumed);
    }
    all.extend([
        Body::SetPacketInFormat(PacketInFormat::Nxt2),
        Body::SetControllerId(5),
        Body::TlvTableMod {
            command: 0,
            maps: maps.clone(),
        },
        Body::TlvTableRequest,
        Body::TlvTableReply(TlvTable {
            max_space: 256,
            max_fields: 64,
            maps,
        }),
        Body::CtFlushZone(5),
    ]);
    all
}
