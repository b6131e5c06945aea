//! A scenario's testbed: hosts, bridges, and the cables between them, with all numbers.
//!
//! [`crate::bed`] makes the hosts and cables, [`crate::systems`] the bridges.

use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) mod ipsec;

/// Hosts, bridges and cables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The hosts, where traffic starts and ends.
    #[serde(default, rename = "host")]
    pub hosts: Vec<Host>,
    /// The switches.
    #[serde(default, rename = "bridge")]
    pub bridges: Vec<Bridge>,
    /// The cables.
    #[serde(default, rename = "link")]
    pub links: Vec<Link>,
}

impl Topology {
    /// A host by its name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The topology without the switches' set-up: hosts, names of bridges, cables. Topologies with
    /// equal cabling can share one testbed.
    pub fn cabling(&self) -> Topology {
        let mut cabling = self.clone();
        for bridge in &mut cabling.bridges {
            bridge.svis.clear();
            if bridge.control != Control::Ovn {
                bridge.control = Control::default();
            }
            bridge.tree = None;
            bridge.stateful = None;
            bridge.offload = true;
        }
        for link in &mut cabling.links {
            link.a.port = Port::default();
            link.b.port = Port::default();
        }
        for tunnel in cabling.hosts.iter_mut().filter_map(|host| host.tunnel.as_mut()) {
            tunnel.underlay = Underlay::default();
            tunnel.number = one();
        }
        cabling
    }

    /// The ends of the tunnel to a host; none if it has none.
    pub fn tunnel_ends(&self, name: &str) -> Option<TunnelEnds> {
        let number = self.hosts.iter().position(|host| host.name == name)?;
        self.hosts[number].tunnel.as_ref()?;
        let number = u32::try_from(number).ok()?;
        let network = UNDERLAYS.to_bits() + 4 * number;
        Some(TunnelEnds {
            number: number + 1,
            host: Ipv4Addr::from_bits(network + 1),
            switch: Ipv4Addr::from_bits(network + 2),
        })
    }

    /// Whether OVN controls the bridges: each is a machine of its own.
    pub fn is_cluster(&self) -> bool {
        self.bridges.iter().any(|bridge| bridge.control == Control::Ovn)
    }

    /// The MTU of all hosts, so that their frames fit into tunnels' packets; none: the default.
    pub(crate) fn mtu(&self) -> Option<u32> {
        match (self.has_tunnels(), self.is_cluster()) {
            (_, true) => Some(CLUSTER_MTU),
            (true, false) if self.has_ipsec() => Some(ENCRYPTED_MTU),
            (true, false) => Some(TUNNEL_MTU),
            (false, false) => None,
        }
    }

    fn has_ipsec(&self) -> bool {
        self.hosts
            .iter()
            .filter_map(|host| host.tunnel)
            .any(|tunnel| tunnel.ipsec)
    }

    /// Whether a host is attached through a tunnel.
    pub fn has_tunnels(&self) -> bool {
        self.hosts.iter().any(|host| host.tunnel.is_some())
    }
}

/// The networks of underlays, of 4 addresses each: those of RFC 2544, a /15.
pub(crate) const UNDERLAYS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);

/// Length of the prefix of an underlay's network.
pub(crate) const UNDERLAY_PREFIX: u8 = 30;

/// The MTU of all hosts of a testbed with tunnels: 1500 bytes without the outer headers of VXLAN
/// and Geneve (50 bytes) or GRE with a key (42).
pub(crate) const TUNNEL_MTU: u32 = 1450;

/// The same where a tunnel is encrypted: ESP adds up to 37 bytes.
const ENCRYPTED_MTU: u32 = 1400;

/// The same in a cluster: 1500 bytes without the outer headers of Geneve with OVN's option (58).
const CLUSTER_MTU: u32 = 1442;

/// The key of a host's tunnel.
pub(crate) const TUNNEL_KEY: u32 = 1;

/// A machine at the edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Unique among hosts and bridges; letters, digits and `-`.
    pub name: String,
    /// The kind of machine.
    #[serde(default)]
    pub attachment: Attachment,
    /// Its addresses.
    #[serde(rename = "address")]
    pub addresses: Vec<Address>,
    /// The next hop to other networks.
    pub gateway: Option<Ipv4Addr>,
    /// It routes between its addresses' networks.
    #[serde(default)]
    pub forwards: bool,
    /// Its device with these addresses is the end of a tunnel, through which it is attached; none:
    /// its end of the cable has the addresses.
    pub tunnel: Option<Tunnel>,
}

/// A tunnel between a host and a port of the switch that its cable leads to. The host's end is the
/// kernel's device, whatever the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tunnel {
    /// The encapsulation.
    pub kind: TunnelKind,
    /// How the switch's end reaches the cable.
    #[serde(default)]
    pub underlay: Underlay,
    /// How many tunnels the switch has to the host, 1 to 1000. Each has a port and a key; the host
    /// uses the first and drops the packets of the others.
    #[serde(default = "one")]
    pub number: u32,
    /// ESP encrypts the outer packets; over the host's stack only.
    #[serde(default)]
    pub ipsec: bool,
}

fn one() -> u32 {
    1
}

/// An encapsulation of Ethernet frames, over IPv4, with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelKind {
    /// RFC 7348.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// RFC 2784 and 2890.
    Gre,
}

impl TunnelKind {
    /// Its name in Open vSwitch, the beginning of the names of its ports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Geneve => "geneve",
            TunnelKind::Gre => "gre",
        }
    }

    /// The words of `ip xfrm policy` for its outer packets.
    fn selector(self) -> &'static str {
        match self {
            TunnelKind::Vxlan => "proto 17 dport 4789",
            TunnelKind::Geneve => "proto 17 dport 6081",
            TunnelKind::Gre => "proto 47",
        }
    }

    /// The words of `ip link add` behind `type` for a device of the kernel with two ends, over
    /// `lower`.
    pub(crate) fn device(self, key: u32, local: Ipv4Addr, remote: Ipv4Addr, lower: &str) -> String {
        match self {
            // Each device has one other end: there is nothing to learn.
            TunnelKind::Vxlan => {
                format!("vxlan id {key} local {local} remote {remote} dstport 4789 dev {lower} nolearning")
            }
            // The kernel chooses the device and the source by its routes.
            TunnelKind::Geneve => format!("geneve id {key} remote {remote}"),
            TunnelKind::Gre => format!("gretap key {key} local {local} remote {remote} dev {lower}"),
        }
    }
}

/// How a switch's end of a tunnel reaches its cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Underlay {
    /// The cable's end is a device of the host that the switch runs on, which routes.
    #[default]
    Host,
    /// The cable's end is a port of another bridge of the switch, whose own port has the address.
    Native,
}

/// The two ends of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelEnds {
    /// Of the tunnel, unique in the testbed, from 1.
    pub number: u32,
    /// The host's address.
    pub host: Ipv4Addr,
    /// The switch's.
    pub switch: Ipv4Addr,
}

/// An address of a host, on its only cable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// Its IPv4 address.
    pub ip: Ipv4Addr,
    /// Length of the network's prefix, 0 to 32.
    pub prefix: u8,
    /// On a subinterface with this VLAN's tag; none: untagged.
    pub vlan: Option<u16>,
    /// An IPv6 address beside it, in a network of [`PREFIX6`] bits; not of a guest.
    pub ip6: Option<Ipv6Addr>,
}

/// Length of the prefix of IPv6 networks.
pub(crate) const PREFIX6: u8 = 64;

/// How a host is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Attachment {
    /// A network namespace, by veth.
    #[default]
    Container,
    /// The same, and the host's programs run in a container of Podman that joins the namespace.
    Podman,
    /// A virtual machine, by TAP.
    Guest {
        /// Its memory in MiB.
        memory: u32,
    },
    /// The same, started by libvirt.
    Libvirt {
        /// Its memory in MiB.
        memory: u32,
    },
}

impl Attachment {
    /// The memory of a virtual machine in MiB; none of others.
    pub fn memory(self) -> Option<u32> {
        match self {
            Attachment::Guest { memory } | Attachment::Libvirt { memory } => Some(memory),
            Attachment::Container | Attachment::Podman => None,
        }
    }

    /// Whether the host is a virtual machine, with a kernel of its own.
    pub fn is_guest(self) -> bool {
        self.memory().is_some()
    }
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bridge {
    /// Unique among hosts and bridges; letters, digits and `-`.
    pub name: String,
    /// Addresses of the switch itself, which routes between them.
    #[serde(default, rename = "svi")]
    pub svis: Vec<Address>,
    /// The control of forwarding.
    #[serde(default)]
    pub control: Control,
    /// Its spanning tree protocol, if any: bridges that have one may be joined in a circle. The
    /// first bridge of the testbed is the root.
    pub tree: Option<Tree>,
    /// Rules that track connections; none: it tracks none.
    pub stateful: Option<Stateful>,
    /// Whether oxvs lets the kernel forward flows, on all of its bridges if on one; other switches
    /// have no such setting.
    #[serde(default = "yes")]
    pub offload: bool,
}

fn yes() -> bool {
    true
}

/// Rules that track connections. Those that one host begins pass, with the packets of both
/// directions; the switch drops all other packets of IP, and those that a rule should have
/// translated and has not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Stateful {
    /// A firewall.
    Firewall {
        /// The host whose connections pass.
        from: String,
    },
    /// The connections get another source address (SNAT).
    Snat {
        /// The host whose connections pass.
        from: String,
        /// The other address: one more of that host, which answers ARP for it.
        address: Ipv4Addr,
    },
    /// A select group gives each connection to an address one of several others (DNAT).
    Balance {
        /// The host whose connections pass.
        from: String,
        /// The address that it connects to.
        address: Ipv4Addr,
        /// The other ones.
        servers: Vec<Ipv4Addr>,
    },
}

impl Stateful {
    /// The host whose connections pass.
    pub fn from(&self) -> &str {
        match self {
            Stateful::Firewall { from } | Stateful::Snat { from, .. } | Stateful::Balance { from, .. } => from,
        }
    }
}

/// A spanning tree protocol, with the default timers of its standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tree {
    /// IEEE 802.1D-1998.
    Stp,
    /// IEEE 802.1D-2004.
    Rstp,
}

/// The control of a bridge's forwarding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// The bridge, by MAC learning.
    #[default]
    Learning,
    /// Rules that the lab installs before the run.
    Rules,
    /// The lab's controller, asked for every new flow.
    Reactive,
    /// OVN: each bridge is the integration bridge of a chassis, a machine of its own.
    Ovn,
}

/// A cable with two ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One end.
    pub a: End,
    /// The other.
    pub b: End,
    /// In bit/s in each direction, counted with [`OVERHEAD`] bytes for each frame; none: a bare
    /// cable.
    pub rate: Option<u64>,
    /// In each direction, in microseconds.
    #[serde(default)]
    pub delay: u64,
    /// With a rate: a frame arrives when its last bit has passed, as on a cable of copper. Without
    /// this the kernel's shaper passes a frame at once if the cable is idle. A program implements
    /// this, at a processor cost for each frame.
    #[serde(default)]
    pub serial: bool,
    /// The shaper's queue in each direction in bytes, each frame counted with [`OVERHEAD`].
    #[serde(default = "queue")]
    pub queue: u64,
}

/// Bytes that a frame costs on a cable beside its own (from its destination's address to its
/// payload's end): preamble and start 8, FCS 4, gap 12 (IEEE 802.3).
pub const OVERHEAD: u64 = 24;

/// The default queue of a cable's shaper: 100 full frames.
fn queue() -> u64 {
    153_800
}

/// An end of a cable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// A host's or a bridge's name.
    pub at: String,
    /// At a bridge: how its port is set up.
    #[serde(default)]
    pub port: Port,
}

/// Set-up of a bridge's port. At a host nothing of it may be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Access port of this VLAN.
    pub access: Option<u16>,
    /// Trunk of these VLANs.
    #[serde(default)]
    pub trunk: Vec<u16>,
    /// How packets that leave the port are scheduled.
    pub qos: Option<Qos>,
    /// The speed of the port's line in bit/s, which oxvs keeps by itself (`port-speed`): preamble,
    /// FCS and gap of each frame count.
    pub speed: Option<u64>,
    /// The ingress policer.
    pub policing: Option<Policing>,
    /// It is one of several members of a port; all of its cables that name the same bond, at the
    /// same bridge, are set up alike.
    pub bond: Option<Bond>,
    /// The interval in ms at which it sends BFD packets and wants them (RFC 5880), with a detection
    /// multiplier of 3; none: no BFD.
    pub bfd: Option<u32>,
}

impl Port {
    /// Whether packets may wait in the switch before they leave it.
    pub fn has_queue(&self) -> bool {
        self.qos.is_some() || self.speed.is_some()
    }
}

/// A port of several cables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bond {
    /// Unique at its bridge; letters, digits and `-`.
    pub name: String,
    /// Which member takes a packet.
    pub mode: BondMode,
    /// Both ends speak LACP (IEEE 802.1AX).
    #[serde(default)]
    pub lacp: bool,
    /// With LACP: they send every second, and notice silence after three, not ninety.
    #[serde(default)]
    pub fast: bool,
}

/// Which member of a bond takes a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BondMode {
    /// One for all, another when it fails.
    ActiveBackup,
    /// By source MAC address and VLAN.
    BalanceSlb,
    /// By the addresses and ports of each packet; needs LACP.
    BalanceTcp,
}

/// A scheduler of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qos {
    /// Which.
    pub kind: QosKind,
    /// In bit/s, for kinds with a rate (HTB, HFSC).
    pub rate: Option<u64>,
    /// The discipline in each class (HTB, HFSC): fifo, sfq, codel or fq_codel; none: a plain queue.
    pub leaf: Option<QosKind>,
    /// How many packets wait in each class that has a plain queue (HTB, HFSC), 1 to 1000; none: as
    /// many as a device's queue usually takes.
    pub limit: Option<u32>,
    /// Classes below that rate (HTB, HFSC); packets of no class go into the first. None: one class
    /// with the whole rate.
    #[serde(default, rename = "class")]
    pub classes: Vec<Class>,
}

/// A class of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Guaranteed rate, bit/s.
    pub min: u64,
    /// Maximum rate, bit/s; none: the scheduler's rate.
    pub max: Option<u64>,
    /// Smaller ones borrow first (HTB); 0 to 7.
    pub priority: Option<u8>,
    /// The hosts whose packets are of this class, by source address.
    pub hosts: Vec<String>,
}

/// The schedulers of study S4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QosKind {
    /// `pfifo_fast`.
    Fifo,
    /// Stochastic fairness queueing.
    Sfq,
    /// RFC 8289.
    Codel,
    /// RFC 8290.
    FqCodel,
    /// Hierarchical token bucket, one class.
    Htb,
    /// Hierarchical fair service curve, one class.
    Hfsc,
}

/// A port's policer for packets that come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policing {
    /// In kbit/s, as `ingress_policing_rate`.
    pub rate: u64,
    /// In kbit, as `ingress_policing_burst`.
    pub burst: u64,
}
