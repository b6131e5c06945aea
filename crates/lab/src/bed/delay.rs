//! A cable's delay: a program between two devices that holds every frame for a time.
//!
//! The time counts from when the kernel received the frame, not from when the program was woken, and for the last moment before a frame is due
//! the program does not sleep: what it adds of its own is little more than the sending. A rate is not its affair, but that of the queues at the
//! devices that it sends to.

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
use std::os::fd::AsFd;
use std::process::ChildStdout;
use std::sync::{Mutex, PoisonError};
use sys::{PacketSocket, timed};

/// Bytes of frames that each direction holds at most.
const LIMIT: usize = 64 << 20;

/// Bytes that wait to be received, or to leave the queue of the device, by the kernel's count.
const BUFFER: i32 = 64 << 20;

/// The longest frame that is received.
const LONGEST: usize = 65_536;

/// For how long before a frame is due the program keeps its processor, in nanoseconds: longer than a wake-up takes.
const SPIN: u64 = 60_000;

/// How many frames are received of one device before the others have their turn.
const BATCH: usize = 64;

/// One direction.
struct Line {
    /// Nanoseconds.
    delay: u64,
    frames: VecDeque<(u64, Vec<u8>)>,
    /// Bytes of them.
    held: usize,
    passed: u64,
    dropped: u64,
}

/// What both directions have done, the first named device's frames first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames that were sent on.
    pub passed: [u64; 2],
    /// Frames that were not: too many were under way.
    pub dropped: [u64; 2],
}

impl Line {
    fn new(delay: u64) -> Line {
        Line {
            delay,
            frames: VecDeque::new(),
            held: 0,
            passed: 0,
            dropped: 0,
        }
    }

    /// Takes a frame that arrived at a time; drops it where too much is held.
    fn push(&mut self, arrived: u64, frame: Vec<u8>) {
        if self.held + frame.len() > LIMIT {
            self.dropped += 1;
            return;
        }
        self.held += frame.len();
        self.frames.push_back((arrived + self.delay, frame));
    }

    /// When the next frame is due.
    fn due(&self) -> Option<u64> {
        self.frames.front().map(|(due, _)| *due)
    }

    /// The next frame, if it is due.
    fn pop(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.due()? > now {
            return None;
        }
        let (_, frame) = self.frames.pop_front()?;
        self.held -= frame.len();
        Some(frame)
    }
}

/// `oxvs lab cable NANOSECONDS A B`: joins two devices of its namespace until its input ends; each line of it is answered with [`Counts`].
///
/// # Errors
/// There is no such device; this process may not have all its frames.
pub fn main(delay: u64, a: &str, b: &str) -> Result<()> {
    let sockets = [open(a)?, open(b)?];
    let mut lines = [Line::new(delay), Line::new(delay)];
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
        let due = lines.iter().filter_map(Line::due).min();
        let wait = due.map(|due| due.saturating_sub(clock::now()).saturating_sub(SPIN));
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
        let system = clock_gettime(ClockId::Realtime);
        let system = system.tv_sec.unsigned_abs() * clock::SECOND + system.tv_nsec.unsigned_abs();
        let at = at.map_or(system, |at| at.as_secs() * clock::SECOND + u64::from(at.subsec_nanos()));
        // The system's clock may be set in between; a frame is never held longer than its delay from now.
        let age = system.saturating_sub(at).min(line.delay);
        line.push(
            clock::now().saturating_sub(age),
            whole(&buffer[..received.len], received.vlan),
        );
    }
    Ok(())
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
    while let Some(frame) = line.pop(clock::now()) {
        match rustix::net::send(socket, &frame, SendFlags::DONTWAIT) {
            Ok(_) => line.passed += 1,
            // The device's queue, or the device, has dropped it, and counts it.
            Err(Errno::NOBUFS) => {}
            Err(Errno::AGAIN | Errno::NETDOWN | Errno::MSGSIZE) => line.dropped += 1,
            Err(error) => return Err(error).context("a packet socket"),
        }
    }
    Ok(())
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
    pub(crate) fn start(cable: &str, namespace: &str, micros: u64, [a, b]: [&str; 2]) -> Result<Delay> {
        let nanos = (micros * clock::MICRO).to_string();
        let (to, from) = process::start(namespace, &["cable", &nanos, a, b])?;
        let mut from = BufReader::new(from);
        read(&mut from, cable)?;
        Ok(Delay {
            cable: cable.to_owned(),
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

    #[test]
    fn frames_leave_in_order_when_they_are_due() {
        let mut line = Line::new(100);
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
    fn what_is_more_than_is_held_is_dropped_and_counted() {
        let mut line = Line::new(100);
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
