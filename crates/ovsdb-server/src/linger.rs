//! Not falling asleep between the requests of several busy clients.
//!
//! While one client reads its reply, another sends its next request. To put the thread to sleep in between and to wake it up, from another
//! processor, costs as much as a transaction or, in virtual machines, several. So after a flush the thread looks for new events a few times
//! (some 15 µs together) before it sleeps, provided that requests of several clients have come lately. With a single busy client it sleeps
//! at once, because that client may need this very processor to go on; and idle, nothing lingers.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::core::SessionId;
use crate::server::Inner;

/// How often to look.
const LOOKS: u32 = 30;

/// For so many requests of one client in a row the others are still reckoned with.
const MEMORY: u32 = 64;

/// When to linger.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    flushed: Notify,
    /// Requests handled so far.
    handled: Cell<u64>,
    last: Cell<Option<SessionId>>,
    /// The requests until a single client counts as alone.
    several: Cell<u32>,
}

impl Linger {
    /// A client's request was handled.
    pub(crate) fn handled(&self, session: SessionId) {
        self.handled.set(self.handled.get() + 1);
        let same = self.last.replace(Some(session)).is_none_or(|last| last == session);
        self.several.set(if same {
            self.several.get().saturating_sub(1)
        } else {
            MEMORY
        });
    }

    /// Replies have gone out.
    pub(crate) fn flushed(&self) {
        if self.several.get() > 0 {
            self.flushed.notify_one();
        }
    }
}

/// Keeps the thread awake for a moment after flushes.
pub(crate) async fn linger(inner: Rc<Inner>) {
    let linger = &inner.linger;
    loop {
        linger.flushed.notified().await;
        let before = linger.handled.get();
        for _ in 0..LOOKS {
            // Lets the runtime look for events without waiting for them.
            tokio::task::yield_now().await;
            if linger.handled.get() != before {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_stays_alone_ends_the_lingering() {
        let linger = Linger::default();
        linger.handled(SessionId(1));
        assert_eq!(linger.several.get(), 0);
        linger.handled(SessionId(2));
        assert_eq!(linger.several.get(), MEMORY);
        (0..MEMORY).for_each(|_| linger.handled(SessionId(2)));
        assert_eq!(linger.several.get(), 0);
    }
}
