//! What the database says of tracked connections: the timeout policies and limits of zones.
//!
//! Rows of datapaths without a bridge are not in force, as in Open vSwitch. All types of datapaths
//! are one here: of two rows with the same zone, the first by the datapath's name counts.

mod flush;
mod handover;

pub(crate) use flush::flush;
pub(crate) use handover::{LeftConnections, hand_over};

use crate::rows::Tables;
use conntrack::{Conntrack, PolicyId, Timeout};
use nanos::Nanos;
use ovsdb::{Uuid, rows};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Rows of datapaths in force.
    pub(crate) datapaths: Vec<Uuid>,
    /// Timeout policies by their rows.
    policies: BTreeMap<Uuid, Vec<(Timeout, u32)>>,
    zones: BTreeMap<u16, Zone>,
    default_limit: Option<u32>,
    /// What has no effect.
    pub(crate) problems: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Zone {
    policy: Option<Uuid>,
    limit: Option<u32>,
}

/// Reads the rows of the datapaths of these types.
pub(crate) fn wanted(root: &rows::OpenVSwitch, tables: &Tables, types: &BTreeSet<&str>) -> Wanted {
    let mut wanted = Wanted::default();
    for (name, uuid) in &root.datapaths {
        let Some(row) = tables.datapaths.get(uuid).filter(|_| types.contains(name.as_str())) else {
            continue;
        };
        wanted.datapaths.push(row.uuid);
        wanted.default_limit = wanted.default_limit.or(number(row.ct_zone_default_limit));
        for (zone, uuid) in &row.ct_zones {
            let (Ok(zone), Some(row)) = (u16::try_from(*zone), tables.ct_zones.get(uuid)) else {
                continue;
            };
            if wanted.zones.contains_key(&zone) {
                let what = format!("datapath {name}: zone {zone} has no effect: another datapath has it");
                wanted.problems.push(what);
                continue;
            }
            let policy = row
                .timeout_policy
                .and_then(|uuid| tables.ct_timeout_policies.get(&uuid));
            if let Some(row) = policy {
                wanted.read_policy(zone, row);
            }
            let zone_row = Zone {
                policy: policy.map(|row| row.uuid),
                limit: number(row.limit),
            };
            wanted.zones.insert(zone, zone_row);
        }
    }
    wanted
}

impl Wanted {
    fn read_policy(&mut self, zone: u16, row: &rows::CtTimeoutPolicy) {
        if self.policies.contains_key(&row.uuid) {
            return;
        }
        let mut timeouts = Vec::new();
        for (key, seconds) in &row.timeouts {
            match (Timeout::by_key(key), number(Some(*seconds))) {
                (Some(timeout), Some(seconds)) => timeouts.push((timeout, seconds)),
                // The tracker has no such state, like Open vSwitch's userspace datapath.
                _ => self
                    .problems
                    .push(format!("timeout policy of zone {zone}: {key} has no effect")),
            }
        }
        self.policies.insert(row.uuid, timeouts);
    }
}

fn number(column: Option<i64>) -> Option<u32> {
    column.and_then(|number| u32::try_from(number).ok())
}

/// What is in force.
#[derive(Default)]
pub(crate) struct Applied {
    policies: BTreeMap<Uuid, (PolicyId, Vec<(Timeout, u32)>)>,
    /// Whether connections of the process before were taken over.
    took_over: bool,
    /// The offloaded flows of the process before, and the connections that they forward packets of.
    left: Option<Arc<LeftConnections>>,
    /// The numbers of policies, those of dead ones included.
    used: BTreeSet<u16>,
    /// The number that the last new policy got.
    last: u16,
    /// Policies that are gone, until [`Applied::forget`].
    dead: Vec<PolicyId>,
    limits: BTreeMap<u16, u32>,
    default_limit: Option<u32>,
}

impl Applied {
    /// Nothing, while these flows of the process before are in force.
    pub(crate) fn beside(left: Option<Arc<LeftConnections>>) -> Applied {
        Applied {
            left,
            ..Applied::default()
        }
    }

    /// Applies the configuration; returns the policies of zones for the translator.
    pub(crate) fn settle(&mut self, wanted: &Wanted, conntrack: &Conntrack) -> BTreeMap<u16, PolicyId> {
        self.settle_limits(wanted, conntrack);
        let dead = &mut self.dead;
        self.policies.retain(|uuid, (id, _)| {
            let stays = wanted.policies.contains_key(uuid);
            if !stays {
                dead.push(*id);
            }
            stays
        });
        for (uuid, timeouts) in &wanted.policies {
            let known = self.policies.get(uuid);
            if known.is_some_and(|(_, before)| before == timeouts) {
                continue;
            }
            let Some(id) = known.map(|(id, _)| *id).or_else(|| self.free_number()) else {
                tracing::error!(target: "bridge", "a timeout policy has no effect: there are too many");
                continue;
            };
            conntrack.set_policy(id, timeouts);
            self.policies.insert(*uuid, (id, timeouts.clone()));
        }
        let policy = |zone: &Zone| Some(self.policies.get(&zone.policy?)?.0);
        let zones = wanted.zones.iter();
        zones
            .filter_map(|(number, zone)| Some((*number, policy(zone)?)))
            .collect()
    }

    /// Takes over the connections that the process before has left, the first time.
    pub(crate) fn take_over(&mut self, conntrack: &Arc<Conntrack>, now: Nanos, policies: &BTreeMap<u16, PolicyId>) {
        if !std::mem::replace(&mut self.took_over, true) {
            let policy = |zone: u16| policies.get(&zone).copied().unwrap_or_default();
            handover::take_over(conntrack, self.left.take().as_deref(), now, policy);
        }
    }

    /// Removes policies that no translation has any more. Their connections go on with the default.
    pub(crate) fn forget(&mut self, conntrack: &Conntrack) {
        for id in self.dead.drain(..) {
            conntrack.remove_policy(id);
            self.used.remove(&id.0);
        }
    }

    /// Whether the database has limits: then it alone has them, as in Open vSwitch.
    pub(crate) fn has_limits(&self) -> bool {
        self.default_limit.is_some() || !self.limits.is_empty()
    }

    /// A number for a new policy. A number is used again as late as possible: connections of a
    /// policy that is gone keep its number.
    fn free_number(&mut self) -> Option<PolicyId> {
        let behind = (self.last..u16::MAX).map(|last| last + 1);
        let id = behind.chain(1..=self.last).find(|id| !self.used.contains(id))?;
        self.used.insert(id);
        self.last = id;
        Some(PolicyId(id))
    }

    fn settle_limits(&mut self, wanted: &Wanted, conntrack: &Conntrack) {
        let limits = wanted.zones.iter();
        let limits: BTreeMap<u16, u32> = limits
            .filter_map(|(number, zone)| Some((*number, zone.limit?)))
            .collect();
        for zone in self.limits.keys().filter(|zone| !limits.contains_key(zone)) {
            conntrack.set_zone_limit(*zone, None);
        }
        for (zone, limit) in &limits {
            if self.limits.get(zone) != Some(limit) {
                conntrack.set_zone_limit(*zone, Some(*limit));
            }
        }
        self.limits = limits;
        if self.default_limit != wanted.default_limit {
            conntrack.set_default_zone_limit(wanted.default_limit.unwrap_or(0));
            self.default_limit = wanted.default_limit;
        }
    }
}

#[cfg(test)]
mod tests;
