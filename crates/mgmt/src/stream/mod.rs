//! Byte streams to peers: Unix sockets, TCP and TLS, connected to or accepted.
//!
//! Socket names may be longer than the 108 bytes that the kernel allows: such a socket is reached
//! through a descriptor of its directory.

mod remote;
mod secure;
mod session;
pub mod tls;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixSocket, UnixStream, tcp, unix};

pub use remote::{DEFAULT_PORT, OPENFLOW_PORT, Remote, RemoteError};
pub use secure::Secure;
pub use session::Session;
pub use tls::Tls;

use crate::os_text;
use secure::Handshakes;

/// How long to wait for the end of another process that listens on the same address.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connected stream.
#[derive(Debug)]
pub enum Stream {
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TCP.
    Tcp(TcpStream),
    /// Over TCP, under TLS.
    Tls(Box<Secure>),
}

/// Connects to a remote that is not passive, with the keys of `tls` where it needs them.
///
/// # Errors
/// The system's; `InvalidInput` for a passive remote, or when TLS is not configured as it should;
/// why the handshake failed.
pub async fn connect(remote: &Remote, tls: &Tls) -> io::Result<Stream> {
    match remote {
        Remote::Unix(file) => {
            let short = ShortPath::new(file)?;
            Ok(Stream::Unix(UnixStream::connect(short.path()).await?))
        }
        Remote::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            Ok(Stream::Tcp(stream))
        }
        Remote::Ssl { host, port } => {
            // Without keys the connection cannot succeed.
            let loaded = tls.load()?;
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            Ok(Stream::Tls(Box::new(Secure::connect(stream, host, &loaded).await?)))
        }
        Remote::PassiveUnix(_) | Remote::PassiveTcp { .. } | Remote::PassiveSsl { .. } => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{remote} is for listening, not for connecting"),
        )),
    }
}

/// Connects to `remote`, or, when it is passive, listens there and takes the first that connects.
///
/// # Errors
/// As [`connect`].
pub async fn connect_or_accept(remote: &Remote, tls: &Tls) -> io::Result<Stream> {
    if remote.is_passive() {
        return Ok(Listener::bind(remote, tls).await?.accept().await?.0);
    }
    connect(remote, tls).await
}

/// The class of traffic of management connections unless another is configured
/// (ovs-vswitchd.conf.db(5), `other_config:dscp`).
pub const DEFAULT_DSCP: u8 = 48;

impl Stream {
    /// The name of the peer: the common name in its certificate. `None` without TLS, and if it has
    /// not shown a certificate.
    pub fn peer_name(&self) -> Option<String> {
        match self {
            Stream::Tls(secure) => secure.peer_name(),
            Stream::Unix(_) | Stream::Tcp(_) => None,
        }
    }

    /// Marks what is sent over TCP with a Differentiated Services Code Point, 0 to 63.
    ///
    /// # Errors
    /// The system's.
    pub fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        let tcp = match self {
            Stream::Unix(_) => return Ok(()),
            Stream::Tcp(tcp) => tcp,
            Stream::Tls(secure) => match secure.socket() {
                Some(tcp) => tcp,
                None => return Ok(()),
            },
        };
        match tcp.local_addr()? {
            SocketAddr::V4(_) => net::sockopt::set_ip_tos(tcp, dscp << 2)?,
            SocketAddr::V6(_) => net::sockopt::set_ipv6_tclass(tcp, u32::from(dscp) << 2)?,
        }
        Ok(())
    }

    /// Splits it into a reading and a writing half, without a lock between them.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self {
            Stream::Unix(s) => {
                let (r, w) = s.into_split();
                (ReadHalf::Unix(r), WriteHalf::Unix(w))
            }
            Stream::Tcp(s) => {
                let (r, w) = s.into_split();
                (ReadHalf::Tcp(r), WriteHalf::Tcp(w))
            }
            Stream::Tls(s) => {
                let (r, w) = tokio::io::split(*s);
                (ReadHalf::Tls(r), WriteHalf::Tls(w))
            }
        }
    }
}

/// The reading half of a [`Stream`].
#[derive(Debug)]
pub enum ReadHalf {
    /// Over a Unix socket.
    Unix(unix::OwnedReadHalf),
    /// Over TCP.
    Tcp(tcp::OwnedReadHalf),
    /// Under TLS.
    Tls(tokio::io::ReadHalf<Secure>),
}

/// The writing half of a [`Stream`]; dropping it ends the peer's reading, under TLS when the other
/// half is dropped too.
#[derive(Debug)]
pub enum WriteHalf {
    /// Over a Unix socket.
    Unix(unix::OwnedWriteHalf),
    /// Over TCP.
    Tcp(tcp::OwnedWriteHalf),
    /// Under TLS. What was written has to be flushed.
    Tls(tokio::io::WriteHalf<Secure>),
}

/// Accepts streams; a Unix socket is removed from the file system when its listener is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: ListenSocket,
    name: String,
    accepted: u64,
}

#[derive(Debug)]
enum ListenSocket {
    Unix {
        /// Dropped first: the name is removed while the socket still listens. Otherwise another
        /// process could find a dead socket, replace it, and lose its own.
        _file: BoundFile,
        listener: UnixListener,
    },
    Tcp(TcpListener),
    Ssl {
        listener: TcpListener,
        tls: Tls,
        handshakes: Handshakes,
    },
}

impl Listener {
    /// Listens on a passive remote. Replaces a Unix socket that no process listens on any more; its
    /// mode is 0770 without the bits of the umask, as in Open vSwitch. TLS uses the keys of `tls`;
    /// peers are returned after their handshake.
    ///
    /// # Errors
    /// The system's: `AddrInUse` if another process listens there, which the text names if the
    /// system does; `AlreadyExists` if the path is not a socket; `InvalidInput` for a remote that
    /// is not passive.
    pub async fn bind(remote: &Remote, tls: &Tls) -> io::Result<Listener> {
        let socket = match remote {
            Remote::PassiveUnix(file) => bind_unix(file)?,
            Remote::PassiveTcp { address, port } => ListenSocket::Tcp(bind_tcp(SocketAddr::new(*address, *port))?),
            Remote::PassiveSsl { address, port } => ListenSocket::Ssl {
                listener: bind_tcp(SocketAddr::new(*address, *port))?,
                tls: tls.clone(),
                handshakes: Handshakes::default(),
            },
            Remote::Unix(_) | Remote::Tcp { .. } | Remote::Ssl { .. } => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{remote} is for connecting, not for listening"),
                ));
            }
        };
        Ok(Listener {
            socket,
            name: remote.to_string(),
            accepted: 0,
        })
    }

    /// As [`Listener::bind`], but waits up to 10 s for the end of another process that listens
    /// there.
    ///
    /// # Errors
    /// As those of [`Listener::bind`].
    pub async fn bind_patiently(remote: &Remote, tls: &Tls) -> io::Result<Listener> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(10);
        let mut said = false;
        loop {
            match Listener::bind(remote, tls).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                    if !said {
                        said = true;
                        tracing::info!(target: "stream", "{remote}: {}, waiting for its end", os_text(&error));
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(200));
                }
                result => return result,
            }
        }
    }

    /// The next stream, and a name for its peer to log: `unix#3`, `tcp:192.0.2.1:40000`,
    /// `ssl:192.0.2.1:40000`. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The system's. Being out of descriptors is one; wait a moment then and go on.
    pub async fn accept(&mut self) -> io::Result<(Stream, String)> {
        match &mut self.socket {
            ListenSocket::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                let name = format!("unix#{}", self.accepted);
                self.accepted += 1;
                Ok((Stream::Unix(stream), name))
            }
            ListenSocket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Stream::Tcp(stream), format!("tcp:{peer}")))
            }
            ListenSocket::Ssl {
                listener,
                tls,
                handshakes,
            } => loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (stream, peer) = accepted?;
                        stream.set_nodelay(true)?;
                        let peer = format!("ssl:{peer}");
                        match tls.load() {
                            Ok(loaded) => handshakes.start(stream, peer, loaded),
                            Err(error) => telemetry::warn_limited!(target: "stream_ssl", "{peer}: {error}"),
                        }
                    }
                    (stream, peer) = handshakes.next() => return Ok((Stream::Tls(Box::new(stream)), peer)),
                }
            },
        }
    }

    /// The remote it was bound to.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The TCP address, with the port that the system chose for port 0.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.socket {
            ListenSocket::Tcp(listener) | ListenSocket::Ssl { listener, .. } => listener.local_addr().ok(),
            ListenSocket::Unix { .. } => None,
        }
    }
}

/// Connections that wait to be accepted, at most: of TCP, and of a Unix socket, whose clients would
/// block.
const BACKLOG: u32 = 64;
const UNIX_BACKLOG: u32 = 4096;

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn bind_unix(file: &Path) -> io::Result<ListenSocket> {
    let short = ShortPath::new(file)?;
    remove_if_stale(short.path())?;
    let socket = UnixSocket::new_stream()?;
    // The file gets the socket's mode without the bits of the umask.
    rustix::fs::fchmod(&socket, Mode::RWXU | Mode::RWXG)?;
    socket.bind(short.path())?;
    let listener = socket.listen(UNIX_BACKLOG)?;
    let meta = fs::symlink_metadata(file)?;
    let bound = BoundFile {
        path: file.to_owned(),
        id: (meta.dev(), meta.ino()),
    };
    Ok(ListenSocket::Unix { _file: bound, listener })
}

/// Removes a socket that no process listens on.
fn remove_if_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {}
        Ok(meta) => {
            let what = if meta.is_dir() {
                "a directory"
            } else {
                "a file that is no socket"
            };
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("the path is {what}"),
            ));
        }
        Err(_) => return Ok(()),
    }
    match probe(path)? {
        Probe::NoListener => fs::remove_file(path),
        Probe::Listener(socket) => Err(io::Error::new(io::ErrorKind::AddrInUse, in_use_by(&socket))),
        Probe::Busy => Err(Errno::ADDRINUSE.into()),
        Probe::Unknown => Ok(()),
    }
}

/// What is behind the name of a Unix domain socket.
pub(crate) enum Probe {
    /// No process listens there.
    NoListener,
    /// A process listens there; the connection to it.
    Listener(std::os::fd::OwnedFd),
    /// A process listens there, and its backlog is full.
    Busy,
    /// Unknown.
    Unknown,
}

/// Connects to a Unix domain socket without waiting.
///
/// # Errors
/// The path is too long for an address, or no socket can be made.
pub(crate) fn probe(path: &Path) -> io::Result<Probe> {
    let socket = net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    Ok(match net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Probe::Listener(socket),
        Err(Errno::CONNREFUSED) => Probe::NoListener,
        Err(Errno::AGAIN) => Probe::Busy,
        Err(_) => Probe::Unknown,
    })
}

/// Who listens at the other end of a connected socket.
fn in_use_by(socket: &std::os::fd::OwnedFd) -> String {
    let in_use = os_text(&Errno::ADDRINUSE.into());
    match net::sockopt::socket_peercred(socket) {
        Ok(peer) => {
            let pid = peer.pid.as_raw_nonzero();
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{in_use} by pid {pid} ({})", name.trim_end())
        }
        Err(_) => in_use,
    }
}

/// The name of a bound socket. It is removed with the listener unless another process replaced it.
#[derive(Debug)]
struct BoundFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Drop for BoundFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.id);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A name for a socket that fits in `sockaddr_un`.
struct ShortPath {
    path: PathBuf,
    _directory: Option<std::os::fd::OwnedFd>,
}

impl ShortPath {
    /// Longest path that the kernel takes, with room for the final NUL.
    const MAX: usize = 107;

    fn new(file: &Path) -> io::Result<ShortPath> {
        if file.as_os_str().len() <= ShortPath::MAX {
            return Ok(ShortPath {
                path: file.to_owned(),
                _directory: None,
            });
        }
        let too_long = || io::Error::from(io::ErrorKind::InvalidFilename);
        let (parent, name) = file.parent().zip(file.file_name()).ok_or_else(too_long)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent, flags, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
        if path.as_os_str().len() > ShortPath::MAX {
            return Err(too_long());
        }
        Ok(ShortPath {
            path,
            _directory: Some(directory),
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Passes reading on to the variant's own stream.
macro_rules! delegate_read {
    ($type:ident) => {
        impl AsyncRead for $type {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $type::Unix(s) => Pin::new(s).poll_read(cx, buf),
                    $type::Tcp(s) => Pin::new(s).poll_read(cx, buf),
                    $type::Tls(s) => Pin::new(s).poll_read(cx, buf),
                }
            }
        }
    };
}

/// Passes writing on to the variant's own stream.
macro_rules! delegate_write {
    ($type:ident) => {
        impl AsyncWrite for $type {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $type::Unix(s) => Pin::new(s).poll_write(cx, buf),
                    $type::Tcp(s) => Pin::new(s).poll_write(cx, buf),
                    $type::Tls(s) => Pin::new(s).poll_write(cx, buf),
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $type::Unix(s) => Pin::new(s).poll_write_vectored(cx, bufs),
                    $type::Tcp(s) => Pin::new(s).poll_write_vectored(cx, bufs),
                    $type::Tls(s) => Pin::new(s).poll_write_vectored(cx, bufs),
                }
            }

            fn is_write_vectored(&self) -> bool {
                !matches!(self, $type::Tls(_))
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $type::Unix(s) => Pin::new(s).poll_flush(cx),
                    $type::Tcp(s) => Pin::new(s).poll_flush(cx),
                    $type::Tls(s) => Pin::new(s).poll_flush(cx),
                }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    $type::Unix(s) => Pin::new(s).poll_shutdown(cx),
                    $type::Tcp(s) => Pin::new(s).poll_shutdown(cx),
                    $type::Tls(s) => Pin::new(s).poll_shutdown(cx),
                }
            }
        }
    };
}

delegate_read!(Stream);
delegate_write!(Stream);
delegate_read!(ReadHalf);
delegate_write!(WriteHalf);
