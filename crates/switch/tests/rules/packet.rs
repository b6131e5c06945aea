//! Packets for random rules.

use crate::model::Topology;
use std::net::Ipv4Addr;
use testkit::{Packet, Rng, mac};

pub(crate) fn random(rng: &mut Rng, topology: &Topology) -> (u32, Vec<u8>) {
    let port = *rng.pick(&topology.inputs());
    let mut packet = Packet::new(mac(1 + rng.below(4) as u32), mac(1 + rng.below(5) as u32));
    if rng.chance(40) {
        // Open vSwitch takes the tag under a priority tag for the packet's VLAN; the other oracle
        // covers that.
        let outer = *rng.pick(&[0, 10, 20]);
        packet = packet.tag(0x8100, outer | (rng.below(3) as u16) << 13);
        if outer != 0 && rng.chance(20) {
            packet = packet.tag(0x8100, 30);
        }
    }
    let ip = |n: usize| Ipv4Addr::new(10, 0, (n / 4) as u8, (n % 4) as u8);
    let (sport, dport) = (80 + rng.below(3) as u16, 80 + rng.below(3) as u16);
    if rng.chance(15) {
        packet = packet.payload(0x88b5, b"data");
        return (port, packet.bytes());
    }
    packet = packet.ipv4(ip(rng.below(8)), ip(rng.below(8)));
    packet = match rng.below(3) {
        0 => packet.tcp(sport, dport, 2, b"data"),
        1 => packet.udp(sport, dport, b"data"),
        _ => packet.echo(1, 2, b"data"),
    };
    (port, packet.bytes())
}
