//! How many addresses a learning switch remembers.
//!
//! The test needs no interface of the switch: the first host sends frames from many addresses, then
//! a frame to each of them. The switch drops frames to learned addresses, which are on the ingress
//! port, and floods the others, which the second host captures.

use super::captured;
use super::openflow::{two_hosts, while_full};
use super::{Observer, Seen};
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::Setup;
use crate::traffic::capture::Capture;
use crate::traffic::protocol::Task;
use anyhow::{Context, Result};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use sys::PacketSocket;

/// EtherType for experiments (IEEE 802), which no host's stack takes; another than that of packets
/// from a controller.
const EXPERIMENT: u16 = 0x88b6;

/// Frames between two pauses: a host's queue holds them.
const STEP: u32 = 32;

/// The pause, for which a switch in software has to empty it.
const PAUSE: Duration = Duration::from_micros(500);

/// Results found before the cell's traffic, which is empty.
pub(super) struct Addresses(Measured);

impl Addresses {
    pub(super) fn begin(table: &Table, setup: &Setup, at_most: u32) -> Result<Addresses> {
        let (from, to) = two_hosts(setup)?;
        let host = table.ground.bed.host(from)?;
        let own = host.mac();
        let began = Instant::now();
        send(host, (0..at_most).map(|number| frame([0xff; 6], address(number))))?;
        let took = began.elapsed();
        // The switch has learned all addresses by now.
        std::thread::sleep(Duration::from_millis(200));
        let capture = Capture {
            most: at_most as usize + 100,
            ..Capture::default()
        };
        let capture = table.ground.ends.agent(to)?.start(Task::Capture(capture))?;
        send(host, (0..at_most).map(|number| frame(address(number), own)))?;
        std::thread::sleep(Duration::from_millis(200));
        let heard = captured(capture)?;
        let flooded: u64 = heard
            .seen
            .iter()
            .filter(|seen| seen.kind.ether_type == EXPERIMENT)
            .map(|seen| seen.frames)
            .sum();
        let mut measured = while_full(table, setup, true)?;
        let mut add = |metric: &str, value: f64| measured.metrics.insert(metric.to_owned(), value);
        add("rules", f64::from(at_most) - flooded as f64);
        add("full", if flooded > 0 { 1.0 } else { 0.0 });
        add("seconds", took.as_secs_f64());
        Ok(Addresses(measured))
    }
}

impl Observer for Addresses {
    fn end(self: Box<Self>, _seen: &Seen<'_>) -> Result<Measured> {
        Ok(self.0)
    }
}

/// An address of nobody's, locally administered.
fn address(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [0x06, 0xad, a, b, c, d]
}

fn frame(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend(EXPERIMENT.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn send(host: &crate::bed::Host, frames: impl Iterator<Item = Vec<u8>> + Send) -> Result<()> {
    host.enter(|| {
        let socket = PacketSocket::new()?;
        let index = rustix::net::netdevice::name_to_index(&socket, crate::bed::DEVICE).context(crate::bed::DEVICE)?;
        socket.bind(index, false)?;
        for (number, frame) in (0u32..).zip(frames) {
            while let Err(error) = rustix::io::write(socket.as_fd(), &frame) {
                anyhow::ensure!(
                    matches!(error, rustix::io::Errno::NOBUFS | rustix::io::Errno::AGAIN),
                    "a packet socket: {error}"
                );
                std::thread::sleep(PAUSE);
            }
            if number % STEP == STEP - 1 {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    })
}
