//! What is answered.

use crate::world::{BRIDGE, Lab, errors, rule};
use nanos::Nanos;
use ofproto::{Closed, Config, Env, Event, Kind, Run};
use openflow::model::*;
use openflow::text::{Names, parse_group_mod};
use openflow::{Codec, ErrorKind, Hello, OfError, Version, Versions};
use switch::tables::ForController;

fn role(role: Role, generation: u64) -> Body {
    Body::RoleRequest(RoleMsg {
        role,
        generation: Some(generation),
        nicira: false,
        short_id: 0,
    })
}

fn flow(change: FlowMod) -> Body {
    Body::FlowMod(Box::new(change))
}

#[test]
fn every_version_is_agreed_on_and_asked_for_features() {
    for version in Version::ALL {
        let mut lab = Lab::new();
        let id = lab.open(Kind::Primary, version);
        lab.say(id, version, 5, Body::FeaturesRequest);
        let heard = lab.hear(id, version);
        let [
            Message {
                xid: 5,
                body: Body::FeaturesReply(features),
            },
        ] = &heard[..]
        else {
            panic!("{version}: {heard:?}");
        };
        assert_eq!(
            (features.datapath_id, features.n_tables, features.n_buffers),
            (7, 254, 0)
        );
        assert_eq!(features.ports.len(), if version < Version::V13 { 3 } else { 0 });
    }
}

#[test]
fn without_a_version_in_common_the_peer_is_told_and_shown_out() {
    let mut lab = Lab::new();
    let id = lab.connect(Kind::Service);
    let hello = Hello {
        version: 9,
        bitmap: Some(Versions::from_bitmap(1 << 9)),
    };
    let mut bytes = Codec::new(Version::V15).encode(&Message {
        xid: 3,
        body: Body::Hello(hello),
    });
    bytes[0] = 9;
    assert!(matches!(
        lab.say_bytes(id, &bytes),
        Run::Close(Closed::NoVersion { .. })
    ));
    let heard = lab.hear_raw(id);
    assert_eq!(heard.len(), 2);
    // A failed hello: type 0, code 0, and a text.
    assert_eq!(heard[1][1], 1);
    assert_eq!(heard[1][8..12], [0, 0, 0, 0]);
}

#[test]
fn an_error_quotes_the_request_and_what_follows_is_answered() {
    let mut lab = Lab::new();
    let version = Version::V13;
    let id = lab.open(Kind::Service, version);
    let mut request = vec![4, 99, 0, 100, 0, 0, 0, 8];
    request.resize(100, 0x5a);
    lab.say_bytes(id, &request);
    lab.say(id, version, 9, Body::BarrierRequest);
    let heard = lab.hear(id, version);
    let Body::Error(error) = &heard[0].body else {
        panic!("{heard:?}")
    };
    assert_eq!((heard[0].xid, error.kind), (8, ErrorKind::Known(OfError::BrcBadType)));
    assert_eq!(error.data, request);
    assert_eq!(heard[1].body, Body::BarrierReply);
}

#[test]
fn one_master_rules_slaves_only_read_and_old_elections_do_not_count() {
    let version = Version::V13;
    let mut lab = Lab::new();
    let (one, two) = (lab.open(Kind::Primary, version), lab.open(Kind::Primary, version));
    lab.say(one, version, 1, role(Role::Master, 10));
    lab.say(two, version, 2, role(Role::Master, 11));
    assert_eq!(
        (lab.agent.role(one), lab.agent.role(two)),
        (Some(Role::Slave), Some(Role::Master))
    );
    lab.say(one, version, 3, role(Role::Master, 10));
    lab.say(one, version, 4, flow(rule(1)));
    lab.say(
        one,
        version,
        5,
        Body::StatsRequest {
            more: false,
            request: StatsRequest::Desc,
        },
    );
    let heard = lab.hear(one, version);
    assert_eq!(errors(&heard), [(3, OfError::RrfcStale), (4, OfError::BrcIsSecondary)]);
    assert!(matches!(
        heard.last(),
        Some(Message {
            xid: 5,
            body: Body::StatsReply { .. }
        })
    ));
    lab.say(two, version, 6, flow(rule(1)));
    assert_eq!(lab.rules(), 2);
}

#[test]
fn a_dump_that_nobody_reads_takes_no_more_memory_than_its_share() {
    let version = Version::V13;
    let mut lab = Lab::new();
    lab.world.change(|switch, now| {
        for n in 0..20_000_u32 {
            let mut change = rule(7);
            change.matching.set(flow::MatchField::EthType, 0x0800, 0xffff);
            change.matching.set(flow::MatchField::IpSrc, n.into(), u32::MAX.into());
            switch.flow_mod(BRIDGE, &change, now).unwrap();
        }
        ((), Vec::new())
    });
    let id = lab.open(Kind::Service, version);
    let request = StatsRequest::Flow(FlowStatsRequest::default());
    let bytes = Codec::new(version).encode(&Message {
        xid: 4,
        body: Body::StatsRequest { more: false, request },
    });
    lab.agent.receive(id, &bytes);
    let mut steps = 0;
    while lab.agent.run(id, &lab.world, Nanos(1), 1) != Run::Full {
        steps += 1;
        assert!(steps < 1000);
    }
    assert!(!lab.agent.wants_input(id));
    let first = lab.agent.transmit(id);
    assert!(first.len() < 512 << 10, "{}", first.len());
    let mut framer = openflow::Framer::new();
    framer.push(&first);
    let (mut flows, mut ended) = (0, false);
    loop {
        while let Some(message) = framer.next().unwrap() {
            let Body::StatsReply {
                more,
                reply: StatsReply::Flow { flows: part, .. },
            } = Codec::new(version).decode(message).unwrap().body
            else {
                panic!("a part of the dump");
            };
            assert!(!ended);
            flows += part.len();
            ended = !more;
        }
        if ended {
            break;
        }
        lab.agent.run(id, &lab.world, Nanos(1), 4);
        let bytes = lab.agent.transmit(id);
        framer.push(&bytes);
    }
    assert_eq!(flows, 20_001);
}

#[test]
fn packets_go_to_whom_they_are_for_and_wait_for_the_slow_within_bounds() {
    let version = Version::V13;
    let mut lab = Lab::new();
    let (zero, five) = (lab.open(Kind::Primary, version), lab.open(Kind::Primary, version));
    lab.say(five, version, 1, Body::SetControllerId(5));
    let service = lab.open(Kind::Service, version);
    let mut metadata = Match::ANY;
    metadata.set(flow::MatchField::InPortOxm, 1, u32::MAX.into());
    let meaning = |controller| ForController {
        bridge: 1,
        controller,
        reason: 1,
        table: 3,
        cookie: 77,
        userdata: Vec::new(),
        meter: None,
        max_len: u16::MAX,
        metadata: metadata.clone(),
        continuation: None,
    };
    lab.agent.packet_in(&meaning(0), &[1; 60], (100, 0), Nanos(1));
    lab.agent.packet_in(&meaning(5), &[2; 60], (60, 0), Nanos(1));
    let told = |messages: Vec<Message>| -> Vec<(Vec<u8>, u32, u64)> {
        let packet = |message: Message| match message.body {
            Body::PacketIn(packet) => (packet.data, packet.total_len, packet.cookie),
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(packet).collect()
    };
    assert_eq!(told(lab.hear(zero, version)), [(vec![1; 60], 100, 77)]);
    assert_eq!(told(lab.hear(five, version)), [(vec![2; 60], 60, 77)]);
    assert!(lab.hear(service, version).is_empty());
    for _ in 0..10_000 {
        lab.agent.packet_in(&meaning(0), &[3; 1500], (1500, 0), Nanos(1));
    }
    let waiting = lab.agent.transmit(zero).len();
    assert!(waiting < 300 << 10, "{waiting}");
    let dropped = lab.agent.stats(zero).unwrap().dropped;
    assert!(dropped > 9000, "{dropped}");
}

#[test]
fn why_a_controller_gets_a_packet_is_told_as_its_version_has_it() {
    // No rule, an action, a bucket; a table-miss rule.
    for (version, told) in [
        (Version::V10, [0, 1, 1, 1]),
        (Version::V12, [0, 1, 1, 1]),
        (Version::V13, [0, 1, 1, 0]),
        (Version::V15, [0, 1, 4, 0]),
    ] {
        let mut lab = Lab::new();
        let id = lab.open(Kind::Primary, version);
        for reason in [0, 1, 4, ForController::TABLE_MISS] {
            let meaning = ForController {
                bridge: 1,
                controller: 0,
                reason,
                table: 0,
                cookie: 0,
                userdata: Vec::new(),
                meter: None,
                max_len: u16::MAX,
                metadata: Match::ANY,
                continuation: None,
            };
            lab.agent.packet_in(&meaning, &[1; 60], (60, 0), Nanos(1));
        }
        let heard = lab.hear(id, version);
        let reasons: Vec<u8> = heard
            .iter()
            .map(|message| match &message.body {
                Body::PacketIn(packet) => packet.reason,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(reasons, told, "{version}");
    }
}

#[test]
fn many_groups_are_described_in_parts() {
    let version = Version::V15;
    let mut lab = Lab::new();
    let id = lab.open(Kind::Service, version);
    for group in 1..=200 {
        let buckets = ",bucket=actions=1,2,3,1,2,3,1,2,3".repeat(20);
        let text = format!("group_id={group},type=all{buckets}");
        let (change, _) = parse_group_mod(GroupCommand::Add, &text, &Names::default()).unwrap();
        lab.say(id, version, group, Body::GroupMod(change));
    }
    for request in [StatsRequest::GroupDesc(ALL_GROUPS), StatsRequest::Group(ALL_GROUPS)] {
        lab.say(id, version, 1000, Body::StatsRequest { more: false, request });
        let heard = lab.hear(id, version);
        assert!(heard.len() >= 4, "{}", heard.len());
        let mut numbers = Vec::new();
        for (n, message) in heard.iter().enumerate() {
            let Body::StatsReply { more, reply } = &message.body else {
                panic!("{message:?}")
            };
            assert_eq!(*more, n + 1 < heard.len());
            match reply {
                StatsReply::GroupDesc(groups) => numbers.extend(groups.iter().map(|group| group.group)),
                StatsReply::Group(groups) => numbers.extend(groups.iter().map(|group| group.group)),
                other => panic!("{other:?}"),
            }
        }
        assert!(numbers.into_iter().eq(1..=200));
    }
}

#[test]
fn a_port_that_comes_goes_or_changes_is_told() {
    let mut lab = Lab::new();
    let open = |lab: &mut Lab, version| (lab.open(Kind::Primary, version), version);
    let (id, version) = open(&mut lab, Version::V10);
    // OpenFlow 1.1 and later have no word for floods.
    let [other, later, last] = [Version::V10, Version::V13, Version::V15].map(|version| open(&mut lab, version));
    let change = |config, mask, mac: u8| {
        Body::PortMod(PortMod {
            port: Port(2),
            hw_addr: wire::MacAddr([2, 0, 0, 0, 0, mac]),
            config,
            mask,
            advertise: 0,
        })
    };
    lab.say(id, version, 1, change(config::NO_FLOOD, config::NO_FLOOD, 2));
    lab.say(id, version, 2, change(config::NO_FLOOD, config::NO_FLOOD, 2));
    lab.say(id, version, 3, change(0, config::NO_FLOOD, 9));
    let own = lab.hear(id, version);
    assert_eq!(errors(&own), [(3, OfError::PmfcBadHwAddr)]);
    assert_eq!(own.len(), 1, "before OpenFlow 1.5 the asker knows: {own:?}");
    let heard = lab.hear(other.0, other.1);
    let [
        Message {
            body: Body::PortStatus(status),
            ..
        },
    ] = &heard[..]
    else {
        panic!("{heard:?}")
    };
    assert_eq!(
        (status.reason, status.desc.port, status.desc.config),
        (2, Port(2), config::NO_FLOOD)
    );
    for (id, version) in [later, last] {
        assert_eq!(lab.hear(id, version).len(), 0, "{version}");
    }
    lab.say(last.0, last.1, 4, change(config::NO_FWD, config::NO_FWD, 2));
    for (id, version) in [(id, version), other, later, last] {
        assert_eq!(lab.hear(id, version).len(), 1, "{version}");
    }
    lab.agent.set_ports(Vec::new(), &lab.world);
    let gone = lab.hear(id, version);
    assert_eq!(gone.len(), 3);
}

#[test]
fn a_monitor_hears_others_in_full_and_itself_in_short() {
    let version = Version::V14;
    let mut lab = Lab::new();
    let (id, other) = (lab.open(Kind::Service, version), lab.open(Kind::Service, version));
    let request = FlowMonitorRequest {
        id: 1,
        flags: 1 | 2 | 4 | 8 | 0x10,
        ..FlowMonitorRequest::default()
    };
    let watch = |request: FlowMonitorRequest| Body::StatsRequest {
        more: false,
        request: StatsRequest::FlowMonitor(vec![request]),
    };
    lab.say(id, version, 1, watch(request.clone()));
    lab.say(other, version, 2, flow(rule(5)));
    lab.say(id, version, 3, flow(rule(6)));
    let updates: Vec<FlowUpdate> = lab
        .hear(id, version)
        .into_iter()
        .flat_map(|message| match message.body {
            Body::StatsReply {
                reply: StatsReply::FlowMonitor(updates),
                ..
            } => updates,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        matches!(
            updates[0],
            FlowUpdate::Full {
                event: 3,
                priority: 0,
                ..
            }
        ),
        "{updates:?}"
    );
    assert!(matches!(
        updates[1],
        FlowUpdate::Full {
            event: 0,
            priority: 5,
            ..
        }
    ));
    assert_eq!(updates[2..], [FlowUpdate::Abbrev { xid: 3 }]);
    lab.say(id, version, 4, watch(request));
    assert_eq!(errors(&lab.hear(id, version)), [(4, OfError::MofcMonitorExists)]);
}

#[test]
fn who_snoops_hears_both_sides_and_may_say_nothing() {
    let version = Version::V13;
    let mut lab = Lab::new();
    let snoop = lab.open(Kind::Snoop, Version::V15);
    let id = lab.open(Kind::Primary, version);
    lab.say(id, version, 8, Body::BarrierRequest);
    let xids: Vec<(u8, u8)> = lab.hear_raw(snoop).iter().map(|m| (m[1], m[7])).collect();
    // Both hellos, the request and its answer.
    assert!(xids.ends_with(&[(20, 8), (21, 8)]), "{xids:?}");
    lab.say(snoop, Version::V15, 9, flow(rule(1)));
    assert_eq!(lab.rules(), 1);
}

#[test]
fn who_reads_nothing_is_told_of_rules_up_to_a_bound_and_then_given_up() {
    let version = Version::V13;
    let mut lab = Lab::new();
    let config = Config {
        most_unread: 1 << 20,
        ..lab.agent.config().clone()
    };
    lab.agent.configure(config);
    let (stalled, other) = (lab.open(Kind::Primary, version), lab.open(Kind::Service, version));
    for round in 0..30 {
        lab.world.change(|switch, now| {
            let mut change = rule(7);
            change.flags = FlowFlags::SEND_FLOW_REM;
            for n in 0..1000_u32 {
                change.matching.set(flow::MatchField::EthType, 0x0800, 0xffff);
                change.matching.set(flow::MatchField::IpSrc, n.into(), u32::MAX.into());
                switch.flow_mod(BRIDGE, &change, now).unwrap();
            }
            let all = FlowMod {
                command: FlowCommand::Delete,
                table: None,
                ..rule(0)
            };
            switch.flow_mod(BRIDGE, &all, now).unwrap();
            ((), Vec::new())
        });
        lab.agent.tables_changed(&lab.world, Nanos(1));
        if matches!(
            lab.agent.run(stalled, &lab.world, Nanos(1), 1),
            Run::Close(Closed::NotReading)
        ) {
            assert!(round > 5, "{round}");
            assert!(lab.ready().contains(&stalled), "who serves the connection hears of it");
            let waiting = lab.agent.transmit(stalled).len();
            assert!(waiting < 2 << 20, "{waiting}");
            lab.say(other, version, 3, Body::BarrierRequest);
            assert_eq!(lab.hear(other, version).len(), 1);
            return;
        }
    }
    panic!("a peer that does not read takes all memory");
}

#[test]
fn tunnels_options_are_mapped_and_told_of_and_told_with_packets() {
    let mut lab = Lab::new();
    let id = lab.open(Kind::Primary, Version::V13);
    let map = |kind, index| TlvMap {
        class: 0xffff,
        kind,
        len: 4,
        index,
    };
    let change = |command, maps| Body::TlvTableMod { command, maps };
    lab.say(id, Version::V13, 1, change(0, vec![map(0, 3), map(1, 0)]));
    lab.say(id, Version::V13, 2, change(0, vec![map(0, 4)]));
    lab.say(id, Version::V13, 3, Body::TlvTableRequest);
    let mut wanted = rule(1);
    wanted.matching.add_tun_metadata(3, &[1, 2, 3, 4], None).unwrap();
    lab.say(id, Version::V13, 4, flow(wanted));
    lab.say(id, Version::V13, 5, change(2, Vec::new()));
    lab.say(id, Version::V13, 6, change(1, vec![map(1, 0)]));
    let heard = lab.hear(id, Version::V13);
    assert_eq!(
        errors(&heard),
        [(2, OfError::NxTtmfcDupEntry), (5, OfError::NxTtmfcInvalidTlvDel)]
    );
    let tables = heard.iter().filter_map(|message| match &message.body {
        Body::TlvTableReply(table) => Some(table.maps.clone()),
        _ => None,
    });
    assert_eq!(tables.collect::<Vec<_>>(), [[map(1, 0), map(0, 3)]]);
}

#[test]
fn the_caller_learns_of_a_greeting_of_the_first_request_and_of_a_new_identity_once_each() {
    let version = Version::V13;
    let mut lab = Lab::new();
    let id = lab.open(Kind::Primary, version);
    lab.say(id, version, 2, Body::FeaturesRequest);
    assert_eq!(lab.agent.events(), [Event::Greeted(id)]);
    for xid in 3..5 {
        lab.say(id, version, xid, Body::BarrierRequest);
    }
    assert_eq!(lab.agent.events(), [Event::Admitted(id)]);
    let mut config = lab.agent.config().clone();
    config.description = "another".to_owned();
    lab.agent.configure(config.clone());
    assert_eq!(lab.agent.events(), []);
    config.datapath_id += 1;
    lab.agent.configure(config);
    assert_eq!(lab.agent.events(), [Event::Reconnect]);
}
