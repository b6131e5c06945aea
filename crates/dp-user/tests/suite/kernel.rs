//! The datapath between devices of the kernel.

use crate::common::{FakeSwitch, eventually, output, translation};
use dp::{Action, Datapath, DropCause, PortNo, SetField};
use dp_user::{DpUser, Options};
use flow::Field;
use netdev::Spec;
use qos::{Discipline, FifoConfig, LeafConfig, PortConfig};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use testkit::{Netns, skip};

/// Two hosts on veths, and a namespace in which a datapath joins them.
struct Hosts {
    one: Netns,
    two: Netns,
    middle: Netns,
    datapath: Arc<DpUser>,
    switch: Arc<FakeSwitch>,
}

impl Hosts {
    fn new() -> Hosts {
        Hosts::with(FakeSwitch::new(|key| {
            let to = 3 - key.in_port().0;
            translation(&[output(to)], &[Field::InPort, Field::EthSrc, Field::EthDst])
        }))
    }

    fn with(switch: Arc<FakeSwitch>) -> Hosts {
        let (one, two, middle) = (Netns::new("one"), Netns::new("two"), Netns::new("middle"));
        middle.veth("oxa", &one, "eth0");
        middle.veth("oxb", &two, "eth0");
        one.address("eth0", "192.0.2.1/24");
        two.address("eth0", "192.0.2.2/24");
        // The thread that asks the kernel about devices has to be the namespace's, as its parent
        // is.
        let datapath = middle.enter(|| {
            let options = Options {
                workers: 2,
                ..Options::default()
            };
            DpUser::new(options, switch.clone(), Arc::default()).unwrap()
        });
        let hosts = Hosts {
            one,
            two,
            middle,
            datapath,
            switch,
        };
        hosts.add_port(1, "oxa");
        hosts.add_port(2, "oxb");
        hosts
    }

    fn add_port(&self, port: u32, name: &str) {
        self.middle.enter(|| {
            let device = netdev::open(&Spec::System { name: name.to_owned() }).unwrap();
            self.datapath.add_port(PortNo(port), device).unwrap();
        });
    }

    fn ping(&self) {
        eventually("the hosts reach each other", || {
            let ping = ["ping", "-c", "1", "-W", "1", "192.0.2.2"];
            self.one.try_run(&ping, &[]).ok()
        });
    }
}

#[test]
fn a_port_whose_link_goes_down_and_up_works_again() {
    skip!(unless root, "ip", "ping");
    let hosts = Hosts::new();
    hosts.ping();
    for _ in 0..3 {
        hosts.middle.ip("link set oxa down");
        hosts.middle.ip("link set oxa up");
        hosts.ping();
    }
    hosts.two.ip("link set eth0 down");
    hosts.two.ip("link set eth0 up");
    hosts.ping();
    assert!(hosts.switch.failed.lock().is_empty());
}

#[test]
fn a_device_that_is_deleted_is_reported_once_and_its_successor_works() {
    skip!(unless root, "ip", "ping");
    let hosts = Hosts::new();
    hosts.ping();
    hosts.middle.ip("link del oxa");
    eventually("the port is reported", || !hosts.switch.failed.lock().is_empty());
    hosts.middle.veth("oxa", &hosts.one, "eth0");
    hosts.one.address("eth0", "192.0.2.1/24");
    hosts.datapath.del_port(PortNo(1)).unwrap();
    hosts.add_port(1, "oxa");
    hosts.ping();
    assert_eq!(*hosts.switch.failed.lock(), [PortNo(1)]);
}

/// Host two's address for host one: no host has it, the datapath translates it.
const SEEN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 99);
const SEEN_MAC: u64 = 0x0200_0000_0099;
const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TWO_MAC: u64 = 0x0200_0000_0002;

/// Translates addresses and ports of host two; with `labels`, packets pass a link (ports 3 and 4)
/// on which they have an MPLS label.
fn translating(labels: bool) -> Arc<FakeSwitch> {
    let set = |field, value: u128| Action::SetField(SetField::new(field, value, u128::MAX).unwrap());
    FakeSwitch::new(move |key| {
        let push = Action::PushMpls {
            ethertype: 0x8847,
            lse: 0x0001_0140,
        };
        let pop = Action::PopMpls { ethertype: 0x0800 };
        let mut actions = Vec::new();
        let ipv4 = key.get(Field::EthType) == 0x0800;
        let to = match key.in_port().0 {
            1 if ipv4 => {
                actions.push(set(Field::EthDst, TWO_MAC.into()));
                actions.push(set(Field::Ipv4Dst, TWO.to_bits().into()));
                actions.push(set(Field::TpDst, 9090));
                if labels { 3 } else { 2 }
            }
            2 if ipv4 => {
                actions.push(set(Field::EthSrc, SEEN_MAC.into()));
                actions.push(set(Field::Ipv4Src, SEEN.to_bits().into()));
                actions.push(set(Field::TpSrc, 8080));
                if labels { 4 } else { 1 }
            }
            3 => 1,
            4 => 2,
            other => 3 - other,
        };
        match to {
            3 | 4 => actions.push(push),
            _ if key.in_port().0 > 2 => actions.push(pop),
            _ => {}
        }
        actions.push(output(to));
        translation(&actions, &[Field::InPort, Field::EthType])
    })
}

/// How long nothing comes before a transfer has failed.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

/// Sends two megabytes each way between the hosts.
fn transfer(hosts: &Hosts) {
    let data: Vec<u8> = (0..2_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let listener = hosts.two.enter(|| TcpListener::bind((TWO, 9090)).unwrap());
    let expected = data.clone();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(PATIENCE).unwrap();
        let mut received = vec![0; expected.len()];
        stream.read_exact(&mut received).unwrap();
        assert!(received == expected);
        stream.write_all(&received).unwrap();
    });
    let mut stream = hosts.one.enter(|| TcpStream::connect((SEEN, 8080)).unwrap());
    stream.set_read_timeout(PATIENCE).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let sent = data.clone();
    let client = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut received = vec![0; data.len()];
    stream.read_exact(&mut received).unwrap();
    assert!(received == data);
    client.join().unwrap();
    server.join().unwrap();
}

#[test]
fn a_transfer_with_pending_checksums_and_segments_survives_translation_of_addresses_and_labels() {
    skip!(unless root, "ip", "ping");
    for labels in [false, true] {
        let hosts = Hosts::with(translating(labels));
        hosts.two.ip("link set eth0 address 02:00:00:00:00:02");
        hosts.one.ip("neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev eth0");
        if labels {
            hosts.middle.veth("oxc", &hosts.middle, "oxd");
            hosts.middle.ip("link set oxc mtu 1600");
            hosts.middle.ip("link set oxd mtu 1600");
            hosts.add_port(3, "oxc");
            hosts.add_port(4, "oxd");
        }
        transfer(&hosts);
        assert!(hosts.datapath.dump_flows().len() >= 2);
        for cause in [DropCause::Malformed, DropCause::DeviceError, DropCause::TooBig] {
            let dropped = hosts
                .datapath
                .drops()
                .iter()
                .find(|(c, _)| *c == cause)
                .map(|(_, n)| *n);
            assert_eq!(dropped, Some(0), "{cause:?}");
        }
    }
}

#[test]
fn a_port_with_a_scheduler_queues_in_the_switch_and_not_in_the_kernel_behind_it() {
    skip!(unless root, "ip", "ping", "tc");
    let hosts = Hosts::new();
    hosts.ping();
    let slow = "tc qdisc add dev oxb root tbf rate 20mbit burst 3000 limit 10000000";
    let slow: Vec<&str> = slow.split(' ').collect();
    if !hosts.middle.try_run(&slow, &[]).ok() {
        skip!("no token bucket filter in this kernel");
    }
    let fifo = LeafConfig::Fifo(FifoConfig::new(5_000).unwrap());
    let config = PortConfig::new(Discipline::Leaf(fifo));
    hosts
        .middle
        .enter(|| hosts.datapath.set_qos(PortNo(2), Some(&config)).unwrap());
    let receiver = hosts.two.enter(|| UdpSocket::bind("192.0.2.2:9000").unwrap());
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // All of them, however late this process has its turn.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, 8 << 20).unwrap();
    let receiving = std::thread::spawn(move || {
        let mut packet = [0; 1_000];
        for n in 0..1_000 {
            receiver.recv(&mut packet).unwrap();
            assert_eq!(packet[..4], u32::to_be_bytes(n));
        }
    });
    let sender = hosts.one.enter(|| UdpSocket::bind("192.0.2.1:0").unwrap());
    // 400 ms of the slow link.
    let begun = std::time::Instant::now();
    for n in 0..1_000_u32 {
        let mut packet = [0; 1_000];
        packet[..4].copy_from_slice(&n.to_be_bytes());
        sender.send_to(&packet, "192.0.2.2:9000").unwrap();
        if n % 100 == 99 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let report = hosts.datapath.qos(PortNo(2)).unwrap();
    let waiting = report.queues[0].1.backlog_packets + report.held_packets;
    receiving.join().unwrap();
    // At most 128 KB of a million are in the kernel, plus the packets sent by then.
    assert!(waiting > 200 || begun.elapsed() > Duration::from_secs(1), "{waiting}");
    let counters = hosts.datapath.port_counters(PortNo(2)).unwrap();
    assert_eq!((counters.tx_dropped, counters.tx_errors), (0, 0));
}
