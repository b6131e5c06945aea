use super::*;
use conntrack::{Checksum, Nanos, Packet, Request};
use openflow::model::{CtFlush, CtTuple};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Rows of datapaths with zones. Each zone has a policy of these timeouts and this limit.
type Zones<'a> = &'a [(u16, &'a [(&'a str, i64)], Option<i64>)];

fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn read(datapaths: &[(&str, Option<i64>, Zones<'_>)]) -> Wanted {
    let mut tables = Tables::default();
    let mut root = rows::OpenVSwitch::default();
    for (n, (name, default_limit, zones)) in datapaths.iter().enumerate() {
        let own = (n as u128 + 1) << 64;
        let mut row = rows::Datapath {
            uuid: uuid(own),
            ct_zone_default_limit: *default_limit,
            ..rows::Datapath::default()
        };
        for (zone, timeouts, limit) in *zones {
            let (zone_row, policy) = (
                uuid(own | 1 << 32 | u128::from(*zone)),
                uuid(own | 2 << 32 | u128::from(*zone)),
            );
            let timeouts = timeouts.iter().map(|(key, seconds)| ((*key).to_owned(), *seconds));
            tables.ct_timeout_policies.insert(
                policy,
                rows::CtTimeoutPolicy {
                    uuid: policy,
                    timeouts: timeouts.collect(),
                    ..rows::CtTimeoutPolicy::default()
                },
            );
            tables.ct_zones.insert(
                zone_row,
                rows::CtZone {
                    uuid: zone_row,
                    limit: *limit,
                    timeout_policy: Some(policy),
                    ..rows::CtZone::default()
                },
            );
            row.ct_zones.insert((*zone).into(), zone_row);
        }
        root.datapaths.insert((*name).to_owned(), row.uuid);
        tables.datapaths.insert(row.uuid, row);
    }
    wanted(&root, &tables, &BTreeSet::from(["netdev", "system"]))
}

fn seconds(conntrack: &Conntrack, id: PolicyId, timeout: Timeout) -> Option<u32> {
    let policy = conntrack.policy(id)?;
    policy
        .iter()
        .find(|(own, _)| *own == timeout)
        .map(|(_, seconds)| *seconds)
}

#[test]
fn rows_come_into_force_change_and_are_taken_back() {
    let conntrack = Conntrack::new(1);
    let mut applied = Applied::default();
    let first = read(&[("netdev", Some(7), &[(1, &[("udp_first", 5)], Some(9)), (2, &[], None)])]);
    let zones = applied.settle(&first, &conntrack);
    assert_eq!(zones.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(seconds(&conntrack, zones[&1], Timeout::UdpFirst), Some(5));
    assert_eq!(seconds(&conntrack, zones[&2], Timeout::UdpFirst), Some(60));
    let limits = |zone| conntrack.zone_limit(zone).limit;
    assert_eq!((limits(1), limits(2), conntrack.default_zone_limit()), (9, 7, 7));
    assert!(applied.has_limits());

    let second = read(&[("netdev", None, &[(1, &[("udp_first", 6)], None)])]);
    let after = applied.settle(&second, &conntrack);
    applied.forget(&conntrack);
    assert_eq!(after, BTreeMap::from([(1, zones[&1])]), "the policy keeps its number");
    assert_eq!(seconds(&conntrack, zones[&1], Timeout::UdpFirst), Some(6));
    assert_eq!(conntrack.policy(zones[&2]), None);
    assert_eq!((limits(1), conntrack.default_zone_limit()), (0, 0));
    assert!(!applied.has_limits());

    assert_eq!(applied.settle(&Wanted::default(), &conntrack), BTreeMap::new());
    applied.forget(&conntrack);
    assert_eq!(conntrack.policy(zones[&1]), None);
}

#[test]
fn limits_that_a_command_set_stay_if_the_database_has_none() {
    let conntrack = Conntrack::new(1);
    let mut applied = Applied::default();
    conntrack.set_zone_limit(3, Some(4));
    conntrack.set_default_zone_limit(5);
    applied.settle(&read(&[("netdev", None, &[(3, &[], None)])]), &conntrack);
    assert_eq!((conntrack.zone_limit(3).limit, conntrack.default_zone_limit()), (4, 5));
}

#[test]
fn what_has_no_effect_is_named() {
    let zones: Zones<'_> = &[(1, &[("tcp_close_wait", 5), ("udp_first", 2)], None)];
    let found = read(&[("dummy", None, zones), ("netdev", None, zones), ("system", None, zones)]);
    assert_eq!(
        found.datapaths,
        [uuid(2 << 64), uuid(3 << 64)],
        "no bridge is of the other type"
    );
    let problems = [
        "timeout policy of zone 1: tcp_close_wait has no effect",
        "datapath system: zone 1 has no effect: another datapath has it",
    ];
    assert_eq!(found.problems, problems);
}

#[test]
fn numbers_of_policies_come_again_as_late_as_possible() {
    let conntrack = Conntrack::new(1);
    let mut applied = Applied {
        last: u16::MAX - 1,
        ..Applied::default()
    };
    let zones: Zones<'_> = &[(1, &[], None), (2, &[], None), (3, &[], None)];
    let numbers = applied.settle(&read(&[("netdev", None, zones)]), &conntrack);
    let numbers: Vec<u16> = numbers.values().map(|id| id.0).collect();
    assert_eq!(numbers, [u16::MAX, 1, 2]);
    let full = Applied {
        used: (1..=u16::MAX).collect(),
        ..Applied::default()
    };
    assert_eq!({ full }.free_number(), None);
}

/// A UDP packet between 10.0.0.1 and 10.0.0.2, without a checksum, or an echo request of ICMP.
fn packet(protocol: u8, src_port: u16, dst_port: u16) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let sum = testkit::checksum(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    match protocol {
        1 => bytes.extend([8, 0, 0, 0, 0, src_port as u8, 0, 0]),
        _ => {
            bytes.extend(src_port.to_be_bytes());
            bytes.extend(dst_port.to_be_bytes());
            bytes.extend([0, 8, 0, 0]);
        }
    }
    bytes
}

fn commit(conntrack: &Arc<Conntrack>, zone: u16, mark: u32, mut data: Vec<u8>) {
    let mut packet = Packet {
        data: &mut data,
        v6: false,
        checksum: Checksum::Good,
        in_port: 1,
        before: None,
    };
    let request = Request {
        zone,
        commit: true,
        mark: Some((mark, u32::MAX)),
        ..Request::default()
    };
    let outcome = conntrack.tracker().track(&request, &mut packet, Nanos::ZERO);
    assert!(outcome.connection.is_some(), "{outcome:?}");
}

#[test]
fn a_flush_removes_what_open_vswitch_would_remove() {
    let address = |last: u8| Some(Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped());
    let tuple = CtTuple {
        src: address(1),
        dst: address(2),
        src_port: Some(5),
        dst_port: Some(53),
        ..CtTuple::default()
    };
    let all = CtFlush::default();
    let whole = CtFlush {
        proto: 17,
        orig: tuple,
        ..all
    };
    let backwards = CtTuple {
        src: tuple.dst,
        dst: tuple.src,
        src_port: tuple.dst_port,
        dst_port: tuple.src_port,
        ..tuple
    };
    let icmp = |kind| CtFlush {
        proto: 1,
        orig: CtTuple {
            icmp_id: Some(5),
            icmp_type: Some(kind),
            ..CtTuple::default()
        },
        reply: CtTuple {
            icmp_id: Some(5),
            ..CtTuple::default()
        },
        ..all
    };
    let partly = CtTuple {
        dst_port: None,
        ..tuple
    };
    // What is flushed, whether it succeeds, and how many of six connections go.
    let cases = [
        (all, true, 6),
        (CtFlush { zone: Some(1), ..all }, true, 3),
        (CtFlush { zone: Some(9), ..all }, true, 0),
        (whole, true, 1),
        (
            CtFlush {
                orig: backwards,
                ..whole
            },
            true,
            1,
        ),
        (CtFlush { zone: Some(9), ..whole }, false, 0),
        (CtFlush { orig: partly, ..whole }, true, 2),
        (
            CtFlush {
                reply: backwards,
                ..whole
            },
            true,
            2,
        ),
        (CtFlush { reply: tuple, ..whole }, true, 0),
        (
            CtFlush {
                mark: Some((1, 1)),
                ..whole
            },
            true,
            1,
        ),
        (
            CtFlush {
                mark: Some((1, u32::MAX)),
                ..all
            },
            true,
            3,
        ),
        (CtFlush { proto: 17, ..all }, true, 4),
        (CtFlush { proto: 1, ..all }, true, 0),
        (icmp(8), true, 2),
        // Fields of ICMP that are not given are 0, in both directions.
        (
            CtFlush {
                reply: CtTuple::default(),
                ..icmp(8)
            },
            true,
            0,
        ),
        (icmp(7), true, 0),
    ];
    for (wanted, succeeds, removed) in cases {
        let conntrack = Conntrack::new(1);
        for zone in 0..2 {
            commit(&conntrack, zone, zone.into(), packet(17, 5, 53));
            commit(&conntrack, zone, zone.into(), packet(17, 6, 53));
            commit(&conntrack, zone, zone.into(), packet(1, 5, 0));
        }
        assert_eq!(flush(&conntrack, &wanted, Nanos::ZERO), succeeds, "{wanted:?}");
        assert_eq!(6 - conntrack.len(), removed, "{wanted:?}");
    }
}
