//! Rules.

use super::Reason;
use super::rules::Span;
use classifier::RuleId;
use openflow::model::{self, FlowFlags, Instructions};
use std::sync::Arc;
use std::time::Duration;
use wire::Nanos;

/// A rule's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleRef {
    /// Its table.
    pub table: u8,
    /// Its handle in the table.
    pub id: RuleId,
}

/// A rule, without what the table keeps for it: match and priority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The controller's word for it.
    pub cookie: u64,
    /// What is done with its packets.
    pub instructions: Arc<Instructions>,
    /// What it was made with.
    pub flags: FlowFlags,
    /// The lowest goes first when room is needed.
    pub importance: u16,
    /// Seconds without packets until it ends; 0 for never.
    pub idle_timeout: u16,
    /// Seconds until it ends, since the last change; 0 for never.
    pub hard_timeout: u16,
    /// When it came.
    pub created: Nanos,
    /// When it was last changed.
    pub modified: Nanos,
    /// When its last packet came, or it was last changed.
    pub used: Nanos,
    /// Its packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its place in the queue of ends.
    pub(super) queued: Option<Nanos>,
    /// When it is there.
    pub(super) span: Span,
}

/// A rule that is gone.
#[derive(Clone, Debug)]
pub struct Removed {
    /// Its handle, which means no rule any more.
    pub at: RuleRef,
    /// Its priority.
    pub priority: u16,
    /// Its match.
    pub matching: model::Match,
    /// Why it went.
    pub reason: Reason,
    /// When it went.
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
            queued: None,
            span: Span::Always,
        }
    }

    pub(super) fn builtin(instructions: Instructions, now: Nanos) -> Rule {
        let change = model::FlowMod::default();
        Rule::new(&change, Arc::new(instructions), now)
    }

    /// When it ends, if no packet comes; `None` for never.
    pub fn end(&self) -> Option<Nanos> {
        let after = |since: Nanos, secs: u16| (secs != 0).then(|| since + Duration::from_secs(secs.into()));
        let hard = after(self.modified, self.hard_timeout);
        let idle = after(self.used, self.idle_timeout);
        hard.into_iter().chain(idle).min()
    }

    /// Why it has ended, if it has.
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
    /// What controllers are told, where the rule was made to be told of.
    pub fn message(&self) -> Option<model::FlowRemoved> {
        if !self.rule.flags.has(FlowFlags::SEND_FLOW_REM) {
            return None;
        }
        let age = self.when.since(self.rule.created);
        Some(model::FlowRemoved {
            table: Some(self.at.table),
            reason: self.reason as u8,
            priority: self.priority,
            cookie: self.rule.cookie,
            duration: model::Duration {
                sec: u32::try_from(age.as_secs()).unwrap_or(u32::MAX),
                nsec: age.subsec_nanos(),
            },
            idle_timeout: self.rule.idle_timeout,
            hard_timeout: self.rule.hard_timeout,
            packets: self.rule.packets,
            bytes: self.rule.bytes,
            matching: self.matching.clone(),
        })
    }
}
