//! A memory budget: a bound on the bytes that all peers of a server use together.
//!
//! Each peer has a [`Share`]. As in a switch with a shared packet buffer, a peer always has its
//! reserved bytes; beyond them it may hold at most as many bytes as are free in total (a dynamic
//! threshold: one peer alone gets half of the budget). Peers together never hold more than the
//! limit and their reserved bytes. Dropping a share gives its bytes back.
//!
//! ```
//! use telemetry::budget::Budget;
//! let budget = Budget::new(1000, 10);
//! let (mut first, mut second) = (budget.share(), budget.share());
//! assert!(first.grow(500).is_ok());
//! assert!(first.grow(1).is_err());
//! assert!(second.grow(250).is_ok());
//! drop(first);
//! assert_eq!(budget.held(), 250);
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that all peers may hold together. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Total>);

#[derive(Debug)]
struct Total {
    limit: usize,
    reserved: usize,
    held: AtomicUsize,
}

/// What one peer holds of a [`Budget`].
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    held: usize,
}

/// A peer requested more bytes than its share of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes more than the {held} bytes held exceed this peer's part of the memory budget of {limit} bytes")]
pub struct Exceeded {
    /// Bytes that the peer requested.
    pub wanted: usize,
    /// Bytes that it holds.
    pub held: usize,
    /// The budget of all peers, in bytes.
    pub limit: usize,
}

impl Budget {
    /// A budget of `limit` bytes for all peers, and of `reserved` bytes that each peer has in any
    /// case.
    pub fn new(limit: usize, reserved: usize) -> Budget {
        Budget(Arc::new(Total {
            limit,
            reserved,
            held: AtomicUsize::new(0),
        }))
    }

    /// A new peer's share, which holds nothing.
    pub fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            held: 0,
        }
    }

    /// Bytes that all peers hold.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Bytes that all peers may hold.
    pub fn limit(&self) -> usize {
        self.0.limit
    }
}

impl Share {
    /// Takes bytes out of the budget.
    ///
    /// # Errors
    /// [`Exceeded`] when this peer would hold more than its part. It keeps what it held before.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Exceeded> {
        let total = &self.budget.0;
        let wanted = self.held.saturating_add(bytes);
        let admit = |all: usize| {
            let all = all.saturating_add(bytes);
            let most = total.limit.saturating_sub(all).max(total.reserved);
            (wanted <= most).then_some(all)
        };
        match total.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit) {
            Ok(_) => {
                self.held = wanted;
                Ok(())
            }
            Err(_) => Err(Exceeded {
                wanted: bytes,
                held: self.held,
                limit: total.limit,
            }),
        }
    }

    /// Counts bytes that the peer holds already, whether they exceed its part or not. The next
    /// [`Share::grow`] finds less room.
    pub fn charge(&mut self, bytes: usize) {
        self.held += bytes;
        self.budget.0.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releases bytes, at most those that it holds.
    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.held);
        self.held -= bytes;
        self.budget.0.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sets the bytes that it holds, as [`Share::charge`] and [`Share::shrink`] do.
    pub fn set(&mut self, bytes: usize) {
        match bytes.checked_sub(self.held) {
            Some(more) => self.charge(more),
            None => self.shrink(self.held - bytes),
        }
    }

    /// Bytes that this peer holds.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Whether the peer holds more than its part.
    pub fn is_exceeded(&self) -> bool {
        let total = &self.budget.0;
        self.held > total.limit.saturating_sub(self.budget.held()).max(total.reserved)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_peers_hold_no_more_than_the_budget_and_each_has_its_reserved_bytes() {
        let budget = Budget::new(1 << 20, 1024);
        let mut peers: Vec<Share> = Vec::new();
        for _ in 0..100 {
            let mut peer = budget.share();
            assert!(peer.grow(1024).is_ok(), "reserved bytes are there");
            peers.push(peer);
            for peer in &mut peers {
                while peer.grow(1000).is_ok() {}
            }
            assert!(budget.held() <= budget.limit() + peers.len() * 1024);
        }
        peers.clear();
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_refused_peer_keeps_what_it_held_and_may_ask_for_less() {
        let budget = Budget::new(100, 0);
        let mut peer = budget.share();
        assert_eq!(peer.grow(40), Ok(()));
        let exceeded = Exceeded {
            wanted: 20,
            held: 40,
            limit: 100,
        };
        assert_eq!(peer.grow(20), Err(exceeded));
        assert_eq!((peer.held(), budget.held()), (40, 40));
        assert_eq!(peer.grow(10), Ok(()));
        peer.shrink(1000);
        assert_eq!((peer.held(), budget.held()), (0, 0));
        assert!(peer.grow(usize::MAX).is_err());
    }

    #[test]
    fn bytes_that_are_held_already_count_even_where_they_exceed() {
        let budget = Budget::new(100, 0);
        let (mut one, mut other) = (budget.share(), budget.share());
        one.set(150);
        assert!(one.is_exceeded() && other.grow(1).is_err());
        one.set(20);
        assert!(!one.is_exceeded() && other.grow(40).is_ok());
        drop(one);
        assert_eq!(budget.held(), 40);
    }
}
