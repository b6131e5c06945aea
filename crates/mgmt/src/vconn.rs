//! The client's end of an OpenFlow connection to a switch: the hello, messages in both directions,
//! and the replies to a request. It blocks.

use openflow::model::{Body, Message};
use openflow::{Codec, Framer, FramerError, Hello, Version, Versions, negotiate};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

/// How much is read at once.
const CHUNK: usize = 256 << 10;

/// The types of messages that this answers or looks for.
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;

/// A stream to a switch, of a Unix socket or of TCP.
pub use socket2::Socket as Stream;

/// A connection to a switch.
#[derive(Debug)]
pub struct Vconn {
    stream: Stream,
    framer: Framer,
    buffer: Vec<u8>,
}

impl Vconn {
    /// A connection over a stream. Call [`Vconn::agree`] unless the peer does not greet.
    pub fn new(stream: impl Into<Stream>) -> Vconn {
        Vconn {
            stream: stream.into(),
            framer: Framer::new(),
            buffer: vec![0; CHUNK],
        }
    }

    /// Exchanges hellos and returns the newest common version. `name` names the switch in the log.
    ///
    /// # Errors
    /// `EPROTO` if the peer does not greet or no version is common; the stream's errors.
    pub fn agree(&mut self, name: &str, xid: u32, ours: Versions) -> io::Result<Version> {
        let newest = ours.newest().ok_or(ErrorKind::InvalidInput)?;
        let hello = Hello {
            version: newest.number(),
            bitmap: (ours.bitmap() != up_to(newest.number())).then_some(ours),
        };
        let body = Body::Hello(hello);
        self.send(&Codec::new(newest).encode(&Message { xid, body }))?;
        let received = Codec::new(newest).decode(self.recv()?);
        let Ok(Message {
            body: Body::Hello(theirs),
            ..
        }) = received
        else {
            tracing::warn!(target: "vconn", "{name}: received something other than a hello");
            return Err(Errno::PROTO.into());
        };
        negotiate(ours, theirs).ok_or_else(|| {
            let offered = theirs.bitmap.map_or(up_to(theirs.version.min(30)), Versions::bitmap);
            tracing::warn!(
                target: "vconn",
                "{name}: version negotiation failed (we support {}, peer supports {})",
                version_list(ours.bitmap()),
                version_list(offered),
            );
            Errno::PROTO.into()
        })
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The stream's.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next message.
    ///
    /// # Errors
    /// `UnexpectedEof` at the end of the stream, `EPROTO` for a wrong length; the stream's errors.
    pub fn recv(&mut self) -> io::Result<&[u8]> {
        while self.framer.ready().map_err(framing)?.is_none() {
            self.fill()?;
        }
        self.recv_now()
            .and_then(|message| message.ok_or(ErrorKind::UnexpectedEof.into()))
    }

    /// The next message, if it was received already.
    ///
    /// # Errors
    /// `EPROTO` for a wrong length.
    pub fn recv_now(&mut self) -> io::Result<Option<&[u8]>> {
        self.framer.next().map_err(framing)
    }

    /// The next message other than an echo request, which is answered; `None` if none arrives
    /// before `until`.
    ///
    /// # Errors
    /// As [`Vconn::recv`].
    pub fn recv_before(&mut self, until: Option<Instant>) -> io::Result<Option<&[u8]>> {
        loop {
            if self.framer.ready().map_err(framing)?.is_none() {
                if !self.wait(until)? {
                    return Ok(None);
                }
                self.fill()?;
            } else if self.framer.peek().is_some_and(|header| is_echo_request(header)) {
                let reply = echo_reply(self.recv()?);
                self.send(&reply.unwrap_or_default())?;
            } else {
                return self.recv_now();
            }
        }
    }

    /// Passes messages other than echo requests, which are answered, to `heard` until it returns
    /// something.
    ///
    /// # Errors
    /// As [`Vconn::recv`].
    pub fn await_reply<T>(&mut self, mut heard: impl FnMut(&[u8]) -> Option<T>) -> io::Result<T> {
        loop {
            if let Some(message) = self.recv_before(None)?
                && let Some(reply) = heard(message)
            {
                return Ok(reply);
            }
        }
    }

    /// Sends bytes and passes the messages that arrive meanwhile to `heard`. Returns early when
    /// `heard` returns true.
    ///
    /// # Errors
    /// As [`Vconn::recv`].
    pub fn stream_out(&mut self, bytes: &[u8], heard: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let result = self.write_and_read(bytes, heard);
        self.stream.set_nonblocking(false)?;
        result
    }

    fn write_and_read(&mut self, mut bytes: &[u8], heard: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<()> {
        loop {
            while let Some(message) = self.recv_now()? {
                if heard(message) {
                    return Ok(());
                }
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let mut fds = [PollFd::new(&self.stream, PollFlags::IN | PollFlags::OUT)];
            poll(&mut fds, None)?;
            let ready = fds[0].revents();
            if ready.contains(PollFlags::OUT) && !ready.contains(PollFlags::IN) {
                match self.stream.write(bytes) {
                    Ok(n) => bytes = &bytes[n..],
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    Err(e) => return Err(e),
                }
            } else {
                self.fill()?;
            }
        }
    }

    /// A second handle of the stream.
    ///
    /// # Errors
    /// The system's.
    pub fn writer(&self) -> io::Result<Stream> {
        self.stream.try_clone()
    }

    /// Reads once.
    fn fill(&mut self) -> io::Result<()> {
        loop {
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.framer.push(&self.buffer[..n]);
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits until there are bytes to read; false if there are none before `until`.
    fn wait(&self, until: Option<Instant>) -> io::Result<bool> {
        let Some(until) = until else { return Ok(true) };
        loop {
            let left = Timespec::try_from(until.saturating_duration_since(Instant::now()));
            let left = left.map_err(|_| ErrorKind::InvalidInput)?;
            match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&left)) {
                Err(Errno::INTR) => {}
                ready => return Ok(ready? > 0),
            }
        }
    }
}

fn framing(_: FramerError) -> io::Error {
    Errno::PROTO.into()
}

/// The transaction id of a message.
pub fn xid_of(message: &[u8]) -> u32 {
    let xid = message.get(4..).and_then(|bytes| bytes.first_chunk());
    xid.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Whether a message is an error.
pub fn is_error(message: &[u8]) -> bool {
    message.get(1) == Some(&ERROR)
}

fn is_echo_request(message: &[u8]) -> bool {
    message.get(1) == Some(&ECHO_REQUEST)
}

/// The reply to a message, if it is an echo request.
pub fn echo_reply(message: &[u8]) -> Option<Vec<u8>> {
    is_echo_request(message).then(|| {
        let mut reply = message.to_vec();
        reply[1] = ECHO_REPLY;
        reply
    })
}

/// The bitmap of all versions up to one, which a hello without a bitmap means.
fn up_to(version: u8) -> u32 {
    (2u32 << version) - 2
}

/// Versions as numbers.
fn version_list(bitmap: u32) -> String {
    let numbers: Vec<String> = (0..32)
        .filter(|n| bitmap & 1 << n != 0)
        .map(|n| format!("0x{n:02x}"))
        .collect();
    match &numbers[..] {
        [one] => format!("version {one}"),
        many => format!("versions {}", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn echo_requests_are_answered_while_a_reply_is_awaited() {
        let (near, mut far) = UnixStream::pair().expect("sockets");
        let mut conn = Vconn::new(near);
        let message = |kind, xid| [4, kind, 0, 8, 0, 0, 0, xid];
        let soon = || Some(Instant::now() + Duration::from_millis(10));
        assert_eq!(conn.recv_before(soon()).expect("silence is no error"), None);
        far.write_all(&[message(ECHO_REQUEST, 7), message(10, 1), message(21, 2)].concat())
            .expect("room for three messages");
        let reply = conn.await_reply(|message| (xid_of(message) == 2).then(|| message[1]));
        assert_eq!(reply.expect("a reply"), 21);
        let mut answered = [0; 8];
        far.read_exact(&mut answered).expect("the answer");
        assert_eq!(answered, message(ECHO_REPLY, 7));
        drop(far);
        assert_eq!(
            conn.recv_before(soon()).expect_err("the end").kind(),
            ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn a_length_less_than_a_header_is_a_protocol_error() {
        let (near, mut far) = UnixStream::pair().expect("sockets");
        far.write_all(&[4, 0, 0, 7, 0, 0, 0, 0]).expect("room");
        let error = Vconn::new(near).recv().expect_err("no message");
        assert_eq!(error.raw_os_error(), Some(Errno::PROTO.raw_os_error()));
    }
}
