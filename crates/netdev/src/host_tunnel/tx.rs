//! Sending by sockets.

use super::{HostTunnelConfig, OnTooBig, SEND_BUFFER, UDP, any, socket};
use crate::{Frame, Tx, TxReport};
use rustix::io::Errno;
use socket2::Socket;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};
use sys::datagram::{self, Header, PIECES, SocketOption};

/// Sockets of a transmit handle for each version of IP, each with a source port of its own.
pub(super) const SOCKETS: usize = 16;

/// Length of an Ethernet header.
const ETHERNET: usize = 14;
/// The bit "don't fragment" of IPv4, in its byte.
const DF: u8 = 0x40;

/// Bytes of all segments of one call at most: those of an IP packet.
const MOST: usize = 65_000;

/// See the module's page.
pub(super) struct SocketTx {
    v4: Vec<Sender>,
    v6: Vec<Sender>,
    /// The family and the place of the socket that had no room at the last [`Tx::offer`].
    full: Option<(bool, usize)>,
    too_big: OnTooBig,
}

/// A socket that sends, and what it is set to.
struct Sender {
    socket: Socket,
    ipv6: bool,
    is_bound: bool,
    df: Option<bool>,
    checksums: Option<bool>,
}

/// What an outer packet is to look like. Packets of which it is equal leave by one call.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Outer {
    header: Header,
    src_port: u16,
    df: bool,
    checksum: bool,
    /// Where in the frame the kernel's headers end.
    start: usize,
}

/// Why a frame was not sent.
enum Failure {
    NoRoom,
    TooBig,
    /// By IPsec, because no policy encrypts it, or by the firewall.
    Refused,
    Error,
}

impl SocketTx {
    pub(super) fn open(
        config: HostTunnelConfig,
        families: impl Iterator<Item = bool>,
        too_big: OnTooBig,
    ) -> io::Result<SocketTx> {
        let mut tx = SocketTx {
            v4: Vec::new(),
            v6: Vec::new(),
            full: None,
            too_big,
        };
        let count = if config.protocol == UDP { SOCKETS } else { 1 };
        for ipv6 in families {
            let senders = if ipv6 { &mut tx.v6 } else { &mut tx.v4 };
            for _ in 0..count {
                senders.push(Sender::open(config, ipv6)?);
            }
        }
        Ok(tx)
    }

    /// Sends the first frames, as many as leave by one call; returns how many those were.
    fn send_some(&mut self, frames: &[Frame], report: &mut TxReport) -> usize {
        let Some(outer) = Outer::read(&frames[0]) else {
            report.errors += 1;
            return 1;
        };
        let ipv6 = outer.header.dst.is_ipv6();
        let senders = if ipv6 { &mut self.v6 } else { &mut self.v4 };
        if senders.is_empty() {
            // The host does not have this version of IP.
            report.down += 1;
            return 1;
        }
        let place = usize::from(outer.src_port) % senders.len();
        let sender = &mut senders[place];
        let count = outer.run(frames);
        let (sent, failure) = sender.send(&outer, &frames[..count]);
        report.packets += sent as u64;
        report.bytes += frames[..sent].iter().map(|frame| frame.len() as u64).sum::<u64>();
        match failure {
            None => return sent,
            Some(Failure::NoRoom) => {
                self.full = Some((ipv6, place));
                return sent;
            }
            Some(Failure::TooBig) => {
                report.too_big += 1;
                (self.too_big)(outer.header.dst, outer.header.mark);
            }
            Some(Failure::Refused) => {
                report.errors += 1;
                report.refused += 1;
            }
            Some(Failure::Error) => report.errors += 1,
        }
        sent + 1
    }
}

impl Tx for SocketTx {
    fn send(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = self.offer(frames);
        report.dropped += frames.len() as u64;
        frames.clear();
        report
    }

    fn offer(&mut self, frames: &mut Vec<Frame>) -> TxReport {
        let mut report = TxReport::default();
        self.full = None;
        let mut done = 0;
        while done < frames.len() && self.full.is_none() {
            done += self.send_some(&frames[done..], &mut report);
        }
        frames.drain(..done);
        report
    }

    fn room(&self) -> Option<BorrowedFd<'_>> {
        let (ipv6, place) = self.full?;
        let senders = if ipv6 { &self.v6 } else { &self.v4 };
        senders.get(place).map(|sender| sender.socket.as_fd())
    }
}

impl Sender {
    fn open(config: HostTunnelConfig, ipv6: bool) -> io::Result<Sender> {
        let socket = socket(config, ipv6)?;
        datagram::receive_nothing(socket.as_fd())?;
        // Without the right to exceed the limit, the limit holds.
        let _ = datagram::set(socket.as_fd(), SocketOption::SendBuffer(SEND_BUFFER));
        if ipv6 {
            // A kernel without it sends nothing in VRFs.
            let _ = datagram::set(socket.as_fd(), SocketOption::AnySource);
        }
        Ok(Sender {
            socket,
            ipv6,
            is_bound: config.protocol != UDP,
            df: None,
            checksums: None,
        })
    }

    /// Sends frames with the same outer headers; returns how many, and what is wrong with the next.
    fn send(&mut self, outer: &Outer, frames: &[Frame]) -> (usize, Option<Failure>) {
        if !self.is_bound {
            self.bind(outer.src_port);
        }
        if self.df != Some(outer.df) {
            let (ipv6, set) = (self.ipv6, outer.df);
            let done = datagram::set(self.socket.as_fd(), SocketOption::DontFragment { ipv6, set });
            self.df = done.is_ok().then_some(outer.df);
        }
        let size = frames[0].len() - outer.start;
        if frames.len() > 1 {
            // The kernel segments only what has checksums.
            self.set_checksums(outer, true);
            let pieces = frames.iter().map(|frame| &frame.data()[outer.start..]);
            match datagram::send(self.socket.as_fd(), &outer.header, Some(size as u16), pieces) {
                Ok(_) => return (frames.len(), None),
                Err(error) if is_no_room(&error) => return (0, Some(Failure::NoRoom)),
                // It does not segment packets that IPsec protects, nor those that are too long.
                Err(_) => {}
            }
        }
        self.set_checksums(outer, outer.checksum);
        for (sent, frame) in frames.iter().enumerate() {
            let piece = [&frame.data()[outer.start..]].into_iter();
            if let Err(error) = datagram::send(self.socket.as_fd(), &outer.header, None, piece) {
                let failure = match Errno::from_io_error(&error) {
                    _ if is_no_room(&error) => Failure::NoRoom,
                    Some(Errno::MSGSIZE) => Failure::TooBig,
                    Some(Errno::PERM) => Failure::Refused,
                    _ => Failure::Error,
                };
                return (sent, Some(failure));
            }
        }
        (frames.len(), None)
    }

    /// Takes the source port of the first packet, so that it is one of the configured range.
    /// Where somebody has the port, the kernel chooses one with the first packet.
    #[cold]
    fn bind(&mut self, port: u16) {
        let _ = self.socket.bind(&any(self.ipv6, port));
        self.is_bound = true;
    }

    fn set_checksums(&mut self, outer: &Outer, send: bool) {
        if outer.header.dst_port != 0 && self.checksums != Some(send) {
            let ipv6 = self.ipv6;
            let done = datagram::set(self.socket.as_fd(), SocketOption::Checksums { ipv6, send });
            self.checksums = done.is_ok().then_some(send);
        }
    }
}

fn is_no_room(error: &io::Error) -> bool {
    let none = [Errno::AGAIN, Errno::NOBUFS, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|errno| none.contains(&errno))
}

impl Outer {
    /// Reads the outer headers of a frame, which have no options.
    fn read(frame: &Frame) -> Option<Outer> {
        let ip = frame.data().get(ETHERNET..)?;
        let (src, dst, tos, ttl, df, protocol, len): (IpAddr, IpAddr, u8, u8, bool, u8, usize) = match ip.first()? >> 4
        {
            4 => {
                let header: &[u8; 20] = ip.first_chunk()?;
                let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
                let (tos, ttl, df) = (header[1], header[8], header[6] & DF != 0);
                (address(12).into(), address(16).into(), tos, ttl, df, header[9], 20)
            }
            6 => {
                let header: &[u8; 40] = ip.first_chunk()?;
                let address = |at: usize| header[at..].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets));
                let tos = header[0] << 4 | header[1] >> 4;
                (
                    address(8)?.into(),
                    address(24)?.into(),
                    tos,
                    header[7],
                    true,
                    header[6],
                    40,
                )
            }
            _ => return None,
        };
        let mut outer = Outer {
            header: Header {
                src,
                dst,
                dst_port: 0,
                tos,
                ttl,
                mark: frame.meta.mark,
            },
            src_port: 0,
            df,
            checksum: true,
            start: ETHERNET + len,
        };
        if protocol == UDP {
            let udp: &[u8; 8] = ip.get(len..)?.first_chunk()?;
            outer.src_port = u16::from_be_bytes([udp[0], udp[1]]);
            outer.header.dst_port = u16::from_be_bytes([udp[2], udp[3]]);
            outer.checksum = udp[6..8] != [0, 0];
            outer.start += 8;
        }
        Some(outer)
    }

    /// The number of the first frames that can leave by one call.
    fn run(&self, frames: &[Frame]) -> usize {
        if self.header.dst_port == 0 {
            return 1;
        }
        let size = frames[0].len();
        let most = (MOST / (size - self.start).max(1)).clamp(1, PIECES);
        let mut count = 1;
        for frame in frames[1..].iter().take(most - 1) {
            if frame.len() > size || frame.len() <= self.start || Outer::read(frame) != Some(*self) {
                break;
            }
            count += 1;
            if frame.len() < size {
                break;
            }
        }
        count
    }
}
