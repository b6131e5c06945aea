//! The TLVs of auto-attach (draft-unbehagen-lldp-spb): how a switch asks the edge of a network with
//! shortest path bridging to map its VLANs to services.
//!
//! Both begin with a digest (HMAC-SHA-256). A switch without a key sends zeros, and does not check
//! what it receives, as Open vSwitch does.

use super::wire::WireError;
use core::fmt;
use wire::{MacAddr, Vid};

/// The organization of both TLVs (Avaya).
pub const OUI: [u8; 3] = [0x00, 0x04, 0x0d];
/// The subtype of [`Element`].
pub const ELEMENT: u8 = 11;
/// The subtype of lists of [`Assignment`].
pub const ASSIGNMENTS: u8 = 12;
/// Assignments that a TLV has room for.
pub const MOST_ASSIGNMENTS: usize = (511 - 4 - DIGEST) / ASSIGNMENT;

/// Length of the digest.
const DIGEST: usize = 32;
/// Length of one assignment.
const ASSIGNMENT: usize = 5;
/// The element type of a client that is a virtual switch.
const VIRTUAL_SWITCH: u8 = 14;

/// A service of a network with shortest path bridging: 24 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isid(u32);

impl Isid {
    /// A service identifier; `None` if it has more than 24 bits.
    pub const fn new(number: u32) -> Option<Isid> {
        match number >> 24 {
            0 => Some(Isid(number)),
            _ => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What a system is to auto-attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its type (6 bits).
    pub kind: u8,
    /// Its state (6 bits).
    pub state: u8,
    /// The VLAN of its management.
    pub management: Vid,
    /// The address of the system.
    pub system: MacAddr,
    /// How it is connected (3 bits), and bits that the draft reserves.
    pub connection: u16,
    /// The end of its identifier.
    pub rest: [u8; 2],
}

impl Element {
    /// The element of a virtual switch with this address.
    pub const fn virtual_switch(system: MacAddr) -> Element {
        Element {
            kind: VIRTUAL_SWITCH,
            state: 0,
            management: Vid::NONE,
            system,
            connection: 0,
            rest: [0; 2],
        }
    }

    /// Reads what follows the subtype.
    pub(super) fn parse(body: &[u8]) -> Result<Element, WireError> {
        let (_, body) = body.split_at_checked(DIGEST).ok_or(WireError::Length)?;
        let body: &[u8; 14] = body.first_chunk().ok_or(WireError::Length)?;
        let word = u32::from_be_bytes([body[0], body[1], body[2], body[3]]);
        Ok(Element {
            kind: (word >> 26) as u8,
            state: (word >> 20) as u8 & 0x3f,
            management: Vid::from_tci((word >> 8) as u16),
            system: MacAddr([body[4], body[5], body[6], body[7], body[8], body[9]]),
            connection: u16::from_be_bytes([body[10], body[11]]),
            rest: [body[12], body[13]],
        })
    }

    /// Appends what follows the subtype.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([0; DIGEST]);
        let word = u32::from(self.kind & 0x3f) << 26
            | u32::from(self.state & 0x3f) << 20
            | u32::from(self.management.get()) << 8;
        out.extend(word.to_be_bytes());
        out.extend(self.system.0);
        out.extend(self.connection.to_be_bytes());
        out.extend(self.rest);
    }

    /// The identifier of the system, as `autoattach/status` prints it: Open vSwitch prints 12 bytes
    /// of its memory, in which two numbers are in the order of a little-endian machine.
    pub fn system_id(&self) -> String {
        let connection = (self.connection >> 13).to_le_bytes();
        let reserved = (self.connection & 0x3ff).to_le_bytes();
        let tail = [connection, reserved, self.rest].concat();
        let tail: Vec<String> = tail.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}:{}", self.system, tail.join(":"))
    }

    /// Whether it has an identifier: one of zeros is none.
    pub fn is_named(&self) -> bool {
        !self.system.is_zero() || self.connection & 0xe3ff != 0 || self.rest != [0; 2]
    }
}

/// A VLAN and the service to which it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The answer to a request; a client sends [`Status::REQUEST`].
    pub status: Status,
    /// The VLAN.
    pub vlan: Vid,
    /// The service.
    pub isid: Isid,
}

/// What became of an assignment (4 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(u8);

impl Status {
    /// A client asks for the assignment.
    pub const REQUEST: Status = Status(0);
    /// Nobody has answered. It is no value of the 4 bits.
    pub const PENDING: Status = Status(u8::MAX);
}

impl fmt::Display for Status {
    /// As in `autoattach/show-isid`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self.0 {
            2 => "Active",
            3 => "Reject (Generic)",
            4 => "Reject (AA resources unavailable)",
            6 => "Reject (Invalid)",
            8 => "Reject (VLAN resources unavailable)",
            9 => "Reject (Application interaction issue)",
            u8::MAX => "Pending",
            _ => "Undefined",
        })
    }
}

/// Reads the assignments that follow the subtype.
pub(super) fn parse_assignments(body: &[u8]) -> Result<Vec<Assignment>, WireError> {
    let (_, list) = body.split_at_checked(DIGEST).ok_or(WireError::Length)?;
    let (list, rest) = list.as_chunks::<ASSIGNMENT>();
    if !rest.is_empty() {
        return Err(WireError::Length);
    }
    let read = |a: &[u8; ASSIGNMENT]| Assignment {
        status: Status(a[0] >> 4),
        vlan: Vid::from_tci(u16::from_be_bytes([a[0], a[1]])),
        isid: Isid(u32::from_be_bytes([0, a[2], a[3], a[4]])),
    };
    Ok(list.iter().map(read).collect())
}

/// Appends assignments, as many as a TLV has room for.
pub(super) fn emit_assignments(list: &[Assignment], out: &mut Vec<u8>) {
    out.extend([0; DIGEST]);
    for assignment in list.iter().take(MOST_ASSIGNMENTS) {
        let word = u16::from(assignment.status.0 & 0xf) << 12 | assignment.vlan.get();
        out.extend(word.to_be_bytes());
        out.extend(&assignment.isid.0.to_be_bytes()[1..]);
    }
}
