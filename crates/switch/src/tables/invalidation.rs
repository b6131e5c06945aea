//! The packets that a change of rules may affect.

use super::WORDS;
use classifier::Match;
use smallvec::SmallVec;

/// For each changed table, matches that cover all packets for which its result may have changed.
///
/// Many matches are merged into one that covers all their packets and others, so the list stays
/// short whatever the change is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stale {
    tables: SmallVec<[(u8, Vec<Match<WORDS>>); 1]>,
    /// Whether some table had too many: from then on each table has one match.
    many: bool,
}

/// Number of separate matches for one table.
const MOST: usize = 8;

impl Stale {
    /// Adds the packets of a match in a table.
    pub(crate) fn add(&mut self, table: u8, matching: &Match<WORDS>) {
        let at = match self.tables.iter().position(|(number, _)| *number == table) {
            Some(at) => at,
            None => {
                // Most changes affect one rule; a match is large.
                self.tables.push((table, Vec::with_capacity(1)));
                self.tables.len() - 1
            }
        };
        let matches = &mut self.tables[at].1;
        if matches.iter().any(|known| known.covers(matching)) {
            return;
        }
        if matches.is_empty() || !self.many && matches.len() < MOST {
            matches.push(*matching);
            return;
        }
        self.many = true;
        let all = matches.iter().fold(*matching, |all, one| union(&all, one));
        matches.clear();
        matches.push(all);
    }

    /// Adds the matches of another.
    pub(crate) fn extend(&mut self, other: &Stale) {
        for (table, matching) in other.iter() {
            self.add(table, matching);
        }
    }

    /// Tables and matches.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, &Match<WORDS>)> {
        self.tables
            .iter()
            .flat_map(|(table, matches)| matches.iter().map(move |matching| (*table, matching)))
    }

    /// The tables, ascending.
    pub(crate) fn tables(&self) -> Vec<u8> {
        let mut tables: Vec<u8> = self.tables.iter().map(|(table, _)| *table).collect();
        tables.sort_unstable();
        tables
    }

    /// Whether nothing has changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }
}

/// The narrowest match that covers the packets of both.
fn union(a: &Match<WORDS>, b: &Match<WORDS>) -> Match<WORDS> {
    let mask = std::array::from_fn(|n| a.mask()[n] & b.mask()[n] & !(a.value()[n] ^ b.value()[n]));
    Match::new(a.value(), &mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: u64) -> Match<WORDS> {
        let mut words = [0; WORDS];
        let mut mask = [0; WORDS];
        (words[40], mask[40]) = (value, 0xff);
        Match::new(&words, &mask)
    }

    #[test]
    fn many_matches_become_one_that_has_them_all() {
        let mut stale = Stale::default();
        for value in 0x40..0x60 {
            stale.add(3, &of(value));
        }
        stale.add(1, &of(1));
        assert_eq!(stale.tables(), [1, 3]);
        assert!(stale.iter().count() <= 2 * MOST);
        for value in 0x40..0x60 {
            assert!(stale.iter().any(|(table, m)| table == 3 && m.covers(&of(value))));
        }
        assert!(!stale.iter().any(|(table, m)| table == 3 && m.overlaps(&of(0x80))));
    }
}
