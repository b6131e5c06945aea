//! When a removed connection's memory may be used again: once no worker that could have found it is
//! still in the batch in which it found it.
//!
//! A reader announces the epoch that it saw when its batch began, and [`IDLE`] when the batch ends.
//! A removed entry is stamped with the epoch of its removal. It may be used again when every
//! announced epoch is later: those readers began their batch after the entry was gone from the
//! table.
//!
//! Why this is enough: the fence of [`Pin::enter`] stands between the announcement and the reader's
//! first look at the table, the fence of [`Epochs::stamp`] between the unlinking and the reading of
//! the epoch, and the fence of [`Epochs::oldest`] between the unlinking and the reading of the
//! announcements. So either the reclaiming thread sees the announcement, or the reader sees that
//! the entry is unlinked.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};

/// What a reader announces between batches.
const IDLE: u64 = u64::MAX;

/// A reader's announcement, on cache lines of its own.
#[repr(align(128))]
pub(crate) struct Pin(AtomicU64);

/// The epoch and all readers.
#[repr(align(128))]
pub(crate) struct Epochs {
    now: AtomicU64,
    pins: Mutex<Vec<Weak<Pin>>>,
}

impl Epochs {
    pub(crate) fn new() -> Epochs {
        Epochs {
            now: AtomicU64::new(1),
            pins: Mutex::new(Vec::new()),
        }
    }

    /// A reader's own announcement; it goes away with its last handle.
    pub(crate) fn register(&self) -> Arc<Pin> {
        let pin = Arc::new(Pin(AtomicU64::new(IDLE)));
        let mut pins = self.pins.lock();
        pins.retain(|pin| pin.strong_count() > 0);
        pins.push(Arc::downgrade(&pin));
        pin
    }

    /// The epoch of a removal, to be called after the entry was unlinked.
    pub(crate) fn stamp(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.now.load(Ordering::Relaxed)
    }

    /// Waits until every batch that is under way has ended. The caller is in none.
    pub(crate) fn wait_for_batches(&self) {
        let stamp = self.stamp();
        while self.oldest() <= stamp {
            std::thread::yield_now();
        }
    }

    /// Begins a new epoch. Entries whose stamp is below the returned one may be used again.
    pub(crate) fn oldest(&self) -> u64 {
        let next = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        fence(Ordering::SeqCst);
        let pins = self.pins.lock();
        let announced = pins.iter().filter_map(Weak::upgrade);
        announced.map(|pin| pin.0.load(Ordering::Acquire)).fold(next, u64::min)
    }
}

impl Pin {
    /// Begins a batch.
    #[inline]
    pub(crate) fn enter(&self, epochs: &Epochs) {
        self.0.store(epochs.now.load(Ordering::Relaxed), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends a batch.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.store(IDLE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_removed_during_a_batch_waits_until_the_batch_ends() {
        let epochs = Epochs::new();
        let (a, b) = (epochs.register(), epochs.register());
        a.enter(&epochs);
        let stamp = epochs.stamp();
        assert!(epochs.oldest() <= stamp);
        b.enter(&epochs);
        assert!(epochs.oldest() <= stamp);
        a.leave();
        assert!(epochs.oldest() > stamp, "b began after the removal");
        b.leave();
        assert!(epochs.oldest() > stamp);
    }

    #[test]
    fn batches_that_begin_later_are_not_waited_for() {
        let epochs = Epochs::new();
        let (a, b) = (epochs.register(), epochs.register());
        a.enter(&epochs);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| epochs.wait_for_batches());
            while epochs.now.load(Ordering::SeqCst) < 3 {}
            b.enter(&epochs);
            assert!(!waiting.is_finished());
            a.leave();
        });
        b.leave();
    }

    #[test]
    fn a_reader_that_is_gone_delays_nothing() {
        let epochs = Epochs::new();
        let pin = epochs.register();
        pin.enter(&epochs);
        let stamp = epochs.stamp();
        drop(pin);
        assert!(epochs.oldest() > stamp);
    }
}
