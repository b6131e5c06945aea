//! The queue of packets from workers to controllers.
//!
//! The queue also keeps the context of each handle, as long as the switch knows the handle; the
//! switch limits their number.

use crate::fair_queue::FairQueue;
use dp::{PortNo, Punt};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use switch::tables::{ForController, Translated};
use tokio::sync::Notify;

/// The length of the queue.
const MOST: usize = 2048;
/// Packets of one port in the queue at most.
const MOST_OF_PORT: usize = 512;

/// Packets for controllers, and the contexts of their handles.
pub(crate) struct Packets {
    meanings: RwLock<HashMap<u32, Arc<ForController>>>,
    queue: Mutex<FairQueue<PortNo, Packet>>,
    notify: Notify,
}

impl Default for Packets {
    fn default() -> Packets {
        Packets {
            meanings: RwLock::default(),
            queue: Mutex::new(FairQueue::new(MOST, MOST_OF_PORT)),
            notify: Notify::new(),
        }
    }
}

/// A packet for controllers.
pub(crate) struct Packet {
    pub(crate) meaning: Arc<ForController>,
    pub(crate) data: Box<[u8]>,
    pub(crate) total_len: usize,
    pub(crate) mark: u32,
}

impl Packets {
    /// Notes the contexts of a translation that the switch has accepted.
    pub(crate) fn know(&self, translated: &Translated) {
        if translated.controllers.is_empty() {
            return;
        }
        let mut known = self.meanings.write();
        for (handle, meaning) in &translated.controllers {
            known.insert(*handle, Arc::new(meaning.clone()));
        }
    }

    /// Removes handles that the switch has freed.
    pub(crate) fn forget(&self, handles: &[u32]) {
        if handles.is_empty() {
            return;
        }
        let mut known = self.meanings.write();
        for handle in handles {
            known.remove(handle);
        }
    }

    /// Queues a copy of a packet. `false` if there is no room.
    pub(crate) fn push(&self, packet: &Punt<'_>) -> bool {
        let Some(meaning) = self.meanings.read().get(&packet.handle).cloned() else {
            return false;
        };
        let mut queue = self.queue.lock();
        let room = queue.has_room(packet.in_port);
        if room {
            let copy = Packet {
                meaning,
                data: packet.packet.into(),
                total_len: packet.total_len,
                mark: packet.mark,
            };
            queue.push(packet.in_port, copy);
            self.notify.notify_one();
        }
        room
    }

    /// Waits for packets, and takes up to `most`.
    pub(crate) async fn take(&self, most: usize) -> Vec<Packet> {
        loop {
            let taken: Vec<Packet> = {
                let mut queue = self.queue.lock();
                std::iter::from_fn(|| queue.pop()).take(most).collect()
            };
            if !taken.is_empty() {
                return taken;
            }
            self.notify.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::model::Match;

    fn meaning(cookie: u64) -> ForController {
        ForController {
            bridge: 1,
            controller: 0,
            reason: 1,
            table: 0,
            cookie,
            userdata: Vec::new(),
            meter: None,
            max_len: u16::MAX,
            metadata: Match::ANY,
            continuation: None,
        }
    }

    fn packet(handle: u32, port: u32) -> Punt<'static> {
        Punt {
            reason: dp::PuntReason::Controller,
            handle,
            in_port: PortNo(port),
            packet: b"packet",
            total_len: 60,
            mark: 0,
            tunnel: None,
        }
    }

    fn translated(handle: u32) -> Translated {
        let mut switch = switch::Switch::new(1);
        switch.configure(switch::SwitchConfig::default(), nanos::Nanos(0));
        let upcall = dp::Upcall::new(&flow::Key::ZERO, &[]);
        let mut translated = switch
            .translate(&upcall, nanos::Nanos(0), switch::tables::Patience::Whole)
            .unwrap();
        translated.controllers = vec![(handle, meaning(handle.into()))];
        translated
    }

    #[test]
    fn a_handle_is_refused_before_it_is_known_and_after_it_is_forgotten() {
        let packets = Packets::default();
        assert!(!packets.push(&packet(7, 1)));
        packets.know(&translated(7));
        packets.know(&translated(8));
        assert!(packets.push(&packet(7, 1)));
        packets.forget(&[7, 9]);
        assert!(!packets.push(&packet(7, 1)) && packets.push(&packet(8, 1)));
        assert!(!packets.push(&packet(0, 1)));
    }
}
