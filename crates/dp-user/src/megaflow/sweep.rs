//! Ageing: removes idle megaflows, and repeats the learning effects of the used ones.

use super::FlowTable;
use super::storage::DEAD;
use dp::Effect;
use nanos::Nanos;
use std::time::Duration;

/// As long as this a pass may take.
const PERIOD: Duration = Duration::from_secs(1);

/// A pass over the table that takes longer than this has too many megaflows to look at.
const LONG: Duration = Duration::from_millis(1300);

/// As long as this a step of a pass counts at most: a thread that has not come to the next one for
/// longer was stopped, and not busy.
const STOPPED: Duration = Duration::from_millis(250);

/// Megaflows checked in a step: packets wait meanwhile, some ten microseconds if all of them are
/// removed.
const PIECE: u32 = 64;

/// Pieces in one step, if the worker sweeps so seldom that a pass would take longer than
/// [`PERIOD`].
const CATCH_UP: usize = 8;

/// The limit on megaflows that long passes do not bring below.
const LEAST: usize = 1000;

/// State of the sweep.
pub(super) struct Sweep {
    /// Idle timeout.
    idle: Duration,
    /// Shortest time from one pass over the table to the next.
    period: Duration,
    /// The next place to look at, while a pass is under way.
    cursor: Option<u32>,
    /// Start of the last pass.
    began: Nanos,
    /// Time of the last step, and how long the pass had taken by then.
    step: (Nanos, Duration),
    /// Start of the next pass.
    due: Nanos,
    /// Whether packets may have passed since the last pass began.
    traffic: bool,
    /// Last use of the least recently used megaflow that this pass kept.
    oldest: Nanos,
    /// Duration of the last pass.
    took: Duration,
}

impl Sweep {
    pub(super) fn new(idle: Duration) -> Sweep {
        Sweep {
            idle,
            period: crate::options::AGEING_PERIOD,
            cursor: None,
            began: Nanos::ZERO,
            step: (Nanos::ZERO, Duration::ZERO),
            due: Nanos::ZERO,
            traffic: false,
            oldest: Nanos::MAX,
            took: Duration::ZERO,
        }
    }

    /// Changes these times, from a pass on that is due at once.
    pub(super) fn set_times(&mut self, idle: Duration, period: Duration) {
        self.idle = idle;
        self.period = period;
        self.due = Nanos::ZERO;
    }

    /// Notes that a megaflow was used or made.
    #[inline]
    pub(super) fn traffic(&mut self) {
        if !self.traffic {
            self.traffic = true;
            self.due = self.due.min(self.began + self.period);
        }
    }

    /// Breaks off the pass under way: the table is empty.
    pub(super) fn restart(&mut self) {
        self.cursor = None;
    }
}

impl FlowTable {
    /// Notes that packets were carried by megaflows.
    #[inline]
    pub(crate) fn traffic(&mut self) {
        self.sweep.traffic();
    }

    /// Time of the next call of [`FlowTable::sweep`]: at once in the middle of a pass, never if the
    /// table is empty.
    pub(crate) fn next_sweep(&self) -> Option<Nanos> {
        if self.sweep.cursor.is_some() {
            return Some(Nanos::ZERO);
        }
        (self.len() > 0).then_some(self.sweep.due)
    }

    /// Checks the next few megaflows if a pass is due. Removes idle ones, and adds to `effects`
    /// those of the ones used since the last pass.
    pub(crate) fn sweep(&mut self, now: Nanos, effects: &mut Vec<Effect>) {
        let first = match self.sweep.cursor {
            Some(first) => first,
            None if self.len() > 0 && self.sweep.due <= now => {
                self.sweep.began = now;
                self.sweep.step = (now, Duration::ZERO);
                self.sweep.traffic = false;
                self.sweep.oldest = Nanos::MAX;
                self.subtables.rank();
                self.begin_ageing();
                0
            }
            None => return,
        };
        let (last, took) = self.sweep.step;
        self.sweep.step = (now, took + now.since(last).min(STOPPED));
        if self.age_offloaded(now) {
            self.sweep.cursor = Some(first);
            return;
        }
        let mut next = Some(first);
        for _ in 0..CATCH_UP {
            let Some(first) = next else { break };
            next = self.sweep_piece(first, now, effects);
            if next.is_some_and(|next| self.is_on_time(next)) {
                break;
            }
        }
        self.sweep.cursor = next;
        if next.is_none() {
            self.finish_pass(now);
        }
    }

    /// Looks at a few megaflows from `first` on, and returns where to go on.
    fn sweep_piece(&mut self, first: u32, now: Nanos, effects: &mut Vec<Effect>) -> Option<u32> {
        let (numbers, next) = self.storage.chunk_from(first);
        let end = numbers.end.min(first + PIECE);
        for number in first..end {
            self.age(number, now, effects);
        }
        self.storage.release(first);
        if end < numbers.end { Some(end) } else { next }
    }

    /// Whether a pass that is at `next` will end within [`PERIOD`] at its present speed.
    fn is_on_time(&self, next: u32) -> bool {
        let share = f64::from(next) / f64::from(self.storage.places().max(1));
        self.sweep.step.1.as_secs_f64() <= share * PERIOD.as_secs_f64()
    }

    fn age(&mut self, number: u32, now: Nanos, effects: &mut Vec<Effect>) {
        let idle = self.sweep.idle;
        let flow = self.storage.flow_mut(number);
        if flow.subtable == DEAD {
            return;
        }
        let used = flow.used;
        let touched = std::mem::take(&mut flow.touched);
        // The other part of a megaflow is stored apart, and to read it takes longer than all the
        // rest.
        let news = touched | std::mem::take(&mut flow.fresh);
        if touched {
            effects.extend_from_slice(&self.storage.origin(number).effects);
        }
        if news {
            self.storage.note(number, &mut self.credits);
        }
        if now.since(used) >= idle {
            self.remove(number);
        } else {
            self.sweep.oldest = self.sweep.oldest.min(used);
        }
    }

    /// Duration of the last pass over the table.
    pub(crate) fn pass_took(&self) -> Duration {
        self.sweep.took
    }

    /// Lowers the limit of megaflows after a pass that took long, as happens if the worker has
    /// little time, and raises it again, up to the configured one, after others: a long pass delays
    /// ageing and the report of counters.
    fn adapt(&mut self) {
        let took = self.sweep.took;
        self.limit = if took > LONG {
            let ratio = PERIOD.as_secs_f64() / took.as_secs_f64();
            ((self.len() as f64 * ratio) as usize).max(LEAST).min(self.limit)
        } else {
            let more = (self.limit / 8).max(LEAST);
            let fits = took < PERIOD && self.len() + more > self.limit;
            self.limit + if fits { more } else { 0 }
        };
        self.limit = self.limit.min(self.most);
    }

    fn finish_pass(&mut self, now: Nanos) {
        self.sweep.took = self.sweep.step.1;
        self.adapt();
        if self.len() == 0 {
            // Nothing is left to be freed by parts.
            self.clear();
        }
        let soonest = self.sweep.began + self.sweep.period;
        // The worker does not see packets of offloaded flows.
        self.sweep.due = if self.sweep.traffic || self.offloaded.any() {
            soonest
        } else {
            // Without packets, the next megaflow to expire is the least recently used one.
            soonest.max(self.sweep.oldest + self.sweep.idle).max(now)
        };
    }
}
