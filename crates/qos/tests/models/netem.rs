//! tc-netem(8): each packet by itself leaves after the latency, give or take the jitter, or is
//! lost.

use crate::common::{Parcel, nothing_dropped};
use proptest::prelude::*;
use qos::{Cause, Nanos, Netem, NetemConfig, Scheduler};

proptest! {
    #[test]
    fn each_packet_is_delayed_by_itself_and_what_finds_no_room_is_dropped(
        latency in 0u64..20_000, jitter in 0u64..10_000, limit in 1usize..60, seed: u64,
        gaps in prop::collection::vec(0u64..3_000_000, 1..200),
    ) {
        let mut netem = Netem::new(NetemConfig::new(latency, jitter, 0.0, limit as u64, seed).unwrap());
        // What is on its way, without an order: it leaves within the window of its own.
        let mut inside: Vec<Parcel> = Vec::new();
        let (mut now, mut last) = (Nanos::from_secs(1), 0);
        let early = latency.saturating_sub(jitter) * 1_000;
        let late = (latency + jitter) * 1_000;
        let mut arrivals = gaps.iter().enumerate();
        loop {
            let arrival = arrivals.next();
            let until = arrival.map_or(Nanos(u64::MAX), |(_, gap)| now + Nanos(*gap));
            while let Some(next) = netem.next_event(now).filter(|next| *next <= until) {
                prop_assert!(next == now || netem.dequeue(Nanos(next.0 - 1), &mut nothing_dropped).is_none());
                now = next;
                let parcel = netem.dequeue(now, &mut nothing_dropped);
                prop_assert!(parcel.is_some(), "an event without a packet");
                let parcel = parcel.unwrap();
                let place = inside.iter().position(|other| *other == parcel);
                prop_assert!(place.is_some(), "{parcel:?} was not inside");
                inside.remove(place.unwrap());
                let delay = now.since(parcel.born).0;
                prop_assert!((early..=late).contains(&delay), "{delay} ns");
                if jitter == 0 {
                    prop_assert!(parcel.id >= last, "overtaken without jitter");
                    last = parcel.id;
                }
            }
            prop_assert!(inside.iter().all(|parcel| now.since(parcel.born).0 <= late), "one is late");
            let Some((id, _)) = arrival else { break };
            now = until;
            let mut parcel = Parcel::new(id as u64, 100);
            parcel.born = now;
            let mut full = Vec::new();
            let _ = netem.enqueue(parcel.clone(), now, &mut |parcel, cause| full.push((parcel, cause)));
            if inside.len() == limit {
                prop_assert_eq!(full, vec![(parcel, Cause::Full)]);
            } else {
                prop_assert!(full.is_empty());
                inside.push(parcel);
            }
        }
        prop_assert!(inside.is_empty());
    }

    #[test]
    fn the_part_lost_is_that_of_independent_throws(loss in 0u32..=100, seed: u64) {
        const PACKETS: u32 = 4_000;
        let mut netem = Netem::new(NetemConfig::new(0, 0, f64::from(loss), 10_000, seed).unwrap());
        let mut lost = Vec::new();
        for id in 0..PACKETS {
            let _ = netem.enqueue(Parcel::new(u64::from(id), 100), Nanos::from_secs(1), &mut |parcel, _| lost.push(parcel.id));
        }
        // Six standard deviations; and as often right after a loss as ever.
        let near = |found: usize, of: f64| {
            let part = f64::from(loss) / 100.0;
            (found as f64 - of * part).abs() <= 6.0 * (of * part * (1.0 - part)).sqrt() + 1e-9
        };
        prop_assert!(near(lost.len(), f64::from(PACKETS)), "{} lost of {PACKETS} at {loss} %", lost.len());
        let pairs = lost.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        prop_assert!(near(pairs, lost.len().saturating_sub(1) as f64) || lost.len() < 40, "{pairs} pairs of {}", lost.len());
    }
}
