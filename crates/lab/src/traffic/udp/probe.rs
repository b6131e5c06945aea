//! Round trips, one after the other.
//!
//! Both timestamps of an exchange are taken on this host, so clocks of two hosts are never
//! compared.
//!
//! With an interval, exchanges have scheduled start times. If a late answer delays the next
//! exchange, its latency counts from the scheduled time, not from the actual one; otherwise delays
//! would be missed (coordinated omission). If nothing was outstanding and only this program woke
//! late, latency counts from the send, and the lateness is reported as pacing error.

use super::socket::bind_at;
use crate::results::Distribution;
use crate::traffic::clock::{MICRO, be_punctual, nanos, now, wait_until};
use crate::traffic::histogram::Durations;
use crate::traffic::protocol::Outcome;
use crate::traffic::task::Control;
use anyhow::{Context, Result, bail};
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Bytes of payload that an exchange needs for its number.
pub(crate) const LEAST_PAYLOAD: u32 = 8;

/// Measures round trips to an echo server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The echo server.
    pub to: SocketAddr,
    /// The port to send from; 0: any.
    #[serde(default)]
    pub port: u16,
    /// UDP payload in bytes, 8 to 65507.
    pub payload: u32,
    /// How many; none: as many as the time allows.
    pub exchanges: Option<u32>,
    /// Between the beginnings of two exchanges, µs; 0: the next begins when the last has ended.
    #[serde(default)]
    pub interval: u64,
    /// Warm-up in seconds. It lasts until the first answer, at most for three timeouts.
    #[serde(default)]
    pub warmup: f64,
    /// The most seconds to measure.
    pub seconds: f64,
    /// After how long an exchange is lost, µs; 1 or more.
    #[serde(default = "timeout")]
    pub timeout: u64,
    /// For how long it looks for an answer without sleeping, and how long before its time an
    /// exchange has a processor for itself, in µs.
    #[serde(default)]
    pub spin: u64,
    /// Each exchange is a new flow, from a port of its own: the first of these. None: all come from
    /// `port`.
    #[serde(default)]
    pub fresh: Option<u16>,
}

/// The ports that exchanges of new flows come from: beside those that the system chooses.
const FRESH: std::ops::Range<u16> = 1024..20_000;

fn timeout() -> u64 {
    1_000_000
}

/// The results of a probe, times in µs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probed {
    /// Exchanges that were begun, not counting the warm-up's.
    pub sent: u64,
    /// That were answered in time.
    pub answered: u64,
    /// Datagrams of the warm-up and late answers (sent, received), which count nowhere else.
    pub uncounted: (u64, u64),
    /// Exchanges that could not be begun because of an error.
    pub errors: u64,
    /// The first such error.
    pub error: Option<String>,
    /// Mean round trip.
    pub mean: Option<f64>,
    /// Standard deviation of the round trips.
    pub deviation: Option<f64>,
    /// Round trips.
    pub rtt: Option<Distribution>,
    /// By how much a round trip differs from the one before.
    pub jitter: Option<Distribution>,
    /// Mean of that.
    pub jitter_mean: Option<f64>,
    /// How late exchanges began without anything being outstanding; none without an interval.
    pub pacing: Option<Distribution>,
    /// Seconds from the first counted exchange to the end of the last.
    pub seconds: f64,
}

impl Probe {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        if !(LEAST_PAYLOAD..=super::MOST_PAYLOAD).contains(&self.payload) {
            bail!(
                "payload {}: {LEAST_PAYLOAD} to {} bytes",
                self.payload,
                super::MOST_PAYLOAD
            );
        }
        if self.timeout == 0 {
            bail!("timeout 0: at least 1 µs");
        }
        let socket = self.connected(bind_at(self.own(self.port))?)?;
        control.ready(vec![socket.local_addr()?.port()]);
        if !control.await_go() {
            return Ok(Outcome::Probed(Probed::default()));
        }
        be_punctual();
        let mut prober = Prober {
            probe: self,
            socket,
            buffer: vec![0; self.payload as usize],
            number: 0,
            stale: 0,
        };
        let warm = prober.warm_up(control);
        let mut probed = prober.measure(control);
        probed.uncounted = (warm.0, warm.1 + prober.stale);
        Ok(Outcome::Probed(probed))
    }
}

impl Probe {
    /// A port of this host, by the protocol that the echo server is reached by.
    fn own(&self, port: u16) -> SocketAddr {
        let all = match self.to {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        SocketAddr::new(all, port)
    }

    fn connected(&self, socket: UdpSocket) -> Result<UdpSocket> {
        socket
            .connect(self.to)
            .with_context(|| format!("connect UDP {}", self.to))?;
        socket
            .set_read_timeout(Some(Duration::from_micros(self.timeout)))
            .context("SO_RCVTIMEO")?;
        Ok(socket)
    }
}

struct Prober<'a> {
    probe: &'a Probe,
    socket: UdpSocket,
    buffer: Vec<u8>,
    /// Of the last exchange.
    number: u64,
    /// Answers to exchanges that were given up.
    stale: u64,
}

/// How an exchange ended.
enum Exchange {
    /// Answered at this time.
    Answered(u64),
    Lost,
    Failed(std::io::Error),
}

impl Prober<'_> {
    /// Makes the warm-up exchanges. Returns the numbers of sent and returned datagrams.
    fn warm_up(&mut self, control: &Control) -> (u64, u64) {
        let begin = now();
        let least = begin + nanos(self.probe.warmup);
        let most = least.max(begin + 3 * self.probe.timeout * MICRO);
        let (mut sent, mut answered) = (0, 0);
        while !control.stopped() && (now() < least || answered == 0 && now() < most) {
            let due = now() + self.probe.interval * MICRO;
            match self.exchange() {
                Exchange::Answered(_) => (sent, answered) = (sent + 1, answered + 1),
                Exchange::Lost => sent += 1,
                // Without a rest it would be tried a million times.
                Exchange::Failed(_) => std::thread::sleep(Duration::from_millis(10)),
            }
            wait_until(due, 0);
        }
        (sent, answered)
    }

    fn measure(&mut self, control: &Control) -> Probed {
        let mut probed = Probed::default();
        let (mut rtts, mut jitter, mut pacing) = (Durations::new(), Durations::new(), Durations::new());
        let interval = self.probe.interval * MICRO;
        let begin = now();
        let end = begin + nanos(self.probe.seconds);
        let (mut ended, mut before, mut n) = (begin, None, 0);
        while !control.stopped() && self.probe.exchanges.is_none_or(|most| n < u64::from(most)) {
            let intended = if interval > 0 { begin + n * interval } else { ended };
            if intended.max(ended) >= end {
                break;
            }
            let outstanding = ended > intended;
            wait_until(intended, self.probe.spin * MICRO);
            let sent = now();
            if interval > 0 && !outstanding {
                pacing.record(sent - intended);
            }
            n += 1;
            match self.exchange() {
                Exchange::Answered(at) => {
                    let rtt = at - if outstanding { intended } else { sent };
                    rtts.record(rtt);
                    if let Some(before) = before.replace(rtt) {
                        jitter.record(rtt.abs_diff(before));
                    }
                    probed.sent += 1;
                }
                Exchange::Lost => probed.sent += 1,
                Exchange::Failed(error) => {
                    probed.errors += 1;
                    probed.error.get_or_insert_with(|| error.to_string());
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            ended = now();
        }
        Probed {
            answered: rtts.count(),
            mean: rtts.mean(),
            deviation: rtts.deviation(),
            rtt: rtts.distribution(),
            jitter: jitter.distribution(),
            jitter_mean: jitter.mean(),
            pacing: pacing.distribution(),
            seconds: crate::traffic::clock::seconds(ended - begin),
            ..probed
        }
    }

    /// One exchange: sends a datagram and waits for its return.
    fn exchange(&mut self) -> Exchange {
        self.number += 1;
        if let Some(first) = self.probe.fresh {
            let ports = u64::from(FRESH.end - FRESH.start);
            let port = FRESH.start + ((u64::from(first) + self.number) % ports) as u16;
            // A port that another program has is left out.
            if let Ok(socket) = UdpSocket::bind(self.probe.own(port))
                && let Ok(socket) = self.probe.connected(socket)
            {
                self.socket = socket;
            }
        }
        self.buffer[..8].copy_from_slice(&self.number.to_be_bytes());
        let begin = now();
        if let Err(error) = self.socket.send(&self.buffer) {
            return Exchange::Failed(error);
        }
        let (rest, deadline) = (begin + self.probe.spin * MICRO, begin + self.probe.timeout * MICRO);
        loop {
            let received = if now() < rest {
                rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT).map(|(len, _)| len)
            } else {
                rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()).map(|(len, _)| len)
            };
            let at = now();
            match received {
                Ok(len) if len == self.buffer.len() && self.buffer[..8] == self.number.to_be_bytes() => {
                    return Exchange::Answered(at);
                }
                Ok(_) => self.stale += 1,
                // No answer yet; or the echo server has gone, which the time will tell.
                Err(_) => {}
            }
            if at >= deadline {
                return Exchange::Lost;
            }
        }
    }
}
