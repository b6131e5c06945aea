//! What happened in tables, for those who asked to hear of it.

use super::{FlowTables, Reason, Removed, Rule, RuleRef, Stale, TunnelOptions, WORDS};
use classifier::Match;
use openflow::model::{FlowFlags, Instructions, Match as ModelMatch, TableStatus};
use std::sync::Arc;

/// A rule as it was at a moment.
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
    /// Seconds without packets until it ends; 0 for never.
    pub idle_timeout: u16,
    /// Seconds until it ends; 0 for never.
    pub hard_timeout: u16,
    /// What it does.
    pub instructions: Arc<Instructions>,
}

/// A change of a rule, as monitors are told of it (OpenFlow 1.5.1 §7.3.5.18).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleUpdate {
    /// It came, if need be in the place of another of its match and priority.
    Added(RuleImage),
    /// Its instructions or its cookie changed.
    Modified(RuleImage),
    /// It went.
    Removed(RuleImage, Reason),
}

impl RuleUpdate {
    /// The rule; of one that went, as it was.
    pub fn image(&self) -> &RuleImage {
        match self {
            RuleUpdate::Added(image) | RuleUpdate::Modified(image) | RuleUpdate::Removed(image, _) => image,
        }
    }
}

/// Something that controllers may have asked to hear of.
#[derive(Clone, Debug)]
pub enum TableEvent {
    /// A rule went that was made with the wish to be told ([`Removed::message`]), or whose end
    /// monitors hear of.
    Removed(Removed),
    /// A change of a rule; only while the tables are monitored ([`FlowTables::set_monitored`]).
    Update(RuleUpdate),
    /// A table ran short of room, or has enough again.
    Status(TableStatus),
}

impl RuleImage {
    /// The image of a rule of this match and priority.
    fn of(table: u8, priority: u16, matching: ModelMatch, rule: &Rule) -> RuleImage {
        RuleImage {
            table,
            priority,
            matching,
            cookie: rule.cookie,
            idle_timeout: rule.idle_timeout,
            hard_timeout: rule.hard_timeout,
            instructions: rule.instructions.clone(),
        }
    }
}

/// What a change of tables did, as it is collected.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Whether every rule is noted, or only what somebody hears of.
    pub(super) everything: bool,
    pub(super) monitored: bool,
    pub(crate) stale: Stale,
    pub(crate) events: Vec<TableEvent>,
    /// The rules that came and that were changed; only with `everything`.
    pub(super) added: Vec<RuleRef>,
    pub(super) modified: Vec<RuleRef>,
    /// What fields are in the tables.
    pub(super) options: Arc<TunnelOptions>,
}

impl Log {
    pub(super) fn came(&mut self, at: RuleRef, priority: u16, matching: &Match<WORDS>, rule: &Rule) {
        self.stale.add(at.table, matching);
        if self.everything {
            self.added.push(at);
        }
        if self.monitored {
            let image = RuleImage::of(at.table, priority, self.options.match_of(matching), rule);
            self.events.push(TableEvent::Update(RuleUpdate::Added(image)));
        }
    }

    pub(super) fn changed(&mut self, at: RuleRef, priority: u16, matching: &Match<WORDS>, rule: &Rule, differs: bool) {
        self.stale.add(at.table, matching);
        if self.everything {
            self.modified.push(at);
        }
        if self.monitored && differs {
            let image = RuleImage::of(at.table, priority, self.options.match_of(matching), rule);
            self.events.push(TableEvent::Update(RuleUpdate::Modified(image)));
        }
    }

    pub(super) fn went(
        &mut self,
        at: RuleRef,
        priority: u16,
        matching: &Match<WORDS>,
        rule: Rule,
        end: (Reason, wire::Nanos),
    ) {
        self.stale.add(at.table, matching);
        if self.monitored {
            let image = RuleImage::of(at.table, priority, self.options.match_of(matching), &rule);
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
}

impl FlowTables {
    /// Where to note what somebody hears of.
    pub(crate) fn log(&self) -> Log {
        Log {
            monitored: self.monitored,
            options: self.options.clone(),
            ..Log::default()
        }
    }
}
