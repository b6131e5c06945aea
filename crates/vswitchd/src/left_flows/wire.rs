//! Messages between a process that ends, the keeper of its flows, and the next process: numbers,
//! with descriptors.

use netdev::LeftDevice;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, recvmsg, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Most descriptors of one message, fewer than the kernel's limit (`SCM_MAX_FD`).
pub(super) const MOST: usize = 250;

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The format, and for how many seconds the flows are kept; with the descriptors of
    /// [`Left`](dp_ebpf::Left).
    Begin(u32, u32),
    /// With sockets that are to be kept. To a keeper that has sent all: they need not be kept any
    /// longer.
    Sockets,
    /// The numbers of devices, with two links of each.
    Devices(Vec<u32>),
    /// No more follow. To a keeper that has sent all: the flows have ended.
    End,
}

const BEGIN: u32 = 0;
const SOCKETS: u32 = 1;
const DEVICES: u32 = 2;
const END: u32 = 3;

impl Message {
    fn words(&self) -> Vec<u32> {
        match self {
            Message::Begin(format, seconds) => vec![BEGIN, *format, *seconds],
            Message::Sockets => vec![SOCKETS],
            Message::Devices(numbers) => [&[DEVICES], &numbers[..]].concat(),
            Message::End => vec![END],
        }
    }

    fn read(words: &[u32]) -> Option<Message> {
        match words {
            [BEGIN, format, seconds] => Some(Message::Begin(*format, *seconds)),
            [SOCKETS] => Some(Message::Sockets),
            [DEVICES, numbers @ ..] => Some(Message::Devices(numbers.to_vec())),
            [END] => Some(Message::End),
            _ => None,
        }
    }
}

/// Lets both directions of a socket fail that wait longer.
pub(super) fn be_patient(socket: &OwnedFd, time: Duration) -> io::Result<()> {
    set_socket_timeout(socket, Timeout::Recv, Some(time))?;
    Ok(set_socket_timeout(socket, Timeout::Send, Some(time))?)
}

/// Connects to a keeper; `None` if there is none. Neither this nor a message waits longer than
/// `patience`.
pub(super) fn connect(path: &Path, patience: Duration) -> io::Result<Option<OwnedFd>> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    be_patient(&socket, patience)?;
    match connect_to(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn send(socket: &OwnedFd, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes: Vec<u8> = message.words().iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

pub(super) fn send_devices<'a>(socket: &OwnedFd, devices: impl Iterator<Item = &'a LeftDevice>) -> io::Result<()> {
    let devices: Vec<&LeftDevice> = devices.collect();
    for some in devices.chunks(MOST / 2) {
        let numbers = some.iter().map(|device| device.ifindex).collect();
        let fds: Vec<BorrowedFd<'_>> = some
            .iter()
            .flat_map(|device| [device.first.as_fd(), device.drop_all.as_fd()])
            .collect();
        send(socket, &Message::Devices(numbers), &fds)?;
    }
    Ok(())
}

/// The devices of a message.
///
/// # Errors
/// There are not two links for each.
pub(super) fn devices(numbers: &[u32], fds: Vec<OwnedFd>) -> io::Result<Vec<LeftDevice>> {
    if fds.len() != 2 * numbers.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut fds = fds.into_iter();
    let device = |ifindex: &u32| {
        Some(LeftDevice {
            ifindex: *ifindex,
            first: fds.next()?,
            drop_all: fds.next()?,
        })
    };
    Ok(numbers.iter().filter_map(device).collect())
}

/// The next message; `None` at the end.
///
/// # Errors
/// The kernel's; `InvalidData` for a message that is none.
pub(super) fn receive(socket: &OwnedFd) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
    let mut bytes = [0; 4 * (1 + MOST)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let words: Vec<u32> = bytes[..received.bytes]
        .as_chunks()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect();
    let message = Message::read(&words).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some((message, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::socketpair;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn messages_come_with_their_descriptors() {
        let (a, b) = pair();
        let file = std::fs::File::open("/dev/null").unwrap();
        let many: Vec<OwnedFd> = (0..MOST).map(|_| file.try_clone().unwrap().into()).collect();
        let borrowed: Vec<BorrowedFd<'_>> = many.iter().map(AsFd::as_fd).collect();
        let numbers: Vec<u32> = (7..7 + MOST as u32 / 2).collect();
        for (message, fds) in [
            (Message::Begin(1, 60), &borrowed[..4]),
            (Message::Sockets, &borrowed[..]),
            (Message::Devices(numbers.clone()), &borrowed[..]),
            (Message::End, &[]),
        ] {
            send(&a, &message, fds).unwrap();
            let (came, with) = receive(&b).unwrap().unwrap();
            assert_eq!((came, with.len()), (message, fds.len()));
        }
        let of = devices(&numbers, many).unwrap();
        assert_eq!(of.iter().map(|device| device.ifindex).collect::<Vec<_>>(), numbers);
        send_devices(&a, of.iter().chain(&of)).unwrap();
        for _ in 0..2 {
            let (Message::Devices(came), fds) = receive(&b).unwrap().unwrap() else {
                panic!("no devices")
            };
            assert_eq!((came, fds.len()), (numbers.clone(), MOST));
        }
        drop(a);
        assert!(receive(&b).unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let (a, b) = pair();
        for bytes in [&b"\x09\0\0\0"[..], b"\0\0\0\0", b"xyz", &[3; 2000]] {
            rustix::io::write(&a, bytes).unwrap();
            assert_eq!(receive(&b).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert!(devices(&[1, 2], vec![a.try_clone().unwrap()]).is_err());
    }
}
