//! What packets must have in common to take the same shortcut.

use sys::bpf::shortcut::{KEY, Key};
use wire::EtherType;

/// The key of a packet: where it came in, its tag, and its headers without what differs from packet
/// to packet of a flow (lengths, identification, checksums). Of packets of one key `flow::extract`
/// reads the same, but for TCP's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShortcutKey(Key);

/// Where the headers begin.
const HEADERS: usize = 8;
const IP: usize = HEADERS + 14;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

impl ShortcutKey {
    /// The key of a packet with at most one tag, which is TCP, UDP or ICMP over IPv4 without
    /// options or IPv6 without extension headers, whole, and not neighbour discovery; `None` for
    /// others. `sys::bpf::shortcut` has the same in the kernel.
    pub fn of(port: u32, packet: &[u8]) -> Option<ShortcutKey> {
        let mut key = [0; KEY];
        key[..4].copy_from_slice(&port.to_ne_bytes());
        let (addresses, rest) = packet.split_first_chunk::<12>()?;
        let (mut kind, mut rest) = u16_of(rest)?;
        if EtherType(kind).is_vlan() {
            let (tci, behind) = u16_of(rest)?;
            let tag = u32::from(tci) | u32::from(kind.to_be()) << 16;
            key[4..8].copy_from_slice(&tag.to_ne_bytes());
            (kind, rest) = u16_of(behind)?;
        }
        key[HEADERS..HEADERS + 12].copy_from_slice(addresses);
        key[HEADERS + 12..IP].copy_from_slice(&kind.to_be_bytes());
        match EtherType(kind) {
            EtherType::IPV4 => ipv4(&mut key, rest)?,
            EtherType::IPV6 => ipv6(&mut key, rest)?,
            _ => return None,
        }
        Some(ShortcutKey(key))
    }

    /// Whether its packets have a VLAN tag.
    pub fn is_tagged(&self) -> bool {
        self.0[4..HEADERS] != [0; 4]
    }

    pub(super) fn bytes(&self) -> &Key {
        &self.0
    }
}

fn ipv4(key: &mut Key, packet: &[u8]) -> Option<()> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_fragment = header[6] & 0x3f != 0 || header[7] != 0;
    if header[0] != 0x45 || is_fragment {
        return None;
    }
    let transport = packet.get(20..len)?;
    let place = &mut key[IP..IP + 20];
    place.copy_from_slice(header);
    place[2..8].fill(0);
    place[10..12].fill(0);
    match header[9] {
        TCP | UDP => ports(&mut key[IP + 20..], header[9], transport),
        ICMP if transport.len() >= 8 => {
            key[IP + 20..][..2].copy_from_slice(&transport[..2]);
            Some(())
        }
        _ => None,
    }
}

fn ipv6(key: &mut Key, packet: &[u8]) -> Option<()> {
    let header: &[u8; 40] = packet.first_chunk()?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let transport = packet[40..].get(..len)?;
    let place = &mut key[IP..IP + 40];
    place.copy_from_slice(header);
    place[4..6].fill(0);
    match header[6] {
        TCP | UDP => ports(&mut key[IP + 40..], header[6], transport),
        // An echo request or reply.
        ICMPV6 if transport.len() >= 8 && transport[0] & 0xfe == 128 => {
            key[IP + 40..][..2].copy_from_slice(&transport[..2]);
            Some(())
        }
        _ => None,
    }
}

fn ports(place: &mut [u8], protocol: u8, transport: &[u8]) -> Option<()> {
    if protocol == TCP {
        let header: &[u8; 20] = transport.first_chunk()?;
        let len = usize::from(header[12] >> 4) * 4;
        if len < 20 || len > transport.len() {
            return None;
        }
    } else if transport.len() < 8 {
        return None;
    }
    place[..4].copy_from_slice(&transport[..4]);
    Some(())
}

fn u16_of(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*number), rest))
}
