//! The switches under test, each set up from the same topology by its own commands.
//!
//! - [`all`] lists them, including those that cannot run here: [`System::missing`] gives the
//!   reason.
//! - [`System::start`] sets one up on a [`Bed`]; the result is a [`Running`].
//! - `layout`: the part of a topology that a switch implements. `script`: commands that are kept as
//!   text. `daemon`: processes. `gauge`: counters during the traffic. `kernel`: the kernel's
//!   features. `kernel_drops`: its drop counters.
//! - `openvswitch`: oxvs, Open vSwitch in its kinds, and Mininet's switch, set up by `ovs-vsctl`.
//!   `bridge`: the kernel's bridge, set up by `ip`, `bridge` and `tc`.
//! - [`remote`]: each of them on another machine.

mod bridge;
pub(crate) mod daemon;
pub(crate) mod gauge;
mod kernel;
mod kernel_drops;
mod layout;
pub(crate) mod openvswitch;
pub mod remote;
pub(crate) mod script;

use crate::bed::Bed;
use crate::results::Loss;
use crate::scenario::{Setup, Watcher};
use crate::topology::Topology;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::process::Command;

pub use gauge::Gauge;
pub(crate) use openvswitch::PYTHON;

/// A kind of switch that can be tested.
pub trait System {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;

    /// Its description, with the version if it is installed.
    fn describe(&self) -> String;

    /// Whether it is the `oxvs` of this laboratory.
    fn is_ours(&self) -> bool {
        false
    }

    /// Why it cannot run such a topology on this machine; none if it can.
    fn missing(&self, topology: &Topology) -> Option<String>;

    /// Why it cannot do what a cell observes or wants of it; none if it can.
    fn cannot_observe(&self, _setup: &Setup) -> Option<String> {
        None
    }

    /// Why hosts of such a topology must be on its machine; none if they need not.
    fn sets_up_hosts(&self, _topology: &Topology) -> Option<String> {
        None
    }

    /// Makes the bridges of a testbed with its hosts and cables, and waits until they forward.
    ///
    /// # Errors
    /// A failed command with its output. All set-up is undone.
    fn start(&self, topology: &Topology, bed: &Bed) -> Result<Box<dyn Running>>;
}

/// What a bridge has received from a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// UDP datagrams over IPv4.
    pub datagrams: u64,
    /// Bytes of all frames. A segment that crosses the switch whole has one header.
    pub bytes: u64,
}

/// What has used the processors of a switch's machine so far, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// Everything.
    pub all: f64,
    /// Neither the switch, nor the laboratory, nor the kernel's threads for packets.
    pub other: f64,
    /// Of `other`, processes of a lower priority than usual.
    pub nice: f64,
    /// How many processors the switch may use.
    pub processors: usize,
}

/// What happens to a member of a bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// It leaves the bond.
    Remove,
    /// It returns.
    Add,
}

/// The protocols' counters of a bridge's end of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alarms {
    /// How often BFD sessions stopped or began to forward.
    pub flaps: u64,
    /// How often a partner of LACP was not heard in time.
    pub expired: u64,
}

/// A running switch. Dropping it stops it and undoes its set-up.
pub trait Running {
    /// The commands that set it up, as a user would type them.
    fn configuration(&self) -> &[String];

    /// Remarks for readers of its results.
    fn remarks(&self) -> Vec<String>;

    /// Seconds of CPU that its processes have used so far.
    fn cpu(&self) -> f64;

    /// Bytes of memory that its processes have now; none: it has no process of its own, or it is
    /// on another machine.
    fn memory(&self) -> Option<u64> {
        None
    }

    /// The processors of its machine; none: it runs on this one.
    fn elsewhere(&self) -> Option<Elsewhere> {
        None
    }

    /// Its drops so far, by cause and place: `port`, `policer`, `queue` and `upcall` at the port
    /// `BRIDGE:NEIGHBOUR`, or at an internal device, or `datapath` if it gives no more detail.
    /// Packets that the kernel could not send at a port's device are not included: the testbed
    /// counts them for the cable ([`Bed::losses`]).
    ///
    /// # Errors
    /// It does not answer.
    fn drops(&self) -> Result<Vec<Loss>>;

    /// Reads some of its counters during the traffic; none: it cannot.
    ///
    /// # Errors
    /// It does not answer.
    fn gauge(&self) -> Result<Option<Box<dyn Gauge>>> {
        Ok(None)
    }

    /// An OpenFlow connection to a bridge; none if it has no OpenFlow.
    ///
    /// # Errors
    /// The bridge does not answer.
    fn openflow(&self, bridge: &str) -> Result<Option<std::os::unix::net::UnixStream>>;

    /// OpenFlow port number of the port that a cable from `to` is plugged into.
    ///
    /// # Errors
    /// There is no such port, or it does not answer.
    fn port_number(&self, bridge: &str, to: &str) -> Result<u32>;

    /// Connects a bridge to a controller at an address in the switch's namespace; none: disconnects
    /// it.
    ///
    /// # Errors
    /// It has no OpenFlow.
    fn set_controller(&mut self, bridge: &str, controller: Option<SocketAddr>) -> Result<()>;

    /// Sets the rule limit of a bridge's first table; none: no limit. Returns false if it has no
    /// such setting.
    ///
    /// # Errors
    /// It refuses.
    fn limit_rules(&mut self, _bridge: &str, _limit: Option<u32>) -> Result<bool> {
        Ok(false)
    }

    /// Lets a bridge tell of the traffic of a host to another host or to a collector at an address
    /// in the switch's namespace; [`Watcher::None`] ends that.
    ///
    /// # Errors
    /// It cannot.
    fn watch(
        &mut self,
        _bridge: &str,
        by: Watcher,
        _one_in: u32,
        _ends: (&str, &str),
        _collector: Option<SocketAddr>,
    ) -> Result<()> {
        match by {
            Watcher::None => Ok(()),
            other => bail!("this system has no {other:?}"),
        }
    }

    /// Counts what a bridge receives from a host, from now on; forwards as before.
    ///
    /// # Errors
    /// It cannot.
    fn count(&mut self, _bridge: &str, _host: &str) -> Result<()> {
        bail!("this system cannot count the datagrams of a host")
    }

    /// What it has received from the host since [`Running::count`], which ends.
    ///
    /// # Errors
    /// It does not answer.
    fn counted(&mut self, _bridge: &str, _host: &str) -> Result<Counted> {
        bail!("this system cannot count the datagrams of a host")
    }

    /// The command that changes a member of a bond, by its device.
    ///
    /// # Errors
    /// It is no member of a bond.
    fn member(&self, _bridge: &str, _device: &str, _change: MemberChange) -> Result<Command> {
        bail!("this system has no bonds")
    }

    /// Whether all links of a bridge to another one are up by BFD and LACP, where they have them;
    /// with the counters of these so far.
    ///
    /// # Errors
    /// It does not answer.
    fn liveness(&self, _bridge: &str, _to: &str) -> Result<(bool, Alarms)> {
        bail!("this system does not tell of BFD and LACP")
    }

    /// Samples for collectors that it has dropped so far; none if it does not count them.
    ///
    /// # Errors
    /// It does not answer.
    fn lost_samples(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Forgets its cached flows, so that it tells of them now and has counted their packets.
    ///
    /// # Errors
    /// It does not answer.
    fn end_flows(&mut self) -> Result<()> {
        Ok(())
    }

    /// A command in its namespace, for which Open vSwitch's programs in the `PATH` are its own.
    ///
    /// # Errors
    /// It has none.
    fn beside(&self, _words: &[&str]) -> Result<Command> {
        bail!("this system's bridges cannot be made by Open vSwitch's programs")
    }

    /// A command of its tools in its namespace: `vsctl`, `ofctl` or `appctl`, and its words.
    ///
    /// # Errors
    /// It has no such tools.
    fn tool(&self, _words: &[&str]) -> Result<Command> {
        bail!("this system has none of Open vSwitch's tools")
    }

    /// Checks for a failure of the switch, such as an exit.
    ///
    /// # Errors
    /// It has.
    fn check(&mut self) -> Result<()>;
}

/// Every kind of switch, in the order in which results show them.
pub fn all() -> Vec<Box<dyn System>> {
    let mut all: Vec<Box<dyn System>> = Vec::new();
    for kind in openvswitch::Kind::OURS {
        all.push(Box::new(kind));
    }
    all.push(Box::new(bridge::LinuxBridge));
    for kind in openvswitch::Kind::PEERS {
        all.push(Box::new(kind));
    }
    all
}

/// The kind of switch of that name.
///
/// # Errors
/// There is none; the error lists the names.
pub fn named(name: &str) -> Result<Box<dyn System>> {
    let mut all = all();
    let Some(at) = all.iter().position(|system| system.name() == name) else {
        let names: Vec<&str> = all.iter().map(|system| system.name()).collect();
        bail!("there is no switch '{name}'; there are {}", names.join(", "));
    };
    Ok(all.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_is_found_by_its_name_and_no_other_name_is() {
        for system in all() {
            assert_eq!(named(system.name()).unwrap().name(), system.name());
        }
        let error = named("catalyst").err().unwrap().to_string();
        assert!(error.contains("oxvs, ") && error.contains("bridge"), "{error}");
    }

    #[test]
    fn a_switch_that_cannot_run_says_why() {
        for system in all() {
            assert!(!system.describe().is_empty());
            if let Some(reason) = system.missing(&Topology::default()) {
                assert!(reason.len() > 10, "{}: {reason:?}", system.name());
            }
        }
    }
}
