//! The connections of one controller: the active one, or the accepted ones.

use super::config::{Controller, Settings};
use crate::openflow::{BridgeAgent, CLOSED};
use crate::state::State;
use mgmt::os_text;
use mgmt::reconnect::{Action, Policy, Reconnect};
use mgmt::stream::{self, Listener, Remote, Stream, Tls};
use nanos::Nanos;
use ofproto::{ConnId, Kind, Options};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet, spawn_local};
use tokio::time::sleep;

/// Connections that one listener serves at once.
const MOST: usize = 64;

/// The pause after a failed `accept`, mostly for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A controller and the task that keeps it connected. Dropping this ends the task.
pub(super) struct Link {
    bridge: String,
    pub(super) controller: Controller,
    pub(super) agent: Weak<BridgeAgent>,
    pub(super) shown: Rc<RefCell<Shown>>,
    task: Option<AbortHandle>,
}

/// The state of a controller.
pub(super) struct Shown {
    /// The state machine of the active connection.
    pub(super) machine: Option<Reconnect>,
    /// The open connections and their start times.
    pub(super) up: BTreeMap<ConnId, Nanos>,
    /// When a peer that sent more than a handshake was last connected, or the controller was
    /// configured.
    pub(super) last: Nanos,
    /// Whether a peer was connected at the last check.
    pub(super) was_there: bool,
    /// Why no connection is possible.
    pub(super) fault: Option<String>,
}

/// The state shared by a controller's tasks.
struct Context {
    state: Weak<State>,
    agent: Weak<BridgeAgent>,
    tls: Tls,
    name: String,
    settings: Settings,
    shown: Rc<RefCell<Shown>>,
    changed: Box<dyn Fn()>,
}

impl Link {
    /// Begins to connect, or to listen. `changed` is called whenever a connection comes up or ends.
    pub(super) fn start(
        state: &Rc<State>,
        agent: &Rc<BridgeAgent>,
        tls: &Tls,
        bridge: &str,
        controller: Controller,
        changed: impl Fn() + 'static,
    ) -> Link {
        let kind = kind_of(&controller);
        tracing::info!(target: "connmgr", "{bridge}: added {kind} controller \"{}\"", controller.target);
        let now = state.shared.clock.now();
        let shown = Rc::new(RefCell::new(Shown {
            machine: None,
            up: BTreeMap::new(),
            last: now,
            was_there: false,
            fault: None,
        }));
        let context = Context {
            state: Rc::downgrade(state),
            agent: Rc::downgrade(agent),
            tls: tls.clone(),
            name: format!("{bridge}<->{}", controller.target),
            settings: controller.settings.clone(),
            shown: shown.clone(),
            changed: Box::new(changed),
        };
        let task = match &controller.remote {
            Err(why) => {
                tracing::warn!(target: "rconn", "{}: {why}", context.name);
                shown.borrow_mut().fault = Some(why.clone());
                None
            }
            Ok(remote) if remote.is_passive() => Some(spawn_local(listen(context, remote.clone())).abort_handle()),
            Ok(remote) => {
                let policy = Policy {
                    max_backoff: controller.settings.max_backoff,
                    // The agent sends the probes.
                    probe: None,
                    ..Policy::default()
                };
                shown.borrow_mut().machine = Some(Reconnect::new(policy, now));
                Some(spawn_local(connect(context, remote.clone())).abort_handle())
            }
        };
        Link {
            bridge: bridge.to_owned(),
            controller,
            agent: Rc::downgrade(agent),
            shown,
            task,
        }
    }
}

/// The kind of a controller, for the log.
fn kind_of(controller: &Controller) -> &'static str {
    match controller.settings.kind {
        Kind::Primary => "primary",
        Kind::Service | Kind::Snoop => "service",
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let (bridge, kind) = (&self.bridge, kind_of(&self.controller));
        tracing::info!(target: "connmgr", "{bridge}: removed {kind} controller \"{}\"", self.controller.target);
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Context {
    fn now(&self) -> Nanos {
        self.state.upgrade().map_or(Nanos(0), |state| state.shared.clock.now())
    }

    /// Runs the state machine, if any, and publishes its state.
    fn machine<R>(&self, run: impl FnOnce(&mut Reconnect, Nanos) -> R) -> Option<R> {
        let now = self.now();
        self.shown
            .borrow_mut()
            .machine
            .as_mut()
            .map(|machine| run(machine, now))
    }

    /// Serves a stream until it ends. Calls `greeted` once a version of OpenFlow is agreed on.
    async fn serve(&self, stream: Stream, name: String, greeted: impl FnOnce()) -> String {
        let Some(agent) = self.agent.upgrade() else {
            return "the bridge is gone".to_owned();
        };
        if let Err(error) = stream.set_dscp(self.settings.dscp) {
            telemetry::warn_limited!(target: "rconn", "{name}: cannot set DSCP {} ({})", self.settings.dscp, os_text(&error));
        }
        let options = Options {
            asynchronous: self.settings.asynchronous,
            probe: self.settings.probe,
            limit: self.settings.limit,
            queue: self.settings.queue,
            ..Options::new(self.settings.kind, name)
        };
        let connection = agent.add(stream, options);
        let mut served = Served {
            agent: Rc::downgrade(&agent),
            id: connection.id,
            context: self,
            up: false,
        };
        drop(agent);
        let mut task = connection.task;
        let ended = tokio::select! {
            ended = &mut task => Some(ended),
            () = connection.greeted.notified() => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                served.up = true;
                let now = self.now();
                self.shown.borrow_mut().up.insert(served.id, now);
                greeted();
                loop {
                    (self.changed)();
                    tokio::select! {
                        ended = &mut task => break ended,
                        () = connection.greeted.notified() => {}
                    }
                }
            }
        };
        ended.unwrap_or_else(|_| "connection closed by the switch".to_owned())
    }
}

/// A served connection. Dropping this closes it, also in the agent.
struct Served<'a> {
    agent: Weak<BridgeAgent>,
    id: ConnId,
    context: &'a Context,
    up: bool,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.upgrade() {
            agent.close(self.id);
        }
        if self.up {
            self.context.shown.borrow_mut().up.remove(&self.id);
            (self.context.changed)();
        }
    }
}

/// How an attempt to connect ended.
enum End {
    /// The connection worked before it ended.
    Dropped(String),
    Failed(String),
    TimedOut,
}

impl End {
    fn why(&self) -> &str {
        match self {
            End::Dropped(why) | End::Failed(why) => why,
            End::TimedOut => "connection attempt timed out",
        }
    }

    /// Logs it. Of failures only those that come before the longest pause are logged.
    fn log(&self, name: &str, first_failures: bool) {
        match self {
            End::Dropped(why) if why == CLOSED => tracing::info!(target: "rconn", "{name}: {why}"),
            End::Dropped(why) => tracing::warn!(target: "rconn", "{name}: connection dropped ({why})"),
            End::Failed(_) | End::TimedOut if !first_failures => {}
            End::Failed(why) => tracing::warn!(target: "rconn", "{name}: connection failed ({why})"),
            End::TimedOut => tracing::info!(target: "rconn", "{name}: connection timed out"),
        }
    }
}

/// Connects, serves, and connects again.
async fn connect(context: Context, remote: Remote) {
    let longest = context.settings.max_backoff;
    let mut pause = Duration::ZERO;
    loop {
        let action = context.machine(|machine, now| machine.poll(now)).flatten();
        let deadline = context.machine(|machine, _| machine.deadline()).flatten();
        if action != Some(Action::Connect) {
            let Some(deadline) = deadline else { return };
            sleep(Duration::from_nanos(deadline.0.saturating_sub(context.now().0))).await;
            continue;
        }
        let patience = deadline.map(|deadline| Duration::from_nanos(deadline.0.saturating_sub(context.now().0)));
        let patience = patience.unwrap_or(Duration::from_secs(1));
        let name = &context.name;
        let first_failures = pause < longest;
        if first_failures {
            tracing::info!(target: "rconn", "{name}: connecting...");
        }
        let end = match tokio::time::timeout(patience, stream::connect(&remote, &context.tls)).await {
            Err(_) => End::TimedOut,
            Ok(Err(error)) => End::Failed(os_text(&error)),
            Ok(Ok(stream)) => serve_ours(&context, stream, patience).await,
        };
        end.log(name, first_failures);
        context.machine(|machine, now| {
            machine.heard(now);
            machine.failed(end.why(), now);
            machine.disconnected(end.why(), now);
        });
        pause = context.machine(|machine, _| machine.backoff()).unwrap_or_default();
        if pause < longest {
            tracing::info!(target: "rconn", "{name}: waiting {} seconds before reconnect", pause.as_secs());
        } else if first_failures {
            tracing::info!(target: "rconn", "{name}: continuing to retry connections in the background but suppressing further logging");
        }
        (context.changed)();
    }
}

/// Serves the active connection. Closes it if the peer sends no hello within `patience`.
async fn serve_ours(context: &Context, stream: Stream, patience: Duration) -> End {
    let greeted = std::cell::Cell::new(false);
    let serving = context.serve(stream, context.name.clone(), || {
        greeted.set(true);
        context.machine(|machine, now| machine.connected(now));
        tracing::info!(target: "rconn", "{}: connected", context.name);
    });
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        why = &mut serving => Some(why),
        () = sleep(patience) => None,
    };
    match ended {
        None if greeted.get() => End::Dropped(serving.await),
        None => End::Failed("the controller did not say hello".to_owned()),
        Some(why) if greeted.get() => End::Dropped(why),
        Some(why) => End::Failed(why),
    }
}

/// Listens, and serves every connection.
async fn listen(context: Context, remote: Remote) {
    let context = Rc::new(context);
    let mut backoff = Duration::from_secs(1);
    let mut listener = loop {
        match Listener::bind(&remote, &context.tls).await {
            Ok(listener) => break listener,
            Err(error) => {
                let why = os_text(&error);
                telemetry::warn_limited!(target: "rconn", "{}: cannot listen ({why})", context.name);
                context.shown.borrow_mut().fault = Some(why);
                (context.changed)();
                sleep(backoff).await;
                backoff = (backoff * 2).min(context.settings.max_backoff);
            }
        }
    };
    context.shown.borrow_mut().fault = None;
    let mut serving = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = serving.join_next() => continue,
        };
        match accepted {
            Ok((_, peer)) if serving.len() >= MOST => {
                telemetry::warn_limited!(target: "rconn", "{}: {peer} refused: {MOST} are connected", context.name);
            }
            Ok((stream, peer)) => {
                let context = context.clone();
                serving.spawn_local(async move {
                    let why = context.serve(stream, peer.clone(), || {}).await;
                    tracing::debug!(target: "rconn", "{}: {peer}: {why}", context.name);
                });
            }
            Err(error) => {
                telemetry::warn_limited!(target: "rconn", "{}: accept failed ({})", context.name, os_text(&error));
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
