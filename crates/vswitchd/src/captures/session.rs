//! The clients of captures.

use super::{Capture, Wanted};
use crate::state::State;
use dp::DropCause;
use mgmt::capture::Record;
use mgmt::stream::{Listener, Stream};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use switch::tables::Captured;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

/// Bytes of a request at most, and the time for it.
const MOST_REQUEST: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(10);
/// Clients at most, those that have not asked yet included.
const MOST_CLIENTS: usize = 64;
/// How often a client gets a status.
const STATUS: Duration = Duration::from_millis(200);

/// Serves the clients of a socket.
pub(crate) async fn serve(state: Rc<State>, mut listener: Listener) {
    let clients = Rc::new(());
    loop {
        match listener.accept().await {
            Ok((stream, _)) if Rc::strong_count(&clients) <= MOST_CLIENTS => {
                let (state, client) = (state.clone(), clients.clone());
                tokio::task::spawn_local(async move {
                    // A client that goes away ends its capture; there is nobody to tell.
                    let _ = serve_client(&state, stream).await;
                    drop(client);
                });
            }
            Ok(_) => {}
            // Out of descriptors, most likely.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// A capture that ends with this value.
struct Running {
    state: Rc<State>,
    capture: Arc<Capture>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.state.shared.captures.close(&self.capture);
        self.state.recheck.notify_one();
    }
}

async fn serve_client(state: &Rc<State>, mut stream: Stream) -> io::Result<()> {
    let line = timeout(PATIENCE, request(&mut stream)).await??;
    let running = match start(state, &line).await {
        Ok(running) => running,
        Err(error) => {
            let answer = format!("{}\n", json!({ "error": error }));
            return stream.write_all(answer.as_bytes()).await;
        }
    };
    let interfaces: Vec<Value> = interfaces(state, &running.capture.wanted)
        .into_iter()
        .map(|(name, ofport)| json!({ "name": name, "ofport": ofport }))
        .collect();
    let answer = format!("{}\n", json!({ "interfaces": interfaces }));
    stream.write_all(answer.as_bytes()).await?;
    send(&running, stream).await
}

/// Reads a line.
async fn request(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        if line.len() == MOST_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        line.push(stream.read_u8().await?);
    }
    Ok(line)
}

/// Sends records until the client has ended its half of the connection, and then the rest.
async fn send(running: &Running, stream: Stream) -> io::Result<()> {
    let (mut read, mut write) = stream.into_split();
    let Running { state, capture } = running;
    let mut byte = [0];
    let mut last = String::new();
    loop {
        let bytes = records(state, capture, &mut last);
        // A client that is gone ends this by an error, one that is stopped keeps its capture.
        write.write_all(&bytes).await?;
        tokio::select! {
            // A client says nothing more: this is its end.
            _ = read.read(&mut byte) => break,
            () = capture.arrived.notified() => {}
            () = sleep(STATUS) => {}
        }
    }
    // A packet's copy arrives before its worker counts the drop. This waits for the workers' batch.
    state.dp().push_stats();
    let bytes = records(state, capture, &mut last);
    timeout(PATIENCE, write.write_all(&bytes)).await?
}

/// The packets that wait for a client, then the status if it is not the `last` one.
fn records(state: &State, capture: &Capture, last: &mut String) -> Vec<u8> {
    let mut bytes = std::mem::take(&mut capture.state.lock().bytes);
    let text = status(state, capture);
    if text != *last {
        Record::Status(&text).write(&mut bytes);
        *last = text;
    }
    bytes
}

/// The lost packets, and what the captured ports have dropped, by cause.
fn status(state: &State, capture: &Capture) -> String {
    let mut text = capture.state.lock().lost.to_string();
    let bridges = state.bridges.borrow();
    let mut drops = [0; DropCause::ALL.len()];
    for name in &capture.wanted.ports {
        let port = bridges.interface(name).and_then(|interface| interface.port);
        if let Some(counters) = port.and_then(|port| state.dp().port_counters(port)) {
            drops.iter_mut().zip(counters.drops).for_each(|(sum, own)| *sum += own);
        }
    }
    for (cause, packets) in DropCause::ALL.iter().zip(drops).filter(|(_, packets)| *packets > 0) {
        let _ = write!(text, " {} {packets}", cause.name());
    }
    text
}

/// Starts a capture, and waits until the switch has it.
async fn start(state: &Rc<State>, line: &[u8]) -> Result<Running, String> {
    let mut wanted = parse(line)?;
    complete(state, &mut wanted)?;
    let captures = &state.shared.captures;
    let capture = captures
        .open(wanted)
        .ok_or_else(|| format!("there are {} captures already", Captured::MOST))?;
    let running = Running {
        state: state.clone(),
        capture,
    };
    loop {
        let applied = captures.applied.notified();
        let outcome = running.capture.state.lock().outcome.take();
        if let Some(outcome) = outcome {
            return outcome.map(|()| running);
        }
        state.recheck.notify_one();
        if timeout(PATIENCE, applied).await.is_err() {
            return Err("the switch does not follow its database now".to_owned());
        }
    }
}

/// Finds the bridge of the first port, or the ports of the bridge.
fn complete(state: &State, wanted: &mut Wanted) -> Result<(), String> {
    let bridges = state.bridges.borrow();
    if wanted.bridge.is_empty() {
        let port = wanted.ports.first().ok_or("name a port or a bridge")?;
        let mut interfaces = bridges.interfaces();
        let found = interfaces.find(|(_, name, _)| name == port);
        let (bridge, ..) = found.ok_or_else(|| format!("no port named {port}"))?;
        wanted.bridge = bridge.to_owned();
    }
    let bridge = bridges.state().get(&wanted.bridge);
    let bridge = bridge.ok_or_else(|| format!("no bridge named {}", wanted.bridge))?;
    if wanted.ports.is_empty() {
        wanted.ports = bridge.interfaces.keys().cloned().collect();
    }
    match wanted.ports.iter().find(|name| !bridge.interfaces.contains_key(*name)) {
        Some(port) => Err(format!("bridge {} has no port named {port}", wanted.bridge)),
        None => Ok(()),
    }
}

fn interfaces(state: &State, wanted: &Wanted) -> Vec<(String, u16)> {
    let bridges = state.bridges.borrow();
    let number = |name: &String| Some((name.clone(), *bridges.interface(name)?.ofport.as_ref().ok()?));
    wanted.ports.iter().filter_map(number).collect()
}

/// Reads a request.
fn parse(line: &[u8]) -> Result<Wanted, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("the request is no JSON: {error}"))?;
    let text = |name: &str| match &value[name] {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        other => Err(format!("{name}: {other} is no text")),
    };
    let ports = match &value["ports"] {
        Value::Null => BTreeSet::new(),
        Value::Array(ports) => {
            let names = ports.iter().map(|port| port.as_str().map(str::to_owned));
            names.collect::<Option<_>>().ok_or("ports: not all are names")?
        }
        other => return Err(format!("ports: {other} is no list")),
    };
    let direction = text("direction")?;
    let (received, sent) = match direction.as_str() {
        "" | "both" => (true, true),
        "in" => (true, false),
        "out" => (false, true),
        other => return Err(format!("direction: {other} is not in, out or both")),
    };
    let snaplen = match &value["snaplen"] {
        Value::Null => u32::from(u16::MAX),
        length => length
            .as_u64()
            .filter(|length| (14..=65535).contains(length))
            .ok_or_else(|| format!("snaplen: {length} is not from 14 to 65535"))? as u32,
    };
    Ok(Wanted {
        bridge: text("bridge")?,
        ports,
        received,
        sent,
        filter: text("filter")?,
        snaplen,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_or_refused_with_what_is_wrong() {
        let wanted = parse(br#"{"bridge":"br0","ports":["p1"],"direction":"in","snaplen":96,"filter":"tcp"}"#);
        let expected = Wanted {
            bridge: "br0".to_owned(),
            ports: BTreeSet::from(["p1".to_owned()]),
            received: true,
            sent: false,
            filter: "tcp".to_owned(),
            snaplen: 96,
        };
        assert_eq!(wanted, Ok(expected));
        for (request, wrong) in [
            ("{", "no JSON"),
            ("[]", ""),
            (r#"{"ports":"p1"}"#, "ports"),
            (r#"{"ports":[1]}"#, "ports"),
            (r#"{"direction":"up"}"#, "direction"),
            (r#"{"snaplen":1}"#, "snaplen"),
            (r#"{"snaplen":-5}"#, "snaplen"),
            (r#"{"bridge":7}"#, "bridge"),
        ] {
            match parse(request.as_bytes()) {
                Ok(wanted) => assert!(wrong.is_empty() && wanted.ports.is_empty()),
                Err(error) => assert!(!wrong.is_empty() && error.contains(wrong), "{request}: {error}"),
            }
        }
    }
}
