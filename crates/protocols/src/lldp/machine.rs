//! LLDP of a switch's interfaces (IEEE 802.1AB-2016 clause 9).

use super::auto_attach::{Assignment, Element, Isid, MOST_ASSIGNMENTS, Status};
use super::neighbors::{Heard, MOST, Neighbor, Neighbors};
use super::timers::{TTL, TX_CREDIT, TX_CREDIT_INTERVAL, TX_INTERVAL};
use super::wire::{Capabilities, Id, Lldpdu};
use nanos::Nanos;
use std::collections::{BTreeMap, VecDeque};
use wire::{MacAddr, Vid};

/// The interfaces that speak LLDP, by name. The name is also the port identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// What each says.
    pub ports: BTreeMap<String, PortConfig>,
}

/// What an interface says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortConfig {
    /// Its address.
    pub mac: MacAddr,
    /// The address of its bridge, which identifies the system.
    pub chassis: MacAddr,
    /// Whether its link works.
    pub up: bool,
    /// The name of the system; empty for none.
    pub system_name: String,
    /// The description of the system; empty for none.
    pub system_description: String,
    /// VLANs by the services to which auto-attach maps them. The first
    /// [`MOST_ASSIGNMENTS`](super::auto_attach::MOST_ASSIGNMENTS) are sent.
    pub mappings: BTreeMap<Isid, Vid>,
}

/// What an interface has seen (§9.2.6), by the names of `autoattach/statistics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// LLDPDUs sent.
    pub tx: u64,
    /// Frames received.
    pub rx: u64,
    /// Frames refused because they were malformed.
    pub discarded: u64,
    /// TLVs that were skipped because they are unknown.
    pub unrecognized: u64,
    /// Neighbors forgotten because their time was over.
    pub ageouts: u64,
    /// Neighbors found.
    pub inserts: u64,
    /// Neighbors that took their leave.
    pub deletes: u64,
    /// Neighbors that there was no room for.
    pub drops: u64,
}

/// The protocol of a switch's interfaces.
#[derive(Debug, Default)]
pub struct Lldp {
    ports: BTreeMap<String, Port>,
    /// Neighbors of all interfaces.
    neighbors: usize,
    frames: VecDeque<(String, Vec<u8>)>,
}

#[derive(Debug)]
struct Port {
    config: PortConfig,
    counters: Counters,
    neighbors: Neighbors,
    /// When the next LLDPDU is due, if the link works.
    next_tx: Nanos,
    credit: u32,
    /// When `credit` was counted.
    credited: Nanos,
}

impl Lldp {
    /// Applies a configuration. Interfaces that are new or say something new send at once, and
    /// those that end take their leave.
    pub fn configure(&mut self, config: Config, now: Nanos) {
        let gone: Vec<String> = self
            .ports
            .keys()
            .filter(|name| !config.ports.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            if let Some(port) = self.ports.remove(&name) {
                self.neighbors -= port.neighbors.len();
                if port.config.up {
                    let last = Lldpdu::new(Id::chassis(port.config.chassis), Id::port(&name), 0);
                    self.frames.push_back((name, last.emit(port.config.mac)));
                }
            }
        }
        for (name, config) in config.ports {
            let port = self.ports.entry(name).or_insert_with(|| Port {
                config: PortConfig::default(),
                counters: Counters::default(),
                neighbors: Neighbors::default(),
                next_tx: now,
                credit: TX_CREDIT,
                credited: now,
            });
            if port.config != config {
                port.config = config;
                port.next_tx = now;
            }
        }
        self.tick(now);
    }

    /// Takes a frame from the Ethernet header on.
    pub fn receive(&mut self, name: &str, frame: &[u8], now: Nanos) {
        let Some(port) = self.ports.get_mut(name) else {
            return;
        };
        port.counters.rx += 1;
        let Ok(pdu) = Lldpdu::parse(frame) else {
            port.counters.discarded += 1;
            return;
        };
        port.counters.unrecognized += pdu.unrecognized;
        match port.neighbors.hear(pdu, now) {
            Heard::New => {
                port.counters.inserts += 1;
                self.neighbors += 1;
                if self.neighbors > MOST {
                    self.evict();
                }
            }
            Heard::Left => {
                port.counters.deletes += 1;
                self.neighbors -= 1;
            }
            Heard::Full => port.counters.drops += 1,
            Heard::Known | Heard::Nothing => {}
        }
    }

    /// Makes room: the interface with the most neighbors loses its oldest one.
    fn evict(&mut self) {
        if let Some(port) = self.ports.values_mut().max_by_key(|port| port.neighbors.len()) {
            port.neighbors.evict();
            port.counters.drops += 1;
            self.neighbors -= 1;
        }
    }

    /// Sends what is due, and forgets neighbors whose time is over.
    pub fn tick(&mut self, now: Nanos) {
        for (name, port) in &mut self.ports {
            let expired = port.neighbors.expire(now);
            port.counters.ageouts += expired as u64;
            self.neighbors -= expired;
            if !port.config.up || port.next_tx > now {
                continue;
            }
            if port.take_credit(now) {
                port.counters.tx += 1;
                port.next_tx = now + TX_INTERVAL;
                self.frames
                    .push_back((name.clone(), port.says(name).emit(port.config.mac)));
            } else {
                port.next_tx = port.credited + TX_CREDIT_INTERVAL;
            }
        }
    }

    /// When [`Lldp::tick`] is due.
    pub fn next_event(&self) -> Option<Nanos> {
        let due = |port: &Port| {
            let sends = port.config.up.then_some(port.next_tx);
            sends.into_iter().chain(port.neighbors.next_expiry()).min()
        };
        self.ports.values().filter_map(due).min()
    }

    /// The next frame to send, and its interface.
    pub fn take_frame(&mut self) -> Option<(String, Vec<u8>)> {
        self.frames.pop_front()
    }

    /// The interfaces that speak LLDP.
    pub fn ports(&self) -> impl Iterator<Item = &str> {
        self.ports.keys().map(String::as_str)
    }

    /// What an interface has seen.
    pub fn counters(&self, name: &str) -> Option<Counters> {
        self.ports.get(name).map(|port| port.counters)
    }

    /// The neighbors of an interface, in the order of their identifiers.
    pub fn neighbors(&self, name: &str) -> impl Iterator<Item = &Neighbor> {
        self.ports.get(name).into_iter().flat_map(|port| port.neighbors.iter())
    }

    /// The mappings of an interface, and what became of them.
    pub fn assignments(&self, name: &str) -> impl Iterator<Item = Assignment> {
        let port = self.ports.get(name);
        port.into_iter().flat_map(|port| {
            port.config.mappings.iter().map(|(isid, vlan)| {
                let answers = port.neighbors.iter().flat_map(|neighbor| &neighbor.pdu.assignments);
                let answer = answers.filter(|answer| answer.isid == *isid).last();
                Assignment {
                    status: answer.map_or(Status::PENDING, |answer| answer.status),
                    vlan: *vlan,
                    isid: *isid,
                }
            })
        })
    }
}

impl Port {
    /// Takes one LLDPDU from the credit.
    fn take_credit(&mut self, now: Nanos) -> bool {
        let passed = now.since(self.credited).as_secs() as u32;
        self.credit = self.credit.saturating_add(passed).min(TX_CREDIT);
        self.credited += TX_CREDIT_INTERVAL * passed;
        let has = self.credit > 0;
        self.credit -= u32::from(has);
        has
    }

    /// What it says.
    fn says(&self, name: &str) -> Lldpdu {
        let config = &self.config;
        let mut pdu = Lldpdu::new(Id::chassis(config.chassis), Id::port(name), TTL);
        pdu.system_name = config.system_name.clone().into_bytes();
        pdu.system_description = config.system_description.clone().into_bytes();
        pdu.capabilities = Some(Capabilities::BRIDGE);
        pdu.element = Some(Element::virtual_switch(config.chassis));
        let mappings = config.mappings.iter().take(MOST_ASSIGNMENTS);
        let request = |(isid, vlan): (&Isid, &Vid)| Assignment {
            status: Status::REQUEST,
            vlan: *vlan,
            isid: *isid,
        };
        pdu.assignments = mappings.map(request).collect();
        pdu
    }
}
