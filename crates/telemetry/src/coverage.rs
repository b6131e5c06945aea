//! Counters of events, for `coverage/show` and `coverage/read-counter`.
//!
//! A counter is a static, declared once by [`counters!`](crate::counters); counting is one relaxed
//! addition. Rates need history, which [`tick`] keeps: call it about every 5 seconds.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Seconds between two calls of [`tick`].
pub const TICK_SECONDS: u64 = 5;

/// Declares counters: each becomes a static [`Counter`] and is shown by the name given.
///
/// ```
/// telemetry::counters! {
///     /// Messages that clients sent.
///     pub MESSAGES = "jsonrpc_messages";
/// }
/// MESSAGES.add(1);
/// ```
#[macro_export]
macro_rules! counters {
    ($($(#[$meta:meta])* $vis:vis $ident:ident = $name:literal;)+) => {
        $($(#[$meta])* $vis static $ident: $crate::coverage::Counter =
            $crate::coverage::Counter::new($name);)+
    };
}

/// A count of events.
#[derive(Debug)]
pub struct Counter {
    name: &'static str,
    total: AtomicU64,
    listed: AtomicBool,
}

impl Counter {
    /// A counter at zero. Use [`counters!`](crate::counters).
    pub const fn new(name: &'static str) -> Counter {
        Counter {
            name,
            total: AtomicU64::new(0),
            listed: AtomicBool::new(false),
        }
    }

    /// Counts one event.
    #[inline]
    pub fn inc(&'static self) {
        self.add(1);
    }

    /// Counts `n` events.
    #[inline]
    pub fn add(&'static self, n: u64) {
        self.total.fetch_add(n, Ordering::Relaxed);
        if !self.listed.load(Ordering::Relaxed) {
            self.list();
        }
    }

    /// The events since the program started.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Registers it for [`show`] before the first event, which does that too.
    #[cold]
    pub fn list(&'static self) {
        let mut all = LISTED.lock();
        if !self.listed.swap(true, Ordering::Relaxed) {
            all.push(Entry {
                counter: self,
                last: 0,
                seconds5: [0; MINUTE],
                minutes: [0; HOUR],
            });
        }
    }
}

/// Intervals of [`TICK_SECONDS`] in a minute.
const MINUTE: usize = 12;
/// Minutes in an hour.
const HOUR: usize = 60;

struct Entry {
    counter: &'static Counter,
    last: u64,
    seconds5: [u32; MINUTE],
    minutes: [u32; HOUR],
}

static LISTED: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static TICKS: AtomicU64 = AtomicU64::new(0);

/// Ends an interval of [`TICK_SECONDS`], and updates the rates that [`show`] prints.
pub fn tick() {
    let tick = TICKS.fetch_add(1, Ordering::Relaxed) as usize;
    for entry in LISTED.lock().iter_mut() {
        let total = entry.counter.total();
        let new = (total - entry.last).min(u64::from(u32::MAX)) as u32;
        entry.last = total;
        entry.seconds5[tick % MINUTE] = new;
        if tick % MINUTE == MINUTE - 1 {
            entry.minutes[tick / MINUTE % HOUR] = entry.seconds5.iter().fold(0u32, |sum, n| sum.saturating_add(*n));
        }
    }
}

/// The table that `coverage/show` prints, without a newline at its end.
pub fn show() -> String {
    let last = (TICKS.load(Ordering::Relaxed) as usize).wrapping_sub(1);
    let mut hit: Vec<(&str, String)> = Vec::new();
    let mut never = 0;
    for entry in LISTED.lock().iter() {
        let total = entry.counter.total();
        if total == 0 {
            never += 1;
            continue;
        }
        let sum = |of: &[u32]| of.iter().map(|n| u64::from(*n)).sum::<u64>() as f64;
        let line = format!(
            "{:<24} {:5.1}/sec {:9.3}/sec {:13.4}/sec   total: {total}",
            entry.counter.name,
            f64::from(entry.seconds5[last % MINUTE]) / TICK_SECONDS as f64,
            sum(&entry.seconds5) / 60.0,
            sum(&entry.minutes) / 3600.0,
        );
        hit.push((entry.counter.name, line));
    }
    hit.sort_unstable();
    let hash = hit.iter().fold(0x811c_9dc5u32, |hash, (name, _)| {
        name.bytes()
            .fold(hash, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
    });
    let mut out = format!("Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={hash:08x}:\n");
    for (_, line) in &hit {
        let _ = writeln!(out, "{line}");
    }
    let _ = write!(out, "{never} events never hit");
    out
}

/// The total of the counter called `name`.
pub fn read(name: &str) -> Option<u64> {
    LISTED
        .lock()
        .iter()
        .find(|e| e.counter.name == name)
        .map(|e| e.counter.total())
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::counters! {
        A = "test_a";
        B = "test_b";
    }

    #[test]
    fn events_are_counted_and_their_rates_shown() {
        A.add(9);
        A.inc();
        B.list();
        tick();
        assert_eq!(read("test_a"), Some(10));
        assert_eq!(read("nothing"), None);
        let shown = show();
        let line = "test_a                     2.0/sec     0.167/sec        0.0000/sec   total: 10";
        assert!(shown.lines().any(|l| l == line), "{shown}");
        assert!(shown.ends_with("1 events never hit"), "{shown}");
    }
}
