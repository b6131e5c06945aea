//! A data record: what tells a flow from others, and its counts.

use super::template::{Kind, Network, Protocol};
use super::{Addresses, Interface, Sample, Transport};
use nanos::Nanos;

/// The fields that tell a flow from others, in the order of its template.
pub(super) fn key(sample: &Sample<'_>, virtual_obs_id: &str) -> Vec<u8> {
    const UNTAGGED: u8 = 14;
    const TAGGED: u8 = 18;
    let headers = &sample.headers;
    let mut out = Vec::with_capacity(96);
    out.extend(sample.point.to_be_bytes());
    out.push(u8::from(sample.leaves));
    out.extend(headers.eth_src);
    out.extend(headers.eth_dst);
    out.extend(headers.eth_type.to_be_bytes());
    out.push(if headers.tci.is_some() { TAGGED } else { UNTAGGED });
    interface(&mut out, &sample.input);
    if let Some(output) = &sample.output {
        interface(&mut out, output);
    }
    if let Some(tci) = headers.tci {
        let vid = (tci & 0xfff).to_be_bytes();
        out.extend(vid);
        out.extend(vid);
        out.push((tci >> 13) as u8);
    }
    if let Some(ip) = &headers.ip {
        let version = if matches!(ip.addresses, Addresses::V4(..)) {
            4
        } else {
            6
        };
        out.extend([version, ip.ttl, ip.protocol, ip.tos >> 2, ip.tos >> 5, ip.tos]);
        match ip.addresses {
            Addresses::V4(src, dst) => {
                out.extend(src.octets());
                out.extend(dst.octets());
            }
            Addresses::V6(src, dst, label) => {
                out.extend(src.octets());
                out.extend(dst.octets());
                out.extend(label.to_be_bytes());
            }
        }
        match ip.transport {
            Transport::Other => {}
            Transport::Tcp(src, dst, _) | Transport::Udp(src, dst) | Transport::Sctp(src, dst) => {
                out.extend(src.to_be_bytes());
                out.extend(dst.to_be_bytes());
            }
            Transport::Icmp(kind, code) => out.extend([kind, code]),
        }
    }
    if let Some(told) = &sample.tunnel
        && let Some((src, dst, encapsulation)) = told.of_ipfix()
    {
        out.extend(src.octets());
        out.extend(dst.octets());
        out.push(told.protocol);
        out.extend(told.src_port.to_be_bytes());
        out.extend(told.dst_port.to_be_bytes());
        out.push(encapsulation as u8);
        let key = told.key.to_be_bytes();
        let key = &key[key.len() - encapsulation.key_len()..];
        out.push(key.len() as u8);
        out.extend(key);
    }
    if !virtual_obs_id.is_empty() {
        text(&mut out, virtual_obs_id);
    }
    out
}

/// Number, type (which is not told), name and description.
fn interface(out: &mut Vec<u8>, interface: &Interface<'_>) {
    out.extend(interface.ifindex.to_be_bytes());
    out.extend([0; 4]);
    text(out, interface.name);
    text(out, "");
}

/// A field of variable length, which stands before it (RFC 7011 §7).
fn text(out: &mut Vec<u8>, text: &str) {
    const MOST: usize = 254;
    let bytes = &text.as_bytes()[..text.len().min(MOST)];
    out.push(bytes.len() as u8);
    out.extend(bytes);
}

/// The counts of a flow.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    first: Nanos,
    last: Nanos,
    packets: u64,
    octets_of_frames: u64,
    dropped_packets: u64,
    /// Received: to one, to several, to all stations.
    received: [u64; 3],
    /// Sent: to one station, to all.
    sent: [u64; 2],
    sent_to_several: u64,
    octets: u64,
    octets_squared: u64,
    dropped_octets: u64,
    octets_to_several: u64,
    shortest: u64,
    longest: u64,
    /// Acknowledgement, end, push, reset, beginning, urgent: packets with each TCP flag.
    flags: [u64; 6],
}

impl Counts {
    pub(super) fn new(now: Nanos) -> Counts {
        Counts {
            first: now,
            last: now,
            packets: 0,
            octets_of_frames: 0,
            dropped_packets: 0,
            received: [0; 3],
            sent: [0; 2],
            sent_to_several: 0,
            octets: 0,
            octets_squared: 0,
            dropped_octets: 0,
            octets_to_several: 0,
            shortest: u64::MAX,
            longest: 0,
            flags: [0; 6],
        }
    }

    pub(super) fn add(&mut self, sample: &Sample<'_>, now: Nanos) {
        const FLAGS: [u8; 6] = [0x10, 0x01, 0x08, 0x04, 0x02, 0x20];
        let weight = sample.weight;
        let dst = sample.headers.eth_dst;
        let to_all = dst == [0xff; 6];
        let to_several = dst[0] & 1 != 0 && !to_all;
        self.last = now;
        self.packets += weight;
        self.octets_of_frames += weight * sample.len as u64;
        if sample.dropped {
            self.dropped_packets += weight;
        }
        match (sample.leaves, to_several, to_all) {
            (false, several, all) => self.received[usize::from(several) + 2 * usize::from(all)] += weight,
            (true, true, _) => self.sent_to_several += weight,
            (true, false, all) => self.sent[usize::from(all)] += weight,
        }
        let Some(ip) = &sample.headers.ip else { return };
        let len = u64::from(ip.len);
        self.octets += weight * len;
        self.octets_squared = self.octets_squared.saturating_add(weight * len * len);
        (self.shortest, self.longest) = (self.shortest.min(len), self.longest.max(len));
        if sample.dropped {
            self.dropped_octets += weight * len;
        }
        if sample.leaves && to_several {
            self.octets_to_several += weight * len;
        }
        if let Transport::Tcp(_, _, flags) = ip.transport {
            for (count, flag) in self.flags.iter_mut().zip(FLAGS) {
                *count += weight * u64::from(flags & flag != 0);
            }
        }
    }

    /// Appends the counts. A flow ends with its record, so its totals are what came since.
    pub(super) fn encode(&self, out: &mut Vec<u8>, kind: Kind, now: Nanos, why: u8) {
        for time in [self.first, self.last] {
            let ago = u32::try_from(now.since(time).as_micros()).unwrap_or(u32::MAX);
            out.extend(ago.to_be_bytes());
        }
        let mut all = |counts: &[u64]| counts.iter().for_each(|count| out.extend(count.to_be_bytes()));
        all(&[self.dropped_packets, self.dropped_packets, self.packets, self.packets]);
        all(&self.received);
        all(&self.sent);
        all(&[self.sent_to_several, self.sent_to_several]);
        all(&[self.octets_of_frames, self.octets_of_frames]);
        out.push(why);
        let mut all = |counts: &[u64]| counts.iter().for_each(|count| out.extend(count.to_be_bytes()));
        if kind.network != Network::Other {
            all(&[self.dropped_octets, self.dropped_octets, self.octets, self.octets]);
            all(&[self.octets_squared, self.octets_squared, self.shortest, self.longest]);
            all(&[self.octets_to_several, self.octets_to_several]);
        }
        if kind.transport == Protocol::Tcp {
            all(&self.flags);
        }
    }
}
