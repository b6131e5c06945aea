//! SCTP through a stateful firewall with translated addresses (RFC 9260): its packets are made by
//! hand, because not every kernel has it. Open vSwitch's userspace datapath does not track SCTP.

use super::{Lab, NEIGHBOURS};
use crate::fixture::stand_in;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testkit::{Capture, Packet, mac, send_frames, skip};

/// Types of chunks.
const DATA: u8 = 0;
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const ABORT: u8 = 6;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;

/// CRC32c (RFC 9260 appendix A), bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0x82f6_3b78 * (sum & 1)))
    })
}

/// Where the header of SCTP begins in a frame.
fn header(frame: &[u8]) -> usize {
    if frame[12..14] == [0x86, 0xdd] { 54 } else { 34 }
}

/// The sum that a frame should have where its SCTP header has one.
fn sum(frame: &[u8]) -> [u8; 4] {
    let mut packet = frame[header(frame)..].to_vec();
    packet[8..12].fill(0);
    crc32c(&packet).to_le_bytes()
}

/// A packet with one chunk.
fn frame(from: (IpAddr, u16), to: (IpAddr, u16), tag: u32, chunk: u8, initiate: u32) -> Vec<u8> {
    let mut body = vec![chunk, 0, 0, 20];
    body.extend(initiate.to_be_bytes());
    body.extend([0; 12]);
    let packet = Packet::new(mac(1), mac(2));
    let packet = match (from.0, to.0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => packet.ipv4(src, dst),
        (IpAddr::V6(src), IpAddr::V6(dst)) => packet.ipv6(src, dst),
        _ => panic!("two families"),
    };
    let mut frame = packet.sctp(from.1, to.1, &body).bytes();
    let at = header(&frame);
    frame[at + 4..at + 8].copy_from_slice(&tag.to_be_bytes());
    let sum = sum(&frame);
    frame[at + 8..at + 12].copy_from_slice(&sum);
    frame
}

/// The addresses and ports of a frame of SCTP.
fn ends(frame: &[u8]) -> ((IpAddr, u16), (IpAddr, u16)) {
    let at = header(frame);
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let address = |at: usize| -> IpAddr {
        match header(frame) {
            34 => Ipv4Addr::from(<[u8; 4]>::try_from(&frame[at..at + 4]).unwrap()).into(),
            _ => Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap()).into(),
        }
    };
    let (src, dst) = if at == 34 { (26, 30) } else { (22, 38) };
    ((address(src), port(at)), (address(dst), port(at + 2)))
}

#[test]
fn associations_pass_a_firewall_and_their_addresses_are_translated() {
    skip!(unless root, "ip", "ethtool", "tcpdump", "python3", "ovs-vsctl", "ovs-ofctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath does not track SCTP");
    }
    for (family, own, outer, server) in [
        ("sctp", "10.9.0.11", "10.9.0.80", "10.9.0.12"),
        ("sctp6", "fc09::11", "fc09::80", "fc09::12"),
    ] {
        let lab = Lab::new(&NEIGHBOURS);
        for rule in [
            format!("priority=5,{family},actions=ct(zone=1,nat,table=1)"),
            format!("table=1,in_port=1,ct_state=+trk+new,{family},actions=ct(commit,zone=1,nat(src={outer})),2"),
            format!("table=1,in_port=1,ct_state=+trk+est-inv,{family},actions=2"),
            format!("table=1,in_port=2,ct_state=+trk+est+rpl-inv,{family},actions=1"),
        ] {
            lab.rule(&rule);
        }
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let client = (address(own), 5000);
        let (seen, server) = ((address(outer), 5000), (address(server), 6000));
        let (inside, outside) = (&lab.inside, &lab.outside);
        // How many packets arrive at the other side, between these ends and with a right checksum.
        let crosses = |from_client: bool, tag: u32, chunk: u8, initiate: u32| {
            let (from, to, sent, expected) = match from_client {
                true => (inside, outside, (client, server), (seen, server)),
                false => (outside, inside, (server, seen), (server, client)),
            };
            let capture = Capture::start(to, "eth0", "ip proto 132 or ip6 proto 132");
            send_frames(from, "eth0", &[frame(sent.0, sent.1, tag, chunk, initiate)]);
            let frames = capture.finish();
            for frame in &frames {
                assert_eq!(ends(frame), expected);
                let at = header(frame);
                assert_eq!(frame[at + 8..at + 12], sum(frame));
                assert_eq!(frame[at + 12], chunk);
            }
            frames.len()
        };
        let (ours, theirs) = (0x1111, 0x2222);
        // No one outside begins an association, and an answer begins none.
        assert_eq!(crosses(false, 0, INIT, theirs), 0);
        assert_eq!(crosses(true, theirs, INIT_ACK, ours), 0);
        assert_eq!(crosses(true, 0, INIT, ours), 1);
        assert_eq!(crosses(false, ours, INIT_ACK, theirs), 1);
        assert_eq!(crosses(true, theirs, COOKIE_ECHO, 0), 1);
        assert_eq!(crosses(false, ours, COOKIE_ACK, 0), 1);
        for _ in 0..3 {
            assert_eq!(crosses(true, theirs, DATA, 1), 1);
            assert_eq!(crosses(false, ours, DATA, 1), 1);
        }
        // A stranger does not know the tag.
        assert_eq!(crosses(false, 0x3333, ABORT, 0), 0);
        assert_eq!(crosses(false, ours, DATA, 1), 1);
        let shown = lab.ovs_appctl(&["dpctl/dump-conntrack", "zone=1"]);
        assert!(shown.contains("sctp,orig=(src=") && shown.contains(outer), "{shown}");
    }
}
