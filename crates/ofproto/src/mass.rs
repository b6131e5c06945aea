//! Changes of very many rules: worked on in steps, as bundles are, while other connections' changes
//! wait. Packets see all of it at once.

use crate::agent::Core;
use crate::bundle::SETTLE;
use crate::conn::Conn;
use crate::dump::Job;
use crate::env::Env;
use crate::unsupported;
use openflow::OfError;
use openflow::model::FlowMod;
use switch::tables::{Cursor, RuleRef};

/// Rules that are changed while the switch is locked once.
const SLICE: usize = 256;

/// A change, and how far it is.
#[derive(Debug)]
pub(crate) struct Sweep {
    change: Box<FlowMod>,
    meant: Vec<RuleRef>,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Its rules are looked for.
    Find(Cursor),
    /// They are changed, from this one on.
    Change(usize),
}

impl Sweep {
    pub(crate) fn new(change: Box<FlowMod>) -> Sweep {
        Sweep {
            change,
            meant: Vec::new(),
            at: At::Find(Cursor::default()),
        }
    }

    /// Looks for some more of its rules. Whether all are found.
    fn find(&mut self, bridge: &str, env: &impl Env) -> Result<bool, OfError> {
        if let At::Find(from) = self.at {
            let (change, meant) = (&self.change, &mut self.meant);
            let next = env.look(|switch| switch.find_meant(bridge, change, from, meant))?;
            self.at = next.map_or(At::Change(0), At::Find);
        }
        Ok(!matches!(self.at, At::Find(_)))
    }

    /// Changes some more of its rules, within the bundle under way. Whether all are changed.
    fn change(&mut self, bridge: &str, env: &impl Env) -> Result<bool, OfError> {
        let At::Change(from) = self.at else { return Ok(false) };
        let end = self.meant.len().min(from + SLICE);
        self.at = At::Change(end);
        self.run(bridge, from..end, true, env)?;
        Ok(end == self.meant.len())
    }

    /// Goes on with what is left to do of it within the bundle under way. Whether that was all.
    pub(crate) fn step(&mut self, bridge: &str, env: &impl Env) -> Result<bool, OfError> {
        match self.at {
            At::Find(_) => self.find(bridge, env).map(|_| false),
            At::Change(_) => self.change(bridge, env),
        }
    }

    fn run(&self, bridge: &str, rules: std::ops::Range<usize>, bundled: bool, env: &impl Env) -> Result<(), OfError> {
        let rules = &self.meant[rules];
        env.change(
            |switch, now| match switch.change_meant(bridge, &self.change, rules, bundled, now) {
                Ok(stale) => (Ok(()), stale),
                Err(error) => (Err(error), Vec::new()),
            },
        )
    }
}

/// A change by itself that is under way.
#[derive(Debug)]
pub(crate) struct Mass {
    xid: u32,
    request: Vec<u8>,
    sweep: Sweep,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Find,
    Change,
    Settle,
}

impl Core {
    /// Begins a change of very many rules.
    pub(crate) fn begin_mass(&mut self, conn: &mut Conn, xid: u32, change: Box<FlowMod>, message: &[u8]) {
        self.committing = Some(conn.id);
        conn.dump = Some(Job::Mass(Mass {
            xid,
            request: message.to_vec(),
            sweep: Sweep::new(change),
            phase: Phase::Find,
        }));
    }
}

impl Mass {
    /// Does the next part; what is left to do.
    pub(crate) fn step(mut self, core: &mut Core, conn: &mut Conn, env: &impl Env) -> Option<Job> {
        let bridge = core.config.bridge.clone();
        let done = self.next(&bridge, env);
        core.take_events(env, Some((conn.id, self.xid)));
        match done {
            Ok(false) => return Some(Job::Mass(self)),
            Ok(true) => {}
            Err(error) => {
                unsupported::report(conn.codec, error, &self.request, &bridge, env);
                conn.refuse(self.xid, error, &self.request);
                if self.phase == Phase::Change {
                    env.change(|switch, _| (switch.bundle_abort(&bridge), Vec::new()));
                    self.phase = Phase::Settle;
                    return Some(Job::Mass(self));
                }
            }
        }
        core.committing = None;
        None
    }

    /// Whether that was all.
    fn next(&mut self, bridge: &str, env: &impl Env) -> Result<bool, OfError> {
        match self.phase {
            Phase::Find => {
                if !self.sweep.find(bridge, env)? {
                    return Ok(false);
                }
                let meant = self.sweep.meant.len();
                if meant <= SLICE {
                    return self.sweep.run(bridge, 0..meant, false, env).map(|()| true);
                }
                env.change(|switch, now| (switch.bundle_open(bridge, now), Vec::new()))?;
                self.phase = Phase::Change;
                Ok(false)
            }
            Phase::Change => {
                if self.sweep.change(bridge, env)? {
                    env.change(|switch, _| ((), switch.bundle_commit(bridge)));
                    self.phase = Phase::Settle;
                }
                Ok(false)
            }
            Phase::Settle => Ok(env.change(|switch, now| (switch.bundle_settle(bridge, SETTLE, now), Vec::new()))),
        }
    }
}
