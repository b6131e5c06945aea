//! Batches of packets through a socket in one system call.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The most packets of one call.
pub const BATCH: usize = 32;

/// The kernel's metadata of a received packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes written into the buffer.
    pub len: usize,
    /// The packet was longer than the buffer.
    pub truncated: bool,
    /// The VLAN tag (TPID, TCI) that the kernel took out of the packet, on a packet socket with
    /// auxdata.
    pub vlan: Option<(u16, u16)>,
}

/// `struct tpacket_auxdata` of `linux/if_packet.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Auxdata {
    status: u32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
    vlan_tci: u16,
    vlan_tpid: u16,
}

const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

/// Room for one control message with [`Auxdata`], aligned as control messages have to be.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control {
    header: libc::cmsghdr,
    auxdata: Auxdata,
    _padding: u32,
}

/// Receives up to [`BATCH`] packets, each into one of the buffers, in order. Never waits. Returns
/// how many; their lengths are in `received`.
///
/// # Errors
/// The kernel's, if not even one packet was received; `EAGAIN` if there is none.
pub fn receive<'a>(
    socket: BorrowedFd<'_>,
    buffers: impl Iterator<Item = &'a mut [u8]>,
    received: &mut [Received; BATCH],
) -> io::Result<usize> {
    // SAFETY: all-zero bytes are valid values of these structures of integers and pointers.
    let (mut headers, mut iovecs, mut controls): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH], [Control; BATCH]) =
        unsafe { (zeroed(), zeroed(), zeroed()) };
    let mut n = 0;
    for (((buffer, header), iovec), control) in buffers.zip(&mut headers).zip(&mut iovecs).zip(&mut controls) {
        *iovec = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        header.msg_hdr.msg_iov = iovec;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
        header.msg_hdr.msg_controllen = size_of::<Control>() as _;
        n += 1;
    }
    // SAFETY: the first `n` headers are initialised. Each points to one iovec over a buffer
    // borrowed mutably for `'a`, which outlives this call, and to a control area of the length
    // given; those two live in this frame and are not moved. The kernel writes nowhere else.
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
    for ((received, header), control) in received.iter_mut().zip(&headers).zip(&controls).take(count) {
        *received = Received {
            len: header.msg_len as usize,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            vlan: control.vlan(header.msg_hdr.msg_controllen),
        };
    }
    Ok(count)
}

/// Sends up to [`BATCH`] packets, in order. Never waits. Returns how many of the first were sent.
///
/// # Errors
/// The kernel's, for the first packet; packets after one that fails are not tried.
pub fn send<'a>(socket: BorrowedFd<'_>, packets: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
    // SAFETY: all-zero bytes are valid values of these structures of integers and pointers.
    let (mut headers, mut iovecs): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) = unsafe { (zeroed(), zeroed()) };
    let mut n = 0;
    for ((packet, header), iovec) in packets.zip(&mut headers).zip(&mut iovecs) {
        *iovec = libc::iovec {
            iov_base: packet.as_ptr().cast_mut().cast(),
            iov_len: packet.len(),
        };
        header.msg_hdr.msg_iov = iovec;
        header.msg_hdr.msg_iovlen = 1;
        n += 1;
    }
    // SAFETY: the first `n` headers are initialised. Each points to one iovec, which lives in this
    // frame and is not moved, over a packet borrowed for `'a`, which outlives this call. The kernel
    // only reads the packets, and writes lengths into the headers.
    let result = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            n as libc::c_uint,
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

impl Control {
    /// The tag in the control data, of whose area the kernel has filled `len` bytes.
    fn vlan(&self, len: usize) -> Option<(u16, u16)> {
        let complete = len >= size_of::<libc::cmsghdr>() + size_of::<Auxdata>();
        let (level, kind) = (self.header.cmsg_level, self.header.cmsg_type);
        if !complete || level != libc::SOL_PACKET || kind != libc::PACKET_AUXDATA {
            return None;
        }
        let Auxdata {
            status,
            vlan_tci,
            vlan_tpid,
            ..
        } = self.auxdata;
        tag(status, vlan_tci, vlan_tpid)
    }
}

/// The tag (TPID, TCI) that the kernel took out of a packet, by what auxiliary data say.
pub(crate) fn tag(status: u32, tci: u16, tpid: u16) -> Option<(u16, u16)> {
    if status & STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tpid = if status & STATUS_VLAN_TPID_VALID != 0 {
        tpid
    } else {
        libc::ETH_P_8021Q as u16
    };
    Some((tpid, tci))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsFd;

    #[test]
    fn packets_arrive_in_the_order_and_with_the_lengths_they_were_sent_with() {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::NONBLOCK, None).unwrap();
        let sent: Vec<Vec<u8>> = (1..=5_u8).map(|i| vec![i; usize::from(i) * 10]).collect();
        assert_eq!(send(a.as_fd(), sent.iter().map(Vec::as_slice)).unwrap(), 5);

        let mut buffers = [[0_u8; 45]; 8];
        let mut received = [Received::default(); BATCH];
        let n = receive(
            b.as_fd(),
            buffers.iter_mut().map(|buffer| &mut buffer[..]),
            &mut received,
        )
        .unwrap();
        assert_eq!(n, 5);
        for (i, received) in received[..n].iter().enumerate() {
            assert_eq!(received.len, sent[i].len().min(45));
            assert_eq!(received.truncated, sent[i].len() > 45);
            assert_eq!(buffers[i][..received.len], sent[i][..received.len]);
            assert_eq!(received.vlan, None);
        }
        let empty = receive(
            b.as_fd(),
            buffers.iter_mut().map(|buffer| &mut buffer[..]),
            &mut received,
        );
        assert_eq!(empty.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn more_buffers_than_a_batch_are_left_alone() {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::NONBLOCK, None).unwrap();
        let packet = [7_u8; 4];
        assert_eq!(send(a.as_fd(), std::iter::repeat_n(&packet[..], 3)).unwrap(), 3);
        let mut buffers = [[0_u8; 4]; BATCH + 9];
        let mut received = [Received::default(); BATCH];
        let n = receive(
            b.as_fd(),
            buffers.iter_mut().map(|buffer| &mut buffer[..]),
            &mut received,
        )
        .unwrap();
        assert_eq!(n, 3);
    }

    #[test]
    fn a_tag_is_read_only_from_complete_and_valid_control_data() {
        // SAFETY: all-zero bytes are a valid value of this structure of integers.
        let mut control: Control = unsafe { zeroed() };
        control.header.cmsg_level = libc::SOL_PACKET;
        control.header.cmsg_type = libc::PACKET_AUXDATA;
        control.auxdata.vlan_tci = 0x200a;
        let full = size_of::<Control>();
        assert_eq!(control.vlan(full), None);
        control.auxdata.status = STATUS_VLAN_VALID;
        assert_eq!(control.vlan(full), Some((0x8100, 0x200a)));
        control.auxdata.status |= STATUS_VLAN_TPID_VALID;
        control.auxdata.vlan_tpid = 0x88a8;
        assert_eq!(control.vlan(full), Some((0x88a8, 0x200a)));
        assert_eq!(control.vlan(16), None);
    }
}
