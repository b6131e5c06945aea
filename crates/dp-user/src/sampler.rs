//! The random choice of packets for samples.

use std::hash::{BuildHasher, RandomState};

/// Probabilities whose next packet is known at once. Most switches have one or two.
const SLOTS: usize = 4;

/// A worker's own choice: no lock, no division, and a random number for each sample, not for each
/// packet. The packets until the next sample are drawn from the geometric distribution. That has
/// no memory, so all megaflows with a probability share one count, and a count may be forgotten.
#[derive(Debug)]
pub(crate) struct Sampler {
    state: u64,
    slots: [Slot; SLOTS],
    /// The slot that is used for the next new probability.
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    probability: u32,
    /// Packets that are not chosen, before one is.
    left: u64,
}

impl Sampler {
    /// With a seed of its own.
    pub(crate) fn new() -> Sampler {
        Sampler::seeded(RandomState::new().hash_one(0))
    }

    fn seeded(state: u64) -> Sampler {
        let all = Slot {
            probability: u32::MAX,
            left: 0,
        };
        Sampler {
            state,
            slots: [all; SLOTS],
            next: 0,
        }
    }

    /// Whether a packet is chosen, with (`probability` + 1) / 2^32.
    #[inline]
    pub(crate) fn chooses(&mut self, probability: u32) -> bool {
        let chosen = !self.skips(probability, 1);
        if chosen && probability != u32::MAX {
            self.draw(probability);
        }
        chosen
    }

    /// Whether none of the next packets is chosen. Otherwise nothing happens, and
    /// [`Sampler::chooses`] says of each.
    #[inline]
    pub(crate) fn skips(&mut self, probability: u32, packets: u64) -> bool {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.probability == probability) else {
            self.replace(probability);
            return self.skips(probability, packets);
        };
        if slot.left >= packets {
            slot.left -= packets;
            return true;
        }
        false
    }

    /// The first of the next packets that is chosen, counted from 0. The packets behind it remain.
    /// `None` if none is chosen: then all have passed.
    #[inline]
    pub(crate) fn first(&mut self, probability: u32, packets: u64) -> Option<u64> {
        if self.skips(probability, packets) {
            return None;
        }
        self.choose(probability)
    }

    #[cold]
    fn choose(&mut self, probability: u32) -> Option<u64> {
        let slot = self.slots.iter_mut().find(|slot| slot.probability == probability)?;
        Some(std::mem::replace(&mut slot.left, gap(&mut self.state, probability)))
    }

    /// Draws the packets until the next sample, after one.
    #[cold]
    fn draw(&mut self, probability: u32) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.probability == probability) {
            slot.left = gap(&mut self.state, probability);
        }
    }

    #[cold]
    fn replace(&mut self, probability: u32) {
        let left = gap(&mut self.state, probability);
        self.slots[self.next] = Slot { probability, left };
        self.next = (self.next + 1) % SLOTS;
    }
}

/// How many packets are not chosen before the next one is.
fn gap(state: &mut u64, probability: u32) -> u64 {
    /// 2^-53: the random bits of a fraction.
    const UNIT: f64 = 1.0 / 9_007_199_254_740_992.0;
    if probability == u32::MAX {
        return 0;
    }
    // More than 0, at most 1.
    let fraction = ((random(state) >> 11) + 1) as f64 * UNIT;
    let chosen = (f64::from(probability) + 1.0) / 4_294_967_296.0;
    (fraction.ln() / (-chosen).ln_1p()) as u64
}

/// The next random number: a counter that is multiplied with itself.
fn random(state: &mut u64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    const FLIP: u64 = 0xd6e8_feb8_6659_fd93;
    *state = state.wrapping_add(STEP);
    let product = u128::from(*state) * u128::from(*state ^ FLIP);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four standard deviations of a binomial distribution: fails once in some 10 000 runs of one
    /// rate, were the seed not fixed.
    #[test]
    fn as_many_are_chosen_as_the_probability_says_and_no_packet_foretells_the_next() {
        const PACKETS: u32 = 4_000_000;
        for seed in [0, 1, 0xdead_beef, u64::MAX] {
            for one_in in [2u32, 3, 10, 100, 1000, 10_000] {
                let mut sampler = Sampler::seeded(seed);
                let probability = u32::MAX / one_in;
                let chosen: Vec<bool> = (0..PACKETS).map(|_| sampler.chooses(probability)).collect();
                let p = 1.0 / f64::from(one_in);
                let is_near = |count: usize, p: f64| {
                    let (mean, deviation) = (f64::from(PACKETS) * p, (f64::from(PACKETS) * p * (1.0 - p)).sqrt());
                    assert!(
                        (count as f64 - mean).abs() < 4.0 * deviation + 1.0,
                        "{count} for {mean}"
                    );
                };
                is_near(chosen.iter().filter(|chosen| **chosen).count(), p);
                for distance in [1, 2, 7, 32] {
                    let both = chosen.iter().zip(&chosen[distance..]).filter(|(a, b)| **a && **b);
                    is_near(both.count(), p * p);
                }
            }
        }
    }

    #[test]
    fn the_highest_probability_chooses_all() {
        let mut sampler = Sampler::new();
        assert!((0..100_000).all(|_| sampler.chooses(u32::MAX)));
        assert_ne!(Sampler::new().state, Sampler::new().state);
    }

    #[test]
    fn the_first_of_many_is_the_first_one_by_one() {
        let (mut one, mut many) = (Sampler::seeded(9), Sampler::seeded(9));
        let probabilities = [1u32, 2, 3, 50, 400, 1000].map(|rate| u32::MAX / rate);
        for round in 0..200_000u64 {
            let probability = probabilities[(round % 7 % 6) as usize];
            let packets = round % 33 + 1;
            let wanted: Vec<u64> = (0..packets).filter(|_| one.chooses(probability)).collect();
            let (mut chosen, mut passed) = (Vec::new(), 0);
            while let Some(first) = many.first(probability, packets - passed) {
                chosen.push(passed + first);
                passed += first + 1;
            }
            assert_eq!(chosen, wanted);
        }
    }

    #[test]
    fn packets_are_skipped_together_as_they_are_one_by_one() {
        let (mut one, mut many) = (Sampler::seeded(7), Sampler::seeded(7));
        let probabilities = [1u32, 2, 3, 50, 400, 1000].map(|rate| u32::MAX / rate);
        for round in 0..200_000u64 {
            let probability = probabilities[(round % 7 % 6) as usize];
            let packets = round % 33 + 1;
            let chosen: Vec<bool> = (0..packets).map(|_| one.chooses(probability)).collect();
            let skipped = many.skips(probability, packets);
            assert_eq!(skipped, !chosen.contains(&true));
            if !skipped {
                let again: Vec<bool> = (0..packets).map(|_| many.chooses(probability)).collect();
                assert_eq!(again, chosen);
            }
        }
    }
}
