//! Values of fields in text.

use super::number::{hex, put_byte, put_decimal, put_hex, wide};
use super::{Names, ParseError, Style, parse_port, put_port};
use crate::model::{Port, Value};
use flow::{Format, Home, Maskable, MatchField};
use std::net::{Ipv4Addr, Ipv6Addr};

const TCP_FLAGS: [&str; 12] = [
    "fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]",
];
const CT_STATE: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
/// Open vSwitch has no such field; the names are ours.
const EXTENSION_HEADERS: [&str; 9] = [
    "nonext", "esp", "auth", "dest", "frag", "router", "hop", "unrep", "unseq",
];
const TUN_FLAGS: [&str; 1] = ["oam"];
const FRAGS: [(&str, u128, u128); 5] = [
    ("no", 0, 3),
    ("yes", 1, 1),
    ("first", 1, 3),
    ("later", 3, 3),
    ("not_later", 0, 2),
];

/// A value and mask as text. `mask` has only the field's valid bits; all of them for an exact
/// value.
pub(super) fn format(field: MatchField, value: u128, mask: u128, style: Style<'_>) -> String {
    let mut out = String::new();
    put_value(&mut out, field, value, mask, style);
    out
}

/// Appends a value and mask, as [`format`] has them.
pub(super) fn put_value(out: &mut String, field: MatchField, value: u128, mask: u128, style: Style<'_>) {
    let info = field.info();
    let exact = mask == info.valid;
    match info.format {
        Format::Hex if field == MatchField::Ipv6Exthdr => {
            out.push_str(&flags(&EXTENSION_HEADERS, value, mask, info.valid));
        }
        Format::Decimal if exact => put_decimal(out, value),
        Format::Decimal | Format::Hex => {
            put_hex(out, value);
            if !exact {
                out.push('/');
                put_hex(out, mask);
            }
        }
        Format::Ethernet => {
            put_mac(out, value);
            if !exact {
                out.push('/');
                put_mac(out, mask);
            }
        }
        Format::Ipv4 => {
            put_ipv4(out, value);
            match prefix(mask, 32) {
                Some(32) => {}
                Some(bits) => {
                    out.push('/');
                    put_decimal(out, bits.into());
                }
                None => {
                    out.push('/');
                    put_ipv4(out, mask);
                }
            }
        }
        Format::Ipv6 => {
            out.push_str(&ipv6(value));
            match prefix(mask, 128) {
                Some(128) => {}
                Some(bits) => {
                    out.push('/');
                    put_decimal(out, bits.into());
                }
                None => {
                    out.push('/');
                    out.push_str(&ipv6(mask));
                }
            }
        }
        Format::Port => put_port(
            out,
            match field {
                MatchField::InPort => Port(flow::port_from_of10(value as u16)),
                _ => Port(value as u32),
            },
            style,
        ),
        Format::Frag => match FRAGS.iter().find(|(_, v, m)| (*v, *m) == (value, mask)) {
            Some((name, ..)) => out.push_str(name),
            None => {
                put_hex(out, value);
                out.push('/');
                put_hex(out, mask);
            }
        },
        Format::TcpFlags => out.push_str(&flags(&TCP_FLAGS, value, mask, info.valid)),
        Format::TunFlags => out.push_str(&signs(&TUN_FLAGS, value, mask)),
        Format::CtState => out.push_str(&flags(&CT_STATE, value, mask, info.valid)),
        // Types of the Ethernet type's namespace have its format.
        Format::PacketType if value >> 16 == 1 => *out += &format!("(1,{})", hex(value & 0xffff)),
        Format::PacketType => *out += &format!("({},{})", value >> 16, value & 0xffff),
    }
}

/// Appends an Ethernet address.
pub(super) fn put_mac(out: &mut String, address: u128) {
    for (n, byte) in address.to_be_bytes()[10..].iter().enumerate() {
        if n > 0 {
            out.push(':');
        }
        put_byte(out, *byte);
    }
}

fn put_ipv4(out: &mut String, address: u128) {
    for (n, byte) in address.to_be_bytes()[12..].iter().enumerate() {
        if n > 0 {
            out.push('.');
        }
        put_decimal(out, (*byte).into());
    }
}

/// An IPv6 address; its end as an IPv4 address if all other bits are zero.
pub(super) fn ipv6(address: u128) -> String {
    match address {
        0x1_0000..=0xffff_ffff => format!("::{}", Ipv4Addr::from(address as u32)),
        _ => Ipv6Addr::from(address).to_string(),
    }
}

/// The prefix length of a mask, if it is a prefix.
pub(super) fn prefix(mask: u128, width: u32) -> Option<u32> {
    let ones = (mask << (128 - width)).leading_ones();
    let rest = mask.count_ones();
    (ones == rest).then_some(ones)
}

/// Flags: all of them exact, or some with signs.
fn flags(names: &[&str], value: u128, mask: u128, valid: u128) -> String {
    if mask != valid {
        return signs(names, value, mask);
    }
    let set = names.iter().enumerate().filter(|(n, _)| value & 1 << n != 0);
    let set: Vec<_> = set.map(|(_, name)| *name).collect();
    if set.is_empty() { "0".into() } else { set.join("|") }
}

fn signs(names: &[&str], value: u128, mask: u128) -> String {
    let counted = names.iter().enumerate().filter(|(n, _)| mask & 1 << n != 0);
    counted
        .map(|(n, name)| format!("{}{name}", if value & 1 << n != 0 { '+' } else { '-' }))
        .collect()
}

/// Any value as text, wide ones too.
pub(super) fn format_value(field: MatchField, value: &Value, mask: Option<&Value>, style: Style<'_>) -> String {
    match (value, mask) {
        (Value::Word(value), None) => format(field, *value, field.info().valid, style),
        // Here, other than in matches, the value is decimal beside a mask too.
        (Value::Word(value), Some(Value::Word(mask))) if matches!(field.info().format, Format::Decimal) => {
            format!("{value}/{}", hex(*mask))
        }
        (Value::Word(value), Some(Value::Word(mask))) if field == MatchField::NshFlags => {
            format!("{value}/{}", hex(*mask))
        }
        (Value::Word(value), Some(Value::Word(mask))) => format(field, *value, *mask, style),
        (_, None) => hex_bytes(value),
        (_, Some(mask)) => format!("{}/{}", hex_bytes(value), hex_bytes(mask)),
    }
}

/// Bytes as one hexadecimal number.
pub(super) fn hex_bytes(value: &Value) -> String {
    let Value::Wide(bytes) = value else {
        return hex(value.low());
    };
    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    match digits.trim_start_matches('0') {
        "" => "0".into(),
        digits => format!("0x{digits}"),
    }
}

/// Reads a value, with a mask behind a slash if the field takes one. `None` is "any": `*`.
pub(super) fn parse(
    field: MatchField,
    text: &str,
    names: &Names,
) -> Result<Option<(Value, Option<Value>)>, ParseError> {
    if text == "*" {
        return Ok(None);
    }
    let info = field.info();
    let bad = |what: &str| ParseError::new(format!("{text}: {what}"));
    if info.home == Home::Elsewhere {
        let (value, mask) = split(text);
        let bytes =
            |text: &str, what: &str| wide_bytes(text).ok_or_else(|| bad(&format!("bad syntax for {field} {what}")));
        let mut value = bytes(value, "value")?;
        let mut mask = mask.map(|mask| bytes(mask, "mask")).transpose()?;
        if let Some(mask) = &mut mask {
            let len = mask.len().max(value.len());
            for bytes in [mask, &mut value] {
                let missing = len - bytes.len();
                bytes.splice(..0, std::iter::repeat_n(0, missing));
            }
        }
        return Ok(Some((Value::Wide(value), mask.map(Value::Wide))));
    }
    let word = |pair: (u128, u128)| {
        let mask = (pair.1 & info.valid != info.valid).then_some(Value::Word(pair.1 & info.valid));
        Ok(Some((Value::Word(pair.0), mask)))
    };
    match info.format {
        Format::Port => {
            let found = parse_port(text, names);
            let port = found.ok_or_else(|| match field {
                MatchField::InPort => bad(&format!("invalid or unknown port for {field}")),
                _ => bad(&format!("port value out of range for {field}")),
            })?;
            let value = match field {
                MatchField::InPort => flow::port_to_of10(port.0).into(),
                _ => port.0.into(),
            };
            word((value, info.valid))
        }
        Format::Frag => match FRAGS.iter().find(|(name, ..)| *name == text) {
            Some((_, value, mask)) => word((*value, *mask)),
            None => Err(bad(
                "unknown fragment type (valid types are \"no\", \"yes\", \"first\", \"later\", \"not_later\"",
            )),
        },
        Format::Hex if field == MatchField::Ipv6Exthdr => word(parse_flags(
            text,
            &EXTENSION_HEADERS,
            info.valid,
            "IPv6 extension header",
        )?),
        Format::TcpFlags => word(parse_flags(text, &TCP_FLAGS, info.valid, "TCP")?),
        Format::CtState => word(parse_flags(text, &CT_STATE, info.valid, "ct_state")?),
        Format::TunFlags => word(parse_flags(text, &TUN_FLAGS, info.valid, "tunnel")?),
        Format::PacketType => word((packet_type(text)?, info.valid)),
        _ => {
            let (value, mask) = split(text);
            let value = part(field, value, text)?;
            let mask = mask.map(|mask| parse_mask(field, mask, text)).transpose()?;
            if mask.is_some_and(|m| info.maskable == Maskable::Exact && ![0, info.valid].contains(&(m & info.valid))) {
                return Err(bad(&format!("invalid mask for field {field}")));
            }
            word((value, mask.unwrap_or(u128::MAX)))
        }
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('/') {
        Some((value, mask)) => (value, Some(mask)),
        None => (text, None),
    }
}

/// A number's bytes, as few as it needs.
fn wide_bytes(text: &str) -> Option<Vec<u8>> {
    if let Some(number) = wide(text) {
        let bytes = number.to_be_bytes();
        let first = bytes.iter().position(|b| *b != 0).unwrap_or(15);
        return Some(bytes[first..].to_vec());
    }
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let digits = format!("{}{digits}", if digits.len() % 2 == 1 { "0" } else { "" });
    let pairs = (0..digits.len()).step_by(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|n| u8::from_str_radix(digits.get(n..n + 2)?, 16).ok())
        .collect();
    bytes.filter(|b| b.len() <= 124)
}

/// A value of a field whose values are numbers or addresses.
fn part(field: MatchField, text: &str, whole: &str) -> Result<u128, ParseError> {
    let bad = |what: &str| ParseError::new(format!("{whole}: {what}"));
    match field.info().format {
        Format::Ethernet => mac(text).ok_or_else(|| bad("invalid Ethernet address")),
        Format::Ipv4 => match text.parse::<Ipv4Addr>() {
            Ok(addr) => Ok(u32::from(addr).into()),
            Err(_) => Err(bad("invalid IP address")),
        },
        Format::Ipv6 => match text.parse::<Ipv6Addr>() {
            Ok(addr) => Ok(addr.into()),
            Err(_) => Err(bad("invalid IPv6 address")),
        },
        _ => {
            let negative = text.strip_prefix('-').and_then(wide);
            let number = wide(text).or(negative);
            let number = number.ok_or_else(|| bad(&format!("bad syntax for {field} value")))?;
            let bits = u32::from(field.info().bits);
            match negative.is_some() || bits < 128 && number >> bits != 0 {
                true => Err(bad(&format!(
                    "value too large for {}-byte field {field}",
                    field.bytes()
                ))),
                false => Ok(number),
            }
        }
    }
}

fn parse_mask(field: MatchField, text: &str, whole: &str) -> Result<u128, ParseError> {
    let bad = |what: &str| ParseError::new(format!("{whole}: {what}"));
    let width: u32 = match field.info().format {
        Format::Ipv4 => 32,
        Format::Ipv6 => 128,
        _ => {
            return part(field, text, whole).map_err(|e| match wide(text) {
                None if field.info().format != Format::Ethernet => bad(&format!("bad syntax for {field} mask")),
                _ => e,
            });
        }
    };
    match text.parse::<u32>() {
        Ok(bits) if bits <= width => Ok(match bits {
            0 => 0,
            _ => (u128::MAX << (128 - bits)) >> (128 - width),
        }),
        Err(_) if text.parse::<i32>().is_ok() && width == 32 => {
            Err(bad("IPv4 network prefix bits not between 0 and 32, inclusive"))
        }
        Ok(_) if width == 32 => Err(bad("IPv4 network prefix bits not between 0 and 32, inclusive")),
        Ok(_) => Err(bad("IPv6 network prefix bits not between 0 and 128, inclusive")),
        Err(_) => part(field, text, whole),
    }
}

/// An Ethernet address whose parts may be one digit long.
pub(super) fn mac(text: &str) -> Option<u128> {
    let parts: Vec<_> = text.split(':').collect();
    let short = parts.iter().all(|p| matches!(p.len(), 1 | 2));
    if parts.len() != 6 || !short {
        return None;
    }
    let mut parts = parts.iter().map(|p| u8::from_str_radix(p, 16).ok());
    parts.try_fold(0, |n, part| Some(n << 8 | u128::from(part?)))
}

/// `(0,0x800)` as a packet type.
fn packet_type(text: &str) -> Result<u128, ParseError> {
    let bad = |rest: &str, what: &str| ParseError::new(format!("{rest}: bad syntax for packet type {what}"));
    let inner = text.strip_prefix('(').ok_or_else(|| bad(text, "missing '('"))?;
    let number = |text: &str| wide(text.trim()).filter(|n| *n <= 0xffff);
    let (space, rest) = inner.split_once(',').ok_or_else(|| bad(inner, "missing ','"))?;
    let space = number(space).ok_or_else(|| bad(inner, "ns"))?;
    let kind = rest.strip_suffix(')').ok_or_else(|| bad(rest, "missing ')'"))?;
    let kind = number(kind).ok_or_else(|| bad(rest, "ns_type"))?;
    Ok(space << 16 | kind)
}

/// `+a-b`, `a|b`, or numbers with or without a mask.
fn parse_flags(text: &str, names: &[&str], valid: u128, what: &str) -> Result<(u128, u128), ParseError> {
    let unknown = |name: &str| ParseError::new(format!("{name}: unknown {what} flag(s)"));
    let bit = |name: &str| names.iter().position(|n| *n == name).map(|n| 1u128 << n);
    let (value, mask) = split(text);
    if let Some(value) = wide(value) {
        let mask = match mask {
            Some(mask) => wide(mask).ok_or_else(|| unknown(text))?,
            None => valid,
        };
        return match (value | mask) & !valid {
            0 => Ok((value & mask, mask)),
            _ => Err(unknown(text)),
        };
    }
    if !text.starts_with(['+', '-']) {
        let all = text.split('|').map(|name| bit(name).ok_or_else(|| unknown(text)));
        let value = all.into_iter().try_fold(0, |set, bit| Ok(set | bit?))?;
        return Ok((value, valid));
    }
    let (mut value, mut mask) = (0, 0);
    let mut rest = text;
    while let Some(sign) = rest.chars().next() {
        let name = &rest[1..];
        let end = name.find(['+', '-']).unwrap_or(name.len());
        let bit = bit(&name[..end]).ok_or_else(|| unknown(name))?;
        if mask & bit != 0 {
            return Err(ParseError::new(format!(
                "{}: Each {what} flag can be specified only once",
                &name[..end]
            )));
        }
        mask |= bit;
        value |= if sign == '+' { bit } else { 0 };
        rest = &name[end..];
    }
    Ok((value, mask))
}
