//! Flow monitors (Nicira's, and OpenFlow 1.4 §7.3.5.17).
//!
//! Monitors of a connection that does not read are paused: it gets deletions only. After it has
//! read, it gets all rules that were added or changed meanwhile.

use crate::agent::Core;
use crate::conn::Conn;
use crate::dump::Job;
use crate::env::Env;
use crate::events::Effect;
use nanos::Nanos;
use openflow::model::{
    Body, FlowMonitorRequest, FlowStatsRequest, FlowUpdate, Instructions, MonitorCommand, StatsReply,
};
use openflow::{OfError, Version};
use std::collections::BTreeMap;
use switch::tables::{Condition, Cursor, Found, RuleUpdate, TABLES};

/// The flags of a monitor.
const INITIAL: u16 = 1;
const ADD: u16 = 2;
const DELETE: u16 = 4;
const MODIFY: u16 = 8;
const INSTRUCTIONS: u16 = 0x10;
const OWN: u16 = 0x20;
const ONLY_OWN: u16 = 0x40;

/// The numbers of events in messages.
const ADDED: u16 = 0;
const REMOVED: u16 = 1;
const MODIFIED: u16 = 2;
const INITIALLY: u16 = 3;

/// The most monitors of a connection.
const MOST: usize = 1024;
/// Rules read under one lock of the switch.
const SLICE: usize = 256;

/// A connection's monitors.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    by_id: BTreeMap<u32, Monitor>,
    /// When the monitors were paused.
    paused: Option<Nanos>,
    /// The updates of the next message.
    updates: Vec<FlowUpdate>,
    abbreviated: bool,
}

#[derive(Clone, Debug)]
struct Monitor {
    flags: u16,
    table: Option<u8>,
    condition: Condition,
}

impl Monitors {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

impl Core {
    pub(crate) fn flow_monitor(
        &mut self,
        conn: &mut Conn,
        xid: u32,
        requests: &[FlowMonitorRequest],
        env: &impl Env,
    ) -> Result<(), OfError> {
        let mut monitors = conn.monitors.by_id.clone();
        let mut new = Vec::new();
        for request in requests {
            match request.command {
                MonitorCommand::Delete => {
                    monitors.remove(&request.id).ok_or(OfError::MofcUnknownMonitor)?;
                    continue;
                }
                MonitorCommand::Add if monitors.contains_key(&request.id) => return Err(OfError::MofcMonitorExists),
                MonitorCommand::Modify if !monitors.contains_key(&request.id) => {
                    return Err(OfError::MofcUnknownMonitor);
                }
                MonitorCommand::Add | MonitorCommand::Modify => {}
            }
            if request.table.is_some_and(|table| table >= TABLES) {
                return Err(OfError::BrcBadTableId);
            }
            let asked = FlowStatsRequest {
                table: request.table,
                out_port: request.out_port,
                out_group: request.out_group,
                matching: request.matching.clone(),
                ..FlowStatsRequest::default()
            };
            let monitor = Monitor::new(request, self.condition(&asked, env)?);
            if monitor.flags & INITIAL != 0 {
                new.push(monitor.clone());
            }
            monitors.insert(request.id, monitor);
        }
        if monitors.len() > MOST {
            return Err(OfError::MofcUnknown);
        }
        conn.monitors.by_id = monitors;
        self.effects.push(Effect::MonitorsChanged);
        conn.job = Some(Job::Monitor(Walk {
            xid,
            monitors: new,
            since: None,
            at: Cursor::default(),
        }));
        Ok(())
    }

    pub(crate) fn monitor_cancel(&mut self, conn: &mut Conn, id: u32) -> Result<(), OfError> {
        conn.monitors.by_id.remove(&id).ok_or(OfError::MofcUnknownMonitor)?;
        self.effects.push(Effect::MonitorsChanged);
        Ok(())
    }
}

impl Monitor {
    fn new(request: &FlowMonitorRequest, condition: Condition) -> Monitor {
        let flags = match request.flags & (OWN | ONLY_OWN) {
            // Open vSwitch and its tools take this flag alone as: own changes in full, besides
            // others' changes. A client that means the specification's "own changes only" sets both
            // flags; otherwise it would get nothing but transaction ids.
            ONLY_OWN => request.flags ^ (OWN | ONLY_OWN),
            _ => request.flags,
        };
        Monitor {
            flags,
            table: request.table,
            condition,
        }
    }

    fn is_of(&self, table: u8) -> bool {
        self.table.is_none_or(|wanted| wanted == table)
    }
}

impl Conn {
    /// Records a change of a rule if a monitor covers it; `own` is the transaction id if a request
    /// of this connection caused it.
    pub(crate) fn update(&mut self, update: &RuleUpdate, own: Option<u32>, now: Nanos) {
        if self.monitors.is_empty() {
            return;
        }
        if self.out.is_full() && self.monitors.paused.is_none() {
            self.pause(now);
        }
        let image = update.image();
        let (wanted, event, reason) = match update {
            RuleUpdate::Added(_) => (ADD, ADDED, 0),
            RuleUpdate::Modified(_) => (MODIFY, MODIFIED, 0),
            RuleUpdate::Removed(_, reason) => (DELETE, REMOVED, *reason as u16),
        };
        let told = self.monitors.by_id.values().filter(|monitor| {
            monitor.flags & wanted != 0
                && monitor.is_of(image.table)
                && (monitor.flags & ONLY_OWN == 0 || own.is_some())
                && monitor.condition.covers_image(image)
        });
        let flags = told.fold(None, |flags: Option<u16>, monitor| {
            Some(flags.unwrap_or(0) | monitor.flags)
        });
        let Some(flags) = flags else { return };
        if self.monitors.paused.is_some() && event != REMOVED {
            return;
        }
        if let Some(xid) = own.filter(|_| flags & (OWN | ONLY_OWN) == 0 && self.monitors.paused.is_none()) {
            if !std::mem::replace(&mut self.monitors.abbreviated, true) {
                self.monitors.updates.push(FlowUpdate::Abbrev { xid });
            }
            return;
        }
        self.monitors.updates.push(FlowUpdate::Full {
            event,
            reason,
            priority: image.priority,
            idle_timeout: image.idle_timeout,
            hard_timeout: image.hard_timeout,
            table: image.table,
            cookie: image.cookie,
            matching: image.matching.clone(),
            instructions: if flags & INSTRUCTIONS != 0 {
                (*image.instructions).clone()
            } else {
                Instructions::default()
            },
        });
    }

    /// Sends the recorded updates.
    pub(crate) fn flush_updates(&mut self) {
        self.monitors.abbreviated = false;
        let updates = std::mem::take(&mut self.monitors.updates);
        if !updates.is_empty() {
            self.tell(0, false, updates);
        }
    }

    fn tell(&mut self, xid: u32, more: bool, updates: Vec<FlowUpdate>) {
        let reply = StatsReply::FlowMonitor(updates);
        self.send(xid, Body::StatsReply { more, reply });
    }

    fn pause(&mut self, now: Nanos) {
        self.flush_updates();
        self.monitors.paused = Some(now);
        if self.version() >= Some(Version::V14) {
            self.tell(0, false, vec![FlowUpdate::Paused]);
        } else {
            self.send(0, Body::FlowMonitorPaused);
        }
    }

    /// Resumes paused monitors if the peer has read everything.
    pub(crate) fn resume_monitors(&mut self) {
        if self.job.is_some() || self.out.len() > 0 {
            return;
        }
        if let Some(since) = self.monitors.paused {
            self.job = Some(Job::Monitor(Walk {
                xid: 0,
                monitors: self.monitors.by_id.values().cloned().collect(),
                since: Some(since),
                at: Cursor::default(),
            }));
        }
    }
}

/// A dump of rules for monitors that is under way.
#[derive(Debug)]
pub(crate) struct Walk {
    xid: u32,
    monitors: Vec<Monitor>,
    /// Only rules added or changed since then; all if `None`.
    since: Option<Nanos>,
    at: Cursor,
}

impl Walk {
    /// Sends the next part; returns the rest.
    pub(crate) fn step(mut self, conn: &mut Conn, env: &impl Env, bridge: &str) -> Option<Job> {
        let mut updates = Vec::new();
        let initially = match conn.version() {
            Some(version) if version >= Version::V14 => INITIALLY,
            _ => ADDED,
        };
        let next = if self.monitors.is_empty() {
            None
        } else {
            env.look(|switch| {
                let tables = switch.bridge(bridge)?.tables();
                tables.page(None, &Condition::ANY, self.at, SLICE, |found| {
                    updates.extend(self.update(&found, initially));
                })
            })
        };
        let more = next.is_some();
        let resumed = self.since.is_some() && !more;
        if self.since.is_none() && (!more || !updates.is_empty()) || !updates.is_empty() {
            conn.tell(self.xid, more && self.since.is_none(), updates);
        }
        if resumed {
            conn.monitors.paused = None;
            if conn.version() >= Some(Version::V14) {
                conn.tell(0, false, vec![FlowUpdate::Resumed]);
            } else {
                conn.send(0, Body::FlowMonitorResumed);
            }
        }
        self.at = next?;
        Some(Job::Monitor(self))
    }

    fn update(&self, found: &Found<'_>, initially: u16) -> Option<FlowUpdate> {
        let rule = found.rule;
        let (event, wanted) = match self.since {
            None => (initially, INITIAL),
            Some(since) if rule.created >= since => (ADDED, ADD),
            Some(since) if rule.modified >= since => (MODIFIED, MODIFY),
            Some(_) => return None,
        };
        let told = self.monitors.iter().filter(|monitor| {
            monitor.flags & wanted != 0 && monitor.is_of(found.at.table) && monitor.condition.meets_found(found)
        });
        let flags = told.fold(None, |flags: Option<u16>, monitor| {
            Some(flags.unwrap_or(0) | monitor.flags)
        })?;
        Some(FlowUpdate::Full {
            event,
            reason: 0,
            priority: found.priority,
            idle_timeout: rule.idle_timeout,
            hard_timeout: rule.hard_timeout,
            table: found.at.table,
            cookie: rule.cookie,
            matching: found.matching(),
            instructions: if flags & INSTRUCTIONS != 0 {
                (*rule.instructions).clone()
            } else {
                Instructions::default()
            },
        })
    }
}
