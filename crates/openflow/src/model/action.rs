//! Actions.

use super::{Learn, Subfield, Value};
use flow::MatchField;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::MacAddr;

/// A port number of OpenFlow 1.1 and later; OpenFlow 1.0's reserved ports are the highest numbers
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(pub u32);

impl Port {
    /// No output, in an action set.
    pub const UNSET: Port = Port(0xffff_fff7);
    /// The ingress port.
    pub const IN_PORT: Port = Port(0xffff_fff8);
    /// The flow tables; in packet-outs only.
    pub const TABLE: Port = Port(0xffff_fff9);
    /// Switching without OpenFlow.
    pub const NORMAL: Port = Port(0xffff_fffa);
    /// All ports with flooding enabled, except the ingress port.
    pub const FLOOD: Port = Port(0xffff_fffb);
    /// All ports except the ingress port.
    pub const ALL: Port = Port(0xffff_fffc);
    /// The controllers.
    pub const CONTROLLER: Port = Port(0xffff_fffd);
    /// The bridge's local port.
    pub const LOCAL: Port = Port(0xffff_fffe);
    /// No port, or any.
    pub const ANY: Port = Port(0xffff_ffff);
}

/// The whole packet, in an output to the controller.
pub const MAX_LEN_WHOLE: u16 = 0xffff;

/// One action. Unsupported actions are here too, so that the switch can name them when it refuses
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send the packet out of a port.
    Output {
        /// The port.
        port: Port,
        /// The most bytes sent to a controller.
        max_len: u16,
    },
    /// Send the packet out of a port through a queue.
    Enqueue {
        /// The port.
        port: Port,
        /// The queue.
        queue: u32,
    },
    /// Send the packet out of the port that a field holds.
    OutputReg {
        /// The field.
        src: Subfield,
        /// The most bytes sent to a controller.
        max_len: u16,
    },
    /// Truncate the packet and send it out of a port.
    OutputTrunc {
        /// The port.
        port: Port,
        /// The most bytes.
        max_len: u32,
    },
    /// Send to controllers.
    Controller(Controller),
    /// Process the packet by a group.
    Group(u32),
    /// Choose one of several live ports.
    Bundle(Bundle),
    /// Set the VLAN id; add a tag if there is none.
    SetVlanVid(u16),
    /// Set the VLAN priority, 0 to 7; add a tag if there is none.
    SetVlanPcp(u8),
    /// Remove the outermost VLAN tag.
    PopVlan,
    /// The same in the words of OpenFlow 1.0.
    StripVlan,
    /// Push a VLAN tag of this type.
    PushVlan(u16),
    /// Set the source address.
    SetEthSrc(MacAddr),
    /// Set the destination address.
    SetEthDst(MacAddr),
    /// Set the IPv4 source.
    SetIpv4Src(Ipv4Addr),
    /// Set the IPv4 destination.
    SetIpv4Dst(Ipv4Addr),
    /// Set the DSCP: the TOS octet without its two low bits.
    SetTos(u8),
    /// Set the ECN bits, 0 to 3.
    SetEcn(u8),
    /// Set the time to live or hop limit.
    SetTtl(u8),
    /// Set the transport source port.
    SetTpSrc(u16),
    /// Set the transport destination port.
    SetTpDst(u16),
    /// Copy bits.
    Move {
        /// The source.
        src: Subfield,
        /// The destination, with as many bits.
        dst: Subfield,
    },
    /// Set bits.
    Load {
        /// The bits.
        dst: Subfield,
        /// The value; no more bits than `dst` has.
        value: u64,
    },
    /// Set a field, or some bits of it.
    SetField {
        /// The field; writable.
        field: MatchField,
        /// The value.
        value: Value,
        /// The bits to set; `None` for all.
        mask: Option<Value>,
    },
    /// Push bits on the stack.
    Push(Subfield),
    /// Pop bits from the stack.
    Pop(Subfield),
    /// Decrement the TTL; controllers with these ids get packets whose TTL expires.
    DecTtl(Vec<u16>),
    /// Set the outermost MPLS label.
    SetMplsLabel(u32),
    /// Set the outermost MPLS traffic class, 0 to 7.
    SetMplsTc(u8),
    /// Set the outermost MPLS time to live.
    SetMplsTtl(u8),
    /// Decrement the outermost MPLS TTL.
    DecMplsTtl,
    /// Push an MPLS label of this type.
    PushMpls(u16),
    /// Pop an MPLS label; the rest has this Ethernet type.
    PopMpls(u16),
    /// Copy the TTL from the next to the outermost header.
    CopyTtlOut,
    /// Copy the TTL from the outermost to the next header.
    CopyTtlIn,
    /// Push a backbone service tag of this type.
    PushPbb(u16),
    /// Pop a backbone service tag.
    PopPbb,
    /// Set the tunnel identifier.
    SetTunnel {
        /// The value.
        id: u64,
        /// Whether the message has 64 bits for it.
        wide: bool,
    },
    /// Set the queue of later outputs.
    SetQueue(u32),
    /// Restore the original queue.
    PopQueue,
    /// Shorten the rule's timeouts at the end of a TCP connection.
    FinTimeout {
        /// The idle timeout in seconds; 0 for no change.
        idle: u16,
        /// The hard timeout in seconds; 0 for no change.
        hard: u16,
    },
    /// Look up another table, then continue here.
    Resubmit {
        /// The ingress port for the lookup; `IN_PORT` keeps it.
        in_port: Port,
        /// The table; 255 is the current one.
        table: u8,
        /// Whether the lookup sees the connection's original addresses.
        ct: bool,
    },
    /// Add a rule made from the packet.
    Learn(Box<Learn>),
    /// Be one clause of a conjunctive match.
    Conjunction {
        /// The id of the conjunctive match.
        id: u32,
        /// The clause, from 0.
        clause: u8,
        /// The number of clauses, 2 to 64.
        n_clauses: u8,
    },
    /// Hash to one of several links.
    Multipath(Multipath),
    /// A note: bytes that the switch ignores.
    Note(Vec<u8>),
    /// Stop processing.
    Exit,
    /// Send a sample to a collector.
    Sample(Sample),
    /// Track the connection.
    Ct(Box<Ct>),
    /// Translate addresses; only within `Ct`.
    Nat(Nat),
    /// Clear the connection tracking state.
    CtClear,
    /// Execute actions on a copy of the packet.
    Clone(Vec<Action>),
    /// Set a bit to whether the packet is longer than a length.
    CheckPktLarger {
        /// The length.
        pkt_len: u16,
        /// The bit.
        dst: Subfield,
    },
    /// Push a header.
    Encap {
        /// The header's packet type: namespace and type.
        packet_type: u32,
        /// The header's size; 0 for the type's default.
        hdr_size: u16,
        /// The properties of the header.
        properties: Vec<EncapProperty>,
    },
    /// Pop the outermost header; the rest has this packet type, 0xfffe to derive it from the
    /// header.
    Decap(u32),
    /// Decrement the NSH TTL.
    DecNshTtl,
    /// Delete a tunnel metadata field.
    DeleteField(MatchField),
    /// Police by a meter.
    Meter(u32),
    /// Recirculate the packet here, for test benches ([`accept_test_actions`]).
    ///
    /// [`accept_test_actions`]: crate::accept_test_actions
    DebugRecirc,
    /// Translate every packet of the flow, for test benches of Open vSwitch. It can be sent only:
    /// decoding refuses it.
    DebugSlow,
    /// Write the metadata register; only the instruction does this from OpenFlow 1.1 on.
    WriteMetadata {
        /// The value.
        value: u64,
        /// The bits to set.
        mask: u64,
    },
}

impl Action {
    /// The name of the action in `ovs-actions(7)`.
    pub const fn name(&self) -> &'static str {
        match self {
            Action::Output { .. } => "output",
            Action::Enqueue { .. } => "enqueue",
            Action::OutputReg { .. } => "output_reg",
            Action::OutputTrunc { .. } => "output_trunc",
            Action::Controller(_) => "controller",
            Action::Group(_) => "group",
            Action::Bundle(_) => "bundle",
            Action::SetVlanVid(_) => "set_vlan_vid",
            Action::SetVlanPcp(_) => "set_vlan_pcp",
            Action::PopVlan | Action::StripVlan => "strip_vlan",
            Action::PushVlan(_) => "push_vlan",
            Action::SetEthSrc(_) => "mod_dl_src",
            Action::SetEthDst(_) => "mod_dl_dst",
            Action::SetIpv4Src(_) => "mod_nw_src",
            Action::SetIpv4Dst(_) => "mod_nw_dst",
            Action::SetTos(_) => "mod_nw_tos",
            Action::SetEcn(_) => "mod_nw_ecn",
            Action::SetTtl(_) => "mod_nw_ttl",
            Action::SetTpSrc(_) => "mod_tp_src",
            Action::SetTpDst(_) => "mod_tp_dst",
            Action::Move { .. } => "move",
            Action::Load { .. } | Action::SetField { .. } => "set_field",
            Action::Push(_) => "push",
            Action::Pop(_) => "pop",
            Action::DecTtl(_) => "dec_ttl",
            Action::SetMplsLabel(_) => "set_mpls_label",
            Action::SetMplsTc(_) => "set_mpls_tc",
            Action::SetMplsTtl(_) => "set_mpls_ttl",
            Action::DecMplsTtl => "dec_mpls_ttl",
            Action::PushMpls(_) => "push_mpls",
            Action::PopMpls(_) => "pop_mpls",
            Action::CopyTtlOut => "copy_ttl_out",
            Action::CopyTtlIn => "copy_ttl_in",
            Action::PushPbb(_) => "push_pbb",
            Action::PopPbb => "pop_pbb",
            Action::SetTunnel { .. } => "set_tunnel",
            Action::SetQueue(_) => "set_queue",
            Action::PopQueue => "pop_queue",
            Action::FinTimeout { .. } => "fin_timeout",
            Action::Resubmit { .. } => "resubmit",
            Action::Learn(_) => "learn",
            Action::Conjunction { .. } => "conjunction",
            Action::Multipath(_) => "multipath",
            Action::Note(_) => "note",
            Action::Exit => "exit",
            Action::Sample(_) => "sample",
            Action::Ct(_) => "ct",
            Action::Nat(_) => "nat",
            Action::CtClear => "ct_clear",
            Action::Clone(_) => "clone",
            Action::CheckPktLarger { .. } => "check_pkt_larger",
            Action::Encap { .. } => "encap",
            Action::Decap(_) => "decap",
            Action::DecNshTtl => "dec_nsh_ttl",
            Action::DeleteField(_) => "delete_field",
            Action::DebugRecirc => "debug_recirc",
            Action::DebugSlow => "debug_slow",
            Action::Meter(_) => "meter",
            Action::WriteMetadata { .. } => "write_metadata",
        }
    }
}

/// A packet-in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    /// The most bytes of the packet.
    pub max_len: u16,
    /// The id of the controllers.
    pub id: u16,
    /// The reason in the message.
    pub reason: u8,
    /// User data, returned with the packet.
    pub userdata: Vec<u8>,
    /// Whether the pipeline pauses until the controller resumes it.
    pub pause: bool,
    /// The meter for the packet-in; the controllers' own if `None`.
    pub meter: Option<u32>,
}

impl Default for Controller {
    fn default() -> Controller {
        Controller {
            max_len: MAX_LEN_WHOLE,
            id: 0,
            reason: 1,
            userdata: Vec::new(),
            pause: false,
            meter: None,
        }
    }
}

impl Controller {
    /// Whether the first form of the action can express it.
    pub fn is_plain(&self) -> bool {
        self.userdata.is_empty() && !self.pause && self.meter.is_none()
    }
}

/// The fields of a packet that are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum HashFields {
    /// Ethernet source.
    EthSrc = 0,
    /// Ethernet addresses and type, VLAN, IP addresses and protocol, ports; both directions alike.
    SymmetricL4 = 1,
    /// IP addresses, protocol and ports of TCP and SCTP; both directions alike.
    SymmetricL3L4 = 2,
    /// As before, with ports of UDP.
    SymmetricL3L4Udp = 3,
    /// IPv4 or IPv6 source.
    NwSrc = 4,
    /// IPv4 or IPv6 destination.
    NwDst = 5,
    /// IP addresses; both directions alike.
    SymmetricL3 = 6,
}

impl HashFields {
    /// All of them, by number.
    pub const ALL: [(HashFields, &'static str); 7] = [
        (HashFields::EthSrc, "eth_src"),
        (HashFields::SymmetricL4, "symmetric_l4"),
        (HashFields::SymmetricL3L4, "symmetric_l3l4"),
        (HashFields::SymmetricL3L4Udp, "symmetric_l3l4+udp"),
        (HashFields::NwSrc, "nw_src"),
        (HashFields::NwDst, "nw_dst"),
        (HashFields::SymmetricL3, "symmetric_l3"),
    ];
}

/// The algorithm that chooses a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum BundleAlgorithm {
    /// The first live port.
    ActiveBackup = 0,
    /// By highest random weight.
    Hrw = 1,
}

/// A choice among ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bundle {
    /// The algorithm.
    pub algorithm: BundleAlgorithm,
    /// The fields to hash.
    pub fields: HashFields,
    /// The basis of the hash.
    pub basis: u16,
    /// The ports.
    pub members: Vec<Port>,
    /// The field for the chosen port's number; `None` to send the packet to the port.
    pub dst: Option<Subfield>,
}

/// The algorithm that chooses a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum MultipathAlgorithm {
    /// The hash modulo the number of links.
    ModuloN = 0,
    /// By ranges of the hash.
    HashThreshold = 1,
    /// By highest random weight.
    Hrw = 2,
    /// By hashing again until it is a link.
    IterHash = 3,
}

impl MultipathAlgorithm {
    /// All of them, by number.
    pub const ALL: [(MultipathAlgorithm, &'static str); 4] = [
        (MultipathAlgorithm::ModuloN, "modulo_n"),
        (MultipathAlgorithm::HashThreshold, "hash_threshold"),
        (MultipathAlgorithm::Hrw, "hrw"),
        (MultipathAlgorithm::IterHash, "iter_hash"),
    ];
}

/// A choice among links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Multipath {
    /// The fields to hash.
    pub fields: HashFields,
    /// The basis of the hash.
    pub basis: u16,
    /// The algorithm.
    pub algorithm: MultipathAlgorithm,
    /// The highest link; there is one more than this.
    pub max_link: u16,
    /// The algorithm's argument.
    pub arg: u32,
    /// The field for the link's number.
    pub dst: Subfield,
}

/// Which packets of the tunnel's two sides are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SampleDirection {
    /// The default.
    Default = 0,
    /// Ingress packets.
    Ingress = 1,
    /// Egress packets.
    Egress = 2,
}

/// A sample for a collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// The probability in units of 1/65535; not 0.
    pub probability: u16,
    /// The collector set.
    pub collector_set_id: u32,
    /// The observation domain.
    pub obs_domain_id: u32,
    /// The observation point.
    pub obs_point_id: u32,
    /// The sampled port, `ANY` for none.
    pub sampling_port: Port,
    /// The direction.
    pub direction: SampleDirection,
}

/// A number in an action, or the bits of a field that hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zone {
    /// The number.
    Immediate(u16),
    /// The bits, at most 16.
    Field(Subfield),
}

/// Connection tracking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ct {
    /// Whether the connection is committed.
    pub commit: bool,
    /// Whether the packet's direction becomes the original direction.
    pub force: bool,
    /// The zone.
    pub zone: Zone,
    /// The table to recirculate to; none without it.
    pub table: Option<u8>,
    /// The ALG of this port: 21 is FTP, 69 TFTP; 0 is none.
    pub alg: u16,
    /// Actions on the connection's fields, and `Nat`.
    pub actions: Vec<Action>,
}

/// Which addresses are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatKind {
    /// As the connection's NAT state says.
    None,
    /// The source.
    Src,
    /// The destination.
    Dst,
}

/// Addresses to translate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatAddrs {
    /// The address stays.
    None,
    /// IPv4, from the first to the last.
    Ipv4(Ipv4Addr, Option<Ipv4Addr>),
    /// IPv6, from the first to the last.
    Ipv6(Ipv6Addr, Option<Ipv6Addr>),
}

/// Address translation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nat {
    /// The kind.
    pub kind: NatKind,
    /// Whether the mapping persists across restarts.
    pub persistent: bool,
    /// Whether a hash chooses ports.
    pub hash: bool,
    /// Whether ports are random.
    pub random: bool,
    /// The range of addresses.
    pub addrs: NatAddrs,
    /// The range of ports: the first, and the last if there are more.
    pub ports: Option<(u16, Option<u16>)>,
}

/// A property of a new header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EncapProperty {
    /// The metadata type of an NSH.
    NshMdType(u8),
    /// A metadata TLV of an NSH.
    NshTlv {
        /// Its class.
        class: u16,
        /// Its type.
        kind: u8,
        /// Its bytes.
        data: Vec<u8>,
    },
}
