//! Properties, which most messages of later versions contain: type, length, value, padding to 8
//! bytes that the length does not count.

use crate::OfError;
use crate::buf::{Reader, Writer};
use crate::model::Property;

/// Takes the properties of a message one by one.
pub(crate) struct Properties<'r, 'a> {
    data: &'r mut Reader<'a>,
}

impl<'r, 'a> Properties<'r, 'a> {
    /// Up to the end of what `data` reads.
    pub(crate) fn new(data: &'r mut Reader<'a>) -> Properties<'r, 'a> {
        Properties { data }
    }

    /// The next property: its type and its value. If it is too short, the error is
    /// `OFPBPC_BAD_LEN`.
    pub(crate) fn next(&mut self) -> Result<Option<(u16, Reader<'a>)>, OfError> {
        match self.data.is_empty() {
            true => Ok(None),
            false => next(self.data).map(Some),
        }
    }
}

/// The next property: its type, and the data behind its header.
pub(super) fn next<'a>(data: &mut Reader<'a>) -> Result<(u16, Reader<'a>), OfError> {
    let Some([a, b, c, d]) = data.peek().first_chunk() else {
        return Err(OfError::BpcBadLen);
    };
    let (kind, len) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
    let padded = len.next_multiple_of(8);
    if len < 4 || padded > data.len() {
        return Err(OfError::BpcBadLen);
    }
    let bytes = data.take(padded)?;
    Ok((kind, Reader::new(&bytes[4..len], OfError::BpcBadLen)))
}

/// Writes a property.
pub(super) fn put(out: &mut Writer, kind: u16, body: impl FnOnce(&mut Writer)) {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    body(out);
    out.patch_len(start + 2, start);
    out.pad8(start);
}

/// Writes properties as they are.
pub(super) fn put_all(out: &mut Writer, properties: &[Property]) {
    for property in properties {
        put(out, property.kind, |out| out.bytes(&property.data));
    }
}

/// A property as it is.
pub(super) fn raw(kind: u16, mut value: Reader<'_>) -> Property {
    Property {
        kind,
        data: value.rest().to_vec(),
    }
}
