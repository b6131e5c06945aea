//! The datagram (sFlow version 5, section 5): XDR numbers, each sample and record with its length.

use super::{BridgeCounters, Counters, Direction, FlowSample, LacpCounters, MOST_HEADER, PortCounters};
use crate::Tunnel;
use std::net::IpAddr;
use std::time::Duration;

/// The longest header of a datagram.
pub(super) const HEADER: usize = 40;

/// The most bytes of a port's name (sFlow version 5 structures, port_name).
const MOST_NAME: usize = 255;

/// The most labels that are told of.
const MOST_LABELS: usize = 16;

/// The bit of a label stack entry that marks the last one (RFC 3032 §2.1).
const BOTTOM: u32 = 1 << 8;

/// The length of a frame check sequence, which samples lack.
const FCS: u32 = 4;

pub(super) struct Header {
    pub(super) agent: IpAddr,
    pub(super) sub_agent: u32,
    pub(super) sequence: u32,
    pub(super) uptime: Duration,
    pub(super) samples: u32,
}

impl Header {
    pub(super) fn datagram(&self, samples: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + samples.len());
        out.u32(5);
        match self.agent {
            IpAddr::V4(agent) => {
                out.u32(1);
                out.extend(agent.octets());
            }
            IpAddr::V6(agent) => {
                out.u32(2);
                out.extend(agent.octets());
            }
        }
        let uptime = self.uptime.as_millis() as u32;
        out.all([self.sub_agent, self.sequence, uptime, self.samples]);
        out.extend(samples);
        out
    }
}

pub(super) struct FlowNumbers {
    pub(super) sequence: u32,
    pub(super) source: u32,
    pub(super) sampling: u32,
    pub(super) pool: u32,
    pub(super) drops: u32,
}

pub(super) struct CounterNumbers {
    pub(super) sequence: u32,
    pub(super) source: u32,
}

/// What a datagram is made of.
pub(super) trait Sample {
    /// With its format and its length.
    fn encoded(&self) -> Vec<u8>;
}

impl Sample for (FlowNumbers, &FlowSample<'_>) {
    fn encoded(&self) -> Vec<u8> {
        let (numbers, sample) = self;
        let header = &sample.header[..sample.header.len().min(MOST_HEADER.into())];
        let mut out = Vec::with_capacity(128 + header.len());
        out.structure(1, |out| {
            out.all([numbers.sequence, numbers.source, numbers.sampling]);
            out.all([numbers.pool, numbers.drops, sample.input, sample.output]);
            // Open vSwitch tells of labels only if the last one is the bottom of the stack.
            let labels = sample.labels_out.iter().copied();
            let labels = labels.take(MOST_LABELS);
            let is_whole = sample.labels_out.last().is_some_and(|entry| entry & BOTTOM != 0);
            let tunnels = [(sample.tunnel_out, Way::Egress), (sample.tunnel_in, Way::Ingress)];
            let tunnels = tunnels.map(|(tunnel, way)| tunnel.map(|tunnel| (tunnel, way)));
            let of_tunnels = tunnels
                .iter()
                .flatten()
                .map(|(tunnel, _)| 1 + u32::from(tunnel.key != 0));
            out.u32(2 + u32::from(is_whole) + of_tunnels.sum::<u32>());
            if is_whole {
                out.structure(1006, |out| {
                    // The next hop is unknown: 0.0.0.0, as in Open vSwitch. No labels came in.
                    out.all([1, 0, 0, labels.len() as u32]);
                    labels.for_each(|entry| out.u32(entry));
                });
            }
            out.structure(1001, |out| {
                for tci in [sample.tci_in, sample.tci_out] {
                    out.all([u32::from(tci & 0xfff), u32::from(tci >> 13)]);
                }
            });
            out.structure(1, |out| {
                // Ethernet.
                let len = (sample.len as u32).saturating_add(FCS);
                out.all([1, len, FCS, header.len() as u32]);
                out.opaque(header);
            });
            for (tunnel, way) in tunnels.iter().flatten() {
                outer(out, tunnel, *way);
            }
        });
        out
    }
}

/// Whether a packet came through a tunnel or leaves by it.
#[derive(Clone, Copy)]
enum Way {
    Egress,
    Ingress,
}

/// The outer headers, and the key if there is one (sFlow Tunnel Structures).
fn outer(out: &mut Vec<u8>, tunnel: &Tunnel, way: Way) {
    let (v4, v6, key) = match way {
        Way::Egress => (1023, 1025, 1029),
        Way::Ingress => (1024, 1026, 1030),
    };
    // The length of the outer packet is not known, and neither are flags of TCP.
    let begin = |out: &mut Vec<u8>| out.all([0, tunnel.protocol.into()]);
    let end = |out: &mut Vec<u8>| out.all([tunnel.src_port.into(), tunnel.dst_port.into(), 0, tunnel.tos.into()]);
    match (tunnel.src, tunnel.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => out.structure(v4, |out| {
            begin(out);
            out.opaque(&src.octets());
            out.opaque(&dst.octets());
            end(out);
        }),
        (src, dst) => out.structure(v6, |out| {
            begin(out);
            for address in [src, dst] {
                let address = match address {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                out.opaque(&address.octets());
            }
            end(out);
        }),
    }
    if tunnel.key != 0 {
        out.structure(key, |out| out.u32(tunnel.key as u32));
    }
}

impl Sample for (CounterNumbers, &Counters<'_>) {
    fn encoded(&self) -> Vec<u8> {
        let (numbers, counters) = self;
        let mut out = Vec::with_capacity(256);
        out.structure(2, |out| {
            out.all([numbers.sequence, numbers.source]);
            match counters {
                Counters::Bridge(counters) => bridge(out, counters),
                Counters::Port(counters) => port(out, counters),
            }
        });
        out
    }
}

fn bridge(out: &mut Vec<u8>, counters: &BridgeCounters) {
    out.u32(2);
    // Resources of an application: time, memory, file descriptors, connections.
    out.structure(2203, |out| {
        out.all([counters.user_ms, counters.system_ms]);
        out.u64(counters.memory);
        out.u64(0);
        out.all([0; 4]);
    });
    // Open vSwitch's datapath: hits, misses, lost, masks looked at, flows, masks.
    out.structure(2207, |out| {
        out.all([counters.hits, counters.misses, counters.lost, u32::MAX]);
        out.all([counters.flows, u32::MAX]);
    });
}

fn port(out: &mut Vec<u8>, counters: &PortCounters) {
    out.u32(4 + u32::from(counters.lacp.is_some()));
    // Ethernet: most of these errors are of times when stations shared a cable.
    out.structure(2, |out| {
        out.all([low(counters.alignment_errors), low(counters.crc_errors)]);
        out.all([u32::MAX; 11]);
    });
    out.structure(1004, |out| {
        out.u64(counters.datapath);
        out.u32(counters.of_port);
    });
    out.structure(1005, |out| {
        let name = &counters.name.as_bytes()[..counters.name.len().min(MOST_NAME)];
        out.u32(name.len() as u32);
        out.opaque(name);
    });
    if let Some(lacp) = &counters.lacp {
        out.structure(7, |out| aggregation(out, lacp));
    }
    out.structure(1, |out| generic(out, counters));
}

/// LACP of a port (sFlow LAG Port Statistics).
fn aggregation(out: &mut Vec<u8>, counters: &LacpCounters) {
    out.opaque(&counters.actor_system);
    out.opaque(&counters.partner_system);
    out.u32(counters.aggregator);
    out.opaque(&counters.states);
    out.all([counters.rx, counters.rx_markers, counters.rx_marker_responses]);
    // Frames of unknown slow protocols count as illegal.
    out.u32(u32::MAX);
    out.all([counters.rx_illegal, counters.tx]);
    // The switch sends no marker requests.
    out.u32(0);
    out.u32(counters.tx_marker_responses);
}

/// The counters that every interface has (RFC 2233).
fn generic(out: &mut Vec<u8>, counters: &PortCounters) {
    const ETHERNET: u32 = 6;
    out.all([counters.ifindex, ETHERNET]);
    out.u64(counters.speed);
    out.u32(match counters.full_duplex {
        None => 0,
        Some(true) => 1,
        Some(false) => 2,
    });
    out.u32(u32::from(counters.admin_up) | u32::from(counters.oper_up) << 1);
    let direction = |out: &mut Vec<u8>, counters: &Direction, multicast| {
        out.u64(counters.bytes.unwrap_or(u64::MAX));
        // Unicast, multicast, broadcast, which is not known.
        out.all([low(counters.packets), low(multicast), u32::MAX]);
        out.all([low(counters.dropped), low(counters.errors)]);
    };
    direction(out, &counters.received, counters.multicast);
    // Unknown protocols.
    out.u32(u32::MAX);
    direction(out, &counters.sent, None);
    // It is not told whether an interface takes packets for others.
    out.u32(0);
}

/// The low bits of a counter; all ones where it is not known.
fn low(counter: Option<u64>) -> u32 {
    counter.map_or(u32::MAX, |counter| counter as u32)
}

/// Writing XDR (RFC 4506).
trait Xdr {
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    fn all<const N: usize>(&mut self, values: [u32; N]);
    /// Bytes, filled up to a multiple of four.
    fn opaque(&mut self, bytes: &[u8]);
    /// A format, the length of what `content` writes, and that.
    fn structure(&mut self, format: u32, content: impl FnOnce(&mut Self));
}

impl Xdr for Vec<u8> {
    fn u32(&mut self, value: u32) {
        self.extend(value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend(value.to_be_bytes());
    }

    fn all<const N: usize>(&mut self, values: [u32; N]) {
        values.into_iter().for_each(|value| self.u32(value));
    }

    fn opaque(&mut self, bytes: &[u8]) {
        self.extend(bytes);
        self.resize(self.len().next_multiple_of(4), 0);
    }

    fn structure(&mut self, format: u32, content: impl FnOnce(&mut Self)) {
        self.u32(format);
        let place = self.len();
        self.u32(0);
        content(self);
        let len = (self.len() - place - 4) as u32;
        self[place..place + 4].copy_from_slice(&len.to_be_bytes());
    }
}
