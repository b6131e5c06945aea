//! Captures of a dummy device, as files that tcpdump and Wireshark read.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes packets to a capture file. Each packet is in the file when [`write`](PcapWriter::write) returns, so that a test may read it at once.
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
