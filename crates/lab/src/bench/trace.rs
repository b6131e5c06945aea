//! The packets of a case: flows with addresses of their own, in files that both switches read.

use super::case::{Case, Distribution};
use super::tunnel;
use crate::stats::SplitMix;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Maximum packets of a file: DPDK keeps a file in one pool, and Open vSwitch makes none with more
/// than 262 144 buffers.
const MOST: usize = 250_000;

/// Maximum packets of all files with the same pool.
const TOGETHER: usize = 200_000;

/// Packets of a Zipf trace, at least.
const DRAWN: usize = 65_536;

/// Stations on either side.
pub(crate) const STATIONS: u32 = 100;

/// A flow's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) src: [u8; 6],
    pub(crate) dst: [u8; 6],
    pub(crate) nw_src: u32,
    pub(crate) nw_dst: u32,
    pub(crate) tp_src: u16,
    pub(crate) tp_dst: u16,
}

impl Flow {
    /// The flow of a number.
    pub(crate) fn new(number: usize) -> Flow {
        let n = number as u32;
        let mut random = SplitMix(u64::from(n));
        Flow {
            src: station(1, n % STATIONS),
            dst: station(2, n / STATIONS % STATIONS),
            nw_src: 0x0a00_0000 | n & 0x00ff_ffff,
            nw_dst: 0xac10_0000 | random.below(1 << 16) as u32,
            tp_src: 1024 + random.below(60_000) as u16,
            tp_dst: 1 + random.below(1000) as u16,
        }
    }

    /// The flow of a number, where every second one is the answer to the one before.
    fn of_connection(number: usize) -> Flow {
        let flow = Flow::new(number & !1);
        match number % 2 {
            0 => flow,
            _ => Flow {
                src: flow.dst,
                dst: flow.src,
                nw_src: flow.nw_dst,
                nw_dst: flow.nw_src,
                tp_src: flow.tp_dst,
                tp_dst: flow.tp_src,
            },
        }
    }

    /// Assigns its sender to one source, because a sender at several sources would move at every
    /// packet.
    fn sends_from(&mut self, source: usize) {
        self.src[2] = source as u8;
    }

    /// An UDP packet of the flow, with a tag of VLAN 100 if it is to have one.
    fn packet(&self, length: usize, tagged: bool) -> Vec<u8> {
        let mut packet = Vec::with_capacity(length);
        packet.extend(self.dst);
        packet.extend(self.src);
        if tagged {
            packet.extend([0x81, 0x00, 0, VLAN]);
        }
        packet.extend([0x08, 0x00]);
        let total = (length - packet.len()) as u16;
        ipv4_udp(
            &mut packet,
            total,
            [self.nw_src, self.nw_dst],
            [self.tp_src, self.tp_dst],
        );
        packet.resize(length, 0);
        packet
    }
}

/// Appends the headers of an IPv4 packet of `total` bytes with a datagram that has no checksum.
pub(crate) fn ipv4_udp(packet: &mut Vec<u8>, total: u16, addresses: [u32; 2], ports: [u16; 2]) {
    let ip = packet.len();
    packet.extend([0x45, 0]);
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(addresses.map(u32::to_be_bytes).concat());
    let checksum = wire::checksum::checksum(&packet[ip..]);
    packet[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(ports.map(u16::to_be_bytes).concat());
    packet.extend((total - 20).to_be_bytes());
    packet.extend([0, 0]);
}

/// The addresses that packets go to.
pub(crate) fn targets() -> impl Iterator<Item = wire::MacAddr> {
    (0..STATIONS).map(|number| wire::MacAddr(station(2, number)))
}

/// The tag of tagged packets.
pub(crate) const VLAN: u8 = 100;

fn station(side: u8, number: u32) -> [u8; 6] {
    let [_, _, high, low] = number.to_be_bytes();
    [0x02, side, 0, 0, high, low]
}

/// The packets of a case in files, a source each.
pub(crate) struct Traces {
    /// The repeated input: a file for each source.
    pub(crate) sources: Vec<PathBuf>,
    /// Sources need pools of buffers of their own.
    pub(crate) apart: bool,
}

/// Writes the files of a case.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(case: &Case, directory: &Path) -> Result<Traces> {
    let order = order(case);
    let sources = case.workers.max(order.len().div_ceil(MOST));
    let mut files = Vec::new();
    let tagged = case.rules.wants_tags();
    for source in 0..sources {
        let share = order.len() * source / sources..order.len() * (source + 1) / sources;
        // One flow for two workers: each gets it.
        let share = if share.is_empty() { 0..1 } else { share };
        let packets = order[share].iter().enumerate().map(|(n, flow)| {
            let mut flow = match case.rules.wants_answers() {
                true => Flow::of_connection(*flow as usize),
                false => Flow::new(*flow as usize),
            };
            if case.rules.learns() {
                flow.sends_from(source);
            }
            let packet = flow.packet(case.size.of(n), tagged);
            match case.rules.wants_outer_headers() {
                true => tunnel::vxlan(&packet, flow.tp_src),
                false => packet,
            }
        });
        let path = directory.join(format!("source{}.pcap", source + 1));
        save(&path, packets)?;
        files.push(path);
    }
    Ok(Traces {
        sources: files,
        apart: order.len() > TOGETHER,
    })
}

/// The flows that packets belong to, in their order; the same for the same case.
fn order(case: &Case) -> Vec<u32> {
    let mut random = SplitMix(6);
    let flows = case.flows.max(1);
    if case.distribution == Distribution::Uniform {
        let mut order: Vec<u32> = (0..flows as u32).collect();
        for place in (1..flows).rev() {
            order.swap(place, random.below(place + 1));
        }
        return order;
    }
    let mut sum = 0.0;
    let up_to: Vec<f64> = (1..=flows)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let draw = |_| {
        let at = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * sum;
        up_to.partition_point(|up_to| *up_to <= at).min(flows - 1) as u32
    };
    (0..flows.max(DRAWN)).map(draw).collect()
}

fn save(path: &Path, packets: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        file.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
        file.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0])?;
        for packet in packets {
            let length = (packet.len() as u32).to_le_bytes();
            file.write_all(&[0; 8])?;
            file.write_all(&length)?;
            file.write_all(&length)?;
            file.write_all(&packet)?;
        }
        file.flush()
    };
    write().with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::super::case::Size;
    use super::*;
    use crate::bench::rules::Rules;
    use std::collections::{HashMap, HashSet};

    fn case(flows: usize, distribution: Distribution) -> Case {
        Case {
            rules: Rules::Port,
            flows,
            distribution,
            size: Size::B60,
            workers: 1,
        }
    }

    #[test]
    fn flows_differ_in_what_makes_a_flow() {
        let flows: HashSet<_> = (0..100_000)
            .map(Flow::new)
            .map(|flow| (flow.nw_src, flow.nw_dst, flow.tp_src, flow.tp_dst))
            .collect();
        assert_eq!(flows.len(), 100_000);
    }

    #[test]
    fn a_uniform_trace_has_every_flow_once_and_is_shuffled() {
        let order = order(&case(10_000, Distribution::Uniform));
        assert_eq!(order.iter().collect::<HashSet<_>>().len(), 10_000);
        let neighbours = order.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(neighbours < 20, "{neighbours}");
    }

    #[test]
    fn the_first_flow_of_a_zipf_trace_has_twice_the_packets_of_the_second() {
        let mut counts = HashMap::new();
        for flow in order(&case(1000, Distribution::Zipf)) {
            *counts.entry(flow).or_insert(0.0) += 1.0;
        }
        let ratio: f64 = counts[&0] / counts[&1];
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
        assert!(counts.len() > 900);
    }

    #[test]
    fn a_million_flows_come_from_four_sources_and_nothing_is_lost_between_them() {
        let directory = tempfile::tempdir().unwrap();
        let traces = write(&case(1_000_000, Distribution::Uniform), directory.path()).unwrap();
        assert!(traces.apart && traces.sources.len() == 4);
        let bytes: u64 = traces.sources.iter().map(|file| file.metadata().unwrap().len()).sum();
        assert_eq!(bytes, 4 * 24 + 1_000_000 * 76);
    }

    #[test]
    fn packets_have_valid_checksums_and_the_length_asked_for() {
        let packet = Flow::new(7).packet(512, true);
        assert_eq!(packet.len(), 512);
        assert_eq!(packet[12..18], [0x81, 0, 0, VLAN, 8, 0]);
        assert_eq!(wire::checksum::checksum(&packet[18..38]), 0);
    }
}
