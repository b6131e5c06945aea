//! NetFlow version 5: counts of flows as 48-byte records, at most 30 in a datagram.
//!
//! A flow is told when it goes another way, when it was told last [`Settings::active_timeout`] ago,
//! and when it has had no packets for [`Settings::idle_timeout`], which ends it.

mod wire;

use nanos::Nanos;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;
use wire::{Header, Record};

/// Flows at once. One more ends the one that was used longest ago.
const MOST_FLOWS: usize = 65_536;

/// Records that wait for [`Exporter::run`]. The exporter drops records beyond them and leaves a gap
/// in the sequence numbers, which collectors count as lost flows.
const MOST_RECORDS: usize = 2 * MOST_FLOWS;

/// Packets or bytes of a flow between two of its records: 35 TB, which take 8192 records. A flow
/// with more is exported at once.
const MOST_COUNTED: u64 = 1 << 45;

/// How often flows are looked through.
const PERIOD: Duration = Duration::from_secs(1);

/// What the records of an exporter say, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The type of the switching engine.
    pub engine_type: u8,
    /// The number of the switching engine.
    pub engine_id: u8,
    /// Whether interfaces are 7 bits of the engine's number and 9 bits of the port's.
    pub add_id_to_interface: bool,
    /// How often a flow is told that goes on; `None` for only at its end.
    pub active_timeout: Option<Duration>,
    /// How long a flow without packets goes on.
    pub idle_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            engine_type: 0,
            engine_id: 0,
            add_id_to_interface: false,
            active_timeout: Some(Duration::from_secs(600)),
            idle_timeout: Duration::from_secs(10),
        }
    }
}

/// What tells one flow from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The port that it comes in on.
    pub input: u16,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// IP protocol.
    pub protocol: u8,
    /// Type of service.
    pub tos: u8,
    /// Source port; the type of ICMP.
    pub src_port: u16,
    /// Destination port; the code of ICMP.
    pub dst_port: u16,
}

/// Packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The port that they went to, or one of the numbers below.
    pub output: u16,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// All TCP flags that they had.
    pub tcp_flags: u8,
    /// When the last one came.
    pub used: Nanos,
}

impl Counts {
    /// The `output` of packets that went to all ports.
    pub const FLOODED: u16 = 0xffff;
    /// The `output` of packets that went to several ports.
    pub const SEVERAL: u16 = 0xfffe;
    /// The `output` of packets that went nowhere.
    pub const DROPPED: u16 = 0xfffd;
}

#[derive(Debug)]
struct Entry {
    output: u16,
    packets: u64,
    bytes: u64,
    tcp_flags: u8,
    created: Nanos,
    used: Nanos,
    told: Nanos,
}

/// The flows of a bridge, and the records about them that wait.
#[derive(Debug)]
pub struct Exporter {
    settings: Settings,
    boot: Nanos,
    flows: HashMap<Flow, Entry>,
    waiting: Waiting,
    sequence: u32,
    due: Nanos,
}

/// Records that no datagram has yet.
#[derive(Debug, Default)]
struct Waiting {
    records: Vec<Record>,
    /// Records dropped since the last datagram.
    lost: u32,
}

impl Exporter {
    /// An exporter whose uptime begins with `boot`.
    pub fn new(settings: Settings, boot: Nanos) -> Exporter {
        Exporter {
            settings,
            boot,
            flows: HashMap::new(),
            waiting: Waiting::default(),
            sequence: 0,
            due: boot,
        }
    }

    /// Changes the settings, from the next record on.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Counts packets of a flow. An update of more than 2⁴⁵ packets or bytes is an unknown count
    /// (a device that does not know its counters has all ones); it counts as one lost record.
    pub fn update(&mut self, flow: Flow, counts: &Counts, now: Nanos) {
        if counts.packets.max(counts.bytes) > MOST_COUNTED {
            self.waiting.lost = self.waiting.lost.wrapping_add(1);
            return;
        }
        if self.flows.len() >= MOST_FLOWS && !self.flows.contains_key(&flow) {
            self.end_oldest(now);
        }
        let entry = self.flows.entry(flow).or_insert(Entry {
            output: counts.output,
            packets: 0,
            bytes: 0,
            tcp_flags: 0,
            created: counts.used,
            used: counts.used,
            told: now,
        });
        if entry.output != counts.output {
            tell(&self.settings, &mut self.waiting, &flow, entry, now);
            (entry.output, entry.created) = (counts.output, counts.used);
        }
        if entry.packets + counts.packets > MOST_COUNTED || entry.bytes + counts.bytes > MOST_COUNTED {
            tell(&self.settings, &mut self.waiting, &flow, entry, now);
        }
        entry.packets += counts.packets;
        entry.bytes += counts.bytes;
        entry.tcp_flags |= counts.tcp_flags;
        entry.used = entry.used.max(counts.used);
    }

    /// Room for one more flow: a fraction ends at once, so that the next flows cost nothing.
    fn end_oldest(&mut self, now: Nanos) {
        let mut used: Vec<Nanos> = self.flows.values().map(|entry| entry.used).collect();
        let (_, limit, _) = used.select_nth_unstable(MOST_FLOWS / 64);
        let limit = *limit;
        self.end(now, |entry| entry.used <= limit);
    }

    fn end(&mut self, now: Nanos, ends: impl Fn(&Entry) -> bool) {
        self.flows.retain(|flow, entry| {
            let ends = ends(entry);
            if ends {
                tell(&self.settings, &mut self.waiting, flow, entry, now);
            }
            !ends
        });
    }

    /// Datagrams that are due. `wall` is the time since 1970.
    pub fn run(&mut self, now: Nanos, wall: Duration) -> Vec<Vec<u8>> {
        if now >= self.due {
            self.due = now + PERIOD;
            let Settings {
                idle_timeout,
                active_timeout,
                ..
            } = self.settings;
            self.end(now, |entry| now.since(entry.used) >= idle_timeout);
            if let Some(timeout) = active_timeout {
                for (flow, entry) in &mut self.flows {
                    if now.since(entry.told) > timeout {
                        tell(&self.settings, &mut self.waiting, flow, entry, now);
                    }
                }
            }
        }
        self.datagrams(now, wall)
    }

    /// Ends all flows; their datagrams.
    pub fn flush(&mut self, now: Nanos, wall: Duration) -> Vec<Vec<u8>> {
        self.end(now, |_| true);
        self.datagrams(now, wall)
    }

    /// When [`Exporter::run`] has something to do next.
    pub fn next(&self) -> Nanos {
        match (self.waiting.records.is_empty(), self.flows.is_empty()) {
            (false, _) => Nanos::ZERO,
            (true, false) => self.due,
            (true, true) => Nanos::MAX,
        }
    }

    fn datagrams(&mut self, now: Nanos, wall: Duration) -> Vec<Vec<u8>> {
        let Waiting { records, lost } = std::mem::take(&mut self.waiting);
        let datagram = |records: &[Record]| {
            let header = Header {
                uptime: now.since(self.boot),
                wall,
                sequence: self.sequence,
                engine: (self.settings.engine_type, self.settings.engine_id),
            };
            self.sequence = self.sequence.wrapping_add(records.len() as u32);
            header.datagram(records, self.boot)
        };
        let datagrams = records.chunks(wire::MOST_RECORDS).map(datagram).collect();
        self.sequence = self.sequence.wrapping_add(lost);
        datagrams
    }
}

/// Appends the records of a flow and clears its counts. Counts of more than 32 bits take several
/// records with about equal counts.
fn tell(settings: &Settings, waiting: &mut Waiting, flow: &Flow, entry: &mut Entry, now: Nanos) {
    entry.told = now;
    let most = u64::from(u32::MAX);
    let parts = entry.bytes.div_ceil(most).max(entry.packets.div_ceil(most));
    for part in 0..parts {
        let share = |all: u64| (all * (part + 1) / parts - all * part / parts) as u32;
        let interface = |port: u16| match settings.add_id_to_interface {
            true => u16::from(settings.engine_id & 0x7f) << 9 | port & 0x1ff,
            false => port,
        };
        if waiting.records.len() >= MOST_RECORDS {
            waiting.lost = waiting.lost.wrapping_add((parts - part) as u32);
            break;
        }
        waiting.records.push(Record {
            flow: *flow,
            input: interface(flow.input),
            output: interface(entry.output),
            packets: share(entry.packets),
            bytes: share(entry.bytes),
            tcp_flags: entry.tcp_flags,
            first: entry.created,
            last: entry.used.max(entry.created),
        });
    }
    (entry.packets, entry.bytes, entry.tcp_flags) = (0, 0, 0);
}

#[cfg(test)]
mod tests;
