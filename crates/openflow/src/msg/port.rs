//! Ports and queues.

use super::{Codec, decode_port, encode_port, flow};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version};
use wire::MacAddr;

const NAME: usize = 16;
/// Bits of a port's configuration that OpenFlow 1.1 and later have.
const CONFIG11: u32 = 0x65;
/// Bits of a port's state that OpenFlow 1.0 has, and that later versions have.
const STATE10: u32 = 0x301;
const STATE11: u32 = 0x7;
/// The features up to 10 Gbit/s, which have the same numbers in all versions.
const SPEEDS: u32 = 0x7f;

/// Features as OpenFlow 1.0 numbers them: without the higher speeds.
fn features10(features: u32) -> u32 {
    features & SPEEDS | (features >> 11 & 0x1f) << 7
}

/// And back.
fn features11(features: u32) -> u32 {
    features & SPEEDS | (features >> 7 & 0x1f) << 11
}

fn mac(data: &mut Reader<'_>) -> Result<MacAddr, OfError> {
    data.array().map(MacAddr)
}

pub(super) fn decode_desc(codec: &Codec, data: &mut Reader<'_>) -> Result<PortDesc, OfError> {
    let version = codec.version;
    let port = match version {
        Version::V10 => crate::action::port10(data.u16()?),
        _ => Port(data.u32()?),
    };
    let mut desc = PortDesc {
        port,
        hw_addr: MacAddr([0; 6]),
        name: String::new(),
        config: 0,
        state: 0,
        current: 0,
        advertised: 0,
        supported: 0,
        peer: 0,
        current_speed: 0,
        max_speed: 0,
    };
    let mut properties = None;
    if version >= Version::V14 {
        const FIXED: usize = 40;
        let len = usize::from(data.u16()?);
        data.skip(2)?;
        properties = Some(len.checked_sub(FIXED).ok_or(OfError::BrcBadLen)?);
    } else if version > Version::V10 {
        data.skip(4)?;
    }
    desc.hw_addr = mac(data)?;
    if version > Version::V10 {
        data.skip(2)?;
    }
    desc.name = data.text(NAME)?;
    (desc.config, desc.state) = (data.u32()?, data.u32()?);
    match properties {
        None => ethernet(version, data, &mut desc)?,
        Some(len) => {
            let mut properties = data.sub(len, OfError::BpcBadLen)?;
            while !properties.is_empty() {
                let (kind, mut property) = property(&mut properties)?;
                if kind == 0 {
                    property.skip(4)?;
                    ethernet(version, &mut property, &mut desc)?;
                }
            }
        }
    }
    Ok(desc)
}

/// The next property: its type, and what follows its header.
pub(super) fn property<'a>(data: &mut Reader<'a>) -> Result<(u16, Reader<'a>), OfError> {
    let Some([a, b, c, d]) = data.peek().first_chunk() else {
        return Err(OfError::BpcBadLen);
    };
    let (kind, len) = (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d])));
    let padded = len.next_multiple_of(8);
    if len < 4 || padded > data.len() {
        return Err(OfError::BpcBadLen);
    }
    let bytes = data.take(padded)?;
    Ok((kind, Reader::new(&bytes[4..len], OfError::BpcBadLen)))
}

fn ethernet(version: Version, data: &mut Reader<'_>, desc: &mut PortDesc) -> Result<(), OfError> {
    let same = |features| features;
    let known = if version == Version::V10 { features11 } else { same };
    desc.current = known(data.u32()?);
    desc.advertised = known(data.u32()?);
    desc.supported = known(data.u32()?);
    desc.peer = known(data.u32()?);
    if version > Version::V10 {
        (desc.current_speed, desc.max_speed) = (data.u32()?, data.u32()?);
    }
    Ok(())
}

pub(super) fn encode_desc(codec: &Codec, out: &mut Writer, desc: &PortDesc) {
    let version = codec.version;
    encode_port(version, out, desc.port);
    if version >= Version::V14 {
        out.u16(72);
        out.zeros(2);
    } else if version > Version::V10 {
        out.zeros(4);
    }
    out.bytes(&desc.hw_addr.0);
    if version > Version::V10 {
        out.zeros(2);
    }
    out.text(&desc.name, NAME);
    let old = version == Version::V10;
    out.u32(desc.config & if old { 0x7f } else { CONFIG11 });
    out.u32(desc.state & if old { STATE10 } else { STATE11 });
    if version >= Version::V14 {
        out.u16(0);
        out.u16(32);
        out.zeros(4);
    }
    for features in [desc.current, desc.advertised, desc.supported, desc.peer] {
        out.u32(if old { features10(features) } else { features });
    }
    if !old {
        out.u32(desc.current_speed);
        out.u32(desc.max_speed);
    }
}

pub(super) fn decode_status(codec: &Codec, data: &mut Reader<'_>) -> Result<PortStatus, OfError> {
    let reason = data.u8()?;
    data.skip(7)?;
    if reason > 2 {
        return Err(OfError::NxBrcBadReason);
    }
    Ok(PortStatus {
        reason,
        desc: decode_desc(codec, data)?,
    })
}

pub(super) fn encode_status(codec: &Codec, out: &mut Writer, status: &PortStatus) {
    out.u8(status.reason);
    out.zeros(7);
    encode_desc(codec, out, &status.desc);
}

pub(super) fn decode_mod(codec: &Codec, data: &mut Reader<'_>) -> Result<PortMod, OfError> {
    let version = codec.version;
    let port = match version {
        Version::V10 => crate::action::port10(data.u16()?),
        _ => crate::action::port11(data.u32()?, OfError::PmfcBadPort)?,
    };
    if version > Version::V10 {
        data.skip(4)?;
    }
    let hw_addr = mac(data)?;
    if version > Version::V10 {
        data.skip(2)?;
    }
    let (config, mask) = (data.u32()?, data.u32()?);
    let mut advertise = 0;
    match version {
        Version::V10 | Version::V11 | Version::V12 | Version::V13 => {
            advertise = data.u32()?;
            data.skip(4)?;
        }
        _ => {
            while !data.is_empty() {
                match property(data)? {
                    (0, mut value) => advertise = value.u32()?,
                    _ => return Err(OfError::BpcBadType),
                }
            }
        }
    }
    let known = if version == Version::V10 { 0x7f } else { CONFIG11 };
    if config & !known != 0 || mask & !known != 0 {
        return Err(OfError::PmfcBadConfig);
    }
    let old = version == Version::V10;
    Ok(PortMod {
        port,
        hw_addr,
        config,
        mask,
        advertise: if old { features11(advertise) } else { advertise },
    })
}

pub(super) fn encode_mod(codec: &Codec, out: &mut Writer, m: &PortMod) {
    let version = codec.version;
    encode_port(version, out, m.port);
    if version > Version::V10 {
        out.zeros(4);
    }
    out.bytes(&m.hw_addr.0);
    if version > Version::V10 {
        out.zeros(2);
    }
    let known = if version == Version::V10 { 0x7f } else { CONFIG11 };
    out.u32(m.config & known);
    out.u32(m.mask & known);
    match version {
        Version::V10 => out.u32(features10(m.advertise)),
        Version::V11 | Version::V12 | Version::V13 => out.u32(m.advertise),
        _ => {
            if m.advertise != 0 {
                out.u16(0);
                out.u16(8);
                out.u32(m.advertise);
            }
            return;
        }
    }
    out.zeros(4);
}

pub(super) fn decode_stats(codec: &Codec, data: &mut Reader<'_>) -> Result<PortStats, OfError> {
    let version = codec.version;
    let (mut duration, mut properties) = (Duration::default(), 0);
    if version >= Version::V14 {
        const FIXED: usize = 80;
        properties = usize::from(data.u16()?).checked_sub(FIXED).ok_or(OfError::BrcBadLen)?;
        data.skip(2)?;
    }
    let port = match version {
        Version::V10 => crate::action::port10(data.u16()?),
        _ => Port(data.u32()?),
    };
    match version {
        Version::V10 => data.skip(6)?,
        Version::V14 | Version::V15 => duration = flow::duration(data)?,
        _ => data.skip(4)?,
    }
    let mut counters = [0; 12];
    let ethernet = if version >= Version::V14 { 8 } else { 12 };
    for counter in &mut counters[..ethernet] {
        *counter = data.u64()?;
    }
    if version >= Version::V14 {
        let mut data = data.sub(properties, OfError::BpcBadLen)?;
        while !data.is_empty() {
            if let (0, mut value) = property(&mut data)? {
                value.skip(4)?;
                for counter in &mut counters[8..] {
                    *counter = value.u64()?;
                }
            }
        }
    } else if version == Version::V13 {
        duration = flow::duration(data)?;
    }
    let [
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        rx_dropped,
        tx_dropped,
        rx_errors,
        tx_errors,
        frame,
        over,
        crc,
        coll,
    ] = counters;
    Ok(PortStats {
        port,
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        rx_dropped,
        tx_dropped,
        rx_errors,
        tx_errors,
        rx_frame_errors: frame,
        rx_over_errors: over,
        rx_crc_errors: crc,
        collisions: coll,
        duration,
    })
}

pub(super) fn encode_stats(codec: &Codec, out: &mut Writer, s: &PortStats) {
    let version = codec.version;
    if version >= Version::V14 {
        out.u16(120);
        out.zeros(2);
    }
    encode_port(version, out, s.port);
    match version {
        Version::V10 => out.zeros(6),
        Version::V14 | Version::V15 => flow::put_duration(out, s.duration),
        _ => out.zeros(4),
    }
    for counter in [
        s.rx_packets,
        s.tx_packets,
        s.rx_bytes,
        s.tx_bytes,
        s.rx_dropped,
        s.tx_dropped,
        s.rx_errors,
        s.tx_errors,
    ] {
        out.u64(counter);
    }
    if version >= Version::V14 {
        out.u16(0);
        out.u16(40);
        out.zeros(4);
    }
    for counter in [s.rx_frame_errors, s.rx_over_errors, s.rx_crc_errors, s.collisions] {
        out.u64(counter);
    }
    if version == Version::V13 {
        flow::put_duration(out, s.duration);
    }
}

pub(super) fn decode_queue_stats(codec: &Codec, data: &mut Reader<'_>) -> Result<QueueStats, OfError> {
    let version = codec.version;
    let mut properties = 0;
    if version >= Version::V14 {
        const FIXED: usize = 48;
        properties = usize::from(data.u16()?).checked_sub(FIXED).ok_or(OfError::BrcBadLen)?;
        data.skip(6)?;
    }
    let port = decode_port(version, data)?;
    if version == Version::V10 {
        data.skip(2)?;
    }
    let queue = data.u32()?;
    let (tx_bytes, tx_packets, tx_errors) = (data.u64()?, data.u64()?, data.u64()?);
    let duration = match version >= Version::V13 {
        true => flow::duration(data)?,
        false => Duration::default(),
    };
    data.skip(properties)?;
    Ok(QueueStats {
        port,
        queue,
        tx_bytes,
        tx_packets,
        tx_errors,
        duration,
    })
}

pub(super) fn encode_queue_stats(codec: &Codec, out: &mut Writer, s: &QueueStats) {
    let version = codec.version;
    if version >= Version::V14 {
        out.u16(48);
        out.zeros(6);
    }
    encode_port(version, out, s.port);
    if version == Version::V10 {
        out.zeros(2);
    }
    out.u32(s.queue);
    out.u64(s.tx_bytes);
    out.u64(s.tx_packets);
    out.u64(s.tx_errors);
    if version >= Version::V13 {
        flow::put_duration(out, s.duration);
    }
}

pub(super) fn decode_queue_request(codec: &Codec, data: &mut Reader<'_>) -> Result<Port, OfError> {
    let port = decode_port(codec.version, data)?;
    data.skip(if codec.version == Version::V10 { 2 } else { 4 })?;
    Ok(port)
}

pub(super) fn encode_queue_request(codec: &Codec, out: &mut Writer, port: Port) {
    encode_port(codec.version, out, port);
    out.zeros(if codec.version == Version::V10 { 2 } else { 4 });
}

const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;

pub(super) fn decode_queue_reply(codec: &Codec, data: &mut Reader<'_>) -> Result<Body, OfError> {
    let old = codec.version == Version::V10;
    let port = decode_port(codec.version, data)?;
    data.skip(if old { 6 } else { 4 })?;
    let mut queues = Vec::new();
    while !data.is_empty() {
        let queue = data.u32()?;
        let short = codec.version <= Version::V11;
        let header = if short { 8 } else { 16 };
        if !short {
            data.skip(4)?;
        }
        let len = usize::from(data.u16()?).checked_sub(header).ok_or(OfError::BrcBadLen)?;
        data.skip(if short { 2 } else { 6 })?;
        let mut properties = data.sub(len, OfError::BrcBadLen)?;
        let mut config = QueueConfig {
            queue,
            min_rate: None,
            max_rate: None,
        };
        while !properties.is_empty() {
            let (kind, len) = (properties.u16()?, usize::from(properties.u16()?));
            let mut value = properties.sub(len.checked_sub(4).ok_or(OfError::BrcBadLen)?, OfError::BrcBadLen)?;
            value.skip(4)?;
            match kind {
                MIN_RATE => config.min_rate = Some(value.u16()?),
                MAX_RATE => config.max_rate = Some(value.u16()?),
                _ => {}
            }
        }
        queues.push(config);
    }
    Ok(Body::QueueGetConfigReply { port, queues })
}

pub(super) fn encode_queue_reply(codec: &Codec, out: &mut Writer, port: Port, queues: &[QueueConfig]) {
    let old = codec.version == Version::V10;
    encode_port(codec.version, out, port);
    out.zeros(if old { 6 } else { 4 });
    for queue in queues {
        let start = out.len();
        out.u32(queue.queue);
        let short = codec.version <= Version::V11;
        if !short {
            out.u32(port.0);
        }
        let len_at = out.len();
        out.zeros(if short { 4 } else { 8 });
        for (kind, rate) in [(MIN_RATE, queue.min_rate), (MAX_RATE, queue.max_rate)] {
            if let Some(rate) = rate {
                out.u16(kind);
                out.u16(16);
                out.zeros(4);
                out.u16(rate);
                out.zeros(6);
            }
        }
        out.patch_len(len_at, start);
    }
}

/// A queue and its rates, in OpenFlow 1.4's statistics.
pub(super) fn decode_queue_desc(data: &mut Reader<'_>) -> Result<(Port, QueueConfig), OfError> {
    const FIXED: usize = 16;
    let port = crate::action::port11(data.u32()?, OfError::BrcBadPort)?;
    let queue = data.u32()?;
    let len = usize::from(data.u16()?).checked_sub(FIXED).ok_or(OfError::BrcBadLen)?;
    data.skip(6)?;
    let mut config = QueueConfig {
        queue,
        min_rate: None,
        max_rate: None,
    };
    let mut properties = data.sub(len, OfError::BpcBadLen)?;
    while !properties.is_empty() {
        match property(&mut properties)? {
            (MIN_RATE, mut value) => config.min_rate = Some(value.u16()?),
            (MAX_RATE, mut value) => config.max_rate = Some(value.u16()?),
            _ => {}
        }
    }
    Ok((port, config))
}

pub(super) fn encode_queue_desc(out: &mut Writer, (port, config): &(Port, QueueConfig)) {
    let start = out.len();
    out.u32(port.0);
    out.u32(config.queue);
    out.zeros(8);
    for (kind, rate) in [(MIN_RATE, config.min_rate), (MAX_RATE, config.max_rate)] {
        if let Some(rate) = rate {
            out.u16(kind);
            out.u16(8);
            out.u16(rate);
            out.zeros(2);
        }
    }
    out.patch_len(start + 8, start);
}
