//! Statistics as type-length-value (OpenFlow 1.5 §7.2.4): OXS.

use super::flow;
use crate::OfError;
use crate::buf::{Reader, Writer};
use crate::model::Duration;

/// The class of the specification's own fields.
const BASIC: u16 = 0x8002;
const DURATION: u8 = 0;
const IDLE_TIME: u8 = 1;
const FLOW_COUNT: u8 = 3;
const PACKET_COUNT: u8 = 4;
const BYTE_COUNT: u8 = 5;

/// The available statistics. Counters that are not kept are left out, and `u64::MAX` in the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) duration: Option<Duration>,
    /// Seconds since the last packet.
    pub(super) idle: Option<u16>,
    pub(super) flows: Option<u32>,
    pub(super) packets: Option<u64>,
    pub(super) bytes: Option<u64>,
}

impl Stats {
    /// Of a rule.
    pub(super) fn of(duration: Duration, idle: Option<u16>, packets: u64, bytes: u64) -> Stats {
        Stats {
            duration: Some(duration),
            idle,
            flows: None,
            packets: counted(packets),
            bytes: counted(bytes),
        }
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets.unwrap_or(u64::MAX)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.unwrap_or(u64::MAX)
    }

    pub(super) fn duration(&self) -> Duration {
        self.duration.unwrap_or_default()
    }
}

/// A counter, if it is kept.
pub(super) fn counted(count: u64) -> Option<u64> {
    (count != u64::MAX).then_some(count)
}

/// Reads statistics and their padding. Fields that are not known are additions, and skipped.
pub(super) fn decode(data: &mut Reader<'_>) -> Result<Stats, OfError> {
    const HEADER: usize = 4;
    let Some([_, _, high, low]) = data.peek().first_chunk() else {
        return Err(OfError::BmcBadLen);
    };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    data.skip(HEADER)?;
    let fields = len.checked_sub(HEADER).ok_or(OfError::BmcBadLen)?;
    let padded = len.next_multiple_of(8) - HEADER;
    let mut body = data.sub(padded, OfError::BmcBadLen).map_err(|_| OfError::BmcBadLen)?;
    let mut fields = body.sub(fields, OfError::BmcBadLen)?;
    let mut stats = Stats::default();
    while !fields.is_empty() {
        let (class, number, len) = (fields.u16()?, fields.u8()?, usize::from(fields.u8()?));
        let mut value = fields.sub(len, OfError::BmcBadLen)?;
        if class != BASIC || number & 1 != 0 {
            continue;
        }
        match number >> 1 {
            DURATION => stats.duration = Some(flow::duration(&mut value)?),
            IDLE_TIME => {
                let idle = flow::duration(&mut value)?;
                stats.idle = Some(u16::try_from(idle.sec).unwrap_or(u16::MAX));
            }
            FLOW_COUNT => stats.flows = Some(value.u32()?),
            PACKET_COUNT => stats.packets = Some(value.u64()?),
            BYTE_COUNT => stats.bytes = Some(value.u64()?),
            _ => continue,
        }
        value.end()?;
    }
    Ok(stats)
}

/// Writes statistics and their padding.
pub(super) fn encode(out: &mut Writer, stats: &Stats) {
    let start = out.len();
    out.zeros(4);
    if let Some(duration) = stats.duration {
        header(out, DURATION, 8);
        flow::put_duration(out, duration);
    }
    if let Some(idle) = stats.idle {
        header(out, IDLE_TIME, 8);
        flow::put_duration(
            out,
            Duration {
                sec: idle.into(),
                nsec: 0,
            },
        );
    }
    if let Some(flows) = stats.flows {
        header(out, FLOW_COUNT, 4);
        out.u32(flows);
    }
    for (number, count) in [(PACKET_COUNT, stats.packets), (BYTE_COUNT, stats.bytes)] {
        if let Some(count) = count {
            header(out, number, 8);
            out.u64(count);
        }
    }
    out.patch_len(start + 2, start);
    out.pad8(start);
}

fn header(out: &mut Writer, number: u8, len: u8) {
    out.u16(BASIC);
    out.u8(number << 1);
    out.u8(len);
}
