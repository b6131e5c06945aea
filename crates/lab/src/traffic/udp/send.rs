//! Flows of datagrams by a fixed schedule: a late datagram is sent at once and its lateness
//! reported.

use super::dither::Dither;
use super::header::{self, Header};
use super::schedule::Schedule;
use super::socket::{bind, set_buffers};
use crate::results::Distribution;
use crate::traffic::clock::{MICRO, MILLI, SECOND, be_punctual, micros, nanos, now, seconds, wait_until};
use crate::traffic::histogram::Durations;
use crate::traffic::protocol::Outcome;
use crate::traffic::task::{Control, LOOK};
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

/// Sends flows of datagrams, all from one thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    /// The flows.
    pub flows: Vec<SendFlow>,
    /// Seconds of datagrams that do not count, before.
    #[serde(default)]
    pub warmup: f64,
    /// Seconds of datagrams that count.
    pub seconds: f64,
    /// Before all, a datagram of each flow that does not count, and a wait until addresses on the
    /// way are known: while they are not, a stack keeps some packets and drops the others.
    #[serde(default)]
    pub knock: bool,
    /// How long before a datagram's time the sender polls, in µs. Without, a datagram is late by a
    /// wake-up.
    #[serde(default)]
    pub spin: u64,
    /// Whether the thread stays on the first processor.
    #[serde(default)]
    pub pinned: bool,
}

/// A flow to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendFlow {
    /// Its number in the run.
    pub flow: u16,
    /// Where it goes; also a network's broadcast address.
    pub to: Ipv4Addr,
    /// To which ports; more than one only for new flows.
    pub ports: Vec<u16>,
    /// The port it comes from; 0: any. No meaning for new flows.
    #[serde(default)]
    pub port: u16,
    /// UDP payload in bytes, 16 to 65507; of a mix its mean, [`IMIX_MEAN`].
    pub payload: u32,
    /// In bit/s of UDP payload; 0: as fast as it goes.
    pub rate: u64,
    /// Each datagram has a new pair of source and destination port, until all pairs are used; then
    /// they begin again. Needs `CAP_NET_RAW`.
    #[serde(default)]
    pub new_flows: bool,
    /// The first pair of a new flow: how many were used before.
    #[serde(default)]
    pub first_pair: u64,
    /// Datagrams have lengths in turn, those of a simple mix of the internet's.
    #[serde(default)]
    pub imix: bool,
}

/// Payloads of a simple mix (IMIX), in the order that they are sent: of twelve seven are short,
/// four medium, one is long. The shortest is as short as a payload may be.
const IMIX: [u32; 12] = [20, 548, 20, 20, 548, 20, 1472, 20, 548, 20, 20, 548];

/// The longest of them.
const IMIX_LONGEST: usize = 1472;

/// Their mean.
pub(crate) const IMIX_MEAN: u32 = 317;

/// The results of a sender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// By flow, in the order of the request.
    pub flows: Vec<SentFlow>,
}

/// Counters of a sent flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentFlow {
    /// Its number in the run.
    pub flow: u16,
    /// Datagrams that the kernel took, not counting the warm-up's.
    pub sent: u64,
    /// Those of the warm-up.
    pub warmup: u64,
    /// Datagrams that were due and not sent in time, since this program could not keep up.
    pub behind: u64,
    /// Datagrams that the kernel refused, warm-up's included, since the socket's buffer was full.
    pub full: u64,
    /// Datagrams that the kernel refused for other reasons, warm-up's included.
    pub errors: u64,
    /// The first such reason.
    pub error: Option<String>,
    /// Seconds that counted.
    pub seconds: f64,
    /// How late datagrams were sent, in µs; none without a rate.
    pub pacing: Option<Distribution>,
    /// Mean of that.
    pub late: Option<f64>,
    /// Pairs of ports that new flows used.
    pub pairs: u64,
    /// All pairs of ports were used within [`FORGOTTEN`]: a switch may have known the next ones.
    pub ports_used_up: bool,
}

/// So long after the end a datagram that was due before it is still sent, in nanoseconds.
const GRACE: u64 = 10 * MILLI;

/// For how long addresses are waited for, in nanoseconds.
const KNOCK: u64 = SECOND;

/// Time for routers on the path to resolve neighbours, in nanoseconds.
const BEHIND: u64 = 20 * MILLI;

/// Bytes that may be on their way to the end of the first queue, by the kernel's count.
const ROOM: u32 = 16 << 20;

/// Bytes of UDP's header.
const UDP_HEADER: usize = 8;

/// The ports that new flows come from.
const SOURCES: std::ops::RangeInclusive<u16> = 1024..=65_535;

/// How many these are.
const SOURCES_LEN: u64 = *SOURCES.end() as u64 - *SOURCES.start() as u64 + 1;

/// A switch has forgotten a flow of which nothing came for so long, in nanoseconds: twice the time
/// that Open vSwitch keeps idle flows by default (`max-idle`).
const FORGOTTEN: u64 = 20 * SECOND;

impl Send {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        let senders = self.flows.iter().enumerate();
        let mut senders = senders
            .map(|(i, flow)| Sender::new(flow, i, self.flows.len()))
            .collect::<Result<Vec<_>>>()?;
        control.ready(senders.iter().map(|sender| sender.source).collect());
        if control.await_go() {
            be_punctual();
            if self.pinned {
                let first = sys::thread::allowed_cpus()?.into_iter().next();
                sys::thread::pin_to_cpu(first.context("no processor is allowed")?)?;
            }
            if self.knock {
                knock(control, &mut senders);
            }
            self.phase(true, nanos(self.warmup), control, &mut senders);
            let length = nanos(self.seconds);
            let took = self.phase(false, length, control, &mut senders);
            for sender in &mut senders {
                // At a constant rate these are whole intervals, since the last one may begin just
                // before the end.
                let whole = sender.schedule.due(sender.due_in(length));
                let counts = if sender.flow.rate > 0 && took >= length {
                    whole
                } else {
                    took
                };
                sender.sent.seconds = seconds(counts);
            }
        }
        let flows = senders.into_iter().map(Sender::outcome).collect();
        Ok(Outcome::Sent(Sent { flows }))
    }

    /// Sends the datagrams due in this many nanoseconds from now. Returns how many nanoseconds
    /// passed before a stop.
    fn phase(&self, warmup: bool, length: u64, control: &Control, senders: &mut [Sender<'_>]) -> u64 {
        let begin = now();
        for sender in &mut *senders {
            sender.begin(begin, length, warmup);
        }
        let look = LOOK.as_nanos() as u64;
        let mut heard = begin;
        while let Some(next) = senders
            .iter_mut()
            .filter(|sender| sender.left > 0)
            .min_by_key(|sender| sender.due)
        {
            let due = next.due;
            let mut at = now();
            if at > heard + look {
                heard = at;
                if control.stopped() {
                    return (at - begin).min(length);
                }
            }
            if due > at {
                // At most so long at a time, to hear when it is to stop.
                wait_until(due.min(at + look), self.spin * MICRO);
                at = now();
                if at < due {
                    continue;
                }
            }
            if at > begin + length + if next.flow.rate > 0 { GRACE } else { 0 } {
                break;
            }
            next.send(warmup, at);
        }
        for sender in &mut *senders {
            if sender.flow.rate > 0 && !warmup {
                sender.sent.behind += sender.left;
            }
        }
        if !control.stopped() {
            wait_until(begin + length, 0);
        }
        length
    }
}

/// Sends a datagram of each flow, and waits until the next stops on their ways are known, and a
/// little for those behind them.
fn knock(control: &Control, senders: &mut [Sender<'_>]) {
    let begin = now();
    for sender in &mut *senders {
        sender.begin(begin, 0, true);
        (sender.left, sender.due) = (1, begin);
        sender.send(true, begin);
    }
    knock_wait(control);
}

/// Waits until the next stops of what was sent are known, and a little for those behind them.
pub(super) fn knock_wait(control: &Control) {
    let begin = now();
    while now() < begin + KNOCK && unknown_addresses() && !control.stopped() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    wait_until(now() + BEHIND, 0);
}

/// Whether packets wait for ARP, from `/proc/net/arp`: an incomplete entry has no flags.
fn unknown_addresses() -> bool {
    let table = std::fs::read_to_string("/proc/thread-self/net/arp").unwrap_or_default();
    let flags = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(2));
    flags.into_iter().any(|flags| flags == "0x0")
}

struct Sender<'a> {
    flow: &'a SendFlow,
    socket: OwnedFd,
    /// The port it comes from; 0 for new flows.
    source: u16,
    schedule: Schedule,
    dither: Dither,
    /// Nanoseconds after the beginning of a phase that its first is due: flows of one sender do not
    /// begin all at once.
    offset: u64,
    begin: u64,
    end: u64,
    /// The next one's number, and when it is due.
    number: u64,
    due: u64,
    /// How many are left to send.
    left: u64,
    /// The whole datagram; with its UDP header for new flows.
    datagram: Vec<u8>,
    /// Of new flows.
    pairs: Pairs,
    pacing: Durations,
    sent: SentFlow,
}

impl Sender<'_> {
    fn new(flow: &SendFlow, index: usize, of: usize) -> Result<Sender<'_>> {
        if !(header::LEN as u32..=super::MOST_PAYLOAD).contains(&flow.payload) {
            bail!(
                "flow {}: payload {}: {} to {} bytes",
                flow.flow,
                flow.payload,
                header::LEN,
                super::MOST_PAYLOAD
            );
        }
        if flow.ports.is_empty() || flow.ports.len() > 1 && !flow.new_flows {
            bail!("flow {}: {} ports to send to", flow.flow, flow.ports.len());
        }
        let (socket, source, before) = if flow.new_flows {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::UDP));
            (socket.context("raw socket (UDP)")?, 0, UDP_HEADER)
        } else {
            let socket = bind(flow.port)?;
            socket.set_nonblocking(true)?;
            socket.set_broadcast(true).context("SO_BROADCAST")?;
            let source = socket.local_addr()?.port();
            (OwnedFd::from(socket), source, 0)
        };
        // Packets queued on the path are charged to the socket: a buffer smaller than the queue
        // refuses datagrams that the queue would take. Without the permission the system's limit
        // applies, and refusals are counted.
        let _ = set_buffers(&socket, Some(ROOM), None);
        let schedule = Schedule::new(flow.payload, flow.rate);
        Ok(Sender {
            socket,
            source,
            schedule,
            offset: u64::try_from(u128::from(schedule.due(1)) * index as u128 / of as u128).unwrap_or(u64::MAX),
            dither: Dither::new(schedule.due(1), u64::from(flow.flow)),
            begin: 0,
            end: 0,
            number: 0,
            due: 0,
            left: 0,
            datagram: vec![0; before + if flow.imix { IMIX_LONGEST } else { flow.payload as usize }],
            pairs: Pairs::new(flow.first_pair, SOURCES_LEN * flow.ports.len() as u64),
            pacing: Durations::new(),
            sent: SentFlow {
                flow: flow.flow,
                ..SentFlow::default()
            },
            flow,
        })
    }

    fn begin(&mut self, at: u64, length: u64, warmup: bool) {
        self.begin = at + self.offset;
        self.end = at.saturating_add(length);
        self.number = 0;
        self.due = self.next_due(at);
        self.left = match self.flow.rate {
            0 if length > 0 => u64::MAX,
            _ => self.due_in(length),
        };
        if !warmup {
            self.pacing = Durations::new();
        }
    }

    /// How many datagrams are due in a phase of this many nanoseconds.
    fn due_in(&self, length: u64) -> u64 {
        self.schedule.before(length.saturating_sub(self.offset))
    }

    fn send(&mut self, warmup: bool, at: u64) {
        let header = Header {
            warmup,
            flow: self.flow.flow,
            sequence: self.number as u32,
            sent: at,
        };
        let payload = if self.flow.new_flows { UDP_HEADER } else { 0 };
        header.write(&mut self.datagram[payload..]);
        let length = if self.flow.imix {
            IMIX[(self.number % IMIX.len() as u64) as usize] as usize
        } else {
            self.datagram.len()
        };
        let to = if self.flow.new_flows {
            self.write_pair()
        } else {
            self.flow.ports[0]
        };
        let to = SocketAddrV4::new(self.flow.to, to);
        let sent = sendto(&self.socket, &self.datagram[..length], SendFlags::DONTWAIT, &to);
        if sent.is_ok() && self.flow.new_flows {
            self.pairs.used(at);
        }
        match sent {
            Ok(_) if warmup => self.sent.warmup += 1,
            Ok(_) => self.sent.sent += 1,
            Err(Errno::AGAIN | Errno::NOBUFS) => self.sent.full += 1,
            Err(error) => {
                self.sent.errors += 1;
                self.sent.error.get_or_insert_with(|| format!("send to {to}: {error}"));
            }
        }
        if self.flow.rate > 0 {
            self.pacing.record(at - self.due);
        }
        self.number += 1;
        self.left -= 1;
        self.due = self.next_due(at);
    }

    /// The randomised time of the next datagram, but not after the end. Flows without a rate take
    /// turns.
    fn next_due(&mut self, now: u64) -> u64 {
        if self.flow.rate == 0 {
            return now;
        }
        let even = self.begin.saturating_add(self.schedule.due(self.number));
        even.saturating_add(self.dither.next()).min(self.end.max(even))
    }

    /// Writes the header of a new flow; returns the port that it goes to. Its checksum is left out,
    /// as RFC 768 allows.
    fn write_pair(&mut self) -> u16 {
        let pair = self.pairs.next;
        let to = self.flow.ports[(pair / SOURCES_LEN) as usize % self.flow.ports.len()];
        let from = SOURCES.start() + (pair % SOURCES_LEN) as u16;
        let len = self.datagram.len() as u16;
        self.datagram[..2].copy_from_slice(&from.to_be_bytes());
        self.datagram[2..4].copy_from_slice(&to.to_be_bytes());
        self.datagram[4..6].copy_from_slice(&len.to_be_bytes());
        to
    }

    fn outcome(self) -> SentFlow {
        SentFlow {
            pacing: self.pacing.distribution(),
            late: self.pacing.mean(),
            pairs: self.pairs.next - self.pairs.first,
            ports_used_up: self.pairs.used_up,
            ..self.sent
        }
    }
}

/// Pairs of ports of new flows, used one after the other.
#[derive(Debug)]
struct Pairs {
    first: u64,
    next: u64,
    /// How many there are before the first comes again.
    all: u64,
    /// When the first was used, the last time.
    begun: u64,
    /// All were used within [`FORGOTTEN`].
    used_up: bool,
}

impl Pairs {
    fn new(first: u64, all: u64) -> Pairs {
        Pairs {
            first,
            next: first,
            all,
            begun: 0,
            used_up: false,
        }
    }

    /// The next one was sent at this time, in nanoseconds.
    fn used(&mut self, at: u64) {
        let place = (self.next - self.first) % self.all;
        if place == 0 {
            self.used_up |= self.next > self.first && at < self.begun + FORGOTTEN;
            self.begun = at;
        }
        self.next += 1;
    }
}

impl SentFlow {
    /// The lateness that one datagram in a hundred exceeds, in µs.
    pub(crate) fn late_99(&self) -> Option<f64> {
        let quantiles = &self.pacing.as_ref()?.quantiles;
        quantiles
            .iter()
            .find(|(share, _)| *share >= 0.99)
            .map(|&(_, late)| late)
    }

    /// The time between two of its datagrams, in µs; none without a rate.
    pub fn interval(payload: u32, rate: u64) -> Option<f64> {
        (rate > 0).then(|| micros(Schedule::new(payload, rate).due(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_has_the_mean_that_its_schedule_goes_by() {
        let sum: u32 = IMIX.iter().sum();
        assert_eq!(sum / IMIX.len() as u32, IMIX_MEAN);
        assert_eq!(sum % IMIX.len() as u32, 0);
        assert_eq!(IMIX.iter().max().copied(), u32::try_from(IMIX_LONGEST).ok());
        assert!(IMIX.iter().all(|payload| *payload >= header::LEN as u32));
    }

    #[test]
    fn pairs_are_used_up_if_the_first_comes_again_before_switches_have_forgotten_it() {
        let used_up = |each: u64, times: u64| {
            let mut pairs = Pairs::new(7, 10);
            for number in 0..times {
                pairs.used(SECOND + number * each);
            }
            assert_eq!(pairs.next, 7 + times);
            pairs.used_up
        };
        assert!(!used_up(FORGOTTEN / 10 - 1, 10));
        assert!(used_up(FORGOTTEN / 10 - 1, 11));
        assert!(!used_up(FORGOTTEN / 10, 35));
    }
}
