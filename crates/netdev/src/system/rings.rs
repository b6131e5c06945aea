//! Receiving from a device through rings that are shared with the kernel.
//!
//! A place of a ring is as long as the longest packet for it, so there are two rings: many short places for packets as they are on a wire, and a few
//! long ones for segments that the sender left to the device to cut. Each has a socket, which lets only its kind in. Which of two packets came
//! first is said by the time at which the kernel wrote them.
//!
//! Packets are handed over where they lie, and sent on from there; the kernel gets their places back when they are dropped. Rings take memory
//! whether packets come or not: all together no more than [`MOST`], and devices that are opened when that is used up receive by system calls.

use super::Counters;
use crate::Frame;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use sys::{LengthOf, PacketRing, PacketSocket, RingPacket, RingSize};
use wire::VlanTag;

/// Bytes that all rings of the process may take.
const MOST: usize = 256 << 20;
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The ring of long places, each for a segment of 64 KB: two blocks of 15 places, which fill 255 pages.
const LONG: RingSize = RingSize {
    place: 68 * 1024,
    per_block: 15,
    blocks: 2,
};
/// Bytes of the ring of short places.
const SHORT_BYTES: u32 = 2 << 20;
const SHORT_BLOCK: u32 = 1 << 20;

/// The ring of short places of a device with such an MTU; `None` where its packets need long ones.
fn short(mtu: u32) -> Option<RingSize> {
    [2 * 1024, 4 * 1024, 16 * 1024]
        .map(|place| RingSize {
            place,
            per_block: SHORT_BLOCK / place,
            blocks: SHORT_BYTES / SHORT_BLOCK,
        })
        .into_iter()
        .find(|size| size.longest() >= mtu as usize + 14 + VlanTag::LEN)
}

/// Both rings of a device.
pub(super) struct Rings {
    short: Option<Receiver>,
    long: Receiver,
    _share: Share,
}

/// A ring and its socket.
struct Receiver {
    ring: PacketRing,
    socket: Arc<PacketSocket>,
}

/// A part of [`MOST`].
struct Share(usize);

impl Share {
    fn take(bytes: usize) -> io::Result<Share> {
        let enough = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= MOST);
        match TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough) {
            Ok(_) => Ok(Share(bytes)),
            Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Rings {
    /// Makes the rings of sockets that `socket` gives: not bound, with vnet headers. They receive nothing before they are bound.
    pub(super) fn new(mtu: u32, socket: impl Fn() -> io::Result<PacketSocket>) -> io::Result<Rings> {
        let short = short(mtu);
        let share = Share::take(LONG.bytes() + short.map_or(0, RingSize::bytes))?;
        let receiver = |size: RingSize, only: Option<LengthOf>| -> io::Result<Receiver> {
            let socket = socket()?;
            let ring = PacketRing::new(&socket, size)?;
            if let Some(only) = only {
                socket.receive_only(only)?;
            }
            Ok(Receiver {
                ring,
                socket: Arc::new(socket),
            })
        };
        let longest = short.map(|size| u32::try_from(size.longest()).unwrap_or(u32::MAX));
        Ok(Rings {
            short: match (short, longest) {
                (Some(size), Some(longest)) => Some(receiver(size, Some(LengthOf::AtMost(longest)))?),
                _ => None,
            },
            long: receiver(LONG, longest.map(LengthOf::MoreThan))?,
            _share: share,
        })
    }

    /// The sockets, to be bound, and asked for what they lost.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &Arc<PacketSocket>> {
        [Some(&self.long), self.short.as_ref()]
            .into_iter()
            .flatten()
            .map(|receiver| &receiver.socket)
    }

    /// Readable when there may be packets: the first, or the other.
    pub(super) fn fds(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        let short = self.short.as_ref().map(|receiver| receiver.socket.as_fd());
        (self.long.socket.as_fd(), short)
    }

    /// Up to `max` packets; those that are of no use are counted instead.
    pub(super) fn recv(&mut self, out: &mut Vec<Frame>, max: usize, counters: &Counters) {
        for _ in 0..max {
            let Some(packet) = self.take() else {
                break;
            };
            let truncated = packet.truncated;
            match frame(packet) {
                Some(frame) => out.push(frame),
                None if truncated => _ = counters.truncated.fetch_add(1, Ordering::Relaxed),
                None => _ = counters.rx_errors.fetch_add(1, Ordering::Relaxed),
            }
        }
    }

    /// The packet that came first of those that are there.
    fn take(&mut self) -> Option<RingPacket> {
        let Some(short) = &mut self.short else {
            return self.long.ring.take();
        };
        let long = &mut self.long.ring;
        // A packet that was sent before the one that is seen in the long ring is seen in the short one, if it is there, but only by who looks there
        // afterwards. The other way round that holds by the order in which they are looked at here.
        let at = match (short.ring.next_came(), long.next_came()) {
            (at, None) => at.map(|_| true),
            (at, Some(long)) => Some(at.or_else(|| short.ring.next_came()).is_some_and(|at| at <= long)),
        };
        if at? { short.ring.take() } else { long.take() }
    }
}

/// The frame of a packet, with what is pending on it and the tag that the kernel took out; `None` where it is of no use.
fn frame(packet: RingPacket) -> Option<Frame> {
    if packet.truncated {
        return None;
    }
    let mut frame = Frame::in_place(packet.buffer, packet.start, packet.len)?;
    frame.offload = frame.take_vnet_header_of(packet.len)?;
    if let Some((tpid, tci)) = packet.vlan {
        frame.push_vlan(VlanTag { tpid, tci }).ok()?;
    }
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_long_enough_for_the_devices_packets_and_a_tag_and_rings_keep_to_their_memory() {
        for (mtu, place) in [(68, 2048), (1500, 2048), (1600, 2048), (3500, 4096), (9000, 16384)] {
            let size = short(mtu).unwrap();
            assert_eq!((size.place, size.bytes()), (place, SHORT_BYTES as usize), "{mtu}");
        }
        assert_eq!(short(65_535), None);
        assert!(LONG.longest() >= 65_535 + 14 + VlanTag::LEN);
        assert_eq!(LONG.place * LONG.per_block % 4096, 0);
    }

    #[test]
    fn no_more_memory_is_taken_than_there_may_be_and_what_is_given_back_can_be_taken_again() {
        let most = Share::take(MOST).unwrap();
        assert!(Share::take(1).is_err());
        drop(most);
        assert!(Share::take(1).is_ok());
    }
}
