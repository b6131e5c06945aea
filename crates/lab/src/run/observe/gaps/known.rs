//! A packet of a known flow at an even pace, and which of them came late.

use super::{SENDER, chrt};
use crate::bed::Host;
use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use sys::datagram::SocketOption;
use sys::timed;

/// The port that the packets go to.
pub(super) const PORT: u16 = 19_014;

/// Between two packets.
const INTERVAL: Duration = Duration::from_micros(200);

/// A sender that is so late sends no packets for the time that it missed.
const BEHIND: u64 = 50 * INTERVAL.as_nanos() as u64;

/// If a packet took longer to send, the sender was held up itself, and its delay says nothing; ns.
const HELD_UP: u64 = 200_000;

/// Room for packets that the receiver has not read, in bytes.
const ROOM: i32 = 64 << 20;

/// Numbers in a packet: its own, when it was sent, and how long the one before took to send.
const LENGTH: usize = 24;

/// The sockets of the flow.
pub(super) struct Known {
    sender: UdpSocket,
    receiver: UdpSocket,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrived {
    number: u64,
    sent: u64,
    delay: u64,
    /// How long the packet before took to send.
    took: u64,
}

/// Delays in ms, from the sender's to the receiver's kernel, and lost packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) longest: f64,
    pub(super) p999: f64,
    pub(super) median: f64,
    pub(super) lost: u64,
}

/// The flow while it flows; dropping it ends it.
pub(super) struct Flowing {
    end: Arc<AtomicBool>,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    threads: Vec<JoinHandle<()>>,
}

/// The system's clock, which the kernel notes arrivals by, in ns since 1970.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

impl Known {
    pub(super) fn new(from: &Host, to: &Host, address: Ipv4Addr) -> Result<Known> {
        for host in [from, to] {
            ensure!(
                host.acceleration().is_none(),
                "{} is a guest, whose clock is not this machine's",
                host.name()
            );
        }
        let receiver = to.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("bind UDP"))?;
        timed::enable(receiver.as_fd())?;
        sys::datagram::set(receiver.as_fd(), SocketOption::ReceiveBuffer(ROOM))?;
        let sender = from.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind UDP"))?;
        sender.connect((address, PORT)).context("connect UDP")?;
        Ok(Known { sender, receiver })
    }

    /// Starts the flow. `first`: the sender runs before other programs.
    pub(super) fn begin(&self, first: bool) -> Result<Flowing> {
        let mut flowing = Flowing {
            end: Arc::default(),
            arrived: Arc::default(),
            threads: Vec::new(),
        };
        let (receiver, end, arrived) = (self.receiver.try_clone()?, flowing.end.clone(), flowing.arrived.clone());
        let thread = std::thread::Builder::new().name("known, in".to_owned());
        flowing
            .threads
            .push(thread.spawn(move || receive(&receiver, &end, &arrived))?);
        let (sender, end) = (self.sender.try_clone()?, flowing.end.clone());
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("known, out".to_owned());
        flowing.threads.push(thread.spawn(move || {
            let id = rustix::thread::gettid().as_raw_nonzero().get().to_string();
            let ready = if first {
                chrt(&["-f", "-p", &SENDER.to_string(), &id])
            } else {
                Ok(())
            };
            let go = ready.is_ok();
            let _ = tell.send(ready);
            if go {
                send(&sender, &end);
            }
        })?);
        told.recv()??;
        Ok(flowing)
    }
}

fn send(socket: &UdpSocket, end: &AtomicBool) {
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let interval = INTERVAL.as_nanos() as u64;
    let (mut number, mut took, mut at) = (0_u64, 0_u64, now());
    while !end.load(Ordering::Relaxed) {
        let begun = now();
        if begun < at {
            std::thread::sleep(Duration::from_nanos(at - begun));
        } else if begun > at + BEHIND {
            at = begun;
        }
        let begun = now();
        let _ = socket.send(&packet(number, begun, took));
        took = now().saturating_sub(begun);
        number += 1;
        at += interval;
    }
}

fn packet(number: u64, sent: u64, took: u64) -> [u8; LENGTH] {
    let mut packet = [0; LENGTH];
    for (place, value) in packet.chunks_exact_mut(8).zip([number, sent, took]) {
        place.copy_from_slice(&value.to_be_bytes());
    }
    packet
}

fn read(packet: &[u8], at: u64) -> Option<Arrived> {
    let value = |place: usize| {
        Some(u64::from_be_bytes(
            packet.get(place * 8..place * 8 + 8)?.try_into().ok()?,
        ))
    };
    let (number, sent, took) = (value(0)?, value(1)?, value(2)?);
    Some(Arrived {
        number,
        sent,
        delay: at.saturating_sub(sent),
        took,
    })
}

fn receive(socket: &UdpSocket, end: &AtomicBool, arrived: &Mutex<Vec<Arrived>>) {
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    let mut buffer = [0; 64];
    while !end.load(Ordering::Relaxed) {
        let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait));
        while let Ok((received, Some(at))) = timed::receive(socket.as_fd(), &mut buffer) {
            let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
            let packet = buffer.get(..received.len).and_then(|packet| read(packet, at));
            arrived.lock().unwrap_or_else(PoisonError::into_inner).extend(packet);
        }
    }
}

impl Flowing {
    /// Of the packets that were sent between two times.
    ///
    /// # Errors
    /// None has arrived.
    pub(super) fn between(&self, begin: u64, end: u64) -> Result<Seen> {
        let arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        match seen(&arrived, begin, end) {
            Some(seen) => Ok(seen),
            None => bail!("no packet of the known flow has arrived"),
        }
    }
}

impl Drop for Flowing {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn seen(arrived: &[Arrived], begin: u64, end: u64) -> Option<Seen> {
    // A packet says of the one before it how long that took.
    let held_up = arrived.iter().filter(|packet| packet.took > HELD_UP);
    let held_up: std::collections::BTreeSet<u64> = held_up.map(|packet| packet.number.wrapping_sub(1)).collect();
    let inside = || arrived.iter().filter(move |packet| (begin..end).contains(&packet.sent));
    let numbers = || inside().map(|packet| packet.number);
    let sent = numbers().max()? - numbers().min()? + 1;
    let counted = inside().filter(|packet| !held_up.contains(&packet.number));
    let mut delays: Vec<u64> = counted.map(|packet| packet.delay).collect();
    delays.sort_unstable();
    let at = |share: f64| {
        let place = (delays.len() as f64 * share) as usize;
        Some(*delays.get(place.min(delays.len().checked_sub(1)?))? as f64 / 1e6)
    };
    Some(Seen {
        longest: at(1.0)?,
        p999: at(0.999)?,
        median: at(0.5)?,
        lost: sent - inside().count() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(number: u64, delay: u64, took: u64) -> Arrived {
        Arrived {
            number,
            sent: number * 200_000,
            delay,
            took,
        }
    }

    #[test]
    fn packets_carry_their_times() {
        assert_eq!(
            read(&packet(7, 1000, 3), 5000),
            Some(Arrived {
                number: 7,
                sent: 1000,
                delay: 4000,
                took: 3
            })
        );
        assert_eq!(read(&[0; 23], 1), None);
    }

    #[test]
    fn a_packet_whose_sender_was_held_up_has_no_delay_and_is_not_lost() {
        let all = [
            arrived(0, 9_000_000, 0),
            arrived(1, 1_000_000, 0),
            arrived(2, 8_000_000, 0),
            arrived(3, 2_000_000, 300_000),
            arrived(5, 3_000_000, 0),
        ];
        let found = seen(&all, 200_000, u64::MAX).unwrap();
        assert_eq!((found.longest, found.median, found.lost), (3.0, 2.0, 1));
        assert_eq!(seen(&all, 10_000_000, u64::MAX), None);
    }
}
