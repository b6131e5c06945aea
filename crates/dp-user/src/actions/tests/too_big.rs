//! Packets that are too big for the path of a tunnel.

use super::*;
use dp::{PathLimit, TunnelPush};
use flow::Tunnel;
use std::net::IpAddr;
use tunnel::format::geneve::OptionsBuffer;
use tunnel::format::{Body, Encapsulation, FlowLabel, Inner, Kind, Outer, SourcePorts};
use wire::MacAddr;

/// A tunnel to the end 172.31.0.2 or fd31::2, whose packets leave by port 1.
fn tunnel(v6: bool, inner: Inner, limit: PathLimit) -> [Action; 2] {
    let body = Body::Gre {
        id: Some(42),
        csum: false,
        sequence: false,
    };
    tunnel_of(v6, inner, limit, (Kind::Gre, &body))
}

fn tunnel_of(v6: bool, inner: Inner, limit: PathLimit, (kind, body): (Kind, &Body<'_>)) -> [Action; 2] {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let (src, dst) = if v6 {
        ("fd31::1", "fd31::2")
    } else {
        ("172.31.0.1", "172.31.0.2")
    };
    let outer = Outer {
        ethernet: Some((MacAddr(B), MacAddr(A))),
        src: ip(src),
        dst: ip(dst),
        tos: 0,
        ttl: 64,
        df: !limit.fragments,
        label: FlowLabel::Zero,
        ports: SourcePorts::default(),
    };
    let push = TunnelPush {
        port: PortNo(100),
        underlay: PortNo(101),
        kind,
        headers: Encapsulation::new(&outer, body, inner).unwrap(),
        sequence: None,
        limit: Some(limit),
    };
    [Action::TunnelPush(push.into()), output(1)]
}

/// GRE with a key over IPv4 has 28 bytes from the IP header on.
const LIMIT: PathLimit = PathLimit {
    mtu: 1000,
    fragments: false,
    id: Some(43),
    answers: true,
};

/// TCP over IPv4 with "don't fragment", of so many bytes from the IP header on.
fn packet(port: u16, len: usize) -> Frame {
    let mut bytes = tcp(port, &vec![7; len - 40]);
    bytes[20] |= 0x40;
    Frame::from_slice(&bytes)
}

fn packet_v6(len: usize) -> Frame {
    let packet = Packet::new(A, B).ipv6(1.into(), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
    let mut bytes = packet.tcp(1, 80, 16, &vec![7; len - 60]).bytes();
    bytes[14 + 8] = 0xfd;
    Frame::from_slice(&bytes)
}

/// What an error says: its type and code, and the size.
fn error(frame: &Frame) -> ([u8; 2], u16) {
    let message = &frame.data()[34..];
    ([message[0], message[1]], u16::from_be_bytes([message[6], message[7]]))
}

#[test]
fn the_sender_gets_an_error_by_the_tunnel() {
    let mut f = Fixture::new();
    let actions = tunnel(false, Inner::Ethernet, LIMIT);
    assert_eq!(f.run(packet(1, 958), &actions)[0][0].len(), 1014);
    assert!(f.actor.recirculated.is_empty());

    assert!(f.run(packet(1, 959), &actions).concat().is_empty());
    let answer = f.actor.recirculated.pop().unwrap();
    assert_eq!(
        (answer.data()[..6].to_vec(), answer.data()[6..12].to_vec()),
        (A.to_vec(), B.to_vec())
    );
    assert_eq!(error(&answer), ([3, 4], 958));
    assert_eq!(answer.meta.in_port, PortNo(100));
    let back = answer.meta.tunnel().unwrap();
    assert_eq!(
        (back.src.to_string(), back.dst.to_string()),
        ("172.31.0.2".into(), "172.31.0.1".into())
    );
    assert_eq!((back.id, back.flags), (43, Tunnel::KEY | Tunnel::OWN_ERROR));
    assert_eq!(f.dropped(DropCause::TunnelTooBig), 1);

    // With a tag, the tag is in the tunnel, and comes back.
    let mut tagged = packet(2, 958);
    tagged.push_vlan(VlanTag { tpid: 0x8100, tci: 5 }).unwrap();
    f.run(tagged, &actions);
    let answer = f.actor.recirculated.pop().unwrap();
    assert_eq!(answer.data()[12..18], [0x81, 0, 0, 5, 8, 0]);
    assert_eq!(
        answer.data()[38..46],
        [3, 4, answer.data()[40], answer.data()[41], 0, 0, 3, 0xba]
    );

    // Of a tunnel without Ethernet headers.
    let actions = tunnel(false, Inner::Packet(EtherType::IPV4), LIMIT);
    assert_eq!(f.run(packet(3, 972), &actions)[0][0].len(), 1014);
    f.run(packet(3, 973), &actions);
    let answer = f.actor.recirculated.pop().unwrap();
    assert_eq!(
        (answer.data()[..12].to_vec(), error(&answer)),
        (vec![0; 12], ([3, 4], 972))
    );
    assert_eq!(
        answer.meta.tunnel().unwrap().flags,
        Tunnel::KEY | Tunnel::NO_ETHERNET | Tunnel::OWN_ERROR
    );
    // It carries no tags.
    let mut tagged = packet(4, 973);
    tagged.push_vlan(VlanTag { tpid: 0x8100, tci: 5 }).unwrap();
    f.run(tagged, &actions);
    let answer = f.actor.recirculated.pop().unwrap();
    assert_eq!(
        (&answer.data()[..14], error(&answer)),
        (&[&[0; 12][..], &[8, 0]].concat()[..], ([3, 4], 972))
    );

    // IPv6 in IPv6: 48 bytes of outer headers.
    let limit = PathLimit { mtu: 1400, ..LIMIT };
    f.run(packet_v6(1339), &tunnel(true, Inner::Ethernet, limit));
    let answer = f.actor.recirculated.pop().unwrap();
    assert_eq!(
        answer.data()[54..62],
        [2, 0, answer.data()[56], answer.data()[57], 0, 0, 5, 0x3a]
    );
    assert!(answer.meta.tunnel().unwrap().src.is_ipv6());
}

#[test]
fn packets_without_an_answer_are_dropped_and_counted() {
    let mut f = Fixture::new();
    let actions = tunnel(false, Inner::Ethernet, LIMIT);
    let mut many = packet(1, 1200);
    many.data_mut()[0] |= 1;
    let may_be_fragmented = Frame::from_slice(&tcp(1, &[7; 1200]));
    let other = Frame::from_slice(&Packet::new(A, B).payload(0x88b5, &[7; 1200]).bytes());
    for (n, frame) in [many, may_be_fragmented, other].into_iter().enumerate() {
        assert!(f.run(frame, &actions).concat().is_empty());
        assert!(f.actor.recirculated.is_empty(), "{n}");
        assert_eq!(f.dropped(DropCause::TunnelTooBig), n as u64 + 1);
    }
    // A mirror's copy: the packet itself may have arrived.
    let copies = PathLimit {
        answers: false,
        ..LIMIT
    };
    f.run(packet(4, 1200), &tunnel(false, Inner::Ethernet, copies));
    assert_eq!((f.dropped(DropCause::TunnelTooBig), f.actor.recirculated.len()), (4, 0));
    // Over IPv6, nobody fragments it.
    let limit = PathLimit { mtu: 1280, ..LIMIT };
    f.run(packet_v6(1280), &tunnel(true, Inner::Ethernet, limit));
    assert_eq!((f.dropped(DropCause::TunnelTooBig), f.actor.recirculated.len()), (5, 0));
}

#[test]
fn a_large_segment_gets_one_error_and_a_worker_sends_only_so_many() {
    let mut f = Fixture::new();
    let limit = PathLimit { mtu: 600, ..LIMIT };
    let actions = tunnel(false, Inner::Ethernet, limit);
    let mut large = segment(1);
    large.data_mut()[20] |= 0x40;
    f.run(large, &actions);
    assert_eq!((f.dropped(DropCause::TunnelTooBig), f.actor.recirculated.len()), (3, 1));
    for port in 2..200 {
        f.run(packet(port, 1000), &actions);
    }
    assert_eq!(
        (f.dropped(DropCause::TunnelTooBig), f.actor.recirculated.len()),
        (201, 64)
    );
}

#[test]
fn outer_packets_are_fragmented_where_that_is_asked_for_or_every_link_takes_the_inner_packet() {
    let fragments = PathLimit {
        fragments: true,
        ..LIMIT
    };
    for (frame, limit) in [(packet(1, 2500), fragments), (packet_v6(1280), LIMIT)] {
        let mut f = Fixture::new();
        let inner = frame.data().to_vec();
        let sent = f.run(frame, &tunnel(false, Inner::Ethernet, limit));
        let mut data = Vec::new();
        for (n, fragment) in sent[0].iter().enumerate() {
            let (header, payload) = fragment[14..].split_at(20);
            assert!(fragment.len() <= 1014 && testkit::checksum(header) == 0);
            let field = u16::from_be_bytes([header[6], header[7]]);
            assert_eq!(usize::from(field & 0x1fff) * 8, data.len());
            assert_eq!(field & 0x6000, if n + 1 < sent[0].len() { 0x2000 } else { 0 });
            data.extend_from_slice(payload);
        }
        assert_eq!(data[8..], inner);
        assert_eq!(f.dropped(DropCause::TunnelTooBig), 0);
    }
}

#[test]
fn an_error_has_the_options_of_geneve_that_the_packet_would_have_had() {
    let mut options = OptionsBuffer::default();
    options.push(0x102, 0x80, &[1, 2, 3, 4]).unwrap();
    for v6 in [false, true] {
        let mut f = Fixture::new();
        let body = Body::Geneve {
            port: 6081,
            csum: false,
            id: 42,
            oam: false,
            options: options.options(),
        };
        let actions = tunnel_of(v6, Inner::Ethernet, LIMIT, (Kind::Geneve, &body));
        f.run(packet(1, 1200), &actions);
        let answer = f.actor.recirculated.pop().unwrap();
        assert_eq!(
            answer.meta.tunnel().unwrap().options.bytes(),
            [1, 2, 0x80, 1, 1, 2, 3, 4]
        );
    }
}

#[test]
fn fragments_of_different_workers_have_different_identifications() {
    let fragments = PathLimit {
        fragments: true,
        ..LIMIT
    };
    let actions = tunnel(false, Inner::Ethernet, fragments);
    let shared = Shared::default();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let mut f = Fixture::new();
        f.actor.tunnels = Tunnels::new(shared.tunnels.clone());
        // The outer packet of the second one may be fragmented by a router.
        for len in [1500, 900] {
            let sent = f.run(packet(1, len), &actions);
            let of = |fragment: &Vec<u8>| [fragment[18], fragment[19]];
            let first = of(&sent[0][0]);
            assert!(sent[0].iter().all(|fragment| of(fragment) == first));
            assert!(seen.insert(first));
        }
    }
}
