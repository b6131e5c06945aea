//! Packets to and from controllers.

use super::flow::{buffer, decode_nx_match, encode_nx_match};
use super::{Codec, decode_port, encode_port, property};
use crate::action::{self, Encoder, port10, to10};
use crate::buf::{Reader, Writer};
use crate::model::{Match, PacketIn, PacketInFormat, PacketOut, Port};
use crate::{OfError, Version, oxm};
use flow::MatchField as F;

const NO_BUFFER: u32 = 0xffff_ffff;

impl PacketIn {
    /// A packet of a port, without more.
    pub fn new(in_port: Port, data: Vec<u8>) -> PacketIn {
        let mut metadata = Match::ANY;
        metadata.set(F::InPortOxm, in_port.0.into(), u128::from(u32::MAX));
        PacketIn {
            format: PacketInFormat::Standard,
            buffer_id: None,
            total_len: data.len() as u32,
            reason: 0,
            table: 0,
            cookie: 0,
            metadata,
            data,
            userdata: Vec::new(),
            continuation: Vec::new(),
        }
    }

    /// The ingress port.
    pub fn in_port(&self) -> Port {
        Port(self.metadata.exact(F::InPortOxm).map_or(0, |p| p as u32))
    }
}

pub(super) fn decode_in(codec: &Codec, data: &mut Reader<'_>) -> Result<PacketIn, OfError> {
    let version = codec.version;
    let buffer_id = buffer(data.u32()?);
    let mut packet = PacketIn::new(Port(0), Vec::new());
    match version {
        Version::V10 => {
            let total_len = data.u16()?;
            packet = PacketIn::new(port10(data.u16()?), Vec::new());
            packet.total_len = total_len.into();
            packet.reason = data.u8()?;
            data.skip(1)?;
        }
        Version::V11 => {
            packet = PacketIn::new(Port(data.u32()?), Vec::new());
            data.skip(4)?;
            packet.total_len = data.u16()?.into();
            (packet.reason, packet.table) = (data.u8()?, data.u8()?);
        }
        _ => {
            packet.total_len = data.u16()?.into();
            (packet.reason, packet.table) = (data.u8()?, data.u8()?);
            if version >= Version::V13 {
                packet.cookie = data.u64()?;
            }
            packet.metadata = oxm::decode_ofp_match(data, oxm::Unknown::Skip)?;
            data.skip(2)?;
        }
    }
    packet.buffer_id = buffer_id;
    packet.data = data.rest().to_vec();
    Ok(packet)
}

/// The reason of a packet-in in a version: OpenFlow 1.4 splits the older reason "action".
fn reason(version: Version, reason: u8) -> u8 {
    const ACTION: u8 = 1;
    match reason {
        3..=5 if version < Version::V14 => ACTION,
        _ => reason,
    }
}

pub(super) fn encode_in(codec: &Codec, out: &mut Writer, packet: &PacketIn) {
    let version = codec.version;
    let reason = reason(version, packet.reason);
    let total_len = u16::try_from(packet.total_len).unwrap_or(u16::MAX);
    out.u32(packet.buffer_id.unwrap_or(NO_BUFFER));
    match version {
        Version::V10 => {
            out.u16(total_len);
            out.u16(to10(packet.in_port()));
            out.u8(reason);
            out.u8(0);
        }
        Version::V11 => {
            out.u32(packet.in_port().0);
            out.u32(packet.in_port().0);
            out.u16(total_len);
            out.u8(reason);
            out.u8(packet.table);
        }
        _ => {
            out.u16(total_len);
            out.u8(reason);
            out.u8(packet.table);
            if version >= Version::V13 {
                out.u64(packet.cookie);
            }
            oxm::encode_ofp_match(out, &packet.metadata, version);
            out.zeros(2);
        }
    }
    out.bytes(&packet.data);
}

/// Nicira's first message, from behind the vendor's header.
pub(super) fn decode_nx(data: &mut Reader<'_>) -> Result<PacketIn, OfError> {
    let buffer_id = buffer(data.u32()?);
    let total_len = data.u16()?;
    let (reason, table, cookie) = (data.u8()?, data.u8()?, data.u64()?);
    let match_len = data.u16()?;
    data.skip(6)?;
    let (metadata, _) = decode_nx_match(data, match_len, oxm::Unknown::Skip)?;
    data.skip(2)?;
    Ok(PacketIn {
        format: PacketInFormat::Nxt,
        buffer_id,
        total_len: total_len.into(),
        reason,
        table,
        cookie,
        metadata,
        data: data.rest().to_vec(),
        userdata: Vec::new(),
        continuation: Vec::new(),
    })
}

pub(super) fn encode_nx(out: &mut Writer, packet: &PacketIn) {
    out.u32(packet.buffer_id.unwrap_or(NO_BUFFER));
    out.u16(u16::try_from(packet.total_len).unwrap_or(u16::MAX));
    out.u8(packet.reason);
    out.u8(packet.table);
    out.u64(packet.cookie);
    let len_at = out.len();
    out.zeros(8);
    encode_nx_match(out, len_at, &packet.metadata, (0, 0));
    out.zeros(2);
    out.bytes(&packet.data);
}

/// Nicira's second packet-in, and the message that resumes a pipeline: properties, from behind the
/// vendor's header.
pub(super) fn decode_nx2(data: &mut Reader<'_>, unknown: oxm::Unknown) -> Result<PacketIn, OfError> {
    let mut packet = PacketIn {
        format: PacketInFormat::Nxt2,
        // That of no rule.
        cookie: u64::MAX,
        metadata: Match::ANY,
        ..PacketIn::new(Port(0), Vec::new())
    };
    let mut full_len = None;
    let mut whole = false;
    while !data.is_empty() {
        let (kind, mut value) = property::next(data)?;
        match kind {
            0 => {
                packet.data = value.rest().to_vec();
                whole = true;
            }
            1 => full_len = Some(value.u32()?),
            2 => packet.buffer_id = Some(value.u32()?),
            3 => packet.table = short(&mut value)?,
            4 => {
                value.skip(4)?;
                packet.cookie = value.u64()?;
            }
            5 => packet.reason = short(&mut value)?,
            6 => packet.metadata = oxm::decode_match(value.rest(), unknown)?.0,
            7 => packet.userdata = value.rest().to_vec(),
            // Properties within a property begin at a multiple of 8 bytes.
            8 => {
                value.skip(4)?;
                packet.continuation = value.rest().to_vec();
            }
            _ if unknown == oxm::Unknown::Skip => continue,
            _ => return Err(OfError::BpcBadType),
        }
        value.end()?;
    }
    if !whole {
        return Err(OfError::BrcBadLen);
    }
    packet.total_len = full_len.unwrap_or(packet.data.len() as u32);
    Ok(packet)
}

/// A byte, with or without padding to four.
fn short(value: &mut Reader<'_>) -> Result<u8, OfError> {
    let number = value.u8()?;
    value.skip(value.len().min(3))?;
    Ok(number)
}

pub(super) fn encode_nx2(version: Version, out: &mut Writer, packet: &PacketIn) {
    property::put(out, 0, |out| out.bytes(&packet.data));
    if packet.total_len as usize != packet.data.len() {
        property::put(out, 1, |out| out.u32(packet.total_len));
    }
    if let Some(buffer) = packet.buffer_id {
        property::put(out, 2, |out| out.u32(buffer));
    }
    property::put(out, 3, |out| out.u8(packet.table));
    if packet.cookie != u64::MAX {
        property::put(out, 4, |out| {
            out.zeros(4);
            out.u64(packet.cookie);
        });
    }
    property::put(out, 5, |out| out.u8(packet.reason));
    property::put(out, 6, |out| oxm::encode_match(out, &packet.metadata, version));
    if !packet.userdata.is_empty() {
        property::put(out, 7, |out| out.bytes(&packet.userdata));
    }
    if !packet.continuation.is_empty() {
        property::put(out, 8, |out| {
            out.zeros(4);
            out.bytes(&packet.continuation);
        });
    }
}

pub(super) fn decode_out(codec: &Codec, data: &mut Reader<'_>) -> Result<PacketOut, OfError> {
    let version = codec.version;
    let buffer_id = buffer(data.u32()?);
    let mut metadata = Match::ANY;
    let (in_port, actions_len);
    if version >= Version::V15 {
        actions_len = data.u16()?;
        data.skip(2)?;
        metadata = oxm::decode_ofp_match(data, oxm::Unknown::Refuse)?;
        in_port = Port(metadata.exact(F::InPortOxm).ok_or(OfError::BrcBadPort)? as u32);
        metadata.clear(F::InPortOxm);
        // Fields of the packet's headers are in the packet itself.
        let of_pipeline = |field: F| field < F::EthDst || field == F::PacketType;
        if !metadata.entries().iter().all(|e| of_pipeline(e.field)) {
            return Err(OfError::BrcPipelineFieldsOnly);
        }
    } else {
        in_port = decode_port(version, data)?;
        actions_len = data.u16()?;
        if version > Version::V10 {
            data.skip(6)?;
        }
    }
    let actions = action::decode(version, data.take(usize::from(actions_len))?)?;
    let bad_port = match in_port {
        Port::CONTROLLER | Port::LOCAL | Port::ANY => false,
        Port(number) => number >= 0xff00,
    };
    if bad_port {
        return Err(OfError::BrcBadPort);
    }
    Ok(PacketOut {
        buffer_id,
        in_port,
        metadata,
        actions,
        data: data.rest().to_vec(),
    })
}

pub(super) fn encode_out(codec: &Codec, out: &mut Writer, packet: &PacketOut) {
    let version = codec.version;
    out.u32(packet.buffer_id.unwrap_or(NO_BUFFER));
    let len_at;
    if version >= Version::V15 {
        len_at = out.len();
        out.zeros(4);
        let mut metadata = packet.metadata.clone();
        metadata.set(F::InPortOxm, packet.in_port.0.into(), u128::from(u32::MAX));
        oxm::encode_ofp_match(out, &metadata, version);
    } else {
        encode_port(version, out, packet.in_port);
        len_at = out.len();
        out.zeros(if version == Version::V10 { 2 } else { 8 });
    }
    let start = out.len();
    Encoder::new(version, &Match::ANY).encode(out, &packet.actions);
    out.patch_len(len_at, start);
    out.bytes(&packet.data);
}
