//! Packets of a packet socket, each with the time at which the kernel received it, or handed it to
//! the device.

use crate::error::{Error, Result};
use crate::mmsg::{Received, tag};
use std::ffi::c_int;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Room for control data (a tag and three times): its words, aligned as control messages have to
/// be.
type Control = [u64; 32];

/// Makes each received packet carry its receive timestamp.
///
/// # Errors
/// The kernel's.
pub fn enable(socket: BorrowedFd<'_>) -> Result<()> {
    set(socket, libc::SO_TIMESTAMPNS, 1, "setsockopt(SO_TIMESTAMPNS)")
}

/// Records for each sent packet the time at which the device's driver got it; [`sent`] returns the
/// times. Call it often enough: unread times fill the socket's receive buffer, and a socket with
/// unread times always polls as ready (`POLLERR`).
///
/// # Errors
/// The kernel's.
pub fn enable_sent(socket: BorrowedFd<'_>) -> Result<()> {
    let wanted =
        libc::SOF_TIMESTAMPING_TX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    set(
        socket,
        libc::SO_TIMESTAMPING,
        wanted as c_int,
        "setsockopt(SO_TIMESTAMPING)",
    )
}

fn set(socket: BorrowedFd<'_>, option: c_int, value: c_int, call: &'static str) -> Result<()> {
    // SAFETY: the pointer and the length are those of `value`, which lives through the call; the
    // kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(Error::last(call)) } else { Ok(()) }
}

/// The time at which the device got the first packet whose time was not returned yet, by the
/// system's clock, since 1970. Never waits. `None` if there is no such packet, or its device's
/// driver does not support times.
///
/// # Errors
/// The kernel's.
pub fn sent(socket: BorrowedFd<'_>) -> io::Result<Option<Duration>> {
    match message(socket, &mut [], libc::MSG_ERRQUEUE) {
        Ok((.., Times { sent, .. })) => Ok(sent),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Receives a packet. Never waits. The time is that of the system's clock, since 1970; `None` if
/// times are not [enabled](enable).
///
/// # Errors
/// The kernel's; `EAGAIN` if there is no packet.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(Received, Option<Duration>)> {
    let (received, times) = message(socket, buffer, 0)?;
    Ok((received, times.received))
}

/// Of a packet, by the system's clock, since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    received: Option<Duration>,
    sent: Option<Duration>,
}

fn message(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: c_int) -> io::Result<(Received, Times)> {
    let mut control: Control = Control::default();
    let mut iovec = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: all-zero bytes are a valid value of this structure of integers and pointers.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut iovec;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header points to one iovec over `buffer`, which is borrowed mutably, and to a
    // control area of the length given; all live through the call, and the kernel writes nowhere
    // else.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT | flags) };
    let len = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    let (vlan, times) = parse(&control, header.msg_controllen as usize);
    let received = Received {
        len,
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        vlan,
    };
    Ok((received, times))
}

/// The VLAN tag and the times in control data; the kernel has filled `len` bytes of it.
fn parse(control: &Control, len: usize) -> (Option<(u16, u16)>, Times) {
    let mut bytes = [0; size_of::<Control>()];
    for (to, from) in bytes.chunks_exact_mut(8).zip(control) {
        to.copy_from_slice(&from.to_ne_bytes());
    }
    let mut rest = &bytes[..len.min(bytes.len())];
    let (mut vlan, mut times) = (None, Times::default());
    // Each message: its length with this header (8 bytes), level and type (4 each), data; the next
    // is aligned to 8.
    while let Some((header, data)) = rest.split_at_checked(16) {
        let length = word(header, 0) as usize;
        let (level, kind) = (int(header, 8), int(header, 12));
        let Some(data) = length.checked_sub(16).and_then(|length| data.get(..length)) else {
            break;
        };
        match (level, kind) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) if data.len() >= 20 => {
                vlan = tag(int(data, 0).cast_unsigned(), half(data, 16), half(data, 18));
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if data.len() >= 16 => times.received = time(data),
            // Three times, the first by software; all zero means none.
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) if data.len() >= 16 => {
                times.sent = time(data).filter(|time| !time.is_zero());
            }
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    (vlan, times)
}

fn time(data: &[u8]) -> Option<Duration> {
    let nanos = u32::try_from(word(data, 8)).ok()?;
    Some(Duration::new(word(data, 0), nanos))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn int(bytes: &[u8], at: usize) -> c_int {
    bytes
        .get(at..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| c_int::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| u16::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;
    use std::time::SystemTime;

    #[test]
    fn a_packet_brings_the_time_at_which_it_was_received() {
        let (a, b) = UnixDatagram::pair().unwrap();
        let mut buffer = [0; 8];
        let none = receive(b.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        a.send(b"early").unwrap();
        assert_eq!(receive(b.as_fd(), &mut buffer).unwrap().1, None);
        enable(b.as_fd()).unwrap();
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let before = now();
        a.send(b"packet").unwrap();
        let after = now();
        let (received, at) = receive(b.as_fd(), &mut buffer).unwrap();
        assert_eq!((received.len, received.truncated, received.vlan), (6, false, None));
        let at = at.unwrap();
        assert!(before <= at && at <= after, "{before:?} {at:?} {after:?}");
    }

    #[test]
    fn what_was_sent_leaves_the_time_at_which_it_was() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(sent(socket.as_fd()).unwrap(), None);
        enable_sent(socket.as_fd()).unwrap();
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let before = now();
        socket.send_to(b"packet", socket.local_addr().unwrap()).unwrap();
        let after = now();
        let at = sent(socket.as_fd()).unwrap().unwrap();
        assert!(before <= at && at <= after, "{before:?} {at:?} {after:?}");
        assert_eq!(sent(socket.as_fd()).unwrap(), None);
    }

    #[test]
    fn a_tag_and_a_time_are_found_in_either_order_and_data_that_is_cut_is_none() {
        let time = [word_of(32), socket(), word_of(1000), word_of(5)];
        let aux = [word_of(36), packet(), word_of(0x50), word_of(0), word_of(0x8100_000a)];
        let received = Some(Duration::new(1000, 5));
        let expected = (Some((0x8100, 10)), Times { received, sent: None });
        assert_eq!(parse_words(&[&time[..], &aux[..]].concat(), 72), expected);
        assert_eq!(parse_words(&[&aux[..], &time[..]].concat(), 72), expected);
        assert_eq!(
            parse_words(&[&aux[..], &time[..]].concat(), 60),
            (expected.0, Times::default())
        );
        assert_eq!(parse_words(&aux, 30), (None, Times::default()));
        let stamps = [
            word_of(64),
            stamping(),
            word_of(1000),
            word_of(5),
            [0; 8],
            [0; 8],
            [0; 8],
            [0; 8],
        ];
        let sent = Times {
            received: None,
            sent: received,
        };
        assert_eq!(parse_words(&stamps, 64), (None, sent));
        let none = [word_of(64), stamping(), [0; 8], [0; 8], [0; 8], [0; 8], [0; 8], [0; 8]];
        assert_eq!(parse_words(&none, 64), (None, Times::default()));
    }

    fn parse_words(words: &[[u8; 8]], len: usize) -> (Option<(u16, u16)>, Times) {
        let mut control = Control::default();
        for (to, from) in control.iter_mut().zip(words) {
            *to = u64::from_ne_bytes(*from);
        }
        parse(&control, len)
    }

    fn word_of(value: u64) -> [u8; 8] {
        value.to_ne_bytes()
    }

    fn header(level: c_int, kind: c_int) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&level.to_ne_bytes());
        bytes[4..].copy_from_slice(&kind.to_ne_bytes());
        bytes
    }

    fn socket() -> [u8; 8] {
        header(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
    }

    fn stamping() -> [u8; 8] {
        header(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING)
    }

    fn packet() -> [u8; 8] {
        header(libc::SOL_PACKET, libc::PACKET_AUXDATA)
    }
}
