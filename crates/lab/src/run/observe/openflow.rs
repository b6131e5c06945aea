//! Rules before a run, and OpenFlow requests during it.

use super::{Meanwhile, Observer, Seen, effect};
use crate::bed::namespace;
use crate::controller::{
    Connection, Conversation, Endpoint, Learning, Measured, Policy, Shape, Transport, barrier, conversation_rules,
    drain, fill, packet_out, port_statistics, rates, rule_statistics,
};
use crate::run::stage::Table;
use crate::scenario::{Fill, Matching, Mode, Observe, OpenFlow, Rewrite, Setup};
use crate::topology::{Bridge, Control};
use crate::traffic::capture::Capture;
use crate::traffic::protocol::{Outcome, Task};
use crate::traffic::udp::{Echo, Probe, Send, SendFlow};
use crate::traffic::{self, Flow, Remote, Test};
use anyhow::{Context, Result, bail, ensure};
use openflow::model::FlowCommand;
use std::time::{Duration, Instant};

/// Timeout for a switch to connect to its controller.
const COME: Duration = Duration::from_secs(10);

/// An OpenFlow connection to a bridge.
pub(super) fn connect(table: &Table, bridge: &str) -> Result<Connection> {
    let stream = table.running.openflow(bridge)?.context("it has no OpenFlow")?;
    Connection::open(stream).with_context(|| format!("OpenFlow of bridge {bridge}"))
}

/// Installs the rules of a cell in place of those of the one before.
///
/// # Errors
/// The switch has no OpenFlow, or refuses a rule.
pub(crate) fn prepare(table: &mut Table, setup: &Setup) -> Result<()> {
    for bridge in setup
        .topology
        .bridges
        .iter()
        .filter(|bridge| bridge.control == Control::Rules)
    {
        clear(&mut connect(table, &bridge.name)?)?;
    }
    match &setup.openflow {
        Some(openflow) if openflow.mode == Mode::Openflow => {
            install(table, setup, openflow).context("rules before the run")
        }
        _ => Ok(()),
    }
}

/// Removes all rules but one for ARP; the study's hosts had static entries.
pub(super) fn clear(connection: &mut Connection) -> Result<()> {
    connection.rule(FlowCommand::Delete, "")?;
    connection.rule(FlowCommand::Add, "priority=50,arp,actions=flood")?;
    agreed(connection)
}

pub(super) fn agreed(connection: &mut Connection) -> Result<()> {
    match connection.barrier()?.first() {
        Some(refused) => bail!("the switch refuses a rule: {:?}", refused.reason),
        None => Ok(()),
    }
}

fn install(table: &mut Table, setup: &Setup, openflow: &OpenFlow) -> Result<()> {
    let shape = match openflow.matching {
        Matching::Exact => Shape::Exact,
        _ => Shape::Wildcard(openflow.masks),
    };
    let mut rules = Vec::new();
    for (number, flow) in setup.measured.iter().chain(&setup.background).enumerate() {
        let conversation = conversation(table, setup, &openflow.bridge, flow, u16::try_from(number)?)?;
        rules.extend(conversation_rules(conversation, openflow.matching, openflow.rewrite));
        if openflow.rewrite == Rewrite::Ip {
            learn_other_address(table, flow, conversation)?;
        }
    }
    let mut connection = connect(table, &openflow.bridge)?;
    let needed = u32::try_from(rules.len())?;
    match openflow.rules {
        Fill::One => {}
        Fill::Number(number) => {
            let filled = fill(&mut connection, shape, number.saturating_sub(needed))?;
            ensure!(!filled.full, "its table is full with {} rules", filled.rules);
        }
        Fill::Full | Fill::NearlyFull => {
            let filled = fill(&mut connection, shape, openflow.at_most)?;
            let keep = match openflow.rules {
                Fill::NearlyFull => filled.rules / 10 * 9,
                _ => filled.rules,
            };
            drain(&mut connection, shape, filled, keep.saturating_sub(needed))?;
        }
    }
    for rule in rules {
        connection.rule(FlowCommand::Add, &rule)?;
    }
    agreed(&mut connection)
}

/// The answering host must resolve the address that no host has and [`Rewrite::Ip`] writes.
fn learn_other_address(table: &Table, flow: &Flow, conversation: Conversation) -> Result<()> {
    let (other, mac) = (
        conversation.from.other_ip().to_string(),
        super::mac(conversation.from.mac),
    );
    let host = table.ground.bed.host(&flow.to)?;
    let device = crate::bed::DEVICE;
    let words = [
        "ip",
        "neigh",
        "replace",
        &other,
        "lladdr",
        &mac,
        "dev",
        device,
        "nud",
        "permanent",
    ];
    crate::bed::command::run(&mut host.command(&words)).map(drop)
}

fn conversation(table: &Table, setup: &Setup, bridge: &str, flow: &Flow, number: u16) -> Result<Conversation> {
    let (from_port, to_port) = traffic::ports(number);
    let transport = match flow.test {
        Test::Rtt { .. }
        | Test::Cbr { .. }
        | Test::NewFlows { .. }
        | Test::Flood { .. }
        | Test::UdpStream(_)
        | Test::UdpRr(_) => Transport::Udp,
        Test::TcpStream(_) | Test::TcpRr(_) | Test::TcpCrr(_) => Transport::Tcp,
    };
    let ends = &table.ground.ends;
    let end = |host: &str, ip, transport_port| {
        // A host behind another bridge is reached by the port that leads there.
        let next =
            next_hop(setup, bridge, host).with_context(|| format!("no cable leads from bridge {bridge} to {host}"))?;
        let port = table.running.port_number(bridge, &next)?;
        Ok::<_, anyhow::Error>(Endpoint {
            port,
            mac: table.ground.bed.host(host)?.mac(),
            ip,
            transport_port,
        })
    };
    Ok(Conversation {
        transport,
        from: end(&flow.from, ends.address(&flow.to, &flow.from)?, from_port)?,
        to: end(&flow.to, ends.address(&flow.from, &flow.to)?, to_port)?,
    })
}

/// The next node from a bridge towards a host, by breadth-first search.
fn next_hop(setup: &Setup, bridge: &str, host: &str) -> Option<String> {
    let links = || {
        setup
            .topology
            .links
            .iter()
            .flat_map(|link| [(&link.a.at, &link.b.at), (&link.b.at, &link.a.at)])
    };
    let mut seen: Vec<(&str, Option<&str>)> = vec![(bridge, None)];
    let mut next = 0;
    while let Some(&(at, first)) = seen.get(next) {
        next += 1;
        for (_, to) in links().filter(|(from, _)| *from == at) {
            let first = first.unwrap_or(to);
            if to == host {
                return Some(first.to_owned());
            }
            if !seen.iter().any(|(known, _)| known == to) {
                seen.push((to, Some(first)));
            }
        }
    }
    None
}

/// A controller for all reactive bridges.
///
/// # Errors
/// The switches do not connect to it.
pub(crate) fn control(table: &mut Table, setup: &Setup) -> Result<Option<Learning>> {
    let reactive: Vec<&Bridge> = setup
        .topology
        .bridges
        .iter()
        .filter(|bridge| bridge.control == Control::Reactive)
        .collect();
    if reactive.is_empty() {
        return Ok(None);
    }
    let names: Vec<String> = reactive.iter().map(|bridge| bridge.name.clone()).collect();
    controller(table, &names, Policy::Learn).map(Some)
}

fn controller(table: &mut Table, bridges: &[String], policy: Policy) -> Result<Learning> {
    let controller = namespace::enter(table.ground.bed.namespace(), || Learning::start(policy))?;
    for bridge in bridges {
        table.running.set_controller(bridge, Some(controller.address()))?;
    }
    controller.await_switches(bridges.len() as u64, COME)?;
    Ok(controller)
}

/// An OpenFlow request during the traffic.
struct Asked(Option<Meanwhile>);

impl Observer for Asked {
    fn meanwhile(&mut self) -> Option<Meanwhile> {
        self.0.take()
    }

    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured> {
        Ok(seen.brought.clone())
    }
}

/// The bridge that a cell is about: the one of its rules, or the first.
pub(super) fn bridge_of(setup: &Setup) -> Result<String> {
    let named = setup.openflow.as_ref().map(|openflow| openflow.bridge.clone());
    named
        .or_else(|| setup.topology.bridges.first().map(|bridge| bridge.name.clone()))
        .context("there is no bridge")
}

/// Starts the observation of a switch's OpenFlow.
///
/// # Errors
/// It has none, or does not answer.
pub(super) fn begin(table: &mut Table, setup: &Setup, what: &Observe) -> Result<Box<dyn Observer>> {
    let bridge = bridge_of(setup)?;
    let time = Duration::try_from_secs_f64(setup.seconds)?;
    let asked = |work: Meanwhile| Box::new(Asked(Some(work)));
    Ok(match what {
        Observe::FlowStatistics { every } => {
            let (mut connection, every) = (connect(table, &bridge)?, Duration::try_from_secs_f64(*every)?);
            asked(Box::new(move || rule_statistics(&mut connection, every, time)))
        }
        Observe::PortStatistics { every } => {
            let (mut connection, every) = (connect(table, &bridge)?, Duration::try_from_secs_f64(*every)?);
            asked(Box::new(move || port_statistics(&mut connection, every, time)))
        }
        Observe::Rules { rules } => {
            let (mut connection, rules) = (connect(table, &bridge)?, *rules);
            asked(Box::new(move || rates(&mut connection, rules)))
        }
        Observe::Barrier {} => {
            let mut connection = connect(table, &bridge)?;
            asked(Box::new(move || barrier(&mut connection, time)))
        }
        Observe::Capacity {
            exact,
            masks,
            at_most,
            limit,
        } => {
            let shape = if *exact { Shape::Exact } else { Shape::Wildcard(*masks) };
            Box::new(capacity(table, setup, &bridge, shape, *at_most, *limit)?)
        }
        Observe::Supported {} => Box::new(supported(table, setup, &bridge)?),
        Observe::Effect {} => Box::new(effect::Effect::begin(table, setup, &bridge)?),
        Observe::PacketIn {} => Box::new(packet_in(table, setup, &bridge)?),
        Observe::PacketOut { payload } => Box::new(Out::begin(table, setup, &bridge, *payload, time)?),
        other => bail!("{other:?} cannot be observed of OpenFlow"),
    })
}

/// Results found before the cell's traffic, which is empty.
struct Found(Measured);

impl Observer for Found {
    fn end(self: Box<Self>, _seen: &Seen<'_>) -> Result<Measured> {
        Ok(self.0)
    }
}

/// The first two hosts.
pub(super) fn two_hosts(setup: &Setup) -> Result<(&str, &str)> {
    match setup.topology.hosts.as_slice() {
        [a, b, ..] => Ok((&a.name, &b.name)),
        _ => bail!("this needs two hosts"),
    }
}

/// The probe's echo port.
const ECHO: u16 = 19_011;

/// Exchanges of the probe through a full table.
const EXCHANGES: u32 = 100;

/// Round trips between two hosts.
fn probe(table: &Table, from: &str, to: &str, exchanges: Option<u32>, seconds: f64) -> Result<traffic::udp::Probed> {
    probe_of(table, (from, 0), (to, ECHO), exchanges, seconds)
}

/// The same from a port to a port.
fn probe_of(
    table: &Table,
    (from, port): (&str, u16),
    (to, echo_port): (&str, u16),
    exchanges: Option<u32>,
    seconds: f64,
) -> Result<traffic::udp::Probed> {
    let ends = &table.ground.ends;
    let echo = ends.agent(to)?.start(Task::Echo(Echo {
        port: echo_port,
        ..Echo::default()
    }))?;
    let task = Probe {
        to: (ends.address(from, to)?, echo_port).into(),
        port,
        payload: 64,
        exchanges,
        interval: 0,
        // The hosts find each other.
        warmup: 0.05,
        seconds,
        timeout: 200_000,
        spin: 0,
        fresh: None,
    };
    let mut task = ends.agent(from)?.start(Task::Probe(task))?;
    task.go()?;
    let probed = task.wait(Duration::try_from_secs_f64(seconds + 30.0)?)?;
    echo.stop()?;
    match probed {
        Outcome::Probed(probed) => Ok(probed),
        _ => bail!("a probe answers something else"),
    }
}

/// The probe's results for a switch with a full table; `answered` is the result of its OpenFlow.
pub(super) fn while_full(table: &Table, setup: &Setup, answered: bool) -> Result<Measured> {
    let (from, to) = two_hosts(setup)?;
    let probed = probe(table, from, to, Some(EXCHANGES), setup.seconds.max(5.0))?;
    let mut measured = Measured::default();
    measured.metrics.insert(
        "lost".to_owned(),
        (probed.sent - probed.answered.min(probed.sent)) as f64,
    );
    measured
        .metrics
        .insert("answered".to_owned(), if answered { 1.0 } else { 0.0 });
    Ok(measured)
}

fn capacity(
    table: &mut Table,
    setup: &Setup,
    bridge: &str,
    shape: Shape,
    at_most: u32,
    limit: Option<u32>,
) -> Result<Found> {
    if let Some(limit) = limit {
        ensure!(
            table.running.limit_rules(bridge, Some(limit))?,
            "it cannot be told how many rules its table may have"
        );
    }
    let filled = (|| {
        let mut connection = connect(table, bridge)?;
        let (from, to) = two_hosts(setup)?;
        let (a, b) = (
            table.running.port_number(bridge, from)?,
            table.running.port_number(bridge, to)?,
        );
        for (from, to) in [(a, b), (b, a)] {
            connection.rule(
                FlowCommand::Add,
                &format!("priority=10,in_port={from},actions=output:{to}"),
            )?;
        }
        agreed(&mut connection)?;
        let filled = fill(&mut connection, shape, at_most)?;
        let answered = connection.echo().is_ok();
        let mut measured = while_full(table, setup, answered)?;
        let mut add = |metric: &str, value: f64| measured.metrics.insert(metric.to_owned(), value);
        add("rules", f64::from(filled.rules));
        add("full", if filled.full { 1.0 } else { 0.0 });
        add("seconds", filled.took.as_secs_f64());
        clear(&mut connection)?;
        Ok(Found(measured))
    })();
    if limit.is_some() {
        table.running.limit_rules(bridge, None)?;
    }
    filled
}

/// How long an exchange through a rule is waited for, and how many are tried, in seconds.
const TRIAL: (u32, f64) = (3, 0.7);

/// Tries every match with every change: rules of a conversation both ways, and exchanges through
/// them. What is neither refused nor loses all exchanges is supported.
fn supported(table: &Table, setup: &Setup, bridge: &str) -> Result<Found> {
    let (from, to) = two_hosts(setup)?;
    let flow = Flow {
        name: "trial".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        test: Test::Rtt {
            payload: 64,
            exchanges: None,
            interval: 0,
            new: false,
            ip6: false,
        },
    };
    let conversation = conversation(table, setup, bridge, &flow, 0)?;
    let (port, echo_port) = traffic::ports(0);
    learn_other_address(table, &flow, conversation)?;
    let mut measured = Measured::default();
    let mut count = [0.0; 2];
    let asked = setup.openflow.as_ref().map(|openflow| openflow.matching);
    for matching in Matching::ALL
        .into_iter()
        .filter(|matching| asked.is_none_or(|asked| asked == *matching))
    {
        for rewrite in Rewrite::ALL {
            let mut connection = connect(table, bridge)?;
            clear(&mut connection)?;
            for rule in conversation_rules(conversation, matching, rewrite) {
                connection.rule(FlowCommand::Add, &rule)?;
            }
            let (tries, seconds) = TRIAL;
            let works = connection.barrier()?.is_empty()
                && probe_of(table, (from, port), (to, echo_port), Some(tries), seconds)?.answered > 0;
            let change = word(&rewrite)?;
            let name = match asked {
                Some(_) => change,
                None => format!("{}-{change}", word(&matching)?),
            };
            measured.metrics.insert(name, f64::from(u8::from(works)));
            count[0] += f64::from(u8::from(works));
            count[1] += 1.0;
            clear(&mut connection)?;
        }
    }
    measured.metrics.insert("supported".to_owned(), count[0]);
    measured.metrics.insert("tried".to_owned(), count[1]);
    Ok(Found(measured))
}

/// Its name in scenarios.
fn word(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string(value)?;
    Ok(text.trim_matches('"').to_owned())
}

/// As in cbench, every packet causes a packet-in.
fn packet_in(table: &mut Table, setup: &Setup, bridge: &str) -> Result<Found> {
    let (from, to) = two_hosts(setup)?;
    let bridges = [bridge.to_owned()];
    let asked = (|| {
        let mut measured = Measured::default();
        // Nothing is known but to ask.
        let mut connection = connect(table, bridge)?;
        connection.rule(FlowCommand::Delete, "")?;
        connection.rule(FlowCommand::Add, "priority=0,actions=controller")?;
        agreed(&mut connection)?;
        let controller = controller(table, &bridges, Policy::Forward)?;
        let probed = probe(table, from, to, None, setup.seconds)?;
        if let Some(mean) = probed.mean {
            // Both directions cause a packet-in.
            measured.metrics.insert("latency".to_owned(), mean / 2.0 / 1e3);
        }
        let ends = &table.ground.ends;
        let flow = SendFlow {
            flow: 0,
            to: ends.address(from, to)?,
            ports: vec![ECHO],
            port: 0,
            payload: 64,
            rate: 0,
            new_flows: true,
            first_pair: 0,
            imix: false,
        };
        let task = Send {
            flows: vec![flow],
            warmup: 0.0,
            seconds: setup.seconds,
            knock: false,
            spin: 0,
            pinned: false,
        };
        let mut sender = ends.agent(from)?.start(Task::Send(task))?;
        let (before, began) = (controller.packet_ins(), Instant::now());
        sender.go()?;
        sender.wait(Duration::try_from_secs_f64(setup.seconds + 30.0)?)?;
        let asked = controller.packet_ins() - before;
        measured
            .metrics
            .insert("throughput".to_owned(), asked as f64 / began.elapsed().as_secs_f64());
        Ok(Found(measured))
    })();
    table.running.set_controller(bridge, None)?;
    asked
}

/// EtherType for experiments (IEEE 802), which no host's stack takes.
const EXPERIMENT: u16 = 0x88b5;

/// Packets that a controller sends, and that a host captures.
struct Out {
    capture: Remote,
    work: Option<Meanwhile>,
}

impl Out {
    fn begin(table: &Table, setup: &Setup, bridge: &str, payload: u32, time: Duration) -> Result<Out> {
        let (from, to) = two_hosts(setup)?;
        let bed = &table.ground.bed;
        let mut packet = [bed.host(to)?.mac(), bed.host(from)?.mac()].concat();
        packet.extend(EXPERIMENT.to_be_bytes());
        // Headers of IP and UDP would be as long.
        packet.resize(packet.len() + 28 + payload as usize, 0);
        let port = table.running.port_number(bridge, to)?;
        let mut connection = connect(table, bridge)?;
        let capture = table.ground.ends.agent(to)?.start(Task::Capture(Capture::default()))?;
        let work: Meanwhile = Box::new(move || {
            let sent = packet_out(&mut connection, &packet, port, time)?;
            let mut measured = Measured::default();
            measured.metrics.insert("sent".to_owned(), sent as f64);
            Ok(measured)
        });
        Ok(Out {
            capture,
            work: Some(work),
        })
    }
}

impl Observer for Out {
    fn meanwhile(&mut self) -> Option<Meanwhile> {
        self.work.take()
    }

    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured> {
        let captured = super::captured(self.capture)?;
        let ours: Vec<_> = captured
            .seen
            .iter()
            .filter(|seen| seen.kind.ether_type == EXPERIMENT)
            .collect();
        let arrived: u64 = ours.iter().map(|seen| seen.frames).sum();
        let mut measured = Measured::default();
        measured
            .metrics
            .insert("rate".to_owned(), arrived as f64 / seen.setup.seconds);
        if let Some(sent) = seen.brought.metrics.get("sent").filter(|sent| **sent > 0.0) {
            measured.metrics.insert("share".to_owned(), arrived as f64 / sent);
        }
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{End, Link, Port, Topology};

    #[test]
    fn a_host_behind_another_bridge_is_reached_by_the_port_that_leads_there() {
        let end = |at: &str| End {
            at: at.to_owned(),
            port: Port::default(),
        };
        let link = |a: &str, b: &str| Link {
            a: end(a),
            b: end(b),
            rate: None,
            delay: 0,
            serial: Default::default(),
            queue: 1,
        };
        let links = vec![link("h1", "s1"), link("s1", "s2"), link("s2", "s3"), link("h2", "s3")];
        let setup = Setup {
            topology: Topology {
                links,
                ..Topology::default()
            },
            background: Vec::new(),
            measured: Vec::new(),
            observed: Vec::new(),
            openflow: None,
            systems: Vec::new(),
            seconds: 1.0,
            warmup: 0.0,
            awake: true,
        };
        assert_eq!(next_hop(&setup, "s1", "h2").as_deref(), Some("s2"));
        assert_eq!(next_hop(&setup, "s1", "h1").as_deref(), Some("h1"));
        assert_eq!(next_hop(&setup, "s1", "nobody"), None);
    }
}
