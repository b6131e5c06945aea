//! Receiving by a socket.

use super::join::{self, Layout};
use super::{HostTunnelConfig, Receiver, UDP};
use crate::{Csum, Frame, Rx};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sys::datagram::{self, BATCH, Received};

/// Length of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP_LEN: usize = 8;

/// Room for the largest packet of IP, and for the outer headers that the kernel has removed.
const BUFFER: usize = 66 * 1024;
const ROOM: usize = 64;

/// See the module's page.
pub(super) struct SocketRx {
    receiver: Arc<Receiver>,
    config: HostTunnelConfig,
    /// Readable when the socket is, or when packets wait here.
    ready: OwnedFd,
    event: OwnedFd,
    is_set: bool,
    buffers: Vec<Box<[u8]>>,
    received: [Received; BATCH],
    /// One message may have more packets than the caller wants.
    waiting: VecDeque<Frame>,
}

impl SocketRx {
    pub(super) fn open(receiver: Arc<Receiver>, config: HostTunnelConfig) -> io::Result<SocketRx> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&ready, &receiver.socket, data, epoll::EventFlags::IN)?;
        epoll::add(&ready, &event, data, epoll::EventFlags::IN)?;
        Ok(SocketRx {
            receiver,
            config,
            ready,
            event,
            is_set: false,
            // Untouched pages cost no memory.
            buffers: (0..BATCH).map(|_| vec![0; BUFFER].into_boxed_slice()).collect(),
            received: [Received::NONE; BATCH],
            waiting: VecDeque::new(),
        })
    }

    /// Receives messages, whose packets then wait; returns whether there were any.
    fn receive(&mut self) -> bool {
        let buffers = self.buffers.iter_mut().map(|buffer| &mut buffer[ROOM..]);
        let count = match datagram::receive(self.receiver.socket.as_fd(), buffers, &mut self.received) {
            Ok(count) => count,
            Err(error) => {
                let errno = Errno::from_io_error(&error);
                if !matches!(errno, Some(Errno::AGAIN | Errno::INTR)) {
                    // No error of such a socket lasts: the kernel has cleared it.
                    self.receiver.errors.fetch_add(1, Ordering::Relaxed);
                }
                return false;
            }
        };
        let mut buffers = std::mem::take(&mut self.buffers);
        for (buffer, received) in buffers.iter_mut().zip(self.received).take(count) {
            if received.truncated {
                self.receiver.errors.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.take(&mut buffer[..ROOM + received.len], received);
        }
        self.buffers = buffers;
        true
    }

    /// Makes packets of a message, which lies in the buffer behind [`ROOM`].
    fn take(&mut self, buffer: &mut [u8], received: Received) {
        let size = usize::from(received.segment);
        let len = buffer.len() - ROOM;
        if size == 0 || size >= len {
            return self.take_one(&buffer[ROOM..], received);
        }
        let headers = Headers::of(self.config, received);
        // The headers of the first datagram, to read where its parts are.
        let start = ROOM - headers.len();
        if headers.write(&mut buffer[start..ROOM], size).is_none() {
            return;
        }
        let layout = Layout::find(self.config.format, &buffer[start..ROOM + size], headers.len());
        let mut rest = &buffer[ROOM..];
        while !rest.is_empty() {
            let run = layout.as_ref().and_then(|layout| layout.run(rest, size));
            let Some(run) = run else {
                let (one, others) = rest.split_at(size.min(rest.len()));
                self.take_one(one, received);
                rest = others;
                continue;
            };
            let (datagrams, others) = rest.split_at(run.len);
            rest = others;
            let before = ETHERNET + headers.len();
            let len = run.joined_len();
            let mut written = None;
            let mut frame = Frame::of_pieces(before, len, run.pieces(datagrams, size), |to| {
                written = headers.write_frame(to, len);
            });
            if written.is_some() {
                run.finish(&mut frame, before);
                self.waiting.push_back(frame);
            }
        }
    }

    fn take_one(&mut self, packet: &[u8], received: Received) {
        let headers = Headers::of(self.config, received);
        let before = ETHERNET + headers.len();
        let mut written = None;
        let mut frame = Frame::of_pieces(before, packet.len(), [packet].into_iter(), |to| {
            written = headers.write_frame(to, packet.len());
        });
        if written.is_none() {
            self.receiver.errors.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // The kernel has verified the outer checksums.
        frame.offload.csum = Csum::Valid;
        join::complete(&mut frame, self.config.format);
        self.waiting.push_back(frame);
    }

    /// Keeps the descriptor readable as long as packets wait.
    fn signal(&mut self) {
        let waits = !self.waiting.is_empty();
        if waits != self.is_set {
            self.is_set = waits;
            if waits {
                let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            } else {
                let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
            }
        }
    }
}

impl Rx for SocketRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn recv(&mut self, out: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let before = out.len();
        loop {
            let room = max - (out.len() - before);
            out.extend(self.waiting.drain(..room.min(self.waiting.len())));
            if out.len() - before == max || !self.receive() {
                break;
            }
        }
        self.signal();
        Ok(out.len() - before)
    }
}

/// The outer headers of a message that the kernel has removed.
struct Headers {
    received: Received,
    protocol: u8,
    dst_port: u16,
    /// The kernel has left the IP header, as with raw packets of IPv4.
    has_ip: bool,
}

impl Headers {
    fn of(config: HostTunnelConfig, received: Received) -> Headers {
        Headers {
            received,
            protocol: config.protocol,
            dst_port: config.port,
            has_ip: config.protocol != UDP && received.src.is_ipv4(),
        }
    }

    /// Without the Ethernet header.
    fn len(&self) -> usize {
        let ip = match self.received.src {
            _ if self.has_ip => 0,
            IpAddr::V4(_) => IPV4,
            IpAddr::V6(_) => IPV6,
        };
        ip + if self.protocol == UDP { UDP_LEN } else { 0 }
    }

    /// With an Ethernet header.
    fn write_frame(&self, to: &mut [u8], len: usize) -> Option<()> {
        let (ethernet, to) = to.split_at_mut_checked(ETHERNET)?;
        ethernet.fill(0);
        let kind = if self.received.src.is_ipv4() {
            0x0800_u16
        } else {
            0x86dd
        };
        ethernet[12..].copy_from_slice(&kind.to_be_bytes());
        self.write(to, len)
    }

    /// Writes them before a packet of `len` bytes; `None` where that is longer than a packet can
    /// be.
    fn write(&self, to: &mut [u8], len: usize) -> Option<()> {
        if self.has_ip {
            return Some(());
        }
        let udp = if self.protocol == UDP { UDP_LEN } else { 0 };
        let (ip, transport) = to.split_at_mut_checked(to.len() - udp)?;
        let Received { src, dst, tos, ttl, .. } = self.received;
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let total = u16::try_from(IPV4 + udp + len).ok()?;
                ip.fill(0);
                (ip[0], ip[1], ip[8], ip[9]) = (0x45, tos, ttl, self.protocol);
                ip[2..4].copy_from_slice(&total.to_be_bytes());
                ip[12..16].copy_from_slice(&src.octets());
                ip[16..20].copy_from_slice(&dst.octets());
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let total = u16::try_from(udp + len).ok()?;
                ip.fill(0);
                (ip[0], ip[1]) = (0x60 | tos >> 4, tos << 4);
                (ip[6], ip[7]) = (self.protocol, ttl);
                ip[4..6].copy_from_slice(&total.to_be_bytes());
                ip[8..24].copy_from_slice(&src.octets());
                ip[24..40].copy_from_slice(&dst.octets());
            }
            _ => return None,
        }
        if udp > 0 {
            let total = u16::try_from(udp + len).ok()?;
            transport[..2].copy_from_slice(&self.received.src_port.to_be_bytes());
            transport[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
            transport[4..6].copy_from_slice(&total.to_be_bytes());
            transport[6..8].fill(0);
        }
        Some(())
    }
}
