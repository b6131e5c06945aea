//! Not falling asleep between the requests of busy clients.
//!
//! While a client reads its reply it mostly has its next request ready, or another client sends
//! one. To put the thread to sleep in between and to wake it up, from another processor, costs as
//! much as several transactions. So after a flush the thread goes on looking for events for
//! [`PATIENCE`] before it sleeps. Where that was in vain (the client has no more to say, or needs
//! this very processor to say it), it sleeps at once after the next flush, after the next three if
//! it was in vain again, and so on: what lingering wastes is bounded, and an idle server does not
//! linger at all.
//!
//! A client that is alone is waited for by its own connection's task, which saves the way through
//! the runtime.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::core::SessionId;
use crate::server::Inner;

/// How long to look.
pub(crate) const PATIENCE: Duration = Duration::from_micros(60);

/// After this many vain attempts in a row, the pauses grow no more.
const MOST_FAILURES: u32 = 8;

/// A client that was the only one to be sent to so many times in a row is alone.
const TIMES_ALONE: u32 = 4;

/// No session has this number.
const NOBODY: SessionId = SessionId(u64::MAX);

/// When to linger.
#[derive(Debug)]
pub(crate) struct Linger {
    flushed: Notify,
    /// Requests handled so far.
    handled: Cell<u64>,
    /// Flushes to let pass.
    pause: Cell<u32>,
    /// Vain attempts in a row.
    failures: Cell<u32>,
    /// Who was sent to last, and how many times in a row nobody else was.
    alone: Cell<(SessionId, u32)>,
}

impl Default for Linger {
    fn default() -> Linger {
        Linger {
            flushed: Notify::new(),
            handled: Cell::new(0),
            pause: Cell::new(0),
            failures: Cell::new(0),
            alone: Cell::new((NOBODY, 0)),
        }
    }
}

impl Linger {
    /// A client's request was handled.
    pub(crate) fn handled(&self) {
        self.handled.set(self.handled.get() + 1);
    }

    /// Replies have gone out.
    pub(crate) fn flushed(&self) {
        match self.pause.get() {
            0 => self.flushed.notify_one(),
            pause => self.pause.set(pause - 1),
        }
    }

    /// Requests handled so far.
    pub(crate) fn count(&self) -> u64 {
        self.handled.get()
    }

    /// These clients are sent to.
    pub(crate) fn sent_to(&self, sessions: &[SessionId]) {
        let alone = match (sessions, self.alone.get()) {
            ([id], (last, times)) if *id == last => (last, times.saturating_add(1)),
            ([id], _) => (*id, 1),
            _ => (NOBODY, 0),
        };
        self.alone.set(alone);
    }

    /// Whether to wait for the next request of this client and nobody else's.
    pub(crate) fn stays_with(&self, session: SessionId) -> bool {
        let (last, times) = self.alone.get();
        self.pause.get() == 0 && last == session && times >= TIMES_ALONE
    }

    /// Whether an attempt brought a request.
    pub(crate) fn attempted(&self, paid: bool) {
        if paid {
            self.failures.set(0);
        } else {
            let failures = (self.failures.get() + 1).min(MOST_FAILURES);
            self.failures.set(failures);
            self.pause.set((1 << failures) - 1);
        }
    }
}

/// Keeps the thread awake for a moment after flushes.
pub(crate) async fn linger(inner: Rc<Inner>) {
    let linger = &inner.linger;
    loop {
        linger.flushed.notified().await;
        let (began, before) = (Instant::now(), linger.handled.get());
        loop {
            // Lets the runtime look for events without waiting for them.
            tokio::task::yield_now().await;
            if linger.handled.get() != before || began.elapsed() >= PATIENCE {
                break;
            }
            // A client that waits for this very processor gets it.
            std::thread::yield_now();
        }
        linger.attempted(linger.handled.get() != before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_while_lingering_is_in_vain_and_end_when_it_pays() {
        let linger = Linger::default();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            linger.attempted(false);
            pauses.push(linger.pause.get());
            (0..linger.pause.get()).for_each(|_| linger.flushed());
            assert_eq!(linger.pause.get(), 0);
        }
        assert_eq!(pauses, [1, 3, 7, 15, 31, 63, 127, 255, 255, 255]);
        linger.attempted(true);
        linger.attempted(false);
        assert_eq!(linger.pause.get(), 1);
    }
}
