//! AF_XDP sockets (`Documentation/networking/af_xdp.rst` of the kernel): packets of one queue of a
//! device, in memory that is shared with the kernel.
//!
//! A queue has an *area* of memory in *chunks* of equal size, half of them to receive into and half
//! to send from, so that a [`Receiver`] and a [`Sender`] share nothing that changes and may belong
//! to different threads. Four rings pass chunks on: *fill* (empty chunks, to the kernel), *receive*
//! (received packets, from it), *transmit* (packets to send, to it) and *completion* (chunks of
//! sent packets, from it).
//!
//! Each half has a socket of its own. For each sent packet, the kernel walks the wait queue of the
//! sending socket, so threads that wait for packets wait on the other socket. Also, polling a
//! sending socket makes it send.
//!
//! Invariants
//! - A chunk belongs to one side: the kernel owns it from its entry in the fill or transmit ring
//!   until its entry in the receive or completion ring. This side reads or writes it only then.
//! - Offsets from the kernel are checked before they are used.

use crate::error::{Error, Result, check};
use ring::{Consumer, Mapping, Producer};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

mod ring;

/// The configuration of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Entries of each ring, and chunks for each direction: a power of two.
    pub ring: u32,
    /// Bytes of a chunk: 2048 or 4096. A received packet has 256 less.
    pub chunk: u32,
    /// Let the device read and write the memory itself; else the kernel copies.
    pub zero_copy: bool,
    /// The kernel reports when it needs a call; without this it is called for each batch sent
    /// (Linux 5.4).
    pub need_wakeup: bool,
    /// Packets may take several chunks (Linux 6.6).
    pub fragments: bool,
}

/// Packets that the kernel lost since the queue was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Packets for which there was no room in the receive ring.
    pub ring_full: u64,
    /// Packets dropped for another reason: no empty chunk, or longer than one.
    pub dropped: u64,
    /// Packets to be sent that the kernel refused.
    pub refused: u64,
}

/// Resources that both halves keep alive.
struct Queue {
    /// Has the receive ring.
    receives: OwnedFd,
    /// Has the memory and the other rings.
    sends: OwnedFd,
    area: Mapping,
    config: Config,
}

/// The half that receives.
pub struct Receiver {
    queue: Arc<Queue>,
    fill: Producer<u64>,
    received: Consumer<libc::xdp_desc>,
}

/// The half that sends.
pub struct Sender {
    queue: Arc<Queue>,
    transmit: Producer<libc::xdp_desc>,
    completed: Consumer<u64>,
    /// Places of chunks that are empty.
    free: Vec<u64>,
}

/// Reads the counts of a queue while its halves belong to others.
#[derive(Clone)]
pub struct Counts(std::sync::Weak<Queue>);

/// Opens the sockets of a queue of a device. They receive nothing until an XDP program redirects
/// packets to them. Needs `CAP_NET_RAW`.
///
/// # Errors
/// The kernel's: `EBUSY` if another socket has the queue, `EINVAL` if the device has no such queue
/// or the kernel does not support an option of `config`, `EOPNOTSUPP` if the driver has no zero
/// copy, `ENOBUFS` if the process may not lock so much memory, `ENODEV`.
pub fn open(ifindex: u32, queue: u32, config: &Config) -> Result<(Receiver, Sender)> {
    let invalid = || Error::of("setsockopt(XDP_UMEM_REG)")(rustix::io::Errno::INVAL);
    if !config.ring.is_power_of_two() || config.ring > 1 << 16 || !matches!(config.chunk, 2048 | 4096) {
        return Err(invalid());
    }
    let new = Queue {
        receives: socket()?,
        sends: socket()?,
        area: Mapping::anonymous(2 * config.ring as usize * config.chunk as usize)?,
        config: *config,
    };
    new.set_up()?;
    let (receiver, sender) = new.rings()?;
    // The kernel (before 5.19) allocates memory for sending only if the first socket sends.
    receiver.queue.bind(ifindex, queue)?;
    Ok((receiver, sender))
}

fn socket() -> Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = check("socket(AF_XDP)", unsafe { libc::socket(libc::AF_XDP, kind, 0) })?;
    // SAFETY: the descriptor is new, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Queue {
    fn chunk(&self, number: u32) -> u64 {
        u64::from(number) * u64::from(self.config.chunk)
    }

    /// Registers the memory and asks for the rings.
    fn set_up(&self) -> Result<()> {
        let memory = libc::xdp_umem_reg {
            addr: self.area.address().as_ptr() as u64,
            len: self.area.len() as u64,
            chunk_size: self.config.chunk,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        let sends = self.sends.as_fd();
        set(sends, "setsockopt(XDP_UMEM_REG)", libc::XDP_UMEM_REG, &memory)?;
        let size = self.config.ring;
        set(sends, "setsockopt(XDP_UMEM_FILL_RING)", libc::XDP_UMEM_FILL_RING, &size)?;
        let completion = libc::XDP_UMEM_COMPLETION_RING;
        set(sends, "setsockopt(XDP_UMEM_COMPLETION_RING)", completion, &size)?;
        set(sends, "setsockopt(XDP_TX_RING)", libc::XDP_TX_RING, &size)?;
        set(
            self.receives.as_fd(),
            "setsockopt(XDP_RX_RING)",
            libc::XDP_RX_RING,
            &size,
        )?;
        // Copies to send count against the socket's buffer, which must not be smaller than the
        // ring. If the call fails, fewer packets are under way.
        let buffer: libc::c_int = 32 << 20;
        let call = "setsockopt(SO_SNDBUFFORCE)";
        let _ = set_option(sends, call, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &buffer);
        Ok(())
    }

    fn rings(self) -> Result<(Receiver, Sender)> {
        let offsets = self.offsets()?;
        let (receives, sends, size) = (self.receives.as_fd(), self.sends.as_fd(), self.config.ring);
        let mut fill = Producer::map(sends, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, size)?;
        let received = Consumer::map(receives, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx, size)?;
        let transmit = Producer::map(sends, libc::XDP_PGOFF_TX_RING as u64, &offsets.tx, size)?;
        let completed = Consumer::map(sends, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, size)?;
        for number in 0..size {
            fill.put(self.chunk(number));
        }
        fill.publish();
        // The last is used first.
        let free = (size..2 * size).rev().map(|number| self.chunk(number)).collect();
        let queue = Arc::new(self);
        let receiver = Receiver {
            queue: queue.clone(),
            fill,
            received,
        };
        let sender = Sender {
            queue,
            transmit,
            completed,
            free,
        };
        Ok((receiver, sender))
    }

    fn bind(&self, ifindex: u32, queue: u32) -> Result<()> {
        let config = &self.config;
        let mut flags = if config.zero_copy {
            libc::XDP_ZEROCOPY
        } else {
            libc::XDP_COPY
        };
        if config.need_wakeup {
            flags |= libc::XDP_USE_NEED_WAKEUP;
        }
        if config.fragments {
            flags |= libc::XDP_USE_SG;
        }
        bind(self.sends.as_fd(), ifindex, queue, flags, 0)?;
        let memory_of = self.sends.as_raw_fd() as u32;
        bind(self.receives.as_fd(), ifindex, queue, libc::XDP_SHARED_UMEM, memory_of)
    }

    fn offsets(&self) -> Result<libc::xdp_mmap_offsets> {
        // SAFETY: all-zero bytes are a valid value of this structure of integers.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { zeroed() };
        let call = "getsockopt(XDP_MMAP_OFFSETS)";
        get(self.sends.as_fd(), call, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        Ok(offsets)
    }

    fn lost(&self) -> Result<Lost> {
        let (received, sent) = (counts(self.receives.as_fd())?, counts(self.sends.as_fd())?);
        Ok(Lost {
            ring_full: received.rx_ring_full,
            dropped: received.rx_dropped,
            refused: sent.tx_invalid_descs,
        })
    }
}

/// Binds a socket to a queue, with its own memory or that of another.
fn bind(socket: BorrowedFd<'_>, ifindex: u32, queue: u32, flags: u16, memory_of: u32) -> Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: memory_of,
    };
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of `address`, which lives through the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    check("bind(AF_XDP)", result).map(drop)
}

fn counts(socket: BorrowedFd<'_>) -> Result<libc::xdp_statistics> {
    // SAFETY: all-zero bytes are a valid value of this structure of integers.
    let mut counts: libc::xdp_statistics = unsafe { zeroed() };
    get(socket, "getsockopt(XDP_STATISTICS)", libc::XDP_STATISTICS, &mut counts)?;
    Ok(counts)
}

fn set<T: Plain>(socket: BorrowedFd<'_>, call: &'static str, option: libc::c_int, value: &T) -> Result<()> {
    set_option(socket, call, libc::SOL_XDP, option, value)
}

fn set_option<T: Plain>(
    socket: BorrowedFd<'_>,
    call: &'static str,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the pointer and the length are those of `value`, which lives through the call; the
    // kernel only reads it. Its addresses are the area's. The queue owns the area, and the area
    // outlives the descriptor's use of it: the kernel holds the pages itself.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
    check(call, result).map(drop)
}

fn get<T: Plain>(socket: BorrowedFd<'_>, call: &'static str, option: libc::c_int, value: &mut T) -> Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_mut(value).cast();
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`; both live through the
    // call.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, &raw mut len) };
    check(call, result).map(drop)
}

/// Values of socket options: integers and structures of integers.
trait Plain {}
impl Plain for u32 {}
impl Plain for libc::c_int {}
impl Plain for libc::xdp_umem_reg {}
impl Plain for libc::xdp_mmap_offsets {}
impl Plain for libc::xdp_statistics {}

impl Receiver {
    /// Gives up to `max` buffers to `take`, in order: their bytes, and whether the packet goes on
    /// in the next one. Returns how many. Never waits.
    pub fn receive(&mut self, max: u32, mut take: impl FnMut(&[u8], bool)) -> u32 {
        let n = self.received.available().min(max);
        for ahead in 0..n {
            if let Some(buffer) = self.received.peek(ahead).and_then(|desc| self.buffer(&desc)) {
                prefetch(buffer);
            }
        }
        for ahead in 0..n {
            let Some(desc) = self.received.peek(ahead) else { break };
            if let Some(buffer) = self.buffer(&desc) {
                take(buffer, desc.options & libc::XDP_PKT_CONTD != 0);
            }
            // There is room: the chunk came out of this ring.
            self.fill.put(desc.addr);
        }
        if n > 0 {
            self.received.release(n);
            self.fill.publish();
            if self.fill.needs_wakeup() {
                self.wake();
            }
        }
        n
    }

    /// The bytes of a received buffer; `None` if they are outside of the half for received packets.
    #[inline]
    fn buffer(&self, desc: &libc::xdp_desc) -> Option<&[u8]> {
        let end = desc.addr.checked_add(u64::from(desc.len))?;
        if end > self.queue.chunk(self.queue.config.ring) {
            return None;
        }
        // SAFETY: the bytes are in the half of the area for received packets, all of which is
        // initialised. The kernel has passed the chunk on and does not write to it before it is in
        // the fill ring again, and the borrow of `self` ends before that.
        Some(unsafe {
            std::slice::from_raw_parts(
                self.queue.area.address().as_ptr().add(desc.addr as usize),
                desc.len as usize,
            )
        })
    }

    /// Makes the kernel read the fill ring. Ignores errors: other calls report them too.
    #[cold]
    fn wake(&self) {
        let none = std::ptr::null_mut();
        // SAFETY: no buffer and no address are given.
        unsafe {
            libc::recvfrom(
                self.queue.receives.as_raw_fd(),
                none,
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// A reader of the queue's counts.
    pub fn counts(&self) -> Counts {
        Counts(Arc::downgrade(&self.queue))
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.receives.as_fd()
    }
}

impl Counts {
    /// Packets that the kernel lost; `None` if the sockets are closed.
    pub fn lost(&self) -> Option<Lost> {
        self.0.upgrade()?.lost().ok()
    }
}

impl Sender {
    /// Copies a packet into chunks and puts them into the ring; returns `false` if there is no
    /// room, or the packet is longer than the socket takes. [`Sender::flush`] notifies the kernel.
    pub fn put(&mut self, packet: &[u8]) -> bool {
        let chunk = self.queue.config.chunk as usize;
        let needed = packet.len().div_ceil(chunk).max(1);
        if needed > 1 && !self.queue.config.fragments {
            return false;
        }
        if self.free.len() < needed {
            self.reap();
        }
        if self.free.len() < needed || !self.transmit.has_room(needed as u32) {
            return false;
        }
        let mut rest = packet;
        for left in (0..needed).rev() {
            let Some(addr) = self.free.pop() else { return false };
            let (part, next) = rest.split_at(rest.len().min(chunk));
            // SAFETY: `free` holds only places of whole chunks in the half that packets are sent
            // from, none twice; the chunk is this side's until it is published, and the part is no
            // longer than a chunk.
            unsafe {
                let to = self.queue.area.address().as_ptr().add(addr as usize);
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            }
            self.transmit.put(libc::xdp_desc {
                addr,
                len: part.len() as u32,
                options: if left > 0 { libc::XDP_PKT_CONTD } else { 0 },
            });
            rest = next;
        }
        true
    }

    /// The longest packet that [`Sender::put`] takes.
    pub fn longest(&self) -> usize {
        // A socket buffer of the kernel has room for 17 parts.
        const PARTS: usize = 17;
        let chunk = self.queue.config.chunk as usize;
        if self.queue.config.fragments {
            PARTS * chunk
        } else {
            chunk
        }
    }

    /// Publishes the packets put, and calls the kernel to send them if it needs a call. It may
    /// leave some: see [`Sender::pending`].
    ///
    /// # Errors
    /// The kernel's: `ENETDOWN` if the device is down, `ENXIO` if it is gone; `EAGAIN`, `EBUSY` and
    /// `ENOBUFS` if the device has no room.
    pub fn flush(&mut self) -> io::Result<()> {
        self.transmit.publish();
        if self.queue.config.need_wakeup && !self.transmit.needs_wakeup() {
            return Ok(());
        }
        // SAFETY: no buffer and no address are given.
        let result = unsafe {
            libc::sendto(
                self.queue.sends.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Chunks that were handed over and that the kernel has not begun to send.
    pub fn pending(&self) -> u32 {
        self.transmit.pending()
    }

    /// Takes back chunks that were sent.
    pub fn reap(&mut self) {
        let n = self.completed.available();
        let chunk = u64::from(self.queue.config.chunk);
        let (first, end) = (self.queue.chunk(self.queue.config.ring), self.queue.area.len() as u64);
        for ahead in 0..n {
            let place = self.completed.peek(ahead).map(|addr| addr - addr % chunk);
            // One too many would be one twice.
            let sound = |place: &u64| (first..end).contains(place) && self.free.len() < self.queue.config.ring as usize;
            self.free.extend(place.filter(sound));
        }
        if n > 0 {
            self.completed.release(n);
        }
    }

    /// Chunks that hold packets under way, and how many there are.
    pub fn used(&self) -> (usize, usize) {
        let all = self.queue.config.ring as usize;
        (all - self.free.len().min(all), all)
    }
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.sends.as_fd()
    }
}

/// Brings the beginning of a buffer that another processor has written nearer.
#[inline(always)]
fn prefetch(buffer: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and cannot fault at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(buffer.as_ptr().cast::<i8>(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = buffer;
}
