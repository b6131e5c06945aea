//! Reading flows in the syntax of `ovs-dpctl dump-flows`: the other way of
//! [`Masked`](crate::Masked).

use crate::display::TCP_FLAGS;
use crate::field::Field;
use crate::key::{Key, TAG_PRESENT};
use crate::mask::Mask;
use crate::meta::PortNo;
use crate::recirc::RecircId;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::MacAddr;
use wire::headers::Frag;

/// Tags that a key has.
const TAGS: [(Field, Field); 2] = [(Field::VlanTpid0, Field::VlanTci0), (Field::VlanTpid1, Field::VlanTci1)];

/// A parse error, and the part of the text with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OdpError {
    /// The part that could not be read.
    pub part: String,
    /// Why.
    pub why: &'static str,
}

impl fmt::Display for OdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.part, self.why)
    }
}

impl std::error::Error for OdpError {}

/// Parses a flow:
/// `in_port(1),eth(src=02:00:00:00:00:01),eth_type(0x0800),ipv4(src=10.0.0.0/255.0.0.0)`. Returns
/// the values and the mask; a value without a mask is exact. `port` returns a port's number by its
/// name.
///
/// # Errors
/// [`OdpError`] for a part that is unknown, has an invalid value, or is not supported.
pub fn parse_odp(text: &str, port: &dyn Fn(&str) -> Option<PortNo>) -> Result<(Key, Mask), OdpError> {
    let mut reader = Reader {
        key: Key::ZERO,
        mask: Mask::EMPTY,
        hash: None,
        port,
    };
    reader.layer(text.trim(), 0)?;
    if let Some((hash, bits)) = reader.hash {
        let number = reader.key.get(Field::RecircId) as u32;
        if !(1..=RecircId::MAX_HASHED).contains(&number) {
            return error("dp_hash", "no packet without a recirculation has it");
        }
        let id = RecircId::hashed(number).with_hash(hash & bits);
        reader.key.set(Field::RecircId, id.0.into());
        let mut words = *reader.mask.words();
        let unread = u64::from(RecircId::HASH_BITS & !u32::from(bits));
        words[Field::RecircId.word()] &= !(unread << Field::RecircId.info().shift);
        reader.mask = Mask::from_words(&words);
    }
    Ok((reader.key, reader.mask))
}

struct Reader<'a> {
    key: Key,
    mask: Mask,
    /// The hash that the recirculation id carries, and its bits that count.
    hash: Option<(u8, u8)>,
    port: &'a dyn Fn(&str) -> Option<PortNo>,
}

fn error<T>(part: &str, why: &'static str) -> Result<T, OdpError> {
    Err(OdpError {
        part: part.to_owned(),
        why,
    })
}

/// The parts between commas that are in no parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let outside = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    };
    let all = text.split(outside).map(str::trim);
    all.filter(|part| !part.is_empty()).collect()
}

impl Reader<'_> {
    /// The parts of a flow behind `depth` tags.
    fn layer(&mut self, text: &str, depth: usize) -> Result<(), OdpError> {
        let parts: Vec<_> = parts(text)
            .into_iter()
            .filter(|part| !part.starts_with("ufid:"))
            .map(
                |part| match part.strip_suffix(')').and_then(|part| part.split_once('(')) {
                    Some((name, body)) => Ok((part, name, body)),
                    None => error(part, "is not of the form name(value)"),
                },
            )
            .collect::<Result<_, _>>()?;
        let tagged = parts.iter().any(|(_, name, _)| *name == "vlan");
        for (part, name, body) in parts {
            match name {
                "eth_type" if tagged => match TAGS.get(depth) {
                    Some((tpid, _)) => self.number(part, *tpid, body)?,
                    None => return error(part, "has more tags than are looked at"),
                },
                "vlan" => self.vlan(part, body, depth)?,
                "encap" if depth >= TAGS.len() => return error(name, "is nested deeper than tags are looked at"),
                "encap" => self.layer(body, depth + 1)?,
                _ => self.part(part, name, body)?,
            }
        }
        Ok(())
    }

    fn part(&mut self, part: &str, name: &str, body: &str) -> Result<(), OdpError> {
        use Field as F;
        let fields: &[(&str, Field)] = match name {
            "recirc_id" => return self.number(part, F::RecircId, body),
            "skb_priority" => return self.number(part, F::SkbPriority, body),
            "skb_mark" => return self.number(part, F::PktMark, body),
            "eth_type" => return self.number(part, F::EthType, body),
            "in_port" => return self.in_port(part, body),
            "tcp_flags" => return self.tcp_flags(part, body),
            "mpls" => return self.mpls(part, body),
            "tunnel" => return self.tunnel(part, body),
            "packet_type" => return self.packet_type(part, body),
            "ct_state" => return self.flags(part, F::CtState, body, &crate::Connection::STATES),
            "ct_zone" => return self.number(part, F::CtZone, body),
            "ct_mark" => return self.number(part, F::CtMark, body),
            "ct_label" => return self.number(part, F::CtLabel, body),
            "ct_tuple4" => return self.original(part, body, F::CtIpv4Src, F::CtIpv4Dst),
            "ct_tuple6" => return self.original(part, body, F::CtIpv6Src, F::CtIpv6Dst),
            "dp_hash" => return self.hash(part, body),
            "eth" => &[("src", F::EthSrc), ("dst", F::EthDst)],
            "ipv4" => &[
                ("src", F::Ipv4Src),
                ("dst", F::Ipv4Dst),
                ("proto", F::IpProto),
                ("tos", F::IpTos),
                ("ttl", F::IpTtl),
                ("frag", F::IpFrag),
            ],
            "ipv6" => &[
                ("src", F::Ipv6Src),
                ("dst", F::Ipv6Dst),
                ("label", F::Ipv6Label),
                ("proto", F::IpProto),
                ("tclass", F::IpTos),
                ("hlimit", F::IpTtl),
                ("exthdr", F::Ipv6Exthdr),
                ("frag", F::IpFrag),
            ],
            "tcp" | "udp" | "sctp" => &[("src", F::TpSrc), ("dst", F::TpDst)],
            "icmp" | "icmpv6" => &[("type", F::IcmpType), ("code", F::IcmpCode)],
            "arp" => &[
                ("sip", F::ArpSpa),
                ("tip", F::ArpTpa),
                ("op", F::ArpOp),
                ("sha", F::ArpSha),
                ("tha", F::ArpTha),
            ],
            "nd" => &[("target", F::NdTarget), ("sll", F::NdSll), ("tll", F::NdTll)],
            "nd_ext" => &[("nd_reserved", F::NdReserved), ("nd_options_type", F::NdOptionsType)],
            "pbb" => &[("isid", F::PbbIsid), ("uca", F::PbbUca)],
            "nsh" => &[
                ("flags", F::NshFlags),
                ("ttl", F::NshTtl),
                ("mdtype", F::NshMdtype),
                ("np", F::NshNp),
                ("spi", F::NshSpi),
                ("si", F::NshSi),
                ("c1", F::NshC1),
                ("c2", F::NshC2),
                ("c3", F::NshC3),
                ("c4", F::NshC4),
            ],
            _ => return error(part, "is not known, or no packet here has it"),
        };
        self.items(part, body, fields)
    }

    /// The last bits of a hash, or none of it.
    fn hash(&mut self, part: &str, body: &str) -> Result<(), OdpError> {
        let (value, mask) = body.split_once('/').unwrap_or((body, "0xffffffff"));
        match (integer(value), integer(mask)) {
            (Some(0), _) if mask == "0xffffffff" => Ok(()),
            (Some(_), Some(0)) => Ok(()),
            (Some(value), Some(mask)) => {
                self.hash = Some((value as u8, mask as u8));
                Ok(())
            }
            _ => error(part, "has a value that it cannot have"),
        }
    }

    /// `ns=1,id=0x800`. Ethernet goes without saying.
    fn packet_type(&mut self, part: &str, body: &str) -> Result<(), OdpError> {
        let kind = match parts(body)[..] {
            [ns, id] => ns.strip_prefix("ns=").zip(id.strip_prefix("id=")),
            _ => None,
        };
        let kind = kind.and_then(|(ns, id)| integer(ns).zip(integer(id)));
        match kind {
            Some((0, 0)) => Ok(()),
            // The only types that packets have.
            Some((1, kind @ 1..=0xffff)) => {
                self.set(Field::PacketType, 1 << 16 | kind, u32::MAX.into());
                Ok(())
            }
            _ => error(part, "has a value that it cannot have"),
        }
    }

    /// `src=10.0.0.1,dst=10.0.0.2,proto=6,tp_src=1,tp_dst=2` of a connection.
    fn original(&mut self, part: &str, body: &str, src: Field, dst: Field) -> Result<(), OdpError> {
        let ports = [
            ("proto", Field::CtProto),
            ("tp_src", Field::CtTpSrc),
            ("tp_dst", Field::CtTpDst),
        ];
        self.items(part, body, &[&[("src", src), ("dst", dst)], &ports[..]].concat())
    }

    /// `name=value,name=value/mask`.
    fn items(&mut self, part: &str, body: &str, fields: &[(&str, Field)]) -> Result<(), OdpError> {
        for item in parts(body) {
            let Some((name, value)) = item.split_once('=') else {
                return error(part, "has a value without a name");
            };
            match fields.iter().find(|(other, _)| *other == name) {
                Some((_, field)) => self.number(part, *field, value)?,
                None => return error(part, "has no value of this name"),
            }
        }
        Ok(())
    }

    /// `value` or `value/mask`.
    fn number(&mut self, part: &str, field: Field, text: &str) -> Result<(), OdpError> {
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (value, Some(mask)),
            None => (text, None),
        };
        let value = value_of(field, value);
        let mask = match mask {
            Some(mask) => mask_of(field, mask),
            None => Some(field.max_value()),
        };
        match (value, mask) {
            (Some(value), Some(mask)) if value <= field.max_value() && mask <= field.max_value() => {
                self.set(field, value, mask);
                Ok(())
            }
            _ => error(part, "has a value that it cannot have"),
        }
    }

    fn set(&mut self, field: Field, value: u128, mask: u128) {
        self.key.set(field, value);
        self.mask.add_bits(field, mask);
    }

    fn in_port(&mut self, part: &str, body: &str) -> Result<(), OdpError> {
        let number = body.parse().ok().map(PortNo);
        match number.or_else(|| (self.port)(body)) {
            Some(port) => {
                self.set(Field::InPort, port.0.into(), u32::MAX.into());
                Ok(())
            }
            None => error(part, "there is no such port"),
        }
    }

    fn vlan(&mut self, part: &str, body: &str, depth: usize) -> Result<(), OdpError> {
        let Some((_, field)) = TAGS.get(depth) else {
            return error(part, "has more tags than are looked at");
        };
        let (mut value, mut mask) = (u128::from(TAG_PRESENT), u128::from(TAG_PRESENT));
        for item in parts(body) {
            let (name, number) = item.split_once('=').unwrap_or((item, ""));
            let (number, bits) = number.split_once('/').unwrap_or((number, "0xfff"));
            let (shift, width) = match name {
                "vid" => (0, 0xfff),
                "pcp" => (13, 7),
                "cfi" if number == "1" => continue,
                _ => return error(part, "has a value that it cannot have"),
            };
            match (integer(number), integer(bits)) {
                (Some(number), Some(bits)) if number <= width => {
                    value |= number << shift;
                    mask |= (bits & width) << shift;
                }
                _ => return error(part, "has a value that it cannot have"),
            }
        }
        self.set(*field, value, mask);
        Ok(())
    }

    /// `tun_id=0x7,src=10.0.0.1,dst=10.0.0.2,ttl=64,vxlan(gbp(id=1,flags=0x8)),flags(-df+key)`.
    fn tunnel(&mut self, part: &str, body: &str) -> Result<(), OdpError> {
        use Field as F;
        for item in parts(body) {
            let nested = item.strip_suffix(')').and_then(|item| item.split_once('('));
            if let Some((name, body)) = nested {
                let fields: &[(&str, Field)] = match name {
                    "flags" => {
                        self.flags(part, F::TunFlags, body, &crate::Tunnel::FLAGS)?;
                        continue;
                    }
                    "vxlan" => {
                        let gbp = body.strip_prefix("gbp(").and_then(|body| body.strip_suffix(')'));
                        match gbp {
                            Some(gbp) => self.items(part, gbp, &[("id", F::TunGbpId), ("flags", F::TunGbpFlags)])?,
                            None => return error(part, "has a value that it cannot have"),
                        }
                        continue;
                    }
                    "geneve" => &[("hash", F::TunOptions)],
                    "erspan" => &[
                        ("ver", F::TunErspanVer),
                        ("idx", F::TunErspanIdx),
                        ("dir", F::TunErspanDir),
                        ("hwid", F::TunErspanHwid),
                    ],
                    "gtpu" => &[("flags", F::TunGtpuFlags), ("msgtype", F::TunGtpuMsgtype)],
                    _ => return error(part, "has no value of this name"),
                };
                self.items(part, body, fields)?;
                continue;
            }
            let fields = [
                ("tun_id", F::TunId),
                ("src", F::TunSrc),
                ("dst", F::TunDst),
                ("ipv6_src", F::TunIpv6Src),
                ("ipv6_dst", F::TunIpv6Dst),
                ("tos", F::TunTos),
                ("ttl", F::TunTtl),
            ];
            self.items(part, item, &fields)?;
        }
        Ok(())
    }

    fn mpls(&mut self, part: &str, body: &str) -> Result<(), OdpError> {
        let mut entries = [Field::MplsLse0, Field::MplsLse1, Field::MplsLse2].into_iter();
        let mut entry = None;
        for item in parts(body) {
            let (name, number) = item.split_once('=').unwrap_or((item, ""));
            let (number, bits) = match number.split_once('/') {
                // The masks of the short ones are written without a prefix.
                Some((number, bits)) => (number, u128::from_str_radix(bits.trim_start_matches("0x"), 16).ok()),
                None => (number, Some(u128::MAX)),
            };
            let (shift, width) = match name {
                "label" => (12, 0xf_ffff),
                "tc" => (9, 7),
                "ttl" => (0, 0xff),
                "bos" => (8, 1),
                _ => return error(part, "has a value that it cannot have"),
            };
            if name == "label" {
                entry = entries.next();
            }
            match (integer(number), bits, entry) {
                (Some(number), Some(bits), Some(field)) if number <= width => {
                    let value = self.key.get(field) | number << shift;
                    self.set(field, value, (bits & width) << shift);
                }
                _ => return error(part, "has a value that it cannot have"),
            }
        }
        Ok(())
    }

    /// `0x2/0x12`, `+syn-ack`, `syn|ack` or `0`.
    fn tcp_flags(&mut self, part: &str, body: &str) -> Result<(), OdpError> {
        let names: [(&str, u16); TCP_FLAGS.len()] = std::array::from_fn(|bit| (TCP_FLAGS[bit], 1 << bit));
        self.flags(part, Field::TcpFlags, body, &names)
    }

    /// Flags with names: a number, `+name-name`, or `name|name`.
    fn flags(&mut self, part: &str, field: Field, body: &str, names: &[(&str, u16)]) -> Result<(), OdpError> {
        let bit = |name: &str| {
            let found = names.iter().find(|(other, _)| *other == name);
            found.map(|(_, bit)| u128::from(*bit))
        };
        if body.starts_with(|c: char| c.is_ascii_digit()) {
            return self.number(part, field, body);
        }
        let (mut value, mut mask) = (0, 0);
        if body.starts_with(['+', '-']) {
            let ends = body.match_indices(['+', '-']).map(|(at, _)| at);
            let ends: Vec<usize> = ends.chain([body.len()]).collect();
            for range in ends.windows(2) {
                let Some(bit) = bit(&body[range[0] + 1..range[1]]) else {
                    return error(part, "has a flag that is not known");
                };
                mask |= bit;
                value |= if body[range[0]..].starts_with('+') { bit } else { 0 };
            }
        } else {
            mask = field.max_value();
            for name in body.split('|').filter(|name| !name.is_empty()) {
                match bit(name) {
                    Some(bit) => value |= bit,
                    None => return error(part, "has a flag that is not known"),
                }
            }
        }
        self.set(field, value, mask);
        Ok(())
    }
}

fn value_of(field: Field, text: &str) -> Option<u128> {
    use Field as F;
    match field {
        F::EthSrc | F::EthDst | F::ArpSha | F::ArpTha | F::NdSll | F::NdTll => {
            text.parse().ok().map(|mac: MacAddr| mac.to_u64().into())
        }
        F::Ipv4Src | F::Ipv4Dst | F::ArpSpa | F::ArpTpa | F::TunSrc | F::TunDst | F::CtIpv4Src | F::CtIpv4Dst => {
            text.parse().ok().map(|ip: Ipv4Addr| ip.to_bits().into())
        }
        F::Ipv6Src | F::Ipv6Dst | F::NdTarget | F::TunIpv6Src | F::TunIpv6Dst | F::CtIpv6Src | F::CtIpv6Dst => {
            text.parse().ok().map(|ip: Ipv6Addr| ip.to_bits())
        }
        F::IpFrag => match text {
            "no" => Some(Frag::No as u128),
            "first" => Some(Frag::First as u128),
            "later" => Some(Frag::Later as u128),
            _ => None,
        },
        _ => integer(text),
    }
}

/// A mask, or the length of a prefix.
fn mask_of(field: Field, text: &str) -> Option<u128> {
    use Field as F;
    let prefix = |width: u32| {
        let len: u32 = text.parse().ok()?;
        (len <= width).then(|| u128::MAX.checked_shl(width - len).unwrap_or(0) & field.max_value())
    };
    match field {
        F::IpFrag => None,
        F::Ipv4Src | F::Ipv4Dst | F::ArpSpa | F::ArpTpa | F::CtIpv4Src | F::CtIpv4Dst if !text.contains('.') => {
            prefix(32)
        }
        F::Ipv6Src | F::Ipv6Dst | F::NdTarget | F::CtIpv6Src | F::CtIpv6Dst if !text.contains(':') => prefix(128),
        _ => value_of(field, text),
    }
}

/// A decimal number, or a hexadecimal one with `0x` before it.
fn integer(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
#[path = "odp_tests.rs"]
mod tests;
