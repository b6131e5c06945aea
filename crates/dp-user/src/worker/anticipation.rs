//! When a worker that sleeps should be awake already, because packets have come at even distances.
//!
//! To wake a thread takes longer than to switch its packet. Speech, control loops, keep-alives and pings come like clockwork: after a few of them a
//! worker knows when the next is due, sleeps until shortly before, and looks for it without sleeping.
//!
//! Bounds
//! - It looks for packets in at most one part in [`SHARE`] of the time, and [`LONGEST`] at a stretch.
//! - Where one does not come when it was due, the worker sleeps until another comes: a switch without traffic sleeps.

use std::time::Duration;
use wire::Nanos;

/// Packets within this time are one arrival: a request and its answer.
const TOGETHER: Duration = Duration::from_micros(300);

/// A worker is awake for at most one part in so many of the time between two arrivals.
const SHARE: u64 = 16;

/// Longest time to look for packets, whatever the time between them.
const LONGEST: u64 = 2_000_000;

/// What a timer and the processor's way out of its sleep take, in nanoseconds, before a thread runs.
const WAKING: u64 = 80_000;

/// Arrivals that came when they were due, less twice those that did not, before one is waited for.
const CONFIDENT: u32 = 4;

/// Highest count of them.
const CERTAIN: u32 = 16;

/// The distances of arrivals, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct Anticipation {
    /// When the last arrival began.
    begun: Nanos,
    /// When the last packet came.
    last: Nanos,
    /// Time between arrivals, a moving average, in nanoseconds.
    distance: u64,
    /// How far arrivals are from when they were due, a moving average, in nanoseconds.
    error: u64,
    /// Arrivals that were regular, up to [`CERTAIN`], halved by each that was not.
    regular: u32,
    /// The one that was due did not come.
    missed: bool,
}

impl Anticipation {
    /// Packets came.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Nanos) {
        let pause = now.since(self.last);
        self.last = now;
        if pause >= TOGETHER {
            self.began(now);
        }
    }

    fn began(&mut self, now: Nanos) {
        let distance = nanos(now.since(self.begun));
        self.begun = now;
        let off = distance.abs_diff(self.distance);
        self.missed = false;
        if off <= self.distance / (2 * SHARE) {
            self.regular = (self.regular + 1).min(CERTAIN);
            self.distance = (7 * self.distance + distance) / 8;
            self.error = (7 * self.error + off) / 8;
        } else if self.regular >= CONFIDENT {
            // One out of time does not change the beat.
            self.regular /= 2;
        } else {
            *self = Anticipation {
                begun: now,
                last: now,
                distance,
                ..Anticipation::default()
            };
        }
    }

    /// How long to sleep at most for the next arrival, zero while it is due; `None` where none is foreseen.
    pub(crate) fn sleep(&mut self, now: Nanos) -> Option<Duration> {
        if self.regular < CONFIDENT || self.missed {
            return None;
        }
        let half = 2 * self.error + WAKING;
        if half > (self.distance / SHARE).min(LONGEST) / 2 {
            return None;
        }
        let since = nanos(now.since(self.begun));
        if since > self.distance + half {
            self.missed = true;
            return None;
        }
        Some(Duration::from_nanos((self.distance - half).saturating_sub(since)))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Arrivals at these times, in nanoseconds.
    fn after(times: impl IntoIterator<Item = u64>) -> Anticipation {
        let mut anticipation = Anticipation::default();
        for time in times {
            anticipation.arrived(Nanos(time));
            // The answer.
            anticipation.arrived(Nanos(time + 40_000));
        }
        anticipation
    }

    #[test]
    fn even_arrivals_are_waited_for_shortly_before_they_are_due() {
        let mut anticipation = after((1..=8).map(|n| n * 10 * MS));
        let sleep = anticipation.sleep(Nanos(80 * MS + 50_000)).unwrap();
        assert_eq!(sleep, Duration::from_nanos(10 * MS - 50_000 - WAKING));
        assert_eq!(anticipation.sleep(Nanos(90 * MS - 10)), Some(Duration::ZERO));
        assert_eq!(anticipation.sleep(Nanos(90 * MS + 10)), Some(Duration::ZERO));
    }

    #[test]
    fn one_out_of_time_changes_neither_the_beat_nor_the_trust_in_it() {
        let mut anticipation = after((1..=20).map(|n| n * 10 * MS + if n > 15 { 4 * MS } else { 0 }));
        assert!(anticipation.sleep(Nanos(204 * MS + 50_000)).is_some());
    }

    #[test]
    fn a_new_beat_is_learned() {
        let mut anticipation = after(
            (1..=20)
                .map(|n| n * 10 * MS)
                .chain((1..=12).map(|n| 200 * MS + n * 33 * MS)),
        );
        let sleep = anticipation.sleep(Nanos(596 * MS + 50_000)).unwrap();
        assert_eq!(sleep, Duration::from_nanos(33 * MS - 50_000 - WAKING));
    }

    #[test]
    fn one_that_does_not_come_ends_it() {
        let mut anticipation = after((1..=8).map(|n| n * 10 * MS));
        assert_eq!(anticipation.sleep(Nanos(90 * MS + 2 * WAKING)), None);
        assert_eq!(anticipation.sleep(Nanos(100 * MS)), None);
    }

    #[test]
    fn a_few_or_uneven_arrivals_are_not_waited_for() {
        assert_eq!(after((1..=4).map(|n| n * 10 * MS)).sleep(Nanos(40 * MS)), None);
        assert_eq!(after((1..=9).map(|n| n * n * MS)).sleep(Nanos(82 * MS)), None);
        assert_eq!(after([]).sleep(Nanos(MS)), None);
    }

    #[test]
    fn arrivals_too_close_to_sleep_between_are_left_alone() {
        assert_eq!(after((1..=20).map(|n| n * 2 * MS)).sleep(Nanos(40 * MS)), None);
    }

    #[test]
    fn the_window_is_as_wide_as_arrivals_are_uneven_and_bounded() {
        let mut anticipation = after((1..=40).map(|n| n * 100 * MS + n % 2 * MS / 4));
        let sleep = anticipation.sleep(Nanos(4000 * MS)).unwrap();
        assert!(
            sleep < Duration::from_nanos(100 * MS - WAKING) && sleep > Duration::from_millis(99),
            "{sleep:?}"
        );
        let mut uneven = after((1..=40).map(|n| n * 100 * MS + n % 2 * 2 * MS));
        assert_eq!(uneven.sleep(Nanos(4000 * MS)), None);
    }
}
