//! A kernel of memory, for tests of what uses shortcuts.

use super::{Carried, Kernel, PortCarried, ShortcutKey};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use sys::bpf::shortcut::{EPOCHS, EPOCHS_OF_WAY, Key, Programs, Way};

/// Does with packets that a test gives it what the kernel's programs do, and counts what it is
/// asked for.
pub struct Simulated {
    state: Mutex<State>,
}

/// How often a [`Simulated`] kernel was asked for what takes time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Shortcuts opened.
    pub opened: usize,
    /// Shortcuts closed.
    pub closed: usize,
    /// Times that counters of a shortcut were read.
    pub read: usize,
    /// Shortcuts stopped.
    pub stopped: usize,
}

struct State {
    epochs: Vec<u64>,
    ways: HashMap<Key, Open>,
    /// By way: the sum with which it is in force, and what has gone it.
    rows: HashMap<u32, (Option<u64>, Carried)>,
    ports: HashMap<u32, PortCarried>,
    calls: Calls,
}

struct Open {
    number: u32,
    port: u32,
    device: u32,
    epochs: Vec<u32>,
}

impl Simulated {
    /// A kernel that forwards nothing yet.
    pub fn new() -> Arc<Simulated> {
        Arc::new(Simulated {
            state: Mutex::new(State {
                epochs: vec![0; EPOCHS as usize],
                ways: HashMap::new(),
                rows: HashMap::new(),
                ports: HashMap::new(),
                calls: Calls::default(),
            }),
        })
    }

    /// Receives a packet of so many bytes at a time in nanoseconds. Returns the kernel's number of
    /// the device that it leaves by, where it takes a shortcut.
    pub fn receive(&self, key: &ShortcutKey, bytes: u64, now: u64) -> Option<u32> {
        let mut state = self.state.lock();
        let open = state.ways.get(key.bytes())?;
        let device = open.device;
        let (in_force, _) = state.rows[&open.number];
        let takes = in_force == Some(sum(&state.epochs, &open.epochs));
        takes.then(|| {
            state.count(key.bytes(), bytes, now);
            device
        })
    }

    /// Counts a packet that was let through before its shortcut was stopped, as the kernel may do a
    /// moment later.
    pub fn count_late(&self, key: &ShortcutKey, bytes: u64, now: u64) {
        self.state.lock().count(key.bytes(), bytes, now);
    }

    /// Whether there is a shortcut for packets of a key, in force or not.
    pub fn has(&self, key: &ShortcutKey) -> bool {
        self.state.lock().ways.contains_key(key.bytes())
    }

    /// What it was asked for so far.
    pub fn calls(&self) -> Calls {
        self.state.lock().calls
    }
}

impl State {
    fn count(&mut self, key: &Key, bytes: u64, now: u64) {
        let Some(open) = self.ways.get(key) else { return };
        let (_, carried) = self.rows.entry(open.number).or_default();
        carried.packets += 1;
        carried.bytes += bytes;
        carried.used = now;
        let port = self.ports.entry(open.port).or_default();
        port.tx_packets += 1;
        port.tx_bytes += bytes;
    }
}

fn sum(epochs: &[u64], numbers: &[u32]) -> u64 {
    let of = |number: &u32| epochs[*number as usize];
    numbers.iter().map(of).sum::<u64>() + epochs[0]
}

impl Kernel for Simulated {
    fn advance(&self, epoch: u32) {
        self.state.lock().epochs[epoch as usize] += 1;
    }

    fn epoch(&self, number: u32) -> u64 {
        self.state.lock().epochs[number as usize]
    }

    fn open(&self, number: u32, key: &Key, way: Way, epochs: &[u32], sum: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.calls.opened += 1;
        if epochs.len() > EPOCHS_OF_WAY {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        if state.ways.contains_key(key) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let open = Open {
            number,
            port: way.port,
            device: way.ifindex,
            epochs: epochs.to_vec(),
        };
        state.ways.insert(*key, open);
        state.rows.insert(number, (Some(sum), Carried::default()));
        Ok(())
    }

    fn renew(&self, number: u32, sum: u64) {
        self.state.lock().rows.entry(number).or_default().0 = Some(sum);
    }

    fn stop(&self, number: u32) {
        let mut state = self.state.lock();
        state.calls.stopped += 1;
        state.rows.entry(number).or_default().0 = None;
    }

    fn close(&self, key: &Key) -> io::Result<()> {
        let mut state = self.state.lock();
        state.calls.closed += 1;
        state.ways.remove(key).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn carried(&self, number: u32) -> Carried {
        let mut state = self.state.lock();
        state.calls.read += 1;
        state.rows.get(&number).map(|(_, carried)| *carried).unwrap_or_default()
    }

    fn carried_by(&self, port: u32) -> PortCarried {
        self.state.lock().ports.get(&port).copied().unwrap_or_default()
    }

    fn reset(&self, port: u32) {
        self.state.lock().ports.remove(&port);
    }

    fn programs(&self, _port: u32) -> io::Result<Programs> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
