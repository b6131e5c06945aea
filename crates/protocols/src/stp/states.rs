//! What ports do with data, by their roles, links and guards.

use super::Event;
use super::machine::{State, Stp};
use super::wire::Times;
use nanos::Nanos;

impl Stp {
    /// Takes part with a port whose link works, and ends it with another one.
    pub(super) fn follow_link(&mut self, number: u32, now: Nanos) {
        let port = self.port(number);
        let enable = port.config.up && !port.gate.disabled;
        match (port.state == State::Disabled, enable) {
            (true, true) => {
                self.become_designated(number);
                let port = self.port(number);
                port.acknowledge = false;
                port.config_pending = false;
                port.age = None;
                port.forward_at = None;
                port.hold_until = None;
                self.set_state(number, State::Blocking, now);
                self.port_state_selection(now);
            }
            (false, false) => self.disable(number, now),
            _ => {}
        }
    }

    /// §8.8.3.
    pub(super) fn disable(&mut self, number: u32, now: Nanos) {
        if self.port(number).state == State::Disabled {
            return;
        }
        let was_active = matches!(self.port(number).state, State::Learning | State::Forwarding);
        self.become_designated(number);
        self.set_state(number, State::Disabled, now);
        let port = self.port(number);
        port.acknowledge = false;
        port.config_pending = false;
        port.age = None;
        port.forward_at = None;
        if was_active {
            self.events.push_back(Event::Flush { port: number });
            self.topology_change_detection(now);
        }
        self.update(now);
    }

    /// A guard has acted on a port.
    pub(super) fn guard(&mut self, number: u32, now: Nanos) {
        self.follow_link(number, now);
        if self.port(number).state != State::Disabled {
            // What was known of the segment came from who claims the root.
            self.become_designated(number);
            self.update(now);
        }
    }

    /// §8.6.11.
    pub(super) fn port_state_selection(&mut self, now: Nanos) {
        let numbers: Vec<u32> = self.ports.keys().copied().collect();
        for number in numbers {
            let port = &self.ports[&number];
            let designated = self.is_designated(port);
            if port.state == State::Disabled {
                continue;
            }
            if port.gate.blocks() {
                self.make_blocking(number, now);
            } else if self.root_port == Some(number) {
                let port = self.port(number);
                port.config_pending = false;
                port.acknowledge = false;
                self.make_forwarding(number, now);
            } else if designated {
                self.port(number).age = None;
                self.make_forwarding(number, now);
            } else {
                let port = self.port(number);
                port.config_pending = false;
                port.acknowledge = false;
                self.make_blocking(number, now);
            }
        }
    }

    /// §8.6.12.
    pub(super) fn make_forwarding(&mut self, number: u32, now: Nanos) {
        if self.port(number).state == State::Blocking {
            self.set_state(number, State::Listening, now);
            let delay = Times::duration(self.times.forward_delay);
            self.port(number).forward_at = Some(now + delay);
        }
    }

    /// §8.6.13.
    pub(super) fn make_blocking(&mut self, number: u32, now: Nanos) {
        let state = self.port(number).state;
        if matches!(state, State::Disabled | State::Blocking) {
            return;
        }
        self.port(number).forward_at = None;
        self.set_state(number, State::Blocking, now);
        if matches!(state, State::Learning | State::Forwarding) {
            self.events.push_back(Event::Flush { port: number });
            self.topology_change_detection(now);
        }
    }

    /// §8.7.5.
    pub(super) fn forward_delay_expired(&mut self, number: u32, now: Nanos) {
        self.port(number).forward_at = None;
        match self.port(number).state {
            State::Listening => {
                self.set_state(number, State::Learning, now);
                let delay = Times::duration(self.times.forward_delay);
                self.port(number).forward_at = Some(now + delay);
            }
            State::Learning => {
                self.set_state(number, State::Forwarding, now);
                if self.ports.values().any(|port| port.bridge == self.id) {
                    self.topology_change_detection(now);
                }
            }
            _ => {}
        }
    }

    pub(super) fn set_state(&mut self, number: u32, state: State, now: Nanos) {
        let port = self.port(number);
        if port.state == state {
            return;
        }
        let does = |state| {
            (
                matches!(state, State::Learning | State::Forwarding),
                state == State::Forwarding,
            )
        };
        let (before, (learn, forward)) = (does(port.state), does(state));
        port.state = state;
        port.since = now;
        if before != (learn, forward) {
            self.events.push_back(Event::Port {
                port: number,
                learn,
                forward,
            });
        }
    }
}
