//! The configuration of a tunnel port.

use crate::format::ecn::{self, Ecn};
use crate::format::{FlowLabel, Format, InnerIp, Kind, MAX_SEGMENTS, Payload};
use std::net::{IpAddr, Ipv6Addr};

/// The type of an Interface row that is a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// `vxlan`
    Vxlan,
    /// `geneve`
    Geneve,
    /// `gre`
    Gre,
    /// `ip6gre`
    Ip6gre,
    /// `erspan`
    Erspan,
    /// `ip6erspan`
    Ip6erspan,
    /// `gtpu`
    Gtpu,
    /// `bareudp`
    Bareudp,
    /// `srv6`
    Srv6,
}

impl Type {
    /// Every type.
    pub const ALL: [Type; 9] = [
        Type::Vxlan,
        Type::Geneve,
        Type::Gre,
        Type::Ip6gre,
        Type::Erspan,
        Type::Ip6erspan,
        Type::Gtpu,
        Type::Bareudp,
        Type::Srv6,
    ];

    /// The type with this name in the database.
    pub fn of(name: &str) -> Option<Type> {
        Type::ALL.into_iter().find(|own| own.name() == name)
    }

    /// The name in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Type::Vxlan => "vxlan",
            Type::Geneve => "geneve",
            Type::Gre => "gre",
            Type::Ip6gre => "ip6gre",
            Type::Erspan => "erspan",
            Type::Ip6erspan => "ip6erspan",
            Type::Gtpu => "gtpu",
            Type::Bareudp => "bareudp",
            Type::Srv6 => "srv6",
        }
    }

    /// The encapsulation of the packets.
    pub const fn kind(self) -> Kind {
        match self {
            Type::Vxlan => Kind::Vxlan,
            Type::Geneve => Kind::Geneve,
            Type::Gre | Type::Ip6gre => Kind::Gre,
            Type::Erspan | Type::Ip6erspan => Kind::Erspan,
            Type::Gtpu => Kind::Gtpu,
            Type::Bareudp => Kind::Bareudp,
            Type::Srv6 => Kind::Srv6,
        }
    }

    /// The UDP port of types that have one.
    pub const fn default_port(self) -> Option<u16> {
        match self {
            Type::Vxlan => Some(4789),
            Type::Geneve => Some(6081),
            Type::Gtpu => Some(2152),
            Type::Bareudp => Some(6635),
            _ => None,
        }
    }

    /// The number of the outer IP protocol.
    pub const fn protocol(self) -> u8 {
        match self.kind() {
            Kind::Gre | Kind::Erspan => 47,
            Kind::Srv6 => 43,
            _ => 17,
        }
    }
}

/// The remote end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// This address.
    Address(IpAddr),
    /// Rules choose it (`remote_ip=flow`); packets come from any.
    Flow,
}

/// The local end of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Local {
    /// Packets to this address.
    Address(IpAddr),
    /// Packets to any address of the switch.
    Any,
    /// The same, and rules choose the source of packets to send (`local_ip=flow`).
    Flow,
}

/// A key, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// Packets have no key; received ones may have 0.
    None,
    /// This key.
    Value(u64),
    /// Any key: it is `tun_id`.
    Flow,
}

/// The outer type of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tos {
    /// This one, whose lowest two bits are zero.
    Value(u8),
    /// The one of the inner packet.
    Inherit,
}

/// The outer time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ttl {
    /// This one.
    Value(u8),
    /// The one of the inner packet.
    Inherit,
}

impl Ttl {
    /// The one of ports that have none configured, and of packets to inherit from that are not IP.
    pub const DEFAULT: u8 = 64;
}

/// Which packets a port carries, and how rules see them (`packet_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Ethernet frames.
    LegacyL2,
    /// Packets without an Ethernet header, which rules see with one.
    LegacyL3,
    /// All that the encapsulation carries; rules see the packet type.
    Ptap,
}

impl Mode {
    /// The value of the option.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::LegacyL2 => "legacy_l2",
            Mode::LegacyL3 => "legacy_l3",
            Mode::Ptap => "ptap",
        }
    }
}

/// Extensions of VXLAN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extensions {
    /// Group policies.
    pub gbp: bool,
    /// Generic protocols.
    pub gpe: bool,
}

/// Fields of ERSPAN; `None` is `flow`: rules choose them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErspanConfig {
    /// 1 or 2; 0 if it is not configured: then nothing can be sent.
    pub version: Option<u8>,
    /// Of version 1, 20 bits.
    pub index: Option<u32>,
    /// Of version 2: the frame left the mirrored port.
    pub egress: Option<bool>,
    /// Of version 2, 6 bits.
    pub hwid: Option<u8>,
}

/// The segments of an SRv6 tunnel, none to [`MAX_SEGMENTS`]. Without any, the remote end is the
/// only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segments {
    list: [Ipv6Addr; MAX_SEGMENTS],
    len: u8,
}

impl Segments {
    /// No segments.
    pub const NONE: Segments = Segments {
        list: [Ipv6Addr::UNSPECIFIED; MAX_SEGMENTS],
        len: 0,
    };

    /// These segments; `None` if they are too many.
    pub fn new(segments: &[Ipv6Addr]) -> Option<Segments> {
        let mut all = Segments::NONE;
        all.list.get_mut(..segments.len())?.copy_from_slice(segments);
        all.len = segments.len() as u8;
        Some(all)
    }

    /// The segments, the first one first.
    pub fn as_slice(&self) -> &[Ipv6Addr] {
        &self.list[..usize::from(self.len)]
    }
}

/// The configuration of a tunnel port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// `type`
    pub kind: Type,
    /// `remote_ip`
    pub remote: Endpoint,
    /// `local_ip`; not `Flow` with a fixed remote end.
    pub local: Local,
    /// `in_key`
    pub in_key: Key,
    /// `out_key`
    pub out_key: Key,
    /// `dst_port`; 0 of types without UDP.
    pub dst_port: u16,
    /// `tos`
    pub tos: Tos,
    /// `ttl`
    pub ttl: Ttl,
    /// `df_default`
    pub df: bool,
    /// `csum`
    pub csum: bool,
    /// `seq`
    pub seq: bool,
    /// `egress_pkt_mark`
    pub egress_pkt_mark: Option<u32>,
    /// `packet_type`
    pub mode: Mode,
    /// `exts`
    pub extensions: Extensions,
    /// `erspan_*`
    pub erspan: ErspanConfig,
    /// `payload_type`
    pub payload: Payload,
    /// `srv6_segs`
    pub segments: Segments,
    /// `srv6_flowlabel`
    pub label: FlowLabel,
    /// `psk`, `remote_cert` or `remote_name`: packets are encrypted, or dropped.
    pub ipsec: bool,
}

/// The other end of a tunnel with IPsec, and the packets that are encrypted on the way to it and
/// from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IpsecPeer {
    /// Its address.
    pub address: IpAddr,
    /// The outer IP protocol.
    pub protocol: u8,
    /// The UDP port that packets are for; 0 of protocols without UDP.
    pub port: u16,
}

impl Config {
    /// The other end of a tunnel with IPsec. `None` also where rules choose it: no policy can name
    /// it.
    pub const fn ipsec_peer(&self) -> Option<IpsecPeer> {
        match self.remote {
            Endpoint::Address(address) if self.ipsec => Some(IpsecPeer {
                address,
                protocol: self.kind.protocol(),
                port: self.dst_port,
            }),
            _ => None,
        }
    }

    /// Whether the encapsulation carries Ethernet frames.
    pub const fn carries_l2(&self) -> bool {
        !matches!(self.kind, Type::Gtpu | Type::Bareudp | Type::Srv6)
    }

    /// Whether the encapsulation carries packets without an Ethernet header.
    pub const fn carries_l3(&self) -> bool {
        match self.kind {
            Type::Gre | Type::Ip6gre | Type::Gtpu | Type::Bareudp | Type::Srv6 => true,
            Type::Vxlan => self.extensions.gpe,
            Type::Geneve | Type::Erspan | Type::Ip6erspan => false,
        }
    }

    /// Whether each packet that is sent has a number of its own.
    pub const fn has_sequence(&self) -> bool {
        self.seq || matches!(self.kind, Type::Erspan | Type::Ip6erspan)
    }

    /// The mode if none is configured.
    pub const fn default_mode(&self) -> Mode {
        if self.carries_l2() {
            Mode::LegacyL2
        } else {
            Mode::LegacyL3
        }
    }

    /// What its datapath port takes for an encapsulation.
    pub const fn format(&self) -> Format {
        match self.kind.kind() {
            Kind::Vxlan => Format::Vxlan {
                gbp: self.extensions.gbp,
                gpe: self.extensions.gpe,
            },
            Kind::Geneve => Format::Geneve,
            Kind::Gre | Kind::Erspan => Format::Gre,
            Kind::Gtpu => Format::Gtpu,
            Kind::Bareudp => Format::Bareudp(self.payload),
            Kind::Srv6 => Format::Srv6,
        }
    }

    /// The name of its datapath port, which all ports with the same type and UDP port share.
    pub fn datapath_port(&self) -> String {
        match self.kind {
            Type::Vxlan => format!("vxlan_sys_{}", self.dst_port),
            Type::Geneve => format!("genev_sys_{}", self.dst_port),
            Type::Gtpu => format!("gtpu_sys_{}", self.dst_port),
            Type::Bareudp => format!("bareudp_sys_{}", self.dst_port),
            Type::Gre | Type::Ip6gre | Type::Erspan | Type::Ip6erspan | Type::Srv6 => {
                format!("{}_sys", self.kind.name())
            }
        }
    }

    /// The outer type of service of a packet with this inner IP header. The congestion mark is
    /// always inherited (RFC 6040 §4.1).
    pub const fn outer_tos(&self, inner: Option<InnerIp>) -> u8 {
        let (dscp, mark) = match (self.tos, inner) {
            (Tos::Inherit, Some(ip)) => (ip.tos, Ecn::of_tos(ip.tos)),
            (Tos::Inherit, None) => (0, Ecn::NotEct),
            (Tos::Value(tos), Some(ip)) => (tos, Ecn::of_tos(ip.tos)),
            (Tos::Value(tos), None) => (tos, Ecn::NotEct),
        };
        ecn::encapsulate(dscp, mark)
    }

    /// The outer time to live of a packet with this inner IP header.
    pub const fn outer_ttl(&self, inner: Option<InnerIp>) -> u8 {
        match (self.ttl, inner) {
            (Ttl::Inherit, Some(ip)) => ip.ttl,
            (Ttl::Inherit, None) => Ttl::DEFAULT,
            (Ttl::Value(ttl), _) => ttl,
        }
    }
}
