//! UDP checksums of outer headers, over IPv4 and IPv6.

use super::segments::{inside_of_tunnel, offload};
use super::{INSIDE, POP, PUSH, Side, V4, V6, skips, two, two_over};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use std::net::{Ipv4Addr, SocketAddrV4};
use testkit::{Capture, Iperf3, Packet, Sandbox, eventually, one_in, ping, tshark};

/// TCP between the hosts, both ways.
fn tcp(sides: &[Side; 2], bytes: u64) {
    for (from, to, address) in [(0, 1, "10.9.0.2"), (1, 0, "10.9.0.1")] {
        assert!(Iperf3::tcp_bytes(bytes).run(&sides[from].host, &sides[to].host, address) > 0.0);
    }
}

#[test]
fn outer_checksums_are_right_on_the_wire_over_both_versions_of_ip() {
    if skips() {
        return;
    }
    let tunnels = [
        (V4, "type=geneve options:key=42 options:csum=true"),
        (V6, "type=geneve options:key=42"),
        (V6, "type=vxlan options:key=42"),
        (V4, "type=vxlan options:key=42 options:csum=true"),
    ];
    for (underlay, tunnel) in one_in(2, tunnels) {
        let Some(sides) = two_over(underlay, tunnel) else {
            return;
        };
        for side in &sides {
            for text in [PUSH, POP, INSIDE] {
                side.wait_for_offload(text);
            }
        }
        // Segments, which cross whole; then the cable's devices cut them and fill in checksums.
        tcp(&sides, 20_000_000);
        for side in &sides {
            side.ns
                .run(&["ethtool", "-K", "ph", "tso", "off", "gso", "off", "tx", "off"]);
        }
        let before = sides.each_ref().map(|side| (side.counts(), side.seen_by_workers()));
        let capture = Capture::start_large(&sides[1].ns, "ph", "udp");
        assert_eq!(ping(&sides[0].host, "10.9.0.2", 20).received, 20);
        tcp(&sides, 5_000_000);
        let frames = capture.finish();
        assert!(frames.len() > 2000, "{}", frames.len());
        let sandbox = Sandbox::new();
        let path = sandbox.path("packets");
        let packets: Vec<Vec<u8>> = frames.iter().take(10_000).map(|frame| frame[14..].to_vec()).collect();
        std::fs::write(&path, testkit::pcap::of_ip(&packets)).unwrap();
        // The kernel writes TCP's checksum 0 as 0xffff, which is the same number (RFC 1624), once
        // in 65 536 packets.
        let wrong = "_ws.malformed || ip.checksum.status == \"Bad\" \
                     || (tcp.checksum.status == \"Bad\" && !tcp.checksum.ffff) \
                     || !(udp.checksum.status == \"Good\")";
        let check = ["ip", "udp", "tcp"].map(|protocol| format!("{protocol}.check_checksum:TRUE"));
        let options: Vec<&str> = check.iter().flat_map(|check| ["-o", check.as_str()]).collect();
        let said = tshark(&path, &[&options[..], &["-Y", wrong]].concat());
        assert_eq!(said, "", "{tunnel}");
        for (side, ([rx, tx], seen)) in sides.iter().zip(before) {
            let now = side.counts();
            let (all, by_workers) = (now[0] - rx + now[1] - tx, side.seen_by_workers() - seen);
            assert!(
                by_workers * 2 < all,
                "{by_workers} of {all} went through workers: {tunnel}"
            );
            assert_eq!(side.drops(), Vec::<String>::new());
        }
    }
}

#[test]
fn a_packet_with_a_wrong_outer_checksum_is_dropped_and_counted_by_a_worker() {
    if skips() {
        return;
    }
    for (tunnel, port) in [
        ("type=vxlan options:key=42 options:csum=true", 4789),
        ("type=geneve options:key=42 options:csum=true", 6081),
    ] {
        let Some(sides) = two(tunnel) else { return };
        let raw = sides[1]
            .ns
            .enter(|| socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap());
        let [from, to] = [2, 1].map(|n| Ipv4Addr::new(172, 31, 0, n));
        let send = |number: u32, wrong: bool| {
            let mut inside = inside_of_tunnel(&sides[0], number, 0);
            if port == 6081 {
                inside[..4].copy_from_slice(&[0, 0, 0x65, 0x58]);
            }
            let packet = Packet::new([0; 6], [0; 6]).ipv4(from, to).udp(44_444, port, &inside);
            let mut packet = packet.bytes().split_off(14);
            packet[27] ^= u8::from(wrong);
            sendto(&raw, &packet, SendFlags::empty(), &SocketAddrV4::new(to, 0)).unwrap();
        };
        offload(&sides[0], INSIDE, || send(0, false));
        let capture = Capture::start(&sides[0].host, "eth0", "udp port 6000");
        for number in 1..=20 {
            send(number, number % 2 == 0);
        }
        send(21, false);
        capture.wait_for("the last one", |frame| frame[42..46] == 21_u32.to_be_bytes());
        let numbers = capture.finish();
        let numbers: Vec<u8> = numbers
            .iter()
            .map(|frame| frame[45])
            .filter(|number| *number != 0)
            .collect();
        assert_eq!(numbers, (1..=21).step_by(2).collect::<Vec<u8>>());
        eventually("the drops are counted", || {
            let drops = sides[0].drops();
            (drops.len() == 1 && drops[0].starts_with("drop_tunnel_checksum") && drops[0].ends_with(" 10"))
                .then_some(())
        });
    }
}
