//! Exporters: what bridges tell collectors of their traffic (NetFlow, sFlow, IPFIX).
//!
//! One task of the control thread takes the samples of the workers and the counts of the switch,
//! and sends the exporters' datagrams. Samples of datagrams to the collectors themselves are left
//! out: each would make another one.

mod bridge;
mod ipfix;
pub(crate) mod rows;
pub(crate) mod samples;
mod targets;

use crate::bridges::{BridgeState, Bridges};
use crate::desired::Desired;
use crate::state::State;
use bridge::OfBridge;
use dp::{DropCause, PortNo};
use flow::{Field, PacketMeta};
use nanos::Nanos;
use openflow::model::IpfixStats;
use samples::Sample;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use switch::{ExportConfig, IpfixConfig, SflowConfig};
use tokio::sync::Notify;
use tokio::time::sleep;

/// How often exporters are looked at, at most and at least.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(100);

/// The exporters of all bridges.
#[derive(Default)]
pub(crate) struct Exports {
    bridges: RefCell<BTreeMap<String, OfBridge>>,
    ports: RefCell<HashMap<PortNo, Facts>>,
    targets: RefCell<HashSet<SocketAddr>>,
    /// Samples that workers had dropped when the exporters looked last.
    dropped: Cell<u64>,
    /// The number of the next sub-agent of sFlow.
    sub_agents: Cell<u32>,
    changed: Notify,
}

/// What exporters say of a port.
#[derive(Clone, Debug)]
struct Facts {
    bridge: String,
    name: String,
    ifindex: u32,
    of_port: u32,
}

/// What the switch has to do for a bridge's exporters.
pub(crate) fn config(wanted: &rows::Wanted, bridge: &BridgeState) -> ExportConfig {
    let one_in = |rate: u32| u32::MAX.checked_div(rate).unwrap_or(0);
    let interfaces = bridge.interfaces.values();
    let sflow = wanted.sflow.as_ref().filter(|sflow| !sflow.targets.is_empty());
    let ipfix = wanted.ipfix.as_ref().filter(|ipfix| !ipfix.targets.is_empty());
    ExportConfig {
        netflow: wanted.netflow.as_ref().is_some_and(|row| !row.targets.is_empty()),
        sflow: sflow.filter(|sflow| sflow.agent.is_some()).map(|sflow| SflowConfig {
            probability: one_in(sflow.sampling),
            header: sflow.header,
            ifindex: interfaces
                .filter_map(|interface| Some((interface.port?, interface.link.as_ref()?.ifindex)))
                .filter(|(_, ifindex)| *ifindex != 0)
                .collect(),
        }),
        ipfix: ipfix.map(|ipfix| IpfixConfig {
            probability: one_in(ipfix.sampling),
            input: ipfix.input,
            output: ipfix.output,
        }),
        flow_samples: ipfix.is_some() || wanted.sets.values().any(|set| !set.targets.is_empty()),
    }
}

impl Exports {
    /// Follows the configuration.
    pub(crate) fn follow(&self, state: &State, desired: &Desired, present: &Bridges) {
        let now = state.shared.clock.now();
        let mut bridges = self.bridges.borrow_mut();
        let mut old = std::mem::take(&mut *bridges);
        for (name, bridge) in &desired.bridges {
            let Some(shown) = present.state().get(name) else {
                continue;
            };
            let mut of_bridge = old.remove(name).unwrap_or_default();
            let ports = shown
                .interfaces
                .values()
                .filter_map(|interface| interface.link.as_ref());
            let ports: Vec<u32> = ports.map(|link| link.ifindex).filter(|ifindex| *ifindex != 0).collect();
            let idle = desired.max_idle.unwrap_or(state.dp().default_limits().idle);
            of_bridge.follow(&bridge.exports, idle, ports, &self.sub_agents, now);
            if !of_bridge.is_empty() {
                bridges.insert(name.clone(), of_bridge);
            }
        }
        let targets = bridges.values().flat_map(OfBridge::targets).collect();
        *self.targets.borrow_mut() = targets;
        *self.ports.borrow_mut() = match bridges.is_empty() {
            true => HashMap::new(),
            false => facts(present),
        };
        for mut gone in old.into_values() {
            gone.flush(now);
        }
        self.changed.notify_one();
    }

    /// The statistics of a bridge's IPFIX, or of its sets of collectors.
    pub(crate) fn ipfix_statistics(&self, bridge: &str, sets: bool) -> Vec<IpfixStats> {
        let bridges = self.bridges.borrow();
        let bridge = bridges.get(bridge);
        bridge.map_or_else(Vec::new, |bridge| bridge.ipfix_statistics(sets))
    }

    /// Runs the exporters as long as the daemon runs.
    pub(crate) async fn run(state: Rc<State>) {
        let exports = &state.exports;
        loop {
            let wait = exports.wait(state.shared.clock.now());
            tokio::select! {
                biased;
                () = exports.changed.notified() => {}
                () = state.shared.samples.many() => {}
                () = sleep(wait) => {}
            }
            let samples = state.shared.samples.take();
            if !samples.is_empty() {
                exports.take(&state, &samples);
            }
            exports.send(&state);
            tokio::task::yield_now().await;
        }
    }

    fn wait(&self, now: Nanos) -> Duration {
        let bridges = self.bridges.borrow();
        match bridges.values().map(OfBridge::next).min() {
            Some(next) => next.since(now).clamp(SOONEST, LATEST),
            None => Duration::from_secs(3600),
        }
    }

    fn take(&self, state: &State, samples: &[Sample]) {
        let now = state.shared.clock.now();
        let names: HashMap<u32, String> = {
            let switch = state.shared.switch.read();
            let numbers: HashSet<u32> = samples.iter().map(|sample| sample.bridge).collect();
            let name = |number: u32| Some((number, switch.bridge_name(number)?.to_owned()));
            numbers.into_iter().filter_map(name).collect()
        };
        let (mut bridges, ports, targets) = (self.bridges.borrow_mut(), self.ports.borrow(), self.targets.borrow());
        for sample in samples {
            let Some(bridge) = names.get(&sample.bridge).and_then(|name| bridges.get_mut(name)) else {
                continue;
            };
            if is_to_one_of(&targets, sample) {
                bridge.skip(&sample.data);
                continue;
            }
            bridge.take(sample, &ports, now);
        }
    }

    fn send(&self, state: &State) {
        let now = state.shared.clock.now();
        let mut bridges = self.bridges.borrow_mut();
        if bridges.is_empty() {
            return;
        }
        let drops = state.dp().drops();
        let dropped = drops.iter().find(|(cause, _)| *cause == DropCause::SampleBudget);
        let dropped = dropped.map_or(0, |(_, packets)| *packets);
        let lost = dropped.saturating_sub(self.dropped.replace(dropped));
        let ports = self.ports.borrow();
        for (name, bridge) in bridges.iter_mut() {
            bridge.run(state, name, &ports, lost as u32, now);
        }
    }
}

fn facts(bridges: &Bridges) -> HashMap<PortNo, Facts> {
    let fact = |(bridge, name, interface): (&str, &str, &crate::bridges::InterfaceState)| {
        let facts = Facts {
            bridge: bridge.to_owned(),
            name: name.to_owned(),
            ifindex: interface.link.as_ref().map_or(0, |link| link.ifindex),
            of_port: (*interface.ofport.as_ref().ok()?).into(),
        };
        Some((interface.port?, facts))
    };
    bridges.interfaces().filter_map(fact).collect()
}

/// Whether a packet is a datagram to one of the collectors.
fn is_to_one_of(targets: &HashSet<SocketAddr>, sample: &Sample) -> bool {
    const UDP: u128 = 17;
    let Some(key) = flow::extract(&sample.packet, &PacketMeta::default()) else {
        return false;
    };
    if key.get(Field::IpProto) != UDP {
        return false;
    }
    let address: IpAddr = match key.get(Field::EthType) {
        0x0800 => Ipv4Addr::from_bits(key.get(Field::Ipv4Dst) as u32).into(),
        0x86dd => Ipv6Addr::from_bits(key.get(Field::Ipv6Dst)).into(),
        _ => return false,
    };
    let port = key.get(Field::TpDst) as u16;
    targets
        .iter()
        .any(|target| target.ip() == address && target.port() == port)
}

/// The tag that a packet came with, 0 for none.
fn tag_of(packet: &[u8]) -> u16 {
    match packet.get(12..16) {
        Some([0x81, 0x00, high, low]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
