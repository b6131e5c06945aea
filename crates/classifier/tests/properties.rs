//! Compares the classifier and its masks with a list of rules after random insertions and removals.

mod common;

use classifier::{Classifier, Cursor, InsertError, Layout, Match};
use common::{Listed, Reference, WORDS, Words, keys, layouts, matches};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Change {
    Insert(Match<WORDS>, u32),
    /// The match of an earlier rule, with another priority.
    Again(prop::sample::Index, u32),
    /// The mask of an earlier rule, with another value.
    Alike(prop::sample::Index, Words, u32),
    Remove(prop::sample::Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let index = any::<prop::sample::Index>;
    let change = prop_oneof![
        4 => (matches(), 0u32..6).prop_map(|(matching, priority)| Change::Insert(matching, priority)),
        1 => (index(), 0u32..6).prop_map(|(earlier, priority)| Change::Again(earlier, priority)),
        3 => (index(), keys(), 0u32..6).prop_map(|(earlier, value, priority)| Change::Alike(earlier, value, priority)),
        2 => index().prop_map(Change::Remove),
    ];
    prop::collection::vec(change, 0..120)
}

/// Both tables after the changes; each step's own answer is checked on the way.
fn tables(layout: Layout, changes: &[Change]) -> (Classifier<u64, WORDS>, Reference) {
    let mut classifier = Classifier::new(layout, 7);
    let mut reference = Reference::default();
    for (number, change) in (0u64..).zip(changes) {
        let (matching, priority) = match change {
            Change::Insert(matching, priority) => (*matching, *priority),
            Change::Again(_, _) | Change::Alike(_, _, _) | Change::Remove(_) if reference.rules.is_empty() => continue,
            Change::Again(earlier, priority) => (earlier.get(&reference.rules).matching, *priority),
            Change::Alike(earlier, value, priority) => {
                let mask = *earlier.get(&reference.rules).matching.mask();
                (Match::new(value, &mask), *priority)
            }
            Change::Remove(which) => {
                let gone = reference.rules.swap_remove(which.index(reference.rules.len()));
                assert_eq!(classifier.remove(gone.id), Some(gone.rule));
                assert_eq!(classifier.remove(gone.id), None);
                assert!(classifier.get(gone.id).is_none());
                continue;
            }
        };
        let known = reference.find(&matching, priority);
        assert_eq!(classifier.find_strict(&matching, priority), known);
        match classifier.insert(&matching, priority, number) {
            Ok(id) => {
                assert_eq!(known, None);
                reference.rules.push(Listed {
                    id,
                    matching,
                    priority,
                    rule: number,
                });
            }
            Err(InsertError::Exists { id, rule }) => assert_eq!((Some(id), rule), (known, number)),
            Err(InsertError::Full { .. }) => panic!("a small table is not full"),
        }
        assert_eq!(classifier.len(), reference.rules.len());
    }
    (classifier, reference)
}

/// Keys that are close to what rules match, beside the given ones.
fn probes(reference: &Reference, keys: &[Words], flips: &[(usize, u32)]) -> Vec<Words> {
    let mut probes = keys.to_vec();
    for listed in &reference.rules {
        for key in keys.iter().take(2) {
            let inside =
                |word: usize| *listed.matching.value().get(word).unwrap() | key[word] & !listed.matching.mask()[word];
            let mut probe: Words = std::array::from_fn(inside);
            probes.push(probe);
            for (word, bit) in flips {
                probe[*word] ^= 1 << bit;
                probes.push(probe);
            }
        }
    }
    probes
}

fn flips() -> impl Strategy<Value = Vec<(usize, u32)>> {
    prop::collection::vec((0..WORDS, 0u32..64), 3)
}

proptest! {
    #[test]
    fn finds_what_a_list_finds_and_every_key_alike_under_the_mask_gets_the_same(
        layout in layouts(),
        changes in changes(),
        keys in prop::collection::vec(keys(), 6),
        flips in flips(),
        noise in prop::collection::vec(any::<Words>(), 4),
    ) {
        let (classifier, reference) = tables(layout, &changes);
        let probes = probes(&reference, &keys, &flips);
        for key in &probes {
            let mut consulted = [0; WORDS];
            let found = classifier.lookup(key, &mut consulted);
            prop_assert_eq!(found.as_ref().map(|found| found.priority), reference.lookup(key, |_| true));
            let id = found.as_ref().map(|found| found.id);
            if let Some(found) = found {
                let entry = classifier.entry(found.id).unwrap();
                prop_assert!(entry.matching().matches(key));
                prop_assert_eq!(entry.rule, found.rule);
            }
            prop_assert_eq!(classifier.find(key).map(|found| found.id), id);
            let mut others: Vec<Words> = noise.clone();
            others.extend(probes.iter().step_by(7));
            // Single bits outside the mask find a mask that lacks a bit.
            for (word, bit) in &flips {
                let mut other = *key;
                other[*word] ^= 1 << bit;
                others.push(other);
            }
            for other in others {
                let alike: Words = std::array::from_fn(|word| key[word] & consulted[word] | other[word] & !consulted[word]);
                let found = classifier.find(&alike).map(|found| found.id);
                prop_assert_eq!(found, id, "{:x?} and {:x?} under {:x?}", key, alike, consulted);
            }
        }
    }

    #[test]
    fn rules_that_the_caller_refuses_are_shown_and_passed_over(
        layout in layouts(),
        changes in changes(),
        keys in prop::collection::vec(keys(), 6),
        flips in flips(),
        noise in prop::collection::vec(any::<Words>(), 4),
    ) {
        let (classifier, reference) = tables(layout, &changes);
        let accepted = |rule: u64| !rule.is_multiple_of(3);
        for key in probes(&reference, &keys, &flips) {
            let ask = |key: &Words, consulted: &mut Words| {
                let mut refused = Vec::new();
                let found = classifier.lookup_where(key, consulted, |rule, priority| {
                    if !accepted(*rule) {
                        refused.push((*rule, priority));
                    }
                    accepted(*rule)
                });
                (found.map(|found| (found.id, found.priority)), refused)
            };
            let mut consulted = [0; WORDS];
            let (found, mut refused) = ask(&key, &mut consulted);
            let best = reference.lookup(&key, |listed| accepted(listed.rule));
            prop_assert_eq!(found.map(|(_, priority)| priority), best);
            let above = |priority: u32| best.is_none_or(|best| priority > best);
            refused.retain(|(_, priority)| above(*priority));
            for other in &noise {
                let alike: Words = std::array::from_fn(|word| key[word] & consulted[word] | other[word] & !consulted[word]);
                let (found_alike, mut refused_alike) = ask(&alike, &mut [0; WORDS]);
                refused_alike.retain(|(_, priority)| above(*priority));
                prop_assert_eq!((found_alike, refused_alike), (found, refused.clone()));
            }
            refused.sort();
            let mut expected: Vec<(u64, u32)> = reference
                .rules
                .iter()
                .filter(|listed| listed.matching.matches(&key) && !accepted(listed.rule) && above(listed.priority))
                .map(|listed| (listed.rule, listed.priority))
                .collect();
            expected.sort();
            prop_assert_eq!(refused, expected);
        }
    }

    #[test]
    fn finds_the_rules_that_a_match_covers_or_overlaps(
        layout in layouts(),
        changes in changes(),
        others in prop::collection::vec(matches(), 6),
    ) {
        let (classifier, reference) = tables(layout, &changes);
        let own = reference.rules.iter().map(|listed| listed.matching).collect::<Vec<_>>();
        for matching in others.into_iter().chain(own) {
            let sorted = |mut ids: Vec<_>| {
                ids.sort();
                ids
            };
            let covered = reference.ids(|listed| matching.covers(&listed.matching));
            prop_assert_eq!(sorted(classifier.covered_by(&matching)), covered);
            let overlapping = reference.ids(|listed| matching.overlaps(&listed.matching));
            prop_assert_eq!(sorted(classifier.overlapping(&matching)), overlapping);
            for priority in 0..6 {
                let overlapping = reference.ids(|listed| listed.priority == priority && matching.overlaps(&listed.matching));
                let found = classifier.overlapping_at(&matching, priority);
                prop_assert_eq!(found.is_some(), !overlapping.is_empty());
                prop_assert!(found.is_none_or(|found| overlapping.contains(&found)));
            }
        }
    }

    #[test]
    fn walks_over_all_rules_at_once_or_by_pages(layout in layouts(), changes in changes(), page in 1usize..9) {
        let (mut classifier, reference) = tables(layout, &changes);
        let mut all: Vec<_> = classifier.iter().map(|entry| (entry.id, entry.matching(), entry.priority, *entry.rule)).collect();
        let mut paged = Vec::new();
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            cursor = classifier.page(from, page, |entry| {
                paged.push((entry.id, entry.matching(), entry.priority, *entry.rule));
            });
        }
        prop_assert_eq!(&paged, &all);
        let mut expected: Vec<_> = reference
            .rules
            .iter()
            .map(|listed| (listed.id, listed.matching, listed.priority, listed.rule))
            .collect();
        all.sort_by_key(|(id, ..)| *id);
        expected.sort_by_key(|(id, ..)| *id);
        prop_assert_eq!(all, expected);

        for listed in &reference.rules {
            *classifier.get_mut(listed.id).unwrap() += 1;
            prop_assert_eq!(classifier.remove(listed.id), Some(listed.rule + 1));
        }
        let stats = classifier.stats();
        prop_assert_eq!((stats.rules, stats.masks, stats.subtables), (0, 0, 0));
        prop_assert!(classifier.is_empty() && classifier.iter().next().is_none());
    }
}
