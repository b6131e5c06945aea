//! Groups (OpenFlow 1.5.1 §5.10): lists of actions that rules share.

use nanos::Nanos;
use openflow::Version;
use openflow::model::{self, Action, Bucket, GroupType, Selection};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The highest group number.
pub const MAX_GROUP: u32 = 0xffff_ff00;

/// A group as the translator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// How it treats its buckets.
    pub kind: GroupType,
    /// The selection method of a select group, if a controller has set one.
    pub selection: Option<Selection>,
    /// Its buckets, in the order in which they are tried.
    pub buckets: Vec<Bucket>,
    /// Differs between groups that had the same number at different times, and before and after a
    /// change.
    pub generation: u32,
}

impl Group {
    /// The groups that its buckets send to.
    pub fn chained(&self) -> impl Iterator<Item = u32> + '_ {
        chained(&self.buckets)
    }
}

/// The groups that buckets send to.
pub(super) fn chained(buckets: &[Bucket]) -> impl Iterator<Item = u32> + '_ {
    buckets
        .iter()
        .flat_map(|bucket| &bucket.actions)
        .filter_map(|action| match action {
            Action::Group(group) => Some(*group),
            _ => None,
        })
}

/// A group and its counters.
#[derive(Clone, Debug)]
struct Counted {
    group: Arc<Group>,
    created: Nanos,
    packets: u64,
    bytes: u64,
    buckets: Vec<(u64, u64)>,
}

impl Counted {
    fn new(group: Group, created: Nanos) -> Counted {
        Counted {
            created,
            packets: 0,
            bytes: 0,
            buckets: vec![(0, 0); group.buckets.len()],
            group: Arc::new(group),
        }
    }
}

/// The groups of a bridge.
///
/// While a bundle is open, its changes are in a second layer that packets do not see.
#[derive(Debug, Default)]
pub struct GroupTable {
    groups: BTreeMap<u32, Counted>,
    /// The groups as the bundle leaves them; `None` for those that it deletes.
    coming: BTreeMap<u32, Option<Counted>>,
    generation: u32,
}

impl GroupTable {
    /// The group with a number.
    pub fn get(&self, id: u32) -> Option<&Group> {
        self.groups.get(&id).map(|counted| &*counted.group)
    }

    /// The group with a number, for a caller that keeps it.
    pub fn shared(&self, id: u32) -> Option<Arc<Group>> {
        self.groups.get(&id).map(|counted| counted.group.clone())
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// All groups, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.values().map(|counted| &*counted.group)
    }

    /// Adds packets and bytes that the datapath has carried through a bucket.
    pub(super) fn credit(&mut self, id: u32, generation: u32, bucket: u16, packets: u64, bytes: u64) {
        let Some(counted) = self.groups.get_mut(&id).filter(|c| c.group.generation == generation) else {
            return;
        };
        // A packet counts once for the group, however many of its buckets run.
        let counters = match counted.buckets.get_mut(usize::from(bucket)) {
            Some((packets, bytes)) => (packets, bytes),
            None => (&mut counted.packets, &mut counted.bytes),
        };
        *counters.0 += packets;
        *counters.1 += bytes;
    }

    /// The descriptions of the first groups in this range of numbers, up to `most`.
    pub(super) fn descriptions(&self, numbers: RangeInclusive<u32>, most: usize) -> Vec<model::GroupDesc> {
        let groups = self.groups.range(numbers).take(most);
        groups.map(|(_, counted)| describe(&counted.group)).collect()
    }

    /// The counters of the first groups in this range of numbers, up to `most`; `references`
    /// returns the number of rules that use a group.
    pub(super) fn stats(
        &self,
        numbers: RangeInclusive<u32>,
        most: usize,
        now: Nanos,
        references: impl Fn(u32) -> usize,
    ) -> Vec<model::GroupStats> {
        let groups = self.groups.range(numbers).take(most);
        groups
            .map(|(_, counted)| counted)
            .map(|counted| model::GroupStats {
                group: counted.group.id,
                ref_count: u32::try_from(references(counted.group.id)).unwrap_or(u32::MAX),
                packets: counted.packets,
                bytes: counted.bytes,
                duration: super::duration(now, counted.created),
                buckets: counted.buckets.clone(),
            })
            .collect()
    }

    /// The group in the latest version, which has the changes of the open bundle.
    pub(super) fn latest(&self, id: u32) -> Option<&Group> {
        let counted = match self.coming.get(&id) {
            Some(coming) => coming.as_ref(),
            None => self.groups.get(&id),
        };
        counted.map(|counted| &*counted.group)
    }

    /// The numbers of all groups in the latest version.
    pub(super) fn latest_ids(&self) -> Vec<u32> {
        let there = self.groups.keys().filter(|id| !self.coming.contains_key(id));
        let coming = self.coming.iter().filter(|(_, group)| group.is_some());
        let mut ids: Vec<u32> = there.chain(coming.map(|(id, _)| id)).copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Adds a group in place of any with its number: at once, or when the bundle is committed. A
    /// group that is replaced keeps its age.
    pub(super) fn put(&mut self, mut group: Group, now: Nanos, in_bundle: bool) {
        self.generation = self.generation.wrapping_add(1);
        group.generation = self.generation;
        let id = group.id;
        let old = match self.coming.get(&id) {
            Some(coming) => coming.as_ref(),
            None => self.groups.get(&id),
        };
        let counted = Counted::new(group, old.map_or(now, |old| old.created));
        if in_bundle {
            self.coming.insert(id, Some(counted));
        } else {
            self.coming.remove(&id);
            self.groups.insert(id, counted);
        }
    }

    /// Removes a group.
    pub(super) fn remove(&mut self, id: u32, in_bundle: bool) {
        if in_bundle {
            self.coming.insert(id, None);
        } else {
            self.coming.remove(&id);
            self.groups.remove(&id);
        }
    }

    /// Commits the changes of a bundle. Returns the numbers of the changed groups.
    pub(super) fn commit(&mut self) -> Vec<u32> {
        let coming = std::mem::take(&mut self.coming);
        let ids = coming.keys().copied().collect();
        for (id, group) in coming {
            match group {
                Some(group) => drop(self.groups.insert(id, group)),
                None => drop(self.groups.remove(&id)),
            }
        }
        ids
    }

    /// Drops the changes of a bundle.
    pub(super) fn abort(&mut self) {
        self.coming.clear();
    }
}

pub(super) fn describe(group: &Group) -> model::GroupDesc {
    model::GroupDesc {
        group: group.id,
        kind: group.kind,
        buckets: group.buckets.clone(),
        selection: group.selection.clone(),
    }
}

/// The group features that the switch supports.
pub fn group_features(version: Version) -> model::GroupFeatures {
    /// Weights in select groups, live buckets in select groups, groups behind groups.
    const CAPABILITIES: u32 = 1 | 2 | 4;
    let actions = match version {
        // All of OpenFlow 1.0: output, setting of fields, enqueue.
        Version::V10 => 0xfff,
        // All of OpenFlow 1.1, from output to the time to live.
        Version::V11 => 0x1ff_ffff,
        // Output, copies of the time to live, MPLS time to live, VLAN tags, MPLS labels, queue,
        // group, time to live, set-field.
        Version::V12 => 0x3ff_9801,
        // And PBB.
        _ => 0xfff_9801,
    };
    model::GroupFeatures {
        types: 0xf,
        capabilities: CAPABILITIES,
        max_groups: [MAX_GROUP; 4],
        actions: [actions; 4],
    }
}
