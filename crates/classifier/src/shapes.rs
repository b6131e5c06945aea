//! Shapes: the distinct masks of rules, each stored once.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use smallvec::SmallVec;

use crate::words::{Hash, used};

#[derive(Debug)]
pub(crate) struct Shape<const N: usize> {
    pub(crate) mask: [u64; N],
    /// Bit n is set where `mask[n]` is not zero: the words that its rules' values keep.
    pub(crate) used: u128,
    pub(crate) rules: usize,
    /// The subtable with exactly this mask, which counts its rules as its own.
    pub(crate) own: Option<u32>,
    /// The subtables that have its rules, and how many.
    pub(crate) homes: SmallVec<[(u32, u32); 1]>,
}

#[derive(Debug)]
pub(crate) struct Shapes<const N: usize> {
    shapes: Vec<Option<Shape<N>>>,
    free: Vec<u32>,
    by_mask: HashMap<[u64; N], u32, WordHasher>,
    /// The last shape: consecutive rules often have the same one.
    recent: u32,
}

impl<const N: usize> Shapes<N> {
    pub(crate) fn new(hash: Hash) -> Shapes<N> {
        Shapes {
            shapes: Vec::new(),
            free: Vec::new(),
            by_mask: HashMap::with_hasher(WordHasher {
                hash,
                state: hash.start(),
            }),
            recent: 0,
        }
    }

    #[inline]
    pub(crate) fn get(&self, shape: u32) -> &Shape<N> {
        match &self.shapes[shape as usize] {
            Some(shape) => shape,
            None => unreachable!("a rule's shape lives as long as the rule"),
        }
    }

    pub(crate) fn get_mut(&mut self, shape: u32) -> &mut Shape<N> {
        match &mut self.shapes[shape as usize] {
            Some(shape) => shape,
            None => unreachable!("a rule's shape lives as long as the rule"),
        }
    }

    pub(crate) fn find(&self, mask: &[u64; N]) -> Option<u32> {
        match self.shapes.get(self.recent as usize) {
            Some(Some(shape)) if shape.mask == *mask => Some(self.recent),
            _ => self.by_mask.get(mask).copied(),
        }
    }

    /// The shape of this mask; creates it if missing.
    pub(crate) fn intern(&mut self, mask: &[u64; N]) -> u32 {
        if let Some(shape) = self.find(mask) {
            self.recent = shape;
            return shape;
        }
        let shape = Shape {
            mask: *mask,
            used: used(mask),
            rules: 0,
            own: None,
            homes: SmallVec::new(),
        };
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.shapes.push(None);
                (self.shapes.len() - 1) as u32
            }
        };
        self.shapes[number as usize] = Some(shape);
        self.by_mask.insert(*mask, number);
        self.recent = number;
        number
    }

    pub(crate) fn forget(&mut self, shape: u32) {
        if let Some(gone) = self.shapes[shape as usize].take() {
            self.by_mask.remove(&gone.mask);
            self.free.push(shape);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Shape<N>)> {
        (0u32..)
            .zip(&self.shapes)
            .filter_map(|(number, shape)| Some((number, shape.as_ref()?)))
    }

    /// One more than the highest number of a shape.
    pub(crate) fn end(&self) -> usize {
        self.shapes.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.shapes.len() - self.free.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.shapes.capacity() * size_of::<Option<Shape<N>>>()
            + self.free.capacity() * size_of::<u32>()
            + self.by_mask.capacity() * (size_of::<([u64; N], u32)>() + 1)
    }
}

impl<const N: usize> Shape<N> {
    /// The words of `value` that its rules keep.
    #[inline]
    pub(crate) fn pack(&self, value: &[u64; N]) -> SmallVec<[u64; 8]> {
        Bits(self.used).map(|word| value[word]).collect()
    }

    pub(crate) fn unpack(&self, packed: &[u64]) -> [u64; N] {
        let mut value = [0; N];
        for (word, bits) in Bits(self.used).zip(packed) {
            value[word] = *bits;
        }
        value
    }

    /// The numbers of the words that its rules keep.
    pub(crate) fn words(&self) -> impl Iterator<Item = usize> + use<N> {
        Bits(self.used)
    }

    /// Whether `words` under the mask are the value.
    #[inline]
    pub(crate) fn equal(&self, packed: &[u64], words: &[u64; N]) -> bool {
        Bits(self.used)
            .zip(packed)
            .all(|(word, bits)| words[word] & self.mask[word] == *bits)
    }
}

/// The numbers of the set bits, ascending.
#[derive(Clone, Copy)]
struct Bits(u128);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

/// The keyed hash of the keys, as a `std` hasher.
#[derive(Clone, Copy, Debug)]
struct WordHasher {
    hash: Hash,
    state: u64,
}

impl BuildHasher for WordHasher {
    type Hasher = WordHasher;

    fn build_hasher(&self) -> WordHasher {
        *self
    }
}

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        // The map takes its tag from the high bits and its place from the low ones.
        let hash = u64::from(self.hash.finish(self.state));
        hash << 32 | hash
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.state = self.hash.step(self.state, word);
    }
}
