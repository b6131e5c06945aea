//! Packet-ins.

use crate::agent::Agent;
use crate::asynchronous::AsyncEvent;
use crate::conn::Conn;
use crate::memory::{OVERHEAD, PACKET_IN_DROPPED};
use flow::MatchField;
use nanos::Nanos;
use openflow::Version;
use openflow::model::{Body, PacketIn, Port};
use switch::tables::ForController;

/// The reason of a packet that matched no rule.
const NO_MATCH: u8 = 0;
/// The reason of a packet that an action sent. Until OpenFlow 1.3 it covers action sets, buckets
/// and packet-outs too.
const ACTION: u8 = 1;
const ACTION_SET: u8 = 3;
const PACKET_OUT: u8 = 5;

impl Agent {
    /// Sends a packet to controllers: its bytes (all of them unless an action truncated it), its
    /// original length, and its mark. The switch buffers no packets, whatever a `miss_send_len`
    /// says.
    pub fn packet_in(&mut self, meaning: &ForController, packet: &[u8], (total_len, mark): (usize, u32), now: Nanos) {
        let mut metadata = meaning.metadata.clone();
        if mark != 0 {
            metadata.set(MatchField::PktMark, mark.into(), u32::MAX.into());
        }
        let in_port = in_port(meaning);
        for conn in self.conns.values_mut() {
            let reason = reason(meaning.reason, conn.version().unwrap_or(Version::V10));
            if conn.controller_id != meaning.controller || !conn.wants(AsyncEvent::PacketIn(reason)) {
                continue;
            }
            let message = PacketIn {
                format: conn.packet_in_format,
                buffer_id: None,
                total_len: u32::try_from(total_len).unwrap_or(u32::MAX),
                reason,
                table: meaning.table,
                cookie: meaning.cookie,
                metadata: metadata.clone(),
                data: packet.to_vec(),
                userdata: meaning.userdata.clone(),
                continuation: meaning.continuation.map(continuation).unwrap_or_default(),
            };
            conn.offer_packet(in_port, message, now);
        }
        self.copy_to_snoops();
    }
}

impl Conn {
    /// Sends a packet, or queues it if the peer does not read or the rate limit is reached. Drops
    /// it if the connection's share of the memory budget has no room.
    fn offer_packet(&mut self, in_port: Port, message: PacketIn, now: Nanos) {
        let (reason, bytes) = (message.reason, message.data.len() + OVERHEAD);
        let may_send = !self.out.is_full();
        let has_room = self.share.grow(bytes).is_ok() || {
            // The share still counts packets that were dropped from the queue.
            self.account();
            self.share.grow(bytes).is_ok()
        };
        let waits = !may_send || self.packets.next_event().is_some();
        if waits && !has_room {
            PACKET_IN_DROPPED.inc();
            return self.packets.refuse(reason);
        }
        match self.packets.offer(in_port, message, may_send, now) {
            Some(message) => {
                if has_room {
                    self.share.shrink(bytes);
                }
                self.send(0, Body::PacketIn(Box::new(message)));
            }
            None => {
                if !has_room {
                    self.share.charge(bytes);
                }
                self.send_packets(now);
            }
        }
    }

    /// Sends queued packets, as far as the peer reads them and the rate limit allows.
    pub(crate) fn send_packets(&mut self, now: Nanos) {
        while !self.out.is_full() {
            let Some(packet) = self.packets.pop(now) else { return };
            self.send(0, Body::PacketIn(Box::new(packet)));
        }
    }
}

/// A packet's reason in a version.
fn reason(reason: u8, version: Version) -> u8 {
    match reason {
        ForController::MISS => NO_MATCH,
        ForController::TABLE_MISS if version >= Version::V13 => NO_MATCH,
        ForController::TABLE_MISS => ACTION,
        ACTION_SET..=PACKET_OUT if version < Version::V14 => ACTION,
        reason => reason,
    }
}

fn in_port(meaning: &ForController) -> Port {
    let number = meaning.metadata.exact(MatchField::InPortOxm);
    number.and_then(|port| u32::try_from(port).ok()).map_or(Port::ANY, Port)
}

/// The bytes before the handle in a continuation: the header of an experimenter's property (type,
/// 16 bytes, Nicira's number, `oxvs`). Clients parse continuations when they print them. They skip
/// properties that they do not know, and call anything else a broken message.
const CONTINUATION: [u8; 12] = *b"\xff\xff\0\x10\0\0\x23\x20oxvs";

/// The continuation of a paused packet: the switch's handle of the place to resume at.
fn continuation(handle: u32) -> Vec<u8> {
    [&CONTINUATION[..], &handle.to_be_bytes()].concat()
}

/// The handle in what [`continuation`] returned; `None` for what it cannot have returned.
pub(crate) fn handle(continuation: &[u8]) -> Option<u32> {
    let handle = continuation.strip_prefix(&CONTINUATION)?;
    Some(u32::from_be_bytes(handle.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::{ConnId, Kind, Options};
    use openflow::model::{Match, PacketInFormat};
    use openflow::{Codec, Versions};
    use telemetry::budget::Budget;

    fn packet(len: usize) -> PacketIn {
        PacketIn {
            format: PacketInFormat::Standard,
            buffer_id: None,
            total_len: len as u32,
            reason: ACTION,
            table: 0,
            cookie: 0,
            metadata: Match::ANY,
            data: vec![0; len],
            userdata: Vec::new(),
            continuation: Vec::new(),
        }
    }

    #[test]
    fn packets_for_a_peer_that_does_not_read_take_no_more_than_its_part_of_the_budget() {
        const LIMIT: usize = 1 << 20;
        let (budget, now) = (Budget::new(LIMIT, 4096), Nanos::ZERO);
        let options = Options::new(Kind::Primary, "peer".to_owned());
        let mut conn = Conn::new(ConnId(1), options, Versions::ALL, 100_000, budget.share(), now);
        conn.codec = Some(Codec::new(Version::V13));
        for _ in 0..10_000 {
            conn.offer_packet(Port(1), packet(1000), now);
        }
        assert!(conn.out.is_full() && conn.closed.is_none());
        let waiting = conn.packets.bytes();
        assert!(waiting > LIMIT / 8 && waiting <= LIMIT / 2, "{waiting}");
        assert!(conn.share.held() >= waiting && budget.held() <= LIMIT);
        assert!(conn.packets.dropped() > 0);
    }

    #[test]
    fn packets_that_gave_way_to_later_ones_leave_their_memory_to_them() {
        let (budget, now) = (Budget::new(1 << 20, 4096), Nanos::ZERO);
        let options = Options::new(Kind::Primary, "peer".to_owned());
        let mut conn = Conn::new(ConnId(1), options, Versions::ALL, 10, budget.share(), now);
        conn.codec = Some(Codec::new(Version::V13));
        while !conn.out.is_full() {
            conn.offer_packet(Port(1), packet(1000), now);
        }
        for n in 0..10_000 {
            conn.offer_packet(Port(1), packet(n % 500), now);
        }
        // The last are there, as nothing but their number is in the way.
        let waiting: usize = (9_990..10_000).map(|n| n % 500 + OVERHEAD).sum();
        assert_eq!(conn.packets.bytes(), waiting);
        conn.account();
        assert_eq!(conn.share.held(), conn.out.len() + waiting);
    }
}
