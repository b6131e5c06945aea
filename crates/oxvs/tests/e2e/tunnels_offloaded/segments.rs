//! Segments that the kernel cannot decapsulate or encapsulate whole go through workers, and so do
//! packets of tunnels inside of a tunnel.

use super::{INSIDE, POP, PUSH, Side, skips, two, with_kernel};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use sys::datagram::{self, Header};
use testkit::{Iperf3, Netns, Packet, eventually, ping};

/// The tunnel's end of the kernel's device, and a host's address.
const PEER: [u8; 6] = [2, 0, 0, 0, 9, 2];

pub(super) fn socket(ns: &Netns, address: &str) -> UdpSocket {
    let socket = ns.enter(|| UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket
}

/// Sends datagrams as one that the device is to cut.
fn send_at_once(from: &UdpSocket, to: (Ipv4Addr, u16), datagrams: &[Vec<u8>]) {
    let header = Header {
        src: Ipv4Addr::UNSPECIFIED.into(),
        dst: to.0.into(),
        dst_port: to.1,
        tos: 0,
        ttl: 64,
        mark: 0,
    };
    let segment = datagrams[0].len();
    let pieces = datagrams.iter().map(Vec::as_slice);
    let sent = datagram::send(from.as_fd(), &header, Some(segment as u16), pieces).unwrap();
    assert_eq!(sent, segment * datagrams.len());
}

/// The first words of datagrams that come until none comes for a second.
fn received(at: &UdpSocket, len: usize) -> BTreeSet<u32> {
    let mut buffer = [0; 9000];
    let mut numbers = BTreeSet::new();
    while let Ok(got) = at.recv(&mut buffer) {
        if got == len {
            numbers.insert(u32::from_be_bytes(*buffer.first_chunk().unwrap()));
        }
    }
    numbers
}

fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Sends packets until their flow is offloaded by megaflows with this text, beside those that are.
pub(super) fn offload(side: &Side, text: &str, send: impl Fn()) {
    let before = side.offloaded(text);
    eventually("the flow is offloaded", || {
        send();
        (side.offloaded(text) > before).then_some(())
    });
}

/// The header of VXLAN and a packet of the peer to the host, with this type of service.
pub(super) fn inside_of_tunnel(side: &Side, number: u32, tos: u8) -> Vec<u8> {
    let mac = side.host.mac_of("eth0");
    let mac: Vec<u8> = mac.split(':').map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect();
    let inner = Packet::new(PEER, *mac.first_chunk().unwrap());
    let inner = inner.ipv4([10, 9, 0, 2].into(), [10, 9, 0, 1].into());
    let mut inner = inner.udp(6001, 6000, &numbered(number, 500)).bytes();
    inner[15] = tos;
    inner[24..26].fill(0);
    let sum = testkit::checksum(&inner[14..34]);
    inner[24..26].copy_from_slice(&sum.to_be_bytes());
    [&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat()
}

#[test]
fn datagrams_that_a_host_leaves_to_its_device_cross_a_tunnel_one_by_one() {
    if skips() {
        return;
    }
    let Some((side, peer)) = with_kernel("noudpcsum") else {
        return;
    };
    let _pings = side.ping_on("10.9.0.2");
    for text in [PUSH, POP, INSIDE] {
        side.wait_for_offload(text);
    }
    let (host, other) = (socket(&side.host, "10.9.0.1:6000"), socket(&peer, "10.9.0.2:6000"));
    for (from, to, address, text) in [
        (&host, &other, Ipv4Addr::new(10, 9, 0, 2), PUSH),
        (&other, &host, Ipv4Addr::new(10, 9, 0, 1), INSIDE),
    ] {
        offload(&side, text, || {
            from.send_to(b"small", (address, 6000)).unwrap();
        });
        for n in 0..10 {
            let datagrams: Vec<Vec<u8>> = (0..4).map(|part| numbered(4 * n + part, 1000)).collect();
            send_at_once(from, (address, 6000), &datagrams);
            from.send_to(&numbered(40 + n, 999), (address, 6000)).unwrap();
        }
        let whole: BTreeSet<u32> = (0..40).collect();
        assert_eq!(received(to, 1000), whole, "{text}");
    }
}

#[test]
fn packets_of_a_tunnel_that_a_sender_leaves_to_its_device_as_one_are_decapsulated_one_by_one() {
    if skips() {
        return;
    }
    let Some((side, peer)) = with_kernel("noudpcsum") else {
        return;
    };
    let host = socket(&side.host, "10.9.0.1:6000");
    let sender = socket(&peer, "172.31.0.2:44444");
    let packet = |number| inside_of_tunnel(&side, number, 0);
    for n in 0..50 {
        send_at_once(
            &sender,
            (Ipv4Addr::new(172, 31, 0, 1), 4789),
            &[packet(2 * n), packet(2 * n + 1)],
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(received(&host, 500), (0..100).collect::<BTreeSet<u32>>());
}

#[test]
fn packets_of_a_hosts_own_tunnel_cross_a_tunnel() {
    if skips() {
        return;
    }
    let Some(sides) = two("type=vxlan options:key=42") else {
        return;
    };
    for (number, side) in (1..).zip(&sides) {
        let other = 3 - number;
        side.host.ip(&format!(
            "link add n0 type vxlan id 7 local 10.9.0.{number} remote 10.9.0.{other} dstport 8472"
        ));
        side.host.address("n0", &format!("10.99.0.{number}/24"));
        side.host.ip("link set n0 up mtu 1300");
    }
    eventually("a packet comes back", || {
        (ping(&sides[0].host, "10.99.0.2", 1).received == 1).then_some(())
    });
    assert_eq!(ping(&sides[0].host, "10.99.0.2", 50).received, 50);
    for (from, to, address) in [(0, 1, "10.99.0.2"), (1, 0, "10.99.0.1")] {
        assert!(Iperf3::tcp_bytes(2_000_000).run(&sides[from].host, &sides[to].host, address) > 0.0);
    }
    for side in &sides {
        assert_eq!(side.drops(), Vec::<String>::new());
    }
}
