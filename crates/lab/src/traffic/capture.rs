//! Counts the frames that arrive at a host by kind: evidence independent of the sending and
//! receiving programs.

use super::clock::{SECOND, now, seconds};
use super::coverage::Coverage;
use super::protocol::Outcome;
use super::task::{Control, LOOK};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};
use sys::{PacketSocket, timed};
use wire::headers::{Frag, behind_tags, ipv4_header};
use wire::{EtherType, MacAddr};

/// Counts the frames that arrive at a device until it is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// The device.
    #[serde(default = "device")]
    pub device: String,
    /// Frames that the host sends count too.
    #[serde(default)]
    pub outgoing: bool,
    /// Maximum number of kinds.
    #[serde(default = "most")]
    pub most: usize,
}

fn device() -> String {
    "eth0".to_owned()
}

fn most() -> usize {
    5000
}

impl Default for Capture {
    fn default() -> Capture {
        Capture {
            device: device(),
            outgoing: false,
            most: most(),
        }
    }
}

/// The result of a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Captured {
    /// By kind, in an order that is the same for the same kinds.
    pub seen: Vec<Seen>,
    /// Frames beyond the maximum number of kinds.
    pub others: u64,
    /// Frames that were not looked at, as too many waited.
    pub dropped: u64,
    /// How long it lasted.
    pub seconds: f64,
}

/// Frames of a kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Which.
    pub kind: FrameKind,
    /// Number of frames. A large segment (up to 64 KB, on a cable with segmentation offload) counts
    /// as one.
    pub frames: u64,
    /// From the destination's address to the end of the payload.
    pub bytes: u64,
    /// For TCP and UDP: the payload bytes.
    pub payload: u64,
    /// Of TCP: bytes of that payload whose sequence numbers had been seen before. They were sent
    /// again.
    #[serde(default)]
    pub again: u64,
    /// When the first arrived, in seconds since the capture began.
    pub first: f64,
    /// When the last did.
    pub last: f64,
}

/// The kind of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FrameKind {
    /// Source address, as `02:00:00:01:00:01`.
    pub source: String,
    /// Destination address.
    pub destination: String,
    /// Number of the VLAN of its tag.
    pub vlan: Option<u16>,
    /// EtherType (or the length of an IEEE 802.3 frame), behind a tag.
    pub ether_type: u16,
    /// Of ARP: 1 for a request, 2 for a reply.
    pub arp: Option<u16>,
    /// The sender in IPv4 or ARP.
    pub from: Option<Ipv4Addr>,
    /// The receiver in IPv4, the one that is looked for in ARP.
    pub to: Option<Ipv4Addr>,
    /// Protocol of IPv4.
    pub protocol: Option<u8>,
    /// Ports of TCP and UDP: source, destination. Not of a fragment behind the first.
    pub ports: Option<(u16, u16)>,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Bytes of frames that wait to be looked at, by the kernel's count.
const BUFFER: i32 = 64 << 20;

/// The most bytes of a frame that are received: of longer ones, their headers say how long they
/// are.
const SNAP: usize = 2048;

impl Capture {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        let socket = self.open()?;
        control.ready(Vec::new());
        // Frames have the kernel's times, by the system's clock: this thread may read one a
        // millisecond later.
        let (begun, begun_there) = (now(), since_1970());
        let mut kinds: BTreeMap<FrameKind, (Seen, Coverage)> = BTreeMap::new();
        let mut captured = Captured::default();
        let mut buffer = vec![0; SNAP];
        loop {
            // Frames in the socket at the stop arrived before it.
            let stopped = control.stopped();
            loop {
                let (received, arrived) = match timed::receive(socket.as_fd(), &mut buffer) {
                    Ok(received) => received,
                    Err(error) => match Errno::from_io_error(&error) {
                        Some(Errno::AGAIN | Errno::INTR | Errno::NETDOWN) => break,
                        _ => return Err(error).context("a packet socket"),
                    },
                };
                let Some(Looked {
                    kind,
                    bytes,
                    payload,
                    sequence,
                }) = look(&buffer[..received.len], received.vlan)
                else {
                    captured.others += 1;
                    continue;
                };
                if kinds.len() >= self.most && !kinds.contains_key(&kind) {
                    captured.others += 1;
                    continue;
                }
                let at = match arrived {
                    Some(arrived) => arrived.saturating_sub(begun_there).as_secs_f64(),
                    None => seconds(now() - begun),
                };
                let (seen, coverage) = kinds.entry(kind).or_insert_with_key(|kind| {
                    let seen = Seen {
                        kind: kind.clone(),
                        frames: 0,
                        bytes: 0,
                        payload: 0,
                        again: 0,
                        first: at,
                        last: at,
                    };
                    (seen, Coverage::default())
                });
                seen.frames += 1;
                seen.bytes += bytes;
                seen.payload += payload;
                if let Some(sequence) = sequence {
                    seen.again += payload - coverage.add(sequence, payload);
                }
                seen.last = seen.last.max(at);
            }
            if stopped {
                break;
            }
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: (LOOK.as_nanos() as u64 % SECOND) as _,
            };
            // Interrupted, it looks earlier.
            let _ = poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&wait));
        }
        captured.dropped = u64::from(socket.take_statistics()?.drops);
        captured.seconds = seconds(now() - begun);
        captured.seen = kinds.into_values().map(|(seen, _)| seen).collect();
        Ok(Outcome::Captured(captured))
    }

    fn open(&self) -> Result<PacketSocket> {
        let socket = PacketSocket::new()?;
        socket.enable_auxdata()?;
        timed::enable(socket.as_fd())?;
        socket.set_receive_buffer(BUFFER)?;
        if !self.outgoing {
            socket.ignore_outgoing()?;
        }
        let index = rustix::net::netdevice::name_to_index(&socket, &self.device);
        let index = index.with_context(|| format!("device {}", self.device))?;
        socket.bind(index, true)?;
        // Also frames for other hosts, which a capture must see.
        socket.join_promiscuous(index)?;
        Ok(socket)
    }
}

/// The system's clock.
fn since_1970() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// The parsed headers of a frame.
struct Looked {
    kind: FrameKind,
    /// Its length.
    bytes: u64,
    /// The length of its payload behind TCP or UDP.
    payload: u64,
    /// The sequence number of the payload's first byte, of TCP.
    sequence: Option<u32>,
}

/// Looks at the beginning of a frame; `None` if it is too short to be one.
fn look(frame: &[u8], tag: Option<(u16, u16)>) -> Option<Looked> {
    let mut vlan = tag.map(|(_, tci)| tci & 0xfff);
    let (EtherType(ether_type), start) = behind_tags(frame, usize::from(tag.is_none()))?;
    let rest = frame.get(start..)?;
    let header = start as u64 + if tag.is_some() { 4 } else { 0 };
    if start > 14 {
        vlan = Some(half(frame, 14)? & 0xfff);
    }
    let mut kind = FrameKind {
        source: MacAddr(*frame.get(6..)?.first_chunk()?).to_string(),
        destination: MacAddr(*frame.first_chunk()?).to_string(),
        vlan,
        ether_type,
        ..FrameKind::default()
    };
    let mut length = rest.len() as u64;
    let (mut payload, mut sequence) = (0, None);
    if ether_type == EtherType::ARP.0 {
        kind.arp = half(rest, 6);
        kind.from = address(rest, 14);
        kind.to = address(rest, 24);
    } else if ether_type == EtherType::IPV4.0 {
        let (addresses, ip) = ipv4_header(rest)?;
        // A short frame is padded; a long one is not all here.
        length = length.max(ip.end as u64);
        kind.protocol = Some(ip.protocol);
        kind.from = address(addresses, 12);
        kind.to = address(addresses, 16);
        let behind = ip.frag == Frag::Later;
        let transport = rest.get(ip.start..).unwrap_or_default();
        let headers = match ip.protocol {
            TCP if !behind => transport.get(12).map(|byte| usize::from(byte >> 4) * 4),
            UDP if !behind => Some(8),
            TCP | UDP => Some(0),
            _ => None,
        };
        if let Some(headers) = headers {
            payload = ip.end.saturating_sub(ip.start + headers) as u64;
            if !behind {
                kind.ports = half(transport, 0).zip(half(transport, 2));
                sequence = number(transport).filter(|_| ip.protocol == TCP);
            }
        }
    }
    Some(Looked {
        kind,
        bytes: header + length,
        payload,
        sequence,
    })
}

/// The sequence number in TCP's header; a segment that opens a connection has one of its own,
/// before the first byte's.
fn number(transport: &[u8]) -> Option<u32> {
    let opens = u32::from(transport.get(13)? & 2 != 0);
    Some(u32::from_be_bytes(*transport.get(4..)?.first_chunk()?).wrapping_add(opens))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn address(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(*bytes.get(at..)?.first_chunk::<4>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ether_type: u16, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];
        frame.extend(ether_type.to_be_bytes());
        frame.extend(rest);
        frame
    }

    /// An IPv4 packet with this total length.
    fn ipv4(protocol: u8, total: u16, fragment: u16, transport: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0];
        packet.extend(total.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(transport);
        packet
    }

    #[test]
    fn who_asks_for_whom_in_arp_is_seen() {
        let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
        arp.extend([2, 0, 0, 0, 0, 1, 192, 168, 0, 150, 0, 0, 0, 0, 0, 0, 192, 168, 0, 152]);
        let Looked { kind, bytes, .. } = look(&frame(0x806, &arp), Some((0x8100, 0x600a))).unwrap();
        assert_eq!((kind.arp, kind.vlan), (Some(1), Some(10)));
        assert_eq!(kind.from, Some(Ipv4Addr::new(192, 168, 0, 150)));
        assert_eq!(kind.to, Some(Ipv4Addr::new(192, 168, 0, 152)));
        assert_eq!(
            (kind.source.as_str(), kind.destination.as_str()),
            ("02:00:00:00:00:01", "ff:ff:ff:ff:ff:ff")
        );
        assert_eq!(bytes, 46);
    }

    #[test]
    fn a_payload_is_as_long_as_the_headers_say_though_the_frame_is_padded_or_not_all_here() {
        let udp = [0x10, 0, 0x20, 0, 0, 9, 0, 0, 7];
        let mut padded = ipv4(UDP, 29, 0, &udp);
        padded.resize(46, 0);
        let udp = look(&frame(0x800, &padded), None).unwrap();
        assert_eq!(
            (udp.bytes, udp.payload, udp.kind.ports),
            (60, 1, Some((0x1000, 0x2000)))
        );
        assert_eq!(udp.sequence, None);
        let mut tcp = [0; 32];
        (tcp[7], tcp[12]) = (9, 0x80);
        let segment = look(&frame(0x800, &ipv4(TCP, 40_000, 0, &tcp)), None).unwrap();
        assert_eq!((segment.bytes, segment.payload), (40_014, 40_000 - 52));
        assert_eq!(segment.sequence, Some(9));
        tcp[13] = 2;
        let opens = look(&frame(0x800, &ipv4(TCP, 52, 0, &tcp)), None).unwrap();
        assert_eq!((opens.payload, opens.sequence), (0, Some(10)));
    }

    #[test]
    fn a_later_fragment_has_no_ports_and_is_all_payload() {
        let Looked { kind, payload, .. } = look(&frame(0x800, &ipv4(UDP, 120, 185, &[0; 100])), None).unwrap();
        assert_eq!((kind.ports, payload), (None, 100));
    }

    #[test]
    fn a_tag_in_the_frame_counts_as_one_beside_it() {
        let inner = [&[0x20, 0x0a, 0x08, 0x00][..], &ipv4(1, 28, 0, &[0; 8])].concat();
        let inside = look(&frame(0x8100, &inner), None).unwrap();
        let beside = look(&frame(0x800, &ipv4(1, 28, 0, &[0; 8])), Some((0x8100, 0x200a))).unwrap();
        assert_eq!((&inside.kind, inside.bytes), (&beside.kind, beside.bytes));
        assert_eq!(inside.kind.vlan, Some(10));
    }

    #[test]
    fn what_is_cut_anywhere_is_no_panic() {
        let whole = frame(0x800, &ipv4(TCP, 60, 0, &[0; 20]));
        for end in 0..whole.len() {
            let _ = look(&whole[..end], None);
        }
        assert!(look(&whole[..13], None).is_none());
    }
}
