//! Frames of LLDP (IEEE 802.1AB-2016 clause 8).
//!
//! A receiver skips TLVs that it does not know (§9.2.7.7.2) and counts them. A frame whose
//! mandatory TLVs are missing or out of order, or with a TLV whose length its contents contradict,
//! is refused as a whole.

use super::auto_attach::{self, ASSIGNMENTS, Assignment, ELEMENT, Element, OUI};
use core::fmt;
use std::net::IpAddr;
use wire::{EtherType, MacAddr};

/// The address of the nearest bridge, to which this switch sends (table 7-1).
pub const NEAREST_BRIDGE: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]);

/// The other addresses: the nearest bridge that is no two-port MAC relay, and the nearest customer
/// bridge.
const OTHER_GROUPS: [MacAddr; 2] = [
    MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x03]),
    MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x00]),
];

/// Types of TLVs (table 8-1).
const END: u16 = 0;
const CHASSIS_ID: u16 = 1;
const PORT_ID: u16 = 2;
const TIME_TO_LIVE: u16 = 3;
const PORT_DESCRIPTION: u16 = 4;
const SYSTEM_NAME: u16 = 5;
const SYSTEM_DESCRIPTION: u16 = 6;
const CAPABILITIES: u16 = 7;
const MANAGEMENT: u16 = 8;
const ORGANIZATION: u16 = 127;

/// Most bytes of an identifier, and of a text (§8.5.2 to §8.5.7).
const MOST_TEXT: usize = 255;

/// What an LLDPDU says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lldpdu {
    /// The system.
    pub chassis: Id,
    /// Its port.
    pub port: Id,
    /// How long this is true, in seconds. 0: the port no longer speaks LLDP.
    pub ttl: u16,
    /// Text for people, as bytes of any kind. Empty if there is none.
    pub port_description: Vec<u8>,
    /// The name of the system; empty if there is none.
    pub system_name: Vec<u8>,
    /// The description of the system; empty if there is none.
    pub system_description: Vec<u8>,
    /// What the system can do.
    pub capabilities: Option<Capabilities>,
    /// Where it is managed: addresses of IP.
    pub management: Vec<IpAddr>,
    /// Its part in auto-attach.
    pub element: Option<Element>,
    /// Its assignments of auto-attach.
    pub assignments: Vec<Assignment>,
    /// Number of TLVs that a receiver does not know.
    pub unrecognized: u64,
}

/// The identifier of a system or of a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    /// Its subtype, 1 to 7 (tables 8-2 and 8-3).
    kind: u8,
    /// 1 to 255 bytes.
    value: Vec<u8>,
}

impl Id {
    /// The subtype of an address as the identifier of a system.
    pub(super) const CHASSIS_MAC: u8 = 4;
    /// The subtype of an address as the identifier of a port.
    pub(super) const PORT_MAC: u8 = 3;
    pub(super) const CHASSIS_NETWORK: u8 = 5;
    pub(super) const PORT_NETWORK: u8 = 4;
    const PORT_NAME: u8 = 5;

    /// A system by its address.
    pub fn chassis(mac: MacAddr) -> Id {
        Id {
            kind: Id::CHASSIS_MAC,
            value: mac.0.to_vec(),
        }
    }

    /// A port by the name of its interface; what is too long is cut off.
    pub fn port(name: &str) -> Id {
        let name = if name.is_empty() { "?" } else { name };
        Id {
            kind: Id::PORT_NAME,
            value: name.bytes().take(MOST_TEXT).collect(),
        }
    }

    /// Its subtype, 1 to 7.
    pub const fn kind(&self) -> u8 {
        self.kind
    }

    /// Its bytes.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    fn parse(body: &[u8]) -> Result<Id, WireError> {
        match body {
            [kind @ 1..=7, value @ ..] if (1..=MOST_TEXT).contains(&value.len()) => Ok(Id {
                kind: *kind,
                value: value.to_vec(),
            }),
            _ => Err(WireError::Id),
        }
    }
}

/// What a system can do, and does (§8.5.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Bits of table 8-4.
    pub available: u16,
    /// The same bits.
    pub enabled: u16,
}

impl Capabilities {
    /// A system that is a bridge and nothing else.
    pub const BRIDGE: Capabilities = Capabilities {
        available: 1 << 2,
        enabled: 1 << 2,
    };

    /// Names of the bits, from the lowest.
    pub const NAMES: [&'static str; 11] = [
        "other",
        "repeater",
        "bridge",
        "wlan-access-point",
        "router",
        "telephone",
        "docsis-cable-device",
        "station",
        "c-vlan-component",
        "s-vlan-component",
        "two-port-mac-relay",
    ];
}

/// Why a frame is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Another destination or EtherType.
    NotLldp,
    /// It ends before its last TLV does, or has no end TLV.
    Runt,
    /// The mandatory TLVs are missing, out of order or there twice.
    Mandatory,
    /// An identifier of an unknown subtype or of a wrong length.
    Id,
    /// The contents of a TLV contradict its length.
    Length,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WireError::NotLldp => "not a frame of LLDP",
            WireError::Runt => "an LLDPDU without an end",
            WireError::Mandatory => "an LLDPDU without chassis, port and time to live at its start",
            WireError::Id => "an identifier of an unknown kind or a wrong length",
            WireError::Length => "a TLV with a wrong length",
        })
    }
}

impl core::error::Error for WireError {}

impl Lldpdu {
    /// An LLDPDU with nothing but the mandatory TLVs. With a time to live of 0 it says that the
    /// port no longer speaks LLDP (§9.1.2.2).
    pub fn new(chassis: Id, port: Id, ttl: u16) -> Lldpdu {
        Lldpdu {
            chassis,
            port,
            ttl,
            port_description: Vec::new(),
            system_name: Vec::new(),
            system_description: Vec::new(),
            capabilities: None,
            management: Vec::new(),
            element: None,
            assignments: Vec::new(),
            unrecognized: 0,
        }
    }

    /// Reads a frame from the Ethernet header on. It may have one VLAN tag.
    ///
    /// # Errors
    /// What is wrong with it; see [`WireError`].
    pub fn parse(frame: &[u8]) -> Result<Lldpdu, WireError> {
        let mut tlvs = Tlvs(body(frame).ok_or(WireError::NotLldp)?);
        let mut mandatory = |kind| match tlvs.next()? {
            (found, body) if found == kind => Ok(body),
            _ => Err(WireError::Mandatory),
        };
        let chassis = Id::parse(mandatory(CHASSIS_ID)?)?;
        let port = Id::parse(mandatory(PORT_ID)?)?;
        let ttl: &[u8; 2] = mandatory(TIME_TO_LIVE)?.first_chunk().ok_or(WireError::Length)?;
        let mut pdu = Lldpdu::new(chassis, port, u16::from_be_bytes(*ttl));
        loop {
            match tlvs.next()? {
                (END, []) => return Ok(pdu),
                (END, _) => return Err(WireError::Length),
                (kind, body) => pdu.take(kind, body)?,
            }
        }
    }

    /// Takes an optional TLV.
    fn take(&mut self, kind: u16, body: &[u8]) -> Result<(), WireError> {
        match kind {
            CHASSIS_ID | PORT_ID | TIME_TO_LIVE => return Err(WireError::Mandatory),
            PORT_DESCRIPTION => take_text(&mut self.port_description, body)?,
            SYSTEM_NAME => take_text(&mut self.system_name, body)?,
            SYSTEM_DESCRIPTION => take_text(&mut self.system_description, body)?,
            CAPABILITIES => {
                let [a, b, c, d] = body.first_chunk().ok_or(WireError::Length)?;
                self.capabilities = Some(Capabilities {
                    available: u16::from_be_bytes([*a, *b]),
                    enabled: u16::from_be_bytes([*c, *d]),
                });
            }
            MANAGEMENT => self.management.extend(management_address(body)?),
            ORGANIZATION => self.take_organization(body)?,
            _ => self.unrecognized += 1,
        }
        Ok(())
    }

    fn take_organization(&mut self, body: &[u8]) -> Result<(), WireError> {
        let (head, body) = body.split_first_chunk::<4>().ok_or(WireError::Length)?;
        match (head[..3] == OUI, head[3]) {
            (true, ELEMENT) => self.element = Some(Element::parse(body)?),
            (true, ASSIGNMENTS) => self.assignments = auto_attach::parse_assignments(body)?,
            _ => self.unrecognized += 1,
        }
        Ok(())
    }

    /// The frame, from a port with this address. Texts are cut to 255 bytes.
    pub fn emit(&self, source: MacAddr) -> Vec<u8> {
        let mut frame = Vec::with_capacity(256);
        frame.extend(NEAREST_BRIDGE.0);
        frame.extend(source.0);
        frame.extend(EtherType::LLDP.0.to_be_bytes());
        put_id(&mut frame, CHASSIS_ID, &self.chassis);
        put_id(&mut frame, PORT_ID, &self.port);
        put(&mut frame, TIME_TO_LIVE, &self.ttl.to_be_bytes());
        put_text(&mut frame, PORT_DESCRIPTION, &self.port_description);
        put_text(&mut frame, SYSTEM_NAME, &self.system_name);
        put_text(&mut frame, SYSTEM_DESCRIPTION, &self.system_description);
        if let Some(Capabilities { available, enabled }) = self.capabilities {
            let bits = u32::from(available) << 16 | u32::from(enabled);
            put(&mut frame, CAPABILITIES, &bits.to_be_bytes());
        }
        for address in &self.management {
            put_management(&mut frame, *address);
        }
        if let Some(element) = &self.element {
            put_organization(&mut frame, ELEMENT, |body| element.emit(body));
        }
        if !self.assignments.is_empty() {
            let emit = |body: &mut Vec<u8>| auto_attach::emit_assignments(&self.assignments, body);
            put_organization(&mut frame, ASSIGNMENTS, emit);
        }
        put(&mut frame, END, &[]);
        frame.resize(frame.len().max(60), 0);
        frame
    }
}

/// The LLDPDU of a frame.
fn body(frame: &[u8]) -> Option<&[u8]> {
    let (header, mut rest) = frame.split_at_checked(12)?;
    let to = MacAddr(*header.first_chunk()?);
    if to != NEAREST_BRIDGE && !OTHER_GROUPS.contains(&to) {
        return None;
    }
    if rest.starts_with(&EtherType::VLAN.0.to_be_bytes()) {
        rest = rest.get(4..)?;
    }
    rest.strip_prefix(&EtherType::LLDP.0.to_be_bytes())
}

/// The TLVs of an LLDPDU.
struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    /// The type and the contents of the next one.
    fn next(&mut self) -> Result<(u16, &'a [u8]), WireError> {
        let (head, rest) = self.0.split_first_chunk::<2>().ok_or(WireError::Runt)?;
        let head = u16::from_be_bytes(*head);
        let (body, rest) = rest
            .split_at_checked(usize::from(head & 0x1ff))
            .ok_or(WireError::Runt)?;
        self.0 = rest;
        Ok((head >> 9, body))
    }
}

/// Takes a text; of several of its kind the first counts.
fn take_text(text: &mut Vec<u8>, body: &[u8]) -> Result<(), WireError> {
    if body.len() > MOST_TEXT {
        return Err(WireError::Length);
    }
    if text.is_empty() {
        *text = body.to_vec();
    }
    Ok(())
}

/// The address of a TLV (§8.5.9); `None` if it is not one of IP.
fn management_address(body: &[u8]) -> Result<Option<IpAddr>, WireError> {
    let (&len, body) = body.split_first().ok_or(WireError::Length)?;
    // The family and the address, the interface, the length of an object identifier.
    if !(2..=32).contains(&len) || body.len() < usize::from(len) + 6 {
        return Err(WireError::Length);
    }
    let (address, rest) = body.split_at(usize::from(len));
    if rest.len() < 6 + usize::from(rest[5]) {
        return Err(WireError::Length);
    }
    Ok(network_address(address))
}

/// An address behind the number of its family (RFC 3232); `None` if it is not one of IP.
pub(super) fn network_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes {
        [1, address @ ..] => <[u8; 4]>::try_from(address).ok().map(IpAddr::from),
        [2, address @ ..] => <[u8; 16]>::try_from(address).ok().map(IpAddr::from),
        _ => None,
    }
}

fn put(frame: &mut Vec<u8>, kind: u16, body: &[u8]) {
    frame.extend((kind << 9 | body.len() as u16 & 0x1ff).to_be_bytes());
    frame.extend(body);
}

fn put_id(frame: &mut Vec<u8>, kind: u16, id: &Id) {
    put(frame, kind, &[&[id.kind], &id.value[..]].concat());
}

fn put_text(frame: &mut Vec<u8>, kind: u16, text: &[u8]) {
    if !text.is_empty() {
        put(frame, kind, &text[..text.len().min(MOST_TEXT)]);
    }
}

fn put_management(frame: &mut Vec<u8>, address: IpAddr) {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (1, address.octets().to_vec()),
        IpAddr::V6(address) => (2, address.octets().to_vec()),
    };
    let mut body = vec![bytes.len() as u8 + 1, family];
    body.extend(bytes);
    // An interface that is not known, and no object identifier.
    body.extend([1, 0, 0, 0, 0, 0]);
    put(frame, MANAGEMENT, &body);
}

fn put_organization(frame: &mut Vec<u8>, subtype: u8, emit: impl FnOnce(&mut Vec<u8>)) {
    let mut body = OUI.to_vec();
    body.push(subtype);
    emit(&mut body);
    put(frame, ORGANIZATION, &body);
}
