//! Randomises the times of datagrams a little.
//!
//! Two senders of one rate would keep step: for the whole run the same one's datagrams would arrive
//! at a full queue just before it has room, and be lost. So each flow's datagrams move through
//! their interval, from its start to its end and back, in a random number of steps each way: at any
//! time a datagram is equally likely early or late in its interval, independent of the other
//! sender. Each interval has one datagram, so the rate is exact.

use crate::traffic::clock::MILLI;

/// In how many datagrams the way through the interval is made, at least and at most: the distance
/// of two differs by a tenth at most.
const STEPS: std::ops::RangeInclusive<u64> = 10..=30;

/// The longest way, in nanoseconds: datagrams that are seldom stay near their times.
const LONGEST: u64 = 10 * MILLI;

/// By how much each datagram of a flow is later than at even distances.
#[derive(Clone, Debug)]
pub(super) struct Dither {
    /// Of the lots.
    state: u64,
    /// The way, in nanoseconds.
    width: u64,
    steps: u64,
    step: u64,
    rises: bool,
}

impl Dither {
    /// For datagrams at this distance in nanoseconds; the same seed gives the same sequence.
    pub(super) fn new(interval: u64, seed: u64) -> Dither {
        let mut dither = Dither {
            state: seed,
            width: interval.min(LONGEST),
            steps: 1,
            step: 0,
            rises: false,
        };
        dither.turn();
        // Anywhere on the first way, either way.
        dither.step = dither.random() % dither.steps;
        dither.rises = dither.random().is_multiple_of(2);
        dither
    }

    /// For the next datagram, in nanoseconds.
    pub(super) fn next(&mut self) -> u64 {
        let done = u64::try_from(u128::from(self.width) * u128::from(self.step) / u128::from(self.steps)).unwrap_or(0);
        let late = if self.rises { done } else { self.width - done };
        self.step += 1;
        if self.step >= self.steps {
            self.turn();
        }
        late
    }

    fn turn(&mut self) {
        self.rises = !self.rises;
        self.step = 0;
        self.steps = STEPS.start() + self.random() % (STEPS.end() - STEPS.start() + 1);
    }

    /// `SplitMix64`.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 1_680_000;

    #[test]
    fn one_datagram_stays_in_each_interval_and_distances_differ_little() {
        let mut dither = Dither::new(INTERVAL, 7);
        let late: Vec<u64> = (0..10_000).map(|_| dither.next()).collect();
        assert!(late.iter().all(|late| *late <= INTERVAL));
        let step = late.windows(2).map(|pair| pair[0].abs_diff(pair[1])).max().unwrap();
        assert!(step <= INTERVAL / 10 + 1, "{step}");
        let mean = late.iter().sum::<u64>() as f64 / late.len() as f64 / INTERVAL as f64;
        assert!((0.48..0.52).contains(&mean), "{mean}");
    }

    #[test]
    fn two_flows_of_one_rate_are_as_often_before_each_other() {
        // The first datagram after room appears in a full queue enters it, so a flow's share is the
        // share of time in which the other was last.
        for phase in [0, INTERVAL / 10, INTERVAL / 2] {
            let (mut a, mut b) = (Dither::new(INTERVAL, 0), Dither::new(INTERVAL, 1));
            let mut times: Vec<(u64, bool)> = (0..20_000)
                .flat_map(|n| {
                    [
                        (n * INTERVAL + a.next(), true),
                        (n * INTERVAL + phase + b.next(), false),
                    ]
                })
                .collect();
            times.sort_unstable();
            let before = |first: bool| -> u64 {
                let pairs = times.windows(2).filter(|pair| pair[1].1 == first);
                pairs.map(|pair| pair[1].0 - pair[0].0).sum()
            };
            let share = before(true) as f64 / (before(true) + before(false)) as f64;
            assert!((0.47..0.53).contains(&share), "phase {phase}: {share}");
        }
    }

    #[test]
    fn a_seed_always_draws_the_same_and_what_is_seldom_stays_near_its_time() {
        let draw = |seed| {
            let mut dither = Dither::new(1_000_000_000, seed);
            (0..100).map(|_| dither.next()).collect::<Vec<u64>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert!(draw(3).iter().all(|late| *late <= LONGEST));
        assert_eq!(Dither::new(0, 1).next(), 0, "all at once");
    }
}
