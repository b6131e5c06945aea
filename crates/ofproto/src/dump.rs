//! Statistics of rules, in parts.

use crate::agent::Core;
use crate::bundle::Commit;
use crate::conn::Conn;
use crate::env::Env;
use crate::features::FeaturesDump;
use crate::groups::GroupsDump;
use crate::mass::Mass;
use crate::monitor::Walk;
use nanos::Nanos;
use openflow::OfError;
use openflow::model::{AggregateStats, Body, Duration, FlowCounters, FlowStats, FlowStatsRequest, StatsReply};
use switch::tables::{Condition, Cursor, Found};

/// Rules read under one lock of the switch.
const SLICE: usize = 512;

/// An answer or change in many parts that is under way.
#[derive(Debug)]
pub(crate) enum Job {
    Rules(Box<Dump>),
    Features(FeaturesDump),
    Groups(GroupsDump),
    Monitor(Walk),
    Commit(Commit),
    Mass(Mass),
}

impl Job {
    /// What is left to do when its connection closes: an uncommitted bundle is rolled back, a
    /// change of rules goes on. Answers end.
    pub(crate) fn orphaned(self, core: &mut Core, env: &impl Env) -> Option<Job> {
        match self {
            Job::Commit(commit) => commit.give_up(core, env),
            Job::Mass(mass) => Some(Job::Mass(mass)),
            Job::Rules(_) | Job::Features(_) | Job::Groups(_) | Job::Monitor(_) => None,
        }
    }

    /// Bytes of the requests that it holds.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Job::Commit(commit) => commit.bytes(),
            _ => 0,
        }
    }

    /// Does the next part; returns the rest.
    pub(crate) fn step(self, core: &mut Core, conn: &mut Conn, env: &impl Env, now: Nanos) -> Option<Job> {
        let bridge = &core.config.bridge;
        match self {
            Job::Rules(dump) => dump.step(conn, env, bridge, now).map(|dump| Job::Rules(Box::new(dump))),
            Job::Features(dump) => dump.step(conn),
            Job::Groups(dump) => dump.step(conn, env, bridge),
            Job::Monitor(walk) => walk.step(conn, env, bridge),
            Job::Commit(commit) => commit.step(core, conn, env),
            Job::Mass(mass) => mass.step(core, conn, env),
        }
    }
}

/// Statistics of rules that are under way.
#[derive(Debug)]
pub(crate) struct Dump {
    xid: u32,
    table: Option<u8>,
    condition: Condition,
    at: Cursor,
    kind: What,
}

#[derive(Debug)]
enum What {
    Flows { nxm: bool },
    Counters,
    Sum { nxm: bool, sum: AggregateStats },
}

impl Core {
    pub(crate) fn dump_flows(
        &self,
        conn: &mut Conn,
        xid: u32,
        asked: &FlowStatsRequest,
        env: &impl Env,
    ) -> Result<(), OfError> {
        let kind = What::Flows { nxm: asked.nxm };
        self.begin(conn, xid, asked, kind, env)
    }

    pub(crate) fn dump_counters(
        &self,
        conn: &mut Conn,
        xid: u32,
        asked: &FlowStatsRequest,
        env: &impl Env,
    ) -> Result<(), OfError> {
        self.begin(conn, xid, asked, What::Counters, env)
    }

    pub(crate) fn aggregate(
        &self,
        conn: &mut Conn,
        xid: u32,
        asked: &FlowStatsRequest,
        env: &impl Env,
    ) -> Result<(), OfError> {
        let sum = AggregateStats::default();
        let kind = What::Sum { nxm: asked.nxm, sum };
        self.begin(conn, xid, asked, kind, env)
    }

    /// The condition that the rules of a request meet.
    pub(crate) fn condition(&self, asked: &FlowStatsRequest, env: &impl Env) -> Result<Condition, OfError> {
        env.look(|switch| match switch.bridge(&self.config.bridge) {
            Some(bridge) => Condition::of_request(asked, bridge.tables()),
            None => Ok(Condition::ANY),
        })
    }

    fn begin(
        &self,
        conn: &mut Conn,
        xid: u32,
        asked: &FlowStatsRequest,
        kind: What,
        env: &impl Env,
    ) -> Result<(), OfError> {
        if asked.table.is_some_and(|table| table >= switch::tables::TABLES) {
            return Err(OfError::BrcBadTableId);
        }
        let condition = self.condition(asked, env)?;
        env.push_statistics();
        let dump = Dump {
            xid,
            table: asked.table,
            condition,
            at: Cursor::default(),
            kind,
        };
        conn.job = Some(Job::Rules(Box::new(dump)));
        Ok(())
    }
}

impl Dump {
    /// Sends the next part; what is left to do.
    fn step(mut self, conn: &mut Conn, env: &impl Env, bridge: &str, now: Nanos) -> Option<Dump> {
        let (mut flows, mut counters) = (Vec::new(), Vec::new());
        let next = env.look(|switch| {
            let tables = switch.bridge(bridge)?.tables();
            tables.page(self.table, &self.condition, self.at, SLICE, |found| {
                match &mut self.kind {
                    What::Flows { .. } => flows.push(stats(&found, now)),
                    What::Counters => counters.push(counted(&found, now)),
                    What::Sum { sum, .. } => {
                        sum.flows += 1;
                        sum.packets += found.rule.packets;
                        sum.bytes += found.rule.bytes;
                    }
                }
            })
        });
        let more = next.is_some();
        let reply = match self.kind {
            What::Flows { nxm } if !more || !flows.is_empty() => Some(StatsReply::Flow { flows, nxm }),
            What::Counters if !more || !counters.is_empty() => Some(StatsReply::FlowStats(counters)),
            What::Sum { nxm, sum } if !more => Some(StatsReply::Aggregate { stats: sum, nxm }),
            _ => None,
        };
        if let Some(reply) = reply {
            conn.send(self.xid, Body::StatsReply { more, reply });
        }
        self.at = next?;
        Some(self)
    }
}

/// A duration in a message, in whole milliseconds as Open vSwitch sends it and clients print it.
pub(crate) fn duration(since: Nanos, now: Nanos) -> Duration {
    let age = now.since(since);
    Duration {
        sec: u32::try_from(age.as_secs()).unwrap_or(u32::MAX),
        nsec: age.subsec_millis() * 1_000_000,
    }
}

/// A rule's statistics.
pub(crate) fn stats(found: &Found<'_>, now: Nanos) -> FlowStats {
    let rule = found.rule;
    FlowStats {
        table: found.at.table,
        duration: duration(rule.created, now),
        priority: found.priority,
        idle_timeout: rule.idle_timeout,
        hard_timeout: rule.hard_timeout,
        idle_age: age(rule.used, now),
        hard_age: age(rule.modified, now),
        flags: rule.flags,
        importance: rule.importance,
        cookie: rule.cookie,
        packets: rule.packets,
        bytes: rule.bytes,
        matching: found.matching(),
        instructions: (*rule.instructions).clone(),
    }
}

fn age(since: Nanos, now: Nanos) -> Option<u16> {
    Some(u16::try_from(now.since(since).as_secs()).unwrap_or(u16::MAX))
}

/// A rule's counters.
fn counted(found: &Found<'_>, now: Nanos) -> FlowCounters {
    let rule = found.rule;
    FlowCounters {
        table: found.at.table,
        reason: 0,
        priority: found.priority,
        duration: duration(rule.created, now),
        idle_age: age(rule.used, now),
        packets: rule.packets,
        bytes: rule.bytes,
        matching: found.matching(),
    }
}
