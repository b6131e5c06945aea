//! The tasks of remotes: one that listens, one that connects.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mgmt::os_text;
use mgmt::reconnect::{Action, Policy, Reconnect};
use mgmt::stream::{self, Listener, Remote, Stream, Tls};

use super::{Settings, State};
use crate::conn;
use crate::core::SessionOptions;
use crate::server::Inner;

/// The first pause between two attempts.
const MIN_BACKOFF: Duration = Duration::from_secs(1);

/// The pause after a failed `accept`, mostly for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens, and records the result. With `patience`, waits until another process that listens on
/// the socket has ended.
pub(super) async fn bind(tls: &Tls, remote: &Remote, state: &RefCell<State>, patience: bool) -> io::Result<Listener> {
    let result = match patience {
        true => Listener::bind_patiently(remote, tls).await,
        false => Listener::bind(remote, tls).await,
    };
    let mut state = state.borrow_mut();
    match &result {
        Ok(listener) => {
            state.bound_port = listener.tcp_address().map(|address| address.port());
            log_chosen_port(remote, state.bound_port);
            state.last_error = None;
        }
        Err(error) => {
            tracing::warn!(target: "ovsdb_jsonrpc_server", "{remote}: listen failed ({})", os_text(error));
            state.last_error = Some(os_text(error));
        }
    }
    result
}

/// Logs the port that the system chose for port 0. Test benches read it there.
fn log_chosen_port(remote: &Remote, port: Option<u16>) {
    let text = remote.to_string();
    if let (Some(port), Some((_, spec))) = (port, text.split_once(':'))
        && spec.split(':').next() == Some("0")
    {
        tracing::info!(target: "socket_util", "{spec}: listening on port {port}");
    }
}

/// Listens, and serves clients that connect.
pub(super) async fn listen(
    inner: Rc<Inner>,
    name: String,
    remote: Remote,
    settings: Settings,
    state: Rc<RefCell<State>>,
    first: Option<Listener>,
) {
    let mut backoff = MIN_BACKOFF;
    let mut listener = first;
    let mut listener = loop {
        match listener {
            Some(listener) => break listener,
            None => {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(settings.max_backoff.max(MIN_BACKOFF));
                listener = bind(&inner.tls, &remote, &state, false).await.ok();
            }
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, peer)) if inner.make_room(remote.is_local()) => {
                serve(&inner, stream, peer, &name, &remote, &settings, &state)
            }
            Ok((_, peer)) => {
                telemetry::warn_limited!(target: "ovsdb_jsonrpc_server", "{peer}: connection refused: too many clients");
            }
            Err(error) => {
                telemetry::warn_limited!(target: "ovsdb_jsonrpc_server", "{name}: accept failed ({})", os_text(&error));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a client that connected, in a task of its own.
fn serve(
    inner: &Rc<Inner>,
    stream: Stream,
    peer: String,
    name: &str,
    remote: &Remote,
    settings: &Settings,
    state: &Rc<RefCell<State>>,
) {
    mark(&stream, name, settings);
    let (server, state) = (inner.clone(), state.clone());
    let mut options = session_options(peer, name, remote, settings);
    options.client = stream.peer_name();
    let session = inner.connect(options);
    inner.spawn(async move {
        state.borrow_mut().connected = Some(Instant::now());
        conn::serve(server, stream, session).await;
        state.borrow_mut().disconnected = Some(Instant::now());
    });
}

/// Connects, serves the peer, and reconnects. The session detects a silent peer.
pub(super) async fn connect(
    inner: Rc<Inner>,
    name: String,
    remote: Remote,
    settings: Settings,
    state: Rc<RefCell<State>>,
) {
    let policy = Policy {
        min_backoff: MIN_BACKOFF,
        max_backoff: settings.max_backoff,
        probe: None,
    };
    let mut machine = Reconnect::new(policy, inner.monotonic());
    loop {
        if let Some(deadline) = machine.deadline() {
            let wait = deadline.0.saturating_sub(inner.monotonic().0);
            tokio::time::sleep(Duration::from_nanos(wait)).await;
        }
        if machine.poll(inner.monotonic()) != Some(Action::Connect) {
            continue;
        }
        note(&state, &machine);
        match stream::connect(&remote, &inner.tls).await {
            Ok(stream) => {
                tracing::info!(target: "reconnect", "{name}: connected");
                machine.connected(inner.monotonic());
                state.borrow_mut().connected = Some(Instant::now());
                note(&state, &machine);
                mark(&stream, &name, &settings);
                let mut options = session_options(name.clone(), &name, &remote, &settings);
                options.client = stream.peer_name();
                let session = inner.connect(options);
                // In a task of its own, so that the session ends properly even when the remote is
                // removed.
                let (done, ended) = tokio::sync::oneshot::channel();
                let server = inner.clone();
                inner.spawn(async move {
                    conn::serve(server, stream, session).await;
                    let _ = done.send(());
                });
                let _ = ended.await;
                state.borrow_mut().disconnected = Some(Instant::now());
                machine.heard(inner.monotonic());
                machine.disconnected("connection closed by peer", inner.monotonic());
            }
            Err(error) => machine.failed(&os_text(&error), inner.monotonic()),
        }
        note(&state, &machine);
        let why = machine.last_error().unwrap_or_default();
        let pause = machine.backoff().as_secs();
        telemetry::info_limited!(target: "reconnect", "{name}: {why}; trying again in {pause} seconds");
    }
}

fn note(state: &RefCell<State>, machine: &Reconnect) {
    let mut state = state.borrow_mut();
    state.state = Some(machine.state().as_str());
    state.last_error = match machine.is_connected() {
        true => None,
        false => machine.last_error().map(str::to_owned),
    };
}

fn mark(stream: &Stream, name: &str, settings: &Settings) {
    if let Err(error) = stream.set_dscp(settings.dscp) {
        telemetry::warn_limited!(target: "ovsdb_jsonrpc_server", "{name}: cannot set DSCP {} ({})", settings.dscp, os_text(&error));
    }
}

fn session_options(peer: String, name: &str, remote: &Remote, settings: &Settings) -> SessionOptions {
    SessionOptions {
        name: peer,
        remote: name.to_owned(),
        local: remote.is_local(),
        read_only: settings.read_only,
        role: settings.role.clone(),
        client: None,
        probe: settings.probe(remote),
    }
}
