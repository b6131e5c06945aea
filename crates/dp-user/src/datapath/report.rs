//! What workers and queues have cost, for who asks.

use super::{DpUser, Handle};
use crate::load::{TimesRead, WorkerLoad, quantile};
use crate::worker::clock;
use dp::{Perf, QueueReport, WorkerReport};
use nanos::Nanos;
use std::collections::VecDeque;
use std::time::Duration;

/// How long samples are kept.
const KEPT: Duration = Duration::from_secs(70);

/// The shortest time that says something of a share.
const SHORTEST: Duration = Duration::from_secs(1);

/// A count of cycles over the last minute, by samples.
#[derive(Debug)]
pub(super) struct Usage {
    samples: VecDeque<(Nanos, u64)>,
}

impl Usage {
    /// Of a count that begins now.
    pub(super) fn new(now: Nanos) -> Usage {
        Usage::at(now, 0)
    }

    /// Of a count that is so high now.
    pub(super) fn at(now: Nanos, cycles: u64) -> Usage {
        Usage {
            samples: VecDeque::from([(now, cycles)]),
        }
    }

    pub(super) fn sample(&mut self, now: Nanos, cycles: u64) {
        self.samples.push_back((now, cycles));
        while self.samples.len() > 2 && now.since(self.samples[1].0) > KEPT {
            self.samples.pop_front();
        }
    }

    /// How far back it reaches.
    pub(super) fn since(&self, now: Nanos) -> Duration {
        self.samples.front().map_or(Duration::ZERO, |(at, _)| now.since(*at))
    }

    /// The sample that is as old as `window`, or the oldest.
    fn base(&self, now: Nanos, window: Duration) -> Option<(Nanos, u64)> {
        let old = self.samples.iter().rev().find(|(at, _)| now.since(*at) >= window);
        old.or(self.samples.front()).copied()
    }

    /// Cycles spent during about the last `window`, of a count that is at `cycles` now.
    pub(super) fn spent(&self, cycles: u64, now: Nanos, window: Duration) -> u64 {
        self.base(now, window)
            .map_or(0, |(_, base)| cycles.saturating_sub(base))
    }

    /// The same in percent of the time; `None` before it is known for a second.
    pub(super) fn percent(&self, cycles: u64, now: Nanos, window: Duration, hertz: f64) -> Option<u64> {
        let (at, base) = self.base(now, window)?;
        let time = now.since(at);
        (time >= SHORTEST).then(|| {
            let share = cycles.saturating_sub(base) as f64 / (time.as_secs_f64() * hertz);
            (share * 100.0).round() as u64
        })
    }
}

/// A worker's counters when they were last cleared, and when that was by both clocks.
pub(super) struct Cleared {
    perf: Perf,
    times: TimesRead,
    at: Nanos,
    stamp: u64,
}

impl Cleared {
    /// Of a worker that begins now.
    pub(super) fn new(now: Nanos) -> Cleared {
        Cleared {
            perf: Perf::default(),
            times: WorkerLoad::default().times(),
            at: now,
            stamp: sys::cycles::now(),
        }
    }
}

/// Fills [`Perf`] from a worker's counters.
macro_rules! perf {
    ($($name:ident: $($from:ident).+),* $(,)?) => {
        fn perf_of(worker: &Handle) -> Perf {
            Perf { $($name: worker.$($from).+.get(),)* }
        }

        fn perf_since(now: &Perf, before: &Perf) -> Perf {
            Perf { $($name: now.$name.saturating_sub(before.$name),)* }
        }
    };
}

perf! {
    packets: load.packets,
    turns: load.turns,
    busy_turns: load.busy_turns,
    busy_cycles: load.busy_cycles,
    sleeps: load.sleeps,
    sleep_cycles: load.sleep_cycles,
    recirculations: stats.recirculations,
    exact_hits: stats.exact_hits,
    megaflow_hits: stats.megaflow_hits,
    subtables: stats.subtables,
    upcalls: stats.upcalls,
    lost: stats.lost,
    tx_packets: stats.tx_packets,
    tx_batches: stats.tx_batches,
}

impl DpUser {
    pub(super) fn worker_reports(&self, window: Duration) -> Vec<WorkerReport> {
        let (now, stamp, hertz) = (clock(), sys::cycles::now(), self.hertz());
        let workers = self.workers.read().clone();
        let isolated = self.isolated(&workers);
        let ports = self.ports.read();
        let mut sorted: Vec<_> = ports.iter().collect();
        sorted.sort_by_key(|(port, _)| port.0);
        let report = |(worker, isolated): (&std::sync::Arc<Handle>, bool)| {
            let mut queues = Vec::new();
            let mut on_queues = 0;
            for (port, known) in &sorted {
                for (number, queue) in (0..).zip(&known.queues) {
                    if queue.worker == worker.id {
                        let cycles = queue.load.cycles.get();
                        on_queues += queue.usage.spent(cycles, now, window);
                        queues.push(QueueReport {
                            port: **port,
                            number,
                            usage: queue.usage.percent(cycles, now, window, hertz),
                        });
                    }
                }
            }
            let usage = worker.usage.lock();
            let other = worker.load.busy_cycles.get().saturating_sub(on_queues);
            let Cleared {
                perf,
                times,
                at,
                stamp: then,
            } = *worker.cleared.lock();
            WorkerReport {
                core: worker.number,
                isolated,
                queues,
                overhead: usage.percent(other, now, window, hertz),
                perf: perf_since(&perf_of(worker), &perf),
                longest: worker.load.longest.get(),
                p999: quantile(&worker.load.times(), &times, 0.001),
                since: now.since(at),
                cycles: stamp.wrapping_sub(then),
                hertz,
            }
        };
        workers.iter().zip(isolated).map(report).collect()
    }

    pub(super) fn clear_counters(&self, core: Option<usize>) {
        for worker in &*self.workers.read() {
            if core.is_none_or(|core| core == worker.number) {
                worker.load.clear();
                *worker.cleared.lock() = Cleared {
                    perf: perf_of(worker),
                    times: worker.load.times(),
                    ..Cleared::new(clock())
                };
            }
        }
    }

    /// Cycles in a second, by what went by since the datapath began.
    pub(super) fn hertz(&self) -> f64 {
        let (began, stamp) = self.began;
        let cycles = sys::cycles::now().wrapping_sub(stamp) as f64;
        (cycles / clock().since(began).as_secs_f64().max(1e-6)).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_that_of_the_time_asked_for() {
        let second = Nanos::from_secs;
        let mut usage = Usage::new(second(0));
        assert_eq!(
            usage.percent(50, Nanos(500_000_000), Duration::from_secs(60), 100.0),
            None
        );
        for at in 1..=24 {
            // Busy for the first minute only.
            usage.sample(second(5 * at), (5 * at).min(60) * 50);
        }
        let all = |window| usage.percent(3000, second(120), Duration::from_secs(window), 100.0);
        assert_eq!(all(60), Some(0));
        assert_eq!(all(5), Some(0));
        assert_eq!(usage.spent(3000, second(120), Duration::from_secs(65)), 250);
        assert!(usage.samples.len() <= 16);
    }
}
