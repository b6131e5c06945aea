//! What is done to packets.

use super::{Learn, Subfield, Value};
use flow::MatchField;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::MacAddr;

/// A port as OpenFlow 1.1 and later number it; OpenFlow 1.0's reserved ports are the highest
/// numbers here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Port(pub u32);

impl Port {
    /// No output in an action set.
    pub const UNSET: Port = Port(0xffff_fff7);
    /// Where the packet came in.
    pub const IN_PORT: Port = Port(0xffff_fff8);
    /// Through the tables; only of packet-outs.
    pub const TABLE: Port = Port(0xffff_fff9);
    /// As a switch without OpenFlow does.
    pub const NORMAL: Port = Port(0xffff_fffa);
    /// All ports that may flood, without the one it came in on.
    pub const FLOOD: Port = Port(0xffff_fffb);
    /// All ports, without the one it came in on.
    pub const ALL: Port = Port(0xffff_fffc);
    /// The controllers.
    pub const CONTROLLER: Port = Port(0xffff_fffd);
    /// The bridge's own port.
    pub const LOCAL: Port = Port(0xffff_fffe);
    /// No port, or any.
    pub const ANY: Port = Port(0xffff_ffff);
}

/// Sent whole, in an output to the controller.
pub const MAX_LEN_WHOLE: u16 = 0xffff;

/// One action. Those that a switch does not act upon are here too, so that it can say which it
/// refuses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send out of a port.
    Output {
        /// Where.
        port: Port,
        /// How many bytes go to a controller.
        max_len: u16,
    },
    /// Send out of a port through a queue of it.
    Enqueue {
        /// Where.
        port: Port,
        /// The queue.
        queue: u32,
    },
    /// Send out of the port whose number is in a field.
    OutputReg {
        /// The field.
        src: Subfield,
        /// How many bytes go to a controller.
        max_len: u16,
    },
    /// Send the first bytes out of a port.
    OutputTrunc {
        /// Where.
        port: Port,
        /// How many bytes.
        max_len: u32,
    },
    /// Send to controllers.
    Controller(Controller),
    /// Do what a group says.
    Group(u32),
    /// Choose one of several ports that are up.
    Bundle(Bundle),
    /// Set the VLAN, with a tag put on if there is none.
    SetVlanVid(u16),
    /// Set the VLAN priority, 0 to 7, with a tag put on if there is none.
    SetVlanPcp(u8),
    /// Take off the outermost VLAN tag.
    PopVlan,
    /// Put on a VLAN tag of this type.
    PushVlan(u16),
    /// Set the source address.
    SetEthSrc(MacAddr),
    /// Set the destination address.
    SetEthDst(MacAddr),
    /// Set the IPv4 source.
    SetIpv4Src(Ipv4Addr),
    /// Set the IPv4 destination.
    SetIpv4Dst(Ipv4Addr),
    /// Set the DSCP: the type of service octet without its two low bits.
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
        /// From here.
        src: Subfield,
        /// To here, as many bits.
        dst: Subfield,
    },
    /// Set bits.
    Load {
        /// Which.
        dst: Subfield,
        /// To what; no more bits than `dst` has.
        value: u64,
    },
    /// Set a field, or some bits of it.
    SetField {
        /// Which; writable.
        field: MatchField,
        /// To what.
        value: Value,
        /// Which bits; all without it.
        mask: Option<Value>,
    },
    /// Push bits on the stack.
    Push(Subfield),
    /// Pop bits from the stack.
    Pop(Subfield),
    /// Take one from the time to live; controllers of these numbers hear of packets that cannot.
    DecTtl(Vec<u16>),
    /// Set the outermost MPLS label.
    SetMplsLabel(u32),
    /// Set the outermost MPLS traffic class, 0 to 7.
    SetMplsTc(u8),
    /// Set the outermost MPLS time to live.
    SetMplsTtl(u8),
    /// Take one from the outermost MPLS time to live.
    DecMplsTtl,
    /// Put on an MPLS label of this type.
    PushMpls(u16),
    /// Take off an MPLS label; what is behind it has this type.
    PopMpls(u16),
    /// Copy the time to live from the next to the outermost header.
    CopyTtlOut,
    /// Copy the time to live from the outermost to the next header.
    CopyTtlIn,
    /// Put on a backbone service tag of this type.
    PushPbb(u16),
    /// Take off a backbone service tag.
    PopPbb,
    /// Set the tunnel identifier.
    SetTunnel {
        /// To what.
        id: u64,
        /// Whether the message had, and shall have, room for 64 bits of it.
        wide: bool,
    },
    /// Set the queue of later outputs.
    SetQueue(u32),
    /// Set the queue back to what it was.
    PopQueue,
    /// Shorten the rule's timeouts when a TCP connection ends.
    FinTimeout {
        /// Seconds; 0 leaves it.
        idle: u16,
        /// Seconds; 0 leaves it.
        hard: u16,
    },
    /// Look up another table now, then go on here.
    Resubmit {
        /// As if the packet had come in here; `IN_PORT` leaves it.
        in_port: Port,
        /// The table; 255 is the current one.
        table: u8,
        /// Whether the lookup sees the connection's original addresses.
        ct: bool,
    },
    /// Make a rule from the packet.
    Learn(Box<Learn>),
    /// Be a part of a match of several dimensions.
    Conjunction {
        /// Which conjunctive match.
        id: u32,
        /// Which dimension, from 0.
        clause: u8,
        /// How many dimensions, 2 to 64.
        n_clauses: u8,
    },
    /// Hash to one of several links.
    Multipath(Multipath),
    /// Bytes without meaning to the switch.
    Note(Vec<u8>),
    /// End here.
    Exit,
    /// Send a sample to a collector.
    Sample(Sample),
    /// Track the connection.
    Ct(Box<Ct>),
    /// Translate addresses; only within `Ct`.
    Nat(Nat),
    /// Forget what tracking said.
    CtClear,
    /// Act on a copy.
    Clone(Vec<Action>),
    /// Set a bit to whether the packet is longer.
    CheckPktLarger {
        /// Than this.
        pkt_len: u16,
        /// The bit.
        dst: Subfield,
    },
    /// Put on a header.
    Encap {
        /// The header's packet type: namespace and type.
        packet_type: u32,
        /// The header's size; 0 leaves it to the type.
        hdr_size: u16,
        /// What the header shall have.
        properties: Vec<EncapProperty>,
    },
    /// Take off the outermost header; what is behind it has this packet type, 0xfffe to tell it
    /// from the header.
    Decap(u32),
    /// Take one from the network service header's time to live.
    DecNshTtl,
    /// Take out a tunnel metadata field.
    DeleteField(MatchField),
    /// Police by a meter.
    Meter(u32),
    /// Write the metadata register; only the instruction does this from OpenFlow 1.1 on.
    WriteMetadata {
        /// To what.
        value: u64,
        /// Which bits.
        mask: u64,
    },
}

impl Action {
    /// The name of its kind, in the words of `ovs-actions(7)`.
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
            Action::PopVlan => "strip_vlan",
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
            Action::Meter(_) => "meter",
            Action::WriteMetadata { .. } => "write_metadata",
        }
    }
}

/// Sending to controllers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    /// How many bytes of the packet.
    pub max_len: u16,
    /// To which controllers.
    pub id: u16,
    /// The reason that the message gives, as its number.
    pub reason: u8,
    /// Bytes to be handed back.
    pub userdata: Vec<u8>,
    /// Whether the pipeline waits for the controller.
    pub pause: bool,
    /// The meter to police with, if not the controllers' own.
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
    /// Whether it says no more than the first form of the action can.
    pub fn is_plain(&self) -> bool {
        self.userdata.is_empty() && !self.pause && self.meter.is_none()
    }
}

/// What of a packet is hashed.
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

/// How a port is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum BundleAlgorithm {
    /// The first that is up.
    ActiveBackup = 0,
    /// By highest random weight.
    Hrw = 1,
}

/// A choice among ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bundle {
    /// How.
    pub algorithm: BundleAlgorithm,
    /// By what.
    pub fields: HashFields,
    /// Goes into the hash.
    pub basis: u16,
    /// The ports.
    pub members: Vec<Port>,
    /// Where the chosen port's number goes; without it, the packet goes there.
    pub dst: Option<Subfield>,
}

/// How a link is chosen.
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
    /// By what.
    pub fields: HashFields,
    /// Goes into the hash.
    pub basis: u16,
    /// How.
    pub algorithm: MultipathAlgorithm,
    /// The highest link; there is one more than this.
    pub max_link: u16,
    /// The algorithm's argument.
    pub arg: u32,
    /// Where the link's number goes.
    pub dst: Subfield,
}

/// Which packets of the tunnel's two sides are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SampleDirection {
    /// Not said.
    Default = 0,
    /// As they came in.
    Ingress = 1,
    /// As they go out.
    Egress = 2,
}

/// A sample for a collector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// Of 65 535 packets; not 0.
    pub probability: u16,
    /// To whom.
    pub collector_set_id: u32,
    /// What it says.
    pub obs_domain_id: u32,
    /// What it says.
    pub obs_point_id: u32,
    /// The port that it is about, `ANY` for none.
    pub sampling_port: Port,
    /// Which side.
    pub direction: SampleDirection,
}

/// A number in an action, or where to take it from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zone {
    /// The number.
    Immediate(u16),
    /// In these bits, 16 at most.
    Field(Subfield),
}

/// Connection tracking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ct {
    /// Whether the connection is remembered.
    pub commit: bool,
    /// Whether the packet's direction becomes the connection's.
    pub force: bool,
    /// Which set of connections.
    pub zone: Zone,
    /// The table that sees the result; without it, none does.
    pub table: Option<u8>,
    /// The port of the protocol helper: 21 is FTP's, 69 TFTP's; 0 is none.
    pub alg: u16,
    /// What is set in the connection, and `Nat`.
    pub actions: Vec<Action>,
}

/// Which addresses are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatKind {
    /// As the connection says.
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
    /// Of what.
    pub kind: NatKind,
    /// Whether the choice outlives a restart.
    pub persistent: bool,
    /// Whether ports are chosen by hash.
    pub hash: bool,
    /// Whether ports are chosen at random.
    pub random: bool,
    /// To which addresses.
    pub addrs: NatAddrs,
    /// To which ports: the first, and the last if there are more.
    pub ports: Option<(u16, Option<u16>)>,
}

/// What a new header shall have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EncapProperty {
    /// The metadata type of a network service header.
    NshMdType(u8),
    /// A metadata element of a network service header.
    NshTlv {
        /// Its class.
        class: u16,
        /// Its type.
        kind: u8,
        /// Its bytes.
        data: Vec<u8>,
    },
}
