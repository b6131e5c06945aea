//! Sending by one queue, which several workers may share.

use crate::{Frame, Gso, Tx, TxReport, checksum, gso};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sys::xsk::Sender;

/// Most calls in a row to make the kernel send the packets that it left.
const PATIENCE: u32 = 64;

/// Length of an Ethernet header, and of a VLAN tag.
const ETHERNET: usize = 14;
const TAG: usize = 4;

/// A socket's sending half. It is locked for a batch at a time, without contention if each worker
/// has a queue of its own.
pub(super) struct SharedSender {
    sender: Mutex<Sender>,
    /// The kernel has left packets in the ring.
    left: AtomicBool,
}

impl SharedSender {
    pub(super) fn new(sender: Sender) -> SharedSender {
        SharedSender {
            sender: Mutex::new(sender),
            left: AtomicBool::new(false),
        }
    }

    /// Sends the packets that the kernel has left, if any.
    #[inline]
    pub(super) fn push_on(&self) {
        if self.left.load(Ordering::Relaxed) {
            self.push(&mut self.sender.lock());
        }
    }

    /// Makes the kernel send the packets in the ring. Returns whether the device is down or gone.
    fn push(&self, sender: &mut Sender) -> bool {
        let mut down = false;
        for _ in 0..PATIENCE {
            let refused = match sender.flush() {
                Ok(()) => break,
                Err(error) => Errno::from_io_error(&error),
            };
            if matches!(refused, Some(Errno::NETDOWN | Errno::NXIO | Errno::NODEV)) {
                down = true;
                break;
            }
            // The kernel sends a limited number at a time, or has no room; some packets under way
            // may be done.
            if sender.pending() == 0 {
                break;
            }
            sender.reap();
        }
        self.left.store(sender.pending() > 0 && !down, Ordering::Relaxed);
        down
    }
}

pub(super) struct AfxdpTx {
    shared: Arc<SharedSender>,
    mtu: Arc<AtomicU32>,
    segments: Vec<Frame>,
    /// The device was down at the last call.
    down: bool,
    /// Frames were left at the last [`Tx::offer`].
    full: bool,
    /// To wait for room with: the socket's own descriptor is watched for packets.
    room: Option<OwnedFd>,
}

impl AfxdpTx {
    pub(super) fn new(shared: Arc<SharedSender>, mtu: Arc<AtomicU32>) -> AfxdpTx {
        AfxdpTx {
            shared,
            mtu,
            segments: Vec::new(),
            down: false,
            full: false,
            room: None,
        }
    }

    /// Sends the first frames as far as there is room. Returns the number of frames sent or
    /// dropped.
    fn transmit(&mut self, frames: &mut [Frame], report: &mut TxReport) -> usize {
        let mut sender = self.shared.sender.lock();
        sender.reap();
        // Packets in the ring of a device that is down would go out when it is up again, too late.
        if self.down {
            self.down = self.shared.push(&mut sender);
        }
        if self.down {
            report.down += frames.len() as u64;
            return frames.len();
        }
        let longest = self.mtu.load(Ordering::Relaxed) as usize + ETHERNET;
        let mut batch = Batch {
            shared: &self.shared,
            sender: &mut sender,
            longest,
            put: TxReport::default(),
            down: false,
        };
        let mut done = frames.len();
        for (n, frame) in frames.iter_mut().enumerate() {
            let room = match frame.offload.gso {
                Gso::None => batch.put(frame, report),
                _ => batch.put_segments(frame, &mut self.segments, report),
            };
            if !room {
                done = n;
                break;
            }
        }
        let put = batch.put;
        self.down = batch.down;
        if put.packets > 0 {
            self.down |= self.shared.push(&mut sender);
        }
        if self.down {
            report.down += put.packets;
        } else {
            *report += put;
        }
        done
    }
}

/// Frames on their way into the ring.
struct Batch<'a> {
    shared: &'a SharedSender,
    sender: &'a mut Sender,
    /// The longest packet without a tag.
    longest: usize,
    put: TxReport,
    down: bool,
}

impl Batch<'_> {
    /// Puts a packet into the ring; returns `false` if the ring is full.
    fn put(&mut self, frame: &mut Frame, report: &mut TxReport) -> bool {
        let tag = frame.data().get(12..14);
        let tagged = matches!(tag, Some([0x81, 0x00] | [0x88, 0xa8]));
        if frame.len() > self.longest + if tagged { TAG } else { 0 } || frame.len() > self.sender.longest() {
            report.too_big += 1;
            return true;
        }
        if checksum::fill(frame).is_err() {
            report.errors += 1;
            return true;
        }
        if !self.sender.put(frame.data()) {
            // Once more, after the packets in the ring have left it.
            self.down |= self.shared.push(self.sender);
            if !self.sender.put(frame.data()) {
                return false;
            }
        }
        self.put.packets += 1;
        self.put.bytes += frame.len() as u64;
        true
    }

    /// Cuts a large segment and puts its packets into the ring; returns `false` if there is no room
    /// for the first. Later packets without room are lost.
    #[cold]
    fn put_segments(&mut self, frame: &mut Frame, segments: &mut Vec<Frame>, report: &mut TxReport) -> bool {
        segments.clear();
        if gso::segment_into(frame.duplicate(), segments).is_err() {
            report.errors += 1;
            return true;
        }
        for (n, segment) in segments.iter_mut().enumerate() {
            if !self.put(segment, report) {
                if n == 0 {
                    return false;
                }
                report.dropped += 1;
            }
        }
        true
    }
}

impl Tx for AfxdpTx {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        let done = self.transmit(frames, &mut report);
        report.dropped += (frames.len() - done) as u64;
        Frame::drop_first(frames.len(), frames);
        report
    }

    fn offer(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        let done = self.transmit(frames, &mut report);
        Frame::drop_first(done, frames);
        self.full = !frames.is_empty();
        if self.full && self.room.is_none() {
            let sender = self.shared.sender.lock();
            self.room = sender.as_fd().try_clone_to_owned().ok();
        }
        report
    }

    fn room(&self) -> Option<BorrowedFd<'_>> {
        self.room.as_ref().filter(|_| self.full).map(AsFd::as_fd)
    }
}
