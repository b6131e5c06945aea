//! Responsive load: sources like TCP before one link.

use super::Parcel;
use qos::{LinkLayer, Nanos, PortSpeed, Scheduler, Shaper};

/// The round trip of all sources, without the queue.
pub const TRIP: Nanos = Nanos::from_millis(20);

/// CoDel's interval.
const INTERVAL: u64 = 100_000_000;

/// A source like TCP: its window of packets in flight grows by one each round trip and halves on a
/// loss or mark, once each round trip.
struct Source {
    window: f64,
    out: u32,
    recovered: Nanos,
}

struct Load {
    sources: Vec<Source>,
    /// Acknowledgements on their way back: when, of whom, and whether it was lost or marked.
    back: std::collections::BTreeSet<(Nanos, u64, usize, bool)>,
    next: u64,
    trip: Nanos,
    ecn: bool,
}

/// The delays of the thin flow's packets, and of the others', and standing queues, each sorted;
/// marks and drops.
pub struct Outcome {
    pub thin: Vec<u64>,
    pub bulk: Vec<u64>,
    /// The least delay in each of CoDel's intervals: the standing queue (RFC 8289, section 3.1),
    /// which the others stand behind.
    pub standing: Vec<u64>,
    pub marks: u64,
    pub drops: u64,
    pub bytes: u64,
}

/// Simulates sources before a link with a rate in bit/s, for a number of seconds.
pub fn simulate(
    scheduler: impl Scheduler<Parcel>,
    rate: u64,
    sources: usize,
    ecn: bool,
    (trip, seconds): (Nanos, u64),
) -> Outcome {
    let speed = PortSpeed::new(rate).unwrap().link(LinkLayer::FRAME).slack(Nanos(0));
    let mut port = Shaper::new(scheduler, Some(speed));
    let mut load = Load {
        sources: (0..sources)
            .map(|_| Source {
                window: 10.0,
                out: 0,
                recovered: Nanos(0),
            })
            .collect(),
        back: Default::default(),
        next: 0,
        trip,
        ecn,
    };
    let mut outcome = Outcome {
        thin: Vec::new(),
        bulk: Vec::new(),
        standing: Vec::new(),
        marks: 0,
        drops: 0,
        bytes: 0,
    };
    let begin = Nanos::from_secs(1);
    let (mut now, mut thin) = (begin, begin);
    let end = begin + Nanos::from_secs(seconds);
    while now < end {
        while let Some(&ack) = load.back.first().filter(|ack| ack.0 <= now) {
            load.back.remove(&ack);
            let (_, _, source, lost) = ack;
            let source = &mut load.sources[source];
            source.out -= 1;
            if !lost {
                source.window += 1.0 / source.window;
            } else if now >= source.recovered {
                source.window = (source.window / 2.0).max(2.0);
                source.recovered = now + load.trip;
            }
        }
        let mut lost = Vec::new();
        for (n, source) in load.sources.iter_mut().enumerate() {
            while f64::from(source.out) < source.window.floor() {
                source.out += 1;
                load.next += 1;
                let mut parcel = Parcel::new(n as u64, 1_514).flow(n as u64 * 7 + 3);
                (parcel.born, parcel.ecn) = (now, load.ecn);
                let _ = port.enqueue(parcel, now, &mut |parcel, _| lost.push(parcel));
            }
        }
        while thin <= now {
            let mut parcel = Parcel::new(u64::MAX, 200).flow(1_000_000);
            (parcel.born, parcel.ecn) = (thin, load.ecn);
            let _ = port.enqueue(parcel, now, &mut |parcel, _| lost.push(parcel));
            thin = thin + Nanos::from_millis(10);
        }
        if let Some(parcel) = port.dequeue(now, &mut |parcel, _| lost.push(parcel)) {
            outcome.bytes += u64::from(parcel.bytes);
            let delay = now.since(parcel.born).0;
            // Slow start is over after a while.
            let settled = now.since(begin) > Nanos::from_millis(seconds * 250);
            if parcel.id == u64::MAX {
                settled.then(|| outcome.thin.push(delay));
            } else {
                if settled {
                    outcome.bulk.push(delay);
                    let interval = ((now.since(begin).0 - seconds * 250_000_000) / INTERVAL) as usize;
                    outcome
                        .standing
                        .resize(outcome.standing.len().max(interval + 1), u64::MAX);
                    outcome.standing[interval] = outcome.standing[interval].min(delay);
                }
                load.next += 1;
                load.back
                    .insert((now + load.trip, load.next, parcel.id as usize, parcel.marked));
            }
        }
        for parcel in lost.into_iter().filter(|parcel| parcel.id != u64::MAX) {
            load.next += 1;
            load.back.insert((now + load.trip, load.next, parcel.id as usize, true));
        }
        let events = [port.next_event(now), load.back.first().map(|ack| ack.0), Some(thin)];
        now = events.into_iter().flatten().min().unwrap_or(end).max(now);
    }
    let stats = port.stats();
    (outcome.marks, outcome.drops) = (stats.marks, stats.all_dropped());
    outcome.thin.sort_unstable();
    outcome.bulk.sort_unstable();
    outcome.standing.sort_unstable();
    outcome
}

/// Of sorted nanoseconds, in milliseconds.
pub fn quantile(sorted: &[u64], fraction: f64) -> f64 {
    sorted[(sorted.len() as f64 * fraction) as usize] as f64 / 1e6
}
