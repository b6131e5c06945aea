//! The output queue of a connection.

/// The unread bytes from which on the agent makes nothing more for a connection.
pub(crate) const HIGH_WATER: usize = 256 << 10;

/// The queue of bytes to send.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// Whether there are bytes that no event was returned for.
    news: bool,
}

impl Outbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.news = true;
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the peer has to read before the agent makes more for it.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= HIGH_WATER
    }

    /// Whether bytes came since the last call of this.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.news = false;
        std::mem::take(&mut self.bytes)
    }
}
