//! What BFD and LACP say of links that are not broken, and the stalls of a process that has nothing
//! to do.
//!
//! A switch that gets no processor time sends no packets, and its peer raises an alarm that no
//! switch could have avoided. So a bare process runs beside it: a timer with the interval of the
//! sessions. Its stalls of a detection time are those that end sessions: each explains one alarm of
//! each session.

use super::{Meanwhile, Observer, Seen};
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::Setup;
use crate::systems::Alarms;
use anyhow::{Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long sessions and partners may take to come up.
const UP: Duration = Duration::from_secs(30);

/// Intervals without a packet after which a session is down.
const MULTIPLIER: u32 = 3;

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
            let mut measured = Measured::default();
            let stalls = stalls(sessions, &stopped) as f64;
            measured.metrics.insert("stalls".to_owned(), stalls);
            Ok(measured)
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
        let stalls = seen.brought.metrics.get("stalls").copied();
        Ok(told(self.sessions, self.before, self.after, stalls.unwrap_or(0.0)))
    }
}

/// The bare process. Returns how often it was away for a detection time.
fn stalls(sessions: Sessions, stopped: &AtomicBool) -> u64 {
    let begin = Instant::now();
    let (mut last, mut stalls) = (begin, 0);
    while last - begin < sessions.time && !stopped.load(Ordering::Relaxed) {
        std::thread::sleep(sessions.interval);
        let now = Instant::now();
        stalls += u64::from(now - last >= sessions.interval * MULTIPLIER);
        last = now;
    }
    stalls
}

/// Metrics by their names.
fn told(sessions: Option<Sessions>, before: Alarms, after: Alarms, stalls: f64) -> Measured {
    let mut measured = Measured::default();
    let mut add = |name: &str, value: f64| measured.metrics.insert(name.to_owned(), value);
    add("expired", after.expired.saturating_sub(before.expired) as f64);
    if let Some(sessions) = sessions {
        let alarms = after.flaps.saturating_sub(before.flaps).div_ceil(FLAPS) as f64;
        let number = sessions.number as f64;
        // Packets of both directions.
        let intervals = 2.0 * number * sessions.time.as_secs_f64() / sessions.interval.as_secs_f64();
        add("alarms", alarms);
        add("stalls", stalls);
        add("intervals", intervals);
        add("rate", (alarms - stalls * number).max(0.0) * 1e5 / intervals);
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
    fn alarms_that_no_stall_explains_are_scaled_to_100_000_intervals() {
        let alarms = |flaps: u64| Alarms { flaps, expired: 1 };
        let rate = |flaps: u64, stalls: f64| told(Some(SESSIONS), alarms(4), alarms(4 + flaps), stalls).metrics["rate"];
        // Two sessions, both directions, a hundred packets a second: 40 000 intervals.
        assert_eq!(rate(0, 0.0), 0.0);
        assert_eq!(rate(16, 0.0), 10.0);
        assert_eq!(rate(15, 0.0), 10.0);
        assert_eq!(rate(16, 1.0), 5.0);
        assert_eq!(rate(16, 3.0), 0.0);
        let told = told(None, alarms(0), Alarms { flaps: 0, expired: 3 }, 0.0).metrics;
        assert_eq!(told.into_iter().collect::<Vec<_>>(), [("expired".to_owned(), 2.0)]);
    }

    #[test]
    fn a_bare_process_ends_when_it_is_told_to() {
        let begin = Instant::now();
        stalls(SESSIONS, &AtomicBool::new(true));
        assert!(begin.elapsed() < SESSIONS.time);
    }
}
