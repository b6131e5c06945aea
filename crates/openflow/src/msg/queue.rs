//! Queues.

use super::property::{Properties, put};
use super::{Codec, decode_port, encode_port, flow};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{OfError, Version};

pub(super) fn decode_stats(codec: &Codec, data: &mut Reader<'_>) -> Result<QueueStats, OfError> {
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

pub(super) fn encode_stats(codec: &Codec, out: &mut Writer, s: &QueueStats) {
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

pub(super) fn decode_request(codec: &Codec, data: &mut Reader<'_>) -> Result<Port, OfError> {
    let old = codec.version == Version::V10;
    let port = match old {
        true => crate::action::port10(data.u16()?),
        false => crate::action::port11(data.u32()?, OfError::BacBadOutPort)?,
    };
    data.skip(if old { 2 } else { 4 })?;
    // OpenFlow 1.0 asks for one port.
    match port {
        Port(0..0xff00) | Port::LOCAL => Ok(port),
        Port::ANY if !old => Ok(port),
        _ => Err(OfError::QofcBadPort),
    }
}

pub(super) fn encode_request(codec: &Codec, out: &mut Writer, port: Port) {
    encode_port(codec.version, out, port);
    out.zeros(if codec.version == Version::V10 { 2 } else { 4 });
}

const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;

pub(super) fn decode_reply(codec: &Codec, data: &mut Reader<'_>) -> Result<Body, OfError> {
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

pub(super) fn encode_reply(codec: &Codec, out: &mut Writer, port: Port, queues: &[QueueConfig]) {
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
pub(super) fn decode_desc(data: &mut Reader<'_>) -> Result<(Port, QueueConfig), OfError> {
    const FIXED: usize = 16;
    let port = crate::action::port11(data.u32()?, OfError::BacBadOutPort)?;
    let queue = data.u32()?;
    let len = usize::from(data.u16()?).checked_sub(FIXED).ok_or(OfError::BrcBadLen)?;
    data.skip(6)?;
    let mut config = QueueConfig {
        queue,
        min_rate: None,
        max_rate: None,
    };
    let mut properties = data.sub(len, OfError::BpcBadLen)?;
    let mut properties = Properties::new(&mut properties);
    while let Some((kind, mut value)) = properties.next()? {
        match kind {
            MIN_RATE => config.min_rate = Some(value.u16()?),
            MAX_RATE => config.max_rate = Some(value.u16()?),
            _ => {}
        }
    }
    Ok((port, config))
}

pub(super) fn encode_desc(out: &mut Writer, (port, config): &(Port, QueueConfig)) {
    let start = out.len();
    out.u32(port.0);
    out.u32(config.queue);
    out.zeros(8);
    for (kind, rate) in [(MIN_RATE, config.min_rate), (MAX_RATE, config.max_rate)] {
        if let Some(rate) = rate {
            put(out, kind, |out| {
                out.u16(rate);
                out.zeros(2);
            });
        }
    }
    out.patch_len(start + 8, start);
}
