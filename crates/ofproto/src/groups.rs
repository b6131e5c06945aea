//! Groups, meters and the settings of tables.

use crate::agent::Core;
use crate::conn::Conn;
use crate::env::Env;
use openflow::model::{Body, GroupMod, Message, MeterMod, MeterStats, StatsReply, TableMod};
use openflow::{OfError, Version};
use switch::tables::{FlowTables, Meter, TABLES, group_features, meter_features, meter_stats};
use wire::Nanos;

impl Core {
    pub(crate) fn group_mod(&mut self, conn: &Conn, xid: u32, change: GroupMod, env: &impl Env) -> Result<(), OfError> {
        let bridge = &self.config.bridge;
        let events = env.change(|switch, now| match switch.group_mod(bridge, &change, now) {
            Ok(stale) => (Ok(switch.take_events(bridge)), stale),
            Err(error) => (Err(error), Vec::new()),
        })?;
        self.note(events, Some((conn.id, xid)));
        self.forward = Some((
            conn.id,
            Message {
                xid,
                body: Body::GroupMod(change),
            },
        ));
        Ok(())
    }

    pub(crate) fn meter_mod(&mut self, conn: &Conn, xid: u32, change: MeterMod, env: &impl Env) -> Result<(), OfError> {
        let bridge = &self.config.bridge;
        env.change_meters(|switch, now| switch.meter_mod(bridge, &change, now))?;
        self.take_events(env, Some((conn.id, xid)));
        self.forward = Some((
            conn.id,
            Message {
                xid,
                body: Body::MeterMod(change),
            },
        ));
        Ok(())
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
        let descriptions = self.tables(env, |tables| tables.group_descriptions(group));
        send(conn, xid, StatsReply::GroupDesc(descriptions));
    }

    pub(crate) fn group_stats(&self, conn: &mut Conn, xid: u32, group: u32, env: &impl Env, now: Nanos) {
        env.push_statistics();
        let stats = self.tables(env, |tables| tables.group_stats(group, now));
        send(conn, xid, StatsReply::Group(stats));
    }

    pub(crate) fn group_features(&self, conn: &mut Conn, xid: u32) {
        send(conn, xid, StatsReply::GroupFeatures(group_features()));
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

    /// Meters, with how many rules they police.
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

    /// Looks at the bridge's tables; the default where there is no bridge.
    pub(crate) fn tables<R: Default>(&self, env: &impl Env, look: impl FnOnce(&FlowTables) -> R) -> R {
        env.look(|switch| switch.bridge(&self.config.bridge).map(|bridge| look(bridge.tables())))
            .unwrap_or_default()
    }
}

pub(crate) fn send(conn: &mut Conn, xid: u32, reply: StatsReply) {
    conn.send(xid, Body::StatsReply { more: false, reply });
}
