//! Groups.

use super::Printer;
use super::bundle::hash_hex;
use super::lists::action_names;
use super::meter::duration;
use crate::Version;
use crate::model::{ALL_GROUPS, ANY_GROUP, Duration, GroupDesc, GroupFeatures, GroupMod, GroupStats};
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
        self.out.push_str("\n ");
        self.out.push_str(&crate::text::group_mod(m, self.style));
    }

    pub(super) fn group_descs(&mut self, groups: &[GroupDesc]) {
        for group in groups {
            self.out.push_str("\n ");
            self.out.push_str(&crate::text::group_desc(group, self.style));
        }
    }

    pub(super) fn group_stats(&mut self, groups: &[GroupStats]) {
        for group in groups {
            let _ = write!(self.out, "\n group_id={}", group.group);
            if group.duration != Duration::UNKNOWN && (self.version == Version::V10 || self.version >= Version::V13) {
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
            let mut names = String::new();
            action_names(&mut names, features.actions[n], self.version);
            let names = if names.is_empty() { "<none>" } else { &names };
            let _ = writeln!(self.out, "{names}");
        }
    }
}
