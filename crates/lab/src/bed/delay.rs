//! A cable's delay: a program between two devices that holds every frame for a time and, if
//! configured, for its serialization time.
//!
//! The time starts when the kernel received the frame, not when the program woke, and the program
//! polls just before a frame is due. It starts to send earlier by the time that the kernel needs to
//! put the frame on the device, which it learns from the kernel's send timestamps: the delay is the
//! difference of the kernel's two timestamps. A late wake-up delays only its own frames, so the
//! rate stays.

use super::cable::{Cable, Rate};
use super::process::{self, Input};
use crate::traffic::clock;
use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::process::ChildStdout;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use sys::{PacketSocket, timed};

/// Bytes of frames that each direction holds at most.
const LIMIT: usize = 64 << 20;

/// Bytes that wait to be received, or to leave the queue of the device, by the kernel's count.
const BUFFER: i32 = 64 << 20;

/// The longest frame that is received.
const LONGEST: usize = 65_536;

/// For how long before a frame is due the program keeps its processor, in nanoseconds: longer than
/// a wake-up takes.
const SPIN: u64 = 60_000;

/// Maximum plausible age of a received frame in nanoseconds; more means that the system's clock was
/// set.
const MOST_AGE: u64 = 100 * clock::MILLI;

/// Initial estimate of the time from the send call to the frame on the device, in nanoseconds. The
/// kernel's work after that is the same on a bare cable.
const ENTRY: u64 = 1_000;

/// Maximum lead of a send before its time, in nanoseconds.
const MOST_LEAD: u64 = 10_000;

/// By how much the lead follows a frame that was late, or early, in nanoseconds: by little and
/// always by the same, so that it finds the median, and the few frames before which the processor
/// was taken away do not count for more.
const STEP: u64 = 20;

/// How many frames are received of one device before the others have their turn.
const BATCH: usize = 64;

/// How frames pass.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Pace {
    /// Time that each frame is held, ns.
    #[arg(long, default_value_t = 0)]
    delay: u64,
    /// Rate that frames pass at, one after the other, in bit/s; none: all at once.
    #[arg(long)]
    rate: Option<NonZeroU64>,
    /// Bytes that each frame is counted longer than it is.
    #[arg(long, default_value_t = 0)]
    overhead: u64,
    /// Bytes that wait for the line to be free, counted so.
    #[arg(long, default_value_t = u64::MAX)]
    queue: u64,
}

/// One direction.
struct Line {
    pace: Pace,
    /// When the last bit of all taken frames has passed.
    free: u64,
    /// The lead of a send before its time, in nanoseconds: the median of recent send durations by
    /// the kernel's timestamps.
    lead: u64,
    frames: VecDeque<(u64, Vec<u8>)>,
    /// Bytes of them.
    held: usize,
    passed: u64,
    dropped: u64,
}

/// Counters of both directions, first those of frames from the first named device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames that were sent on.
    pub passed: [u64; 2],
    /// Frames that were not: too many were under way.
    pub dropped: [u64; 2],
}

impl Line {
    fn new(pace: Pace) -> Line {
        Line {
            pace,
            free: 0,
            lead: 0,
            frames: VecDeque::new(),
            held: 0,
            passed: 0,
            dropped: 0,
        }
    }

    /// Takes a frame with its arrival time; drops it if the queue is full.
    fn push(&mut self, arrived: u64, frame: Vec<u8>) {
        let counted = frame.len() as u64 + self.pace.overhead;
        let begins = self.free.max(arrived);
        if self.held + frame.len() > LIMIT || self.waiting(begins - arrived) + counted > self.pace.queue {
            self.dropped += 1;
            return;
        }
        self.free = begins + self.pace.rate.map_or(0, |rate| counted * 8 * clock::SECOND / rate);
        self.held += frame.len();
        self.frames.push_back((self.free + self.pace.delay, frame));
    }

    /// Bytes that pass in this many nanoseconds: the backlog before a frame that waits as long.
    fn waiting(&self, nanos: u64) -> u64 {
        let bits = self.pace.rate.map_or(0, |rate| {
            u128::from(nanos) * u128::from(rate.get()) / u128::from(clock::SECOND)
        });
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    /// When the next frame is due.
    fn due(&self) -> Option<u64> {
        self.frames.front().map(|(due, _)| *due)
    }

    /// When the next frame is to be sent.
    fn next(&self) -> Option<u64> {
        Some(self.due()?.saturating_sub(self.lead))
    }

    /// Learns how long after the time to send it a frame was on the device.
    fn sent(&mut self, nanos: u64) {
        self.lead = if nanos > self.lead {
            (self.lead + STEP).min(MOST_LEAD)
        } else {
            self.lead.saturating_sub(STEP)
        };
    }

    /// The next frame, if it is to be sent.
    fn pop(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.next()? > now {
            return None;
        }
        let (_, frame) = self.frames.pop_front()?;
        self.held -= frame.len();
        Some(frame)
    }
}

/// `oxvs lab cable A B`: joins two devices of its namespace until its input ends; each line of it
/// is answered with [`Counts`].
///
/// # Errors
/// There is no such device; this process may not have all its frames.
pub fn main(pace: Pace, a: &str, b: &str) -> Result<()> {
    let sockets = [open(a)?, open(b)?];
    let mut lines = [Line::new(pace), Line::new(pace)];
    clock::be_punctual();
    let stdin = std::io::stdin();
    let mut buffer = vec![0; LONGEST];
    answer(&lines)?;
    loop {
        for (i, line) in lines.iter_mut().enumerate() {
            receive(&sockets[i], line, &mut buffer)?;
        }
        for (i, line) in lines.iter_mut().enumerate() {
            send(&sockets[1 - i], line)?;
        }
        let next = lines.iter().filter_map(Line::next).min();
        let wait = next.map(|next| next.saturating_sub(clock::now()).saturating_sub(SPIN));
        if wait == Some(0) {
            continue;
        }
        let wait = wait.map(|wait| Timespec {
            tv_sec: i64::try_from(wait / clock::SECOND).unwrap_or(i64::MAX),
            tv_nsec: (wait % clock::SECOND) as _,
        });
        let mut polled = [
            PollFd::new(&sockets[0], PollFlags::IN),
            PollFd::new(&sockets[1], PollFlags::IN),
            PollFd::new(&stdin, PollFlags::IN),
        ];
        match poll(&mut polled, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
        if polled[2].revents().is_empty() {
            continue;
        }
        let mut input = [0; 64];
        match rustix::io::read(&stdin, &mut input).context("standard input")? {
            0 => return Ok(()),
            length => {
                for (line, socket) in lines.iter_mut().zip(&sockets) {
                    line.dropped += u64::from(socket.take_statistics()?.drops);
                }
                for _ in input[..length].iter().filter(|byte| **byte == b'\n') {
                    answer(&lines)?;
                }
            }
        }
    }
}

fn open(device: &str) -> Result<PacketSocket> {
    let socket = PacketSocket::new()?;
    socket.enable_auxdata()?;
    socket.ignore_outgoing()?;
    timed::enable(socket.as_fd())?;
    timed::enable_sent(socket.as_fd())?;
    socket.set_receive_buffer(BUFFER)?;
    socket.set_send_buffer(BUFFER)?;
    let index = rustix::net::netdevice::name_to_index(&socket, device).with_context(|| format!("device {device}"))?;
    socket.bind(index, true)?;
    socket.join_promiscuous(index)?;
    Ok(socket)
}

fn receive(socket: &PacketSocket, line: &mut Line, buffer: &mut [u8]) -> Result<()> {
    for _ in 0..BATCH {
        let (received, at) = match timed::receive(socket.as_fd(), buffer) {
            Ok(received) => received,
            Err(error) => {
                return match Errno::from_io_error(&error) {
                    // A device that is down again: the testbed goes.
                    Some(Errno::AGAIN | Errno::INTR | Errno::NETDOWN) => Ok(()),
                    _ => Err(error).context("a packet socket"),
                };
            }
        };
        if received.truncated {
            line.dropped += 1;
            continue;
        }
        let at = at.map_or_else(clock::now, |at| monotonic(since_1970(at)));
        line.push(at, whole(&buffer[..received.len], received.vlan));
    }
    Ok(())
}

fn since_1970(time: Duration) -> u64 {
    time.as_secs() * clock::SECOND + u64::from(time.subsec_nanos())
}

/// A time of a moment ago by the system's clock, in nanoseconds, by the measuring programs'.
fn monotonic(at: u64) -> u64 {
    let system = clock_gettime(ClockId::Realtime);
    let system = system.tv_sec.unsigned_abs() * clock::SECOND + system.tv_nsec.unsigned_abs();
    // The system's clock may be set in between.
    clock::now().saturating_sub(system.saturating_sub(at).min(MOST_AGE))
}

/// A frame with the tag that the kernel took out of it.
fn whole(frame: &[u8], tag: Option<(u16, u16)>) -> Vec<u8> {
    match (tag, frame.split_at_checked(12)) {
        (Some((tpid, tci)), Some((addresses, rest))) => {
            [addresses, &tpid.to_be_bytes(), &tci.to_be_bytes(), rest].concat()
        }
        _ => frame.to_vec(),
    }
}

fn send(socket: &PacketSocket, line: &mut Line) -> Result<()> {
    loop {
        let now = clock::now();
        let Some((next, frame)) = line.next().zip(line.pop(now)) else {
            return Ok(());
        };
        match rustix::net::send(socket, &frame, SendFlags::DONTWAIT) {
            Ok(_) => {
                line.passed += 1;
                let at = timed::sent(socket.as_fd()).ok().flatten().map(since_1970);
                let at = at.map_or(now + ENTRY, monotonic);
                line.sent(at.saturating_sub(next));
            }
            // The device's queue, or the device, has dropped it, and counts it.
            Err(Errno::NOBUFS) => {}
            Err(Errno::AGAIN | Errno::NETDOWN | Errno::MSGSIZE) => line.dropped += 1,
            Err(error) => return Err(error).context("a packet socket"),
        }
    }
}

fn answer(lines: &[Line; 2]) -> Result<()> {
    let [a, b] = lines;
    let counts = Counts {
        passed: [a.passed, b.passed],
        dropped: [a.dropped, b.dropped],
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(&counts)?)?;
    out.flush().context("standard output")
}

/// A program that runs.
pub(crate) struct Delay {
    cable: String,
    ends: Mutex<(Input, BufReader<ChildStdout>)>,
}

impl Delay {
    /// Starts one in a cable's namespace, between two of its devices, and waits until it is ready.
    pub(crate) fn start(cable: &Cable) -> Result<Delay> {
        let namespace = cable
            .namespace
            .as_deref()
            .context("a cable with a program has a namespace")?;
        let mut args = vec!["cable".to_owned(), cable.a.inner.clone(), cable.b.inner.clone()];
        args.push(format!("--delay={}", cable.delay * clock::MICRO));
        if let Some(Rate {
            rate, overhead, queue, ..
        }) = cable.rate.filter(|_| cable.serial)
        {
            args.extend([
                format!("--rate={rate}"),
                format!("--overhead={overhead}"),
                format!("--queue={queue}"),
            ]);
        }
        let (to, from) = process::start(namespace, &args)?;
        let mut from = BufReader::new(from);
        read(&mut from, &cable.name)?;
        Ok(Delay {
            cable: cable.name.clone(),
            ends: Mutex::new((to, from)),
        })
    }

    pub(crate) fn cable(&self) -> &str {
        &self.cable
    }

    pub(crate) fn pid(&self) -> u32 {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).0.pid()
    }

    pub(crate) fn counts(&self) -> Result<Counts> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = ends.0.write_all(b"\n");
        asked.with_context(|| format!("cable {}: its program has ended", self.cable))?;
        read(&mut ends.1, &self.cable)
    }
}

fn read(from: &mut impl BufRead, cable: &str) -> Result<Counts> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|_| anyhow!("cable {cable}: its program has ended"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delayed() -> Line {
        Line::new(Pace {
            delay: 100,
            queue: u64::MAX,
            ..Pace::default()
        })
    }

    /// A bit takes a microsecond, and a frame counts 24 bytes more than it has.
    fn slow(queue: u64) -> Line {
        Line::new(Pace {
            delay: 0,
            rate: NonZeroU64::new(1_000_000),
            overhead: 24,
            queue,
        })
    }

    #[test]
    fn frames_pass_one_after_the_other_for_as_long_as_they_are() {
        let mut line = slow(u64::MAX);
        let frame = vec![0; 76];
        line.push(0, frame.clone());
        line.push(0, frame.clone());
        line.push(5_000_000, frame.clone());
        assert_eq!(line.pop(799_999), None);
        assert!(line.pop(800_000).is_some());
        assert_eq!(line.due(), Some(1_600_000));
        assert!(line.pop(9_000_000).is_some());
        assert_eq!(line.due(), Some(5_800_000));
    }

    #[test]
    fn no_more_waits_than_the_queue_holds() {
        let mut line = slow(250);
        for _ in 0..5 {
            line.push(0, vec![0; 76]);
        }
        // Of 100 bytes each, counted: two, and the one that passes counts while it does.
        assert_eq!((line.frames.len(), line.dropped), (2, 3));
        line.push(800_000, vec![0; 76]);
        assert_eq!((line.frames.len(), line.dropped), (3, 3));
    }

    #[test]
    fn frames_leave_in_order_when_they_are_due() {
        let mut line = delayed();
        line.push(10, vec![1]);
        line.push(20, vec![2]);
        assert_eq!(line.due(), Some(110));
        assert_eq!(line.pop(109), None);
        assert_eq!(line.pop(110), Some(vec![1]));
        assert_eq!(line.pop(110), None);
        assert_eq!(line.pop(500), Some(vec![2]));
        assert_eq!((line.due(), line.held), (None, 0));
    }

    #[test]
    fn a_frame_leaves_earlier_by_what_sending_mostly_takes_and_never_much() {
        let mut line = delayed();
        line.push(100_000, vec![1]);
        let lead = |line: &Line| line.due().unwrap() - line.next().unwrap();
        assert_eq!(lead(&line), 0);
        for n in 0..2000 {
            // Once in ten times the processor was taken away.
            line.sent(if n % 10 == 0 { 4_000_000 } else { 1_700 });
        }
        let found = lead(&line);
        assert!(found.abs_diff(1_700) <= 2 * STEP, "{found}");
        for _ in 0..2000 {
            line.sent(1_000_000);
        }
        assert_eq!(lead(&line), MOST_LEAD);
        for _ in 0..2000 {
            line.sent(0);
        }
        assert_eq!(lead(&line), 0);
    }

    #[test]
    fn what_is_more_than_is_held_is_dropped_and_counted() {
        let mut line = delayed();
        for i in 0..LIMIT / LONGEST + 3 {
            line.push(i as u64, vec![0; LONGEST]);
        }
        assert_eq!(line.dropped, 3);
        assert!(line.pop(1000).is_some());
        line.push(1000, vec![0; LONGEST]);
        assert_eq!(line.dropped, 3);
    }

    #[test]
    fn a_tag_goes_back_behind_the_addresses() {
        let frame: Vec<u8> = (0..20).collect();
        let tagged = whole(&frame, Some((0x8100, 0x600a)));
        assert_eq!(tagged[..12], frame[..12]);
        assert_eq!(tagged[12..16], [0x81, 0, 0x60, 0x0a]);
        assert_eq!(tagged[16..], frame[12..]);
        assert_eq!(whole(&frame, None), frame);
    }
}
