//! A switch on another machine, over ssh: its hosts are here.
//!
//! - [`Peer`]: the connection. `channel`: its lines; `protocol`: what they say; `agent`: the other
//!   end, which makes its part of each testbed with the same code as here.
//! - The cables between the two: [`crate::bed`]'s `wire`.
//!
//! The other machine gets a testbed for each switch that is started, and removes it when the
//! switch stops or the connection ends.

mod agent;
mod channel;
mod protocol;

pub use agent::main;

use super::layout::unfit;
use super::{Elsewhere, Running, System};
use crate::bed::{Bed, Tag, Wire, is_device_name};
use crate::results::{Loss, Remote};
use crate::scenario::{Observe, Setup};
use crate::topology::Topology;
use anyhow::{Context, Result, bail, ensure};
use channel::Channel;
use protocol::{Build, Greeting, Reply, Request};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long the other machine may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The same for a switch to start: spanning trees alone take 70 s.
const START: Duration = Duration::from_secs(180);

/// Between two questions whether the switch runs.
const LOOK: Duration = Duration::from_millis(500);

/// Options of ssh: it never asks for a password, and notices in time that nobody answers.
const SSH: [&str; 14] = [
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=5",
    // Whatever the user's configuration says: only lines of the other program come back.
    "-o",
    "RequestTTY=no",
    "-o",
    "ForwardAgent=no",
    "-o",
    "ForwardX11=no",
    "-o",
    "ClearAllForwardings=yes",
];

/// Where a switch runs, and how that is reached.
#[derive(Clone, Debug)]
pub struct Options {
    /// As ssh takes it.
    pub host: String,
    /// `oxvs` on that machine.
    pub program: String,
    /// The command that stands before the host: ssh and options of the user's.
    pub ssh: String,
    /// The wire's device here.
    pub here: String,
    /// The wire's device on the other machine.
    pub there: String,
    /// What tells cables apart on the wire.
    pub tag: Tag,
}

impl Options {
    /// Reads `HERE=THERE`, the devices of a wire.
    ///
    /// # Errors
    /// It is something else.
    pub fn wire(text: &str) -> Result<(String, String), String> {
        match text.split_once('=') {
            Some((here, there)) if is_device_name(here) && is_device_name(there) => {
                Ok((here.to_owned(), there.to_owned()))
            }
            _ => Err("a wire is named by its two devices, HERE=THERE, as eth1=eth2".to_owned()),
        }
    }

    fn command(&self) -> Result<Command> {
        ensure!(
            !self.host.is_empty() && !self.host.starts_with('-'),
            "--remote '{}' is no name of a machine",
            self.host
        );
        let mut words = self.ssh.split_whitespace();
        let mut command = Command::new(words.next().context("--ssh is empty")?);
        command.args(words).args(SSH).arg(&self.host);
        // The other machine's shell reads it.
        let program = self.program.replace('\'', r"'\''");
        command.arg(format!("'{program}' lab remote-switch"));
        Ok(command)
    }
}

/// The machine that the switch runs on.
pub(crate) struct Peer {
    options: Options,
    channel: RefCell<Channel>,
    greeting: Greeting,
    wire: Wire,
}

impl Peer {
    /// Starts the other machine's part.
    ///
    /// # Errors
    /// It cannot be reached; it has another build; a device of the wire is not there or cannot
    /// carry the cables.
    pub(crate) fn connect(options: &Options) -> Result<Rc<Peer>> {
        let address = Wire::check(&options.here, options.tag)?;
        let build = Build::here()?;
        let mut channel = Channel::open(&options.host, options.command()?)?;
        let hello = Request::Hello {
            device: options.there.clone(),
            tag: options.tag,
            address,
        };
        let Reply::Hello(greeting) = channel.ask(&hello, PATIENCE)? else {
            bail!("{} answers something else", options.host);
        };
        if let Some(difference) = build.differs(&greeting.build) {
            bail!(
                "{} has {difference}; install one build on both, or name another with --remote-program",
                options.host
            );
        }
        Ok(Rc::new(Peer {
            wire: Wire::new(&options.here, options.tag, (address, greeting.address)),
            options: options.clone(),
            channel: RefCell::new(channel),
            greeting: *greeting,
        }))
    }

    /// Every kind of switch, to be run there.
    pub(crate) fn systems(self: &Rc<Peer>) -> Vec<Box<dyn System>> {
        let there = |inner| -> Box<dyn System> {
            Box::new(RemoteSystem {
                peer: self.clone(),
                inner,
            })
        };
        super::all().into_iter().map(there).collect()
    }

    /// The wire's end here.
    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Whether the connection is still there.
    ///
    /// # Errors
    /// Why it has ended.
    pub(crate) fn check_connection(&self) -> Result<()> {
        self.channel.borrow().check()
    }

    /// For the results.
    pub(crate) fn described(&self) -> Remote {
        let Options { here, there, tag, .. } = &self.options;
        Remote {
            host: self.options.host.clone(),
            wire: format!("{here}={there}, each frame with {}", tag.describe()),
            machine: self.greeting.machine.clone(),
        }
    }

    fn ask(&self, request: &Request) -> Result<Reply> {
        let patience = match request {
            Request::Start { .. } => START,
            _ => PATIENCE,
        };
        self.channel.borrow_mut().ask(request, patience)
    }

    fn confused<T>(&self) -> Result<T> {
        bail!("{} answers something else", self.options.host)
    }
}

/// A kind of switch on the other machine.
struct RemoteSystem {
    peer: Rc<Peer>,
    inner: Box<dyn System>,
}

impl System for RemoteSystem {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn describe(&self) -> String {
        let described = self.peer.greeting.systems.get(self.name());
        described.cloned().unwrap_or_else(|| self.inner.describe())
    }

    fn is_ours(&self) -> bool {
        self.inner.is_ours()
    }

    fn missing(&self, topology: &Topology) -> Option<String> {
        let guest = topology.hosts.iter().find(|host| host.attachment.is_guest());
        if let Some(guest) = guest {
            return Some(format!(
                "host {} is a guest, which has no cable to another machine yet",
                guest.name
            ));
        }
        if topology.is_cluster() {
            return Some("a cluster's bridges are on one machine with their hosts".to_owned());
        }
        if let Some(reason) = self.inner.sets_up_hosts(topology).or_else(|| unfit(topology)) {
            return Some(reason);
        }
        let request = Request::Missing {
            system: self.name().to_owned(),
            topology: topology.clone(),
        };
        match self.peer.ask(&request) {
            Ok(Reply::Missing(reason)) => reason.map(|reason| format!("{}: {reason}", self.peer.options.host)),
            Ok(_) => self.peer.confused::<()>().err().map(|error| error.to_string()),
            Err(error) => Some(format!("{error:#}")),
        }
    }

    fn cannot_observe(&self, setup: &Setup) -> Option<String> {
        if let Some(reason) = self.inner.cannot_observe(setup) {
            return Some(reason);
        }
        if setup.needs_openflow() {
            return Some("OpenFlow does not reach a switch on another machine yet".to_owned());
        }
        let reason = |what: &Observe| match what {
            Observe::Cut { .. } => Some("cables of another machine cannot be cut yet"),
            Observe::Liveness { .. } => Some("links of another machine are not watched yet"),
            Observe::Watch { .. } => Some("collectors do not hear a switch on another machine yet"),
            Observe::Mininet { .. } => Some("Mininet's hosts are on the machine of its switch"),
            _ => None,
        };
        let reason = setup.observed.iter().find_map(|observed| reason(&observed.what));
        reason.map(str::to_owned)
    }

    fn start(&self, topology: &Topology, _bed: &Bed) -> Result<Box<dyn Running>> {
        let request = Request::Start {
            system: self.name().to_owned(),
            topology: topology.clone(),
        };
        let Reply::Started {
            configuration,
            mut remarks,
        } = self.peer.ask(&request)?
        else {
            return self.peer.confused();
        };
        let Options { host, tag, .. } = &self.peer.options;
        remarks.push(format!(
            "the switch runs on {host}: frames between it and the hosts have {} more on the wire",
            tag.describe()
        ));
        Ok(Box::new(RemoteRunning {
            peer: self.peer.clone(),
            configuration,
            remarks,
            looked: Instant::now(),
        }))
    }
}

/// A switch that runs on the other machine.
struct RemoteRunning {
    peer: Rc<Peer>,
    configuration: Vec<String>,
    remarks: Vec<String>,
    /// When it was last asked whether it runs.
    looked: Instant,
}

impl RemoteRunning {
    fn usage(&self) -> Option<(f64, Elsewhere)> {
        match self.peer.ask(&Request::Usage) {
            Ok(Reply::Usage { system, machine }) => Some((system, machine)),
            // The next check says what is wrong.
            _ => None,
        }
    }
}

impl Running for RemoteRunning {
    fn configuration(&self) -> &[String] {
        &self.configuration
    }

    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }

    fn cpu(&self) -> f64 {
        self.usage().map_or(0.0, |(system, _)| system)
    }

    fn elsewhere(&self) -> Option<Elsewhere> {
        self.usage().map(|(_, machine)| machine)
    }

    fn drops(&self) -> Result<Vec<Loss>> {
        match self.peer.ask(&Request::Losses)? {
            Reply::Losses(losses) => Ok(losses),
            _ => self.peer.confused(),
        }
    }

    fn openflow(&self, _bridge: &str) -> Result<Option<std::os::unix::net::UnixStream>> {
        Ok(None)
    }

    fn port_number(&self, _bridge: &str, _to: &str) -> Result<u32> {
        bail!("OpenFlow does not reach a switch on another machine yet")
    }

    fn set_controller(&mut self, _bridge: &str, _controller: Option<SocketAddr>) -> Result<()> {
        bail!("OpenFlow does not reach a switch on another machine yet")
    }

    fn check(&mut self) -> Result<()> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        self.peer.ask(&Request::Check).map(drop)
    }
}

impl Drop for RemoteRunning {
    fn drop(&mut self) {
        // If it fails, the other machine removes the testbed when the connection ends.
        let _ = self.peer.ask(&Request::Stop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_and_a_wire_are_read_and_nothing_else() {
        assert_eq!(
            Options::wire("eth1=enp3s0"),
            Ok(("eth1".to_owned(), "enp3s0".to_owned()))
        );
        for wrong in ["eth1", "=eth1", "a=b/c", "a=b=c d", ""] {
            assert!(Options::wire(wrong).is_err(), "{wrong}");
        }
        let mut options = Options {
            host: "root@far".to_owned(),
            program: "/opt/it's/oxvs".to_owned(),
            ssh: "ssh -p 22".to_owned(),
            here: "a".to_owned(),
            there: "b".to_owned(),
            tag: Tag::Vlan,
        };
        let command = options.command().unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words.first().unwrap(), "-p");
        assert_eq!(words[words.len() - 2], "root@far");
        assert_eq!(words.last().unwrap(), r"'/opt/it'\''s/oxvs' lab remote-switch");
        options.host = "-oProxyCommand=x".to_owned();
        assert!(
            options
                .command()
                .unwrap_err()
                .to_string()
                .contains("no name of a machine")
        );
    }
}
