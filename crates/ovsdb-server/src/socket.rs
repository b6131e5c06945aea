//! A client's socket, watched for what is to be read alone.
//!
//! The kernel tells whoever watches a Unix socket for writing each time that the peer has read
//! something. For a server that answers small requests this is one more wake-up with every reply,
//! as expensive as the request itself. So only a socket that was found full is watched for writing,
//! by a descriptor of its own, until it is not full any more.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use mgmt::stream::{Session, Stream};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sys::watch::Watched;
use tokio::io::Interest;

/// So much may be left in a socket, in bytes: a few small messages.
const MOST_HELD: usize = 1024;

/// A connected socket.
pub(crate) struct Socket {
    stream: Either,
    /// While the socket is full: its second descriptor.
    full: RefCell<Option<Watched>>,
    is_unix: bool,
    /// Nothing was read yet.
    fresh: Cell<bool>,
    /// The bytes that were read and are still in the socket.
    held: Cell<usize>,
}

/// A stream, whose descriptor is watched for reading.
enum Either {
    /// Over a Unix socket or TCP.
    Plain(Watched),
    /// The descriptor is a second one of the session's socket.
    Tls(Box<Session>, Watched),
}

impl Either {
    fn watched(&self) -> &Watched {
        match self {
            Either::Plain(watched) | Either::Tls(_, watched) => watched,
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Either::Plain(watched) => Ok(rustix::io::read(watched.get_ref(), buffer)?),
            Either::Tls(session, _) => session.read(buffer),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Either::Plain(watched) => Ok(send(watched.get_ref(), bytes, SendFlags::NOSIGNAL)?),
            Either::Tls(session, _) => session.write(bytes),
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self {
            Either::Plain(_) => Ok(()),
            Either::Tls(session, _) => session.flush(),
        }
    }
}

impl Socket {
    /// Takes a stream over.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new(stream: Stream) -> io::Result<Socket> {
        let watch = |fd: OwnedFd| Watched::new(fd, Interest::READABLE);
        let mut is_unix = false;
        let stream = match stream {
            Stream::Unix(stream) => {
                is_unix = true;
                Either::Plain(watch(stream.into_std()?.into())?)
            }
            Stream::Tcp(stream) => Either::Plain(watch(stream.into_std()?.into())?),
            Stream::Tls(secure) => {
                let session = Box::new(secure.into_session()?);
                let second = watch(session.socket().as_fd().try_clone_to_owned()?)?;
                Either::Tls(session, second)
            }
        };
        Ok(Socket {
            stream,
            is_unix,
            full: RefCell::new(None),
            fresh: Cell::new(true),
            held: Cell::new(0),
        })
    }

    /// Reads once, when there is something to read. As many bytes as fit mean that there may be
    /// more.
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        // What came with the end of the handshake has left the socket already.
        if self.fresh.take()
            && let Either::Tls(session, _) = &self.stream
        {
            match session.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
        loop {
            let mut ready = ready!(self.stream.watched().poll_read_ready(cx))?;
            match ready.try_io(|_| self.stream.read(buffer)) {
                Ok(Ok(n)) => {
                    // A stream that gave less than was asked for is empty: no need to ask again.
                    if n > 0 && n < buffer.len() {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(n));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }

    /// Reads what is there, without a look at what the runtime knows: where in `buffer` it is,
    /// `WouldBlock` if there is nothing.
    ///
    /// Taking a message out of a Unix socket wakes its sender if that waits for anything at this
    /// socket, the reply for instance; it looks and goes back to sleep, which costs more than the
    /// message. So messages are left in the socket up to [`MOST_HELD`] bytes and then taken out
    /// together. Whoever stops to read this way calls [`Socket::take_out`], so that the sender
    /// finds room.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<Range<usize>> {
        if !self.is_unix {
            return self.stream.read(buffer).map(|n| 0..n);
        }
        if self.held.get() > MOST_HELD {
            self.take_out(buffer);
        }
        let held = self.held.get();
        let fd = self.stream.watched().get_ref();
        let (_, all) = recv(fd, &mut *buffer, RecvFlags::PEEK | RecvFlags::DONTWAIT)?;
        if all <= held && held > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.held.set(all);
        Ok(held..all)
    }

    /// Takes out of the socket what [`Socket::try_read`] left there.
    pub(crate) fn take_out(&self, scratch: &mut [u8]) {
        // Only of a Unix socket anything is held.
        while let held @ 1.. = self.held.get() {
            let room = held.min(scratch.len());
            match recv(
                self.stream.watched().get_ref(),
                &mut scratch[..room],
                RecvFlags::DONTWAIT,
            ) {
                Ok((_, n @ 1..)) => self.held.set(held.saturating_sub(n)),
                Err(rustix::io::Errno::INTR) => {}
                // They cannot be gone but with the connection, which the next read will tell.
                _ => self.held.set(0),
            }
        }
    }

    /// Writes as much as the socket takes at once; `WouldBlock` when that is nothing.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    /// Sends what was written; `WouldBlock` when something is left. Only TLS holds anything back.
    pub(crate) fn try_flush(&self) -> io::Result<()> {
        self.stream.flush()
    }

    /// Waits until a socket that was full takes something, and writes it.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_full(cx, |stream| stream.write(bytes))
    }

    /// Waits until what was written is sent.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.try_flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.poll_full(cx, Either::flush),
            result => Poll::Ready(result),
        }
    }

    fn poll_full<T>(
        &self,
        cx: &mut Context<'_>,
        mut operation: impl FnMut(&Either) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let mut full = self.full.borrow_mut();
        let watched = match &mut *full {
            Some(watched) => watched,
            none => {
                let second = self.stream.watched().get_ref().try_clone()?;
                none.insert(Watched::new(second, Interest::WRITABLE)?)
            }
        };
        loop {
            let mut ready = ready!(watched.poll_write_ready(cx))?;
            if let Ok(result) = ready.try_io(|_| operation(&self.stream)) {
                return Poll::Ready(result);
            }
        }
    }

    /// The socket is not full any more.
    pub(crate) fn drained(&self) {
        self.full.replace(None);
    }
}
