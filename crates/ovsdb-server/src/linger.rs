//! Not falling asleep between the requests of busy clients.
//!
//! While a client reads its reply it mostly has its next request ready, or another client sends one. To put the thread to sleep in between
//! and to wake it up, from another processor, costs as much as several transactions. So after a flush the thread goes on looking for events
//! for [`PATIENCE`] before it sleeps. Where that was in vain (the client has no more to say, or needs this very processor to say it), it
//! sleeps at once after the next flush, after the next three if it was in vain again, and so on: what lingering wastes is bounded, and an idle
//! server does not linger at all.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::server::Inner;

/// How long to look.
const PATIENCE: Duration = Duration::from_micros(60);

/// After this many vain attempts in a row, the pauses grow no more.
const MOST_FAILURES: u32 = 8;

/// When to linger.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    flushed: Notify,
    /// Requests handled so far.
    handled: Cell<u64>,
    /// Flushes to let pass.
    pause: Cell<u32>,
    /// Vain attempts in a row.
    failures: Cell<u32>,
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

    /// Whether an attempt brought a request.
    fn attempted(&self, paid: bool) {
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
        while linger.handled.get() == before && began.elapsed() < PATIENCE {
            // A client that waits for this very processor gets it.
            std::thread::yield_now();
            // Lets the runtime look for events without waiting for them.
            tokio::task::yield_now().await;
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
