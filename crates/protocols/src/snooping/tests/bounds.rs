use super::*;
use crate::snooping::SourceFilter;

fn group(number: u32) -> Ipv4Addr {
    (u32::from(Ipv4Addr::new(239, 0, 0, 0)) + number).into()
}

#[test]
fn a_flood_of_groups_costs_the_offender_its_own() {
    let mut machine = machine();
    for number in 0..100 {
        machine.receive(1, Vid::NONE, &igmp(0x16, group(number)), Nanos::ZERO);
    }
    for number in 0..100_000 {
        machine.receive(
            2,
            Vid::NONE,
            &igmp(0x16, group(number)),
            Nanos::from_millis(u64::from(number)),
        );
    }
    let own = machine
        .groups(Nanos::ZERO)
        .iter()
        .filter(|entry| entry.port == 1)
        .count();
    assert_eq!(own, 100);
    let groups: std::collections::BTreeSet<_> = machine.groups(Nanos::ZERO).iter().map(|e| e.group).collect();
    assert_eq!(groups.len(), 2048);
    let (_, counters) = machine.counters().find(|(port, _)| *port == 2).unwrap();
    assert!(counters.refused > 40_000 && counters.evicted > 40_000, "{counters:?}");
    assert!(counters.memberships <= 2048);
}

#[test]
fn who_names_too_many_sources_gets_all() {
    let mut machine = machine();
    for number in 0..=64 {
        machine.receive(1, Vid::NONE, &igmp3(5, GROUP, &[[10, 0, 0, number]]), Nanos::ZERO);
    }
    assert_eq!(machine.filter(1, Vid::NONE, GROUP.into()), Some(SourceFilter::ALL));
}

#[test]
fn ports_that_are_gone_leave_nothing() {
    let mut machine = machine();
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), Nanos::ZERO);
    machine.receive(1, Vid::new(7).unwrap(), &igmp(0x11, Ipv4Addr::UNSPECIFIED), Nanos::ZERO);
    machine.configure(Config::default(), Nanos::ZERO);
    assert!(machine.groups(Nanos::ZERO).is_empty() && machine.routers(Nanos::ZERO).is_empty());
    assert_eq!(machine.next_event(), None);
    assert_eq!(events(&mut machine).len(), 2);
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), Nanos::ZERO);
    assert!(machine.groups(Nanos::ZERO).is_empty(), "an unknown port");
}

#[test]
fn flushing_forgets_all() {
    let mut machine = machine();
    machine.receive(1, Vid::NONE, &igmp(0x16, GROUP), Nanos::ZERO);
    machine.receive(2, Vid::NONE, &igmp(0x11, Ipv4Addr::UNSPECIFIED), Nanos::ZERO);
    machine.flush();
    assert!(machine.take_all().is_empty());
    assert_eq!(machine.next_event(), None);
}
