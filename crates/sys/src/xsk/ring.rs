//! The rings that a process and the kernel hand buffers to each other by.
//!
//! Each has one producer and one consumer; each side writes its own index and reads the other's. An
//! entry between the indices belongs to the consumer, the others to the producer: a release store
//! of the index hands over, an acquire load of it takes over.

use crate::error::{Error, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Memory that is mapped, until this is dropped.
pub(super) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the value, not to a thread; only the owner's methods reach its
// contents.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives the address only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A part of a socket.
    pub(super) fn of(socket: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Mapping> {
        // SAFETY: the kernel chooses a free address, so that no other memory is affected.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                offset,
            )
        };
        Mapping::new(address, len)
    }

    /// Memory of zeros, in huge pages where the kernel has some.
    pub(super) fn anonymous(len: usize) -> Result<Mapping> {
        // SAFETY: the kernel chooses a free address, so that no other memory is affected.
        let address = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let mapping = Mapping::new(address, len)?;
        // SAFETY: the memory is the mapping's, and the advice does not change its contents. A
        // failure only costs speed.
        let _ = unsafe { rustix::mm::madvise(mapping.address.as_ptr().cast(), len, rustix::mm::Advice::LinuxHugepage) };
        Ok(mapping)
    }

    fn new(address: rustix::io::Result<*mut std::ffi::c_void>, len: usize) -> Result<Mapping> {
        let address = address.map_err(Error::of("mmap(AF_XDP)"))?;
        let address =
            NonNull::new(address.cast()).ok_or_else(|| Error::of("mmap(AF_XDP)")(rustix::io::Errno::NOMEM))?;
        Ok(Mapping { address, len })
    }

    pub(super) fn address(&self) -> NonNull<u8> {
        self.address
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this length, and every value with pointers into it
        // owns the mapping too and is gone with it.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.len) };
    }
}

/// The state that both sides of a ring need.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    _mapping: Mapping,
}

// SAFETY: the pointers are into the mapping, which the ring owns.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// A ring of `size` entries (a power of two) in a part of a socket.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` where the offsets that it gave do not fit the types.
    fn map(socket: BorrowedFd<'_>, page: u64, offsets: &libc::xdp_ring_offset, size: u32) -> Result<Ring<T>> {
        let len = offsets.desc as usize + size as usize * size_of::<T>();
        let mapping = Mapping::of(socket, page, len)?;
        let base = mapping.address();
        let aligned = |offset: u64, of: usize| (offset as usize).is_multiple_of(of) && offset as usize + 4 <= len;
        let fits = [offsets.producer, offsets.consumer, offsets.flags]
            .iter()
            .all(|offset| aligned(*offset, align_of::<AtomicU32>()));
        if !fits || !aligned(offsets.desc, align_of::<T>()) {
            return Err(Error::of("getsockopt(XDP_MMAP_OFFSETS)")(rustix::io::Errno::INVAL));
        }
        // SAFETY: all offsets were found to be within the mapping and aligned; a mapping begins at
        // a page's boundary.
        unsafe {
            Ok(Ring {
                producer: base.add(offsets.producer as usize).cast(),
                consumer: base.add(offsets.consumer as usize).cast(),
                flags: base.add(offsets.flags as usize).cast(),
                entries: base.add(offsets.desc as usize).cast(),
                size,
                _mapping: mapping,
            })
        }
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it is in the mapping, aligned, and only ever accessed atomically, by the kernel
        // too.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: the masked index is below `size`, and the mapping has `size` entries.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }

    /// Whether the kernel must be called to read the ring.
    #[inline]
    fn needs_wakeup(&self) -> bool {
        // Publishes the entries before it reads the flag; the other side does both in the opposite
        // order.
        fence(Ordering::SeqCst);
        // SAFETY: as `producer`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The side that puts entries in.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// The next place to write.
    head: u32,
    /// The consumer's index at the last read.
    tail: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> Result<Producer<T>> {
        let ring = Ring::map(socket, page, offsets, size)?;
        let (head, tail) = (
            ring.producer().load(Ordering::Relaxed),
            ring.consumer().load(Ordering::Acquire),
        );
        Ok(Producer { ring, head, tail })
    }

    /// Whether there is room for `n` entries.
    #[inline]
    pub(super) fn has_room(&mut self, n: u32) -> bool {
        if self.ring.size - self.head.wrapping_sub(self.tail) >= n {
            return true;
        }
        self.tail = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size.saturating_sub(self.head.wrapping_sub(self.tail)) >= n
    }

    /// Writes an entry, if there is room; the other side sees it after [`Producer::publish`].
    #[inline]
    pub(super) fn put(&mut self, entry: T) -> bool {
        let room = self.has_room(1);
        if room {
            // SAFETY: the entry is in the mapping, and belongs to the producer, since there is
            // room.
            unsafe { self.ring.entry(self.head).write(entry) };
            self.head = self.head.wrapping_add(1);
        }
        room
    }

    /// Publishes the written entries.
    #[inline]
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.head, Ordering::Release);
    }

    /// Entries handed over that the other side has not taken.
    #[inline]
    pub(super) fn pending(&self) -> u32 {
        self.head.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The side that takes entries out.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// The next place to read.
    tail: u32,
    /// The producer's index at the last read.
    head: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
    ) -> Result<Consumer<T>> {
        let ring = Ring::map(socket, page, offsets, size)?;
        let (tail, head) = (
            ring.consumer().load(Ordering::Relaxed),
            ring.producer().load(Ordering::Acquire),
        );
        Ok(Consumer { ring, tail, head })
    }

    /// Number of entries, at most the ring's size.
    #[inline]
    pub(super) fn available(&mut self) -> u32 {
        self.head = self.ring.producer().load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail).min(self.ring.size)
    }

    /// The `n`th entry from here; `n` is less than the result of [`Consumer::available`].
    #[inline]
    pub(super) fn peek(&self, n: u32) -> Option<T> {
        if n >= self.head.wrapping_sub(self.tail).min(self.ring.size) {
            return None;
        }
        // SAFETY: the entry is in the mapping, and belongs to the consumer, since it is between the
        // indices. Any bytes are an entry: they are structures of integers.
        Some(unsafe { self.ring.entry(self.tail.wrapping_add(n)).read() })
    }

    /// Gives `n` entries back.
    #[inline]
    pub(super) fn release(&mut self, n: u32) {
        self.tail = self.tail.wrapping_add(n);
        self.ring.consumer().store(self.tail, Ordering::Release);
    }
}
