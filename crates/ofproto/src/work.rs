//! What a bundle is to do, kept small: there may be a million messages in it.
//!
//! Of rules that are to be added it is kept what they will be ([`Additions`]). Other messages are
//! kept as they came: that is less than what they mean takes.

use openflow::model::{Body, Message};
use openflow::{Codec, HEADER_LEN};
use std::collections::VecDeque;
use std::ops::Range;
use switch::tables::Additions;

/// What is to be done, in its order.
#[derive(Debug, Default)]
pub(crate) struct Work {
    parts: VecDeque<Part>,
    additions: Additions,
    /// What the messages of additions were numbered.
    xids: Vec<u32>,
    /// Other messages, one behind the other.
    messages: Vec<u8>,
}

/// What is to be done next, in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// These rules come.
    Additions(Range<usize>),
    /// The messages in these bytes are carried out.
    Messages(Range<usize>),
}

impl Work {
    /// Takes in a message, and what it means.
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

    /// What is next.
    pub(crate) fn next(&self) -> Option<Part> {
        self.parts.front().cloned()
    }

    /// Notes that what is next is done up to here.
    pub(crate) fn done(&mut self, to: usize) {
        if let Some(Part::Additions(range) | Part::Messages(range)) = self.parts.front_mut() {
            range.start = to;
            if range.start >= range.end {
                self.parts.pop_front();
            }
        }
    }

    /// Rules that are to be added.
    pub(crate) fn additions(&self) -> &Additions {
        &self.additions
    }

    /// The message that asked for a rule.
    pub(crate) fn message_of(&self, codec: Codec, addition: usize) -> Vec<u8> {
        let xid = self.xids.get(addition).copied().unwrap_or(0);
        let change = self.additions.flow_mod(addition).unwrap_or_default();
        let body = Body::FlowMod(Box::new(change));
        codec.encode(&Message { xid, body })
    }

    /// The message that begins at a place among the others.
    pub(crate) fn message_at(&self, at: usize) -> &[u8] {
        message_at(&self.messages, at).unwrap_or_default()
    }
}

fn message_at(messages: &[u8], at: usize) -> Option<&[u8]> {
    let rest = messages.get(at..)?;
    let [_, _, a, b, ..] = rest.first_chunk::<HEADER_LEN>()?;
    rest.get(..usize::from(u16::from_be_bytes([*a, *b])))
}

/// The number of a message.
pub(crate) fn xid_of(message: &[u8]) -> u32 {
    let xid = message.get(4..HEADER_LEN).and_then(|xid| xid.try_into().ok());
    xid.map_or(0, u32::from_be_bytes)
}
