//! The connection to a server whose database this server follows: connect, probe, reconnect. What
//! the messages mean is up to a [`Protocol`].

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use mgmt::jsonrpc::{Connection, Limits, Message, Receiver, Sender};
use mgmt::os_text;
use mgmt::reconnect::{Action, Policy, Reconnect};
use mgmt::stream::{self, Remote};

use crate::server::Inner;

/// The longest message of a source: the server decides how large its database is. The memory
/// budget of the clients is the limit too.
const MAX_MESSAGE: usize = 1 << 30;

/// The longest time for sending a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Settings of a connection; `None` for the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceOptions {
    /// The time after which a silent server is probed; zero for never.
    pub(crate) probe: Option<Duration>,
    /// The longest pause between two attempts.
    pub(crate) max_backoff: Option<Duration>,
    /// The DSCP of packets over TCP.
    pub(crate) dscp: Option<u8>,
}

impl SourceOptions {
    /// The probe's time with `default` where none is set.
    pub(crate) fn probe_or(&self, default: Option<Duration>) -> Option<Duration> {
        self.probe.map_or(default, |probe| (!probe.is_zero()).then_some(probe))
    }
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// Connect again.
    Retry(String),
    /// Do not connect again. The protocol has logged why.
    Stop,
}

/// The client's side of a session.
pub(crate) trait Protocol {
    /// The connection was made.
    fn begin(&mut self) -> Vec<Message>;

    /// A message arrived. Returns what to send.
    ///
    /// # Errors
    /// Why the connection has to end.
    fn handle(&mut self, message: Message) -> Result<Vec<Message>, End>;

    /// Waits until [`Protocol::outgoing`] may have messages.
    async fn woken(&self) {
        std::future::pending().await
    }

    /// Messages that no message from the source caused.
    fn outgoing(&mut self) -> Vec<Message> {
        Vec::new()
    }

    /// The connection is lost.
    fn ended(&mut self) {}
}

/// Follows one of the servers in `sources`, which commas separate, until the protocol gives up.
/// Each attempt takes the next one. `probe` may change at any time.
pub(crate) async fn follow(
    inner: &Rc<Inner>,
    sources: &str,
    probe: &Rc<Cell<Option<Duration>>>,
    options: &SourceOptions,
    protocol: &mut impl Protocol,
) {
    let mut remotes: Vec<(&str, Remote)> = Vec::new();
    for source in sources.split(',') {
        match source.parse() {
            Ok(remote) => remotes.push((source, remote)),
            Err(error) => {
                tracing::info!(target: "reconnect", "{source}: connection attempt failed ({error})");
            }
        }
    }
    if remotes.is_empty() {
        return std::future::pending().await;
    }
    let mut turns = remotes.iter().cycle();
    let default = Policy::default();
    let policy = Policy {
        probe: probe.get(),
        max_backoff: options.max_backoff.unwrap_or(default.max_backoff),
        min_backoff: options
            .max_backoff
            .map_or(default.min_backoff, |most| most.min(default.min_backoff)),
    };
    let mut machine = Reconnect::new(policy, inner.monotonic());
    loop {
        if let Some(deadline) = machine.deadline() {
            tokio::time::sleep(until(inner, deadline)).await;
        }
        if machine.poll(inner.monotonic()) != Some(Action::Connect) {
            continue;
        }
        let Some((source, remote)) = turns.next() else {
            return;
        };
        telemetry::info_limited!(target: "reconnect", "{source}: connecting...");
        match attempt(inner, remote, &machine).await {
            Err(error) => {
                machine.failed(&os_text(&error), inner.monotonic());
                telemetry::info_limited!(target: "reconnect", "{source}: connection attempt failed ({})", os_text(&error));
            }
            Ok(stream) => {
                tracing::info!(target: "reconnect", "{source}: connected");
                machine.connected(inner.monotonic());
                if let Some(dscp) = options.dscp
                    && let Err(error) = stream.set_dscp(dscp)
                {
                    telemetry::warn_limited!(target: "reconnect", "{source}: cannot set DSCP {dscp} ({})", os_text(&error));
                }
                let limit = MAX_MESSAGE.min(inner.core.borrow().budget().1);
                let limits = Limits {
                    max_bytes: limit,
                    ..Limits::default()
                };
                let (receiver, sender) = Connection::with_limits(stream, limits).into_split();
                let mut link = Link {
                    inner,
                    receiver,
                    sender,
                    probe,
                    machine: &mut machine,
                };
                let end = link.run(protocol).await;
                protocol.ended();
                let why = match end {
                    End::Stop => return,
                    End::Retry(why) => why,
                };
                machine.disconnected(&why, inner.monotonic());
                telemetry::info_limited!(target: "reconnect", "{source}: {why}");
            }
        }
    }
}

async fn attempt(inner: &Inner, remote: &Remote, machine: &Reconnect) -> io::Result<stream::Stream> {
    let connect = stream::connect(remote, &inner.tls);
    match machine.deadline() {
        None => connect.await,
        Some(deadline) => {
            let timed = tokio::time::timeout(until(inner, deadline), connect).await;
            timed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        }
    }
}

fn until(inner: &Inner, deadline: nanos::Nanos) -> Duration {
    Duration::from_nanos(deadline.0.saturating_sub(inner.monotonic().0))
}

/// What a connection waited for.
enum Event {
    Message(Message),
    /// The answer to a probe.
    Nothing,
    /// The time for a probe has come.
    Silence,
    /// The protocol has messages to send.
    Woken,
}

/// One connection.
struct Link<'a> {
    inner: &'a Inner,
    receiver: Receiver,
    sender: Sender,
    probe: &'a Cell<Option<Duration>>,
    machine: &'a mut Reconnect,
}

impl Link<'_> {
    async fn run(&mut self, protocol: &mut impl Protocol) -> End {
        let mut out = protocol.begin();
        loop {
            for message in out.drain(..) {
                if let Err(end) = self.send(message).await {
                    return end;
                }
            }
            // Both futures may be dropped without a loss.
            let event = tokio::select! {
                biased;
                event = self.receive() => event,
                () = protocol.woken() => Ok(Event::Woken),
            };
            match event {
                Err(end) => return end,
                Ok(Event::Nothing) => {}
                Ok(Event::Woken) => out = protocol.outgoing(),
                Ok(Event::Silence) => match self.silence() {
                    Ok(probe) => out.extend(probe),
                    Err(end) => return end,
                },
                Ok(Event::Message(message)) => match message.echo_reply() {
                    Some(reply) => out.push(reply),
                    None => match protocol.handle(message) {
                        Ok(messages) => out = messages,
                        Err(end) => return end,
                    },
                },
            }
        }
    }

    /// The next message.
    async fn receive(&mut self) -> Result<Event, End> {
        let now = self.inner.monotonic();
        let policy = *self.machine.policy();
        self.machine.set_policy(Policy {
            probe: self.probe.get(),
            ..policy
        });
        let received = match self.machine.deadline() {
            None => self.receiver.recv().await,
            Some(deadline) => {
                let wait = Duration::from_nanos(deadline.0.saturating_sub(now.0));
                match tokio::time::timeout(wait, self.receiver.recv()).await {
                    Ok(received) => received,
                    Err(_) => return Ok(Event::Silence),
                }
            }
        };
        self.machine.heard(self.inner.monotonic());
        match received {
            Ok(Some(Message::Reply { id, .. })) if id == "echo" => Ok(Event::Nothing),
            Ok(Some(message)) => Ok(Event::Message(message)),
            Ok(None) => Err(End::Retry("connection closed by peer".to_owned())),
            Err(error) => Err(End::Retry(format!("connection dropped ({error})"))),
        }
    }

    fn silence(&mut self) -> Result<Option<Message>, End> {
        match self.machine.poll(self.inner.monotonic()) {
            Some(Action::Probe) => Ok(Some(Message::request("echo", Vec::new(), "echo"))),
            Some(Action::Disconnect(why)) => Err(End::Retry(why)),
            Some(Action::Connect) | None => Ok(None),
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        match tokio::time::timeout(SEND_TIMEOUT, self.sender.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(End::Retry(format!("connection dropped ({})", os_text(&error)))),
            Err(_) => Err(End::Retry("peer is not reading; closing the connection".to_owned())),
        }
    }
}
