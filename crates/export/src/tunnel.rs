//! The outer headers of sampled packets.

use std::net::{IpAddr, Ipv4Addr};

/// The outer headers that a packet came with, or leaves with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Outer source.
    pub src: IpAddr,
    /// Outer destination, of the same family.
    pub dst: IpAddr,
    /// The protocol that the outer IP header carries.
    pub protocol: u8,
    /// The type of service or traffic class of the outer IP header.
    pub tos: u8,
    /// UDP source port; 0 without UDP, or where each packet has its own.
    pub src_port: u16,
    /// UDP destination port; 0 without UDP.
    pub dst_port: u16,
    /// The key, for example a VNI; 0 without one.
    pub key: u64,
    /// The encapsulation, if it is one that IPFIX has a number for.
    pub encapsulation: Option<Encapsulation>,
}

/// An encapsulation that IPFIX has a number for (ovs-vswitchd.conf.db(5), `tunnelType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// VXLAN.
    Vxlan = 1,
    /// GRE.
    Gre = 2,
    /// Geneve.
    Geneve = 7,
}

impl Encapsulation {
    /// The length of its key in IPFIX, in bytes.
    pub(crate) fn key_len(self) -> usize {
        match self {
            Encapsulation::Vxlan | Encapsulation::Geneve => 3,
            Encapsulation::Gre => 4,
        }
    }
}

impl Tunnel {
    /// The tunnel as IPFIX can tell of it: its elements have addresses of IPv4, and numbers of some
    /// encapsulations.
    pub(crate) fn of_ipfix(&self) -> Option<(Ipv4Addr, Ipv4Addr, Encapsulation)> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some((src, dst, self.encapsulation?)),
            _ => None,
        }
    }
}
