//! Continuity check messages (IEEE 802.1Q-2018 §21.6) with Open vSwitch's extensions in the octets
//! that ITU-T Y.1731 reserves.

use wire::headers::behind_tags;
use wire::{EtherType, MacAddr, VlanTag};

/// The EtherType of CFM.
pub const ETHERTYPE: u16 = 0x8902;
/// Destination of the standard's messages, at maintenance level 0.
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x30]);
/// Destination of Open vSwitch's extended messages.
pub const EXTENDED_GROUP: MacAddr = MacAddr([0x01, 0x23, 0x20, 0, 0, 0x30]);

/// Length of a message, and of those that Open vSwitch once sent without the end TLV.
const LENGTH: usize = 75;
const ACCEPTED: usize = 74;
const OPCODE: u8 = 1;
/// Where TLVs begin, behind the octet that says so.
const FIRST_TLV: u8 = 70;
const REMOTE_DEFECT: u8 = 0x80;
const INTERVAL: u8 = 0x07;
/// VLAN tags that a frame may have.
const TAGS: usize = 2;

/// The maintenance association of all Open vSwitches: domain and association are called `ovs`, as
/// character strings (§21.6.5).
const ASSOCIATION: [u8; 48] = {
    let mut id = [0; 48];
    let text = [4, 3, b'o', b'v', b's', 2, 3, b'o', b'v', b's'];
    let mut at = 0;
    while at < text.len() {
        id[at] = text[at];
        at += 1;
    }
    id
};

/// A continuity check message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender hears nobody (`RDI`).
    pub remote_defect: bool,
    /// The interval by its number: 1 to 7; 0 for the one in `interval_ms`.
    pub interval: u8,
    /// Counts the sender's messages.
    pub sequence: u32,
    /// The sender's maintenance point.
    pub point: u16,
    /// Whether its association is Open vSwitch's.
    pub of_association: bool,
    /// Extended: the interval in milliseconds.
    pub interval_ms: u16,
    /// Extended: the sender's maintenance point.
    pub extended_point: u64,
    /// Extended: the sender is operationally down.
    pub down: bool,
}

/// Why a frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Another EtherType.
    NotCfm,
    /// Cut short.
    Length,
    /// Not a continuity check message.
    Opcode,
    /// The place of the TLVs is not behind the message.
    Tlv,
}

impl Message {
    /// Reads a frame, from the Ethernet header on.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(frame: &[u8]) -> Result<Message, Malformed> {
        let (kind, at) = behind_tags(frame, TAGS).ok_or(Malformed::NotCfm)?;
        if kind.0 != ETHERTYPE {
            return Err(Malformed::NotCfm);
        }
        let message: &[u8; ACCEPTED] = frame[at..].first_chunk().ok_or(Malformed::Length)?;
        if message[1] != OPCODE {
            return Err(Malformed::Opcode);
        }
        if message[3] != FIRST_TLV {
            return Err(Malformed::Tlv);
        }
        let two = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        let four = |at: usize| u32::from(two(at)) << 16 | u32::from(two(at + 2));
        Ok(Message {
            remote_defect: message[2] & REMOTE_DEFECT != 0,
            interval: message[2] & INTERVAL,
            sequence: four(4),
            point: two(8),
            of_association: message[10..58] == ASSOCIATION,
            interval_ms: two(58),
            extended_point: u64::from(four(60)) << 32 | u64::from(four(64)),
            down: message[68] != 0,
        })
    }

    /// Writes a frame.
    #[must_use]
    pub fn emit(&self, src: MacAddr, dst: MacAddr, tag: Option<VlanTag>) -> Vec<u8> {
        let mut frame = Vec::with_capacity(18 + LENGTH);
        frame.extend(dst.0);
        frame.extend(src.0);
        if let Some(tag) = tag {
            frame.extend(tag.to_bytes());
        }
        frame.extend(EtherType(ETHERTYPE).0.to_be_bytes());
        let mut message = [0; LENGTH];
        message[1] = OPCODE;
        message[2] = self.interval & INTERVAL | if self.remote_defect { REMOTE_DEFECT } else { 0 };
        message[3] = FIRST_TLV;
        message[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        message[8..10].copy_from_slice(&self.point.to_be_bytes());
        if self.of_association {
            message[10..58].copy_from_slice(&ASSOCIATION);
        }
        message[58..60].copy_from_slice(&self.interval_ms.to_be_bytes());
        message[60..68].copy_from_slice(&self.extended_point.to_be_bytes());
        message[68] = u8::from(self.down);
        frame.extend(message);
        frame
    }
}
