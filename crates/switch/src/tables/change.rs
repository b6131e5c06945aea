//! Flow-mods (OpenFlow 1.3.5 §6.4).

use super::additions::Wanted;
use super::condition::accepted;
use super::journal::Step;
use super::update::{Log, TableEvent};
use super::{Additions, Condition, FlowTables, Learned, Reason, Removed, Rule, RuleRef, Span, TABLES, WORDS, check};
use classifier::Match;
use nanos::Nanos;
use openflow::OfError;
use openflow::model::{Action, FlowCommand, FlowFlags, FlowMod, Instructions};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// Number of rules to prefetch at once.
const AHEAD: usize = 8;

/// The result of a flow-mod.
#[derive(Debug, Default)]
pub struct Changed {
    /// The tables whose results may have changed, ascending.
    pub tables: Vec<u8>,
    /// The rules that were added.
    pub added: Vec<RuleRef>,
    /// The rules whose instructions or cookies changed.
    pub modified: Vec<RuleRef>,
    /// The rules that were removed, except those replaced by a rule of the same match and priority.
    pub removed: Vec<Removed>,
}

impl FlowTables {
    /// Carries out a flow-mod.
    ///
    /// # Errors
    /// The error of the specification. Nothing has changed then.
    pub fn flow_mod(&mut self, change: &FlowMod, now: Nanos) -> Result<Changed, OfError> {
        let mut log = Log {
            everything: true,
            ..self.log()
        };
        self.change(change, now, &mut log)?;
        let removed = log.events.into_iter().filter_map(|event| match event {
            TableEvent::Removed(removed) => Some(removed),
            _ => None,
        });
        Ok(Changed {
            tables: log.stale.tables(),
            removed: removed.collect(),
            added: log.added,
            modified: log.modified,
        })
    }

    /// Carries out a flow-mod and logs the events for controllers.
    pub(crate) fn change(&mut self, change: &FlowMod, now: Nanos, log: &mut Log) -> Result<(), OfError> {
        check_table(change)?;
        let matching = accepted(&change.matching, &self.options)?;
        match change.command {
            FlowCommand::Add => self.add(&Wanted::new(change, &matching), now, log)?,
            FlowCommand::Modify | FlowCommand::ModifyStrict => self.modify(change, &matching, now, log)?,
            FlowCommand::Delete | FlowCommand::DeleteStrict => {
                let meant = self.meant(change, &matching);
                self.delete_each(&matching, &meant, now, log);
            }
        }
        self.note_changed(log);
        Ok(())
    }

    /// Adds some of the prepared rules. If one fails, returns its index and the error.
    pub(crate) fn add_all(
        &mut self,
        additions: &Additions,
        range: Range<usize>,
        now: Nanos,
        log: &mut Log,
    ) -> Result<(), (usize, OfError)> {
        let mut at = range.start;
        while at < range.end {
            // Prefetches several rules at once.
            let end = range.end.min(at + AHEAD);
            let places: SmallVec<[_; AHEAD]> = (at..end).map_while(|at| additions.place(at)).collect();
            for (table, matching) in &places {
                if let Some(table) = self.table(*table) {
                    table.rules.prefetch(matching);
                }
            }
            for (n, (_, matching)) in places.iter().enumerate() {
                if let Some(wanted) = additions.wanted(at + n, matching) {
                    let added = check_table(wanted.change).and_then(|()| self.add(&wanted, now, log));
                    added.map_err(|error| (at + n, error))?;
                }
            }
            self.note_changed(log);
            at = end;
        }
        Ok(())
    }

    /// Marks the tables as changed since they were made, if something has changed.
    pub(super) fn note_changed(&mut self, log: &Log) {
        self.builtin &= log.stale.is_empty();
    }

    /// Adds or changes the rule of a learn action. If the rule exists unchanged, only its hard
    /// timeout starts again.
    pub(crate) fn learn(&mut self, learned: &Learned, now: Nanos, log: &mut Log) -> Result<(), OfError> {
        let change = &learned.change;
        let matching = accepted(&change.matching, &self.options)?;
        let number = change.table.unwrap_or(0);
        let known = self
            .table(number)
            .and_then(|table| table.rules.find_strict(&matching, change.priority.into()));
        let Some(id) = known else {
            let cookie = change.new_cookie.unwrap_or(0);
            let limit = learned.limit as usize;
            if limit != 0 && self.count_cookie(number, cookie, limit) >= limit {
                return Ok(());
            }
            return self.change(change, now, log);
        };
        if let Some(rule) = self.table_mut(number).rules.get_mut(id)
            && *rule.instructions == change.instructions
            && Some(rule.cookie) == change.new_cookie
        {
            rule.modified = rule.modified.max(now);
            return Ok(());
        }
        self.change(change, now, log)
    }

    /// Notes the packets that a change affects by one match, if the change covers many rules.
    fn note_stale(&mut self, meant: &[RuleRef], matching: &Match<WORDS>, log: &mut Log) {
        let stale = if self.journal.active {
            &mut self.journal.stale
        } else {
            &mut log.stale
        };
        if meant.len() > 8 {
            let mut tables: Vec<u8> = meant.iter().map(|at| at.table).collect();
            tables.dedup();
            tables.into_iter().for_each(|table| stale.add(table, matching));
        }
    }

    fn add(&mut self, wanted: &Wanted<'_>, now: Nanos, log: &mut Log) -> Result<(), OfError> {
        let Wanted {
            change,
            matching,
            priority,
            cookie,
        } = *wanted;
        let number = change.table.unwrap_or(0);
        self.check(&change.instructions, number)?;
        let table = self.table(number);
        let known = table.and_then(|table| table.rules.find_strict(matching, priority.into()));
        if change.flags.has(FlowFlags::CHECK_OVERLAP)
            && table.is_some_and(|table| table.rules.overlapping_at(matching, priority.into()).is_some())
        {
            return Err(OfError::FmfcOverlap);
        }
        if known.is_none() {
            self.make_room(number, now, log)?;
        }
        let instructions = self.instructions.share(&change.instructions);
        let mut rule = Rule::new(change, instructions, now);
        rule.cookie = cookie;
        let Some(id) = known else {
            return self.add_rule((number, priority), matching, rule, None, log).map(drop);
        };
        let keep = !change.flags.has(FlowFlags::RESET_COUNTS);
        let old = RuleRef { table: number, id };
        if self.removes_by_bundle(old) {
            return self.replace(old, (matching, priority), rule, keep, false);
        }
        let gone = self.take(old);
        if let Some(gone) = gone.as_ref().filter(|_| keep) {
            rule.packets = gone.packets;
            rule.bytes = gone.bytes;
        }
        let before = gone.map(|gone| gone.instructions);
        let new = self.add_rule((number, priority), matching, rule, before, log)?;
        if self.journal.active {
            self.journal.succeed(old, new, keep);
        }
        Ok(())
    }

    fn modify(&mut self, change: &FlowMod, matching: &Match<WORDS>, now: Nanos, log: &mut Log) -> Result<(), OfError> {
        let meant = self.meant(change, matching);
        self.modify_each(change, matching, &meant, now, log)
    }

    /// Applies a modify to the rules that it covers.
    pub(super) fn modify_each(
        &mut self,
        change: &FlowMod,
        matching: &Match<WORDS>,
        meant: &[RuleRef],
        now: Nanos,
        log: &mut Log,
    ) -> Result<(), OfError> {
        if meant.is_empty() {
            // The action names the rule by its contents; another rule's cookie does not change it.
            return match change.new_cookie {
                Some(_) if change.cookie_mask == 0 => self.add(&Wanted::new(change, matching), now, log),
                _ => self.check(&change.instructions, change.table.unwrap_or(0)),
            };
        }
        let last = meant.iter().map(|at| at.table).max().unwrap_or(0);
        self.check(&change.instructions, last)?;
        let instructions = self.instructions.share(&change.instructions);
        self.note_stale(meant, matching, log);
        for at in meant {
            self.change_rule(*at, change, &instructions, now, log)?;
        }
        Ok(())
    }

    /// Removes the rules that a delete covers.
    pub(super) fn delete_each(&mut self, matching: &Match<WORDS>, meant: &[RuleRef], now: Nanos, log: &mut Log) {
        self.note_stale(meant, matching, log);
        for at in meant {
            self.drop_rule(*at, Reason::Delete, now, log);
        }
    }

    fn change_rule(
        &mut self,
        at: RuleRef,
        change: &FlowMod,
        instructions: &Arc<Instructions>,
        now: Nanos,
        log: &mut Log,
    ) -> Result<(), OfError> {
        let Some(entry) = self.table(at.table).and_then(|table| table.rules.entry(at.id)) else {
            return Ok(());
        };
        let (matching, priority) = (entry.matching(), entry.priority as u16);
        let cookie = change.new_cookie.filter(|_| !change.keeps_cookies);
        let cookie = cookie.unwrap_or(entry.rule.cookie);
        let differs = cookie != entry.rule.cookie || !Arc::ptr_eq(instructions, &entry.rule.instructions);
        let reset = change.flags.has(FlowFlags::RESET_COUNTS);
        let change_it = |rule: &mut Rule| {
            rule.cookie = cookie;
            // The hard timeout starts again; the place in the queue is early, which is no harm.
            rule.modified = now;
            rule.used = rule.used.max(now);
            if reset {
                (rule.packets, rule.bytes) = (0, 0);
            }
            std::mem::replace(&mut rule.instructions, instructions.clone())
        };
        if self.removes_by_bundle(at) {
            let mut rule = entry.rule.clone();
            change_it(&mut rule);
            (rule.packets, rule.bytes, rule.queued) = (0, 0, None);
            return self.replace(at, (&matching, priority), rule, !reset, true);
        }
        let Some(rule) = self.there(at.table).and_then(|table| table.rules.get_mut(at.id)) else {
            return Ok(());
        };
        let before = change_it(rule);
        if differs {
            self.refer(at, &before, false);
            self.refer(at, instructions, true);
            self.instructions.release(&before);
        }
        if reset && self.journal.active {
            self.journal.reset.insert(at);
        }
        // Nobody has been notified of the bundle's own rules yet.
        let entry = self.table(at.table).and_then(|table| table.rules.entry(at.id));
        if let Some(entry) = entry.filter(|_| !self.journal.active) {
            log.changed(at, priority, &matching, entry.rule, differs.then_some(before));
        }
        Ok(())
    }

    /// Adds a rule, at once or in the open bundle. It may replace one with the instructions
    /// `before`.
    fn add_rule(
        &mut self,
        (table, priority): (u8, u16),
        matching: &Match<WORDS>,
        mut rule: Rule,
        before: Option<Arc<Instructions>>,
        log: &mut Log,
    ) -> Result<RuleRef, OfError> {
        if self.journal.active {
            rule.span = Span::From(self.journal.versions().1);
        }
        let at = self.put(table, matching, priority, rule)?;
        if self.journal.active {
            self.journal.stale.add(table, matching);
            self.journal.push(Step::Added(at));
        } else if let Some(rule) = self.table(table).and_then(|table| table.rules.get(at.id)) {
            log.came(at, priority, matching, rule, before);
        }
        self.watch_room(table, log);
        Ok(at)
    }

    /// Whether a rule is removed by a bundle, so that packets see it until the commit.
    fn removes_by_bundle(&self, at: RuleRef) -> bool {
        self.journal.active && self.rule(at).is_some_and(|rule| rule.span == Span::Always)
    }

    /// Makes a rule replace another when the open bundle is committed.
    fn replace(
        &mut self,
        old: RuleRef,
        (matching, priority): (&Match<WORDS>, u16),
        mut rule: Rule,
        keep: bool,
        modified: bool,
    ) -> Result<(), OfError> {
        let latest = self.journal.versions().1;
        self.retire(old, latest);
        rule.span = Span::From(latest);
        let new = self.put(old.table, matching, priority, rule)?;
        self.journal.stale.add(old.table, matching);
        self.journal.push(Step::Replaced {
            old,
            new,
            keep,
            modified,
        });
        Ok(())
    }

    fn retire(&mut self, at: RuleRef, version: u32) {
        self.note_evictable(at, false);
        if let Some(table) = self.there(at.table) {
            table.rules.set_span(at.id, Span::Until(version));
        }
    }

    /// Removes a rule, at once or in the open bundle.
    pub(super) fn drop_rule(&mut self, at: RuleRef, reason: Reason, now: Nanos, log: &mut Log) {
        if self.removes_by_bundle(at) {
            let Some(entry) = self.table(at.table).and_then(|table| table.rules.entry(at.id)) else {
                return;
            };
            let matching = entry.matching();
            self.journal.stale.add(at.table, &matching);
            self.journal.push(Step::Removed(at, reason));
            self.retire(at, self.journal.versions().1);
        } else if self.journal.active {
            // The rule was added by this bundle: nobody was notified of it.
            self.take(at);
        } else {
            self.end(at, reason, now, log);
        }
        self.watch_room(at.table, log);
    }

    /// Removes a rule for good and logs it.
    pub(super) fn end(&mut self, at: RuleRef, reason: Reason, now: Nanos, log: &mut Log) {
        let Some(entry) = self.table(at.table).and_then(|table| table.rules.entry(at.id)) else {
            return;
        };
        let (matching, priority) = (entry.matching(), entry.priority as u16);
        if let Some(rule) = self.take(at) {
            log.went(at, priority, &matching, rule, (reason, now));
        }
    }

    /// Whether a rule of a table may have these instructions.
    fn check(&self, instructions: &Instructions, table: u8) -> Result<(), OfError> {
        check::instructions(instructions, table, &self.options)?;
        check::references(instructions, self)
    }

    /// Checks whether a packet may be sent through these actions.
    ///
    /// # Errors
    /// The error of the specification for what is wrong with them.
    pub fn check_actions(&self, actions: &[Action]) -> Result<(), OfError> {
        check::actions_of(actions, &self.options)?;
        check::lists_references(actions, self)
    }

    /// Whether a rule is in the latest version.
    pub(super) fn is_latest(&self, at: RuleRef) -> bool {
        let there = self.table(at.table);
        there.is_some_and(|table| table.rules.get(at.id).is_some_and(|rule| table.rules.is_latest(rule)))
    }

    /// The rules that a modify or delete covers.
    fn meant(&self, change: &FlowMod, matching: &Match<WORDS>) -> Vec<RuleRef> {
        let condition = Condition::of_change(change, *matching);
        let strict = matches!(change.command, FlowCommand::ModifyStrict | FlowCommand::DeleteStrict);
        let mut meant = Vec::new();
        for (number, table) in self.chosen(change.table) {
            let found = if strict {
                let found = table.rules.find_strict(matching, change.priority.into());
                found.into_iter().collect()
            } else {
                table.rules.covered_by(matching)
            };
            let accepted = |id: &_| table.rules.get(*id).is_some_and(|rule| condition.accepts(rule));
            let found = found.into_iter().filter(accepted);
            meant.extend(found.map(|id| RuleRef { table: number, id }));
        }
        meant
    }
}

/// Checks the table number of a flow-mod.
fn check_table(change: &FlowMod) -> Result<(), OfError> {
    match change.table {
        // The switch's hidden table.
        Some(TABLES) => Err(OfError::BrcEperm),
        Some(table) if table > TABLES => Err(OfError::BrcBadTableId),
        _ => Ok(()),
    }
}
