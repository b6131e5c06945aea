//! What BFD and LACP say of links that are not broken.
//!
//! A processor that rests, because the machine is a guest whose host has other work, sends no
//! packets, and the peer raises an alarm that no switch could have avoided. So a thread of nothing
//! but a timer runs on each processor, before all others. Where one of them comes so late that a
//! packet which was due meanwhile may be a detection time behind the one before, the sample is
//! void.

use super::{Meanwhile, Observer, Seen};
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::Setup;
use crate::systems::Alarms;
use anyhow::{Context as _, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long sessions and partners may take to come up.
const UP: Duration = Duration::from_secs(30);

/// Intervals without a packet after which a session is down.
const MULTIPLIER: u32 = 3;

/// Looks of a thread for rests in an interval.
const LOOKS: u32 = 10;

/// The priority of these threads, with `SCHED_FIFO`: above all others of the laboratory.
const FIRST: u32 = 90;

/// Changes of state of both ends in an alarm: down and up again.
const FLAPS: u64 = 4;

/// The watched links, and their counters before.
pub(super) struct Liveness {
    ends: [String; 2],
    sessions: Option<Sessions>,
    before: Alarms,
    after: Alarms,
    stopped: Arc<AtomicBool>,
}

/// BFD sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sessions {
    number: u64,
    interval: Duration,
    /// How long they are watched.
    time: Duration,
}

impl Liveness {
    pub(super) fn begin(table: &Table, setup: &Setup, (a, b): (&str, &str)) -> Result<Liveness> {
        let links = setup.topology.links.iter().filter(|link| {
            let (one, other) = (link.a.at.as_str(), link.b.at.as_str());
            (one, other) == (a, b) || (other, one) == (a, b)
        });
        let intervals: Vec<u32> = links.filter_map(|link| link.a.port.bfd.max(link.b.port.bfd)).collect();
        let mut liveness = Liveness {
            ends: [a.to_owned(), b.to_owned()],
            sessions: intervals.iter().min().map(|interval| Sessions {
                number: intervals.len() as u64,
                interval: Duration::from_millis(u64::from(*interval)),
                time: Duration::try_from_secs_f64(setup.seconds).unwrap_or_default(),
            }),
            before: Alarms::default(),
            after: Alarms::default(),
            stopped: Arc::default(),
        };
        let end = Instant::now() + UP;
        loop {
            let (up, alarms) = liveness.look(table)?;
            liveness.before = alarms;
            if up {
                return Ok(liveness);
            }
            if Instant::now() > end {
                bail!("the links between {a} and {b} are not up");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether all links are up, and both ends' counters.
    fn look(&self, table: &Table) -> Result<(bool, Alarms)> {
        let [a, b] = &self.ends;
        let (near, far) = (table.running.liveness(a, b)?, table.running.liveness(b, a)?);
        let alarms = Alarms {
            flaps: near.1.flaps + far.1.flaps,
            expired: near.1.expired + far.1.expired,
        };
        Ok((near.0 && far.0, alarms))
    }
}

impl Observer for Liveness {
    fn meanwhile(&mut self) -> Option<Meanwhile> {
        let (sessions, stopped) = (self.sessions?, self.stopped.clone());
        Some(Box::new(move || {
            let rest = longest_rest(sessions, &stopped)?;
            Ok(Measured {
                void: rested(sessions, rest).into_iter().collect(),
                ..Measured::default()
            })
        }))
    }

    fn stop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn after(&mut self, table: &mut Table) -> Result<()> {
        (_, self.after) = self.look(table)?;
        Ok(())
    }

    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured> {
        let mut measured = told(self.sessions, self.before, self.after);
        measured.void.clone_from(&seen.brought.void);
        Ok(measured)
    }
}

/// The longest time that a processor has not run what comes before all others.
fn longest_rest(sessions: Sessions, stopped: &AtomicBool) -> Result<Duration> {
    let rest_of = |cpu| {
        sys::thread::pin_to_cpu(cpu)?;
        sys::thread::set_first(FIRST)?;
        let begin = Instant::now();
        let (mut last, mut longest) = (begin, Duration::ZERO);
        while last - begin < sessions.time && !stopped.load(Ordering::Relaxed) {
            std::thread::sleep(sessions.interval / LOOKS);
            let now = Instant::now();
            longest = longest.max(now - last);
            last = now;
        }
        Ok(longest)
    };
    let cpus = sys::thread::allowed_cpus()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = cpus.into_iter().map(|cpu| scope.spawn(move || rest_of(cpu))).collect();
        let rests = threads.into_iter().map(|thread| match thread.join() {
            Ok(rest) => rest,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        rests.collect::<sys::Result<Vec<Duration>>>()
    })
    .map(|rests| rests.into_iter().max().unwrap_or_default())
    .context("watching processors")
}

/// Why a rest makes a sample void, if it does: a packet may be sent an interval after the one
/// before, and the rest begin just then.
fn rested(sessions: Sessions, rest: Duration) -> Option<String> {
    (rest >= sessions.interval * (MULTIPLIER - 1)).then(|| {
        format!(
            "a processor rested for {:.0} ms; no switch keeps sessions of {} times {} ms through that",
            rest.as_secs_f64() * 1e3,
            MULTIPLIER,
            sessions.interval.as_millis()
        )
    })
}

/// Metrics by their names.
fn told(sessions: Option<Sessions>, before: Alarms, after: Alarms) -> Measured {
    let mut measured = Measured::default();
    let mut add = |name: &str, value: f64| measured.metrics.insert(name.to_owned(), value);
    add("expired", after.expired.saturating_sub(before.expired) as f64);
    if let Some(sessions) = sessions {
        let alarms = after.flaps.saturating_sub(before.flaps).div_ceil(FLAPS) as f64;
        let number = sessions.number as f64;
        // Packets of both directions.
        let intervals = 2.0 * number * sessions.time.as_secs_f64() / sessions.interval.as_secs_f64();
        add("alarms", alarms);
        add("intervals", intervals);
        add("rate", alarms * 1e5 / intervals);
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSIONS: Sessions = Sessions {
        number: 2,
        interval: Duration::from_millis(10),
        time: Duration::from_secs(100),
    };

    #[test]
    fn alarms_are_scaled_to_100_000_intervals() {
        let alarms = |flaps: u64| Alarms { flaps, expired: 1 };
        let rate = |flaps: u64| told(Some(SESSIONS), alarms(4), alarms(4 + flaps)).metrics["rate"];
        // Two sessions, both directions, a hundred packets a second: 40 000 intervals.
        assert_eq!(rate(0), 0.0);
        assert_eq!(rate(16), 10.0);
        assert_eq!(rate(15), 10.0);
        let told = told(None, alarms(0), Alarms { flaps: 0, expired: 3 }).metrics;
        assert_eq!(told.into_iter().collect::<Vec<_>>(), [("expired".to_owned(), 2.0)]);
    }

    #[test]
    fn a_rest_of_a_detection_time_less_an_interval_voids_a_sample() {
        let rested = |ms| rested(SESSIONS, Duration::from_millis(ms));
        assert_eq!(rested(19), None);
        assert!(rested(20).unwrap().starts_with("a processor rested for 20 ms; "));
    }

    #[test]
    fn the_longest_rest_has_the_time_between_two_looks() {
        let short = Sessions {
            time: Duration::from_millis(20),
            ..SESSIONS
        };
        let rest = longest_rest(short, &AtomicBool::new(false)).unwrap();
        assert!(rest >= SESSIONS.interval / LOOKS, "{rest:?}");
    }

    #[test]
    fn threads_end_when_they_are_told_to() {
        let begin = Instant::now();
        longest_rest(SESSIONS, &AtomicBool::new(true)).unwrap();
        assert!(begin.elapsed() < SESSIONS.time);
    }
}
