//! The pool of offloaded flows, which ports share fairly. A flow counts for the port that its
//! packets come in by.
//!
//! A port's share is the size of the pool divided by the number of ports that have flows, plus one.
//! So a port that comes later finds some left.
//!
//! While more than a reserve is left, a port can have more than its share. When less is left, a
//! port that has its share gets no more, and a port that has more has a surplus: its workers close
//! these.

use super::Refused;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The part of the pool that is kept for ports with less than their share.
const RESERVE: u32 = 8;

pub(super) struct Pool {
    total: u32,
    /// Numbers that are unused, or about to be given back.
    left: AtomicU32,
    state: Mutex<State>,
}

struct State {
    /// Unused numbers, those unused for longest first.
    free: VecDeque<u32>,
    /// Number of flows of each port.
    used: Vec<u32>,
    /// Number of ports with flows.
    ports: u32,
}

impl Pool {
    /// Numbers below `total`, for ports below `ports`.
    pub(super) fn new(total: u32, ports: u32) -> Pool {
        Pool {
            total,
            left: AtomicU32::new(total),
            state: Mutex::new(State {
                free: (0..total).collect(),
                used: vec![0; ports as usize],
                ports: 0,
            }),
        }
    }

    /// A number for a port.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::OverShare`].
    pub(super) fn take(&self, port: u32) -> Result<u32, Refused> {
        let mut state = self.state.lock();
        let is_new = state.used[port as usize] == 0;
        let ports = state.ports + u32::from(is_new);
        if self.is_short() && state.used[port as usize] >= self.share(ports) {
            return Err(Refused::OverShare);
        }
        let number = state.free.pop_front().ok_or(Refused::Full)?;
        state.ports = ports;
        state.used[port as usize] += 1;
        self.left.fetch_sub(1, Relaxed);
        Ok(number)
    }

    /// A port no longer uses one of its numbers, which is given back later.
    pub(super) fn leave(&self, port: u32) {
        let mut state = self.state.lock();
        state.used[port as usize] -= 1;
        state.ports -= u32::from(state.used[port as usize] == 0);
        self.left.fetch_add(1, Relaxed);
    }

    /// Takes a number back that its port has left.
    pub(super) fn give_back(&self, number: u32) {
        self.state.lock().free.push_back(number);
    }

    pub(super) fn left(&self) -> u32 {
        self.left.load(Relaxed)
    }

    /// Whether no more than the reserve is left.
    pub(super) fn is_short(&self) -> bool {
        self.left() <= self.total / RESERVE
    }

    /// How many a port has to close now: as many as fill the reserve up, of those beyond its share.
    pub(super) fn surplus(&self, port: u32) -> u32 {
        let state = self.state.lock();
        let wanted = (self.total / RESERVE).saturating_sub(self.left());
        wanted.min(state.used[port as usize].saturating_sub(self.share(state.ports)))
    }

    fn share(&self, ports: u32) -> u32 {
        (self.total / (ports + 1)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many as the port gets, up to `most`.
    fn take(pool: &Pool, port: u32, most: usize) -> Vec<u32> {
        std::iter::from_fn(|| pool.take(port).ok()).take(most).collect()
    }

    fn give_back(pool: &Pool, port: u32, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            pool.leave(port);
            pool.give_back(number);
        }
    }

    #[test]
    fn a_port_alone_leaves_a_reserve_and_one_that_comes_later_has_it_at_once() {
        let pool = Pool::new(800, 10);
        assert_eq!(take(&pool, 1, usize::MAX).len(), 700);
        assert!(matches!(pool.take(1), Err(Refused::OverShare)));
        assert_eq!(take(&pool, 2, usize::MAX).len(), 100);
        assert!(matches!(pool.take(2), Err(Refused::Full)));
    }

    #[test]
    fn ports_above_their_share_give_way_until_all_have_it() {
        let pool = Pool::new(800, 10);
        let mut greedy = take(&pool, 1, usize::MAX);
        let mut others: Vec<Vec<u32>> = vec![Vec::new(); 3];
        for _ in 0..100 {
            for (port, numbers) in (2..).zip(&mut others) {
                numbers.extend(take(&pool, port, 20));
                assert_eq!(pool.surplus(port), 0, "port {port} has {}", numbers.len());
            }
            let surplus = pool.surplus(1) as usize;
            give_back(&pool, 1, greedy.drain(..surplus).collect::<Vec<_>>());
        }
        assert!(others.iter().all(|numbers| numbers.len() >= 160), "a fifth for each");
        assert_eq!(greedy.len(), 220, "the reserve is full again");
        assert_eq!(take(&pool, 5, usize::MAX).len(), 100);
        assert_eq!(pool.surplus(1), 87, "a sixth is 133");
    }

    #[test]
    fn a_port_that_needs_less_than_its_share_leaves_the_rest_to_others() {
        let pool = Pool::new(800, 10);
        let few = take(&pool, 1, 10);
        assert_eq!(take(&pool, 2, usize::MAX).len(), 690);
        assert_eq!(pool.surplus(2), 0);
        give_back(&pool, 1, few);
        assert_eq!(take(&pool, 2, usize::MAX).len(), 10);
        assert_eq!(take(&pool, 1, 10).len(), 10, "the reserve is for it");
    }
}
