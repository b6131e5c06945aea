//! A client's socket, which the runtime watches for reading only.
//!
//! The kernel wakes a process that watches a Unix socket for writing each time the peer reads. For
//! a server of small requests that is a second wake-up for every request. So the runtime watches a
//! socket for writing only while it is full, on a second descriptor.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use mgmt::stream::{Session, Stream};
use rustix::net::{SendFlags, send};
use sys::watch::Watched;
use tokio::io::Interest;

/// A connected socket.
pub(crate) struct Socket {
    stream: Either,
    /// While the socket is full: its second descriptor.
    full: RefCell<Option<Watched>>,
    /// Nothing was read yet.
    fresh: Cell<bool>,
}

/// A stream, whose descriptor is watched for reading.
enum Either {
    /// Over a Unix socket or TCP.
    Plain(Watched),
    /// The descriptor is a duplicate of the session's.
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
        let stream = match stream {
            Stream::Unix(stream) => Either::Plain(watch(stream.into_std()?.into())?),
            Stream::Tcp(stream) => Either::Plain(watch(stream.into_std()?.into())?),
            Stream::Tls(secure) => {
                let session = Box::new(secure.into_session()?);
                let second = watch(session.socket().as_fd().try_clone_to_owned()?)?;
                Either::Tls(session, second)
            }
        };
        Ok(Socket {
            stream,
            full: RefCell::new(None),
            fresh: Cell::new(true),
        })
    }

    /// Reads once, when the socket is readable. A full buffer means that there may be more.
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        // The session may have read data already, together with the end of the handshake.
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
                    // A read that does not fill the buffer has emptied the socket.
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

    /// Writes as much as the socket takes at once; `WouldBlock` when that is nothing.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    /// Sends buffered bytes, which only TLS has; `WouldBlock` when some are left.
    pub(crate) fn try_flush(&self) -> io::Result<()> {
        self.stream.flush()
    }

    /// Waits until a full socket is writable, and writes.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_full(cx, |stream| stream.write(bytes))
    }

    /// Waits until all buffered bytes are sent.
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
