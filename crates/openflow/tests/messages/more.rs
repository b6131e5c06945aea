//! More messages, for the tests of the codec: those of later versions, questions, and extensions.

use TableProperty as P;
use flow::MatchField as F;
use openflow::Version;
use openflow::model::*;

fn request(request: StatsRequest) -> Body {
    Body::StatsRequest { more: false, request }
}

fn reply(reply: StatsReply) -> Body {
    Body::StatsReply { more: false, reply }
}

fn matching() -> Match {
    let mut m = Match::ANY;
    m.set(F::EthType, 0x86dd, 0xffff);
    m.set(F::Ipv6Src, 0xfe80 << 112, 0xffff << 112);
    m.set(F::Reg1, 5, 0xff);
    m
}

fn all_ids(kinds: &[u16]) -> Vec<FeatureId> {
    kinds.iter().map(|kind| FeatureId::new(*kind)).collect()
}

fn fields(masks: bool) -> Vec<FieldId> {
    let id = |field, masked: bool| FieldId {
        field,
        masked: masked && masks,
    };
    vec![
        id(F::EthType, false),
        id(F::EthDst, true),
        id(F::TcpFlags, true),
        id(F::Reg0, true),
    ]
}

fn table_features(version: Version) -> TableFeatures {
    let new = version >= Version::V15;
    let mut properties = vec![
        P::Instructions {
            miss: false,
            ids: all_ids(&[1, 2, 3, 4, 5]),
        },
        P::NextTables {
            miss: false,
            tables: vec![3, 4, 5],
        },
        P::NextTables {
            miss: true,
            tables: vec![],
        },
        P::WriteActions {
            miss: false,
            ids: all_ids(&[0, 22]),
        },
        P::ApplyActions {
            miss: false,
            ids: all_ids(&[0, 18]),
        },
        P::ApplyActions {
            miss: true,
            ids: all_ids(&[0, 11, 12, 25]),
        },
        P::Match(fields(true)),
        P::Wildcards(fields(false)),
        P::WriteSetField {
            miss: false,
            fields: fields(false),
        },
        P::ApplySetField {
            miss: false,
            fields: fields(false),
        },
        P::ApplySetField {
            miss: true,
            fields: vec![],
        },
    ];
    if version >= Version::V14 {
        properties.push(P::SyncFrom(vec![7]));
    }
    if new {
        properties.push(P::WriteCopyField {
            miss: false,
            fields: fields(false),
        });
        properties.push(P::ApplyCopyField {
            miss: true,
            fields: fields(false),
        });
        properties.push(P::PacketTypes(vec![0, 0x1_0800]));
    }
    TableFeatures {
        table: 2,
        command: if new { 1 } else { 0 },
        features: if new { 1 } else { 0 },
        name: "two".into(),
        metadata_match: u64::MAX,
        metadata_write: 0xff,
        config: if version == Version::V14 { 4 } else { 0 },
        max_entries: 1_000_000,
        properties,
    }
}

fn questions(version: Version) -> Vec<Body> {
    let flow = FlowStatsRequest {
        table: Some(3),
        matching: matching(),
        cookie: 4,
        cookie_mask: 0xff,
        out_port: Port(7),
        ..FlowStatsRequest::default()
    };
    let old = version == Version::V10;
    let flow = match old {
        true => FlowStatsRequest { nxm: true, ..flow },
        false => FlowStatsRequest { out_group: 9, ..flow },
    };
    let mut all = vec![
        StatsRequest::Desc,
        StatsRequest::Flow(flow.clone()),
        StatsRequest::Aggregate(flow.clone()),
        StatsRequest::Table,
        StatsRequest::Port(Port(3)),
        StatsRequest::Port(Port::ANY),
        StatsRequest::Queue {
            port: Port(3),
            queue: ALL_QUEUES,
        },
        StatsRequest::Group(4),
        StatsRequest::GroupDesc(if old || version >= Version::V15 { 4 } else { ALL_GROUPS }),
        StatsRequest::GroupFeatures,
        StatsRequest::PortDesc(if version >= Version::V15 { Port(3) } else { Port::ANY }),
        StatsRequest::IpfixBridge,
        StatsRequest::IpfixFlow,
    ];
    let mut monitor = FlowMonitorRequest {
        id: 5,
        flags: 0x3f,
        out_port: Port(3),
        table: Some(1),
        matching: matching(),
        ..FlowMonitorRequest::default()
    };
    if version >= Version::V14 {
        monitor.out_group = 8;
        monitor.command = MonitorCommand::Modify;
        monitor.flags = 0x4f;
        all.push(StatsRequest::TableDesc);
        all.push(StatsRequest::QueueDesc {
            port: Port::ANY,
            queue: 3,
        });
    }
    all.push(StatsRequest::FlowMonitor(vec![monitor]));
    if version >= Version::V13 {
        all.extend([
            StatsRequest::Meter(3),
            StatsRequest::MeterConfig(ALL_METERS),
            StatsRequest::MeterFeatures,
            StatsRequest::TableFeatures(vec![]),
            StatsRequest::TableFeatures(vec![table_features(version)]),
        ]);
    }
    if version >= Version::V15 {
        all.extend([
            StatsRequest::FlowStats(flow),
            StatsRequest::ControllerStatus,
            StatsRequest::BundleFeatures(BundleFeatures {
                flags: 3,
                schedule: Some(BundleSchedule::default()),
            }),
        ]);
    }
    let mut all: Vec<Body> = all.into_iter().map(request).collect();
    if version < Version::V14 {
        all.push(Body::QueueGetConfigRequest(Port(3)));
    }
    all
}

fn monitors(version: Version) -> Vec<FlowUpdate> {
    let output = Action::Output {
        port: Port(2),
        max_len: 0,
    };
    let full = |event| FlowUpdate::Full {
        event,
        reason: if event == 1 { 2 } else { 0 },
        priority: 5,
        idle_timeout: 6,
        hard_timeout: 7,
        table: 8,
        cookie: 9,
        matching: matching(),
        instructions: Instructions::apply(vec![output.clone()]),
    };
    let mut updates = vec![full(0), full(1), full(2), FlowUpdate::Abbrev { xid: 5 }];
    if version >= Version::V14 {
        updates.extend([full(3), FlowUpdate::Paused, FlowUpdate::Resumed]);
    }
    updates
}

fn ipfix() -> IpfixStats {
    IpfixStats {
        total_flows: 1,
        current_flows: 2,
        packets: 3,
        ipv4_packets: 4,
        ipv6_packets: 5,
        error_packets: 6,
        ipv4_error_packets: 7,
        ipv6_error_packets: 8,
        tx_packets: 9,
        tx_errors: 10,
        collector_set_id: 11,
    }
}

fn flushes() -> Vec<Body> {
    let tuple = |a: u16| CtTuple {
        src: Some(std::net::Ipv4Addr::new(10, 1, 1, 1).to_ipv6_mapped()),
        dst: Some(std::net::Ipv4Addr::new(10, 1, 1, 2).to_ipv6_mapped()),
        src_port: Some(a),
        dst_port: Some(80),
        ..CtTuple::default()
    };
    let flush = CtFlush {
        proto: 6,
        zone: Some(4),
        orig: tuple(1024),
        ..CtFlush::default()
    };
    let icmp = CtFlush {
        proto: 1,
        orig: CtTuple {
            src_port: None,
            dst_port: None,
            icmp_id: Some(7),
            icmp_type: Some(8),
            icmp_code: Some(0),
            ..tuple(1)
        },
        ..CtFlush::default()
    };
    [CtFlush::default(), flush, icmp]
        .into_iter()
        .map(|f| Body::CtFlush(Box::new(f)))
        .collect()
}

/// What OpenFlow 1.3 has as an extension, and later versions have.
fn newer(version: Version) -> Vec<Body> {
    let group = GroupMod {
        command: GroupCommand::Delete,
        kind: GroupType::All,
        group: 4,
        bucket_id: bucket_ids::ALL,
        buckets: vec![],
        selection: None,
    };
    let meter = MeterMod {
        command: MeterCommand::Modify,
        config: MeterConfig {
            meter: 4,
            flags: meter_flags::PKTPS,
            bands: vec![],
        },
    };
    let forward = |body| Body::RequestForward(Box::new(Message { xid: 9, body }));
    let status = |reason, generation| {
        Body::RoleStatus(RoleStatus {
            role: Role::Slave,
            reason,
            generation,
        })
    };
    let mut all = vec![
        status(0, Some(7)),
        status(1, None),
        forward(Body::GroupMod(group)),
        forward(Body::MeterMod(meter)),
    ];
    if version < Version::V14 {
        return all;
    }
    let desc = TableDesc {
        table: 3,
        config: table_config::EVICTION | table_config::VACANCY,
        eviction: Some(eviction::IMPORTANCE | eviction::LIFETIME),
        vacancy: Some(Vacancy {
            down: 20,
            up: 80,
            now: 50,
        }),
    };
    all.push(Body::TableStatus(TableStatus { reason: 3, desc }));
    all.push(reply(StatsReply::TableDesc(vec![
        desc,
        TableDesc {
            table: 4,
            ..TableDesc::default()
        },
    ])));
    all.push(Body::TableMod(TableMod {
        table: 3,
        config: table_config::EVICTION | table_config::VACANCY,
        eviction: None,
        vacancy: Some(Vacancy {
            down: 20,
            up: 80,
            now: 0,
        }),
    }));
    let mut events = AsyncConfig::from_masks([[1, 2], [3, 4], [5, 6], [7, 0], [8, 0x10], [1, 2], [0, 0], [0, 0]]);
    events.given = 0xfff;
    all.push(Body::SetAsync(events));
    all.push(Body::GetAsyncReply(events));
    all.push(Body::SetAsync(AsyncConfig {
        given: 2,
        packet_in: [3, 0],
        ..AsyncConfig::default()
    }));
    all.push(reply(StatsReply::QueueDesc(vec![(
        Port(3),
        QueueConfig {
            queue: 2,
            min_rate: Some(10),
            max_rate: Some(900),
        },
    )])));
    all.push(reply(StatsReply::Port(vec![PortStats {
        port: Port(4),
        rfc2819: Some(Box::new([3; RFC2819.len()])),
        custom: vec![("queue_0".into(), 7), ("drops".into(), 8)],
        ..PortStats::default()
    }])));
    all
}

/// What OpenFlow 1.5 has.
fn newest() -> Vec<Body> {
    let output = Action::Output {
        port: Port(2),
        max_len: 0,
    };
    let duration = Duration { sec: 5, nsec: 6 };
    let bucket = |id| Bucket {
        id,
        weight: 3,
        watch_port: Port(1),
        watch_group: 2,
        actions: vec![output.clone()],
    };
    let selection = Some(Selection {
        method: "hash".into(),
        param: 7,
        fields: vec![(F::EthType, Value::Word(0xffff)), (F::IpDst, Value::Word(0xffff_0000))],
    });
    let change = |command, bucket_id, buckets| GroupMod {
        command,
        kind: GroupType::Select,
        group: 5,
        bucket_id,
        buckets,
        selection: None,
    };
    let add = GroupMod {
        selection: selection.clone(),
        ..change(GroupCommand::Add, bucket_ids::ALL, vec![bucket(1), bucket(7)])
    };
    let controller = ControllerStatus {
        short_id: 4,
        role: Role::Master,
        reason: 2,
        up: true,
        uris: vec!["tcp:127.0.0.1:6653".into()],
    };
    let mut meter = Match::ANY;
    meter.set(F::Metadata, 5, 0xff);
    vec![
        Body::GroupMod(change(GroupCommand::InsertBucket, bucket_ids::LAST, vec![bucket(4)])),
        Body::GroupMod(change(GroupCommand::RemoveBucket, 4, vec![])),
        Body::GroupMod(add),
        reply(StatsReply::GroupDesc(vec![GroupDesc {
            group: 5,
            kind: GroupType::Select,
            buckets: vec![bucket(3)],
            selection,
        }])),
        reply(StatsReply::FlowStats(vec![FlowCounters {
            table: 3,
            reason: 0,
            priority: 4,
            duration,
            idle_age: Some(4),
            packets: 5,
            bytes: u64::MAX,
            matching: matching(),
        }])),
        reply(StatsReply::ControllerStatus(vec![
            controller.clone(),
            controller.clone(),
        ])),
        Body::ControllerStatus(controller),
        reply(StatsReply::BundleFeatures(BundleFeatures {
            flags: 3,
            schedule: Some(BundleSchedule {
                accuracy: BundleTime { sec: 0, nsec: 1 },
                max_future: BundleTime { sec: 2, nsec: 0 },
                max_past: BundleTime { sec: 3, nsec: 0 },
                now: BundleTime { sec: 4, nsec: 5 },
            }),
        })),
        Body::RoleRequest(RoleMsg {
            role: Role::Equal,
            generation: None,
            nicira: false,
            short_id: 5,
        }),
        Body::PacketOut(Box::new(PacketOut {
            buffer_id: None,
            in_port: Port(4),
            metadata: meter,
            actions: vec![Action::Meter(3), output],
            data: vec![3; 60],
        })),
        reply(StatsReply::PortDesc(vec![PortDesc {
            port: Port(3),
            name: "p3".into(),
            others: vec![Property {
                kind: 4,
                data: vec![0, 0, 0, 3],
            }],
            ..PortDesc::default()
        }])),
        reply(StatsReply::MeterFeatures(MeterFeatures {
            max_meters: 4,
            features: 7,
            ..MeterFeatures::default()
        })),
    ]
}

/// Messages that Open vSwitch has no words for: it prints an error where it reads them.
pub(super) fn beyond_open_vswitch(version: Version, body: &Body) -> bool {
    let optical = |desc: &PortDesc| desc.optical.is_some();
    match body {
        Body::ControllerStatus(_) => true,
        Body::RoleRequest(role) => role.short_id != 0,
        Body::StatsRequest { request, .. } => match request {
            StatsRequest::FlowStats(_) | StatsRequest::ControllerStatus | StatsRequest::BundleFeatures(_) => true,
            StatsRequest::TableFeatures(tables) => version >= Version::V15 && !tables.is_empty(),
            _ => false,
        },
        Body::StatsReply { reply, .. } => match reply {
            StatsReply::FlowStats(_) | StatsReply::ControllerStatus(_) | StatsReply::BundleFeatures(_) => true,
            StatsReply::TableFeatures(_) => version >= Version::V15,
            StatsReply::MeterFeatures(features) => features.features != 0,
            StatsReply::PortDesc(ports) => ports.iter().any(optical),
            _ => false,
        },
        _ => false,
    }
}

/// Messages of every kind that the other samples lack.
pub(super) fn samples(version: Version) -> Vec<Body> {
    let old = version == Version::V10;
    let mut all = questions(version);
    all.push(reply(StatsReply::FlowMonitor(monitors(version))));
    all.push(reply(StatsReply::IpfixBridge(IpfixStats {
        collector_set_id: 0,
        ..ipfix()
    })));
    all.push(reply(StatsReply::IpfixFlow(vec![ipfix(), ipfix()])));
    all.extend(flushes());
    if version >= Version::V13 {
        all.push(reply(StatsReply::TableFeatures(vec![table_features(version); 2])));
        all.extend(newer(version));
    }
    if version >= Version::V14 {
        let optical = PortDesc {
            port: Port(9),
            name: "o9".into(),
            optical: Some(OpticalPort {
                supported: 9,
                tx: [1, 2, 3],
                rx: [4, 5, 6],
                power: [7, 8],
            }),
            ..PortDesc::default()
        };
        all.push(reply(StatsReply::PortDesc(vec![optical])));
        all.push(reply(StatsReply::Port(vec![PortStats {
            port: Port(9),
            optical: Some(OpticalStats {
                flags: 3,
                tx: [1, 2, 3],
                rx: [4, 5, 6],
                power: [7, 8],
                bias: 9,
                temperature: 300,
            }),
            ..PortStats::default()
        }])));
    }
    if version < Version::V14 {
        let mut events = AsyncConfig::from_masks([[1, 2], [3, 4], [5, 6], [7, 0], [8, 0x10], [1, 2], [0, 0], [0, 0]]);
        events.given = 0xfff;
        all.push(Body::SetAsync(events));
    }
    if version >= Version::V15 {
        all.extend(newest());
    }
    let mut paused = PacketIn::new(Port(3), vec![1; 20]);
    paused.format = PacketInFormat::Nxt2;
    // What the switch needs to go on is in its own words; these are Open vSwitch's: the bridge.
    paused.continuation = vec![0x80, 0, 0, 20];
    paused.continuation.extend([7; 16]);
    paused.continuation.extend([0; 4]);
    paused.total_len = 100;
    paused.buffer_id = Some(3);
    paused.cookie = 4;
    all.push(Body::Resume(Box::new(paused)));
    for command in FlowCommand::ALL {
        let deletes = command as u8 >= 3;
        let filter = command != FlowCommand::Add;
        all.push(Body::FlowMod(Box::new(FlowMod {
            command,
            table: if old { None } else { Some(9) },
            cookie: if filter { 0x30 } else { 0 },
            cookie_mask: if filter { 0xf0 } else { 0 },
            new_cookie: (command == FlowCommand::Add).then_some(7),
            priority: 9,
            out_port: if deletes { Port(4) } else { Port::ANY },
            out_group: if deletes && !old { 6 } else { ANY_GROUP },
            flags: FlowFlags::SEND_FLOW_REM,
            importance: if version >= Version::V14 { 77 } else { 0 },
            matching: matching(),
            instructions: match deletes {
                true => Instructions::default(),
                false => all_instructions(version),
            },
            ..FlowMod::default()
        })));
    }
    all
}

fn all_instructions(version: Version) -> Instructions {
    let apply = vec![
        Action::DecTtl(vec![0]),
        Action::Resubmit {
            in_port: Port::IN_PORT,
            table: 4,
            ct: false,
        },
        Action::Clone(vec![Action::Exit]),
        Action::Group(5),
    ];
    let old = version == Version::V10;
    Instructions {
        meter: match version {
            Version::V13 | Version::V14 => Some(4),
            _ => None,
        },
        apply,
        clear: !old,
        write: if old { vec![] } else { vec![Action::PopVlan] },
        metadata: Some((5, 0xff)),
        goto: if old { None } else { Some(10) },
    }
}
