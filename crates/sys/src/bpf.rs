//! Attaching BPF programs to devices by links, which the kernel takes away with the process.

use crate::error::{Result, check};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A program attached to a device; detached when this is dropped, or when the process ends in any
/// way, unless another process has a copy of its descriptor.
pub struct Link {
    fd: OwnedFd,
}

/// The place where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// On a device's ingress, after packet sockets and before the other programs there (TCX, Linux
    /// 6.6).
    Ingress,
    /// XDP in the driver, before a packet is anything but bytes (Linux 5.9).
    XdpNative,
    /// XDP in the stack, for drivers that have no place for it; slower (Linux 5.9).
    XdpGeneric,
}

const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_F_BEFORE: u32 = 1 << 3;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// The used part of `union bpf_attr` for `BPF_LINK_CREATE`; the kernel reads the rest as zero.
#[repr(C)]
struct LinkAttr {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    _padding: u32,
    expected_revision: u64,
}

/// That for `BPF_LINK_UPDATE`.
#[repr(C)]
struct UpdateAttr {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

impl Link {
    /// The link that a descriptor is of. If it is of something else, [`Link::update`] says so.
    pub fn from_fd(fd: OwnedFd) -> Link {
        Link { fd }
    }

    /// A copy of the descriptor, which keeps the program attached.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn copy_fd(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Attaches a program in the place of the one there.
    ///
    /// # Errors
    /// The kernel's: `ENOLINK` if the device has gone, `EINVAL` if the descriptor is not a link's.
    pub fn update(&self, program: BorrowedFd<'_>) -> Result<()> {
        let attr = UpdateAttr {
            link: self.fd.as_raw_fd().cast_unsigned(),
            program: program.as_raw_fd().cast_unsigned(),
            flags: 0,
            old_program: 0,
        };
        // SAFETY: the kernel reads the given number of bytes of the attributes, which live through
        // the call and hold no pointers.
        let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_UPDATE, &attr, size_of::<UpdateAttr>()) };
        check("bpf(BPF_LINK_UPDATE)", libc::c_int::try_from(result).unwrap_or(-1)).map(drop)
    }

    /// Attaches a program to a device.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` if the kernel is too old for the hook, `ENODEV` if the device does
    /// not exist. For XDP also `EBUSY` or `EEXIST` if another program is attached, `EOPNOTSUPP` if
    /// the driver does not support it, `ERANGE` or `EINVAL` if the device's, or its peer's, MTU is
    /// too large for it, `ENOSPC` if a veth's peer has more transmit queues than it has receive
    /// queues.
    pub fn attach(program: BorrowedFd<'_>, ifindex: u32, hook: Hook) -> Result<Link> {
        let (call, attach_type, flags) = match hook {
            Hook::Ingress => ("bpf(BPF_LINK_CREATE, BPF_TCX_INGRESS)", BPF_TCX_INGRESS, BPF_F_BEFORE),
            Hook::XdpNative => ("bpf(BPF_LINK_CREATE, BPF_XDP)", BPF_XDP, XDP_FLAGS_DRV_MODE),
            Hook::XdpGeneric => ("bpf(BPF_LINK_CREATE, BPF_XDP)", BPF_XDP, XDP_FLAGS_SKB_MODE),
        };
        let attr = LinkAttr {
            program: program.as_raw_fd().cast_unsigned(),
            ifindex,
            attach_type,
            flags,
            relative: 0,
            _padding: 0,
            expected_revision: 0,
        };
        // SAFETY: the kernel reads the given number of bytes of the attributes, which live through
        // the call and hold no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, &attr, size_of::<LinkAttr>()) };
        let fd = check(call, libc::c_int::try_from(fd).unwrap_or(-1))?;
        // SAFETY: the command makes a descriptor, which has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Link { fd })
    }
}
