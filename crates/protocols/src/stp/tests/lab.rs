//! Networks of bridges with spanning trees, and what must be true of them.

use crate::stp::wire::{BridgeId, PortId};
use crate::{rstp, stp};
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use testkit::Rng;
use testkit::network::{Network, Node, Quality};
use wire::MacAddr;

/// A link of the simulated networks: short, and it loses nothing.
pub(crate) const LAN: Quality = Quality {
    delay: Duration::from_micros(100),
    jitter: Duration::from_micros(100),
    loss: 0,
    duplication: 0,
    reordering: (0, Duration::ZERO),
};

/// The machine of a bridge.
#[derive(Debug)]
pub(crate) enum Machine {
    Stp(stp::Stp, stp::Config),
    Rstp(rstp::Rstp, rstp::Config),
}

/// A bridge of a network, and what its machine has told it.
#[derive(Debug)]
pub(crate) struct Bridge {
    pub(crate) machine: Machine,
    /// Ports that learn, and ports that forward.
    pub(crate) learn: BTreeSet<u32>,
    pub(crate) forward: BTreeSet<u32>,
    pub(crate) flushed: BTreeMap<u32, u32>,
    pub(crate) guarded: Vec<(u32, stp::Guard)>,
    /// The last change of what a port does.
    pub(crate) changed: Nanos,
}

pub(crate) fn mac(bridge: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, (bridge >> 8) as u8, bridge as u8])
}

pub(crate) fn id(bridge: usize) -> BridgeId {
    BridgeId::new(0x8000, mac(bridge))
}

impl Bridge {
    pub(crate) fn stp(bridge: usize) -> Bridge {
        let config = stp::Config {
            id: id(bridge),
            times: stp::BridgeTimes::default(),
            ports: BTreeMap::new(),
        };
        Bridge::new(Machine::Stp(stp::Stp::new(&config, Nanos::ZERO), config))
    }

    pub(crate) fn rstp(bridge: usize) -> Bridge {
        let config = rstp::Config {
            id: id(bridge),
            times: stp::BridgeTimes::default(),
            force_stp: false,
            transmit_hold_count: 6,
            ports: BTreeMap::new(),
        };
        Bridge::new(Machine::Rstp(rstp::Rstp::new(&config, Nanos::ZERO), config))
    }

    fn new(machine: Machine) -> Bridge {
        Bridge {
            machine,
            learn: BTreeSet::new(),
            forward: BTreeSet::new(),
            flushed: BTreeMap::new(),
            guarded: Vec::new(),
            changed: Nanos::ZERO,
        }
    }

    /// Changes the configuration of an RSTP bridge.
    pub(crate) fn rstp_config(&mut self, now: Nanos, change: impl FnOnce(&mut rstp::Config)) {
        let Machine::Rstp(machine, config) = &mut self.machine else {
            panic!("not RSTP")
        };
        change(config);
        machine.configure(config, now);
        self.events(now);
    }

    /// Changes the configuration of an STP bridge.
    pub(crate) fn stp_config(&mut self, now: Nanos, change: impl FnOnce(&mut stp::Config)) {
        let Machine::Stp(machine, config) = &mut self.machine else {
            panic!("not STP")
        };
        change(config);
        machine.configure(config, now);
        self.events(now);
    }

    pub(crate) fn root(&self) -> (BridgeId, u32) {
        match &self.machine {
            Machine::Stp(machine, _) => (machine.status().root, machine.status().root_path_cost),
            Machine::Rstp(machine, _) => (machine.status().root.root, machine.status().root.cost),
        }
    }

    pub(crate) fn rstp_port(&self, port: u32, now: Nanos) -> rstp::PortStatus {
        let Machine::Rstp(machine, _) = &self.machine else {
            panic!("not RSTP")
        };
        machine
            .ports(now)
            .find(|(number, _)| *number == port)
            .expect("the port exists")
            .1
    }

    pub(crate) fn stp_port(&self, port: u32, now: Nanos) -> stp::PortStatus {
        let Machine::Stp(machine, _) = &self.machine else {
            panic!("not STP")
        };
        machine
            .ports(now)
            .find(|(number, _)| *number == port)
            .expect("the port exists")
            .1
    }

    fn events(&mut self, now: Nanos) {
        let next = |machine: &mut Machine| match machine {
            Machine::Stp(machine, _) => machine.take_event(),
            Machine::Rstp(machine, _) => machine.take_event(),
        };
        while let Some(event) = next(&mut self.machine) {
            match event {
                stp::Event::Port { port, learn, forward } => {
                    assert!(learn || !forward);
                    for (set, does) in [(&mut self.learn, learn), (&mut self.forward, forward)] {
                        match does {
                            true => set.insert(port),
                            false => set.remove(&port),
                        };
                    }
                    self.changed = now;
                }
                stp::Event::Flush { port } => *self.flushed.entry(port).or_default() += 1,
                stp::Event::Guard { port, guard } => self.guarded.push((port, guard)),
            }
        }
    }
}

impl Node for Bridge {
    fn receive(&mut self, port: usize, frame: &[u8], now: Nanos) {
        match &mut self.machine {
            Machine::Stp(machine, _) => machine.receive(port as u32, frame, now),
            Machine::Rstp(machine, _) => machine.receive(port as u32, frame, now),
        }
        self.events(now);
    }

    fn tick(&mut self, now: Nanos) {
        match &mut self.machine {
            Machine::Stp(machine, _) => machine.tick(now),
            Machine::Rstp(machine, _) => machine.tick(now),
        }
        self.events(now);
    }

    fn next_event(&self) -> Option<Nanos> {
        match &self.machine {
            Machine::Stp(machine, _) => machine.next_event(),
            Machine::Rstp(machine, _) => machine.next_event(),
        }
    }

    fn take_frame(&mut self) -> Option<(usize, Vec<u8>)> {
        let (port, frame) = match &mut self.machine {
            Machine::Stp(machine, _) => machine.take_frame(),
            Machine::Rstp(machine, _) => machine.take_frame(),
        }?;
        Some((port as usize, frame))
    }

    fn link(&mut self, port: usize, up: bool, now: Nanos) {
        let number = port as u32;
        let port_id = PortId(0x8000 | port as u16);
        match &mut self.machine {
            Machine::Stp(machine, config) => {
                let mac = config.id.mac();
                let entry = config.ports.entry(number).or_insert_with(|| stp::PortConfig {
                    id: port_id,
                    cost: 19,
                    mac,
                    up,
                    guards: stp::Guards::default(),
                });
                entry.up = up;
                machine.configure(config, now);
            }
            Machine::Rstp(machine, config) => {
                let mac = config.id.mac();
                let entry = config.ports.entry(number).or_insert_with(|| rstp::PortConfig {
                    id: port_id,
                    cost: 20_000,
                    mac,
                    up,
                    full_duplex: true,
                    point_to_point: rstp::PointToPoint::ForceTrue,
                    admin_edge: false,
                    auto_edge: true,
                    mcheck: false,
                    guards: stp::Guards::default(),
                });
                entry.up = up;
                machine.configure(config, now);
            }
        }
        self.events(now);
    }
}

/// A network in which every link has two ends, and `extra` links more than a tree of all bridges.
pub(crate) fn random(
    seed: u64,
    bridges: usize,
    extra: usize,
    quality: Quality,
    make: fn(usize) -> Bridge,
) -> Network<Bridge> {
    let mut rng = Rng::new(seed);
    let mut network = Network::new(seed);
    let mut ids: Vec<usize> = (1..=bridges).collect();
    for at in (1..bridges).rev() {
        ids.swap(at, rng.below(at + 1));
    }
    let mut ports = vec![0; bridges];
    for id in ids {
        network.add(make(id));
    }
    let mut connect = |network: &mut Network<Bridge>, a: usize, b: usize| {
        let mut end = |bridge: usize| {
            ports[bridge] += 1;
            (bridge, ports[bridge])
        };
        let ends = [end(a), end(b)];
        network.connect(&ends, quality);
    };
    for bridge in 1..bridges {
        connect(&mut network, bridge, rng.below(bridge));
    }
    for _ in 0..extra {
        let a = rng.below(bridges);
        // Links from a bridge to itself are in tests of their own.
        let b = (a + 1 + rng.below(bridges - 1)) % bridges;
        connect(&mut network, a, b);
    }
    network
}

/// What is wrong in a random network whose links lost, duplicated and reordered frames for a while:
/// `settle` after that ended.
pub(crate) fn fault_after_loss(seed: u64, settle: Duration, make: fn(usize) -> Bridge) -> Option<String> {
    let lossy = Quality {
        loss: 20,
        duplication: 10,
        reordering: (10, Duration::from_millis(50)),
        ..LAN
    };
    let mut network = random(seed, 8, 8, lossy, make);
    network.run_for(Duration::from_secs(100));
    for link in 0..network.links() {
        network.set_quality(link, LAN);
    }
    network.run_for(settle);
    fault(&network)
}

/// The links over which data goes: both ends forward. As pairs of bridges.
fn forwarding(network: &Network<Bridge>) -> Vec<(usize, usize)> {
    let carries = |&(bridge, port): &(usize, usize)| network.node(bridge).forward.contains(&(port as u32));
    (0..network.links())
        .filter(|&link| network.is_up(link) && network.ends(link).iter().all(carries))
        .map(|link| (network.ends(link)[0].0, network.ends(link)[1].0))
        .collect()
}

/// Whether data can go round in circles.
pub(crate) fn has_loop(network: &Network<Bridge>) -> bool {
    let mut groups = Groups::new(network);
    forwarding(network).into_iter().any(|(a, b)| !groups.join(a, b))
}

/// The parts of a network that links connect: the root of each, and how many links away from it
/// its bridges are.
fn parts(network: &Network<Bridge>) -> Vec<(usize, BTreeMap<usize, u32>)> {
    let mut neighbours = vec![Vec::new(); network.nodes().count()];
    for link in (0..network.links()).filter(|&link| network.is_up(link)) {
        let ends = network.ends(link);
        neighbours[ends[0].0].push(ends[1].0);
        neighbours[ends[1].0].push(ends[0].0);
    }
    let mut nodes: Vec<usize> = (0..neighbours.len()).collect();
    nodes.sort_by_key(|&node| own_id(network, node));
    let (mut parts, mut seen) = (Vec::new(), BTreeSet::new());
    for root in nodes {
        if !seen.insert(root) {
            continue;
        }
        let mut distance = BTreeMap::from([(root, 0)]);
        let mut queue = std::collections::VecDeque::from([root]);
        while let Some(node) = queue.pop_front() {
            for &next in &neighbours[node] {
                if seen.insert(next) {
                    distance.insert(next, distance[&node] + 1);
                    queue.push_back(next);
                }
            }
        }
        parts.push((root, distance));
    }
    parts
}

fn own_id(network: &Network<Bridge>, node: usize) -> BridgeId {
    match &network.node(node).machine {
        Machine::Stp(machine, _) => machine.status().id,
        Machine::Rstp(machine, _) => machine.status().id,
    }
}

/// How many bridges there are on the way from a root to the bridge that is farthest from it, both
/// included.
pub(crate) fn diameter(network: &Network<Bridge>) -> u32 {
    let farthest = parts(network)
        .iter()
        .filter_map(|(_, distance)| distance.values().max().copied())
        .max();
    farthest.unwrap_or_default() + 1
}

/// What is wrong with the trees: `None` if every part of the network has a tree that reaches all of
/// it, with the right root and the right costs.
pub(crate) fn fault(network: &Network<Bridge>) -> Option<String> {
    if has_loop(network) {
        return Some("a loop".to_owned());
    }
    let mut trees = Groups::new(network);
    for (a, b) in forwarding(network) {
        trees.join(a, b);
    }
    let cost = match network.node(0).machine {
        Machine::Stp(..) => 19,
        Machine::Rstp(..) => 20_000,
    };
    for (root, distance) in parts(network) {
        for (node, distance) in distance {
            if !trees.same(root, node) {
                return Some(format!("bridge {node} is cut off from the root {root}"));
            }
            let (found, right) = (network.node(node).root(), (own_id(network, root), distance * cost));
            if found != right {
                return Some(format!("bridge {node} has the root {found:?}, not {right:?}"));
            }
        }
    }
    None
}

/// The longest time for which there is a loop until `end`.
pub(crate) fn longest_loop(network: &mut Network<Bridge>, end: Nanos) -> Duration {
    let (mut longest, mut since) = (Duration::ZERO, None);
    let mut seen = Nanos::MAX;
    network.run_until_or(end, |network| {
        let changed = network.nodes().map(|bridge| bridge.changed).max().unwrap_or_default();
        if changed != seen || changed == network.now() {
            seen = changed;
            since = match (has_loop(network), since) {
                (true, None) => Some(network.now()),
                (true, since) => since,
                (false, since) => {
                    longest = longest.max(since.map(|since| network.now() - since).unwrap_or_default());
                    None
                }
            };
        }
        false
    });
    longest.max(since.map(|since| network.now() - since).unwrap_or_default())
}

/// Sets of bridges that belong together.
struct Groups(Vec<usize>);

impl Groups {
    fn new(network: &Network<Bridge>) -> Groups {
        Groups((0..network.nodes().count()).collect())
    }

    fn of(&self, mut node: usize) -> usize {
        while self.0[node] != node {
            node = self.0[node];
        }
        node
    }

    /// `false` if they belong together already.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a] = b;
        a != b
    }

    fn same(&self, a: usize, b: usize) -> bool {
        self.of(a) == self.of(b)
    }
}
