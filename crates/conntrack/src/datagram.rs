//! Protocols without connections: UDP, ICMP echo and all others. The machine only knows whether
//! there was an answer.

use crate::tcp::{ASSURED, Verdict};
use crate::timeout::Timeout;
use std::sync::atomic::{AtomicU64, Ordering};

/// More than one packet, all in the original direction.
const REPEATED: u64 = 1;

/// The stage and timeout after the first packet.
pub(crate) fn begin(icmp: bool) -> (u64, Timeout) {
    (0, if icmp { Timeout::IcmpFirst } else { Timeout::UdpFirst })
}

/// One packet.
#[inline]
pub(crate) fn update(stage: &AtomicU64, icmp: bool, reply: bool) -> Verdict {
    let old = stage.load(Ordering::Relaxed);
    let new = match (reply, old) {
        (true, _) => ASSURED,
        (false, 0) => REPEATED,
        (false, old) => old,
    };
    if new != old && old & ASSURED == 0 {
        // An answer that another worker notes at the same time is not lost.
        stage.fetch_or(new, Ordering::Relaxed);
    }
    let answered = (old | new) & ASSURED != 0;
    match (answered, icmp) {
        (true, true) => Verdict::Valid(Timeout::IcmpReply),
        (true, false) => Verdict::Valid(Timeout::UdpMultiple),
        (false, true) => Verdict::New(Timeout::IcmpFirst),
        (false, false) => Verdict::New(Timeout::UdpSingle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_new_until_the_first_answer() {
        let stage = AtomicU64::new(begin(false).0);
        assert_eq!(update(&stage, false, false), Verdict::New(Timeout::UdpSingle));
        assert_eq!(update(&stage, false, true), Verdict::Valid(Timeout::UdpMultiple));
        assert_eq!(update(&stage, false, false), Verdict::Valid(Timeout::UdpMultiple));
        let stage = AtomicU64::new(begin(true).0);
        assert_eq!(update(&stage, true, false), Verdict::New(Timeout::IcmpFirst));
        assert_eq!(update(&stage, true, true), Verdict::Valid(Timeout::IcmpReply));
    }
}
