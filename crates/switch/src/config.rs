//! The configuration of a switch: the whole desired state.

use crate::export::ExportConfig;
use crate::{SnoopingConfig, StormControl, VlanSet};
use conntrack::PolicyId;
use flow::PortNo;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tunnel::vport::Vport;
use wire::{EtherType, MacAddr, Vid};

/// All bridges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Bridges by name.
    pub bridges: BTreeMap<String, BridgeConfig>,
    /// How many VLAN tags of a packet the switch looks at, 1 or 2; further tags are payload
    /// (`other_config:vlan-limit`, whose default is 1).
    pub vlan_limit: u8,
    /// The timeout policies of zones that have one of their own.
    pub timeout_policies: BTreeMap<u16, PolicyId>,
}

impl Default for SwitchConfig {
    fn default() -> SwitchConfig {
        SwitchConfig {
            bridges: BTreeMap::new(),
            vlan_limit: 1,
            timeout_policies: BTreeMap::new(),
        }
    }
}

/// What a bridge does without a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FailMode {
    /// It switches as a MAC learning bridge.
    #[default]
    Standalone,
    /// It follows its rules, which are none at first.
    Secure,
}

/// A bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeConfig {
    /// Whether the bridge switches or drops packets without a controller.
    pub fail_mode: FailMode,
    /// How long a learned address is kept without traffic; clamped to 15 s to 3600 s.
    pub mac_aging: Duration,
    /// Most addresses; clamped to 10 to 1 000 000.
    pub mac_table_size: usize,
    /// VLANs in which the bridge learns nothing and floods everything.
    pub flood_vlans: VlanSet,
    /// Whether the bridge forwards frames to reserved addresses.
    pub forward_bpdu: bool,
    /// Whether its spanning tree, if it has one, is RSTP's. Only traces tell the difference.
    pub rstp: bool,
    /// Whether it snoops on IGMP and MLD, and how it treats multicast packets then.
    pub snooping: Option<SnoopingConfig>,
    /// Its mirrors; those beyond [`MAX_MIRRORS`](crate::MAX_MIRRORS) are ignored.
    pub mirrors: Vec<MirrorConfig>,
    /// What it exports.
    pub export: ExportConfig,
    /// Ports by name.
    pub ports: BTreeMap<String, PortConfig>,
}

impl Default for BridgeConfig {
    fn default() -> BridgeConfig {
        BridgeConfig {
            fail_mode: FailMode::Standalone,
            mac_aging: Duration::from_secs(300),
            mac_table_size: 8192,
            flood_vlans: VlanSet::new(),
            forward_bpdu: false,
            rstp: false,
            snooping: None,
            mirrors: Vec::new(),
            export: ExportConfig::default(),
            ports: BTreeMap::new(),
        }
    }
}

/// A mirror (table `Mirror`). It selects a packet that enters or leaves the bridge through a
/// selected port, is in a selected VLAN and matches the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// What its counters are kept for: the UUID of its row.
    pub id: u128,
    /// Whether it selects all ports in both directions.
    pub select_all: bool,
    /// Ports whose received packets are selected.
    pub select_src: BTreeSet<String>,
    /// Ports whose sent packets are selected.
    pub select_dst: BTreeSet<String>,
    /// VLANs; empty means all.
    pub vlans: VlanSet,
    /// The filter, of fields that packets and metadata have.
    pub filter: Option<openflow::model::Match>,
    /// Where the copies go.
    pub output: MirrorOutput,
    /// The length that copies are cut to, in bytes.
    pub snaplen: Option<u32>,
}

/// Where a mirror's copies go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorOutput {
    /// To a port, which then takes no part in switching. Without a port of that name the mirror
    /// copies nothing.
    Port(String),
    /// Into a VLAN, over all ports that carry it.
    Vlan(Vid),
    /// To the capture of this number, less than [`Captured::MOST`](crate::tables::Captured::MOST).
    Capture(u8),
}

/// How a port maps tags to VLANs (`Port.vlan_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VlanMode {
    /// Untagged packets of one VLAN.
    Access,
    /// Tagged packets of the trunked VLANs, untagged ones of VLAN 0.
    #[default]
    Trunk,
    /// As a trunk, but untagged packets that arrive belong to the native VLAN.
    NativeTagged,
    /// As native-tagged; packets of the native VLAN leave untagged.
    NativeUntagged,
    /// Packets of one service VLAN. On this port they do not carry the service tag; a tag that they
    /// carry is the customer's.
    Dot1qTunnel,
}

/// Whether packets outside any VLAN leave with a tag for their priority
/// (`Port.other_config:priority-tags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PriorityTags {
    /// No. If the port's mode removes the tag, the priority is lost.
    #[default]
    Never,
    /// Yes, if the priority is not 0.
    IfNonzero,
    /// Yes, even if a received tag has neither VLAN nor priority.
    Always,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// How it maps tags to VLANs.
    pub vlan_mode: VlanMode,
    /// The access, native or service VLAN; `None` is VLAN 0. Trunks ignore it.
    pub tag: Option<Vid>,
    /// The VLANs of trunk and native modes; empty means all.
    pub trunks: VlanSet,
    /// The customer VLANs of dot1q-tunnel mode; empty means all.
    pub cvlans: VlanSet,
    /// The tag protocol identifier of service tags, 0x88a8 or 0x8100.
    pub qinq_ethertype: u16,
    /// Tags for priorities.
    pub priority_tags: PriorityTags,
    /// Protected ports do not forward to each other.
    pub protected: bool,
    /// The bridge floods nothing to it.
    pub no_flood: bool,
    /// NORMAL neither takes packets from it nor sends to it; rules do.
    pub no_normal: bool,
    /// It gets all multicast packets of a bridge that snoops.
    pub mcast_flood: bool,
    /// It gets all reports of a bridge that snoops.
    pub mcast_flood_reports: bool,
    /// What its hosts must not send.
    pub guard: PortGuard,
    /// How many addresses it may have.
    pub mac_limit: Option<MacLimit>,
    /// The stations that are sticky at it from before, if its limit says that they are.
    pub sticky: BTreeSet<(Vid, MacAddr)>,
    /// How much traffic to many stations it may bring.
    pub storm: StormControl,
    /// The DSCP of packets by the queue that they leave through. That of queue 0 is only for
    /// packets for which an action has chosen queue 0.
    pub dscp: BTreeMap<u32, u8>,
    /// Its interfaces. If there are several, the first that is up carries the traffic.
    pub interfaces: Vec<InterfaceConfig>,
}

impl Default for PortConfig {
    fn default() -> PortConfig {
        PortConfig {
            vlan_mode: VlanMode::Trunk,
            tag: None,
            trunks: VlanSet::new(),
            cvlans: VlanSet::new(),
            qinq_ethertype: EtherType::QINQ.0,
            priority_tags: PriorityTags::Never,
            protected: false,
            no_flood: false,
            no_normal: false,
            mcast_flood: false,
            mcast_flood_reports: false,
            guard: PortGuard::default(),
            mac_limit: None,
            sticky: BTreeSet::new(),
            storm: StormControl::default(),
            dscp: BTreeMap::new(),
            interfaces: Vec::new(),
        }
    }
}

/// How many addresses a port may have, where NORMAL learns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacLimit {
    /// The most addresses, static ones included.
    pub most: u32,
    /// A further station shuts the port; its packets are dropped either way.
    pub shuts: bool,
    /// Learned addresses are sticky: they stay, and are refused at other ports.
    pub sticky: bool,
}

/// Packets that a port drops on arrival, before any rule sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortGuard {
    /// Packets of DHCP and DHCPv6 servers (DHCP snooping on a port without trust).
    pub no_dhcp_server: bool,
    /// ARP packets whose sender is not the frame's source (ARP inspection), or has none of these
    /// addresses; an empty set allows every address.
    pub arp: Option<BTreeSet<Ipv4Addr>>,
}

/// An interface of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// Its name, unique in the switch.
    pub name: String,
    /// Its OpenFlow port number.
    pub ofport: u16,
    /// What it is attached to.
    pub attach: Attach,
    /// Its link, as the device and control protocols see it.
    pub link: LinkState,
    /// The frames that it hands to control protocols.
    pub punts: Punts,
}

/// The link of an interface, as its device and control protocols see it.
///
/// Fast failover groups, `bundle` and ports of several interfaces do not choose an interface that
/// is not up and alive; packets that are sent to it explicitly still go to it. A patch port is up
/// when it has its peer, whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Whether the device has a link.
    pub up: bool,
    /// Whether BFD, CFM and the like say that the other end receives and sends.
    pub alive: bool,
    /// Whether received packets teach where stations and rules are (IEEE 802.1D-2004 §7.4).
    pub learn: bool,
    /// Whether packets that come in go further, and packets of other ports leave.
    pub forward: bool,
}

impl LinkState {
    /// A link that does everything.
    pub const UP: LinkState = LinkState {
        up: true,
        alive: true,
        learn: true,
        forward: true,
    };
}

/// The frames that an interface hands to control protocols: they go no further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Punts {
    /// Slow protocols: LACP and its marker protocol (IEEE 802.1AX).
    pub lacp: bool,
    /// Bridge protocol data units (IEEE 802.1D).
    pub stp: bool,
    /// LLDP (IEEE 802.1AB).
    pub lldp: bool,
    /// Continuity checks (IEEE 802.1ag) to this address.
    pub cfm: Option<MacAddr>,
    /// BFD control packets over UDP and IPv4 (RFC 5881).
    pub bfd: Option<BfdFrames>,
}

/// The BFD control packets of a session. Others are data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BfdFrames {
    /// Their Ethernet destination; `None` for any.
    pub dst_mac: Option<MacAddr>,
    /// Their IP destination; `None` for any.
    pub dst: Option<Ipv4Addr>,
    /// The key of the tunnel that they come through has to be 0.
    pub without_key: bool,
}

/// How OpenFlow tables treat IP fragments (`OFPC_FRAG_MASK`; `set-frags` of `ovs-ofctl`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FragMode {
    /// All fragments go through the tables with ports of zero, also the first ones.
    #[default]
    Normal,
    /// They are dropped.
    Drop,
    /// First fragments go through the tables with their ports, later ones with ports of zero.
    NxMatch,
}

/// The flags that a controller may set on a port (OpenFlow 1.3.5 §7.2.1, `ofp_port_config`;
/// OpenFlow 1.0 §5.2.1 has more).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortFlags {
    /// Packets received on it are dropped, except those to the bridge group address.
    pub no_recv: bool,
    /// Packets received on it for the bridge group address are dropped.
    pub no_recv_stp: bool,
    /// The bridge floods nothing to it.
    pub no_flood: bool,
    /// Nothing is sent to it.
    pub no_fwd: bool,
    /// Table misses of its packets do not go to controllers.
    pub no_packet_in: bool,
}

/// What an interface is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// A datapath port.
    Device(PortNo),
    /// Another interface, which must name this one as its peer.
    Patch {
        /// The other interface's name.
        peer: String,
    },
    /// A tunnel.
    Tunnel(Arc<Vport>),
}
