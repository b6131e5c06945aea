//! What the switch knows of a packet beside its bytes.

use std::fmt;
use std::net::IpAddr;

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
    /// `packet_type`: the namespace in the high half, the type in the low one; 0 is Ethernet.
    pub packet_type: u32,
    /// The tunnel that the packet came from, or is to be sent through.
    pub tunnel: Option<Tunnel>,
    /// What connection tracking said of the packet.
    pub connection: Option<Connection>,
}

/// The outer header of a packet from a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// `tun_flags`.
    pub flags: u16,
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

    /// Takes away what few packets have.
    #[inline(always)]
    pub fn take_extra(&mut self) -> Option<Box<ExtraMeta>> {
        self.extra.take()
    }

    /// The same, to be changed; it allocates where the packet has none yet.
    pub fn extra_mut(&mut self) -> &mut ExtraMeta {
        self.extra.get_or_insert_default()
    }
}

/// The metadata of a packet that the port of this number has just received.
impl From<PortNo> for PacketMeta {
    fn from(in_port: PortNo) -> PacketMeta {
        PacketMeta::received(in_port)
    }
}
