//! Table features, in parts: the answer is longer than a megabyte.

use crate::agent::Core;
use crate::conn::Conn;
use crate::dump::Job;
use crate::env::Env;
use flow::{Maskable, MatchField};
use openflow::model::{
    Action, Body, FeatureId, FieldId, Port, StatsReply, TableFeatures, TableProperty, Value, table_config,
};
use openflow::{OfError, Version};
use switch::tables::{TABLES, abilities};
use wire::EtherType;

/// Tables described in one part.
const SLICE: u8 = 8;

/// A description of all tables that is under way.
#[derive(Debug)]
pub(crate) struct FeaturesDump {
    xid: u32,
    next: u8,
    actions: Vec<FeatureId>,
    /// Whether meters are instructions: in OpenFlow 1.5 they are actions.
    meters: bool,
    matches: Vec<FieldId>,
    sets: Vec<FieldId>,
    /// Each table's name, and the most rules that it may hold.
    own: Vec<(String, u32)>,
    can: u32,
}

impl Core {
    pub(crate) fn table_features(
        &self,
        conn: &mut Conn,
        xid: u32,
        asked: &[TableFeatures],
        env: &impl Env,
    ) -> Result<(), OfError> {
        if !asked.is_empty() {
            self.name_tables(asked, env)?;
        }
        conn.job = Some(Job::Features(FeaturesDump {
            xid,
            next: 0,
            actions: actions(),
            meters: conn.version() < Some(Version::V15) && abilities::meters(),
            matches: fields(|field| abilities::matches_field(field) || abilities::has_options(field)),
            sets: unmasked(fields(|field| {
                abilities::sets_field(field) || abilities::has_options(field)
            })),
            own: self.tables(env, |tables| {
                let own = |table| (tables.table_name(table).to_owned(), tables.max_entries(table));
                (0..TABLES).map(own).collect()
            }),
            can: if conn.version() >= Some(Version::V14) {
                table_config::EVICTION | table_config::VACANCY
            } else {
                0
            },
        }));
        Ok(())
    }
}

/// The commands of OpenFlow 1.5's requests: replace all tables, as earlier versions do, or some.
const REPLACE: u8 = 0;
const MODIFY: u8 = 1;

impl Core {
    /// Sets the names of tables. A request cannot change other features: the answer reports what
    /// they are.
    fn name_tables(&self, asked: &[TableFeatures], env: &impl Env) -> Result<(), OfError> {
        let mut seen = [false; TABLES as usize];
        for features in asked {
            let Some(seen) = seen.get_mut(usize::from(features.table)) else {
                return Err(OfError::TffcEperm);
            };
            if std::mem::replace(seen, true) {
                return Err(OfError::NxTffcDupTable);
            }
            if features.command > MODIFY {
                return Err(OfError::TffcEperm);
            }
        }
        let replaces = asked.iter().any(|features| features.command == REPLACE);
        if replaces && seen.contains(&false) {
            // Tables missing from the request would have to be removed.
            return Err(OfError::TffcEperm);
        }
        let names: Vec<(u8, &str)> = asked.iter().map(|f| (f.table, f.name.as_str())).collect();
        let room = self.tables(env, |tables| {
            asked.iter().all(|f| f.max_entries == tables.max_entries(f.table))
        });
        if !room {
            return Err(OfError::TffcEperm);
        }
        let bridge = &self.config.bridge;
        env.change(|switch, _| (switch.name_tables(bridge, &names), Vec::new()))
    }
}

impl FeaturesDump {
    /// Sends the next part; returns the rest.
    pub(crate) fn step(mut self, conn: &mut Conn) -> Option<Job> {
        let end = self.next.saturating_add(SLICE).min(TABLES);
        let tables = (self.next..end).map(|table| self.table(table)).collect();
        self.next = end;
        let more = end < TABLES;
        let reply = StatsReply::TableFeatures(tables);
        conn.send(self.xid, Body::StatsReply { more, reply });
        more.then_some(Job::Features(self))
    }

    fn table(&self, table: u8) -> TableFeatures {
        let last = table + 1 == TABLES;
        let instructions: Vec<FeatureId> = (1..=6)
            .filter(|kind| *kind != GOTO || !last)
            .filter(|kind| *kind != METER || self.meters)
            .map(FeatureId::new)
            .collect();
        let next: Vec<u8> = (table + 1..TABLES).collect();
        let mut properties = Vec::new();
        for miss in [false, true] {
            properties.extend([
                TableProperty::Instructions {
                    miss,
                    ids: instructions.clone(),
                },
                TableProperty::NextTables {
                    miss,
                    tables: next.clone(),
                },
                TableProperty::WriteActions {
                    miss,
                    ids: self.actions.clone(),
                },
                TableProperty::ApplyActions {
                    miss,
                    ids: self.actions.clone(),
                },
                TableProperty::WriteSetField {
                    miss,
                    fields: self.sets.clone(),
                },
                TableProperty::ApplySetField {
                    miss,
                    fields: self.sets.clone(),
                },
            ]);
        }
        properties.push(TableProperty::Match(self.matches.clone()));
        properties.push(TableProperty::Wildcards(unmasked(self.matches.clone())));
        let (name, max_entries) = self.own.get(usize::from(table)).cloned().unwrap_or_default();
        TableFeatures {
            table,
            name,
            config: self.can,
            metadata_match: u64::MAX,
            metadata_write: u64::MAX,
            max_entries,
            properties,
            ..TableFeatures::default()
        }
    }
}

const GOTO: u16 = 1;
const METER: u16 = 6;

fn unmasked(ids: Vec<FieldId>) -> Vec<FieldId> {
    ids.into_iter().map(|id| FieldId { masked: false, ..id }).collect()
}

fn fields(wanted: impl Fn(MatchField) -> bool) -> Vec<FieldId> {
    let there = MatchField::ALL
        .iter()
        .copied()
        .filter(|field| !field.info().ids.is_empty());
    there
        .filter(|field| wanted(*field))
        .map(|field| FieldId {
            field,
            masked: field.info().maskable == Maskable::Any,
        })
        .collect()
}

/// The actions that rules can have, of those numbered by the specification (OpenFlow 1.3.5 §7.2.4).
fn actions() -> Vec<FeatureId> {
    let output = Action::Output {
        port: Port::IN_PORT,
        max_len: 0,
    };
    let examples = [
        (0, output),
        (11, Action::CopyTtlOut),
        (12, Action::CopyTtlIn),
        (15, Action::SetMplsTtl(1)),
        (16, Action::DecMplsTtl),
        (17, Action::PushVlan(EtherType::VLAN.0)),
        (18, Action::PopVlan),
        (19, Action::PushMpls(0x8847)),
        (20, Action::PopMpls(0x0800)),
        (21, Action::SetQueue(0)),
        (22, Action::Group(0)),
        (23, Action::SetTtl(1)),
        (24, Action::DecTtl(vec![0])),
        (
            25,
            Action::SetField {
                field: MatchField::EthDst,
                value: Value::Word(0),
                mask: None,
            },
        ),
        (26, Action::PushPbb(0x88e7)),
        (27, Action::PopPbb),
    ];
    let can = examples.iter().filter(|(_, action)| abilities::does(action));
    can.map(|(kind, _)| FeatureId::new(*kind)).collect()
}
