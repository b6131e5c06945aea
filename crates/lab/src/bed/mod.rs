//! Namespaces, hosts and cables of a testbed on this machine.
//!
//! All bridges of a testbed live in one namespace, each host in its own, each cable with a rate or
//! a delay in another, outside every switch. A host's programs run in its namespace, in a container
//! of Podman that joins it, or in a virtual machine. Everything is named `oxvs-lab-…`, and removed
//! when the [`Bed`] is dropped, when its process ends in whatever way (a [warden](warden::watch)
//! sees to that), or by [`clean`].

mod build;
mod cable;
pub mod command;
pub(crate) mod container;
mod counters;
pub mod delay;
mod guest;
mod host;
mod names;
pub mod namespace;
mod plan;
mod process;
mod program;
mod record;
pub mod warden;
mod wire;

pub(crate) use build::missing_tools;
pub use build::{missing, offloads};
pub use counters::{Counters, Fragments};
pub(crate) use counters::{DeviceCounters, HostRate, cpu as process_cpu, devices as device_counters};
pub(crate) use host::UNDERLAY;
pub use host::{DEVICE, Host};
pub use program::use_program;
pub(crate) use program::{Build, lab as lab_program, switch as switch_program, switch_build, use_switch};
pub use record::clean;
pub use wire::Tag;
pub(crate) use wire::{Side, Wire, is_name as is_device_name};

use crate::results::Loss;
use crate::topology::Topology;
use crate::traffic::stack::unknown_neighbours;
use anyhow::{Context, Result};
use delay::Delay;
use plan::Plan;
use record::Record;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use warden::Warden;

/// The cause of packets that later ones pushed out of the queue for an unknown address. The kernel
/// counts them for all its namespaces together.
pub(crate) const ARP: &str = "arp";

/// A testbed that stands. Dropping it removes it.
pub struct Bed {
    plan: Plan,
    record: Record,
    delays: Vec<Delay>,
    /// Packets of [`ARP`] before this testbed was made.
    unanswered: u64,
    _warden: Warden,
}

impl Bed {
    /// Makes hosts and cables, all of them up, but no bridge.
    ///
    /// # Errors
    /// What [`missing`] returns; a name in use; a failed command. All set-up is undone.
    pub fn build(topology: &Topology) -> Result<Bed> {
        Bed::build_part(topology, None)
    }

    /// Makes the part of a testbed that is on this machine of two; none: all of it.
    ///
    /// # Errors
    /// As [`Bed::build`].
    pub(crate) fn build_part(topology: &Topology, part: Option<(Side, &Wire)>) -> Result<Bed> {
        let reason = match part {
            Some((Side::Switch, _)) => missing_tools(),
            _ => missing(topology),
        };
        if let Some(reason) = reason {
            anyhow::bail!("{reason}");
        }
        let record = Record::begin()?;
        let plan = Plan::of(topology, record.id()).and_then(|mut plan| {
            if let Some((side, wire)) = part {
                plan.keep(side, wire)?;
            }
            Ok((plan, Warden::start(record.id())?))
        });
        let (plan, warden) = match plan {
            Ok(made) => made,
            Err(error) => {
                record.remove()?;
                return Err(error);
            }
        };
        let mut bed = Bed {
            plan,
            record,
            delays: Vec::new(),
            unanswered: unknown_neighbours(),
            _warden: warden,
        };
        bed.delays = build::build(topology, &bed.plan, &bed.record)?;
        let hosts: Vec<Host> = bed.hosts().cloned().collect();
        let set_up = |host: &_| build::set_up(host, topology, &bed.plan);
        for (name, running) in guest::start(topology, &hosts, &bed.plan.cables, set_up)? {
            if let Some(host) = bed.plan.hosts.get_mut(&name) {
                host.guest = Some(running);
            }
        }
        for (name, container) in container::start(topology, &hosts, bed.record.directory(), bed.record.id())? {
            if let Some(host) = bed.plan.hosts.get_mut(&name) {
                host.container = Some(container);
            }
        }
        Ok(bed)
    }

    /// The namespace in which bridges are made and the switch's processes run.
    pub fn namespace(&self) -> &str {
        &self.plan.switch
    }

    /// The namespace of a bridge: of one in a cluster its own.
    pub(crate) fn namespace_of(&self, bridge: &str) -> &str {
        self.plan.chassis.get(bridge).unwrap_or(&self.plan.switch)
    }

    /// A directory for files of the system under test; removed with the testbed.
    pub fn directory(&self) -> &Path {
        self.record.directory()
    }

    /// Reserves huge pages of 2 MB for the testbed; its end restores the previous number.
    ///
    /// # Errors
    /// The kernel has none, or not so much memory in one piece.
    pub(crate) fn reserve_hugepages(&self, pages: u64) -> Result<()> {
        self.record.reserve_hugepages(pages)
    }

    /// A command in the namespace of the bridges, the program first.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.namespace()]).args(words);
        command
    }

    /// The device at a bridge's end of the cable between it and `to`; of several, the first.
    ///
    /// # Errors
    /// No cable joins the two.
    pub fn port_device(&self, bridge: &str, to: &str) -> Result<&str> {
        let devices = self.port_devices(bridge, to);
        devices
            .first()
            .copied()
            .with_context(|| format!("no cable joins bridge {bridge} and {to}"))
    }

    /// The devices at a bridge's end of all cables between it and `to`, in the topology's order.
    pub fn port_devices(&self, bridge: &str, to: &str) -> Vec<&str> {
        let ends = self.ends().filter(|(at, other, _)| *at == bridge && *other == to);
        ends.map(|(_, _, device)| device).collect()
    }

    /// The n-th cable between two hosts or bridges, in the topology's order.
    ///
    /// # Errors
    /// There is no such cable.
    pub(crate) fn cable(&self, a: &str, b: &str, which: usize) -> Result<&cable::Cable> {
        let joins = |cable: &&cable::Cable| {
            let (one, other) = (cable.a.at.as_str(), cable.b.at.as_str());
            (one, other) == (a, b) || (one, other) == (b, a)
        };
        let mut cables = self.plan.cables.iter().filter(joins);
        cables
            .nth(which)
            .with_context(|| format!("there is no cable {which} between {a} and {b}"))
    }

    /// All ports of bridges, in the topology's order: the bridge, the cable's other end, the
    /// device.
    pub fn ports(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.ends().filter(|(at, _, _)| !self.plan.hosts.contains_key(*at))
    }

    fn ends(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let both = self.plan.cables.iter();
        let both = both.flat_map(|cable| [(&cable.a, &cable.b), (&cable.b, &cable.a)]);
        both.filter(|(own, _)| !own.is_far)
            .map(|(own, other)| (own.at.as_str(), other.at.as_str(), own.device.as_str()))
    }

    /// A host.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn host(&self, name: &str) -> Result<&Host> {
        self.plan
            .hosts
            .get(name)
            .with_context(|| format!("no host is named {name}"))
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.plan.hosts.values()
    }

    /// Reads what arrives at a host; none: it has no cable.
    ///
    /// # Errors
    /// A namespace that is gone.
    pub(crate) fn host_rate(&self, host: &str) -> Result<Option<HostRate>> {
        for cable in &self.plan.cables {
            let ends = [(&cable.a, &cable.b), (&cable.b, &cable.a)];
            let Some((own, other)) = ends.into_iter().find(|(own, _)| own.at == host) else {
                continue;
            };
            // A guest's device is inside; what is sent to it is counted at the other end.
            let rate = match &cable.namespace {
                _ if !own.is_guest => HostRate::new(&own.namespace, &own.device, false),
                Some(namespace) => HostRate::new(namespace, &own.inner, true),
                None => HostRate::new(&other.namespace, &other.device, true),
            };
            return rate.map(Some);
        }
        Ok(None)
    }

    /// Packets lost in cables and hosts since the testbed was made. Causes: `cable` (a cable's
    /// queue was full, or the receiving device had no room), `sender` and `receiver` (a host's
    /// stack dropped it; of the receiver, the socket's buffer was full or nobody listened), and
    /// [`ARP`].
    ///
    /// # Errors
    /// A namespace that is gone, a tool that fails.
    pub fn losses(&self) -> Result<Vec<Loss>> {
        let mut losses = counters::losses(&self.plan, &self.delays)?;
        let packets = unknown_neighbours().saturating_sub(self.unanswered);
        if packets > 0 {
            losses.push(Loss {
                cause: ARP.to_owned(),
                place: "all namespaces".to_owned(),
                packets,
            });
        }
        Ok(losses)
    }

    /// Fragments that hosts received since the testbed was made.
    ///
    /// # Errors
    /// A namespace that is gone.
    pub fn fragments(&self) -> Result<BTreeMap<String, Fragments>> {
        counters::fragments(&self.plan)
    }

    /// Whether a host still keeps fragments of incomplete datagrams. They take room from later
    /// ones, so the testbed is not clean.
    ///
    /// # Errors
    /// A namespace or a guest that is gone.
    pub(crate) fn holds_fragments(&self) -> Result<bool> {
        for host in self.hosts() {
            if host.stack()?.incomplete > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Counters of the bridges' port devices since the testbed was made.
    ///
    /// # Errors
    /// The namespace is gone.
    pub fn counters(&self) -> Result<BTreeMap<String, Counters>> {
        counters::devices(self.namespace())
    }

    /// Switches offloads (checksums and segmentation left to the device) on or off at both ends of
    /// all bare cables. They are on at first, as veth devices have them; at other cables they are
    /// always off.
    ///
    /// # Errors
    /// `ethtool` fails.
    pub fn set_offloads(&self, on: bool) -> Result<()> {
        for cable in self.plan.cables.iter().filter(|cable| cable.namespace.is_none()) {
            build::set_offloads(cable, on)?;
        }
        Ok(())
    }

    /// Seconds of CPU that the testbed's own processes have used.
    pub fn cpu(&self) -> f64 {
        self.delays.iter().filter_map(|delay| counters::cpu(delay.pid())).sum()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Err(error) = self.record.remove() {
            eprintln!("oxvs lab: {error:#}");
        }
    }
}
