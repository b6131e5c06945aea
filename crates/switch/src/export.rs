//! What a bridge tells collectors of its traffic: the configuration, and the flows that NetFlow is
//! told of. `tables::export` takes the samples.

use dp::{Carried, PortNo};
use nanos::Nanos;
use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::time::Duration;

/// What a bridge exports. Probabilities are parts of 2^32, less one: `u32::MAX` samples every
/// packet, 0 none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportConfig {
    /// Whether flows are counted for NetFlow.
    pub netflow: bool,
    /// sFlow.
    pub sflow: Option<SflowConfig>,
    /// IPFIX of all packets.
    pub ipfix: Option<IpfixConfig>,
    /// Whether the action `sample` takes samples.
    pub flow_samples: bool,
}

/// sFlow of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SflowConfig {
    /// The probability.
    pub probability: u32,
    /// How much of a packet a sample has, in bytes.
    pub header: u16,
    /// The interface indexes of datapath ports, of those that have one.
    pub ifindex: BTreeMap<PortNo, u32>,
}

/// IPFIX of a bridge's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpfixConfig {
    /// The probability.
    pub probability: u32,
    /// Whether received packets are sampled.
    pub input: bool,
    /// Whether sent packets are sampled.
    pub output: bool,
}

impl ExportConfig {
    /// Whether nothing is exported.
    pub fn is_none(&self) -> bool {
        *self == ExportConfig::default()
    }
}

/// A flow as NetFlow tells flows apart, and its TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The OpenFlow port that it comes in on.
    pub in_port: u32,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// IP protocol.
    pub protocol: u8,
    /// Type of service, without the bits of ECN.
    pub tos: u8,
    /// Source port, or ICMP type; 0 without ports.
    pub src_port: u16,
    /// Destination port, or ICMP code; 0 without ports.
    pub dst_port: u16,
    /// The TCP flags of its packets.
    pub tcp_flags: u8,
}

/// Where a flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowOutput {
    /// Nowhere.
    Dropped,
    /// To one port, by its OpenFlow number.
    Port(u32),
    /// To several ports.
    Several,
    /// To all ports of its VLAN.
    Flooded,
}

/// A flow and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRecord {
    /// The flow.
    pub key: FlowKey,
    /// Where it goes.
    pub output: FlowOutput,
}

/// Flows that are counted at once, of one bridge.
const MOST: usize = 65_536;

/// The flows of a bridge, by the number in their credit.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    counts: HashMap<u64, (FlowRecord, Carried)>,
    /// Flows with packets since the last time.
    touched: Vec<u64>,
    uncounted: u64,
    /// When unused flows are looked for next.
    due: Nanos,
}

/// What flows have carried since the last time.
#[derive(Debug, Default)]
pub struct FlowCounts {
    /// By flow.
    pub flows: Vec<(FlowRecord, Carried)>,
    /// Packets of flows for which there was no room.
    pub uncounted: u64,
}

impl Flows {
    /// Makes room for a flow's counts. Without it, its packets are counted as lost.
    pub(crate) fn know(&mut self, flow: u64, record: FlowRecord, now: Nanos) {
        if self.counts.len() < MOST {
            let nothing = Carried {
                packets: 0,
                bytes: 0,
                used: now,
            };
            let (_, counts) = self.counts.entry(flow).or_insert((record, nothing));
            counts.used = counts.used.max(now);
        }
    }

    /// Whether [`Flows::know`] would change nothing.
    pub(crate) fn knows(&self, flow: u64) -> bool {
        self.counts.contains_key(&flow) || self.counts.len() >= MOST
    }

    pub(crate) fn credit(&mut self, flow: u64, carried: Carried) {
        match self.counts.get_mut(&flow) {
            Some((_, counts)) => {
                if counts.packets == 0 && carried.packets > 0 {
                    self.touched.push(flow);
                }
                *counts = counts.and(carried);
            }
            None => self.uncounted += carried.packets,
        }
    }

    /// Takes the counts, and forgets flows without packets for `unused`.
    pub(crate) fn take(&mut self, now: Nanos, unused: Duration) -> FlowCounts {
        let taken = self.touched.drain(..).filter_map(|flow| {
            let (record, counts) = self.counts.get_mut(&flow)?;
            let taken = (*record, *counts);
            (counts.packets, counts.bytes) = (0, 0);
            Some(taken)
        });
        let taken = FlowCounts {
            flows: taken.collect(),
            uncounted: std::mem::take(&mut self.uncounted),
        };
        // Looking at all takes time, and there is no hurry.
        if now >= self.due {
            self.due = now + unused / 4;
            self.counts.retain(|_, (_, counts)| now.since(counts.used) < unused);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(src_port: u16) -> FlowRecord {
        FlowRecord {
            key: FlowKey {
                in_port: 1,
                src: Ipv4Addr::LOCALHOST,
                dst: Ipv4Addr::LOCALHOST,
                protocol: 17,
                tos: 0,
                src_port,
                dst_port: 53,
                tcp_flags: 0,
            },
            output: FlowOutput::Port(2),
        }
    }

    fn carried(packets: u64, used: u64) -> Carried {
        Carried {
            packets,
            bytes: packets * 100,
            used: Nanos::from_secs(used),
        }
    }

    #[test]
    fn counts_are_taken_once_and_flows_stay_while_they_are_used() {
        let (mut flows, unused) = (Flows::default(), Duration::from_secs(20));
        flows.know(7, record(7), Nanos::from_secs(1));
        flows.credit(7, carried(3, 2));
        flows.credit(7, carried(4, 3));
        flows.credit(8, carried(5, 3));
        let taken = flows.take(Nanos::from_secs(4), unused);
        assert_eq!(taken.flows, [(record(7), carried(7, 3))]);
        assert_eq!(taken.uncounted, 5);
        assert!(flows.take(Nanos::from_secs(5), unused).flows.is_empty());
        // It is known again after a packet of the megaflow, and forgotten without one.
        flows.know(7, record(7), Nanos::from_secs(6));
        flows.credit(7, carried(1, 22));
        assert_eq!(flows.take(Nanos::from_secs(30), unused).flows.len(), 1);
        assert!(flows.take(Nanos::from_secs(60), unused).flows.is_empty());
        assert!(flows.counts.is_empty());
    }

    #[test]
    fn the_flows_of_a_bridge_are_bounded_and_what_they_lose_is_counted() {
        let mut flows = Flows::default();
        for flow in 0..70_000 {
            flows.know(flow, record(flow as u16), Nanos::ZERO);
            flows.credit(flow, carried(1, 0));
        }
        let taken = flows.take(Nanos::ZERO, Duration::from_secs(1));
        assert_eq!((taken.flows.len() as u64, taken.uncounted), (65_536, 70_000 - 65_536));
    }
}
