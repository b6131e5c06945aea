//! How many connections there may be: in total, by zone, and by zone if it has no limit of its own.

use crate::sparse::Sparse;
use crate::table::Id;
use crate::table::halfopen::HalfOpen;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// The total by default, as in Open vSwitch.
pub const DEFAULT_MAX: u32 = 3_000_000;

/// A zone without a limit of its own.
const UNSET: i64 = -1;

/// Counts and limits.
pub(crate) struct Limits {
    pub(crate) max: AtomicU32,
    count: AtomicU32,
    default: AtomicU32,
    zones: Sparse<Zone>,
}

/// A zone's account.
pub(crate) struct Zone {
    count: AtomicU32,
    /// Connections at most; 0 is any number, [`UNSET`] what the default says.
    limit: AtomicI64,
    /// Half-open connections since the limit was set.
    half_open: Mutex<HalfOpen>,
    refused: AtomicU64,
}

impl Default for Zone {
    fn default() -> Zone {
        Zone {
            count: AtomicU32::new(0),
            limit: AtomicI64::new(UNSET),
            half_open: Mutex::new(HalfOpen::default()),
            refused: AtomicU64::new(0),
        }
    }
}

/// A zone's limit and use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLimit {
    /// The zone.
    pub zone: u16,
    /// Connections at most; 0 is any number.
    pub limit: u32,
    /// Connections now.
    pub count: u32,
    /// Connections that were refused at the limit.
    pub refused: u64,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    Total,
    Zone,
}

impl Limits {
    pub(crate) fn new() -> Limits {
        Limits {
            max: AtomicU32::new(DEFAULT_MAX),
            count: AtomicU32::new(0),
            default: AtomicU32::new(0),
            zones: Sparse::new(),
        }
    }

    /// Takes a place for a connection of this zone.
    pub(crate) fn take(&self, zone: u16) -> Result<(), Reached> {
        let account = self.zones.get_or_make(zone);
        // No limit is 2³² - 1 places, more than there can be.
        let limit = Some(self.limit(account)).filter(|limit| *limit != 0);
        take(&account.count, limit.unwrap_or(u32::MAX)).ok_or(Reached::Zone)?;
        take(&self.count, self.max.load(Ordering::Relaxed)).ok_or_else(|| {
            account.count.fetch_sub(1, Ordering::Relaxed);
            Reached::Total
        })
    }

    /// Gives a place back.
    pub(crate) fn give(&self, zone: u16) {
        self.zones.get_or_make(zone).count.fetch_sub(1, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes a half-open connection of a zone with a limit.
    pub(crate) fn note_half_open(&self, zone: u16, port: u32, id: Id, waits: impl Fn(Id) -> bool) {
        let account = self.zones.get_or_make(zone);
        if self.limit(account) != 0 {
            account.half_open.lock().push(port, id, waits);
        }
    }

    /// In a zone at its limit, a half-open connection of a port that has more than this one.
    pub(crate) fn evict(&self, zone: u16, port: u32, waits: impl Fn(Id) -> bool) -> Option<Id> {
        self.zones.get_or_make(zone).half_open.lock().pop_for(port, waits)
    }

    pub(crate) fn refuse(&self, zone: u16) {
        self.zones.get_or_make(zone).refused.fetch_add(1, Ordering::Relaxed);
    }

    fn limit(&self, zone: &Zone) -> u32 {
        match zone.limit.load(Ordering::Relaxed) {
            UNSET => self.default.load(Ordering::Relaxed),
            limit => limit as u32,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn default(&self) -> u32 {
        self.default.load(Ordering::Relaxed)
    }

    pub(crate) fn set_default(&self, limit: u32) {
        self.default.store(limit, Ordering::Relaxed);
    }

    /// Sets a zone's limit; `None` goes back to the default one.
    pub(crate) fn set(&self, zone: u16, limit: Option<u32>) {
        let limit = limit.map_or(UNSET, i64::from);
        self.zones.get_or_make(zone).limit.store(limit, Ordering::Relaxed);
    }

    /// A zone's limit and use.
    pub(crate) fn zone(&self, zone: u16) -> ZoneLimit {
        let account = self.zones.get(zone);
        ZoneLimit {
            zone,
            limit: account.map_or_else(|| self.default(), |account| self.limit(account)),
            count: account.map_or(0, |account| account.count.load(Ordering::Relaxed)),
            refused: account.map_or(0, |account| account.refused.load(Ordering::Relaxed)),
        }
    }

    /// The zones with a limit of their own.
    pub(crate) fn zones(&self) -> Vec<ZoneLimit> {
        let own = |zone: &Zone| zone.limit.load(Ordering::Relaxed) != UNSET;
        let limited = self.zones.iter().filter(|(_, zone)| own(zone));
        limited.map(|(number, _)| self.zone(number)).collect()
    }

    /// The zones with connections.
    pub(crate) fn used_zones(&self) -> Vec<(u16, u32)> {
        let counts = self
            .zones
            .iter()
            .map(|(number, zone)| (number, zone.count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count != 0).collect()
    }
}

/// Adds 1 if the sum is not above the limit.
fn take(count: &AtomicU32, limit: u32) -> Option<()> {
    let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
        (count < limit).then(|| count + 1)
    });
    taken.ok().map(|_| ())
}
