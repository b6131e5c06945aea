//! Flow mods that change very many rules. They run in slices, as bundles do, while changes of other
//! connections wait. Packets see the whole change at once.

use crate::agent::Core;
use crate::bundle::SETTLE;
use crate::conn::Conn;
use crate::dump::Job;
use crate::env::Env;
use crate::log;
use openflow::OfError;
use openflow::model::FlowMod;
use switch::tables::{Cursor, RuleRef};

/// Rules changed under one lock of the switch.
const SLICE: usize = 256;

/// A change and its progress.
#[derive(Debug)]
pub(crate) struct Sweep {
    change: Box<FlowMod>,
    meant: Vec<RuleRef>,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// It collects its rules, from this position.
    Find(Cursor),
    /// It changes them, from this one on.
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

    /// Collects some more of its rules; true when it has all.
    fn find(&mut self, bridge: &str, env: &impl Env) -> Result<bool, OfError> {
        if let At::Find(from) = self.at {
            let (change, meant) = (&self.change, &mut self.meant);
            let next = env.look(|switch| switch.find_meant(bridge, change, from, meant))?;
            self.at = next.map_or(At::Change(0), At::Find);
        }
        Ok(!matches!(self.at, At::Find(_)))
    }

    /// Changes some more of its rules within the open bundle; true when it has changed all.
    fn change(&mut self, bridge: &str, env: &impl Env) -> Result<bool, OfError> {
        let At::Change(from) = self.at else { return Ok(false) };
        let end = self.meant.len().min(from + SLICE);
        self.at = At::Change(end);
        self.run(bridge, from..end, true, env)?;
        Ok(end == self.meant.len())
    }

    /// Does the next slice within the open bundle; true when it is done.
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

/// A change outside a bundle that is under way.
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
        conn.job = Some(Job::Mass(Mass {
            xid,
            request: message.to_vec(),
            sweep: Sweep::new(change),
            phase: Phase::Find,
        }));
    }
}

impl Mass {
    /// Does the next slice; returns the rest.
    pub(crate) fn step(mut self, core: &mut Core, conn: &mut Conn, env: &impl Env) -> Option<Job> {
        let bridge = core.config.bridge.clone();
        let done = self.next(&bridge, env);
        core.take_events(env, Some((conn.id, self.xid)));
        match done {
            Ok(false) => return Some(Job::Mass(self)),
            Ok(true) => {}
            Err(error) => {
                log::refused(&bridge, &conn.options.name, error, &self.request);
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

    /// Does the next slice; true when it is done.
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
