//! The maintenance point of one interface.
//!
//! It sends a message at every interval. Every three and a half intervals it looks which other ends
//! it has heard since the last look, and what was wrong with their messages.

use super::settings::{Config, VlanTagging};
use super::wire::Message;
use crate::random::Random;
use core::fmt;
use core::time::Duration;
use nanos::Nanos;
use std::collections::BTreeMap;
use wire::{Vid, VlanTag};

/// Other ends that a maintenance point keeps at most.
pub const MOST_REMOTES: usize = 256;

/// In demand mode one message has to come in so many intervals, whatever data comes.
const DEMAND_INTERVALS: u32 = 100;

/// Looks between two computations of the health.
const HEALTH_LOOKS: u32 = 6;

/// What is wrong with an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults(u8);

impl Faults {
    /// Nothing.
    pub const NONE: Faults = Faults(0);
    /// No other end is heard.
    pub const RECV: Faults = Faults(1);
    /// Another end hears nobody.
    pub const RDI: Faults = Faults(2);
    /// A message of another maintenance association came.
    pub const MAID: Faults = Faults(4);
    /// A message with this point's own number came.
    pub const LOOPBACK: Faults = Faults(8);
    /// More than [`MOST_REMOTES`] ends sent messages.
    pub const OVERFLOW: Faults = Faults(16);
    /// An administrator says so.
    pub const OVERRIDE: Faults = Faults(32);

    const NAMES: [&'static str; 6] = ["recv", "rdi", "maid", "loopback", "overflow", "override"];

    /// Whether nothing is wrong.
    pub fn is_none(self) -> bool {
        self == Faults::NONE
    }

    /// The names of the faults in `cfm_fault_status`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let set = move |(bit, _): &(usize, &'static str)| self.0 & (1 << bit) != 0;
        Faults::NAMES.into_iter().enumerate().filter(set).map(|(_, name)| name)
    }

    fn add(&mut self, other: Faults) {
        self.0 |= other.0;
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names().collect();
        f.write_str(&names.join(" "))
    }
}

/// Another end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    /// Heard since the last look.
    pub(super) heard: bool,
    /// Operationally up.
    pub(super) up: bool,
    /// Messages without a fault since the last computation of the health.
    healthy: u32,
    /// How long it had not been heard at the last look.
    silent: Duration,
}

/// What the database shows of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// `cfm_fault_status`.
    pub faults: Faults,
    /// `cfm_flap_count`.
    pub flap_count: u64,
    /// `cfm_health`, in percent; `None` if it is not known.
    pub health: Option<u8>,
    /// `cfm_remote_mpids`: the ends heard before the last look.
    pub remotes: Vec<u64>,
    /// `cfm_remote_opstate`: whether all other ends are operationally up; extended mode only.
    pub remote_up: Option<bool>,
}

/// Frames of a maintenance point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages received.
    pub rx: u64,
    /// Frames that were refused, and changed nothing else.
    pub refused: u64,
    /// Messages with another interval than this end's. As in Open vSwitch, that is no fault.
    pub other_interval: u64,
    /// Messages sent.
    pub tx: u64,
}

/// A maintenance point.
#[derive(Debug)]
pub struct MaintenancePoint {
    pub(super) config: Config,
    pub(super) remotes: BTreeMap<u64, Remote>,
    /// The faults at the last look, and those since.
    faults: Faults,
    received: Faults,
    pub(super) remote_up: bool,
    pub(super) health: Option<u8>,
    looks: u32,
    heard: Vec<u64>,
    /// There was a look.
    booted: bool,
    flap_count: u64,
    pub(super) forced: Option<bool>,
    sequence: u32,
    pub(super) next_tx: Nanos,
    pub(super) next_look: Nanos,
    /// Packets that the interface had received at the last look.
    rx_packets: u64,
    random: Random,
    counters: Counters,
    frame: Option<Vec<u8>>,
    reported: Option<Status>,
}

impl MaintenancePoint {
    /// A maintenance point that is new. `seed` is for random VLANs.
    pub fn new(config: &Config, seed: u64, now: Nanos) -> MaintenancePoint {
        let mut point = MaintenancePoint {
            config: config.clone(),
            remotes: BTreeMap::new(),
            faults: Faults::NONE,
            received: Faults::NONE,
            remote_up: true,
            health: None,
            looks: 0,
            heard: Vec::new(),
            booted: false,
            flap_count: 0,
            forced: None,
            sequence: 0,
            next_tx: now,
            next_look: now + config.patience(),
            rx_packets: 0,
            random: Random(seed),
            counters: Counters::default(),
            frame: None,
            reported: None,
        };
        point.transmit(now);
        point
    }

    /// Applies settings. A new interval begins at once.
    pub fn configure(&mut self, config: &Config, now: Nanos) {
        let before = std::mem::replace(&mut self.config, config.clone());
        if before.interval != config.interval {
            self.next_look = now + config.patience();
            self.transmit(now);
        }
    }

    /// Takes a frame, from the Ethernet header on.
    pub fn receive(&mut self, frame: &[u8]) {
        let Ok(message) = Message::parse(frame) else {
            self.counters.refused += 1;
            return;
        };
        self.counters.rx += 1;
        if !message.of_association {
            return self.received.add(Faults::MAID);
        }
        let extended = self.config.extended;
        let point = match extended {
            true => message.extended_point,
            false => message.point.into(),
        };
        let mut faults = Faults::NONE;
        let interval = self.config.interval;
        let same_millis = !extended || message.interval != 0 || u32::from(message.interval_ms) == interval.millis;
        self.counters.other_interval += u64::from(message.interval != interval.code || !same_millis);
        if message.remote_defect {
            faults.add(Faults::RDI);
        }
        if point == self.config.point {
            faults.add(Faults::LOOPBACK);
        }
        let known = self.remotes.len();
        let remote = match self.remotes.get_mut(&point) {
            Some(remote) => remote,
            None if known < MOST_REMOTES => self.remotes.entry(point).or_insert(Remote {
                heard: false,
                up: true,
                healthy: 0,
                silent: Duration::ZERO,
            }),
            None => return self.received.add(Faults::OVERFLOW),
        };
        remote.heard = true;
        remote.up = !(extended && message.down);
        remote.healthy += u32::from(faults.is_none());
        self.received.add(faults);
    }

    /// Runs the timers that are due. `rx_packets` is the number of packets that the interface has
    /// received; it matters in demand mode only.
    pub fn tick(&mut self, rx_packets: u64, now: Nanos) {
        if self.next_look <= now {
            self.look(rx_packets);
            self.next_look = now + self.config.patience();
        }
        if self.next_tx <= now {
            self.transmit(now);
        }
    }

    /// Whether the next [`MaintenancePoint::tick`] reads the number of packets received.
    pub fn wants_count(&self, now: Nanos) -> bool {
        self.is_demanding() && self.next_look <= now
    }

    fn is_demanding(&self) -> bool {
        self.config.demand && self.config.extended
    }

    /// When [`MaintenancePoint::tick`] is due.
    pub fn next_event(&self) -> Nanos {
        self.next_tx.min(self.next_look)
    }

    /// The frame to send.
    pub fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.frame.take()
    }

    /// Overrides whether there is a fault, or no more.
    pub fn force(&mut self, fault: Option<bool>) {
        self.forced = fault;
    }

    /// What is wrong.
    pub fn faults(&self) -> Faults {
        match self.forced {
            Some(true) => Faults::OVERRIDE,
            Some(false) => Faults::NONE,
            None => self.faults,
        }
    }

    /// Whether the interface may carry traffic.
    pub fn is_alive(&self) -> bool {
        self.faults().is_none() && (self.remote_up || !self.config.extended)
    }

    /// What the database shows.
    pub fn status(&self) -> Status {
        Status {
            faults: self.faults(),
            flap_count: self.flap_count,
            health: self.health,
            remotes: self.heard.clone(),
            remote_up: self.config.extended.then_some(self.remote_up),
        }
    }

    /// Whether [`MaintenancePoint::status`] has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        let status = self.status();
        let changed = self.reported.as_ref() != Some(&status);
        self.reported = Some(status);
        changed
    }

    /// What has become of frames.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn look(&mut self, rx_packets: u64) {
        let before = std::mem::take(&mut self.faults);
        self.faults = std::mem::take(&mut self.received);
        if self.looks == HEALTH_LOOKS {
            self.health = self.measure();
            self.looks = 0;
        }
        self.looks += 1;
        let data = rx_packets > std::mem::replace(&mut self.rx_packets, rx_packets);
        let excused = self.is_demanding() && data && self.remotes.len() == 1;
        let (patience, silence) = (
            self.config.patience(),
            self.config.interval.duration() * DEMAND_INTERVALS,
        );
        for remote in self.remotes.values_mut() {
            remote.silent = if remote.heard {
                Duration::ZERO
            } else {
                remote.silent + patience
            };
        }
        self.heard = self
            .remotes
            .iter()
            .filter(|(_, remote)| remote.heard)
            .map(|(point, _)| *point)
            .collect();
        self.remotes
            .retain(|_, remote| remote.heard || excused && remote.silent <= silence);
        let mut heard = self.remotes.values().filter(|remote| remote.heard).peekable();
        if heard.peek().is_some() {
            self.remote_up = heard.all(|remote| remote.up);
        }
        self.remotes.values_mut().for_each(|remote| remote.heard = false);
        if self.remotes.is_empty() {
            self.faults.add(Faults::RECV);
        }
        // Other faults than before count, too, as in Open vSwitch.
        if before != self.faults {
            self.flap_count += 1;
        }
        self.booted = true;
    }

    /// The health of the only other end, in percent of the messages that it ought to have sent.
    fn measure(&mut self) -> Option<u8> {
        let alone = self.remotes.len() <= 1;
        let expected = HEALTH_LOOKS * 7 / 2;
        let mut received = 0;
        for remote in self.remotes.values_mut() {
            received = std::mem::take(&mut remote.healthy);
        }
        alone.then(|| (received.saturating_mul(100) / expected).min(100) as u8)
    }

    fn transmit(&mut self, now: Nanos) {
        let config = &self.config;
        self.sequence = self.sequence.wrapping_add(1);
        let extended = config.extended;
        let message = Message {
            remote_defect: self.booted && self.remotes.is_empty(),
            interval: config.interval.code,
            sequence: self.sequence,
            point: match extended {
                // Not looked at; it only has to differ.
                true => (config.point ^ config.point >> 16 ^ config.point >> 32 ^ config.point >> 48) as u16,
                false => config.point as u16,
            },
            of_association: true,
            interval_ms: match config.interval.code {
                0 => config.interval.millis as u16,
                _ => 0,
            },
            extended_point: if extended { config.point } else { 0 },
            down: extended && !config.up,
        };
        let vid = match config.vlan {
            VlanTagging::Vlan(vid) => vid,
            VlanTagging::Random => Vid::from_tci(self.random.next() as u16),
        };
        let tag = (vid != Vid::NONE || config.priority != 0).then(|| {
            let [kind_high, kind_low, high, low] = VlanTag::ctag(vid).to_bytes();
            VlanTag::from_bytes([kind_high, kind_low, high | (config.priority & 7) << 5, low])
        });
        self.frame = Some(message.emit(config.mac, config.group(), tag));
        self.counters.tx += 1;
        self.next_tx = now + config.interval.duration();
    }
}
