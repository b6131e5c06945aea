//! Machines at the edge of a testbed.

use super::container::{Container, PROGRAM};
use super::guest::Running;
use super::namespace;
use super::process;
use crate::results::Acceleration;
use crate::traffic::Agent;
use crate::traffic::stack::Stack;
use anyhow::{Context, Result};
use std::process::Command;
use std::sync::Arc;

/// A host of a testbed.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) mac: [u8; 6],
    /// Of a host that is a virtual machine, once it runs.
    pub(crate) guest: Option<Arc<Running>>,
    /// Of a host whose programs run in a container, once it runs.
    pub(crate) container: Option<Container>,
}

/// The device of a host, which has its addresses.
pub const DEVICE: &str = "eth0";

/// The device at the cable of a host whose [`DEVICE`] is the end of a tunnel.
pub(crate) const UNDERLAY: &str = "underlay0";

impl Host {
    /// Its name in the topology.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its network namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Address of its device, [`DEVICE`].
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// A command that runs in its namespace, the program first; not in its container, as an
    /// administrator of this machine runs it.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).args(words);
        command
    }

    /// Runs `work` in this process on a thread that is in the host's namespace.
    ///
    /// # Errors
    /// Those of `work`; the namespace is gone.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        namespace::enter(&self.namespace, work)
    }

    /// The counters of its stack; for a guest, from its agent.
    ///
    /// # Errors
    /// The namespace or the guest is gone.
    pub(crate) fn stack(&self) -> Result<Stack> {
        match &self.guest {
            Some(guest) => guest.agent().counts(),
            None => self.enter(Stack::here),
        }
    }

    /// What runs it; none of a namespace.
    pub(crate) fn acceleration(&self) -> Option<Acceleration> {
        self.guest.as_ref().map(|guest| guest.acceleration())
    }

    /// An agent on the host: started, in its container if it has one, or of a guest the one that
    /// runs in it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn agent(&self) -> Result<Agent> {
        if let Some(guest) = &self.guest {
            return Ok(guest.agent());
        }
        if let Some(container) = &self.container {
            let agent = process::spawn(container.command(true, &[PROGRAM, "agent"]));
            let (to, from) = agent.with_context(|| format!("host {}", self.name))?;
            return Agent::new(&self.name, from, to);
        }
        let (to, from) = process::start(&self.namespace, &["agent"]).with_context(|| format!("host {}", self.name))?;
        Agent::new(&self.name, from, to)
    }
}
