//! The kernel's bridge, set up by `ip`, `bridge` and `tc`.
//!
//! Where the kernel has VLAN filtering, a bridge of the topology that has VLANs is one such bridge.
//! Without VLAN filtering it is one bridge for each VLAN with the VLAN's ports, which has the same
//! effect while no port carries several VLANs.

mod setup;

use super::gauge::KernelGauge;
use super::kernel::{Part, lacks};
use super::kernel_drops;
use super::layout::{BridgeLayout, Layout, unfit};
use super::script::Script;
use super::{Gauge, MemberChange, Running, System};
use crate::bed::{Bed, command};
use crate::results::Loss;
use crate::scenario::Setup;
use crate::topology::{Control, QosKind, Topology, Tree};
use anyhow::{Result, bail};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// Linux's bridge.
pub(crate) struct LinuxBridge;

/// The `tc` words for a discipline at a device's root.
pub(crate) fn qdisc(kind: QosKind) -> &'static str {
    match kind {
        QosKind::Fifo => "pfifo_fast",
        QosKind::Sfq => "sfq perturb 10",
        QosKind::Codel => "codel",
        QosKind::FqCodel => "fq_codel",
        QosKind::Htb => "handle 1: htb default 1",
        QosKind::Hfsc => "handle 1: hfsc default 1",
    }
}

impl System for LinuxBridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn describe(&self) -> String {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        format!("the bridge of Linux {}", kernel.trim())
    }

    fn missing(&self, topology: &Topology) -> Option<String> {
        if let Some(bridge) = topology
            .bridges
            .iter()
            .find(|bridge| bridge.control != Control::Learning)
        {
            return Some(format!(
                "bridge {} is told by OpenFlow what to do, which Linux's bridge has not",
                bridge.name
            ));
        }
        if let Some(bridge) = topology.bridges.iter().find(|bridge| bridge.stateful.is_some()) {
            return Some(format!(
                "bridge {} tracks connections: Linux's bridge leaves that to nftables, which the laboratory does not set up",
                bridge.name
            ));
        }
        unfit(topology)
            .or_else(|| protocols(topology))
            .or_else(|| lacks(Part::Bridge))
            .or_else(|| vlans(topology))
            .or_else(|| qos(topology))
    }

    fn cannot_observe(&self, setup: &Setup) -> Option<String> {
        setup.needs_openflow().then(|| "it has no OpenFlow".to_owned())
    }

    fn start(&self, topology: &Topology, bed: &Bed) -> Result<Box<dyn Running>> {
        if let Some(reason) = self.missing(topology) {
            bail!("{reason}");
        }
        let layout = Layout::new(topology, bed)?;
        let mut script = Script::new(bed.namespace());
        let filtering = lacks(Part::VlanFiltering).is_none();
        for command in setup::commands(&layout, filtering) {
            script.run(&command.line)?;
            if let Some(undo) = command.undo {
                script.undo(&undo);
            }
        }
        let others = setup::other_tunnels(&layout);
        if let Some(first) = others.first() {
            script.note(&format!("ip {first}"));
            script.note(&format!("# and {} more with the next names and keys", others.len() - 1));
            script.undo(&format!("ip link del group {}", setup::OTHERS));
            command::batch("ip", bed.namespace(), &others)?;
        }
        if layout.routes() {
            script.sysctl("net.ipv4.ip_forward", "1")?;
        }
        let running = RunningBridge {
            namespace: bed.namespace().to_owned(),
            split: !filtering && layout.bridges.iter().any(setup::has_vlans),
            layout,
            script,
        };
        running.wait_until_it_forwards()?;
        Ok(Box::new(running))
    }
}

/// The control protocols that the kernel does not have.
fn protocols(topology: &Topology) -> Option<String> {
    let rstp = topology.bridges.iter().any(|bridge| bridge.tree == Some(Tree::Rstp));
    let mut ends = topology.links.iter().flat_map(|link| [&link.a, &link.b]);
    if rstp {
        Some("Linux's bridge has no RSTP".to_owned())
    } else {
        ends.any(|end| end.port.bfd.is_some())
            .then(|| "Linux's bridge has no BFD".to_owned())
    }
}

/// Why this kernel cannot have the VLANs.
fn vlans(topology: &Topology) -> Option<String> {
    let ends: Vec<_> = topology.links.iter().flat_map(|link| [&link.a, &link.b]).collect();
    for bridge in &topology.bridges {
        let ports: Vec<_> = ends
            .iter()
            .filter(|end| end.at == bridge.name)
            .map(|end| &end.port)
            .collect();
        let vlans = ports.iter().any(|port| port.access.is_some() || !port.trunk.is_empty());
        let tagged = bridge.svis.iter().any(|svi| svi.vlan.is_some());
        if !vlans && !tagged {
            continue;
        }
        let no_filtering = lacks(Part::VlanFiltering);
        // Without VLAN settings a port carries all VLANs.
        if let (Some(reason), true) = (&no_filtering, ports.iter().any(|port| port.access.is_none())) {
            return Some(format!(
                "bridge {} has a port of several VLANs, and {reason}",
                bridge.name
            ));
        }
        if let (None, true, Some(reason)) = (no_filtering, tagged, lacks(Part::VlanDevices)) {
            return Some(format!("bridge {} has addresses in VLANs, and {reason}", bridge.name));
        }
    }
    None
}

/// Why this kernel cannot schedule or police so.
fn qos(topology: &Topology) -> Option<String> {
    let ends = || topology.links.iter().flat_map(|link| [&link.a, &link.b]);
    if let (true, Some(reason)) = (ends().any(|end| end.port.bond.is_some()), lacks(Part::Bonding)) {
        return Some(reason);
    }
    let ports: Vec<_> = topology
        .links
        .iter()
        .flat_map(|link| [&link.a, &link.b])
        .filter(|end| topology.bridges.iter().any(|bridge| bridge.name == end.at))
        .collect();
    if ports.iter().any(|end| end.port.speed.is_some()) {
        return Some("Linux's bridge has no port speeds".to_owned());
    }
    let kinds = ports.iter().filter_map(|end| end.port.qos.as_ref());
    let policed = ports.iter().any(|end| end.port.policing.is_some());
    kinds
        .flat_map(|qos| std::iter::once(qos.kind).chain(qos.leaf))
        .map(Part::Qdisc)
        .chain(policed.then_some(Part::Police))
        .find_map(lacks)
}

struct RunningBridge {
    namespace: String,
    layout: Layout,
    /// There is a bridge for each VLAN.
    split: bool,
    script: Script,
}

impl RunningBridge {
    fn wait_until_it_forwards(&self) -> Result<()> {
        let tree = self.layout.bridges.iter().any(|bridge| bridge.tree.is_some());
        let end = Instant::now() + Duration::from_secs(if tree { 70 } else { 10 });
        loop {
            // Some versions of `bridge -j` print nothing without ports.
            let said = self.script.ask("bridge link show")?;
            let forwarding = |device: &str| {
                let of_device = |line: &&str| {
                    line.split_whitespace()
                        .any(|word| word.split(['@', ':']).next() == Some(device))
                };
                // A tree blocks ports.
                said.lines()
                    .find(of_device)
                    .is_some_and(|line| line.contains("state forwarding") || tree && line.contains("state blocking"))
            };
            let bridges: Vec<BridgeLayout> = self.layout.bridges.iter().map(setup::with_bonds_as_ports).collect();
            let mut ports = bridges.iter().flat_map(|bridge| &bridge.ports);
            let Some(waits) = ports.find(|port| !forwarding(&port.device)) else {
                return Ok(());
            };
            if Instant::now() > end {
                bail!("port {} of the bridge does not forward: {said}", waits.device);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Running for RunningBridge {
    fn configuration(&self) -> &[String] {
        self.script.lines()
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks =
            vec!["the kernel forwards in interrupts: the CPU time of its bridge is no process's".to_owned()];
        if self.split {
            remarks.push("this kernel's bridge has no VLANs: there is a bridge for each VLAN".to_owned());
        }
        remarks
    }

    fn cpu(&self) -> f64 {
        0.0
    }

    fn drops(&self) -> Result<Vec<Loss>> {
        kernel_drops::of_devices(&self.namespace, &self.layout)
    }

    fn gauge(&self) -> Result<Option<Box<dyn Gauge>>> {
        let gauge = KernelGauge::new(&self.namespace, &self.layout)?;
        Ok(Some(Box::new(gauge)))
    }

    fn openflow(&self, _bridge: &str) -> Result<Option<std::os::unix::net::UnixStream>> {
        Ok(None)
    }

    fn port_number(&self, _bridge: &str, _to: &str) -> Result<u32> {
        bail!("Linux's bridge has no OpenFlow, and no port numbers")
    }

    fn set_controller(&mut self, _bridge: &str, _controller: Option<SocketAddr>) -> Result<()> {
        bail!("Linux's bridge has no OpenFlow, and no controller")
    }

    fn member(&self, bridge: &str, device: &str, change: MemberChange) -> Result<Command> {
        let bond = self.layout.bond_of(bridge, device)?;
        Ok(match change {
            MemberChange::Remove => self.script.command(&["ip", "link", "set", device, "nomaster"]),
            MemberChange::Add => {
                // A bond takes only devices that are down.
                let line = format!(
                    "ip link set {device} down && ip link set {device} master {bond} && ip link set {device} up"
                );
                self.script.command(&["sh", "-c", &line])
            }
        })
    }

    fn check(&mut self) -> Result<()> {
        Ok(())
    }
}
