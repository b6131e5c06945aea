//! Monitors: which sessions get a database's changes.
//!
//! Most clients monitor the same tables. Equal monitors form a group: the server encodes an update
//! once for each commit, and copies it to all members with their own ids.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ovsdb::{Commit, Database, Error, Monitor, MonitorVersion, Row, RowChange, Updates, Uuid};
use serde_json::{Value, json};

use super::session::mark_dirty;
use super::{Core, HELD_ITEM, Hosted, SessionId, encode, weigh};

/// The monitors of one database.
#[derive(Default)]
pub(super) struct Monitors {
    groups: BTreeMap<u64, Group>,
    by_monitor: HashMap<Monitor, u64>,
    next_group: u64,
    scratch: Vec<u8>,
}

struct Group {
    monitor: Monitor,
    members: Vec<Member>,
}

struct Member {
    session: SessionId,
    /// The monitor's id as JSON text.
    id: Box<str>,
}

/// Where a session's monitor is.
pub(super) struct MonitorRef {
    pub(super) db: String,
    group: u64,
    weight: usize,
}

/// The changes of a database that a session has not got yet, with the rows before the changes.
#[derive(Default)]
pub(super) struct Lag {
    /// The last commit in it, by [`Core::delivery`]: each of a session's monitors brings it.
    last: u64,
    before: BTreeMap<(usize, Uuid), Option<Arc<Row>>>,
}

impl Lag {
    pub(super) fn add(&mut self, commit: &Commit, delivery: u64) {
        if std::mem::replace(&mut self.last, delivery) == delivery {
            return;
        }
        for change in &commit.changes {
            let row = (change.table, change.uuid);
            let before = self.before.entry(row).or_insert_with(|| change.old.clone());
            if before.is_none() && change.new.is_none() {
                self.before.remove(&row);
            }
        }
    }

    /// All changes as one commit. Transactions that have been undone are not part of it.
    pub(super) fn into_commit(self, db: &Database) -> Commit {
        let changes = self.before.into_iter().filter_map(|((table, uuid), old)| {
            let new = db.row(table, uuid).cloned();
            let same = match (&old, &new) {
                (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                (None, None) => true,
                _ => false,
            };
            (!same).then_some(RowChange { table, uuid, old, new })
        });
        Commit {
            id: db.last_txn(),
            changes: changes.collect(),
            comment: None,
            durable: false,
        }
    }
}

impl Hosted {
    /// Whether clients know transactions by their UUIDs.
    fn is_numbered(&self) -> bool {
        self.relay.as_ref().is_some_and(|relay| relay.numbered)
    }

    /// The UUID of a commit as clients know it.
    pub(super) fn txn(&self, commit: &Commit) -> Uuid {
        if self.is_numbered() { commit.id } else { Uuid::ZERO }
    }

    /// The UUID of the last commit as clients know it.
    fn last_txn(&self) -> Uuid {
        match self.is_numbered() {
            true => self.db.last_txn(),
            false => Uuid::ZERO,
        }
    }
}

impl Monitors {
    fn join(&mut self, monitor: Monitor, session: SessionId, id: &str) -> u64 {
        let group = *self.by_monitor.entry(monitor).or_insert_with_key(|monitor| {
            self.next_group += 1;
            self.groups.insert(
                self.next_group,
                Group {
                    monitor: monitor.clone(),
                    members: Vec::new(),
                },
            );
            self.next_group
        });
        if let Some(group) = self.groups.get_mut(&group) {
            group.members.push(Member { session, id: id.into() });
        }
        group
    }

    fn leave(&mut self, group: u64, session: SessionId, id: &str) {
        let Some(members) = self.groups.get_mut(&group).map(|group| &mut group.members) else {
            return;
        };
        members.retain(|member| member.session != session || *member.id != *id);
        if members.is_empty()
            && let Some(group) = self.groups.remove(&group)
        {
            self.by_monitor.remove(&group.monitor);
        }
    }

    /// Removes a session that has ended from all groups.
    pub(super) fn leave_all(&mut self, session: SessionId) {
        let Monitors { groups, by_monitor, .. } = self;
        groups.retain(|_, group| {
            group.members.retain(|member| member.session != session);
            if group.members.is_empty() {
                by_monitor.remove(&group.monitor);
            }
            !group.members.is_empty()
        });
    }

    /// Calls `tell` for each monitor that the commit concerns, with the session and a function that
    /// appends the notification.
    pub(super) fn deliver(
        &mut self,
        commit: &Commit,
        txn: Uuid,
        mut tell: impl FnMut(SessionId, &dyn Fn(&mut Vec<u8>)),
    ) {
        for group in self.groups.values() {
            let Some(updates) = group.monitor.update(commit) else {
                continue;
            };
            self.scratch.clear();
            encode::json(&mut self.scratch, &updates);
            for member in &group.members {
                let version = group.monitor.version();
                tell(member.session, &|out| {
                    write_update(out, version, &member.id, txn, &self.scratch)
                });
            }
        }
    }

    /// Appends the notification of a commit for one monitor, if the commit concerns it.
    pub(super) fn update_one(&self, reference: &MonitorRef, id: &str, commit: &Commit, txn: Uuid, out: &mut Vec<u8>) {
        let Some(group) = self.groups.get(&reference.group) else {
            return;
        };
        if let Some(updates) = group.monitor.update(commit) {
            write_updates(out, group.monitor.version(), id, txn, &updates);
        }
    }
}

/// Appends a notification with encoded updates.
fn write_update(out: &mut Vec<u8>, version: MonitorVersion, id: &str, txn: Uuid, updates: &[u8]) {
    begin_update(out, version, id, txn);
    out.extend_from_slice(updates);
    out.extend_from_slice(b"]}");
}

fn write_updates(out: &mut Vec<u8>, version: MonitorVersion, id: &str, txn: Uuid, updates: &Updates) {
    begin_update(out, version, id, txn);
    encode::json(out, updates);
    out.extend_from_slice(b"]}");
}

fn begin_update(out: &mut Vec<u8>, version: MonitorVersion, id: &str, txn: Uuid) {
    out.extend_from_slice(b"{\"id\":null,\"method\":\"");
    out.extend_from_slice(version.method().as_bytes());
    out.extend_from_slice(b"\",\"params\":[");
    out.extend_from_slice(id.as_bytes());
    out.push(b',');
    if version == MonitorVersion::CondSince {
        out.push(b'"');
        out.extend_from_slice(txn.to_text().as_str().as_bytes());
        out.extend_from_slice(b"\",");
    }
}

impl Core {
    /// `monitor`, `monitor_cond`, `monitor_cond_since`.
    pub(super) fn start_monitor(&mut self, session: SessionId, method: &str, params: &[Value], request: &Value) {
        if let Err(error) = self.try_start_monitor(session, method, params, request) {
            self.refuse(session, request, &error.to_json());
        }
    }

    fn try_start_monitor(
        &mut self,
        session: SessionId,
        method: &str,
        params: &[Value],
        request: &Value,
    ) -> Result<(), Error> {
        let db = self.known_db(method, params)?;
        let (id, requests, last, version) = match (method, params) {
            ("monitor", [_, id, requests]) => (id, requests, None, MonitorVersion::Monitor),
            ("monitor_cond", [_, id, requests]) => (id, requests, None, MonitorVersion::Cond),
            ("monitor_cond_since", [_, id, requests, last]) => (id, requests, Some(last), MonitorVersion::CondSince),
            _ => return Err(Error::syntax(&Value::from(params), "invalid parameters")),
        };
        let (Some(hosted), Some(state)) = (self.databases.get_mut(&db), self.sessions.get_mut(&session)) else {
            return Ok(());
        };
        let text = id.to_string();
        if state.monitors.contains_key(&text) {
            return Err(Error::syntax(id, "duplicate monitor ID"));
        }
        let is_uuid = |last: &Value| last.as_str().is_some_and(|text| text.parse::<Uuid>().is_ok());
        if let Some(last) = last.filter(|last| !is_uuid(last)) {
            return Err(Error::syntax(last, "last-txn-id must be UUID format."));
        }
        let monitor = Monitor::new(&hosted.db, requests, version)?;
        let weight = HELD_ITEM + text.len() + weigh(requests);
        state.hold(weight)?;
        let written = match last {
            None => state.reply(|out| encode::reply(out, request, &monitor.initial(&hosted.db))),
            Some(last) => {
                let last = last.as_str().and_then(|last| last.parse().ok()).unwrap_or(Uuid::ZERO);
                let (found, updates) = match hosted.is_numbered() {
                    true => monitor.since(&hosted.db, last),
                    // Without numbers, clients always read everything again.
                    false => (false, monitor.initial(&hosted.db)),
                };
                let txn = hosted.last_txn().to_text();
                state.reply(|out| encode::reply(out, request, &(found, txn.as_str(), &updates)))
            }
        };
        if let Err(error) = written {
            state.let_go(weight);
            return Err(error);
        }
        mark_dirty(&mut self.dirty, session, state);
        let group = hosted.monitors.join(monitor, session, &text);
        state.monitors.insert(text, MonitorRef { db, group, weight });
        Ok(())
    }

    /// `monitor_cond_change`: the resulting update is sent before the reply.
    pub(super) fn change_monitor(&mut self, session: SessionId, params: &[Value]) -> Result<Value, Error> {
        let [old_id, new_id, requests] = params else {
            return Err(Error::syntax(&Value::from(params), "invalid parameters"));
        };
        let (old, new) = (old_id.to_string(), new_id.to_string());
        let Some(state) = self.sessions.get_mut(&session) else {
            return Ok(json!({}));
        };
        let Some(reference) = state.monitors.get(&old) else {
            return Err(Error::syntax(old_id, "unknown monitor session"));
        };
        if new != old && state.monitors.contains_key(&new) {
            return Err(Error::syntax(new_id, "duplicate monitor ID"));
        }
        let (db, group, old_weight) = (reference.db.clone(), reference.group, reference.weight);
        let weight = HELD_ITEM + new.len() + weigh(requests);
        let Some(hosted) = self.databases.get_mut(&db) else {
            return Ok(json!({}));
        };
        let Some(mut monitor) = hosted.monitors.groups.get(&group).map(|group| group.monitor.clone()) else {
            return Ok(json!({}));
        };
        let updates = monitor.change(&hosted.db, requests)?;
        state.hold(weight)?;
        state.let_go(old_weight);
        if let Some(updates) = updates {
            write_updates(
                state.outbox.tail(),
                monitor.version(),
                &new,
                hosted.last_txn(),
                &updates,
            );
            mark_dirty(&mut self.dirty, session, state);
        }
        hosted.monitors.leave(group, session, &old);
        state.monitors.remove(&old);
        let group = hosted.monitors.join(monitor, session, &new);
        state.monitors.insert(new, MonitorRef { db, group, weight });
        Ok(json!({}))
    }

    /// `monitor_cancel`.
    pub(super) fn end_monitor(&mut self, session: SessionId, params: &[Value], request: &Value) {
        let [id] = params else {
            return self.refuse(session, request, &"invalid parameters".into());
        };
        let text = id.to_string();
        let reference = self
            .sessions
            .get_mut(&session)
            .and_then(|state| state.monitors.remove(&text));
        let Some(reference) = reference else {
            return self.refuse(session, request, &"unknown monitor".into());
        };
        if let Some(hosted) = self.databases.get_mut(&reference.db) {
            hosted.monitors.leave(reference.group, session, &text);
        }
        if let Some(state) = self.sessions.get_mut(&session) {
            state.let_go(reference.weight);
        }
        self.post(session, |out| encode::reply(out, request, &json!({})));
    }

    /// Ends all monitors of a database, and notifies the clients that stay connected.
    pub(super) fn cancel_monitors(&mut self, db: &str) {
        let Some(hosted) = self.databases.get_mut(db) else {
            return;
        };
        hosted.monitors = Monitors::default();
        for (id, session) in &mut self.sessions {
            session.lags.remove(db);
            let monitors = std::mem::take(&mut session.monitors).into_iter();
            let (canceled, kept): (BTreeMap<_, _>, _) = monitors.partition(|(_, reference)| reference.db == db);
            session.monitors = kept;
            session.let_go(canceled.values().map(|reference| reference.weight).sum());
            if !session.change_aware {
                continue;
            }
            for text in canceled.keys() {
                let out = session.outbox.tail();
                out.extend_from_slice(b"{\"id\":null,\"method\":\"monitor_canceled\",\"params\":[");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"]}");
                mark_dirty(&mut self.dirty, *id, session);
            }
        }
    }
}
