//! Captures (the classic pcap format, microseconds or nanoseconds, either byte order).

use pcap_file::pcap::PcapParser;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Bytes before the first record.
const HEADER: usize = 24;

/// The frames of a capture file, in order, without a last one that is not written completely yet.
///
/// # Panics
/// If the file cannot be read or is not a capture.
#[track_caller]
pub fn frames(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    parse(&bytes).unwrap_or_else(|| panic!("{} is not a pcap file", path.display()))
}

/// A capture of IP packets without Ethernet headers (LINKTYPE_RAW), a second apart.
pub fn of_ip(packets: &[Vec<u8>]) -> Vec<u8> {
    capture(101, packets)
}

/// A capture of Ethernet frames, a second apart.
pub fn of_ethernet(frames: &[Vec<u8>]) -> Vec<u8> {
    capture(1, frames)
}

fn capture(link_type: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, link_type] {
        out.extend(word.to_be_bytes());
    }
    for (second, packet) in (1_700_000_000_u32..).zip(packets) {
        let len = packet.len() as u32;
        for word in [second, 0, len, len] {
            out.extend(word.to_be_bytes());
        }
        out.extend(packet);
    }
    out
}

/// Reads a capture while it is being written.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    /// The file's header, once it is written.
    header: Vec<u8>,
    /// Bytes of the file that have been read.
    seen: u64,
}

impl Tail {
    /// Starts at the file's first frame; the file need not exist yet.
    pub fn new(path: PathBuf) -> Tail {
        let (header, seen) = (Vec::new(), 0);
        Tail { path, header, seen }
    }

    /// Stops reading and deletes the file.
    pub fn remove(self) {
        let _ = std::fs::remove_file(self.path);
    }

    /// The frames written since the last call.
    ///
    /// # Panics
    /// If the file is not a capture.
    #[track_caller]
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        let Ok(mut file) = File::open(&self.path) else {
            return Vec::new();
        };
        let mut bytes = self.header.clone();
        let read = file
            .seek(SeekFrom::Start(self.seen))
            .and_then(|_| file.read_to_end(&mut bytes));
        read.unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        if self.header.is_empty() {
            let Some(header) = bytes.get(..HEADER) else {
                return Vec::new();
            };
            self.header = header.to_vec();
            self.seen = HEADER as u64;
        }
        let frames = parse(&bytes).unwrap_or_else(|| panic!("{} is not a pcap file", self.path.display()));
        self.seen += frames.iter().map(|frame| 16 + frame.len() as u64).sum::<u64>();
        frames
    }
}

/// The frames of a capture in memory; `None` if it is not a capture. An empty file is a capture
/// without frames yet.
pub fn parse(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    if bytes.len() < 4 {
        return Some(Vec::new());
    }
    // Only the first bytes of a header are in the file yet.
    let mut header = [0; HEADER];
    let written = bytes.len().min(HEADER);
    header[..written].copy_from_slice(&bytes[..written]);
    let (_, parser) = PcapParser::new(&header).ok()?;
    let mut rest = &bytes[written..];
    let mut frames = Vec::new();
    while let Ok((after, packet)) = parser.next_raw_packet(rest) {
        frames.push(packet.data.into_owned());
        rest = after;
    }
    Some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_are_read_and_a_cut_record_is_left_out() {
        for (magic, len) in [
            ([0xa1, 0xb2, 0xc3, 0xd4], [0, 0, 0, 3]),
            ([0xd4, 0xc3, 0xb2, 0xa1], [3, 0, 0, 0]),
        ] {
            let mut file = magic.to_vec();
            file.extend([0; 20]);
            for data in [b"abc".as_slice(), b"d"] {
                file.extend([0; 8]);
                file.extend(len);
                file.extend(len);
                file.extend(data);
            }
            assert_eq!(parse(&file), Some(vec![b"abc".to_vec()]));
        }
        assert_eq!(parse(b"#!/bin/sh"), None);
        assert_eq!(parse(b""), Some(vec![]));
    }
}
