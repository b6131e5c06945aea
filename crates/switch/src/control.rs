//! Changes of a bridge's tables by controllers.
//!
//! [`Switch::take_events`] returns what else happened: rules that expired, tables that ran short of
//! room.

use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::Ingress;
use crate::switch::Switch;
use crate::tables::words::{self, WORDS};
use crate::tables::{Additions, Credited, Log, MeterChange, Removed, Stale, TableEvent, TableSettings};
use classifier::Match;
use dp::{Carried, Change, Credit, MAX_METERS, Region};
use flow::{Field, FlowState, Key, Mask, MatchField, PortNo};
use nanos::Nanos;
use openflow::model::{FlowMod, GroupMod, MeterMod, PacketOut, PortMod, TableMod, TlvMap};
use openflow::{OfError, Version};
use std::ops::Range;
use std::sync::Arc;

/// A message of a bundle.
#[derive(Clone, Copy, Debug)]
pub enum BundleItem<'a> {
    /// A change of rules.
    Flow(&'a FlowMod),
    /// A change of groups.
    Group(&'a GroupMod),
    /// A change of a port. This module checks its number; the caller applies it when the bundle is
    /// committed.
    Port(&'a PortMod),
    /// A packet. This module checks its actions; the caller sends it when the bundle is committed.
    PacketOut(&'a PacketOut),
}

/// Why a bundle failed. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message {at} of the bundle: {error:?}")]
pub struct BundleError {
    /// The index of the message that failed, from 0.
    pub at: usize,
    /// Why.
    pub error: OfError,
}

impl Switch {
    /// Changes a bridge's rules by a flow-mod. A flow-mod for very many rules takes long: see
    /// [`Switch::is_mass_change`].
    ///
    /// # Errors
    /// The error of the specification, and [`OfError::FmfcUnknown`] if there is no such bridge.
    /// Nothing has changed then.
    pub fn flow_mod(&mut self, bridge: &str, change: &FlowMod, now: Nanos) -> Result<Vec<Change>, OfError> {
        let bridge = self.bridge_mut(bridge).map_err(|_| OfError::FmfcUnknown)?;
        let (id, begins, stale) = bridge.flow_mod(change, now)?;
        Ok(self.changes_of_tables(id, begins, &stale))
    }

    /// As [`Switch::flow_mod`] and then [`Switch::take_events`].
    ///
    /// # Errors
    /// As [`Switch::flow_mod`].
    pub fn flow_mod_and_events(
        &mut self,
        bridge: &str,
        change: &FlowMod,
        now: Nanos,
    ) -> Result<(Vec<Change>, Vec<TableEvent>), OfError> {
        let bridge = self.bridge_mut(bridge).map_err(|_| OfError::FmfcUnknown)?;
        let (id, begins, stale) = bridge.flow_mod(change, now)?;
        let events = bridge.take_events();
        Ok((self.changes_of_tables(id, begins, &stale), events))
    }

    /// Changes a bridge's groups by a group-mod. Deleting a group deletes the rules that send to
    /// it.
    ///
    /// # Errors
    /// The error of the specification, and [`OfError::GmfcUnknownGroup`] if there is no such
    /// bridge. Nothing has changed then.
    pub fn group_mod(&mut self, bridge: &str, change: &GroupMod, now: Nanos) -> Result<Vec<Change>, OfError> {
        let bridge = self.bridge_mut(bridge).map_err(|_| OfError::GmfcUnknownGroup)?;
        let mut log = bridge.tables.log();
        let groups = bridge.tables.group_mod(change, now, &mut log)?;
        bridge.tables.delete_orphans(now, &mut log);
        bridge.events.append(&mut log.events);
        let id = bridge.id;
        let mut changes = self.changes_of_tables(id, false, &log.stale);
        changes.extend(self.changes(groups.into_iter().flat_map(|group| Read::changed_group(id, group))));
        Ok(changes)
    }

    /// Changes a bridge's meters by a meter-mod. Deleting a meter deletes the rules that use it.
    /// The caller sets meters in the datapath before it publishes the changes, deletes meters after
    /// that, and then frees their numbers with [`Switch::meters_deleted`].
    ///
    /// # Errors
    /// The error of the specification, and [`OfError::MmfcUnknown`] if there is no such bridge.
    /// Nothing has changed then.
    pub fn meter_mod(
        &mut self,
        bridge: &str,
        change: &MeterMod,
        now: Nanos,
    ) -> Result<(Vec<Change>, Vec<MeterChange>), OfError> {
        let id = *self.bridge_ids.get(bridge).ok_or(OfError::MmfcUnknown)?;
        let bridge = self.bridges.get_mut(&id).ok_or(OfError::MmfcUnknown)?;
        let mut log = bridge.tables.log();
        let told = bridge
            .tables
            .meter_mod(change, &mut self.meter_numbers, now, &mut log)?;
        bridge.tables.delete_orphans(now, &mut log);
        bridge.events.append(&mut log.events);
        Ok((self.changes_of_tables(id, false, &log.stale), told))
    }

    /// New and changed meters of ports since the last call. The caller sets them in the datapath
    /// before it publishes the changes of [`Switch::configure`].
    pub fn take_new_meters(&mut self) -> Vec<MeterChange> {
        std::mem::take(&mut self.new_meters)
    }

    /// Changes of meters for the datapath since [`Switch::configure`] deleted bridges and limits of
    /// ports, as after [`Switch::meter_mod`].
    pub fn take_meter_changes(&mut self) -> Vec<MeterChange> {
        let gone = std::mem::take(&mut self.dead_meters);
        gone.into_iter().map(|number| MeterChange::Delete { number }).collect()
    }

    /// Frees the numbers of meters that the datapath has deleted.
    pub fn meters_deleted(&mut self, told: &[MeterChange]) {
        for change in told {
            if let MeterChange::Delete { number } = change {
                match *number < MAX_METERS {
                    true => self.meter_numbers.give(*number),
                    false => self.port_meter_numbers.give(*number),
                }
            }
        }
    }

    /// Changes a table's miss behaviour (OpenFlow 1.1 and 1.2), eviction and vacancy events
    /// (OpenFlow 1.4 and later).
    ///
    /// # Errors
    /// The error of the specification, and [`OfError::TmfcBadTable`] if there is no such bridge.
    /// Nothing has changed then.
    pub fn table_mod(&mut self, bridge: &str, change: &TableMod, version: Version) -> Result<Vec<Change>, OfError> {
        let bridge = self.bridge_mut(bridge).map_err(|_| OfError::TmfcBadTable)?;
        let was_builtin = bridge.tables.is_builtin();
        let mut log = bridge.tables.log();
        let tables = bridge.tables.table_mod(change, version, &mut log)?;
        bridge.events.append(&mut log.events);
        let id = bridge.id;
        let begins = was_builtin && !bridge.tables.is_builtin();
        let mut changes = self.changes_of_tables(id, begins, &log.stale);
        let reads = tables
            .into_iter()
            .flat_map(|table| [Read::Table(id, table), Read::UntouchedIn(id, table)]);
        changes.extend(self.changes(reads));
        Ok(changes)
    }

    /// Maps tunnel options to fields, or removes mappings. This changes no translation: rules can
    /// only match fields that are mapped.
    ///
    /// # Errors
    /// As [`FlowTables::change_options`].
    ///
    /// [`FlowTables::change_options`]: crate::tables::FlowTables::change_options
    pub fn change_options(&mut self, bridge: &str, command: u16, maps: &[TlvMap], held: u64) -> Result<(), OfError> {
        let bridge = self.bridge_mut(bridge).map_err(|_| OfError::BrcEperm)?;
        bridge.tables.change_options(command, maps, held)
    }

    /// Gives tables names. This changes no translation.
    ///
    /// # Errors
    /// As [`FlowTables::name_tables`], and [`OfError::TffcBadTable`] if there is no such bridge.
    ///
    /// [`FlowTables::name_tables`]: crate::tables::FlowTables::name_tables
    pub fn name_tables(&mut self, bridge: &str, names: &[(u8, &str)]) -> Result<(), OfError> {
        let bridge = self.bridge_mut(bridge).map_err(|_| OfError::TffcBadTable)?;
        bridge.tables.name_tables(names)
    }

    /// Applies the database's settings of a table. If the table then has too many rules and allows
    /// eviction, rules are evicted.
    pub fn set_table(&mut self, bridge: &str, table: u8, settings: TableSettings, now: Nanos) -> Vec<Change> {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return Vec::new();
        };
        let mut log = bridge.tables.log();
        bridge.tables.configure_table(table, settings, now, &mut log);
        bridge.tables.delete_orphans(now, &mut log);
        bridge.events.append(&mut log.events);
        let id = bridge.id;
        self.changes_of_tables(id, false, &log.stale)
    }

    /// Carries out a bundle as a whole. For a bundle of many messages see [`Switch::bundle_open`].
    ///
    /// # Errors
    /// The first message that failed. Nothing has changed then.
    pub fn bundle(&mut self, bridge: &str, items: &[BundleItem<'_>], now: Nanos) -> Result<Vec<Change>, BundleError> {
        let failed = |error| BundleError { at: 0, error };
        self.bundle_open(bridge, now).map_err(failed)?;
        if let Err(error) = self.bundle_apply(bridge, items, now) {
            self.bundle_abort(bridge);
            while !self.bundle_settle(bridge, usize::MAX, now) {}
            return Err(error);
        }
        let changes = self.bundle_commit(bridge);
        while !self.bundle_settle(bridge, usize::MAX, now) {}
        Ok(changes)
    }

    /// Opens a bundle that is carried out in steps, so that upcalls run between them:
    /// [`Switch::bundle_apply`] for some messages at a time, [`Switch::bundle_commit`] or
    /// [`Switch::bundle_abort`], then [`Switch::bundle_settle`] until it returns true. Packets see
    /// none of its changes before the commit, and all of them after it. A bridge has one open
    /// bundle at most; until it is settled, the caller must not change the bridge's tables
    /// otherwise.
    ///
    /// # Errors
    /// [`OfError::BfcBundleInProgress`] if a bundle is open, [`OfError::BfcUnknown`] if there is no
    /// such bridge.
    pub fn bundle_open(&mut self, bridge: &str, now: Nanos) -> Result<(), OfError> {
        let bridge = self.bridge_mut(bridge).map_err(|_| OfError::BfcUnknown)?;
        if bridge.tables.has_bundle() {
            return Err(OfError::BfcBundleInProgress);
        }
        let mut log = bridge.tables.log();
        bridge.tables.open(&mut log, now);
        bridge.events.append(&mut log.events);
        Ok(())
    }

    /// Carries out messages of the open bundle. If one fails, the caller aborts the bundle.
    ///
    /// # Errors
    /// The first message that failed, counted from the first one of this call.
    /// [`OfError::BfcBadId`] if no bundle is open.
    pub fn bundle_apply(&mut self, bridge: &str, items: &[BundleItem<'_>], now: Nanos) -> Result<(), BundleError> {
        self.in_bundle(bridge, |bridge, log| {
            let apply = |(at, item)| {
                let done = bridge.bundle_item(item, now, log);
                done.map_err(|error| BundleError { at, error })
            };
            items.iter().enumerate().try_for_each(apply)
        })
    }

    /// Runs a part of the open bundle.
    fn in_bundle(
        &mut self,
        bridge: &str,
        apply: impl FnOnce(&mut Bridge, &mut Log) -> Result<(), BundleError>,
    ) -> Result<(), BundleError> {
        let none = |error| BundleError { at: 0, error };
        let bridge = self.bridge_mut(bridge).map_err(|_| none(OfError::BfcUnknown))?;
        if !bridge.tables.has_bundle() {
            return Err(none(OfError::BfcBadId));
        }
        let mut log = bridge.tables.log();
        bridge.tables.in_bundle(true);
        let result = apply(bridge, &mut log);
        bridge.tables.in_bundle(false);
        bridge.events.append(&mut log.events);
        result
    }

    /// As [`Switch::bundle_apply`], for some of the rules to add.
    ///
    /// # Errors
    /// As [`Switch::bundle_apply`]; rules are counted from the start of `range`.
    pub fn bundle_add(
        &mut self,
        bridge: &str,
        additions: &Additions,
        range: Range<usize>,
        now: Nanos,
    ) -> Result<(), BundleError> {
        let start = range.start;
        self.in_bundle(bridge, |bridge, log| {
            let added = bridge.tables.add_all(additions, range, now, log);
            added.map_err(|(at, error)| BundleError { at: at - start, error })
        })
    }

    /// Commits the open bundle: packets see its changes.
    pub fn bundle_commit(&mut self, bridge: &str) -> Vec<Change> {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return Vec::new();
        };
        let was_builtin = bridge.tables.is_builtin();
        let mut log = bridge.tables.log();
        let groups = bridge.tables.commit(&mut log);
        let id = bridge.id;
        let begins = was_builtin && !bridge.tables.is_builtin();
        let mut changes = self.changes_of_tables(id, begins, &log.stale);
        changes.extend(self.changes(groups.into_iter().flat_map(|group| Read::changed_group(id, group))));
        changes
    }

    /// Drops the changes of the open bundle.
    pub fn bundle_abort(&mut self, bridge: &str) {
        if let Ok(bridge) = self.bridge_mut(bridge) {
            bridge.tables.abort();
        }
    }

    /// Does a part of the work that is left after a bundle, for up to `most` rules. Returns whether
    /// all is done.
    pub fn bundle_settle(&mut self, bridge: &str, most: usize, now: Nanos) -> bool {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return true;
        };
        let mut log = bridge.tables.log();
        let done = bridge.tables.settle(most, &mut log, now);
        bridge.events.append(&mut log.events);
        done
    }

    /// Sets whether all changes of a bridge's rules become events, for flow monitors.
    pub fn set_monitored(&mut self, bridge: &str, monitored: bool) {
        if let Ok(bridge) = self.bridge_mut(bridge) {
            bridge.tables.set_monitored(monitored);
        }
    }

    /// The events of a bridge's tables since the last call.
    pub fn take_events(&mut self, bridge: &str) -> Vec<TableEvent> {
        self.bridge_mut(bridge).map(Bridge::take_events).unwrap_or_default()
    }

    /// The rules of a bridge that were removed since the last call, for callers that need no other
    /// events.
    pub fn take_removed(&mut self, bridge: &str) -> Vec<Removed> {
        let removed = |event| match event {
            TableEvent::Removed(removed) => Some(removed),
            _ => None,
        };
        self.take_events(bridge).into_iter().filter_map(removed).collect()
    }

    /// Adds packets and bytes that the datapath has carried to the counters.
    pub fn credit_all(&mut self, carried: &[(Credit, Carried)]) {
        for (credit, carried) in carried {
            let Carried { packets, bytes, used } = *carried;
            let Some(credited) = Credited::of(*credit) else {
                continue;
            };
            let Some(bridge) = self.bridges.get_mut(&credited.bridge()) else {
                continue;
            };
            match credited {
                Credited::Port {
                    bridge,
                    port,
                    interface,
                    sent,
                } => {
                    let interface = interface.into();
                    let at = Ingress {
                        bridge,
                        port,
                        interface,
                    };
                    match self.patches.get_mut(&at) {
                        Some((_, counts)) => counts.add(sent, packets, bytes),
                        None => self.tunnels.credit(at, sent, packets, bytes),
                    }
                }
                Credited::Rule { rule, .. } => bridge.tables.credit(rule, packets, bytes, used),
                Credited::Bucket {
                    group, serial, bucket, ..
                } => bridge.tables.credit_bucket(group, serial, bucket, packets, bytes),
                Credited::Lookup { table, matched, .. } => bridge.tables.credit_lookups(table, matched, packets),
                Credited::Bond { port, bucket, .. } => bridge.credit_bond(port, bucket, bytes),
                Credited::Mirror { mirror, .. } => bridge.credit_mirror(mirror, packets, bytes),
                Credited::Netflow { flow, .. } => bridge.flows.credit(flow, *carried),
            }
        }
    }

    /// What a change of a bridge's tables makes stale; `begins` if it is the first change since the
    /// bridge was made.
    pub(crate) fn changes_of_tables(&self, bridge: u32, begins: bool, stale: &Stale) -> Vec<Change> {
        if begins {
            return self.changes([Read::Bridge(bridge)]);
        }
        let tables = stale.tables();
        // Most changes affect one rule.
        let mut changes = Vec::with_capacity(2 * tables.len());
        changes.extend(
            tables
                .into_iter()
                .map(|table| Change::Dep(Read::Table(bridge, table).dep(self.seed))),
        );
        changes.extend(stale.iter().filter_map(|(table, matching)| {
            let dep = Read::UntouchedIn(bridge, table).dep(self.seed);
            let (key, mask) = self.untouched(bridge, matching)?;
            Some(Change::Overlap(dep, Arc::new(Region { key, mask })))
        }));
        changes
    }

    /// The packets, as the datapath receives them, that a match in a bridge's table covers; `None`
    /// if it covers no packet that enters the table unchanged.
    fn untouched(&self, bridge: u32, matching: &Match<WORDS>) -> Option<(Key, Mask)> {
        let (mut key, mut mask) = (words::key_of(matching.value()), words::mask_of(matching.mask()));
        // Most rules match packet fields only.
        let port = match words::has_metadata(matching.mask()) {
            true => entry_port(matching)?,
            false => None,
        };
        if let Some(device) = port.and_then(|port| self.device_of(bridge, port)) {
            key.set(Field::InPort, device.0.into());
            mask.add(Field::InPort);
        }
        Some((key, mask))
    }

    /// The datapath port number of a bridge's port, if the port is a device.
    fn device_of(&self, bridge: u32, port: u32) -> Option<PortNo> {
        let bridge = self.bridges.get(&bridge)?;
        let (port, interface) = bridge.of_ports.get(&port)?;
        bridge.ports.get(port)?.members.get(*interface)?.egress.device()
    }
}

/// The OpenFlow port that a match names, if it names one; `None` if it covers no packet that enters
/// the table unchanged.
fn entry_port(matching: &Match<WORDS>) -> Option<Option<u32>> {
    let (value, mut mask) = (*matching.value(), *matching.mask());
    let port = (words::get(&mask, MatchField::InPortOxm) == MatchField::InPortOxm.info().valid)
        .then(|| words::get(&value, MatchField::InPortOxm) as u32);
    // Only tables set the number of a conjunctive match and the action set's output.
    for field in [MatchField::InPortOxm, MatchField::ConjId, MatchField::ActsetOutput] {
        words::put(&mut mask, field, 0);
    }
    let mut first = words::words_of(&FlowState::new(Key::ZERO, 0));
    let mut pairs = words::metadata(&mut first).iter().zip(&value).zip(&mask);
    let differs = pairs.any(|((first, value), mask)| (first ^ value) & mask != 0);
    (!differs).then_some(port)
}

impl Bridge {
    /// Changes rules. Returns the bridge's number, whether this was its first change, and what is
    /// stale.
    fn flow_mod(&mut self, change: &FlowMod, now: Nanos) -> Result<(u32, bool, Stale), OfError> {
        let was_builtin = self.tables.is_builtin();
        let mut log = self.tables.log();
        self.tables.change(change, now, &mut log)?;
        self.tables.delete_orphans(now, &mut log);
        self.events.append(&mut log.events);
        Ok((self.id, was_builtin && !self.tables.is_builtin(), log.stale))
    }

    fn take_events(&mut self) -> Vec<TableEvent> {
        let mut events = std::mem::take(&mut self.events);
        events.extend(std::mem::take(&mut self.removed).into_iter().map(TableEvent::Removed));
        events
    }

    fn bundle_item(&mut self, item: &BundleItem<'_>, now: Nanos, log: &mut Log) -> Result<(), OfError> {
        match item {
            BundleItem::Flow(change) => self.tables.change(change, now, log),
            BundleItem::Group(change) => self.tables.group_mod(change, now, log).map(drop),
            BundleItem::Port(change) if !self.of_ports.contains_key(&change.port.0) => Err(OfError::PmfcBadPort),
            BundleItem::Port(_) => Ok(()),
            BundleItem::PacketOut(packet) => self.tables.check_actions(&packet.actions),
        }
    }
}
