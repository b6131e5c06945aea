//! What waits to be sent on a connection.

/// As many bytes as a connection's peer may leave unread before nothing more is made for it.
pub(crate) const HIGH_WATER: usize = 256 << 10;

/// Bytes to be sent, in order.
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

    /// Whether the peer has to read before more is made for it.
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
