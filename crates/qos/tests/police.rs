//! Compares policers with their sources.

use proptest::prelude::*;
use qos::Nanos;
use qos::police::{
    Color, EgressPolicer, EgressPolicerConfig, IngressPolicer, IngressPolicerConfig, TrTcm, TrTcmConfig,
};

const SECOND: u64 = 1_000_000_000;

#[test]
fn an_egress_policer_passes_its_rate_and_one_burst() {
    let mut policer = EgressPolicer::new(EgressPolicerConfig::new(1_000_000, 20_000).unwrap());
    let passed: u64 = (0..4_000_000)
        .filter(|n| policer.pass(1_000, Nanos(SECOND + n * 2_500)))
        .count() as u64;
    assert!((10_019..=10_020).contains(&passed), "{passed}");
    assert!(EgressPolicerConfig::new(0, 1).unwrap_err().to_string().contains("cir"));
}

#[test]
fn an_ingress_policer_has_the_defaults_of_the_manual_and_takes_from_both_buckets_or_none() {
    // 8000 kbit at once, then 1000 kbit/s.
    let mut policer = IngressPolicer::new(IngressPolicerConfig::new(1_000, 0, 0, 0).unwrap());
    let at_once = (0..10_000).filter(|_| policer.pass(1_000, 1, Nanos(SECOND))).count();
    assert_eq!(at_once, 1_000);
    let later = (0..10_000)
        .filter(|_| policer.pass(1_000, 1, Nanos(2 * SECOND)))
        .count();
    assert_eq!(later, 125);
    // 16 kpkts at once; then the bytes of those that found no packet tokens are still there.
    let mut policer = IngressPolicer::new(IngressPolicerConfig::new(8_000_000, 8_000_000, 1, 0).unwrap());
    assert_eq!(
        (0..20_000).filter(|_| policer.pass(60, 1, Nanos(SECOND))).count(),
        16_000
    );
    assert!(!policer.pass(60, 1, Nanos(SECOND)));
    assert!(policer.pass(60, 1, Nanos(SECOND + 1_000_000)));
    let off = IngressPolicerConfig::new(0, 5, 0, 5).unwrap();
    assert!(off.is_off());
    policer.change(off, Nanos(SECOND));
    assert!((0..100_000).all(|_| policer.pass(1_500, 1, Nanos(SECOND))));
}

proptest! {
    /// Against section 3 of RFC 4115, with tokens as fractions.
    #[test]
    fn the_marker_colors_as_its_rfc_says(
        cir in 0u64..10_000, cbs in 1u64..5_000, eir in 0u64..10_000, ebs in 0u64..5_000,
        packets in prop::collection::vec((0u64..300_000_000, 1u32..1_500, 0u8..3), 1..200),
    ) {
        let mut marker = TrTcm::new(TrTcmConfig::new(cir, cbs, eir, ebs).unwrap());
        const UNIT: u128 = 1_000_000_000;
        let (mut tc, mut te) = (u128::from(cbs) * UNIT, u128::from(ebs) * UNIT);
        let mut now = SECOND;
        for (gap, bytes, was) in packets {
            now += gap;
            tc = (tc + u128::from(cir) * u128::from(gap)).min(u128::from(cbs) * UNIT);
            te = (te + u128::from(eir) * u128::from(gap)).min(u128::from(ebs) * UNIT);
            let was = [Color::Green, Color::Yellow, Color::Red][usize::from(was)];
            let size = u128::from(bytes) * UNIT;
            let wanted = if was == Color::Green && tc >= size {
                tc -= size;
                Color::Green
            } else if was != Color::Red && te >= size {
                te -= size;
                Color::Yellow
            } else {
                Color::Red
            };
            prop_assert_eq!(marker.color(bytes, was, Nanos(now)), wanted);
        }
    }
}
