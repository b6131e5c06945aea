//! Captures: what ports receive and send, for `oxvs tcpdump`.
//!
//! A client of the capture socket asks for ports of a bridge, and gets their packets until it
//! closes its connection: a capture ends with its client, however that ends. The switch has a
//! mirror for it meanwhile ([`switch::tables::Captured`]). Workers leave copies in the capture's
//! queue and do not wait: what has no room is counted, and the client is told.
//!
//! A request is a line of JSON ([`Wanted`]), and so is the answer: `{"error": …}` or
//! `{"interfaces": [{"name": …, "ofport": …}, …]}`. Records follow the answer
//! ([`mgmt::capture`]).

mod session;

use crate::bridges::BridgeState;
use crate::mirrors;
use dp::{DropCause, Punt};
use mgmt::capture::{Packet, Record};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use switch::tables::Captured;
use switch::{MAX_MIRRORS, MirrorConfig, MirrorOutput, VlanSet};
use tokio::sync::Notify;

pub(crate) use session::serve;

/// Bytes that wait for one client at most.
const MOST_BYTES: usize = 8 << 20;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The bridge; the one of the first port if it is empty.
    pub(crate) bridge: String,
    /// Ports by name; all of the bridge if there are none.
    pub(crate) ports: BTreeSet<String>,
    pub(crate) received: bool,
    pub(crate) sent: bool,
    /// A flow; packets that do not match it are left out.
    pub(crate) filter: String,
    /// Bytes of a packet at most.
    pub(crate) snaplen: u32,
}

/// All captures.
#[derive(Default)]
pub(crate) struct Captures {
    slots: Mutex<[Option<Arc<Capture>>; Captured::MOST]>,
    /// Notified when the switch follows a change of the captures.
    pub(crate) applied: Notify,
}

/// A capture.
pub(crate) struct Capture {
    number: u8,
    wanted: Wanted,
    state: Mutex<State>,
    /// Notified when there is something for the client.
    arrived: Notify,
}

#[derive(Default)]
struct State {
    /// Records for the client.
    bytes: Vec<u8>,
    /// Packets that there was no room for.
    lost: u64,
    /// How the switch has taken it, once it has.
    outcome: Option<Result<(), String>>,
}

impl Captures {
    /// Copies a packet for its capture. What has no room is counted there.
    pub(crate) fn push(&self, punt: &Punt<'_>) {
        let captured = Captured::of(punt.handle);
        let Some(capture) = self.slots.lock()[usize::from(captured.capture)].clone() else {
            return;
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut state = capture.state.lock();
        if state.bytes.len() + punt.packet.len() > MOST_BYTES {
            state.lost += 1;
            return;
        }
        let was_empty = state.bytes.is_empty();
        let packet = Packet {
            sent: captured.sent,
            ofport: captured.ofport,
            drop: captured.drop.map_or("", DropCause::name),
            total_len: punt.total_len as u32,
            time: time.as_nanos() as u64,
            data: punt.packet,
        };
        Record::Packet(packet).write(&mut state.bytes);
        drop(state);
        if was_empty {
            capture.arrived.notify_one();
        }
    }

    /// Opens a capture; `None` if there are too many.
    fn open(&self, wanted: Wanted) -> Option<Arc<Capture>> {
        let mut slots = self.slots.lock();
        let number = slots.iter().position(Option::is_none)?;
        let capture = Arc::new(Capture {
            number: number as u8,
            wanted,
            state: Mutex::default(),
            arrived: Notify::new(),
        });
        slots[number] = Some(capture.clone());
        Some(capture)
    }

    fn close(&self, capture: &Capture) {
        self.slots.lock()[usize::from(capture.number)] = None;
    }

    /// The mirrors of a bridge that captures need, beside so many others.
    pub(crate) fn mirrors(&self, bridge: &str, state: &BridgeState, others: usize) -> Vec<MirrorConfig> {
        let captures: Vec<Arc<Capture>> = self.slots.lock().iter().flatten().cloned().collect();
        let mut configs = Vec::new();
        for capture in captures.iter().filter(|capture| capture.wanted.bridge == bridge) {
            let config = match others + configs.len() < MAX_MIRRORS {
                true => capture.mirror(state),
                false => Err(format!("bridge {bridge} has {MAX_MIRRORS} mirrors, which is the most")),
            };
            let outcome = config.map(|config| configs.push(config));
            capture.state.lock().outcome = Some(outcome);
        }
        configs
    }

    /// Tells captures of bridges that are not there, and lets clients look at their outcomes.
    pub(crate) fn note_applied(&self, is_bridge: impl Fn(&str) -> bool) {
        for capture in self.slots.lock().iter().flatten() {
            let bridge = &capture.wanted.bridge;
            if !is_bridge(bridge) {
                capture.state.lock().outcome = Some(Err(format!("no bridge named {bridge}")));
            }
        }
        self.applied.notify_waiters();
    }
}

impl Capture {
    fn mirror(&self, state: &BridgeState) -> Result<MirrorConfig, String> {
        let wanted = &self.wanted;
        let filter = match wanted.filter.is_empty() {
            true => None,
            false => {
                let filter = mirrors::filter_of(&wanted.filter, &mirrors::names_of(state));
                Some(filter.map_err(|error| format!("filter \"{}\": {error}", wanted.filter))?)
            }
        };
        let select = |selected: bool| match selected {
            true => wanted.ports.clone(),
            false => BTreeSet::new(),
        };
        Ok(MirrorConfig {
            // No row has a UUID of so few bits.
            id: u128::from(self.number) + 1,
            select_all: false,
            select_src: select(wanted.received),
            select_dst: select(wanted.sent),
            vlans: VlanSet::new(),
            filter,
            output: MirrorOutput::Capture(self.number),
            snaplen: Some(wanted.snaplen),
        })
    }
}
