//! The message: a header of 16 bytes, and sets of records (RFC 7011 §3).

use std::time::Duration;

/// A message has no more bytes than this.
const MOST_BYTES: usize = 1400;

/// The set of templates, and that of options templates.
pub(super) const TEMPLATES: u16 = 2;
pub(super) const OPTIONS: u16 = 3;

const SET_HEADER: usize = 4;

/// A message that is being made.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
    /// The number of the last set and its place.
    set: Option<(u16, usize)>,
}

impl Message {
    /// A message without records; `sequence` data records of the domain came before.
    pub(super) fn new(wall: Duration, sequence: u32, domain: u32) -> Message {
        let mut bytes = Vec::with_capacity(MOST_BYTES);
        bytes.extend(10u16.to_be_bytes());
        bytes.extend([0; 2]);
        bytes.extend((wall.as_secs() as u32).to_be_bytes());
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(domain.to_be_bytes());
        Message { bytes, set: None }
    }

    /// Whether a record of a set fits in. A message without records has room for any.
    pub(super) fn has_room(&self, set: u16, len: usize) -> bool {
        let header = match self.set {
            Some((last, _)) if last == set => 0,
            Some(_) => SET_HEADER,
            None => return true,
        };
        self.bytes.len() + header + len <= MOST_BYTES
    }

    /// Appends a record to the last set, or to a new one.
    pub(super) fn record(&mut self, set: u16, record: &[u8]) {
        if self.set.is_none_or(|(last, _)| last != set) {
            self.set = Some((set, self.bytes.len()));
            self.bytes.extend(set.to_be_bytes());
            self.bytes.extend([0; 2]);
        }
        self.bytes.extend(record);
        if let Some((_, at)) = self.set {
            let len = (self.bytes.len() - at) as u16;
            self.bytes[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let len = self.bytes.len() as u16;
        self.bytes[2..4].copy_from_slice(&len.to_be_bytes());
        self.bytes
    }
}
