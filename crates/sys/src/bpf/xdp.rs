//! An XDP program that hands what a device receives to AF_XDP sockets, each queue's packets to the
//! socket of that queue.
//!
//! It is attached by a link (Linux 5.9), so that the kernel takes it away with the process, however
//! that ends. What comes in by a queue without a socket is dropped: a device that is a port belongs
//! to the switch.

use super::map::{Kind, Map};
use super::{Instruction, link, load};
use crate::error::Result;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The program's name, as `bpftool prog` and `ip link show` print it.
pub const NAME: &str = "oxvs_xsk";

const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const BPF_FUNC_REDIRECT_MAP: i32 = 51;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_DROP: i32 = 1;
/// Offset of `rx_queue_index` in `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// In the driver, before a packet is anything but bytes.
    Native,
    /// In the stack, for drivers that have no place for it; slower.
    Generic,
}

/// Sockets by the number of a queue.
pub struct SocketMap {
    map: Map,
}

/// A loaded program.
pub struct RedirectProgram {
    fd: OwnedFd,
}

/// A program attached to a device; detached when this is dropped, or when the process ends in
/// whatever way.
pub struct XdpLink {
    _fd: OwnedFd,
}

impl SocketMap {
    /// An empty map for queues of numbers below `queues`. Needs `CAP_BPF` and `CAP_NET_ADMIN`, or
    /// `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// The kernel's: `EPERM`, `ENOSYS` without BPF, `EINVAL` without AF_XDP or where `queues` is
    /// zero.
    pub fn new(queues: u32) -> Result<SocketMap> {
        Ok(SocketMap {
            map: Map::new(NAME, Kind::Sockets, (4, 4), queues, 0)?,
        })
    }

    /// Lets a queue's packets go to a socket that is bound to that queue.
    ///
    /// # Errors
    /// `E2BIG` where the queue's number is too large, `EINVAL` or `EOPNOTSUPP` where the descriptor
    /// is not an AF_XDP socket's.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
        self.map.set(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }
}

impl RedirectProgram {
    /// Loads the program for a map. With `fragments`, packets may be in several buffers (Linux
    /// 5.18).
    ///
    /// # Errors
    /// The kernel's: `EPERM`, `EINVAL` for `fragments` where it does not know them.
    pub fn load(map: &SocketMap, fragments: bool) -> Result<RedirectProgram> {
        let flags = if fragments { BPF_F_XDP_HAS_FRAGS } else { 0 };
        let fd = load(
            NAME,
            BPF_PROG_TYPE_XDP,
            BPF_XDP,
            flags,
            &program(map.map.as_fd().as_raw_fd()),
        )?;
        Ok(RedirectProgram { fd })
    }

    /// Attaches the program to what a device receives.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` or `EEXIST` where another program is attached, `EOPNOTSUPP` where the
    /// driver has no place for it, `EINVAL` before Linux 5.9, `ERANGE` or `EINVAL` where the
    /// device's, or its peer's, MTU is too large for it, `ENOSPC` where a veth's peer sends by more
    /// queues than it receives by.
    pub fn link(&self, ifindex: u32, hook: Hook) -> Result<XdpLink> {
        let flags = match hook {
            Hook::Native => XDP_FLAGS_DRV_MODE,
            Hook::Generic => XDP_FLAGS_SKB_MODE,
        };
        let fd = link(
            "bpf(BPF_LINK_CREATE, BPF_XDP)",
            self.fd.as_fd(),
            ifindex,
            BPF_XDP,
            flags,
        )?;
        Ok(XdpLink { _fd: fd })
    }
}

/// `return bpf_redirect_map(map, ctx->rx_queue_index, XDP_DROP)`: the last is what happens where
/// there is no socket.
fn program(map: i32) -> [Instruction; 6] {
    let instruction = |code, registers, offset, value| Instruction {
        code,
        registers,
        offset,
        value,
    };
    [
        // r2 = *(u32 *)(r1 + RX_QUEUE_INDEX)
        instruction(0x61, 0x12, RX_QUEUE_INDEX, 0),
        // r1 = map, a load of 64 bits in two instructions
        instruction(0x18, 0x11, 0, map),
        instruction(0, 0, 0, 0),
        // r3 = XDP_DROP
        instruction(0xb7, 3, 0, XDP_DROP),
        instruction(0x85, 0, 0, BPF_FUNC_REDIRECT_MAP),
        // exit
        instruction(0x95, 0, 0, 0),
    ]
}
