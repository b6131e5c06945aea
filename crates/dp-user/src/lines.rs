//! Cache lines of eight places, used by both flow caches.
//!
//! A place holds a tag, which is part of a hash, and the number of a megaflow. A search costs one
//! access to memory, which fetches a line: it compares eight tags at once, and compares keys only
//! with megaflows whose tag agrees. Taken places come before free ones.

/// Places in a line.
pub(crate) const PLACES: usize = 8;

/// A line: eight tags, then eight numbers. A number is kept one higher than it is, so that zeroed
/// memory is free lines.
pub(crate) type Line = [u32; 2 * PLACES];

/// Minimum number of lines for which to request huge pages: 2 MiB.
const MANY: usize = 1 << 15;

/// A power of two of lines, each in one cache line of the processor.
pub(crate) struct Lines {
    words: Vec<u32>,
    /// Index of the first line.
    first: usize,
    len: usize,
}

impl Lines {
    /// Free lines, at least `least`. The kernel provides the memory, zeroed, on first access.
    pub(crate) fn new(least: usize) -> Lines {
        let len = least.next_power_of_two();
        let mut words = vec![0; (len + 1) * size_of::<Line>() / size_of::<u32>()];
        if len >= MANY {
            sys::memory::prefer_huge_pages(&mut words);
        }
        let first = words.as_ptr().align_offset(size_of::<Line>()).min(2 * PLACES);
        Lines { words, first, len }
    }

    /// Number of lines.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The line of this number; only its lowest bits count.
    #[inline(always)]
    pub(crate) fn line(&self, number: u32) -> &Line {
        let (lines, _) = self.words[self.first..].as_chunks();
        &lines[number as usize & (self.len - 1)]
    }

    /// The same, to be changed.
    #[inline(always)]
    pub(crate) fn line_mut(&mut self, number: u32) -> &mut Line {
        let (lines, _) = self.words[self.first..].as_chunks_mut();
        &mut lines[number as usize & (self.len - 1)]
    }

    /// Tags and numbers in taken places.
    pub(crate) fn taken(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (lines, _) = self.words[self.first..].as_chunks::<{ 2 * PLACES }>();
        lines[..self.len]
            .iter()
            .flat_map(|line| (0..PLACES).filter_map(|place| Some((line[place], number(line, place)?))))
    }
}

/// The places of a line with this tag, one bit each; free ones may be among them.
#[inline(always)]
pub(crate) fn with_tag(line: &Line, tag: u32) -> u32 {
    let mut places = 0;
    for (place, own) in line[..PLACES].iter().enumerate() {
        places |= u32::from(*own == tag) << place;
    }
    places
}

/// The number in the first place with this tag, if that is taken.
#[inline(always)]
pub(crate) fn first(line: &Line, tag: u32) -> Option<u32> {
    match with_tag(line, tag) {
        0 => None,
        places => number(line, places.trailing_zeros() as usize % PLACES),
    }
}

/// The number in the only place with this tag, plus one; 0 if no place has the tag. Does not
/// compute the place's index: that depends on the packet, and takes longer.
#[inline(always)]
pub(crate) fn only(line: &Line, tag: u32) -> u32 {
    let mut found = 0;
    for place in 0..PLACES {
        let all_or_none = u32::from(line[place] == tag).wrapping_neg();
        found |= line[PLACES + place] & all_or_none;
    }
    found
}

/// The number in a place, unless it is free.
#[inline(always)]
pub(crate) fn number(line: &Line, place: usize) -> Option<u32> {
    line[PLACES + place].checked_sub(1)
}

/// Whether all places are taken.
#[inline(always)]
pub(crate) fn is_full(line: &Line) -> bool {
    line[2 * PLACES - 1] != 0
}

/// Takes the first free place; returns `false` if there is none.
pub(crate) fn add(line: &mut Line, tag: u32, number: u32) -> bool {
    let Some(place) = (0..PLACES).find(|place| line[PLACES + place] == 0) else {
        return false;
    };
    set(line, place, (tag, number));
    true
}

/// Puts a tag and a number in a place.
#[inline(always)]
pub(crate) fn set(line: &mut Line, place: usize, (tag, number): (u32, u32)) {
    line[place] = tag;
    line[PLACES + place] = number + 1;
}

/// Moves the entries before `place` on by one, over the entry there.
#[inline(always)]
pub(crate) fn move_on(line: &mut Line, place: usize) {
    line.copy_within(..place, 1);
    line.copy_within(PLACES..PLACES + place, PLACES + 1);
}

/// Frees a place; the entry of the last taken place moves there.
pub(crate) fn free(line: &mut Line, place: usize) {
    let last = (0..PLACES).rfind(|place| line[PLACES + place] != 0).unwrap_or(place);
    line[place] = line[last];
    line[PLACES + place] = line[PLACES + last];
    (line[last], line[PLACES + last]) = (0, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lie_in_cache_lines() {
        for least in [1, 2, 3, 100, MANY] {
            let lines = Lines::new(least);
            assert_eq!(lines.len(), least.next_power_of_two());
            assert_eq!(std::ptr::from_ref(lines.line(0)) as usize % 64, 0);
            assert!(std::ptr::eq(lines.line(0), lines.line(lines.len() as u32)));
        }
    }

    #[test]
    fn places_are_taken_found_and_freed() {
        let mut lines = Lines::new(2);
        let line = lines.line_mut(1);
        for n in 0..8 {
            assert!(!is_full(line));
            assert!(add(line, n / 2, n));
        }
        assert!(is_full(line) && !add(line, 9, 9));
        assert_eq!(with_tag(line, 3), 0b1100_0000);
        assert_eq!(
            (number(line, 6), first(line, 3), first(line, 4)),
            (Some(6), Some(6), None)
        );
        free(line, 0);
        assert_eq!(with_tag(line, 3), 0b0100_0001);
        assert_eq!((number(line, 0), number(line, 7)), (Some(7), None));
        assert_eq!(lines.taken().count(), 7);
    }

    #[test]
    fn what_moves_on_makes_room_at_the_front() {
        let mut lines = Lines::new(1);
        let line = lines.line_mut(0);
        for n in 0..3 {
            add(line, n, n);
        }
        move_on(line, 2);
        set(line, 0, (7, 7));
        assert_eq!(lines.taken().collect::<Vec<_>>(), [(7, 7), (0, 0), (1, 1)]);
    }
}
