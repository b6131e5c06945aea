//! Frames of slow protocols (IEEE 802.3 annex 57A): LACPDUs (IEEE 802.1AX-2014 §6.4.2) and Marker
//! PDUs (§6.5.3).
//!
//! A receiver must not check version, reserved fields and padding (§6.4.2.3, §6.4.12): a later
//! version of the protocol has more behind what this one knows. It checks types and lengths of the
//! actor's and the partner's information, without which the rest has no meaning.

use core::fmt;
use wire::MacAddr;

/// The address of slow protocols.
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x02]);
/// The EtherType of slow protocols.
pub const ETHERTYPE: u16 = 0x8809;

/// Length of the Ethernet header.
const HEADER: usize = 14;
/// Length of an LACPDU or a Marker PDU, from the subtype on.
const PDU: usize = 110;
/// An LACPDU up to the end of the partner's information.
const KNOWN: usize = 42;
/// Subtypes (table 57A-3), and types of Marker PDUs.
const LACP: u8 = 1;
const MARKER: u8 = 2;
const MARKER_REQUEST: u8 = 1;
const MARKER_RESPONSE: u8 = 2;

/// The state octet (§6.4.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State(pub u8);

impl State {
    /// `LACP_Activity`: sends LACPDUs whatever the partner does.
    pub const ACTIVITY: State = State(0x01);
    /// `LACP_Timeout`: wants LACPDUs every second.
    pub const TIMEOUT: State = State(0x02);
    /// The link may be aggregated with others.
    pub const AGGREGATION: State = State(0x04);
    /// The link is attached to the right aggregator.
    pub const SYNCHRONIZED: State = State(0x08);
    /// Collection of received frames is enabled.
    pub const COLLECTING: State = State(0x10);
    /// Distribution of sent frames is enabled.
    pub const DISTRIBUTING: State = State(0x20);
    /// The sender uses configured information of its partner.
    pub const DEFAULTED: State = State(0x40);
    /// The sender has not heard from its partner for too long.
    pub const EXPIRED: State = State(0x80);

    const NAMES: [(State, &'static str); 8] = [
        (State::ACTIVITY, "activity"),
        (State::TIMEOUT, "timeout"),
        (State::AGGREGATION, "aggregation"),
        (State::SYNCHRONIZED, "synchronized"),
        (State::COLLECTING, "collecting"),
        (State::DISTRIBUTING, "distributing"),
        (State::DEFAULTED, "defaulted"),
        (State::EXPIRED, "expired"),
    ];

    /// Whether it has a bit.
    pub const fn has(self, bit: State) -> bool {
        self.0 & bit.0 != 0
    }

    /// The same with a bit set or not.
    #[must_use]
    pub const fn with(self, bit: State, set: bool) -> State {
        match set {
            true => State(self.0 | bit.0),
            false => State(self.0 & !bit.0),
        }
    }
}

impl fmt::Display for State {
    /// The names of its bits, with spaces between them, as in `lacp/show`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut space = "";
        for (_, name) in State::NAMES.iter().filter(|(bit, _)| self.has(*bit)) {
            write!(f, "{space}{name}")?;
            space = " ";
        }
        Ok(())
    }
}

/// What an LACPDU says of one end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Info {
    /// The system's priority; lower is better.
    pub system_priority: u16,
    /// The system's address.
    pub system: MacAddr,
    /// The operational key: ports of a system with the same key may be aggregated.
    pub key: u16,
    /// The port's priority; lower is better.
    pub port_priority: u16,
    /// The port's number.
    pub port: u16,
    /// Its state.
    pub state: State,
}

/// A frame of a slow protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowFrame {
    /// An LACPDU.
    Lacp {
        /// The sender.
        actor: Info,
        /// The receiver, as the sender knows it.
        partner: Info,
    },
    /// A marker: the receiver answers with [`SlowFrame::MarkerResponse`].
    Marker(Marker),
    /// The answer to a marker.
    MarkerResponse(Marker),
}

/// What a marker names, and its answer repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// The requester's port.
    pub port: u16,
    /// The requester's system.
    pub system: MacAddr,
    /// A number of the requester's choice.
    pub transaction: u32,
}

/// Why a frame has no PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Another destination, EtherType or subtype.
    NotSlow,
    /// The PDU ends before its information does.
    Runt,
    /// The type or length of an information is not the one of its place.
    Tlv,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WireError::NotSlow => "not a frame of LACP or of the marker protocol",
            WireError::Runt => "a PDU that is too short",
            WireError::Tlv => "an information of another type or length",
        })
    }
}

impl core::error::Error for WireError {}

impl SlowFrame {
    /// Reads a frame from the Ethernet header on.
    ///
    /// # Errors
    /// What is wrong with it; see [`WireError`].
    pub fn parse(frame: &[u8]) -> Result<SlowFrame, WireError> {
        let (header, pdu) = frame.split_at_checked(HEADER).ok_or(WireError::NotSlow)?;
        if header[..6] != GROUP.0 || header[12..] != ETHERTYPE.to_be_bytes() {
            return Err(WireError::NotSlow);
        }
        match pdu.first() {
            Some(&LACP) => parse_lacp(pdu),
            Some(&MARKER) => parse_marker(pdu),
            _ => Err(WireError::NotSlow),
        }
    }

    /// The frame, from a port with this address.
    pub fn emit(&self, source: MacAddr) -> Vec<u8> {
        let mut frame = Vec::with_capacity(HEADER + PDU);
        frame.extend(GROUP.0);
        frame.extend(source.0);
        frame.extend(ETHERTYPE.to_be_bytes());
        match self {
            SlowFrame::Lacp { actor, partner } => {
                frame.extend([LACP, 1]);
                emit_info(&mut frame, 1, actor);
                emit_info(&mut frame, 2, partner);
                // Collector information: no maximum delay.
                frame.extend([3, 16]);
            }
            SlowFrame::Marker(marker) => emit_marker(&mut frame, MARKER_REQUEST, marker),
            SlowFrame::MarkerResponse(marker) => emit_marker(&mut frame, MARKER_RESPONSE, marker),
        }
        frame.resize(HEADER + PDU, 0);
        frame
    }
}

fn parse_lacp(pdu: &[u8]) -> Result<SlowFrame, WireError> {
    let known: &[u8; KNOWN] = pdu.first_chunk().ok_or(WireError::Runt)?;
    if known[2..4] != [1, 20] || known[22..24] != [2, 20] {
        return Err(WireError::Tlv);
    }
    Ok(SlowFrame::Lacp {
        actor: info(known, 4),
        partner: info(known, 24),
    })
}

fn parse_marker(pdu: &[u8]) -> Result<SlowFrame, WireError> {
    let known: &[u8; 18] = pdu.first_chunk().ok_or(WireError::Runt)?;
    if known[3] != 16 {
        return Err(WireError::Tlv);
    }
    let marker = Marker {
        port: u16_at(known, 4),
        system: mac_at(known, 6),
        transaction: u32::from(u16_at(known, 12)) << 16 | u32::from(u16_at(known, 14)),
    };
    match known[2] {
        MARKER_REQUEST => Ok(SlowFrame::Marker(marker)),
        MARKER_RESPONSE => Ok(SlowFrame::MarkerResponse(marker)),
        _ => Err(WireError::Tlv),
    }
}

fn info(pdu: &[u8; KNOWN], at: usize) -> Info {
    Info {
        system_priority: u16_at(pdu, at),
        system: mac_at(pdu, at + 2),
        key: u16_at(pdu, at + 8),
        port_priority: u16_at(pdu, at + 10),
        port: u16_at(pdu, at + 12),
        state: State(pdu[at + 14]),
    }
}

fn u16_at<const N: usize>(pdu: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([pdu[at], pdu[at + 1]])
}

fn mac_at<const N: usize>(pdu: &[u8; N], at: usize) -> MacAddr {
    MacAddr(std::array::from_fn(|n| pdu[at + n]))
}

fn emit_info(frame: &mut Vec<u8>, kind: u8, info: &Info) {
    frame.extend([kind, 20]);
    frame.extend(info.system_priority.to_be_bytes());
    frame.extend(info.system.0);
    frame.extend(info.key.to_be_bytes());
    frame.extend(info.port_priority.to_be_bytes());
    frame.extend(info.port.to_be_bytes());
    frame.extend([info.state.0, 0, 0, 0]);
}

fn emit_marker(frame: &mut Vec<u8>, kind: u8, marker: &Marker) {
    frame.extend([MARKER, 1, kind, 16]);
    frame.extend(marker.port.to_be_bytes());
    frame.extend(marker.system.0);
    frame.extend(marker.transaction.to_be_bytes());
}
