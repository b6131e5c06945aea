//! Capture files, which tcpdump and Wireshark read.

use crate::Frame;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapParser};
use pcap_file::{DataLink, Endianness, PcapError};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes packets to a capture file. A packet is in the file when [`write`](PcapWriter::write)
/// returns, so that a test can read it at once.
pub(crate) struct PcapWriter(pcap_file::pcap::PcapWriter<File>);

/// The longest packet in a capture file, in bytes.
const SNAPLEN: u32 = 262_144;

impl PcapWriter {
    pub(crate) fn create(path: &Path) -> io::Result<PcapWriter> {
        let header = PcapHeader {
            snaplen: SNAPLEN,
            datalink: DataLink::ETHERNET,
            endianness: Endianness::native(),
            ..PcapHeader::default()
        };
        let writer = pcap_file::pcap::PcapWriter::with_header(File::create(path)?, header);
        Ok(PcapWriter(writer.map_err(io_error)?))
    }

    pub(crate) fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let len = u32::try_from(packet.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let packet = PcapPacket::new(now, len, packet);
        self.0.write_packet(&packet).map(drop).map_err(io_error)
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidInput, other),
    }
}

/// The packets of a capture file: its bytes, and where each packet is in them.
pub(crate) struct Capture {
    file: Vec<u8>,
    packets: Vec<(usize, usize)>,
    /// All fit in small buffers.
    small: bool,
}

impl Capture {
    /// Reads a capture in the classic format, of either byte order, with times in micro- or
    /// nanoseconds. Of a packet that was truncated when it was captured, only the captured bytes
    /// are read.
    ///
    /// # Errors
    /// `InvalidData`: the file is not a capture of Ethernet packets, ends within a packet, or has a
    /// packet longer than [`SNAPLEN`].
    pub(crate) fn new(file: Vec<u8>) -> io::Result<Capture> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let (mut rest, parser) = PcapParser::new(&file).map_err(|error| match error {
            PcapError::IncompleteBuffer => wrong("not a capture file: shorter than the header of one".to_owned()),
            _ => wrong("not a capture file of the classic pcap format".to_owned()),
        })?;
        let link = parser.header().datalink;
        if link != DataLink::ETHERNET {
            return Err(wrong(format!("a capture of {link:?}, not of Ethernet packets")));
        }
        let mut packets = Vec::new();
        while !rest.is_empty() {
            let place = || format!("packet {} at byte {}", packets.len() + 1, file.len() - rest.len());
            let (after, packet) = parser
                .next_raw_packet(rest)
                .map_err(|_| wrong(format!("{} is cut short", place())))?;
            if packet.incl_len > SNAPLEN {
                return Err(wrong(format!(
                    "{} has {} bytes, more than {SNAPLEN}",
                    place(),
                    packet.incl_len
                )));
            }
            let end = file.len() - after.len();
            packets.push((end - packet.data.len(), end));
            rest = after;
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

    /// Adds frames with copies of `count` packets, from packet `first` on; after the last packet it
    /// goes on with packet 0. Returns the number of the packet to go on with.
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
        file.extend(word(DataLink::ETHERNET.into()));
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
    fn an_error_names_the_packet_and_its_place() {
        let mut cut = file(0xa1b2_c3d4, u32::to_le_bytes, &[&[1; 60], &[2; 60]]);
        cut.pop();
        let error = Capture::new(cut).err().unwrap();
        assert_eq!(error.to_string(), "packet 2 at byte 100 is cut short");
        let mut other = file(0xa1b2_c3d4, u32::to_le_bytes, &[]);
        other[20] = 113;
        let error = Capture::new(other).err().unwrap().to_string();
        assert!(error.contains("LINUX_SLL"), "{error}");
        let long = file(0xa1b2_c3d4, u32::to_be_bytes, &[&vec![0; SNAPLEN as usize + 1]]);
        assert!(
            Capture::new(long)
                .err()
                .unwrap()
                .to_string()
                .ends_with("bytes, more than 262144")
        );
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
