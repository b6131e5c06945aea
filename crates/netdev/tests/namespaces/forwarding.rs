//! Real traffic between namespaces through packet sockets and TAP devices, with the offloads that
//! devices have by default.

use crate::lab::{Forwarder, Lab, Queues};
use netdev::{Csum, Frame, Gso, Isolation, Offload, Tap};
use std::sync::Arc;
use testkit::{Iperf3, eventually, ping, skip};
use wire::VlanTag;
use wire::checksum::pseudo_ipv4;

/// A TCP packet with a pending checksum and, if it is longer than `mss`, pending segmentation.
fn pending_tcp(payload: usize, mss: u16) -> Frame {
    let src = [192, 168, 77, 1];
    let dst = [192, 168, 77, 2];
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut packet = Vec::new();
    let data: Vec<u8> = (0..payload).map(|i| i as u8).collect();
    builder
        .ipv4(src, dst, 64)
        .tcp(1, 2, 3, 4)
        .write(&mut packet, &data)
        .unwrap();
    let pseudo = pseudo_ipv4(src.into(), dst.into(), 6, (20 + payload) as u32);
    packet[50..52].copy_from_slice(&pseudo.fold().to_be_bytes());
    let mut frame = Frame::from_slice(&packet);
    frame.offload.csum = Csum::Partial { start: 34, offset: 16 };
    if payload > usize::from(mss) {
        frame.offload = Offload {
            gso: Gso::Tcp4,
            gso_size: mss,
            hdr_len: 54,
            ..frame.offload
        };
    }
    frame
}

/// A datagram as a tunnel of this switch makes it, with a number as its identification and payload.
fn encapsulated(number: u16, payload: usize) -> Frame {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut packet = Vec::new();
    builder
        .ipv4([192, 168, 77, 9], [192, 168, 77, 1], 64)
        .udp(7, 4789)
        .write(&mut packet, &vec![number as u8; payload])
        .unwrap();
    packet[18..20].copy_from_slice(&number.to_be_bytes());
    packet[24..26].fill(0);
    let sum = testkit::checksum(&packet[14..34]);
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet[40..42].fill(0);
    let mut frame = Frame::from_slice(&packet);
    frame.offload = Offload::ENCAPSULATED;
    frame
}

/// Whether the kernel takes several packets of a tunnel as one.
fn joins() -> bool {
    let release = rustix::system::uname();
    let mut numbers = release.release().to_str().unwrap().split(['.', '-']);
    let mut number = || {
        numbers
            .next()
            .and_then(|number| number.parse::<u32>().ok())
            .unwrap_or(0)
    };
    (number(), number()) >= (6, 2)
}

#[test]
fn packets_of_a_tunnel_leave_together_and_arrive_one_by_one() {
    skip!(unless root, "ip", "ethtool");
    let lab = Lab::new();
    let mut port = lab.port("oxp1");
    let socket = lab.h1.enter(|| std::net::UdpSocket::bind("192.168.77.1:4789").unwrap());
    socket
        .set_read_timeout(Some(std::time::Duration::from_secs(5)))
        .unwrap();
    let mut host = lab.host(&lab.h1);
    let mac = host.device.state().unwrap().mac;
    let frames = |payload: usize| -> Vec<Frame> {
        let to_host = |number: u16| {
            let mut frame = encapsulated(number, payload);
            frame.data_mut()[..6].copy_from_slice(&mac.0);
            frame
        };
        // Two of them are of another tunnel.
        let mut frames: Vec<Frame> = (0..70).map(to_host).collect();
        frames[20].data_mut()[35] = 8;
        frames[21].data_mut()[35] = 8;
        frames
    };
    let bytes = |frames: &[Frame]| frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    let mut sent = frames(100);
    let all = bytes(&sent);
    let report = port.tx.offer(&mut sent);
    assert!(sent.is_empty());
    assert_eq!(
        (report.packets, report.bytes, report.errors),
        (70, all, 0),
        "{report:?}"
    );
    let mut buffer = [0; 2000];
    for number in 0..70 {
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!((len, buffer[0], buffer[99]), (100, number, number));
    }
    // The receiver sees fewer, longer packets, since nobody has cut them: from Linux 6.2 on.
    let (mut seen, mut packets) = (Vec::new(), 0);
    while host.rx.recv(&mut seen, 32).unwrap() > 0 {}
    seen.retain(|frame| frame.data()[36..38] == 4789_u16.to_be_bytes());
    for frame in &seen {
        packets += netdev::gso::segment_count(frame);
    }
    assert_eq!(packets, 70);
    match joins() {
        true => assert!(seen.len() < 20, "{}", seen.len()),
        false => assert_eq!(seen.len(), 70),
    }
    // A device that does not cut them itself has the kernel do so.
    lab.sw.run(&["ethtool", "-K", "oxp1", "tx-udp-segmentation", "off"]);
    let report = port.tx.send(&mut frames(100));
    assert_eq!(
        (report.packets, report.bytes, report.errors),
        (70, all, 0),
        "{report:?}"
    );
    for number in 0..70 {
        let len = socket.recv(&mut buffer).unwrap();
        assert_eq!((len, buffer[0], buffer[99]), (100, number, number));
    }
    // Of those that are longer than the MTU none leaves, and each is counted.
    let report = port.tx.send(&mut frames(1480));
    assert_eq!((report.packets, report.too_big), (0, 70), "{report:?}");
}

#[test]
fn tcp_runs_both_ways_with_default_offloads_and_large_segments_cross_whole() {
    skip!(unless root, "ip", "ping", "iperf3");
    let lab = Lab::new();
    let forwarder = Forwarder::start([lab.port("oxp1"), lab.port("oxp2")]);
    assert_eq!(ping(&lab.h1, "192.168.77.2", 3).received, 3);
    let bytes = 50 << 20;
    assert!(Iperf3::tcp_bytes(bytes).run(&lab.h1, &lab.h2, "192.168.77.2") > 0.0);
    let back = Iperf3 {
        bytes,
        extra: vec!["-R".to_owned()],
        ..Iperf3::default()
    };
    assert!(back.run(&lab.h1, &lab.h2, "192.168.77.2") > 0.0);
    let forwarded = forwarder.stop();
    assert!(forwarded.large > 100, "{} large frames", forwarded.large);
    assert_eq!(
        (forwarded.report.errors, forwarded.report.too_big, forwarded.report.down),
        (0, 0, 0)
    );
    for port in &forwarded.ports {
        assert_eq!(port.device.drops().rx_errors, 0);
        assert_eq!(port.device.drops().truncated, 0);
    }
}

#[test]
fn tcp_runs_between_a_host_and_an_internal_port() {
    skip!(unless root, "ip", "ping", "iperf3");
    let lab = Lab::new();
    let mac = "02:00:00:00:00:aa".parse().unwrap();
    let internal = lab
        .sw
        .enter(|| Arc::new(Tap::internal("oxbr0", Some(mac), 1500).unwrap()));
    let internal = Queues::open(internal);
    lab.sw.ip("link set oxbr0 up");
    lab.sw.address("oxbr0", "192.168.77.254/24");
    assert_eq!(internal.device.state().unwrap().mac, mac);
    let forwarder = Forwarder::start([lab.port("oxp1"), internal]);
    assert_eq!(ping(&lab.h1, "192.168.77.254", 3).received, 3);
    let bytes = 50 << 20;
    assert!(Iperf3::tcp_bytes(bytes).run(&lab.h1, &lab.sw, "192.168.77.254") > 0.0);
    let back = Iperf3 {
        bytes,
        extra: vec!["-R".to_owned()],
        ..Iperf3::default()
    };
    assert!(back.run(&lab.h1, &lab.sw, "192.168.77.254") > 0.0);
    let forwarded = forwarder.stop();
    assert!(forwarded.large > 100, "{} large frames", forwarded.large);
    assert_eq!((forwarded.report.errors, forwarded.report.too_big), (0, 0));
}

#[test]
fn vlan_tags_and_what_is_pending_behind_them_cross_unchanged() {
    skip!(unless root, "ip");
    let lab = Lab::new();
    let (mut h1, mut h2) = (lab.host(&lab.h1), lab.host(&lab.h2));
    let forwarder = Forwarder::start([lab.port("oxp1"), lab.port("oxp2")]);
    let c_tag = |tci| VlanTag { tpid: 0x8100, tci };
    let s_tag = VlanTag { tpid: 0x88a8, tci: 7 };
    let stacks: [&[VlanTag]; 5] = [&[], &[c_tag(10)], &[c_tag(0xe00a)], &[s_tag], &[c_tag(10), s_tag]];
    for tags in stacks {
        // Behind two tags the kernel cuts segments itself; only short packets arrive unchanged.
        let payloads: &[usize] = if tags.len() < 2 {
            &[100, 1400, 20_000, 60_000]
        } else {
            &[100, 1400]
        };
        for &payload in payloads {
            let mut frame = pending_tcp(payload, 1448);
            for &tag in tags {
                frame.push_vlan(tag).unwrap();
            }
            let (bytes, offload) = (frame.data().to_vec(), frame.offload);
            assert_eq!(h1.send(frame).packets, 1);
            let found = h2.wait_for(|frame| frame.data()[..6] == bytes[..6]);
            let found = found.unwrap_or_else(|| panic!("{payload} bytes behind {tags:?} did not arrive"));
            if tags.len() < 2 {
                assert_eq!(found.data(), bytes, "{payload} bytes behind {tags:?}");
                let told = (found.offload.csum, found.offload.gso, found.offload.gso_size);
                assert_eq!(
                    told,
                    (offload.csum, offload.gso, offload.gso_size),
                    "{payload} bytes behind {tags:?}"
                );
            } else {
                assert_eq!(found.len(), bytes.len());
                assert_eq!(found.data()[..22], bytes[..22]);
            }
        }
    }
    forwarder.stop();
}

#[test]
fn a_segment_behind_two_tags_arrives_in_packets() {
    skip!(unless root, "ip");
    let lab = Lab::new();
    let (mut h1, mut h2) = (lab.host(&lab.h1), lab.host(&lab.h2));
    let forwarder = Forwarder::start([lab.port("oxp1"), lab.port("oxp2")]);
    let mut frame = pending_tcp(10_000, 1448);
    frame.push_vlan(VlanTag { tpid: 0x8100, tci: 1 }).unwrap();
    frame.push_vlan(VlanTag { tpid: 0x88a8, tci: 2 }).unwrap();
    assert_eq!(h1.send(frame).packets, 1);
    let mut payload = 0;
    while payload < 10_000 {
        let frame = h2
            .wait_for(|frame| frame.data()[..6] == [2, 0, 0, 0, 0, 2])
            .expect("the rest of the segment");
        payload += frame.len() - 62;
    }
    assert_eq!(payload, 10_000);
    forwarder.stop();
}

#[test]
fn the_host_stack_does_not_answer_for_a_port_that_belongs_to_the_switch() {
    skip!(unless root, "ip", "ping");
    for isolation in [Isolation::Auto, Isolation::Filter] {
        let lab = Lab::new();
        lab.sw.address("oxp1", "192.168.77.3/24");
        assert!(
            ping(&lab.h1, "192.168.77.3", 2).received > 0,
            "without the switch the stack answers"
        );
        let port = lab.port_with("oxp1", isolation);
        assert_eq!(ping(&lab.h1, "192.168.77.3", 2).received, 0, "{isolation:?}");
        drop(port);
        assert!(
            ping(&lab.h1, "192.168.77.3", 2).received > 0,
            "{isolation:?}: the stack has its device back"
        );
    }
}

#[test]
fn packets_that_the_device_cannot_take_are_counted_by_cause() {
    skip!(unless root, "ip");
    let lab = Lab::new();
    let mut port = lab.port("oxp1");
    let packet = |len| Frame::from_slice(&[[0x02; 12].as_slice(), &[0x88, 0xb5], &vec![0; len]].concat());
    assert_eq!(port.send(packet(1500)).packets, 1);
    assert_eq!(port.send(packet(1501)).too_big, 1);
    port.device.set_mtu(2000).unwrap();
    assert_eq!(port.device.state().unwrap().mtu, 2000);
    assert_eq!(port.send(packet(1501)).packets, 1);
    port.device.set_up(false).unwrap();
    let report = port.tx.send(&mut vec![packet(60), packet(60)]);
    assert_eq!((report.packets, report.down), (0, 2));
    let mut frames = Vec::new();
    assert_eq!(
        port.rx.recv(&mut frames, 32).unwrap(),
        0,
        "a device that is down has nothing to receive"
    );
}

#[test]
fn a_port_that_was_down_works_again_when_it_is_up() {
    skip!(unless root, "ip", "ping");
    let lab = Lab::new();
    let forwarder = Forwarder::start([lab.port("oxp1"), lab.port("oxp2")]);
    assert_eq!(ping(&lab.h1, "192.168.77.2", 1).received, 1);
    lab.sw.ip("link set oxp1 down");
    assert_eq!(ping(&lab.h1, "192.168.77.2", 1).received, 0);
    lab.sw.ip("link set oxp1 up");
    eventually("ping goes through again", || {
        (ping(&lab.h1, "192.168.77.2", 1).received == 1).then_some(())
    });
    forwarder.stop();
}
