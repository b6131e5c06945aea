//! What connections hold of the memory budget of all connections.

use crate::conn::{Closed, Conn};
use crate::outbox::HIGH_WATER;

telemetry::counters! {
    /// Messages that a bundle was refused for lack of memory, and bundles that were not begun.
    pub(crate) BUNDLE_REFUSED = "openflow_bundle_refused";
    /// Parts of multipart requests that were refused for lack of memory.
    pub(crate) REQUEST_REFUSED = "openflow_request_refused";
    /// Packet-ins dropped for lack of memory.
    pub(crate) PACKET_IN_DROPPED = "openflow_packet_in_dropped";
    /// Connections closed because their peer leaves too much unread.
    pub(crate) UNREAD_CLOSED = "openflow_unread_closed";
    /// Connections closed because their peer sent no hello in time.
    pub(crate) HELLO_TIMEOUT = "openflow_hello_timeout";
}

/// Bytes of a connection's state beside those that are counted.
pub(crate) const OVERHEAD: usize = 256;

impl Conn {
    /// Makes its share of the budget what it holds now.
    pub(crate) fn account(&mut self) {
        let partial = self.partial.as_ref().map_or(0, |partial| partial.len);
        let job = self.dump.as_ref().map_or(0, |job| job.bytes());
        let held = self.out.len() + self.bundles.bytes() + self.packets.bytes() + partial + job;
        if held != self.share.held() {
            self.share.set(held);
        }
    }

    /// Closes the connection if what the peer leaves unread is more than its part. Nothing that it
    /// is to be told may be missing unnoticed, so that its peer has to connect and ask again.
    pub(crate) fn close_if_unread(&mut self) -> bool {
        let unread = self.out.len();
        if unread <= HIGH_WATER {
            return false;
        }
        self.account();
        let too_much = unread > self.most_unread || self.share.is_exceeded();
        if too_much && self.closed.is_none() {
            UNREAD_CLOSED.inc();
            self.closed = Some(Closed::Stalled);
        }
        too_much
    }
}
