//! Frames of a capture file, sent with the distances in time that they were captured with.

use super::clock::{SECOND, be_punctual, now, seconds, wait_until};
use super::histogram::Durations;
use super::protocol::Outcome;
use super::task::{Control, LOOK};
use crate::results::Distribution;
use anyhow::{Context, Result, bail, ensure};
use pcap_file::pcap::PcapParser;
use pcap_file::{DataLink, PcapError};
use rustix::io::Errno;
use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use sys::PacketSocket;

/// Sends the frames of a file out of a device, once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// A capture file of Ethernet frames, in the classic format.
    pub file: PathBuf,
    /// The device.
    pub device: String,
    /// The source address that all frames get: a switch learns where it is.
    pub source: [u8; 6],
    /// The destination address that all frames get.
    pub destination: [u8; 6],
    /// By how much faster than it was captured, above 0.
    pub speed: f64,
    /// The most seconds; the rest of the file is left out.
    pub seconds: f64,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replayed {
    /// Frames that the kernel took.
    pub sent: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Frames that the kernel refused: too long for the device, or its queue was full.
    pub refused: u64,
    /// Frames of the file that were cut when they were captured, and are not sent.
    pub cut: u64,
    /// Seconds from the first to the last.
    pub seconds: f64,
    /// How late frames were sent, µs.
    pub pacing: Option<Distribution>,
}

/// The largest file, in bytes.
const LARGEST: u64 = 1 << 30;

/// The longest frame: a segment of 64 KB.
const LONGEST: usize = 65_536 + 18;

/// Bytes of the two addresses of a frame, and the shortest one that has a type.
const ADDRESSES: usize = 12;
const SHORTEST: usize = 14;

/// Frames of a capture with their times after the first, in nanoseconds, and how many were cut.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// In the order of the file; never earlier than the one before.
    pub frames: Vec<(u64, Vec<u8>)>,
    /// Frames without their ends, or shorter than an Ethernet header.
    pub cut: u64,
}

/// Reads a capture of Ethernet frames in the classic format.
///
/// # Errors
/// It is none, ends within a frame, or has a frame longer than a segment.
pub fn read(file: &[u8]) -> Result<Recorded> {
    let (mut rest, parser) = PcapParser::new(file).map_err(|error| match error {
        PcapError::IncompleteBuffer => anyhow::anyhow!("not a capture file: shorter than the header of one"),
        _ => anyhow::anyhow!("not a capture file of the classic pcap format"),
    })?;
    let link = parser.header().datalink;
    ensure!(
        link == DataLink::ETHERNET,
        "a capture of {link:?}, not of Ethernet frames"
    );
    let mut recorded = Recorded::default();
    let (mut first, mut last, mut number) = (None, 0, 0_u64);
    while !rest.is_empty() {
        number += 1;
        let (after, packet) = parser
            .next_packet(rest)
            .map_err(|_| anyhow::anyhow!("frame {number} is cut short"))?;
        rest = after;
        ensure!(
            packet.data.len() <= LONGEST,
            "frame {number} is longer than {LONGEST} bytes"
        );
        let at = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
        let at = at.saturating_sub(*first.get_or_insert(at));
        // Captures of several processors may be a little out of order.
        last = last.max(at);
        if packet.data.len() < SHORTEST || packet.data.len() < packet.orig_len as usize {
            recorded.cut += 1;
            continue;
        }
        recorded.frames.push((last, packet.data.into_owned()));
    }
    Ok(recorded)
}

impl Replay {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        if !(self.speed > 0.0 && self.speed.is_finite()) {
            bail!("speed {}: a number above 0", self.speed);
        }
        let place = || self.file.display().to_string();
        let length = std::fs::metadata(&self.file).with_context(place)?.len();
        ensure!(length <= LARGEST, "{}: more than {LARGEST} bytes", place());
        let mut recorded = read(&std::fs::read(&self.file).with_context(place)?).with_context(place)?;
        for (_, frame) in &mut recorded.frames {
            frame[..6].copy_from_slice(&self.destination);
            frame[6..ADDRESSES].copy_from_slice(&self.source);
        }
        let socket = PacketSocket::new()?;
        let index = rustix::net::netdevice::name_to_index(&socket, &self.device)
            .with_context(|| format!("device {}", self.device))?;
        socket.bind(index, false)?;
        control.ready(Vec::new());
        let mut replayed = Replayed {
            cut: recorded.cut,
            ..Replayed::default()
        };
        if control.await_go() {
            be_punctual();
            self.send(&socket, &recorded, control, &mut replayed)?;
        }
        Ok(Outcome::Replayed(replayed))
    }

    fn send(
        &self,
        socket: &PacketSocket,
        recorded: &Recorded,
        control: &Control,
        replayed: &mut Replayed,
    ) -> Result<()> {
        let begin = now();
        let most = (self.seconds * SECOND as f64) as u64;
        let mut pacing = Durations::new();
        for (at, frame) in &recorded.frames {
            let due = (*at as f64 / self.speed) as u64;
            if due > most {
                break;
            }
            while now() < begin + due {
                wait_until((begin + due).min(now() + LOOK.as_nanos() as u64), 0);
                if control.stopped() {
                    break;
                }
            }
            if control.stopped() {
                break;
            }
            pacing.record(now() - (begin + due));
            match rustix::net::send(socket, frame, SendFlags::DONTWAIT) {
                Ok(_) => {
                    replayed.sent += 1;
                    replayed.bytes += frame.len() as u64;
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::MSGSIZE) => replayed.refused += 1,
                Err(error) => return Err(error).context("a packet socket"),
            }
        }
        replayed.seconds = seconds(now() - begin);
        replayed.pacing = pacing.distribution();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture of frames with their times in microseconds, their lengths, and their lengths
    /// before they were cut.
    fn capture(link: u32, frames: &[(u32, u32, u32)]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, link] {
            file.extend(word.to_le_bytes());
        }
        for &(micros, length, original) in frames {
            for word in [micros / 1_000_000, micros % 1_000_000, length, original] {
                file.extend(word.to_le_bytes());
            }
            file.extend(vec![7; length as usize]);
        }
        file
    }

    #[test]
    fn frames_are_read_with_their_distances_and_none_goes_back_in_time() {
        let file = capture(
            1,
            &[
                (5_000_000, 60, 60),
                (5_000_250, 100, 100),
                (5_000_200, 64, 64),
                (6_000_000, 60, 1514),
            ],
        );
        let recorded = read(&file).unwrap();
        let times: Vec<(u64, usize)> = recorded.frames.iter().map(|(at, frame)| (*at, frame.len())).collect();
        assert_eq!(times, [(0, 60), (250_000, 100), (250_000, 64)]);
        assert_eq!(recorded.cut, 1);
    }

    #[test]
    fn what_is_no_capture_of_ethernet_is_refused_with_the_reason() {
        let refused = |file: &[u8]| read(file).unwrap_err().to_string();
        assert!(refused(b"").contains("shorter than the header"));
        assert!(refused(&[0; 40]).contains("classic pcap format"));
        assert!(refused(&capture(113, &[])).contains("not of Ethernet"));
        let whole = capture(1, &[(0, 60, 60), (10, 60, 60)]);
        assert!(refused(&whole[..whole.len() - 1]).contains("frame 2 is cut short"));
        assert_eq!(read(&capture(1, &[(0, 13, 13)])).unwrap().cut, 1);
    }
}
