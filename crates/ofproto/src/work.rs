//! The messages of a bundle, stored compactly: a bundle may have a million of them.
//!
//! Flow mods that add rules are stored as the rules to add ([`Additions`]). Other messages are
//! stored as bytes, which take less memory than their decoded form.

use openflow::model::{Body, Message};
use openflow::{Codec, HEADER_LEN};
use std::collections::VecDeque;
use std::ops::Range;
use switch::tables::Additions;

/// The messages in order.
#[derive(Debug, Default)]
pub(crate) struct Work {
    parts: VecDeque<Part>,
    additions: Additions,
    /// The transaction ids of the additions.
    xids: Vec<u32>,
    /// The bytes of the other messages.
    messages: Vec<u8>,
}

/// A run of messages of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Additions, by index.
    Additions(Range<usize>),
    /// Other messages, by position in bytes.
    Messages(Range<usize>),
}

impl Work {
    /// Adds a message, with its decoded form.
    pub(crate) fn push(&mut self, message: &[u8], meaning: Body) {
        let rest = match meaning {
            Body::FlowMod(change) => self.additions.push(change).is_err(),
            _ => true,
        };
        if rest {
            let start = self.messages.len();
            self.messages.extend_from_slice(message);
            let end = self.messages.len();
            match self.parts.back_mut() {
                Some(Part::Messages(range)) => range.end = end,
                _ => self.parts.push_back(Part::Messages(start..end)),
            }
        } else {
            let start = self.xids.len();
            self.xids.push(xid_of(message));
            match self.parts.back_mut() {
                Some(Part::Additions(range)) => range.end = start + 1,
                _ => self.parts.push_back(Part::Additions(start..start + 1)),
            }
        }
    }

    /// The next run.
    pub(crate) fn next(&self) -> Option<Part> {
        self.parts.front().cloned()
    }

    /// Marks the next run as done up to `to`.
    pub(crate) fn done(&mut self, to: usize) {
        if let Some(Part::Additions(range) | Part::Messages(range)) = self.parts.front_mut() {
            range.start = to;
            if range.start >= range.end {
                self.parts.pop_front();
            }
        }
    }

    /// The rules to add.
    pub(crate) fn additions(&self) -> &Additions {
        &self.additions
    }

    /// The message of an addition, encoded again.
    pub(crate) fn message_of(&self, codec: Codec, addition: usize) -> Vec<u8> {
        let xid = self.xids.get(addition).copied().unwrap_or(0);
        let change = self.additions.flow_mod(addition).unwrap_or_default();
        let body = Body::FlowMod(Box::new(change));
        codec.encode(&Message { xid, body })
    }

    /// The message at a position among the others.
    pub(crate) fn message_at(&self, at: usize) -> &[u8] {
        message_at(&self.messages, at).unwrap_or_default()
    }
}

fn message_at(messages: &[u8], at: usize) -> Option<&[u8]> {
    let rest = messages.get(at..)?;
    let [_, _, a, b, ..] = rest.first_chunk::<HEADER_LEN>()?;
    rest.get(..usize::from(u16::from_be_bytes([*a, *b])))
}

/// The transaction id of a message.
pub(crate) fn xid_of(message: &[u8]) -> u32 {
    let xid = message.get(4..HEADER_LEN).and_then(|xid| xid.try_into().ok());
    xid.map_or(0, u32::from_be_bytes)
}
