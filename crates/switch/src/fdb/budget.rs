//! How much the packets of one port may change a bridge's MAC learning table: one token bucket for
//! stations that move to the port, another for new stations.
//!
//! Each learned address costs other ports: megaflows that depend on it are removed, their packets
//! become upcalls, and workers wait while the tables change. A port that invents addresses, or
//! claims those of others, spends its own budget. The bridge ignores stations beyond the budget for
//! now. Megaflows report their stations about once a second while they carry packets, so the bridge
//! learns a station that keeps sending as soon as the budget allows.

use nanos::Nanos;
use std::time::Duration;

/// Moves of stations to a port. A virtual machine moves a few times a second at most, but many
/// stations move together when another link takes over.
const MOVES: Rate = Rate {
    per_second: 512,
    burst: 4096,
};

/// New stations in a second. The burst is the size of the table.
const NEW_PER_SECOND: u64 = 1024;

/// The kind of change to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A station changes its port.
    Move,
    /// A station is new.
    New,
}

/// The budget of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    moves: Bucket,
    new: Bucket,
}

impl Budget {
    /// Whether the budget allows one more change. The table has room for `max` stations.
    pub(super) fn allows(&self, kind: Kind, max: usize, now: Nanos) -> bool {
        match kind {
            Kind::Move => self.moves.allows(MOVES, now),
            Kind::New => self.new.allows(new_stations(max), now),
        }
    }

    /// As [`Budget::allows`], and spends a token.
    pub(super) fn take(&mut self, kind: Kind, max: usize, now: Nanos) -> bool {
        match kind {
            Kind::Move => self.moves.take(MOVES, now),
            Kind::New => self.new.take(new_stations(max), now),
        }
    }
}

fn new_stations(max: usize) -> Rate {
    Rate {
        per_second: NEW_PER_SECOND,
        burst: (max as u64).max(NEW_PER_SECOND),
    }
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    per_second: u64,
    burst: u64,
}

impl Rate {
    fn interval(self) -> Duration {
        Duration::from_nanos(1_000_000_000 / self.per_second)
    }

    /// How long an empty bucket takes to fill, less one token.
    fn depth(self) -> Duration {
        Duration::from_nanos(1_000_000_000 / self.per_second * self.burst.saturating_sub(1))
    }
}

/// A token bucket, kept as the time at which it is full.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    full: Nanos,
}

impl Bucket {
    fn allows(self, rate: Rate, now: Nanos) -> bool {
        self.full <= now + rate.depth()
    }

    fn take(&mut self, rate: Rate, now: Nanos) -> bool {
        let allowed = self.allows(rate, now);
        if allowed {
            self.full = self.full.max(now) + rate.interval();
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_has_a_burst_and_fills_up_with_time() {
        let mut budget = Budget::default();
        let mut taken = |kind, now| (0..100_000).filter(|_| budget.take(kind, 5000, now)).count();
        let start = Nanos::from_secs(1000);
        assert_eq!(taken(Kind::Move, start), 4096);
        assert_eq!(taken(Kind::New, start), 5000);
        assert_eq!(taken(Kind::Move, start + Duration::from_secs(1)), 512);
        assert_eq!(taken(Kind::New, start + Duration::from_secs(2)), 2048);
        assert_eq!(taken(Kind::Move, start + Duration::from_secs(3600)), 4096);
        assert!(!budget.allows(Kind::Move, 5000, start + Duration::from_secs(3600)));
        assert!(budget.allows(Kind::New, 5000, start + Duration::from_secs(3600)));
    }
}
