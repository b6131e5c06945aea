//! The datapath port of tunnels whose packets the host's stack carries: sockets that receive them
//! and send them.
//!
//! The frames are the outer packets, with an Ethernet header of zeros. The kernel adds and removes
//! the outer IP and UDP headers; the device reads what they should be from the frames that it
//! sends, and writes what they were into the frames that it receives. So routes, rules, marks,
//! VRFs, filters and IPsec of the host apply to them, in the network namespace of the switch.
//!
//! Datagrams of one flow leave by one call (`UDP_SEGMENT`) and arrive by one (`UDP_GRO`); segments
//! of one TCP connection inside them become one large segment again (`join`). The kernel chooses no
//! source port for each packet, so each transmit handle has [`tx::SOCKETS`] sockets, and a flow's
//! hash chooses among their ports. Raw sockets could send any source port, but each packet by a
//! call of its own.

mod join;
mod rx;
mod tx;

use crate::{DeviceDrops, Error, Kind, Netdev, Rx, State, Tx};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sys::datagram::{self, SocketOption};
use tunnel::format::Format;
use wire::MacAddr;

/// Bytes of received packets that may wait: some dozens of the largest. The system's usual limit
/// holds three.
const RECEIVE_BUFFER: i32 = 16 << 20;
/// Bytes of packets that may be under way in a socket that sends.
const SEND_BUFFER: i32 = 4 << 20;

/// The number of UDP.
const UDP: u8 = 17;

/// The packets of a tunnel's datapath port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostTunnelConfig {
    /// What they are.
    pub format: Format,
    /// The outer IP protocol.
    pub protocol: u8,
    /// The UDP port that they are for; 0 for other protocols.
    pub port: u16,
}

/// Sockets of the host's stack for the packets of a tunnel's datapath port.
pub struct HostTunnel {
    name: String,
    config: HostTunnelConfig,
    /// Of IPv4 and of IPv6, as far as the host has them.
    sockets: Vec<Arc<Receiver>>,
    too_big: OnTooBig,
}

/// Called with the destination and the mark of a packet that the host's stack has refused because
/// the path takes none that long. It must not wait.
pub type OnTooBig = Arc<dyn Fn(IpAddr, u32) + Send + Sync>;

/// What the host's stack knows of the path of a tunnel's packets to a destination: the longest, in
/// bytes from the IP header on, in the network namespace of the calling thread. The route and the
/// IPsec policy are those of the tunnel's protocol and port.
///
/// # Errors
/// The kernel's; `ENETUNREACH` without a route.
pub fn path_mtu(config: HostTunnelConfig, destination: IpAddr, mark: u32) -> io::Result<u32> {
    let ipv6 = destination.is_ipv6();
    let socket = socket(config, ipv6).map_err(|error| error.source)?;
    datagram::receive_nothing(socket.as_fd()).map_err(|error| error.source)?;
    if mark != 0 {
        socket.set_mark(mark)?;
    }
    // No packet is sent: this only looks the route up.
    socket.connect(&SocketAddr::new(destination, config.port).into())?;
    datagram::path_mtu(socket.as_fd(), ipv6).map_err(|error| error.source)
}

/// A socket that receives.
struct Receiver {
    socket: Socket,
    ipv6: bool,
    /// Packets that did not fit into a buffer or into an IP packet.
    errors: AtomicU64,
}

impl HostTunnel {
    /// Opens the sockets, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel's: `EADDRINUSE` where a device of the kernel or another process has the port.
    pub fn open(name: &str, config: HostTunnelConfig, too_big: OnTooBig) -> Result<HostTunnel, Error> {
        let failed = |error: sys::Error| Error::System {
            name: name.to_owned(),
            call: error.call,
            source: error.source,
        };
        let mut sockets = Vec::new();
        for ipv6 in [false, true] {
            match Receiver::open(config, ipv6) {
                Ok(receiver) => sockets.push(Arc::new(receiver)),
                // The host has no IPv6.
                Err(error) if ipv6 && is_unsupported(&error.source) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(HostTunnel {
            name: name.to_owned(),
            config,
            sockets,
            too_big,
        })
    }

    /// What it was opened for.
    pub fn config(&self) -> HostTunnelConfig {
        self.config
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    let none = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL, Errno::PROTONOSUPPORT];
    Errno::from_io_error(error).is_some_and(|errno| none.contains(&errno))
}

/// A socket for the packets of a tunnel.
fn socket(config: HostTunnelConfig, ipv6: bool) -> sys::Result<Socket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let kind = if config.protocol == UDP { Type::DGRAM } else { Type::RAW };
    let socket = Socket::new(
        domain,
        kind.nonblocking(),
        Some(Protocol::from(i32::from(config.protocol))),
    )
    .map_err(sys::Error::of("socket"))?;
    // A raw socket of IPv6 receives nothing else.
    if ipv6 && config.protocol == UDP {
        socket
            .set_only_v6(true)
            .map_err(sys::Error::of("setsockopt(IPV6_V6ONLY)"))?;
    }
    Ok(socket)
}

/// Every address of the host.
fn any(ipv6: bool, port: u16) -> SockAddr {
    let address: IpAddr = match ipv6 {
        false => Ipv4Addr::UNSPECIFIED.into(),
        true => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(address, port).into()
}

impl Receiver {
    fn open(config: HostTunnelConfig, ipv6: bool) -> sys::Result<Receiver> {
        let socket = socket(config, ipv6)?;
        let fd = socket.as_fd();
        datagram::set(fd, SocketOption::Describe { ipv6 })?;
        // Without the right to exceed the limit, the limit holds.
        let _ = datagram::set(fd, SocketOption::ReceiveBuffer(RECEIVE_BUFFER));
        if config.protocol == UDP {
            // Before Linux 5.0 each datagram is a message.
            let _ = datagram::set(fd, SocketOption::Join);
            if ipv6 {
                datagram::set(fd, SocketOption::Checksums { ipv6, send: true })?;
            }
            socket.bind(&any(ipv6, config.port)).map_err(sys::Error::of("bind"))?;
        }
        Ok(Receiver {
            socket,
            ipv6,
            errors: AtomicU64::new(0),
        })
    }
}

impl Netdev for HostTunnel {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Tunnel
    }

    fn state(&self) -> io::Result<State> {
        Ok(State {
            mac: MacAddr::default(),
            mtu: u16::MAX.into(),
            admin_up: true,
            carrier: true,
            ..State::default()
        })
    }

    fn set_mtu(&self, _: u32) -> io::Result<()> {
        Err(Errno::INVAL.into())
    }

    fn set_mac(&self, _: MacAddr) -> io::Result<()> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn set_up(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn open_rx(&self) -> io::Result<Vec<Box<dyn Rx>>> {
        let open = |receiver: &Arc<Receiver>| -> io::Result<Box<dyn Rx>> {
            Ok(Box::new(rx::SocketRx::open(receiver.clone(), self.config)?))
        };
        self.sockets.iter().map(open).collect()
    }

    fn open_tx(&self) -> io::Result<Box<dyn Tx>> {
        Ok(Box::new(tx::SocketTx::open(
            self.config,
            self.sockets.iter().map(|receiver| receiver.ipv6),
            self.too_big.clone(),
        )?))
    }

    fn drops(&self) -> DeviceDrops {
        let mut drops = DeviceDrops::default();
        for receiver in &self.sockets {
            let lost = datagram::lost(receiver.socket.as_fd()).unwrap_or(0);
            drops.queue_full += u64::from(lost);
            drops.rx_errors += receiver.errors.load(Ordering::Relaxed);
        }
        drops
    }

    fn status(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn tunnel_format(&self) -> Option<Format> {
        Some(self.config.format)
    }
}
