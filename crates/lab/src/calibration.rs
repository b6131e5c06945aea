//! Checks the instruments: their measurements of cables whose rate and delay are
//! known.
//!
//! All processors are [kept awake](crate::awake).
//!
//! - The prober's floor: a round trip within a host. All results include it.
//! - A bare cable: the addition of two hosts and a veth pair, and its spread.
//!
//!   Both by the instrument that runs use: it polls for an answer, and the mean counts.
//! - Cables with a rate, kept by the kernel's token bucket: received payload of datagrams sent a
//!   fifth faster than the cable's rate. A frame with P bytes of UDP payload occupies the cable for
//!   P + 8 (UDP) + 20 (IPv4) + 14 (Ethernet) + 24 (preamble, FCS, gap) bytes, so a rate R carries
//!   R·P/(P+66) bit/s of payload. The same of TCP, whose full segments have 1448 bytes of payload
//!   and 52 of headers of IPv4 and TCP.
//! - Cables with a delay, kept by the lab's program: a round trip takes twice the delay longer than
//!   on a bare cable. On one processor, where programs that poll would stop each other, so that the
//!   prober sleeps and a quartile counts; and, only to be reported, on all, by the instrument that
//!   runs use.
//! - Serial cables: besides, a frame takes its bytes' time in each direction, so a round trip takes
//!   2·8·(P+66)/R longer.

use crate::awake::Awake;
use crate::bed::Bed;
use crate::results::Distribution;
use crate::topology::{OVERHEAD, Topology};
use crate::traffic::protocol::{Outcome, Task};
use crate::traffic::streams::{Kind, StreamClient, StreamServer};
use crate::traffic::udp::{Echo, Probe, Probed, Receive, ReceiveFlow, Send, SendFlow};
use crate::traffic::{Agent, LOOKS};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What.
    pub what: String,
    /// Of all numbers.
    pub unit: String,
    /// The known value; none: it is only reported.
    pub known: Option<f64>,
    /// The measured value.
    pub measured: f64,
    /// By how much it may differ; for a known value of 0, how large it may be.
    pub tolerance: Option<f64>,
}

impl Check {
    /// Whether it is as it should be; none if it is only reported.
    pub fn passed(&self) -> Option<bool> {
        let (known, tolerance) = self.known.zip(self.tolerance)?;
        Some((self.measured - known).abs() <= tolerance)
    }
}

/// How precise throughput has to be.
const RATE_TOLERANCE: f64 = 0.01;

/// How precise a delay has to be, µs.
const DELAY_TOLERANCE: f64 = 5.0;

/// How steady an idle path has to be, µs.
const JITTER_TOLERANCE: f64 = 20.0;

/// How often a cable and a bare one are measured in turns.
const TURNS: usize = 11;

/// The share of a turn's round trips that took no longer than the one that counts.
const UNDISTURBED: f64 = 0.25;

/// How often a throughput is measured; the fastest counts, since other work can only slow a sender.
const STREAMS: usize = 3;

/// Bytes of headers before a UDP payload: Ethernet, IPv4, UDP.
const HEADERS: u64 = 14 + 20 + 8;

/// Bytes of payload of a full TCP segment at an MTU of 1500, and of its headers: Ethernet, IPv4,
/// TCP with timestamps.
const SEGMENT: u64 = 1500 - 20 - 32;
const SEGMENT_HEADERS: u64 = 14 + 20 + 32;

/// The hosts' addresses.
const ONE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// Measures all; each measurement takes about `seconds`. `progress` gets the name of each next
/// step.
///
/// # Errors
/// No root, a tool that is missing, an agent that has gone. A failed check is no error.
pub fn measure(seconds: f64, progress: &mut dyn FnMut(&str)) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let awake = Awake::begin()?;
    progress("a bare cable");
    bare(&pair("")?, seconds, &mut checks)?;
    for rate in [10_000_000, 100_000_000, 1_000_000_000] {
        for payload in [100, 1472] {
            // A gigabit of small datagrams is more than a host sends.
            if rate / 8 / (payload + HEADERS + OVERHEAD) > 100_000 {
                continue;
            }
            let what = format!("{} Mbit/s, payload {payload} B", rate / 1_000_000);
            progress(&what);
            checks.push(throughput(&what, &format!("rate = {rate}"), rate, payload, seconds)?);
        }
    }
    for rate in [10_000_000, 100_000_000] {
        progress(&format!("{} Mbit/s, TCP", rate / 1_000_000));
        checks.push(stream(rate, seconds)?);
    }
    for delay in [100, 500, 1000] {
        let what = format!("delay {delay} µs each way");
        progress(&what);
        let cable = format!("delay = {delay}");
        let known = 2 * delay * 1000;
        checks.push(on_one_processor(|| {
            delay_check(&what, &cable, 100, known, seconds, Instrument::Sleeping)
        })?);
        if delay == 100 {
            let what = format!("{what}, on all processors, as runs measure it");
            progress(&what);
            checks.push(Check {
                known: None,
                tolerance: None,
                ..delay_check(&what, &cable, 100, known, seconds, Instrument::OfRuns)?
            });
        }
    }
    for payload in [100, 1440] {
        let what = format!("serial 10 Mbit/s, payload {payload} B");
        progress(&what);
        let cable = "rate = 10_000_000, serial = true";
        // A bit takes 100 ns.
        let known = 2 * 8 * (u64::from(payload) + HEADERS + OVERHEAD) * 100;
        checks.push(on_one_processor(|| {
            delay_check(&what, cable, payload, known, seconds, Instrument::Sleeping)
        })?);
        checks.push(throughput(&what, cable, 10_000_000, payload.into(), seconds)?);
    }
    drop(awake);
    Ok(checks)
}

/// Checks as a table for a terminal.
pub fn table(checks: &[Check]) -> String {
    let mut text = format!(
        "{:48} {:>14} {:>14} {:>10}  {:6}\n",
        "", "known", "measured", "tolerance", ""
    );
    for check in checks {
        let number = |number: Option<f64>| number.map_or(String::new(), |n| format!("{n:.2}"));
        let verdict = match check.passed() {
            None => "",
            Some(true) => "pass",
            Some(false) => "FAIL",
        };
        let what = format!("{}, {}", check.what, check.unit);
        let (known, measured) = (number(check.known), number(Some(check.measured)));
        let tolerance = number(check.tolerance);
        // A terminal that is narrow breaks lines; nothing is cut.
        let _ = writeln!(
            text,
            "{what:48} {known:>14} {measured:>14} {tolerance:>10}  {verdict:6}"
        );
    }
    text
}

/// Of a testbed of two hosts and a bare cable.
fn bare(bed: &Bed, seconds: f64, checks: &mut Vec<Check>) -> Result<()> {
    let agent = bed.host("one")?.agent()?;
    let instrument = Instrument::OfRuns;
    let own = probe(&agent, &agent, Ipv4Addr::LOCALHOST, 100, 0, seconds, instrument)?;
    let reported = |what: &str, measured| Check {
        what: what.to_owned(),
        unit: "µs".to_owned(),
        known: None,
        measured,
        tolerance: None,
    };
    checks.push(reported(
        "prober's floor: round trip within a host, mean",
        instrument.value(&own)?,
    ));
    drop(agent);
    let across = probe_pair(bed, 100, 0, seconds, instrument)?;
    checks.push(reported("bare cable: round trip, mean", instrument.value(&across)?));
    checks.push(reported("bare cable: round trip, median", median(&across.rtt)?));
    checks.push(reported(
        "bare cable: round trip, 99 % below",
        quantile(&across.rtt, 0.99)?,
    ));
    checks.push(Check {
        known: Some(0.0),
        tolerance: Some(JITTER_TOLERANCE),
        ..reported("bare cable: jitter, median", median(&across.jitter)?)
    });
    Ok(())
}

/// A round trip takes `known` nanoseconds longer across a cable than across a bare one. There the
/// echo server holds each datagram equally long by its own clock, so that all programs sleep
/// equally long in both: after a longer sleep a program wakes later, by more than the tolerance.
/// Both are measured in turns, and the best turn of each counts: other work on the machine can only
/// lengthen a round trip, and changes from turn to turn.
fn delay_check(
    what: &str,
    cable: &str,
    payload: u32,
    known: u64,
    seconds: f64,
    instrument: Instrument,
) -> Result<Check> {
    let (cable, reference) = (pair(cable)?, pair("")?);
    let (mut across, mut held) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..TURNS {
        let of = |bed, hold| instrument.value(&probe_pair(bed, payload, hold, seconds / TURNS as f64, instrument)?);
        across = across.min(of(&cable, 0)?);
        held = held.min(of(&reference, known)?);
    }
    Ok(Check {
        what: format!("{what}: round trip beyond the bare cable's"),
        unit: "µs".to_owned(),
        known: Some(known as f64 / 1000.0),
        measured: across - held + known as f64 / 1000.0,
        tolerance: Some(DELAY_TOLERANCE),
    })
}

/// Does it on one processor, with all programs that it starts: to wake a program on another one
/// takes from one to tens of microseconds (in a virtual machine the more), which a cable with a
/// program between the hosts has to do more often than a bare one.
fn on_one_processor<T: std::marker::Send>(what: impl FnOnce() -> Result<T> + std::marker::Send) -> Result<T> {
    let cpu = sys::thread::allowed_cpus()?.pop().context("no processor")?;
    let pinned = || {
        sys::thread::pin_to_cpu(cpu)?;
        what()
    };
    let done = std::thread::scope(|scope| scope.spawn(pinned).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// TCP across a cable with the kernel's token bucket, from the first byte to the last that is
/// acknowledged: the fastest of several times.
fn stream(rate: u64, seconds: f64) -> Result<Check> {
    let mut measured = 0.0f64;
    for _ in 0..STREAMS {
        measured = measured.max(one_stream(rate, seconds)?);
    }
    let known = rate as f64 * SEGMENT as f64 / (SEGMENT + SEGMENT_HEADERS + OVERHEAD) as f64;
    Ok(Check {
        what: format!("{} Mbit/s, TCP: payload that arrives", rate / 1_000_000),
        unit: "Mbit/s".to_owned(),
        known: Some(known / 1e6),
        measured: measured / 1e6,
        tolerance: Some(known * RATE_TOLERANCE / 1e6),
    })
}

/// Payload of one stream, in bit/s.
fn one_stream(rate: u64, seconds: f64) -> Result<f64> {
    let bed = pair(&format!("rate = {rate}"))?;
    let (from, to) = (bed.host("one")?.agent()?, bed.host("other")?.agent()?);
    let server = to.start(Task::StreamServer(StreamServer::default()))?;
    let port = *server.ports().first().context("the server has no port")?;
    let mut client = from.start(Task::StreamClient(StreamClient {
        to: SocketAddrV4::new(OTHER, port),
        kind: Kind::TcpStream,
        streams: 1,
        message: None,
        buffer: None,
        congestion: None,
        seconds,
        warmup: 0.2,
        patience: 10.0,
    }))?;
    client.go()?;
    let Outcome::Streamed(streamed) = client.wait(Duration::from_secs_f64(seconds + 60.0))? else {
        bail!("the client has measured something else");
    };
    let stream = streamed.streams.first().context("the client has measured no stream")?;
    if let Some(reason) = &stream.lost {
        bail!("a stream was lost: {reason}");
    }
    Ok(stream.received as f64 * 8.0 / stream.seconds)
}

fn throughput(what: &str, cable: &str, rate: u64, payload: u64, seconds: f64) -> Result<Check> {
    let bed = pair(cable)?;
    let (from, to) = (bed.host("one")?.agent()?, bed.host("other")?.agent()?);
    let known = rate as f64 * payload as f64 / (payload + HEADERS + OVERHEAD) as f64;
    let (mut measured, mut filled) = (0.0f64, false);
    for _ in 0..STREAMS {
        let (offered, arrived) = datagrams(&from, &to, payload, (known * 1.2) as u64, seconds / STREAMS as f64)?;
        measured = measured.max(arrived);
        // If the sender was slower than the cable, the check says nothing about the cable.
        filled |= offered > known * 1.1;
    }
    let remark = if filled { "" } else { " (all that was sent)" };
    Ok(Check {
        what: format!("{what}: payload that arrives{remark}"),
        unit: "Mbit/s".to_owned(),
        known: filled.then_some(known / 1e6),
        measured: measured / 1e6,
        tolerance: filled.then_some(known * RATE_TOLERANCE / 1e6),
    })
}

/// Payload that is sent as datagrams at a rate, and that arrives, in bit/s.
fn datagrams(from: &Agent, to: &Agent, payload: u64, rate: u64, seconds: f64) -> Result<(f64, f64)> {
    let receiver = to.start(Task::Receive(Receive {
        flows: vec![ReceiveFlow {
            flow: 1,
            ports: vec![0],
            buffer: Some(8 << 20),
        }],
        quiet: 200,
    }))?;
    let mut sender = from.start(Task::Send(Send {
        flows: vec![SendFlow {
            flow: 1,
            to: OTHER,
            ports: receiver.ports().to_vec(),
            port: 0,
            payload: payload as u32,
            rate,
            new_flows: false,
            first_pair: 0,
            imix: false,
        }],
        warmup: 0.5,
        seconds,
        knock: false,
        spin: 0,
        pinned: false,
    }))?;
    sender.go()?;
    let Outcome::Sent(sent) = sender.wait(Duration::from_secs_f64(seconds + 30.0))? else {
        bail!("the sender has measured something else");
    };
    let Outcome::Received(received) = receiver.stop()? else {
        bail!("the receiver has measured something else");
    };
    let flow = received.flows.first().context("the receiver has counted no flow")?;
    // The time is from the first to the last: one less arrived in it.
    let bits = 8.0 * payload as f64 * flow.received.saturating_sub(1) as f64;
    let sent = sent.flows.first().context("the sender has sent no flow")?;
    let offered = 8.0 * payload as f64 * sent.sent as f64 / sent.seconds;
    Ok((offered, bits / flow.seconds))
}

/// Two hosts, and a cable with these properties.
fn pair(cable: &str) -> Result<Bed> {
    let topology = format!(
        "host = [{{ name = 'one', address = [{{ ip = '{ONE}', prefix = 24 }}] }},\n\
         {{ name = 'other', address = [{{ ip = '{OTHER}', prefix = 24 }}] }}]\n\
         link = [{{ a = {{ at = 'one' }}, b = {{ at = 'other' }}{}{cable} }}]",
        if cable.is_empty() { "" } else { ", " }
    );
    let topology: Topology = toml::from_str(&topology).context("the testbed of two hosts")?;
    Bed::build(&topology)
}

/// How a prober waits, and which of its numbers counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instrument {
    /// As in runs: it polls for the answer, and the mean counts.
    OfRuns,
    /// It sleeps until the answer comes, and the lower quartile counts.
    Sleeping,
}

impl Instrument {
    fn spin(self) -> u64 {
        match self {
            Instrument::OfRuns => LOOKS,
            Instrument::Sleeping => 0,
        }
    }

    fn value(self, probed: &Probed) -> Result<f64> {
        match self {
            Instrument::OfRuns => probed.mean.context("nothing was answered"),
            Instrument::Sleeping => quantile(&probed.rtt, UNDISTURBED),
        }
    }
}

fn probe_pair(bed: &Bed, payload: u32, hold: u64, seconds: f64, instrument: Instrument) -> Result<Probed> {
    probe(
        &bed.host("one")?.agent()?,
        &bed.host("other")?.agent()?,
        OTHER,
        payload,
        hold,
        seconds,
        instrument,
    )
}

/// Round trips to a server that keeps each datagram for `hold` nanoseconds.
fn probe(
    from: &Agent,
    to: &Agent,
    address: Ipv4Addr,
    payload: u32,
    hold: u64,
    seconds: f64,
    instrument: Instrument,
) -> Result<Probed> {
    let echo = to.start(Task::Echo(Echo {
        hold,
        ..Echo::default()
    }))?;
    let port = *echo.ports().first().context("the echo server has no port")?;
    let mut prober = from.start(Task::Probe(Probe {
        to: (address, port).into(),
        port: 0,
        payload,
        exchanges: None,
        interval: 0,
        warmup: 0.2,
        seconds,
        timeout: 1_000_000,
        spin: instrument.spin(),
        fresh: None,
    }))?;
    prober.go()?;
    match prober.wait(Duration::from_secs_f64(seconds + 30.0))? {
        Outcome::Probed(probed) => Ok(probed),
        _ => bail!("the prober has measured something else"),
    }
}

fn median(distribution: &Option<Distribution>) -> Result<f64> {
    quantile(distribution, 0.5)
}

fn quantile(distribution: &Option<Distribution>, share: f64) -> Result<f64> {
    let quantiles = &distribution.as_ref().context("nothing was answered")?.quantiles;
    let least = quantiles.iter().find(|(of, _)| *of >= share);
    Ok(least.context("nothing was answered")?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(known: Option<f64>, measured: f64) -> Check {
        Check {
            what: "x".to_owned(),
            unit: "µs".to_owned(),
            known,
            measured,
            tolerance: Some(5.0),
        }
    }

    #[test]
    fn what_is_known_passes_within_its_tolerance_and_fails_beyond() {
        assert_eq!(check(Some(200.0), 205.0).passed(), Some(true));
        assert_eq!(check(Some(200.0), 194.9).passed(), Some(false));
        assert_eq!(check(None, 1.0).passed(), None);
        let text = table(&[check(Some(200.0), 194.9), check(Some(200.0), 200.0), check(None, 3.0)]);
        assert_eq!(
            (text.matches("FAIL").count(), text.matches("pass").count()),
            (1, 1),
            "{text}"
        );
    }
}
