//! Liveness of groups that watch groups (OpenFlow 1.3.5 §5.6.1): a bucket is live if the port or
//! the group that it watches is live, a group if one of its buckets is.
//!
//! A translation examines each group once, however many buckets watch it. Groups that watch each
//! other in a circle are live only by a bucket outside the circle.

use super::budget::cost;
use super::pipeline::Pipeline;
use crate::dep::Read;
use openflow::model::{ANY_GROUP, Bucket, Port};
use std::collections::BTreeMap;

/// Depth of groups that watch groups. As in Open vSwitch, a deeper group counts as dead.
const MAX_WATCHED: u32 = 128;

/// The known liveness of groups, by bridge and number.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    known: BTreeMap<(u32, u32), Known>,
    /// Groups that the current search has visited and that are not known to be live.
    asked: Vec<(u32, u32)>,
    /// The search has left out a group that was too deep.
    cut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Live,
    Dead,
    /// The current search has visited it and found no live bucket yet.
    Asked,
}

impl Pipeline<'_> {
    /// Whether a bucket is live; a bucket that watches nothing is.
    pub(super) fn is_bucket_live(&mut self, bucket: &Bucket) -> bool {
        let live = self.watches_live(bucket, 0);
        let cut = std::mem::take(&mut self.liveness.cut);
        for group in std::mem::take(&mut self.liveness.asked) {
            // If no bucket is live and nothing was left out, the search has examined all that these
            // groups watch. Otherwise a group may still be live by another of its circle.
            if live || cut {
                self.liveness.known.remove(&group);
            } else {
                self.liveness.known.insert(group, Known::Dead);
            }
        }
        live
    }

    fn watches_live(&mut self, bucket: &Bucket, within: u32) -> bool {
        let (port, group) = (bucket.watch_port, bucket.watch_group);
        if port == Port::ANY && group == ANY_GROUP {
            return true;
        }
        if port != Port::ANY && self.is_live(port) || group != ANY_GROUP && self.is_group_live(group, within) {
            return true;
        }
        self.detail(|p| {
            let cause = match port {
                Port::ANY => format!("group {group}"),
                _ => format!("port {}", p.text_of_port(port)),
            };
            format!("bucket {}: not live due to {cause}", bucket.id)
        });
        false
    }

    /// Whether one of a group's buckets is live.
    fn is_group_live(&mut self, id: u32, within: u32) -> bool {
        let Some(bridge) = self.packet.place.bridge else {
            return false;
        };
        if !self.spend(cost::PORT) {
            return false;
        }
        let group = (bridge.id, id);
        if let Some(known) = self.liveness.known.get(&group) {
            return *known == Known::Live;
        }
        if within == MAX_WATCHED {
            self.liveness.cut = true;
            return false;
        }
        self.depend(Read::Group(bridge.id, id));
        let Some(there) = bridge.tables.group(id) else {
            self.liveness.known.insert(group, Known::Dead);
            return false;
        };
        self.liveness.known.insert(group, Known::Asked);
        let live = there
            .buckets
            .iter()
            .any(|bucket| self.spend(cost::PORT) && self.watches_live(bucket, within + 1));
        if live {
            self.liveness.known.insert(group, Known::Live);
        } else {
            self.liveness.asked.push(group);
        }
        live
    }
}
