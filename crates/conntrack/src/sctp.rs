//! The state machine of SCTP (RFC 9260 §4), for the tracker between two endpoints.
//!
//! Each side has a verification tag, which its INIT or INIT ACK announces and all packets to it
//! carry (RFC 9260 §8.5). A packet with another tag does not belong to the association.

use crate::tcp::{ASSURED, Verdict};
use crate::timeout::Timeout;
use std::sync::atomic::{AtomicU64, Ordering};

/// Chunk types (RFC 9260 §3.2).
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const HEARTBEAT: u8 = 4;
const HEARTBEAT_ACK: u8 = 5;
const ABORT: u8 = 6;
const SHUTDOWN: u8 = 7;
const SHUTDOWN_ACK: u8 = 8;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;
const SHUTDOWN_COMPLETE: u8 = 14;

/// In the stage word: there was a packet in the reply direction.
const ANSWERED: u64 = 1 << 29;

/// What the machine reads of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Verification tag of the common header.
    pub(crate) tag: u32,
    /// Type of the first chunk; control chunks precede data.
    pub(crate) kind: u8,
    /// The T bit: the tag is the sender's own (§8.5.1).
    pub(crate) reflected: bool,
    /// Initiate tag of INIT and INIT ACK.
    pub(crate) initiate: u32,
}

/// State of an association as the tracker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SctpState {
    /// It is over.
    Closed = 1,
    /// INIT was seen.
    CookieWait = 2,
    /// COOKIE ECHO was seen.
    CookieEchoed = 3,
    /// COOKIE ACK was seen.
    Established = 4,
    /// One side has sent SHUTDOWN.
    Shutdown = 5,
    /// The other has sent SHUTDOWN ACK.
    ShutdownAckSent = 6,
    /// A path of a multihomed association, seen by heartbeats only.
    Heartbeat = 7,
}

impl SctpState {
    pub(crate) fn of(stage: u64) -> SctpState {
        match (stage >> 24) & 0xf {
            2 => SctpState::CookieWait,
            3 => SctpState::CookieEchoed,
            4 => SctpState::Established,
            5 => SctpState::Shutdown,
            6 => SctpState::ShutdownAckSent,
            7 => SctpState::Heartbeat,
            _ => SctpState::Closed,
        }
    }

    fn bits(self) -> u64 {
        (self as u64) << 24
    }

    fn timeout(self) -> Timeout {
        match self {
            SctpState::Closed => Timeout::SctpClosed,
            SctpState::CookieWait => Timeout::SctpCookieWait,
            SctpState::CookieEchoed => Timeout::SctpCookieEchoed,
            SctpState::Established => Timeout::SctpEstablished,
            SctpState::Shutdown => Timeout::SctpShutdown,
            SctpState::ShutdownAckSent => Timeout::SctpShutdownAck,
            SctpState::Heartbeat => Timeout::SctpHeartbeat,
        }
    }

    /// The name in a dump.
    pub const fn name(self) -> &'static str {
        match self {
            SctpState::Closed => "CLOSED",
            SctpState::CookieWait => "COOKIE_WAIT",
            SctpState::CookieEchoed => "COOKIE_ECHOED",
            SctpState::Established => "ESTABLISHED",
            SctpState::Shutdown => "SHUTDOWN_SENT",
            SctpState::ShutdownAckSent => "SHUTDOWN_ACK_SENT",
            SctpState::Heartbeat => "HEARTBEAT_SENT",
        }
    }
}

/// The tags by direction, the stage, and the timeout after the first packet; `None` if no
/// association begins with it. `pickup`: it may be one from the middle.
pub(crate) fn begin(chunk: &Chunk, pickup: bool) -> Option<([u64; 2], u64, Timeout)> {
    let (tags, state) = match chunk.kind {
        // INIT has no tag, and announces that of the packets in the other direction (§8.5.1).
        INIT if chunk.tag == 0 && chunk.initiate != 0 => ([0, u64::from(chunk.initiate)], SctpState::CookieWait),
        HEARTBEAT if chunk.tag != 0 => ([u64::from(chunk.tag), 0], SctpState::Heartbeat),
        INIT | INIT_ACK | ABORT | SHUTDOWN_COMPLETE | SHUTDOWN_ACK | COOKIE_ACK => return None,
        _ if pickup && chunk.tag != 0 => ([u64::from(chunk.tag), 0], SctpState::Established),
        _ => return None,
    };
    Some((tags, state.bits(), state.timeout()))
}

/// One packet. `tags` are those that packets of each direction carry; 0 is not known yet.
pub(crate) fn update(tags: &[AtomicU64; 2], stage: &AtomicU64, chunk: &Chunk, reply: bool, check: bool) -> Verdict {
    let old = stage.load(Ordering::Acquire);
    let state = SctpState::of(old);
    let (own, other) = (&tags[usize::from(reply)], &tags[usize::from(!reply)]);
    if chunk.kind == INIT {
        return match state {
            SctpState::Closed if chunk.tag == 0 => Verdict::Reborn,
            SctpState::CookieWait if chunk.tag == 0 && !reply => {
                other.store(u64::from(chunk.initiate), Ordering::Release);
                Verdict::New(Timeout::SctpCookieWait)
            }
            // A restart or a collision (§5.2): the receiver decides; the state stays.
            _ if chunk.tag == 0 => Verdict::Tolerated,
            _ => Verdict::Invalid,
        };
    }
    let expected = own.load(Ordering::Acquire);
    let reflected = chunk.reflected && matches!(chunk.kind, ABORT | SHUTDOWN_COMPLETE);
    let belongs = match reflected {
        true => u64::from(chunk.tag) == other.load(Ordering::Acquire),
        false => expected == 0 || u64::from(chunk.tag) == expected,
    };
    if check && !belongs {
        return Verdict::Invalid;
    }
    let next = match (chunk.kind, state) {
        (ABORT | SHUTDOWN_COMPLETE, _) => SctpState::Closed,
        (INIT_ACK, SctpState::CookieWait) => state,
        (COOKIE_ECHO, SctpState::CookieWait) => SctpState::CookieEchoed,
        (COOKIE_ACK, SctpState::CookieEchoed) if reply => SctpState::Established,
        (HEARTBEAT_ACK, SctpState::Heartbeat) if reply => SctpState::Established,
        (SHUTDOWN, SctpState::Established) => SctpState::Shutdown,
        (SHUTDOWN_ACK, SctpState::Established | SctpState::Shutdown) => SctpState::ShutdownAckSent,
        // Data from the other side establishes what was picked up in the middle.
        (_, SctpState::Heartbeat) if reply => SctpState::Established,
        // Nothing else belongs before the cookies are exchanged.
        (COOKIE_ECHO | INIT_ACK, _) | (_, SctpState::CookieEchoed) => state,
        (_, SctpState::CookieWait) => return Verdict::Invalid,
        (_, state) => state,
    };
    if expected == 0 && !reflected {
        own.store(u64::from(chunk.tag), Ordering::Release);
    }
    if chunk.kind == INIT_ACK && state == SctpState::CookieWait && reply {
        other.store(u64::from(chunk.initiate), Ordering::Release);
    }
    let answered = if reply { ANSWERED } else { old & ANSWERED };
    let assured = if reply && next == SctpState::Established {
        ASSURED
    } else {
        old & ASSURED
    };
    let new = next.bits() | answered | assured;
    if new != old {
        // A worker that loses the race has seen a packet of the same moment: its next one counts.
        let _ = stage.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
    }
    match answered {
        0 => Verdict::New(next.timeout()),
        _ => Verdict::Valid(next.timeout()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: u8, tag: u32, initiate: u32) -> Chunk {
        Chunk {
            tag,
            kind,
            reflected: false,
            initiate,
        }
    }

    struct Association([AtomicU64; 2], AtomicU64);

    impl Association {
        fn begin(first: Chunk) -> Association {
            let (tags, stage, _) = begin(&first, true).unwrap();
            Association(tags.map(AtomicU64::new), AtomicU64::new(stage))
        }
        fn step(&self, chunk: Chunk, reply: bool) -> Verdict {
            update(&self.0, &self.1, &chunk, reply, true)
        }
    }

    fn established() -> Association {
        let association = Association::begin(chunk(INIT, 0, 7));
        assert_eq!(
            association.step(chunk(INIT_ACK, 7, 9), true),
            Verdict::Valid(Timeout::SctpCookieWait)
        );
        let echoed = association.step(chunk(COOKIE_ECHO, 9, 0), false);
        assert_eq!(echoed, Verdict::Valid(Timeout::SctpCookieEchoed));
        let acked = association.step(chunk(COOKIE_ACK, 7, 0), true);
        assert_eq!(acked, Verdict::Valid(Timeout::SctpEstablished));
        association
    }

    #[test]
    fn an_association_begins_with_cookies_and_ends_with_a_shutdown() {
        let association = established();
        assert_eq!(
            association.step(chunk(SHUTDOWN, 9, 0), false),
            Verdict::Valid(Timeout::SctpShutdown)
        );
        assert_eq!(
            association.step(chunk(SHUTDOWN_ACK, 7, 0), true),
            Verdict::Valid(Timeout::SctpShutdownAck)
        );
        let complete = association.step(chunk(SHUTDOWN_COMPLETE, 9, 0), false);
        assert_eq!(complete, Verdict::Valid(Timeout::SctpClosed));
        assert_eq!(association.step(chunk(INIT, 0, 11), false), Verdict::Reborn);
    }

    #[test]
    fn another_tag_changes_nothing() {
        let association = established();
        assert_eq!(association.step(chunk(ABORT, 8, 0), false), Verdict::Invalid);
        assert_eq!(association.step(chunk(0, 9, 0), true), Verdict::Invalid);
        assert_eq!(
            SctpState::of(association.1.load(Ordering::Relaxed)),
            SctpState::Established
        );
        let reflected = Chunk {
            reflected: true,
            ..chunk(ABORT, 7, 0)
        };
        assert_eq!(association.step(reflected, false), Verdict::Valid(Timeout::SctpClosed));
    }

    #[test]
    fn no_association_begins_with_an_answer_or_a_zero_tag() {
        for kind in [INIT_ACK, ABORT, SHUTDOWN_COMPLETE, SHUTDOWN_ACK, COOKIE_ACK] {
            assert_eq!(begin(&chunk(kind, 5, 5), true), None);
        }
        assert_eq!(begin(&chunk(INIT, 5, 5), true), None);
        assert_eq!(begin(&chunk(INIT, 0, 0), true), None);
        assert_eq!(begin(&chunk(0, 5, 0), false), None);
        assert!(begin(&chunk(0, 5, 0), true).is_some());
    }
}
