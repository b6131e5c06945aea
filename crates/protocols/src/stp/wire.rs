//! Bridge protocol data units (IEEE 802.1D-2004 clause 9) of STP and RSTP.
//!
//! A BPDU is in an LLC frame (802.2: both service access points 0x42, unnumbered information) to
//! the bridge group address. Its type and lengths are checked as §9.3.4 says; whatever follows a
//! BPDU is padding, or a part of a later version of the protocol.

use core::fmt;
use core::time::Duration;
use wire::MacAddr;

/// The bridge group address (table 7-10).
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]);

/// Length of the Ethernet and LLC headers.
const HEADERS: usize = 17;
/// Lengths of a TCN BPDU, a Configuration BPDU and an RST BPDU (§9.3).
const TCN: usize = 4;
const CONFIG: usize = 35;
const RST: usize = 36;

/// Bits of the flags octet (§9.2.9, §9.3.1, §9.3.3).
mod flag {
    pub(super) const TOPOLOGY_CHANGE: u8 = 0x01;
    pub(super) const PROPOSAL: u8 = 0x02;
    pub(super) const ROLE: u8 = 0x0c;
    pub(super) const LEARNING: u8 = 0x10;
    pub(super) const FORWARDING: u8 = 0x20;
    pub(super) const AGREEMENT: u8 = 0x40;
    pub(super) const TOPOLOGY_CHANGE_ACK: u8 = 0x80;
}

/// A bridge identifier (§9.2.5): 16 bits of priority, then the bridge's address. The lower one is
/// the better one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BridgeId(pub u64);

impl BridgeId {
    /// The identifier of a bridge.
    pub const fn new(priority: u16, mac: MacAddr) -> BridgeId {
        BridgeId((priority as u64) << 48 | mac.to_u64())
    }

    /// Its first 16 bits.
    pub const fn priority(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The bridge's address.
    pub const fn mac(self) -> MacAddr {
        MacAddr::from_u64(self.0 & 0xffff_ffff_ffff)
    }
}

impl fmt::Display for BridgeId {
    /// As `8000.aabbccddeeff`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}.{:012x}", self.priority(), self.mac().to_u64())
    }
}

/// A port identifier (§9.2.7): priority, then number. STP has 8 bits of each, RSTP 4 and 12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// The timers that a BPDU carries, each in 1/256 s (§9.2.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The age of the information.
    pub message_age: u16,
    /// The age at which it is discarded.
    pub max_age: u16,
    /// The interval of the root's Configuration BPDUs.
    pub hello_time: u16,
    /// The time in the states listening and learning.
    pub forward_delay: u16,
}

impl Times {
    /// Whole seconds in the units of a BPDU.
    pub const fn seconds(seconds: u16) -> u16 {
        seconds.saturating_mul(256)
    }

    /// A time of a BPDU as a duration.
    pub const fn duration(units: u16) -> Duration {
        Duration::from_nanos(units as u64 * 3_906_250)
    }

    /// A duration in the units of a BPDU, rounded down.
    pub fn units(duration: Duration) -> u16 {
        u16::try_from(duration.as_nanos() / 3_906_250).unwrap_or(u16::MAX)
    }

    /// The same, with each timer in a range that a bridge can work with: a hello time of 1 to 10
    /// seconds, a maximum age of 6 to 40 and a forward delay of 2 to 30. The standard has 4 to 30
    /// for the last (table 17-1); the bridge of Linux lets users set 2.
    #[must_use]
    pub fn bounded(self) -> Times {
        let within = |value: u16, least, most| value.clamp(Times::seconds(least), Times::seconds(most));
        Times {
            message_age: self.message_age,
            max_age: within(self.max_age, 6, 40),
            hello_time: within(self.hello_time, 1, 10),
            forward_delay: within(self.forward_delay, 2, 30),
        }
    }
}

/// What Configuration and RST BPDUs have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The bridge that the sender takes for the root.
    pub root: BridgeId,
    /// The sender's distance to it.
    pub cost: u32,
    /// The sender.
    pub bridge: BridgeId,
    /// The port that sent it.
    pub port: PortId,
    /// The root's timers.
    pub times: Times,
    /// The topology changes.
    pub topology_change: bool,
}

/// The role that an RST BPDU tells of its port (§9.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireRole {
    /// None. The receiver treats the BPDU as a Configuration BPDU.
    Unknown,
    /// Alternate or backup.
    Alternate,
    /// Root.
    Root,
    /// Designated.
    Designated,
}

/// The flags that only an RST BPDU has (§9.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RstFlags {
    /// The port's role.
    pub role: WireRole,
    /// The port wants to forward at once.
    pub proposal: bool,
    /// The port agrees that the other end forwards at once.
    pub agreement: bool,
    /// The port learns.
    pub learning: bool,
    /// The port forwards.
    pub forwarding: bool,
}

/// A BPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bpdu {
    /// A Topology Change Notification BPDU (§9.3.2).
    Tcn,
    /// A Configuration BPDU (§9.3.1), and its flag of an acknowledged notification.
    Config(Message, bool),
    /// A Rapid Spanning Tree BPDU (§9.3.3), or one of a later version.
    Rst(Message, RstFlags),
}

/// Why a frame has no BPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The Ethernet or LLC header is another protocol's, or contradicts the frame's length.
    NotBpdu,
    /// The BPDU is shorter than its type says.
    Runt,
    /// The protocol identifier is not 0.
    Protocol,
    /// The BPDU's type is unknown, or its version does not have it.
    Type,
    /// A Configuration BPDU is older than its maximum age.
    Old,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WireError::NotBpdu => "not a BPDU",
            WireError::Runt => "a BPDU that is too short",
            WireError::Protocol => "an unknown protocol identifier",
            WireError::Type => "an unknown type of BPDU",
            WireError::Old => "a message age that is not less than the maximum age",
        })
    }
}

impl core::error::Error for WireError {}

impl Bpdu {
    /// Reads the BPDU of a frame, from the Ethernet header on.
    ///
    /// # Errors
    /// What is wrong with the frame; see [`WireError`].
    pub fn parse(frame: &[u8]) -> Result<Bpdu, WireError> {
        let llc = match frame.get(12..HEADERS) {
            Some(&[high, low, 0x42, 0x42, 0x03]) if frame[..6] == GROUP.0 => {
                usize::from(u16::from_be_bytes([high, low])).checked_sub(3)
            }
            _ => None,
        };
        let length = llc.filter(|length| length + 3 < 0x600).ok_or(WireError::NotBpdu)?;
        let bpdu = frame.get(HEADERS..HEADERS + length).ok_or(WireError::NotBpdu)?;
        let &[p1, p2, version, kind, ..] = bpdu else {
            return Err(WireError::Runt);
        };
        if [p1, p2] != [0, 0] {
            return Err(WireError::Protocol);
        }
        match kind {
            0x80 => Ok(Bpdu::Tcn),
            0x00 => {
                let (message, flags) = parse_message(bpdu)?;
                if message.times.message_age >= message.times.max_age {
                    return Err(WireError::Old);
                }
                Ok(Bpdu::Config(message, flags & flag::TOPOLOGY_CHANGE_ACK != 0))
            }
            0x02 if version >= 2 => {
                if bpdu.len() < RST {
                    return Err(WireError::Runt);
                }
                let (message, flags) = parse_message(bpdu)?;
                let role = match (flags & flag::ROLE) >> 2 {
                    0 => WireRole::Unknown,
                    1 => WireRole::Alternate,
                    2 => WireRole::Root,
                    _ => WireRole::Designated,
                };
                let flags = RstFlags {
                    role,
                    proposal: flags & flag::PROPOSAL != 0,
                    agreement: flags & flag::AGREEMENT != 0,
                    learning: flags & flag::LEARNING != 0,
                    forwarding: flags & flag::FORWARDING != 0,
                };
                Ok(Bpdu::Rst(message, flags))
            }
            _ => Err(WireError::Type),
        }
    }

    /// The frame with this BPDU, from a port with this address.
    pub fn emit(&self, source: MacAddr) -> Vec<u8> {
        let length = match self {
            Bpdu::Tcn => TCN,
            Bpdu::Config(..) => CONFIG,
            Bpdu::Rst(..) => RST,
        };
        let mut frame = Vec::with_capacity(HEADERS + length);
        frame.extend(GROUP.0);
        frame.extend(source.0);
        frame.extend((length as u16 + 3).to_be_bytes());
        frame.extend([0x42, 0x42, 0x03, 0, 0]);
        match self {
            Bpdu::Tcn => frame.extend([0, 0x80]),
            Bpdu::Config(message, ack) => {
                frame.extend([0, 0]);
                emit_message(&mut frame, message, bit(*ack, flag::TOPOLOGY_CHANGE_ACK));
            }
            Bpdu::Rst(message, flags) => {
                frame.extend([2, 2]);
                let role = match flags.role {
                    WireRole::Unknown => 0,
                    WireRole::Alternate => 1,
                    WireRole::Root => 2,
                    WireRole::Designated => 3,
                };
                let flags = role << 2
                    | bit(flags.proposal, flag::PROPOSAL)
                    | bit(flags.agreement, flag::AGREEMENT)
                    | bit(flags.learning, flag::LEARNING)
                    | bit(flags.forwarding, flag::FORWARDING);
                emit_message(&mut frame, message, flags);
                // Version 1 length.
                frame.push(0);
            }
        }
        frame
    }
}

fn bit(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

/// The message of a BPDU, and its flags.
fn parse_message(bpdu: &[u8]) -> Result<(Message, u8), WireError> {
    let fixed: &[u8; CONFIG] = bpdu.first_chunk().ok_or(WireError::Runt)?;
    let u16_at = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) << 16 | u32::from(u16_at(at + 2));
    let u64_at = |at: usize| u64::from(u32_at(at)) << 32 | u64::from(u32_at(at + 4));
    let message = Message {
        root: BridgeId(u64_at(5)),
        cost: u32_at(13),
        bridge: BridgeId(u64_at(17)),
        port: PortId(u16_at(25)),
        times: Times {
            message_age: u16_at(27),
            max_age: u16_at(29),
            hello_time: u16_at(31),
            forward_delay: u16_at(33),
        },
        topology_change: fixed[4] & flag::TOPOLOGY_CHANGE != 0,
    };
    Ok((message, fixed[4]))
}

fn emit_message(frame: &mut Vec<u8>, message: &Message, flags: u8) {
    frame.push(flags | bit(message.topology_change, flag::TOPOLOGY_CHANGE));
    frame.extend(message.root.0.to_be_bytes());
    frame.extend(message.cost.to_be_bytes());
    frame.extend(message.bridge.0.to_be_bytes());
    frame.extend(message.port.0.to_be_bytes());
    let times = &message.times;
    for time in [times.message_age, times.max_age, times.hello_time, times.forward_delay] {
        frame.extend(time.to_be_bytes());
    }
}
