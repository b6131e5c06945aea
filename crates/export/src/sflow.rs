//! sFlow version 5: samples of packets, and the counters of ports and of the switch itself.
//!
//! Each bridge is a sub-agent. Its flow samples come from one data source, its counters from one
//! for each port and one for the bridge.

mod wire;

use crate::Tunnel;
use nanos::Nanos;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use wire::Sample as _;

/// A datagram has no more bytes than this, and none waits longer than a second for more samples.
const MOST_BYTES: usize = 1400;
const PATIENCE: Duration = Duration::from_secs(1);

/// Full datagrams that wait. Samples beyond them are counted as dropped.
const MOST_DATAGRAMS: usize = 1024;

/// The longest header of a sampled packet.
pub const MOST_HEADER: u16 = 1024;

/// What an agent says of itself, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The agent's address.
    pub agent: IpAddr,
    /// The number of the sub-agent.
    pub sub_agent: u32,
    /// One packet in so many is sampled.
    pub sampling: u32,
    /// How often counters are told; `None` for never.
    pub polling: Option<Duration>,
}

/// A sampled packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample<'a> {
    /// The interface index that it came in on; 0 where that is not known.
    pub input: u32,
    /// Where it goes, in sFlow's format: an interface index, 0x80000000 and the number of ports, or
    /// 0x40000000 and why it is dropped.
    pub output: u32,
    /// The tag that it came with (IEEE 802.1Q §9.6); 0 for none.
    pub tci_in: u16,
    /// The tag that it leaves with.
    pub tci_out: u16,
    /// The MPLS label stack (RFC 3032) that it leaves with, the outermost entry first, if the
    /// switch has pushed all of it.
    pub labels_out: &'a [u32],
    /// The tunnel that it came through.
    pub tunnel_in: Option<Tunnel>,
    /// The tunnel that it leaves by, if that is the only way that it leaves.
    pub tunnel_out: Option<Tunnel>,
    /// Its length without the frame check sequence.
    pub len: usize,
    /// Its first bytes. The agent sends at most [`MOST_HEADER`] of them.
    pub header: &'a [u8],
}

/// A data source of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The bridge.
    Bridge,
    /// The port with this interface index.
    Port(u32),
}

/// The counters of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters<'a> {
    /// Of the bridge.
    Bridge(&'a BridgeCounters),
    /// Of a port.
    Port(&'a PortCounters),
}

/// The counters of a bridge: those of the process, and of its datapath.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeCounters {
    /// Time of the process in its own code, in milliseconds.
    pub user_ms: u32,
    /// Time of the process in the kernel, in milliseconds.
    pub system_ms: u32,
    /// Memory of the process, in bytes.
    pub memory: u64,
    /// Packets that found a megaflow.
    pub hits: u32,
    /// Packets that found none.
    pub misses: u32,
    /// Packets that got none.
    pub lost: u32,
    /// Megaflows.
    pub flows: u32,
}

/// The counters of a port. `None` where a counter is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// The interface index.
    pub ifindex: u32,
    /// The name, of which the agent sends at most 255 bytes.
    pub name: String,
    /// In bits a second; 0 where that is not known.
    pub speed: u64,
    /// Whether both directions are used at once, if that is known.
    pub full_duplex: Option<bool>,
    /// Whether it is to be up.
    pub admin_up: bool,
    /// Whether it has a carrier.
    pub oper_up: bool,
    /// The OpenFlow datapath.
    pub datapath: u64,
    /// The OpenFlow port number.
    pub of_port: u32,
    /// What it received.
    pub received: Direction,
    /// Received multicast packets.
    pub multicast: Option<u64>,
    /// What it sent.
    pub sent: Direction,
    /// Received packets with alignment errors.
    pub alignment_errors: Option<u64>,
    /// Received packets with a wrong check sequence.
    pub crc_errors: Option<u64>,
    /// Of a port that runs LACP.
    pub lacp: Option<LacpCounters>,
}

/// LACP of a port (sFlow LAG Port Statistics; the MIB of IEEE 802.1AX-2014 §7.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LacpCounters {
    /// The system that runs LACP here.
    pub actor_system: [u8; 6],
    /// The system at the other end.
    pub partner_system: [u8; 6],
    /// The aggregator.
    pub aggregator: u32,
    /// States as octets: this end as configured and now, the other end as configured and now.
    pub states: [u8; 4],
    /// LACPDUs received.
    pub rx: u32,
    /// Marker requests received.
    pub rx_markers: u32,
    /// Marker responses received.
    pub rx_marker_responses: u32,
    /// Frames received that were not well-formed.
    pub rx_illegal: u32,
    /// LACPDUs sent.
    pub tx: u32,
    /// Marker responses sent.
    pub tx_marker_responses: u32,
}

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Dropped packets.
    pub dropped: Option<u64>,
    /// Wrong packets.
    pub errors: Option<u64>,
}

/// When a source is due, and how many samples it has given.
#[derive(Debug)]
struct Polled {
    due: Nanos,
    sequence: u32,
}

/// A sub-agent: the samples that wait for their datagram.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    boot: Nanos,
    sources: BTreeMap<Source, Polled>,
    flow_sequence: u32,
    pool: u32,
    drops: u32,
    sequence: u32,
    /// Samples of the next datagram, their number, and when the first came.
    open: Vec<u8>,
    samples: u32,
    since: Nanos,
    full: Vec<Vec<u8>>,
}

impl Agent {
    /// An agent whose uptime begins with `boot`.
    pub fn new(settings: Settings, boot: Nanos) -> Agent {
        Agent {
            settings,
            boot,
            sources: BTreeMap::new(),
            flow_sequence: 0,
            pool: 0,
            drops: 0,
            sequence: 0,
            open: Vec::new(),
            samples: 0,
            since: Nanos::ZERO,
            full: Vec::new(),
        }
    }

    /// The ports whose counters are told, by interface index. New sources are due some time in the
    /// next interval, so that not all are due at once.
    pub fn set_ports(&mut self, ports: impl IntoIterator<Item = u32>, now: Nanos) {
        let interval = self.settings.polling;
        let mut old = std::mem::take(&mut self.sources);
        let all = std::iter::once(Source::Bridge).chain(ports.into_iter().map(Source::Port));
        self.sources = all
            .enumerate()
            .map(|(place, source)| {
                let spread = |interval: Duration| now + interval.mul_f64((place as f64 * 0.618_034).fract());
                let polled = old.remove(&source).unwrap_or_else(|| Polled {
                    due: interval.map_or(Nanos::MAX, spread),
                    sequence: 0,
                });
                (source, polled)
            })
            .collect();
    }

    /// Notes samples that were taken and lost.
    pub fn lost(&mut self, samples: u32) {
        self.drops = self.drops.wrapping_add(samples);
    }

    /// Notes a sample that was taken and is left out.
    pub fn skip(&mut self) {
        self.pool = self.pool.wrapping_add(self.settings.sampling);
    }

    /// Takes a sample of a packet.
    pub fn sample(&mut self, sample: &FlowSample<'_>, now: Nanos) {
        self.skip();
        if self.full.len() >= MOST_DATAGRAMS {
            return self.lost(1);
        }
        self.flow_sequence = self.flow_sequence.wrapping_add(1);
        let numbers = wire::FlowNumbers {
            sequence: self.flow_sequence,
            source: self.source(Source::Bridge),
            sampling: self.settings.sampling,
            pool: self.pool,
            drops: self.drops,
        };
        self.add(&(numbers, sample).encoded(), now);
    }

    /// The sources whose counters are due. The caller answers with [`Agent::counters`].
    pub fn due(&mut self, now: Nanos) -> Vec<Source> {
        let Some(interval) = self.settings.polling else {
            return Vec::new();
        };
        let due = |(source, polled): (&Source, &mut Polled)| {
            let is_due = polled.due <= now;
            if is_due {
                // Missed intervals are not made up for.
                let next = polled.due + interval;
                polled.due = if next > now { next } else { now + interval };
            }
            is_due.then_some(*source)
        };
        self.sources.iter_mut().filter_map(due).collect()
    }

    /// Tells counters.
    pub fn counters(&mut self, counters: &Counters<'_>, now: Nanos) {
        let source = match counters {
            Counters::Bridge(_) => Source::Bridge,
            Counters::Port(port) => Source::Port(port.ifindex),
        };
        let number = self.source(source);
        let Some(polled) = self.sources.get_mut(&source) else {
            return;
        };
        polled.sequence = polled.sequence.wrapping_add(1);
        let sequence = polled.sequence;
        if self.full.len() < MOST_DATAGRAMS {
            let numbers = wire::CounterNumbers {
                sequence,
                source: number,
            };
            self.add(&(numbers, counters).encoded(), now);
        }
    }

    /// The number of a data source: ports have class 0, and the sub-agent's virtual interface has
    /// class 2.
    fn source(&self, source: Source) -> u32 {
        match source {
            Source::Bridge => 2 << 24 | self.settings.sub_agent.wrapping_add(1000) & 0xff_ffff,
            Source::Port(ifindex) => ifindex & 0xff_ffff,
        }
    }

    fn add(&mut self, sample: &[u8], now: Nanos) {
        if wire::HEADER + self.open.len() + sample.len() > MOST_BYTES {
            self.close(now);
        }
        if self.samples == 0 {
            self.since = now;
        }
        self.open.extend_from_slice(sample);
        self.samples += 1;
    }

    fn close(&mut self, now: Nanos) {
        if self.samples == 0 {
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let header = wire::Header {
            agent: self.settings.agent,
            sub_agent: self.settings.sub_agent,
            sequence: self.sequence,
            uptime: now.since(self.boot),
            samples: std::mem::take(&mut self.samples),
        };
        self.full.push(header.datagram(&std::mem::take(&mut self.open)));
    }

    /// Datagrams that are due.
    pub fn run(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        if self.samples > 0 && now.since(self.since) >= PATIENCE {
            self.close(now);
        }
        std::mem::take(&mut self.full)
    }

    /// All datagrams.
    pub fn flush(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        self.close(now);
        std::mem::take(&mut self.full)
    }

    /// When [`Agent::run`] or [`Agent::due`] has something to give next.
    pub fn next(&self) -> Nanos {
        let polled = self.sources.values().map(|polled| polled.due).min();
        let waits = (self.samples > 0).then_some(self.since + PATIENCE);
        match self.full.is_empty() {
            false => Nanos::ZERO,
            true => polled.into_iter().chain(waits).min().unwrap_or(Nanos::MAX),
        }
    }
}

#[cfg(test)]
mod tests;
