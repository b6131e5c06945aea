//! What BFD and LACP say of links that are not broken.
//!
//! A processor that the host of this guest takes away sends no packets, and the peer raises an
//! alarm that no switch could have avoided. A sample with BFD is void if one was away for so long
//! that two packets may be a detection time apart.

use super::{Observer, Seen};
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::run::stolen::StealWatch;
use crate::scenario::Setup;
use crate::systems::Alarms;
use anyhow::{Result, bail};
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
    processors: Option<StealWatch>,
    begun: Instant,
    before: Alarms,
    found: Measured,
}

/// BFD sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sessions {
    number: u64,
    interval: Duration,
}

impl Liveness {
    pub(super) fn begin(table: &Table, setup: &Setup, (a, b): (&str, &str)) -> Result<Liveness> {
        let links = setup.topology.links.iter().filter(|link| {
            let (one, other) = (link.a.at.as_str(), link.b.at.as_str());
            (one, other) == (a, b) || (other, one) == (a, b)
        });
        let intervals: Vec<u32> = links.filter_map(|link| link.a.port.bfd.max(link.b.port.bfd)).collect();
        let sessions = intervals.iter().min().map(|interval| Sessions {
            number: intervals.len() as u64,
            interval: Duration::from_millis(u64::from(*interval)),
        });
        let mut liveness = Liveness {
            ends: [a.to_owned(), b.to_owned()],
            sessions,
            processors: None,
            begun: Instant::now(),
            before: Alarms::default(),
            found: Measured::default(),
        };
        while !liveness.look(table)?.0 {
            if liveness.begun.elapsed() > UP {
                bail!("the links between {a} and {b} are not up");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        liveness.processors = sessions
            .map(|sessions| StealWatch::begin(sessions.too_long()))
            .transpose()?;
        liveness.begun = Instant::now();
        (_, liveness.before) = liveness.look(table)?;
        Ok(liveness)
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
    fn after(&mut self, table: &mut Table) -> Result<()> {
        let (_, after) = self.look(table)?;
        self.found = told(self.sessions, self.begun.elapsed(), self.before, after);
        let away = self.processors.take().and_then(StealWatch::end);
        self.found
            .void
            .extend(self.sessions.zip(away).map(|(sessions, away)| sessions.void(away)));
        Ok(())
    }

    fn end(self: Box<Self>, _seen: &Seen<'_>) -> Result<Measured> {
        Ok(self.found)
    }
}

impl Sessions {
    /// If the host takes a processor just before a packet is due, the time between two packets is
    /// this and one interval: the detection time.
    fn too_long(self) -> Duration {
        self.interval * (MULTIPLIER - 1)
    }

    /// Why a sample is void if a processor was away for this long.
    fn void(self, away: Duration) -> String {
        format!(
            "the host took a processor away for {:.0} ms: sessions of BFD at {MULTIPLIER} times {} ms may expire",
            away.as_secs_f64() * 1e3,
            self.interval.as_millis()
        )
    }
}

/// Metrics by their names, of counters before and after a time.
fn told(sessions: Option<Sessions>, time: Duration, before: Alarms, after: Alarms) -> Measured {
    let mut measured = Measured::default();
    let mut add = |name: &str, value: f64| measured.metrics.insert(name.to_owned(), value);
    add("expired", after.expired.saturating_sub(before.expired) as f64);
    if let Some(sessions) = sessions {
        let alarms = after.flaps.saturating_sub(before.flaps).div_ceil(FLAPS) as f64;
        // Packets of both directions.
        let intervals = 2.0 * sessions.number as f64 * time.as_secs_f64() / sessions.interval.as_secs_f64();
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
    };

    #[test]
    fn alarms_are_scaled_to_100_000_intervals() {
        let alarms = |flaps: u64| Alarms { flaps, expired: 1 };
        let time = Duration::from_secs(100);
        let rate = |flaps: u64| told(Some(SESSIONS), time, alarms(4), alarms(4 + flaps)).metrics["rate"];
        // Two sessions, both directions, a hundred packets a second: 40 000 intervals.
        assert_eq!(rate(0), 0.0);
        assert_eq!(rate(16), 10.0);
        assert_eq!(rate(15), 10.0);
        let told = told(None, time, alarms(0), Alarms { flaps: 0, expired: 3 }).metrics;
        assert_eq!(told.into_iter().collect::<Vec<_>>(), [("expired".to_owned(), 2.0)]);
    }

    #[test]
    fn a_detection_time_less_an_interval_is_too_long_for_a_processor_to_be_away() {
        assert_eq!(SESSIONS.too_long(), Duration::from_millis(20));
        let void = SESSIONS.void(Duration::from_millis(31));
        assert!(void.starts_with("the host took a processor away for 31 ms: "), "{void}");
    }
}
