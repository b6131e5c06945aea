//! Tables large enough that every part has grown, split, merged and shrunk, against a list.

mod common;

use classifier::{Classifier, Match};
use common::{Listed, Reference, WORDS, Words, layout};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// A packet of one of a few networks.
    fn key(&mut self) -> Words {
        let network = Random(self.below(20)).number();
        let few = self.below(3);
        [
            few,
            self.below(50),
            network & 0xffff_0000_ffff_0000 | self.number() & 0x0000_0fff_0000_0fff,
            network,
            self.below(1 << 20),
            self.number() & 0x00ff_0000_03ff,
        ]
    }

    fn mask(&mut self) -> Words {
        let prefix = |len: u64| u64::from(u32::MAX.checked_shl(32 - len as u32).unwrap_or(0));
        let (src, dst) = (self.below(33), self.below(33));
        let mut mask = [0, 0, prefix(src) | prefix(dst) << 32, 0, 0, 0];
        match self.below(5) {
            0 => mask[0] = u64::MAX,
            1 => mask[1] = 0xff,
            2 => mask[5] = 0xffff,
            3 => (mask[3], mask[4]) = (u64::MAX, u64::MAX << self.below(64)),
            _ => {}
        }
        mask
    }
}

#[test]
fn agrees_with_a_list_while_it_grows_and_shrinks() {
    let mut random = Random(1);
    let masks: Vec<Words> = (0..300).map(|_| random.mask()).collect();
    let mut classifier = Classifier::<u64, WORDS>::new(layout(true, true, 16), 5);
    let mut reference = Reference::default();
    for n in 0..12_000 {
        // Most rules are exact, so that one subtable is large.
        let mask = match random.below(3) {
            0 => masks[random.below(300) as usize],
            _ => [0, 0, u64::MAX, 0, u64::MAX, 0xffff],
        };
        let matching = Match::new(&random.key(), &mask);
        let priority = random.below(100) as u32;
        if let Ok(id) = classifier.insert(&matching, priority, n) {
            reference.rules.push(Listed {
                id,
                matching,
                priority,
                rule: n,
            });
        }
    }
    assert!(
        classifier.stats().masks > 250 && classifier.stats().subtables < 120,
        "{:?}",
        classifier.stats()
    );
    while !reference.rules.is_empty() {
        compare(&classifier, &reference, &mut random);
        for _ in 0..reference.rules.len().div_ceil(2) {
            let gone = reference
                .rules
                .swap_remove(random.below(reference.rules.len() as u64) as usize);
            assert_eq!(classifier.remove(gone.id), Some(gone.rule));
        }
    }
    assert!(classifier.is_empty());
    assert!(classifier.memory_bytes() < 200_000, "{}", classifier.memory_bytes());
}

#[track_caller]
fn compare(classifier: &Classifier<u64, WORDS>, reference: &Reference, random: &mut Random) {
    for round in 0..120 {
        let mut key = random.key();
        if round % 2 == 0 {
            // One that a rule matches.
            let listed = reference.rules[random.below(reference.rules.len() as u64) as usize];
            key = std::array::from_fn(|word| listed.matching.value()[word] | key[word] & !listed.matching.mask()[word]);
        }
        let mut consulted = [0; WORDS];
        let found = classifier
            .lookup(&key, &mut consulted)
            .map(|found| (found.id, found.priority));
        assert_eq!(found.map(|(_, priority)| priority), reference.lookup(&key, |_| true));
        for other in (0..20).map(|_| random.key()).collect::<Vec<_>>() {
            let alike: Words = std::array::from_fn(|word| key[word] & consulted[word] | other[word] & !consulted[word]);
            assert_eq!(classifier.find(&alike).map(|found| (found.id, found.priority)), found);
        }
    }
    for listed in reference.rules.iter().step_by(97) {
        assert_eq!(
            classifier.find_strict(&listed.matching, listed.priority),
            Some(listed.id)
        );
    }
}
