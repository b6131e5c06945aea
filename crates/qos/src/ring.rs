//! Flows in round-robin order.

use crate::pool::NIL;

/// What a ring keeps in a flow's record.
pub(crate) trait Turns {
    /// The flow whose turn comes after this one's; [`NIL`] of a flow that is in no ring.
    fn next(&mut self) -> &mut u32;
}

/// A ring of flows by number. After the last comes the first again, so ending a turn moves no flow.
#[derive(Debug)]
pub(crate) struct Ring {
    first: u32,
    last: u32,
}

impl Ring {
    pub(crate) const fn new() -> Ring {
        Ring { first: NIL, last: NIL }
    }

    /// Whose turn it is; [`NIL`] if there is none.
    #[inline]
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NIL
    }

    /// A flow that is in no ring will be the last.
    #[inline]
    pub(crate) fn join<F: Turns>(&mut self, flows: &mut [F], flow: u32) {
        if self.is_empty() {
            self.first = flow;
            self.last = flow;
        }
        *flows[self.last as usize].next() = flow;
        *flows[flow as usize].next() = self.first;
        self.last = flow;
    }

    /// The first becomes the last. `next` is what comes after it.
    #[inline]
    pub(crate) fn turn(&mut self, next: u32) {
        self.last = self.first;
        self.first = next;
    }

    /// The first leaves, if there is one.
    #[inline]
    pub(crate) fn leave<F: Turns>(&mut self, flows: &mut [F]) {
        let Some(flow) = flows.get_mut(self.first as usize) else {
            return;
        };
        let next = std::mem::replace(flow.next(), NIL);
        if self.first == self.last {
            self.first = NIL;
        } else {
            self.first = next;
            *flows[self.last as usize].next() = next;
        }
    }

    /// The flow after the one with this `next`, to iterate from the first on; [`NIL`] after the
    /// last.
    #[inline]
    pub(crate) fn after(&self, flow: u32, next: u32) -> u32 {
        if flow == self.last { NIL } else { next }
    }
}
