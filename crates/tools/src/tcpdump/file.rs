//! A capture as pcapng.

use mgmt::capture::Packet;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, PcapError, PcapResult};
use std::io::{BufWriter, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds: `if_tsresol`.
const NANOSECONDS: u8 = 9;
/// The directions of `epb_flags`.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A capture that is being written.
pub(super) struct File {
    writer: PcapNgWriter<BufWriter<Box<dyn Write>>>,
    /// The interface of each OpenFlow port, in the order of the file.
    ports: Vec<u16>,
    snaplen: u32,
}

impl File {
    /// Writes the header with these interfaces.
    pub(super) fn new(writer: Box<dyn Write>, interfaces: &[(u16, String)], snaplen: Option<u32>) -> PcapResult<File> {
        let snaplen = snaplen.unwrap_or(u16::MAX.into());
        let mut file = File {
            writer: PcapNgWriter::new(BufWriter::new(writer))?,
            ports: Vec::new(),
            snaplen,
        };
        for (ofport, name) in interfaces {
            file.interface(*ofport, name)?;
        }
        file.flush()?;
        Ok(file)
    }

    fn interface(&mut self, ofport: u16, name: &str) -> PcapResult<()> {
        self.ports.push(ofport);
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: self.snaplen,
            options: vec![
                InterfaceDescriptionOption::IfName(name.into()),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        self.writer.write_block(&block.into_block()).map(drop)
    }

    /// Passes on what is written so far.
    pub(super) fn flush(&mut self) -> PcapResult<()> {
        self.writer.get_mut().flush().map_err(PcapError::IoError)
    }

    /// Writes a packet.
    pub(super) fn packet(&mut self, packet: &Packet<'_>) -> PcapResult<()> {
        let place = self.ports.iter().position(|port| *port == packet.ofport);
        let place = match place {
            Some(place) => place,
            // It came to the bridge after the capture began.
            None => {
                self.interface(packet.ofport, &format!("port {}", packet.ofport))?;
                self.ports.len() - 1
            }
        };
        let direction = if packet.sent { OUTBOUND } else { INBOUND };
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        if !packet.drop.is_empty() {
            options.push(EnhancedPacketOption::Comment(packet.drop.into()));
        }
        let block = EnhancedPacketBlock {
            interface_id: place as u32,
            timestamp: Duration::from_nanos(packet.time),
            original_len: packet.total_len,
            data: packet.data.into(),
            options,
        };
        self.writer.write_block(&block.into_block()).map(drop)
    }

    /// Writes what the ports dropped, and how many packets the capture missed.
    pub(super) fn end(&mut self, causes: &[(String, u64)], lost: u64) -> PcapResult<()> {
        let causes: Vec<String> = causes.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let mut options = vec![InterfaceStatisticsOption::IsbOsDrop(lost)];
        if !causes.is_empty() {
            let text = format!("dropped by the switch at the captured ports: {}", causes.join(", "));
            options.push(InterfaceStatisticsOption::Comment(text.into()));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The block has the high half first.
        let timestamp = (now.as_nanos() as u64).rotate_left(32);
        let block = InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp,
            options,
        };
        self.writer.write_block(&block.into_block())?;
        self.flush()
    }
}
