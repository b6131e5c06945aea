//! Intervals of the protocol (IEEE 802.1AB-2016 §9.2.5), with the values of Open vSwitch.

use core::time::Duration;

/// `msgTxInterval`: the interval between two LLDPDUs of an interface.
pub const TX_INTERVAL: Duration = Duration::from_secs(5);
/// How long receivers keep what an LLDPDU says, in seconds.
pub const TTL: u16 = 120;
/// `txCreditMax`: LLDPDUs that an interface sends at once for changes, at most. It regains one each
/// second.
pub const TX_CREDIT: u32 = 5;
/// The time in which one LLDPDU of [`TX_CREDIT`] comes back.
pub const TX_CREDIT_INTERVAL: Duration = Duration::from_secs(1);
