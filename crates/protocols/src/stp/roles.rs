//! The election: the root, the port on the way to it, and the ports that lead others to it.

use super::machine::{State, Stp};
use super::wire::{BridgeId, PortId, Times};
use nanos::Nanos;

impl Stp {
    /// Selects root, roles and states again.
    pub(super) fn update(&mut self, now: Nanos) {
        let was_root = self.root_port.is_none();
        self.configuration_update();
        self.port_state_selection(now);
        if self.root_port.is_none() && !was_root {
            self.become_root(now);
        }
    }

    pub(super) fn become_root(&mut self, now: Nanos) {
        self.times = self.own;
        self.topology_change_detection(now);
        self.tcn_at = None;
        self.config_bpdu_generation(now);
        self.hello_at = Some(now + Times::duration(self.times.hello_time));
    }

    /// §8.6.7.
    pub(super) fn configuration_update(&mut self) {
        self.root_selection();
        self.designated_port_selection();
    }

    /// §8.6.8.
    pub(super) fn root_selection(&mut self) {
        let candidates = self
            .ports
            .iter()
            .filter(|(_, port)| port.state != State::Disabled && !self.is_designated(port) && port.root < self.id);
        let best = candidates.min_by_key(|(_, port)| {
            let cost = port.cost.saturating_add(u32::from(port.config.cost));
            (port.root, cost, port.bridge, port.port, port.config.id)
        });
        (self.root_port, self.root, self.root_path_cost) = match best {
            Some((&number, port)) => (
                Some(number),
                port.root,
                port.cost.saturating_add(u32::from(port.config.cost)),
            ),
            None => (None, self.id, 0),
        };
    }

    /// §8.6.9.
    pub(super) fn designated_port_selection(&mut self) {
        let own = (self.root_path_cost, self.id);
        let numbers: Vec<u32> = self.ports.keys().copied().collect();
        for number in numbers {
            let port = &self.ports[&number];
            let mine = (own.0, own.1, port.config.id) < (port.cost, port.bridge, port.port);
            if self.is_designated(port) || port.root != self.root || mine {
                self.become_designated(number);
            }
        }
    }

    /// §8.6.10.
    pub(super) fn become_designated(&mut self, number: u32) {
        let (root, cost, bridge) = (self.root, self.root_path_cost, self.id);
        let port = self.port(number);
        (port.root, port.cost, port.bridge) = (root, cost, bridge);
        port.port = port.config.id;
    }

    /// §8.8.4.
    pub(super) fn set_bridge_id(&mut self, id: BridgeId, now: Nanos) {
        let was_root = self.is_root();
        let old = self.id;
        for port in self
            .ports
            .values_mut()
            .filter(|port| port.bridge == old && port.port == port.config.id)
        {
            port.bridge = id;
        }
        if was_root {
            self.root = id;
        }
        self.id = id;
        self.update(now);
    }

    /// §8.8.5.
    pub(super) fn set_port_id(&mut self, number: u32, old: PortId, now: Nanos) {
        let id = self.id;
        let port = self.port(number);
        let new = port.config.id;
        if port.bridge == id && port.port == old {
            port.port = new;
        } else if port.bridge == id && new < port.port {
            self.become_designated(number);
            self.port_state_selection(now);
        }
    }
}
