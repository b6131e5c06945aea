//! Maps: what a program and a process share.

use super::{bpf, make};
use crate::error::{Error, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;

/// Whether an update may replace an entry.
const BPF_ANY: u64 = 0;
const BPF_NOEXIST: u64 = 1;

/// The kind of a map: a number of `enum bpf_map_type`.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Hash = 1,
    Array = 2,
    PerCpuArray = 6,
    Sockets = 17,
}

/// An entry's memory is its own, and is used for no other before every program that has found it
/// has ended.
pub(super) const NO_PREALLOC: u32 = 1;
/// A process can have an array's values in its memory.
const MMAPABLE: u32 = 1 << 10;

/// A map.
pub(super) struct Map {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
}

/// The part of `union bpf_attr` for `BPF_MAP_CREATE` that is used.
#[repr(C)]
struct MapAttr {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
}

/// The part of `union bpf_attr` for commands about one entry.
#[repr(C)]
struct ElementAttr {
    map: u32,
    _padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Map {
    /// An empty map of entries with keys and values of so many bytes. Needs `CAP_BPF` and
    /// `CAP_NET_ADMIN`, or `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// The kernel's: `EPERM`, `ENOSYS` without BPF, `EINVAL` for what it does not know, or without
    /// entries.
    pub(super) fn new(name: &str, kind: Kind, (key, value): (usize, usize), entries: u32, flags: u32) -> Result<Map> {
        let mut padded = [0; 16];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        let attr = MapAttr {
            kind: kind as u32,
            key_size: key as u32,
            value_size: value as u32,
            max_entries: entries,
            flags,
            inner: 0,
            numa_node: 0,
            name: padded,
        };
        // SAFETY: the kernel reads the attributes, which live through the call and hold no
        // pointers. The command makes a descriptor.
        let fd = unsafe { make("bpf(BPF_MAP_CREATE)", BPF_MAP_CREATE, &attr) }?;
        Ok(Map {
            fd,
            key_size: key,
            value_size: value,
        })
    }

    /// Makes an entry, or gives it another value.
    ///
    /// # Errors
    /// `E2BIG` where the map is full, or the key of an array beyond its end; `EINVAL` where key or
    /// value are of another length; the kernel's others.
    pub(super) fn set(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.update(key, value, BPF_ANY)
    }

    /// Makes an entry.
    ///
    /// # Errors
    /// `EEXIST` where the key has one; others as [`Map::set`].
    pub(super) fn add(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.update(key, value, BPF_NOEXIST)
    }

    fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<()> {
        const CALL: &str = "bpf(BPF_MAP_UPDATE_ELEM)";
        if (key.len(), value.len()) != (self.key_size, self.value_size) {
            return Err(Error::of(CALL)(rustix::io::Errno::INVAL));
        }
        let attr = ElementAttr {
            flags,
            ..self.element(key, value.as_ptr() as u64)
        };
        // SAFETY: the kernel reads the attributes and as many bytes of key and value as the map's
        // have, which is how many there are; all live through the call.
        unsafe { bpf(CALL, BPF_MAP_UPDATE_ELEM, &attr) }.map(drop)
    }

    /// Takes an entry out.
    ///
    /// # Errors
    /// `ENOENT` where there is none, `EINVAL` where the key is of another length.
    pub(super) fn remove(&self, key: &[u8]) -> Result<()> {
        const CALL: &str = "bpf(BPF_MAP_DELETE_ELEM)";
        if key.len() != self.key_size {
            return Err(Error::of(CALL)(rustix::io::Errno::INVAL));
        }
        let attr = self.element(key, 0);
        // SAFETY: the kernel reads the attributes and as many bytes of the key as the map's have,
        // which is how many there are; both live through the call.
        unsafe { bpf(CALL, BPF_MAP_DELETE_ELEM, &attr) }.map(drop)
    }

    fn element(&self, key: &[u8], value: u64) -> ElementAttr {
        ElementAttr {
            map: self.fd.as_raw_fd().cast_unsigned(),
            _padding: 0,
            key: key.as_ptr() as u64,
            value,
            flags: 0,
        }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An array of rows of counters and other words, which programs and the process have in their
/// memory at once.
pub(super) struct SharedArray {
    map: Map,
    memory: NonNull<AtomicU64>,
    /// Words in all.
    words: usize,
    /// Words of a row.
    row: usize,
}

// SAFETY: the memory belongs to the value, not to a thread, and is reached as atomics only.
unsafe impl Send for SharedArray {}
// SAFETY: as above.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// So many rows of zeros, each of so many words.
    ///
    /// # Errors
    /// As those of [`Map::new`]; `EINVAL` before Linux 5.5.
    pub(super) fn new(name: &str, rows: u32, row: usize) -> Result<SharedArray> {
        let map = Map::new(name, Kind::Array, (4, row * size_of::<u64>()), rows, MMAPABLE)?;
        let words = rows as usize * row;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let len = words * size_of::<u64>();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let memory = unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, map.as_fd(), 0) };
        const CALL: &str = "mmap(BPF_MAP_TYPE_ARRAY)";
        let memory = memory.map_err(Error::of(CALL))?;
        let memory = NonNull::new(memory.cast()).ok_or_else(|| Error::of(CALL)(rustix::io::Errno::NOMEM))?;
        Ok(SharedArray {
            map,
            memory,
            words,
            row,
        })
    }

    /// A row.
    ///
    /// # Panics
    /// Where there is none of that number.
    pub(super) fn row(&self, number: u32) -> &[AtomicU64] {
        // SAFETY: so many words are mapped from that address on, which is a page's, until this is
        // dropped; programs and other threads change them as atomics only.
        let words = unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.words) };
        &words[number as usize * self.row..][..self.row]
    }
}

impl AsFd for SharedArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and nobody uses it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.words * size_of::<u64>()) };
    }
}
