//! Lists of classes that take turns by deficit round robin.

use crate::pool::NIL;

/// A class's place in a list.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct Link {
    previous: u32,
    next: u32,
    class: u32,
    /// It left its list in the middle of a turn and resumes the turn when it comes back. Classes
    /// leave a list whenever their tokens are used up; without this, shares would depend on how
    /// often that happens.
    interrupted: bool,
    quantum: i64,
    /// Bytes left of its turn; above 0 except for packets larger than the quantum.
    deficit: i64,
}

/// The places of a class in two lists, in one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Pair([Link; 2]);

/// Circular lists; a link is in one at a time.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    heads: Vec<u32>,
    pairs: Vec<Pair>,
}

impl Rounds {
    pub(crate) fn new(lists: usize) -> Rounds {
        Rounds {
            heads: vec![NIL; lists],
            pairs: Vec::new(),
        }
    }

    /// Two new links of a class, in no list: the number returned, which is even, and the next.
    pub(crate) fn pair(&mut self, class: u32, quantum: i64) -> u32 {
        let link = Link {
            previous: NIL,
            next: NIL,
            class,
            interrupted: false,
            quantum,
            deficit: quantum,
        };
        self.pairs.push(Pair([link.clone(), link]));
        (self.pairs.len() as u32 - 1) * 2
    }

    #[inline]
    fn at(&mut self, link: u32) -> &mut Link {
        &mut self.pairs[link as usize / 2].0[link as usize % 2]
    }

    /// The link at the head of a list, and the one after it; [`NIL`] in an empty list. Does not
    /// read the latter, which may be in no near cache.
    #[inline]
    pub(crate) fn coming(&self, list: u32) -> (u32, u32) {
        let head = self.heads[list as usize];
        let next = self
            .pairs
            .get(head as usize / 2)
            .map(|pair| pair.0[head as usize % 2].next);
        (head, next.unwrap_or(NIL))
    }

    /// A link will be needed soon.
    #[inline]
    pub(crate) fn expect(&self, link: u32) {
        if let Some(pair) = self.pairs.get(link as usize / 2) {
            sys::memory::prefetch(pair);
        }
    }

    /// Whose turn it is: link and class.
    #[inline]
    pub(crate) fn next(&mut self, list: u32) -> Option<(u32, u32)> {
        loop {
            let at = self.heads[list as usize];
            if at == NIL {
                return None;
            }
            let link = self.at(at);
            if link.deficit > 0 {
                return Some((at, link.class));
            }
            link.deficit += link.quantum;
            self.heads[list as usize] = link.next;
        }
    }

    /// Charges the head of a list with bytes. When its quantum is used up, the next one has the
    /// turn.
    #[inline]
    pub(crate) fn spend(&mut self, list: u32, head: u32, bytes: u32) {
        let link = self.at(head);
        let left = link.deficit - i64::from(bytes);
        // A branch would be unpredictable.
        let over = left <= 0;
        link.deficit = left + (link.quantum & -i64::from(over));
        let head = if over { link.next } else { head };
        self.heads[list as usize] = head;
    }

    /// Adds a link at the end, or at the head if its turn was interrupted. Returns whether the list
    /// was empty.
    #[inline(always)]
    pub(crate) fn insert(&mut self, list: u32, link: u32) -> bool {
        let interrupted = std::mem::take(&mut self.at(link).interrupted);
        let head = self.heads[list as usize];
        if head == NIL {
            self.heads[list as usize] = link;
            let place = self.at(link);
            (place.previous, place.next) = (link, link);
            return true;
        }
        let last = std::mem::replace(&mut self.at(head).previous, link);
        self.at(last).next = link;
        let place = self.at(link);
        (place.previous, place.next) = (last, head);
        self.heads[list as usize] = if interrupted { link } else { head };
        false
    }

    /// Removes a link. Returns whether the list is empty now.
    #[inline(always)]
    pub(crate) fn remove(&mut self, list: u32, link: u32) -> bool {
        let head = self.heads[list as usize];
        let is_head = head == link;
        let place = self.at(link);
        place.interrupted = is_head & (place.deficit < place.quantum);
        let (previous, next) = (place.previous, place.next);
        if next == link {
            self.heads[list as usize] = NIL;
            return true;
        }
        self.at(previous).next = next;
        self.at(next).previous = previous;
        self.heads[list as usize] = if is_head { next } else { head };
        false
    }
}
