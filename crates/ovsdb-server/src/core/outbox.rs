//! The bytes that wait to be sent to a session.
//!
//! New bytes are staged: they belong to transactions that are not in the database's file yet. After
//! the write [`Outbox::release`] makes them sendable; if it fails, [`Outbox::retract`] removes
//! them.

/// The bytes to one session, oldest first.
///
/// Invariant: `sent <= released <= bytes.len()`.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
    released: usize,
}

/// An empty outbox keeps this much memory for the next messages, in bytes.
const KEEP: usize = 64 << 10;

impl Outbox {
    /// The end of the staged bytes, to append to.
    pub(crate) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Makes all staged bytes sendable.
    pub(crate) fn release(&mut self) {
        self.released = self.bytes.len();
    }

    /// Removes all staged bytes.
    pub(crate) fn retract(&mut self) {
        self.bytes.truncate(self.released);
    }

    /// What may be sent now.
    pub(crate) fn sendable(&self) -> &[u8] {
        &self.bytes[self.sent..self.released]
    }

    /// Removes the first `n` bytes of [`Outbox::sendable`], which were sent.
    pub(crate) fn sent(&mut self, n: usize) {
        self.sent += n;
        debug_assert!(self.sent <= self.released);
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(KEEP);
            (self.sent, self.released) = (0, 0);
        } else if self.sent > KEEP && self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.released -= self.sent;
            self.sent = 0;
        }
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// How many bytes wait, staged ones included.
    pub(crate) fn backlog(&self) -> usize {
        self.bytes.len() - self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_released_bytes_are_sent_and_retracted_ones_never() {
        let mut outbox = Outbox::default();
        outbox.tail().extend_from_slice(b"one");
        assert_eq!(outbox.sendable(), b"");
        outbox.release();
        outbox.tail().extend_from_slice(b"two");
        outbox.sent(2);
        assert_eq!(outbox.sendable(), b"e");
        assert_eq!(outbox.backlog(), 4);
        outbox.retract();
        outbox.sent(1);
        assert_eq!(outbox.backlog(), 0);
        outbox.tail().extend_from_slice(b"three");
        outbox.release();
        assert_eq!(outbox.sendable(), b"three");
    }

    #[test]
    fn a_long_backlog_that_drains_gives_its_memory_back() {
        let mut outbox = Outbox::default();
        outbox.tail().resize(10 * KEEP, 7);
        outbox.release();
        for _ in 0..9 {
            outbox.sent(KEEP);
        }
        assert_eq!(outbox.sendable(), vec![7; KEEP]);
        outbox.sent(KEEP);
        assert!(outbox.bytes.capacity() <= KEEP);
    }
}
