//! Splits a byte stream into messages.

use thiserror::Error;

/// The length of the header that every message begins with.
pub const HEADER_LEN: usize = 8;

/// The longest message: its length is a 16-bit number.
pub const MAX_LEN: usize = 65_535;

/// A stream that cannot be split into messages. The connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FramerError {
    /// A header with a length less than its own.
    #[error("received too-short ofp_header ({0} bytes)")]
    TooShort(u16),
    /// A message longer than the limit.
    #[error("received too-long ofp_header ({0} bytes)")]
    TooLong(u16),
}

/// Splits a stream into messages. It holds at most one message and what arrived with its last
/// bytes.
#[derive(Clone, Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    /// The position of the first byte not yet returned.
    start: usize,
    limit: usize,
}

impl Framer {
    /// A framer for messages of up to 65 535 bytes.
    pub fn new() -> Framer {
        Framer::with_limit(MAX_LEN)
    }

    /// A framer for messages of up to `limit` bytes.
    pub(crate) fn with_limit(limit: usize) -> Framer {
        Framer {
            buffer: Vec::new(),
            start: 0,
            limit,
        }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message with its header; `None` if bytes are missing.
    ///
    /// # Errors
    /// The stream is broken from here on; all later calls return the same error.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<&[u8]>, FramerError> {
        let Some(len) = self.ready()? else { return Ok(None) };
        let from = self.start;
        self.start += len;
        Ok(Some(&self.buffer[from..from + len]))
    }

    /// The length of the next message, if all of it was received.
    ///
    /// # Errors
    /// As [`Framer::next`].
    pub fn ready(&self) -> Result<Option<usize>, FramerError> {
        let Some([_, _, a, b, ..]) = self.peek() else {
            return Ok(None);
        };
        let length = u16::from_be_bytes([*a, *b]);
        let len = usize::from(length);
        if len < HEADER_LEN {
            return Err(FramerError::TooShort(length));
        }
        if len > self.limit {
            return Err(FramerError::TooLong(length));
        }
        Ok((self.pending() >= len).then_some(len))
    }

    /// The header of the next message, if it was received.
    pub fn peek(&self) -> Option<&[u8; HEADER_LEN]> {
        self.buffer[self.start..].first_chunk()
    }

    /// The number of bytes not yet returned.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }
}

impl Default for Framer {
    fn default() -> Framer {
        Framer::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_are_the_same_however_the_stream_is_cut(bodies in proptest::collection::vec(0usize..40, 0..8), cut in 1usize..30) {
            let messages: Vec<Vec<u8>> = bodies
                .iter()
                .enumerate()
                .map(|(n, len)| [vec![4, n as u8, 0, (len + 8) as u8, 0, 0, 0, 1], vec![7; *len]].concat())
                .collect();
            let mut framer = Framer::new();
            let mut seen = Vec::new();
            for part in messages.concat().chunks(cut) {
                framer.push(part);
                while let Some(message) = framer.next().unwrap() {
                    seen.push(message.to_vec());
                }
            }
            prop_assert_eq!(seen, messages);
            prop_assert_eq!(framer.pending(), 0);
        }
    }

    #[test]
    fn a_length_less_than_a_header_ends_the_stream() {
        let mut framer = Framer::new();
        framer.push(&[4, 0, 0, 7, 0, 0, 0, 0]);
        assert_eq!(framer.next(), Err(FramerError::TooShort(7)));
        framer.push(&[4, 0, 0, 8, 0, 0, 0, 0]);
        assert_eq!(framer.next(), Err(FramerError::TooShort(7)));
    }

    #[test]
    fn a_message_longer_than_the_limit_is_refused_before_it_is_buffered() {
        let mut framer = Framer::with_limit(100);
        framer.push(&[4, 0, 0, 101, 0, 0, 0, 0]);
        assert_eq!(framer.next(), Err(FramerError::TooLong(101)));
    }
}
