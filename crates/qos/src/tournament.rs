//! A tournament tree with eight children a node: finds the lowest key of many members that change
//! their keys with each packet.
//!
//! Members stay where they are, each with its key in a cache line with seven others; the winner of
//! each eight is in such a line of the next round. A change that keeps the winner of a line ends
//! there, mostly in the first line; otherwise it goes up line by line: five for 10 000 members.
//! Members never move, so they need no position.

use crate::pool::NIL;

/// The key of a member that does not take part.
const OUT: u64 = u64::MAX;

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Eight([u64; 8]);

/// The member of the lowest key first; among equal keys any.
#[derive(Clone, Debug)]
pub(crate) struct Tournament {
    /// A complete tree: of line `n` the eight places are those of the winners of lines `8n + 1` to
    /// `8n + 8`, or, in the last lines, of members.
    lines: Vec<Eight>,
    /// For each line except those of members: the winners.
    winners: Vec<[u32; 8]>,
    first: (u64, u32),
}

impl Tournament {
    /// For members 0 to `members` - 1.
    pub(crate) fn new(members: usize) -> Tournament {
        let of_members = members.div_ceil(8).max(1);
        let inner = (of_members - 1).div_ceil(7);
        Tournament {
            lines: vec![Eight([OUT; 8]); inner + of_members],
            winners: vec![[NIL; 8]; inner],
            first: (OUT, NIL),
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        (self.first.0 != OUT).then_some(self.first)
    }

    /// The first, if its key is at most this.
    #[inline]
    pub(crate) fn first_until(&self, key: u64) -> Option<u32> {
        (self.first.0 <= key.min(OUT - 1)).then_some(self.first.1)
    }

    /// A good guess at the next one after the first.
    #[inline]
    pub(crate) fn second(&self) -> u32 {
        let Some(members) = self.winners.first().filter(|_| self.first.0 != OUT) else {
            return NIL;
        };
        let (mut best, mut next) = ((OUT, 0), (OUT, 0));
        for (place, &key) in self.lines[0].0.iter().enumerate() {
            let is_less = key < best.0;
            let other = if is_less { best } else { (key, place) };
            best = if is_less { (key, place) } else { best };
            next = if other.0 < next.0 { other } else { next };
        }
        members[next.1 % 8]
    }

    #[inline]
    fn line_of(&self, member: u32) -> usize {
        self.winners.len() + member as usize / 8
    }

    /// Adds a member or changes its key. The greatest number counts as the one below it.
    #[inline]
    pub(crate) fn set(&mut self, member: u32, key: u64) {
        self.change(member, key.min(OUT - 1));
    }

    #[inline]
    pub(crate) fn remove(&mut self, member: u32) {
        self.change(member, OUT);
    }

    /// Takes the first out, if there is one.
    #[inline]
    pub(crate) fn remove_first(&mut self) {
        let member = self.first.1;
        let mut line = self.line_of(member);
        let Some(keys) = self.lines.get_mut(line) else { return };
        keys.0[member as usize % 8] = OUT;
        // It was the winner in every line up to the root, so no comparison with it is needed.
        let (key, place) = least(&keys.0);
        let mut new = (key, (8 * (line - self.winners.len())) as u32 + place);
        while let Some(n) = line.checked_sub(1) {
            let place = n % 8;
            line = n / 8;
            self.lines[line].0[place] = new.0;
            self.winners[line][place] = new.1;
            let (key, best) = least(&self.lines[line].0);
            new = (key, self.winners[line][best as usize % 8]);
        }
        self.first = new;
    }

    #[inline]
    fn change(&mut self, member: u32, key: u64) {
        let line = self.line_of(member);
        let old = std::mem::replace(&mut self.lines[line].0[member as usize % 8], key);
        if old != key {
            self.settle(line, old, (key, member));
        }
    }

    /// Updates the lines above after `new` replaced the key `old` in a line.
    fn settle(&mut self, mut line: usize, mut old: u64, mut new: (u64, u32)) {
        loop {
            let above = line.checked_sub(1).map(|n| (n / 8, n % 8));
            let best = above.map_or(self.first.0, |(line, place)| self.lines[line].0[place]);
            if new.0 >= best {
                if old > best {
                    return;
                }
                // It was the winner and may have lost.
                let (key, place) = least(&self.lines[line].0);
                new = match self.winners.get(line) {
                    Some(winners) => (key, winners[place as usize % 8]),
                    None => (key, (8 * (line - self.winners.len())) as u32 + place),
                };
            }
            let Some((up, place)) = above else {
                self.first = new;
                return;
            };
            self.lines[up].0[place] = new.0;
            self.winners[up][place] = new.1;
            (line, old) = (up, best);
        }
    }
}

/// The lowest key of a line and its place, in three rounds without branches.
#[inline]
fn least(keys: &[u64; 8]) -> (u64, u32) {
    let of = |a: (u64, u32), b: (u64, u32)| if b.0 < a.0 { b } else { a };
    let pair = |n: usize| of((keys[n], n as u32), (keys[n + 1], n as u32 + 1));
    of(of(pair(0), pair(2)), of(pair(4), pair(6)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn is_first(first: Option<(u64, u32)>, model: &BTreeMap<u32, u64>) -> bool {
        first.map(|(key, _)| key) == model.values().copied().min()
            && first.is_none_or(|(key, member)| model.get(&member) == Some(&key))
    }

    proptest! {
        /// One, two, three and four rounds.
        #[test]
        fn the_first_is_the_least_of_an_ordered_map(
            members in prop::sample::select(&[1u32, 7, 8, 9, 40, 64, 65, 700][..]),
            steps in prop::collection::vec((any::<u32>(), prop::option::of(0..30u64)), 1..600),
        ) {
            let mut tournament = Tournament::new(members as usize);
            let mut model = BTreeMap::new();
            for (member, key) in steps {
                let member = member % members;
                match key {
                    Some(key) => {
                        tournament.set(member, key);
                        model.insert(member, key);
                    }
                    None if member % 3 == 0 => {
                        if let Some((_, first)) = tournament.first() {
                            model.remove(&first);
                        }
                        tournament.remove_first();
                    }
                    None => {
                        tournament.remove(member);
                        model.remove(&member);
                    }
                }
                prop_assert!(is_first(tournament.first(), &model), "{:?}", tournament.first());
            }
        }
    }

    #[test]
    fn a_key_of_the_greatest_number_takes_part() {
        let mut tournament = Tournament::new(100);
        tournament.set(70, u64::MAX);
        assert_eq!(tournament.first().map(|(_, member)| member), Some(70));
        tournament.set(3, 5);
        assert_eq!(tournament.first(), Some((5, 3)));
        tournament.remove(3);
        tournament.remove(70);
        assert_eq!(tournament.first(), None);
    }
}
