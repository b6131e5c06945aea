//! What happens inside a repetition: what hosts receive, what waits in the switch's queues, what it
//! drops, and who uses the processors, about twenty times a second.
//!
//! A thread reads counters that cost little: open files of `/proc`, a `tc` that stays, and one
//! connection to the switch's control socket. Its own time is in [`Recorded::cost`]; the switch's
//! time for its answers is in the switch's.

use super::cpu;
use crate::bed::{Bed, HostRate};
use crate::scenario::Setup;
use crate::systems::gauge::exact_cpu;
use crate::systems::{Gauge, Running};
use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Values of one series: seconds since the measurement began, and the value.
pub(crate) type Values = Vec<(f64, f64)>;

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// As [`crate::results::Sample::series`]. Where nothing ever happened there is no series.
    pub(crate) series: BTreeMap<String, Values>,
    /// Seconds of CPU that reading took.
    pub(crate) cost: f64,
}

/// Between two readings.
const INTERVAL: Duration = Duration::from_millis(50);

/// The most readings of a repetition; in longer ones they are further apart.
const MOST: f64 = 100.0;

/// The longest that a reading may take.
const PAUSE: Duration = Duration::from_millis(5);

/// Without flows, so many hosts are watched.
const HOSTS: usize = 8;

/// What takes the switch's own time, or counts in ticks of 10 ms, is read once in so many readings.
const SELDOM: u32 = 4;

/// Counters at the beginning of a repetition, and the means to read them.
pub(crate) struct Recorder {
    hosts: Vec<(String, HostRate)>,
    gauge: Option<Box<dyn Gauge>>,
    /// Whether a port of the switch has a queue.
    queues: bool,
    interval: Duration,
}

impl Recorder {
    /// # Errors
    /// A host or a switch whose counters cannot be read.
    pub(crate) fn new(bed: &Bed, running: &dyn Running, setup: &Setup) -> Result<Recorder> {
        let flows = setup.measured.iter().chain(&setup.background);
        let mut receivers: BTreeSet<&str> = flows.map(|flow| flow.to.as_str()).collect();
        if receivers.is_empty() {
            receivers.extend(bed.hosts().map(|host| host.name()).take(HOSTS));
        }
        let mut hosts = Vec::new();
        for name in receivers {
            hosts.extend(bed.host_rate(name)?.map(|rate| (name.to_owned(), rate)));
        }
        let mut ends = setup.topology.links.iter().flat_map(|link| [&link.a, &link.b]);
        Ok(Recorder {
            hosts,
            gauge: running.gauge().context("the switch's counters")?,
            queues: ends.any(|end| end.port.has_queue()),
            interval: INTERVAL.max(Duration::from_secs_f64(setup.seconds / MOST)),
        })
    }

    /// Reads from the end of the warm-up on until it is `over`.
    pub(crate) fn record(mut self, warm: Instant, over: &AtomicBool) -> Recorded {
        let mut at = warm;
        let mut before: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let mut series: BTreeMap<String, Values> = BTreeMap::new();
        for number in 0.. {
            while let Some(wait) = at.checked_duration_since(Instant::now()).filter(|wait| !wait.is_zero()) {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::park_timeout(wait);
            }
            if over.load(Ordering::Relaxed) {
                break;
            }
            // After a pause readings are not made up for.
            at = (at + self.interval).max(Instant::now() + self.interval / 2);
            for (name, now, reading) in self.read(warm, number % SELDOM == 0) {
                let value = match reading {
                    Reading::Now(value) => Some(value),
                    Reading::Sum(sum) => before
                        .insert(name.clone(), (now, sum))
                        .filter(|(earlier, _)| now > *earlier)
                        .map(|(earlier, less)| (sum - less).max(0.0) / (now - earlier)),
                };
                if let Some(value) = value {
                    series.entry(name).or_default().push((rounded(now), rounded(value)));
                }
            }
        }
        series.retain(|_, values| values.iter().any(|(_, value)| *value > 0.0));
        let helpers = self.gauge.iter().flat_map(|gauge| gauge.own_processes());
        let helpers: f64 = helpers.map(exact_cpu).sum();
        let own = clock_gettime(ClockId::ThreadCPUTime);
        Recorded {
            series,
            cost: helpers + own.tv_sec as f64 + own.tv_nsec as f64 / 1e9,
        }
    }

    /// Names, times since the measurement began, and values.
    fn read(&mut self, warm: Instant, seldom: bool) -> Vec<(String, f64, Reading)> {
        let mut readings = Vec::new();
        let mut take = |read: &mut dyn FnMut() -> Vec<(String, Reading)>| {
            let begin = warm.elapsed();
            let read = read();
            // Nobody knows when a counter was read in a pause of this thread.
            if warm.elapsed() - begin < PAUSE {
                let at = begin.as_secs_f64();
                readings.extend(read.into_iter().map(|(name, reading)| (name, at, reading)));
            }
        };
        // What does not answer has no value; whether the switch lives is checked elsewhere.
        for (host, rate) in &mut self.hosts {
            take(&mut || {
                let bits = rate.bytes().map(|bytes| Reading::Sum(bytes as f64 * 8.0));
                bits.map(|bits| (format!("rate.{host}"), bits)).into_iter().collect()
            });
        }
        if seldom {
            take(&mut || vec![("cpu.all".to_owned(), Reading::Sum(cpu::machine()))]);
        }
        let Some(gauge) = &mut self.gauge else { return readings };
        if !gauge.processes().is_empty() {
            take(&mut || {
                let used = gauge.processes().iter().map(|pid| exact_cpu(*pid)).sum();
                vec![("cpu.system".to_owned(), Reading::Sum(used))]
            });
        }
        if self.queues {
            take(&mut || {
                let queues = gauge.queues().unwrap_or_default();
                let of = |(place, packets)| (format!("queue.{place}"), Reading::Now(packets as f64));
                queues.into_iter().map(of).collect()
            });
        }
        if seldom {
            take(&mut || {
                let drops = gauge.drops().map(|drops| Reading::Sum(drops as f64));
                drops.map(|drops| ("drops".to_owned(), drops)).into_iter().collect()
            });
        }
        readings
    }
}

/// A counter as it is read.
enum Reading {
    /// The value itself.
    Now(f64),
    /// A sum of all so far; the value is what came to it each second.
    Sum(f64),
}

/// To a thousandth; large numbers to the unit.
fn rounded(value: f64) -> f64 {
    if value >= 1000.0 {
        value.round()
    } else {
        (value * 1000.0).round() / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A switch that drops 10 packets a reading, and has 3 in a queue.
    struct Imitated(u64);

    impl Gauge for Imitated {
        fn processes(&self) -> &[u32] {
            &[]
        }

        fn queues(&mut self) -> Result<BTreeMap<String, u64>> {
            Ok(BTreeMap::from([("s1:B".to_owned(), 3), ("s1:A".to_owned(), 0)]))
        }

        fn drops(&mut self) -> Result<u64> {
            self.0 += 10;
            Ok(self.0)
        }

        fn own_processes(&self) -> Vec<u32> {
            Vec::new()
        }
    }

    fn record(queues: bool) -> Recorded {
        let recorder = Recorder {
            hosts: Vec::new(),
            gauge: Some(Box::new(Imitated(1000))),
            queues,
            interval: Duration::from_millis(1),
        };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let recording = scope.spawn(|| recorder.record(Instant::now(), &over));
            std::thread::sleep(Duration::from_millis(100));
            over.store(true, Ordering::Relaxed);
            recording.thread().unpark();
            recording.join().unwrap()
        })
    }

    #[test]
    fn a_counter_becomes_what_came_to_it_and_a_queue_stays_as_it_is() {
        let recorded = record(true);
        let queue = &recorded.series["queue.s1:B"];
        assert!(
            queue.len() > 1 && queue.iter().all(|(_, packets)| *packets == 3.0),
            "{queue:?}"
        );
        let drops = &recorded.series["drops"];
        assert!(drops.iter().all(|(at, rate)| *at > 0.0 && *rate > 0.0), "{drops:?}");
        assert!(recorded.cost > 0.0);
    }

    #[test]
    fn where_nothing_happens_or_nothing_can_wait_there_is_no_series() {
        assert!(!record(true).series.contains_key("queue.s1:A"));
        assert!(!record(false).series.contains_key("queue.s1:B"));
    }

    #[test]
    fn values_are_as_exact_as_a_reader_needs_them() {
        assert_eq!([12_345.678, 0.123_456, 7.0].map(rounded), [12_346.0, 0.123, 7.0]);
    }
}
