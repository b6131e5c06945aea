//! Match fields as TLVs: OpenFlow's OXM (1.3.1 §7.2.3) and Nicira's NXM, which differ in the
//! identifiers in use.

mod order;

use crate::buf::{Reader, Writer};
use crate::model::{Match, Subfield, Value};
use crate::{OfError, Version};
use flow::{Home, MatchField, OxmClass, port_to_of10};
use order::Fields;
use std::sync::OnceLock;

/// The length of a header without experimenter.
const HEADER: usize = 4;
/// NXM's pseudo field for the cookie has the number of a real field; the length distinguishes them.
const COOKIE_NUMBER: u8 = 30;

/// The treatment of unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Refuse the match.
    Refuse,
    /// Skip them, and fields without their prerequisites: in messages from a switch they are
    /// additions.
    Skip,
}

/// A field's header.
#[derive(Clone, Copy, Debug)]
struct Header {
    class: u16,
    experimenter: Option<u32>,
    number: u8,
    masked: bool,
    /// The length of the payload, without the experimenter id.
    len: usize,
}

impl Header {
    /// The length of a value; none if value and mask differ in length.
    fn value_len(&self) -> usize {
        match self.masked {
            true if self.len % 2 == 1 => 0,
            true => self.len / 2,
            false => self.len,
        }
    }

    fn field(&self) -> Option<MatchField> {
        let class = OxmClass::from_numbers(self.class, self.experimenter)?;
        known(class)[usize::from(self.number)]
    }
}

/// The fields of a class by number: each message asks for many.
fn known(class: OxmClass) -> &'static [Option<MatchField>; 128] {
    type Classes = Vec<[Option<MatchField>; 128]>;
    static KNOWN: OnceLock<Classes> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let numbers = |class| std::array::from_fn(|number| MatchField::from_id(class, number as u8));
        OxmClass::ALL.into_iter().map(numbers).collect()
    });
    &known[class as usize]
}

fn read_header(data: &mut Reader<'_>) -> Result<Header, OfError> {
    let [a, b, number, len]: [u8; HEADER] = data.array()?;
    let class = u16::from_be_bytes([a, b]);
    let mut len = usize::from(len);
    let mut experimenter = None;
    if class == 0xffff {
        len = len.checked_sub(4).ok_or(OfError::BmcBadLen)?;
        experimenter = Some(data.u32()?);
    }
    Ok(Header {
        class,
        experimenter,
        number: number >> 1,
        masked: number & 1 != 0,
        len,
    })
}

/// Reads fields until the end. With them may come a cookie and its mask.
pub(crate) fn decode_match(data: &[u8], unknown: Unknown) -> Result<(Match, Option<(u64, u64)>), OfError> {
    let mut data = Reader::new(data, OfError::BmcBadLen);
    // A field takes six bytes at least in most matches.
    let mut matching = Match::with_capacity(data.len() / 6);
    let mut cookie = None;
    while !data.is_empty() {
        let header = read_header(&mut data)?;
        let known = header.field().is_some() || header.class == 1 && header.number == COOKIE_NUMBER;
        if !known && unknown == Unknown::Refuse && header.len > data.len() {
            return Err(OfError::BmcBadField);
        }
        let body = data.take(header.len)?;
        if header.masked && !covers(body) {
            return Err(OfError::BmcBadWildcards);
        }
        if header.class == 1 && header.number == COOKIE_NUMBER && header.value_len() == 8 {
            if cookie.is_some() {
                return Err(OfError::BmcDupField);
            }
            cookie = Some(decode_cookie(body, header.masked)?);
            continue;
        }
        // A known number with another length is another field.
        let right = |field: &MatchField| field.info().home == Home::Elsewhere || field.bytes() == header.value_len();
        let Some(field) = header.field().filter(right) else {
            match unknown {
                Unknown::Refuse => return Err(OfError::BmcBadField),
                Unknown::Skip => continue,
            }
        };
        let added = match decode_body(field, header.masked, body, OfError::BmcBadLen)? {
            (Value::Word(value), Some(Value::Word(mask))) => matching.add(field, value, mask),
            (Value::Word(value), _) => {
                let exact = u128::MAX >> (128 - u32::from(field.info().bits));
                // A field without a mask may still have bits that must be zero.
                matching.add(field, value, exact)
            }
            (Value::Wide(value), mask) => {
                let number = field as u8 - MatchField::TunMetadata0 as u8;
                let mask = match &mask {
                    Some(Value::Wide(mask)) => Some(&mask[..]),
                    _ => None,
                };
                matching.add_tun_metadata(number, &value, mask)
            }
        };
        match added {
            Err(OfError::BmcBadPrereq) if unknown == Unknown::Skip => {}
            added => added?,
        }
    }
    Ok((matching, cookie))
}

/// Whether a value has no bits outside its mask, which follows it.
fn covers(body: &[u8]) -> bool {
    let (value, mask) = body.split_at(body.len() / 2);
    value.iter().zip(mask).all(|(v, m)| v & !m == 0)
}

fn decode_cookie(body: &[u8], masked: bool) -> Result<(u64, u64), OfError> {
    let mut body = Reader::new(body, OfError::BmcBadLen);
    let value = body.u64()?;
    let mask = if masked { body.u64()? } else { u64::MAX };
    body.end()?;
    match value & !mask {
        0 => Ok((value, mask)),
        _ => Err(OfError::BmcBadWildcards),
    }
}

/// Reads a value, and a mask of the same length behind it.
fn decode_body(
    field: MatchField,
    masked: bool,
    body: &[u8],
    short: OfError,
) -> Result<(Value, Option<Value>), OfError> {
    let parts = if masked { 2 } else { 1 };
    let wide = field.info().home == Home::Elsewhere;
    let len = body.len() / parts;
    let right = match wide {
        // A masked field of length 0 asks for presence.
        true => len * parts == body.len() && (len > 0 || masked) && len <= field.bytes(),
        false => body.len() == field.bytes() * parts,
    };
    if !right {
        return Err(short);
    }
    let (value, mask) = body.split_at(len);
    let read = |bytes: &[u8]| match wide {
        true => Value::Wide(bytes.to_vec()),
        false => Value::Word(number(bytes)),
    };
    Ok((read(value), masked.then(|| read(mask))))
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |n, byte| n << 8 | u128::from(*byte))
}

/// Reads one field with its value, as in actions. The errors are those of actions.
pub(crate) fn decode_set(data: &mut Reader<'_>) -> Result<(MatchField, Value, Option<Value>), OfError> {
    let header = read_header(data).map_err(|_| OfError::BacBadSetLen)?;
    let field = header.field().ok_or(OfError::BacBadSetType)?;
    let body = data.take(header.len).map_err(|_| OfError::BacBadSetLen)?;
    let (value, mask) = decode_body(field, header.masked, body, OfError::BacBadSetLen)?;
    match &mask {
        Some(mask) if within(&value, mask) != value => Err(OfError::BmcBadWildcards),
        _ => Ok((field, value, mask)),
    }
}

/// A value under a mask.
fn within(value: &Value, mask: &Value) -> Value {
    match (value, mask) {
        (Value::Word(value), Value::Word(mask)) => Value::Word(value & mask),
        (Value::Wide(value), Value::Wide(mask)) => Value::Wide(value.iter().zip(mask).map(|(v, m)| v & m).collect()),
        // A field's value and its mask are of one kind.
        _ => value.clone(),
    }
}

/// Reads fields with values and without masks, to the end.
pub(crate) fn decode_values(data: &[u8]) -> Result<Vec<(MatchField, Value)>, OfError> {
    let mut data = Reader::new(data, OfError::BmcBadLen);
    let mut fields = Vec::new();
    while !data.is_empty() {
        let header = read_header(&mut data)?;
        let field = header.field().ok_or(OfError::BmcBadField)?;
        let (value, mask) = decode_body(field, header.masked, data.take(header.len)?, OfError::BmcBadLen)?;
        if mask.is_some() {
            return Err(OfError::BmcBadMask);
        }
        let all = field.info().valid;
        if let Value::Word(word) = &value
            && (word & !all != 0 || *word != all && field.info().maskable == flow::Maskable::Exact)
        {
            return Err(OfError::BmcBadMask);
        }
        if fields.iter().any(|(other, _)| *other == field) {
            return Err(OfError::BmcDupField);
        }
        fields.push((field, value));
    }
    Ok(fields)
}

/// Reads a header in a list of fields: the field, if it is known, and whether it may be masked.
pub(crate) fn decode_id(data: &mut Reader<'_>) -> Result<Option<(MatchField, bool)>, OfError> {
    let header = read_header(data)?;
    Ok(header.field().map(|field| (field, header.masked)))
}

/// Reads a header that names a field, without a value behind it.
pub(crate) fn decode_name(data: &mut Reader<'_>) -> Result<MatchField, OfError> {
    let header = read_header(data)?;
    let field = header.field().ok_or(OfError::BacBadSetType)?;
    let wide = field.info().home == Home::Elsewhere;
    match header {
        Header { masked: true, .. } => Err(OfError::BacBadSetMask),
        Header { len, .. } if len == field.bytes() || wide && len <= field.bytes() => Ok(field),
        _ => Err(OfError::BacBadSetLen),
    }
}

/// Reads a bit range written as an offset and the number of bits less one in 16 bits, and a field.
pub(crate) fn decode_subfield(ofs_nbits: u16, field: MatchField) -> Result<Subfield, OfError> {
    Subfield::new(field, ofs_nbits >> 6, (ofs_nbits & 0x3f) + 1).ok_or(OfError::BacBadArgument)
}

/// Writes a field's header. A field without an identifier, which no message may hold, gets that of
/// the field it is a view of.
pub(crate) fn encode_header(out: &mut Writer, field: MatchField, version: Version, masked: bool, bytes: usize) {
    let named = match field {
        MatchField::DlVlan => MatchField::VlanVid,
        MatchField::DlVlanPcp => MatchField::VlanPcp,
        _ => field,
    };
    let Some(id) = named.id(version.number()) else {
        return;
    };
    let (class, experimenter) = id.class.numbers();
    let len = bytes * if masked { 2 } else { 1 } + if experimenter.is_some() { 4 } else { 0 };
    out.u16(class);
    out.u8(id.number << 1 | u8::from(masked));
    out.u8(len as u8);
    if let Some(experimenter) = experimenter {
        out.u32(experimenter);
    }
}

/// Writes a header that names a field.
pub(crate) fn encode_name(out: &mut Writer, field: MatchField, version: Version) {
    encode_header(out, field, version, false, field.bytes());
}

/// How many bytes a header that names a field has.
pub(crate) fn name_len(field: MatchField, version: Version) -> usize {
    let mut out = Writer::new();
    encode_name(&mut out, field, version);
    out.len()
}

/// Writes a field with its value.
pub(crate) fn encode_set(out: &mut Writer, field: MatchField, version: Version, value: &Value, mask: Option<&Value>) {
    let bytes = match value {
        Value::Word(_) => field.bytes(),
        Value::Wide(bytes) => bytes.len(),
    };
    encode_header(out, field, version, mask.is_some(), bytes);
    // Readers refuse bits outside the mask.
    let masked = mask.map(|mask| within(value, mask));
    for value in std::iter::once(masked.as_ref().unwrap_or(value)).chain(mask) {
        match value {
            Value::Word(word) => out.low(*word, bytes),
            Value::Wide(bytes) => out.bytes(bytes),
        }
    }
}

/// Writes a match's fields in Open vSwitch's order, with the identifiers of a version.
pub(crate) fn encode_match(out: &mut Writer, matching: &Match, version: Version) {
    let mut fields = Fields::default();
    for entry in matching.entries() {
        fields.insert(entry.field);
    }
    if !matching.tun_metadata().is_empty() {
        fields.insert(MatchField::TunMetadata0);
    }
    for field in fields {
        if field == MatchField::TunMetadata0 {
            encode_tun_metadata(out, matching, version);
        }
        let Some((value, mask)) = matching.get(field) else {
            continue;
        };
        match field {
            MatchField::VlanTci if version >= Version::V11 => encode_tag(out, value, mask, version),
            MatchField::NwTos if version >= Version::V11 => {
                put(out, MatchField::IpDscp, version, value >> 2, mask >> 2);
            }
            MatchField::InPortOxm if version < Version::V11 => {
                let port = port_to_of10(value as u32);
                put(out, MatchField::InPort, version, port.into(), 0xffff);
            }
            _ if version >= Version::V15 && register(field).is_some() => encode_register(out, matching, field, version),
            _ => put(out, field, version, value, mask),
        }
    }
}

fn encode_tun_metadata(out: &mut Writer, matching: &Match, version: Version) {
    for tun in matching.tun_metadata() {
        if let Some(field) = MatchField::tun_metadata(tun.number) {
            let mask = Value::Wide(tun.mask.clone());
            let mask = (!tun.exact).then_some(&mask);
            encode_set(out, field, version, &Value::Wide(tun.value.clone()), mask);
        }
    }
}

/// The number of a register.
fn register(field: MatchField) -> Option<u8> {
    let number = (field as u8).checked_sub(MatchField::Reg0 as u8)?;
    (number < 16).then_some(number)
}

/// A condition on a register, as one on the packet register that holds it, if the other half is not
/// written yet: OpenFlow 1.5 has these.
fn encode_register(out: &mut Writer, matching: &Match, field: MatchField, version: Version) {
    let number = register(field).unwrap_or(0);
    let pair = MatchField::ALL[MatchField::Xreg0 as usize + usize::from(number / 2)];
    let written = number % 2 == 1 && MatchField::reg(number - 1).is_some_and(|first| matching.get(first).is_some());
    if let (false, Some((value, mask))) = (written, matching.get(pair)) {
        put(out, pair, version, value, mask);
    }
}

fn put(out: &mut Writer, field: MatchField, version: Version, value: u128, mask: u128) {
    if field.id(version.number()).is_none() {
        return;
    }
    let all = field.info().valid;
    // As Open vSwitch writes them: these have bits outside every mask.
    let is_masked = mask & all != all || matches!(field, MatchField::CtState | MatchField::TunFlags);
    let mask = is_masked.then_some(Value::Word(mask));
    encode_set(out, field, version, &Value::Word(value), mask.as_ref());
}

/// A tag's TCI as VLAN id and priority, if those can express it.
fn encode_tag(out: &mut Writer, value: u128, mask: u128, version: Version) {
    const PRESENT: u128 = 0x1000;
    const PRIORITY: u128 = 0xe000;
    if mask == 0xffff && value == 0 {
        put(out, MatchField::VlanVid, version, 0, 0x1fff);
        return;
    }
    let priority = mask & PRIORITY;
    let whole = priority == 0 || priority == PRIORITY && value & PRESENT != 0;
    if !whole || mask & PRESENT == 0 && priority != 0 {
        put(out, MatchField::VlanTci, version, value, mask);
        return;
    }
    put(out, MatchField::VlanVid, version, value & 0x1fff, mask & 0x1fff);
    if priority != 0 {
        put(out, MatchField::VlanPcp, version, value >> 13, 7);
    }
}

/// Writes the cookie condition of Nicira's requests among the fields.
pub(crate) fn encode_cookie(out: &mut Writer, cookie: u64, mask: u64) {
    if mask == 0 {
        return;
    }
    let exact = mask == u64::MAX;
    out.u16(1);
    out.u8(COOKIE_NUMBER << 1 | u8::from(!exact));
    out.u8(if exact { 8 } else { 16 });
    out.u64(cookie & mask);
    if !exact {
        out.u64(mask);
    }
}

/// Reads an `ofp_match` of OpenFlow 1.2 and later: a header, fields, padding to 8 bytes.
pub(crate) fn decode_ofp_match(data: &mut Reader<'_>, unknown: Unknown) -> Result<Match, OfError> {
    const OXM: u16 = 1;
    let start = data.peek();
    let Some([a, b, c, d]) = start.first_chunk() else {
        return Err(OfError::BmcBadLen);
    };
    let (kind, len) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
    data.skip(HEADER)?;
    if kind != OXM {
        return Err(OfError::BmcBadType);
    }
    let fields = len.checked_sub(HEADER).ok_or(OfError::BmcBadLen)?;
    if start.len() < len.next_multiple_of(8) {
        return Err(OfError::BmcBadLen);
    }
    let (matching, cookie) = decode_match(data.take(fields)?, unknown)?;
    data.skip(len.next_multiple_of(8) - len)?;
    match cookie {
        Some(_) => Err(OfError::BmcBadField),
        None => Ok(matching),
    }
}

/// Writes an `ofp_match` of OpenFlow 1.2 and later.
pub(crate) fn encode_ofp_match(out: &mut Writer, matching: &Match, version: Version) {
    let start = out.len();
    out.u16(1);
    out.u16(0);
    encode_match(out, matching, version);
    out.patch_len(start + 2, start);
    out.pad8(start);
}

#[cfg(test)]
mod tests;
