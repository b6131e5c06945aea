//! Devices of the kernel, through packet sockets (`packet(7)`).
//!
//! Packets are received through a ring shared with the kernel ([`rings`]); long segments, and all
//! packets without a ring, by `recvmmsg`.
//! - `PACKET_VNET_HDR` lets large segments and pending checksums through as they are; the header is
//!   in the headroom before the packet.
//! - The ring or `PACKET_AUXDATA` has the VLAN tag that the kernel removed from the packet; the tag
//!   is put back, and pending offsets move with it.
//! - The socket does not see packets sent through the device, is promiscuous, and holds 16 MB,
//!   since one segment takes 64 KB and more.
//!
//! Packets are sent by `sendmmsg`, with the vnet header in the headroom, through the device's
//! qdisc; those of a tunnel with the same outer headers as one datagram that the kernel cuts.
//! `PACKET_QDISC_BYPASS` would drop segments that the device does not cut itself (behind two tags,
//! or with its offloads switched off), hide sent packets from captures on the port, and bypass the
//! qdiscs of other programs; measured over veth it gains nothing.

use self::rings::{Ring, RingRx};
use self::tx::SystemTx;
use crate::claim::Claim;
use crate::isolation::{Guard, Isolation};
use crate::kernel::{KernelDevice, contenders};
use crate::{DeviceDrops, Error, Frame, IngressPrograms, Kept, Kind, Netdev, Rx, State, Tx};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use sys::PacketSocket;
use sys::mmsg::{self, BATCH, Received};
use wire::{MacAddr, VlanTag};

/// Bytes that wait to be received, by the kernel's count, which includes its own overhead.
const RECEIVE_BUFFER: i32 = 16 << 20;
/// Bytes that wait in the device to be sent.
const SEND_BUFFER: i32 = 4 << 20;

/// A device of the kernel that exists on its own. Only threads of the network namespace that it was
/// found in may open its queues.
pub struct System {
    device: KernelDevice,
    isolation: Isolation,
    counters: Arc<Counters>,
    /// The receive queues that are open, to read their statistics.
    sockets: Mutex<Vec<Weak<PacketSocket>>>,
    /// The claim on the device, while a receive queue is open.
    claim: Mutex<Weak<Claim>>,
    /// Why the host's stack could not be kept out, and how it is.
    isolated: Mutex<Option<io::Result<Isolation>>>,
}

#[derive(Default)]
struct Counters {
    queue_full: AtomicU64,
    truncated: AtomicU64,
    rx_errors: AtomicU64,
}

impl System {
    /// Finds a device in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::BadName`], or the kernel's.
    pub fn open(name: &str, isolation: Isolation) -> Result<System, Error> {
        Ok(System {
            device: KernelDevice::find(name)?,
            isolation,
            counters: Arc::default(),
            sockets: Mutex::default(),
            claim: Mutex::default(),
            isolated: Mutex::default(),
        })
    }

    /// How the host's stack is kept out; `None` if it is not, or no receive queue was opened.
    pub fn isolated(&self) -> Option<Isolation> {
        match &*self.isolated.lock() {
            Some(Ok(how)) if *how != Isolation::Off => Some(*how),
            _ => None,
        }
    }

    /// Makes a socket receive the device's packets.
    fn receive_on(&self, socket: &Arc<PacketSocket>) -> io::Result<()> {
        socket.join_promiscuous(self.device.ifindex)?;
        socket.bind(self.device.ifindex, true)?;
        let mut sockets = self.sockets.lock();
        sockets.retain(|socket| socket.strong_count() > 0);
        sockets.push(Arc::downgrade(socket));
        Ok(())
    }
}

/// A socket that can be made to receive.
fn receiver() -> io::Result<PacketSocket> {
    let socket = PacketSocket::new()?;
    socket.enable_vnet_header()?;
    socket.enable_auxdata()?;
    socket.ignore_outgoing()?;
    socket.set_receive_buffer(RECEIVE_BUFFER)?;
    Ok(socket)
}

impl Netdev for System {
    fn name(&self) -> &str {
        &self.device.name
    }

    fn kind(&self) -> Kind {
        Kind::System
    }

    fn state(&self) -> io::Result<State> {
        self.device.state()
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        self.device.set(Some(mtu), None, None)
    }

    fn set_mac(&self, mac: MacAddr) -> io::Result<()> {
        self.device.set(None, Some(mac), None)
    }

    fn set_up(&self, up: bool) -> io::Result<()> {
        self.device.set(None, None, Some(up))
    }

    fn open_rx(&self) -> io::Result<Vec<Box<dyn Rx>>> {
        let claim = self.device.claim(&self.claim)?;
        let guard = Guard::attach(self.device.ifindex, self.isolation);
        *self.isolated.lock() = Some(match &guard {
            Ok(guard) => Ok(guard.method()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        });
        let guard = guard.unwrap_or(Guard::Off);
        let socket = receiver()?;
        // There may be no memory for a ring, or this kernel has none.
        let ring = self.device.state().and_then(|state| Ring::new(state.mtu, &socket));
        let socket = Arc::new(socket);
        self.receive_on(&socket)?;
        let rx = SystemRx {
            socket,
            counters: self.counters.clone(),
            buffers: Vec::with_capacity(BATCH),
            received: [Received::default(); BATCH],
            expect: 1,
            guard,
            _claim: claim,
        };
        let rx: Box<dyn Rx> = match ring {
            Ok(ring) => Box::new(RingRx { ring, long: rx }),
            Err(_) => Box::new(rx),
        };
        Ok(vec![rx])
    }

    fn open_tx(&self) -> io::Result<Box<dyn Tx>> {
        let socket = PacketSocket::new()?;
        socket.enable_vnet_header()?;
        socket.set_send_buffer(SEND_BUFFER)?;
        socket.bind(self.device.ifindex, false)?;
        Ok(Box::new(SystemTx::new(socket)))
    }

    fn drops(&self) -> DeviceDrops {
        for socket in self.sockets.lock().iter().filter_map(Weak::upgrade) {
            // Reading resets the kernel's count. It cannot fail on an open socket.
            let drops = socket.take_statistics().unwrap_or_default().drops;
            self.counters.queue_full.fetch_add(u64::from(drops), Ordering::Relaxed);
        }
        DeviceDrops {
            queue_full: self.counters.queue_full.load(Ordering::Relaxed),
            truncated: self.counters.truncated.load(Ordering::Relaxed),
            rx_errors: self.counters.rx_errors.load(Ordering::Relaxed),
        }
    }

    fn contenders(&self) -> Vec<String> {
        contenders(&self.device, &self.claim)
    }

    fn carrier(&self) -> Option<bool> {
        self.device.carrier()
    }

    fn link_by_mii(&self) -> Option<bool> {
        self.device.link_by_mii()
    }

    fn numa_node(&self) -> Option<usize> {
        self.device.numa_node()
    }

    fn status(&self) -> BTreeMap<String, String> {
        let mut status = self.device.status();
        if let Some(Err(error)) = &*self.isolated.lock() {
            let warning = format!("the host's stack also receives this device's packets: {error}");
            status.insert("warning".to_owned(), warning);
        }
        status
    }
}

/// Receives by system calls.
struct SystemRx {
    socket: Arc<PacketSocket>,
    counters: Arc<Counters>,
    /// Buffers for one call; empty in between, so that idle ports hold no memory.
    buffers: Vec<Frame>,
    received: [Received; BATCH],
    /// Expected number of packets: preparing more buffers and headers would be wasted time.
    expect: usize,
    /// Declared after the socket, so that the socket closes before the host's stack gets the device
    /// back.
    guard: Guard,
    _claim: Option<Arc<Claim>>,
}

impl Rx for SystemRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let before = out.len();
        // Bounded, so that the call ends also if no packet can be used.
        for _ in 0..BATCH {
            let left = max - (out.len() - before);
            let want = self.expect.min(left).min(BATCH);
            if want == 0 {
                break;
            }
            match self.receive(out, want) {
                Ok(n) if n < want => {
                    self.expect = (self.expect / 2).max(n + 1);
                    break;
                }
                Ok(_) => self.expect = (self.expect * 2).min(BATCH),
                Err(error) => match errno(&error) {
                    // The kernel returns ENETDOWN once when the device goes down; packets come
                    // again when it is up.
                    Some(Errno::AGAIN | Errno::NETDOWN) => {
                        // Two, so that a packet that comes alone needs no second call to know that
                        // it was alone.
                        self.expect = 2;
                        break;
                    }
                    Some(Errno::INTR) => {}
                    // This one packet cannot be handed over: its kind of segment has no vnet
                    // header, or memory was short.
                    Some(Errno::INVAL | Errno::NOMEM | Errno::NOBUFS) => {
                        self.counters.rx_errors.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(out.len() - before)
    }

    fn attach_programs(&mut self, programs: IngressPrograms<'_>) -> io::Result<bool> {
        // The redirect first: without the filter it drops all packets, which the socket still gets;
        // without the redirect, packets that the filter keeps from the socket are lost.
        let is_attached = self.guard.put_first(programs.redirect)?;
        if is_attached {
            self.socket.attach_filter(programs.filter)?;
        }
        Ok(is_attached)
    }

    fn keep(&self, filter: BorrowedFd<'_>) -> io::Result<Option<Kept>> {
        let Some(device) = self.guard.left()? else {
            return Ok(None);
        };
        let socket = PacketSocket::new()?;
        socket.ignore_outgoing()?;
        // The smallest: what the filter lets through is nobody's.
        socket.set_receive_buffer(0)?;
        socket.attach_filter(filter)?;
        socket.join_promiscuous(device.ifindex)?;
        socket.bind(device.ifindex, true)?;
        let socket = socket.as_fd().try_clone_to_owned()?;
        Ok(Some(Kept { socket, device }))
    }
}

impl SystemRx {
    /// One system call: receives up to `want` packets; counts unusable ones and does not return
    /// them. Returns the number of packets that the kernel gave.
    fn receive(&mut self, out: &mut Vec<Frame>, want: usize) -> io::Result<usize> {
        self.buffers.resize_with(want, Frame::for_any);
        let areas = self.buffers.iter_mut().map(Frame::receive_area);
        let result = mmsg::receive(self.socket.as_fd(), areas, &mut self.received);
        let n = *result.as_ref().unwrap_or(&0);
        // Unused buffers go back first, so that those with packets end up above them on the free
        // list.
        self.buffers.truncate(n);
        for (mut frame, received) in self.buffers.drain(..).zip(&self.received) {
            match complete(&mut frame, received) {
                Completion::Packet => out.push(frame),
                Completion::Truncated => {
                    self.counters.truncated.fetch_add(1, Ordering::Relaxed);
                }
                Completion::Unusable => {
                    self.counters.rx_errors.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        result
    }
}

enum Completion {
    Packet,
    Truncated,
    Unusable,
}

/// Makes a frame from a received buffer.
#[inline]
fn complete(frame: &mut Frame, received: &Received) -> Completion {
    if received.truncated {
        return Completion::Truncated;
    }
    let Some(offload) = frame.take_vnet_header(received.len) else {
        return Completion::Unusable;
    };
    frame.offload = offload;
    match received.vlan {
        Some((tpid, tci)) if frame.push_vlan(VlanTag { tpid, tci }).is_err() => Completion::Unusable,
        _ => Completion::Packet,
    }
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

mod joined;
mod rings;
mod tx;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Csum, Gso, vnet};

    fn received(vnet: [u8; vnet::LEN], packet: &[u8], vlan: Option<(u16, u16)>) -> (Frame, Received) {
        let mut frame = Frame::for_any();
        let area = frame.receive_area();
        area[..vnet::LEN].copy_from_slice(&vnet);
        area[vnet::LEN..vnet::LEN + packet.len()].copy_from_slice(packet);
        (
            frame,
            Received {
                len: vnet::LEN + packet.len(),
                truncated: false,
                vlan,
            },
        )
    }

    #[test]
    fn a_stripped_tag_is_put_back_and_pending_work_moves_with_its_headers() {
        let mut vnet = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        vnet[2..4].copy_from_slice(&66_u16.to_ne_bytes());
        vnet[4..6].copy_from_slice(&1448_u16.to_ne_bytes());
        vnet[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        vnet[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        let (mut frame, received) = received(vnet, b"DDDDDDSSSSSS\x08\x00rest", Some((0x88a8, 0x200a)));
        assert!(matches!(complete(&mut frame, &received), Completion::Packet));
        assert_eq!(frame.data(), b"DDDDDDSSSSSS\x88\xa8\x20\x0a\x08\x00rest");
        assert_eq!(frame.offload.csum, Csum::Partial { start: 38, offset: 16 });
        assert_eq!(
            (frame.offload.gso, frame.offload.hdr_len, frame.offload.gso_size),
            (Gso::Tcp4, 70, 1448)
        );
    }

    #[test]
    fn what_cannot_be_a_packet_is_told_from_packets() {
        let (mut frame, mut what) = received([0; vnet::LEN], b"DDDDDDSSSSSS\x08\x00rest", None);
        what.truncated = true;
        assert!(matches!(complete(&mut frame, &what), Completion::Truncated));
        what.truncated = false;
        what.len = 4;
        assert!(matches!(complete(&mut frame, &what), Completion::Unusable));
        let (mut frame, what) = received([0, 3, 0, 0, 0, 0, 0, 0, 0, 0], b"DDDDDDSSSSSS\x08\x00rest", None);
        assert!(matches!(complete(&mut frame, &what), Completion::Unusable));
    }
}
