//! Words, values and numbers.

use super::TextError;
use std::net::Ipv4Addr;
use wire::MacAddr;

/// What separates the parts of a flow.
const SEPARATORS: &[char] = &[',', ' ', '\t', '\r', '\n'];

/// Iterates over the parts `key`, `key=value`, `key:value`, `key(value)` and `key(value)->rest` of a text. A value reaches to the next separator that is in
/// no parentheses. Of the last form, the value is all behind the opening parenthesis.
pub(super) struct Pairs<'a>(pub(super) &'a str);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        let text = self.0.trim_start_matches(SEPARATORS);
        if text.is_empty() {
            self.0 = "";
            return None;
        }
        let ends = |c: char| SEPARATORS.contains(&c) || matches!(c, ':' | '=' | '(');
        let (key, rest) = text.split_at(text.find(ends).unwrap_or(text.len()));
        let value_len = match rest.chars().next() {
            Some(':' | '=') => value_len(&rest[1..], SEPARATORS),
            Some('(') => {
                let inside = value_len(&rest[1..], &[')']);
                match rest[1 + inside..].starts_with(")->") {
                    true => inside + value_len(&rest[1 + inside..], SEPARATORS),
                    false => inside,
                }
            }
            Some(_) => {
                self.0 = &rest[1..];
                return Some((key, ""));
            }
            None => {
                self.0 = "";
                return Some((key, ""));
            }
        };
        let (value, rest) = rest[1..].split_at(value_len);
        let mut rest = rest.chars();
        rest.next();
        self.0 = rest.as_str();
        Some((key, value))
    }
}

/// How far a value reaches: to one of these characters outside of parentheses, or to the end.
fn value_len(text: &str, ends: &[char]) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            _ if depth == 0 && ends.contains(&c) => return at,
            _ => {}
        }
    }
    text.len()
}

/// Splits at separators outside of parentheses; parts may be empty only between two commas.
pub(super) fn arguments(text: &str) -> Vec<&str> {
    text.split([',', ' ']).collect()
}

/// A number in C's notation: decimal, `0x` hexadecimal, `0` octal, with a sign; as 64 bits of two's complement.
pub(super) fn c_number(text: &str) -> Option<i128> {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, radix) = match lower.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None if lower.len() > 1 && lower.starts_with('0') => (&lower[1..], 8),
        None => (lower.as_str(), 10),
    };
    if digits.is_empty() || !digits.bytes().all(|b| char::from(b).is_digit(radix)) {
        return None;
    }
    let number = u64::from_str_radix(digits, radix).ok()?;
    Some(if negative { -i128::from(number) } else { number.into() })
}

/// An 8-bit number for a purpose.
pub(super) fn u8_of(text: &str, what: &str) -> Result<u8, TextError> {
    let number = c_number(text).and_then(|n| n.try_into().ok());
    number.ok_or_else(|| TextError::Number {
        what: what.to_string(),
        text: text.to_string(),
    })
}

/// A 16-bit number for a purpose.
pub(super) fn u16_of(text: &str, what: &str) -> Result<u16, TextError> {
    let number = c_number(text).and_then(|n| n.try_into().ok());
    number.ok_or_else(|| TextError::Number {
        what: what.to_string(),
        text: text.to_string(),
    })
}

/// A 32-bit number.
pub(super) fn u32_of(text: &str) -> Result<u32, TextError> {
    if text.is_empty() {
        return Err(TextError::MissingNumber);
    }
    let number = c_number(text).and_then(|n| n.try_into().ok());
    number.ok_or_else(|| TextError::NumericFormat(text.to_string()))
}

/// A 64-bit number; negative ones count back from 2^64.
pub(super) fn u64_of(text: &str) -> Result<u64, TextError> {
    if text.is_empty() {
        return Err(TextError::MissingNumber);
    }
    let number = c_number(text).ok_or_else(|| TextError::NumericFormat(text.to_string()))?;
    Ok(number as u64)
}

/// An Ethernet address as its parts have one or two digits.
pub(super) fn mac(text: &str) -> Option<MacAddr> {
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        let part = parts.next().filter(|p| matches!(p.len(), 1 | 2))?;
        if !part.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        *octet = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(MacAddr(octets))
}

/// An Ethernet address as an action's argument.
pub(super) fn mac_of(text: &str) -> Result<MacAddr, TextError> {
    mac(text).ok_or_else(|| TextError::Number {
        what: "mac address".to_string(),
        text: text.to_string(),
    })
}

/// An IPv4 address as an action's argument.
pub(super) fn ipv4_of(text: &str) -> Result<Ipv4Addr, TextError> {
    text.parse().map_err(|_| TextError::Arguments {
        text: text.to_string(),
        what: "could not convert to IP address".to_string(),
    })
}

/// Bytes as pairs of hexadecimal digits, with dots between some of them.
pub(super) fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < digits.len() {
        if digits[at] == b'.' {
            at += 1;
            continue;
        }
        let pair = digits.get(at..at + 2)?;
        if !pair.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
        at += 2;
    }
    Some(bytes)
}

/// The big-endian bytes of a number of any size: `0x…`, or decimal up to 64 bits. `None` where it is none; leading zeros are dropped.
pub(super) fn integer(text: &str) -> Option<Vec<u8>> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let Some(hex) = hex else {
        let number = c_number(text)?;
        // A negative number does not fit any field.
        let bytes = match number < 0 {
            true => return Some(vec![0xff; 128]),
            false => (number as u64).to_be_bytes().to_vec(),
        };
        return Some(trim(bytes));
    };
    if hex.is_empty() || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let padded = if hex.len() % 2 == 1 { format!("0{hex}") } else { hex.to_string() };
    hex_bytes(&padded).map(trim)
}

fn trim(bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    bytes[zeros..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reaches_to_a_separator_outside_of_parentheses() {
        let pairs = |text| Pairs(text).collect::<Vec<_>>();
        assert_eq!(pairs(" a=1,b:2 c(3,4)"), [("a", "1"), ("b", "2"), ("c", "3,4")]);
        assert_eq!(pairs("a(b(1,2),3)->x[0],d"), [("a", "b(1,2),3)->x[0]"), ("d", "")]);
        assert_eq!(pairs("a(b,"), [("a", "b,")]);
        assert_eq!(pairs("a=b(1,2),ü"), [("a", "b(1,2)"), ("ü", "")]);
        assert_eq!(pairs(",,"), []);
    }

    #[test]
    fn numbers_are_as_in_c() {
        assert_eq!(c_number("010"), Some(8));
        assert_eq!(c_number("0x1F"), Some(31));
        assert_eq!(c_number("-1"), Some(-1));
        assert_eq!(c_number("5x"), None);
        assert_eq!(u64_of("-1"), Ok(u64::MAX));
    }
}
