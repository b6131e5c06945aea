//! The server's side of streams.

use super::control::{Arranged, Finished, Got, Line, Wanted};
use super::{Kind, ServedStreams, StreamServer};
use crate::traffic::clock::{MILLI, now};
use crate::traffic::protocol::Outcome;
use crate::traffic::task::{Control, LOOK};
use crate::traffic::udp::{MOST_PAYLOAD, set_buffers};
use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How long the server waits for the client's next line, beyond the test itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a response may wait for a client to read.
const UNREAD: Duration = Duration::from_secs(5);

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Bytes read at a time.
const READ: usize = 256 * 1024;

/// After the client has said that it has sent all, datagrams may still be on their way for so long,
/// in nanoseconds.
const QUIET: u64 = 100 * MILLI;

impl StreamServer {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        let (listener, port) = listen(self.port, None, None)?;
        control.ready(vec![port]);
        let messages = std::thread::scope(|scope| {
            let mut streams = Vec::new();
            while !control.stopped() {
                let Some(stream) = accept(&listener)? else { continue };
                let number = streams.len() as u32;
                let serve = move || {
                    let mut got = Got::default();
                    // A stream that fails is lost, which its client notices.
                    drop(Line::new(stream).and_then(|line| serve(line, number, &mut got, control)));
                    got.messages
                };
                let thread = std::thread::Builder::new().spawn_scoped(scope, serve);
                streams.push(thread.context("a thread for a stream")?);
            }
            // All of them: the scope panics for one that has panicked and was not joined.
            let ended: Vec<_> = streams.into_iter().map(|stream| stream.join()).collect();
            let messages: Result<_, _> = ended.into_iter().collect();
            messages.map_err(|_| anyhow!("the thread of a stream has panicked"))
        })?;
        Ok(Outcome::ServedStreams(ServedStreams { messages }))
    }
}

/// A listening socket whose connections inherit these settings, not blocking; and its port.
fn listen(port: u16, buffer: Option<u32>, congestion: Option<&str>) -> Result<(TcpListener, u16)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).context("socket")?;
    set_buffers(&socket, buffer, buffer)?;
    set_congestion(&socket, congestion)?;
    sockopt::set_socket_reuseaddr(&socket, true).context("SO_REUSEADDR")?;
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    rustix::net::bind(&socket, &address).with_context(|| format!("bind TCP {address}"))?;
    rustix::net::listen(&socket, BACKLOG).context("listen")?;
    let listener = TcpListener::from(socket);
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

pub(super) fn set_congestion(socket: &OwnedFd, congestion: Option<&str>) -> Result<()> {
    let Some(name) = congestion else { return Ok(()) };
    sockopt::set_tcp_congestion(socket, name)
        .with_context(|| format!("this system has no congestion control {name}, or does not allow it"))
}

/// A connection, if one comes within [`LOOK`].
fn accept(listener: &TcpListener) -> Result<Option<TcpStream>> {
    if !readable(listener, LOOK)? {
        return Ok(None);
    }
    // A connection closed before `accept` is ignored.
    let Ok((stream, _)) = listener.accept() else {
        return Ok(None);
    };
    stream.set_nonblocking(false)?;
    Ok(Some(stream))
}

fn readable(socket: &impl AsFd, wait: Duration) -> Result<bool> {
    let wait = Timespec {
        tv_sec: wait.as_secs().cast_signed(),
        tv_nsec: i64::from(wait.subsec_nanos()),
    };
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error).context("poll"),
    }
}

/// One stream, from its control connection's beginning to its result.
fn serve(mut line: Line, number: u32, got: &mut Got, control: &Control) -> Result<()> {
    let Some(wanted) = line.receive_while::<Wanted>(PATIENCE, &|| !control.stopped())? else {
        return Ok(());
    };
    let stream = match Stream::arrange(&wanted) {
        Ok((stream, port)) => {
            line.send(&Arranged::At { port, number }, PATIENCE)?;
            stream
        }
        Err(error) => return line.send(&Arranged::Refused(format!("{error:#}")), PATIENCE),
    };
    let mut state = State {
        line,
        control,
        finished: None,
        message: wanted.message.unwrap_or(1).clamp(1, MOST_PAYLOAD) as usize,
        got,
        first: None,
        warmup: wanted.warmup,
    };
    match (wanted.kind, stream) {
        (Kind::TcpStream, Stream::Tcp(listener)) => state.sink(&listener)?,
        (Kind::TcpRr, Stream::Tcp(listener)) => state.answer(&listener, false)?,
        (Kind::TcpCrr, Stream::Tcp(listener)) => state.answer(&listener, true)?,
        (Kind::UdpStream, Stream::Udp(socket)) => state.datagrams(&socket, false)?,
        (Kind::UdpRr, Stream::Udp(socket)) => state.datagrams(&socket, true)?,
        (_, Stream::Tcp(_) | Stream::Udp(_)) => bail!("arranged otherwise"),
    }
    state.line.send(state.got, PATIENCE)
}

/// The receiving end of a stream.
enum Stream {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Stream {
    fn arrange(wanted: &Wanted) -> Result<(Stream, u16)> {
        match wanted.kind {
            Kind::TcpStream | Kind::TcpRr | Kind::TcpCrr => {
                let (listener, port) = listen(0, wanted.buffer, wanted.congestion.as_deref())?;
                Ok((Stream::Tcp(listener), port))
            }
            Kind::UdpStream | Kind::UdpRr => {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind UDP")?;
                set_buffers(&socket, wanted.buffer, wanted.buffer)?;
                socket.set_nonblocking(true)?;
                let port = socket.local_addr()?.port();
                Ok((Stream::Udp(socket), port))
            }
        }
    }
}

struct State<'a> {
    line: Line,
    control: &'a Control,
    /// When the client said that it has finished, or was gone.
    finished: Option<u64>,
    message: usize,
    got: &'a mut Got,
    /// Arrival time of the first message.
    first: Option<u64>,
    /// Nanoseconds after that which do not count.
    warmup: u64,
}

impl State<'_> {
    /// Whether the task goes on and the client has not sent its end.
    fn wanted(&mut self) -> Result<bool> {
        if self.finished.is_none() {
            self.finished = self.line.poll()?.map(|Finished {}| now());
        }
        Ok(self.finished.is_none() && !self.control.stopped())
    }

    fn took(&mut self, bytes: usize) {
        let now = now();
        let passed = now - *self.first.get_or_insert(now);
        if passed >= self.warmup {
            self.got.messages += 1;
            self.got.bytes += bytes as u64;
            self.got.nanos = passed - self.warmup;
        }
    }

    fn connection(&mut self, listener: &TcpListener) -> Result<Option<TcpStream>> {
        loop {
            if let Some(stream) = accept(listener)? {
                return Ok(Some(stream));
            }
            if !self.wanted()? {
                return Ok(None);
            }
        }
    }

    /// Receives until the client closes or stops waiting.
    fn sink(&mut self, listener: &TcpListener) -> Result<()> {
        let Some(mut stream) = self.connection(listener)? else {
            return Ok(());
        };
        stream.set_read_timeout(Some(LOOK))?;
        let mut buffer = vec![0; READ];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => self.took(len),
                Err(error) if is_timeout(&error) => {
                    if !self.wanted()? {
                        return Ok(());
                    }
                }
                Err(_) => return Ok(()),
            }
        }
    }

    /// Answers requests, over one connection or each over its own.
    fn answer(&mut self, listener: &TcpListener, each: bool) -> Result<()> {
        let mut buffer = vec![0; self.message];
        while let Some(mut stream) = self.connection(listener)? {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LOOK))?;
            stream.set_write_timeout(Some(UNREAD))?;
            while self.whole(&mut stream, &mut buffer)? {
                self.took(buffer.len());
                if stream.write_all(&buffer).is_err() {
                    break;
                }
                self.got.answers += 1;
                if each {
                    break;
                }
            }
            if !each {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads a request. Returns false if none arrives.
    fn whole(&mut self, stream: &mut TcpStream, buffer: &mut [u8]) -> Result<bool> {
        let mut have = 0;
        while have < buffer.len() {
            match stream.read(&mut buffer[have..]) {
                Ok(0) => return Ok(false),
                Ok(len) => have += len,
                Err(error) if is_timeout(&error) => {
                    if !self.wanted()? {
                        return Ok(false);
                    }
                }
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Receives datagrams, and echoes them if required, until the client has sent all, or is gone,
    /// and no more arrive.
    fn datagrams(&mut self, socket: &UdpSocket, back: bool) -> Result<()> {
        let mut buffer = vec![0; MOST_PAYLOAD as usize];
        let mut last = now();
        let mut gone = Ok(());
        loop {
            let wait = if self.finished.is_some() {
                Duration::from_millis(10)
            } else {
                LOOK
            };
            if readable(socket, wait)? {
                // Not for ever: the client's word that it has sent all is to be heard.
                for _ in 0..1024 {
                    let Ok((len, from)) = socket.recv_from(&mut buffer) else {
                        break;
                    };
                    self.took(len);
                    if back && socket.send_to(&buffer[..len], from).is_ok() {
                        self.got.answers += 1;
                    }
                }
                last = now();
            }
            if self.finished.is_none() {
                match self.wanted() {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(error) => gone = Err(error),
                }
            }
            let finished = *self.finished.get_or_insert_with(now);
            let now = now();
            if now > last.max(finished) + QUIET || now > finished + 20 * QUIET {
                return gone;
            }
        }
    }
}

pub(super) fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
