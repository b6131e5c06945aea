//! Arrays that programs and the process have in their memory at once.

use aya::maps::MapData;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use sys::{Error, Result};

/// An array of rows of counters and other words.
pub(crate) struct SharedArray {
    memory: NonNull<AtomicU64>,
    /// Words in all.
    words: usize,
    /// Words of a row.
    row: usize,
    map: MapData,
}

// SAFETY: the memory belongs to the value, not to a thread, and is reached as atomics only.
unsafe impl Send for SharedArray {}
// SAFETY: as above.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// Maps an array of `rows` rows, each of `row` words.
    ///
    /// # Errors
    /// `EINVAL` if the map has another size, or cannot be mapped; `ENOMEM`.
    pub(crate) fn new(map: MapData, rows: usize, row: usize) -> Result<SharedArray> {
        const CALL: &str = "mmap(BPF_MAP_TYPE_ARRAY)";
        let info = map.info().map_err(Error::behind("bpf(BPF_OBJ_GET_INFO_BY_FD)"))?;
        if (info.max_entries() as usize, info.value_size() as usize) != (rows, row * size_of::<u64>()) {
            return Err(Error::of(CALL)(Errno::INVAL));
        }
        let words = rows * row;
        let len = words * size_of::<u64>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                map.fd().as_fd(),
                0,
            )
        };
        let memory = memory.map_err(Error::of(CALL))?;
        let memory = NonNull::new(memory.cast()).ok_or_else(|| Error::of(CALL)(Errno::NOMEM))?;
        Ok(SharedArray {
            memory,
            words,
            row,
            map,
        })
    }

    /// The map's descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd().as_fd()
    }

    /// A row.
    ///
    /// # Panics
    /// The number is not less than the number of rows.
    pub(crate) fn row(&self, number: u32) -> &[AtomicU64] {
        // SAFETY: the mapping has so many words, the length of the map's values, from that
        // page-aligned address on, until this is dropped; programs and other threads change them as
        // atomics only.
        let words = unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.words) };
        &words[number as usize * self.row..][..self.row]
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and is not used any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}
