//! Group-mods (OpenFlow 1.5.1 §7.3.4.4).
//!
//! A group may send to a group that does not exist, so a controller may add groups in any order;
//! packets that reach the missing group are dropped. A group must not send to itself, not even
//! through other groups.

use super::selection::GroupChange;
use super::update::Log;
use super::{FlowTables, Group, MAX_GROUP, Reason, check, group, users};
use nanos::Nanos;
use openflow::OfError;
use openflow::model::{ALL_GROUPS, ANY_GROUP, Bucket, GroupCommand, GroupMod, GroupType, Port, Selection, bucket_ids};
use std::collections::BTreeSet;

/// The selection methods of select groups.
const METHODS: [&str; 3] = ["", "hash", "dp_hash"];

impl FlowTables {
    /// Carries out a group-mod. Returns what changes for packets.
    pub(crate) fn group_mod(
        &mut self,
        change: &GroupMod,
        now: Nanos,
        log: &mut Log,
    ) -> Result<Vec<GroupChange>, OfError> {
        let id = change.group;
        if change.command == GroupCommand::Delete {
            return Ok(self.delete_groups(id, now, log));
        }
        if id > MAX_GROUP {
            return Err(OfError::GmfcInvalidGroup);
        }
        let there = self.groups.latest(id);
        let made = |buckets: Vec<Bucket>| Group {
            id,
            kind: change.kind,
            selection: change.selection.clone(),
            buckets,
            serial: 0,
            serials: Vec::new(),
            selector: None,
        };
        let new = match (change.command, there) {
            (GroupCommand::Add, Some(_)) => return Err(OfError::GmfcGroupExists),
            (GroupCommand::Add | GroupCommand::AddOrMod, None)
            | (GroupCommand::Modify | GroupCommand::AddOrMod, Some(_)) => made(change.buckets.clone()),
            (_, None) => return Err(OfError::GmfcUnknownGroup),
            (GroupCommand::InsertBucket, Some(there)) => with_buckets(there, change)?,
            (GroupCommand::RemoveBucket, Some(there)) => without_buckets(there, change.bucket_id)?,
            (GroupCommand::Delete, Some(_)) => return Ok(Vec::new()),
        };
        self.check_group(&new)?;
        // As in Open vSwitch.
        let counts = matches!(change.command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket);
        let changed = self.groups.put(new, now, self.journal.active, counts);
        Ok(changed.into_iter().collect())
    }

    fn delete_groups(&mut self, id: u32, now: Nanos, log: &mut Log) -> Vec<GroupChange> {
        let ids = match id {
            ALL_GROUPS => self.groups.latest_ids(),
            _ => self.groups.latest(id).map(|group| group.id).into_iter().collect(),
        };
        let (in_bundle, mut changed) = (self.journal.active, Vec::new());
        for id in &ids {
            let rules: Vec<_> = users(&self.by_group, *id).filter(|at| self.is_latest(*at)).collect();
            for at in rules {
                self.drop_rule(at, Reason::GroupDelete, now, log);
            }
            changed.extend(self.groups.remove(*id, in_bundle));
        }
        changed
    }

    fn check_group(&self, group: &Group) -> Result<(), OfError> {
        let mut numbers = BTreeSet::new();
        for bucket in &group.buckets {
            if bucket.id > bucket_ids::MAX {
                return Err(OfError::GmfcBadBucket);
            }
            if !numbers.insert(bucket.id) {
                return Err(OfError::GmfcBucketExists);
            }
            let watches = bucket.watch_port != Port::ANY || bucket.watch_group != ANY_GROUP;
            match group.kind {
                GroupType::All | GroupType::Indirect if watches => return Err(OfError::GmfcWatchUnsupported),
                GroupType::FastFailover if !watches => return Err(OfError::GmfcInvalidGroup),
                GroupType::Select => {}
                _ if bucket.weight != 0 => return Err(OfError::GmfcInvalidGroup),
                _ => {}
            }
            check::actions_of(&bucket.actions, &self.options)?;
        }
        if group.kind == GroupType::Indirect && group.buckets.len() != 1 {
            return Err(OfError::GmfcInvalidGroup);
        }
        group
            .selection
            .as_ref()
            .map_or(Ok(()), |how| selection(how, group.kind))?;
        if self.reaches(group, group.id) {
            return Err(OfError::GmfcLoop);
        }
        // The description of the group must fit a message. A request is no larger, but buckets can
        // also be added one by one.
        if !group::describe(group).fits() {
            return Err(OfError::GmfcOutOfBuckets);
        }
        Ok(())
    }

    /// Whether a group sends to another, directly or through others.
    fn reaches(&self, from: &Group, to: u32) -> bool {
        let mut seen = BTreeSet::new();
        let mut next: Vec<u32> = group::chained(&from.buckets).collect();
        while let Some(id) = next.pop() {
            if id == to {
                return true;
            }
            if seen.insert(id) {
                next.extend(self.groups.latest(id).into_iter().flat_map(Group::chained));
            }
        }
        false
    }
}

fn selection(how: &Selection, kind: GroupType) -> Result<(), OfError> {
    let said = *how != Selection::default();
    let known = METHODS.contains(&how.method.as_str());
    if said && kind != GroupType::Select || !known {
        return Err(OfError::BpcBadValue);
    }
    Ok(())
}

/// The group with more buckets.
fn with_buckets(there: &Group, change: &GroupMod) -> Result<Group, OfError> {
    let place = match change.bucket_id {
        bucket_ids::FIRST => 0,
        bucket_ids::LAST => there.buckets.len(),
        id if id > bucket_ids::MAX => return Err(OfError::GmfcBadBucket),
        id => place_of(there, id)? + 1,
    };
    let mut group = there.clone();
    group.buckets.splice(place..place, change.buckets.iter().cloned());
    Ok(group)
}

/// The group with fewer buckets.
fn without_buckets(there: &Group, id: u32) -> Result<Group, OfError> {
    let mut group = there.clone();
    match id {
        bucket_ids::ALL => group.buckets.clear(),
        bucket_ids::FIRST => drop(group.buckets.drain(..group.buckets.len().min(1))),
        bucket_ids::LAST => drop(group.buckets.pop()),
        id if id > bucket_ids::MAX => return Err(OfError::GmfcBadBucket),
        id => drop(group.buckets.remove(place_of(there, id)?)),
    }
    Ok(group)
}

fn place_of(group: &Group, id: u32) -> Result<usize, OfError> {
    let place = group.buckets.iter().position(|bucket| bucket.id == id);
    place.ok_or(OfError::GmfcUnknownBucket)
}
