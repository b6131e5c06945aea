//! A run: servers, background, warm-up, and then everything that is measured at the same time.

use super::clock::nanos;
use super::measured::Measured;
use super::protocol::{Outcome, Task};
use super::streams::{Kind, StreamClient, StreamServer};
use super::udp::{Echo, Flood, IMIX_MEAN, Probe, Receive, ReceiveFlow, Received, Send, SendFlow, Sent, Sink};
use super::{Ends, Flow, Remote, Streams, Test};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The ports that the datagrams of a run's flow come from and go to, by the flow's place: measured
/// flows first, then those of the background. Rules that match ports can be made before the run.
pub const fn ports(flow: u16) -> (u16, u16) {
    (20_000 + flow, 21_000 + flow)
}

/// The most flows of a run.
pub const MOST_FLOWS: usize = 900;

/// The first port that new flows go to, by the flow's place; they go to [`NEW_FLOW_PORTS`] from
/// there on.
pub const fn new_flow_ports(flow: u16) -> u16 {
    22_000 + flow * NEW_FLOW_PORTS
}

/// How many ports new flows of one flow go to: with all ports that they come from, 4 million pairs.
pub const NEW_FLOW_PORTS: u16 = 64;

/// The most flows of a run that may have new flows among them, for their ports.
const MOST_NEW: usize = 600;

/// How many pairs of ports new flows have used so far, and how many exchanges were new flows: none
/// is used again while a switch may know it.
static PAIRS: AtomicU64 = AtomicU64::new(0);
static FRESH: AtomicU64 = AtomicU64::new(0);

/// How long a prober polls for an answer, µs, if exchanges follow each other directly. On two
/// processors and a bare veth cable an exchange then takes 20 µs on average, whether the other
/// processor is idle or busy, as with a polling switch; without, 15 to 70 µs, depending on the
/// sleep states. Polling longer takes a processor from the echo server and the switch: with a
/// polling switch, one exchange in a hundred then took exactly this time. With an interval polling
/// gains nothing, because processors idle between exchanges. Senders gain nothing either: they send
/// up to 50 µs earlier with the same jitter, for half a processor. Echo servers never poll.
pub(crate) const LOOKS: u64 = 50;

/// How long a task may take beyond its time.
const SLACK: Duration = Duration::from_secs(30);

/// Longer than any run, in seconds: the background runs until it is stopped.
const FOR_EVER: f64 = 1e6;

/// Sends `background` and `measured` at the same time, and measures the latter for `seconds`.
///
/// The background starts first. Flows of datagrams and round trips start with a warm-up of `warmup`
/// seconds that counts only in [`Measured::accounts`]; a warm-up of round trips goes on until the
/// first is answered, so no cell begins with unknown addresses. A TCP_STREAM's warm-up is on its
/// own connections, so that its slow start does not count. Of the other streams, one of the same
/// test runs during the warm-up; the measured ones start after it, and their connection set-up
/// counts, as with netperf.
///
/// # Errors
/// An unknown host, an agent that is gone, an impossible task: with the host and the reason. All
/// tasks are stopped. Missing packets are no error.
pub fn run(ends: &Ends, background: &[Flow], measured: &[Flow], seconds: f64, warmup: f64) -> Result<Measured> {
    if background.len() + measured.len() > MOST_FLOWS {
        bail!("{} flows: at most {MOST_FLOWS}", background.len() + measured.len());
    }
    let is_new = |flow: &Flow| matches!(flow.test, Test::NewFlows { .. });
    if background.len() + measured.len() > MOST_NEW && background.iter().chain(measured).any(is_new) {
        bail!("more than {MOST_NEW} flows with new flows among them");
    }
    let flows: Vec<Planned<'_>> = measured
        .iter()
        .map(|flow| (flow, true))
        .chain(background.iter().map(|flow| (flow, false)))
        .enumerate()
        .map(|(number, (flow, counts))| Planned {
            flow,
            number: number as u16,
            counts,
        })
        .collect();
    let plan = Plan {
        ends,
        flows,
        seconds,
        warmup,
    };
    plan.run()
}

/// A flow of a run.
struct Planned<'a> {
    flow: &'a Flow,
    number: u16,
    /// It is measured, not background.
    counts: bool,
}

struct Plan<'a> {
    ends: &'a Ends,
    flows: Vec<Planned<'a>>,
    seconds: f64,
    warmup: f64,
}

/// Server tasks; the flows of a receiver by their numbers.
#[derive(Default)]
struct Servers {
    receivers: Vec<Remote>,
    others: Vec<Remote>,
    /// By the numbers of their flows.
    sinks: Vec<(u16, Remote)>,
    /// Of streams, by host.
    streams: BTreeMap<String, Remote>,
}

/// A task that sends or asks.
struct Client {
    task: Remote,
    what: What,
    counts: bool,
}

enum What {
    /// Flows of datagrams, as many.
    Send(Vec<SendFlow>),
    /// The flow with this number.
    Probe(u16),
    Streams(u16, Kind),
    /// The flow with this number.
    Flood(u16),
}

impl Plan<'_> {
    fn run(&self) -> Result<Measured> {
        let servers = self.serve()?;
        let mut clients = self.prepare(&servers)?;
        let mut warm = self.warm_up(&servers)?;
        let in_time = |client: &Client| {
            let is_later = |kind: Kind| kind != Kind::TcpStream;
            client.counts && matches!(client.what, What::Streams(_, kind) if is_later(kind))
        };
        for client in clients.iter_mut().filter(|client| !client.counts) {
            client.task.go()?;
        }
        for client in clients.iter_mut().filter(|client| client.counts && !in_time(client)) {
            client.task.go()?;
        }
        for client in &mut warm {
            client.task.go()?;
        }
        std::thread::sleep(Duration::from_nanos(nanos(self.warmup)));
        for client in &mut warm {
            client.task.end()?;
        }
        for client in clients.iter_mut().filter(|client| in_time(client)) {
            client.task.go()?;
        }
        self.collect(servers, clients, warm)
    }

    fn serve(&self) -> Result<Servers> {
        let mut servers = Servers::default();
        let mut receivers: BTreeMap<(&str, bool), Vec<ReceiveFlow>> = BTreeMap::new();
        for Planned { flow, number, counts } in &self.flows {
            let (_, port) = ports(*number);
            let (ports, buffer) = match &flow.test {
                Test::Rtt { ip6, .. } => {
                    let echo = Task::Echo(Echo {
                        port,
                        ip6: *ip6,
                        ..Echo::default()
                    });
                    servers.others.push(self.ends.agent(&flow.to)?.start(echo)?);
                    continue;
                }
                Test::Flood { .. } => {
                    let sink = self.ends.agent(&flow.to)?.start(Task::Sink(Sink { port }))?;
                    servers.sinks.push((*number, sink));
                    continue;
                }
                Test::Cbr { buffer, .. } => (vec![port], *buffer),
                Test::NewFlows { .. } => {
                    let first = new_flow_ports(*number);
                    ((first..first + NEW_FLOW_PORTS).collect(), None)
                }
                Test::TcpStream(_) | Test::UdpStream(_) | Test::TcpRr(_) | Test::TcpCrr(_) | Test::UdpRr(_) => {
                    if !servers.streams.contains_key(&flow.to) {
                        let task = Task::StreamServer(StreamServer::default());
                        let server = self.ends.agent(&flow.to)?.start(task)?;
                        servers.streams.insert(flow.to.clone(), server);
                    }
                    continue;
                }
            };
            receivers.entry((&flow.to, *counts)).or_default().push(ReceiveFlow {
                flow: *number,
                ports,
                buffer,
            });
        }
        for ((host, _), flows) in receivers {
            let task = Task::Receive(Receive { flows, quiet: 200 });
            servers.receivers.push(self.ends.agent(host)?.start(task)?);
        }
        Ok(servers)
    }

    fn prepare(&self, servers: &Servers) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        let mut senders: BTreeMap<(&str, bool), Vec<SendFlow>> = BTreeMap::new();
        for planned in &self.flows {
            let Planned { flow, number, counts } = planned;
            let to = self.ends.address(&flow.from, &flow.to)?;
            let (from_port, to_port) = ports(*number);
            let mut send = |payload: u32, rate: u64, ports: Vec<u16>, (new_flows, imix): (bool, bool)| {
                senders.entry((&flow.from, *counts)).or_default().push(SendFlow {
                    flow: *number,
                    to,
                    ports,
                    port: from_port,
                    payload,
                    rate,
                    new_flows,
                    first_pair: PAIRS.load(Ordering::Relaxed),
                    imix,
                });
            };
            match &flow.test {
                Test::Cbr {
                    payload, rate, imix, ..
                } => {
                    let payload = if *imix { IMIX_MEAN } else { *payload };
                    send(payload, *rate, vec![to_port], (false, *imix));
                }
                Test::NewFlows { rate, payload } => {
                    let first = new_flow_ports(*number);
                    let bits = rate.map_or(0, |rate| rate.saturating_mul(u64::from(*payload) * 8));
                    send(*payload, bits, (first..first + NEW_FLOW_PORTS).collect(), (true, false));
                }
                Test::Rtt {
                    payload,
                    exchanges,
                    interval,
                    new,
                    ip6,
                } => {
                    let probe = Probe {
                        to: if *ip6 {
                            (self.ends.address6(&flow.to)?, to_port).into()
                        } else {
                            (to, to_port).into()
                        },
                        port: from_port,
                        payload: *payload,
                        exchanges: exchanges.filter(|_| *counts),
                        interval: *interval,
                        warmup: if *counts { self.warmup } else { 0.0 },
                        seconds: self.seconds_of(*counts),
                        timeout: 1_000_000,
                        spin: if *interval == 0 && *counts { LOOKS } else { 0 },
                        fresh: new.then(|| (FRESH.load(Ordering::Relaxed) % u64::from(u16::MAX)) as u16),
                    };
                    let task = self.ends.agent(&flow.from)?.start(Task::Probe(probe))?;
                    clients.push(Client {
                        task,
                        what: What::Probe(*number),
                        counts: *counts,
                    });
                }
                Test::Flood { payload, rate, .. } => {
                    let flood = Flood {
                        to: SocketAddrV4::new(to, to_port),
                        port: from_port,
                        payload: *payload,
                        rate: rate.unwrap_or(0),
                        device: Some(crate::bed::DEVICE.to_owned()),
                        warmup: if *counts { self.warmup } else { 0.0 },
                        seconds: self.seconds_of(*counts),
                    };
                    let task = self.ends.agent(&flow.from)?.start(Task::Flood(flood))?;
                    clients.push(Client {
                        task,
                        what: What::Flood(*number),
                        counts: *counts,
                    });
                }
                other => {
                    if let Some((kind, streams)) = other.streams() {
                        clients.push(self.streams(planned, kind, streams, servers)?);
                    }
                }
            }
        }
        let is_pinned = |flow: &SendFlow| {
            let planned = self.flows.iter().find(|planned| planned.number == flow.flow);
            planned.is_some_and(|planned| matches!(planned.flow.test, Test::Cbr { pinned: true, .. }))
        };
        for ((host, counts), flows) in senders {
            let task = Send {
                flows: flows.clone(),
                warmup: if counts { self.warmup } else { 0.0 },
                seconds: self.seconds_of(counts),
                knock: !counts || self.warmup > 0.0,
                spin: 0,
                pinned: flows.iter().any(is_pinned),
            };
            clients.push(Client {
                task: self.ends.agent(host)?.start(Task::Send(task))?,
                what: What::Send(flows),
                counts,
            });
        }
        Ok(clients)
    }

    /// A stream of each measured flow of streams, which does not count.
    fn warm_up(&self, servers: &Servers) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        for planned in self.flows.iter().filter(|planned| planned.counts && self.warmup > 0.0) {
            let test = planned.flow.test.streams();
            if let Some((kind, streams)) = test.filter(|(kind, _)| *kind != Kind::TcpStream) {
                let one = Streams {
                    streams: 1,
                    ..streams.clone()
                };
                clients.push(self.streams(planned, kind, &one, servers)?);
            }
        }
        Ok(clients)
    }

    fn streams(&self, planned: &Planned<'_>, kind: Kind, streams: &Streams, servers: &Servers) -> Result<Client> {
        let flow = planned.flow;
        let server = servers.streams.get(&flow.to).context("a flow without a server")?;
        let port = server.ports().first().copied().context("a server without a port")?;
        let client = StreamClient {
            to: SocketAddrV4::new(self.ends.address(&flow.from, &flow.to)?, port),
            kind,
            streams: streams.streams,
            message: streams.message,
            buffer: streams.buffer,
            congestion: streams.congestion.clone(),
            seconds: self.seconds_of(planned.counts),
            warmup: if planned.counts && kind == Kind::TcpStream {
                self.warmup
            } else {
                0.0
            },
            patience: patience(self.seconds),
        };
        Ok(Client {
            task: self.ends.agent(&flow.from)?.start(Task::StreamClient(client))?,
            what: What::Streams(planned.number, kind),
            counts: planned.counts,
        })
    }

    fn seconds_of(&self, counts: bool) -> f64 {
        if counts { self.seconds } else { FOR_EVER }
    }

    /// Waits for the measured tasks, stops the others, and collects the results.
    fn collect(&self, servers: Servers, clients: Vec<Client>, warm: Vec<Client>) -> Result<Measured> {
        let most = Duration::from_nanos(nanos(self.seconds + self.warmup + 4.0 * patience(self.seconds))) + SLACK;
        let (counted, rest): (Vec<Client>, Vec<Client>) = clients.into_iter().partition(|client| client.counts);
        let mut ended = Vec::new();
        for client in counted {
            ended.push((client.what, client.task.wait(most)?));
        }
        let (whats, tasks): (Vec<What>, Vec<Remote>) =
            rest.into_iter().map(|client| (client.what, client.task)).unzip();
        ended.extend(whats.into_iter().zip(Remote::stop_all(tasks)?));
        let mut warmed = Vec::new();
        for client in warm {
            warmed.push((client.what, client.task.wait(most)?));
        }
        let mut received = BTreeMap::new();
        for outcome in Remote::stop_all(servers.receivers)? {
            let Outcome::Received(Received { flows }) = outcome else {
                bail!("a receiver answers something else")
            };
            received.extend(flows.into_iter().map(|flow| (flow.flow, flow)));
        }
        let (numbers, sinks): (Vec<u16>, Vec<Remote>) = servers.sinks.into_iter().unzip();
        let sunk: BTreeMap<u16, Outcome> = numbers.into_iter().zip(Remote::stop_all(sinks)?).collect();
        let (hosts, streams): (Vec<String>, Vec<Remote>) = servers.streams.into_iter().unzip();
        let served: BTreeMap<String, Outcome> = hosts.into_iter().zip(Remote::stop_all(streams)?).collect();
        for (what, outcome) in warmed.iter_mut().chain(&mut ended) {
            if let (What::Streams(number, Kind::UdpStream), Outcome::Streamed(streamed)) = (what, outcome) {
                let Some(Outcome::ServedStreams(served)) = served.get(&self.planned(*number)?.flow.to) else {
                    bail!("a server of streams answers something else");
                };
                streamed.take_arrived(served)?;
            }
        }
        Remote::stop_all(servers.others)?;
        let mut measured = Measured::default();
        for (what, outcome) in &warmed {
            if let (What::Streams(number, kind), Outcome::Streamed(streamed)) = (what, outcome) {
                measured.warmed(&self.planned(*number)?.flow.name, *kind, streamed);
            }
        }
        for (what, outcome) in &ended {
            match (what, outcome) {
                (What::Probe(number), Outcome::Probed(probed)) => {
                    let planned = self.planned(*number)?;
                    let Test::Rtt { payload, new, .. } = planned.flow.test else {
                        continue;
                    };
                    if new {
                        FRESH.fetch_add(probed.sent + probed.errors + probed.uncounted.0, Ordering::Relaxed);
                    }
                    if planned.counts {
                        measured.probed(&planned.flow.name, payload, probed);
                    } else {
                        measured.only_account(|all| all.probed(&planned.flow.name, payload, probed));
                    }
                }
                (What::Streams(number, kind), Outcome::Streamed(streamed)) => {
                    let planned = self.planned(*number)?;
                    if planned.counts {
                        measured.streamed(&planned.flow.name, *kind, streamed);
                    } else {
                        measured.only_account(|all| all.streamed(&planned.flow.name, *kind, streamed));
                    }
                }
                (What::Send(asked), Outcome::Sent(Sent { flows })) => {
                    for (asked, sent) in asked.iter().zip(flows) {
                        PAIRS.fetch_add(sent.pairs, Ordering::Relaxed);
                        let planned = self.planned(asked.flow)?;
                        let received = received.get(&asked.flow).context("a flow that nobody received")?;
                        measured.datagrams(planned.flow, asked, sent, received, planned.counts);
                    }
                }
                (What::Flood(number), Outcome::Flooded(flooded)) => {
                    let Some(Outcome::Sunk(sunk)) = sunk.get(number) else {
                        bail!("a sink answers something else")
                    };
                    let planned = self.planned(*number)?;
                    measured.flooded(planned.flow, flooded, sunk, planned.counts);
                }
                (What::Probe(_) | What::Streams(..) | What::Send(_) | What::Flood(_), _) => {
                    bail!("an agent answers something else")
                }
            }
        }
        Ok(measured)
    }

    fn planned(&self, number: u16) -> Result<&Planned<'_>> {
        self.flows
            .get(usize::from(number))
            .context("a flow that was not asked for")
    }
}

/// For how long streams of such a length wait for connections and results, in seconds.
fn patience(seconds: f64) -> f64 {
    seconds.clamp(5.0, 20.0)
}
