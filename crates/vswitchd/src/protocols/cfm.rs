//! CFM: a maintenance point for each interface that asks for one.

pub(crate) mod rows;

use super::links::Watcher;
use super::ports::PortFacts;
use super::{Service, World};
use crate::desired::Desired;
use dp::PuntReason;
use nanos::Nanos;
use protocols::cfm::{Config, Faults, MaintenancePoint, Status};
use std::collections::BTreeMap;
use telemetry::info_limited;

telemetry::counters! {
    /// CFM frames refused because they are not well-formed continuity check messages.
    REFUSED = "cfm_refused";
    /// CFM messages whose sender has another interval.
    OTHER_INTERVAL = "cfm_other_interval";
}

/// All maintenance points, by interface.
pub(crate) struct Points {
    points: BTreeMap<String, Entry>,
    /// For random VLANs.
    seed: u64,
}

struct Entry {
    point: MaintenancePoint,
    /// What the log knows.
    logged: Faults,
}

impl Points {
    pub(crate) fn new(seed: u64) -> Points {
        Points {
            points: BTreeMap::new(),
            seed,
        }
    }

    /// What the database shows of an interface's maintenance point.
    pub(crate) fn status(&self, interface: &str) -> Option<Status> {
        self.points.get(interface).map(|entry| entry.point.status())
    }

    /// `cfm/show`.
    pub(crate) fn show(&self, interface: Option<&String>, now: Nanos) -> Result<String, String> {
        self.has(interface)?;
        let shown = self
            .points
            .iter()
            .filter(|(name, _)| interface.is_none_or(|wanted| wanted == *name));
        Ok(shown
            .map(|(name, entry)| format!("---- {name} ----\n{}", entry.point.show(now)))
            .collect())
    }

    /// `cfm/set-fault`, for one interface or all.
    pub(crate) fn force(
        &mut self,
        interface: Option<&String>,
        fault: Option<bool>,
        world: &mut World<'_>,
    ) -> Result<(), String> {
        self.has(interface)?;
        for (name, entry) in &mut self.points {
            if interface.is_none_or(|wanted| wanted == name) {
                entry.point.force(fault);
                entry.settle(name, world);
            }
        }
        Ok(())
    }

    fn has(&self, interface: Option<&String>) -> Result<(), String> {
        match interface.is_some_and(|name| !self.points.contains_key(name)) {
            true => Err("no such CFM object".to_owned()),
            false => Ok(()),
        }
    }
}

impl Service for Points {
    fn takes(&self, reason: PuntReason) -> bool {
        reason == PuntReason::Cfm
    }

    fn follow(&mut self, desired: &Desired, world: &mut World<'_>) {
        let ports = world.ports;
        let mut wanted: BTreeMap<&str, Config> = BTreeMap::new();
        for (name, interface) in desired.interfaces() {
            if let (Some(cfm), Some(facts)) = (&interface.cfm, ports.get(name)) {
                let config = Config {
                    mac: facts.mac,
                    ..cfm.clone()
                };
                wanted.insert(name, config);
            }
        }
        let names: Vec<String> = self.points.keys().cloned().collect();
        for name in names.iter().filter(|name| !wanted.contains_key(name.as_str())) {
            self.points.remove(name);
            world.set_alive(name, Watcher::Cfm, None);
            world.note_status();
        }
        for (name, config) in wanted {
            self.seed = self.seed.wrapping_add(1);
            let entry = self.points.entry(name.to_owned()).or_insert_with(|| Entry {
                point: MaintenancePoint::new(&config, self.seed, world.now),
                logged: Faults::NONE,
            });
            entry.point.configure(&config, world.now);
            entry.settle(name, world);
        }
    }

    fn receive(&mut self, from: &PortFacts, frame: &[u8], world: &mut World<'_>) {
        if let Some(entry) = self.points.get_mut(&from.interface) {
            let before = entry.point.counters();
            entry.point.receive(frame);
            let after = entry.point.counters();
            REFUSED.add(after.refused - before.refused);
            OTHER_INTERVAL.add(after.other_interval - before.other_interval);
            entry.settle(&from.interface, world);
        }
    }

    fn tick(&mut self, world: &mut World<'_>) {
        for (name, entry) in &mut self.points {
            if entry.point.next_event() <= world.now {
                entry.point.tick(world.rx_packets(name), world.now);
                entry.settle(name, world);
            }
        }
    }

    fn counted(&self, now: Nanos) -> Vec<&str> {
        let counted = self.points.iter().filter(|(_, entry)| entry.point.wants_count(now));
        counted.map(|(name, _)| name.as_str()).collect()
    }

    fn next_event(&self) -> Option<Nanos> {
        self.points.values().map(|entry| entry.point.next_event()).min()
    }
}

impl Entry {
    /// Sends what the maintenance point has to send, and tells what it says of the link.
    fn settle(&mut self, name: &str, world: &mut World<'_>) {
        if let Some(frame) = self.point.take_frame() {
            world.send(name, frame);
        }
        if !self.point.take_changed() {
            return;
        }
        world.set_alive(name, Watcher::Cfm, Some(self.point.is_alive()));
        world.note_status();
        let faults = self.point.faults();
        let before = std::mem::replace(&mut self.logged, faults);
        if before != faults {
            info_limited!(target: "cfm", "{name}: CFM faults changed from [{before}] to [{faults}].");
        }
    }
}
