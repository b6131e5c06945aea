//! What the switch knows of a packet beside its bytes.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};

/// The number of a datapath port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortNo(pub u32);

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A packet's metadata. A frame owns it, copies of a packet get all of it, and
/// [`extract`](crate::extract) reads a key from it and the packet's bytes.
///
/// Every test whether a packet has the key of the packet before it compares the metadata too, or
/// says no where a packet has more than an ingress port and a recirculation id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketMeta {
    /// The port that the packet came in on.
    pub in_port: PortNo,
    /// The number of the recirculation that the packet is in; 0 for a packet just received.
    pub recirc_id: u32,
    /// `pkt_mark`.
    pub mark: u32,
    /// `skb_priority`: the queue of its transmit port that the packet goes through; 0 for the
    /// default.
    pub priority: u32,
    /// Absent from most packets, which then pay for one pointer in their frame.
    extra: Option<Box<ExtraMeta>>,
}

/// Metadata that a packet gets from a tunnel, a connection or an action that hashes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraMeta {
    /// `dp_hash`: what an action computed; 0 before.
    pub dp_hash: u32,
    /// `packet_type`: the namespace in the high half, the type in the low one; 0 is Ethernet. The
    /// frame of a packet of another type begins with an Ethernet header that is no part of the
    /// packet: its addresses are zero, and its type is that of the packet.
    pub packet_type: u32,
    /// The tunnel that the packet came from, or is to be sent through.
    pub tunnel: Option<Tunnel>,
    /// What connection tracking said of the packet.
    pub connection: Option<Connection>,
}

impl ExtraMeta {
    /// Takes all of it away.
    #[inline]
    fn clear(&mut self) {
        (self.dp_hash, self.packet_type) = (0, 0);
        (self.tunnel, self.connection) = (None, None);
    }
}

/// The outer header of a packet from a tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tunnel {
    /// The key: a VNI, a GRE key.
    pub id: u64,
    /// Outer source address.
    pub src: IpAddr,
    /// Outer destination address.
    pub dst: IpAddr,
    /// Outer source port.
    pub tp_src: u16,
    /// Outer destination port.
    pub tp_dst: u16,
    /// Outer type of service or traffic class.
    pub tos: u8,
    /// Outer time to live or hop limit.
    pub ttl: u8,
    /// [`Tunnel::OAM`], [`Tunnel::DF`], [`Tunnel::CSUM`], [`Tunnel::KEY`].
    pub flags: u16,
    /// What only some encapsulations have.
    pub details: TunnelDetails,
    /// The options of Geneve.
    pub options: TunnelOptionBytes,
}

/// What only some encapsulations have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TunnelDetails {
    /// Nothing more.
    #[default]
    None,
    /// A VXLAN group policy.
    Gbp {
        /// The group.
        id: u16,
        /// Its flags.
        flags: u8,
    },
    /// ERSPAN version 1.
    ErspanV1 {
        /// The index, 20 bits.
        index: u32,
    },
    /// ERSPAN version 2.
    ErspanV2 {
        /// Whether the frame left the mirrored port.
        egress: bool,
        /// The hardware id, 6 bits.
        hwid: u8,
    },
    /// GTP-U.
    Gtpu {
        /// The flags.
        flags: u8,
        /// The message type.
        message: u8,
    },
}

impl Tunnel {
    /// To be overwritten.
    pub const BLANK: Tunnel = Tunnel {
        id: 0,
        src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        tp_src: 0,
        tp_dst: 0,
        tos: 0,
        ttl: 0,
        flags: 0,
        details: TunnelDetails::None,
        options: TunnelOptionBytes::NONE,
    };

    /// A control packet; the one flag that rules see.
    pub const OAM: u16 = 1;
    /// The bit "don't fragment" of IPv4.
    pub const DF: u16 = 2;
    /// A checksum in the UDP or GRE header.
    pub const CSUM: u16 = 4;
    /// There is a key.
    pub const KEY: u16 = 8;
    /// The inner packet has no Ethernet header. Flows do not show it.
    pub const NO_ETHERNET: u16 = 16;
    /// The switch has made the packet: an ICMP error about one that was too big for the tunnel. No
    /// port learns an address from it, because a packet may go to tunnels that its destination is
    /// not behind. Flows do not show it.
    pub const OWN_ERROR: u16 = 32;
}

/// The most bytes of tunnel options (RFC 8926 §3.4).
pub const MAX_TUNNEL_OPTIONS: usize = 252;

/// Tunnel options as they stand in the packet, and a hash of them.
#[derive(Clone)]
pub struct TunnelOptionBytes {
    bytes: [u8; MAX_TUNNEL_OPTIONS],
    len: u8,
    hash: u64,
}

impl TunnelOptionBytes {
    /// No options.
    pub const NONE: TunnelOptionBytes = TunnelOptionBytes {
        bytes: [0; MAX_TUNNEL_OPTIONS],
        len: 0,
        hash: 0,
    };

    /// These options; `None` if they are more than [`MAX_TUNNEL_OPTIONS`] bytes. All packets of a
    /// datapath need a hash with the same secret: their megaflows are told apart by it.
    pub fn new(options: &[u8], secret: &impl BuildHasher) -> Option<TunnelOptionBytes> {
        let mut own = TunnelOptionBytes::NONE;
        own.replace(options, secret).then_some(own)
    }

    /// Takes other options, whose hash has the same secret; none, and returns `false`, if they are
    /// more than [`MAX_TUNNEL_OPTIONS`] bytes. Equal options keep their hash.
    #[inline]
    pub fn replace(&mut self, options: &[u8], secret: &impl BuildHasher) -> bool {
        if options.is_empty() {
            self.clear();
            return true;
        }
        self.bytes() == options || self.replace_other(options, secret)
    }

    /// Takes all options away.
    #[inline]
    pub fn clear(&mut self) {
        (self.len, self.hash) = (0, 0);
    }

    fn replace_other(&mut self, options: &[u8], secret: &impl BuildHasher) -> bool {
        self.clear();
        let Some(bytes) = self.bytes.get_mut(..options.len()) else {
            return false;
        };
        bytes.copy_from_slice(options);
        self.len = options.len() as u8;
        // 0 is that of no options.
        self.hash = secret.hash_one(options) | 1;
        true
    }

    /// The options.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Their hash.
    pub const fn hash(&self) -> u64 {
        self.hash
    }
}

impl PartialEq for TunnelOptionBytes {
    fn eq(&self, other: &TunnelOptionBytes) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for TunnelOptionBytes {}

impl Hash for TunnelOptionBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl Default for TunnelOptionBytes {
    fn default() -> TunnelOptionBytes {
        TunnelOptionBytes::NONE
    }
}

impl fmt::Debug for TunnelOptionBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.bytes()).finish()
    }
}

/// A packet's connection, as the last connection tracking action left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// `ct_state`.
    pub state: u32,
    /// `ct_zone`.
    pub zone: u16,
    /// `ct_mark`.
    pub mark: u32,
    /// `ct_label`.
    pub label: u128,
    /// The original direction of the connection; `None` if the packet belongs to none.
    pub original: Option<OriginalTuple>,
    /// The tracker's own number of the connection; 0 if the packet belongs to none.
    pub id: u64,
}

/// Addresses, protocol and ports of a connection's original direction. The addresses are of one
/// family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginalTuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Source port; of ICMP, the type.
    pub tp_src: u16,
    /// Destination port; of ICMP, the code.
    pub tp_dst: u16,
}

impl PacketMeta {
    /// That of a packet which a port has just received.
    pub const fn received(in_port: PortNo) -> PacketMeta {
        PacketMeta {
            in_port,
            recirc_id: 0,
            mark: 0,
            priority: 0,
            extra: None,
        }
    }

    /// Whether there is nothing but an ingress port and a recirculation id.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.mark | self.priority == 0 && self.extra.is_none()
    }

    /// What few packets have.
    pub fn extra(&self) -> Option<&ExtraMeta> {
        self.extra.as_deref()
    }

    /// The tunnel that the packet came from.
    pub fn tunnel(&self) -> Option<&Tunnel> {
        self.extra.as_ref()?.tunnel.as_ref()
    }

    /// What connection tracking said of the packet.
    pub fn connection(&self) -> Option<&Connection> {
        self.extra.as_ref()?.connection.as_ref()
    }

    /// What a packet has that may have come from a tunnel, may have been tracked, and has no other
    /// metadata but its ingress port and a recirculation id.
    #[inline]
    pub(crate) fn extra_only(&self) -> Option<&ExtraMeta> {
        let extra = self.extra.as_deref()?;
        let others = self.mark | self.priority | extra.dp_hash | extra.packet_type;
        (others == 0).then_some(extra)
    }

    /// `packet_type`; 0 is Ethernet.
    pub fn packet_type(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.packet_type)
    }

    /// Sets `packet_type`.
    pub fn set_packet_type(&mut self, packet_type: u32) {
        if packet_type != self.packet_type() {
            self.extra_mut().packet_type = packet_type;
        }
    }

    /// Takes away what few packets have.
    #[inline(always)]
    pub fn take_extra(&mut self) -> Option<Box<ExtraMeta>> {
        self.extra.take()
    }

    /// The same, to be changed; it allocates where the packet has none yet.
    pub fn extra_mut(&mut self) -> &mut ExtraMeta {
        self.extra.get_or_insert_default()
    }

    /// The same; where the packet has none yet, it gets `other` as if it were new.
    #[inline]
    pub fn extra_or(&mut self, other: impl FnOnce() -> Box<ExtraMeta>) -> &mut ExtraMeta {
        self.extra.get_or_insert_with(|| {
            let mut extra = other();
            extra.clear();
            extra
        })
    }

    /// The tunnel that a packet has come from, to be written: its content is that of any other
    /// packet. All else but the ingress port and the mark is as of a packet just received; where
    /// the packet has no such metadata yet, it gets `other`. A tunnel is long: in a place that had
    /// one it is written where it is.
    #[inline]
    #[expect(
        clippy::unnecessary_lazy_evaluations,
        reason = "only a place that had no tunnel is written as a whole"
    )]
    pub fn renew_tunnel(&mut self, in_port: PortNo, other: impl FnOnce() -> Box<ExtraMeta>) -> &mut Tunnel {
        (self.in_port, self.recirc_id, self.priority) = (in_port, 0, 0);
        let extra = self.extra.get_or_insert_with(other);
        (extra.dp_hash, extra.packet_type, extra.connection) = (0, 0, None);
        extra.tunnel.get_or_insert_with(|| Tunnel::BLANK)
    }
}

/// The metadata of a packet that the port of this number has just received.
impl From<PortNo> for PacketMeta {
    fn from(in_port: PortNo) -> PacketMeta {
        PacketMeta::received(in_port)
    }
}
