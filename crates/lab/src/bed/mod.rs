//! Namespaces, hosts and cables of a testbed on this machine.
//!
//! All bridges of a testbed live in one namespace, each host in its own, each cable with a rate or a delay in another, outside every switch.

use crate::topology::Topology;
use anyhow::{Result, bail};

/// A testbed that stands. Dropping it removes it.
pub struct Bed {
    namespace: String,
}

impl Bed {
    /// Makes hosts and cables, all of them up, but no bridge.
    ///
    /// # Errors
    /// No root, a tool that is missing, a command that fails. What was begun is undone.
    pub fn build(_topology: &Topology) -> Result<Bed> {
        bail!("testbeds cannot be made yet")
    }

    /// The namespace in which bridges are made and the switch's processes run.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}
