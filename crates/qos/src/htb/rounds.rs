//! Lists of classes that take turns by deficit round robin.

use crate::pool::NIL;

/// A class's place in a list.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    previous: u32,
    next: u32,
    pub(crate) class: u32,
    /// Bytes that it may still send before the turn is the next one's: of its own and of what its parent lends. Were it one number, what a class sends of
    /// its own would be taken off its share of what is lent.
    pub(crate) deficits: [i64; 2],
    /// It left its list in the middle of a turn, and goes on with it when it comes back. Classes leave a list whenever their tokens come and go: if that
    /// cost them their turn, shares would follow from how often it happens.
    interrupted: [bool; 2],
}

/// Circular lists; a link is in one at a time.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    heads: Vec<u32>,
    pub(crate) links: Vec<Link>,
}

impl Rounds {
    pub(crate) fn new(lists: usize) -> Rounds {
        Rounds {
            heads: vec![NIL; lists],
            links: Vec::new(),
        }
    }

    /// A new link of a class, in no list.
    pub(crate) fn link(&mut self, class: u32, quantum: i64) -> u32 {
        self.links.push(Link {
            previous: NIL,
            next: NIL,
            class,
            deficits: [quantum; 2],
            interrupted: [false; 2],
        });
        self.links.len() as u32 - 1
    }

    /// Whose turn it is.
    #[inline]
    pub(crate) fn head(&self, list: u32) -> u32 {
        self.heads[list as usize]
    }

    /// The turn goes on to the next.
    #[inline]
    pub(crate) fn turn(&mut self, list: u32) {
        let head = self.heads[list as usize];
        self.heads[list as usize] = self.links[head as usize].next;
    }

    /// Puts a link in last, or first if its turn was interrupted; whether the list was empty. `lent` tells which deficit counts in the list.
    #[inline]
    pub(crate) fn insert(&mut self, list: u32, link: u32, lent: bool) -> bool {
        let interrupted = std::mem::take(&mut self.links[link as usize].interrupted[usize::from(lent)]);
        let head = self.heads[list as usize];
        if head == NIL {
            self.heads[list as usize] = link;
            (self.links[link as usize].previous, self.links[link as usize].next) = (link, link);
            return true;
        }
        let last = std::mem::replace(&mut self.links[head as usize].previous, link);
        self.links[last as usize].next = link;
        (self.links[link as usize].previous, self.links[link as usize].next) = (last, head);
        if interrupted {
            self.heads[list as usize] = link;
        }
        false
    }

    /// Takes a link out; whether the list is empty now.
    #[inline]
    pub(crate) fn remove(&mut self, list: u32, link: u32, lent: bool) -> bool {
        let is_head = self.heads[list as usize] == link;
        let Link {
            previous,
            next,
            deficits,
            ref mut interrupted,
            ..
        } = self.links[link as usize];
        interrupted[usize::from(lent)] = is_head && deficits[usize::from(lent)] > 0;
        if next == link {
            self.heads[list as usize] = NIL;
            return true;
        }
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
        if is_head {
            self.heads[list as usize] = next;
        }
        false
    }
}
