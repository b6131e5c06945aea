//! `stp/show` and `rstp/show`, as Open vSwitch prints them.

use super::rows::Protocol;
use super::{Machine, Tree, Trees};
use nanos::Nanos;
use protocols::stp::wire::{BridgeId, PortId, Times};
use protocols::{rstp, stp};
use std::fmt::Write;

impl Trees {
    /// The trees of a protocol, of one bridge or of all. `None` if the bridge has no such tree.
    pub(crate) fn show(&self, protocol: Protocol, bridge: Option<&str>, now: Nanos) -> Option<String> {
        let trees = self.bridges.iter().filter(|(name, tree)| {
            tree.machine.protocol() == protocol && bridge.is_none_or(|bridge| bridge == name.as_str())
        });
        let shown: Vec<String> = trees.map(|(name, tree)| tree.show(name, now)).collect();
        (bridge.is_none() || !shown.is_empty()).then(|| shown.concat())
    }
}

/// What both protocols show of a bridge.
struct Shown {
    id: BridgeId,
    root: BridgeId,
    root_path_cost: u32,
    root_port: Option<u32>,
    times: Times,
    own_times: Times,
}

/// A line of the table of ports.
struct Line {
    interface: String,
    role: &'static str,
    state: &'static str,
    cost: u32,
    priority: u16,
    number: u16,
}

impl Tree {
    fn show(&self, name: &str, now: Nanos) -> String {
        let mut out = format!("---- {name} ----\n");
        match &self.machine {
            Machine::Stp(stp) => {
                let status = stp.status();
                let shown = Shown {
                    id: status.id,
                    root: status.root,
                    root_path_cost: status.root_path_cost,
                    root_port: status.root_port,
                    times: status.times,
                    own_times: status.own_times,
                };
                self.write_bridge(&mut out, &shown, "stp-priority  ");
                // Ports without a link have no part in the tree.
                let ports = stp.ports(now).filter(|(_, port)| port.state != stp::State::Disabled);
                let lines = ports.filter_map(|(number, port)| {
                    Some(Line {
                        interface: self.ports.get(&number)?.interface.clone(),
                        role: stp_role(port.role),
                        state: stp_state(port.state),
                        cost: port.cost.into(),
                        priority: port.id.0 >> 8,
                        number: port.id.0 & 0xff,
                    })
                });
                write_ports(&mut out, lines.collect(), 5);
            }
            Machine::Rstp(rstp) => {
                let status = rstp.status();
                let shown = Shown {
                    id: status.id,
                    root: status.root.root,
                    root_path_cost: status.root.cost,
                    root_port: status.root_port,
                    times: status.times,
                    own_times: status.own_times,
                };
                self.write_bridge(&mut out, &shown, "stp-priority    ");
                let lines = rstp.ports(now).filter_map(|(number, port)| {
                    Some(Line {
                        interface: self.ports.get(&number)?.interface.clone(),
                        role: rstp_role(port.role),
                        state: rstp_state(port.state),
                        cost: port.cost,
                        priority: port.id.0 >> 12 << 4,
                        number: port.id.0 & 0xfff,
                    })
                });
                write_ports(&mut out, lines.collect(), 8);
            }
        }
        out
    }

    fn write_bridge(&self, out: &mut String, shown: &Shown, priority: &str) {
        let id = |out: &mut String, id: BridgeId, times: &Times| {
            let seconds = |time| Times::duration(time).as_secs();
            let _ = write!(
                out,
                "  {priority}{}\n  stp-system-id   {}\n  stp-hello-time  {}s\n  stp-max-age     {}s\n  stp-fwd-delay   {}s\n",
                id.priority(),
                id.mac(),
                seconds(times.hello_time),
                seconds(times.max_age),
                seconds(times.forward_delay)
            );
        };
        out.push_str("Root ID:\n");
        id(out, shown.root, &shown.times);
        match shown.root_port {
            None => out.push_str("  This bridge is the root\n"),
            Some(port) => {
                let port = self.ports.get(&port).map_or("", |port| &port.interface);
                let cost = shown.root_path_cost;
                let _ = write!(out, "  root-port       {port}\n  root-path-cost  {cost}\n");
            }
        }
        out.push_str("\nBridge ID:\n");
        id(out, shown.id, &shown.own_times);
    }
}

/// The table of ports, in the order of their numbers.
fn write_ports(out: &mut String, mut lines: Vec<Line>, width: usize) {
    lines.sort_by_key(|line| line.number);
    let rule = "-".repeat(width);
    let _ = write!(
        out,
        "\n  Interface  Role       State      {:<width$} Pri.Nbr \n  ---------- ---------- ---------- {rule} -------\n",
        "Cost"
    );
    for line in lines {
        // Values that fill their column touch the next one, as in Open vSwitch.
        let cost = match width {
            5 => format!("{:<5} ", line.cost),
            _ => format!("{:<9}", line.cost),
        };
        let _ = writeln!(
            out,
            "  {:<10} {:<10} {:<10} {cost}{}.{}",
            line.interface, line.role, line.state, line.priority, line.number
        );
    }
    out.push('\n');
}

pub(super) fn stp_role(role: stp::Role) -> &'static str {
    match role {
        stp::Role::Root => "root",
        // Also a port without a link, as in Open vSwitch.
        stp::Role::Designated | stp::Role::Disabled => "designated",
        stp::Role::Alternate => "alternate",
    }
}

pub(super) fn stp_state(state: stp::State) -> &'static str {
    match state {
        stp::State::Disabled => "disabled",
        stp::State::Blocking => "blocking",
        stp::State::Listening => "listening",
        stp::State::Learning => "learning",
        stp::State::Forwarding => "forwarding",
    }
}

pub(super) fn rstp_role(role: rstp::Role) -> &'static str {
    match role {
        rstp::Role::Disabled => "Disabled",
        rstp::Role::Root => "Root",
        rstp::Role::Designated => "Designated",
        rstp::Role::Alternate => "Alternate",
        rstp::Role::Backup => "Backup",
    }
}

pub(super) fn rstp_state(state: rstp::State) -> &'static str {
    match state {
        // A port without a link discards, as in Open vSwitch.
        rstp::State::Disabled | rstp::State::Discarding => "Discarding",
        rstp::State::Learning => "Learning",
        rstp::State::Forwarding => "Forwarding",
    }
}

/// As `8.000.aabbccddeeff`: four bits of priority, twelve of the system's extension, the address.
pub(super) fn rstp_id(id: BridgeId) -> String {
    let priority = id.priority();
    format!(
        "{:x}.{:03x}.{:012x}",
        priority >> 12,
        priority & 0xfff,
        id.mac().to_u64()
    )
}

/// As four hex digits.
pub(super) fn rstp_port_id(id: PortId) -> String {
    format!("{:04x}", id.0)
}
