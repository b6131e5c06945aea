//! Rules.

use super::Reason;
use super::rules::Span;
use classifier::RuleId;
use flow::{MatchField, MatchPrerequisite};
use nanos::Nanos;
use openflow::model::{self, FlowFlags, Instructions};
use std::sync::Arc;
use std::time::Duration;

/// The handle of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleRef {
    /// Its table.
    pub table: u8,
    /// Its handle in the table.
    pub id: RuleId,
}

/// A rule without its match and priority, which the table keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The controller's cookie.
    pub cookie: u64,
    /// What it does with packets.
    pub instructions: Arc<Instructions>,
    /// The flags of the flow-mod that added it.
    pub flags: FlowFlags,
    /// Rules of the lowest importance are evicted first.
    pub importance: u16,
    /// Idle timeout in seconds; 0 for none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds, counted from the last change; 0 for none.
    pub hard_timeout: u16,
    /// When it was added.
    pub created: Nanos,
    /// When it was last changed.
    pub modified: Nanos,
    /// When its last packet came, or when it was last changed.
    pub used: Nanos,
    /// Packets that it has counted.
    pub packets: u64,
    /// Bytes that it has counted.
    pub bytes: u64,
    /// Whether it has a condition on Ethernet packets, and none on the packet type: other packets
    /// do not meet it.
    pub(super) of_ethernet: bool,
    /// Its time in the expiry queue.
    pub(super) queued: Option<Nanos>,
    /// The versions that have it.
    pub(super) span: Span,
}

fn is_of_ethernet(matching: &model::Match) -> bool {
    let mut entries = matching.entries().iter();
    matching.get(MatchField::PacketType).is_none()
        && entries.any(|entry| entry.field.info().prerequisite != MatchPrerequisite::None)
}

/// A rule that was removed.
#[derive(Clone, Debug)]
pub struct Removed {
    /// Its handle, which is no longer valid.
    pub at: RuleRef,
    /// Its priority.
    pub priority: u16,
    /// Its match.
    pub matching: model::Match,
    /// Why it was removed.
    pub reason: Reason,
    /// When it was removed.
    pub when: Nanos,
    /// The rule.
    pub rule: Rule,
}

impl Rule {
    pub(super) fn new(change: &model::FlowMod, instructions: Arc<Instructions>, now: Nanos) -> Rule {
        Rule {
            cookie: change.new_cookie.unwrap_or(0),
            instructions,
            flags: change.flags,
            importance: change.importance,
            idle_timeout: change.idle_timeout,
            hard_timeout: change.hard_timeout,
            created: now,
            modified: now,
            used: now,
            packets: 0,
            bytes: 0,
            of_ethernet: is_of_ethernet(&change.matching),
            queued: None,
            span: Span::Always,
        }
    }

    pub(super) fn builtin(instructions: Instructions, now: Nanos) -> Rule {
        let change = model::FlowMod::default();
        Rule::new(&change, Arc::new(instructions), now)
    }

    /// When it expires if no packet comes; `None` for never.
    pub fn end(&self) -> Option<Nanos> {
        let after = |since: Nanos, secs: u16| (secs != 0).then(|| since + Duration::from_secs(secs.into()));
        let hard = after(self.modified, self.hard_timeout);
        let idle = after(self.used, self.idle_timeout);
        hard.into_iter().chain(idle).min()
    }

    /// Which timeout has expired, if one has.
    pub(super) fn ended(&self, now: Nanos) -> Option<Reason> {
        let over = |since: Nanos, secs: u16| secs != 0 && now.since(since) >= Duration::from_secs(secs.into());
        if over(self.modified, self.hard_timeout) {
            Some(Reason::HardTimeout)
        } else if over(self.used, self.idle_timeout) {
            Some(Reason::IdleTimeout)
        } else {
            None
        }
    }

    pub(super) fn credit(&mut self, packets: u64, bytes: u64, used: Nanos) {
        self.packets += packets;
        self.bytes += bytes;
        self.used = self.used.max(used);
    }
}

impl Removed {
    /// The flow-removed message, if the rule asks for one.
    pub fn message(&self) -> Option<model::FlowRemoved> {
        if !self.rule.flags.has(FlowFlags::SEND_FLOW_REM) {
            return None;
        }
        Some(model::FlowRemoved {
            table: Some(self.at.table),
            reason: self.reason as u8,
            priority: self.priority,
            cookie: self.rule.cookie,
            duration: super::duration(self.when, self.rule.created),
            idle_timeout: self.rule.idle_timeout,
            hard_timeout: self.rule.hard_timeout,
            packets: self.rule.packets,
            bytes: self.rule.bytes,
            matching: self.matching.clone(),
        })
    }
}
