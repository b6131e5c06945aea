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
use export::{Encapsulation, Tunnel};
use nanos::Nanos;
use openflow::model::IpfixStats;
use samples::Sample;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use switch::tables::{OuterHeaders, SampledTunnel};
use switch::{ExportConfig, IpfixConfig, SflowConfig};
use tokio::sync::Notify;
use tokio::time::sleep;
use tunnel::vport::Type;
use wire::EtherType;

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
        let (now, wall) = (state.shared.clock.now(), since_1970());
        let names: HashMap<u32, String> = {
            let switch = state.shared.switch.read();
            let numbers: HashSet<u32> = samples.iter().map(|sample| sample.meaning.bridge).collect();
            let name = |number: u32| Some((number, switch.bridge_name(number)?.to_owned()));
            numbers.into_iter().filter_map(name).collect()
        };
        let (mut bridges, ports, targets) = (self.bridges.borrow_mut(), self.ports.borrow(), self.targets.borrow());
        for sample in samples {
            let Some(bridge) = names.get(&sample.meaning.bridge).and_then(|name| bridges.get_mut(name)) else {
                continue;
            };
            if is_to_one_of(&targets, sample) {
                bridge.skip(&sample.meaning.data);
                continue;
            }
            bridge.take(sample, &ports, now, wall);
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

/// Whether a packet is a datagram to one of the collectors. Of a long packet the sample has only
/// the beginning.
fn is_to_one_of(targets: &HashSet<SocketAddr>, sample: &Sample) -> bool {
    datagram_to(&sample.packet).is_some_and(|to| targets.iter().any(|target| (target.ip(), target.port()) == to))
}

/// Where a UDP datagram goes, of which these are the first bytes.
fn datagram_to(packet: &[u8]) -> Option<(IpAddr, u16)> {
    const UDP: u8 = 17;
    let (kind, at) = wire::headers::behind_tags(packet, 2)?;
    let ip = packet.get(at..)?;
    let (protocol, address, udp): (u8, IpAddr, usize) = match kind {
        EtherType::IPV4 => {
            let header = ip.first_chunk::<20>()?;
            // Later fragments have no ports.
            if u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
                return None;
            }
            let to: [u8; 4] = *header.last_chunk()?;
            (header[9], Ipv4Addr::from(to).into(), usize::from(header[0] & 0xf) * 4)
        }
        EtherType::IPV6 => {
            let header = ip.first_chunk::<40>()?;
            let to: [u8; 16] = *header.last_chunk()?;
            (header[6], Ipv6Addr::from(to).into(), header.len())
        }
        _ => return None,
    };
    let ports = ip.get(udp..)?.first_chunk::<4>()?;
    (protocol == UDP).then(|| (address, u16::from_be_bytes([ports[2], ports[3]])))
}

/// The tag that a packet came with, 0 for none.
fn tag_of(packet: &[u8]) -> u16 {
    match packet.get(12..16) {
        Some([0x81, 0x00, high, low]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

impl Sample {
    /// The tunnel that the packet came through.
    fn tunnel_in(&self) -> Option<Tunnel> {
        Some(told(self.meaning.from.as_ref()?, self.outer?))
    }

    /// The tunnel that the packet leaves by.
    fn tunnel_out(&self) -> Option<Tunnel> {
        let tunnel = self.meaning.to.as_ref()?;
        Some(told(tunnel, tunnel.outer?))
    }
}

/// A tunnel of a sampled packet, as exporters tell of it.
fn told(tunnel: &SampledTunnel, outer: OuterHeaders) -> Tunnel {
    Tunnel {
        src: outer.src,
        dst: outer.dst,
        protocol: tunnel.kind.protocol(),
        tos: outer.tos,
        src_port: outer.src_port,
        dst_port: outer.dst_port,
        key: outer.key,
        encapsulation: match tunnel.kind {
            Type::Vxlan => Some(Encapsulation::Vxlan),
            Type::Gre | Type::Ip6gre => Some(Encapsulation::Gre),
            Type::Geneve => Some(Encapsulation::Geneve),
            Type::Erspan | Type::Ip6erspan | Type::Gtpu | Type::Bareudp | Type::Srv6 => None,
        },
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::{Packet, mac};

    #[test]
    fn a_datagrams_destination_is_read_from_its_first_bytes() {
        let (v4, v6) = (Ipv4Addr::new(10, 0, 0, 2), Ipv6Addr::from(2));
        let frame = || Packet::new(mac(1), mac(2));
        let payload = [7; 1000];
        let to_v4 = frame().ipv4(Ipv4Addr::new(10, 0, 0, 1), v4).udp(1000, 6343, &payload);
        let to_v6 = frame().ipv6(Ipv6Addr::from(1), v6).udp(1000, 6343, &payload);
        let tagged = frame().tag(0x88a8, 5).vlan(6).ipv4(Ipv4Addr::new(10, 0, 0, 1), v4);
        let tagged = tagged.udp(1000, 6343, &payload);
        for (packet, to) in [
            (to_v4.bytes(), IpAddr::from(v4)),
            (to_v6.bytes(), v6.into()),
            (tagged.bytes(), v4.into()),
        ] {
            for len in 0..62 {
                let read = datagram_to(&packet[..len]);
                assert!(read.is_none_or(|read| read == (to, 6343)), "{len} bytes: {read:?}");
            }
            for len in [62, 128, packet.len()] {
                assert_eq!(datagram_to(&packet[..len]), Some((to, 6343)), "{len} bytes");
            }
        }
        let mut fragment = frame()
            .ipv4(Ipv4Addr::new(10, 0, 0, 1), v4)
            .udp(1, 6343, &payload)
            .bytes();
        fragment[21] = 1;
        assert_eq!(datagram_to(&fragment), None);
        let tcp = frame().ipv4(Ipv4Addr::new(10, 0, 0, 1), v4).tcp(1, 6343, 0, &payload);
        assert_eq!(datagram_to(&tcp.bytes()), None);
    }
}
