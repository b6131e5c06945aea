//! The names of messages.

use super::kinds::{Kind, MESSAGES, NICIRA, NICIRA_STATS, ONF, ONF_STATS, STATS};
use crate::OfError;
use std::fmt::Write;

/// A message's name, and the offset of its body.
#[derive(Clone, Debug)]
pub(super) struct Name {
    kind: Kind,
    version: u8,
    xid: u32,
    /// Offset of the body behind the headers.
    pub(super) body: usize,
    /// The flags of a multipart message.
    flags: u16,
}

const NICIRA_ID: u32 = 0x0000_2320;
const ONF_ID: u32 = 0x4f4e_4600;

/// Types of messages that have a type of their own within.
const EXPERIMENTER: u8 = 4;
const EXPERIMENTER_STATS: u16 = 0xffff;

impl Name {
    /// The name of a message that is at least a header long. A message of a length that its kind
    /// cannot have has no name.
    pub(super) fn of(data: &[u8]) -> Result<Name, OfError> {
        let (version, kind) = (data[0], data[1]);
        let (found, body, flags) = match (version, kind) {
            (_, EXPERIMENTER) => (experimenter(data)?, 16, 0),
            (1, 16 | 17) | (0 | 2.., 18 | 19) => statistics(data)?,
            _ => (in_table(&MESSAGES, kind, version).ok_or(OfError::BrcBadType)?, 8, 0),
        };
        match data.len().checked_sub(body) {
            Some(len) if found.fits(len) => Ok(Name {
                kind: found,
                version,
                xid: word(data, 4)?,
                body,
                flags,
            }),
            _ => Err(OfError::BrcBadLen),
        }
    }

    /// Prints name, version and transaction.
    pub(super) fn header(&self, out: &mut String) {
        out.push_str(self.kind.name);
        let _ = match self.version {
            1 => Ok(()),
            version @ 2..=6 => write!(out, " (OF1.{})", version - 1),
            version => write!(out, " (OF 0x{version:02x})"),
        };
        let _ = write!(out, " (xid={:#x}):", self.xid);
    }

    /// Prints the flags of a multipart message. Requests have the flag for more parts since
    /// OpenFlow 1.3.
    pub(super) fn flags(&self, out: &mut String) {
        const MORE: u16 = 1;
        if self.flags == 0 {
            return;
        }
        let may = self.version >= 4 || self.kind.name.ends_with("reply");
        let more = may && self.flags & MORE != 0;
        out.push_str(" flags=");
        if more {
            out.push_str("[more]");
        }
        let rest = self.flags & !u16::from(more);
        if rest != 0 {
            let _ = write!(out, "[***unknown flags 0x{rest:04x}***]");
        }
    }

    /// The name.
    pub(super) fn text(&self) -> &'static str {
        self.kind.name
    }

    pub(super) fn is_hello(&self) -> bool {
        self.text() == "OFPT_HELLO"
    }

    pub(super) fn is_nicira(&self) -> bool {
        self.text().starts_with("NX")
    }
}

fn word(data: &[u8], at: usize) -> Result<u32, OfError> {
    let bytes = data.get(at..at + 4).and_then(|b| b.first_chunk());
    bytes.map(|b| u32::from_be_bytes(*b)).ok_or(OfError::BrcBadLen)
}

fn half(data: &[u8], at: usize) -> Result<u16, OfError> {
    let bytes = data.get(at..at + 2).and_then(|b| b.first_chunk());
    bytes.map(|b| u16::from_be_bytes(*b)).ok_or(OfError::BrcBadLen)
}

/// The kind of a message with a number, in a version.
fn in_table<T: Copy + PartialEq>(table: &[(T, Kind)], number: T, version: u8) -> Option<Kind> {
    let found = table.iter().find(|(n, kind)| *n == number && kind.is_in(version));
    found.map(|(_, kind)| *kind)
}

fn experimenter(data: &[u8]) -> Result<Kind, OfError> {
    let (vendor, subtype) = (word(data, 8)?, word(data, 12)?);
    let table: &[(u32, Kind)] = match vendor {
        NICIRA_ID => &NICIRA,
        ONF_ID => &ONF,
        _ => return Err(OfError::BrcBadVendor),
    };
    in_table(table, subtype, data[0]).ok_or(OfError::BrcBadSubtype)
}

/// The kind of a multipart message, the offset of its body, and its flags.
fn statistics(data: &[u8]) -> Result<(Kind, usize, u16), OfError> {
    let version = data[0];
    let first = version == 1;
    let reply = data[1] == if first { 17 } else { 19 };
    let header = if first { 12 } else { 16 };
    if data.len() < header {
        return Err(OfError::BrcBadLen);
    }
    let (kind, flags) = (half(data, 8)?, half(data, 10)?);
    let of_direction = |kind: &Kind| kind.name.ends_with("reply") == reply;
    if kind != EXPERIMENTER_STATS {
        let table = STATS.iter().filter(|(_, kind)| of_direction(kind));
        let table: Vec<_> = table.copied().collect();
        let unknown = match version {
            1..=6 => OfError::BrcBadStat,
            _ => OfError::BrcBadType,
        };
        let found = in_table(&table, kind, version).ok_or(unknown)?;
        return Ok((found, header, flags));
    }
    let vendor = word(data, header)?;
    if first && vendor != NICIRA_ID {
        return Err(OfError::BrcBadVendor);
    }
    // OpenFlow 1.0 has padding behind the subtype.
    const BODY: usize = 24;
    if data.len() < BODY {
        return Err(OfError::BrcBadLen);
    }
    let table: &[(u32, Kind)] = match vendor {
        NICIRA_ID => &NICIRA_STATS,
        ONF_ID => &ONF_STATS,
        _ => return Err(OfError::BrcBadVendor),
    };
    let table: Vec<_> = table.iter().filter(|(_, kind)| of_direction(kind)).copied().collect();
    let found = in_table(&table, word(data, header + 4)?, version).ok_or(OfError::BrcBadSubtype)?;
    Ok((found, BODY, flags))
}
