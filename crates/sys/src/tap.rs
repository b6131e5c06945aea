//! TAP devices (`Documentation/networking/tuntap.rst`) with vnet headers.

use crate::error::{Error, Result, check};
use rustix::fs::{Mode, OFlags};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Offloads that the host's stack may leave pending on packets it sends through the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapOffloads {
    /// Checksums, TCP segmentation, UDP segmentation (Linux 6.2).
    ChecksumTcpUdp,
    /// Checksums, TCP segmentation.
    ChecksumTcp,
    /// Nothing.
    None,
}

/// Creates a TAP device, which exists as long as the descriptor. A vnet header of ten bytes
/// precedes each packet. With `exclusive` an existing device of that name is an error; else a
/// persistent TAP device is opened.
///
/// Needs `CAP_NET_ADMIN`; `name` is at most 15 bytes long.
///
/// # Errors
/// The kernel's: `EBUSY` if the name is taken, `EINVAL` if another kind of device has it or it is
/// no valid name, `ENOENT` without `/dev/net/tun`.
pub fn open(name: &str, exclusive: bool) -> Result<OwnedFd> {
    let mut request = interface_request(name).ok_or(Error {
        call: "ioctl(TUNSETIFF)",
        source: std::io::Error::from_raw_os_error(libc::EINVAL),
    })?;
    let exclusive = if exclusive { libc::IFF_TUN_EXCL } else { 0 };
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | exclusive) as i16;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(Error::of("open(/dev/net/tun)"))?;
    // SAFETY: the kernel reads and writes one `ifreq`, which `request` is and which lives through
    // the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    check("ioctl(TUNSETIFF)", result)?;
    let header_len: libc::c_int = 10;
    // SAFETY: the kernel reads one `int`, which lives through the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const header_len) };
    check("ioctl(TUNSETVNETHDRSZ)", result)?;
    Ok(fd)
}

/// Makes a persistent TAP device end with its last descriptor.
///
/// # Errors
/// The kernel's.
pub fn unset_persistent(tap: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: the argument is a number, no pointer.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETPERSIST as _, 0 as libc::c_ulong) };
    check("ioctl(TUNSETPERSIST)", result).map(drop)
}

/// Enables all offloads that this kernel supports, and returns them.
///
/// # Errors
/// The kernel's, where it refuses even the last.
pub fn set_offloads(tap: BorrowedFd<'_>) -> Result<TapOffloads> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let set = |flags: libc::c_uint| {
        // SAFETY: the argument is a number, no pointer.
        let result = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(flags)) };
        check("ioctl(TUNSETOFFLOAD)", result)
    };
    if set(tcp | udp).is_ok() {
        Ok(TapOffloads::ChecksumTcpUdp)
    } else if set(tcp).is_ok() {
        Ok(TapOffloads::ChecksumTcp)
    } else {
        set(0).map(|_| TapOffloads::None)
    }
}

/// Sets how many bytes of written packets may wait in the host's stack; further writes fail with
/// `EAGAIN`.
///
/// # Errors
/// The kernel's.
pub fn set_send_buffer(tap: BorrowedFd<'_>, bytes: usize) -> Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads one `int`, which lives through the call.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETSNDBUF as _, &raw const bytes) };
    check("ioctl(TUNSETSNDBUF)", result).map(drop)
}

/// An `ifreq` with a device's name; `None` where the name is empty, too long or has a zero byte in
/// it.
pub(crate) fn interface_request(name: &str) -> Option<libc::ifreq> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.contains(&0) {
        return None;
    }
    // SAFETY: all-zero bytes are a valid value of this structure: integers, and a union of integers
    // and nullable pointers.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from.cast_signed();
    }
    Some(request)
}

/// Reads one packet, vnet header included. Never waits.
///
/// # Errors
/// The kernel's: `EAGAIN` if there is none, `EBADFD` if the device is gone.
pub fn read(tap: &OwnedFd, buffer: &mut [u8]) -> std::io::Result<usize> {
    Ok(rustix::io::read(tap.as_fd(), buffer)?)
}

/// Writes one packet, vnet header included. Never waits.
///
/// # Errors
/// The kernel's: `EIO` while the device is down, `EINVAL` where the header does not fit the packet.
pub fn write(tap: &OwnedFd, packet: &[u8]) -> std::io::Result<usize> {
    Ok(rustix::io::write(tap.as_fd(), packet)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_are_refused_before_the_kernel_sees_them() {
        for name in ["", "0123456789abcdef", "a\0b"] {
            assert!(interface_request(name).is_none(), "{name:?}");
        }
        assert!(interface_request("0123456789abcde").is_some());
    }
}
