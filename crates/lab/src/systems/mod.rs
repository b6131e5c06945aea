//! The switches under test, each set up from the same topology in its own language.

use crate::bed::Bed;
use crate::results::Loss;
use crate::topology::Topology;
use anyhow::Result;
use std::net::SocketAddr;

/// A kind of switch that can be tested.
pub trait System {
    /// Its name on the command line and in results.
    fn name(&self) -> &'static str;

    /// What it is, for a reader, with its version where it is installed.
    fn describe(&self) -> String;

    /// Why it cannot run such a topology on this machine; none if it can.
    fn missing(&self, topology: &Topology) -> Option<String>;

    /// Makes the bridges of a testbed whose hosts and cables are there, and waits until they forward.
    ///
    /// # Errors
    /// A command that fails, with what it said. What was begun is undone.
    fn start(&self, topology: &Topology, bed: &Bed) -> Result<Box<dyn Running>>;
}

/// A switch that runs. Dropping it stops it and removes what it made.
pub trait Running {
    /// The commands that set it up, as a user would type them.
    fn configuration(&self) -> &[String];

    /// Seconds of CPU that its processes have used so far.
    fn cpu(&self) -> f64;

    /// What it has dropped so far, by cause and place.
    ///
    /// # Errors
    /// It does not answer.
    fn drops(&self) -> Result<Vec<Loss>>;

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

    /// Makes a bridge connect to a controller there.
    ///
    /// # Errors
    /// It has no OpenFlow.
    fn set_controller(&mut self, bridge: &str, controller: SocketAddr) -> Result<()>;

    /// What has gone wrong with it by itself, as an exit.
    ///
    /// # Errors
    /// It has.
    fn check(&mut self) -> Result<()>;
}
