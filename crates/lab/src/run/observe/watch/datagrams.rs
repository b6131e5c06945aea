//! The datagrams of exporters, as far as their counts of UDP go: sFlow version 5, NetFlow version
//! 5, IPFIX (RFC 7011).

use std::collections::BTreeMap;

const UDP: u8 = 17;
/// IPFIX's information elements (RFC 7012).
const OCTETS: u16 = 1;
const PACKETS: u16 = 2;
const PROTOCOL: u16 = 4;
const DIRECTION: u16 = 61;

/// What a collector has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Packets that the exporter tells of: samples times their rate, or counted ones.
    pub(super) packets: u64,
    /// Bytes of counted flows, with IP headers.
    pub(super) bytes: u64,
    /// Samples that the switch has dropped, as it says.
    pub(super) dropped: u64,
    /// IPFIX's templates: elements and their lengths, by number.
    templates: BTreeMap<u16, Vec<(u16, usize)>>,
}

impl Tally {
    /// Counts a datagram; one that is cut off counts as far as it goes.
    pub(super) fn read(&mut self, data: &[u8]) {
        let read = match data {
            [0, 0, 0, 5, ..] => self.sflow(data),
            [0, 5, ..] => self.netflow(data),
            [0, 10, ..] => self.ipfix(data),
            _ => None,
        };
        // What is cut off says no more.
        let _ = read;
    }

    fn sflow(&mut self, data: &[u8]) -> Option<()> {
        let address = if u32_at(data, 4)? == 1 { 4 } else { 16 };
        let head = 8 + address + 12;
        let samples = u32_at(data, head)?;
        let mut rest = data.get(head + 4..)?;
        for _ in 0..samples {
            let (kind, len) = (u32_at(rest, 0)?, u32_at(rest, 4)? as usize);
            let sample = rest.get(8..8 + len)?;
            rest = &rest[8 + len..];
            // Flow samples, and expanded ones.
            let source = match kind {
                1 => 4,
                3 => 8,
                _ => continue,
            };
            let rate = u32_at(sample, 4 + source)?;
            self.dropped = u32_at(sample, 4 + source + 8)?.into();
            let ports = if kind == 1 { 8 } else { 16 };
            let records = 4 + source + 12 + ports;
            let mut records_left = u32_at(sample, records)?;
            let mut at = sample.get(records + 4..)?;
            while records_left > 0 {
                records_left -= 1;
                let (kind, len) = (u32_at(at, 0)?, u32_at(at, 4)? as usize);
                let record = at.get(8..8 + len)?;
                at = &at[8 + len..];
                if kind == 1 && is_udp(record.get(16..)?) {
                    self.packets += u64::from(rate);
                }
            }
        }
        Some(())
    }

    fn netflow(&mut self, data: &[u8]) -> Option<()> {
        for record in data.get(24..)?.chunks_exact(48) {
            if record[38] == UDP {
                self.packets += u64::from(u32_at(record, 16)?);
                self.bytes += u64::from(u32_at(record, 20)?);
            }
        }
        Some(())
    }

    fn ipfix(&mut self, data: &[u8]) -> Option<()> {
        let mut rest = data.get(16..)?;
        while rest.len() >= 4 {
            let (id, len) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
            let set = rest.get(4..len)?;
            rest = &rest[len..];
            match id {
                2 => self.template(set)?,
                256.. => self.records(id, set)?,
                _ => {}
            }
        }
        Some(())
    }

    fn template(&mut self, mut set: &[u8]) -> Option<()> {
        while set.len() >= 4 {
            let (id, count) = (u16_at(set, 0)?, u16_at(set, 2)?);
            set = &set[4..];
            let mut elements = Vec::new();
            for _ in 0..count {
                let (element, len) = (u16_at(set, 0)?, u16_at(set, 2)?);
                // An enterprise's element has its number behind.
                let own = if element & 0x8000 != 0 { 8 } else { 4 };
                elements.push((element, usize::from(len)));
                set = set.get(own..)?;
            }
            self.templates.insert(id, elements);
        }
        Some(())
    }

    fn records(&mut self, id: u16, mut set: &[u8]) -> Option<()> {
        let elements = self.templates.get(&id)?.clone();
        let shortest: usize = elements
            .iter()
            .map(|(_, len)| if *len == 65_535 { 1 } else { *len })
            .sum();
        while set.len() >= shortest.max(1) {
            let (mut packets, mut bytes, mut protocol, mut leaves) = (0, 0, 0, false);
            for (element, len) in &elements {
                // A length of 65535 stands before the value (RFC 7011 §7).
                let (skip, len) = match len {
                    65_535 if set.first()? == &255 => (3, usize::from(u16_at(set, 1)?)),
                    65_535 => (1, usize::from(*set.first()?)),
                    len => (0, *len),
                };
                let value = set.get(skip..skip + len)?;
                let number = value.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
                match *element {
                    PACKETS => packets = number,
                    OCTETS => bytes = number,
                    PROTOCOL => protocol = number,
                    DIRECTION => leaves = number == 1,
                    _ => {}
                }
                set = &set[skip + len..];
            }
            // A packet is sampled where it comes in, and again where it leaves.
            if protocol == u64::from(UDP) && packets > 0 && !leaves {
                self.packets += packets;
                self.bytes += bytes;
            }
        }
        Some(())
    }
}

/// Whether an Ethernet frame's header, without tags, is followed by IPv4 with UDP.
fn is_udp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&UDP)
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn samples_of_sflow_count_their_rate_and_only_udp() {
        let mut frame = vec![0; 40];
        (frame[12], frame[23]) = (8, UDP);
        let sample = |protocol: u8| {
            let mut frame = frame.clone();
            frame[23] = protocol;
            let mut sample = words(&[1, 7, 100, 1000, 3, 1, 2, 1, 1, 56, 1, 1000, 4, 40]);
            sample.extend(frame);
            sample
        };
        let mut datagram = words(&[5, 1, 0x7f00_0001, 0, 1, 1000, 2]);
        for protocol in [UDP, 6] {
            let sample = sample(protocol);
            datagram.extend(words(&[1, sample.len() as u32]));
            datagram.extend(sample);
        }
        let mut tally = Tally::default();
        tally.read(&datagram);
        assert_eq!((tally.packets, tally.dropped), (100, 3));
        for end in 0..datagram.len() {
            Tally::default().read(&datagram[..end]);
        }
    }

    #[test]
    fn records_of_netflow_and_ipfix_count_packets_and_bytes_of_udp() {
        let mut datagram = vec![0; 24 + 96];
        datagram[1] = 5;
        for (record, protocol) in [(24, UDP), (72, 6)] {
            datagram[record + 19] = 9;
            datagram[record + 23] = 90;
            datagram[record + 38] = protocol;
        }
        let mut tally = Tally::default();
        tally.read(&datagram);
        assert_eq!((tally.packets, tally.bytes), (9, 90));

        let template = [0, 2, 0, 20, 1, 0, 0, 3, 0, 1, 0, 8, 0, 2, 0, 8, 0, 4, 0, 1];
        let mut data = vec![1, 0, 0, 21];
        data.extend(1280u64.to_be_bytes());
        data.extend(20u64.to_be_bytes());
        data.push(UDP);
        let mut message = vec![0, 10];
        message.extend([0; 14]);
        message.extend(template);
        message.extend(&data);
        let mut tally = Tally::default();
        tally.read(&message);
        assert_eq!((tally.packets, tally.bytes), (20, 1280));
        for end in 0..message.len() {
            Tally::default().read(&message[..end]);
        }
    }
}
