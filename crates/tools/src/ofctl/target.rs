//! Where a switch is: connection methods, sockets and names of bridges.

use super::secure;
use mgmt::stream::Remote;
use mgmt::stream::tls::Settings;
use mgmt::vconn::Stream;
use mgmt::{os_text, paths};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Connects to `unix:FILE`, `tcp:HOST[:PORT]` or `ssl:HOST[:PORT]`.
pub(super) fn connect(target: &str, keys: &Settings) -> io::Result<Stream> {
    let method = target.split_once(':').ok_or_else(unsupported)?;
    match method {
        ("unix", file) => unix(&paths::in_rundir(file)),
        ("tcp", _) => {
            let at = address(target).inspect_err(|at| {
                tracing::error!(target: "stream_tcp", "{}: connect: {}", at, os_text(&unsupported()));
            });
            let stream = TcpStream::connect(&at.map_err(|_| unsupported())?.addresses[..])?;
            stream.set_nodelay(true)?;
            Ok(stream.into())
        }
        ("ssl", _) => {
            let at = address(target).inspect_err(|at| {
                tracing::error!(target: "stream_ssl", "{}: connect: {}", at, os_text(&unsupported()));
            });
            let Address { host, port, .. } = at.map_err(|_| unsupported())?;
            secure::connect(&Remote::Ssl { host, port }, keys).map(Stream::from)
        }
        _ => Err(unsupported()),
    }
}

/// Connects to a Unix socket.
pub(super) fn unix(path: &Path) -> io::Result<Stream> {
    // A path longer than a socket address is reached through a descriptor of its directory.
    const MAX: usize = 107;
    if path.as_os_str().len() <= MAX {
        return UnixStream::connect(path).map(Stream::from);
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
    UnixStream::connect(PathBuf::from(format!("/proc/self/fd/{number}")).join(name)).map(Stream::from)
}

/// The error of a target that is no address.
fn unsupported() -> io::Error {
    rustix::io::Errno::AFNOSUPPORT.into()
}

/// An address in a network.
struct Address {
    host: String,
    port: u16,
    /// What the host's name means.
    addresses: Vec<SocketAddr>,
}

/// The address of `METHOD:HOST[:PORT]`. The error is the target with its port.
fn address(target: &str) -> Result<Address, String> {
    let name = with_port(target);
    let rest = name.split_once(':').map_or("", |(_, rest)| rest);
    let Some((host, port)) = host_and_port(rest) else {
        tracing::error!(target: "socket_util", "{rest}: port must be specified");
        return Err(name);
    };
    let Ok(number) = port.parse() else {
        tracing::error!(target: "socket_util", "{rest}: bad port number \"{port}\"");
        return Err(name);
    };
    // The system would take `1.2` for an address too.
    let is_number = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_number && host.parse::<Ipv4Addr>().is_err() {
        return Err(name);
    }
    let addresses = (host, number).to_socket_addrs();
    match addresses.map(Vec::from_iter).unwrap_or_default() {
        none if none.is_empty() => Err(name),
        addresses => Ok(Address {
            host: host.to_owned(),
            port: number,
            addresses,
        }),
    }
}

/// A target with OpenFlow's port if it names none.
fn with_port(target: &str) -> String {
    static WARNED: Once = Once::new();
    let parts = target.split(':').filter(|part| !part.is_empty()).count();
    if parts >= 3 && !target.ends_with(']') {
        return target.to_owned();
    }
    WARNED.call_once(|| {
        tracing::warn!(target: "stream", "The default OpenFlow port number has changed from 6633 to 6653");
    });
    format!("{target}:{}", mgmt::stream::OPENFLOW_PORT)
}

/// The parts of `HOST:PORT`; an IPv6 address is in brackets.
fn host_and_port(text: &str) -> Option<(&str, &str)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(text) => {
            let (host, rest) = text.split_once(']')?;
            (host, rest.strip_prefix(':')?)
        }
        None => text.split_once(':').filter(|(_, port)| !port.contains(':'))?,
    };
    (!port.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_without_a_port_have_openflows() {
        for (target, full) in [
            ("tcp:h", "tcp:h:6653"),
            ("tcp:h:1", "tcp:h:1"),
            ("tcp:[::1]", "tcp:[::1]:6653"),
            ("tcp:[::1]:1", "tcp:[::1]:1"),
            ("ssl:", "ssl::6653"),
            ("tcp:h:", "tcp:h::6653"),
        ] {
            assert_eq!(with_port(target), full);
        }
    }

    #[test]
    fn a_host_and_a_port_are_one_colon_apart() {
        for (text, parts) in [
            ("h:1", Some(("h", "1"))),
            ("[::1]:1", Some(("::1", "1"))),
            (":1", Some(("", "1"))),
            ("h:", None),
            ("h::1", None),
            ("::1:1", None),
            ("[::1", None),
            ("[::1]1", None),
        ] {
            assert_eq!(host_and_port(text), parts, "{text}");
        }
    }
}
