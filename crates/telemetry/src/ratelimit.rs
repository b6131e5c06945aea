//! Limits how often one place in the code may log, so that no peer and no packet can flood the
//! log. A token bucket per call site; the macros of the crate's root put one there.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::vlog;

/// A token bucket.
#[derive(Debug)]
pub struct RateLimit {
    per_minute: u32,
    burst: u32,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    /// Tokens, in 60 000ths: one message costs 60 000, a millisecond earns `per_minute`.
    tokens: u64,
    filled: Instant,
    dropped: u32,
    first_dropped: Instant,
    last_dropped: Instant,
}

const MESSAGE: u64 = 60_000;

/// Messages that were not logged; prints as the line that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Their number.
    pub count: u32,
    /// The time since the first of them.
    pub since: Duration,
    /// The time since the last of them.
    pub latest: Duration,
}

impl RateLimit {
    /// A limit of `per_minute` messages, with bursts of `burst`.
    pub const fn new(per_minute: u32, burst: u32) -> RateLimit {
        RateLimit {
            per_minute,
            burst,
            state: Mutex::new(None),
        }
    }

    /// Whether a message of `module` may be logged now: `None` if not, else the messages dropped
    /// since the last one. A module with its limits off (`vlog/disable-rate-limit`) may always log.
    pub fn admit(&self, module: &str) -> Option<Option<Dropped>> {
        self.admit_at(Instant::now(), vlog::rate_limited(module))
    }

    fn admit_at(&self, now: Instant, limited: bool) -> Option<Option<Dropped>> {
        let mut state = self.state.lock();
        let full = u64::from(self.burst) * MESSAGE;
        let state = state.get_or_insert(State {
            tokens: full,
            filled: now,
            dropped: 0,
            first_dropped: now,
            last_dropped: now,
        });
        let passed = now.saturating_duration_since(state.filled).as_millis() as u64;
        if passed > 0 {
            let earned = passed.saturating_mul(u64::from(self.per_minute));
            state.tokens = state.tokens.saturating_add(earned).min(full);
            state.filled = now;
        }
        if limited && state.tokens < MESSAGE {
            if state.dropped == 0 {
                state.first_dropped = now;
            }
            state.last_dropped = now;
            state.dropped = state.dropped.saturating_add(1);
            return None;
        }
        state.tokens = state.tokens.saturating_sub(MESSAGE);
        let dropped = Dropped {
            count: std::mem::take(&mut state.dropped),
            since: now.saturating_duration_since(state.first_dropped),
            latest: now.saturating_duration_since(state.last_dropped),
        };
        Some((dropped.count > 0).then_some(dropped))
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Dropped {} log messages in last {} seconds (most recently, {} seconds ago) due to \
             excessive rate",
            self.count,
            self.since.as_secs(),
            self.latest.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate_and_what_was_dropped_is_told() {
        let limit = RateLimit::new(60, 3);
        let start = Instant::now();
        let at = |ms: u64| limit.admit_at(start + Duration::from_millis(ms), true);
        for _ in 0..3 {
            assert_eq!(at(0), Some(None));
        }
        assert_eq!(at(0), None);
        assert_eq!(at(999), None);
        let told = at(2500).flatten().map(|d| d.to_string());
        assert_eq!(
            told.as_deref(),
            Some(
                "Dropped 2 log messages in last 2 seconds (most recently, 1 seconds ago) due to \
                 excessive rate"
            )
        );
        assert_eq!(at(2500), Some(None), "half a second's token was kept");
        assert_eq!(at(2500), None);
        assert!(limit.admit_at(start, false).is_some(), "limits can be switched off");
    }
}
