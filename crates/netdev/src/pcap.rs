//! Captures of packets, as files that tcpdump and Wireshark read.

use crate::Frame;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes packets to a capture file. Each packet is in the file when [`write`](PcapWriter::write)
/// returns, so that a test may read it at once.
pub(crate) struct PcapWriter {
    file: File,
}

/// The largest packet that readers are told to expect.
const SNAPLEN: u32 = 262_144;
const LINKTYPE_ETHERNET: u32 = 1;

impl PcapWriter {
    pub(crate) fn create(path: &Path) -> io::Result<PcapWriter> {
        let mut header = Vec::with_capacity(24);
        header.extend(0xa1b2_c3d4_u32.to_ne_bytes());
        header.extend(2_u16.to_ne_bytes());
        header.extend(4_u16.to_ne_bytes());
        header.extend([0; 8]);
        header.extend(SNAPLEN.to_ne_bytes());
        header.extend(LINKTYPE_ETHERNET.to_ne_bytes());
        let mut file = File::create(path)?;
        file.write_all(&header)?;
        Ok(PcapWriter { file })
    }

    pub(crate) fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let len = u32::try_from(packet.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut record = Vec::with_capacity(16 + packet.len());
        record.extend((now.as_secs() as u32).to_ne_bytes());
        record.extend(now.subsec_micros().to_ne_bytes());
        record.extend(len.to_ne_bytes());
        record.extend(len.to_ne_bytes());
        record.extend(packet);
        self.file.write_all(&record)
    }
}

/// The packets of a capture file: the file as it was read, and where its packets are.
pub(crate) struct Capture {
    file: Vec<u8>,
    packets: Vec<(usize, usize)>,
    /// All fit in small buffers.
    small: bool,
}

impl Capture {
    /// Reads a capture: of either byte order, with times in micro- or nanoseconds. What was cut off
    /// of a packet when it was captured is missing.
    ///
    /// # Errors
    /// `InvalidData`: it is no such file, not of Ethernet packets, ends within a packet, or a
    /// packet is longer than [`SNAPLEN`].
    pub(crate) fn new(file: Vec<u8>) -> io::Result<Capture> {
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let word = |at: usize| -> Option<[u8; 4]> { file.get(at..at.checked_add(4)?)?.try_into().ok() };
        let magic = word(0).ok_or_else(|| wrong("too short for a capture file"))?;
        let read: fn([u8; 4]) -> u32 = match u32::from_le_bytes(magic) {
            0xa1b2_c3d4 | 0xa1b2_3c4d => u32::from_le_bytes,
            0xd4c3_b2a1 | 0x4d3c_b2a1 => u32::from_be_bytes,
            _ => return Err(wrong("not a capture file")),
        };
        if word(20).map(read) != Some(LINKTYPE_ETHERNET) {
            return Err(wrong("not a capture of Ethernet packets"));
        }
        let mut packets = Vec::new();
        let mut at = 24;
        while at < file.len() {
            let length = word(at + 8)
                .map(read)
                .ok_or_else(|| wrong("a capture file cut short"))?;
            if length > SNAPLEN {
                return Err(wrong("a packet longer than any"));
            }
            let (start, end) = (at + 16, at + 16 + length as usize);
            if end > file.len() {
                return Err(wrong("a capture file cut short"));
            }
            packets.push((start, end));
            at = end;
        }
        let small = packets.iter().all(|(start, end)| end - start <= Frame::SMALL);
        Ok(Capture { file, packets, small })
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Adds frames with copies of so many packets, from a number below [`Capture::len`] on; behind
    /// the last comes the first. Returns the number that comes next.
    #[inline]
    pub(crate) fn copy(&self, first: usize, count: usize, to: &mut Vec<Frame>) -> usize {
        let mut next = first;
        let packets = (0..count).map(|_| {
            let (start, end) = self.packets[next];
            next = if next + 1 == self.packets.len() { 0 } else { next + 1 };
            &self.file[start..end]
        });
        if self.small {
            Frame::copy_small(packets, to);
        } else {
            to.extend(packets.map(Frame::from_slice));
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(magic: u32, word: fn(u32) -> [u8; 4], packets: &[&[u8]]) -> Vec<u8> {
        let mut file = word(magic).to_vec();
        file.extend([0; 16]);
        file.extend(word(LINKTYPE_ETHERNET));
        for packet in packets {
            file.extend([0; 8]);
            file.extend(word(packet.len() as u32));
            file.extend(word(packet.len() as u32));
            file.extend(*packet);
        }
        file
    }

    fn packets(capture: &Capture) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        assert_eq!(capture.copy(0, capture.len() + 1, &mut frames), 1 % capture.len());
        assert_eq!(frames.pop().unwrap().data(), frames[0].data());
        frames.iter().map(|frame| frame.data().to_vec()).collect()
    }

    #[test]
    fn packets_of_all_lengths_are_copied() {
        for packets_of in [&[60, 1514, Frame::SMALL][..], &[60, Frame::SMALL + 1, 70_000, 0]] {
            let data: Vec<Vec<u8>> = packets_of.iter().map(|length| vec![3; *length]).collect();
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let capture = Capture::new(file(0xa1b2_c3d4, u32::to_le_bytes, &data)).unwrap();
            assert_eq!(packets(&capture), data);
        }
    }

    #[test]
    fn captures_of_both_byte_orders_and_resolutions_are_read() {
        let orders: [fn(u32) -> [u8; 4]; 2] = [u32::to_le_bytes, u32::to_be_bytes];
        for word in orders {
            for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
                let capture = Capture::new(file(magic, word, &[&[1; 60], &[2; 9]])).unwrap();
                assert_eq!(packets(&capture), [&[1; 60][..], &[2; 9]]);
            }
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("packets.pcap");
        PcapWriter::create(&path).unwrap().write(&[7; 64]).unwrap();
        let capture = Capture::new(std::fs::read(path).unwrap()).unwrap();
        assert_eq!(packets(&capture), [[7; 64]]);
    }

    #[test]
    fn a_file_that_ends_anywhere_but_after_a_packet_is_refused() {
        let whole = file(0xa1b2_c3d4, u32::to_le_bytes, &[&[1; 60], &[2; 60]]);
        let good = [24, 24 + 76, 24 + 2 * 76];
        for length in 0..=whole.len() {
            assert_eq!(
                Capture::new(whole[..length].to_vec()).is_ok(),
                good.contains(&length),
                "{length}"
            );
        }
    }

    #[test]
    fn other_files_and_other_links_are_refused() {
        let mut other = file(0xa1b2_c3d4, u32::to_le_bytes, &[]);
        other[20] = 113;
        assert!(Capture::new(other).is_err());
        assert!(Capture::new(file(0x0a0d_0d0a, u32::to_le_bytes, &[])).is_err());
        let mut long = file(0xa1b2_c3d4, u32::to_le_bytes, &[&[0; 60]]);
        long[35] = 0xff;
        assert!(Capture::new(long).is_err());
    }
}
