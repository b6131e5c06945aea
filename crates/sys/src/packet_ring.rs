//! Receiving from a packet socket through memory that is shared with the kernel (`PACKET_RX_RING`,
//! `TPACKET_V2`).
//!
//! The kernel copies a packet into the ring on the sender's processor. The receiver reads it there
//! without a system call, and can forward it from there without another copy.
//!
//! How a place is used
//! - The kernel writes into places in order, each only while its status is 0, and then sets the bit
//!   `TP_STATUS_USER`.
//! - If a packet is longer than a place, the place has its beginning and the bit `TP_STATUS_COPY`:
//!   the whole packet is received from the socket, in order, by a system call. So places need not
//!   be as long as the longest packet.
//! - A place in use has the status [`LENT`], which neither side looks for: the kernel does not
//!   write to it, and it is not received a second time.
//! - Dropping the [`Buffer`] that borrows the bytes sets the status to 0. The pointer from the
//!   bytes to the ring is stored before them.

use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::mmsg::tag;
use crate::packet_socket::PacketSocket;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::mem::size_of;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Status of a place whose bytes are lent.
const LENT: u32 = 1 << 30;

/// Offset in a place of the lent bytes: after the kernel's header, its address, and the pointer to
/// the ring.
const LENT_FROM: usize = 64;
/// Offset in a place of the pointer to the ring.
const WAY_BACK: usize = LENT_FROM - size_of::<*const Shared>();

/// Bytes that the kernel leaves free before the packet, beside its own headers.
const RESERVE: u32 = 128;
/// The highest offset of the Ethernet header in a place: the kernel puts the data after it behind
/// its own 52 bytes and 16 more or the link's header, at a multiple of 16, and the reserve and the
/// vnet header's ten bytes behind that.
const HEADER_AT: usize = 80 + RESERVE as usize + 10 - 14;

const STATUS_USER: u32 = 1;
const STATUS_COPY: u32 = 2;
/// Bytes of a place that are left free behind its packet: for a tag's length more than is counted
/// here.
const SLACK: usize = 16;

/// The size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    /// Bytes of one place; a multiple of 16.
    pub place: u32,
    /// Places of a block, which together are whole pages. The kernel finds each block in one piece.
    pub per_block: u32,
    /// Number of blocks.
    pub blocks: u32,
}

impl RingSize {
    /// The longest packet that fits in a place, from its Ethernet header on.
    pub const fn longest(self) -> usize {
        self.place as usize - HEADER_AT - SLACK
    }

    /// Bytes of memory.
    pub const fn bytes(self) -> usize {
        self.place as usize * self.per_block as usize * self.blocks as usize
    }
}

/// A packet that was received.
pub struct RingPacket {
    /// Its buffer, with its vnet header of ten bytes before it, and at least 118 bytes before that.
    pub buffer: Buffer,
    /// Its offset in the buffer.
    pub start: usize,
    /// Number of its bytes.
    pub len: usize,
    /// The packet was longer, and its rest is lost: the socket had no room for it.
    pub truncated: bool,
    /// The VLAN tag (TPID, TCI) that the kernel removed from it.
    pub vlan: Option<(u16, u16)>,
}

/// A packet socket's ring.
pub struct PacketRing {
    shared: Arc<Shared>,
    size: RingSize,
    /// The place that the kernel fills, or has filled, next.
    next: usize,
    places: usize,
}

/// The memory; it lives until the ring and all that was lent are gone.
struct Shared {
    memory: NonNull<u8>,
    len: usize,
}

// SAFETY: this is an address and a length; what may be done with the memory, and by whom, is said
// at `PacketRing` and `Buffer`.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and is not used any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.len) };
    }
}

impl PacketRing {
    /// Makes the ring of a socket that is not bound yet, and has vnet headers already (the kernel
    /// refuses them afterwards).
    ///
    /// # Errors
    /// `EINVAL` for sizes that the kernel does not take, `ENOMEM` if there is too little memory in
    /// one piece, and the kernel's others.
    pub fn new(socket: &PacketSocket, size: RingSize) -> Result<PacketRing> {
        if size.longest() < 1514 || !size.place.is_multiple_of(16) {
            return Err(Error::of("setsockopt(PACKET_RX_RING)")(rustix::io::Errno::INVAL));
        }
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        socket.set_packet_option("setsockopt(PACKET_VERSION)", libc::PACKET_VERSION, &version)?;
        socket.set_packet_option(
            "setsockopt(PACKET_RESERVE)",
            libc::PACKET_RESERVE,
            &RESERVE.cast_signed(),
        )?;
        let request = libc::tpacket_req {
            tp_block_size: size.place * size.per_block,
            tp_block_nr: size.blocks,
            tp_frame_size: size.place,
            tp_frame_nr: size.per_block * size.blocks,
        };
        socket.set_packet_option("setsockopt(PACKET_COPY_THRESH)", libc::PACKET_COPY_THRESH, &1)?;
        socket.set_packet_option("setsockopt(PACKET_RX_RING)", libc::PACKET_RX_RING, &request)?;
        let len = size.bytes();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket.as_fd(),
                0,
            )
        };
        let memory = memory.map_err(Error::of("mmap(PACKET_RX_RING)"))?;
        let memory =
            NonNull::new(memory.cast()).ok_or_else(|| Error::of("mmap(PACKET_RX_RING)")(rustix::io::Errno::NOMEM))?;
        Ok(PacketRing {
            shared: Arc::new(Shared { memory, len }),
            size,
            next: 0,
            places: (size.per_block * size.blocks) as usize,
        })
    }

    /// Number of the next packets, at most `most`, that are longer than a place: receive them from
    /// the socket, then skip them here.
    #[inline]
    pub fn count_longer(&self, most: usize) -> usize {
        let is_longer = |n: &usize| {
            let status = self.status(self.place((self.next + n) % self.places));
            status & (STATUS_USER | STATUS_COPY) == STATUS_USER | STATUS_COPY
        };
        (0..most.min(self.places)).take_while(is_longer).count()
    }

    /// Returns the places of this many packets to the kernel, which [`PacketRing::count_longer`]
    /// has counted.
    pub fn skip(&mut self, count: usize) {
        for _ in 0..self.count_longer(count) {
            let place = self.place(self.next);
            // SAFETY: as for reading the status; the place is the receiver's, and no part of it is
            // lent.
            unsafe { place.cast::<AtomicU32>().as_ref() }.store(0, Ordering::Release);
            self.step();
        }
    }

    /// The next packet; `None` if there is none, or if it is longer than a place: such a packet may
    /// have come after [`PacketRing::count_longer`] was called.
    #[inline]
    pub fn take(&mut self) -> Option<RingPacket> {
        let header = self.header().filter(|header| header.tp_status & STATUS_COPY == 0)?;
        let packet = RingPacket {
            start: usize::from(header.tp_mac).saturating_sub(LENT_FROM),
            len: header.tp_snaplen as usize,
            truncated: header.tp_len > header.tp_snaplen,
            vlan: tag(header.tp_status, header.tp_vlan_tci, header.tp_vlan_tpid),
            buffer: self.lend(),
        };
        self.step();
        Some(packet)
    }

    #[inline]
    fn step(&mut self) {
        self.next += 1;
        if self.next == self.places {
            self.next = 0;
        }
    }

    /// The kernel's header of the next packet.
    #[inline]
    fn header(&self) -> Option<libc::tpacket2_hdr> {
        let place = self.place(self.next);
        if self.status(place) & STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the status says that the kernel has written the header and does not touch it
        // before the status is 0 again.
        Some(unsafe { place.cast::<libc::tpacket2_hdr>().read() })
    }

    #[inline]
    fn status(&self, place: NonNull<u8>) -> u32 {
        // SAFETY: the status is the place's first word, aligned, within the mapping, and shared
        // with the kernel as an atomic is.
        unsafe { place.cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire)
    }

    /// The first byte of a place.
    #[inline]
    fn place(&self, number: usize) -> NonNull<u8> {
        assert!(number < self.places);
        // SAFETY: all places lie within the mapping: blocks follow each other, and are filled by
        // places.
        unsafe { self.shared.memory.add(number * self.size.place as usize) }
    }

    /// Lends the bytes of the place that is next, which the kernel has filled.
    #[inline]
    fn lend(&self) -> Buffer {
        let place = self.place(self.next);
        let way_back = Arc::into_raw(self.shared.clone());
        // SAFETY: the place is the receiver's, by its status. The way back lies between the
        // kernel's address, which ends at byte 52, and the bytes that are lent; places and so it
        // are aligned to 16 bytes. The bytes behind are the place's others, initialised since the
        // kernel makes rings of zeroed pages. `take_back` finds both where it looks for them.
        unsafe {
            place.add(WAY_BACK).cast::<*const Shared>().write(way_back);
            place.cast::<AtomicU32>().as_ref().store(LENT, Ordering::Relaxed);
            Buffer::lent(place.add(LENT_FROM), self.size.place - LENT_FROM as u32)
        }
    }
}

/// Takes lent buffers back.
pub(crate) struct Lender;

impl Lender {
    /// Gives a place back to the kernel.
    ///
    /// # Safety
    /// [`PacketRing::lend`] lent `bytes`, they are not used any more, and they were not given back
    /// before.
    #[inline]
    pub(crate) unsafe fn take_back(bytes: NonNull<u8>) {
        // SAFETY: `lend` has written the lender's reference and the status before the bytes; the
        // reference keeps the mapping alive until here, and is released once.
        unsafe {
            let place = bytes.sub(LENT_FROM);
            let way_back = place.add(WAY_BACK).cast::<*const Shared>().read();
            place.cast::<AtomicU32>().as_ref().store(0, Ordering::Release);
            drop(Arc::from_raw(way_back));
        }
    }
}
