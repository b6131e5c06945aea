//! A client's session: its start, keepalive and end.

use std::collections::BTreeMap;
use std::time::Duration;

use nanos::Nanos;
use ovsdb::Error;
use serde_json::Value;
use telemetry::budget::Budget;

use super::hold::Holding;
use super::monitors::{Lag, MonitorRef};
use super::outbox::Outbox;
use super::{BACKLOG, Close, Core, Now, SessionId, elapsed, encode};

/// A session's settings, which its remote determines.
#[derive(Debug, Clone)]
pub(crate) struct SessionOptions {
    /// The peer, for the log: `unix#3`.
    pub(crate) name: String,
    /// The remote, for its status.
    pub(crate) remote: String,
    /// The peer is a process of this machine.
    pub(crate) local: bool,
    /// Only read-only transactions are allowed.
    pub(crate) read_only: bool,
    /// The client's role; empty for none.
    pub(crate) role: String,
    /// The client's name, which its certificate has.
    pub(crate) client: Option<String>,
    /// The time after which a silent client is probed, and after the same time again disconnected;
    /// `None` for never.
    pub(crate) probe: Option<Duration>,
}

/// The state of a session.
pub(super) struct Session {
    pub(super) options: SessionOptions,
    pub(super) outbox: Outbox,
    /// The merged changes since the outbox became too full for updates, by database name.
    pub(super) lags: BTreeMap<String, Lag>,
    /// Its monitors by the JSON text of their ids.
    pub(super) monitors: BTreeMap<String, MonitorRef>,
    /// The client watches `_Server`, so it need not be disconnected when databases come and go.
    pub(super) change_aware: bool,
    pub(super) n_blocked: usize,
    /// The memory that it uses.
    pub(super) holding: Holding,
    /// The last commit with updates for this session, and whether they were merged: the same for
    /// all monitors of the session.
    decided: (u64, bool),
    last_heard: Nanos,
    probed: bool,
    dirty: bool,
    closing: Option<Close>,
}

impl Session {
    /// Whether the updates of a commit have to be merged instead of sent.
    pub(super) fn lags_at(&mut self, delivery: u64) -> bool {
        if self.decided.0 != delivery {
            self.decided = (delivery, self.lags());
        }
        self.decided.1
    }

    /// Whether updates have to be merged instead of sent.
    pub(super) fn lags(&self) -> bool {
        !self.lags.is_empty() || self.outbox.backlog() > BACKLOG
    }

    /// Charges `weight` bytes against the memory budget.
    ///
    /// # Errors
    /// `resources exhausted` when the session, or all sessions together, hold too much already.
    pub(super) fn hold(&mut self, weight: usize) -> Result<(), Error> {
        self.holding.keep(weight)
    }

    /// Releases what [`Session::hold`] charged.
    pub(super) fn let_go(&mut self, weight: usize) {
        self.holding.let_go(weight);
    }

    /// Appends a reply to the outbox, unless it is longer than what the session may hold.
    ///
    /// # Errors
    /// `resources exhausted`; the outbox is as it was.
    pub(super) fn reply(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        let out = self.outbox.tail();
        let before = out.len();
        write(out);
        let length = out.len() - before;
        self.holding.may_owe(length).inspect_err(|_| {
            let out = self.outbox.tail();
            out.truncate(before);
            out.shrink_to(BACKLOG);
        })
    }

    pub(super) fn probe_deadline(&self) -> Option<Nanos> {
        let probe = self.options.probe.filter(|_| self.closing.is_none())?;
        Some(self.last_heard + if self.probed { probe * 2 } else { probe })
    }
}

impl Core {
    /// A client has connected.
    pub(crate) fn connect(&mut self, options: SessionOptions, now: Now) -> SessionId {
        // The switch in the same process is not limited: the budget protects it.
        let holding = match options.remote.is_empty() {
            true => Holding::new(&Budget::new(usize::MAX / 2, 0)),
            false => Holding::new(&self.budget),
        };
        let id = SessionId(self.next_session);
        self.next_session += 1;
        let session = Session {
            // The switch in the same process must not lose its connection.
            change_aware: options.remote.is_empty(),
            options,
            outbox: Outbox::default(),
            lags: BTreeMap::new(),
            monitors: BTreeMap::new(),
            n_blocked: 0,
            holding,
            decided: (0, false),
            last_heard: now.monotonic,
            probed: false,
            dirty: false,
            closing: None,
        };
        self.deadline_moved |= session.options.probe.is_some();
        self.sessions.insert(id, session);
        id
    }

    /// A client has disconnected: removes its monitors, waiting transactions and locks. No batch
    /// may be open.
    pub(crate) fn disconnect(&mut self, id: SessionId) {
        debug_assert!(self.batch.is_empty());
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        self.freed += session.outbox.memory();
        if !session.monitors.is_empty() {
            self.databases
                .values_mut()
                .for_each(|hosted| hosted.monitors.leave_all(id));
        }
        if session.n_blocked > 0 {
            self.blocked.retain(|blocked| blocked.session != id);
        }
        self.forget_forwards(id);
        for (name, told) in self.locks.leave(id) {
            self.tell_lock(&name, told);
        }
    }

    /// Something arrived from the client.
    pub(crate) fn heard(&mut self, id: SessionId, now: Now) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.last_heard = now.monotonic;
            session.probed = false;
        }
    }

    /// About this many bytes of memory were freed.
    pub(crate) fn freed(&mut self, bytes: usize) {
        self.freed += bytes;
    }

    /// Whether the server reads from the client: not while the client does not read.
    pub(crate) fn listens(&self, id: SessionId) -> bool {
        self.sessions
            .get(&id)
            .is_some_and(|session| !session.lags() && session.closing.is_none())
    }

    /// Whether the session ends, once its outbox has been sent.
    pub(crate) fn is_closing(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|session| session.closing.is_some())
    }

    /// The bytes for the client.
    pub(crate) fn outbox(&mut self, id: SessionId) -> Option<&mut Outbox> {
        self.sessions.get_mut(&id).map(|session| &mut session.outbox)
    }

    /// The sessions whose outboxes grew since the last call.
    pub(crate) fn take_dirty(&mut self, into: &mut Vec<SessionId>) {
        for id in self.dirty.drain(..) {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.dirty = false;
                into.push(id);
            }
        }
    }

    /// The sessions to close, each once, with the reason. Their outboxes may still be sent.
    pub(crate) fn take_closing(&mut self) -> Vec<(SessionId, Close)> {
        let closing = std::mem::take(&mut self.closing);
        let reason = |id: SessionId| Some((id, self.sessions.get(&id)?.closing.clone()?));
        closing.into_iter().filter_map(reason).collect()
    }

    /// Ends a session.
    pub(crate) fn close(&mut self, id: SessionId, reason: Close) {
        if let Some(session) = self.sessions.get_mut(&id)
            && session.closing.is_none()
        {
            session.closing = Some(reason);
            self.closing.push(id);
        }
    }

    /// Ends all sessions that `which` holds for.
    pub(crate) fn close_all(&mut self, reason: &Close, which: impl Fn(&SessionOptions) -> bool) {
        let chosen = self.sessions.iter().filter(|(_, session)| which(&session.options));
        let chosen: Vec<SessionId> = chosen.map(|(id, _)| *id).collect();
        for id in chosen {
            self.close(id, reason.clone());
        }
    }

    /// Ends all sessions that would not notice a change of the databases otherwise.
    pub(super) fn close_unaware(&mut self, reason: &str) {
        let unaware = self.sessions.iter().filter(|(_, session)| !session.change_aware);
        let unaware: Vec<SessionId> = unaware.map(|(id, _)| *id).collect();
        for id in unaware {
            self.close(id, Close::Info(format!("disconnecting ({reason})")));
        }
    }

    /// The number of sessions, of one remote or of all.
    pub(crate) fn n_sessions(&self, remote: Option<&str>) -> usize {
        let counts = |session: &&Session| remote.is_none_or(|remote| session.options.remote == remote);
        self.sessions.values().filter(counts).count()
    }

    /// The number of sessions that are not closing.
    pub(crate) fn n_open(&self) -> usize {
        self.sessions
            .values()
            .filter(|session| session.closing.is_none())
            .count()
    }

    /// The session that has been silent longest among the idle sessions: those without monitor,
    /// lock, waiting transaction and bytes to be sent. Only of peers on other machines if
    /// `remote_only`.
    pub(crate) fn longest_idle(&self, remote_only: bool) -> Option<SessionId> {
        let idle = self.sessions.iter().filter(|(_, session)| {
            let SessionOptions { remote, local, .. } = &session.options;
            let may_leave = !remote.is_empty() && (!local || !remote_only);
            may_leave && session.closing.is_none() && session.holding.kept() == 0 && session.outbox.backlog() == 0
        });
        let longest = idle.min_by_key(|(id, session)| (session.last_heard, **id));
        longest.map(|(id, _)| *id)
    }

    /// The peer's name in the log.
    pub(crate) fn session_name(&self, id: SessionId) -> &str {
        self.sessions
            .get(&id)
            .map_or("", |session| session.options.name.as_str())
    }

    /// The names of locks that sessions of a remote own, wait for and have lost.
    pub(crate) fn remote_locks(&self, remote: &str) -> (Vec<&str>, Vec<&str>) {
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for (id, session) in &self.sessions {
            if session.options.remote == remote {
                held.extend(self.locks.owned(*id));
                waiting.extend(self.locks.asked(*id).filter(|name| !self.locks.owns(name, *id)));
            }
        }
        held.sort_unstable();
        waiting.sort_unstable();
        (held, waiting)
    }

    /// Appends to a session's outbox.
    pub(super) fn post(&mut self, id: SessionId, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(session) = self.sessions.get_mut(&id) {
            write(session.outbox.tail());
            mark_dirty(&mut self.dirty, id, session);
        }
    }

    /// Replies to a read-only request, with an error if the reply exceeds the session's share of
    /// memory.
    pub(super) fn answer(&mut self, id: SessionId, request: &Value, result: &Value) {
        if let Some(session) = self.sessions.get_mut(&id) {
            let written = session.reply(|out| encode::reply(out, request, result));
            mark_dirty(&mut self.dirty, id, session);
            if let Err(error) = written {
                self.refuse(id, request, &error.to_json());
            }
        }
    }

    /// Replies with an error.
    pub(super) fn refuse(&mut self, id: SessionId, request: &Value, error: &Value) {
        self.post(id, |out| encode::error(out, request, error));
    }

    pub(super) fn probe_sessions(&mut self, now: Now) {
        let due = self
            .sessions
            .iter()
            .filter(|(_, session)| session.probe_deadline().is_some_and(|at| at <= now.monotonic));
        let due: Vec<SessionId> = due.map(|(id, _)| *id).collect();
        for id in due {
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            if session.probed {
                let silent = elapsed(session.last_heard, now.monotonic).as_secs() / 2;
                let reason = format!("no response to inactivity probe after {silent} seconds, disconnecting");
                self.close(id, Close::Error(reason));
            } else {
                session.probed = true;
                self.post(id, encode::probe);
            }
        }
    }
}

/// Records that a session's outbox grew.
pub(super) fn mark_dirty(dirty: &mut Vec<SessionId>, id: SessionId, session: &mut Session) {
    session.holding.owe(session.outbox.backlog());
    if !session.dirty {
        session.dirty = true;
        dirty.push(id);
    }
}
