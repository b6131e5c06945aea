//! Events of tables, for controllers that asked for them.

use super::{FlowTables, Reason, Removed, Rule, RuleRef, Stale, TunnelOptions, WORDS};
use classifier::Match;
use openflow::model::{FlowFlags, Instructions, Match as ModelMatch, TableStatus};
use std::sync::Arc;

/// A rule as it was at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleImage {
    /// Its table.
    pub table: u8,
    /// Its priority.
    pub priority: u16,
    /// Its match.
    pub matching: ModelMatch,
    /// Its cookie.
    pub cookie: u64,
    /// Idle timeout in seconds; 0 for none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0 for none.
    pub hard_timeout: u16,
    /// Its instructions.
    pub instructions: Arc<Instructions>,
    /// The instructions that the change replaced.
    pub before: Option<Arc<Instructions>>,
}

/// A change of a rule, for flow monitors (OpenFlow 1.5.1 §7.3.5.18).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleUpdate {
    /// The rule was added; it may have replaced another of its match and priority.
    Added(RuleImage),
    /// Its instructions or its cookie changed.
    Modified(RuleImage),
    /// The rule was removed.
    Removed(RuleImage, Reason),
}

impl RuleUpdate {
    /// The rule; a removed rule as it last was.
    pub fn image(&self) -> &RuleImage {
        match self {
            RuleUpdate::Added(image) | RuleUpdate::Modified(image) | RuleUpdate::Removed(image, _) => image,
        }
    }
}

/// An event that controllers may have asked for.
#[derive(Clone, Debug)]
pub enum TableEvent {
    /// A rule was removed that has a flow-removed message ([`Removed::message`]), or whose removal
    /// flow monitors report.
    Removed(Removed),
    /// A change of a rule; only while the tables are monitored ([`FlowTables::set_monitored`]).
    Update(RuleUpdate),
    /// A table ran short of room, or has enough again (vacancy event).
    Status(TableStatus),
}

/// The events of a change of tables, as they are collected.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Whether to note every rule, or only events that controllers have asked for.
    pub(super) everything: bool,
    pub(super) monitored: bool,
    pub(crate) stale: Stale,
    pub(crate) events: Vec<TableEvent>,
    /// The rules that were added and modified; only with `everything`.
    pub(super) added: Vec<RuleRef>,
    pub(super) modified: Vec<RuleRef>,
    /// The mapping of tunnel options to fields in the tables.
    pub(super) options: Arc<TunnelOptions>,
}

impl Log {
    /// A rule was added; it may have replaced one with the instructions `before`.
    pub(super) fn came(
        &mut self,
        at: RuleRef,
        priority: u16,
        matching: &Match<WORDS>,
        rule: &Rule,
        before: Option<Arc<Instructions>>,
    ) {
        self.stale.add(at.table, matching);
        if self.everything {
            self.added.push(at);
        }
        if self.monitored {
            let image = self.image(at, priority, matching, rule, before);
            self.events.push(TableEvent::Update(RuleUpdate::Added(image)));
        }
    }

    /// A rule was modified. `before` are its former instructions if anything differs.
    pub(super) fn changed(
        &mut self,
        at: RuleRef,
        priority: u16,
        matching: &Match<WORDS>,
        rule: &Rule,
        before: Option<Arc<Instructions>>,
    ) {
        self.stale.add(at.table, matching);
        if self.everything {
            self.modified.push(at);
        }
        if self.monitored && before.is_some() {
            let image = self.image(at, priority, matching, rule, before);
            self.events.push(TableEvent::Update(RuleUpdate::Modified(image)));
        }
    }

    pub(super) fn went(
        &mut self,
        at: RuleRef,
        priority: u16,
        matching: &Match<WORDS>,
        rule: Rule,
        end: (Reason, nanos::Nanos),
    ) {
        self.stale.add(at.table, matching);
        if self.monitored {
            let image = self.image(at, priority, matching, &rule, None);
            self.events.push(TableEvent::Update(RuleUpdate::Removed(image, end.0)));
        }
        if self.everything || rule.flags.has(FlowFlags::SEND_FLOW_REM) {
            self.events.push(TableEvent::Removed(Removed {
                at,
                priority,
                matching: self.options.match_of(matching),
                reason: end.0,
                when: end.1,
                rule,
            }));
        }
    }

    /// A rule as it is now; it may have replaced the instructions `before`.
    fn image(
        &self,
        at: RuleRef,
        priority: u16,
        matching: &Match<WORDS>,
        rule: &Rule,
        before: Option<Arc<Instructions>>,
    ) -> RuleImage {
        RuleImage {
            table: at.table,
            priority,
            matching: self.options.match_of(matching),
            cookie: rule.cookie,
            idle_timeout: rule.idle_timeout,
            hard_timeout: rule.hard_timeout,
            instructions: rule.instructions.clone(),
            before,
        }
    }
}

impl FlowTables {
    /// An empty log for the events that controllers have asked for.
    pub(crate) fn log(&self) -> Log {
        Log {
            monitored: self.monitored,
            options: self.options.clone(),
            ..Log::default()
        }
    }
}
