//! The connections' shares of the memory budget.

use crate::conn::{Closed, Conn};
use crate::outbox::HIGH_WATER;

telemetry::counters! {
    /// Bundle messages and bundles refused for lack of memory.
    pub(crate) BUNDLE_REFUSED = "openflow_bundle_refused";
    /// Parts of multipart requests refused for lack of memory.
    pub(crate) REQUEST_REFUSED = "openflow_request_refused";
    /// Packet-ins dropped for lack of memory.
    pub(crate) PACKET_IN_DROPPED = "openflow_packet_in_dropped";
    /// Connections closed because their peer left too much unread.
    pub(crate) UNREAD_CLOSED = "openflow_unread_closed";
    /// Connections closed because their peer sent no hello in time.
    pub(crate) HELLO_TIMEOUT = "openflow_hello_timeout";
}

/// Bytes of a connection's state that are not counted otherwise.
pub(crate) const OVERHEAD: usize = 256;

impl Conn {
    /// Updates its share of the budget.
    pub(crate) fn account(&mut self) {
        let partial = self.partial.as_ref().map_or(0, |partial| partial.len);
        let job = self.job.as_ref().map_or(0, |job| job.bytes());
        let held = self.out.len() + self.bundles.bytes() + self.packets.bytes() + partial + job;
        if held != self.share.held() {
            self.share.set(held);
        }
    }

    /// Closes the connection if the peer leaves more unread than its share. The peer must not miss
    /// a message without notice, so it has to connect and ask again.
    pub(crate) fn close_if_unread(&mut self) -> bool {
        let unread = self.out.len();
        if unread <= HIGH_WATER {
            return false;
        }
        self.account();
        let too_much = unread > self.most_unread || self.share.is_exceeded();
        if too_much && self.closed.is_none() {
            UNREAD_CLOSED.inc();
            self.closed = Some(Closed::NotReading);
        }
        too_much
    }
}
