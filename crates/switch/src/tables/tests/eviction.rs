use super::*;
use crate::tables::{TableMiss, TableSettings};
use openflow::Version;
use openflow::model::{Subfield, TableMod, Vacancy, table_config};

fn short(priority: u16, fields: &[(F, u128, u128)], idle: u16, importance: u16) -> FlowMod {
    FlowMod {
        idle_timeout: idle,
        importance,
        ..add(priority, fields, 1)
    }
}

fn priorities(tables: &FlowTables) -> Vec<u16> {
    let mut all = Vec::new();
    tables.for_each(None, &Condition::ANY, |_, priority, _| all.push(priority));
    all.sort_unstable();
    all
}

#[test]
fn of_the_largest_group_the_least_important_goes_first_then_who_ends_first() {
    let mut tables = tables();
    let settings = TableSettings {
        limit: Some(5),
        overflow: Overflow::Evict,
        groups: vec![Subfield::whole(F::InPortOxm)],
        ..TableSettings::default()
    };
    tables.set_table(0, settings, T1);
    tables.flow_mod(&short(1, &[in_port(1)], 10, 0), T1).unwrap();
    tables.flow_mod(&short(2, &[in_port(2)], 50, 7), T1).unwrap();
    tables.flow_mod(&short(3, &[in_port(2)], 60, 5), T1).unwrap();
    let used = tables.flow_mod(&short(4, &[in_port(2)], 55, 5), T1).unwrap().added[0];
    tables.flow_mod(&add(5, &[in_port(3)], 1), T1).unwrap();
    // The group of port 2 is the largest. In it, 3 and 4 have the lowest importance, and 4 would
    // expire first if it had had no packet.
    tables.credit(used, 1, 60, Nanos::from_secs(40));
    let changed = tables.flow_mod(&short(6, &[in_port(3)], 1, 9), T1).unwrap();
    assert_eq!(changed.removed.iter().map(|r| r.priority).collect::<Vec<_>>(), [3]);
    assert_eq!(changed.removed[0].reason, Reason::Eviction);
    // Now two rules of port 2, one of port 1 and one of port 3 may be evicted.
    tables.flow_mod(&add(7, &[in_port(3)], 1), T1).unwrap();
    assert_eq!(priorities(&tables), [1, 2, 5, 6, 7]);
    let settings = TableSettings {
        limit: Some(2),
        overflow: Overflow::Evict,
        ..TableSettings::default()
    };
    assert_eq!(tables.set_table(0, settings, T1).len(), 3);
    assert_eq!(priorities(&tables), [5, 7]);
    assert_eq!(
        tables.flow_mod(&add(8, &[], 1), T1).unwrap_err(),
        OfError::FmfcTableFull
    );
}

fn mods(table: u8, config: u32) -> TableMod {
    TableMod {
        table,
        config,
        eviction: None,
        vacancy: None,
    }
}

#[test]
fn table_mods_set_what_their_version_has_and_refuse_the_rest() {
    let mut tables = tables();
    let mut log = tables.log();
    let mut ask = |tables: &mut FlowTables, change: &TableMod, version| tables.table_mod(change, version, &mut log);
    assert_eq!(ask(&mut tables, &mods(3, 1), Version::V11), Ok(vec![3]));
    assert_eq!(ask(&mut tables, &mods(3, 1), Version::V11), Ok(vec![]));
    assert_eq!(tables.miss(3), TableMiss::Continue);
    assert_eq!(ask(&mut tables, &mods(255, 2), Version::V12).unwrap().len(), 254);
    assert_eq!(
        (tables.miss(253), tables.table_config(0, Version::V12)),
        (TableMiss::Drop, 2)
    );
    assert_eq!(ask(&mut tables, &mods(0, 3), Version::V11), Err(OfError::TmfcBadConfig));
    assert_eq!(ask(&mut tables, &mods(0, 1), Version::V13), Ok(vec![]));
    assert_eq!(tables.miss(0), TableMiss::Drop);
    assert_eq!(ask(&mut tables, &mods(254, 4), Version::V14), Err(OfError::TmfcEperm));
    assert_eq!(
        ask(&mut tables, &mods(0, 16), Version::V14),
        Err(OfError::TmfcBadConfig)
    );
    let mut flags = mods(0, 4);
    flags.eviction = Some(1);
    assert_eq!(ask(&mut tables, &flags, Version::V14), Err(OfError::TmfcBadConfig));
    flags.eviction = Some(7);
    ask(&mut tables, &flags, Version::V14).unwrap();
    assert!(tables.evicts(0) && !tables.evicts(1));
    assert_eq!(tables.table_desc(0).config, table_config::EVICTION);
    assert_eq!((tables.max_entries(0), tables.table_stats().len()), (1_000_000, 254));
}

#[test]
fn vacancy_is_told_once_when_it_falls_and_once_when_it_rises() {
    let mut tables = tables();
    tables.set_limit(0, Some(10), Overflow::Refuse);
    let mut log = tables.log();
    let mut watch = mods(0, table_config::VACANCY);
    watch.vacancy = Some(Vacancy {
        down: 30,
        up: 60,
        now: 0,
    });
    tables.table_mod(&watch, Version::V14, &mut log).unwrap();
    let mut told = Vec::new();
    let rules: Vec<FlowMod> = (0..10).map(|n| add(n, &[], 1)).collect();
    for rule in &rules {
        tables.change(rule, T1, &mut log).unwrap();
    }
    for rule in &rules {
        tables
            .change(&to(FlowCommand::DeleteStrict, rule), T1, &mut log)
            .unwrap();
    }
    for event in log.events {
        if let TableEvent::Status(status) = event {
            told.push((status.reason, status.desc.vacancy.unwrap().now));
        }
    }
    assert_eq!(told, [(3, 20), (4, 70)]);
}
