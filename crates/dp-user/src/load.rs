//! Load of workers and queues, in cycles of the processor's clock.

use crate::stats::Counter;
use std::array;

/// What a worker has done since it began. A *turn* is one poll round over everything that may be
/// ready.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct WorkerLoad {
    pub(crate) packets: Counter,
    pub(crate) turns: Counter,
    /// Turns that received packets, and their cycles.
    pub(crate) busy_turns: Counter,
    pub(crate) busy_cycles: Counter,
    /// Turns that waited first, and for how long.
    pub(crate) sleeps: Counter,
    pub(crate) sleep_cycles: Counter,
    /// The longest turn in cycles, without its wait. [`WorkerLoad::clear`] sets it to 0.
    pub(crate) longest: Counter,
    /// Turns by the cycles that they took.
    times: Times,
}

/// Powers of two, and steps in each: 128 cycles to a minute.
const POWERS: usize = 32;
const STEPS: usize = 4;
const SHORTEST: u32 = 7;

/// Histogram of the turns' durations, in steps of at most a quarter.
struct Times([Counter; POWERS * STEPS]);

impl Default for Times {
    fn default() -> Times {
        Times(array::from_fn(|_| Counter::default()))
    }
}

/// A copy of the histogram's counts.
pub(crate) type TimesRead = [u64; POWERS * STEPS];

impl WorkerLoad {
    /// Counts a turn and its received packets.
    #[inline]
    pub(crate) fn turn(&self, packets: usize, cycles: u64) {
        self.turns.add(1);
        if packets > 0 {
            self.packets.add(packets as u64);
            self.busy_turns.add(1);
            self.busy_cycles.add(cycles);
        }
    }

    /// Counts the time from one turn's end to the next one's, without the wait between them.
    #[inline]
    pub(crate) fn gap(&self, cycles: u64) {
        self.times.0[step_of(cycles)].add(1);
        if cycles > self.longest.get() {
            self.longest.set(cycles);
        }
    }

    /// Counts a wait.
    #[inline]
    pub(crate) fn slept(&self, cycles: u64) {
        self.sleeps.add(1);
        self.sleep_cycles.add(cycles);
    }

    /// Forgets the longest turn. This is for other threads to call: a turn that ends at the same
    /// time may be counted on either side.
    pub(crate) fn clear(&self) {
        self.longest.set(0);
    }

    /// The histogram of the turns' durations.
    pub(crate) fn times(&self) -> TimesRead {
        array::from_fn(|step| self.times.0[step].get())
    }
}

/// The step of a number of cycles.
#[inline]
fn step_of(cycles: u64) -> usize {
    let cycles = cycles.max(1 << SHORTEST);
    let power = cycles.ilog2();
    let step = (cycles >> (power - 2)) as usize % STEPS;
    ((power - SHORTEST) as usize * STEPS + step).min(POWERS * STEPS - 1)
}

/// The cycles that at most one in `1 / share` of the turns since `before` took longer than, rounded
/// up to a step.
pub(crate) fn quantile(times: &TimesRead, before: &TimesRead, share: f64) -> u64 {
    let since = |step: usize| times[step].saturating_sub(before[step]);
    let turns: u64 = (0..POWERS * STEPS).map(since).sum();
    let mut longer = (turns as f64 * share) as u64;
    for step in (0..POWERS * STEPS).rev() {
        match longer.checked_sub(since(step)) {
            Some(left) if left > 0 || since(step) == 0 => longer = left,
            _ => return ((STEPS + step % STEPS + 1) as u64) << (step / STEPS + SHORTEST as usize - 2),
        }
    }
    0
}

/// Cycles spent on a receive queue since it was opened, for all stages of its packets. The worker
/// that serves the queue writes it.
#[derive(Default)]
pub(crate) struct QueueLoad {
    pub(crate) cycles: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_turn_and_the_thousandth_longest_are_known() {
        let load = WorkerLoad::default();
        let before = load.times();
        assert_eq!(quantile(&before, &before, 0.001), 0);
        (0..9_980).for_each(|_| load.gap(1_000));
        (0..19).for_each(|_| load.gap(50_000));
        load.gap(7_000_000);
        assert_eq!(load.longest.get(), 7_000_000);
        let read = |share| quantile(&load.times(), &before, share);
        assert!((50_000..=62_500).contains(&read(0.001)), "{}", read(0.001));
        assert!((1_000..=1_250).contains(&read(0.01)), "{}", read(0.01));
        assert!(read(0.00001) >= 7_000_000);
        let before = load.times();
        load.clear();
        load.gap(1_000);
        assert_eq!(load.longest.get(), 1_000);
        assert!(quantile(&load.times(), &before, 0.001) <= 1_250);
    }

    #[test]
    fn every_time_has_a_step() {
        for (cycles, step) in [
            (0, 0),
            (128, 0),
            (159, 0),
            (160, 1),
            (256, 4),
            (u64::MAX, POWERS * STEPS - 1),
        ] {
            assert_eq!(step_of(cycles), step, "{cycles}");
        }
    }
}
