//! Descriptions, properties and names of tables.

use crate::world::{BRIDGE, Lab, errors};
use flow::{MatchField, OxmClass};
use nanos::Nanos;
use ofproto::{Env, Kind};
use openflow::model::*;
use openflow::{ErrorKind, OfError, Version};
use switch::tables::{TABLES, TableSettings, abilities};

fn table_features(asked: Vec<TableFeatures>) -> Body {
    let request = StatsRequest::TableFeatures(asked);
    Body::StatsRequest { more: false, request }
}

/// Descriptions of tables.
fn told(lab: &mut Lab, version: Version) -> Vec<TableFeatures> {
    let id = lab.open(Kind::Service, version);
    lab.say(id, version, 1, table_features(Vec::new()));
    let mut all = Vec::new();
    for message in lab.hear(id, version) {
        match message.body {
            Body::StatsReply {
                reply: StatsReply::TableFeatures(tables),
                ..
            } => all.extend(tables),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(all.len(), usize::from(TABLES));
    all
}

/// The error that a request is answered with; none where it is done.
fn refused(lab: &mut Lab, version: Version, asked: &[TableFeatures]) -> Option<OfError> {
    let id = lab.open(Kind::Service, version);
    // A message holds the tables of a few requests only.
    let parts: Vec<_> = asked.chunks(8).collect();
    for (at, part) in parts.iter().enumerate() {
        let request = StatsRequest::TableFeatures(part.to_vec());
        let more = at + 1 < parts.len();
        lab.say(id, version, 5, Body::StatsRequest { more, request });
    }
    errors(&lab.hear(id, version)).first().map(|(_, error)| *error)
}

fn names(lab: &mut Lab) -> Vec<(u8, String)> {
    let all = told(lab, Version::V13).into_iter();
    all.filter(|table| !table.name.is_empty())
        .map(|table| (table.table, table.name))
        .collect()
}

#[test]
fn a_controller_names_tables_unless_the_database_does() {
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut lab = Lab::new();
        let mut all = told(&mut lab, version);
        all[3].name = "access".to_owned();
        assert_eq!(refused(&mut lab, version, &all), None, "{version}");
        assert_eq!(names(&mut lab), [(3, "access".to_owned())]);
        let settings = TableSettings {
            name: "routes".to_owned(),
            ..TableSettings::default()
        };
        lab.world
            .change(|switch, _| ((), switch.set_table(BRIDGE, 4, settings, Nanos(0))));
        let mut all = told(&mut lab, version);
        assert_eq!(all[4].name, "routes");
        all[3].name.clear();
        assert_eq!(refused(&mut lab, version, &all), None, "{version}");
        assert_eq!(names(&mut lab), [(4, "routes".to_owned())]);
        // All of a request is done, or nothing.
        (all[3].name, all[4].name) = ("one".to_owned(), "other".to_owned());
        assert_eq!(refused(&mut lab, version, &all), Some(OfError::TffcEperm), "{version}");
        assert_eq!(names(&mut lab), [(4, "routes".to_owned())]);
    }
}

#[test]
fn nothing_else_of_tables_is_a_controllers_to_choose() {
    for version in [Version::V13, Version::V14, Version::V15] {
        let mut lab = Lab::new();
        let all = told(&mut lab, version);
        assert_eq!(
            refused(&mut lab, version, &all[..5]),
            Some(OfError::TffcEperm),
            "{version}"
        );
        let mut smaller = all.clone();
        smaller[0].max_entries = 7;
        assert_eq!(refused(&mut lab, version, &smaller), Some(OfError::TffcEperm));
        let mut twice = all.clone();
        twice.push(all[1].clone());
        assert_eq!(refused(&mut lab, version, &twice), Some(OfError::NxTffcDupTable));
    }
    let mut lab = Lab::new();
    let mut one = told(&mut lab, Version::V15).swap_remove(9);
    for (command, error) in [(1, None), (2, Some(OfError::TffcEperm)), (3, Some(OfError::TffcEperm))] {
        one.command = command;
        one.name = format!("by{command}");
        assert_eq!(
            refused(&mut lab, Version::V15, std::slice::from_ref(&one)),
            error,
            "{command}"
        );
    }
    assert_eq!(names(&mut lab), [(9, "by1".to_owned())]);
}

#[test]
fn a_slave_reads_what_tables_are_and_names_none() {
    let version = Version::V13;
    let mut lab = Lab::new();
    let all = told(&mut lab, version);
    let id = lab.open(Kind::Primary, version);
    let role = RoleMsg {
        role: Role::Slave,
        generation: Some(1),
        nicira: false,
        short_id: 0,
    };
    lab.say(id, version, 1, Body::RoleRequest(role));
    lab.say(id, version, 2, table_features(all[..8].to_vec()));
    let heard = lab.hear(id, version);
    let refused = heard.iter().any(|message| {
        matches!(&message.body, Body::Error(error) if error.kind == ErrorKind::Known(OfError::BrcIsSecondary))
    });
    assert!(refused, "{heard:?}");
}

#[test]
fn older_versions_are_told_of_the_fields_that_rules_can_match_and_set() {
    let mut lab = Lab::new();
    let version = Version::V12;
    let id = lab.open(Kind::Service, version);
    let request = StatsRequest::Table;
    lab.say(id, version, 1, Body::StatsRequest { more: false, request });
    let raw = lab.hear_raw(id).concat();
    // Behind the headers: the table, its name, and words of bits (OpenFlow 1.2 §A.3.5.3).
    let word = |at: usize| u64::from_be_bytes(raw[16 + at..24 + at].try_into().unwrap());
    let (matched, wildcarded, sets) = (word(40), word(48), word(64));
    assert_eq!(matched, wildcarded);
    assert_eq!(sets, word(72));
    let (mut can_match, mut can_set) = (0u64, 0u64);
    // Those that OpenFlow 1.3 had given numbers to; a rule may have them in OpenFlow 1.2 too.
    for number in 0..40 {
        let Some(field) = MatchField::from_id(OxmClass::OpenFlowBasic, number) else {
            continue;
        };
        can_match |= u64::from(abilities::matches_field(field)) << number;
        can_set |= u64::from(abilities::sets_field(field)) << number;
    }
    assert_eq!(matched, can_match, "{matched:x} {can_match:x}");
    assert_eq!(sets, can_set, "{sets:x} {can_set:x}");
}
