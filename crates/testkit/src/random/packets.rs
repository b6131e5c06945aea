//! Random frames with values that the random rules match.

use super::pools::{ETHER_TYPES, LABELS, MACS, PORTS, VIDS, ip, ip6};
use crate::{Rng, checksum};

/// A frame, which some rule nearly always matches.
pub fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(octets(rng.pick::<&str>(&MACS)));
    bytes.extend(octets(rng.pick::<&str>(&MACS)));
    let mut tags = *rng.pick(&[0_usize, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2]);
    if tags == 2 && rng.chance(10) {
        tags = 3;
    }
    for depth in 0..tags {
        let outer = depth + 1 < tags && rng.chance(60);
        // Open vSwitch does not take the last of these for a tag.
        let old = rng.chance(2);
        let kind: u16 = if old {
            0x9100
        } else if outer {
            0x88a8
        } else {
            0x8100
        };
        bytes.extend(kind.to_be_bytes());
        let (pcp, dei) = (*rng.pick(&[0u16, 0, 3, 7]), u16::from(rng.chance(10)));
        bytes.extend((pcp << 13 | dei << 12 | rng.pick(&VIDS)).to_be_bytes());
    }
    let (ether_type, inner) = match rng.below(20) {
        0 | 1 => (0x0806, arp(rng)),
        2 => (0x8035, arp(rng)),
        3..=9 => (0x0800, ipv4(rng)),
        10..=15 => (0x86dd, ipv6(rng)),
        16 => (*rng.pick(&ETHER_TYPES), noise(rng, 46)),
        17 => (46, llc(rng)),
        _ => {
            let inner = match rng.below(3) {
                0 => ipv4(rng),
                1 => ipv6(rng),
                _ => noise(rng, 40),
            };
            (*rng.pick(&[0x8847, 0x8848]), [labels(rng), inner].concat())
        }
    };
    bytes.extend(u16::to_be_bytes(ether_type));
    bytes.extend(inner);
    // A frame that ends within a tag is malformed for oxvs, and of an unknown type for Open
    // vSwitch.
    let payload = 14 + 4 * tags;
    if rng.chance(4) {
        bytes.truncate(payload + rng.below(bytes.len() - payload + 1));
    }
    if rng.chance(50) && bytes.len() < 60 {
        bytes.resize(60, 0);
    } else if rng.chance(5) {
        bytes.extend(noise(rng, 9));
    }
    bytes
}

fn octets(mac: &str) -> Vec<u8> {
    let digit = |pair| u8::from_str_radix(pair, 16).expect("two digits");
    mac.split(':').map(digit).collect()
}

fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.number() as u8).collect()
}

fn llc(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = match rng.below(3) {
        0 => vec![0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0],
        1 => vec![0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0xb5],
        _ => vec![0x42, 0x42, 3],
    };
    bytes.resize(46, 0);
    bytes
}

fn labels(rng: &mut Rng) -> Vec<u8> {
    let depth = *rng.pick(&[1, 1, 2, 3, 4]);
    let mut bytes = Vec::new();
    for at in 0..depth {
        let bottom = u32::from(at + 1 == depth && !rng.chance(3));
        let (class, ttl) = (*rng.pick(&[0u32, 5]), *rng.pick(&[0u32, 1, 2, 64]));
        bytes.extend((rng.pick(&LABELS) << 12 | class << 9 | bottom << 8 | ttl).to_be_bytes());
    }
    bytes
}

fn arp(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0, 1, 8, 0, 6, 4, 0, *rng.pick(&[1, 2, 2, 3])];
    if rng.chance(5) {
        bytes[rng.below(6)] ^= 1;
    }
    for _ in 0..2 {
        bytes.extend(octets(rng.pick::<&str>(&MACS)));
        bytes.extend(ip(rng).octets());
    }
    bytes
}

fn ipv4(rng: &mut Rng) -> Vec<u8> {
    let addresses = [ip(rng).octets(), ip(rng).octets()].concat();
    let fragment: u16 = match rng.below(12) {
        0 => 0x2000,
        1 => 0x2000 | 5,
        2 => 7,
        _ => *rng.pick(&[0, 0x4000]),
    };
    let (protocol, transport) = transport(rng, &addresses, false);
    let options = if rng.chance(8) { 4 * (1 + rng.below(3)) } else { 0 };
    let length = 20 + options + transport.len();
    let mut header = vec![0x45 + (options / 4) as u8, *rng.pick(&[0, 0, 0x28, 0xb9, 3])];
    header.extend((length as u16).to_be_bytes());
    header.extend([0, 7]);
    header.extend(fragment.to_be_bytes());
    header.extend([*rng.pick(&[0, 1, 2, 64, 64, 255]), protocol, 0, 0]);
    header.extend(addresses);
    header.resize(20 + options, 1);
    match rng.below(60) {
        0 => header[0] = 0x44,
        1 => header[0] = 0x4f,
        2 => header[0] ^= 0x20,
        3 => header[3] = header[3].wrapping_add(3),
        4 => header[2..4].copy_from_slice(&[0, 12]),
        _ => {}
    }
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&if rng.chance(4) { sum ^ 0x0101 } else { sum }.to_be_bytes());
    [header, transport].concat()
}

fn ipv6(rng: &mut Rng) -> Vec<u8> {
    let addresses = [ip6(rng).octets(), ip6(rng).octets()].concat();
    let (protocol, transport) = transport(rng, &addresses, true);
    let mut next = protocol;
    let mut extensions: Vec<u8> = Vec::new();
    let fragmented = rng.chance(40);
    if rng.chance(15) {
        for _ in 0..if fragmented { 1 } else { 1 + rng.below(3) } {
            let kind = if fragmented { 44 } else { *rng.pick(&[0u8, 43, 60, 51]) };
            let mut extension = match kind {
                44 => {
                    let offset = *rng.pick(&[0u16, 1, 1, 8 * 5, 8 * 5 + 1]);
                    let mut fragment = vec![next, 0];
                    fragment.extend(offset.to_be_bytes());
                    fragment.extend([0, 0, 0, 9]);
                    fragment
                }
                51 => vec![next, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
                _ => vec![next, 0, 1, 4, 0, 0, 0, 0],
            };
            extension.extend(extensions);
            extensions = extension;
            next = kind;
        }
    }
    let length = extensions.len() + transport.len();
    let class = *rng.pick(&[0u32, 0, 0x28, 0xb9]);
    let label = *rng.pick(&[0u32, 0, 5, 0xabcde]);
    let mut header = (6 << 28 | class << 20 | label).to_be_bytes().to_vec();
    header.extend((length as u16).to_be_bytes());
    header.extend([next, *rng.pick(&[0, 1, 2, 64, 64, 255])]);
    header.extend(addresses);
    match rng.below(60) {
        0 => header[5] = header[5].wrapping_add(3),
        1 => header[0] ^= 0x20,
        2 => header[4..6].copy_from_slice(&[0, 4]),
        _ => {}
    }
    [header, extensions, transport].concat()
}

/// The protocol, and its header and data with a checksum over `addresses` too.
fn transport(rng: &mut Rng, addresses: &[u8], v6: bool) -> (u8, Vec<u8>) {
    let size = match rng.below(20) {
        0 => 1400 + rng.below(60),
        1 => 1472 + rng.below(7000),
        _ => rng.below(30),
    };
    let data = noise(rng, size);
    let ports = [rng.pick(&PORTS).to_be_bytes(), rng.pick(&PORTS).to_be_bytes()].concat();
    let (protocol, mut bytes, sum_at) = match rng.below(16) {
        0..=3 => {
            let flags = *rng.pick(&[2u8, 0x10, 0x12, 0x11, 4, 0x18]);
            let options: usize = if rng.chance(15) { 12 } else { 0 };
            let offset = match rng.below(60) {
                0 => 4,
                1 => 15,
                _ => 5 + options / 4,
            };
            let mut header = ports;
            header.extend([0, 0, 0, 1, 0, 0, 0, 2]);
            header.extend([
                (offset as u8) << 4 | u8::from(rng.chance(5)),
                flags,
                0xff,
                0xff,
                0,
                0,
                0,
                0,
            ]);
            header.resize(20 + options, 1);
            (6, header, Some(16))
        }
        4..=7 => {
            let mut header = ports;
            let wrong = if rng.chance(3) { 5 } else { 0 };
            header.extend((8 + size as u16 + wrong).to_be_bytes());
            header.extend([0, 0]);
            (17, header, (!rng.chance(10)).then_some(6))
        }
        8 | 9 => {
            let mut header = ports;
            header.extend([0, 0, 0, 1, 1, 2, 3, 4]);
            (132, header, None)
        }
        10 | 11 if !v6 => {
            let header = vec![*rng.pick(&[8, 0, 3]), *rng.pick(&[0, 1]), 0, 0, 0, 1, 0, 2];
            (1, header, Some(2))
        }
        10 => {
            let header = vec![*rng.pick(&[128, 129, 1]), *rng.pick(&[0, 1]), 0, 0, 0, 1, 0, 2];
            (58, header, Some(2))
        }
        11..=13 if v6 => {
            let kind = *rng.pick(&[135, 136]);
            let code = u8::from(rng.chance(5));
            let mut header = vec![kind, code, 0, 0, *rng.pick(&[0, 0x60]), 0, 0, 0];
            header.extend(ip6(rng).octets());
            for _ in 0..*rng.pick(&[0, 1, 1, 1, 2]) {
                let option = if rng.chance(80) {
                    kind - 134
                } else {
                    1 + rng.below(3) as u8
                };
                header.extend([option, u8::from(!rng.chance(4))]);
                header.extend(octets(rng.pick::<&str>(&MACS)));
            }
            (58, header, Some(2))
        }
        12 => (2, vec![0x16, 0, 0, 0, 224, 0, 0, 9], None),
        13 => (47, vec![0, 0, 8, 0], None),
        _ => (*rng.pick(&[59, 50, 89, 255, 255, 0]), ports, None),
    };
    if !(protocol == 58 && matches!(bytes.first(), Some(135 | 136))) {
        bytes.extend(data);
    }
    if let Some(at) = sum_at {
        let mut summed = Vec::new();
        if protocol != 1 {
            summed.extend(addresses);
            summed.extend([0, protocol]);
            summed.extend((bytes.len() as u16).to_be_bytes());
        }
        summed.extend(&bytes);
        let mut sum = checksum(&summed);
        if sum == 0 && protocol == 17 {
            sum = 0xffff;
        }
        if rng.chance(5) {
            sum ^= 0x0110;
        }
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    (protocol, bytes)
}
