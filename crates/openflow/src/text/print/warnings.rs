//! What Open vSwitch logs about actions when it reads a message.

use super::super::notice::{Notice, Notices};
use super::hex::marked_hex_lines;
use super::name::Name;
use super::{DEEPEST, lenient};
use crate::model::Body;
use crate::{Codec, HEADER_LEN, OfError, Version, check};

const MODULE: &str = "ofp_actions";

/// The instructions that have a list of actions, and the length of an instruction before its list.
const WRITE: u16 = 3;
const APPLY: u16 = 4;
const INSTRUCTION: usize = 8;

/// The warnings about a message.
pub fn warnings(data: &[u8]) -> Vec<Notice> {
    let notices = Notices::heard();
    warn(&notices, data, 0);
    notices.take()
}

fn warn(notices: &Notices, data: &[u8], depth: u8) -> Option<()> {
    let header = data.first_chunk::<HEADER_LEN>()?;
    let data = data.get(..usize::from(u16::from_be_bytes([header[2], header[3]])))?;
    data.first_chunk::<HEADER_LEN>()?;
    let name = Name::of(data).ok()?;
    let codec = Codec {
        version: Version::from_number(data[0])?,
        nxm: name.is_nicira(),
        table_id: true,
    };
    let read = codec
        .decode(data)
        .or_else(|error| lenient::decode(codec, &name, data, error));
    match read.map(|message| message.body) {
        Ok(Body::Error(error)) if depth < DEEPEST => warn(notices, &error.data, depth + 1),
        Ok(Body::BundleAdd(add)) if depth < DEEPEST => warn(notices, &add.message, depth + 1),
        Ok(Body::FlowMod(m)) if !check::fit_in_set(&m.instructions.write) => {
            notices.warn(MODULE, || String::from("disallowed action in action set"));
            None
        }
        Ok(_) => None,
        Err(_) => {
            let all = lists(&name, codec.version, data)?.into_iter();
            let mut bad = all.filter_map(|list| Some((bad_action(codec.version, list)?, list)));
            let ((at, error), list) = bad.next()?;
            notices.warn(MODULE, || {
                let mut text = format!("bad action at offset {at} ({}):\n", error.name());
                marked_hex_lines(&mut text, list);
                text.truncate(text.trim_end().len());
                text
            });
            None
        }
    }
}

/// The place of the first action that cannot be read, and why.
fn bad_action(version: Version, list: &[u8]) -> Option<(usize, OfError)> {
    let mut at = 0;
    while at < list.len() {
        let len = usize::from(number(list, at + 2)?);
        let action = list.get(at..at + len.max(INSTRUCTION)).unwrap_or(&list[at..]);
        if let Err(error) = crate::decode_actions(version, action) {
            return Some((at, error));
        }
        at += len.max(INSTRUCTION);
    }
    None
}

/// The lists of actions of a message.
fn lists<'a>(name: &Name, version: Version, data: &'a [u8]) -> Option<Vec<&'a [u8]>> {
    match (name.text(), version) {
        ("OFPT_PACKET_OUT", Version::V10) => {
            let len = number(data, 14)?.into();
            Some(vec![data.get(16..)?.get(..len)?])
        }
        ("OFPT_PACKET_OUT", _) if version < Version::V15 => {
            let len = number(data, 16)?.into();
            Some(vec![data.get(24..)?.get(..len)?])
        }
        ("OFPT_FLOW_MOD", Version::V10) => Some(vec![data.get(72..)?]),
        ("NXT_FLOW_MOD", _) => {
            let matching = usize::from(number(data, name.body + 24)?).next_multiple_of(8);
            Some(vec![data.get(name.body + 32 + matching..)?])
        }
        ("OFPT_FLOW_MOD", _) if version >= Version::V12 => {
            let matching = usize::from(number(data, 50)?).next_multiple_of(8);
            let mut rest = data.get(48 + matching..)?;
            let mut found = Vec::new();
            while let (Some(kind), Some(len)) = (number(rest, 0), number(rest, 2)) {
                let (instruction, behind) = rest.split_at_checked(usize::from(len).max(INSTRUCTION))?;
                if matches!(kind, WRITE | APPLY) {
                    found.push((kind, &instruction[INSTRUCTION..]));
                }
                rest = behind;
            }
            // What is done at once is read first.
            found.sort_by_key(|(kind, _)| *kind != APPLY);
            Some(found.into_iter().map(|(_, list)| list).collect())
        }
        _ => None,
    }
}

fn number(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*data.get(at..)?.first_chunk()?))
}
