//! The daemon's clock, which tests can stop and warp.

use nanos::Nanos;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Monotonic time since the daemon started, as the switch's tables see it.
///
/// `time/stop` freezes it and `time/warp` moves it on, so that ageing can be tested in
/// milliseconds.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    warp: Mutex<Warp>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Warp {
    ahead: Duration,
    stopped_at: Option<Duration>,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            origin: Instant::now(),
            warp: Mutex::new(Warp::default()),
        }
    }

    pub(crate) fn now(&self) -> Nanos {
        let warp = *self.warp.lock();
        let real = warp.stopped_at.unwrap_or_else(|| self.origin.elapsed());
        Nanos((real + warp.ahead).as_nanos() as u64)
    }

    /// The system's time at which this clock shows `time`; `None` while it is stopped.
    pub(crate) fn instant_of(&self, time: Nanos) -> Option<Instant> {
        let warp = *self.warp.lock();
        let real = Duration::from_nanos(time.0).saturating_sub(warp.ahead);
        match warp.stopped_at {
            Some(_) => None,
            None => Some(self.origin + real),
        }
    }

    /// Freezes the clock; it moves only by [`Clock::warp`] from now on.
    pub(crate) fn stop(&self) {
        let mut warp = self.warp.lock();
        warp.stopped_at.get_or_insert_with(|| self.origin.elapsed());
    }

    /// Moves the clock on.
    pub(crate) fn warp(&self, by: Duration) {
        self.warp.lock().ahead += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_moves_only_by_warping() {
        let clock = Clock::start();
        clock.stop();
        let then = clock.now();
        assert_eq!(clock.now(), then);
        clock.warp(Duration::from_secs(300));
        assert_eq!(clock.now().0 - then.0, 300_000_000_000);
    }
}
