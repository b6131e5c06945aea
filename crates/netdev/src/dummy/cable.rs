//! A dummy's cable to another one, over a socket: `options:stream` connects, `options:pstream`
//! accepts connections, in this process, another one, or Open vSwitch's.
//!
//! Each frame is preceded by its length in bytes, in 16 bits, the highest first. Everything that is
//! sent goes to every peer. A peer that does not read loses frames: 256 of them wait for it. The
//! device accepts 64 peers at once.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use socket2::Socket;

/// Frames that wait for one peer.
const WAITING: usize = 256;
/// Peers at once.
const PEERS: usize = 64;
/// Time between two attempts to connect, and the longest time of one.
const PAUSE: Duration = Duration::from_secs(1);
/// Time between two looks for new peers.
const ACCEPT: Duration = Duration::from_millis(50);
/// The shortest frame: an Ethernet header.
const SHORTEST: usize = 14;

/// Where a cable leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Connect(Address),
    Accept(Address),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Unix(String),
    Tcp(SocketAddr),
}

impl End {
    /// The end that the options `stream` or `pstream` name.
    ///
    /// # Errors
    /// `InvalidInput` with the reason for other text than `unix:PATH` and `tcp:IP:PORT`, or
    /// `punix:PATH` and `ptcp:PORT[:IP]`.
    pub(super) fn parse(key: &str, text: &str) -> io::Result<End> {
        let connect = key == "stream";
        let address = match text.split_once(':') {
            Some(("unix", path)) if connect => Some(Address::Unix(path.to_owned())),
            Some(("punix", path)) if !connect => Some(Address::Unix(path.to_owned())),
            Some(("tcp", rest)) if connect => rest.parse().ok().map(Address::Tcp),
            Some(("ptcp", rest)) if !connect => passive(rest).map(Address::Tcp),
            _ => None,
        };
        let wanted = match connect {
            true => "unix:PATH or tcp:IP:PORT",
            false => "punix:PATH or ptcp:PORT[:IP]",
        };
        let address = address
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("{key}={text}: {wanted} is needed")))?;
        Ok(match connect {
            true => End::Connect(address),
            false => End::Accept(address),
        })
    }
}

/// `PORT[:IP]`.
fn passive(text: &str) -> Option<SocketAddr> {
    let (port, ip) = text.split_once(':').unwrap_or((text, "0.0.0.0"));
    let ip = ip.trim_start_matches('[').trim_end_matches(']');
    let ip = match ip {
        "" => Ipv4Addr::UNSPECIFIED.into(),
        ip => ip.parse().ok()?,
    };
    Some(SocketAddr::new(ip, port.parse().ok()?))
}

/// What receives the frames of a cable.
pub(super) trait Receiver: Send + Sync + 'static {
    fn receive(&self, frame: &[u8]);
}

/// A cable. Dropping it ends its connections.
pub(super) struct Cable {
    shared: Arc<Shared>,
    /// The socket's file that it listens on.
    file: Option<String>,
}

struct Shared {
    /// It connects, and does not accept.
    active: bool,
    peers: Mutex<Vec<Peer>>,
    next: AtomicU64,
    ended: AtomicBool,
    end: (Mutex<()>, Condvar),
}

struct Peer {
    number: u64,
    frames: SyncSender<Arc<[u8]>>,
    socket: Socket,
}

impl Cable {
    /// Begins to connect, or to listen. `receiver` gets the frames until it is gone.
    ///
    /// # Errors
    /// The system's, if it cannot listen or cannot start a thread.
    pub(super) fn begin<R: Receiver>(end: &End, receiver: Weak<R>) -> io::Result<Cable> {
        let shared = Arc::new(Shared {
            active: matches!(end, End::Connect(_)),
            peers: Mutex::default(),
            next: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            end: Default::default(),
        });
        let (of_thread, end) = (shared.clone(), end.clone());
        let file = match &end {
            End::Accept(Address::Unix(path)) => Some(path.clone()),
            _ => None,
        };
        match end {
            End::Connect(to) => start(move || connect(&of_thread, &to, &receiver))?,
            End::Accept(at) => {
                let listener = listen(&at)?;
                start(move || accept(&of_thread, &listener, &receiver))?;
            }
        }
        Ok(Cable { shared, file })
    }

    /// Whether it is connected; `None` if it accepts connections.
    pub(super) fn is_connected(&self) -> Option<bool> {
        self.shared.active.then(|| !self.shared.peers.lock().is_empty())
    }

    /// Sends a frame to all peers.
    pub(super) fn send(&self, frame: &[u8]) {
        let peers = self.shared.peers.lock();
        let Ok(len) = u16::try_from(frame.len()) else { return };
        if peers.is_empty() {
            return;
        }
        let bytes: Arc<[u8]> = [&len.to_be_bytes(), frame].concat().into();
        for peer in &*peers {
            // A full queue loses the frame.
            let _ = peer.frames.try_send(bytes.clone());
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.end.1.notify_all();
        // At once: a device that is opened after this one may listen there.
        if let Some(path) = &self.file {
            let _ = std::fs::remove_file(path);
        }
        for peer in self.shared.peers.lock().drain(..) {
            shut_down(&peer.socket);
        }
    }
}

fn start(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new()
        .name("oxvs-cable".to_owned())
        .spawn(run)
        .map(drop)
}

fn connect<R: Receiver>(shared: &Arc<Shared>, to: &Address, receiver: &Weak<R>) {
    while !shared.has_ended() {
        let socket = match to {
            Address::Unix(path) => UnixStream::connect(path).map(Socket::from),
            Address::Tcp(address) => TcpStream::connect_timeout(address, PAUSE).map(Socket::from),
        };
        if let Ok(socket) = socket {
            // An error ends the connection, and the next one follows.
            let _ = serve(shared, socket, receiver);
        }
        shared.wait(PAUSE);
    }
}

fn accept<R: Receiver>(shared: &Arc<Shared>, listener: &Socket, receiver: &Weak<R>) {
    while !shared.has_ended() {
        let accepted = listener.accept().and_then(|(socket, _)| {
            socket.set_nonblocking(false)?;
            Ok(socket)
        });
        match accepted {
            Ok(socket) if shared.peers.lock().len() < PEERS => {
                let (shared, receiver) = (shared.clone(), receiver.clone());
                // Without a thread the peer is closed.
                let _ = start(move || _ = serve(&shared, socket, &receiver));
            }
            Ok(_) => {}
            Err(_) => shared.wait(ACCEPT),
        }
    }
}

/// Serves a peer until the connection ends.
fn serve<R: Receiver>(shared: &Arc<Shared>, socket: Socket, receiver: &Weak<R>) -> io::Result<()> {
    let (mut reader, mut writer) = (socket.try_clone()?, socket.try_clone()?);
    let (frames, waiting) = sync_channel::<Arc<[u8]>>(WAITING);
    let number = shared.next.fetch_add(1, Ordering::Relaxed);
    {
        let mut peers = shared.peers.lock();
        // Whoever ends the cable closes the sockets that are on the list.
        if shared.has_ended() {
            return Ok(());
        }
        peers.push(Peer { number, frames, socket });
    }
    let write = move || {
        while let Ok(frame) = waiting.recv() {
            if writer.write_all(&frame).is_err() {
                shut_down(&writer);
                return;
            }
        }
    };
    let read = start(write).and_then(|()| receive(&mut reader, receiver));
    shut_down(&reader);
    shared.peers.lock().retain(|peer| peer.number != number);
    read
}

/// Receives frames until the connection ends or breaks the rules.
fn receive<R: Receiver>(reader: &mut Socket, receiver: &Weak<R>) -> io::Result<()> {
    let mut frame = vec![0; usize::from(u16::MAX)];
    loop {
        let mut len = [0; 2];
        reader.read_exact(&mut len)?;
        let len = usize::from(u16::from_be_bytes(len));
        if len < SHORTEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        reader.read_exact(&mut frame[..len])?;
        let Some(receiver) = receiver.upgrade() else {
            return Ok(());
        };
        receiver.receive(&frame[..len]);
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Waits, until the end of the cable at most.
    fn wait(&self, time: Duration) {
        let mut end = self.end.0.lock();
        if !self.has_ended() {
            self.end.1.wait_for(&mut end, time);
        }
    }
}

/// Listens; `accept` does not wait.
fn listen(at: &Address) -> io::Result<Socket> {
    let listener = match at {
        Address::Unix(path) => {
            // The socket of a process that has ended.
            if UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = std::fs::remove_file(path);
            }
            Socket::from(UnixListener::bind(path)?)
        }
        Address::Tcp(address) => Socket::from(TcpListener::bind(address)?),
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Ends a connection. It fails only if it has ended already.
fn shut_down(socket: &Socket) {
    let _ = socket.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dummy;
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::time::Instant;

    fn dummy(name: &str, key: &str, value: &str) -> Dummy {
        Dummy::open(name, &BTreeMap::from([(key.to_owned(), value.to_owned())])).expect("a dummy")
    }

    fn eventually(what: &str, is: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !is() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn transmit(device: &Dummy, frame: &[u8]) {
        use crate::{Frame, Netdev};
        let mut tx = device.open_tx().expect("it opens");
        tx.send(&mut vec![Frame::from_slice(frame)]);
    }

    #[test]
    fn frames_go_both_ways_and_the_cable_is_connected_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("cable").display().to_string();
        let two = dummy("two", "stream", &format!("unix:{path}"));
        assert_eq!(two.is_connected(), Some(false), "nobody listens");
        for _ in 0..2 {
            let one = dummy("one", "pstream", &format!("punix:{path}"));
            assert_eq!(one.is_connected(), None);
            eventually("connected", || two.is_connected() == Some(true));
            transmit(&two, &[7; 60]);
            eventually("received", || one.pending() == 1);
            let before = two.pending();
            transmit(&one, &[8; 60]);
            eventually("received", || two.pending() == before + 1);
            // The next one listens on the same path at once.
            drop(one);
            assert!(!Path::new(&path).exists());
            eventually("disconnected", || two.is_connected() == Some(false));
        }
    }

    #[test]
    fn a_peer_that_sends_too_short_a_frame_is_closed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("cable").display().to_string();
        let device = dummy("one", "pstream", &format!("punix:{path}"));
        for bytes in [&[0, 13][..], &[0, 0], &[0xff]] {
            let mut peer = UnixStream::connect(&path).expect("it listens");
            peer.write_all(bytes).expect("it reads");
            peer.shutdown(Shutdown::Write).expect("it is open");
            assert_eq!(peer.read(&mut [0; 8]).unwrap_or(0), 0, "{bytes:?}");
        }
        assert_eq!(device.pending(), 0);
    }

    #[test]
    fn options_that_name_no_socket_are_refused() {
        for (key, value) in [
            ("stream", "punix:/x"),
            ("stream", "tcp:x"),
            ("stream", ""),
            ("pstream", "unix:/x"),
            ("pstream", "ptcp:x"),
            ("pstream", "ptcp:1:x"),
        ] {
            let error = End::parse(key, value).expect_err(value).to_string();
            assert!(
                error.contains(&format!("{key}={value}: ")) && error.contains(" is needed"),
                "{error}"
            );
        }
        let at = |text| End::parse("pstream", text).ok();
        let address = "0.0.0.0:7".parse().expect("an address");
        assert_eq!(at("ptcp:7"), Some(End::Accept(Address::Tcp(address))));
        assert_eq!(
            at("ptcp:7:[::1]"),
            Some(End::Accept(Address::Tcp("[::1]:7".parse().expect("an address"))))
        );
    }
}
