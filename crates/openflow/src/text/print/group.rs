//! Groups.

use super::Printer;
use super::bundle::hash_hex;
use super::meter::duration;
use super::table::action_names;
use crate::Version;
use crate::model::{
    ALL_GROUPS, ANY_GROUP, Bucket, Duration, GroupCommand, GroupDesc, GroupFeatures, GroupMod, GroupStats, GroupType,
    Port, Selection,
};
use std::fmt::Write;

impl Printer<'_> {
    pub(super) fn group_request(&mut self, group: u32) {
        self.out.push_str(" group_id=");
        match group {
            ALL_GROUPS => self.out.push_str("ALL"),
            ANY_GROUP => self.out.push_str("ANY"),
            group => {
                let _ = write!(self.out, "{group}");
            }
        }
    }

    pub(super) fn group_mod(&mut self, m: &GroupMod) {
        let (name, bucket_command) = match m.command {
            GroupCommand::Add => ("ADD", false),
            GroupCommand::Modify => ("MOD", false),
            GroupCommand::AddOrMod => ("ADD_OR_MOD", false),
            GroupCommand::Delete => ("DEL", false),
            GroupCommand::InsertBucket => ("INSERT_BUCKET", true),
            GroupCommand::RemoveBucket => ("REMOVE_BUCKET", true),
        };
        let _ = write!(self.out, "\n {name} ");
        if bucket_command {
            let _ = match m.bucket_id {
                0xffff_ff00 => Ok(()),
                0xffff_fffd => write!(self.out, "command_bucket_id:first,"),
                0xffff_fffe => write!(self.out, "command_bucket_id:last,"),
                0xffff_ffff => write!(self.out, "command_bucket_id:all,"),
                id => write!(self.out, "command_bucket_id:{id},"),
            };
        }
        let kind = (!bucket_command).then_some(m.kind);
        self.group(m.group, kind, &m.buckets, m.selection.as_ref());
    }

    pub(super) fn group_descs(&mut self, groups: &[GroupDesc]) {
        for group in groups {
            self.out.push_str("\n ");
            self.group(group.group, Some(group.kind), &group.buckets, None);
        }
    }

    fn group(&mut self, group: u32, kind: Option<GroupType>, buckets: &[Bucket], selection: Option<&Selection>) {
        let _ = write!(self.out, "group_id={group}");
        if let Some(kind) = kind {
            let name = GroupType::ALL.iter().find(|(k, _)| *k == kind).map_or("", |(_, n)| n);
            let _ = write!(self.out, ",type={name}");
        }
        if let Some(selection) = selection.filter(|s| !s.method.is_empty()) {
            let _ = write!(self.out, ",selection_method={}", selection.method);
            if selection.param != 0 {
                let _ = write!(self.out, ",selection_method_param={}", selection.param);
            }
        }
        for bucket in buckets {
            self.out.push_str(",bucket=");
            self.bucket(bucket, kind);
        }
    }

    fn bucket(&mut self, bucket: &Bucket, kind: Option<GroupType>) {
        // Before OpenFlow 1.5 buckets have no numbers, but in Nicira's messages, which only OpenFlow 1.0 has need of.
        if bucket.id <= 0xffff_ff00 && self.bucket_ids() {
            let _ = write!(self.out, "bucket_id:{},", bucket.id);
        }
        let default = u16::from(kind == Some(GroupType::Select));
        if bucket.weight != default {
            let _ = write!(self.out, "weight:{},", bucket.weight);
        }
        if bucket.watch_port != Port::ANY {
            self.out.push_str("watch_port:");
            self.port(bucket.watch_port);
            self.out.push(',');
        }
        if bucket.watch_group != ANY_GROUP {
            let _ = write!(self.out, "watch_group:{},", bucket.watch_group);
        }
        self.out.push_str("actions=");
        self.out.push_str(&crate::text::actions(&bucket.actions, self.style));
    }

    fn bucket_ids(&self) -> bool {
        self.version == Version::V10 || self.version >= Version::V15
    }

    pub(super) fn group_stats(&mut self, groups: &[GroupStats]) {
        for group in groups {
            let _ = write!(self.out, "\n group_id={}", group.group);
            if group.duration != UNKNOWN && (self.version == Version::V10 || self.version >= Version::V13) {
                let _ = write!(self.out, ",duration={}", duration(group.duration));
            }
            let _ = write!(
                self.out,
                ",ref_count={},packet_count={},byte_count={}",
                group.ref_count, group.packets, group.bytes
            );
            for (n, (packets, bytes)) in group.buckets.iter().enumerate() {
                if *packets != u64::MAX {
                    let _ = write!(self.out, ",bucket{n}:packet_count={packets},byte_count={bytes}");
                }
            }
        }
    }

    pub(super) fn group_features(&mut self, features: &GroupFeatures) {
        const NAMES: [&str; 4] = ["all", "select", "indirect", "fast failover"];
        let _ = write!(
            self.out,
            "\n Group table:\n    Types:  {}\n    Capabilities:  {}\n",
            hash_hex(features.types),
            hash_hex(features.capabilities)
        );
        for (n, name) in NAMES.iter().enumerate() {
            if features.types & 1 << n == 0 {
                continue;
            }
            let _ = write!(
                self.out,
                "    {name} group:\n       max_groups={}\n",
                hash_hex(features.max_groups[n])
            );
            self.out.push_str("       actions: ");
            action_names(self.out, features.actions[n], self.version);
            self.out.push('\n');
        }
    }
}

/// A duration that is not known.
const UNKNOWN: Duration = Duration {
    sec: u32::MAX,
    nsec: u32::MAX,
};
