//! A doubly linked list through the elements of a vector.

/// No element.
pub(super) const NIL: u32 = u32::MAX;

/// An element's neighbours in one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) prev: u32,
    pub(super) next: u32,
}

impl Default for Link {
    fn default() -> Link {
        Link { prev: NIL, next: NIL }
    }
}

/// The ends of a list. `link` in its methods selects the links of an element that the list uses.
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl Default for List {
    fn default() -> List {
        List { head: NIL, tail: NIL }
    }
}

impl List {
    /// The first element, or [`NIL`].
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// Adds an element that is in no list of this kind.
    pub(super) fn push_back<T>(&mut self, elements: &mut [T], at: u32, link: impl Fn(&mut T) -> &mut Link) {
        *link(&mut elements[at as usize]) = Link {
            prev: self.tail,
            next: NIL,
        };
        match elements.get_mut(self.tail as usize) {
            Some(last) => link(last).next = at,
            None => self.head = at,
        }
        self.tail = at;
    }

    /// Removes an element of this list.
    pub(super) fn remove<T>(&mut self, elements: &mut [T], at: u32, link: impl Fn(&mut T) -> &mut Link) {
        let Link { prev, next } = *link(&mut elements[at as usize]);
        match elements.get_mut(prev as usize) {
            Some(before) => link(before).next = next,
            None => self.head = next,
        }
        match elements.get_mut(next as usize) {
            Some(after) => link(after).prev = prev,
            None => self.tail = prev,
        }
    }
}
