//! Reading matches.

use super::lex::{Pairs, integer};
use super::{Names, TextError, field, subfield};
use crate::model::{Match, Value};
use flow::{Home, MatchField};

/// Reads a match: conditions on fields, and names of protocols. Conditions whose prerequisites the match does not say are left out.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_match(text: &str, names: &dyn Names) -> Result<Match, TextError> {
    let mut builder = Builder::default();
    for (key, value) in Pairs(text) {
        if !builder.add(key, value, names)? {
            return Err(match value {
                "" => TextError::MissingValue(key.to_string()),
                _ => TextError::UnknownKeyword(key.to_string()),
            });
        }
    }
    Ok(builder.finish())
}

/// Names of protocols, with their Ethernet type and, if they have one, IP protocol.
pub(super) const PROTOCOLS: [(&str, u128, Option<u128>); 17] = [
    ("ip", 0x800, None),
    ("ipv4", 0x800, None),
    ("ip4", 0x800, None),
    ("arp", 0x806, None),
    ("icmp", 0x800, Some(1)),
    ("tcp", 0x800, Some(6)),
    ("udp", 0x800, Some(17)),
    ("sctp", 0x800, Some(132)),
    ("ipv6", 0x86dd, None),
    ("ip6", 0x86dd, None),
    ("icmp6", 0x86dd, Some(58)),
    ("tcp6", 0x86dd, Some(6)),
    ("udp6", 0x86dd, Some(17)),
    ("sctp6", 0x86dd, Some(132)),
    ("rarp", 0x8035, None),
    ("mpls", 0x8847, None),
    ("mplsm", 0x8848, None),
];

/// Fields that text writes by the same names whatever the protocol: the last that was said counts, for the field that the protocol has.
const SHARED: [&[MatchField]; 5] = {
    use MatchField as F;
    [
        &[F::IpSrc, F::ArpSpa],
        &[F::IpDst, F::ArpTpa],
        &[F::NwProto, F::ArpOp],
        &[F::TcpSrc, F::UdpSrc, F::SctpSrc, F::IcmpType, F::Icmpv6Type],
        &[F::TcpDst, F::UdpDst, F::SctpDst, F::IcmpCode, F::Icmpv6Code],
    ]
};

/// A match in the making.
#[derive(Default)]
pub(super) struct Builder {
    matching: Match,
}

impl Builder {
    /// Adds a part of the text; false where it is nothing of a match.
    pub(super) fn add(&mut self, key: &str, value: &str, names: &dyn Names) -> Result<bool, TextError> {
        if let Some((_, eth_type, protocol)) = PROTOCOLS.iter().find(|(name, ..)| *name == key) {
            self.set(MatchField::EthType, *eth_type, u128::MAX);
            if let Some(protocol) = protocol {
                self.set(MatchField::NwProto, *protocol, u128::MAX);
            }
            return Ok(true);
        }
        if key == "eth" {
            self.set(MatchField::PacketType, 0, u128::MAX);
            return Ok(true);
        }
        if let Some(field) = by_name(key) {
            self.add_field(field, value, names)?;
            return Ok(true);
        }
        if key.contains('[') {
            self.add_bits(key, value)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn add_field(&mut self, field: MatchField, text: &str, names: &dyn Names) -> Result<(), TextError> {
        let text = if text.is_empty() { "0/0" } else { text };
        let (value, mask) = field::parse(field, text, names)?;
        if let Value::Wide(value) = value {
            let number = field as u8 - MatchField::TunMetadata0 as u8;
            let mask = match &mask {
                Some(Value::Wide(mask)) => Some(&mask[..]),
                _ => None,
            };
            self.matching.clear_tun_metadata(number);
            // The widths are the parser's own, so that nothing is left to refuse.
            let _ = self.matching.add_tun_metadata(number, &value, mask);
            return Ok(());
        }
        let mask = mask.map_or(u128::MAX, |m| m.low());
        match (field, value.low()) {
            (MatchField::DlVlan, 0xffff) if mask != 0 => self.matching.set(MatchField::VlanTci, 0, 0xffff),
            (_, value) => self.set(field, value, mask),
        }
        Ok(())
    }

    /// A condition on some bits of a field.
    fn add_bits(&mut self, key: &str, text: &str) -> Result<(), TextError> {
        let part = subfield::parse(key)?;
        let valid = field::parse(part.field(), text, &super::NoNames);
        let number = match integer(text) {
            Some(bytes) if bytes.len() <= 16 => bytes.iter().fold(0, |n, b| n << 8 | u128::from(*b)),
            _ => valid?.0.low(),
        };
        let bits = u32::from(part.n_bits());
        if part.field().info().home == Home::Elsewhere || bits > 128 {
            return Err(TextError::UnknownKeyword(key.to_string()));
        }
        if bits < 128 && number >> bits != 0 {
            return Err(does_not_fit(key, number, bits));
        }
        let mask = (u128::MAX >> (128 - bits)) << part.ofs();
        let (old, old_mask) = self.matching.get(part.field()).unwrap_or((0, 0));
        let value = old & !mask | number << part.ofs();
        self.set(part.field(), value, old_mask | mask);
        Ok(())
    }

    fn set(&mut self, field: MatchField, value: u128, mask: u128) {
        if let Some(group) = SHARED.iter().find(|group| group.contains(&field)) {
            group.iter().for_each(|f| self.matching.clear(*f));
        }
        let mask = mask & field.info().valid;
        self.matching.set(field, value & mask, mask);
    }

    /// The match: conditions moved to the protocol that the match is about, and those without prerequisite left out.
    pub(super) fn finish(self) -> Match {
        let mut matching = self.matching;
        for group in SHARED {
            let Some(from) = group.iter().find(|f| matching.get(**f).is_some()) else {
                continue;
            };
            let Some((value, mask)) = matching.get(*from) else {
                continue;
            };
            let meant = group.iter().find(|f| matching.meets(f.info().prerequisite));
            matching.clear(*from);
            if let Some(to) = meant {
                let mask = mask & to.info().valid;
                matching.set(*to, value & mask, mask);
            }
        }
        if matching.exact(MatchField::PacketType) == Some(0) {
            // Every packet that enters is a frame, so this says nothing.
            matching.clear(MatchField::PacketType);
        }
        matching.normalized()
    }
}

/// The field that a flow's text calls so. Identifiers' names are no names here, except in ranges of bits.
pub(super) fn by_name(name: &str) -> Option<MatchField> {
    match name {
        "gtpu_flags" => Some(MatchField::TunGtpuFlags),
        "gtpu_msgtype" => Some(MatchField::TunGtpuMsgtype),
        _ => MatchField::from_name(name).filter(|f| f.info().names.contains(&name)),
    }
}

/// The error for a number that is too large for some bits.
pub(super) fn does_not_fit(text: &str, number: u128, bits: u32) -> TextError {
    TextError::Bits {
        text: text.to_string(),
        what: format!("value {number:#x} does not fit into {bits} bits"),
    }
}
