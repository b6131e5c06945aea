use super::*;
use crate::snooping::wire::general_query;
use crate::snooping::{QuerierConfig, SourceFilter};
use std::time::Duration;

const A: [u8; 4] = [192, 0, 2, 1];
const B: [u8; 4] = [192, 0, 2, 2];

fn filter(machine: &Snooping, port: u32) -> Option<SourceFilter> {
    machine.filter(port, Vid::NONE, GROUP.into())
}

fn set(sources: &[[u8; 4]]) -> std::collections::BTreeSet<IpAddr> {
    sources.iter().map(|source| IpAddr::from(*source)).collect()
}

fn at(secs: u64) -> Nanos {
    Nanos::from_secs(secs)
}

#[test]
fn a_report_makes_a_member_and_a_leave_message_ends_it() {
    let mut machine = machine();
    for (join, leave) in [
        (igmp(0x12, GROUP), igmp(0x17, GROUP)),
        (igmp(0x16, GROUP), igmp3(3, GROUP, &[])),
    ] {
        machine.receive(1, Vid::NONE, &join, at(1));
        machine.receive(2, Vid::NONE, &join, at(1));
        assert_eq!(members(&machine, GROUP), [1, 2]);
        let member = |port| (port, SourceFilter::ALL);
        let (vlan, group) = (Vid::NONE, IpAddr::from(GROUP));
        let told = |members: &[u32]| Event::Group {
            vlan,
            group,
            members: members.iter().copied().map(member).collect(),
        };
        assert_eq!(events(&mut machine), [told(&[1, 2])]);
        machine.receive(1, Vid::NONE, &leave, at(2));
        assert_eq!(events(&mut machine), [told(&[2])]);
        machine.receive(2, Vid::NONE, &leave, at(2));
        assert_eq!(events(&mut machine), [told(&[])]);
        assert_eq!(machine.next_event(), None);
    }
}

#[test]
fn mld_does_the_same() {
    let mut machine = machine();
    let group = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x99);
    machine.receive(1, Vid::NONE, &mld(131, group), at(1));
    machine.receive(2, Vid::NONE, &mld2(4, group, &[]), at(1));
    assert_eq!(members(&machine, group), [1, 2]);
    machine.receive(1, Vid::NONE, &mld(132, group), at(1));
    machine.receive(2, Vid::NONE, &mld2(3, group, &[]), at(1));
    assert!(members(&machine, group).is_empty());
}

#[test]
fn a_member_that_does_not_report_again_ages_out() {
    let mut machine = machine();
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(10));
    machine.receive(2, Vid::NONE, &igmp(0x16, GROUP), at(100));
    assert_eq!(machine.next_event(), Some(at(310)));
    machine.tick(at(310));
    assert_eq!(members(&machine, GROUP), [2]);
    let shorter = Config {
        aging: Duration::from_secs(20),
        ports: (1..=4).map(|port| (port, PortConfig::default())).collect(),
        ..Config::default()
    };
    machine.configure(shorter, at(311));
    assert!(members(&machine, GROUP).is_empty());
}

#[test]
fn vlans_are_apart() {
    let mut machine = machine();
    let ten = Vid::new(10).unwrap();
    machine.receive(1, ten, &igmp(0x16, GROUP), at(1));
    machine.receive(2, Vid::NONE, &igmp(0x16, GROUP), at(1));
    machine.receive(2, ten, &igmp(0x17, GROUP), at(1));
    let vlans: Vec<_> = machine
        .groups(at(5))
        .iter()
        .map(|entry| (entry.port, entry.vlan))
        .collect();
    assert_eq!(vlans, [(1, ten), (2, Vid::NONE)]);
}

#[test]
fn sources_are_included_and_excluded() {
    let mut machine = machine();
    machine.receive(1, Vid::NONE, &igmp3(5, GROUP, &[A]), at(1));
    assert_eq!(filter(&machine, 1), Some(SourceFilter::Only(set(&[A]))));
    machine.receive(1, Vid::NONE, &igmp3(5, GROUP, &[B]), at(1));
    machine.receive(1, Vid::NONE, &igmp3(6, GROUP, &[A]), at(1));
    assert_eq!(filter(&machine, 1), Some(SourceFilter::Only(set(&[B]))));
    machine.receive(1, Vid::NONE, &igmp3(4, GROUP, &[A]), at(1));
    assert_eq!(filter(&machine, 1), Some(SourceFilter::Except(set(&[A]))));
    machine.receive(1, Vid::NONE, &igmp3(5, GROUP, &[A]), at(2));
    assert_eq!(filter(&machine, 1), Some(SourceFilter::ALL));
    machine.receive(1, Vid::NONE, &igmp3(3, GROUP, &[B]), at(3));
    assert_eq!(filter(&machine, 1), Some(SourceFilter::Only(set(&[B]))));
    machine.receive(1, Vid::NONE, &igmp3(6, GROUP, &[B]), at(3));
    assert_eq!(filter(&machine, 1), None);
}

#[test]
fn hosts_that_know_no_sources_keep_them_all() {
    let mut machine = machine();
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(1));
    machine.receive(1, Vid::NONE, &igmp3(4, GROUP, &[A]), at(2));
    machine.receive(1, Vid::NONE, &igmp3(6, GROUP, &[B]), at(2));
    assert_eq!(filter(&machine, 1), Some(SourceFilter::ALL));
}

#[test]
fn without_fast_leave_a_member_lasts_until_the_querier_has_asked() {
    let mut machine = machine_with(Config {
        fast_leave: false,
        ..Config::default()
    });
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(1));
    machine.receive(1, Vid::NONE, &igmp(0x17, GROUP), at(5));
    assert_eq!((members(&machine, GROUP), machine.next_event()), (vec![1], Some(at(7))));
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(6));
    machine.tick(at(8));
    assert_eq!(members(&machine, GROUP), [1]);
    machine.receive(1, Vid::NONE, &igmp(0x17, GROUP), at(9));
    machine.tick(at(11));
    assert!(members(&machine, GROUP).is_empty());
}

#[test]
fn ports_for_reports_ignore_leave_messages_and_flooded_ports_learn_nothing() {
    let mut config = Config::default();
    let (flood, flood_reports) = (true, true);
    config.ports.insert(
        1,
        PortConfig {
            flood: false,
            flood_reports,
        },
    );
    config.ports.insert(
        2,
        PortConfig {
            flood,
            flood_reports: false,
        },
    );
    let mut machine = machine_with(config);
    for port in [1, 2] {
        machine.receive(port, Vid::NONE, &igmp(0x16, GROUP), at(1));
        machine.receive(port, Vid::NONE, &igmp(0x17, GROUP), at(1));
    }
    assert_eq!(members(&machine, GROUP), [1]);
    machine.receive(2, Vid::NONE, &igmp(0x11, Ipv4Addr::UNSPECIFIED), at(1));
    assert!(machine.routers(at(1)).is_empty());
}

#[test]
fn queriers_are_found_and_age() {
    let mut machine = machine();
    let switch = general_query(
        HOST,
        Vid::NONE,
        Ipv4Addr::UNSPECIFIED.into(),
        Duration::ZERO,
        Duration::ZERO,
    );
    machine.receive(1, Vid::NONE, &switch, at(1));
    assert!(machine.routers(at(1)).is_empty());
    machine.receive(1, Vid::NONE, &igmp(0x11, Ipv4Addr::UNSPECIFIED), at(1));
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), at(2));
    assert_eq!(machine.routers(at(5))[0].age, Duration::from_secs(4));
    assert!(members(&machine, GROUP).is_empty(), "a router gets all packets already");
    assert_eq!(machine.next_event(), Some(at(181)));
    machine.tick(at(181));
    assert!(machine.routers(at(181)).is_empty());
    let (vlan, ports) = (Vid::NONE, Vec::new());
    assert_eq!(events(&mut machine), [Event::Routers { vlan, ports }]);
}

#[test]
fn our_querier_asks_until_a_better_one_does() {
    let querier = QuerierConfig {
        vlans: [Vid::NONE].into(),
        address: Ipv4Addr::new(10, 0, 0, 5),
        mac: HOST,
        interval: Duration::from_secs(100),
    };
    let mut machine = machine_with(Config {
        querier: Some(querier),
        ..Config::default()
    });
    let sent = |machine: &mut Snooping| std::iter::from_fn(|| machine.take_frame()).collect::<Vec<_>>();
    let frames = sent(&mut machine);
    assert_eq!(frames.len(), 2, "IGMPv3 and MLDv2");
    let mut other = super::machine();
    frames
        .iter()
        .for_each(|(vlan, frame)| other.receive(3, *vlan, frame, at(0)));
    assert_eq!(other.counters().find(|(port, _)| *port == 3).unwrap().1.queries, 2);
    assert_eq!(other.routers(at(0)).len(), 1);
    machine.tick(at(25));
    assert_eq!(sent(&mut machine).len(), 2);
    let query = |last| {
        let src = IpAddr::from([10, 0, 0, last]);
        general_query(HOST, Vid::NONE, src, Duration::from_secs(1), Duration::from_secs(100))
    };
    machine.receive(1, Vid::NONE, &query(9), at(30));
    machine.tick(at(125));
    assert_eq!(sent(&mut machine).len(), 2, "a higher address does not win");
    machine.receive(1, Vid::NONE, &query(4), at(130));
    machine.tick(at(225));
    assert_eq!(sent(&mut machine).len(), 1, "MLD goes on");
    machine.tick(at(335));
    assert_eq!(sent(&mut machine).len(), 2, "the other querier is gone");
}
