//! The collectors of an exporter: their addresses, and the sockets to them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

/// Reads `IP:PORT` or `[IPv6]:PORT`, with `%INTERFACE` behind link-local addresses. Without a port
/// it is `default`.
///
/// # Errors
/// Why it is no target.
pub(crate) fn target(text: &str, default: Option<u16>) -> Result<SocketAddr, String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest
                .split_once(']')
                .ok_or_else(|| format!("{text}: a ']' is missing"))?;
            let port = match port {
                "" => None,
                port => Some(
                    port.strip_prefix(':')
                        .ok_or_else(|| format!("{text}: \":PORT\" must follow the address"))?,
                ),
            };
            (host, port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        Some(port) => port
            .parse::<u16>()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| format!("{text}: \"{port}\" is not a port from 1 to 65535"))?,
        None => default.ok_or_else(|| format!("{text}: port must be specified"))?,
    };
    let (host, interface) = match host.split_once('%') {
        Some((host, interface)) => (host, Some(interface)),
        None => (host, None),
    };
    let address: IpAddr = host
        .parse()
        .map_err(|_| format!("{text}: \"{host}\" is not an IP address"))?;
    match (address, interface) {
        (IpAddr::V6(address), Some(interface)) => {
            let index = index_of(interface).ok_or_else(|| format!("{text}: there is no interface {interface}"))?;
            Ok(SocketAddrV6::new(address, port, 0, index).into())
        }
        (IpAddr::V4(_), Some(_)) => Err(format!("{text}: IPv4 addresses have no interface")),
        (address, None) => Ok(SocketAddr::new(address, port)),
    }
}

/// The kernel's number of an interface.
fn index_of(interface: &str) -> Option<u32> {
    let is_name = !interface.is_empty() && !interface.contains('/') && interface != "..";
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"));
    text.ok().filter(|_| is_name)?.trim().parse().ok()
}

/// The address from which packets to a target leave.
pub(crate) fn source_to(target: SocketAddr) -> Option<IpAddr> {
    let address = socket_to(target).ok()?.local_addr().ok()?.ip();
    (!address.is_unspecified()).then_some(address)
}

fn socket_to(target: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(target)?;
    Ok(socket)
}

/// The sockets to the collectors of an exporter. They never wait: a datagram that a socket does not
/// take is lost, and counted.
#[derive(Debug, Default)]
pub(crate) struct Collectors {
    kind: &'static str,
    all: BTreeMap<SocketAddr, Collector>,
}

#[derive(Debug)]
struct Collector {
    socket: Option<UdpSocket>,
    /// Whether the log says that it fails.
    fails: bool,
}

/// What became of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Datagrams sent, to each collector one.
    pub(crate) sent: u64,
    /// Datagrams lost.
    pub(crate) failed: u64,
}

impl Collectors {
    /// For an exporter of this kind.
    pub(crate) fn new(kind: &'static str) -> Collectors {
        Collectors {
            kind,
            all: BTreeMap::new(),
        }
    }

    /// Keeps the sockets of targets that stay.
    pub(crate) fn set(&mut self, targets: &[SocketAddr]) {
        self.all.retain(|target, _| targets.contains(target));
        for target in targets {
            self.all.entry(*target).or_insert(Collector {
                socket: None,
                fails: false,
            });
        }
    }

    /// Sends each datagram to each collector.
    pub(crate) fn send(&mut self, datagrams: &[Vec<u8>]) -> Sent {
        let mut sent = Sent::default();
        for (target, collector) in &mut self.all {
            for datagram in datagrams {
                match collector.send(*target, datagram) {
                    Ok(()) => {
                        sent.sent += 1;
                        if std::mem::take(&mut collector.fails) {
                            tracing::info!(target: "collectors", "{}: collector {target} takes datagrams again", self.kind);
                        }
                    }
                    Err(error) => {
                        sent.failed += 1;
                        if !std::mem::replace(&mut collector.fails, true) {
                            tracing::warn!(target: "collectors", "{target}: sending to collector failed ({error})");
                        }
                    }
                }
            }
        }
        sent
    }
}

impl Collector {
    fn send(&mut self, target: SocketAddr, datagram: &[u8]) -> std::io::Result<()> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(socket_to(target)?),
        };
        match socket.send(datagram) {
            Ok(_) => Ok(()),
            // The answer to an earlier datagram: nobody listens. This one is sent nevertheless.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                let _ = socket.send(datagram);
                Err(error)
            }
            Err(error) => {
                // The way to it may have changed, and with it the own address.
                if error.kind() != std::io::ErrorKind::WouldBlock {
                    self.socket = None;
                }
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_with_ports_and_errors_name_what_is_wrong() {
        let ok = |text, default| target(text, default).unwrap().to_string();
        assert_eq!(ok("10.0.0.1:6343", None), "10.0.0.1:6343");
        assert_eq!(ok("10.0.0.1", Some(6343)), "10.0.0.1:6343");
        assert_eq!(ok("[::1]:2055", None), "[::1]:2055");
        assert_eq!(ok("[2001:db8::1]", Some(1)), "[2001:db8::1]:1");
        assert!(ok("[fe80::1%lo]:2055", None).starts_with("[fe80::1%"));
        for (text, error) in [
            ("10.0.0.1", "10.0.0.1: port must be specified"),
            ("10.0.0.1:0", "10.0.0.1:0: \"0\" is not a port from 1 to 65535"),
            (
                "10.0.0.1:70000",
                "10.0.0.1:70000: \"70000\" is not a port from 1 to 65535",
            ),
            ("host:1", "host:1: \"host\" is not an IP address"),
            ("", ": port must be specified"),
            ("[::1", "[::1: a ']' is missing"),
            ("[::1]1", "[::1]1: \":PORT\" must follow the address"),
            ("[fe80::1%../x]:1", "[fe80::1%../x]:1: there is no interface ../x"),
            ("10.0.0.1%lo:1", "10.0.0.1%lo:1: IPv4 addresses have no interface"),
        ] {
            assert_eq!(target(text, None).unwrap_err(), error);
        }
    }

    #[test]
    fn a_collector_that_refuses_or_cannot_be_reached_costs_datagrams_and_nothing_else() {
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nowhere = "[fe80::1]:9".parse().unwrap();
        let mut collectors = Collectors::new("sFlow");
        collectors.set(&[here.local_addr().unwrap(), gone, nowhere]);
        let mut all = Sent::default();
        for _ in 0..10 {
            let sent = collectors.send(&[vec![1; 100]]);
            (all.sent, all.failed) = (all.sent + sent.sent, all.failed + sent.failed);
        }
        assert_eq!(all.sent + all.failed, 30);
        assert!(all.sent >= 10 && all.failed >= 10, "{all:?}");
        let mut buffer = [0; 200];
        assert_eq!(here.recv(&mut buffer).unwrap(), 100);
    }
}
