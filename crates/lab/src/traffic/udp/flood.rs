//! Datagrams as fast as they go, so that neither sender nor receiver is the limit: the sender's
//! kernel cuts each message into datagrams (`UDP_SEGMENT`, Linux 4.18), and the receiver reads
//! none, so that its kernel drops and counts them.
//!
//! Both hosts must have the same clock: the sender says when it began and ended, and the receiver
//! what had arrived by then.

use super::send::knock_wait;
use super::socket::{bind, set_buffers};
use crate::traffic::clock::{MICRO, SECOND, be_punctual, nanos, now, wait_until};
use crate::traffic::protocol::Outcome;
use crate::traffic::task::{Control, LOOK};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;
use sys::datagram::{Header, lost};

/// Sends datagrams that the kernel cuts from longer messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    /// Where they go.
    pub to: SocketAddrV4,
    /// The port they come from; 0: any.
    #[serde(default)]
    pub port: u16,
    /// UDP payload of each in bytes, 1 to [`MOST_FLOOD`].
    pub payload: u16,
    /// Datagrams a second; 0: as many as possible.
    #[serde(default)]
    pub rate: u64,
    /// The device that they leave by. Its UDP segmentation offload is switched off, so that each
    /// datagram crosses the network alone; none: it is left as it is.
    pub device: Option<String>,
    /// Seconds of datagrams that do not count, before.
    #[serde(default)]
    pub warmup: f64,
    /// Seconds of datagrams that count.
    pub seconds: f64,
}

/// The results of the sender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flooded {
    /// Datagrams that the kernel took, not counting the warm-up's.
    pub sent: u64,
    /// Those of the warm-up.
    pub warmup: u64,
    /// Datagrams that were due and not sent in time.
    pub behind: u64,
    /// When those that count began and ended, in nanoseconds by the clock of the machine.
    pub span: (u64, u64),
}

/// Takes a port, and leaves the datagrams that come to the kernel to drop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    /// The port; 0: any.
    pub port: u16,
}

/// The results of a sink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sunk {
    /// Datagrams that arrived.
    pub arrived: u64,
    /// Those of them that the kernel has counted as dropped.
    pub dropped: u64,
    /// Nanoseconds by the clock of the machine, and how many had arrived by then; ascending.
    pub looks: Vec<(u64, u64)>,
}

/// The longest payload: of a datagram that needs no fragments at an MTU of 1500 bytes.
pub const MOST_FLOOD: u16 = 1472;

/// Datagrams of a message as fast as possible, and at a rate: more at a time would be a burst.
const AT_ONCE: (u64, u64) = (60, 8);

/// The longest message.
const LONGEST: usize = 65_507;

/// For how long a sender with a rate polls before a message is due: shorter than waking up takes.
const SPIN: u64 = 50 * MICRO;

/// Between two looks of a sink, and how many it keeps: of more it keeps every second one.
const INTERVAL: Duration = Duration::from_millis(10);
const LOOKS: usize = 4096;

/// After a stop a sink waits until nothing arrives between two looks, at most so often.
const QUIET: usize = 100;

impl Flood {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        if !(1..=MOST_FLOOD).contains(&self.payload) {
            bail!("payload {}: 1 to {MOST_FLOOD} bytes", self.payload);
        }
        let _cut = self.device.as_deref().map(CutHere::begin).transpose()?;
        let socket = bind(self.port)?;
        socket.set_nonblocking(true)?;
        control.ready(vec![socket.local_addr()?.port()]);
        let mut flooded = Flooded::default();
        if control.await_go() {
            be_punctual();
            let message = vec![0; LONGEST];
            let sender = Sender {
                flood: self,
                socket: &socket,
                control,
                message: &message,
            };
            sender.send(1)?;
            knock_wait(control);
            let warm = sender.phase(nanos(self.warmup))?;
            flooded.warmup = warm.sent + 1;
            let counted = sender.phase(nanos(self.seconds))?;
            (flooded.sent, flooded.span) = (counted.sent, counted.span);
            let due = self.due(counted.span.1 - counted.span.0);
            flooded.behind = due.saturating_sub(counted.sent);
        }
        Ok(Outcome::Flooded(flooded))
    }

    /// Datagrams that are due in this many nanoseconds; 0 without a rate.
    fn due(&self, length: u64) -> u64 {
        let due = u128::from(self.rate) * u128::from(length) / u128::from(SECOND);
        u64::try_from(due).unwrap_or(u64::MAX)
    }
}

/// The host's kernel cuts messages, not whoever comes after this device, until it is dropped.
struct CutHere<'a> {
    device: &'a str,
    /// The device did so before.
    was_on: bool,
}

impl CutHere<'_> {
    fn begin(device: &str) -> Result<CutHere<'_>> {
        let features = ethtool(&["-k", device])?;
        let was_on = !is_off(&features);
        // Without checksum offload it is off already, and cannot be switched.
        if was_on {
            ethtool(&["-K", device, "tx-udp-segmentation", "off"])?;
        }
        Ok(CutHere { device, was_on })
    }
}

impl Drop for CutHere<'_> {
    fn drop(&mut self) {
        if self.was_on {
            // A device that is gone needs none.
            let _ = ethtool(&["-K", self.device, "tx-udp-segmentation", "on"]);
        }
    }
}

fn ethtool(words: &[&str]) -> Result<String> {
    let done = Command::new("ethtool")
        .args(words)
        .output()
        .context("cannot start ethtool")?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("ethtool {}: {}", words.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// By `ethtool -k`: `tx-udp-segmentation: off [requested on]`.
fn is_off(features: &str) -> bool {
    let mut lines = features.lines();
    let state = lines.find_map(|line| line.trim().strip_prefix("tx-udp-segmentation: "));
    state.is_some_and(|state| state.starts_with("off"))
}

struct Sender<'a> {
    flood: &'a Flood,
    socket: &'a UdpSocket,
    control: &'a Control,
    message: &'a [u8],
}

/// Of one phase.
struct Phase {
    sent: u64,
    span: (u64, u64),
}

impl Sender<'_> {
    /// Sends for this many nanoseconds, or until a stop.
    fn phase(&self, length: u64) -> Result<Phase> {
        let rate = self.flood.rate;
        let fit = (LONGEST / usize::from(self.flood.payload)) as u64;
        let at_once = fit.min(if rate == 0 { AT_ONCE.0 } else { AT_ONCE.1 });
        let look = LOOK.as_nanos() as u64;
        let begin = now();
        let (end, mut heard, mut sent) = (begin.saturating_add(length), begin, 0);
        loop {
            let at = now();
            if at >= end {
                break;
            }
            if at > heard + look {
                heard = at;
                if self.control.stopped() {
                    break;
                }
            }
            let due = if rate == 0 {
                begin
            } else {
                let after = u128::from(sent) * u128::from(SECOND) / u128::from(rate);
                begin.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
            };
            if due > at {
                wait_until(due.min(end).min(at + look), SPIN);
                continue;
            }
            if self.send(at_once)? {
                sent += at_once;
            }
        }
        Ok(Phase {
            sent,
            span: (begin, now().clamp(begin, end)),
        })
    }

    /// Sends one message of so many datagrams; returns whether the kernel took it. Waits a moment
    /// if the socket has no room.
    fn send(&self, datagrams: u64) -> Result<bool> {
        let flood = self.flood;
        let header = Header {
            src: Ipv4Addr::UNSPECIFIED.into(),
            dst: (*flood.to.ip()).into(),
            dst_port: flood.to.port(),
            tos: 0,
            ttl: 64,
            mark: 0,
        };
        let message = &self.message[..usize::from(flood.payload) * datagrams as usize];
        let error = match sys::datagram::send(
            self.socket.as_fd(),
            &header,
            Some(flood.payload),
            std::iter::once(message),
        ) {
            Ok(_) => return Ok(true),
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(Errno::AGAIN) => {
                let wait = Timespec {
                    tv_sec: 0,
                    tv_nsec: LOOK.as_nanos() as _,
                };
                let _ = poll(&mut [PollFd::new(self.socket, PollFlags::OUT)], Some(&wait));
                Ok(false)
            }
            Some(Errno::NOBUFS) => Ok(false),
            Some(Errno::IO) => Err(error).context(
                "before Linux 6.11 the kernel cuts no datagrams for a device without checksum offload (UDP_SEGMENT)",
            ),
            _ => Err(error).with_context(|| format!("send to {}", flood.to)),
        }
    }
}

impl Sink {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        let socket = bind(self.port)?;
        // The kernel grants its minimum: one or two datagrams.
        set_buffers(&socket, None, Some(1))?;
        socket.set_nonblocking(true)?;
        control.ready(vec![socket.local_addr()?.port()]);
        let (mut counter, mut sunk, mut every, mut number) = (Counter::default(), Sunk::default(), 1, 0_u64);
        while !control.stopped() {
            counter.read(&socket)?;
            if number.is_multiple_of(every) {
                sunk.looks.push((now(), counter.sum));
            }
            number += 1;
            if sunk.looks.len() >= LOOKS {
                let mut keep = false;
                sunk.looks.retain(|_| {
                    keep = !keep;
                    keep
                });
                every *= 2;
            }
            std::thread::sleep(INTERVAL);
        }
        for _ in 0..QUIET {
            let before = counter.sum;
            std::thread::sleep(INTERVAL);
            counter.read(&socket)?;
            if counter.sum == before {
                break;
            }
        }
        sunk.looks.push((now(), counter.sum));
        let kept = std::iter::repeat_with(|| socket.recv(&mut [0; 2048])).take_while(Result::is_ok);
        sunk.dropped = counter.sum;
        sunk.arrived = counter.sum + kept.count() as u64;
        Ok(Outcome::Sunk(sunk))
    }
}

/// What the kernel has dropped at a socket, beyond the 32 bits that it counts.
#[derive(Default)]
struct Counter {
    last: u32,
    sum: u64,
}

impl Counter {
    fn read(&mut self, socket: &UdpSocket) -> Result<()> {
        let now = lost(socket.as_fd()).context("the drops of a socket")?;
        self.add(now);
        Ok(())
    }

    fn add(&mut self, now: u32) {
        self.sum += u64::from(now.wrapping_sub(self.last));
        self.last = now;
    }
}

impl Sunk {
    /// Datagrams a second that arrived between two times; none if it did not look at both ends.
    pub fn rate(&self, (from, to): (u64, u64)) -> Option<f64> {
        let (first, last) = (self.looks.first()?.0, self.looks.last()?.0);
        let (from, to) = (from.max(first), to.min(last));
        (to > from).then(|| (self.at(to) - self.at(from)) * SECOND as f64 / (to - from) as f64)
    }

    /// How many had arrived at a time, between two looks in proportion to the time.
    fn at(&self, time: u64) -> f64 {
        let after = self.looks.partition_point(|&(at, _)| at < time);
        let (Some(&(next, more)), Some(&(last, less))) =
            (self.looks.get(after), self.looks.get(after.saturating_sub(1)))
        else {
            return self.looks.last().map_or(0.0, |&(_, all)| all as f64);
        };
        if next == last {
            return more as f64;
        }
        less as f64 + (more - less) as f64 * (time - last) as f64 / (next - last) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Agent;
    use crate::traffic::protocol::Task;

    #[test]
    fn a_rate_is_of_what_arrived_between_two_times() {
        let sunk = Sunk {
            arrived: 400,
            dropped: 399,
            looks: vec![(0, 0), (SECOND, 100), (2 * SECOND, 300), (3 * SECOND, 400)],
        };
        assert_eq!(sunk.rate((SECOND, 2 * SECOND)), Some(200.0));
        assert_eq!(sunk.rate((SECOND / 2, 3 * SECOND / 2)), Some(150.0));
        assert_eq!(sunk.rate((2 * SECOND, 9 * SECOND)), Some(100.0));
        assert_eq!(sunk.rate((SECOND, SECOND)), None);
        assert_eq!(Sunk::default().rate((0, SECOND)), None);
    }

    #[test]
    fn the_state_of_an_offload_is_read() {
        let features = "Features for eth0:\nrx-checksumming: on\n\ttx-udp-segmentation: off [requested on]\n";
        assert!(is_off(features));
        assert!(!is_off("tx-udp-segmentation: on\n"));
        assert!(!is_off(""));
    }

    #[test]
    fn a_counter_of_32_bits_goes_on_beyond_them() {
        let mut counter = Counter::default();
        for now in [7, u32::MAX, 9] {
            counter.add(now);
        }
        assert_eq!(counter.sum, (1 << 32) + 9);
    }

    /// Of the loopback device.
    fn flood(rate: u64, payload: u16, seconds: f64) -> (Flooded, Sunk) {
        let agent = Agent::here("here").unwrap();
        let sink = agent.start(Task::Sink(Sink::default())).unwrap();
        let task = Flood {
            to: SocketAddrV4::new(Ipv4Addr::LOCALHOST, sink.ports()[0]),
            port: 0,
            payload,
            rate,
            device: None,
            warmup: 0.05,
            seconds,
        };
        let mut sender = agent.start(Task::Flood(task)).unwrap();
        sender.go().unwrap();
        let Outcome::Flooded(flooded) = sender.wait(Duration::from_secs(60)).unwrap() else {
            panic!("no result of a sender");
        };
        let Outcome::Sunk(sunk) = sink.stop().unwrap() else {
            panic!("no result of a sink");
        };
        (flooded, sunk)
    }

    #[test]
    fn each_datagram_that_was_sent_is_counted() {
        let (flooded, sunk) = flood(0, 18, 0.2);
        assert!(flooded.sent > 0 && flooded.sent % 60 == 0, "{flooded:?}");
        assert_eq!(flooded.sent + flooded.warmup, sunk.arrived);
        assert!(sunk.dropped < sunk.arrived && sunk.dropped > sunk.arrived / 2);
        assert!(sunk.rate(flooded.span).unwrap() > 0.0);
    }

    #[test]
    fn a_rate_is_kept() {
        let (flooded, sunk) = flood(8000, 1000, 0.25);
        assert!(flooded.sent <= 2008, "{flooded:?}");
        assert_eq!(flooded.sent + flooded.warmup, sunk.arrived);
        assert!(flooded.sent + flooded.behind >= 2000 - 8, "{flooded:?}");
    }

    #[test]
    fn payloads_that_need_fragments_are_refused() {
        let agent = Agent::here("here").unwrap();
        let task = Flood {
            to: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9),
            port: 0,
            payload: 1473,
            rate: 0,
            device: None,
            warmup: 0.0,
            seconds: 1.0,
        };
        let error = agent.start(Task::Flood(task)).err().unwrap().to_string();
        assert!(error.contains("1 to 1472 bytes"), "{error}");
    }
}
