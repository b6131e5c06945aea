//! Actions in messages.
//!
//! Every version has its own numbers; Nicira's extensions are the same in all. An action that a
//! version lacks is sent as Nicira's extension, as Open vSwitch does, so that any list of actions
//! can be sent in any version.

mod ct;
mod learn;
mod nicira;
mod nicira_out;
mod standard;
mod standard_out;

use crate::buf::{Reader, Writer};
use crate::model::{Action, Match, Port};
use crate::{OfError, Version};
use flow::{MatchField, port_to_of10};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum nesting of actions.
const MAX_DEPTH: u8 = 16;
/// The type that says that an experimenter's action follows.
const EXPERIMENTER: u16 = 0xffff;
const NICIRA: u32 = 0x0000_2320;

/// Nicira's subtype of `debug_slow`.
const DEBUG_SLOW: u16 = 254;
/// Nicira's subtype of `debug_recirc`.
const DEBUG_RECIRC: u16 = 255;

/// Whether messages may have actions for test benches.
static TEST_ACTIONS: AtomicBool = AtomicBool::new(false);

/// Decodes `debug_recirc` from now on, in the whole process. Without this call it is an unknown
/// action, as in Open vSwitch without `--enable-dummy`.
pub fn accept_test_actions() {
    TEST_ACTIONS.store(true, Ordering::Relaxed);
}

/// The place of a list of actions.
#[derive(Clone, Copy, Debug)]
struct Scope {
    version: Version,
    depth: u8,
    /// Whether it is the list of a `ct` action; only there `nat` is allowed.
    in_ct: bool,
}

impl Scope {
    fn deeper(self, in_ct: bool) -> Result<Scope, OfError> {
        let depth = self.depth + 1;
        match depth <= MAX_DEPTH {
            true => Ok(Scope { depth, in_ct, ..self }),
            false => Err(OfError::BacTooMany),
        }
    }
}

/// Reads a list of actions.
pub fn decode(version: Version, data: &[u8]) -> Result<Vec<Action>, OfError> {
    let scope = Scope {
        version,
        depth: 0,
        in_ct: false,
    };
    decode_list(scope, data)
}

fn decode_list(scope: Scope, data: &[u8]) -> Result<Vec<Action>, OfError> {
    let mut data = Reader::new(data, OfError::BacBadLen);
    // Most actions take 8 or 16 bytes, and most lists are one of them.
    let mut actions = Vec::with_capacity(data.len().div_ceil(16));
    while !data.is_empty() {
        let Some([a, b, c, d]) = data.peek().first_chunk() else {
            return Err(OfError::BacBadLen);
        };
        let kind = u16::from_be_bytes([*a, *b]);
        let len = usize::from(u16::from_be_bytes([*c, *d]));
        let fits =
            len >= 8 && len % 8 == 0 && len <= data.len() && fixed_len(scope.version, kind).is_none_or(|n| n == len);
        if !fits {
            return Err(unknown(scope.version, kind, data.peek()).unwrap_or(OfError::BacBadLen));
        }
        let mut body = data.sub(len, OfError::BacBadLen)?;
        body.skip(4)?;
        let action = match kind {
            EXPERIMENTER => experimenter(scope, body)?,
            _ if scope.version == Version::V10 => standard::decode10(kind, body)?,
            _ => standard::decode11(scope.version, kind, body)?,
        };
        actions.push(action);
    }
    Ok(actions)
}

/// The length of an action that has but one.
fn fixed_len(version: Version, kind: u16) -> Option<usize> {
    const MOVE: u16 = 28;
    const SET_FIELD: u16 = 25;
    let longer: &[u16] = match version {
        Version::V10 => &[4, 5, 11],
        Version::V11 => &[0, 3, 4],
        _ => &[0],
    };
    match kind {
        EXPERIMENTER | SET_FIELD | MOVE => None,
        _ if longer.contains(&kind) => Some(16),
        _ => Some(8),
    }
}

/// The error for an unknown type of action: it takes precedence over errors of the length.
fn unknown(version: Version, kind: u16, data: &[u8]) -> Option<OfError> {
    if kind == EXPERIMENTER {
        let mut data = Reader::new(data.get(4..)?, OfError::BacBadLen);
        let (vendor, subtype) = (data.u32().ok()?, data.u16());
        return match subtype {
            _ if vendor != NICIRA => Some(OfError::BacBadVendor),
            Ok(1 | 2 | 4..=10 | 12..=50) | Err(_) => None,
            Ok(_) => Some(OfError::BacBadVendorType),
        };
    }
    let known = match version {
        Version::V10 => kind <= 11,
        Version::V11 => matches!(kind, 0..=24),
        Version::V12 => matches!(kind, 0 | 11 | 12 | 15..=25),
        Version::V13 | Version::V14 => matches!(kind, 0 | 11 | 12 | 15..=27),
        Version::V15 => matches!(kind, 0 | 11 | 12 | 15..=29),
    };
    (!known).then_some(OfError::BacBadType)
}

fn experimenter(scope: Scope, mut body: Reader<'_>) -> Result<Action, OfError> {
    if body.u32()? != NICIRA {
        return Err(OfError::BacBadVendor);
    }
    let subtype = body.u16()?;
    nicira::decode(scope, subtype, body)
}

/// State of the encoder beyond the action: the encoding of an action of an older version may depend
/// on the packet.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    version: Version,
    protocol: Option<u128>,
    /// Whether the packet has a tag at this point of the list.
    tagged: bool,
}

impl Encoder {
    /// For actions on the packets of a match.
    pub(crate) fn new(version: Version, matching: &Match) -> Encoder {
        let tag = matching.get(MatchField::VlanTci);
        Encoder {
            version,
            protocol: matching.exact(MatchField::NwProto),
            tagged: tag.is_some_and(|(value, _)| value & crate::model::TAGGED != 0),
        }
    }

    /// Writes a list of actions.
    pub(crate) fn encode(&mut self, out: &mut Writer, actions: &[Action]) {
        for action in actions {
            self.encode_one(out, action);
        }
    }

    fn encode_one(&mut self, out: &mut Writer, action: &Action) {
        let done = match self.version {
            Version::V10 => standard_out::encode10(out, action),
            _ => standard_out::encode11(self, out, action),
        };
        if !done {
            nicira_out::encode(self, out, action);
        }
        match action {
            Action::PopVlan | Action::StripVlan => self.tagged = false,
            Action::PushVlan(_) | Action::SetVlanVid(_) | Action::SetVlanPcp(_) => self.tagged = true,
            _ => {}
        }
    }
}

/// Writes one action of a type: its header, what `body` writes, zeros up to 8 bytes.
fn put(out: &mut Writer, kind: u16, body: impl FnOnce(&mut Writer)) {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    body(out);
    out.pad8(start);
    out.patch_len(start + 2, start);
}

/// Reads a port number of OpenFlow 1.1 and later. Numbers between the ports and the reserved ones
/// are none.
pub(crate) fn port11(number: u32, error: OfError) -> Result<Port, OfError> {
    match number {
        0xff00..=0xffff_feff => Err(error),
        _ => Ok(Port(number)),
    }
}

/// Reads a port number of OpenFlow 1.0.
pub(crate) fn port10(number: u16) -> Port {
    Port(flow::port_from_of10(number))
}

/// A port's number in OpenFlow 1.0.
pub(crate) fn to10(port: Port) -> u16 {
    port_to_of10(port.0)
}

#[cfg(test)]
mod tests;
