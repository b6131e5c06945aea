//! The intervals of a session (RFC 5880 §6.8.3, §6.8.4, §6.8.7).

use crate::random::Random;
use core::time::Duration;

/// A session that is not up sends no faster than this (§6.8.3).
pub const SLOW: Duration = Duration::from_secs(1);
/// No interval is shorter, whatever the other end asks for.
pub const SHORTEST: Duration = Duration::from_millis(1);
/// The least time between a packet and one that only tells of a change.
pub const LEAST_GAP: Duration = Duration::from_millis(10);
/// For at least this long, received data counts as a sign of life; an interface without data for at
/// least this long is idle.
pub const DATA_WINDOW: Duration = Duration::from_secs(2);
/// How often the received data is looked at.
pub const COUNT_INTERVAL: Duration = Duration::from_millis(500);
/// Received data counts only if a control packet came within this many receive intervals.
pub const CONTROL_WINDOW: u32 = 100;

/// An interval of a control packet; 0 stays 0.
pub(crate) fn from_wire(micros: u32) -> Duration {
    match micros {
        0 => Duration::ZERO,
        _ => Duration::from_micros(micros.into()).max(SHORTEST),
    }
}

/// An interval for a control packet.
pub(crate) fn to_wire(interval: Duration) -> u32 {
    u32::try_from(interval.as_micros()).unwrap_or(u32::MAX)
}

/// An interval shortened at random by up to a quarter, and by at least a tenth where one lost
/// packet ends the session (§6.8.7).
pub(crate) fn jittered(interval: Duration, multiplier: u8, random: &mut Random) -> Duration {
    let least = if multiplier == 1 { 10 } else { 0 };
    let percent = 100 - least - (random.next() % (26 - u64::from(least))) as u32;
    interval / 100 * percent
}
