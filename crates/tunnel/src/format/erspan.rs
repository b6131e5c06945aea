//! ERSPAN versions 1 (type II) and 2 (type III): mirrored frames behind GRE
//! (draft-foschiano-erspan).

use super::inner::Inner;
use super::template::EncapsulateError;
use super::{Details, Found, Kind, Refusal, be16, be32, gre};

/// The protocol types of GRE.
pub(super) const TYPE_II: u16 = 0x88be;
pub(super) const TYPE_III: u16 = 0x22eb;

/// GRE with a sequence number.
const GRE: usize = 8;
/// The header of version 1.
const V1: usize = 8;
/// The header of version 2 without its optional part.
const V2: usize = 12;
/// The optional part of version 2.
const SUBHEADER: usize = 8;
/// The longest header.
pub(super) const MAX_LEN: usize = GRE + V2;
/// Where version 2 has its time, from the GRE header on.
pub(super) const TIMESTAMP: usize = GRE + 4;
/// Where the sequence number is, from the GRE header on.
pub(super) const SEQUENCE: usize = 4;

/// Sessions: 10 bits.
pub(super) const MAX_SESSION: u64 = 0x3ff;

/// What an ERSPAN header has beside the session (`tun_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Erspan {
    /// Version 1.
    V1 {
        /// `tun_erspan_idx`: the source port and direction, 20 bits.
        index: u32,
    },
    /// Version 2.
    V2(ErspanV2),
}

/// Fields of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErspanV2 {
    /// `tun_erspan_hwid`: the engine in the system, 6 bits.
    pub hwid: u8,
    /// `tun_erspan_dir`: the frame was mirrored when it left the port.
    pub egress: bool,
}

impl Erspan {
    /// The version, `tun_erspan_ver`.
    pub const fn version(&self) -> u8 {
        match self {
            Erspan::V1 { .. } => 1,
            Erspan::V2(_) => 2,
        }
    }
}

/// Reads the GRE and ERSPAN headers.
pub(super) fn parse(data: &[u8], flags: u16, kind: u16) -> Result<Found<'_>, Refusal> {
    if flags != gre::S {
        return Err(Refusal::ErspanFlags);
    }
    let header = data.get(GRE..).ok_or(Refusal::Truncated)?;
    if header.len() < V1 {
        return Err(Refusal::Truncated);
    }
    let session = u64::from(be16(header, 2)) & MAX_SESSION;
    let (details, start) = match (header[0] >> 4, kind) {
        (1, TYPE_II) => {
            let index = be32(header, 4) & 0xf_ffff;
            (Erspan::V1 { index }, GRE + V1)
        }
        (2, TYPE_III) => {
            if header.len() < V2 {
                return Err(Refusal::Truncated);
            }
            let word = be16(header, 10);
            if word >> 10 & 0x1f != 0 {
                return Err(Refusal::ErspanFrameType);
            }
            let v2 = ErspanV2 {
                hwid: (word >> 4 & 0x3f) as u8,
                egress: word & 8 != 0,
            };
            let optional = if word & 1 != 0 { SUBHEADER } else { 0 };
            (Erspan::V2(v2), GRE + V2 + optional)
        }
        _ => return Err(Refusal::ErspanVersion),
    };
    if data.len() < start {
        return Err(Refusal::Truncated);
    }
    let found = Found::new(Kind::Erspan, Some(session), Inner::Ethernet, start, data.len());
    let details = Details::Erspan(details);
    Ok(Found { details, ..found })
}

/// The GRE and ERSPAN headers, and their length.
pub(super) fn build(session: u64, fields: Erspan) -> Result<([u8; MAX_LEN], usize), EncapsulateError> {
    let mut bytes = [0; MAX_LEN];
    let kind = match fields {
        Erspan::V1 { .. } => TYPE_II,
        Erspan::V2(_) => TYPE_III,
    };
    bytes[..2].copy_from_slice(&gre::S.to_be_bytes());
    bytes[2..4].copy_from_slice(&kind.to_be_bytes());
    let header = &mut bytes[GRE..];
    header[0] = fields.version() << 4;
    if session > MAX_SESSION {
        return Err(EncapsulateError::Id);
    }
    header[2..4].copy_from_slice(&(session as u16).to_be_bytes());
    match fields {
        Erspan::V1 { index } => {
            if index > 0xf_ffff {
                return Err(EncapsulateError::Erspan);
            }
            header[4..8].copy_from_slice(&index.to_be_bytes());
            Ok((bytes, GRE + V1))
        }
        Erspan::V2(ErspanV2 { hwid, egress }) => {
            if hwid > 0x3f {
                return Err(EncapsulateError::Erspan);
            }
            let word = u16::from(hwid) << 4 | u16::from(egress) << 3;
            header[10..12].copy_from_slice(&word.to_be_bytes());
            Ok((bytes, GRE + V2))
        }
    }
}
