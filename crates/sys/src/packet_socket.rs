//! Packet sockets (`packet(7)`) in raw mode: whole Ethernet frames of one device.

use crate::error::{Error, Result, check};
use std::ffi::c_int;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A raw packet socket, non-blocking. It receives nothing before it is [bound](PacketSocket::bind).
pub struct PacketSocket {
    fd: OwnedFd,
}

/// Counts since the statistics were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketStatistics {
    /// Packets that arrived, dropped ones included.
    pub packets: u32,
    /// Packets dropped because the socket's receive buffer was full.
    pub drops: u32,
}

impl PacketSocket {
    /// Opens a socket. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// The kernel's, of `socket`.
    pub fn new() -> Result<PacketSocket> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: takes no pointers.
        let fd = check("socket(AF_PACKET)", unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor is new, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(PacketSocket { fd })
    }

    /// Attaches the socket to a device. With `receive` it receives all packets of the device, else
    /// it only sends.
    ///
    /// # Errors
    /// `ENODEV` if the device does not exist. The first receive, not this call, returns `ENETDOWN`.
    pub fn bind(&self, ifindex: u32, receive: bool) -> Result<()> {
        let protocol = if receive { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
        // SAFETY: all-zero bytes are a valid value of this structure of integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = ifindex.cast_signed();
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointer and the length are those of `address`, which lives through the call.
        let result = unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) };
        check("bind(AF_PACKET)", result).map(drop)
    }

    /// Lets a vnet header of ten bytes precede each packet, both ways.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable_vnet_header(&self) -> Result<()> {
        self.set_packet_option("setsockopt(PACKET_VNET_HDR)", libc::PACKET_VNET_HDR, &1)
    }

    /// Lets each packet bring its VLAN tag as control data, where the kernel took it out of the
    /// packet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn enable_auxdata(&self) -> Result<()> {
        self.set_packet_option("setsockopt(PACKET_AUXDATA)", libc::PACKET_AUXDATA, &1)
    }

    /// Excludes packets sent through the device from receiving.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 4.20.
    pub fn ignore_outgoing(&self) -> Result<()> {
        self.set_packet_option("setsockopt(PACKET_IGNORE_OUTGOING)", libc::PACKET_IGNORE_OUTGOING, &1)
    }

    /// Sets a BPF program that decides how many bytes of each packet the socket gets.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` for a program of another kind.
    pub fn attach_filter(&self, program: BorrowedFd<'_>) -> Result<()> {
        self.set_option(
            "setsockopt(SO_ATTACH_BPF)",
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            &program.as_raw_fd(),
        )
    }

    /// Makes the device receive packets for every address, as long as this socket is open.
    ///
    /// # Errors
    /// `ENODEV` if the device does not exist.
    pub fn join_promiscuous(&self, ifindex: u32) -> Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: ifindex.cast_signed(),
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set_packet_option(
            "setsockopt(PACKET_ADD_MEMBERSHIP)",
            libc::PACKET_ADD_MEMBERSHIP,
            &membership,
        )
    }

    /// Sets how many bytes of packets wait to be received. Beyond the system's limit it needs
    /// `CAP_NET_ADMIN`; without, the limit is used.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_receive_buffer(&self, bytes: i32) -> Result<()> {
        self.set_option(
            "setsockopt(SO_RCVBUFFORCE)",
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            &bytes,
        )
        .or_else(|_| self.set_option("setsockopt(SO_RCVBUF)", libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
    }

    /// Sets how many bytes of sent packets may be under way in the device. Beyond the system's
    /// limit it needs `CAP_NET_ADMIN`; without, the limit is used.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_send_buffer(&self, bytes: i32) -> Result<()> {
        self.set_option(
            "setsockopt(SO_SNDBUFFORCE)",
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            &bytes,
        )
        .or_else(|_| self.set_option("setsockopt(SO_SNDBUF)", libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
    }

    /// Bytes of sent packets that are under way in the device, by the kernel's count, which
    /// includes its own overhead.
    ///
    /// # Errors
    /// The kernel's.
    pub fn under_way(&self) -> Result<usize> {
        let mut bytes: c_int = 0;
        // SAFETY: the kernel writes one `int`, which lives through the call. The number is that of
        // `SIOCOUTQ`.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        check("ioctl(SIOCOUTQ)", result)?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Reads the counts and resets them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_statistics(&self) -> Result<PacketStatistics> {
        // SAFETY: all-zero bytes are a valid value of this structure of integers.
        let mut stats: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, the size of `stats`; both live through the
        // call.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        };
        check("getsockopt(PACKET_STATISTICS)", result)?;
        Ok(PacketStatistics {
            packets: stats.tp_packets,
            drops: stats.tp_drops,
        })
    }

    pub(crate) fn set_packet_option<T: Plain>(&self, call: &'static str, option: c_int, value: &T) -> Result<()> {
        self.set_option(call, libc::SOL_PACKET, option, value)
    }

    fn set_option<T: Plain>(&self, call: &'static str, level: c_int, option: c_int, value: &T) -> Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the pointer and the length are those of `value`, which lives through the call;
        // the kernel only reads it.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                len,
            )
        };
        if result < 0 { Err(Error::last(call)) } else { Ok(()) }
    }
}

/// Values of socket options: integers and structures of integers without padding.
pub(crate) trait Plain {}
impl Plain for c_int {}
impl Plain for libc::packet_mreq {}
impl Plain for libc::tpacket_req {}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
