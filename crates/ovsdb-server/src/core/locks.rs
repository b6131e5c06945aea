//! Locks that clients take by name (RFC 7047 §4.1.8 to §4.1.10).
//!
//! A lock belongs to the whole server, not to a database. Each has a queue; the first session in it
//! owns the lock. `lock` appends to the queue, `steal` goes to its front. The server notifies a
//! session that gains or loses a lock by another session's request.

use std::collections::{BTreeMap, VecDeque};

use super::SessionId;

/// All locks of a server. A lock with an empty queue does not exist.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    queues: BTreeMap<String, VecDeque<SessionId>>,
}

/// A notification to another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// `locked`: the session owns the lock now.
    Locked(SessionId),
    /// `stolen`: the session has lost the lock.
    Stolen(SessionId),
}

/// The result of `lock` or `steal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Whether the session owns the lock.
    pub(crate) locked: bool,
    /// The session that it was taken from.
    pub(crate) told: Option<Told>,
}

impl Locks {
    /// Requests a lock. `None` if the session has requested it before and not released it.
    pub(crate) fn lock(&mut self, name: &str, session: SessionId) -> Option<Taken> {
        let queue = self.queues.entry(name.to_owned()).or_default();
        if queue.contains(&session) {
            return None;
        }
        queue.push_back(session);
        Some(Taken {
            locked: queue.len() == 1,
            told: None,
        })
    }

    /// Takes a lock from its owner, who waits for it from then on. `None` as for [`Locks::lock`].
    pub(crate) fn steal(&mut self, name: &str, session: SessionId) -> Option<Taken> {
        let queue = self.queues.entry(name.to_owned()).or_default();
        if queue.contains(&session) {
            return None;
        }
        let told = queue.front().copied().map(Told::Stolen);
        queue.push_front(session);
        Some(Taken { locked: true, told })
    }

    /// Releases a lock, or leaves its queue. `None` if the session has not requested it.
    pub(crate) fn unlock(&mut self, name: &str, session: SessionId) -> Option<Option<Told>> {
        let queue = self.queues.get_mut(name)?;
        let at = queue.iter().position(|waiter| *waiter == session)?;
        queue.remove(at);
        let next = queue.front().copied();
        if queue.is_empty() {
            self.queues.remove(name);
        }
        Some(next.filter(|_| at == 0).map(Told::Locked))
    }

    /// Removes a session that has ended from all queues.
    pub(crate) fn leave(&mut self, session: SessionId) -> Vec<(String, Told)> {
        let names: Vec<String> = self.asked(session).map(str::to_owned).collect();
        names
            .into_iter()
            .filter_map(|name| self.unlock(&name, session)?.map(|told| (name, told)))
            .collect()
    }

    /// Whether the session owns the lock.
    pub(crate) fn owns(&self, name: &str, session: SessionId) -> bool {
        self.queues
            .get(name)
            .is_some_and(|queue| queue.front() == Some(&session))
    }

    /// The names of all locks that a session owns.
    pub(crate) fn owned(&self, session: SessionId) -> impl Iterator<Item = &str> {
        self.queues
            .iter()
            .filter(move |(_, queue)| queue.front() == Some(&session))
            .map(|(name, _)| name.as_str())
    }

    /// The names of all locks that a session owns, waits for or has lost by `steal`.
    pub(crate) fn asked(&self, session: SessionId) -> impl Iterator<Item = &str> {
        self.queues
            .iter()
            .filter(move |(_, queue)| queue.contains(&session))
            .map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    const C: SessionId = SessionId(3);

    #[test]
    fn a_lock_passes_to_those_who_wait_in_their_order() {
        let mut locks = Locks::default();
        assert_eq!(
            locks.lock("l", A),
            Some(Taken {
                locked: true,
                told: None
            })
        );
        assert_eq!(
            locks.lock("l", B),
            Some(Taken {
                locked: false,
                told: None
            })
        );
        assert_eq!(
            locks.lock("l", C),
            Some(Taken {
                locked: false,
                told: None
            })
        );
        assert_eq!(locks.lock("l", A), None);
        assert_eq!(locks.unlock("l", A), Some(Some(Told::Locked(B))));
        assert_eq!(locks.unlock("l", C), Some(None));
        assert_eq!(locks.unlock("l", B), Some(None));
        assert_eq!(locks.unlock("l", B), None);
        assert!(locks.queues.is_empty());
    }

    #[test]
    fn a_thief_owns_the_lock_at_once_and_its_victim_gets_it_back() {
        let mut locks = Locks::default();
        locks.lock("l", A);
        assert_eq!(
            locks.steal("l", B),
            Some(Taken {
                locked: true,
                told: Some(Told::Stolen(A))
            })
        );
        assert!(locks.owns("l", B) && !locks.owns("l", A));
        assert_eq!(locks.steal("l", B), None);
        assert_eq!(locks.unlock("l", B), Some(Some(Told::Locked(A))));
        assert!(locks.owns("l", A));
    }

    #[test]
    fn a_session_that_ends_leaves_all_queues() {
        let mut locks = Locks::default();
        locks.lock("l", A);
        locks.lock("l", B);
        locks.lock("m", B);
        locks.lock("m", A);
        assert_eq!(locks.leave(A), [("l".to_owned(), Told::Locked(B))]);
        assert_eq!(locks.owned(B).collect::<Vec<_>>(), ["l", "m"]);
        assert_eq!(locks.leave(B), []);
    }
}
