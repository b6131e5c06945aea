//! Lists of classes that take turns by deficit round robin.

use crate::pool::NIL;

/// A class's place in a list.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct Link {
    previous: u32,
    next: u32,
    class: u32,
    /// It left its list in the middle of a turn, and goes on with it when it comes back. Classes leave a list whenever their tokens are used up: if
    /// that cost them their turn, shares would follow from how often it happens.
    interrupted: bool,
    quantum: i64,
    /// Bytes that it may still send before the turn is the next one's; above 0 but for packets larger than the quantum.
    deficit: i64,
}

/// Circular lists; a link is in one at a time.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    heads: Vec<u32>,
    links: Vec<Link>,
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
            interrupted: false,
            quantum,
            deficit: quantum,
        });
        self.links.len() as u32 - 1
    }

    /// Whose turn it is: link and class.
    #[inline]
    pub(crate) fn next(&mut self, list: u32) -> Option<(u32, u32)> {
        loop {
            let at = self.heads[list as usize];
            let link = self.links.get_mut(at as usize)?;
            if link.deficit > 0 {
                return Some((at, link.class));
            }
            link.deficit += link.quantum;
            self.heads[list as usize] = link.next;
        }
    }

    /// The head of a list sends so many bytes; with its quantum used up the turn is the next one's.
    #[inline]
    pub(crate) fn spend(&mut self, list: u32, link: u32, bytes: u32) {
        let link = &mut self.links[link as usize];
        link.deficit -= i64::from(bytes);
        if link.deficit <= 0 {
            link.deficit += link.quantum;
            self.heads[list as usize] = link.next;
        }
    }

    /// Puts a link in last, or first if its turn was interrupted; whether the list was empty.
    #[inline]
    pub(crate) fn insert(&mut self, list: u32, link: u32) -> bool {
        let interrupted = std::mem::take(&mut self.links[link as usize].interrupted);
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
    pub(crate) fn remove(&mut self, list: u32, link: u32) -> bool {
        let is_head = self.heads[list as usize] == link;
        let (previous, next) = {
            let link = &mut self.links[link as usize];
            link.interrupted = is_head && link.deficit < link.quantum;
            (link.previous, link.next)
        };
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
