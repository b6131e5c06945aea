//! Random packets of many kinds.

use crate::model::Topology;
use std::net::{Ipv4Addr, Ipv6Addr};
use testkit::{ArpOp, Packet, Rng, mac};

pub(crate) fn random(rng: &mut Rng, topology: &Topology) -> (u32, Vec<u8>) {
    let port = *rng.pick(&topology.inputs());
    let mut packet = Packet::new(mac(1 + rng.below(4) as u32), mac(1 + rng.below(5) as u32));
    // A tag inside a priority tag, and the other way round, is the matter of the comparison of
    // plain switching.
    if rng.chance(35) {
        packet = packet.tag(0x8100, *rng.pick(&[10, 20, 30]) | (rng.below(3) as u16) << 13);
    }
    let v4 = |n: usize| Ipv4Addr::new(10, 0, (n / 4) as u8, (n % 4) as u8);
    let v6 = |n: usize| Ipv6Addr::from(0x2001_0db8_u128 << 96 | n as u128);
    let (sport, dport) = (80 + rng.below(3) as u16, 80 + rng.below(3) as u16);
    let (a, b) = (rng.below(8), rng.below(8));
    match rng.below(20) {
        0 => packet = packet.payload(0x88b5, b"data"),
        1 | 2 => packet = packet.arp(*rng.pick(&[ArpOp::Request, ArpOp::Reply]), v4(a), v4(b)),
        3 => {
            // A neighbour solicitation with a source link-layer address.
            let mut bytes = packet.ipv6(v6(a), v6(b)).bytes();
            let payload = [
                &[135, 0, 0, 0, 0, 0, 0, 0][..],
                &v6(b).octets(),
                &[1, 1, 2, 0, 0, 0, 0, 9],
            ]
            .concat();
            return (port, with_ipv6(&mut bytes, 58, &payload));
        }
        4 => {
            let bottom = [0, 0, 0x51 + 0x10 * rng.below(2) as u8, *rng.pick(&[0, 1, 2, 64])];
            let top = [0, 0, 0x60 + 2 * rng.below(8) as u8, 20];
            let mut stack = if rng.chance(40) { top.to_vec() } else { Vec::new() };
            stack.extend(bottom);
            stack.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            packet = packet.payload(0x8847, &stack);
        }
        5..=8 => {
            packet = packet.ipv6(v6(a), v6(b));
            packet = match rng.below(2) {
                0 => packet.tcp(sport, dport, *rng.pick(&[2, 16, 17, 4]), b"data"),
                _ => packet.udp(sport, dport, b"data"),
            };
        }
        n => {
            packet = packet.ipv4(v4(a), v4(b));
            packet = match n % 3 {
                0 => packet.tcp(sport, dport, *rng.pick(&[2, 16, 17, 4]), b"data"),
                1 => packet.udp(sport, dport, b"data"),
                _ => packet.echo(1, 2, b"data"),
            };
            let mut bytes = packet.bytes();
            mangle(rng, &mut bytes);
            return (port, bytes);
        }
    }
    (port, packet.bytes())
}

/// Changes the type of service, the time to live, or makes fragments.
fn mangle(rng: &mut Rng, bytes: &mut [u8]) {
    let ip = bytes.windows(2).position(|two| two == [8, 0]).unwrap() + 2;
    if rng.chance(30) {
        bytes[ip + 1] = *rng.pick(&[0xb8, 0x01, 0x48]);
    }
    if rng.chance(30) {
        bytes[ip + 8] = *rng.pick(&[0, 1, 2]);
    }
    if rng.chance(15) {
        bytes[ip + 6] = *rng.pick(&[0x20, 0x01]);
    }
}

/// An IPv6 packet with another payload.
fn with_ipv6(bytes: &mut Vec<u8>, next: u8, payload: &[u8]) -> Vec<u8> {
    let ip = bytes.windows(2).position(|two| two == [0x86, 0xdd]).unwrap() + 2;
    bytes.truncate(ip + 40);
    bytes[ip + 4..ip + 6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    bytes[ip + 6] = next;
    bytes.extend(payload);
    bytes.clone()
}
