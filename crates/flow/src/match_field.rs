//! The fields that OpenFlow can match and set: names, widths, prerequisites, and where their bits
//! are stored.
//!
//! A [`MatchField`] is one name in the OpenFlow sense; the table in `match_field_table.rs` has a
//! row for each. Its bits are stored either in the datapath's [`Key`](crate::Key) or in the
//! metadata words of a [`FlowState`](crate::FlowState).
//!
//! Several fields may be views of the same bits: `xreg0` of `reg0` and `reg1`, `vlan_vid` of
//! `vlan_tci`, `ip_dscp` of the type of service octet. One set of such fields is *canonical*:
//! canonical fields share no bits, except those of transport protocols; prerequisites allow only
//! one protocol in a match. A match of canonical fields therefore has one form only.
//!
//! The order of the variants is the order in which a match lists them: prerequisites come first.

#[path = "match_field_table.rs"]
mod table;

use crate::Field;
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
pub use table::MatchField;

/// A field's row in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchFieldInfo {
    /// Its names in text, the one of `ovs-fields(7)` first.
    pub names: &'static [&'static str],
    /// The width of its value in a message, in bits; a multiple of 8.
    pub bits: u16,
    /// The bits of a value that may be set. Fields wider than 128 bits ignore this: all their bits
    /// may be.
    pub valid: u128,
    /// Text format of its values.
    pub format: Format,
    /// Which masks it takes.
    pub maskable: Maskable,
    /// Whether actions may set it.
    pub access: Access,
    /// Conditions that a match must contain before this field.
    pub prerequisite: MatchPrerequisite,
    /// Whether matches store this field, and not other fields that have its bits.
    pub canonical: bool,
    /// Where its bits are stored.
    pub home: Home,
    /// Its identifiers in messages, the first is the oldest.
    pub ids: &'static [OxmId],
}

/// Text formats of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// A decimal number.
    Decimal,
    /// A hexadecimal number with `0x` before it.
    Hex,
    /// `aa:bb:cc:dd:ee:ff`.
    Ethernet,
    /// `192.0.2.1`, with `/24` or `/255.0.255.0` behind it.
    Ipv4,
    /// `2001:db8::1`, with `/64` or a written-out mask behind it.
    Ipv6,
    /// A port's number or name, or a reserved port's name.
    Port,
    /// `no`, `yes`, `first`, `later`, `not_later`.
    Frag,
    /// `+syn-ack`.
    TcpFlags,
    /// `+oam`.
    TunFlags,
    /// `+trk-new`.
    CtState,
    /// `(namespace,type)`.
    PacketType,
}

/// Which masks a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Maskable {
    /// All bits or none.
    Exact,
    /// Any.
    Any,
}

/// Whether actions may set a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// They may not.
    Ro,
    /// They may.
    Rw,
}

/// A field's prerequisite in a match. Each includes its own prerequisites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchPrerequisite {
    /// Nothing.
    None,
    /// An Ethernet packet: `packet_type` is (0,0) or absent.
    Ethernet,
    /// A VLAN tag: `vlan_tci=0x1000/0x1000`, and perhaps more.
    VlanVid,
    /// ARP or RARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6.
    Ip,
    /// MPLS, unicast or multicast.
    Mpls,
    /// A provider backbone bridge's service tag (EtherType 0x88e7).
    Pbb,
    /// A network service header (EtherType 0x894f).
    Nsh,
    /// TCP, and no later fragment.
    Tcp,
    /// UDP, and no later fragment.
    Udp,
    /// SCTP, and no later fragment.
    Sctp,
    /// ICMP.
    Icmpv4,
    /// ICMPv6.
    Icmpv6,
    /// A neighbour solicitation or advertisement.
    Nd,
    /// A neighbour solicitation.
    NdSolicit,
    /// A neighbour advertisement.
    NdAdvert,
    /// IP, and a connection that is tracked and not invalid.
    Ct,
    /// As `Ct`, of IPv4.
    CtIpv4,
    /// As `Ct`, of IPv6.
    CtIpv6,
    /// As `Ct`, and `ct_nw_proto` is TCP, UDP or SCTP.
    CtPorts,
}

/// Where a field's bits are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Home {
    /// In a field of the datapath's key, from this bit up.
    Key {
        /// The field of the key.
        field: Field,
        /// The lowest bit.
        shift: u8,
    },
    /// In a word of metadata, from this bit up; a value wider than 64 bits has its high bits in the
    /// word before.
    Meta {
        /// The word.
        word: u8,
        /// The lowest bit.
        shift: u8,
    },
    /// Given by the map of tunnel options, among the options of a state.
    Elsewhere,
}

/// The identifier of a field in NXM and OXM headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OxmId {
    /// The class, of Nicira's match called vendor.
    pub class: OxmClass,
    /// The number in its class, 0 to 127.
    pub number: u8,
    /// The first protocol version that has it, as in message headers (3 is OpenFlow 1.2); 0 for
    /// extensions, which any may have.
    pub since: u8,
    /// Its name without the class's prefix.
    suffix: &'static str,
}

impl fmt::Display for OxmId {
    /// The full name, as in `NXM_OF_ETH_SRC`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.class.prefix(), self.suffix)
    }
}

/// A class of identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OxmClass {
    /// 0x0000: OpenFlow 1.0's fields in Nicira's match.
    Nxm0,
    /// 0x0001: Nicira's extensions.
    Nxm1,
    /// 0x1000: extensions of Ericsson.
    Ericsson,
    /// 0x8000: OpenFlow's fields.
    OpenFlowBasic,
    /// 0x8001: OpenFlow's packet registers.
    PacketRegisters,
    /// 0xffff with experimenter 0x4f4e4600: extensions of the Open Networking Foundation.
    Onf,
    /// 0xffff with experimenter 0x00002320: more of Nicira's extensions.
    Nicira,
    /// 0xffff with experimenter 0x005ad650: network service headers.
    Nsh,
}

impl OxmClass {
    /// All classes.
    pub const ALL: [OxmClass; 8] = [
        OxmClass::Nxm0,
        OxmClass::Nxm1,
        OxmClass::Ericsson,
        OxmClass::OpenFlowBasic,
        OxmClass::PacketRegisters,
        OxmClass::Onf,
        OxmClass::Nicira,
        OxmClass::Nsh,
    ];

    /// The number of the class, and of its experimenter if it has one.
    pub const fn numbers(self) -> (u16, Option<u32>) {
        match self {
            OxmClass::Nxm0 => (0x0000, None),
            OxmClass::Nxm1 => (0x0001, None),
            OxmClass::Ericsson => (0x1000, None),
            OxmClass::OpenFlowBasic => (0x8000, None),
            OxmClass::PacketRegisters => (0x8001, None),
            OxmClass::Onf => (0xffff, Some(0x4f4e_4600)),
            OxmClass::Nicira => (0xffff, Some(0x0000_2320)),
            OxmClass::Nsh => (0xffff, Some(0x005a_d650)),
        }
    }

    /// The class with these numbers.
    pub fn from_numbers(class: u16, experimenter: Option<u32>) -> Option<OxmClass> {
        OxmClass::ALL.into_iter().find(|c| c.numbers() == (class, experimenter))
    }

    /// Prefix of its fields' names.
    pub const fn prefix(self) -> &'static str {
        match self {
            OxmClass::Nxm0 => "NXM_OF_",
            OxmClass::Nxm1 => "NXM_NX_",
            OxmClass::Ericsson => "ERICOXM_OF_",
            OxmClass::OpenFlowBasic | OxmClass::PacketRegisters => "OXM_OF_",
            OxmClass::Onf => "ONFOXM_ET_",
            OxmClass::Nicira => "NXOXM_ET_",
            OxmClass::Nsh => "NXOXM_NSH_",
        }
    }
}

impl MatchField {
    /// The name of `ovs-fields(7)`.
    pub const fn name(self) -> &'static str {
        self.info().names[0]
    }

    /// The width of a value in a message, in bytes.
    pub const fn bytes(self) -> usize {
        self.info().bits as usize / 8
    }

    /// Number of low bits of a value that may be set.
    pub const fn significant_bits(self) -> u32 {
        if self.info().bits > 128 {
            self.info().bits as u32
        } else {
            128 - self.info().valid.leading_zeros()
        }
    }

    /// Number of low bits of a value that can be named one by one, as in `reg0[3..5]`. As in Open
    /// vSwitch, a VLAN's number is 12 bits without the bit of its presence, and the state of a
    /// connection has room for flags to come.
    pub const fn part_bits(self) -> u32 {
        match self {
            MatchField::VlanVid => 12,
            MatchField::CtState => 32,
            _ => self.significant_bits(),
        }
    }

    /// Whether actions may set it.
    pub const fn writable(self) -> bool {
        matches!(self.info().access, Access::Rw)
    }

    /// The field with a name, or with an identifier's full name.
    pub fn from_name(name: &str) -> Option<MatchField> {
        static NAMES: OnceLock<HashMap<String, MatchField>> = OnceLock::new();
        let names = NAMES.get_or_init(|| {
            let own = |f: &MatchField| f.info().names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
            let ids = |f: &MatchField| f.info().ids.iter().map(OxmId::to_string).collect::<Vec<_>>();
            let all = MatchField::ALL.iter();
            all.flat_map(|f| own(f).into_iter().chain(ids(f)).map(move |name| (name, *f)))
                .collect()
        });
        names.get(name).copied()
    }

    /// The field with an identifier.
    pub fn from_id(class: OxmClass, number: u8) -> Option<MatchField> {
        static IDS: OnceLock<HashMap<(OxmClass, u8), MatchField>> = OnceLock::new();
        let ids = IDS.get_or_init(|| {
            let all = MatchField::ALL.iter();
            all.flat_map(|f| f.info().ids.iter().map(move |id| ((id.class, id.number), *f)))
                .collect()
        });
        ids.get(&(class, number)).copied()
    }

    /// The identifier to use in messages of a protocol version (as in message headers; 1 is
    /// OpenFlow 1.0): the newest that the version has, else the oldest there is. `None` where the
    /// field has no identifier.
    pub fn id(self, version: u8) -> Option<&'static OxmId> {
        let ids = self.info().ids;
        ids.iter().rev().find(|id| id.since <= version).or(ids.first())
    }

    /// The tunnel metadata field with a number, 0 to 63.
    pub fn tun_metadata(number: u8) -> Option<MatchField> {
        (number < 64).then(|| MatchField::ALL[MatchField::TunMetadata0 as usize + usize::from(number)])
    }

    /// The register with a number, 0 to 15.
    pub fn reg(number: u8) -> Option<MatchField> {
        (number < 16).then(|| MatchField::ALL[MatchField::Reg0 as usize + usize::from(number)])
    }
}

impl fmt::Display for MatchField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::META_WORDS;

    #[test]
    fn every_name_and_every_identifier_means_one_field() {
        let mut names = 0;
        let mut ids = 0;
        for field in MatchField::ALL {
            for name in field.info().names {
                assert_eq!(MatchField::from_name(name), Some(*field), "{name}");
                names += 1;
            }
            for id in field.info().ids {
                assert_eq!(MatchField::from_id(id.class, id.number), Some(*field), "{id}");
                assert_eq!(MatchField::from_name(&id.to_string()), Some(*field), "{id}");
                ids += 1;
            }
        }
        assert!(names > 190 && ids > 200, "{names} {ids}");
        assert_eq!(MatchField::from_name("NXM_OF_ETH_SRC"), Some(MatchField::EthSrc));
        assert_eq!(MatchField::from_name("no_such_field"), None);
    }

    #[test]
    fn a_version_uses_its_own_identifier_where_it_has_one() {
        let name = |field: MatchField, version| field.id(version).map(OxmId::to_string);
        assert_eq!(name(MatchField::EthSrc, 1).as_deref(), Some("NXM_OF_ETH_SRC"));
        assert_eq!(name(MatchField::EthSrc, 4).as_deref(), Some("OXM_OF_ETH_SRC"));
        assert_eq!(name(MatchField::TunId, 3).as_deref(), Some("NXM_NX_TUN_ID"));
        assert_eq!(name(MatchField::TunId, 4).as_deref(), Some("OXM_OF_TUNNEL_ID"));
        assert_eq!(name(MatchField::TcpFlags, 4).as_deref(), Some("ONFOXM_ET_TCP_FLAGS"));
        assert_eq!(name(MatchField::TcpFlags, 6).as_deref(), Some("OXM_OF_TCP_FLAGS"));
        assert_eq!(name(MatchField::MplsLabel, 1).as_deref(), Some("OXM_OF_MPLS_LABEL"));
        assert_eq!(name(MatchField::DlVlan, 4), None);
    }

    #[test]
    fn the_bits_of_a_value_fit_its_width_and_its_home() {
        for field in MatchField::ALL {
            let info = field.info();
            assert_eq!(info.bits % 8, 0);
            match info.home {
                Home::Key { field: home, shift } => {
                    assert!(field.significant_bits() <= u32::from(info.bits));
                    assert_eq!((info.valid << shift) & !home.max_value(), 0, "{field}");
                }
                Home::Meta { word, shift } => {
                    assert!(field.significant_bits() <= u32::from(info.bits));
                    assert!(usize::from(word) < META_WORDS, "{field}");
                    if field.significant_bits() > 64 {
                        assert!(word > 0 && shift == 0, "{field}");
                    } else if *field != MatchField::InPort {
                        assert!(field.significant_bits() + u32::from(shift) <= 64, "{field}");
                    }
                }
                Home::Elsewhere => assert!(info.bits > 128),
            }
        }
    }

    #[test]
    fn numbered_fields_are_in_the_order_of_their_numbers() {
        assert_eq!(MatchField::reg(15), Some(MatchField::Reg15));
        assert_eq!(MatchField::reg(16), None);
        assert_eq!(MatchField::tun_metadata(63), Some(MatchField::TunMetadata63));
        assert_eq!(MatchField::tun_metadata(64), None);
    }
}
