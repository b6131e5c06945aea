//! The valid parts at the beginning of a list with a bad part: they are printed before the error.

use super::name::Name;
use crate::model::Message;
use crate::{Codec, HEADER_LEN, Version};

/// Where a part of a kind of list has its length: none for lists of other kinds. The lengths of the
/// parts of old versions are fixed, and there are no bad parts.
fn length_at(name: &str, version: Version) -> Option<usize> {
    let new = version >= Version::V14;
    Some(match name {
        "OFPST_FLOW reply" | "NXST_FLOW reply" => 0,
        "OFPST_GROUP reply" | "NXST_GROUP reply" => 0,
        "OFPST_GROUP_DESC reply" | "NXST_GROUP_DESC reply" => 0,
        "OFPST_METER_CONFIG reply" => 0,
        "OFPST_METER reply" => 4,
        "OFPST_FLOW_MONITOR reply" | "NXST_FLOW_MONITOR reply" | "ONFST_FLOW_MONITOR reply" => 0,
        "OFPST_PORT reply" | "OFPST_QUEUE reply" if new => 0,
        "OFPST_PORT_DESC reply" if new => 4,
        "OFPST_QUEUE_DESC reply" => 8,
        _ => return None,
    })
}

/// A message of the valid parts at the beginning of a list.
pub(super) fn valid(codec: Codec, name: &Name, data: &[u8]) -> Option<Message> {
    let length_at = length_at(name.text(), codec.version)?;
    let mut ends = vec![name.body];
    let mut at = name.body;
    while let Some([high, low]) = data.get(at + length_at..).and_then(|b| b.first_chunk()) {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
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
