//! The tunnel ports of a datapath: who shares a datapath port, and whose packet one is.

use super::config::{Config, Endpoint, Key, Local, Mode, Type};
use super::show::Matching;
use crate::format::{Decapsulated, Format, Inner};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

/// A tunnel port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vport {
    /// The name of the interface.
    pub name: String,
    /// The number of its datapath port, which other tunnels may have too.
    pub datapath_port: u32,
    /// What its row says.
    pub config: Config,
}

/// What tells received packets apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The datapath port that decapsulated it.
    pub datapath_port: u32,
    /// Outer source.
    pub src: IpAddr,
    /// Outer destination.
    pub dst: IpAddr,
    /// The key; 0 without one.
    pub id: u64,
    /// Whether the inner packet is an Ethernet frame.
    pub ethernet: bool,
}

impl Received {
    /// That of a packet which a datapath port has decapsulated.
    pub fn new(datapath_port: u32, packet: &Decapsulated<'_>) -> Received {
        Received {
            datapath_port,
            src: packet.src,
            dst: packet.dst,
            id: packet.id.unwrap_or(0),
            ethernet: matches!(packet.inner, Inner::Ethernet | Inner::Message),
        }
    }
}

/// Why a port cannot be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Packets could belong to another port as well. The text for the log; `Interface.error` says
    /// `could not add network device NAME to ofproto (File exists)`.
    Same(String),
    /// Another port has the same UDP port, one of them with group policies and one without. The
    /// text for `Interface.error`.
    Gbp(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Same(text) | Refused::Gbp(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Refused {}

/// A datapath port that receives encapsulated packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// Its number.
    pub datapath_port: u32,
    /// What it takes for an encapsulation: all that its tunnels need.
    pub format: Format,
    /// The number of the outer IP protocol.
    pub protocol: u8,
    /// The UDP port; 0 of protocols that have none.
    pub port: u16,
    /// Its tunnels.
    pub tunnels: usize,
}

/// A line of `tnl/ports/show`.
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) ref_cnt={}", self.name, self.datapath_port, self.tunnels)
    }
}

/// The protocols behind the headers of segment routing: IPv4 and IPv6.
const ROUTED: [u8; 2] = [4, 41];

impl Listener {
    /// Whether it may receive packets whose last IP header, extension headers included, says that
    /// this protocol follows.
    pub fn takes(&self, protocol: u8) -> bool {
        self.protocols().contains(&protocol)
    }

    fn protocols(&self) -> &[u8] {
        match self.format {
            Format::Srv6 => &ROUTED,
            _ => std::slice::from_ref(&self.protocol),
        }
    }

    /// The lines of `tnl/ports/show -v`: the packets to this address of a bridge that it receives.
    pub fn flows(&self, mac: wire::MacAddr, address: IpAddr) -> impl Iterator<Item = String> + '_ {
        let (kind, ip) = match address {
            IpAddr::V4(_) => (0x0800, "ipv4"),
            IpAddr::V6(_) => (0x86dd, "ipv6"),
        };
        self.protocols().iter().map(move |protocol| {
            let name = format_args!("{} ({})", self.name, self.datapath_port);
            let ip = format_args!("{ip}(dst={address},proto={protocol},frag=no)");
            let flow = format!("{name} : eth(dst={mac}),eth_type({kind:#06x}),{ip}");
            match self.port {
                0 => flow,
                port => format!("{flow},udp(dst={port})"),
            }
        })
    }
}

/// The tunnel ports of a datapath. `P` is how the caller knows a port.
#[derive(Clone, Debug)]
pub struct Table<P> {
    ports: BTreeMap<P, Vport>,
    /// By class and match, see [`CLASSES`].
    matches: [HashMap<Match, P>; CLASSES],
    /// Number of VXLAN ports by UDP port and by whether they have group policies.
    vxlan: HashMap<(u16, bool), usize>,
}

impl<P> Default for Table<P> {
    fn default() -> Table<P> {
        Table {
            ports: BTreeMap::new(),
            matches: Default::default(),
            vxlan: HashMap::new(),
        }
    }
}

/// Kinds of matches, the one that is tried first is the first: a fixed key before any, then a fixed
/// remote end before any, then a fixed local end before any before the one that rules choose.
const CLASSES: usize = 2 * 2 * 3;

/// What packets of a port have in common. What its class leaves open is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Match {
    datapath_port: u32,
    key: Option<u64>,
    remote: Option<IpAddr>,
    local: Option<IpAddr>,
    mode: Mode,
}

impl Match {
    fn of(port: &Vport) -> (usize, Match) {
        let config = &port.config;
        let key = match config.in_key {
            Key::None => Some(0),
            Key::Value(key) => Some(key),
            Key::Flow => None,
        };
        let remote = match config.remote {
            Endpoint::Address(remote) => Some(remote),
            Endpoint::Flow => None,
        };
        let (class, local) = match config.local {
            Local::Address(local) => (0, Some(local)),
            Local::Any => (1, None),
            Local::Flow => (2, None),
        };
        let class = class + 3 * usize::from(remote.is_none()) + 6 * usize::from(key.is_none());
        let matching = Match {
            datapath_port: port.datapath_port,
            key,
            remote,
            local,
            mode: config.mode,
        };
        (class, matching)
    }

    /// What a packet must have to be found in a class.
    fn wanted(class: usize, packet: &Received, mode: Mode) -> Match {
        Match {
            datapath_port: packet.datapath_port,
            key: (class < 6).then_some(packet.id),
            remote: (class / 3).is_multiple_of(2).then_some(packet.src),
            local: class.is_multiple_of(3).then_some(packet.dst),
            mode,
        }
    }
}

impl<P: Ord + Copy> Table<P> {
    /// Adds a port, or changes it.
    ///
    /// # Errors
    /// [`Refused`]; a port of that number is gone then.
    pub fn set(&mut self, id: P, port: Vport) -> Result<(), Refused> {
        self.remove(id);
        self.check_gbp(&port)?;
        let (class, matching) = Match::of(&port);
        if let Some(other) = self.matches[class]
            .get(&matching)
            .and_then(|other| self.ports.get(other))
        {
            return Err(Refused::Same(format!(
                "{}: attempting to add tunnel port with same config as port '{}' ({})",
                port.name,
                other.name,
                Matching(&port)
            )));
        }
        self.matches[class].insert(matching, id);
        if let Some(policies) = policies(&port) {
            *self.vxlan.entry(policies).or_default() += 1;
        }
        self.ports.insert(id, port);
        Ok(())
    }

    /// Removes a port, if it is there.
    pub fn remove(&mut self, id: P) {
        if let Some(port) = self.ports.remove(&id) {
            let (class, matching) = Match::of(&port);
            self.matches[class].remove(&matching);
            if let Some(number) = policies(&port).and_then(|policies| self.vxlan.get_mut(&policies)) {
                *number -= 1;
            }
        }
    }

    /// A port.
    pub fn get(&self, id: P) -> Option<&Vport> {
        self.ports.get(&id)
    }

    /// The ports in the order of their numbers.
    pub fn ports(&self) -> impl Iterator<Item = (P, &Vport)> {
        self.ports.iter().map(|(id, port)| (*id, port))
    }

    /// The port that a packet belongs to: one for its kind of packets, or else one that is aware of
    /// packet types.
    pub fn find(&self, packet: &Received) -> Option<P> {
        let legacy = if packet.ethernet {
            Mode::LegacyL2
        } else {
            Mode::LegacyL3
        };
        (0..CLASSES)
            .filter(|class| !self.matches[*class].is_empty())
            .flat_map(|class| [(class, legacy), (class, Mode::Ptap)])
            .find_map(|(class, mode)| self.matches[class].get(&Match::wanted(class, packet, mode)))
            .copied()
    }

    /// The lines of `ofproto/list-tunnels`: those that packets are compared with first, then by
    /// number. Open vSwitch's order within a class is that of a hash.
    pub fn list(&self) -> Vec<String> {
        let mut all: Vec<(usize, P, &Vport)> = self
            .ports
            .iter()
            .map(|(id, port)| (Match::of(port).0, *id, port))
            .collect();
        all.sort_unstable_by_key(|(class, id, _)| (*class, *id));
        all.iter().map(|(_, _, port)| port.to_string()).collect()
    }

    /// The datapath ports that receive the tunnels' packets, by number.
    pub fn listeners(&self) -> Vec<Listener> {
        let mut all: BTreeMap<String, Listener> = BTreeMap::new();
        for port in self.ports.values() {
            let config = &port.config;
            let name = config.datapath_port();
            let own = Listener {
                name: name.clone(),
                datapath_port: port.datapath_port,
                format: config.format(),
                protocol: config.kind.protocol(),
                port: config.dst_port,
                tunnels: 0,
            };
            let listener = all.entry(name).or_insert(own);
            listener.tunnels += 1;
            listener.format = union(listener.format, config.format());
        }
        let mut all: Vec<Listener> = all.into_values().collect();
        all.sort_by_key(|listener| listener.datapath_port);
        all
    }

    fn check_gbp(&self, port: &Vport) -> Result<(), Refused> {
        let others = policies(port).and_then(|(dst_port, gbp)| self.vxlan.get(&(dst_port, !gbp)));
        if others.is_some_and(|number| *number > 0) {
            return Err(Refused::Gbp(format!(
                "{}: VXLAN-GBP, and non-VXLAN-GBP tunnels can't be configured on the same dst_port",
                port.name
            )));
        }
        Ok(())
    }
}

/// The UDP port of a VXLAN tunnel, and whether it has group policies.
fn policies(port: &Vport) -> Option<(u16, bool)> {
    let config = &port.config;
    (config.kind == Type::Vxlan).then_some((config.dst_port, config.extensions.gbp))
}

/// What a datapath port must read for tunnels of two formats.
fn union(one: Format, other: Format) -> Format {
    match (one, other) {
        (Format::Vxlan { gbp, gpe }, Format::Vxlan { gbp: gbp2, gpe: gpe2 }) => Format::Vxlan {
            gbp: gbp || gbp2,
            gpe: gpe || gpe2,
        },
        (one, _) => one,
    }
}
