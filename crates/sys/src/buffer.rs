//! The memory of a packet: on the heap, or lent by a ring that the kernel writes to.

use crate::packet_ring::Lender;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A piece of memory, owned by the handle.
///
/// A buffer from a [`PacketRing`](crate::PacketRing) returns to the ring when it is dropped, on any
/// thread. Until then the ring has one place less, and the kernel stops at a place that has not
/// returned. So copy packets that are going to wait.
pub struct Buffer {
    bytes: NonNull<u8>,
    /// Length in bytes, and [`LENT`]. Two words and no more: they are passed in registers then,
    /// while a copy of three parts in one piece waits for the writes of each (7 ns a packet).
    len: usize,
}

/// The bytes have to go back to a ring.
const LENT: usize = 1 << (usize::BITS - 1);

// SAFETY: a buffer owns its bytes, as a `Box<[u8]>` does: no other value reads or writes them. Any
// thread may run the drop of a lent one (`Lender`).
unsafe impl Send for Buffer {}
// SAFETY: as above; through a shared reference bytes are only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Whether it has to go back to a ring.
    #[inline]
    pub fn is_lent(&self) -> bool {
        self.len & LENT != 0
    }

    /// A buffer of a ring.
    ///
    /// # Safety
    /// `bytes` are `len` initialised bytes that are not used otherwise before the buffer is
    /// dropped, and a [`Lender`] has prepared them for their return.
    #[inline]
    pub(crate) unsafe fn lent(bytes: NonNull<u8>, len: u32) -> Buffer {
        Buffer {
            bytes,
            len: len as usize | LENT,
        }
    }
}

impl From<Box<[u8]>> for Buffer {
    /// Takes over memory of the heap.
    #[inline]
    fn from(bytes: Box<[u8]>) -> Buffer {
        // No piece of memory is so long that this is `LENT`.
        let len = bytes.len();
        // SAFETY: a box's pointer is never null.
        let bytes = unsafe { NonNull::new_unchecked(Box::into_raw(bytes).cast()) };
        Buffer { bytes, len }
    }
}

impl Default for Buffer {
    /// An empty one, which holds no memory.
    #[inline]
    fn default() -> Buffer {
        Buffer {
            bytes: NonNull::dangling(),
            len: 0,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` are `len` initialised bytes that this buffer owns; for an empty one any
        // aligned pointer is good.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.len & !LENT) }
    }
}

impl DerefMut for Buffer {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len & !LENT) }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if self.is_lent() {
            // SAFETY: who made the buffer promised it, and it is not used any more.
            unsafe { Lender::take_back(self.bytes) };
        } else if self.len > 0 {
            let bytes = std::ptr::slice_from_raw_parts_mut(self.bytes.as_ptr(), self.len);
            // SAFETY: the bytes are those of a box that was taken apart into this buffer, and
            // becomes a box again once, here.
            drop(unsafe { Box::from_raw(bytes) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_a_box_is_in_the_buffer_and_can_be_changed_there() {
        let mut buffer = Buffer::from(vec![1, 2, 3].into_boxed_slice());
        assert!(!buffer.is_lent());
        buffer[1] = 9;
        assert_eq!(&buffer[..], [1, 9, 3]);
        assert_eq!(&std::mem::take(&mut buffer)[..], [1, 9, 3]);
        assert!(buffer.is_empty());
        drop(Buffer::from(Box::<[u8]>::default()));
    }
}
