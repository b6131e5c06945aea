//! What a call of the agent causes: events for its caller, and effects for other connections.

use crate::agent::{Agent, Core};
use crate::asynchronous::AsyncEvent;
use crate::conn::ConnId;
use crate::env::Env;
use crate::ports::PortChange;
use nanos::Nanos;
use openflow::Version;
use openflow::model::{Body, Message};
use switch::tables::TableEvent;

/// What the caller has to do. [`Agent::events`] returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection has new bytes to send, or can go on: call [`Agent::run`] and
    /// [`Agent::transmit`]. Not repeated for bytes that the peer leaves unread.
    Ready(ConnId),
    /// A version was agreed on.
    Greeted(ConnId),
    /// The peer sent its first request beyond hello, echo, features and configuration: it means to
    /// control the bridge.
    Admitted(ConnId),
    /// All connections have to end, because the datapath id or the versions changed.
    Reconnect,
    /// Call [`Agent::background`].
    Background,
}

/// What a request causes beyond its own connection. The agent applies it after the request.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The connection became master; other masters become slaves.
    NewMaster(ConnId),
    /// Other connections than before may want packets that matched no rule.
    ListenersChanged,
    /// A request changed a port.
    PortChanged(PortChange),
    /// Flow monitors came or went.
    MonitorsChanged,
    /// The connection changed a group or meter; other connections may want a copy of its request.
    Forward(ConnId, Message),
    /// Rules or the state of tables changed.
    Tables(TableChanges),
    /// The connection asks for the state of controllers with a request of this number.
    StatusWanted(ConnId, u32),
}

/// Changes of tables, and the request that caused them, if one did.
#[derive(Debug, Default)]
pub(crate) struct TableChanges {
    list: Vec<TableEvent>,
    /// The connection that requested it, and the request's number.
    cause: Option<(ConnId, u32)>,
}

impl Core {
    /// Takes the changes of the tables. Connections get the events after the answer to the present
    /// request.
    pub(crate) fn take_events(&mut self, env: &impl Env, cause: Option<(ConnId, u32)>) {
        let bridge = &self.config.bridge;
        let events = env.change(|switch, _| (switch.take_events(bridge), Vec::new()));
        self.note(events, cause);
    }

    pub(crate) fn note(&mut self, list: Vec<TableEvent>, cause: Option<(ConnId, u32)>) {
        if !list.is_empty() {
            self.effects.push(Effect::Tables(TableChanges { list, cause }));
        }
    }
}

/// The reasons why rules end: they are deleted, or their group is.
const DELETE: u8 = 2;
const GROUP_DELETE: u8 = 3;

impl Agent {
    /// Tells connections of changes of the tables that no request caused: rules that timed out,
    /// rules that packets made.
    pub fn tables_changed(&mut self, env: &impl Env, now: Nanos) {
        self.core.take_events(env, None);
        self.after(env, now);
    }

    pub(crate) fn tell_table_events(&mut self, changes: &TableChanges, now: Nanos) {
        for event in &changes.list {
            match event {
                TableEvent::Removed(removed) => {
                    let Some(message) = removed.message() else { continue };
                    let hears = |conn: &&mut crate::conn::Conn| {
                        // A version that lacks a reason calls it a deletion.
                        let known = message.reason <= GROUP_DELETE || conn.version() >= Some(Version::V14);
                        conn.wants(AsyncEvent::FlowRemoved(if known { message.reason } else { DELETE }))
                    };
                    for conn in self.conns.values_mut().filter(hears) {
                        conn.send(0, Body::FlowRemoved(Box::new(message.clone())));
                    }
                }
                TableEvent::Status(status) => {
                    let event = AsyncEvent::TableStatus(status.reason);
                    let told =
                        |conn: &&mut crate::conn::Conn| conn.version() >= Some(Version::V14) && conn.wants(event);
                    for conn in self.conns.values_mut().filter(told) {
                        conn.send(0, Body::TableStatus(*status));
                    }
                }
                TableEvent::Update(update) => {
                    for conn in self.conns.values_mut() {
                        let own = changes.cause.filter(|(id, _)| *id == conn.id).map(|(_, xid)| xid);
                        conn.update(update, own, now);
                    }
                }
            }
        }
        for conn in self.conns.values_mut() {
            conn.flush_updates();
        }
    }
}
