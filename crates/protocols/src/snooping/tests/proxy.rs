//! Proxy reports.

use super::super::wire::{Message, Record, RecordKind, Report, group_mac, parse};
use super::super::{Config, ProxyConfig, QUERY_INTERVAL};
use super::*;
use crate::snooping::wire::general_query;
use std::time::Duration;

const SOURCES: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]];

fn proxy() -> Snooping {
    proxy_with(Config::default())
}

fn proxy_with(config: Config) -> Snooping {
    let proxy = ProxyConfig {
        address: Ipv4Addr::UNSPECIFIED,
        mac: MacAddr([2, 0, 0, 0, 0, 0x50]),
    };
    machine_with(Config {
        proxy: Some(proxy),
        ..config
    })
}

fn at(secs: u64) -> Nanos {
    Nanos::from_secs(secs)
}

/// Lets the bridge take its events, and the time pass until `end`. Returns the frames that leave.
fn frames(machine: &mut Snooping, now: Nanos, end: Nanos) -> Vec<Vec<u8>> {
    events(machine);
    machine.tick(now);
    events(machine);
    while let Some(due) = machine.next_event().filter(|due| *due <= end) {
        machine.tick(due.max(now));
        events(machine);
    }
    std::iter::from_fn(|| machine.take_frame())
        .map(|(_, frame)| frame)
        .collect()
}

fn report_of(frame: &[u8]) -> Report {
    match parse(frame).unwrap() {
        Message::Report(report) => report,
        Message::Query(query) => panic!("{query:?}"),
    }
}

/// The records of all reports among frames, as kind, group and last bytes of sources.
fn records(frames: &[Vec<u8>]) -> Vec<(RecordKind, IpAddr, Vec<u8>)> {
    let reports = frames.iter().map(|frame| report_of(frame));
    let last = |source: &IpAddr| match source {
        IpAddr::V4(source) => source.octets()[3],
        IpAddr::V6(source) => source.octets()[15],
    };
    let one = |Record { kind, group, sources }: Record| (kind, group, sources.iter().map(last).collect());
    reports.flat_map(|report| report.records).map(one).collect()
}

fn query(machine: &mut Snooping, now: Nanos) {
    let src = IpAddr::from([10, 0, 0, 254]);
    let frame = general_query(HOST, Vid::NONE, src, Duration::from_secs(10), QUERY_INTERVAL.0);
    machine.receive(4, Vid::NONE, &frame, now);
}

#[test]
fn the_first_and_the_last_member_are_reported_and_no_other() {
    let mut machine = proxy();
    let group = IpAddr::from(GROUP);
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(0));
    let sent = frames(&mut machine, at(0), at(9));
    // Twice, from the switch's addresses.
    assert_eq!(records(&sent), vec![(RecordKind::ToExclude, group, vec![]); 2]);
    let packet = &sent[0];
    assert_eq!(packet[..6], group_mac(IpAddr::from([224, 0, 0, 22])).0);
    assert_eq!(
        (&packet[6..12], &packet[26..30]),
        (&[2, 0, 0, 0, 0, 0x50][..], &[0; 4][..])
    );
    machine.receive(2, Vid::NONE, &igmp(0x16, GROUP), at(10));
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(11));
    machine.receive(1, Vid::NONE, &igmp(0x17, GROUP), at(12));
    assert!(frames(&mut machine, at(12), at(20)).is_empty());
    machine.receive(2, Vid::NONE, &igmp(0x17, GROUP), at(21));
    let sent = frames(&mut machine, at(21), at(30));
    assert_eq!(records(&sent), vec![(RecordKind::ToInclude, group, vec![]); 2]);
}

#[test]
fn sources_of_all_members_are_merged() {
    let mut machine = proxy();
    let group = IpAddr::from(GROUP);
    let [one, two, three] = SOURCES;
    let tell = |machine: &mut Snooping, port, kind, sources: &[[u8; 4]], secs| {
        machine.receive(port, Vid::NONE, &igmp3(kind, GROUP, sources), at(secs));
        let mut sent = records(&frames(machine, at(secs), at(secs + 5)));
        sent.dedup();
        sent
    };
    let machine = &mut machine;
    // ALLOW of two, and of one of them; EXCLUDE of one that somebody wants, and of one that nobody
    // does.
    assert_eq!(
        tell(machine, 1, 5, &[one, two], 0),
        [(RecordKind::Allow, group, vec![1, 2])]
    );
    assert_eq!(tell(machine, 2, 5, &[two], 10), []);
    assert_eq!(
        tell(machine, 3, 4, &[one, three], 20),
        [(RecordKind::ToExclude, group, vec![3])]
    );
    assert_eq!(tell(machine, 1, 6, &[one], 30), [(RecordKind::Block, group, vec![1])]);
    assert_eq!(tell(machine, 3, 3, &[], 40), [(RecordKind::ToInclude, group, vec![2])]);
}

#[test]
fn a_change_that_is_taken_back_at_once_is_told_too() {
    let mut machine = proxy();
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(0));
    events(&mut machine);
    machine.tick(at(0));
    assert_eq!(std::iter::from_fn(|| machine.take_frame()).count(), 1);
    machine.receive(1, Vid::NONE, &igmp(0x17, GROUP), at(0));
    let sent = records(&frames(&mut machine, at(0), at(9)));
    assert_eq!(
        sent,
        vec![(RecordKind::ToInclude, IpAddr::from(GROUP), vec![]); 2],
        "routers have heard of a member"
    );
    // What nobody has heard of needs no words.
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(20));
    events(&mut machine);
    machine.receive(1, Vid::NONE, &igmp(0x17, GROUP), at(20));
    assert!(frames(&mut machine, at(20), at(29)).is_empty());
}

#[test]
fn queries_are_answered_for_all_hosts_in_the_time_that_they_leave() {
    let mut machine = proxy();
    let group6: Ipv6Addr = "ff05::99".parse().unwrap();
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(0));
    machine.receive(2, Vid::NONE, &igmp3(5, Ipv4Addr::new(232, 1, 1, 1), &SOURCES), at(0));
    machine.receive(2, Vid::NONE, &mld(131, group6), at(0));
    machine.receive(2, Vid::from_tci(7), &igmp(0x16, Ipv4Addr::new(239, 9, 9, 9)), at(0));
    frames(&mut machine, at(0), at(9));
    query(&mut machine, at(10));
    let answers = frames(&mut machine, at(10), at(20));
    assert_eq!(answers.len(), 1, "one report for the VLAN and protocol");
    assert_eq!(
        records(&answers),
        [
            (RecordKind::IsInclude, [232, 1, 1, 1].into(), vec![1, 2, 3]),
            (RecordKind::IsExclude, GROUP.into(), vec![]),
        ]
    );
    let src = IpAddr::from(LINK_LOCAL);
    let frame = general_query(HOST, Vid::NONE, src, Duration::from_secs(10), QUERY_INTERVAL.0);
    machine.receive(4, Vid::NONE, &frame, at(30));
    let answers = frames(&mut machine, at(30), at(40));
    assert_eq!(records(&answers), [(RecordKind::IsExclude, group6.into(), vec![])]);
    // A query for a group, and one for a group without members.
    for (group, wanted) in [(GROUP, 1), (Ipv4Addr::new(239, 8, 8, 8), 0)] {
        let [a, b, c, d] = group.octets();
        let body = [0x11, 10, 0, 0, a, b, c, d, 2, 125, 0, 0];
        let frame = ipv4(HOST, Vid::NONE, Ipv4Addr::new(10, 0, 0, 254), group, &body);
        machine.receive(4, Vid::NONE, &frame, at(50));
        assert_eq!(frames(&mut machine, at(50), at(55)).len(), wanted);
    }
}

#[test]
fn a_querier_of_an_older_version_hears_that_version() {
    let mut machine = proxy();
    // IGMPv2: eight bytes, with a time to answer. IGMPv1: without.
    let ask = |machine: &mut Snooping, tenths, secs| {
        let body = [0x11, tenths, 0, 0, 0, 0, 0, 0];
        let frame = ipv4(
            HOST,
            Vid::NONE,
            Ipv4Addr::new(10, 0, 0, 254),
            Ipv4Addr::new(224, 0, 0, 1),
            &body,
        );
        machine.receive(4, Vid::NONE, &frame, at(secs));
        frames(machine, at(secs), at(secs + 11))
    };
    assert!(ask(&mut machine, 100, 0).is_empty());
    machine.receive(1, Vid::NONE, &igmp3(5, GROUP, &SOURCES), at(20));
    let sent = frames(&mut machine, at(20), at(29));
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0], ipv4_of_switch(0x16, GROUP, GROUP));
    // Another source is no news to who knows no sources.
    machine.receive(1, Vid::NONE, &igmp3(5, GROUP, &[[10, 0, 0, 4]]), at(30));
    assert!(frames(&mut machine, at(30), at(39)).is_empty());
    machine.receive(1, Vid::NONE, &igmp3(3, GROUP, &[]), at(40));
    let sent = frames(&mut machine, at(40), at(49));
    assert_eq!(sent, vec![ipv4_of_switch(0x17, GROUP, Ipv4Addr::new(224, 0, 0, 2)); 2]);
    assert!(ask(&mut machine, 0, 60).is_empty());
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(80));
    assert_eq!(
        frames(&mut machine, at(80), at(89)),
        vec![ipv4_of_switch(0x12, GROUP, GROUP); 2]
    );
    machine.receive(1, Vid::NONE, &igmp(0x17, GROUP), at(90));
    assert!(
        frames(&mut machine, at(90), at(99)).is_empty(),
        "IGMPv1 has no word for it"
    );
    // The older queriers are gone.
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(400));
    assert!(!report_of(&frames(&mut machine, at(400), at(409))[0]).older);
}

fn ipv4_of_switch(kind: u8, group: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
    let [a, b, c, d] = group.octets();
    let mac = MacAddr([2, 0, 0, 0, 0, 0x50]);
    ipv4(mac, Vid::NONE, Ipv4Addr::UNSPECIFIED, dst, &[kind, 0, 0, 0, a, b, c, d])
}

#[test]
fn without_fast_leave_the_switch_asks_the_hosts_that_stay() {
    let mut machine = proxy_with(Config {
        fast_leave: false,
        ..Config::default()
    });
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(0));
    frames(&mut machine, at(0), at(9));
    machine.receive(1, Vid::NONE, &igmp(0x17, GROUP), at(10));
    let asked = frames(&mut machine, at(10), at(11));
    assert_eq!(asked.len(), 2);
    for frame in &asked {
        let Message::Query(query) = parse(frame).unwrap() else {
            panic!("{frame:?}")
        };
        assert_eq!(
            (query.src, query.group),
            (Ipv4Addr::UNSPECIFIED.into(), Some(GROUP.into()))
        );
    }
    // Another host behind the port answers: routers hear nothing.
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(11));
    assert!(frames(&mut machine, at(11), at(20)).is_empty());
    machine.receive(1, Vid::NONE, &igmp(0x17, GROUP), at(30));
    let sent = frames(&mut machine, at(30), at(40));
    assert_eq!(
        records(&sent[2..]),
        vec![(RecordKind::ToInclude, GROUP.into(), vec![]); 2]
    );
    assert_eq!(machine.next_event(), None);
}

#[test]
fn many_groups_are_reported_in_batches_of_full_packets() {
    let mut machine = proxy();
    for number in 0..1000u32 {
        let group = Ipv4Addr::from(0xe800_0100 + number);
        machine.receive(1, Vid::NONE, &igmp3(5, group, &SOURCES), at(0));
    }
    frames(&mut machine, at(0), at(9));
    query(&mut machine, at(10));
    let answers = frames(&mut machine, at(10), at(21));
    assert!(answers.iter().all(|frame| frame.len() <= 1514), "an MTU of 1500");
    assert_eq!(records(&answers).len(), 1000);
    assert!(answers.len() < 20, "{}", answers.len());
}

#[test]
fn a_proxy_that_begins_reports_what_is_there_and_one_that_ends_is_silent() {
    let mut machine = machine();
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(0));
    events(&mut machine);
    let config = |proxy| {
        let mut config = Config {
            proxy,
            ..Config::default()
        };
        (1..=4).for_each(|port| _ = config.ports.insert(port, PortConfig::default()));
        config
    };
    let on = Some(ProxyConfig {
        address: Ipv4Addr::new(10, 0, 0, 7),
        mac: HOST,
    });
    machine.configure(config(on), at(10));
    machine.take_all();
    let sent = frames(&mut machine, at(10), at(19));
    assert_eq!(records(&sent), vec![(RecordKind::ToExclude, GROUP.into(), vec![]); 2]);
    assert_eq!(sent[0][26..30], [10, 0, 0, 7]);
    machine.configure(config(None), at(20));
    machine.receive(1, Vid::NONE, &igmp(0x17, GROUP), at(20));
    query(&mut machine, at(20));
    assert!(frames(&mut machine, at(20), at(40)).is_empty());
}

#[test]
fn mld_reports_leave_from_a_link_local_address() {
    let mut machine = proxy();
    let group: Ipv6Addr = "ff05::99".parse().unwrap();
    machine.receive(1, Vid::NONE, &mld2(4, group, &[]), at(0));
    let sent = frames(&mut machine, at(0), at(9));
    assert_eq!(records(&sent), vec![(RecordKind::ToExclude, group.into(), vec![]); 2]);
    // MLDv1: the query is 24 bytes.
    let mut body = vec![130, 0, 0, 0, 0, 100, 0, 0];
    body.extend([0; 16]);
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    machine.receive(4, Vid::NONE, &ipv6(HOST, Vid::NONE, LINK_LOCAL, all, &body), at(10));
    let sent = frames(&mut machine, at(10), at(20));
    assert_eq!(sent.len(), 1);
    assert!(report_of(&sent[0]).older);
    machine.receive(1, Vid::NONE, &mld(132, group), at(30));
    let sent = frames(&mut machine, at(30), at(39));
    assert_eq!(records(&sent), vec![(RecordKind::ToInclude, group.into(), vec![]); 2]);
    assert_eq!(sent[0][..6], [0x33, 0x33, 0, 0, 0, 2]);
}
