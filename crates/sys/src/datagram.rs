//! Datagrams and raw IP packets through sockets of the host's stack, with what their IP headers
//! say in control messages.

use crate::error::{Error, Result, check};
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The most messages of one call of [`receive`].
pub const BATCH: usize = 16;

/// The most pieces of one [`send`]: the kernel's limit of segments before Linux 6.9.
pub const PIECES: usize = 64;

/// Room for the control messages of a packet, aligned as they have to be.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 192]);

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes written into the buffer.
    pub len: usize,
    /// The message was longer than the buffer.
    pub truncated: bool,
    /// The source and the destination of the packet.
    pub src: IpAddr,
    /// See `src`.
    pub dst: IpAddr,
    /// The source port of a datagram.
    pub src_port: u16,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Bytes of each datagram but the last if the message holds several (`UDP_GRO`); else 0.
    pub segment: u16,
    /// The device that it came by.
    pub device: u32,
}

impl Received {
    /// Nothing yet.
    pub const NONE: Received = Received {
        len: 0,
        truncated: false,
        src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        src_port: 0,
        tos: 0,
        ttl: 0,
        segment: 0,
        device: 0,
    };
}

/// The IP header of a message to send. The addresses are of the family of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The source, an address of this host; an unspecified one leaves it to the kernel.
    pub src: IpAddr,
    /// The destination.
    pub dst: IpAddr,
    /// The destination port of a datagram; 0 for other packets.
    pub dst_port: u16,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Time to live or hop limit, not 0.
    pub ttl: u8,
    /// The mark (`SO_MARK`).
    pub mark: u32,
}

/// Integer options of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// Messages tell their destination, type of service and time to live.
    Describe {
        /// The socket is one of IPv6.
        ipv6: bool,
    },
    /// Datagrams of one flow are received as one message (`UDP_GRO`, Linux 5.0).
    Join,
    /// Whether datagrams have checksums, and whether ones without are received over IPv6.
    Checksums {
        /// The socket is one of IPv6.
        ipv6: bool,
        /// Datagrams are sent with checksums.
        send: bool,
    },
    /// Packets are not fragmented: on the way, nor here.
    DontFragment {
        /// The socket is one of IPv6.
        ipv6: bool,
        /// See above; `false` lets them be fragmented.
        set: bool,
    },
    /// The kernel takes any source for packets of IPv6 (`IPV6_FREEBIND`, Linux 4.15): without it,
    /// it refuses the host's own addresses in VRFs. The caller has to know the host's addresses.
    AnySource,
    /// Bytes of received messages that may wait, beyond the system's limit for sockets.
    ReceiveBuffer(i32),
    /// Bytes of sent messages that may be under way, beyond the system's limit for sockets.
    SendBuffer(i32),
}

/// Sets an option.
///
/// # Errors
/// The kernel's.
pub fn set(socket: BorrowedFd<'_>, option: SocketOption) -> Result<()> {
    let set = |call, level, name, value: libc::c_int| {
        // SAFETY: the kernel reads one `int`, which lives through the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        check(call, result).map(drop)
    };
    let (v4, v6) = (libc::IPPROTO_IP, libc::IPPROTO_IPV6);
    match option {
        SocketOption::Describe { ipv6: false } => {
            set("setsockopt(IP_PKTINFO)", v4, libc::IP_PKTINFO, 1)?;
            set("setsockopt(IP_RECVTOS)", v4, libc::IP_RECVTOS, 1)?;
            set("setsockopt(IP_RECVTTL)", v4, libc::IP_RECVTTL, 1)
        }
        SocketOption::Describe { ipv6: true } => {
            set("setsockopt(IPV6_RECVPKTINFO)", v6, libc::IPV6_RECVPKTINFO, 1)?;
            set("setsockopt(IPV6_RECVTCLASS)", v6, libc::IPV6_RECVTCLASS, 1)?;
            set("setsockopt(IPV6_RECVHOPLIMIT)", v6, libc::IPV6_RECVHOPLIMIT, 1)
        }
        SocketOption::Join => set("setsockopt(UDP_GRO)", libc::SOL_UDP, libc::UDP_GRO, 1),
        SocketOption::Checksums { ipv6: false, send } => set(
            "setsockopt(SO_NO_CHECK)",
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            i32::from(!send),
        ),
        SocketOption::Checksums { ipv6: true, send } => {
            set(
                "setsockopt(UDP_NO_CHECK6_TX)",
                libc::SOL_UDP,
                UDP_NO_CHECK6_TX,
                i32::from(!send),
            )?;
            set("setsockopt(UDP_NO_CHECK6_RX)", libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)
        }
        SocketOption::DontFragment { ipv6: false, set: df } => {
            let how = if df {
                libc::IP_PMTUDISC_DO
            } else {
                libc::IP_PMTUDISC_DONT
            };
            set("setsockopt(IP_MTU_DISCOVER)", v4, libc::IP_MTU_DISCOVER, how)
        }
        SocketOption::DontFragment { ipv6: true, set: df } => {
            let how = if df {
                libc::IPV6_PMTUDISC_DO
            } else {
                libc::IPV6_PMTUDISC_DONT
            };
            set("setsockopt(IPV6_MTU_DISCOVER)", v6, libc::IPV6_MTU_DISCOVER, how)
        }
        SocketOption::AnySource => set("setsockopt(IPV6_FREEBIND)", v6, libc::IPV6_FREEBIND, 1),
        SocketOption::ReceiveBuffer(bytes) => set(
            "setsockopt(SO_RCVBUFFORCE)",
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            bytes,
        ),
        SocketOption::SendBuffer(bytes) => set(
            "setsockopt(SO_SNDBUFFORCE)",
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            bytes,
        ),
    }
}

/// Of `linux/udp.h`.
const UDP_NO_CHECK6_TX: libc::c_int = 101;
const UDP_NO_CHECK6_RX: libc::c_int = 102;

/// Lets a socket receive nothing, for one that only sends.
///
/// # Errors
/// The kernel's.
pub fn receive_nothing(socket: BorrowedFd<'_>) -> Result<()> {
    // `BPF_RET | BPF_K` with 0 bytes to keep.
    let mut refuse = [libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: 0,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: refuse.as_mut_ptr(),
    };
    // SAFETY: the kernel reads one `sock_fprog` and the one instruction that it points to; both
    // live through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    check("setsockopt(SO_ATTACH_FILTER)", result).map(drop)
}

/// Messages that a socket has lost because too many waited.
///
/// # Errors
/// The kernel's.
pub fn lost(socket: BorrowedFd<'_>) -> Result<u32> {
    /// `SK_MEMINFO_DROPS` of `linux/sock_diag.h`.
    const DROPS: usize = 8;
    let mut info = [0_u32; DROPS + 1];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`, and the length into `len`; both
    // live through the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    check("getsockopt(SO_MEMINFO)", result)?;
    Ok(info[DROPS])
}

/// Receives up to [`BATCH`] messages, each into one of the buffers, in order. Never waits. Returns
/// how many; what they are is in `received`.
///
/// # Errors
/// The kernel's, if not even one message was received; `EAGAIN` if there is none.
pub fn receive<'a>(
    socket: BorrowedFd<'_>,
    buffers: impl Iterator<Item = &'a mut [u8]>,
    received: &mut [Received; BATCH],
) -> io::Result<usize> {
    type Arrays = (
        [libc::mmsghdr; BATCH],
        [libc::iovec; BATCH],
        [libc::sockaddr_in6; BATCH],
    );
    // SAFETY: all-zero bytes are valid values of these structures of integers and pointers.
    let (mut headers, mut iovecs, mut names): Arrays = unsafe { zeroed() };
    let mut controls = [Control([0; 192]); BATCH];
    let mut n = 0;
    let places = headers.iter_mut().zip(&mut iovecs).zip(&mut names).zip(&mut controls);
    for (buffer, (((header, iovec), name), control)) in buffers.zip(places) {
        *iovec = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let header = &mut header.msg_hdr;
        header.msg_iov = iovec;
        header.msg_iovlen = 1;
        header.msg_name = std::ptr::from_mut(name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>() as _;
        n += 1;
    }
    // SAFETY: the first `n` headers are initialised. Each points to one iovec over a buffer
    // borrowed mutably for `'a`, which outlives this call, and to a name and a control area of the
    // lengths given; those three live in this frame and are not moved. The kernel writes nowhere
    // else.
    let result = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            n as libc::c_uint,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    let count = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    for (((received, header), name), control) in
        received.iter_mut().zip(&headers).zip(&names).zip(&controls).take(count)
    {
        *received = Received {
            len: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            ..Received::NONE
        };
        received.read_name(name);
        let filled = header.msg_hdr.msg_controllen.min(size_of::<Control>());
        received.read_control(&control.0[..filled]);
    }
    Ok(count)
}

impl Received {
    /// Reads the source, which the kernel has written as a `sockaddr_in` or a `sockaddr_in6`.
    fn read_name(&mut self, name: &libc::sockaddr_in6) {
        if i32::from(name.sin6_family) == libc::AF_INET {
            // The address follows the port, where IPv6 has the flow label.
            self.src = Ipv4Addr::from_bits(u32::from_be(name.sin6_flowinfo)).into();
            self.dst = Ipv4Addr::UNSPECIFIED.into();
        } else {
            self.src = Ipv6Addr::from(name.sin6_addr.s6_addr).into();
            self.dst = Ipv6Addr::UNSPECIFIED.into();
        }
        self.src_port = u16::from_be(name.sin6_port);
    }

    fn read_control(&mut self, mut control: &[u8]) {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        while control.len() >= HEADER {
            let int = |at: usize| {
                control
                    .get(at..)
                    .and_then(|b| b.first_chunk())
                    .map(|b| i32::from_ne_bytes(*b))
            };
            let len = control.first_chunk().map_or(0, |b| usize::from_ne_bytes(*b));
            let (Some(level), Some(kind)) = (int(size_of::<usize>()), int(size_of::<usize>() + 4)) else {
                return;
            };
            let Some(data) = control.get(HEADER..len) else { return };
            self.read_message(level, kind, data);
            let next = len.next_multiple_of(size_of::<usize>());
            control = control.get(next..).unwrap_or_default();
        }
    }

    fn read_message(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let int = data.first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
        let index = |at: usize| {
            data.get(at..)
                .and_then(|b| b.first_chunk())
                .map_or(0, |b| u32::from_ne_bytes(*b))
        };
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // ipi_ifindex, ipi_spec_dst, ipi_addr
                self.device = index(0);
                if let Some(octets) = data.get(8..).and_then(|b| b.first_chunk::<4>()) {
                    self.dst = Ipv4Addr::from(*octets).into();
                }
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.device = index(16);
                if let Some(octets) = data.first_chunk::<16>() {
                    self.dst = Ipv6Addr::from(*octets).into();
                }
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => self.tos = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => self.tos = int as u8,
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => self.ttl = int as u8,
            (libc::SOL_UDP, libc::UDP_GRO) => self.segment = int as u16,
            _ => {}
        }
    }
}

/// Writes control messages one after the other.
struct Writer {
    control: Control,
    len: usize,
}

impl Writer {
    /// Adds a message; there is room for those of [`send`].
    fn put(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        let len = HEADER + data.len();
        let next = self.len + len.next_multiple_of(size_of::<usize>());
        let Some(to) = self.control.0.get_mut(self.len..next) else {
            return;
        };
        to[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
        to[size_of::<usize>()..][..4].copy_from_slice(&level.to_ne_bytes());
        to[size_of::<usize>() + 4..][..4].copy_from_slice(&kind.to_ne_bytes());
        to[HEADER..len].copy_from_slice(data);
        self.len = next;
    }
}

/// Sends one message of up to [`PIECES`] pieces; more are not sent. With a `segment` it becomes
/// datagrams of so many bytes each, but for the last (`UDP_SEGMENT`, Linux 4.18). Never waits.
///
/// # Errors
/// The kernel's: `EAGAIN` if the socket has no room, `EMSGSIZE` if a packet is longer than the path
/// takes, `EINVAL` if the source is no address of this host.
pub fn send<'a>(
    socket: BorrowedFd<'_>,
    header: &Header,
    segment: Option<u16>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    // SAFETY: all-zero bytes are valid values of these structures of integers and pointers.
    let (mut message, mut iovecs, mut name): (libc::msghdr, [libc::iovec; PIECES], libc::sockaddr_in6) =
        unsafe { zeroed() };
    let mut control = Writer {
        control: Control([0; 192]),
        len: 0,
    };
    let (tos, ttl) = (i32::from(header.tos), i32::from(header.ttl));
    name.sin6_port = header.dst_port.to_be();
    let name_len = match header.dst {
        IpAddr::V4(dst) => {
            name.sin6_family = libc::AF_INET as libc::sa_family_t;
            name.sin6_flowinfo = dst.to_bits().to_be();
            control.put(libc::IPPROTO_IP, libc::IP_TOS, &tos.to_ne_bytes());
            control.put(libc::IPPROTO_IP, libc::IP_TTL, &ttl.to_ne_bytes());
            size_of::<libc::sockaddr_in>()
        }
        IpAddr::V6(dst) => {
            name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            name.sin6_addr.s6_addr = dst.octets();
            control.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos.to_ne_bytes());
            control.put(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &ttl.to_ne_bytes());
            size_of::<libc::sockaddr_in6>()
        }
    };
    match header.src {
        src if src.is_unspecified() => {}
        IpAddr::V4(src) => {
            // ipi_ifindex, ipi_spec_dst, ipi_addr
            let mut info = [0; 12];
            info[4..8].copy_from_slice(&src.octets());
            control.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        IpAddr::V6(src) => {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&src.octets());
            control.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
    }
    if header.mark != 0 {
        control.put(libc::SOL_SOCKET, libc::SO_MARK, &header.mark.to_ne_bytes());
    }
    if let Some(segment) = segment {
        control.put(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
    }
    let mut n = 0;
    for (piece, iovec) in pieces.zip(&mut iovecs) {
        *iovec = libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        };
        n += 1;
    }
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = name_len as libc::socklen_t;
    message.msg_iov = iovecs.as_mut_ptr();
    message.msg_iovlen = n;
    message.msg_control = control.control.0.as_mut_ptr().cast();
    message.msg_controllen = control.len as _;
    // SAFETY: the message points to a name, control messages and `n` iovecs that live in this frame
    // and are not moved; each iovec is over a piece borrowed for `'a`, which outlives this call.
    // The kernel only reads them. `sockaddr_in6` begins as `sockaddr_in` does and is longer.
    let result = unsafe {
        libc::sendmsg(
            socket.as_raw_fd(),
            &raw const message,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The kernel's path MTU to a destination, from a connected socket.
///
/// # Errors
/// The kernel's.
pub fn path_mtu(socket: BorrowedFd<'_>, ipv6: bool) -> Result<u32> {
    let (level, name) = match ipv6 {
        false => (libc::IPPROTO_IP, libc::IP_MTU),
        true => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `mtu`, and the length into `len`; both
    // live through the call.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut mtu).cast(), &raw mut len) };
    check("getsockopt(IP_MTU)", result)?;
    u32::try_from(mtu).map_err(|_| Error {
        call: "getsockopt(IP_MTU)",
        source: io::Error::from_raw_os_error(libc::EINVAL),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn segments_arrive_as_one_message_that_tells_its_header() {
        for ipv6 in [false, true] {
            let local = if ipv6 { "[::1]:0" } else { "127.0.0.1:0" };
            let Ok(to) = UdpSocket::bind(local) else { continue };
            set(to.as_fd(), SocketOption::Describe { ipv6 }).unwrap();
            set(to.as_fd(), SocketOption::Join).unwrap();
            let from = UdpSocket::bind(local).unwrap();
            let at = to.local_addr().unwrap();
            let header = Header {
                src: at.ip(),
                dst: at.ip(),
                dst_port: at.port(),
                tos: 0x48,
                ttl: 7,
                mark: 0,
            };
            let pieces: [&[u8]; 3] = [&[1; 100], &[2; 100], &[3; 50]];
            assert_eq!(send(from.as_fd(), &header, Some(100), pieces.into_iter()).unwrap(), 250);
            let mut buffers = [[0_u8; 1000]; 2];
            let mut received = [Received::NONE; BATCH];
            let n = receive(to.as_fd(), buffers.iter_mut().map(|b| &mut b[..]), &mut received).unwrap();
            assert_eq!(n, 1);
            let one = received[0];
            let expected = Received {
                len: 250,
                truncated: false,
                src: at.ip(),
                dst: at.ip(),
                src_port: from.local_addr().unwrap().port(),
                tos: 0x48,
                ttl: 7,
                segment: 100,
                device: one.device,
            };
            assert_eq!(one, expected);
            assert_eq!(buffers[0][..100], [1; 100]);
            assert_eq!(buffers[0][200..250], [3; 50]);
            assert_eq!(lost(to.as_fd()).unwrap(), 0);
        }
    }

    #[test]
    fn a_socket_that_only_sends_receives_nothing() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        receive_nothing(to.as_fd()).unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.send_to(b"packet", to.local_addr().unwrap()).unwrap();
        to.set_nonblocking(true).unwrap();
        let error = to.recv(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
