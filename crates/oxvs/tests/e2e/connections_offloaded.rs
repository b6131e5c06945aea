//! Packets of established connections that the kernel forwards: through a stateful firewall, with
//! translated addresses, and what ends that.

use crate::fixture::{cannot_offload, in_namespace, offloaded, offloads_nothing, seen_by_workers};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use testkit::{Capture, Iperf3, Netns, Vswitch, eventually};

mod handover;

const TOOLS: [&str; 5] = ["ip", "tcpdump", "iperf3", "ovs-vsctl", "ovs-ofctl"];

const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

const FIN: u8 = 1;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A switch with two hosts: one inside behind port 1, one outside behind port 2.
struct Lab {
    switch: Vswitch,
    inside: Netns,
    outside: Netns,
    _ns: Netns,
}

/// Who is inside may begin connections, who is outside may answer.
const FIREWALL: [&str; 5] = [
    "priority=5,ip,actions=ct(zone=4,table=1)",
    "table=1,in_port=1,ct_state=+trk+new,ip,actions=ct(commit,zone=4),2",
    "table=1,in_port=1,ct_state=+trk+est,ip,actions=2",
    "table=1,in_port=2,ct_state=+trk+est,ip,actions=1",
    "table=1,priority=40000,ct_state=+trk+inv,ip,actions=drop",
];

impl Lab {
    /// `None` with a message if this machine cannot have one.
    fn new() -> Option<Lab> {
        if cannot_offload(module_path!(), &TOOLS) {
            return None;
        }
        let (ns, inside, outside) = (Netns::new("cto"), Netns::new("ctoi"), Netns::new("ctoo"));
        let switch = in_namespace(&ns);
        ns.veth("h1", &inside, "eth0");
        ns.veth("h2", &outside, "eth0");
        inside.address("eth0", "10.9.0.1/24");
        outside.address("eth0", "10.9.0.2/24");
        for (host, other, last) in [(&inside, &outside, 2), (&outside, &inside, 1)] {
            let mac = other.mac_of("eth0");
            host.ip(&format!("neigh replace 10.9.0.{last} lladdr {mac} dev eth0"));
        }
        switch.vsctl(
            "add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure \
             -- add-port br0 h1 -- set interface h1 ofport_request=1 \
             -- add-port br0 h2 -- set interface h2 ofport_request=2",
        );
        let lab = Lab {
            switch,
            inside,
            outside,
            _ns: ns,
        };
        lab.rule("priority=1,in_port=1,actions=2");
        lab.rule("priority=1,in_port=2,actions=1");
        assert_eq!(testkit::ping(&lab.inside, "10.9.0.2", 10).received, 10);
        if offloads_nothing(module_path!(), &lab.switch) {
            return None;
        }
        lab.ofctl(&["del-flows", "br0"]);
        Some(lab)
    }

    fn firewall() -> Option<Lab> {
        let lab = Lab::new()?;
        FIREWALL.iter().for_each(|rule| lab.rule(rule));
        Some(lab)
    }

    fn rule(&self, rule: &str) {
        self.ofctl(&["add-flow", "br0", rule]);
    }

    fn ofctl(&self, args: &[&str]) -> String {
        self.switch.tool("ovs-ofctl", args).expect_ok()
    }

    /// The number of offloaded flows of the megaflows whose line contains this text.
    fn offloaded(&self, text: &str) -> u32 {
        offloaded(&self.switch, text)
    }

    /// Number of packets that workers found in a cache.
    fn seen_by_workers(&self) -> u64 {
        seen_by_workers(&self.switch)
    }

    /// Packets and bytes of the rules whose line has this text.
    fn of_rules(&self, text: &str) -> [u64; 2] {
        let rules = self.ofctl(&["dump-flows", "br0"]);
        let mut sum = [0, 0];
        for rule in rules.lines().filter(|rule| rule.contains(text)) {
            for (n, name) in ["n_packets=", "n_bytes="].iter().enumerate() {
                let number = rule.split(name).nth(1).unwrap().split(',').next().unwrap();
                sum[n] += number.parse::<u64>().unwrap();
            }
        }
        sum
    }

    /// The lines of connections that have this text.
    fn connections(&self, text: &str) -> Vec<String> {
        let dump = self.switch.appctl(&["dpctl/dump-conntrack", "-m", "-s"]);
        dump.lines()
            .filter(|line| line.contains(text))
            .map(str::to_owned)
            .collect()
    }

    /// A TCP connection from inside to a port outside, and its other end.
    fn tcp(&self, to: (Ipv4Addr, u16), listen: u16) -> (TcpStream, TcpStream) {
        let listener = self.outside.enter(|| TcpListener::bind((OUTSIDE, listen)).unwrap());
        let client = self.inside.enter(|| TcpStream::connect(to).unwrap());
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        }
        (client, server)
    }

    fn wait_for_offload(&self, exchange: impl Fn()) {
        eventually("both directions pass by the workers", || {
            (0..20).for_each(|_| exchange());
            let before = self.seen_by_workers();
            (0..20).for_each(|_| exchange());
            (self.seen_by_workers() - before < 10).then_some(())
        });
    }
}

/// Sends some bytes there and back.
fn exchange(mut a: &TcpStream, mut b: &TcpStream) {
    let mut bytes = [0; 100];
    a.write_all(&[1; 100]).unwrap();
    b.read_exact(&mut bytes).unwrap();
    b.write_all(&[2; 100]).unwrap();
    a.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [2; 100]);
}

/// Two sockets of UDP that send to each other; `to` is where the inner host sends.
struct Udp {
    inner: UdpSocket,
    outer: UdpSocket,
    to: (Ipv4Addr, u16),
}

impl Udp {
    fn new(lab: &Lab, to: (Ipv4Addr, u16), listen: u16) -> Udp {
        let bind = |host: &Netns, address, port| {
            let socket = host.enter(|| UdpSocket::bind((address, port)).unwrap());
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        };
        Udp {
            inner: bind(&lab.inside, INSIDE, 5000),
            outer: bind(&lab.outside, OUTSIDE, listen),
            to,
        }
    }

    /// A datagram there and one back. Returns the address that the outer host sees.
    fn exchange(&self) -> SocketAddrV4 {
        let mut bytes = [0; 100];
        self.inner.send_to(b"there", self.to).unwrap();
        let (_, from) = self.outer.recv_from(&mut bytes).unwrap();
        self.outer.send_to(b"back", from).unwrap();
        let (len, back) = self.inner.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..len], back), (&b"back"[..], self.to.into()));
        match from {
            std::net::SocketAddr::V4(from) => from,
            std::net::SocketAddr::V6(_) => unreachable!(),
        }
    }
}

#[test]
fn tcp_and_udp_pass_a_stateful_firewall_by_the_workers_and_are_counted() {
    let Some(lab) = Lab::firewall() else { return };
    let before = lab.seen_by_workers();
    // More than half of all sequence numbers, of which workers see none before the FIN.
    assert!(Iperf3::tcp_bytes(3_000_000_000).run(&lab.inside, &lab.outside, "10.9.0.2") > 0.0);
    let reverse = Iperf3 {
        extra: vec!["-R".to_owned()],
        ..Iperf3::tcp_bytes(100_000_000)
    };
    assert!(reverse.run(&lab.inside, &lab.outside, "10.9.0.2") > 0.0);
    let seen = lab.seen_by_workers() - before;
    eventually("rules have counted all", || {
        let [_, sent] = lab.of_rules("in_port=1 actions=output:2");
        let [_, received] = lab.of_rules("in_port=2 actions=output:1");
        let [all, _] = lab.of_rules("priority=5,ip");
        let [behind, _] = lab.of_rules("ct_state=");
        (sent > 100_000_000 && received > 100_000_000 && all == behind).then_some(())
    });
    let [all, _] = lab.of_rules("priority=5,ip");
    assert!(
        seen < all,
        "{seen} lookups of workers, two for each packet, of {all} packets"
    );
    assert_eq!(lab.of_rules("+inv"), [0, 0]);

    let udp = Udp::new(&lab, (OUTSIDE, 53), 53);
    lab.wait_for_offload(|| _ = udp.exchange());
    let counts = |lab: &Lab| {
        let line = lab.connections("sport=5000").remove(0);
        let numbers = line.split("packets=").skip(1);
        numbers
            .map(|rest| rest.split(',').next().unwrap().parse::<u64>().unwrap())
            .collect::<Vec<u64>>()
    };
    let before = counts(&lab);
    (0..100).for_each(|_| _ = udp.exchange());
    let after = counts(&lab);
    assert_eq!([after[0] - before[0], after[1] - before[1]], [100, 100]);
}

#[test]
fn translated_connections_pass_by_the_workers_with_right_addresses_and_checksums() {
    let Some(lab) = Lab::new() else { return };
    let (inner, outer) = (lab.inside.mac_of("eth0"), lab.outside.mac_of("eth0"));
    lab.outside
        .ip(&format!("neigh replace 10.9.0.50 lladdr {inner} dev eth0"));
    lab.inside
        .ip(&format!("neigh replace 10.9.0.80 lladdr {outer} dev eth0"));
    // The source gets 10.9.0.50 and other ports; 10.9.0.80 stands for the host outside. Packets
    // between them have other addresses of Ethernet too, as behind a router.
    lab.rule("priority=5,in_port=1,ip,actions=ct(zone=1,nat,table=1)");
    lab.rule(
        "table=1,ct_state=+trk+new,ip,nw_dst=10.9.0.80,\
         actions=ct(commit,zone=1,nat(dst=10.9.0.2:7000)),ct(commit,zone=2,nat(src=10.9.0.50:9000-9999)),2",
    );
    lab.rule(
        "table=1,ct_state=+trk+new,ip,nw_dst=10.9.0.2,actions=ct(commit,zone=1),\
         ct(commit,zone=2,nat(src=10.9.0.50:9000-9999)),2",
    );
    lab.rule("table=1,ct_state=+trk+est,ip,actions=ct(zone=2,nat,table=2)");
    lab.rule(&format!(
        "table=2,ct_state=+trk+est,ip,actions=mod_dl_dst:{outer},dec_ttl,2"
    ));
    lab.rule("table=2,ct_state=+trk-est,ip,actions=2");
    lab.rule("priority=5,in_port=2,ip,actions=ct(zone=2,nat,table=3)");
    lab.rule("table=3,ct_state=+trk+est,ip,actions=ct(zone=1,nat,table=4)");
    lab.rule(&format!(
        "table=4,ct_state=+trk+est,ip,actions=mod_dl_dst:{inner},dec_ttl,1"
    ));
    let virtual_ip = Ipv4Addr::new(10, 9, 0, 80);
    for (to, listen) in [((OUTSIDE, 7000), 7000), ((virtual_ip, 80), 7000)] {
        let (client, server) = lab.tcp(to, listen);
        lab.wait_for_offload(|| exchange(&client, &server));
        let capture = Capture::start_large(&lab.outside, "eth0", "tcp");
        let at_home = Capture::start_large(&lab.inside, "eth0", "tcp");
        let sum = std::thread::scope(|scope| {
            let sent = scope.spawn(|| {
                for n in 0..200_u8 {
                    (&client).write_all(&[n; 10_000]).unwrap();
                }
            });
            let (mut sum, mut bytes) = (0_u64, vec![0; 10_000]);
            for _ in 0..200 {
                (&server).read_exact(&mut bytes).unwrap();
                sum += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            }
            sent.join().unwrap();
            sum
        });
        assert_eq!(sum, (0..200_u64).sum::<u64>() * 10_000);
        (0..50).for_each(|_| exchange(&client, &server));
        let addresses = |frame: &[u8]| [26, 30].map(|at| <[u8; 4]>::try_from(&frame[at..at + 4]).unwrap());
        let frames = capture.finish();
        assert!(frames.len() > 100);
        for frame in &frames {
            let [src, dst] = addresses(frame);
            let ttl = frame[22];
            match src {
                // As they came from the switch: one hop.
                [10, 9, 0, 50] => assert_eq!((dst, ttl), ([10, 9, 0, 2], 63)),
                _ => assert_eq!((src, dst), ([10, 9, 0, 2], [10, 9, 0, 50])),
            }
        }
        for frame in at_home.finish() {
            let [src, dst] = addresses(&frame);
            let there = to.0.octets();
            assert!(
                [(src, dst), (dst, src)].contains(&(INSIDE.octets(), there)),
                "{frame:x?}"
            );
        }
    }
    // A receiver drops datagrams with a wrong checksum: senders have no device that fills them in.
    lab.inside.run(&["ethtool", "-K", "eth0", "tx", "off"]);
    lab.outside.run(&["ethtool", "-K", "eth0", "tx", "off"]);
    for to in [(OUTSIDE, 7000), (virtual_ip, 81)] {
        let udp = Udp::new(&lab, to, 7000);
        let seen = udp.exchange();
        assert_eq!(*seen.ip(), Ipv4Addr::new(10, 9, 0, 50));
        assert!((9000..=9999).contains(&seen.port()));
        lab.wait_for_offload(|| assert_eq!(udp.exchange(), seen));
    }
    let (client, server) = lab.tcp((virtual_ip, 82), 7000);
    lab.wait_for_offload(|| exchange(&client, &server));
}

#[test]
fn packets_that_do_not_fit_a_connection_come_to_a_worker_and_do_not_end_it() {
    let Some(lab) = Lab::firewall() else { return };
    let capture = Capture::start(&lab.inside, "eth0", "tcp");
    let (client, server) = lab.tcp((OUTSIDE, 7000), 7000);
    lab.wait_for_offload(|| exchange(&client, &server));
    let port = client.local_addr().unwrap().port();
    // The next number of each side: that behind the last packets of an exchange.
    let frames = capture.finish();
    let next = |from: Ipv4Addr| {
        let last = frames.iter().rfind(|frame| frame[26..30] == from.octets()).unwrap();
        let word = |at: usize| u32::from_be_bytes(last[at..at + 4].try_into().unwrap());
        let len = u32::from(u16::from_be_bytes([last[16], last[17]])) - 20 - u32::from(last[46] >> 4) * 4;
        (word(38).wrapping_add(len), word(42))
    };
    let (next, ack) = next(OUTSIDE);
    let raw = lab
        .outside
        .enter(|| socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap());
    let inject = |flags: u8, seq: u32, ack: u32, data: &[u8]| {
        let mut packet = testkit::Packet::new([0; 6], [0; 6])
            .ipv4(OUTSIDE, INSIDE)
            .tcp(7000, port, flags, data)
            .bytes()
            .split_off(14);
        packet[24..28].copy_from_slice(&seq.to_be_bytes());
        packet[28..32].copy_from_slice(&ack.to_be_bytes());
        packet[36..38].fill(0);
        let len = (packet.len() - 20) as u16;
        let pseudo = [&packet[12..20], &[0, 6], &len.to_be_bytes(), &packet[20..]].concat();
        packet[36..38].copy_from_slice(&testkit::checksum(&pseudo).to_be_bytes());
        sendto(&raw, &packet, SendFlags::empty(), &SocketAddrV4::new(INSIDE, 0)).unwrap();
    };
    let outside_of = 1 << 30;
    let mut injected = 0;
    for _ in 0..20 {
        for (flags, seq, data) in [
            // Far away, and within the window but not the next one.
            (RST, next.wrapping_add(outside_of), &b""[..]),
            (RST, next.wrapping_sub(outside_of), b""),
            (RST, next.wrapping_add(1000), b""),
            (RST | ACK, next.wrapping_add(1000), b""),
            (ACK | FIN, next.wrapping_add(outside_of), b""),
            (ACK, next.wrapping_add(outside_of), b"not of this connection"),
            (ACK, next.wrapping_sub(outside_of), b"not of this connection"),
        ] {
            inject(flags, seq, ack, data);
            injected += 1;
        }
    }
    eventually("workers have found that each of them is invalid", || {
        (lab.of_rules("+inv")[0] == injected).then_some(())
    });
    assert!(
        lab.connections("state_orig=ESTABLISHED,state_reply=ESTABLISHED").len() == 1,
        "{:?}",
        lab.connections("")
    );
    lab.wait_for_offload(|| exchange(&client, &server));
    assert_eq!(lab.of_rules("+inv")[0], injected, "the numbers are still right");

    // The right RST ends it, whoever has sent it.
    drop(server);
    eventually("FIN comes to a worker, which sees the end", || {
        lab.connections("state_orig=ESTABLISHED,state_reply=ESTABLISHED")
            .is_empty()
            .then_some(())
    });
    drop(client);
    eventually("nothing is left of it below the workers", || {
        (lab.offloaded("") == 0).then_some(())
    });
}

#[test]
fn a_flush_and_a_change_of_rules_are_in_force_for_the_next_packet() {
    let Some(lab) = Lab::firewall() else { return };
    let udp = Udp::new(&lab, (OUTSIDE, 53), 53);
    let stop = AtomicBool::new(false);
    let arrives = || {
        let capture = Capture::start(&lab.inside, "eth0", "udp and src host 10.9.0.2");
        std::thread::sleep(Duration::from_millis(300));
        capture.finish().len()
    };
    std::thread::scope(|scope| {
        // The host outside goes on sending, whether it may or not.
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let _ = udp.outer.send_to(b"data", (INSIDE, 5000));
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let begin = || {
                udp.inner.send_to(b"there", udp.to).unwrap();
                eventually("the answers pass by the workers", || {
                    let before = (lab.seen_by_workers(), lab.of_rules("in_port=2 actions=output:1")[0]);
                    std::thread::sleep(Duration::from_millis(200));
                    let seen = lab.seen_by_workers() - before.0;
                    let [packets, _] = lab.of_rules("in_port=2 actions=output:1");
                    (seen < 20 && packets > before.1 + 100).then_some(())
                });
            };
            for command in ["dpctl/flush-conntrack", "dpctl/flush-conntrack zone=4"] {
                begin();
                assert!(arrives() > 100);
                let words: Vec<&str> = command.split(' ').collect();
                lab.switch.appctl(&words);
                assert_eq!(arrives(), 0, "{command}");
            }
            begin();
            lab.ofctl(&[
                "ct-flush",
                "br0",
                "zone=4",
                "ct_nw_src=10.9.0.1,ct_nw_proto=17,ct_tp_src=5000",
            ]);
            assert_eq!(arrives(), 0, "ct-flush");
            begin();
            lab.ofctl(&["del-flows", "br0", "table=1,in_port=2"]);
            assert_eq!(arrives(), 0, "a rule behind the tracker");
            lab.rule(FIREWALL[3]);
            begin();
            lab.rule("priority=6,in_port=2,udp,actions=drop");
            assert_eq!(arrives(), 0, "a rule before the tracker");
        }));
        stop.store(true, Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn packets_of_the_kernel_keep_a_connection_and_a_zones_timeouts_count_from_the_next_packet_on() {
    let Some(lab) = Lab::firewall() else { return };
    lab.switch
        .vsctl("-- --id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:netdev=@d");
    lab.switch
        .vsctl("add-zone-tp netdev zone=4 udp_first=60 udp_single=60 udp_multiple=3");
    let udp = Udp::new(&lab, (OUTSIDE, 53), 53);
    let timeout = || -> Option<u32> {
        let line = lab.connections("sport=5000").pop()?;
        line.split("timeout=").nth(1)?.split(',').next()?.parse().ok()
    };
    eventually("the zone's timeout is that of new connections", || {
        lab.switch.appctl(&["dpctl/flush-conntrack"]);
        udp.exchange();
        udp.exchange();
        timeout().filter(|seconds| *seconds <= 3)
    });
    lab.wait_for_offload(|| _ = udp.exchange());
    let before = lab.seen_by_workers();
    // Three times as long as it lasts without packets.
    for _ in 0..90 {
        udp.exchange();
        std::thread::sleep(Duration::from_millis(100));
    }
    let counted = lab.connections("sport=5000").remove(0);
    let packets: u64 = counted
        .split("packets=")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(packets > 90, "it is one connection: {counted}");
    let seen = lab.seen_by_workers() - before;
    assert!(seen < 180, "{seen} lookups for 180 packets, which need two of workers");
    lab.switch.vsctl("del-zone-tp netdev zone=4");
    udp.exchange();
    assert!(
        timeout().is_some_and(|seconds| seconds > 3),
        "{:?}",
        lab.connections("")
    );
    lab.wait_for_offload(|| _ = udp.exchange());
}
