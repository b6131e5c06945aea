//! Groups (OpenFlow 1.5.1 §5.10): lists of actions that rules share.

use super::selection::{GroupChange, Selector};
use nanos::Nanos;
use openflow::Version;
use openflow::model::{self, Action, Bucket, GroupType, Selection};
use std::collections::{BTreeMap, HashMap};
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
    /// Differs between groups that had the same number at different times. A change keeps it.
    pub serial: u32,
    /// The same of each bucket: a change of the group keeps it, if the bucket does the same.
    pub(super) serials: Vec<u32>,
    /// How it chooses, if it is a select group.
    pub(super) selector: Option<Selector>,
}

impl Group {
    /// For each bucket of another, the place of the one here that does the same.
    fn places_of_same(&self, buckets: &[Bucket]) -> Vec<Option<usize>> {
        let places: HashMap<u32, usize> = self.buckets.iter().map(|bucket| bucket.id).zip(0..).collect();
        let place = |bucket: &Bucket| {
            let at = *places.get(&bucket.id)?;
            let own = &self.buckets[at];
            let watched = (own.watch_port, own.watch_group) == (bucket.watch_port, bucket.watch_group);
            (watched && own.actions == bucket.actions).then_some(at)
        };
        buckets.iter().map(place).collect()
    }

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
    /// The last of the groups' and buckets' serial numbers.
    serial: u32,
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

    /// Adds packets and bytes that the datapath has carried through a bucket, which was at this
    /// place, or through the group.
    pub(super) fn credit(&mut self, id: u32, serial: u32, bucket: Option<u16>, packets: u64, bytes: u64) {
        let Some(counted) = self.groups.get_mut(&id) else {
            return;
        };
        let counters = match bucket {
            // A packet counts once for the group, however many of its buckets run.
            None => (counted.group.serial == serial).then_some((&mut counted.packets, &mut counted.bytes)),
            Some(at) => {
                // Other buckets may have come or gone before it.
                let serials = &counted.group.serials;
                let at = match serials.get(usize::from(at)) {
                    Some(own) if *own == serial => Some(usize::from(at)),
                    _ => serials.iter().position(|own| *own == serial),
                };
                let bucket = at.and_then(|at| counted.buckets.get_mut(at));
                bucket.map(|(packets, bytes)| (packets, bytes))
            }
        };
        if let Some(counters) = counters {
            *counters.0 += packets;
            *counters.1 += bytes;
        }
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
    /// group that is replaced keeps its age. Buckets that stay keep their counters if `counts` says
    /// so. Returns the change for packets, if there is one now.
    pub(super) fn put(&mut self, mut group: Group, now: Nanos, in_bundle: bool, counts: bool) -> Option<GroupChange> {
        let id = group.id;
        let old = match self.coming.get(&id) {
            Some(coming) => coming.as_ref(),
            None => self.groups.get(&id),
        };
        let last = &mut self.serial;
        let mut next = || {
            *last = last.wrapping_add(1);
            *last
        };
        group.serial = old.map_or_else(&mut next, |old| old.group.serial);
        let places = match old {
            Some(old) => old.group.places_of_same(&group.buckets),
            None => vec![None; group.buckets.len()],
        };
        let serial = |place: &Option<usize>| old.zip(*place).map(|(old, at)| old.group.serials[at]);
        group.serials = places
            .iter()
            .map(|place| serial(place).unwrap_or_else(&mut next))
            .collect();
        group.selector = Selector::of(&group);
        let mut counted = Counted::new(group, old.map_or(now, |old| old.created));
        if let Some(old) = old.filter(|_| counts) {
            for (counters, place) in counted.buckets.iter_mut().zip(places) {
                *counters = place.map_or((0, 0), |at| old.buckets[at]);
            }
        }
        self.replace(id, Some(counted), in_bundle)
    }

    /// Removes a group. Returns the change for packets, if there is one now.
    pub(super) fn remove(&mut self, id: u32, in_bundle: bool) -> Option<GroupChange> {
        self.replace(id, None, in_bundle)
    }

    fn replace(&mut self, id: u32, new: Option<Counted>, in_bundle: bool) -> Option<GroupChange> {
        if in_bundle {
            self.coming.insert(id, new);
            return None;
        }
        self.coming.remove(&id);
        Some(self.set(id, new))
    }

    fn set(&mut self, id: u32, new: Option<Counted>) -> GroupChange {
        let change = GroupChange::of(id, self.get(id), new.as_ref().map(|new| &*new.group));
        match new {
            Some(new) => drop(self.groups.insert(id, new)),
            None => drop(self.groups.remove(&id)),
        }
        change
    }

    /// Commits the changes of a bundle. Returns them.
    pub(super) fn commit(&mut self) -> Vec<GroupChange> {
        let coming = std::mem::take(&mut self.coming);
        coming.into_iter().map(|(id, group)| self.set(id, group)).collect()
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
