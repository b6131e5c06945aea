//! Values of fields in text.

use super::lex::{self, c_number};
use super::{Names, TextError, flags, parse_port, print_port};
use crate::model::{Port, Value};
use flow::{Format, Home, MatchField, Maskable, port_to_of10};
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::MacAddr;

/// Reads `value` or `value/mask` as a field has them. Without a mask, all bits count.
pub(super) fn parse(field: MatchField, text: &str, names: &dyn Names) -> Result<(Value, Option<Value>), TextError> {
    let info = field.info();
    let exact = || Value::all_ones(field);
    if text == "*" {
        return Ok(match info.home {
            Home::Elsewhere => (Value::Wide(vec![0]), Some(Value::Wide(vec![0]))),
            _ => (Value::Word(0), Some(Value::Word(0))),
        });
    }
    let (value, mask) = match info.format {
        Format::Decimal | Format::Hex => return parse_number(field, text),
        Format::Ethernet => ethernet(text).ok_or_else(|| invalid(text, "Ethernet address"))?,
        Format::Ipv4 => ipv4(text)?,
        Format::Ipv6 => ipv6(text)?,
        Format::Port => {
            let port = parse_port(text, names).ok_or_else(|| TextError::FieldPort {
                text: text.to_string(),
                field: field.name(),
            })?;
            match field {
                MatchField::InPort => (port_to_of10(port.0).into(), info.valid),
                _ => (port.0.into(), info.valid),
            }
        }
        Format::Frag => fragment(text)?,
        Format::TcpFlags | Format::TunFlags | Format::CtState => flags::parse(text, info.format)?,
        Format::PacketType => (packet_type(text)?, info.valid),
    };
    if info.maskable == Maskable::Exact && mask != 0 && mask & info.valid != info.valid {
        return Err(bad_mask(field, text));
    }
    let whole = mask & info.valid == info.valid;
    Ok((
        Value::Word(value),
        (!whole).then(|| Value::Word(mask)).or_else(|| (mask != info.valid).then(exact)),
    ))
}

fn invalid(text: &str, what: &'static str) -> TextError {
    TextError::Invalid {
        text: text.to_string(),
        what,
    }
}

fn bad_mask(field: MatchField, text: &str) -> TextError {
    TextError::Mask {
        text: text.to_string(),
        field: field.name(),
    }
}

fn parse_number(field: MatchField, text: &str) -> Result<(Value, Option<Value>), TextError> {
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (value, Some(mask)),
        None => (text, None),
    };
    let read = |part: &str, what: &str| {
        let bytes = lex::integer(part).ok_or_else(|| TextError::Syntax {
            text: text.to_string(),
            what: format!("{} {what}", field.name()),
        })?;
        match bytes.len() > field.bytes() {
            true => Err(TextError::TooLarge {
                text: text.to_string(),
                bytes: field.bytes(),
                field: field.name(),
            }),
            false => Ok(bytes),
        }
    };
    let value = read(value, "value")?;
    let mask = mask.map(|mask| read(mask, "mask")).transpose()?;
    if field.info().home == Home::Elsewhere {
        return Ok(wide(value, mask));
    }
    let word = |bytes: &[u8]| bytes.iter().fold(0_u128, |n, b| n << 8 | u128::from(*b));
    let valid = field.info().valid;
    let mask = mask.as_deref().map(word);
    if let Some(mask) = mask
        && field.info().maskable == Maskable::Exact
        && mask != 0
        && mask & valid != valid
    {
        return Err(bad_mask(field, text));
    }
    let value = word(&value) & mask.unwrap_or(u128::MAX);
    Ok((Value::Word(value), mask.filter(|m| m & valid != valid).map(Value::Word)))
}

/// A tunnel metadata value and mask, as short as their numbers allow.
fn wide(value: Vec<u8>, mask: Option<Vec<u8>>) -> (Value, Option<Value>) {
    let len = value.len().max(mask.as_ref().map_or(0, Vec::len)).max(1);
    let pad = |bytes: Vec<u8>| {
        let mut padded = vec![0; len - bytes.len()];
        padded.extend(bytes);
        padded
    };
    let mut value = pad(value);
    let mask = mask.map(pad).filter(|m| m.iter().any(|b| *b != 0xff));
    if let Some(mask) = &mask {
        value.iter_mut().zip(mask).for_each(|(v, m)| *v &= m);
    }
    (Value::Wide(value), mask.map(Value::Wide))
}

fn ethernet(text: &str) -> Option<(u128, u128)> {
    let number = |text: &str| {
        let mac = lex::mac(text)?;
        Some(mac.0.iter().fold(0, |n, b| n << 8 | u128::from(*b)))
    };
    let (value, mask) = match text.split_once('/') {
        Some((value, mask)) => (number(value)?, number(mask)?),
        None => (number(text)?, (1 << 48) - 1),
    };
    Some((value & mask, mask))
}

fn ipv4(text: &str) -> Result<(u128, u128), TextError> {
    let bad = || invalid(text, "IP address");
    let (value, mask) = text.split_once('/').unwrap_or((text, "32"));
    let value: Ipv4Addr = value.parse().map_err(|_| bad())?;
    let mask = match mask.parse::<Ipv4Addr>() {
        Ok(mask) => u32::from(mask),
        Err(_) => match mask.parse::<u32>().map_err(|_| bad())? {
            0 => 0,
            bits @ 1..=32 => u32::MAX << (32 - bits),
            _ => {
                return Err(TextError::Prefix {
                    text: text.to_string(),
                    family: "IPv4",
                    max: 32,
                });
            }
        },
    };
    Ok((u128::from(u32::from(value) & mask), mask.into()))
}

fn ipv6(text: &str) -> Result<(u128, u128), TextError> {
    let bad = || invalid(text, "IPv6 address");
    let (value, mask) = text.split_once('/').unwrap_or((text, "128"));
    let value: Ipv6Addr = value.parse().map_err(|_| bad())?;
    let mask = match mask.parse::<Ipv6Addr>() {
        Ok(mask) => u128::from(mask),
        Err(_) => match mask.parse::<u32>().map_err(|_| bad())? {
            0 => 0,
            bits @ 1..=128 => u128::MAX << (128 - bits),
            _ => {
                return Err(TextError::Prefix {
                    text: text.to_string(),
                    family: "IPv6",
                    max: 128,
                });
            }
        },
    };
    Ok((u128::from(value) & mask, mask))
}

/// Names of conditions on fragments, with value and mask.
const FRAGMENTS: [(&str, u128, u128); 5] = [
    ("no", 0, 3),
    ("yes", 1, 1),
    ("first", 1, 3),
    ("later", 3, 3),
    ("not_later", 0, 2),
];

fn fragment(text: &str) -> Result<(u128, u128), TextError> {
    let found = FRAGMENTS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(text));
    let (_, value, mask) = found.ok_or_else(|| TextError::Fragment(text.to_string()))?;
    Ok((*value, *mask))
}

/// Reads `(namespace,type)`.
fn packet_type(text: &str) -> Result<u128, TextError> {
    let bad = |text: &str, what: &str| TextError::Syntax {
        text: text.to_string(),
        what: format!("packet type {what}"),
    };
    let inner = text.strip_prefix('(').ok_or_else(|| bad(text, "missing '('"))?;
    let (namespace, kind) = inner.split_once(',').ok_or_else(|| bad(inner, "missing ','"))?;
    let number = |text: &str| c_number(text).and_then(|n| u16::try_from(n).ok());
    let namespace = number(namespace).ok_or_else(|| bad(inner, "namespace"))?;
    let digits = kind.strip_suffix(')').ok_or_else(|| bad(kind, "missing ')'"))?;
    let kind = number(digits).ok_or_else(|| bad(kind, "ns_type"))?;
    Ok(u128::from(namespace) << 16 | u128::from(kind))
}

/// Prints a value, and a mask unless all bits count.
pub(super) fn print(out: &mut String, field: MatchField, value: &Value, mask: Option<&Value>, names: &dyn Names) {
    let (value, mask) = match (value, mask) {
        (Value::Wide(value), mask) => {
            hex_bytes(out, value);
            if let Some(Value::Wide(mask)) = mask {
                out.push('/');
                hex_bytes(out, mask);
            }
            return;
        }
        (Value::Word(value), mask) => (*value, mask.map_or(field.info().valid, Value::low)),
    };
    print_word(out, field, value, mask, names);
}

/// Prints the value of a field of at most 128 bits, and a mask unless all bits count.
pub(super) fn print_word(out: &mut String, field: MatchField, value: u128, mask: u128, names: &dyn Names) {
    let valid = field.info().valid;
    let exact = mask & valid == valid;
    let _ = match field.info().format {
        Format::Decimal if exact => write!(out, "{value}"),
        Format::Hex if exact => write!(out, "{value:#x}"),
        Format::Decimal | Format::Hex => write!(out, "{value:#x}/{mask:#x}"),
        Format::Ethernet if exact => write!(out, "{}", mac(value)),
        Format::Ethernet => write!(out, "{}/{}", mac(value), mac(mask)),
        Format::Ipv4 => print_ipv4(out, value as u32, mask as u32),
        Format::Ipv6 => print_ipv6(out, value, mask),
        Format::Port => {
            let port = match field {
                MatchField::InPort => flow::port_from_of10(value as u16),
                _ => value as u32,
            };
            print_port(out, Port(port), names);
            Ok(())
        }
        Format::Frag => {
            let found = FRAGMENTS.iter().find(|(_, v, m)| (*v, *m) == (value, mask));
            match found {
                Some((name, ..)) => write!(out, "{name}"),
                None => write!(out, "{}", if value & 2 != 0 { "later" } else { "<error>" }),
            }
        }
        format @ (Format::TcpFlags | Format::CtState | Format::TunFlags) => {
            flags::print(out, format, value, mask);
            Ok(())
        }
        Format::PacketType => write!(out, "({},{:#x})", value >> 16, value & 0xffff).map(|()| {
            if value & 0xffff == 0 {
                out.truncate(out.len() - 4);
                out.push_str("0)");
            }
        }),
    };
}

/// A number as C's `%#x` prints it.
pub(super) fn c_hex(value: u128) -> String {
    match value {
        0 => "0".to_string(),
        _ => format!("{value:#x}"),
    }
}

pub(super) fn mac(value: u128) -> MacAddr {
    let mut octets = [0; 6];
    octets.copy_from_slice(&value.to_be_bytes()[10..]);
    MacAddr(octets)
}

fn print_ipv4(out: &mut String, value: u32, mask: u32) -> std::fmt::Result {
    write!(out, "{}", Ipv4Addr::from(value))?;
    match mask {
        u32::MAX => Ok(()),
        _ if mask.leading_ones() + mask.trailing_zeros() >= 32 => write!(out, "/{}", mask.leading_ones()),
        _ => write!(out, "/{}", Ipv4Addr::from(mask)),
    }
}

fn print_ipv6(out: &mut String, value: u128, mask: u128) -> std::fmt::Result {
    write!(out, "{}", CIpv6(value))?;
    match mask {
        u128::MAX => Ok(()),
        _ if mask.leading_ones() + mask.trailing_zeros() >= 128 => write!(out, "/{}", mask.leading_ones()),
        _ => write!(out, "/{}", CIpv6(mask)),
    }
}

/// An IPv6 address as the C library prints it: those of the form `::a.b.c.d` with dots.
pub(super) struct CIpv6(pub(super) u128);

impl std::fmt::Display for CIpv6 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0x1_0000..=0xffff_ffff => write!(f, "::{}", Ipv4Addr::from(self.0 as u32)),
            _ => Ipv6Addr::from(self.0).fmt(f),
        }
    }
}

fn hex_bytes(out: &mut String, bytes: &[u8]) {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    let Some((first, rest)) = bytes[zeros..].split_first() else {
        out.push_str("0x0");
        return;
    };
    let _ = write!(out, "{first:#x}");
    for byte in rest {
        let _ = write!(out, "{byte:02x}");
    }
}
