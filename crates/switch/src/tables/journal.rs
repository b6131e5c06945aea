//! Bundles: packets see all changes of a bundle at once, or none.
//!
//! Between [`FlowTables::open`] and [`FlowTables::commit`] or [`FlowTables::abort`], changes made
//! with [`FlowTables::in_bundle`] set belong to a new version that lookups do not see yet.
//! [`FlowTables::settle`] then cleans up, in as many steps as the caller likes. Other changes
//! meanwhile (rules expire, `learn` adds rules) take effect at once; to the bundle they look as if
//! they came after it.

use super::selection::GroupChange;
use super::update::Log;
use super::{FlowTables, Reason, RuleRef, Span, Stale};
use nanos::Nanos;
use openflow::model::Instructions;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A change of a bundle.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The bundle adds a rule.
    Added(RuleRef),
    /// The bundle removes a rule.
    Removed(RuleRef, Reason),
    /// The bundle replaces a rule.
    Replaced {
        old: RuleRef,
        new: RuleRef,
        /// Whether the new rule keeps the old one's counters.
        keep: bool,
        /// Whether this modifies the old rule, instead of adding another.
        modified: bool,
    },
}

/// The changes of a bundle, and the work that is left to settle.
#[derive(Debug, Default)]
pub(super) struct Journal {
    committed: u32,
    /// Higher than `committed` while a bundle is open.
    latest: u32,
    /// The last version that was used.
    last: u32,
    pub(super) active: bool,
    /// The steps that are not settled yet.
    steps: Steps,
    /// Whether the bundle was aborted.
    aborted: bool,
    /// The packets that the bundle's changes affect.
    pub(super) stale: Stale,
    /// Rules of the bundle that a later change in it has reset: their counters start at zero.
    pub(super) reset: BTreeSet<RuleRef>,
    /// Rules of the bundle that another rule of it has taken the place of, with that one.
    pub(super) succeeded: BTreeMap<RuleRef, RuleRef>,
}

/// Steps in chunks, so that neither growing nor freeing the list touches megabytes at once.
#[derive(Debug, Default)]
struct Steps {
    chunks: VecDeque<VecDeque<Step>>,
}

/// Steps of a chunk.
const CHUNK: usize = 1024;

impl Steps {
    fn push(&mut self, step: Step) {
        if let Some(last) = self.chunks.back_mut().filter(|last| last.len() < CHUNK) {
            return last.push_back(step);
        }
        let mut chunk = VecDeque::with_capacity(CHUNK);
        chunk.push_back(step);
        self.chunks.push_back(chunk);
    }

    fn pop_first(&mut self) -> Option<Step> {
        let first = self.chunks.front_mut()?;
        let step = first.pop_front();
        if first.is_empty() {
            self.chunks.pop_front();
        }
        step
    }

    fn pop_last(&mut self) -> Option<Step> {
        let last = self.chunks.back_mut()?;
        let step = last.pop_back();
        if last.is_empty() {
            self.chunks.pop_back();
        }
        step
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

impl Journal {
    /// The committed version, which packets see, and the latest one, which changes see.
    pub(super) fn versions(&self) -> (u32, u32) {
        (self.committed, self.latest)
    }

    pub(super) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Notes that a rule of the bundle takes the place of another; `keep` says whether it keeps the
    /// counters.
    pub(super) fn succeed(&mut self, old: RuleRef, new: RuleRef, keep: bool) {
        if self.reset.remove(&old) || !keep {
            self.reset.insert(new);
        }
        self.succeeded.insert(old, new);
    }
}

impl FlowTables {
    /// Opens a bundle. Settles an earlier one first.
    pub(crate) fn open(&mut self, log: &mut Log, now: Nanos) {
        while !self.settle(usize::MAX, log, now) {}
        self.journal.last += 1;
        self.journal.latest = self.journal.last;
        self.journal.reset.clear();
        self.journal.succeeded.clear();
        self.set_versions();
    }

    /// Whether a bundle is open.
    pub(crate) fn has_bundle(&self) -> bool {
        self.journal.latest > self.journal.committed
    }

    /// Sets whether further changes belong to the bundle. Without an open bundle they do not.
    pub(crate) fn in_bundle(&mut self, active: bool) {
        self.journal.active = active && self.journal.latest > self.journal.committed;
    }

    /// Commits the bundle: packets see its changes. Returns what changes of groups.
    pub(crate) fn commit(&mut self, log: &mut Log) -> Vec<GroupChange> {
        self.journal.active = false;
        self.journal.committed = self.journal.latest;
        self.builtin &= self.journal.steps.is_empty();
        self.set_versions();
        log.stale.extend(&std::mem::take(&mut self.journal.stale));
        self.groups.commit()
    }

    /// Drops the changes of the bundle.
    pub(crate) fn abort(&mut self) {
        self.journal.active = false;
        self.journal.latest = self.journal.committed;
        self.journal.aborted = true;
        self.journal.stale = Stale::default();
        self.set_versions();
        self.groups.abort();
    }

    /// Does up to `most` steps of the work that is left after a bundle. Returns whether all is
    /// done. The commit has already reported what is stale.
    pub(crate) fn settle(&mut self, most: usize, log: &mut Log, now: Nanos) -> bool {
        for _ in 0..most {
            let step = match self.journal.aborted {
                true => self.journal.steps.pop_last(),
                // An open bundle is not settled.
                false if self.has_bundle() => return self.journal.steps.is_empty(),
                false => self.journal.steps.pop_first(),
            };
            match step {
                Some(step) if self.journal.aborted => self.undo(step),
                Some(step) => self.finish(step, log, now),
                None => break,
            }
        }
        let done = self.journal.steps.is_empty();
        self.journal.aborted &= !done;
        done
    }

    fn set_versions(&mut self) {
        let (committed, latest) = self.journal.versions();
        for table in self.tables.iter_mut().flatten() {
            table.rules.set_versions(committed, latest);
        }
    }

    fn finish(&mut self, step: Step, log: &mut Log, now: Nanos) {
        match step {
            Step::Added(at) => {
                self.set_span(at, Span::Always);
                self.tell_came(at, None, log);
            }
            Step::Removed(at, reason) => {
                if self.span(at).is_some_and(|span| span != Span::Always) {
                    self.end(at, reason, now, log);
                }
            }
            Step::Replaced {
                old,
                new,
                keep,
                modified,
            } => {
                let (mut new, mut succeeded) = (new, false);
                while let Some(next) = self.journal.succeeded.remove(&new) {
                    (new, succeeded) = (next, true);
                }
                if self.span(new).is_none() {
                    // A later change of the bundle has removed it.
                    return self.finish(Step::Removed(old, Reason::Delete), log, now);
                }
                let gone = self
                    .span(old)
                    .filter(|span| *span != Span::Always)
                    .and_then(|_| self.take(old));
                self.set_span(new, Span::Always);
                // If the old rule ended meanwhile, it sends nowhere.
                let mut before = Some(Arc::default());
                let was_reset = self.journal.reset.remove(&new);
                let rule = self.there(new.table).and_then(|table| table.rules.get_mut(new.id));
                if let (Some(gone), Some(rule)) = (gone, rule) {
                    let differs = gone.cookie != rule.cookie || gone.instructions != rule.instructions;
                    if keep && !was_reset {
                        rule.credit(gone.packets, gone.bytes, gone.used);
                    }
                    before = (differs || !modified).then_some(gone.instructions);
                }
                if succeeded {
                    // Its own step tells of it.
                } else if modified {
                    self.tell_changed(new, before, log);
                } else {
                    self.tell_came(new, before, log);
                }
            }
        }
    }

    fn undo(&mut self, step: Step) {
        let (came, went) = match step {
            Step::Added(at) => (Some(at), None),
            Step::Removed(at, _) => (None, Some(at)),
            Step::Replaced { old, new, .. } => (Some(new), Some(old)),
        };
        if let Some(at) = came.filter(|at| matches!(self.span(*at), Some(Span::From(_)))) {
            self.take(at);
        }
        if let Some(at) = went.filter(|at| matches!(self.span(*at), Some(Span::Until(_)))) {
            if self.has_twin(at) {
                self.take(at);
            } else {
                self.set_span(at, Span::Always);
                self.note_evictable(at, true);
            }
        }
    }

    /// Whether a rule was added meanwhile with the match and priority of one that the aborted
    /// bundle was to remove.
    fn has_twin(&self, at: RuleRef) -> bool {
        let Some(table) = self.table(at.table) else {
            return false;
        };
        let Some(entry) = table.rules.entry(at.id) else {
            return false;
        };
        let twin = table
            .rules
            .find_strict_where(&entry.matching(), entry.priority, |rule| rule.span == Span::Always);
        twin.is_some()
    }

    fn span(&self, at: RuleRef) -> Option<Span> {
        self.rule(at).map(|rule| rule.span)
    }

    fn set_span(&mut self, at: RuleRef, span: Span) {
        if let Some(table) = self.there(at.table) {
            table.rules.set_span(at.id, span);
        }
    }

    fn tell_came(&self, at: RuleRef, before: Option<Arc<Instructions>>, log: &mut Log) {
        if !log.monitored && !log.everything {
            return;
        }
        if let Some(entry) = self.table(at.table).and_then(|table| table.rules.entry(at.id)) {
            log.came(at, entry.priority as u16, &entry.matching(), entry.rule, before);
        }
    }

    fn tell_changed(&self, at: RuleRef, before: Option<Arc<Instructions>>, log: &mut Log) {
        if !log.monitored && !log.everything {
            return;
        }
        if let Some(entry) = self.table(at.table).and_then(|table| table.rules.entry(at.id)) {
            log.changed(at, entry.priority as u16, &entry.matching(), entry.rule, before);
        }
    }
}
