//! Counts the datagrams of flows.

use super::header::Header;
use super::socket::{bind, drops, set_buffers};
use super::tracker::Tracker;
use crate::results::Distribution;
use crate::traffic::clock::{MILLI, SECOND, be_punctual, now, seconds};
use crate::traffic::protocol::Outcome;
use crate::traffic::task::{Control, LOOK};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::net::UdpSocket;

/// Counts flows of datagrams, each on a socket of its own, until it is stopped and no more arrive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receive {
    /// The flows.
    pub flows: Vec<ReceiveFlow>,
    /// After a stop it goes on until this many milliseconds without a datagram, at most 3 seconds,
    /// so that datagrams in flight are not lost.
    #[serde(default = "quiet")]
    pub quiet: u64,
}

fn quiet() -> u64 {
    200
}

/// A flow to receive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveFlow {
    /// Its number in the run.
    pub flow: u16,
    /// The ports it goes to, each 0 for any; at least one.
    pub ports: Vec<u16>,
    /// The socket's buffer in bytes; none: the system's.
    pub buffer: Option<u32>,
}

/// The results of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Received {
    /// By flow, in the order of the request.
    pub flows: Vec<ReceivedFlow>,
}

/// Counters of a received flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceivedFlow {
    /// Its number in the run.
    pub flow: u16,
    /// Different datagrams that count.
    pub received: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Seconds from the first to the last of them.
    pub seconds: f64,
    /// The longest time between two of them, ms; none before the second.
    pub silence: Option<f64>,
    /// Datagrams of the warm-up.
    pub warmup: u64,
    /// Duplicate datagrams.
    pub duplicates: u64,
    /// Reordered datagrams.
    pub reordered: u64,
    /// Times that numbers were left out.
    pub gaps: u64,
    /// The most numbers left out at once.
    pub longest_gap: u64,
    /// Numbers below the highest that never arrived.
    pub missing: u64,
    /// Datagrams at its ports that are not of this flow.
    pub foreign: u64,
    /// Datagrams of all phases that the kernel dropped because the sockets' buffers were full; none
    /// if unknown.
    pub dropped: Option<u64>,
    /// Jitter by RFC 3550 section 6.4.1, the mean of the estimate over the arrivals, µs; none
    /// before the second datagram.
    pub jitter: Option<f64>,
    /// The estimate after the last datagram, µs.
    pub jitter_last: Option<f64>,
    /// By how much the spacing of two datagrams changed on the way (|D| of the RFC), µs.
    pub jitters: Option<Distribution>,
}

impl Receive {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        let mut counters = Vec::new();
        let mut sockets = Vec::new();
        for (index, flow) in self.flows.iter().enumerate() {
            if flow.ports.is_empty() {
                bail!("flow {}: no port", flow.flow);
            }
            for &port in &flow.ports {
                let socket = bind(port)?;
                set_buffers(&socket, None, flow.buffer)?;
                socket.set_nonblocking(true)?;
                sockets.push((index, socket.local_addr()?.port(), socket));
            }
            counters.push(Counter {
                flow: flow.flow,
                tracker: Tracker::new(),
                warmup: 0,
                foreign: 0,
            });
        }
        control.ready(sockets.iter().map(|&(_, port, _)| port).collect());
        self.count(control, &sockets, &mut counters)?;
        let flows = counters.iter().enumerate().map(|(index, counter)| {
            let of_flow = sockets.iter().filter(|&&(i, ..)| i == index);
            counter.outcome(of_flow.map(|&(_, port, _)| drops(port)).sum())
        });
        Ok(Outcome::Received(Received { flows: flows.collect() }))
    }

    fn count(&self, control: &Control, sockets: &[(usize, u16, UdpSocket)], counters: &mut [Counter]) -> Result<()> {
        be_punctual();
        let mut buffer = vec![0; super::MOST_PAYLOAD as usize];
        let mut polled: Vec<_> = sockets
            .iter()
            .map(|(.., socket)| PollFd::new(socket, PollFlags::IN))
            .collect();
        let (mut stopped, mut last) = (None, now());
        loop {
            let wait = if stopped.is_some() { 10 } else { LOOK.as_millis() as i64 };
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: wait * MILLI as i64,
            };
            match poll(&mut polled, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("poll"),
            }
            for (polled, (index, _, socket)) in polled.iter().zip(sockets) {
                if polled.revents().is_empty() {
                    continue;
                }
                // A limited number, so that other tasks are not late.
                for _ in 0..64 {
                    let Ok(len) = socket.recv(&mut buffer) else { break };
                    last = now();
                    counters[*index].arrived(&buffer[..len], last);
                }
            }
            if stopped.is_none() && control.stopped() {
                stopped = Some(now());
            }
            if let Some(at) = stopped {
                let now = now();
                if now >= at.max(last) + self.quiet * MILLI || now >= at + 3 * SECOND {
                    return Ok(());
                }
            }
        }
    }
}

struct Counter {
    flow: u16,
    tracker: Tracker,
    warmup: u64,
    foreign: u64,
}

impl Counter {
    fn arrived(&mut self, payload: &[u8], at: u64) {
        match Header::read(payload) {
            Some(header) if header.flow != self.flow => self.foreign += 1,
            Some(header) if header.warmup => self.warmup += 1,
            Some(header) => self.tracker.arrived(header.sequence, header.sent, at, payload.len()),
            None => self.foreign += 1,
        }
    }

    fn outcome(&self, dropped: Option<u64>) -> ReceivedFlow {
        let tracker = &self.tracker;
        ReceivedFlow {
            flow: self.flow,
            received: tracker.received,
            bytes: tracker.bytes,
            seconds: tracker.span.map_or(0.0, |(first, last)| seconds(last - first)),
            silence: (tracker.received > 1).then(|| tracker.silence as f64 / 1e6),
            warmup: self.warmup,
            duplicates: tracker.duplicates,
            reordered: tracker.reordered,
            gaps: tracker.gaps,
            longest_gap: tracker.longest_gap,
            missing: tracker.missing(),
            foreign: self.foreign,
            dropped,
            jitter: tracker.jitter.mean(),
            jitter_last: tracker.jitter.last(),
            jitters: tracker.jitter.changes.distribution(),
        }
    }
}
