//! Groups, meters and the settings of tables.

use crate::agent::Core;
use crate::conn::Conn;
use crate::dump::Job;
use crate::env::Env;
use crate::events::Effect;
use nanos::Nanos;
use openflow::model::{ALL_GROUPS, Body, GroupMod, Message, MeterMod, MeterStats, StatsReply, TableMod};
use openflow::{OfError, Version};
use std::ops::RangeInclusive;
use switch::tables::{FlowTables, Meter, TABLES, group_features, meter_features, meter_stats};

impl Core {
    pub(crate) fn group_mod(&mut self, conn: &Conn, xid: u32, change: GroupMod, env: &impl Env) -> Result<(), OfError> {
        let bridge = &self.config.bridge;
        let events = env.change(|switch, now| match switch.group_mod(bridge, &change, now) {
            Ok(stale) => (Ok(switch.take_events(bridge)), stale),
            Err(error) => (Err(error), Vec::new()),
        })?;
        self.forward(conn, xid, Body::GroupMod(change));
        self.note(events, Some((conn.id, xid)));
        Ok(())
    }

    pub(crate) fn meter_mod(&mut self, conn: &Conn, xid: u32, change: MeterMod, env: &impl Env) -> Result<(), OfError> {
        let bridge = &self.config.bridge;
        env.change_meters(|switch, now| switch.meter_mod(bridge, &change, now))?;
        self.forward(conn, xid, Body::MeterMod(change));
        self.take_events(env, Some((conn.id, xid)));
        Ok(())
    }

    fn forward(&mut self, conn: &Conn, xid: u32, body: Body) {
        self.effects.push(Effect::Forward(conn.id, Message { xid, body }));
    }

    pub(crate) fn table_mod(
        &mut self,
        conn: &Conn,
        xid: u32,
        change: &TableMod,
        env: &impl Env,
    ) -> Result<(), OfError> {
        let version = conn.version().unwrap_or(Version::V10);
        let bridge = &self.config.bridge;
        let events = env.change(|switch, _| match switch.table_mod(bridge, change, version) {
            Ok(stale) => (Ok(switch.take_events(bridge)), stale),
            Err(error) => (Err(error), Vec::new()),
        })?;
        self.note(events, Some((conn.id, xid)));
        Ok(())
    }

    pub(crate) fn group_desc(&self, conn: &mut Conn, xid: u32, group: u32, env: &impl Env) {
        self.groups(conn, xid, group, Told::Descriptions, env);
    }

    pub(crate) fn group_stats(&self, conn: &mut Conn, xid: u32, group: u32, env: &impl Env, now: Nanos) {
        env.push_statistics();
        self.groups(conn, xid, group, Told::Counters(now), env);
    }

    fn groups(&self, conn: &mut Conn, xid: u32, group: u32, told: Told, env: &impl Env) {
        let numbers = if group == ALL_GROUPS {
            0..=u32::MAX
        } else {
            group..=group
        };
        let dump = GroupsDump { xid, numbers, told };
        conn.job = dump.step(conn, env, &self.config.bridge);
    }

    pub(crate) fn group_features(&self, conn: &mut Conn, xid: u32) {
        let version = conn.version().unwrap_or(Version::V10);
        send(conn, xid, StatsReply::GroupFeatures(group_features(version)));
    }

    pub(crate) fn meter_features(&self, conn: &mut Conn, xid: u32) {
        send(conn, xid, StatsReply::MeterFeatures(meter_features()));
    }

    pub(crate) fn meter_config(&self, conn: &mut Conn, xid: u32, meter: u32, env: &impl Env) -> Result<(), OfError> {
        let meters = self.meters(meter, env)?;
        let configs = meters.into_iter().map(|(meter, _)| meter.config).collect();
        send(conn, xid, StatsReply::MeterConfig(configs));
        Ok(())
    }

    pub(crate) fn meter_stats(
        &self,
        conn: &mut Conn,
        xid: u32,
        meter: u32,
        env: &impl Env,
        now: Nanos,
    ) -> Result<(), OfError> {
        let measured = |(meter, flows): (Meter, usize)| -> MeterStats {
            meter_stats(&meter, flows, &env.meter_stats(meter.number), now)
        };
        let stats = self.meters(meter, env)?.into_iter().map(measured).collect();
        send(conn, xid, StatsReply::Meter(stats));
        Ok(())
    }

    pub(crate) fn table_desc(&self, conn: &mut Conn, xid: u32, env: &impl Env) {
        let all = self.tables(env, |tables| {
            (0..TABLES).map(|table| tables.table_desc(table)).collect()
        });
        send(conn, xid, StatsReply::TableDesc(all));
    }

    pub(crate) fn table_stats(&self, conn: &mut Conn, xid: u32, env: &impl Env) {
        env.push_statistics();
        let stats = self.tables(env, FlowTables::table_stats);
        send(conn, xid, StatsReply::Table(stats));
    }

    /// Meter statistics, with the number of rules that use each meter.
    fn meters(&self, wanted: u32, env: &impl Env) -> Result<Vec<(Meter, usize)>, OfError> {
        let meters = self.tables(env, |tables| {
            let meters = tables.meters().wanted(wanted);
            meters
                .map(|meter| (meter.clone(), tables.metered(meter.config.meter)))
                .collect::<Vec<_>>()
        });
        if meters.is_empty() && wanted != openflow::model::ALL_METERS {
            return Err(OfError::MmfcUnknownMeter);
        }
        Ok(meters)
    }

    /// Reads the bridge's tables; the default if the bridge is gone.
    pub(crate) fn tables<R: Default>(&self, env: &impl Env, look: impl FnOnce(&FlowTables) -> R) -> R {
        env.look(|switch| switch.bridge(&self.config.bridge).map(|bridge| look(bridge.tables())))
            .unwrap_or_default()
    }
}

/// Groups described under one lock of the switch.
const SLICE: usize = 64;

/// What a request asks about groups.
#[derive(Clone, Copy, Debug)]
enum Told {
    Descriptions,
    /// As they are at this time.
    Counters(Nanos),
}

/// A dump of group descriptions or statistics that is under way.
#[derive(Debug)]
pub(crate) struct GroupsDump {
    xid: u32,
    /// The groups still to send.
    numbers: RangeInclusive<u32>,
    told: Told,
}

impl GroupsDump {
    /// Sends the next part; returns the rest.
    pub(crate) fn step(self, conn: &mut Conn, env: &impl Env, bridge: &str) -> Option<Job> {
        let numbers = || self.numbers.clone();
        let (reply, last, len) = env.look(|switch| {
            let tables = switch.bridge(bridge).map(|bridge| bridge.tables());
            match self.told {
                Told::Descriptions => {
                    let groups = tables.map(|tables| tables.group_descriptions(numbers(), SLICE));
                    let groups = groups.unwrap_or_default();
                    let last = groups.last().map(|group| group.group);
                    let len = groups.len();
                    (StatsReply::GroupDesc(groups), last, len)
                }
                Told::Counters(now) => {
                    let groups = tables.map(|tables| tables.group_stats(numbers(), SLICE, now));
                    let groups = groups.unwrap_or_default();
                    let last = groups.last().map(|group| group.group);
                    let len = groups.len();
                    (StatsReply::Group(groups), last, len)
                }
            }
        });
        let end = *self.numbers.end();
        let next = last.filter(|last| len == SLICE && *last < end).map(|last| last + 1);
        let more = next.is_some();
        conn.send(self.xid, Body::StatsReply { more, reply });
        let numbers = next?..=end;
        Some(Job::Groups(GroupsDump { numbers, ..self }))
    }
}

pub(crate) fn send(conn: &mut Conn, xid: u32, reply: StatsReply) {
    conn.send(xid, Body::StatsReply { more: false, reply });
}
