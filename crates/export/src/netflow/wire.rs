//! The datagram: a header of 24 bytes and records of 48.

use super::Flow;
use nanos::Nanos;
use std::time::Duration;

/// Records of a datagram.
pub(super) const MOST_RECORDS: usize = 30;

const ICMP: u8 = 1;

pub(super) struct Header {
    pub(super) uptime: Duration,
    /// The time since 1970.
    pub(super) wall: Duration,
    /// The number of records before those of the datagram.
    pub(super) sequence: u32,
    /// Type and number.
    pub(super) engine: (u8, u8),
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) flow: Flow,
    pub(super) input: u16,
    pub(super) output: u16,
    pub(super) packets: u32,
    pub(super) bytes: u32,
    pub(super) tcp_flags: u8,
    pub(super) first: Nanos,
    pub(super) last: Nanos,
}

impl Header {
    /// The datagram; times count from `boot`.
    pub(super) fn datagram(&self, records: &[Record], boot: Nanos) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + 48 * records.len());
        out.extend(5u16.to_be_bytes());
        out.extend((records.len() as u16).to_be_bytes());
        out.extend((self.uptime.as_millis() as u32).to_be_bytes());
        out.extend((self.wall.as_secs() as u32).to_be_bytes());
        out.extend(self.wall.subsec_nanos().to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend([self.engine.0, self.engine.1]);
        // Every packet is counted.
        out.extend([0; 2]);
        for record in records {
            record.encode(&mut out, boot);
        }
        out
    }
}

impl Record {
    fn encode(&self, out: &mut Vec<u8>, boot: Nanos) {
        let flow = &self.flow;
        let ports = match flow.protocol {
            ICMP => (0, (flow.src_port & 0xff) << 8 | flow.dst_port & 0xff),
            _ => (flow.src_port, flow.dst_port),
        };
        out.extend(flow.src.octets());
        out.extend(flow.dst.octets());
        // No next hop.
        out.extend([0; 4]);
        out.extend(self.input.to_be_bytes());
        out.extend(self.output.to_be_bytes());
        out.extend(self.packets.to_be_bytes());
        out.extend(self.bytes.to_be_bytes());
        for time in [self.first, self.last] {
            out.extend((time.since(boot).as_millis() as u32).to_be_bytes());
        }
        out.extend(ports.0.to_be_bytes());
        out.extend(ports.1.to_be_bytes());
        out.extend([0, self.tcp_flags, flow.protocol, flow.tos]);
        // No autonomous systems, no lengths of prefixes.
        out.extend([0; 8]);
    }
}
