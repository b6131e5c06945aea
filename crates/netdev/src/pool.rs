//! The free list of frame buffers.
//!
//! Goal: a buffer that can hold a whole 64 KB segment, at the price of a pointer. Each thread keeps its own bounded, last-in-first-out list,
//! so that the buffer used next is the one most likely still in the processor's cache, and no lock is taken.
//!
//! Invariants
//! - A buffer on a list is exactly [`CAPACITY`] bytes and initialised (with the leftovers of earlier packets: it is never cleared again).
//! - A list holds at most [`MAX_FREE`] buffers; what is beyond goes back to the allocator. Memory therefore depends on how many frames are in
//!   use and on threads, not on ports.

use std::cell::RefCell;

/// Bytes before a received packet: room for tunnel headers, tags and the vnet header that the kernel wants on sending.
pub(crate) const HEADROOM: usize = 128;

/// Size of a pooled buffer, 17 pages: headroom, and the largest packet that a port passes (65 535 bytes of IP, its Ethernet header and tags).
pub(crate) const CAPACITY: usize = 68 * 1024;

/// Buffers that one thread keeps for reuse.
const MAX_FREE: usize = 128;

thread_local! {
    static FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of [`CAPACITY`] bytes with unspecified content.
pub(crate) fn take() -> Box<[u8]> {
    let recycled = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
    // A zeroed allocation comes from untouched pages, which cost no memory until a packet is written to them.
    recycled.unwrap_or_else(|| vec![0; CAPACITY].into_boxed_slice())
}

/// Keeps a buffer for reuse by the calling thread.
pub(crate) fn give(buffer: Box<[u8]>) {
    if buffer.len() != CAPACITY {
        return;
    }
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.len() < MAX_FREE {
            free.push(buffer);
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
}
