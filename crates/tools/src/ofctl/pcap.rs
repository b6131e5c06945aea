//! `ofp-parse-pcap`: the OpenFlow messages in captured TCP streams.

use super::Ctl;
use super::monitor::MOMENT;
use super::out::Out;
use crate::common::Failure;
use mgmt::os_text;
use openflow::text::print::message_to;
use pcap_file::TsResolution;
use pcap_file::pcap::PcapParser;
use std::collections::HashMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use wire::EtherType;
use wire::headers::behind_tags;

/// The ports of OpenFlow, unless others are named.
const PORTS: [u16; 2] = [6653, 6633];

/// One direction of a connection: addresses and ports of both ends.
type Flow = (Ipv4Addr, u16, Ipv4Addr, u16);

/// The bytes of a direction that are not a whole message yet.
#[derive(Default)]
struct Stream {
    next: Option<u32>,
    bytes: Vec<u8>,
    /// Out-of-order segments.
    early: Vec<(u32, Vec<u8>)>,
}

impl Stream {
    fn take(&mut self, sequence: u32, syn: bool, data: &[u8]) {
        if syn {
            *self = Stream {
                next: Some(sequence.wrapping_add(1)),
                ..Stream::default()
            };
            return;
        }
        self.early.push((sequence, data.to_vec()));
        let mut next = *self.next.get_or_insert(sequence);
        loop {
            let found = self.early.iter().position(|(at, data)| {
                let behind = next.wrapping_sub(*at);
                behind < 1 << 31 && (behind as usize) <= data.len()
            });
            let Some(found) = found else { break };
            let (at, data) = self.early.swap_remove(found);
            let fresh = &data[next.wrapping_sub(at) as usize..];
            self.bytes.extend_from_slice(fresh);
            next = next.wrapping_add(fresh.len() as u32);
        }
        self.next = Some(next);
    }
}

/// The module that logs.
const MODULE: &str = "pcap";
/// The status of a failure to open a file that ends too early.
const EARLY_END: u8 = 255;
/// The status of a failure to open a file that is no capture: `EPROTO`.
const NO_CAPTURE: u8 = 71;
const FILE_HEADER: usize = 24;

fn failed(name: &str, why: &str, status: u8) -> Failure {
    Failure {
        message: format!("{name}: open failed ({why})"),
        status,
    }
}

/// The bytes of a file of captured packets.
pub(super) fn read(name: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(name).map_err(|e| {
        let why = os_text(&e);
        tracing::warn!(target: MODULE, "{name}: failed to open pcap file for reading ({why})");
        failed(name, &why, e.raw_os_error().map_or(1, |number| number as u8))
    })
}

/// The packets in a file, and their format.
pub(super) fn open<'a>(name: &str, data: &'a [u8]) -> Result<(&'a [u8], PcapParser), Failure> {
    if data.len() < FILE_HEADER {
        tracing::warn!(target: MODULE, "failed to read pcap header: End of file");
        return Err(failed(name, "End of file", EARLY_END));
    }
    PcapParser::new(data).map_err(|_| {
        let magic = data
            .iter()
            .take(4)
            .rev()
            .fold(0u32, |n, byte| n << 8 | u32::from(*byte));
        tracing::warn!(
            target: MODULE,
            "bad magic 0x{magic:08x} reading pcap file (expected 0xa1b2c3d4, 0xa1b23c4d, 0xd4c3b2a1, or 0x4d3cb2a1)"
        );
        failed(name, "Protocol error", NO_CAPTURE)
    })
}

/// Logs that a file ends within a packet.
pub(super) fn cut_off() {
    tracing::warn!(target: MODULE, "failed to read pcap packet: End of file");
}

pub(super) fn ofp_parse_pcap(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let file = &args[0];
    let ports: Vec<u16> = match &args[1..] {
        [] => PORTS.to_vec(),
        words => words.iter().filter_map(|word| word.parse().ok()).collect(),
    };
    // Whatever the failure, the status is 1.
    let plain = |failure: Failure| Failure::new(failure.message);
    let data = read(file).map_err(plain)?;
    let (mut rest, parser) = open(file, &data).map_err(plain)?;
    let per_milli = match parser.header().ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1_000_000,
    };
    let mut streams: HashMap<Flow, Stream> = HashMap::new();
    let mut out = Out::default();
    let mut printed = false;
    while let Ok((after, packet)) = parser.next_raw_packet(rest) {
        rest = after;
        let Some((flow, sequence, syn, payload)) = segment(&packet.data) else {
            continue;
        };
        if !ports.contains(&flow.1) && !ports.contains(&flow.3) {
            continue;
        }
        let stream = streams.entry(flow).or_default();
        stream.take(sequence, syn, payload);
        let mut at = 0;
        while let Some([a, b]) = stream.bytes.get(at + 2..at + 4).and_then(|b| b.first_chunk()) {
            let len = usize::from(u16::from_be_bytes([*a, *b]));
            let Some(message) = stream.bytes.get(at..at + len.max(8)) else {
                break;
            };
            if ctl.options.timestamp {
                let moment = i64::from(packet.ts_sec) * 1000 + i64::from(packet.ts_frac / per_milli);
                let _ = write!(out.text, "{} ", telemetry::timestamp_of(moment, MOMENT));
            }
            if printed {
                out.text.push('\n');
            }
            printed = true;
            let (from, from_port, to, to_port) = flow;
            let _ = writeln!(out.text, "{from}.{from_port} > {to}.{to_port}:");
            message_to(&mut out.text, message, None, ctl.options.verbosity.saturating_add(1));
            at += message.len();
        }
        stream.bytes.drain(..at);
        out.flow()?;
    }
    out.flush()
}

/// The TCP segment in a frame: its direction, sequence number, SYN flag and payload.
fn segment(frame: &[u8]) -> Option<(Flow, u32, bool, &[u8])> {
    let half = |data: &[u8], at: usize| data.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let (kind, at) = behind_tags(frame, usize::MAX)?;
    let ip = Some(&frame[at..]).filter(|_| kind == EtherType::IPV4)?;
    if ip.get(9)? != &6 {
        return None;
    }
    let ip = ip.get(..usize::from(half(ip, 2)?))?;
    let address = |at: usize| ip.get(at..at + 4)?.first_chunk::<4>().map(|b| Ipv4Addr::from(*b));
    let (from, to) = (address(12)?, address(16)?);
    let tcp = ip.get(usize::from(ip[0] & 15) * 4..)?;
    let sequence = u32::from_be_bytes(*tcp.get(4..8)?.first_chunk()?);
    let payload = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?;
    let syn = tcp.get(13)? & 2 != 0;
    Some(((from, half(tcp, 0)?, to, half(tcp, 2)?), sequence, syn, payload))
}
