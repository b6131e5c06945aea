//! The distinct prefixes of one length that rules have in one field, in order.
//!
//! A lookup asks whether the packet's prefix is in the set and, if not, how many of its leading
//! bits prove that. In a sorted set the value's two neighbours give the answer: one bit more than
//! the longest prefix shared with them. A binary trie gives the same answer with three times the
//! memory and a cache line for each bit.
//!
//! The set has three levels of fixed height: branches, leaves, values; up to 64 leaves in a branch
//! and 64 values in a leaf, so that an insertion moves a few hundred bytes (and one word per 2000
//! values when a branch is split). Values are counted: a prefix goes when its last rule goes. Most
//! have few rules, so a leaf has one-byte counters, and larger counts are kept outside.

use std::collections::BTreeMap;

const WIDTH: usize = 64;

/// An unsigned integer that holds prefixes.
pub(crate) trait Prefix: Copy + Ord + std::fmt::Debug {
    const BITS: u32;
    const MAX: Self;
    fn truncated_from(value: u128) -> Self;
    /// The number of leading bits, of `BITS`, that both share.
    fn shared(self, other: Self) -> u32;
    /// The number of the ascending `values` that are below `value`. Beyond the first `len` they are
    /// `MAX`.
    #[inline]
    fn below(values: &[Self; WIDTH], len: usize, value: Self) -> usize {
        values[..len].partition_point(|other| *other < value)
    }
    /// The number of the ascending `values` that are not above `value`.
    #[inline]
    fn not_above(values: &[Self], value: Self) -> usize {
        values.partition_point(|other| *other <= value)
    }
}

macro_rules! prefix {
    ($($integer:ty { $($faster:item)* })*) => {$(
        impl Prefix for $integer {
            const BITS: u32 = <$integer>::BITS;
            const MAX: $integer = <$integer>::MAX;
            #[inline]
            fn truncated_from(value: u128) -> Self {
                value as $integer
            }
            #[inline]
            fn shared(self, other: Self) -> u32 {
                (self ^ other).leading_zeros()
            }
            $($faster)*
        }
    )*};
}
prefix! {
    u32 {
        // Vector instructions compare all at once, and the cache lines come in together.
        #[inline]
        fn below(values: &[u32; WIDTH], _: usize, value: u32) -> usize {
            values.iter().map(|other| u32::from(*other < value)).sum::<u32>() as usize
        }
        #[inline]
        fn not_above(values: &[u32], value: u32) -> usize {
            if values.len() > 2 * WIDTH {
                values.partition_point(|other| *other <= value)
            } else {
                values.iter().map(|other| u32::from(*other <= value)).sum::<u32>() as usize
            }
        }
    }
    u64 {}
    u128 {}
}

/// In a leaf: the count is in `many`.
const MANY: u8 = u8::MAX;

#[derive(Debug)]
struct Leaf<P> {
    len: usize,
    /// Beyond `len` they are the highest there are.
    values: [P; WIDTH],
    counts: [u8; WIDTH],
}

/// `firsts[n]` is the first value of `leaves[n]`, none of which is empty.
#[derive(Debug)]
struct Branch<P> {
    firsts: Vec<P>,
    leaves: Vec<Box<Leaf<P>>>,
}

/// `firsts[n]` is the first value of `branches[n]`, none of which is empty.
#[derive(Debug)]
pub(crate) struct PrefixSet<P> {
    /// The length of the prefixes: they are numbers of that many bits.
    bits: u32,
    firsts: Vec<P>,
    branches: Vec<Branch<P>>,
    /// The counts of values that have `MANY` in their leaf.
    many: BTreeMap<P, u32>,
}

impl<P: Prefix> PrefixSet<P> {
    /// An empty set of prefixes of 1 to `P::BITS` bits.
    pub(crate) fn new(bits: u32) -> PrefixSet<P> {
        PrefixSet {
            bits,
            firsts: Vec::new(),
            branches: Vec::new(),
            many: BTreeMap::new(),
        }
    }

    /// `None` if `value` is in the set; otherwise how many leading bits of it no value of the set
    /// has.
    #[inline]
    pub(crate) fn absent(&self, value: P) -> Option<u32> {
        let branch_at = last_not_above(&self.firsts, value);
        let Some(branch) = self.branches.get(branch_at) else {
            return Some(0);
        };
        let leaf_at = last_not_above(&branch.firsts, value);
        let leaf = &branch.leaves[leaf_at];
        let at = leaf.position(value);
        let mut shared = 0;
        if at < leaf.len {
            if leaf.values[at] == value {
                return None;
            }
            shared = value.shared(leaf.values[at]);
        } else if let Some(next) = branch
            .firsts
            .get(leaf_at + 1)
            .or_else(|| self.firsts.get(branch_at + 1))
        {
            shared = value.shared(*next);
        }
        if at > 0 {
            shared = shared.max(value.shared(leaf.values[at - 1]));
        }
        Some((shared + self.bits + 1).saturating_sub(P::BITS))
    }

    /// Counts `value` once more.
    pub(crate) fn add(&mut self, value: P) {
        if self.branches.is_empty() {
            self.firsts.push(value);
            self.branches.push(Branch {
                firsts: vec![value],
                leaves: vec![Leaf::of(value, 1)],
            });
            return;
        }
        let branch_at = last_not_above(&self.firsts, value);
        let branch = &mut self.branches[branch_at];
        branch.add(value, &mut self.many);
        self.firsts[branch_at] = branch.firsts[0];
        if branch.leaves.len() > WIDTH {
            let upper = branch.split();
            self.firsts.insert(branch_at + 1, upper.firsts[0]);
            self.branches.insert(branch_at + 1, upper);
        }
    }

    /// Counts `value`, which was added, once less.
    pub(crate) fn remove(&mut self, value: P) {
        let branch_at = last_not_above(&self.firsts, value);
        let Some(branch) = self.branches.get_mut(branch_at) else {
            debug_assert!(false, "a prefix is removed from an empty set");
            return;
        };
        branch.remove(value, &mut self.many);
        if branch.leaves.is_empty() {
            self.branches.remove(branch_at);
            self.firsts.remove(branch_at);
            return;
        }
        self.firsts[branch_at] = branch.firsts[0];
        let few = branch.leaves.len() < WIDTH / 4;
        if few
            && let Some(next) = self.branches.get(branch_at + 1)
            && next.leaves.len() < WIDTH / 2
        {
            self.firsts.remove(branch_at + 1);
            let next = self.branches.remove(branch_at + 1);
            self.branches[branch_at].firsts.extend(next.firsts);
            self.branches[branch_at].leaves.extend(next.leaves);
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let branches: usize = self.branches.iter().map(Branch::memory_bytes).sum();
        branches + self.firsts.capacity() * size_of::<P>() + self.branches.capacity() * size_of::<Branch<P>>()
    }
}

impl<P: Prefix> Branch<P> {
    fn add(&mut self, value: P, many: &mut BTreeMap<P, u32>) {
        let leaf_at = last_not_above(&self.firsts, value);
        let leaf = &mut self.leaves[leaf_at];
        let mut at = leaf.position(value);
        if at < leaf.len && leaf.values[at] == value {
            match leaf.counts[at] {
                MANY => *many.entry(value).or_insert(0) += 1,
                count => {
                    leaf.counts[at] = count + 1;
                    if count + 1 == MANY {
                        many.insert(value, u32::from(MANY));
                    }
                }
            }
            return;
        }
        if leaf.len < WIDTH {
            leaf.insert(at, value);
            self.firsts[leaf_at] = leaf.values[0];
            return;
        }
        if at == WIDTH {
            // Ascending values come at the end of a leaf: it stays full.
            self.firsts.insert(leaf_at + 1, value);
            self.leaves.insert(leaf_at + 1, Leaf::of(value, 1));
            return;
        }
        let mut upper = leaf.split();
        if at <= leaf.len {
            leaf.insert(at, value);
        } else {
            at -= leaf.len;
            upper.insert(at, value);
        }
        self.firsts[leaf_at] = leaf.values[0];
        self.firsts.insert(leaf_at + 1, upper.values[0]);
        self.leaves.insert(leaf_at + 1, upper);
    }

    fn remove(&mut self, value: P, many: &mut BTreeMap<P, u32>) {
        let leaf_at = last_not_above(&self.firsts, value);
        let leaf = &mut self.leaves[leaf_at];
        let at = leaf.position(value);
        if at >= leaf.len || leaf.values[at] != value {
            debug_assert!(false, "a prefix is removed that was not added");
            return;
        }
        if leaf.counts[at] == MANY
            && let Some(count) = many.get_mut(&value)
        {
            *count -= 1;
            if *count >= u32::from(MANY) {
                return;
            }
            many.remove(&value);
        }
        leaf.counts[at] -= 1;
        if leaf.counts[at] > 0 {
            return;
        }
        leaf.cut(at);
        if leaf.len == 0 {
            self.firsts.remove(leaf_at);
            self.leaves.remove(leaf_at);
            return;
        }
        self.firsts[leaf_at] = leaf.values[0];
        if leaf.len < WIDTH / 4
            && let [leaf, next, ..] = &mut self.leaves[leaf_at..]
            && next.len < WIDTH / 2
        {
            leaf.append(next);
            self.firsts.remove(leaf_at + 1);
            self.leaves.remove(leaf_at + 1);
        }
    }

    fn split(&mut self) -> Branch<P> {
        // Where values ascend, all leaves but the last are full and stay together.
        let middle = match self.leaves.last() {
            Some(last) if last.len == 1 => WIDTH,
            _ => WIDTH / 2,
        };
        let mut upper = Branch {
            firsts: Vec::with_capacity(WIDTH + 1),
            leaves: Vec::with_capacity(WIDTH + 1),
        };
        upper.firsts.extend(self.firsts.drain(middle..));
        upper.leaves.extend(self.leaves.drain(middle..));
        upper
    }

    fn memory_bytes(&self) -> usize {
        self.firsts.capacity() * size_of::<P>()
            + self.leaves.capacity() * size_of::<Box<Leaf<P>>>()
            + self.leaves.len() * size_of::<Leaf<P>>()
    }
}

impl<P: Prefix> Leaf<P> {
    fn of(value: P, count: u8) -> Box<Leaf<P>> {
        let mut leaf = Box::new(Leaf {
            len: 1,
            values: [P::MAX; WIDTH],
            counts: [0; WIDTH],
        });
        leaf.values[0] = value;
        leaf.counts[0] = count;
        leaf
    }

    /// The position of `value`, present or not.
    #[inline]
    fn position(&self, value: P) -> usize {
        P::below(&self.values, self.len, value)
    }

    /// There is room.
    fn insert(&mut self, at: usize, value: P) {
        self.values.copy_within(at..self.len, at + 1);
        self.counts.copy_within(at..self.len, at + 1);
        self.values[at] = value;
        self.counts[at] = 1;
        self.len += 1;
    }

    fn cut(&mut self, at: usize) {
        self.values.copy_within(at + 1..self.len, at);
        self.counts.copy_within(at + 1..self.len, at);
        self.len -= 1;
        self.values[self.len] = P::MAX;
    }

    fn split(&mut self) -> Box<Leaf<P>> {
        let half = self.len / 2;
        let mut upper = Leaf::of(self.values[half], self.counts[half]);
        upper.len = self.len - half;
        upper.values[..upper.len].copy_from_slice(&self.values[half..self.len]);
        upper.counts[..upper.len].copy_from_slice(&self.counts[half..self.len]);
        self.values[half..].fill(P::MAX);
        self.len = half;
        upper
    }

    /// There is room for all of `other`.
    fn append(&mut self, other: &Leaf<P>) {
        let end = self.len + other.len;
        self.values[self.len..end].copy_from_slice(&other.values[..other.len]);
        self.counts[self.len..end].copy_from_slice(&other.counts[..other.len]);
        self.len = end;
    }
}

/// The last of the ascending `firsts` that is not above `value`, or the first of all.
#[inline]
fn last_not_above<P: Prefix>(firsts: &[P], value: P) -> usize {
    P::not_above(firsts, value).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The leading bits needed, by trying every value.
    fn slow(values: &BTreeMap<u32, u32>, bits: u32, value: u32) -> Option<u32> {
        if values.contains_key(&value) {
            return None;
        }
        (0..=bits).find(|len| {
            let differs = |other: &u32| len.checked_sub(1).is_some() && (other ^ value) >> (bits - len) != 0;
            values.keys().all(differs)
        })
    }

    proptest! {
        #[test]
        fn answers_like_a_search_of_all_values(
            bits in 1u32..=32,
            operations in prop::collection::vec((0u8..5, any::<u32>(), 0u32..24), 1..700),
            probes in prop::collection::vec(any::<u32>(), 30),
        ) {
            let mut set = PrefixSet::<u32>::new(bits);
            let mut map = BTreeMap::new();
            for (choice, value, shift) in operations {
                let value = (value >> shift) & (u32::MAX >> (32 - bits));
                if choice > 0 {
                    set.add(value);
                    *map.entry(value).or_insert(0u32) += 1;
                } else if let Some((value, _)) = map.range(value..).next().map(|(value, count)| (*value, *count)) {
                    set.remove(value);
                    let count = map.get_mut(&value).unwrap();
                    *count -= 1;
                    if *count == 0 {
                        map.remove(&value);
                    }
                }
            }
            for probe in probes.into_iter().chain(map.keys().flat_map(|value| [*value, value ^ 1]).collect::<Vec<_>>()) {
                let probe = probe & (u32::MAX >> (32 - bits));
                prop_assert_eq!(set.absent(probe), slow(&map, bits, probe));
            }
            for (value, count) in map {
                for _ in 0..count {
                    prop_assert!(set.absent(value).is_none());
                    set.remove(value);
                }
            }
            prop_assert!(set.is_empty());
        }
    }

    #[test]
    fn grows_and_shrinks_over_many_branches_in_any_order() {
        for step in [1u64, 7919, u64::MAX] {
            let mut set = PrefixSet::<u64>::new(64);
            let value = |n: u64| {
                n.wrapping_mul(step)
                    .wrapping_mul(if step == 7919 { 0x9e37_79b9_7f4a_7c15 } else { 1 })
            };
            for n in 0..40_000 {
                set.add(value(n));
            }
            assert!(
                set.branches
                    .windows(2)
                    .all(|two| two[0].firsts.last() < two[1].firsts.first())
            );
            assert!((0..40_000).all(|n| set.absent(value(n)).is_none()));
            for n in 0..39_000 {
                set.remove(value(n));
            }
            assert!((0..39_000).all(|n| set.absent(value(n)).is_some()));
            assert!((39_000..40_000).all(|n| set.absent(value(n)).is_none()));
            for n in 39_000..40_000 {
                set.remove(value(n));
            }
            assert!(set.is_empty());
        }
    }

    #[test]
    fn a_value_stays_until_it_was_removed_as_often_as_it_was_added() {
        for times in [1, 2, 254, 255, 256, 1000] {
            let mut set = PrefixSet::<u64>::new(40);
            set.add(6);
            for _ in 0..times {
                set.add(5);
            }
            for _ in 0..times {
                assert!(set.absent(5).is_none());
                set.remove(5);
            }
            assert_eq!(set.absent(5), Some(39));
            assert!(set.many.is_empty());
        }
    }

    #[test]
    fn an_ascending_million_costs_little_more_than_its_values_and_counts() {
        let mut set = PrefixSet::<u32>::new(32);
        for n in 0..1_000_000 {
            set.add(n);
        }
        assert!(set.memory_bytes() < 6_000_000, "{}", set.memory_bytes());
    }
}
