//! The valid parts at the beginning of a list with a bad part: they are printed before the error.

use super::name::Name;
use crate::model::{Body, Message, StatsReply};
use crate::{Codec, HEADER_LEN, Version};

/// The length of the part of a list that begins with `part`; `None` for lists of other kinds.
fn length(name: &str, version: Version, part: &[u8]) -> Option<usize> {
    let new = version >= Version::V14;
    let at = |at: usize| {
        let bytes = part.get(at..)?.first_chunk()?;
        Some(usize::from(u16::from_be_bytes(*bytes)))
    };
    match name {
        "OFPST_FLOW reply" | "NXST_FLOW reply" => at(0),
        "OFPST_GROUP reply" | "NXST_GROUP reply" => at(0),
        "OFPST_GROUP_DESC reply" | "NXST_GROUP_DESC reply" => at(0),
        "OFPST_METER_CONFIG reply" => at(0),
        "OFPST_METER reply" => at(4),
        "OFPST_FLOW_MONITOR reply" | "NXST_FLOW_MONITOR reply" | "ONFST_FLOW_MONITOR reply" => at(0),
        "OFPST_PORT reply" | "OFPST_QUEUE reply" if new => at(0),
        "OFPST_PORT reply" => Some(if version < Version::V13 { 104 } else { 112 }),
        "OFPST_QUEUE reply" => Some(if version < Version::V13 { 32 } else { 40 }),
        "OFPST_PORT_DESC reply" if new => at(4),
        "OFPST_PORT_DESC reply" => Some(if version == Version::V10 { 48 } else { 64 }),
        "OFPST_QUEUE_DESC reply" => at(8),
        "OFPT_QUEUE_GET_CONFIG_REPLY" => at(if version < Version::V12 { 4 } else { 8 }),
        _ => None,
    }
}

/// Whether nothing is printed for a list without parts.
pub(super) fn is_silent(list: &Message) -> bool {
    match &list.body {
        Body::StatsReply {
            reply: StatsReply::QueueDesc(queues),
            ..
        } => queues.is_empty(),
        Body::QueueGetConfigReply { queues, .. } => queues.is_empty(),
        _ => false,
    }
}

/// A message of the valid parts at the beginning of a list.
pub(super) fn valid(codec: Codec, name: &Name, data: &[u8]) -> Option<Message> {
    let queues = name.text() == "OFPT_QUEUE_GET_CONFIG_REPLY";
    let mut at = name.body + if queues { 8 } else { 0 };
    let mut ends = vec![at];
    // A kind of list whose parts have a length has one even where there is no room for it.
    length(name.text(), codec.version, &[0; 16])?;
    while let Some(len) = data.get(at..).and_then(|part| length(name.text(), codec.version, part)) {
        at += len;
        if len == 0 || at > data.len() {
            break;
        }
        ends.push(at);
    }
    let of = |end: usize| {
        let mut message = data[..end].to_vec();
        let len = u16::try_from(end).unwrap_or(u16::MAX).to_be_bytes();
        message[2..HEADER_LEN / 2].copy_from_slice(&len);
        codec.decode(&message).ok()
    };
    // A list with a bad part is bad, and so are all longer ones.
    let good = ends.partition_point(|end| of(*end).is_some());
    of(*ends.get(good.checked_sub(1)?)?)
}
