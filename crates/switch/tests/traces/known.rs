//! Where we mean to differ from Open vSwitch. "Differences from Open vSwitch" in docs/openflow.md
//! has them for users.

use crate::told;

/// Why Open vSwitch must not be asked for a packet with this trace, if so.
pub(crate) fn fatal(ours: &str) -> Option<&'static str> {
    let writes_arp = ["->NXM_NX_ARP_THA[]\n", "->arp_op\n", "->arp_tpa\n"];
    let fatal = ours.contains("meter:1\n")
        && ours.contains("check_pkt_larger(")
        && writes_arp.iter().any(|write| ours.contains(write));
    fatal.then_some("a meter, check_pkt_larger and a write to ARP make it crash, or not end")
}

/// Two traces of a packet that differ.
pub(crate) struct Case<'a> {
    pub(crate) theirs: &'a str,
    pub(crate) ours: &'a str,
    /// The packets that leave here, as [`crate::frames::run`] shows them.
    pub(crate) left: &'a [String],
    /// The rules, as Open vSwitch dumps them.
    pub(crate) rules: &'a [String],
}

impl Case<'_> {
    /// Why they differ, if we mean to.
    pub(crate) fn excuse(&self) -> Option<&'static str> {
        let has = |what: &str| self.theirs.contains(what);
        if has("recirc(") && !self.ours.contains("recirc(") {
            return Some("what is behind a label that was put on by the same rules, we know without another look");
        }
        if has("recirc(") {
            return Some("its trace ends where a packet is looked at again");
        }
        if has("output_trunc does not support patch port") {
            return Some("it does not cut what goes into another bridge");
        }
        if has("check_pkt_larger") && told(self.theirs) != told(self.ours) {
            return Some("it tells both ways of a length where the action stands, we at the end of the rule");
        }
        let three = |packet: &String| tags(packet).nth(2).is_some();
        if has("dl_vlan1=") && self.theirs.matches("push_vlan:").count() > 1 || self.left.iter().any(three) {
            return Some("of three tags it loses the innermost");
        }
        let without_vlan = |packet: &String| {
            let mut tags = tags(packet);
            tags.next().is_some_and(|outer| outer & 0xfff == 0) && tags.next().is_some()
        };
        if has("    NORMAL\n") && self.left.iter().any(without_vlan) {
            return Some("its NORMAL removes a second tag after a tag of VLAN 0");
        }
        if has("    exit\n") && self.ours.contains("Executing action set") {
            return Some("by the manual the action set is run behind an exit; it does not do so");
        }
        if has("over max") || self.ours.contains("over ") {
            return Some("of what is too deep it keeps what was sent before");
        }
        if self.is_behind_dimension() {
            return Some(
                "the search with conj_id misses a rule whose match a conjunctive rule has too (ovs-fields(7))",
            );
        }
        None
    }

    /// Whether the first difference is a rule that Open vSwitch does not find because a rule with
    /// the same match is a dimension of a conjunctive match. By ovs-fields(7), "Conjunctive Match
    /// Fields", the search with `conj_id` ignores the dimension, and finds other rules as any
    /// search does.
    fn is_behind_dimension(&self) -> bool {
        let (theirs, ours) = (told(self.theirs), told(self.ours));
        let mut lines = theirs.iter().zip(&ours);
        let Some((found, missed)) = lines.find(|(found, missed)| found != missed) else {
            return false;
        };
        let (Some((table, _, lower)), Some((own, matching, higher))) = (rule_in(found), rule_in(missed)) else {
            return false;
        };
        let dimension = format!("{matching} actions=conjunction(");
        let behind = |rule: &String| {
            let (place, rest) = rule.split_once("priority=").unwrap_or_default();
            let matching = rest.split_once(',').map(|(_, matching)| matching);
            place.contains(&format!("table={table},")) && matching.is_some_and(|text| text.starts_with(&dimension))
        };
        table == own && lower < higher && self.rules.iter().any(behind)
    }
}

/// The table, match and priority of the rule that a line of a trace names.
fn rule_in(line: &str) -> Option<(&str, &str, u32)> {
    let (table, rule) = line.trim_start().split_once(". ")?;
    let (matching, behind) = rule.split_once("priority ")?;
    let priority = behind.split(',').next()?.parse().ok()?;
    Some((table, matching.trim_end_matches(", "), priority))
}

/// The tag control information of a packet's tags, the outermost first.
fn tags(packet: &str) -> impl Iterator<Item = u16> + '_ {
    let tags = packet.split("tci: ").skip(1);
    tags.map_while(|rest| rest.split(' ').next()?.parse().ok())
}
