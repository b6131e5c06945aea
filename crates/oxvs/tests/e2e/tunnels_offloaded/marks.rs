//! Congestion marks of outer headers (RFC 6040) on packets of a flow that is offloaded.

use super::segments::{inside_of_tunnel, offload, socket};
use super::{INSIDE, skips, with_kernel};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use sys::datagram::{self, Header, SocketOption};
use testkit::{Capture, eventually};

const NOT_ECT: u8 = 0;
const ECT1: u8 = 1;
const ECT0: u8 = 2;
const CE: u8 = 3;

/// Marks of outer headers, and the inner mark that a packet leaves with, if it does.
type Marks = &'static [(u8, Option<u8>)];

#[test]
fn a_mark_of_the_outer_header_changes_the_inner_one_or_drops_the_packet() {
    if skips() {
        return;
    }
    let Some((side, peer)) = with_kernel("noudpcsum") else {
        return;
    };
    let _pings = side.ping_on("10.9.0.2");
    side.wait_for_offload(INSIDE);
    let sender = socket(&peer, "172.31.0.2:44444");
    let without = SocketOption::Checksums {
        ipv6: false,
        send: false,
    };
    datagram::set(sender.as_fd(), without).unwrap();
    let send = |outer: u8, inner: u8, number: u32| {
        let packet = inside_of_tunnel(&side, number, inner);
        let header = Header {
            src: Ipv4Addr::UNSPECIFIED.into(),
            dst: Ipv4Addr::new(172, 31, 0, 1).into(),
            dst_port: 4789,
            tos: outer,
            ttl: 64,
            mark: 0,
        };
        datagram::send(sender.as_fd(), &header, None, [&packet[..]].into_iter()).unwrap();
    };
    let cases: [(u8, Marks); 3] = [
        (ECT0, &[(NOT_ECT, Some(ECT0)), (CE, Some(CE)), (ECT1, Some(ECT1))]),
        (ECT1, &[(NOT_ECT, Some(ECT1)), (CE, Some(CE))]),
        (NOT_ECT, &[(NOT_ECT, Some(NOT_ECT)), (ECT0, Some(NOT_ECT)), (CE, None)]),
    ];
    for (inner, outers) in cases {
        offload(&side, INSIDE, || send(NOT_ECT, inner, 0));
        for (outer, left) in outers {
            let capture = Capture::start(&side.host, "eth0", "udp port 6000");
            for number in 1..=10 {
                send(*outer, inner, number);
            }
            send(NOT_ECT, inner, 11);
            capture.wait_for("the last one", |frame| frame[42..46] == 11_u32.to_be_bytes());
            let frames = capture.finish();
            let own = frames.iter().filter(|frame| matches!(frame[45], 1..=10));
            let marks: Vec<u8> = own.map(|frame| frame[15] & 3).collect();
            let expected: Vec<u8> = left.iter().flat_map(|mark| [*mark; 10]).collect();
            assert_eq!(marks, expected, "{inner} in {outer}");
        }
    }
    eventually("the drop is counted", || {
        side.switch
            .appctl(&["coverage/show"])
            .contains("drop_tunnel_ecn")
            .then_some(())
    });
}
