//! Bundles (OpenFlow 1.4 §7.3.9) and their features (1.5 §7.3.5.20).

use super::Codec;
use super::property::{Properties, put};
use crate::buf::{Reader, Writer};
use crate::model::*;
use crate::{HEADER_LEN, OfError, Version};

/// Atomic and ordered: the flags that are acted upon.
const KNOWN: u16 = 3;
/// At a time; OpenFlow 1.5.
const SCHEDULED: u16 = 4;
/// The property that says when.
const TIME: u16 = 1;
const EXPERIMENTER: u16 = 0xffff;

pub(super) fn decode_control(codec: &Codec, data: &mut Reader<'_>) -> Result<BundleControl, OfError> {
    let (bundle, kind, flags) = (data.u32()?, data.u16()?, data.u16()?);
    rest(codec, flags, data)?;
    match kind {
        0..=7 => Ok(BundleControl { bundle, kind, flags }),
        _ => Err(OfError::BfcBadType),
    }
}

/// Known flags, and properties, which have no effect.
fn rest(codec: &Codec, flags: u16, data: &mut Reader<'_>) -> Result<(), OfError> {
    let timed = codec.version >= Version::V15;
    let mut properties = Properties::new(data);
    let first = properties.next()?.map(|(kind, _)| kind);
    if timed && (flags & !KNOWN == SCHEDULED || first == Some(TIME)) {
        return Err(OfError::BfcSchedNotSupported);
    }
    match first {
        _ if flags & !KNOWN != 0 => Err(OfError::BfcBadFlags),
        None => Ok(()),
        Some(EXPERIMENTER) => Err(OfError::BpcBadExperimenter),
        Some(_) => Err(OfError::BpcBadType),
    }
}

pub(super) fn encode_control(out: &mut Writer, m: &BundleControl) {
    out.u32(m.bundle);
    out.u16(m.kind);
    out.u16(m.flags);
}

pub(super) fn decode_add(codec: &Codec, data: &mut Reader<'_>) -> Result<BundleAdd, OfError> {
    let bundle = data.u32()?;
    data.skip(2)?;
    let flags = data.u16()?;
    let Some([_, _, a, b, ..]) = data.peek().first_chunk::<HEADER_LEN>() else {
        return Err(OfError::BfcMsgBadLen);
    };
    let len = usize::from(u16::from_be_bytes([*a, *b]));
    if len < HEADER_LEN || len > data.len() {
        return Err(OfError::BfcMsgBadLen);
    }
    let message = data.take(len)?.to_vec();
    // Properties are aligned; without any, the message may end the bundle's.
    data.skip((len.next_multiple_of(8) - len).min(data.len()))?;
    rest(codec, flags, data)?;
    Ok(BundleAdd { bundle, flags, message })
}

pub(super) fn encode_add(out: &mut Writer, m: &BundleAdd) {
    out.u32(m.bundle);
    out.zeros(2);
    out.u16(m.flags);
    out.bytes(&m.message);
}

pub(super) fn decode_features(request: bool, data: &mut Reader<'_>) -> Result<BundleFeatures, OfError> {
    let mut features = BundleFeatures::default();
    match request {
        true => {
            features.flags = data.u32()?;
            data.skip(4)?;
            if features.flags & !3 != 0 {
                return Err(OfError::BrcMultipartBadSched);
            }
        }
        false => {
            features.flags = data.u16()?.into();
            data.skip(6)?;
        }
    }
    let mut properties = Properties::new(data);
    while let Some((kind, mut value)) = properties.next()? {
        match kind {
            TIME => {
                value.skip(4)?;
                features.schedule = Some(BundleSchedule {
                    accuracy: time(&mut value)?,
                    max_future: time(&mut value)?,
                    max_past: time(&mut value)?,
                    now: time(&mut value)?,
                });
                value.end()?;
            }
            EXPERIMENTER => return Err(OfError::BpcBadExperimenter),
            _ => return Err(OfError::BpcBadType),
        }
    }
    Ok(features)
}

fn time(data: &mut Reader<'_>) -> Result<BundleTime, OfError> {
    let time = BundleTime {
        sec: data.u64()?,
        nsec: data.u32()?,
    };
    data.skip(4)?;
    Ok(time)
}

pub(super) fn encode_features(request: bool, out: &mut Writer, features: &BundleFeatures) {
    match request {
        true => {
            out.u32(features.flags);
            out.zeros(4);
        }
        false => {
            out.u16(features.flags as u16);
            out.zeros(6);
        }
    }
    if let Some(schedule) = &features.schedule {
        put(out, TIME, |out| {
            out.zeros(4);
            for time in [schedule.accuracy, schedule.max_future, schedule.max_past, schedule.now] {
                out.u64(time.sec);
                out.u32(time.nsec);
                out.zeros(4);
            }
        });
    }
}
