//! BPF programs, made by hand: one that drops what a device hands to the host's stack, in [`xdp`]
//! one that hands it to AF_XDP sockets, and in [`shortcut`] two that forward known packets.

use crate::error::{Result, check};
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

mod assembler;
mod map;
pub mod shortcut;
pub mod xdp;

/// A loaded program.
pub struct DropProgram {
    fd: OwnedFd,
}

/// A program attached to a device; detached when this is dropped, or when the process ends in
/// whatever way.
pub struct TcxLink {
    _fd: OwnedFd,
}

/// The program's name, as `bpftool prog` and `tc filter show` print it.
pub const NAME: &str = "oxvs_drop";

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_F_BEFORE: u32 = 1 << 3;
/// `TC_ACT_SHOT` of `linux/pkt_cls.h`.
const TC_ACT_SHOT: i32 = 2;

/// `struct bpf_insn`: operation, registers, offset, immediate value.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// `r0 = TC_ACT_SHOT; exit`.
const PROGRAM: [Instruction; 2] = [
    Instruction {
        code: 0xb7,
        registers: 0,
        offset: 0,
        value: TC_ACT_SHOT,
    },
    Instruction {
        code: 0x95,
        registers: 0,
        offset: 0,
        value: 0,
    },
];

/// The part of `union bpf_attr` for `BPF_PROG_LOAD` that is used; the kernel takes what is beyond
/// for zero.
#[repr(C)]
struct LoadAttr {
    kind: u32,
    instructions: u32,
    program: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_type: u32,
}

/// The part of `union bpf_attr` for `BPF_LINK_CREATE` that is used.
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

impl DropProgram {
    /// Loads the program. Needs `CAP_BPF` and `CAP_NET_ADMIN`, or `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    /// The kernel's: `EPERM`, `ENOSYS` without BPF.
    pub fn load() -> Result<DropProgram> {
        let fd = load(NAME, BPF_PROG_TYPE_SCHED_CLS, 0, 0, &PROGRAM)?;
        Ok(DropProgram { fd })
    }

    /// Attaches the program to what a device receives, before other programs there. Packet sockets
    /// still get the packets: they come first.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` before Linux 6.6, `ENODEV` where there is no such device.
    pub fn link_tcx(&self, ifindex: u32) -> Result<TcxLink> {
        link_tcx(self.as_fd(), ifindex)
    }
}

impl AsFd for DropProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Loads a program.
fn load(name: &str, kind: u32, attach_type: u32, flags: u32, program: &[Instruction]) -> Result<OwnedFd> {
    let license = c"Apache-2.0";
    let mut padded = [0; 16];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    let attr = LoadAttr {
        kind,
        instructions: program.len() as u32,
        program: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags,
        name: padded,
        device: 0,
        attach_type,
    };
    // SAFETY: the kernel reads the attributes, the instructions (as many as said) and the
    // terminated text, which live through the call; without a log it writes nothing. The command
    // makes a descriptor.
    unsafe { make("bpf(BPF_PROG_LOAD)", BPF_PROG_LOAD, &attr) }
}

/// Attaches a program to a device.
fn link(call: &'static str, program: BorrowedFd<'_>, ifindex: u32, attach_type: u32, flags: u32) -> Result<OwnedFd> {
    let attr = LinkAttr {
        program: program.as_raw_fd().cast_unsigned(),
        ifindex,
        attach_type,
        flags,
        relative: 0,
        _padding: 0,
        expected_revision: 0,
    };
    // SAFETY: the kernel reads the attributes, which live through the call and hold no pointers.
    // The command makes a descriptor.
    unsafe { make(call, BPF_LINK_CREATE, &attr) }
}

/// Attaches a program to what a device receives, before other programs there.
fn link_tcx(program: BorrowedFd<'_>, ifindex: u32) -> Result<TcxLink> {
    let call = "bpf(BPF_LINK_CREATE, BPF_TCX_INGRESS)";
    let fd = link(call, program, ifindex, BPF_TCX_INGRESS, BPF_F_BEFORE)?;
    Ok(TcxLink { _fd: fd })
}

/// A `bpf` call that makes a descriptor.
///
/// # Safety
/// As [`bpf`], and the command makes a descriptor.
unsafe fn make<T>(call: &'static str, command: libc::c_int, attr: &T) -> Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(call, command, attr) }?;
    // SAFETY: the descriptor is new, by the caller's promise, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A `bpf` call that only reads its attributes.
///
/// # Safety
/// `attr` has the layout of the command's part of `union bpf_attr`, and pointers in it satisfy what
/// the command asks for.
unsafe fn bpf<T>(call: &'static str, command: libc::c_int, attr: &T) -> Result<libc::c_int> {
    // SAFETY: the caller's promise.
    unsafe { bpf_at(call, command, std::ptr::from_ref(attr), size_of_val(attr)) }
}

/// A `bpf` call that answers in its attributes.
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_mut<T>(call: &'static str, command: libc::c_int, attr: &mut T) -> Result<libc::c_int> {
    let len = size_of_val(attr);
    // SAFETY: the caller's promise; the kernel may write to the attributes.
    unsafe { bpf_at(call, command, std::ptr::from_mut(attr).cast_const(), len) }
}

/// # Safety
/// As [`bpf`], of `len` bytes at `attr`.
unsafe fn bpf_at<T>(call: &'static str, command: libc::c_int, attr: *const T, len: usize) -> Result<libc::c_int> {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, len as libc::c_uint) };
    check(call, libc::c_int::try_from(result).unwrap_or(-1))
}
