//! The few values of packets and rules: with many values no rule would ever match.

use crate::Rng;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(super) const MACS: [&str; 7] = [
    "02:00:00:00:00:01",
    "02:00:00:00:00:02",
    "02:00:00:00:00:03",
    "02:00:00:00:01:03",
    "0a:12:34:56:78:9a",
    "01:00:5e:00:00:09",
    "ff:ff:ff:ff:ff:ff",
];
pub(super) const VIDS: [u16; 4] = [0, 10, 20, 100];
pub(super) const LABELS: [u32; 5] = [0, 3, 16, 100, 0xfffff];
pub(super) const PORTS: [u16; 5] = [1, 2, 80, 443, 65535];
pub(super) const ETHER_TYPES: [u16; 4] = [0x88b5, 0x8863, 0x0600, 0x88f7];

pub(super) fn ip(rng: &mut Rng) -> Ipv4Addr {
    let all = [
        [10, 0, 0, 1],
        [10, 0, 0, 2],
        [10, 0, 1, 2],
        [192, 168, 0, 7],
        [224, 0, 0, 9],
    ];
    (*rng.pick(&all)).into()
}

pub(super) fn ip6(rng: &mut Rng) -> Ipv6Addr {
    let all = ["fc00::1", "fc00::2", "fc00:1::2", "fe80::7", "ff02::1:ff00:2"];
    rng.pick(&all).parse().expect("an address")
}
