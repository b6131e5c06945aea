//! The cache before all others, in the kernel: shortcuts from device to device, for packets whose megaflow sends them out of one port as they are, or
//! with a VLAN tag put on or taken off.
//!
//! A packet that takes one never comes here. What it would have changed here is made up for: what shortcuts have carried is added to their
//! megaflows before these are looked at, reported or removed.
//!
//! Invariants
//! - A shortcut belongs to a megaflow that is there. It is stopped before that goes.
//! - A change that is published makes all shortcuts wait; one is renewed when a packet of it has met its megaflow after that.
//! - Packets do not overtake others of their flow: a shortcut is opened when all that its port had received is on its way. (One that comes while it is
//!   being opened may be overtaken.)

use super::FlowTable;
use super::storage::{Flow, Storage};
use crate::options::ShortcutUse;
use dp::Action;
use flow::{Field, Mask, PortNo};
use hashbrown::HashMap;
use netdev::Netdev;
use netdev::shortcut::{MOST, Shortcut, ShortcutKey, ShortcutPort, TagChange};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;
use wire::{EtherType, Nanos, VlanTag};

/// A shortcut that carries nothing for so long is closed; while a worker has more than half of all that there can be, the shorter time.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_AMONG_MANY: Duration = Duration::from_secs(1);

/// The next shortcut after so long is opened for the first packet that there is; sooner, for the second of a kind, because to open one costs as much
/// as to forward some packets.
const PAUSE: Duration = Duration::from_millis(1);

/// Closed in one step; each is a call of the kernel.
const CLOSE: usize = 32;

/// Kinds of packets that are remembered until the second comes.
const SEEN: usize = 1024;

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// A worker's shortcuts. See the module's page.
pub(super) struct Shortcuts {
    exits: HashMap<PortNo, Exit>,
    open: Vec<Option<Open>>,
    vacant: Vec<u32>,
    /// Where those stand that are open; `None` of those that are being closed.
    by_key: HashMap<ShortcutKey, Option<u32>>,
    by_flow: HashMap<u32, Vec<u32>>,
    /// Those that are stopped.
    closing: Vec<Shortcut>,
    /// Of kinds of packets that came and got none, a number.
    seen: Box<[u32]>,
    /// When one was last opened.
    opened: Nanos,
    usage: ShortcutUse,
}

/// A port that shortcuts can lead to.
struct Exit {
    port: Arc<ShortcutPort>,
    device: Arc<dyn Netdev>,
    /// How packets leave, as far as that is known; none do where the device does not work.
    way: Option<Option<netdev::shortcut::Exit>>,
}

struct Open {
    shortcut: Shortcut,
    flow: u32,
    from: PortNo,
    to: PortNo,
    /// Packets and bytes that its megaflow has been told of.
    told: (u64, u64),
    /// When it was opened or last carried something.
    used: Nanos,
}

/// Packets that could have a shortcut.
pub(crate) struct Candidate {
    pub(crate) key: ShortcutKey,
    pub(crate) from: PortNo,
    /// Their megaflow.
    pub(crate) flow: u32,
    /// Where that sends them.
    pub(crate) to: PortNo,
}

impl Shortcuts {
    pub(super) fn new() -> Shortcuts {
        Shortcuts {
            exits: HashMap::new(),
            open: Vec::new(),
            vacant: Vec::new(),
            by_key: HashMap::new(),
            by_flow: HashMap::new(),
            closing: Vec::new(),
            seen: Box::default(),
            opened: Nanos::ZERO,
            usage: ShortcutUse::default(),
        }
    }

    /// Whether there are some.
    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.by_flow.is_empty()
    }

    /// Whether none was opened just now.
    fn has_time(&self, now: Nanos) -> bool {
        now.since(self.opened) >= PAUSE
    }

    /// Whether packets of a kind came before, as far as that is remembered.
    fn seen_before(&mut self, key: &ShortcutKey) -> bool {
        if self.seen.is_empty() {
            self.seen = vec![0; SEEN].into();
        }
        let hash = self.by_key.hasher().hash_one(key);
        let number = (hash >> 32) as u32 | 1;
        std::mem::replace(&mut self.seen[hash as usize % SEEN], number) == number
    }

    fn insert(&mut self, open: Open) {
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() as u32 - 1
        });
        self.by_key.insert(*open.shortcut.key(), Some(place));
        self.by_flow.entry(open.flow).or_default().push(place);
        self.open[place as usize] = Some(open);
    }

    /// Stops the one at a place, and tells its megaflow what it has carried until then.
    fn stop(&mut self, place: u32, storage: &mut Storage) {
        let Some(mut open) = self.open[place as usize].take() else {
            return;
        };
        self.vacant.push(place);
        open.shortcut.stop();
        open.tell(storage.flow_mut(open.flow));
        self.by_key.insert(*open.shortcut.key(), None);
        if let Some(places) = self.by_flow.get_mut(&open.flow) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                self.by_flow.remove(&open.flow);
            }
        }
        self.closing.push(open.shortcut);
    }

    /// Stops those of a megaflow, which is about to go.
    pub(super) fn stop_of(&mut self, flow: u32, storage: &mut Storage) {
        for place in self.by_flow.remove(&flow).unwrap_or_default() {
            self.stop(place, storage);
        }
    }

    /// Stops some.
    fn stop_where(&mut self, storage: &mut Storage, which: impl Fn(&Open) -> bool) {
        for place in 0..self.open.len() {
            if self.open[place].as_ref().is_some_and(&which) {
                self.stop(place as u32, storage);
            }
        }
    }

    /// Stops all.
    pub(super) fn stop_all(&mut self, storage: &mut Storage) {
        self.stop_where(storage, |_| true);
    }

    /// Closes so many of those that are stopped; returns whether there are more.
    fn close(&mut self, most: usize) -> bool {
        let rest = self.closing.len().saturating_sub(most);
        for shortcut in self.closing.drain(rest..) {
            self.by_key.remove(shortcut.key());
        }
        rest > 0
    }
}

impl Open {
    /// Tells its megaflow what it has carried since it last did.
    fn tell(&mut self, flow: &mut Flow) {
        let carried = self.shortcut.carried();
        let (packets, bytes) = self.told;
        if carried.packets != packets {
            let used = Nanos(carried.used);
            self.told = (carried.packets, carried.bytes);
            self.used = self.used.max(used);
            flow.carried(
                carried.packets.wrapping_sub(packets),
                carried.bytes.wrapping_sub(bytes),
                used.max(flow.used),
            );
        }
    }
}

impl Exit {
    /// How packets leave by it; `None` where its device takes none.
    fn way(&mut self, shortcuts: ShortcutUse) -> Option<netdev::shortcut::Exit> {
        *self.way.get_or_insert_with(|| {
            let state = self.device.state().ok()?;
            (state.admin_up && state.carrier).then(|| netdev::shortcut::Exit {
                longest: state.mtu.saturating_add(ETHERNET),
                to_peer: shortcuts == ShortcutUse::Peer && state.far_end_elsewhere,
                tag: TagChange::None,
            })
        })
    }
}

impl FlowTable {
    /// Whether one can be opened for the first packet of a kind.
    pub(crate) fn has_time_for_shortcuts(&self, now: Nanos) -> bool {
        self.shortcuts.has_time(now)
    }

    /// How many shortcuts a megaflow has.
    pub(crate) fn shortcuts_of(&self, flow: u32) -> usize {
        self.shortcuts.by_flow.get(&flow).map_or(0, Vec::len)
    }

    /// Lets shortcuts lead to a port.
    pub(crate) fn add_exit(&mut self, to: PortNo, port: Arc<ShortcutPort>, device: Arc<dyn Netdev>) {
        let exit = Exit {
            port,
            device,
            way: None,
        };
        self.shortcuts.exits.insert(to, exit);
    }

    /// Lets no shortcuts lead to a port any more.
    pub(crate) fn remove_exit(&mut self, to: PortNo) {
        self.stop_shortcuts_of(to);
        self.shortcuts.exits.remove(&to);
    }

    /// Changes how shortcuts are used.
    pub(crate) fn use_shortcuts(&mut self, usage: ShortcutUse) {
        self.shortcuts.usage = usage;
        self.forget_devices();
    }

    /// Opens a shortcut, or renews it.
    pub(crate) fn offer_shortcut(&mut self, candidate: &Candidate, epoch: u64, now: Nanos) {
        if self.shortcuts.usage == ShortcutUse::Off {
            return;
        }
        let Some(tag) = self.tag_change(candidate) else {
            return;
        };
        let shortcuts = &mut self.shortcuts;
        match shortcuts.by_key.get(&candidate.key) {
            Some(Some(place)) => {
                let place = *place;
                match &shortcuts.open[place as usize] {
                    Some(open) if (open.flow, open.to) == (candidate.flow, candidate.to) => open.shortcut.renew(epoch),
                    // Two megaflows can cover it; this one is as right.
                    _ => shortcuts.stop(place, &mut self.storage),
                }
            }
            // To be closed first.
            Some(None) => {}
            None => {
                if shortcuts.has_time(now) || shortcuts.seen_before(&candidate.key) {
                    self.open_shortcut(candidate, tag, epoch, now);
                }
            }
        }
    }

    fn open_shortcut(&mut self, candidate: &Candidate, tag: TagChange, epoch: u64, now: Nanos) {
        let Some(exit) = self.shortcuts.exits.get_mut(&candidate.to) else {
            return;
        };
        let Some(way) = exit.way(self.shortcuts.usage) else {
            return;
        };
        let way = netdev::shortcut::Exit { tag, ..way };
        self.shortcuts.opened = now;
        if let Ok(Some(shortcut)) = exit.port.open(candidate.key, way, epoch) {
            self.shortcuts.insert(Open {
                shortcut,
                flow: candidate.flow,
                from: candidate.from,
                to: candidate.to,
                told: (0, 0),
                used: now,
            });
        }
    }

    /// What becomes of packets' tags; `None` where their megaflow does more than that and to send them out of one port, or looks at what a shortcut's
    /// key does not have.
    fn tag_change(&self, candidate: &Candidate) -> Option<TagChange> {
        const BEYOND: Mask = Mask::exact(Field::TcpFlags);
        let flow = self.storage.get(candidate.flow)?;
        let mask = self.subtables.mask(flow.subtable);
        if flow.direct.is_none() || flow.recirculates || !mask.intersection(&BEYOND).is_empty() {
            return None;
        }
        if !flow.edits {
            return Some(TagChange::None);
        }
        let is_tagged = candidate.key.is_tagged();
        match &flow.actions().0[..] {
            [Action::PushVlan(VlanTag { tpid, tci }), Action::Output(_)]
                if !is_tagged && EtherType(*tpid).is_vlan() =>
            {
                Some(TagChange::Push { tpid: *tpid, tci: *tci })
            }
            [Action::PopVlan, Action::Output(_)] if is_tagged => Some(TagChange::Pop),
            _ => None,
        }
    }

    /// Stops all, and asks devices anew what they take.
    pub(crate) fn forget_devices(&mut self) {
        self.shortcuts.stop_all(&mut self.storage);
        for exit in self.shortcuts.exits.values_mut() {
            exit.way = None;
        }
    }

    /// Lets packets that come in by a port, or go out by it, come here again.
    pub(crate) fn stop_shortcuts_of(&mut self, port: PortNo) {
        self.shortcuts
            .stop_where(&mut self.storage, |open| open.from == port || open.to == port);
    }

    /// Closes all that are stopped.
    pub(crate) fn close_shortcuts(&mut self) {
        self.shortcuts.close(usize::MAX);
    }

    /// Closes some of those that are stopped; returns whether there are more.
    pub(crate) fn close_some_shortcuts(&mut self) -> bool {
        self.shortcuts.close(CLOSE)
    }

    /// Packets that shortcuts have let out, while there are some here.
    pub(crate) fn carried_by_shortcuts(&self) -> Option<u64> {
        let exits = self.shortcuts.exits.values();
        let sent = exits.map(|exit| exit.port.carried().tx_packets);
        self.shortcuts.any().then(|| sent.fold(0, u64::wrapping_add))
    }

    /// Tells megaflows what shortcuts have carried for them.
    pub(crate) fn tell_carried(&mut self) {
        for open in self.shortcuts.open.iter_mut().flatten() {
            open.tell(self.storage.flow_mut(open.flow));
        }
    }

    /// The same, and stops those that carry nothing.
    pub(super) fn age_shortcuts(&mut self, now: Nanos) {
        if !self.shortcuts.any() {
            return;
        }
        self.tell_carried();
        let many = self.shortcuts.by_key.len() > MOST as usize / 2;
        let idle = if many { IDLE_AMONG_MANY } else { IDLE };
        self.shortcuts
            .stop_where(&mut self.storage, |open| now.since(open.used) >= idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use testkit::{Packet, mac};

    fn packet(kind: usize) -> Vec<u8> {
        let packet = Packet::new(mac(1), mac(2));
        let packet = if kind.is_multiple_of(2) { packet } else { packet.vlan(5) };
        let packet = match kind / 2 % 2 {
            0 => packet.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            _ => packet.ipv6(1.into(), 2.into()),
        };
        let packet = match kind / 4 {
            0 => packet.udp(1000, 2000, b"some payload"),
            1 => packet.tcp(1000, 2000, 0x10, b"some payload"),
            _ => packet.echo(7, 1, b"some payload"),
        };
        packet.bytes()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// What has the key of another packet is read as that is, but for TCP's flags: a megaflow that does not look at these and covers one covers both.
        #[test]
        fn packets_of_one_shortcut_read_the_same(
            kind in 0..12_usize,
            changes in prop::collection::vec((0..90_usize, any::<u8>(), any::<bool>()), 0..4),
            cut in prop::option::of(14..110_usize),
            more in 0..30_usize,
        ) {
            let one = packet(kind);
            let mut other = one.clone();
            other.resize(other.len() + more, 0);
            for (at, value, low) in changes {
                if let Some(byte) = other.get_mut(at) {
                    *byte = if low { byte.wrapping_add(value % 3) } else { value };
                }
            }
            other.truncate(cut.unwrap_or(usize::MAX));
            let key = ShortcutKey::of(1, &one);
            prop_assert!(key.is_some());
            if ShortcutKey::of(1, &other) == key {
                let read = |packet: &[u8]| {
                    let mut key = flow::extract(packet, PortNo(3)).unwrap();
                    key.set(Field::TcpFlags, 0);
                    key
                };
                prop_assert_eq!(read(&one), read(&other), "{:02x?}", other);
            }
        }
    }
}
