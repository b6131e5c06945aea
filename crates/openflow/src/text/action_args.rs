//! Reading the arguments of actions.

use super::action_in::{Parsed, error};
use super::action_out::HEADERS;
use super::{ParseError, Style, field, field_value, number, token};
use crate::model::*;
use flow::{Home, MatchField as F};
use std::net::Ipv4Addr;
use wire::MacAddr;

/// The texts before and behind the arrow.
pub(super) fn arrow(text: &str) -> Option<(&str, &str)> {
    let (left, right) = text.split_once("->")?;
    Some((left.trim(), right.trim()))
}

/// The same of a value and where it goes.
pub(super) fn value_arrow(text: &str) -> Parsed<(&str, &str)> {
    match arrow(text) {
        None => error(format!("{text}: missing `->'")),
        Some((_, "")) => error(format!("{text}: missing field name following `->'")),
        Some(parts) => Ok(parts),
    }
}

/// `FIELD`, `FIELD[]`, `FIELD[3]` or `FIELD[3..5]`.
pub(super) fn subfield(text: &str) -> Parsed<Subfield> {
    subfield_in(text, text)
}

/// The same at the beginning of `whole`, which errors name.
fn subfield_in(text: &str, whole: &str) -> Parsed<Subfield> {
    let (name, range) = match text.find('[') {
        Some(at) => (&text[..at], &text[at..]),
        None => (text, "[]"),
    };
    let Some(of) = F::from_name(name) else {
        return error(format!("{whole}: unknown field `{name}'"));
    };
    let syntax = || {
        ParseError::new(format!(
            "{whole}: syntax error expecting [] or [<bit>] or [<start>..<end>]"
        ))
    };
    let inner = range
        .strip_prefix('[')
        .and_then(|r| r.strip_suffix(']'))
        .ok_or_else(syntax)?;
    if inner.is_empty() {
        return Ok(Subfield::whole(of));
    }
    let bit = |text: &str| text.parse::<i32>().map_err(|_| syntax());
    let (first, last) = match inner.split_once("..") {
        Some((first, last)) => (bit(first)?, bit(last)?),
        None => (bit(inner)?, bit(inner)?),
    };
    if first > last {
        return error(format!("{whole}: starting bit {first} is after ending bit {last}"));
    }
    let width = of.part_bits();
    let part = match (u16::try_from(first), u16::try_from(last)) {
        (Ok(first), Ok(last)) => Subfield::new(of, first, (last - first).saturating_add(1)),
        _ => None,
    };
    part.ok_or_else(|| {
        let (which, bit) = match u32::try_from(first).is_ok_and(|first| first < width) {
            true => ("ending", last),
            false => ("starting", first),
        };
        ParseError::new(format!(
            "{whole}: {which} bit {bit} is not valid because field is only {width} bits wide"
        ))
    })
}

pub(super) fn writable(part: Subfield) -> Parsed<Subfield> {
    match part.field().writable() {
        true => Ok(part),
        false => error("actions are invalid with specified match (OFPBAC_BAD_SET_ARGUMENT)"),
    }
}

pub(super) fn movement(text: &str) -> Parsed<Action> {
    let Some((src, dst)) = arrow(text) else {
        return error(format!("{text}: missing `->' following source"));
    };
    if src.split_once(']').is_some_and(|(_, rest)| !rest.is_empty()) {
        return error(format!("{text}: missing `->' following source"));
    }
    let (src, dst) = (subfield_in(src, text)?, writable(subfield(dst)?)?);
    as_wide(text, src, dst)?;
    Ok(Action::Move { src, dst })
}

/// Refuses to copy more or fewer bits than there is room for.
pub(super) fn as_wide(text: &str, src: Subfield, dst: Subfield) -> Parsed<()> {
    match (src.n_bits(), dst.n_bits()) {
        (from, to) if from == to => Ok(()),
        (from, to) => error(format!(
            "{text}: source field is {from} bits wide but destination is {to} bits wide"
        )),
    }
}

/// Whether a number fits in so many bits.
pub(super) fn fits(number: u128, bits: usize) -> bool {
    bits >= 128 || number >> bits == 0
}

pub(super) fn load(text: &str) -> Parsed<Action> {
    let (value, dst) = value_arrow(text)?;
    let dst = writable(subfield(dst)?)?;
    let Some(number) = number::wide(value).filter(|n| fits(*n, dst.field().bytes() * 8)) else {
        return error(format!("{text}: cannot parse integer value"));
    };
    if dst.n_bits() < 128 && number >> dst.n_bits() != 0 {
        return error(format!(
            "{text}: value {} does not fit into {} bits",
            field_value(dst.field(), number, Style::PLAIN),
            dst.n_bits()
        ));
    }
    let wide = dst.field().info().home == Home::Elsewhere;
    match u64::try_from(number) {
        Ok(value) if !wide => Ok(Action::Load { dst, value }),
        _ => Ok(wide_load(dst, number)),
    }
}

/// A load of more bits than the action has room for, or into a field whose width a map says.
pub fn wide_load(dst: Subfield, value: u128) -> Action {
    let field = dst.field();
    let bits = u128::MAX >> (128 - u32::from(dst.n_bits()).min(128));
    if field.info().home != Home::Elsewhere {
        let mask = (!dst.is_whole()).then_some(Value::Word(bits << dst.ofs()));
        return Action::SetField {
            field,
            value: Value::Word(value << dst.ofs()),
            mask,
        };
    }
    // As many bytes as the highest bit needs.
    let len = usize::from((dst.ofs() + dst.n_bits()).div_ceil(8));
    let place = |number: u128| {
        let mut bytes = vec![0u8; len];
        for bit in 0..u16::min(dst.n_bits(), 128) {
            if number & 1 << bit != 0 {
                let at = usize::from(dst.ofs() + bit);
                bytes[len - 1 - at / 8] |= 1 << (at % 8);
            }
        }
        Value::Wide(bytes)
    };
    Action::SetField {
        field,
        value: place(value),
        mask: Some(place(bits)),
    }
}

pub(super) fn mac(text: &str) -> Parsed<MacAddr> {
    match field::mac(text) {
        Some(mac) => Ok(MacAddr::from_u64(mac as u64)),
        None => error(format!("invalid mac address {text}")),
    }
}

pub(super) fn ipv4(text: &str) -> Parsed<Ipv4Addr> {
    text.parse()
        .map_err(|_| ParseError::new(format!("{text}: could not convert to IP address")))
}

pub(super) fn ethertype(text: &str, known: &[u16], what: &str) -> Parsed<u16> {
    let number = number::named(text, "ethertype")?;
    match known.contains(&number) {
        true => Ok(number),
        false => error(format!("{text}: not a valid {what} ethertype")),
    }
}

pub(super) fn metadata(text: &str) -> Parsed<(u64, u64)> {
    match text.split_once('/') {
        Some((value, mask)) => Ok((number::u64(value)?, number::u64(mask)?)),
        None => Ok((number::u64(text)?, u64::MAX)),
    }
}

pub(super) fn fin_timeout(text: &str) -> Parsed<Action> {
    let (mut idle, mut hard) = (0, 0);
    let mut rest = text;
    while let Some(pair) = token::next(&mut rest) {
        match pair.key {
            "idle_timeout" => idle = number::named(pair.value, pair.key)?,
            "hard_timeout" => hard = number::named(pair.value, pair.key)?,
            key => return error(format!("invalid key '{key}' in 'fin_timeout' argument")),
        }
    }
    Ok(Action::FinTimeout { idle, hard })
}

pub(super) fn conjunction(text: &str) -> Parsed<Action> {
    const SYNTAX: &str = "\"conjunction\" syntax is \"conjunction(id,i/n)\"";
    let Some((id, (clause, n))) = text.split_once(',').and_then(|(id, c)| Some((id, c.split_once('/')?))) else {
        return error(SYNTAX);
    };
    let Some(id) = number::unsigned(id.trim()).and_then(|id| u32::try_from(id).ok()) else {
        return error(SYNTAX);
    };
    let (clause, n_clauses): (u8, u8) = match (clause.trim().parse(), n.trim().parse()) {
        (Ok(clause), Ok(n)) => (clause, n),
        _ => return error(SYNTAX),
    };
    if n_clauses < 2 {
        return error("conjunction must have at least 2 clauses");
    }
    if n_clauses > 64 {
        return error("conjunction must have at most 64 clauses");
    }
    if clause < 1 {
        return error("clause index must be positive");
    }
    if clause > n_clauses {
        return error("clause index must be less than or equal to number of clauses");
    }
    Ok(Action::Conjunction {
        id,
        clause: clause - 1,
        n_clauses,
    })
}

pub(super) fn hash_fields(text: &str, whole: &str) -> Parsed<HashFields> {
    match HashFields::ALL.iter().find(|(_, name)| *name == text) {
        Some((fields, _)) => Ok(*fields),
        None => error(format!("{whole}: unknown fields `{text}'")),
    }
}

pub(super) fn multipath(text: &str) -> Parsed<Action> {
    let parts = token::parts(text);
    let [fields, basis, algorithm, links, arg, dst] = parts[..] else {
        return error(format!("{text}: not enough arguments to multipath action"));
    };
    let found = MultipathAlgorithm::ALL.iter().find(|(_, name)| *name == algorithm);
    let Some((algorithm, _)) = found else {
        return error(format!("{text}: unknown algorithm `{algorithm}'"));
    };
    let links: u32 = number::named(links, "n_links")?;
    if !(1..=65536).contains(&links) {
        return error(format!("{text}: n_links {links} is not in valid range 1 to 65536"));
    }
    let dst = writable(subfield(dst)?)?;
    if dst.n_bits() < 16 && links > 1 << dst.n_bits() {
        return error(format!(
            "{text}: {}-bit destination field has {} possible values, less than specified n_links {links}",
            dst.n_bits(),
            1u32 << dst.n_bits()
        ));
    }
    Ok(Action::Multipath(Multipath {
        fields: hash_fields(fields, text)?,
        basis: number::named(basis, "basis")?,
        algorithm: *algorithm,
        max_link: (links - 1) as u16,
        arg: number::u32(arg)?,
        dst,
    }))
}

/// Bytes in hexadecimal, with or without dots between them.
pub(super) fn note(text: &str) -> Parsed<Vec<u8>> {
    let digits: String = text.chars().filter(|c| *c != '.').collect();
    let bad = || ParseError::new("bad hex digit in `note' argument");
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return Err(bad());
    }
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|n| u8::from_str_radix(&digits[n..n + 2], 16).map_err(|_| bad()))
        .collect()
}

pub(super) fn check_pkt_larger(size: &str, tail: &str) -> Parsed<Action> {
    let Some(dst) = tail.strip_prefix("->") else {
        return error(format!("{size}: missing `->'"));
    };
    let dst = writable(subfield(dst)?)?;
    match dst.n_bits() {
        1 => Ok(Action::CheckPktLarger {
            pkt_len: number::named(size, "pkt_len")?,
            dst,
        }),
        _ => error("Only 1-bit destination field is allowed"),
    }
}

pub(super) fn encap(text: &str) -> Parsed<Action> {
    let mut rest = text;
    let Some(pair) = token::next(&mut rest) else {
        return error(format!("Missing encap hdr: {text}"));
    };
    let Some((packet_type, _)) = HEADERS.iter().find(|(_, name)| *name == pair.key) else {
        return error(format!("Encap hdr not supported: {}", pair.value));
    };
    let nsh = pair.key == "nsh";
    let mut properties = Vec::new();
    let mut rest = pair.value;
    while let Some(pair) = token::next(&mut rest) {
        properties.push(match pair.key {
            "md_type" if nsh => match number::named(pair.value, "md_type")? {
                kind @ 1..=2 => EncapProperty::NshMdType(kind),
                _ => return error("invalid md_type"),
            },
            "tlv" if nsh => tlv(pair.value)?,
            key => return error(format!("Invalid property: {key}")),
        });
    }
    Ok(Action::Encap {
        packet_type: *packet_type,
        hdr_size: 0,
        properties,
    })
}

pub(super) fn tlv(text: &str) -> Parsed<EncapProperty> {
    let bad = || ParseError::new(format!("Invalid NSH TLV header: {text}"));
    let [class, kind, data] = token::parts(text)[..] else {
        return Err(bad());
    };
    let data = note(data.strip_prefix("0x").unwrap_or(data)).map_err(|_| bad())?;
    match data.len() {
        0..=120 => Ok(EncapProperty::NshTlv {
            class: number::named(class, "tlv_class")?,
            kind: number::named(kind, "tlv_type")?,
            data,
        }),
        _ => Err(bad()),
    }
}

pub(super) fn decap(text: &str) -> Parsed<u32> {
    const UNSAID: u32 = 0xfffe;
    if text.trim().is_empty() {
        return Ok(UNSAID);
    }
    let mut rest = text;
    let Some(pair) = token::next(&mut rest).filter(|p| p.key == "packet_type") else {
        return error(format!("Invalid decap argument: {text}"));
    };
    let (mut space, mut kind) = (None, None);
    let mut rest = pair.value;
    while let Some(pair) = token::next(&mut rest) {
        match pair.key {
            "ns" => match number::named::<u16>(pair.value, "ns")? {
                number @ 0..=1 => space = Some(number),
                number => return error(format!("Unsupported ns value: {number}")),
            },
            "type" => kind = Some(number::named::<u16>(pair.value, "type")?),
            _ => {}
        }
    }
    match (space, kind) {
        (Some(space), Some(kind)) => Ok(u32::from(space) << 16 | u32::from(kind)),
        (None, _) => error("Missing packet_type attribute ns"),
        (_, None) => error("Missing packet_type attribute type"),
    }
}
