//! Flow formats: the messages and versions that can carry a flow.

use super::ParseError;
use super::field::prefix;
use crate::Version;
use flow::{Maskable, MatchField as F};
use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr};

/// A set of flow formats, which `ovs-ofctl` calls protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Protocols(u16);

impl Protocols {
    /// None.
    pub const NONE: Protocols = Protocols(0);
    /// OpenFlow 1.0 with its own match; the switch chooses the table.
    pub const OF10: Protocols = Protocols(1);
    /// The same with Nicira's number of the table.
    pub const OF10_TABLE: Protocols = Protocols(2);
    /// OpenFlow 1.0 with Nicira's match; the switch chooses the table.
    pub const NXM: Protocols = Protocols(4);
    /// The same with Nicira's number of the table.
    pub const NXM_TABLE: Protocols = Protocols(8);
    /// OpenFlow 1.1.
    pub const OF11: Protocols = Protocols(16);
    /// OpenFlow 1.2.
    pub const OF12: Protocols = Protocols(32);
    /// OpenFlow 1.3.
    pub const OF13: Protocols = Protocols(64);
    /// OpenFlow 1.4.
    pub const OF14: Protocols = Protocols(128);
    /// OpenFlow 1.5.
    pub const OF15: Protocols = Protocols(256);
    /// OpenFlow 1.0's own match.
    pub const OF10_ANY: Protocols = Protocols(3);
    /// Nicira's match.
    pub const NXM_ANY: Protocols = Protocols(12);
    /// OpenFlow's extensible match: 1.2 and later.
    pub const OXM_ANY: Protocols = Protocols(0x1e0);
    /// All.
    pub const ANY: Protocols = Protocols(0x1ff);
    /// All that say the table.
    pub const TABLE: Protocols = Protocols(0x1fa);

    /// Names of sets, then of each.
    const NAMES: [(Protocols, &str); 13] = [
        (Protocols::ANY, "any"),
        (Protocols::OF10_ANY, "OpenFlow10"),
        (Protocols::NXM_ANY, "NXM"),
        (Protocols::OXM_ANY, "OXM"),
        (Protocols::OF10, "OpenFlow10-table_id"),
        (Protocols::OF10_TABLE, "OpenFlow10+table_id"),
        (Protocols::NXM, "NXM-table_id"),
        (Protocols::NXM_TABLE, "NXM+table_id"),
        (Protocols::OF11, "OpenFlow11"),
        (Protocols::OF12, "OXM-OpenFlow12"),
        (Protocols::OF13, "OXM-OpenFlow13"),
        (Protocols::OF14, "OXM-OpenFlow14"),
        (Protocols::OF15, "OXM-OpenFlow15"),
    ];

    /// All formats of a version.
    pub const fn of(version: Version) -> Protocols {
        match version {
            Version::V10 => Protocols(15),
            Version::V11 => Protocols::OF11,
            Version::V12 => Protocols::OF12,
            Version::V13 => Protocols::OF13,
            Version::V14 => Protocols::OF14,
            Version::V15 => Protocols::OF15,
        }
    }

    /// All formats of a version and those after it.
    pub fn since(version: Version) -> Protocols {
        let later = Version::ALL.into_iter().filter(|v| *v >= version);
        later.fold(Protocols::NONE, |set, version| set | Protocols::of(version))
    }

    /// Those that have the metadata register, and arbitrary masks of addresses.
    pub(super) const METADATA: Protocols = Protocols(0x1fc);
    /// Those that have extensible matches.
    pub(super) const EXTENSIBLE: Protocols = Protocols(0x1ec);
    /// OpenFlow 1.0's, whose actions have no prerequisites.
    pub(super) const LENIENT: Protocols = Protocols(15);

    /// The formats that can match a field: all its bits, or those of a mask.
    pub(super) fn matching(field: F, mask: Option<u128>) -> Protocols {
        let valid = field.info().valid;
        let mask = mask.filter(|m| m & valid != valid);
        if field.info().maskable == Maskable::Exact && mask.is_some() {
            return Protocols::NONE;
        }
        match field {
            // No message has these.
            F::SkbPriority | F::TunTos | F::TunTtl => Protocols::NONE,
            F::PbbIsid | F::Ipv6Exthdr => Protocols::since(Version::V13),
            F::PbbUca => Protocols::since(Version::V14),
            F::InPort | F::EthType | F::DlVlan | F::DlVlanPcp | F::VlanPcp => Protocols::ANY,
            F::NwProto | F::NwTos | F::IpDscp | F::ArpOp | F::IcmpType | F::IcmpCode => Protocols::ANY,
            F::VlanVid | F::VlanTci | F::TcpSrc | F::TcpDst | F::UdpSrc | F::UdpDst => match mask {
                None => Protocols::ANY,
                Some(_) => Protocols::EXTENSIBLE,
            },
            F::EthSrc | F::EthDst if mask.is_none() => Protocols::ANY,
            F::IpSrc | F::IpDst | F::ArpSpa | F::ArpTpa if mask.is_none_or(|m| prefix(m, 32).is_some()) => {
                Protocols::ANY
            }
            F::EthSrc | F::EthDst | F::IpSrc | F::IpDst | F::ArpSpa | F::ArpTpa => Protocols::METADATA,
            F::SctpSrc | F::SctpDst if mask.is_some() => Protocols::EXTENSIBLE,
            F::InPortOxm | F::Metadata | F::NwEcn | F::SctpSrc | F::SctpDst | F::MplsLabel | F::MplsTc => {
                Protocols::METADATA
            }
            _ => Protocols::EXTENSIBLE,
        }
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains all of `other`.
    pub const fn has(self, other: Protocols) -> bool {
        self.0 & other.0 == other.0
    }

    /// Each format in it, from the oldest.
    pub fn iter(self) -> impl Iterator<Item = Protocols> {
        (0..9).map(|bit| Protocols(1 << bit)).filter(move |p| self.has(*p))
    }

    /// The version of OpenFlow that a set's oldest format belongs to.
    pub fn version(self) -> Option<Version> {
        let first = self.iter().next()?;
        Version::ALL.into_iter().find(|v| Protocols::of(*v).has(first))
    }
}

impl BitAnd for Protocols {
    type Output = Protocols;

    fn bitand(self, other: Protocols) -> Protocols {
        Protocols(self.0 & other.0)
    }
}

impl BitAndAssign for Protocols {
    fn bitand_assign(&mut self, other: Protocols) {
        self.0 &= other.0;
    }
}

impl BitOr for Protocols {
    type Output = Protocols;

    fn bitor(self, other: Protocols) -> Protocols {
        Protocols(self.0 | other.0)
    }
}

impl fmt::Display for Protocols {
    /// The fewest names for the set, those of more than one format first; `none` for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut left = *self;
        let mut separator = "";
        for (set, name) in Protocols::NAMES {
            if left.has(set) {
                write!(f, "{separator}{name}")?;
                separator = ",";
                left = Protocols(left.0 & !set.0);
            }
        }
        Ok(())
    }
}

/// Reads a list of flow formats, in any case, with commas between.
///
/// # Errors
/// An unknown format, or none at all.
pub fn parse_protocols(text: &str) -> Result<Protocols, ParseError> {
    let mut set = Protocols::NONE;
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let found = Protocols::NAMES
            .iter()
            .find(|(_, name)| name.eq_ignore_ascii_case(word));
        let Some((protocols, _)) = found else {
            return Err(ParseError::new(format!("{word}: unknown flow protocol")));
        };
        set = set | *protocols;
    }
    match set.is_empty() {
        true => Err(ParseError::new(format!("{text}: no flow protocol specified"))),
        false => Ok(set),
    }
}
