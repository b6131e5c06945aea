//! The budget of a translation: the work that one packet may cost in tables, groups and bridges.
//!
//! Every step spends *work* from one [`Budget`]: lookups, actions, buckets, copies, ports, learned
//! rules, contexts. A unit takes 1 to 13 ns on a machine of 2023 (`benches/work.rs` measures it).
//! Work is counted, not measured: the same packet and tables need the same work on every machine.
//!
//! The other limits are Open vSwitch's, and some protect the stack. A packet that needs more is
//! dropped as a whole under [`DropCause::TranslationLimit`](dp::DropCause::TranslationLimit). If a
//! bridge with rules sends the packet through a patch port and a limit of depth or lookups is
//! reached behind it, only the copy behind the patch port ends.
//!
//! [`Patience`] is how long the caller waits. It never changes the result: a translation that needs
//! more patience has no result, and the caller asks again with more.

use std::fmt;

/// Depth of nested lookups of the same or an earlier table, groups and patch ports.
pub(crate) const MAX_DEPTH: u32 = 64;
/// Lookups after the first one.
pub(crate) const MAX_LOOKUPS: u32 = 4096;
/// Datapath actions after which there are no more lookups, groups and copies: Open vSwitch has room
/// for as many in 64 kB.
pub(crate) const MAX_ACTIONS: usize = 8192;
/// Datapath actions in all.
const MOST_ACTIONS: usize = 4 * MAX_ACTIONS;
/// Depth of nested lookups, also of later tables, and copies: the stack of a worker has room for so
/// many. Open vSwitch allows as many as lookups.
const MAX_NESTED: u32 = 320;
/// Entries of the stack of `push`; Open vSwitch has no bound.
const MAX_STACK: usize = 4096;
/// Depth of nested branches by length.
const MAX_FORKS: u32 = 8;
/// Total work.
pub(crate) const MAX_WORK: u32 = 1 << 20;
/// Work between two checks whether a thread waits for the tables.
const POLL: u32 = 1024;

/// The cost of steps, in units of work.
pub(crate) mod cost {
    /// An action of a list.
    pub(crate) const ACTION: usize = 4;
    /// A lookup, without that of its subtables.
    pub(crate) const LOOKUP: usize = 32;
    /// A subtable of the table that is looked up.
    pub(crate) const SUBTABLE: usize = 2;
    /// A copy of the packet: for a bucket, a clone, a patch port.
    pub(crate) const COPY: usize = 32;
    /// An output to a device, with the header changes before it.
    pub(crate) const OUTPUT: usize = 8;
    /// A port that a flood, a bundle or a watching bucket examines.
    pub(crate) const PORT: usize = 4;
    /// A learned rule.
    pub(crate) const LEARN: usize = 128;
    /// A context.
    pub(crate) const KEEP: usize = 64;
}

/// How long the caller of a translation waits.
#[derive(Clone, Copy, Default)]
pub enum Patience<'a> {
    /// Until it is done.
    #[default]
    Whole,
    /// For this much work.
    Work(u32),
    /// Until this says `true`. It is asked often, and must not take long.
    Until(&'a dyn Fn() -> bool),
}

/// A limit of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Depth of lookups, groups and patch ports.
    Depth,
    /// Lookups.
    Lookups,
    /// Depth of nested lookups and copies.
    Nested,
    /// Depth of branches by length.
    Forks,
    /// Entries of the stack of `push`.
    Stack,
    /// Datapath actions.
    Actions,
    /// Handles of contexts. Only actions that need a new handle are left out.
    Handles,
    /// Work.
    Work,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Depth => write!(f, "over max translation depth {MAX_DEPTH}"),
            Limit::Lookups => write!(f, "over {MAX_LOOKUPS} resubmit actions"),
            Limit::Nested => write!(f, "over {MAX_NESTED} lookups and copies within each other"),
            Limit::Forks => write!(f, "over {MAX_FORKS} check_pkt_larger actions within each other"),
            Limit::Stack => write!(f, "over {MAX_STACK} entries of the stack"),
            Limit::Actions => write!(f, "resubmits yielded over 64 kB of actions"),
            Limit::Handles => write!(
                f,
                "no room for more handles of recirculations, controller actions and learned rules"
            ),
            Limit::Work => write!(f, "over {MAX_WORK} units of work (lookups, buckets, copies, actions)"),
        }
    }
}

/// The limit that a packet reached, and the bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RanOut {
    /// The bridge, by its number in the switch.
    pub bridge: u32,
    /// What ran out there.
    pub limit: Limit,
}

/// Why a translation ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A limit is reached.
    Limit(Limit),
    /// The caller's patience is over.
    Patience,
}

/// What a translation has spent.
pub(crate) struct Budget<'a> {
    patience: Patience<'a>,
    work: u32,
    /// The work at which [`Budget::review`] is due.
    until: u32,
    lookups: u32,
    depth: u32,
    nested: u32,
    forks: u32,
    /// The first limit that it reached.
    ran_out: Option<RanOut>,
    /// The translation ends: the work is spent, or the caller's patience is over.
    ended: bool,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(patience: Patience<'a>) -> Budget<'a> {
        let until = match patience {
            Patience::Whole => MAX_WORK,
            Patience::Work(work) => work.min(MAX_WORK),
            Patience::Until(_) => POLL,
        };
        Budget {
            patience,
            work: 0,
            until,
            lookups: 0,
            depth: 0,
            nested: 0,
            forks: 0,
            ran_out: None,
            ended: false,
        }
    }

    /// The work spent.
    pub(crate) fn work(&self) -> u32 {
        self.work
    }

    /// The first limit that was reached.
    pub(crate) fn ran_out(&self) -> Option<RanOut> {
        self.ran_out
    }

    /// Whether the translation ends, in all bridges.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether it ended because the caller's patience was over.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.ended && self.ran_out.is_none_or(|reached| reached.limit != Limit::Work)
    }

    /// Notes a limit that was reached in a bridge.
    pub(crate) fn note(&mut self, bridge: u32, limit: Limit) {
        let reached = RanOut { bridge, limit };
        if limit == Limit::Work {
            self.ran_out = Some(reached);
        }
        self.ran_out.get_or_insert(reached);
    }

    /// Spends work.
    #[inline]
    pub(crate) fn spend(&mut self, work: usize) -> Result<(), Stop> {
        self.work = self.work.saturating_add(u32::try_from(work).unwrap_or(u32::MAX));
        if self.work <= self.until { Ok(()) } else { self.review() }
    }

    #[cold]
    fn review(&mut self) -> Result<(), Stop> {
        if self.work > MAX_WORK {
            self.ended = true;
            return Err(Stop::Limit(Limit::Work));
        }
        let waits = match self.patience {
            Patience::Whole => true,
            Patience::Work(_) => false,
            Patience::Until(is_over) => !is_over(),
        };
        if !waits || self.ended {
            self.ended = true;
            return Err(Stop::Patience);
        }
        self.until = self.work.saturating_add(POLL).min(MAX_WORK);
        Ok(())
    }

    /// Whether there may be another lookup, which is then counted.
    pub(crate) fn look_up(&mut self) -> Result<(), Stop> {
        if self.lookups > MAX_LOOKUPS {
            return Err(Stop::Limit(Limit::Lookups));
        }
        self.lookups += 1;
        Ok(())
    }

    /// Whether there may be so many levels more, which are then entered.
    pub(crate) fn deeper(&mut self, levels: u32) -> Result<(), Stop> {
        if self.depth + levels > MAX_DEPTH {
            return Err(Stop::Limit(Limit::Depth));
        }
        self.depth += levels;
        Ok(())
    }

    /// Enters levels for which there was room.
    pub(crate) fn sink(&mut self, levels: u32) {
        self.depth += levels;
    }

    /// Leaves levels.
    pub(crate) fn shallower(&mut self, levels: u32) {
        self.depth -= levels;
    }

    /// Whether there is room for one more call within calls, which is then taken.
    pub(crate) fn nest(&mut self) -> Result<(), Stop> {
        if self.nested == MAX_NESTED {
            return Err(Stop::Limit(Limit::Nested));
        }
        self.nested += 1;
        Ok(())
    }

    /// Ends a call.
    pub(crate) fn unnest(&mut self) {
        self.nested -= 1;
    }

    /// Whether there may be a decision by length, which then begins.
    pub(crate) fn fork(&mut self) -> Result<(), Stop> {
        if self.forks == MAX_FORKS {
            return Err(Stop::Limit(Limit::Forks));
        }
        self.forks += 1;
        Ok(())
    }

    /// Ends it.
    pub(crate) fn join(&mut self) {
        self.forks -= 1;
    }

    /// Whether a stack of so many entries has room for another.
    pub(crate) fn has_room_on(stack: usize) -> Result<(), Stop> {
        if stack >= MAX_STACK {
            return Err(Stop::Limit(Limit::Stack));
        }
        Ok(())
    }

    /// Whether so many datapath actions are few enough.
    pub(crate) fn has_room_for(actions: usize) -> Result<(), Stop> {
        if actions > MOST_ACTIONS {
            return Err(Stop::Limit(Limit::Actions));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_at_its_limit_and_for_good() {
        let mut budget = Budget::new(Patience::Whole);
        assert_eq!(budget.spend(MAX_WORK as usize), Ok(()));
        assert_eq!(budget.spend(1), Err(Stop::Limit(Limit::Work)));
        budget.note(1, Limit::Work);
        assert!(budget.has_ended() && !budget.is_unfinished());
        assert_eq!(budget.spend(0), Err(Stop::Limit(Limit::Work)));
        assert_eq!(budget.spend(usize::MAX), Err(Stop::Limit(Limit::Work)));
    }

    #[test]
    fn a_caller_who_waits_for_little_work_gets_nothing_beyond_it() {
        let mut budget = Budget::new(Patience::Work(100));
        assert_eq!(budget.spend(100), Ok(()));
        assert_eq!(budget.spend(1), Err(Stop::Patience));
        assert!(budget.has_ended() && budget.is_unfinished());
    }

    #[test]
    fn a_caller_can_end_a_translation_at_any_time() {
        let asked = std::cell::Cell::new(0);
        let is_over = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let mut budget = Budget::new(Patience::Until(&is_over));
        let done = (0..100_000).take_while(|_| budget.spend(1).is_ok()).count();
        assert!((2 * POLL as usize..4 * POLL as usize).contains(&done), "{done}");
        assert!(budget.is_unfinished());
        assert_eq!((budget.spend(0), asked.get()), (Err(Stop::Patience), 4));
    }
}
