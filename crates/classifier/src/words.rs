//! Matches, and arithmetic on words.

/// A match: keys with the bits of `value` where `mask` has ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Match<const N: usize> {
    value: [u64; N],
    mask: [u64; N],
}

impl<const N: usize> Match<N> {
    /// Every key.
    pub const ANY: Match<N> = Match {
        value: [0; N],
        mask: [0; N],
    };

    /// The keys that equal `value` under `mask`; bits of `value` outside the mask do not matter.
    pub fn new(value: &[u64; N], mask: &[u64; N]) -> Match<N> {
        Match {
            value: std::array::from_fn(|word| value[word] & mask[word]),
            mask: *mask,
        }
    }

    /// Sets a condition on a word: its bits in `mask` must equal those in `value`. Replaces earlier
    /// conditions on these bits.
    #[inline]
    pub fn require(&mut self, word: usize, value: u64, mask: u64) {
        self.value[word] = self.value[word] & !mask | value & mask;
        self.mask[word] |= mask;
    }

    /// The bits to compare with; zero outside the mask.
    pub fn value(&self) -> &[u64; N] {
        &self.value
    }

    /// The bits that count.
    pub fn mask(&self) -> &[u64; N] {
        &self.mask
    }

    /// Whether it matches a key.
    pub fn matches(&self, key: &[u64; N]) -> bool {
        (0..N).all(|word| key[word] & self.mask[word] == self.value[word])
    }

    /// Whether it matches all keys that `other` matches.
    pub fn covers(&self, other: &Match<N>) -> bool {
        is_subset(&self.mask, &other.mask) && self.matches(&other.value)
    }

    /// Whether some key matches both.
    pub fn overlaps(&self, other: &Match<N>) -> bool {
        (0..N).all(|word| (self.value[word] ^ other.value[word]) & self.mask[word] & other.mask[word] == 0)
    }
}

/// Whether `part` has no bit that `whole` lacks.
pub(crate) fn is_subset(part: &[u64], whole: &[u64]) -> bool {
    part.iter().zip(whole).all(|(part, whole)| part & !whole == 0)
}

/// Adds the bits of `more` to `mask`.
#[inline]
pub(crate) fn add_bits<const N: usize>(mask: &mut [u64; N], more: &[u64; N]) {
    for (word, bits) in mask.iter_mut().zip(more) {
        *word |= bits;
    }
}

/// Bit n is set where `words[n]` is not zero.
pub(crate) fn used(words: &[u64]) -> u128 {
    words
        .iter()
        .enumerate()
        .fold(0, |used, (word, bits)| used | u128::from(*bits != 0) << word)
}

/// A keyed hash of words: without the seed nobody can cause collisions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash {
    start: u64,
    factor: u64,
}

impl Hash {
    pub(crate) fn new(seed: u64) -> Hash {
        let scrambled = fold(seed ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93);
        Hash {
            start: scrambled,
            factor: fold(scrambled ^ seed, 0xa076_1d64_78bd_642f) | 1 << 63 | 1,
        }
    }

    #[inline]
    pub(crate) fn start(self) -> u64 {
        self.start
    }

    #[inline]
    pub(crate) fn step(self, state: u64, word: u64) -> u64 {
        fold(state.rotate_left(23) ^ word, self.factor)
    }

    #[inline]
    pub(crate) fn finish(self, state: u64) -> u32 {
        (fold(state ^ self.start, 0x9fb2_1c65_1e98_df25) >> 16) as u32
    }
}

/// Both halves of the product.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}
