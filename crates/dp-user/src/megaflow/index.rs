//! Index of the megaflows of one mask: a hash table that grows in pieces.
//!
//! Extendible hashing. The highest bits of a hash select a *segment* through a directory; the
//! lowest select the megaflow's home line in the segment. If the home line is full, the megaflow is
//! in the line beside it; if both are full, the segment grows to twice its size or, at [`MOST`]
//! lines, is split in two. So growing moves at most the megaflows of one segment, some thousands,
//! however many there are in all.
//!
//! Invariants
//! - A megaflow that is not at home has a full home line: a search looks at the second line only
//!   then.
//! - A megaflow that fits in neither line, if the segment cannot grow or split (this takes
//!   seventeen hashes with the same bits everywhere), is in `spill`.

use crate::lines::{self, Line, Lines, PLACES};
use crate::signature::NONE;

/// Lines in a segment at most: 32 KiB, of 4096 places.
const MOST: usize = 512;

/// Lines in a segment at first: a line and the one beside it.
const LEAST: usize = 2;

/// Bits of a hash that the directory uses at most.
const DEPTH: u32 = 16;

/// See the module's page.
pub(super) struct Index {
    /// Segments by the highest `depth` bits of the hash.
    directory: Vec<u32>,
    depth: u32,
    segments: Vec<Segment>,
    spill: Vec<(u32, u32)>,
    len: usize,
}

struct Segment {
    lines: Lines,
    /// Number of highest bits that its hashes have in common.
    depth: u32,
}

impl Index {
    pub(super) fn new() -> Index {
        Index {
            directory: vec![0],
            depth: 0,
            segments: vec![Segment {
                lines: Lines::new(LEAST),
                depth: 0,
            }],
            spill: Vec::new(),
            len: 0,
        }
    }

    /// Number of megaflows in it.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The line where a megaflow of this hash is at home.
    #[inline(always)]
    pub(super) fn home(&self, hash: u32) -> &Line {
        self.segment(hash).lines.line(hash)
    }

    /// The first megaflow in the home line of this hash that may have it; [`NONE`] if there is
    /// none.
    #[inline(always)]
    pub(super) fn candidate(&self, hash: u32) -> u32 {
        lines::first(self.home(hash), hash).unwrap_or(NONE)
    }

    /// The first megaflow of this hash that `is_it` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let lines = &self.segment(hash).lines;
        let home = lines.line(hash);
        if let Some(found) = find_in(home, hash, &is_it) {
            return Some(found);
        }
        if !lines::is_full(home) {
            return None;
        }
        find_in(lines.line(hash ^ 1), hash, &is_it).or_else(|| self.find_spilt(hash, &is_it))
    }

    #[cold]
    fn find_spilt(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let found = self.spill.iter().find(|(own, flow)| *own == hash && is_it(*flow));
        found.map(|(_, flow)| *flow)
    }

    /// Adds a megaflow.
    pub(super) fn insert(&mut self, hash: u32, flow: u32) {
        self.len += 1;
        while !put(&mut self.segment_mut(hash).lines, hash, flow) {
            if !self.grow(hash) {
                self.spill.push((hash, flow));
                return;
            }
        }
    }

    /// Removes a megaflow.
    pub(super) fn remove(&mut self, hash: u32, flow: u32) {
        self.len -= 1;
        if let Some(at) = self.spill.iter().position(|(_, spilt)| *spilt == flow) {
            self.spill.swap_remove(at);
            return;
        }
        let lines = &mut self.segment_mut(hash).lines;
        let mut freed = hash;
        if !take(lines.line_mut(freed), hash, flow) {
            freed ^= 1;
            take(lines.line_mut(freed), hash, flow);
        }
        // A megaflow that is beside this line for want of the place moves home; its own place
        // becomes free.
        while let Some((place, tag, number)) = guest(lines.line(freed ^ 1), freed) {
            lines::add(lines.line_mut(freed), tag, number);
            freed ^= 1;
            lines::free(lines.line_mut(freed), place);
        }
        if !self.spill.is_empty() {
            self.take_back();
        }
    }

    /// Tries again what found no place.
    fn take_back(&mut self) {
        for (hash, flow) in std::mem::take(&mut self.spill) {
            if !put(&mut self.segment_mut(hash).lines, hash, flow) {
                self.spill.push((hash, flow));
            }
        }
    }

    /// All megaflows.
    pub(super) fn flows(&self) -> impl Iterator<Item = u32> + '_ {
        let placed = self.segments.iter().flat_map(|segment| segment.lines.taken());
        placed.chain(self.spill.iter().copied()).map(|(_, flow)| flow)
    }

    #[inline(always)]
    fn segment(&self, hash: u32) -> &Segment {
        &self.segments[self.directory[highest(hash, self.depth)] as usize]
    }

    fn segment_mut(&mut self, hash: u32) -> &mut Segment {
        &mut self.segments[self.directory[highest(hash, self.depth)] as usize]
    }

    /// Makes room for this hash; returns `false` if that is not possible.
    fn grow(&mut self, hash: u32) -> bool {
        let number = self.directory[highest(hash, self.depth)] as usize;
        let segment = &mut self.segments[number];
        let (lines, depth) = (segment.lines.len(), segment.depth);
        if lines < MOST {
            let old = std::mem::replace(&mut segment.lines, Lines::new(2 * lines));
            self.move_in(&old);
            return true;
        }
        if depth == DEPTH {
            return false;
        }
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|number| [*number, *number]).collect();
            self.depth += 1;
        }
        let segment = &mut self.segments[number];
        segment.depth += 1;
        let old = std::mem::replace(&mut segment.lines, Lines::new(MOST));
        let other = self.segments.len() as u32;
        self.segments.push(Segment {
            lines: Lines::new(MOST),
            depth: depth + 1,
        });
        // Hashes whose next bit is set belong to the new segment: the upper half of this segment's
        // part of the directory.
        let part = 1usize << (self.depth - depth);
        let first = highest(hash, depth) * part;
        self.directory[first + part / 2..first + part].fill(other);
        self.move_in(&old);
        true
    }

    /// Moves the entries of old lines to their new places, and those of the spill that fit now.
    fn move_in(&mut self, old: &Lines) {
        for (hash, flow) in old.taken() {
            if !put(&mut self.segment_mut(hash).lines, hash, flow) {
                self.spill.push((hash, flow));
            }
        }
        self.take_back();
    }
}

/// The highest bits of a hash.
#[inline(always)]
fn highest(hash: u32, bits: u32) -> usize {
    (u64::from(hash) >> (32 - bits)) as usize
}

#[inline(always)]
fn find_in(line: &Line, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
    let mut places = lines::with_tag(line, hash);
    while places != 0 {
        let place = places.trailing_zeros() as usize % PLACES;
        if let Some(flow) = lines::number(line, place).filter(|flow| is_it(*flow)) {
            return Some(flow);
        }
        places &= places - 1;
    }
    None
}

/// Takes a place in the home line or beside it; returns `false` if there is none.
fn put(lines: &mut Lines, hash: u32, flow: u32) -> bool {
    lines::add(lines.line_mut(hash), hash, flow) || lines::add(lines.line_mut(hash ^ 1), hash, flow)
}

/// A megaflow in a line whose home is the line beside it, where `hash` belongs: place, hash and
/// number.
fn guest(line: &Line, hash: u32) -> Option<(usize, u32, u32)> {
    (0..PLACES).find_map(|place| {
        let number = lines::number(line, place)?;
        ((line[place] ^ hash) & 1 == 0).then_some((place, line[place], number))
    })
}

/// Frees the place of a megaflow in a line; returns `false` if it has none there.
fn take(line: &mut Line, hash: u32, flow: u32) -> bool {
    let places = lines::with_tag(line, hash);
    let place = (0..PLACES).find(|place| places >> place & 1 != 0 && lines::number(line, *place) == Some(flow));
    if let Some(place) = place {
        lines::free(line, place);
    }
    place.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn found(index: &Index, hash: u32, flow: u32) -> bool {
        index.find(hash, |found| found == flow) == Some(flow)
    }

    #[test]
    fn a_hundred_thousand_are_found_and_no_others() {
        let hash = |n: u32| n.wrapping_mul(0x9e37_79b9);
        let mut index = Index::new();
        for n in 0..100_000 {
            index.insert(hash(n), n);
        }
        assert!(index.spill.is_empty() && index.segments.len() > 20);
        assert!((0..100_000).all(|n| found(&index, hash(n), n)));
        assert_eq!(index.flows().collect::<BTreeSet<_>>().len(), 100_000);
        for n in (0..100_000).filter(|n| n % 3 != 0) {
            index.remove(hash(n), n);
        }
        assert!((0..100_000).all(|n| found(&index, hash(n), n) == (n % 3 == 0)));
        assert_eq!(index.len(), 33_334);
    }

    proptest! {
        /// Hashes with few bits collide all the time: lines overflow, segments split to their end,
        /// and the rest spills.
        #[test]
        fn it_holds_what_was_put_in(
            changes in prop::collection::vec((any::<bool>(), 0u32..200), 1..600),
            spread in 0u32..3,
        ) {
            let mut index = Index::new();
            let mut model = BTreeSet::new();
            for (add, flow) in changes {
                let hash = match spread {
                    0 => flow % 3,
                    1 => ((flow % 40) << 27) | (flow % 3),
                    _ => flow.wrapping_mul(0x9e37_79b9),
                };
                if add && model.insert((hash, flow)) {
                    index.insert(hash, flow);
                } else if !add && model.remove(&(hash, flow)) {
                    index.remove(hash, flow);
                }
                prop_assert_eq!(index.len(), model.len());
            }
            for (hash, flow) in &model {
                prop_assert!(found(&index, *hash, *flow));
            }
            prop_assert_eq!(index.flows().collect::<BTreeSet<_>>(), model.iter().map(|(_, flow)| *flow).collect());
        }
    }
}
