//! An offload in memory.

use conntrack::{Numbers, Passed};
use dp::Carried;
use dp::offload::{ANY_GIVEN, FLOW_EPOCHS, FlowConnection, FlowOffload, MAX_EPOCHS};
use dp::offload::{NONE_GIVEN, NewFlow, NewHeaders, PacketKind, PortCarried, Refused};
use nanos::Nanos;
use netdev::Rx;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Does what the kernel's programs do with packets that a test gives it, and counts what it is
/// asked for.
pub(super) struct Simulated {
    state: Mutex<State>,
}

/// How often a [`Simulated`] offload was asked for what takes time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// Flows opened.
    pub(super) opened: usize,
    /// Flows closed.
    pub(super) closed: usize,
    /// Times that counters of a flow were read.
    pub(super) read: usize,
    /// Flows suspended.
    pub(super) suspended: usize,
    /// Times that a flow in force was to carry no packet until it is settled.
    pub(super) unsettled: usize,
    /// Connections begun.
    pub(super) connections: usize,
}

struct State {
    epochs: Vec<u64>,
    flows: HashMap<PacketKind, Open>,
    rows: HashMap<u32, Row>,
    ports: HashMap<u32, PortCarried>,
    connections: HashMap<u32, Passed>,
    calls: Calls,
}

/// What is known of a flow.
#[derive(Default)]
struct Row {
    /// The sum with which it is in force.
    sum: Option<u64>,
    carried: Carried,
    given: u64,
    settled: Option<u64>,
}

struct Open {
    number: u32,
    ports: Vec<u32>,
    devices: Vec<u32>,
    epochs: Vec<u32>,
    connections: Vec<FlowConnection>,
    headers: Option<NewHeaders>,
}

impl Simulated {
    /// An offload that forwards nothing yet.
    pub(super) fn new() -> Arc<Simulated> {
        Arc::new(Simulated {
            state: Mutex::new(State {
                epochs: vec![0; MAX_EPOCHS as usize],
                flows: HashMap::new(),
                rows: HashMap::new(),
                ports: HashMap::new(),
                connections: HashMap::new(),
                calls: Calls::default(),
            }),
        })
    }

    /// Receives a packet of so many bytes at a time. Returns the kernel's number of
    /// the device that it leaves by at last, where it is of an offloaded flow.
    pub(super) fn receive(&self, kind: &PacketKind, bytes: u64, now: Nanos) -> Option<u32> {
        let mut state = self.state.lock();
        let open = state.flows.get(kind)?;
        let device = *open.devices.last()?;
        let (number, sum) = (open.number, sum(&state.epochs, &open.epochs));
        let row = state.rows.get_mut(&number)?;
        let is_settled = row.settled == Some(row.given) || row.settled == Some(ANY_GIVEN);
        if row.sum != Some(sum) || !is_settled {
            row.given += 1;
            return None;
        }
        state.count(kind, bytes, now);
        Some(device)
    }

    /// Receives a packet that is left to the worker, and that later ones must not overtake.
    pub(super) fn leave(&self, kind: &PacketKind) {
        let mut state = self.state.lock();
        let number = state.flows[kind].number;
        state.rows.entry(number).or_default().given += 1;
    }

    /// Counts a packet that was let through before its flow was suspended, as the kernel may do a
    /// moment later.
    pub(super) fn count_late(&self, kind: &PacketKind, bytes: u64, now: Nanos) {
        self.state.lock().count(kind, bytes, now);
    }

    /// Whether there is a flow for packets of a kind, in force or not.
    pub(super) fn has(&self, kind: &PacketKind) -> bool {
        self.state.lock().flows.contains_key(kind)
    }

    /// The headers that packets of a kind get, if they are new ones.
    pub(super) fn headers(&self, kind: &PacketKind) -> Option<NewHeaders> {
        self.state.lock().flows.get(kind)?.headers
    }

    /// What it was asked for so far.
    pub(super) fn calls(&self) -> Calls {
        self.state.lock().calls
    }
}

impl State {
    fn count(&mut self, kind: &PacketKind, bytes: u64, now: Nanos) {
        let Some(open) = self.flows.get(kind) else { return };
        let carried = &mut self.rows.entry(open.number).or_default().carried;
        carried.packets += 1;
        carried.bytes += bytes;
        carried.used = now;
        for connection in &open.connections {
            let passed = self.connections.entry(connection.number).or_default();
            passed.packets[usize::from(connection.reply)] += 1;
            passed.bytes[usize::from(connection.reply)] += bytes;
            passed.used = now;
        }
        for port in &open.ports {
            let port = self.ports.entry(*port).or_default();
            port.tx_packets += 1;
            port.tx_bytes += bytes;
        }
    }
}

fn sum(epochs: &[u64], numbers: &[u32]) -> u64 {
    let of = |number: &u32| epochs[*number as usize];
    numbers.iter().map(of).sum::<u64>() + epochs[0]
}

impl FlowOffload for Simulated {
    fn removes_mixed(&self) -> bool {
        true
    }

    fn advance(&self, epoch: u32) {
        self.state.lock().epochs[epoch as usize] += 1;
    }

    fn epoch(&self, number: u32) -> u64 {
        self.state.lock().epochs[number as usize]
    }

    fn attach(&self, _: &mut dyn Rx) -> io::Result<bool> {
        Ok(true)
    }

    fn open(&self, flow: &NewFlow<'_>) -> Result<(), Refused> {
        let mut state = self.state.lock();
        state.calls.opened += 1;
        if flow.epochs.len() > FLOW_EPOCHS {
            return Err(Refused::Unsupported("flow with so many epochs"));
        }
        if state.flows.contains_key(flow.kind) {
            return Err(Refused::Taken);
        }
        let open = Open {
            number: flow.number,
            ports: flow.outputs.iter().map(|output| output.to).collect(),
            devices: flow.outputs.iter().map(|output| output.ifindex).collect(),
            epochs: flow.epochs.to_vec(),
            connections: flow.steps.connections.to_vec(),
            headers: flow.steps.headers.copied(),
        };
        state.flows.insert(*flow.kind, open);
        let row = Row {
            sum: Some(flow.sum),
            given: 1,
            ..Row::default()
        };
        state.rows.insert(flow.number, row);
        Ok(())
    }

    fn resume(&self, flow: u32, sum: u64) {
        self.state.lock().rows.entry(flow).or_default().sum = Some(sum);
    }

    fn given(&self, flow: u32) -> u64 {
        self.state.lock().rows.entry(flow).or_default().given
    }

    fn settle(&self, flow: u32, given: u64) {
        let mut state = self.state.lock();
        state.calls.unsettled += usize::from(given == NONE_GIVEN);
        state.rows.entry(flow).or_default().settled = Some(given);
    }

    fn suspend(&self, flow: u32) {
        let mut state = self.state.lock();
        state.calls.suspended += 1;
        state.rows.entry(flow).or_default().sum = None;
    }

    fn close(&self, _: u32, kind: &PacketKind) -> io::Result<()> {
        let mut state = self.state.lock();
        state.calls.closed += 1;
        state.flows.remove(kind).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn carried(&self, flow: u32) -> Carried {
        let mut state = self.state.lock();
        state.calls.read += 1;
        state.rows.get(&flow).map(|row| row.carried).unwrap_or_default()
    }

    fn reset_connection(&self, number: u32) {
        let mut state = self.state.lock();
        state.calls.connections += 1;
        state.connections.insert(number, Passed::default());
    }

    fn passed(&self, number: u32) -> Passed {
        self.state.lock().connections.get(&number).copied().unwrap_or_default()
    }

    fn note(&self, number: u32, numbers: [Numbers; 2]) {
        let mut state = self.state.lock();
        let own = &mut state.connections.entry(number).or_default().numbers;
        *own = [0, 1].map(|n| match own[n] == Numbers::default() {
            true => numbers[n],
            false => own[n].later(numbers[n]),
        });
    }

    fn port_carried(&self, port: u32) -> PortCarried {
        self.state.lock().ports.get(&port).copied().unwrap_or_default()
    }

    fn reset_port(&self, port: u32) {
        self.state.lock().ports.remove(&port);
    }
}
