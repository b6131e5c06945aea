//! What bridges tell each other: Configuration BPDUs and notifications of topology changes.

use super::machine::{State, Stp};
use super::timers::{Age, HOLD_TIME, MESSAGE_AGE_INCREMENT};
use super::wire::{Bpdu, Message, Times};
use nanos::Nanos;

impl Stp {
    /// §8.7.1.
    pub(super) fn received_config(&mut self, number: u32, message: &Message, ack: bool, now: Nanos) {
        let was_root = self.is_root();
        if self.supersedes(number, message) {
            self.record_config_information(number, message, now);
            self.configuration_update();
            self.port_state_selection(now);
            if was_root && !self.is_root() {
                self.hello_at = None;
                if self.detected {
                    self.change_until = None;
                    self.transmit_tcn();
                    self.tcn_at = Some(now + Times::duration(self.own.hello_time));
                }
            }
            if self.root_port == Some(number) {
                self.record_config_timeout_values(message, now);
                self.config_bpdu_generation(now);
                if ack {
                    self.detected = false;
                    self.tcn_at = None;
                }
            }
        } else if self.is_designated(&self.ports[&number]) {
            // Reply.
            self.transmit_config(number, now);
        }
    }

    /// §8.7.2.
    pub(super) fn received_tcn(&mut self, number: u32, now: Nanos) {
        if self.is_designated(&self.ports[&number]) {
            self.topology_change_detection(now);
            self.port(number).acknowledge = true;
            self.transmit_config(number, now);
        }
    }

    /// §8.7.4.
    pub(super) fn message_age_expired(&mut self, number: u32, now: Nanos) {
        self.become_designated(number);
        self.update(now);
    }

    /// §8.6.1.
    pub(super) fn transmit_config(&mut self, number: u32, now: Nanos) {
        let age = self.root_port.map(|root| {
            let age = self.ports[&root].age.map(|age| age.value(now)).unwrap_or_default();
            age + MESSAGE_AGE_INCREMENT
        });
        let (root, cost, bridge, mut times) = (self.root, self.root_path_cost, self.id, self.times);
        let topology_change = self.topology_change;
        times.message_age = Times::units(age.unwrap_or_default());
        let port = self.port(number);
        if port.hold_until.is_some() {
            port.config_pending = true;
            return;
        }
        port.config_pending = false;
        if times.message_age >= times.max_age {
            return;
        }
        let message = Message {
            root,
            cost,
            bridge,
            port: port.config.id,
            times,
            topology_change,
        };
        let ack = std::mem::take(&mut port.acknowledge);
        port.hold_until = Some(now + HOLD_TIME);
        self.send(number, Bpdu::Config(message, ack));
    }

    /// §8.6.6.
    pub(super) fn transmit_tcn(&mut self) {
        if let Some(root) = self.root_port {
            self.send(root, Bpdu::Tcn);
        }
    }

    pub(super) fn send(&mut self, number: u32, bpdu: Bpdu) {
        let port = self.port(number);
        if !port.gate.guards.bpdu_filter {
            port.tx += 1;
            let frame = bpdu.emit(port.config.mac);
            self.frames.push_back((number, frame));
        }
    }

    /// §8.6.2.2.
    pub(super) fn supersedes(&self, number: u32, message: &Message) -> bool {
        let port = &self.ports[&number];
        let theirs = (message.root, message.cost, message.bridge);
        match theirs.cmp(&(port.root, port.cost, port.bridge)) {
            core::cmp::Ordering::Less => true,
            core::cmp::Ordering::Greater => false,
            core::cmp::Ordering::Equal => message.bridge != self.id || message.port <= port.port,
        }
    }

    /// §8.6.2.
    pub(super) fn record_config_information(&mut self, number: u32, message: &Message, now: Nanos) {
        let port = self.port(number);
        (port.root, port.cost) = (message.root, message.cost);
        (port.bridge, port.port) = (message.bridge, message.port);
        port.age = Some(Age::start(Times::duration(message.times.message_age), now));
    }

    /// §8.6.3.
    pub(super) fn record_config_timeout_values(&mut self, message: &Message, now: Nanos) {
        self.times = message.times.bounded();
        self.set_topology_change(message.topology_change, now);
    }

    /// §8.6.4.
    pub(super) fn config_bpdu_generation(&mut self, now: Nanos) {
        let numbers: Vec<u32> = self.ports.keys().copied().collect();
        for number in numbers {
            let port = &self.ports[&number];
            if port.state != State::Disabled && self.is_designated(port) {
                self.transmit_config(number, now);
            }
        }
    }
}
