//! Meters: token buckets that all workers share.
//!
//! A band's bucket is one number, the time at which it will be full again (the virtual scheduling
//! form of the generic cell rate algorithm, ITU-T I.371): workers advance it by compare-and-swap,
//! and time adds no tokens. A packet larger than a whole bucket passes when the bucket is full, and
//! leaves it with a debt: a segment of 64 KB passes a small burst uncut, and the rate in the long
//! run is right.
//!
//! Workers look up meters in a copy of their own ([`MeterView`]). They discard it when the version
//! of [`Meters`] advances, and only then take the lock.

use dp::{
    Band, BandEffect, BandStats, DpError, DropCause, MAX_BANDS, MAX_METERS, MAX_PORT_METERS, MeterConfig, MeterStats,
    MeterUnit,
};
use hashbrown::HashMap;
use nanos::Nanos;
use netdev::{Frame, Gso, gso};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Buckets count time in this part of a nanosecond, so that rates of many gigabits are not rounded.
const TICKS: u64 = 16;

/// The meters of a datapath.
#[derive(Default)]
pub(crate) struct Meters {
    version: AtomicU64,
    meters: RwLock<HashMap<u32, Arc<Meter>>>,
}

/// A worker's copy.
pub(crate) struct MeterView {
    meters: Arc<Meters>,
    version: u64,
    known: HashMap<u32, Option<Arc<Meter>>>,
}

/// A meter's verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Drop(DropCause),
    /// Raise the drop precedence by this many levels.
    Remark(u8),
}

struct Meter {
    unit: MeterUnit,
    cause: DropCause,
    bands: Vec<Bucket>,
    /// Shared with earlier meters of the same number, so that a change of a meter loses no count.
    counted: Arc<Counted>,
}

struct Bucket {
    rate: u32,
    effect: BandEffect,
    /// Ticks in which a whole bucket fills.
    burst: u64,
    /// The tick at which it is full.
    full: AtomicU64,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Meters {
    pub(crate) fn set(&self, id: u32, config: &MeterConfig) -> Result<(), DpError> {
        if id >= MAX_METERS + MAX_PORT_METERS || config.bands.is_empty() || config.bands.len() > MAX_BANDS {
            return Err(DpError::BadMeter(id));
        }
        let mut meters = self.meters.write();
        let meter = Meter {
            unit: config.unit,
            cause: config.cause,
            bands: config.bands.iter().map(|band| Bucket::new(band, config.unit)).collect(),
            counted: meters.get(&id).map(|old| old.counted.clone()).unwrap_or_default(),
        };
        meters.insert(id, Arc::new(meter));
        drop(meters);
        self.version.fetch_add(1, Release);
        Ok(())
    }

    pub(crate) fn remove(&self, id: u32) -> Option<MeterStats> {
        let removed = self.meters.write().remove(&id);
        self.version.fetch_add(1, Release);
        removed.map(|meter| meter.stats())
    }

    pub(crate) fn stats(&self, id: u32) -> Option<MeterStats> {
        self.meters.read().get(&id).map(|meter| meter.stats())
    }
}

impl MeterView {
    pub(crate) fn new(meters: Arc<Meters>) -> MeterView {
        MeterView {
            version: meters.version.load(Acquire),
            known: HashMap::new(),
            meters,
        }
    }

    /// Measures a packet.
    pub(crate) fn measure(&mut self, id: u32, frame: &Frame, now: Nanos) -> Verdict {
        let version = self.meters.version.load(Acquire);
        if version != self.version {
            self.version = version;
            self.known.clear();
        }
        let meters = &self.meters;
        let known = self.known.entry(id);
        let meter = known.or_insert_with(|| meters.meters.read().get(&id).cloned());
        match meter {
            Some(meter) => meter.measure(frame, now),
            None => Verdict::Pass,
        }
    }
}

impl Meter {
    fn measure(&self, frame: &Frame, now: Nanos) -> Verdict {
        let packets = gso::segment_count(frame) as u64;
        let headers = match frame.offload.gso {
            Gso::None => 0,
            _ => (packets - 1) * gso::header_len(frame) as u64,
        };
        let bytes = frame.len() as u64 + headers;
        self.counted.add(packets, bytes);
        let units = match self.unit {
            MeterUnit::Kbps => bytes * 8,
            MeterUnit::Pktps => packets,
        };
        let exceeded = self.bands.iter().filter(|band| !band.take(units, self.unit, now));
        let Some(band) = exceeded.max_by_key(|band| band.rate) else {
            return Verdict::Pass;
        };
        band.counted.add(packets, bytes);
        match band.effect {
            BandEffect::Drop => Verdict::Drop(self.cause),
            BandEffect::DscpRemark(levels) => Verdict::Remark(levels),
        }
    }

    fn stats(&self) -> MeterStats {
        let BandStats { packets, bytes } = self.counted.read();
        MeterStats {
            packets,
            bytes,
            bands: self.bands.iter().map(|band| band.counted.read()).collect(),
        }
    }
}

impl Bucket {
    fn new(band: &Band, unit: MeterUnit) -> Bucket {
        let burst = if band.burst == 0 { band.rate } else { band.burst };
        let units = match unit {
            MeterUnit::Kbps => u64::from(burst) * 1000,
            MeterUnit::Pktps => u64::from(burst),
        };
        Bucket {
            rate: band.rate,
            effect: band.effect,
            burst: ticks(units, band.rate, unit),
            full: AtomicU64::new(0),
            counted: Counted::default(),
        }
    }

    /// Takes tokens for some bits or packets out of the bucket, if there are enough.
    fn take(&self, units: u64, unit: MeterUnit, now: Nanos) -> bool {
        if self.rate == 0 {
            return false;
        }
        let now = now.0.saturating_mul(TICKS);
        let cost = ticks(units, self.rate, unit);
        let room = self.burst - cost.min(self.burst);
        let advance = |full: u64| {
            let from = full.max(now);
            (from - now <= room).then(|| from.saturating_add(cost))
        };
        self.full.fetch_update(Relaxed, Relaxed, advance).is_ok()
    }
}

/// The time that bits or packets take at a rate.
fn ticks(units: u64, rate: u32, unit: MeterUnit) -> u64 {
    let per_second = match unit {
        MeterUnit::Kbps => u128::from(rate) * 1000,
        MeterUnit::Pktps => u128::from(rate),
    };
    let second = u128::from(TICKS) * 1_000_000_000;
    (u128::from(units) * second)
        .checked_div(per_second)
        .map_or(u64::MAX, |ticks| ticks as u64)
}

impl Counted {
    fn add(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn read(&self) -> BandStats {
        BandStats {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
        }
    }
}

/// A DSCP and ECN octet with the drop precedence raised (RFC 2597 §6); `None` where the class is
/// not assured forwarding.
pub(crate) fn remarked(tos: u8, levels: u8) -> Option<u8> {
    let (class, precedence) = (tos >> 5, tos >> 3 & 3);
    let assured = (1..=4).contains(&class) && precedence > 0 && tos & 4 == 0;
    assured.then(|| tos & 0xe7 | precedence.saturating_add(levels).min(3) << 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdev::Offload;

    const SECOND: u64 = 1_000_000_000;

    fn view(unit: MeterUnit, bands: &[(u32, u32, BandEffect)]) -> (Arc<Meters>, MeterView) {
        let meters = Arc::new(Meters::default());
        let view = MeterView::new(meters.clone());
        let bands = bands.iter().map(|(rate, burst, effect)| Band {
            rate: *rate,
            burst: *burst,
            effect: *effect,
        });
        let config = MeterConfig {
            unit,
            bands: bands.collect(),
            cause: DropCause::Meter,
        };
        meters.set(1, &config).unwrap();
        (meters, view)
    }

    /// Number of `packets` that pass at `now`.
    fn passed(view: &mut MeterView, packets: usize, now: u64) -> usize {
        let frame = Frame::from_slice(&[0; 125]);
        (0..packets)
            .filter(|_| view.measure(1, &frame, Nanos(now)) == Verdict::Pass)
            .count()
    }

    #[test]
    fn a_meter_passes_its_burst_at_once_and_then_its_rate() {
        let (meters, mut view) = view(MeterUnit::Pktps, &[(100, 10, BandEffect::Drop)]);
        assert_eq!(passed(&mut view, 50, SECOND), 10);
        assert_eq!(passed(&mut view, 50, SECOND + SECOND / 100), 1);
        assert_eq!(passed(&mut view, 50, SECOND + SECOND / 20), 4);
        assert_eq!(passed(&mut view, 50, 10 * SECOND), 10);
        let stats = meters.stats(1).unwrap();
        assert_eq!((stats.packets, stats.bytes), (200, 25_000));
        assert_eq!(
            stats.bands[0],
            BandStats {
                packets: 175,
                bytes: 21_875
            }
        );
    }

    #[test]
    fn kilobits_are_a_thousand_bits_and_the_burst_is_a_second_unless_given() {
        // 1 000 bits a packet.
        let (_, mut view) = view(MeterUnit::Kbps, &[(7, 0, BandEffect::Drop)]);
        assert_eq!(passed(&mut view, 50, SECOND), 7);
        assert_eq!(passed(&mut view, 50, 2 * SECOND), 7);
    }

    #[test]
    fn of_several_bands_the_one_of_the_highest_rate_that_is_exceeded_acts() {
        let bands = [(20, 20, BandEffect::Drop), (10, 10, BandEffect::DscpRemark(1))];
        let (meters, mut view) = view(MeterUnit::Pktps, &bands);
        let frame = Frame::from_slice(&[0; 60]);
        let verdicts: Vec<_> = (0..30).map(|_| view.measure(1, &frame, Nanos(SECOND))).collect();
        assert!(verdicts[..10].iter().all(|verdict| *verdict == Verdict::Pass));
        assert!(verdicts[10..20].iter().all(|verdict| *verdict == Verdict::Remark(1)));
        assert!(
            verdicts[20..]
                .iter()
                .all(|verdict| *verdict == Verdict::Drop(DropCause::Meter))
        );
        let stats = meters.stats(1).unwrap();
        assert_eq!((stats.bands[0].packets, stats.bands[1].packets), (10, 10));
    }

    #[test]
    fn a_segment_counts_as_its_packets_and_passes_a_smaller_burst_with_a_debt() {
        let (meters, mut view) = view(MeterUnit::Pktps, &[(10, 5, BandEffect::Drop)]);
        let mut frame = Frame::from_slice(&[0; 54 + 10_000]);
        frame.offload = Offload {
            gso: Gso::Tcp4,
            gso_size: 1000,
            hdr_len: 54,
            ..Offload::default()
        };
        assert_eq!(view.measure(1, &frame, Nanos(SECOND)), Verdict::Pass);
        assert_eq!(
            view.measure(1, &frame, Nanos(2 * SECOND - 1)),
            Verdict::Drop(DropCause::Meter)
        );
        assert_eq!(view.measure(1, &frame, Nanos(2 * SECOND)), Verdict::Pass);
        let stats = meters.stats(1).unwrap();
        assert_eq!((stats.packets, stats.bytes), (30, 3 * (10_054 + 9 * 54)));
    }

    #[test]
    fn a_worker_sees_that_a_meter_changed_or_went() {
        let (meters, mut view) = view(MeterUnit::Pktps, &[(1, 1, BandEffect::Drop)]);
        assert_eq!(passed(&mut view, 5, SECOND), 1);
        let config = MeterConfig {
            unit: MeterUnit::Pktps,
            bands: vec![Band {
                rate: 2,
                burst: 2,
                effect: BandEffect::Drop,
            }],
            cause: DropCause::Meter,
        };
        meters.set(1, &config).unwrap();
        assert_eq!(passed(&mut view, 5, SECOND), 2);
        let stats = meters.remove(1).unwrap();
        assert_eq!((stats.packets, stats.bytes), (10, 1250), "those of the old one too");
        assert_eq!(stats.bands[0].packets, 3, "its own only");
        assert_eq!(passed(&mut view, 5, SECOND), 5);
        assert!(meters.set(MAX_METERS + MAX_PORT_METERS, &config).is_err());
        let none = MeterConfig {
            bands: Vec::new(),
            ..config
        };
        assert!(meters.set(1, &none).is_err());
    }

    #[test]
    fn workers_that_share_a_meter_share_its_rate() {
        let (meters, _) = view(MeterUnit::Pktps, &[(1000, 10, BandEffect::Drop)]);
        let passed: usize = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let mut view = MeterView::new(meters.clone());
                    scope.spawn(move || {
                        // Clocks of workers are not quite the same.
                        let times = (0..4000u64).map(|n| SECOND + n * SECOND / 4000 + worker * 1000);
                        times.map(|now| passed(&mut view, 1, now)).sum::<usize>()
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        // A second at the rate, and the burst. If the machine runs workers one after the other, the
        // first one's time is over before the next starts; these may send nothing for it.
        assert!((1000..=1011).contains(&passed), "{passed}");
        let stats = meters.stats(1).unwrap();
        assert_eq!((stats.packets, stats.bytes), (16_000, 16_000 * 125));
        assert_eq!(stats.bands[0].packets + passed as u64, 16_000);
    }

    #[test]
    fn rates_at_both_ends_are_kept() {
        let (_, mut slow) = view(MeterUnit::Kbps, &[(0, 0, BandEffect::Drop)]);
        assert_eq!(passed(&mut slow, 5, SECOND), 0);
        // 100 Gbit/s for a millisecond is 100 000 packets of 1 000 bits; the burst is one packet.
        let (_, mut fast) = view(MeterUnit::Kbps, &[(100_000_000, 1, BandEffect::Drop)]);
        let all = (0..200_000)
            .map(|n| passed(&mut fast, 1, SECOND + n * 5))
            .sum::<usize>();
        assert!((99_900..=100_100).contains(&all), "{all}");
        let (_, mut most) = view(MeterUnit::Kbps, &[(u32::MAX, u32::MAX, BandEffect::Drop)]);
        assert_eq!(passed(&mut most, 5, u64::MAX), 5);
    }

    #[test]
    fn only_assured_forwarding_is_remarked() {
        let af = |class: u8, precedence: u8| class << 5 | precedence << 3;
        assert_eq!(remarked(af(1, 1) | 2, 1), Some(af(1, 2) | 2));
        assert_eq!(remarked(af(4, 2), 200), Some(af(4, 3)));
        for other in [0, 0x20, 0xb8, 0xc0, af(5, 1), af(1, 1) | 4] {
            assert_eq!(remarked(other, 1), None);
        }
    }
}
