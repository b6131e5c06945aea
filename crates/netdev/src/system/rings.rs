//! Receiving from a device through a ring that is shared with the kernel.
//!
//! Packets as they are on a wire are handed over where they lie, and sent on from there; the kernel
//! gets their places back when they are dropped. Segments that the sender left to the device to cut
//! do not fit into a place: they wait with the socket, and are received by system calls, in their
//! turn. A ring takes memory whether packets come or not: all together no more than [`MOST`], and
//! devices that are opened when that is used up receive by system calls alone.

use super::{BATCH, Counters, SystemRx, errno};
use crate::IngressPrograms;
use crate::{Frame, Kept, Rx};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use sys::{PacketRing, PacketSocket, RingPacket, RingSize};
use wire::VlanTag;

/// Bytes that all rings of the process may take.
const MOST: usize = 256 << 20;
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Bytes of a ring.
const RING: u32 = 2 << 20;
const BLOCK: u32 = 1 << 20;

/// The ring size for a device with such an MTU: places that hold its packets, or many places if its
/// packets are longer than the longest place.
fn size(mtu: u32) -> RingSize {
    let of = |place| RingSize {
        place,
        per_block: BLOCK / place,
        blocks: RING / BLOCK,
    };
    [2 * 1024, 4 * 1024, 16 * 1024]
        .map(of)
        .into_iter()
        .find(|size| size.longest() >= mtu as usize + 14 + VlanTag::LEN)
        .unwrap_or(of(2 * 1024))
}

/// A device's ring, and the memory that it counts for.
pub(super) struct Ring {
    ring: PacketRing,
    _share: Share,
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

impl Ring {
    /// Makes the ring of a socket that is not bound yet and has vnet headers.
    pub(super) fn new(mtu: u32, socket: &PacketSocket) -> io::Result<Ring> {
        let size = size(mtu);
        let share = Share::take(size.bytes())?;
        let ring = PacketRing::new(socket, size)?;
        Ok(Ring { ring, _share: share })
    }
}

/// Receives through a ring; packets that do not fit there by system calls.
pub(super) struct RingRx {
    pub(super) ring: Ring,
    pub(super) long: SystemRx,
}

impl Rx for RingRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.long.fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let before = out.len();
        let ring = &mut self.ring.ring;
        // Bounded, so that a flood of unusable packets ends the call too.
        for _ in 0..max {
            let left = max - (out.len() - before);
            let longer = ring.count_longer(left.min(BATCH));
            if longer > 0 {
                ring.skip(self.long.receive_waiting(out, longer)?);
            } else if left == 0 {
                break;
            } else if let Some(packet) = ring.take() {
                out.extend(frame(packet, &self.long.counters));
            } else {
                break;
            }
        }
        Ok(out.len() - before)
    }

    fn is_free_to_ask(&self) -> bool {
        true
    }

    fn attach_programs(&mut self, programs: IngressPrograms<'_>) -> io::Result<bool> {
        self.long.attach_programs(programs)
    }

    fn keep(&self, filter: BorrowedFd<'_>) -> io::Result<Option<Kept>> {
        self.long.keep(filter)
    }

    fn woken_in_vain(&mut self) -> io::Result<()> {
        match rustix::net::sockopt::socket_error(self.long.socket.as_fd())? {
            // The kernel returns ENETDOWN once when the device goes down; packets come again when
            // it is up.
            Ok(()) | Err(Errno::NETDOWN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl SystemRx {
    /// Receives so many packets that wait already. Returns how many of them the kernel has given
    /// up: unusable packets, counted as errors, included.
    fn receive_waiting(&mut self, out: &mut Vec<Frame>, count: usize) -> io::Result<usize> {
        match self.receive(out, count) {
            Ok(received) => Ok(received),
            Err(error) => match errno(&error) {
                Some(Errno::INTR | Errno::NETDOWN) => Ok(0),
                // This one packet cannot be handed over: its kind of segment has no vnet header, or
                // memory was short.
                Some(Errno::AGAIN | Errno::INVAL | Errno::NOMEM | Errno::NOBUFS) => {
                    self.counters.rx_errors.fetch_add(1, Ordering::Relaxed);
                    Ok(1)
                }
                _ => Err(error),
            },
        }
    }
}

/// The frame of a packet, with its pending offloads and the tag that the kernel removed; `None` if
/// the packet is unusable, which is counted.
fn frame(packet: RingPacket, counters: &Counters) -> Option<Frame> {
    if packet.truncated {
        counters.queue_full.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let frame = usable(packet);
    if frame.is_none() {
        counters.rx_errors.fetch_add(1, Ordering::Relaxed);
    }
    frame
}

fn usable(packet: RingPacket) -> Option<Frame> {
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
        for (mtu, place) in [
            (68, 2048),
            (1500, 2048),
            (1600, 2048),
            (3500, 4096),
            (9000, 16384),
            (65_535, 2048),
        ] {
            let size = size(mtu);
            assert_eq!((size.place, size.bytes()), (place, RING as usize), "{mtu}");
        }
    }

    #[test]
    fn no_more_memory_is_taken_than_there_may_be_and_what_is_given_back_can_be_taken_again() {
        let most = Share::take(MOST).unwrap();
        assert!(Share::take(1).is_err());
        drop(most);
        assert!(Share::take(1).is_ok());
    }
}
