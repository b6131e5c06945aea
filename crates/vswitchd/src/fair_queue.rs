//! A bounded queue from workers to the control plane that is fair between ports.
//!
//! Workers do not wait: they leave a packet in the queue if it has room. The reader takes one
//! packet of each port in turn, so a port that floods does not delay others, and the second half of
//! the queue is for ports with few packets in it.

use std::collections::{BTreeMap, VecDeque};

/// See the module's page. `K` names a port.
pub(crate) struct FairQueue<K, T> {
    ports: BTreeMap<K, VecDeque<T>>,
    turns: VecDeque<K>,
    len: usize,
    /// Its length at most, and the packets of one port at most.
    most: usize,
    most_of_port: usize,
}

impl<K: Ord + Copy, T> FairQueue<K, T> {
    /// An empty queue of at most `most` packets, and `most_of_port` of one port.
    pub(crate) fn new(most: usize, most_of_port: usize) -> FairQueue<K, T> {
        FairQueue {
            ports: BTreeMap::new(),
            turns: VecDeque::new(),
            len: 0,
            most,
            most_of_port,
        }
    }

    /// Whether no packet waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a packet of this port has room.
    pub(crate) fn has_room(&self, port: K) -> bool {
        let own = self.ports.get(&port).map_or(0, VecDeque::len);
        self.len < self.most && own < self.most_of_port && (self.len < self.most / 2 || own < self.most / 64)
    }

    /// Appends a packet, whether it has room or not.
    pub(crate) fn push(&mut self, port: K, packet: T) {
        let queue = self.ports.entry(port).or_default();
        if queue.is_empty() {
            self.turns.push_back(port);
        }
        queue.push_back(packet);
        self.len += 1;
    }

    /// The oldest packet of the port whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let port = self.turns.pop_front()?;
        let queue = self.ports.get_mut(&port)?;
        let packet = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.ports.remove(&port);
        } else {
            self.turns.push_back(port);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_floods_leaves_room_for_others_and_their_turn() {
        let mut queue = FairQueue::new(2048, 512);
        let push = |queue: &mut FairQueue<u32, u32>, port| {
            let room = queue.has_room(port);
            if room {
                queue.push(port, port);
            }
            room
        };
        let taken = (0..2048).filter(|_| push(&mut queue, 1)).count();
        assert_eq!(taken, 512);
        assert!(push(&mut queue, 2));
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Some(1), Some(2), Some(1)]);
    }
}
