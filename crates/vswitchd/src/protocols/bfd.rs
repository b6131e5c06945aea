//! BFD: a session for each interface that asks for one.

pub(crate) mod rows;

use super::links::Watcher;
use super::ports::PortFacts;
use super::{Service, World};
use crate::desired::Desired;
use dp::PuntReason;
use nanos::Nanos;
use protocols::bfd::wire::{State, diagnostic};
use protocols::bfd::{Config, Identity, Session, Status};
use protocols::random::Random;
use rows::Wanted;
use std::collections::BTreeMap;
use telemetry::info_limited;

telemetry::counters! {
    /// BFD frames refused: forged, for another session, or not well-formed (RFC 5880 §6.8.6).
    REFUSED = "bfd_refused";
}

/// Source ports of sessions (RFC 5881 §4).
const FIRST_SOURCE_PORT: u16 = 49152;
const SOURCE_PORTS: u32 = 16384;

/// All sessions, by interface.
pub(crate) struct Sessions {
    sessions: BTreeMap<String, Entry>,
    /// For discriminators and jitter.
    random: Random,
    /// Sessions so far.
    made: u32,
}

struct Entry {
    session: Session,
    wanted: Wanted,
    /// The state that the log knows.
    logged: (State, u8),
}

impl Sessions {
    pub(crate) fn new(seed: u64) -> Sessions {
        Sessions {
            sessions: BTreeMap::new(),
            random: Random(seed),
            made: 0,
        }
    }

    /// What the database shows of an interface's session.
    pub(crate) fn status(&self, interface: &str) -> Option<Status> {
        self.sessions.get(interface).map(|entry| entry.session.status())
    }

    /// `bfd/show`.
    pub(crate) fn show(&self, interface: Option<&String>, now: Nanos) -> Result<String, String> {
        match interface {
            Some(name) => match self.sessions.get(name) {
                Some(entry) => Ok(entry.session.show(now)),
                None => Err("no such bfd object".to_owned()),
            },
            None => {
                let all = self.sessions.iter();
                Ok(all
                    .map(|(name, entry)| format!("---- {name} ----\n{}", entry.session.show(now)))
                    .collect())
            }
        }
    }

    /// `bfd/set-forwarding`, for one interface or all.
    pub(crate) fn force(
        &mut self,
        interface: Option<&String>,
        forwarding: Option<bool>,
        world: &mut World<'_>,
    ) -> Result<(), String> {
        if interface.is_some_and(|name| !self.sessions.contains_key(name)) {
            return Err("no such BFD object".to_owned());
        }
        for (name, entry) in &mut self.sessions {
            if interface.is_none_or(|wanted| wanted == name) {
                entry.session.force(forwarding);
                entry.settle(name, world);
            }
        }
        Ok(())
    }

    fn configure(&mut self, name: &str, wanted: &Wanted, facts: &PortFacts, world: &mut World<'_>) {
        let config = Config {
            src_mac: wanted.src_mac.unwrap_or(facts.mac),
            ..wanted.config.clone()
        };
        let problems = |problems: &[String]| {
            for problem in problems {
                tracing::warn!(target: "bfd", "{name}: {problem}");
            }
        };
        if let Some(entry) = self.sessions.get_mut(name) {
            if entry.wanted != *wanted {
                problems(&wanted.problems);
                entry.wanted = wanted.clone();
            }
            entry.session.configure(&config, world.now);
            return entry.settle(name, world);
        }
        problems(&wanted.problems);
        let identity = self.identity();
        let mut entry = Entry {
            session: Session::new(&config, identity, world.now),
            wanted: wanted.clone(),
            logged: (State::Down, diagnostic::NONE),
        };
        entry.settle(name, world);
        self.sessions.insert(name.to_owned(), entry);
    }

    fn has(&self, discriminator: u32) -> bool {
        let mut sessions = self.sessions.values();
        sessions.any(|entry| entry.session.discriminator() == discriminator)
    }

    fn identity(&mut self) -> Identity {
        let src_port = FIRST_SOURCE_PORT + (self.made % SOURCE_PORTS) as u16;
        self.made += 1;
        let discriminator = loop {
            let discriminator = (self.random.next() >> 32) as u32;
            if discriminator != 0 && !self.has(discriminator) {
                break discriminator;
            }
        };
        Identity {
            discriminator,
            src_port,
            seed: self.random.next(),
        }
    }
}

impl Service for Sessions {
    fn takes(&self, reason: PuntReason) -> bool {
        reason == PuntReason::Bfd
    }

    fn follow(&mut self, desired: &Desired, world: &mut World<'_>) {
        let mut wanted: BTreeMap<&str, (&Wanted, &PortFacts)> = BTreeMap::new();
        let ports = world.ports;
        for (name, interface) in desired.interfaces() {
            if let (Some(bfd), Some(facts)) = (&interface.bfd, ports.get(name)) {
                wanted.insert(name, (bfd, facts));
            }
        }
        let gone: Vec<String> = self.sessions.keys().cloned().collect();
        for name in gone.into_iter().filter(|name| !wanted.contains_key(name.as_str())) {
            if let Some(entry) = self.sessions.remove(&name) {
                world.send_marked(&name, entry.session.end(), entry.wanted.oam);
                world.set_alive(&name, Watcher::Bfd, None);
                world.note_status();
            }
        }
        for (name, (wanted, facts)) in wanted {
            self.configure(name, wanted, facts, world);
        }
    }

    fn receive(&mut self, from: &PortFacts, frame: &[u8], world: &mut World<'_>) {
        let Some(entry) = self.sessions.get_mut(&from.interface) else {
            return;
        };
        let before = entry.session.counters().refused;
        entry.session.receive(frame, world.now);
        REFUSED.add(entry.session.counters().refused - before);
        entry.settle(&from.interface, world);
    }

    fn tick(&mut self, world: &mut World<'_>) {
        for (name, entry) in &mut self.sessions {
            if entry.session.next_event().is_some_and(|due| due <= world.now) {
                if entry.session.wants_count() {
                    entry.session.count(world.rx_packets(name), world.now);
                }
                entry.session.tick(world.now);
                entry.settle(name, world);
            }
        }
    }

    fn counted(&self, now: Nanos) -> Vec<&str> {
        let due = |entry: &Entry| entry.session.next_event().is_some_and(|due| due <= now);
        let counted = self
            .sessions
            .iter()
            .filter(|(_, entry)| due(entry) && entry.session.wants_count());
        counted.map(|(name, _)| name.as_str()).collect()
    }

    fn next_event(&self) -> Option<Nanos> {
        self.sessions
            .values()
            .filter_map(|entry| entry.session.next_event())
            .min()
    }
}

impl Entry {
    /// Sends what the session has to send, and tells what it says of the link.
    fn settle(&mut self, name: &str, world: &mut World<'_>) {
        if let Some(frame) = self.session.take_frame() {
            world.send_marked(name, frame, self.wanted.oam);
        }
        if self.session.take_changed() {
            world.set_alive(name, Watcher::Bfd, Some(self.session.is_forwarding()));
            world.note_status();
            self.log(name);
        }
    }

    fn log(&mut self, name: &str) {
        let status = self.session.status();
        let now = (status.state, status.diagnostic);
        let before = std::mem::replace(&mut self.logged, now);
        if before != now {
            info_limited!(
                target: "bfd",
                "{name}: BFD state change: {}->{} \"{}\"->\"{}\"",
                before.0.name(),
                now.0.name(),
                diagnostic::text(before.1),
                diagnostic::text(now.1)
            );
        }
    }
}
