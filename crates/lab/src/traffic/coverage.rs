//! Which bytes of a TCP connection have passed, by their sequence numbers.

use std::collections::BTreeMap;

/// Maximum number of separate ranges; beyond it, the gap before the first range counts as seen.
const MOST: usize = 4096;

/// Bytes of one direction of a connection that were seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    /// Beginnings and ends, not joined and not overlapping. Numbers go on beyond 2^32 where those
    /// of the segments wrap.
    runs: BTreeMap<u64, u64>,
    /// The highest end.
    end: Option<u64>,
}

/// The origin of the first number, so that lower numbers can follow.
const ORIGIN: u64 = 1 << 33;

impl Coverage {
    /// Adds a segment at a sequence number. Returns how many of its bytes are new.
    pub(super) fn add(&mut self, sequence: u32, length: u64) -> u64 {
        let end = *self.end.get_or_insert(ORIGIN + u64::from(sequence));
        let from = end.wrapping_add_signed(i64::from(sequence.wrapping_sub(end as u32).cast_signed()));
        let to = from + length;
        if length == 0 {
            return 0;
        }
        let (mut new, mut begin, mut until) = (length, from, to);
        let touching: Vec<(u64, u64)> = self
            .runs
            .range(..=to)
            .rev()
            .take_while(|(_, end)| **end >= from)
            .map(|(begin, end)| (*begin, *end))
            .collect();
        for (b, e) in touching {
            new -= e.min(to).saturating_sub(b.max(from)).min(new);
            begin = begin.min(b);
            until = until.max(e);
            self.runs.remove(&b);
        }
        self.runs.insert(begin, until);
        self.end = Some(end.max(to));
        if self.runs.len() > MOST
            && let Some((begin, _)) = self.runs.pop_first()
            && let Some((_, until)) = self.runs.pop_first()
        {
            self.runs.insert(begin, until);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_again_is_not_new() {
        let mut seen = Coverage::default();
        assert_eq!(seen.add(1000, 100), 100);
        assert_eq!(seen.add(1100, 100), 100);
        assert_eq!(seen.add(1000, 200), 0);
        assert_eq!(seen.add(1150, 100), 50);
        assert_eq!(seen.add(1000, 0), 0);
    }

    #[test]
    fn a_segment_that_fills_a_hole_is_new() {
        let mut seen = Coverage::default();
        assert_eq!(seen.add(0, 10), 10);
        assert_eq!(seen.add(20, 10), 10);
        assert_eq!(seen.add(40, 10), 10);
        assert_eq!(seen.add(5, 40), 20, "10 to 20 and 30 to 40");
        assert_eq!(seen.add(0, 50), 0);
        assert_eq!(seen.runs.len(), 1);
    }

    #[test]
    fn numbers_go_on_where_they_wrap_and_a_first_one_may_come_late() {
        let mut seen = Coverage::default();
        assert_eq!(seen.add(u32::MAX - 9, 20), 20);
        assert_eq!(seen.add(10, 5), 5);
        assert_eq!(seen.add(u32::MAX - 19, 20), 10);
        assert_eq!(seen.add(u32::MAX - 9, 25), 0);
        assert_eq!(seen.runs.len(), 1);
    }

    #[test]
    fn any_order_of_any_segments_adds_up_to_the_bytes_that_there_are() {
        let mut state = 1_u32;
        let mut lot = |of: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % of
        };
        for _ in 0..50 {
            let base = lot(u32::MAX);
            let (mut seen, mut bytes) = (Coverage::default(), std::collections::BTreeSet::new());
            for _ in 0..200 {
                let (at, length) = (lot(2000), lot(60));
                let before = bytes.len();
                bytes.extend(at..at + length);
                let new = (bytes.len() - before) as u64;
                assert_eq!(seen.add(base.wrapping_add(at), u64::from(length)), new);
            }
        }
    }

    #[test]
    fn many_holes_take_no_more_than_so_much() {
        let mut seen = Coverage::default();
        for n in 0..3 * MOST as u32 {
            assert_eq!(seen.add(n * 10, 5), 5);
        }
        assert!(seen.runs.len() <= MOST);
        assert_eq!(seen.add(0, 5), 0);
    }
}
