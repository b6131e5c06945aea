//! EtherTypes (IEEE 802.3 clause 3.2.6; IANA "IEEE 802 Numbers").

use core::fmt;

/// The type of what an Ethernet header or a VLAN tag introduces. Values below 0x600 are lengths,
/// not types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// The smallest value that is a type; what is smaller is a length of an LLC frame.
    pub const MIN: EtherType = EtherType(0x600);
    /// IPv4 (RFC 894).
    pub const IPV4: EtherType = EtherType(0x0800);
    /// Address resolution (RFC 826).
    pub const ARP: EtherType = EtherType(0x0806);
    /// Reverse address resolution (RFC 903).
    pub const RARP: EtherType = EtherType(0x8035);
    /// A C-tag (IEEE 802.1Q).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// An S-tag (IEEE 802.1ad).
    pub const QINQ: EtherType = EtherType(0x88a8);
    /// IPv6 (RFC 2464).
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// MPLS unicast (RFC 3032).
    pub const MPLS: EtherType = EtherType(0x8847);
    /// MPLS multicast (RFC 5332).
    pub const MPLS_MULTICAST: EtherType = EtherType(0x8848);
    /// A backbone service instance tag, the I-TAG (IEEE 802.1Q §9.7).
    pub const PBB: EtherType = EtherType(0x88e7);
    /// A network service header (RFC 8300).
    pub const NSH: EtherType = EtherType(0x894f);
    /// Transparent Ethernet bridging: an Ethernet frame behind another header (RFC 1701).
    pub const BRIDGED: EtherType = EtherType(0x6558);
    /// Slow protocols: LACP, marker (IEEE 802.3 annex 57A).
    pub const SLOW: EtherType = EtherType(0x8809);
    /// Link layer discovery (IEEE 802.1AB).
    pub const LLDP: EtherType = EtherType(0x88cc);

    /// The packet type (OpenFlow 1.5 §7.2.3.11) of a packet that this type introduces: namespace 1.
    pub const fn packet_type(self) -> u32 {
        1 << 16 | self.0 as u32
    }

    /// Whether this is the tag protocol identifier of a VLAN tag: 0x8100 or 0x88a8, as in Open
    /// vSwitch and Linux. 0x9100 and the other numbers from before 802.1ad are types like any
    /// other. Every crate asks here.
    pub const fn is_vlan(self) -> bool {
        matches!(self, EtherType::VLAN | EtherType::QINQ)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}
