//! Names of peers, as every Open vSwitch program takes them: `tcp:HOST:PORT`, `ssl:HOST:PORT`,
//! `unix:FILE` to connect, `ptcp:[PORT][:HOST]`, `pssl:[PORT][:HOST]`, `punix:FILE` to listen
//! (ovsdb(7), "Connection Methods").

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::paths;

/// The port of OVSDB, where none is named.
pub const DEFAULT_PORT: u16 = 6640;

/// The port of OpenFlow, where none is named.
pub const OPENFLOW_PORT: u16 = 6653;

/// Where to connect to or to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Remote {
    /// Connect to a Unix socket; a relative name is one in the run directory.
    Unix(PathBuf),
    /// Connect to a TCP port of a host, which is an address or a name.
    Tcp {
        /// An address, without the brackets of IPv6, or a name.
        host: String,
        /// The port.
        port: u16,
    },
    /// Connect as [`Remote::Tcp`] does, under TLS.
    Ssl {
        /// An address, without the brackets of IPv6, or a name.
        host: String,
        /// The port.
        port: u16,
    },
    /// Listen on a Unix socket.
    PassiveUnix(PathBuf),
    /// Listen on a TCP port.
    PassiveTcp {
        /// The local address; unspecified listens on all of IPv4 (`0.0.0.0`) or of both (`::`).
        address: IpAddr,
        /// The port; 0 lets the system choose.
        port: u16,
    },
    /// Listen as [`Remote::PassiveTcp`] does, for peers that speak TLS.
    PassiveSsl {
        /// The local address; unspecified listens on all of IPv4 (`0.0.0.0`) or of both (`::`).
        address: IpAddr,
        /// The port; 0 lets the system choose.
        port: u16,
    },
}

/// Why a string is not a [`Remote`]. Each names the string.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// There is no such connection method.
    #[error(
        "{0}: unknown connection method (use tcp:HOST:PORT, ssl:HOST:PORT, unix:FILE, ptcp:PORT[:IP], pssl:PORT[:IP] or punix:FILE)"
    )]
    UnknownMethod(String),
    /// No file name after `unix:` or `punix:`.
    #[error("{0}: a file name must follow")]
    NoFile(String),
    /// No host after `tcp:` or `ssl:`.
    #[error("{0}: host name or address must be specified")]
    NoHost(String),
    /// The port is not one.
    #[error("{remote}: bad port number \"{port}\"")]
    BadPort {
        /// The whole string.
        remote: String,
        /// The part in question.
        port: String,
    },
    /// The address to listen on is not one.
    #[error("{remote}: bad IP address \"{address}\"")]
    BadAddress {
        /// The whole string.
        remote: String,
        /// The part in question.
        address: String,
    },
    /// Unexpected text at the end.
    #[error("{0}: trailing garbage")]
    Trailing(String),
}

impl Remote {
    /// Whether it is listened on rather than connected to.
    pub fn is_passive(&self) -> bool {
        matches!(
            self,
            Remote::PassiveUnix(_) | Remote::PassiveTcp { .. } | Remote::PassiveSsl { .. }
        )
    }

    /// Whether the peer is a process of this machine: the kernel reports its end.
    pub fn is_local(&self) -> bool {
        matches!(self, Remote::Unix(_) | Remote::PassiveUnix(_))
    }

    /// Whether `name` has the form of a remote, that is, begins with a connection method that
    /// Open vSwitch knows, ours or not.
    pub fn looks_like(name: &str) -> bool {
        let methods = ["tcp:", "ssl:", "unix:", "ptcp:", "pssl:", "punix:"];
        methods.iter().any(|m| name.starts_with(m))
    }
}

impl FromStr for Remote {
    type Err = RemoteError;

    /// A remote of OVSDB: its port is that of OVSDB where none is named.
    fn from_str(s: &str) -> Result<Remote, RemoteError> {
        Remote::parse(s, DEFAULT_PORT)
    }
}

impl Remote {
    /// Reads a remote whose port is `default_port` where none is named.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(s: &str, default_port: u16) -> Result<Remote, RemoteError> {
        let unknown = || RemoteError::UnknownMethod(s.to_owned());
        let (method, rest) = s.split_once(':').ok_or_else(unknown)?;
        let file = || match rest {
            "" => Err(RemoteError::NoFile(s.to_owned())),
            file => Ok(paths::in_rundir(file)),
        };
        Ok(match method {
            "unix" => Remote::Unix(file()?),
            "punix" => Remote::PassiveUnix(file()?),
            "tcp" => {
                let (host, port) = active(s, rest, default_port)?;
                Remote::Tcp { host, port }
            }
            "ssl" => {
                let (host, port) = active(s, rest, default_port)?;
                Remote::Ssl { host, port }
            }
            "ptcp" => {
                let (address, port) = passive(s, rest, default_port)?;
                Remote::PassiveTcp { address, port }
            }
            "pssl" => {
                let (address, port) = passive(s, rest, default_port)?;
                Remote::PassiveSsl { address, port }
            }
            _ => return Err(unknown()),
        })
    }
}

/// `HOST[:PORT]`
fn active(whole: &str, text: &str, default_port: u16) -> Result<(String, u16), RemoteError> {
    let (host, port) = split_word(whole, text)?;
    if host.is_empty() {
        return Err(RemoteError::NoHost(whole.to_owned()));
    }
    Ok((host.to_owned(), parse_port(whole, port, default_port)?))
}

/// `[PORT][:ADDRESS]`
fn passive(whole: &str, text: &str, default_port: u16) -> Result<(IpAddr, u16), RemoteError> {
    let (port, address) = text.split_once(':').unwrap_or((text, ""));
    let address = match address {
        "" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        text => parse_address(whole, text)?,
    };
    Ok((address, parse_port(whole, port, default_port)?))
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = match self {
            Remote::Unix(_) => "unix",
            Remote::PassiveUnix(_) => "punix",
            Remote::Tcp { .. } => "tcp",
            Remote::PassiveTcp { .. } => "ptcp",
            Remote::Ssl { .. } => "ssl",
            Remote::PassiveSsl { .. } => "pssl",
        };
        match self {
            Remote::Unix(file) | Remote::PassiveUnix(file) => write!(f, "{method}:{}", file.display()),
            Remote::Tcp { host, port } | Remote::Ssl { host, port } => match host.contains(':') {
                true => write!(f, "{method}:[{host}]:{port}"),
                false => write!(f, "{method}:{host}:{port}"),
            },
            Remote::PassiveTcp { address, port } | Remote::PassiveSsl { address, port } => match address {
                IpAddr::V4(a) if a.is_unspecified() => write!(f, "{method}:{port}"),
                IpAddr::V4(a) => write!(f, "{method}:{port}:{a}"),
                IpAddr::V6(a) => write!(f, "{method}:{port}:[{a}]"),
            },
        }
    }
}

/// Splits `HOST:PORT`, where the host may be an IPv6 address in brackets.
fn split_word<'a>(whole: &str, text: &'a str) -> Result<(&'a str, &'a str), RemoteError> {
    let trailing = || RemoteError::Trailing(whole.to_owned());
    match text.strip_prefix('[') {
        Some(text) => {
            let (host, rest) = text.split_once(']').ok_or_else(trailing)?;
            match rest.strip_prefix(':') {
                Some(port) => Ok((host, port)),
                None if rest.is_empty() => Ok((host, "")),
                None => Err(trailing()),
            }
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            if port.contains(':') {
                Err(trailing())
            } else {
                Ok((host, port))
            }
        }
    }
}

fn parse_port(whole: &str, text: &str, default_port: u16) -> Result<u16, RemoteError> {
    if text.is_empty() {
        return Ok(default_port);
    }
    text.parse().map_err(|_| RemoteError::BadPort {
        remote: whole.to_owned(),
        port: text.to_owned(),
    })
}

fn parse_address(whole: &str, text: &str) -> Result<IpAddr, RemoteError> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| RemoteError::BadAddress {
        remote: whole.to_owned(),
        address: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remotes_read_as_they_print() {
        for text in [
            "unix:/a/b.sock",
            "punix:/a:b.sock",
            "tcp:10.0.0.1:6641",
            "tcp:[fe80::1%eth0]:6640",
            "tcp:db.example:6640",
            "ptcp:6640",
            "ptcp:0:127.0.0.1",
            "ptcp:6640:[::]",
            "ssl:10.0.0.1:6641",
            "ssl:[::1]:6640",
            "pssl:6640",
            "pssl:0:127.0.0.1",
        ] {
            assert_eq!(text.parse::<Remote>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_port_may_be_left_out() {
        let show = |s: &str| s.parse::<Remote>().unwrap().to_string();
        assert_eq!(show("tcp:1.2.3.4"), "tcp:1.2.3.4:6640");
        assert_eq!(show("tcp:[::1]"), "tcp:[::1]:6640");
        assert_eq!(show("ptcp:"), "ptcp:6640");
        assert_eq!(show("ptcp::127.0.0.1"), "ptcp:6640:127.0.0.1");
        assert_eq!(show("pssl:"), "pssl:6640");
        let openflow = Remote::parse("ssl:h", OPENFLOW_PORT).unwrap();
        assert_eq!(openflow.to_string(), "ssl:h:6653");
    }

    #[test]
    fn errors_name_the_input() {
        for wrong in [
            "foo:x",
            "db.sock",
            "",
            "unix:",
            "tcp:",
            "tcp:1.2.3.4:x",
            "tcp:1.2.3.4:99999",
            "ptcp:1:x",
            "tcp:1:2:3",
            "tcp:[::1]x",
            "ssl:",
            "ssl:h:x",
            "pssl:x",
        ] {
            let error = wrong.parse::<Remote>().unwrap_err().to_string();
            assert!(error.starts_with(wrong), "{error}");
        }
    }
}
