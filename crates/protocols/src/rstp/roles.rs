//! Which role each port has: the port role selection machine (IEEE 802.1D-2004 §17.28).

use super::machine::{Rstp, own_vector};
use super::port::{InfoIs, Role};
use super::wire::{PortId, Times, Vector};

impl Rstp {
    /// Selects the roles of all ports if one asks for it.
    pub(super) fn run_role_selection(&mut self) -> bool {
        if !self.ports.values().any(|port| port.reselect) {
            return false;
        }
        for port in self.ports.values_mut() {
            port.reselect = false;
        }
        self.update_roles();
        for port in self.ports.values_mut() {
            port.selected = true;
        }
        true
    }

    /// §17.21.25, updtRolesTree().
    fn update_roles(&mut self) {
        let id = self.id;
        // The best path by a port: its cost added, and by which port (§17.6).
        let paths = self.ports.iter().filter(|(_, port)| {
            let foreign = port.port_priority.bridge.mac() != id.mac();
            port.info_is == InfoIs::Received && foreign && !port.gate.blocks()
        });
        let best = paths
            .map(|(&number, port)| {
                let cost = port.port_priority.cost.saturating_add(port.config.cost);
                let vector = Vector {
                    cost,
                    ..port.port_priority
                };
                (vector, port.config.id, number)
            })
            .min();
        let own = own_vector(id);
        (self.root, self.root_port, self.root_port_id, self.root_times) = match best {
            Some((vector, port_id, number)) if vector < own => {
                let mut times = self.ports[&number].port_times;
                let age = times.message_age.saturating_add(Times::seconds(1));
                times.message_age = age;
                (vector, Some(number), port_id, times)
            }
            _ => (own, None, PortId(0), self.own),
        };
        for (&number, port) in &mut self.ports {
            port.designated_priority = Vector {
                root: self.root.root,
                cost: self.root.cost,
                bridge: id,
                port: port.config.id,
            };
            port.designated_times = Times {
                hello_time: self.own.hello_time,
                ..self.root_times
            };
            let stale = port.port_priority != port.designated_priority || port.port_times != port.designated_times;
            (port.selected_role, port.updt_info) = match port.info_is {
                InfoIs::Disabled => (Role::Disabled, false),
                InfoIs::Aged => (Role::Designated, true),
                InfoIs::Mine => (Role::Designated, stale),
                InfoIs::Received if port.gate.blocks() => (Role::Designated, true),
                InfoIs::Received if self.root_port == Some(number) => (Role::Root, false),
                InfoIs::Received if port.designated_priority < port.port_priority => (Role::Designated, true),
                InfoIs::Received if port.port_priority.bridge.mac() == id.mac() => (Role::Backup, false),
                InfoIs::Received => (Role::Alternate, false),
            };
        }
    }
}
