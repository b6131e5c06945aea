//! What happened in tables, and who is told of it.

use crate::agent::{Agent, Core};
use crate::asynchronous::Happened;
use crate::conn::ConnId;
use crate::env::Env;
use openflow::Version;
use openflow::model::Body;
use switch::tables::TableEvent;
use wire::Nanos;

/// Events, and the request that caused them, if one did.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) list: Vec<TableEvent>,
    /// Whose request it was, and its number.
    pub(crate) cause: Option<(ConnId, u32)>,
}

impl Core {
    /// Notes what has happened in the tables, to be told behind the request that is being answered.
    pub(crate) fn take_events(&mut self, env: &impl Env, cause: Option<(ConnId, u32)>) {
        let bridge = &self.config.bridge;
        let events = env.change(|switch, _| (switch.take_events(bridge), Vec::new()));
        self.note(events, cause);
    }

    pub(crate) fn note(&mut self, list: Vec<TableEvent>, cause: Option<(ConnId, u32)>) {
        if !list.is_empty() {
            self.events.push(Events { list, cause });
        }
    }
}

/// Why rules end: they are deleted, or with their group.
const DELETE: u8 = 2;
const GROUP_DELETE: u8 = 3;

impl Agent {
    /// Tells of what has happened in the tables by itself: rules that ended, rules that packets
    /// made.
    pub fn tables_changed(&mut self, env: &impl Env, now: Nanos) {
        self.core.take_events(env, None);
        self.tell_events(now);
    }

    pub(crate) fn tell_events(&mut self, now: Nanos) {
        if self.core.events.is_empty() {
            return;
        }
        for Events { list, cause } in std::mem::take(&mut self.core.events) {
            for event in &list {
                match event {
                    TableEvent::Removed(removed) => {
                        let Some(message) = removed.message() else { continue };
                        let hears = |conn: &&mut crate::conn::Conn| {
                            // Ends that a version has no word for are deletions to it.
                            let known = message.reason <= GROUP_DELETE || conn.version() >= Some(Version::V14);
                            conn.hears(Happened::FlowRemoved(if known { message.reason } else { DELETE }))
                        };
                        for conn in self.conns.values_mut().filter(hears) {
                            conn.send(0, Body::FlowRemoved(Box::new(message.clone())));
                        }
                    }
                    TableEvent::Status(status) => {
                        let happened = Happened::TableStatus(status.reason);
                        let told = |conn: &&mut crate::conn::Conn| {
                            conn.version() >= Some(Version::V14) && conn.hears(happened)
                        };
                        for conn in self.conns.values_mut().filter(told) {
                            conn.send(0, Body::TableStatus(*status));
                        }
                    }
                    TableEvent::Update(update) => {
                        for conn in self.conns.values_mut() {
                            let own = cause.filter(|(id, _)| *id == conn.id).map(|(_, xid)| xid);
                            conn.update(update, own, now);
                        }
                    }
                }
            }
            for conn in self.conns.values_mut() {
                conn.flush_updates();
            }
        }
        self.overhear();
    }
}
