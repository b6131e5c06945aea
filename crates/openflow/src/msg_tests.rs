use super::*;
use crate::model::*;
use ::flow::MatchField as F;
use std::process::Command;
use wire::MacAddr;

/// What Debian's ovs-ofctl 3.1 sends: version, command, bytes.
const OBSERVED: &str = include_str!("../tests/fixtures/messages.txt");

/// Messages that are refused as unknown for now, from a version on; and registers, which OpenFlow 1.5 pairs.
const NOT_YET: [(u8, &str); 3] = [
    (5, "mod-table|1|evict"),
    (4, "monitor watch:"),
    (6, "add-flow|ipv6,ipv6_src=::1,tun_id=5,reg0=3"),
];

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs.map(|n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn what_others_send_is_read_and_written_back_to_the_byte() {
    let mut faults = Vec::new();
    let mut count = 0;
    for line in OBSERVED.lines() {
        let [_, command, sent] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let sent = bytes(sent);
        if NOT_YET
            .iter()
            .any(|(number, text)| sent[0] >= *number && command.starts_with(text))
        {
            continue;
        }
        let version = Version::from_number(sent[0]).unwrap();
        let nxm = sent[1] == EXPERIMENTER;
        for table_id in [false, true] {
            let codec = Codec { version, nxm, table_id };
            let read = match codec.decode(&sent) {
                Ok(read) => read,
                Err(OfError::FmfcBadCommand) if !table_id => continue,
                Err(e) => {
                    faults.push(format!("{version} {command}: {e}\n{}", hex(&sent)));
                    break;
                }
            };
            let again = codec.encode(&read);
            // The order of a match's fields is free.
            let same = again.len() == sent.len() && codec.decode(&again).as_ref() == Ok(&read);
            if !same {
                faults.push(format!(
                    "{version} {command}:\n{}\n{}\n{read:?}",
                    hex(&sent),
                    hex(&again)
                ));
            }
            count += 1;
            break;
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
    assert!(count > 200, "{count}");
}

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
    }
}

/// A message of every kind that a version has, but requests without content.
fn samples(version: Version) -> Vec<Body> {
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
        })));
    }
    if version > Version::V10 {
        all.push(reply(StatsReply::PortDesc(vec![port(version)])));
        all.push(Body::TableMod(TableMod {
            table: 3,
            config: 0,
            properties: vec![],
        }));
    }
    if version >= Version::V12 {
        all.push(Body::RoleRequest(RoleMsg {
            role: Role::Master,
            generation: Some(3),
            nicira: false,
        }));
        all.push(Body::RoleReply(RoleMsg {
            role: Role::Equal,
            generation: None,
            nicira: false,
        }));
    }
    all.push(Body::RoleRequest(RoleMsg {
        role: Role::Slave,
        generation: None,
        nicira: true,
    }));
    let events = AsyncConfig {
        packet_in: [7, 0],
        port_status: [7, 7],
        flow_removed: [15, 0],
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

#[test]
fn every_message_of_every_version_reads_as_it_was_written() {
    for version in Version::ALL {
        let codec = Codec::new(version);
        for body in samples(version) {
            let message = Message { xid: 1, body };
            let sent = codec.encode(&message);
            assert_eq!(codec.decode(&sent).as_ref(), Ok(&message), "{version} {}", hex(&sent));
        }
    }
}

#[test]
fn a_message_cut_off_or_too_long_is_an_error_and_no_panic() {
    for version in Version::ALL {
        let codec = Codec::new(version);
        for body in samples(version) {
            let sent = codec.encode(&Message { xid: 1, body });
            for len in HEADER_LEN..sent.len() + 8 {
                let mut bytes = sent.clone();
                bytes.resize(len, 0);
                bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
                let _ = codec.decode(&bytes);
                for at in HEADER_LEN..len {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= 0x81;
                    let _ = codec.decode(&bytes);
                    if len != sent.len() {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn debians_tool_understands_what_is_written() {
    if Command::new("ovs-ofctl").arg("--version").output().is_err() {
        println!("skipped: no ovs-ofctl");
        return;
    }
    // OpenFlow 1.5's statistics (OXS) are not done yet.
    for version in Version::ALL.into_iter().filter(|v| *v < Version::V15) {
        let codec = Codec::new(version);
        let mut hexes = String::new();
        for body in samples(version) {
            hexes += &hex(&codec.encode(&Message { xid: 1, body }));
            hexes.push('\n');
        }
        let mut faults = Vec::new();
        for line in hexes.lines() {
            let printed = Command::new("ovs-ofctl").args(["ofp-print", line]).output().unwrap();
            let text = String::from_utf8_lossy(&printed.stdout).into_owned();
            if text.contains("decode error") || text.contains("***") || text.is_empty() {
                faults.push(format!("{line}\n{text}{}", String::from_utf8_lossy(&printed.stderr)));
            }
        }
        assert!(faults.is_empty(), "{version}\n{}", faults.join("\n"));
    }
}

#[test]
fn a_long_answer_becomes_several_messages_that_say_so() {
    let codec = Codec::new(Version::V13);
    let stats = GroupStats {
        group: 1,
        ref_count: 0,
        packets: 0,
        bytes: 0,
        duration: Duration::default(),
        buckets: vec![(1, 2); 100],
    };
    let reply = StatsReply::Group(vec![stats; 100]);
    let sent = codec.encode(&Message {
        xid: 3,
        body: Body::StatsReply { more: false, reply },
    });
    let mut framer = crate::Framer::new();
    framer.push(&sent);
    let (mut parts, mut groups) = (Vec::new(), 0);
    while let Some(bytes) = framer.next().unwrap() {
        let message = codec.decode(bytes).unwrap();
        let Body::StatsReply {
            more,
            reply: StatsReply::Group(part),
        } = message.body
        else {
            panic!("another message");
        };
        parts.push(more);
        groups += part.len();
    }
    assert_eq!((parts, groups), (vec![true, true, false], 100));
}

#[test]
fn what_is_wrong_with_a_message_is_said_as_the_specification_says() {
    let v13 = Codec::new(Version::V13);
    let v10 = Codec::new(Version::V10);
    let cases = [
        (v13, "0463000800000001", OfError::BrcBadType),
        (v13, "0105000800000001", OfError::BrcBadVersion),
        (v13, "0405000a000000010000", OfError::BrcBadLen),
        (v13, "0412001000000001ff00000000000000", OfError::BrcBadStat),
        (v13, "04040010000000011234567800000001", OfError::BrcBadVendor),
        (v13, "0404001000000001000023200000ffff", OfError::BrcBadSubtype),
        (v10, "010f0008000000ff", OfError::BrcBadLen),
        (
            v13,
            "0418001800000001000000090000000000000000000000ff",
            OfError::RrfcBadRole,
        ),
        (v13, "041d00100000000100000001ffffffff", OfError::MmfcInvalidMeter),
        (v13, "041d0010000000010000000100000000", OfError::MmfcInvalidMeter),
        (v13, "041d0010000000010000000000000001", OfError::MmfcBadFlags),
        (v13, "040f0010000000010000090000000001", OfError::GmfcBadType),
        (v13, "040f0010000000010009000000000001", OfError::GmfcBadCommand),
        (v13, "0411001000000001000000000000000f", OfError::TmfcBadConfig),
    ];
    for (codec, message, error) in cases {
        assert_eq!(codec.decode(&bytes(message)).map(|m| m.body), Err(error), "{message}");
    }
}

#[test]
fn a_hello_without_sense_is_a_hello_without_bitmap() {
    for (message, bitmap) in [
        ("0400000800000001", None),
        ("0600001000000001000100080000007e", Some(Versions::ALL)),
        (
            "0600001800000001ffff0006aaaa00000001000800000012",
            Some(Versions::from_bitmap(0x12)),
        ),
        ("060000100000000100010000aaaaaaaa", None),
        ("0600000b00000001000100", None),
    ] {
        let read = Codec::new(Version::V13).decode(&bytes(message)).unwrap();
        let Body::Hello(hello) = read.body else { panic!() };
        assert_eq!(hello.bitmap, bitmap, "{message}");
        assert_eq!(hello.version, bytes(message)[0]);
    }
}
