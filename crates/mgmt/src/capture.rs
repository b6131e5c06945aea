//! The records between the switch and `oxvs tcpdump`. Both are of one build, so numbers have the
//! machine's order.
//!
//! A record is the length of what follows (u32), its kind (u8), and its content.

const PACKET: u8 = 1;
const STATUS: u8 = 2;

/// The longest record: a packet with its fields.
pub const MOST: usize = 66 * 1024;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A captured packet.
    Packet(Packet<'a>),
    /// Counters since the switch started: the packets that there was no room for, then a word and a
    /// number for each cause of drops at the captured ports.
    Status(&'a str),
}

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Whether the port sends it; otherwise it has received it.
    pub sent: bool,
    /// The port's number in OpenFlow 1.0.
    pub ofport: u16,
    /// Why it goes nowhere; empty if it goes somewhere.
    pub drop: &'a str,
    /// Its length on the wire.
    pub total_len: u32,
    /// Time since 1970, in nanoseconds.
    pub time: u64,
    /// Its bytes, no more than were asked for.
    pub data: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends the record.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 4]);
        match self {
            Record::Packet(packet) => {
                out.extend([PACKET, packet.sent.into()]);
                out.extend(packet.ofport.to_ne_bytes());
                out.extend(packet.total_len.to_ne_bytes());
                out.extend(packet.time.to_ne_bytes());
                out.push(packet.drop.len() as u8);
                out.extend(packet.drop.as_bytes());
                out.extend(packet.data);
            }
            Record::Status(text) => {
                out.push(STATUS);
                out.extend(text.as_bytes());
            }
        }
        let len = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    }

    /// Reads what follows a record's length; `None` if it is none.
    pub fn read(bytes: &'a [u8]) -> Option<Record<'a>> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            PACKET => {
                let (sent, rest) = rest.split_first()?;
                let (ofport, rest) = rest.split_first_chunk()?;
                let (total_len, rest) = rest.split_first_chunk()?;
                let (time, rest) = rest.split_first_chunk()?;
                let (drop_len, rest) = rest.split_first()?;
                let (drop, data) = rest.split_at_checked(usize::from(*drop_len))?;
                Some(Record::Packet(Packet {
                    sent: *sent != 0,
                    ofport: u16::from_ne_bytes(*ofport),
                    drop: std::str::from_utf8(drop).ok()?,
                    total_len: u32::from_ne_bytes(*total_len),
                    time: u64::from_ne_bytes(*time),
                    data,
                }))
            }
            STATUS => Some(Record::Status(std::str::from_utf8(rest).ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_cut_of_it_panics() {
        let packet = Record::Packet(Packet {
            sent: true,
            ofport: 7,
            drop: "drop_loop",
            total_len: 1514,
            time: 1_700_000_000_000_000_000,
            data: b"the first bytes",
        });
        for record in [packet, Record::Status("3 drop_loop 7")] {
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            assert_eq!(bytes[..4], (bytes.len() as u32 - 4).to_ne_bytes());
            assert_eq!(Record::read(&bytes[4..]), Some(record));
            for end in 4..bytes.len() {
                let _ = Record::read(&bytes[4..end]);
            }
        }
        assert_eq!(Record::read(&[9, 9]), None);
    }
}
