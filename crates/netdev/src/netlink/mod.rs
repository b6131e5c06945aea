//! The few netlink exchanges that devices and tunnels need (`rtnetlink(7)`), synchronous.

mod address;
mod link;
mod message;
pub(crate) mod nftables;
mod route;
mod rule;
pub(crate) mod tc;
pub(crate) mod xfrm;

pub use address::{address_of, addresses_of};
pub use link::Link;
pub(crate) use link::{dump_links, link_by_index, link_by_name, owner, parse_link, set_link};
pub(crate) use message::{Attributes, Message, parse};
pub use route::{KernelRoute, routes};
pub use rule::{KernelRule, rules};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;

/// Enough for the largest datagram that the kernel makes of a dump.
const BUFFER: usize = 32 * 1024;

/// A socket to a part of the kernel's configuration, that of routes and links unless named, in the
/// network namespace of the thread that opened it.
pub(crate) struct Netlink {
    fd: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket for requests.
    pub(crate) fn open() -> io::Result<Netlink> {
        Netlink::open_of(None)
    }

    /// Opens a socket for requests to another part of the kernel.
    pub(crate) fn open_of(protocol: Option<Protocol>) -> io::Result<Netlink> {
        Netlink::open_with(protocol, SocketFlags::empty(), 0)
    }

    /// Opens a non-blocking socket that receives the notifications of groups (a mask of
    /// `RTMGRP_*`).
    pub(crate) fn subscribe(groups: u32) -> io::Result<Netlink> {
        Netlink::subscribe_of(None, groups)
    }

    /// The same, of another part of the kernel with groups of its own.
    pub(crate) fn subscribe_of(protocol: Option<Protocol>, groups: u32) -> io::Result<Netlink> {
        Netlink::open_with(protocol, SocketFlags::NONBLOCK, groups)
    }

    fn open_with(protocol: Option<Protocol>, flags: SocketFlags, groups: u32) -> io::Result<Netlink> {
        let flags = flags | SocketFlags::CLOEXEC;
        // No protocol is the first, NETLINK_ROUTE.
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Netlink { fd, sequence: 0 })
    }

    /// Sends a request and waits for the kernel's acknowledgement.
    pub(crate) fn request(&mut self, message: Message) -> io::Result<()> {
        self.exchange(message.acknowledged(), |_, _| {})
    }

    /// Sends a request and hands each reply's type and content to `reply`, until the kernel has
    /// acknowledged it or said that it is done.
    pub(crate) fn exchange(&mut self, message: Message, mut reply: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        send(&self.fd, &message.finish(sequence), SendFlags::empty())?;
        let mut buffer = vec![0; BUFFER];
        loop {
            let n = self.receive(&mut buffer)?;
            for part in message::parse(&buffer[..n]) {
                // A reply to an earlier exchange that was aborted.
                if part.sequence != sequence {
                    continue;
                }
                match part.kind {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return part.error(),
                    kind => reply(kind, part.payload),
                }
            }
        }
    }

    /// Receives one datagram.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((n, _)) => return Ok(n),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
