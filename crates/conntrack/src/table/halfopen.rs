//! Connections that nobody has answered yet, by the switch's port that they came from: what goes
//! first when there is no room.

use super::Id;
use std::collections::{BTreeMap, VecDeque};

/// Removals after which the fullest port is searched again.
const RECKON: u32 = 32;
/// Entries of a queue from which on it is searched for answered connections.
const COMPACT: usize = 64;

/// Half-open connections in the order of their beginning, by port. Answered and removed ones stay
/// in a queue until they reach its front or it has doubled.
#[derive(Default)]
pub(crate) struct HalfOpen {
    ports: BTreeMap<u32, Queue>,
    /// The fullest port, and how many removals it stays that.
    fullest: Option<(u32, u32)>,
}

#[derive(Default)]
struct Queue {
    ids: VecDeque<Id>,
    /// Length at which it is searched again.
    limit: usize,
}

impl HalfOpen {
    /// Adds a connection. `waits` says whether one is still half-open.
    pub(crate) fn push(&mut self, port: u32, id: Id, waits: impl Fn(Id) -> bool) {
        let queue = self.ports.entry(port).or_default();
        queue.ids.push_back(id);
        if queue.ids.len() > queue.limit.max(COMPACT) {
            queue.ids.retain(|id| waits(*id));
            queue.limit = queue.ids.len() * 2;
            queue.ids.shrink_to(queue.limit);
            self.ports.retain(|_, queue| !queue.ids.is_empty());
        }
    }

    /// Takes the oldest connection of the port with the most.
    pub(crate) fn pop(&mut self, waits: impl Fn(Id) -> bool) -> Option<Id> {
        self.pop_over(0, waits)
    }

    /// The same if that port has more than this many.
    fn pop_over(&mut self, over: usize, waits: impl Fn(Id) -> bool) -> Option<Id> {
        loop {
            let port = self.fullest()?;
            let queue = self.ports.get_mut(&port)?;
            while queue.ids.front().is_some_and(|id| !waits(*id)) {
                queue.ids.pop_front();
            }
            if queue.ids.len() > over {
                return queue.ids.pop_front();
            }
            // Its connections were answered: another port may have more now.
            let len = queue.ids.len();
            if len == 0 {
                self.ports.remove(&port);
            }
            self.fullest = None;
            let next = self.fullest().and_then(|port| self.ports.get(&port));
            if next.is_none_or(|queue| queue.ids.len() <= over) {
                return None;
            }
        }
    }

    /// Takes the oldest connection of another port that has at least two more than this one.
    pub(crate) fn pop_for(&mut self, port: u32, waits: impl Fn(Id) -> bool) -> Option<Id> {
        let own = self.ports.get(&port).map_or(0, |queue| queue.ids.len());
        self.pop_over(own + 1, waits)
    }

    fn fullest(&mut self) -> Option<u32> {
        if let Some((port, left @ 1..)) = &mut self.fullest
            && self.ports.contains_key(port)
        {
            *left -= 1;
            return Some(*port);
        }
        let (port, _) = self.ports.iter().max_by_key(|(_, queue)| queue.ids.len())?;
        self.fullest = Some((*port, RECKON));
        Some(*port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32) -> Id {
        Id { index, life: 1 }
    }

    #[test]
    fn the_fullest_port_gives_up_its_oldest() {
        let mut queues = HalfOpen::default();
        for n in 0..100 {
            queues.push(1, id(n), |_| true);
        }
        queues.push(2, id(1000), |_| true);
        for n in 0..90 {
            assert_eq!(queues.pop(|_| true), Some(id(n)));
        }
    }

    #[test]
    fn answered_connections_are_never_taken_and_do_not_fill_a_queue() {
        let mut queues = HalfOpen::default();
        for n in 0..10_000 {
            queues.push(1, id(n), |id| id.index % 100 == 0);
        }
        assert!(queues.ports[&1].ids.len() < 300);
        for n in 0..100 {
            assert_eq!(queues.pop(|id| id.index % 100 == 0), Some(id(n * 100)));
        }
        assert_eq!(queues.pop(|id| id.index % 100 == 0), None);
        assert!(queues.ports.is_empty());
    }

    #[test]
    fn a_port_gets_room_only_from_one_that_has_more() {
        let mut queues = HalfOpen::default();
        for n in 0..3 {
            queues.push(1, id(n), |_| true);
        }
        assert_eq!(queues.pop_for(1, |_| true), None);
        assert_eq!(queues.pop_for(2, |_| true), Some(id(0)));
        queues.push(2, id(10), |_| true);
        assert_eq!(queues.pop_for(2, |_| true), None);
        assert_eq!(queues.pop_for(3, |_| true), Some(id(1)));
    }
}
