//! Measurements other than flows between hosts: reachability, frames sent by the switch itself,
//! broadcasts, and checks of the tool's own numbers.

use super::capture::{Capture, Captured, Seen};
use super::ends::broadcast as broadcast_address;
use super::iperf::{IperfClient, IperfServer, Witnessed};
use super::ping::{Ping, Pinged};
use super::protocol::{Outcome, Task};
use super::replay::Replay;
use super::udp::{Send, SendFlow};
use super::{Account, Ends, Flow, Measured, Remote, Test, ports, run};

use crate::topology::Topology;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Number of pings before a host counts as unreachable, and the timeout of each, µs. A switch may
/// need some packets to learn, or a controller its time.
const PINGS: (u16, u64) = (3, 300_000);

/// Protocols of IPv4.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The port that broadcasts go to.
const BROADCAST_PORT: u16 = 20_999;

/// The port of the second witness.
const WITNESS_PORT: u16 = 20_998;

/// How long a task may take beyond its time.
const SLACK: Duration = Duration::from_secs(60);

/// Time to wait after the last frame of a host.
const SETTLE: Duration = Duration::from_millis(100);

/// Every host pings every other, and all capture the ARP requests that they hear. Metrics, after
/// `name.`: `A-B` for each pair of hosts (1: B answered A, 0: it did not), `leaks` (pairs that
/// reach each other though none of `groups` holds both, and ARP requests heard outside the asker's
/// group), `missing` (pairs of one group that do not), `heard.A-B` (ARP requests of A that B
/// heard), `heard.other` (those heard outside the asker's groups). It needs empty neighbour tables,
/// because a host with a known address sends no ARP request.
///
/// # Errors
/// An agent that is gone; no permission for raw sockets.
pub fn reachability(ends: &Ends, name: &str, groups: &[Vec<String>]) -> Result<Measured> {
    let hosts: Vec<&str> = ends.names().collect();
    let together = |a: &str, b: &str| {
        let holds = |group: &Vec<String>, host: &str| group.iter().any(|member| member == host);
        groups.iter().any(|group| holds(group, a) && holds(group, b))
    };
    let captures = capture_on(ends, &hosts)?;
    let mut measured = Measured::default();
    let (mut leaks, mut missing) = (0, 0);
    for &from in &hosts {
        let others: Vec<&str> = hosts.iter().copied().filter(|&host| host != from).collect();
        let to = others
            .iter()
            .map(|to| ends.address(from, to))
            .collect::<Result<Vec<_>>>()?;
        let (times, timeout) = PINGS;
        let limit = Duration::from_micros(timeout * u64::from(times)) * to.len() as u32 + SLACK;
        let mut ping = ends.agent(from)?.start(Task::Ping(Ping { to, times, timeout }))?;
        ping.go()?;
        let Outcome::Pinged(Pinged { answered }) = ping.wait(limit)? else {
            bail!("{from} answers something else")
        };
        for (&to, answered) in others.iter().zip(answered) {
            measured
                .metrics
                .insert(format!("{name}.{from}-{to}"), f64::from(u8::from(answered)));
            leaks += u64::from(answered && !together(from, to));
            missing += u64::from(!answered && together(from, to));
        }
    }
    std::thread::sleep(SETTLE);
    let mut other = 0;
    for (hearer, captured) in stop_captures(captures)? {
        for &asker in hosts.iter().filter(|&&asker| asker != hearer) {
            let addresses = ends.addresses(asker)?;
            let is_asker = |from: Option<Ipv4Addr>| addresses.iter().any(|address| Some(address.ip) == from);
            let heard = frames(&captured, |seen| seen.kind.arp == Some(1) && is_asker(seen.kind.from));
            measured
                .metrics
                .insert(format!("{name}.heard.{asker}-{hearer}"), heard as f64);
            if !together(asker, &hearer) {
                other += heard;
            }
        }
        remark_drops(&mut measured, name, &hearer, &captured);
    }
    for (metric, value) in [("leaks", leaks + other), ("missing", missing), ("heard.other", other)] {
        measured.metrics.insert(format!("{name}.{metric}"), value as f64);
    }
    Ok(measured)
}

/// Sends nothing for this many seconds while all hosts capture. Metrics, after `name.`: `frames` (a
/// minute, heard by all hosts together, that none of them sent), `frames.HOST` (heard by that
/// host), `others` (a minute, that came from another host by itself).
///
/// # Errors
/// An agent that is gone; no permission for raw sockets.
pub fn idle(ends: &Ends, name: &str, seconds: f64) -> Result<Measured> {
    let hosts: Vec<&str> = ends.names().collect();
    let captures = capture_on(ends, &hosts)?;
    std::thread::sleep(Duration::try_from_secs_f64(seconds).context("how long is idle")?);
    let captured = stop_captures(captures)?;

    let mut measured = Measured::default();
    let (mut all, mut others) = (0, 0);
    let a_minute = |frames: u64| frames as f64 * 60.0 / seconds;
    for (host, captured) in &captured {
        let of_switch = frames(captured, |seen| !ends.is_host(&seen.kind.source)) + captured.others;
        all += of_switch;
        others += frames(captured, |seen| ends.is_host(&seen.kind.source));
        measured
            .metrics
            .insert(format!("{name}.frames.{host}"), a_minute(of_switch));
        remark_drops(&mut measured, name, host, captured);
    }
    measured.metrics.insert(format!("{name}.frames"), a_minute(all));
    measured.metrics.insert(format!("{name}.others"), a_minute(others));
    Ok(measured)
}

/// Broadcasts of a host with a rate.
#[derive(Clone, Copy, Debug)]
pub struct Broadcasts<'a> {
    /// The host that sends.
    pub from: &'a str,
    /// A second; 1 or more.
    pub rate: u32,
    /// UDP payload in bytes, 16 or more.
    pub payload: u32,
}

/// A host sends broadcasts, all others count them. Metrics, after `name.`: `share` (received/due at
/// the hosts of its VLAN), `leaks` (received elsewhere), `sent`, `copies` (received in all), `cost`
/// (CPU of the switch for a broadcast, µs), `copy` (the same for a copy of it). `cpu` is the
/// switch's processor time in seconds.
///
/// # Errors
/// An agent that is gone, an unknown host; no permission for raw sockets.
pub fn broadcast(
    ends: &Ends,
    topology: &Topology,
    name: &str,
    broadcasts: Broadcasts<'_>,
    seconds: f64,
    cpu: &dyn Fn() -> f64,
) -> Result<Measured> {
    let Broadcasts { from, rate, payload } = broadcasts;
    let segment = segments(topology, from);
    let (inside, outside): (Vec<&str>, Vec<&str>) = ends
        .names()
        .filter(|host| *host != from)
        .partition(|host| segments(topology, host).iter().any(|vlan| segment.contains(vlan)));
    let hosts: Vec<&str> = [inside.as_slice(), &outside].concat();
    let address = ends
        .addresses(from)?
        .first()
        .with_context(|| format!("host {from} has no address"))?;
    let task = Send {
        flows: vec![SendFlow {
            flow: 0,
            to: broadcast_address(address),
            ports: vec![BROADCAST_PORT],
            port: 0,
            payload,
            rate: u64::from(rate.max(1)) * u64::from(payload) * 8,
            new_flows: false,
            first_pair: 0,
            imix: false,
        }],
        warmup: 0.0,
        seconds,
        knock: false,
        spin: 0,
        pinned: false,
    };
    let mut sender = ends.agent(from)?.start(Task::Send(task))?;
    let captures = capture_on(ends, &hosts)?;
    let before = cpu();
    sender.go()?;
    let limit = Duration::try_from_secs_f64(seconds).context("how long")? + SLACK;
    let Outcome::Sent(sent) = sender.wait(limit)? else {
        bail!("{from} answers something else")
    };
    std::thread::sleep(SETTLE);
    let used = (cpu() - before).max(0.0);
    let captured = stop_captures(captures)?;
    let mut measured = Measured::default();
    let ours =
        |seen: &Seen| seen.kind.protocol == Some(UDP) && seen.kind.ports.is_some_and(|(_, to)| to == BROADCAST_PORT);
    let received = |hosts: &[&str]| -> u64 {
        hosts
            .iter()
            .filter_map(|host| captured.get(*host))
            .map(|captured| frames(captured, ours))
            .sum()
    };
    let sent = sent.flows.first().map_or(0, |flow| flow.sent) as f64;
    let (due, here, elsewhere) = (
        sent * inside.len() as f64,
        received(&inside) as f64,
        received(&outside) as f64,
    );
    let mut metric = |metric: &str, value: f64| measured.metrics.insert(format!("{name}.{metric}"), value);
    metric("sent", sent);
    metric("copies", here + elsewhere);
    metric("leaks", elsewhere);
    if due > 0.0 {
        metric("share", here / due);
    }
    if sent > 0.0 {
        metric("cost", used * 1e6 / sent);
    }
    if here + elsewhere > 0.0 {
        metric("copy", used * 1e6 / (here + elsewhere));
    }
    for (host, captured) in &captured {
        remark_drops(&mut measured, name, host, captured);
    }
    Ok(measured)
}

/// The VLANs that a host is in, by the set-up of the ports that its cables lead to; 0 is none.
fn segments(topology: &Topology, host: &str) -> Vec<u16> {
    let tagged = topology
        .hosts
        .iter()
        .filter(|h| h.name == host)
        .flat_map(|h| &h.addresses)
        .filter_map(|a| a.vlan);
    let mut vlans: Vec<u16> = tagged.collect();
    if vlans.is_empty() {
        let ports = topology.links.iter().filter_map(|link| match (&link.a, &link.b) {
            (a, b) if a.at == host => Some(b),
            (a, b) if b.at == host => Some(a),
            _ => None,
        });
        vlans.extend(ports.map(|end| end.port.access.unwrap_or(0)));
    }
    vlans
}

/// Compares a flow's measured rate with a capture at its receiver: payload bytes of the frames over
/// the time from the first to the last. TCP bytes with sequence numbers captured before do not
/// count, because the tool did not get them twice either. Metrics, after `name.`: `tool`, `capture`
/// (bit/s), `ratio` (tool/capture), of TCP `again` (share of the captured payload that had been
/// captured before, 0 to 1). For CBR and TCP_STREAM.
///
/// # Errors
/// Those of [`run`]; another kind of flow; a capture that saw fewer than two frames.
pub fn check(ends: &Ends, name: &str, flow: &Flow, seconds: f64) -> Result<Measured> {
    let (protocol, metric) = match &flow.test {
        Test::Cbr { .. } => (UDP, "rate"),
        Test::TcpStream(_) => (TCP, "total"),
        _ => bail!(
            "flow {}: only CBR and TCP_STREAM are checked against a capture",
            flow.name
        ),
    };
    let capture = capture_on(ends, &[&flow.to])?;
    // Without a warm-up, all that the capture sees counts.
    let mut measured = run(ends, &[], std::slice::from_ref(flow), seconds, 0.0)?;
    let captured = stop_captures(capture)?.remove(&flow.to).unwrap_or_default();
    let ours = |seen: &&Seen| {
        let to = seen.kind.ports.map(|(_, to)| to);
        seen.kind.protocol == Some(protocol) && seen.payload > 0 && (protocol == TCP || to == Some(ports(0).1))
    };
    let ours: Vec<&Seen> = captured.seen.iter().filter(ours).collect();
    // Connections over which streams are arranged, and their results fetched long after the last
    // byte, carry next to nothing.
    let most = ours.iter().map(|seen| seen.payload).max().unwrap_or(0);
    let ours: Vec<&Seen> = ours.into_iter().filter(|seen| seen.payload >= most / 100).collect();
    let frames: u64 = ours.iter().map(|seen| seen.frames).sum();
    if frames < 2 {
        bail!("flow {}: {frames} frames were captured at {}", flow.name, flow.to);
    }
    let all: u64 = ours.iter().map(|seen| seen.payload).sum();
    let again: u64 = ours.iter().map(|seen| seen.again).sum();
    let payload = all - again;
    let first = ours.iter().map(|seen| seen.first).fold(f64::INFINITY, f64::min);
    let last = ours.iter().map(|seen| seen.last).fold(0.0, f64::max);
    // From the first to the last is the time of all but one.
    let rate = payload as f64 * 8.0 * (frames - 1) as f64 / frames as f64 / (last - first).max(1e-9);
    let tool = measured.metrics.get(&format!("{}.{metric}", flow.name)).copied();
    let tool = tool.with_context(|| format!("flow {}: its tool has measured nothing", flow.name))?;
    if protocol == TCP {
        let share = again as f64 / all.max(1) as f64;
        measured.metrics.insert(format!("{name}.again"), share);
    }
    remark_drops(&mut measured, name, &flow.to, &captured);
    for (metric, value) in [("tool", tool), ("capture", rate), ("ratio", tool / rate)] {
        measured.metrics.insert(format!("{name}.{metric}"), value);
    }
    Ok(measured)
}

/// The metric of a flow that `iperf3` can measure; none if it has no such test.
pub(crate) fn witnessed(test: &Test) -> Option<&'static str> {
    match test {
        Test::Cbr { imix: false, .. } => Some("rate"),
        Test::TcpStream(_) => Some("total"),
        _ => None,
    }
}

/// The same traffic again by `iperf3`, for whole seconds, when the lab's own tool has measured
/// `tool` (bit/s received by all streams). Metrics, after `name.`: `tool`, `iperf3` (bit/s),
/// `difference` ((tool - iperf3)/iperf3), of CBR `jitter` (µs, as `iperf3` says). For CBR and
/// TCP_STREAM. If `iperf3` is missing or fails, the result has no metrics and a remark gives the
/// reason.
///
/// # Errors
/// An agent that has gone; another kind of flow.
pub fn witness(ends: &Ends, name: &str, flow: &Flow, seconds: u32, tool: f64) -> Result<Measured> {
    let mut client = IperfClient {
        to: ends.address(&flow.from, &flow.to)?,
        port: WITNESS_PORT,
        seconds,
        udp: None,
        message: None,
        buffer: None,
        congestion: None,
        streams: 1,
    };
    match &flow.test {
        Test::Cbr {
            payload, rate, buffer, ..
        } => {
            (client.udp, client.message, client.buffer) = (Some(*rate), Some(*payload), *buffer);
        }
        Test::TcpStream(streams) => {
            (client.message, client.buffer, client.streams) = (streams.message, streams.buffer, streams.streams);
            client.congestion.clone_from(&streams.congestion);
        }
        _ => bail!("flow {}: iperf3 has only CBR and TCP_STREAM", flow.name),
    }
    let mut measured = Measured::default();
    let said = match testify(ends, flow, client) {
        Ok(said) => said,
        Err(error) => {
            let remark = format!("{name}: no second witness of {}: {error:#}", flow.name);
            measured.remarks.push(remark);
            return Ok(measured);
        }
    };
    if let Some((sent, received)) = said.datagrams {
        measured.accounts.push(Account {
            flow: flow.name.clone(),
            sent,
            received,
            packets: super::measured::packets(flow_payload(flow)),
        });
    }
    let difference = (said.received > 0.0).then(|| tool / said.received - 1.0);
    let figures = [
        ("tool", Some(tool)),
        ("iperf3", Some(said.received)),
        ("jitter", said.jitter),
        ("difference", difference),
    ];
    for (metric, value) in figures {
        measured
            .metrics
            .extend(value.map(|value| (format!("{name}.{metric}"), value)));
    }
    Ok(measured)
}

fn flow_payload(flow: &Flow) -> u32 {
    match flow.test {
        Test::Cbr { payload, .. } => payload,
        _ => 0,
    }
}

fn testify(ends: &Ends, flow: &Flow, client: IperfClient) -> Result<Witnessed> {
    let limit = Duration::from_secs(client.seconds.into()) + SLACK;
    let server = ends
        .agent(&flow.to)?
        .start(Task::IperfServer(IperfServer { port: WITNESS_PORT }))?;
    let mut client = ends.agent(&flow.from)?.start(Task::IperfClient(client))?;
    client.go()?;
    let Outcome::Witnessed(witnessed) = client.wait(limit)? else {
        bail!("{} answers something else", flow.from);
    };
    server.stop()?;
    Ok(witnessed)
}

/// The fourth byte of the source address of frames that are replayed, which no device has.
const REPLAYED: u8 = 4;

/// Frames of a capture file from a host to another, which captures them. Metrics, after `name.`, as
/// [`crate::scenario::Observe::Replay`] lists them.
///
/// # Errors
/// An agent that is gone; a file that is not there or no capture; no permission for raw sockets.
pub fn replay(
    ends: &Ends,
    name: &str,
    (from, to): (&str, &str),
    (file, speed): (&std::path::Path, f64),
    seconds: f64,
) -> Result<Measured> {
    let mut source = ends.mac(from)?;
    // None of the host's own frames, as its answers to ARP, is taken for one of the file.
    source[3] = REPLAYED;
    let task = Replay {
        file: std::path::absolute(file).with_context(|| file.display().to_string())?,
        device: crate::bed::DEVICE.to_owned(),
        source,
        destination: ends.mac(to)?,
        speed,
        seconds,
    };
    let mut sender = ends.agent(from)?.start(Task::Replay(task))?;
    let captures = capture_on(ends, &[to])?;
    sender.go()?;
    let limit = Duration::try_from_secs_f64(seconds).context("how long?")? + SLACK;
    let Outcome::Replayed(replayed) = sender.wait(limit)? else {
        bail!("{from} answers something else")
    };
    std::thread::sleep(SETTLE);
    let captured = stop_captures(captures)?;
    let mut measured = Measured::default();
    let source = wire::MacAddr(source).to_string();
    let ours = |captured: &Captured| {
        let ours = captured.seen.iter().filter(|seen| seen.kind.source == source);
        ours.fold((0, 0), |(frames, bytes), seen| {
            (frames + seen.frames, bytes + seen.bytes)
        })
    };
    let (received, bytes) = captured.get(to).map_or((0, 0), ours);
    let mut metric = |metric: &str, value: f64| measured.metrics.insert(format!("{name}.{metric}"), value);
    metric("sent", replayed.sent as f64);
    metric("received", received as f64);
    metric("refused", replayed.refused as f64);
    metric("cut", replayed.cut as f64);
    if replayed.sent > 0 {
        metric("share", received as f64 / replayed.sent as f64);
    }
    if replayed.seconds > 0.0 {
        metric("rate", received as f64 / replayed.seconds);
        metric("bits", bytes as f64 * 8.0 / replayed.seconds);
    }
    if let Some(late) = replayed
        .pacing
        .as_ref()
        .and_then(|pacing| super::measured::at(pacing, 0.99))
    {
        metric("late", late);
    }
    measured.accounts.push(Account {
        flow: name.to_owned(),
        sent: replayed.sent,
        received: received.min(replayed.sent),
        packets: 1,
    });
    for (host, captured) in &captured {
        remark_drops(&mut measured, name, host, captured);
    }
    Ok(measured)
}

/// Frames of the kinds that are meant.
fn frames(captured: &Captured, meant: impl Fn(&Seen) -> bool) -> u64 {
    captured
        .seen
        .iter()
        .filter(|seen| meant(seen))
        .map(|seen| seen.frames)
        .sum()
}

fn capture_on(ends: &Ends, hosts: &[&str]) -> Result<Vec<(String, Remote)>> {
    let start = |host: &&str| {
        let capture = ends.agent(host)?.start(Task::Capture(Capture::default()))?;
        Ok(((*host).to_owned(), capture))
    };
    hosts.iter().map(start).collect()
}

fn stop_captures(captures: Vec<(String, Remote)>) -> Result<BTreeMap<String, Captured>> {
    let (hosts, captures): (Vec<String>, Vec<Remote>) = captures.into_iter().unzip();
    let captured = |(host, outcome)| match outcome {
        Outcome::Captured(captured) => Ok((host, captured)),
        _ => bail!("{host} answers something else"),
    };
    hosts
        .into_iter()
        .zip(Remote::stop_all(captures)?)
        .map(captured)
        .collect()
}

fn remark_drops(measured: &mut Measured, name: &str, host: &str, captured: &Captured) {
    if captured.dropped > 0 {
        measured.remarks.push(format!(
            "{name}: the capture on {host} has missed {} frames",
            captured.dropped
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_in_the_vlan_of_its_port_or_those_of_its_addresses() {
        let topology: Topology = toml::from_str(
            "host = [
                { name = 'a', address = [{ ip = '10.0.0.1', prefix = 24 }] },
                { name = 'b', address = [{ ip = '10.0.0.2', prefix = 24 }] },
                { name = 'r', address = [{ ip = '10.0.0.3', prefix = 24, vlan = 10 }, { ip = '10.0.1.3', prefix = 24, vlan = 20 }] },
            ]
            bridge = [{ name = 's' }]
            link = [
                { a = { at = 'a' }, b = { at = 's', port = { access = 10 } } },
                { a = { at = 's' }, b = { at = 'b' } },
                { a = { at = 's', port = { trunk = [10, 20] } }, b = { at = 'r' } },
            ]",
        )
        .unwrap();
        let of = |host| segments(&topology, host);
        assert_eq!(
            (of("a"), of("b"), of("r"), of("x")),
            (vec![10], vec![0], vec![10, 20], vec![])
        );
    }
}
