//! Intervals of the protocol (IEEE 802.1AX-2014 §6.4.4).

use core::time::Duration;

/// `Fast_Periodic_Time`: the interval of LACPDUs with the short timeout.
pub const FAST: Duration = Duration::from_secs(1);
/// `Slow_Periodic_Time`: the interval of LACPDUs with the long timeout.
pub const SLOW: Duration = Duration::from_secs(30);
/// Intervals without an LACPDU until the partner's information expires.
pub const MULTIPLIER: u32 = 3;
/// LACPDUs that a member sends in one [`FAST`] interval at most (§6.4.16). Marker responses have
/// the same limit.
pub const BURST: usize = 3;

/// The interval of LACPDUs for a timeout.
pub const fn interval(fast: bool) -> Duration {
    if fast { FAST } else { SLOW }
}

/// How long received information stays current.
pub const fn timeout(fast: bool) -> Duration {
    interval(fast).saturating_mul(MULTIPLIER)
}
