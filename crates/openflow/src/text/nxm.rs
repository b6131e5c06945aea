//! Matches as lists of their fields in a message, with the names and bytes that the message has:
//! `NXM_OF_ETH_TYPE(0800), NXM_OF_IP_PROTO(06)`.

use super::ParseError;
use crate::model::Match;
use crate::oxm::{self, Unknown};
use crate::{OfError, Version};
use flow::{Home, Maskable, MatchField, OxmClass, OxmId};
use std::fmt::Write;

/// The class of experimenters' fields, whose headers have 8 bytes.
const EXPERIMENTER: u16 = 0xffff;
/// The pseudo field of the cookie: its header without mask and length, and its name.
const COOKIE: (u32, &str) = (0x0001_3c08, "NXM_NX_COOKIE");

/// A field's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    class: u16,
    experimenter: Option<u32>,
    number: u8,
    masked: bool,
    /// The length of a value.
    len: usize,
    /// Whether values may be shorter.
    flexible: bool,
}

impl Header {
    fn of(id: &OxmId, field: MatchField, masked: bool) -> Header {
        let (class, experimenter) = id.class.numbers();
        Header {
            class,
            experimenter,
            number: id.number,
            masked,
            len: field.bytes(),
            flexible: field.info().home == Home::Elsewhere,
        }
    }

    /// The header in a number of 8 hexadecimal digits, or 16 for an experimenter's.
    fn from_number(number: u64, long: bool) -> Header {
        let first = if long { (number >> 32) as u32 } else { number as u32 };
        let masked = first & 0x100 != 0;
        let payload = (first & 0xff) as usize;
        let payload = if long { payload.saturating_sub(4) } else { payload };
        Header {
            class: (first >> 16) as u16,
            experimenter: long.then_some(number as u32),
            number: (first >> 9 & 0x7f) as u8,
            masked,
            len: if masked { payload / 2 } else { payload },
            flexible: false,
        }
    }

    fn put(&self, out: &mut Vec<u8>, len: usize) {
        let values = len * if self.masked { 2 } else { 1 };
        out.extend(self.class.to_be_bytes());
        out.push(self.number << 1 | u8::from(self.masked));
        out.push((values + if self.experimenter.is_some() { 4 } else { 0 }) as u8);
        if let Some(experimenter) = self.experimenter {
            out.extend(experimenter.to_be_bytes());
        }
    }

    /// The header of a name.
    fn from_name(name: &str) -> Option<Header> {
        let hex = name.bytes().all(|b| b.is_ascii_hexdigit());
        if hex && matches!(name.len(), 8 | 16) {
            return Some(Header::from_number(
                u64::from_str_radix(name, 16).ok()?,
                name.len() == 16,
            ));
        }
        let (plain, masked) = match name.strip_suffix("_W") {
            Some(plain) => (plain, true),
            None => (name, false),
        };
        if plain == COOKIE.1 {
            let cookie = Header::from_number(COOKIE.0.into(), false);
            return Some(Header { masked, ..cookie });
        }
        let field = MatchField::from_name(plain)?;
        let id = field.info().ids.iter().find(|id| id.to_string() == plain)?;
        let maskable = field.info().maskable != Maskable::Exact;
        (maskable || !masked).then(|| Header::of(id, field, masked))
    }

    /// The name of a header, or its number.
    fn name(&self) -> String {
        let suffix = if self.masked { "_W" } else { "" };
        let mut bytes = Vec::new();
        self.put(&mut bytes, self.len);
        if bytes[..3] == [0, 1, (COOKIE.0 >> 8) as u8 | u8::from(self.masked)] {
            return format!("{}{suffix}", COOKIE.1);
        }
        let class = OxmClass::from_numbers(self.class, self.experimenter);
        let field = class.and_then(|class| Some((class, MatchField::from_id(class, self.number)?)));
        let id = field.and_then(|(class, field)| {
            let mut ids = field.info().ids.iter();
            ids.find(|id| id.class == class && id.number == self.number)
        });
        match id {
            Some(id) => format!("{id}{suffix}"),
            None => {
                let mut name = format!("{:x}:{}", self.class, self.number);
                if let Some(experimenter) = self.experimenter {
                    let _ = write!(name, ":{experimenter:x}");
                }
                name + suffix
            }
        }
    }
}

/// Reads a list of fields.
///
/// # Errors
/// Says in `ovs-ofctl`'s words what is wrong with the list.
pub fn parse_nxm(text: &str) -> Result<Vec<u8>, ParseError> {
    let mut out = Vec::new();
    if text == "<any>" {
        return Ok(out);
    }
    let between = [',', ' '];
    let mut rest = text.trim_start_matches(between);
    while !rest.is_empty() {
        let missing = || ParseError(format!("{text}: missing ( at end of nx_match"));
        let (name, values) = rest.split_once('(').ok_or_else(missing)?;
        let header = Header::from_name(name).ok_or_else(|| ParseError(format!("{text}: unknown field `{name}'")))?;
        let (value, behind) = hex(values);
        let right = value.len() == header.len || header.flexible && value.len() <= header.len;
        if !right {
            return Err(wrong_length(header.len, value.len()));
        }
        header.put(&mut out, value.len());
        out.extend(&value);
        let mut behind = behind.trim_start_matches(' ');
        if header.masked {
            let mask = behind
                .strip_prefix('/')
                .ok_or_else(|| ParseError(format!("{text}: missing / in masked field {name}")))?;
            let (mask, after) = hex(mask);
            if mask.len() != value.len() {
                return Err(wrong_length(value.len(), mask.len()));
            }
            out.extend(&mask);
            behind = after.trim_start_matches(' ');
        }
        behind = behind
            .strip_prefix(')')
            .ok_or_else(|| ParseError(format!("{text}: missing ) following field {name}")))?;
        rest = behind.trim_start_matches(between);
    }
    Ok(out)
}

fn wrong_length(expected: usize, got: usize) -> ParseError {
    ParseError(format!("expected to read {expected} bytes but got {got}"))
}

/// The bytes of pairs of digits, with spaces before each, and the text behind them.
fn hex(text: &str) -> (Vec<u8>, &str) {
    let mut bytes = Vec::new();
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let digit = |n: usize| trimmed.as_bytes().get(n).and_then(|b| char::from(*b).to_digit(16));
        match (digit(0), digit(1)) {
            (Some(high), Some(low)) => bytes.push((high << 4 | low) as u8),
            _ => return (bytes, trimmed),
        }
        rest = &trimmed[2..];
    }
}

/// The list of the fields of a match in a message; `<any>` for none.
pub fn nxm(data: &[u8]) -> String {
    let mut out = String::new();
    let mut rest = data;
    while let Some((header, values, behind)) = entry(rest) {
        if !out.is_empty() {
            out.push_str(", ");
        }
        let _ = write!(out, "{}(", header.name());
        let (value, mask) = values.split_at(header.len.min(values.len()));
        value.iter().for_each(|byte| {
            let _ = write!(out, "{byte:02x}");
        });
        if header.masked {
            out.push('/');
            mask.iter().for_each(|byte| {
                let _ = write!(out, "{byte:02x}");
            });
        }
        out.push(')');
        rest = behind;
    }
    if out.is_empty() {
        out.push_str("<any>");
    }
    out
}

/// The first field: header, value with mask, and what follows it.
fn entry(data: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let (first, mut rest) = data.split_first_chunk::<4>()?;
    let first = u32::from_be_bytes(*first);
    let long = (first >> 16) as u16 == EXPERIMENTER;
    let mut number = u64::from(first);
    let mut len = (first & 0xff) as usize;
    if long {
        let (experimenter, behind) = rest.split_first_chunk::<4>()?;
        number = number << 32 | u64::from(u32::from_be_bytes(*experimenter));
        len = len.checked_sub(4)?;
        rest = behind;
    }
    let (values, behind) = rest.split_at_checked(len)?;
    Some((Header::from_number(number, long), values, behind))
}

/// The fields with bits in the value that their mask leaves out, as vendor, class, number, whether
/// there is a mask, and length: a switch refuses the first.
pub fn nxm_outside_mask(data: &[u8]) -> Option<String> {
    let mut rest = data;
    while let Some((header, values, behind)) = entry(rest) {
        let (value, mask) = values.split_at(header.len.min(values.len()));
        if header.masked && value.iter().zip(mask).any(|(value, mask)| value & !mask != 0) {
            let experimenter = header.experimenter.unwrap_or(0);
            let len = values.len();
            return Some(format!("{experimenter}:{}:{}:1:{len}", header.class, header.number));
        }
        rest = behind;
    }
    None
}

/// A match in a message: its conditions, and a cookie with its mask.
pub type NxmMatch = (Match, Option<(u64, u64)>);

/// Decodes the fields of a match. `strict` refuses unknown fields and fields without their
/// prerequisites; otherwise they are left out.
///
/// # Errors
/// The error that a switch answers.
pub fn decode_nxm(data: &[u8], strict: bool) -> Result<NxmMatch, OfError> {
    oxm::decode_match(data, if strict { Unknown::Refuse } else { Unknown::Skip })
}

/// Encodes a match with the fields of a version. OpenFlow 1.0 and 1.1 have Nicira's.
pub fn encode_nxm((matching, cookie): &NxmMatch, version: Version) -> Vec<u8> {
    let mut out = crate::buf::Writer::new();
    oxm::encode_match(&mut out, matching, version);
    if let Some((cookie, mask)) = cookie {
        oxm::encode_cookie(&mut out, *cookie, *mask);
    }
    out.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_fields_is_read_and_printed_back() {
        for list in [
            "<any>",
            "NXM_OF_IN_PORT(fffe)",
            "NXM_OF_ETH_DST_W(010000000000/010000000000), NXM_OF_ETH_TYPE(0800)",
            "NXM_NX_COOKIE_W(00000000abcdef01/00000000ffffffff)",
            "ONFOXM_ET_TCP_FLAGS(0fff)",
            "NXM_NX_TUN_METADATA0(0102)",
        ] {
            let bytes = parse_nxm(list).unwrap();
            assert_eq!(nxm(&bytes), list);
            for at in 0..bytes.len() {
                let _ = nxm(&bytes[..at]);
                let _ = nxm_outside_mask(&bytes[..at]);
            }
        }
    }

    #[test]
    fn a_wrong_list_is_refused_in_the_words_of_ovs_ofctl() {
        for (list, error) in [
            ("NXM_OF_IN_PORT", "NXM_OF_IN_PORT: missing ( at end of nx_match"),
            (
                "NXM_OF_IN_PORT_W(1/1)",
                "NXM_OF_IN_PORT_W(1/1): unknown field `NXM_OF_IN_PORT_W'",
            ),
            ("NXM_OF_IN_PORT(0)", "expected to read 2 bytes but got 0"),
            (
                "NXM_OF_IN_PORT(0000",
                "NXM_OF_IN_PORT(0000: missing ) following field NXM_OF_IN_PORT",
            ),
            (
                "NXM_NX_REG0_W(00000000)",
                "NXM_NX_REG0_W(00000000): missing / in masked field NXM_NX_REG0_W",
            ),
        ] {
            assert_eq!(parse_nxm(list).unwrap_err().to_string(), error);
        }
    }
}
