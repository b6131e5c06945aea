//! IPFIX (RFC 7011, RFC 7012): records of flows, collected in a cache, and their templates.
//!
//! Templates have the numbers and fields of Open vSwitch. Where that sends counts of the whole
//! exporter as a flow's totals, and counts messages instead of records, this follows the standard:
//! a flow that has ended begins again.

mod record;
mod template;
mod wire;

use crate::Tunnel;
use nanos::Nanos;
use record::Counts;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use template::{Kind, templates};
use wire::Message;

/// Flows in the cache, whatever the settings say.
const MOST_FLOWS: usize = 262_144;

/// Observation domains whose templates are kept up. One more forgets the one used longest ago.
const MOST_DOMAINS: usize = 256;

/// Messages that wait. Records beyond them are lost, and counted.
const MOST_MESSAGES: usize = 4096;

/// What an exporter's records say, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a flow is collected; zero tells each sample at once.
    pub active_timeout: Duration,
    /// Most flows in the cache. One more tells the oldest.
    pub max_flows: u32,
    /// How often templates are sent.
    pub template_interval: Duration,
    /// How often the exporter's own counts are sent.
    pub stats_interval: Duration,
    /// A name in every record, if not empty.
    pub virtual_obs_id: String,
}

/// A packet that was sampled.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The observation domain.
    pub domain: u32,
    /// The observation point.
    pub point: u32,
    /// How many packets the sample stands for.
    pub weight: u64,
    /// Whether it was seen leaving, not coming in.
    pub leaves: bool,
    /// The interface that it came in on.
    pub input: Interface<'a>,
    /// The interface that it leaves by, if the sample is about one.
    pub output: Option<Interface<'a>>,
    /// The tunnel that a packet came through which was seen coming in, or leaves by which was seen
    /// leaving. Records have those over IPv4 whose encapsulation has a number.
    pub tunnel: Option<Tunnel>,
    /// Its headers.
    pub headers: Headers,
    /// Its length, from the Ethernet header on, in bytes.
    pub len: usize,
    /// Whether it is sent nowhere.
    pub dropped: bool,
}

/// An interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface<'a> {
    /// The kernel's number; 0 for none.
    pub ifindex: u32,
    /// The name.
    pub name: &'a str,
}

/// The headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Source address.
    pub eth_src: [u8; 6],
    /// Destination address.
    pub eth_dst: [u8; 6],
    /// The type behind all tags.
    pub eth_type: u16,
    /// The tag control information (IEEE 802.1Q §9.6).
    pub tci: Option<u16>,
    /// The IP header.
    pub ip: Option<Ip>,
}

/// An IP header, and what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Addresses.
    pub addresses: Addresses,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Protocol.
    pub protocol: u8,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// The length of the packet with this header, in bytes.
    pub len: u16,
    /// The transport.
    pub transport: Transport,
}

/// IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Source and destination.
    V4(Ipv4Addr, Ipv4Addr),
    /// Source, destination and flow label.
    V6(Ipv6Addr, Ipv6Addr, u32),
}

/// What is behind an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Something else, or a later fragment.
    Other,
    /// TCP: ports and flags.
    Tcp(u16, u16, u8),
    /// UDP: ports.
    Udp(u16, u16),
    /// SCTP: ports.
    Sctp(u16, u16),
    /// ICMP of either version: type and code.
    Icmp(u8, u8),
}

/// What an exporter has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Flows.
    pub flows: u64,
    /// Flows in the cache now.
    pub current_flows: u64,
    /// Sampled packets.
    pub packets: u64,
    /// Those with an IPv4 header.
    pub ipv4_packets: u64,
    /// Those with an IPv6 header.
    pub ipv6_packets: u64,
    /// Sampled packets that could not be read.
    pub error_packets: u64,
    /// Records that there was no room for.
    pub lost_records: u64,
}

/// Why a flow's record is sent (RFC 5102, flowEndReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    ActiveTimeout = 2,
    Forced = 4,
    LackOfResources = 5,
}

/// What tells one flow from another: its domain, its template, and the record's first fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    domain: u32,
    template: u16,
    fields: Vec<u8>,
}

#[derive(Debug, Default)]
struct Domain {
    /// When its templates are due.
    templates: Nanos,
    used: Nanos,
    /// Data records sent before.
    sequence: u32,
    open: Option<Message>,
}

/// The flows of an exporter, and the messages that wait.
#[derive(Debug)]
pub struct Exporter {
    settings: Settings,
    cache: HashMap<Arc<Key>, (Kind, Counts)>,
    /// In the order in which flows began.
    order: VecDeque<(Nanos, Arc<Key>)>,
    domains: BTreeMap<u32, Domain>,
    stats_due: Nanos,
    ready: Vec<Vec<u8>>,
    statistics: Statistics,
}

impl Exporter {
    /// An exporter.
    pub fn new(settings: Settings, now: Nanos) -> Exporter {
        Exporter {
            settings,
            cache: HashMap::new(),
            order: VecDeque::new(),
            domains: BTreeMap::new(),
            stats_due: now,
            ready: Vec::new(),
            statistics: Statistics::default(),
        }
    }

    /// What the exporter has done so far.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            current_flows: self.cache.len() as u64,
            ..self.statistics
        }
    }

    /// Counts a sampled packet that could not be read.
    pub fn unreadable(&mut self) {
        self.statistics.error_packets += 1;
    }

    /// Takes a sample.
    pub fn sample(&mut self, sample: &Sample<'_>, now: Nanos, wall: Duration) {
        let weight = sample.weight;
        self.statistics.packets += weight;
        match sample.headers.ip.map(|ip| ip.addresses) {
            Some(Addresses::V4(..)) => self.statistics.ipv4_packets += weight,
            Some(Addresses::V6(..)) => self.statistics.ipv6_packets += weight,
            None => {}
        }
        let kind = Kind::of(sample);
        let key = Key {
            domain: sample.domain,
            template: kind.number(),
            fields: record::key(sample, &self.settings.virtual_obs_id),
        };
        // Without a cache each sample is a flow of its own.
        if self.settings.active_timeout.is_zero() {
            self.statistics.flows += 1;
            let mut counts = Counts::new(now);
            counts.add(sample, now);
            return self.tell(key, kind, &counts, End::ActiveTimeout, now, wall);
        }
        let key = Arc::new(key);
        match self.cache.get_mut(&key) {
            Some((_, counts)) => counts.add(sample, now),
            None => {
                self.statistics.flows += 1;
                let mut counts = Counts::new(now);
                counts.add(sample, now);
                self.cache.insert(key.clone(), (kind, counts));
                self.order.push_back((now, key));
            }
        }
        self.end_old(now, wall);
    }

    /// Ends flows that are old, and the oldest of too many.
    fn end_old(&mut self, now: Nanos, wall: Duration) {
        let most = (self.settings.max_flows as usize).min(MOST_FLOWS);
        while let Some((began, _)) = self.order.front() {
            if now.since(*began) >= self.settings.active_timeout {
                self.end(End::ActiveTimeout, now, wall);
            } else if self.cache.len() > most {
                self.end(End::LackOfResources, now, wall);
            } else {
                return;
            }
        }
    }

    /// Ends the oldest flow.
    fn end(&mut self, why: End, now: Nanos, wall: Duration) {
        let Some((_, key)) = self.order.pop_front() else { return };
        let Some((kind, counts)) = self.cache.remove(&key) else {
            return;
        };
        // The order and the cache are without it now.
        self.tell(Arc::unwrap_or_clone(key), kind, &counts, why, now, wall);
    }

    /// Puts a flow's record into the open message of its domain.
    fn tell(&mut self, key: Key, kind: Kind, counts: &Counts, why: End, now: Nanos, wall: Duration) {
        if self.ready.len() >= MOST_MESSAGES {
            self.statistics.lost_records += 1;
            return;
        }
        self.prepare(key.domain, now, wall);
        let mut record = key.fields;
        counts.encode(&mut record, kind, now, why as u8);
        let Some(domain) = self.domains.get_mut(&key.domain) else {
            return;
        };
        let fits = domain
            .open
            .as_ref()
            .is_none_or(|open| open.has_room(key.template, record.len()));
        if !fits {
            self.ready.extend(domain.open.take().map(Message::finish));
        }
        let open = domain
            .open
            .get_or_insert_with(|| Message::new(wall, domain.sequence, key.domain));
        open.record(key.template, &record);
        domain.sequence = domain.sequence.wrapping_add(1);
    }

    /// The state of a domain; sends its templates where they are due.
    fn prepare(&mut self, domain: u32, now: Nanos, wall: Duration) {
        if !self.domains.contains_key(&domain) && self.domains.len() >= MOST_DOMAINS {
            let oldest = self.domains.iter().min_by_key(|(_, domain)| domain.used);
            if let Some(oldest) = oldest.map(|(id, _)| *id)
                && let Some(gone) = self.domains.remove(&oldest)
            {
                self.ready.extend(gone.open.map(Message::finish));
            }
        }
        let state = self.domains.entry(domain).or_default();
        state.used = now;
        if state.templates <= now {
            state.templates = now + self.settings.template_interval;
            self.ready.extend(state.open.take().map(Message::finish));
            let virtual_obs_id = !self.settings.virtual_obs_id.is_empty();
            let mut message = Message::new(wall, state.sequence, domain);
            for template in templates(virtual_obs_id) {
                if !message.has_room(wire::TEMPLATES, template.len()) {
                    let full = std::mem::replace(&mut message, Message::new(wall, state.sequence, domain));
                    self.ready.push(full.finish());
                }
                message.record(wire::TEMPLATES, &template);
            }
            self.ready.push(message.finish());
        }
    }

    /// Messages that are due. `wall` is the time since 1970.
    pub fn run(&mut self, now: Nanos, wall: Duration) -> Vec<Vec<u8>> {
        self.end_old(now, wall);
        if self.stats_due <= now {
            self.stats_due = now + self.settings.stats_interval;
            // They are data records of a domain that may have flows, too (RFC 7011 §3.1).
            let domain = self.domains.entry(template::OWN_DOMAIN).or_default();
            domain.used = now;
            let (sequence, lost) = (domain.sequence, self.statistics.lost_records);
            domain.sequence = sequence.wrapping_add(1);
            self.ready.extend(domain.open.take().map(Message::finish));
            self.ready.push(template::options(wall, sequence));
            self.ready.push(template::own_counts(wall, sequence, lost));
        }
        for domain in self.domains.values_mut() {
            self.ready.extend(domain.open.take().map(Message::finish));
        }
        std::mem::take(&mut self.ready)
    }

    /// Ends all flows; the messages.
    pub fn flush(&mut self, now: Nanos, wall: Duration) -> Vec<Vec<u8>> {
        while !self.order.is_empty() {
            self.end(End::Forced, now, wall);
        }
        self.run(now, wall)
    }

    /// When [`Exporter::run`] has something to do next.
    pub fn next(&self) -> Nanos {
        let waits = !self.ready.is_empty() || self.domains.values().any(|domain| domain.open.is_some());
        match (waits, self.order.front()) {
            (true, _) => Nanos::ZERO,
            (false, Some((began, _))) => self.stats_due.min(*began + self.settings.active_timeout),
            (false, None) => self.stats_due,
        }
    }
}

#[cfg(test)]
mod tests;
