//! The free list of frame buffers.
//!
//! Goal: a buffer that can hold a whole 64 KB segment, at the cost of a pointer. Each thread keeps
//! its own bounded, last-in-first-out lists, so that the next buffer is the one most likely still
//! in the processor's cache, and takes no lock. There are two sizes: packets are received into
//! large ones, since their length is not known before; copies, and packets that wait in a queue,
//! take a small one if they fit.
//!
//! Invariants
//! - A buffer on a list is exactly [`CAPACITY`] or [`SMALL`] bytes and initialised (with the
//!   leftovers of earlier packets: it is never cleared again).
//! - The lists hold at most [`MAX_FREE`] and [`MAX_FREE_SMALL`] buffers; the allocator gets the
//!   rest. Memory therefore depends on how many frames are in use and on threads, not on ports.

use std::cell::RefCell;
use std::vec::Drain;
use sys::Buffer;

/// Bytes before a received packet: room for tunnel headers, tags and the vnet header that the
/// kernel wants on sending.
pub(crate) const HEADROOM: usize = 128;

/// Size of a pooled buffer, 17 pages: headroom, and the largest packet that a port passes (65 535
/// bytes of IP, its Ethernet header and tags).
pub(crate) const CAPACITY: usize = 68 * 1024;

/// Size of a small pooled buffer: headroom, and a packet of the usual Ethernet.
pub(crate) const SMALL: usize = 2 * 1024;

/// Buffers that one thread keeps for reuse.
const MAX_FREE: usize = 128;
/// Small buffers that one thread keeps for reuse: as many as a queue of usual length may free at
/// once.
const MAX_FREE_SMALL: usize = 1024;

thread_local! {
    static FREE: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
    static FREE_SMALL: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`CAPACITY`] bytes with unspecified content.
pub(crate) fn take() -> Buffer {
    let recycled = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
    // A zeroed allocation comes from untouched pages, which cost no memory until a packet is
    // written to them.
    recycled.unwrap_or_else(|| vec![0; CAPACITY].into_boxed_slice().into())
}

/// A buffer of [`SMALL`] bytes with unspecified content.
pub(crate) fn take_small() -> Buffer {
    let recycled = FREE_SMALL.try_with(|free| free.borrow_mut().pop()).ok().flatten();
    recycled.unwrap_or_else(new_small)
}

/// Calls `with` with so many small buffers, fewer than a list holds; `with` must not take others.
/// Does nothing in a thread that ends.
#[inline]
pub(crate) fn with_small(count: usize, with: impl FnOnce(Drain<'_, Buffer>)) {
    let _ = FREE_SMALL.try_with(|free| {
        let mut free = free.borrow_mut();
        while free.len() < count {
            free.push(new_small());
        }
        let first = free.len() - count;
        with(free.drain(first..));
    });
}

#[cold]
fn new_small() -> Buffer {
    vec![0; SMALL].into_boxed_slice().into()
}

/// Keeps a buffer for reuse by the calling thread.
pub(crate) fn give(buffer: Buffer) {
    let (list, most) = match buffer.len() {
        CAPACITY => (&FREE, MAX_FREE),
        SMALL => (&FREE_SMALL, MAX_FREE_SMALL),
        _ => return,
    };
    let _ = list.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.len() < most {
            free.push(buffer);
        }
    });
}

/// As [`give`] for each, with one access to the thread's list of small ones.
#[inline]
pub(crate) fn give_all(buffers: impl Iterator<Item = Buffer>) {
    let _ = FREE_SMALL.try_with(|free| {
        let mut free = free.borrow_mut();
        // With room for all that it may hold, to which it is compared, it need not be asked for
        // more at each.
        let unused = MAX_FREE_SMALL.saturating_sub(free.len());
        free.reserve_exact(unused);
        for buffer in buffers {
            if buffer.len() != SMALL {
                give(buffer);
            } else if free.len() < free.capacity() {
                free.push(buffer);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_given_back_is_the_next_one_taken() {
        let buffer = take();
        let address = buffer.as_ptr();
        give(buffer);
        let again = take();
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn the_list_is_bounded() {
        let all: Vec<_> = (0..MAX_FREE + 20).map(|_| take()).collect();
        all.into_iter().for_each(give);
        assert_eq!(FREE.with(|free| free.borrow().len()), MAX_FREE);
    }

    #[test]
    fn many_are_taken_and_given_back_as_one_is() {
        let mut all = vec![take(), Buffer::default()];
        all.extend((0..MAX_FREE_SMALL).map(|_| take_small()));
        with_small(20, |small| all.extend(small));
        assert!(all[2..].iter().all(|buffer| buffer.len() == SMALL));
        let last = all[MAX_FREE_SMALL + 1].as_ptr();
        give_all(all.into_iter());
        assert_eq!(
            (
                FREE.with(|free| free.borrow().len()),
                FREE_SMALL.with(|free| free.borrow().len())
            ),
            (1, MAX_FREE_SMALL)
        );
        let again = take_small();
        assert_eq!(again.as_ptr(), last);
    }
}
