//! Checks policers by the guarantee of a token bucket: in no interval more than the burst plus the
//! rate times the interval.

use proptest::prelude::*;
use qos::Nanos;
use qos::police::{EgressPolicer, EgressPolicerConfig, IngressPolicer, IngressPolicerConfig};

/// The times and amounts that passed.
#[derive(Default)]
struct Passed(Vec<(u64, u64)>);

impl Passed {
    /// Whether `amount` more at `now` stays within burst and rate (a second) for every interval.
    fn has_room(&self, amount: u64, now: u64, rate: u64, burst: u64) -> bool {
        let mut sum = u128::from(amount);
        let within = |sum: u128, since: u64| {
            sum * 1_000_000_000 <= u128::from(burst) * 1_000_000_000 + u128::from(rate) * u128::from(now - since)
        };
        within(sum, now)
            && self.0.iter().rev().all(|(at, amount)| {
                sum += u128::from(*amount);
                within(sum, *at)
            })
    }
}

proptest! {
    #[test]
    fn an_egress_policer_passes_what_its_envelope_has_room_for_and_no_more(
        cir in 1u64..200_000, cbs in 1u64..6_000,
        packets in prop::collection::vec((0u64..60_000_000, 40u32..1_500), 1..150),
    ) {
        let mut policer = EgressPolicer::new(EgressPolicerConfig::new(cir, cbs).unwrap());
        let mut passed = Passed::default();
        let mut now = 1_000_000_000;
        for (gap, bytes) in packets {
            now += gap;
            let wanted = passed.has_room(u64::from(bytes), now, cir, cbs);
            prop_assert_eq!(policer.pass(bytes, Nanos(now)), wanted);
            if wanted {
                passed.0.push((now, u64::from(bytes)));
            }
        }
    }

    #[test]
    fn an_ingress_policer_passes_what_both_of_its_envelopes_have_room_for(
        kbits in 0u64..2_000, burst in 0u64..30, kpkts in 0u64..2, packets_burst in 0u64..2,
        packets in prop::collection::vec((0u64..20_000_000, 40u32..3_000, 1u32..400), 1..150),
    ) {
        let mut policer = IngressPolicer::new(IngressPolicerConfig::new(kbits, burst, kpkts, packets_burst).unwrap());
        let depth = |set: u64, default: u64, unit: u64| if set == 0 { default * unit } else { set * unit };
        let (mut bytes_passed, mut packets_passed) = (Passed::default(), Passed::default());
        let mut now = 1_000_000_000;
        for (gap, bytes, segments) in packets {
            now += gap;
            let (bytes_now, packets_now) = (u64::from(bytes), u64::from(segments));
            let wanted = (kbits == 0 || bytes_passed.has_room(bytes_now, now, kbits * 125, depth(burst, 8_000, 125)))
                && (kpkts == 0 || packets_passed.has_room(packets_now, now, kpkts * 1_000, depth(packets_burst, 16, 1_000)));
            prop_assert_eq!(policer.pass(bytes, segments, Nanos(now)), wanted);
            if wanted {
                bytes_passed.0.push((now, bytes_now));
                packets_passed.0.push((now, packets_now));
            }
        }
    }
}
