//! A connection to a switch: opened, its version agreed on, messages sent and received one after
//! the other.

use super::{Ctl, secure};
use crate::common::Failure;
use mgmt::stream::tls::Settings;
use mgmt::{paths, pidfile};
use openflow::model::{Body, Message, StatsRequest};
use openflow::text::Protocols;
use openflow::{Codec, HEADER_LEN, Hello, Version, Versions, negotiate};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The port of OpenFlow, where none is named.
const PORT: u16 = 6653;

/// How much is read at once.
const CHUNK: usize = 256 << 10;

/// A stream to a switch.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(crate) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(s) => Stream::Unix(s.try_clone()?),
            Stream::Tcp(s) => Stream::Tcp(s.try_clone()?),
        })
    }

    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_nonblocking(on),
            Stream::Tcp(s) => s.set_nonblocking(on),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.read(buf),
            Stream::Tcp(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(s) => s.write(buf),
            Stream::Tcp(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(s) => s.as_fd(),
            Stream::Tcp(s) => s.as_fd(),
        }
    }
}

/// Whose messages are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The switch itself.
    Management,
    /// What it says to its controller, and that to it.
    Snoop,
}

/// A connection whose version is agreed on.
#[derive(Debug)]
pub(crate) struct Conn {
    /// What it is connected to, as `unix:FILE`.
    pub(crate) name: String,
    pub(crate) version: Version,
    /// The flow format in force.
    pub(crate) protocol: Protocols,
    stream: Stream,
    buffer: Vec<u8>,
    filled: Range<usize>,
}

impl Ctl {
    /// Connects to a switch for its management.
    pub(crate) fn open(&self, target: &str) -> Result<Conn, Failure> {
        self.open_for(target, Target::Management)
    }

    /// Connects to a switch.
    pub(crate) fn open_for(&self, target: &str, what: Target) -> Result<Conn, Failure> {
        let suffix = match what {
            Target::Management => "mgmt",
            Target::Snoop => "snoop",
        };
        let named = |name: &str| paths::rundir().join(format!("{name}.{suffix}"));
        let (name, connected) = if target.contains(':') {
            (target.to_owned(), connect(target, &self.options.tls))
        } else if is_socket(&named(target)) {
            let path = named(target);
            (format!("unix:{}", path.display()), unix(&path))
        } else if is_socket(Path::new(target)) {
            (format!("unix:{target}"), unix(Path::new(target)))
        } else if let Some((_, bridge)) = target.split_once('@').filter(|(_, bridge)| is_socket(&named(bridge))) {
            let path = named(bridge);
            (format!("unix:{}", path.display()), unix(&path))
        } else {
            return Err(Failure::new(format!("{target} is not a bridge or a socket")));
        };
        let failed = |e: io::Error| Failure::new(format!("connecting to {name} ({})", pidfile::os_text(&e)));
        let stream = connected.map_err(failed)?;
        let mut conn = Conn {
            name: name.clone(),
            version: Version::V10,
            protocol: Protocols::NONE,
            stream,
            buffer: vec![0; CHUNK],
            filled: 0..0,
        };
        if what == Target::Snoop {
            return Ok(conn);
        }
        let agreed = conn.agree(self.xid(), self.options.versions);
        let failed = |e: io::Error| Failure::new(format!("{target}: failed to connect to socket ({})", reason(&e)));
        conn.version = agreed.map_err(failed)?;
        conn.protocol = Protocols::of(conn.version).iter().next().unwrap_or_default();
        Ok(conn)
    }
}

fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.file_type().is_socket())
}

fn unix(path: &Path) -> io::Result<Stream> {
    // Names longer than a socket's address can hold are reached through a descriptor of the
    // directory.
    const MAX: usize = 107;
    if path.as_os_str().len() <= MAX {
        return UnixStream::connect(path).map(Stream::Unix);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidFilename.into());
    };
    use rustix::fs::{Mode, OFlags};
    let directory = rustix::fs::open(
        parent,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
    UnixStream::connect(PathBuf::from(format!("/proc/self/fd/{number}")).join(name)).map(Stream::Unix)
}

fn connect(target: &str, keys: &Settings) -> io::Result<Stream> {
    let unknown = || io::Error::from(rustix::io::Errno::AFNOSUPPORT);
    let (method, rest) = target.split_once(':').ok_or_else(unknown)?;
    match method {
        "unix" => unix(&paths::in_rundir(rest)),
        "tcp" => {
            let (host, port) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
                Some((host, port)) => (host, port.strip_prefix(':').unwrap_or("")),
                None => rest.split_once(':').unwrap_or((rest, "")),
            };
            let port = match port {
                "" => PORT,
                port => port.parse().map_err(|_| unknown())?,
            };
            let stream = TcpStream::connect((host, port))?;
            stream.set_nodelay(true)?;
            Ok(Stream::Tcp(stream))
        }
        "ssl" => secure::connect(target, keys).map(Stream::Unix),
        _ => Err(unknown()),
    }
}

/// Takes an option about SSL: its file must be there.
pub(crate) fn tls_option(name: &str, value: &str) -> Result<(), Failure> {
    let is_word =
        matches!(name, "ssl-protocols" | "ssl-ciphers" | "ssl-ciphersuites") || name == "ca-cert" && value == "none";
    match (!is_word).then(|| std::fs::metadata(value)) {
        Some(Err(e)) if name != "bootstrap-ca-cert" => {
            Err(Failure::new(format!("--{name}={value}: {}", pidfile::os_text(&e))))
        }
        _ => Ok(()),
    }
}

/// The transaction number in a message.
pub(crate) fn xid_of(message: &[u8]) -> u32 {
    message
        .get(4..8)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_be_bytes(*b))
}

/// Whether a message is an error.
pub(crate) fn is_error(message: &[u8]) -> bool {
    message.get(1) == Some(&1)
}

impl Conn {
    /// The codec of what was agreed on.
    pub(crate) fn codec(&self) -> Codec {
        let either = |set: Protocols| !(self.protocol & set).is_empty();
        Codec {
            nxm: either(Protocols::NXM_ANY),
            table_id: either(Protocols::OF10_TABLE | Protocols::NXM_TABLE),
            ..Codec::new(self.version)
        }
    }

    /// A message's bytes.
    pub(crate) fn encode(&self, xid: u32, body: Body) -> Vec<u8> {
        self.codec().encode(&Message { xid, body })
    }

    /// The failure that an error of the connection is.
    pub(crate) fn talking(&self, e: io::Error) -> Failure {
        Failure::new(format!("talking to {} ({})", self.name, reason(&e)))
    }

    fn agree(&mut self, xid: u32, ours: Versions) -> io::Result<Version> {
        let newest = ours.newest().ok_or(ErrorKind::InvalidInput)?;
        // Without a bitmap, all versions up to the newest are meant.
        let all = (2u32 << newest.number()) - 2;
        let hello = Hello {
            version: newest.number(),
            bitmap: (ours.bitmap() != all).then_some(ours),
        };
        let body = Body::Hello(hello);
        self.send(&Codec::new(newest).encode(&Message { xid, body }))?;
        let received = self.recv()?;
        let theirs = Codec::new(newest).decode(received);
        let Ok(Message {
            body: Body::Hello(theirs),
            ..
        }) = theirs
        else {
            tracing::warn!(target: "vconn", "{}: received something other than a hello", self.name);
            return Err(rustix::io::Errno::PROTO.into());
        };
        negotiate(ours, theirs).ok_or_else(|| {
            let offered = theirs
                .bitmap
                .map_or((2u32 << theirs.version.min(30)) - 2, Versions::bitmap);
            tracing::warn!(
                target: "vconn",
                "{}: version negotiation failed (we support {}, peer supports {})",
                self.name,
                version_list(ours.bitmap()),
                version_list(offered),
            );
            rustix::io::Errno::PROTO.into()
        })
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next message.
    pub(crate) fn recv(&mut self) -> io::Result<&[u8]> {
        while self.whole().is_none() {
            self.fill()?;
        }
        self.take()
    }

    /// The next message, if it has come already.
    pub(crate) fn recv_now(&mut self) -> io::Result<Option<&[u8]>> {
        match self.whole() {
            Some(_) => self.take().map(Some),
            None => Ok(None),
        }
    }

    fn take(&mut self) -> io::Result<&[u8]> {
        let Some(len) = self.whole() else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        if len < HEADER_LEN {
            return Err(rustix::io::Errno::PROTO.into());
        }
        let start = self.filled.start;
        self.filled.start += len;
        Ok(&self.buffer[start..start + len])
    }

    /// The length of the next message, if it is there.
    fn whole(&self) -> Option<usize> {
        let bytes = &self.buffer[self.filled.clone()];
        let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        (len < HEADER_LEN || bytes.len() >= len).then_some(len)
    }

    /// Reads once.
    fn fill(&mut self) -> io::Result<()> {
        if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        loop {
            match self.stream.read(&mut self.buffer[self.filled.end..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    self.filled.end += n;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends what is in `bytes` while messages come in, which `heard` is told of. Returns early
    /// when `heard` says so.
    pub(crate) fn stream_out(&mut self, mut bytes: &[u8], heard: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<()> {
        self.stream.set_nonblocking(true)?;
        let result = loop {
            while let Some(message) = self.recv_now()? {
                if heard(message) {
                    self.stream.set_nonblocking(false)?;
                    return Ok(());
                }
            }
            if bytes.is_empty() {
                break Ok(());
            }
            let mut fds = [PollFd::new(&self.stream, PollFlags::IN | PollFlags::OUT)];
            poll(&mut fds, None)?;
            let ready = fds[0].revents();
            if ready.contains(PollFlags::IN) {
                self.fill()?;
            } else if ready.contains(PollFlags::OUT) {
                match self.stream.write(bytes) {
                    Ok(n) => bytes = &bytes[n..],
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                    Err(e) => break Err(e),
                }
            } else {
                self.fill()?;
            }
        };
        self.stream.set_nonblocking(false)?;
        result
    }

    /// A second handle of the stream.
    pub(crate) fn writer(&self) -> io::Result<Stream> {
        self.stream.try_clone()
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn transact(&mut self, request: &[u8]) -> Result<Vec<u8>, Failure> {
        let wanted = xid_of(request);
        let answered = self.send(request).and_then(|()| self.answer(wanted));
        answered.map_err(|e| self.talking(e))
    }

    fn answer(&mut self, wanted: u32) -> io::Result<Vec<u8>> {
        loop {
            let message = self.recv()?;
            if xid_of(message) == wanted && !is_echo_request(message) {
                return Ok(message.to_vec());
            }
            let echo = echo_reply(message);
            if let Some(reply) = echo {
                self.send(&reply)?;
            }
        }
    }

    /// Sends a request that is answered only if it fails, and waits until it is carried out.
    /// Returns the error.
    pub(crate) fn transact_noreply(&mut self, ctl: &Ctl, request: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let barrier = ctl.xid();
        let mut bytes = request.to_vec();
        bytes.extend(self.encode(barrier, Body::BarrierRequest));
        let wanted = xid_of(request);
        let talk = |conn: &mut Conn| -> io::Result<Option<Vec<u8>>> {
            conn.send(&bytes)?;
            let mut error = None;
            loop {
                let message = conn.recv()?;
                let xid = xid_of(message);
                if let Some(reply) = echo_reply(message) {
                    conn.send(&reply)?;
                } else if xid == barrier {
                    return Ok(error);
                } else if xid == wanted {
                    error.get_or_insert(message.to_vec());
                }
            }
        };
        talk(self).map_err(|e| self.talking(e))
    }

    /// Sends a request for statistics, and tells of each part of the answer, the last of which may
    /// be an error.
    pub(crate) fn statistics(
        &mut self,
        ctl: &Ctl,
        request: StatsRequest,
        heard: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let body = Body::StatsRequest { more: false, request };
        let request = self.encode(ctl.xid(), body);
        self.multipart(&request, heard)
    }

    /// As [`Conn::statistics`], of a request in bytes.
    pub(crate) fn multipart(
        &mut self,
        request: &[u8],
        mut heard: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let wanted = xid_of(request);
        let failed = |e: io::Error| Failure::new(format!("OpenFlow packet receive failed ({})", reason(&e)));
        self.send(request).map_err(|e| self.talking(e))?;
        loop {
            let message = self.recv().map_err(failed)?;
            if let Some(reply) = echo_reply(message) {
                self.send(&reply).map_err(failed)?;
                continue;
            }
            if xid_of(message) != wanted {
                continue;
            }
            heard(message)?;
            let more = message.get(11).is_some_and(|flags| flags & 1 != 0);
            if is_error(message) || !more {
                return Ok(());
            }
        }
    }
}

fn is_echo_request(message: &[u8]) -> bool {
    message.get(1) == Some(&2)
}

/// The answer to a message, if it is an echo request.
pub(crate) fn echo_reply(message: &[u8]) -> Option<Vec<u8>> {
    is_echo_request(message).then(|| {
        let mut reply = message.to_vec();
        reply[1] = 3;
        reply
    })
}

/// An error in the system's words; the end of a stream is one.
pub(crate) fn reason(e: &io::Error) -> String {
    match e.kind() {
        ErrorKind::UnexpectedEof => "End of file".into(),
        _ => pidfile::os_text(e),
    }
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
