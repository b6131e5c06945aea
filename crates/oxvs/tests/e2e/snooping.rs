//! Multicast snooping with the kernel's IGMP and MLD hosts, beside Debian's Open vSwitch.

use crate::fixture::{binary, bridge_with_hosts};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, UdpSocket};
use testkit::{Capture, Devices, Netns, Options, Vswitch, eventually, ping, skip};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x99);
const PORT: u16 = 5000;

/// A switch that snoops, with hosts.
struct Lab {
    switch: Vswitch,
    hosts: Vec<Netns>,
    _ns: Netns,
}

impl Lab {
    fn new(is_ours: bool) -> Lab {
        let ns = Netns::new("sw");
        let options = Options {
            devices: Devices::System,
            netns: Some(ns.name().to_owned()),
            ..Options::default()
        };
        let switch = match is_ours {
            true => Vswitch::oxvs(binary(), options),
            false => Vswitch::debian(options),
        };
        let hosts = bridge_with_hosts(&ns, &switch, 4);
        hosts[0].ip("route add 224.0.0.0/4 dev eth0");
        for host in [0, 2] {
            hosts[host].run(&["sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6"]);
            hosts[host].ip(&format!("addr replace fe80::{}/64 dev eth0 nodad", host + 1));
        }
        switch.vsctl(
            "set bridge br0 mcast_snooping_enable=true \
             other_config:mcast-snooping-disable-flood-unregistered=true",
        );
        Lab { switch, hosts, _ns: ns }
    }

    /// The number of a host's device.
    fn index(&self, host: usize) -> u32 {
        let shown = self.hosts[host].ip("-o link show eth0");
        shown.split(':').next().unwrap().trim().parse().unwrap()
    }

    /// Waits until the switch knows that a group has a member, or none.
    fn wait_for_member(&self, group: &str, port: u32, wanted: bool) {
        eventually("the switch knows the member", || {
            let table = self.switch.appctl(&["mdb/show", "br0"]);
            let is_member = |line: &str| {
                let mut words = line.split_whitespace();
                words.next() == Some(&port.to_string()) && words.nth(1) == Some(group)
            };
            (table.lines().any(is_member) == wanted).then_some(())
        });
    }

    /// The numbers of packets that each host gets of five that the first one sends to the groups.
    fn send(&self) -> Vec<usize> {
        let filter = format!("udp and dst port {PORT}");
        let captures: Vec<Capture> = self.hosts[1..]
            .iter()
            .map(|host| Capture::start(host, "eth0", &filter))
            .collect();
        let scope = self.index(0);
        self.hosts[0].enter(|| {
            let v4 = UdpSocket::bind("10.1.0.1:0").unwrap();
            let v6 = UdpSocket::bind("[::]:0").unwrap();
            for _ in 0..5 {
                v4.send_to(b"v4", (GROUP, PORT)).unwrap();
                v6.send_to(b"v6", SocketAddrV6::new(GROUP6, PORT, 0, scope)).unwrap();
            }
        });
        // What comes later is behind the packets.
        for host in 2..=4 {
            assert_eq!(ping(&self.hosts[0], &format!("10.1.0.{host}"), 2).received, 2);
        }
        captures.into_iter().map(|capture| capture.finish().len()).collect()
    }
}

/// Joins and leaves; who gets the packets each time.
fn run(is_ours: bool) -> Vec<Vec<usize>> {
    let lab = Lab::new(is_ours);
    let mut seen = vec![lab.send()];
    let v4 = lab.hosts[1].enter(|| {
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        socket.join_multicast_v4(&GROUP, &Ipv4Addr::new(10, 1, 0, 2)).unwrap();
        socket
    });
    lab.wait_for_member("239.1.2.3", 2, true);
    seen.push(lab.send());
    let index = lab.index(2);
    let v6 = lab.hosts[2].enter(|| {
        let socket = UdpSocket::bind(("::", PORT)).unwrap();
        socket.join_multicast_v6(&GROUP6, index).unwrap();
        socket
    });
    lab.wait_for_member("ff05::99", 3, true);
    seen.push(lab.send());
    v4.leave_multicast_v4(&GROUP, &Ipv4Addr::new(10, 1, 0, 2)).unwrap();
    lab.wait_for_member("239.1.2.3", 2, false);
    seen.push(lab.send());
    v6.leave_multicast_v6(&GROUP6, index).unwrap();
    lab.wait_for_member("ff05::99", 3, false);
    seen.push(lab.send());
    seen
}

#[test]
fn members_get_what_they_have_joined_as_in_open_vswitch() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl", "ovs-vswitchd");
    let ours = run(true);
    let expected: [[usize; 3]; 5] = [[0, 0, 0], [5, 0, 0], [5, 5, 0], [0, 5, 0], [0, 0, 0]];
    assert_eq!(ours, expected);
    assert_eq!(run(false), ours);
}

#[test]
fn a_host_that_wants_one_source_gets_that_one() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl", "python3");
    const JOIN: &str = "\
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 5000))
to = [socket.inet_aton(a) for a in ('239.1.2.3', '10.1.0.2', '10.1.0.SOURCE')]
s.setsockopt(socket.IPPROTO_IP, 39, b''.join(to))
time.sleep(1000)
";
    for (source, expected) in [("1", [5, 0, 0]), ("3", [0, 0, 0])] {
        let lab = Lab::new(true);
        let mut command = lab.hosts[1].prefix();
        command.extend(["python3", "-c"].map(str::to_owned));
        command.push(JOIN.replace("SOURCE", source));
        let mut host = std::process::Command::new(&command[0])
            .args(&command[1..])
            .spawn()
            .unwrap();
        lab.wait_for_member("239.1.2.3", 2, true);
        let got = lab.send();
        host.kill().unwrap();
        host.wait().unwrap();
        assert_eq!(got, expected, "the source 10.1.0.{source}");
    }
}

#[test]
fn a_router_hears_the_switch_in_place_of_the_hosts() {
    skip!(unless root, "ip", "ping", "bridge", "tcpdump", "ovs-vsctl");
    let lab = Lab::new(true);
    lab.switch
        .vsctl("set bridge br0 other_config:mcast-snooping-proxy-reports=true");
    // The kernel's bridge asks for members, and keeps a table of what it hears.
    let router = &lab.hosts[3];
    for command in [
        "addr flush dev eth0",
        "link add rt type bridge mcast_snooping 1 mcast_querier 1 mcast_query_use_ifaddr 1 \
         mcast_igmp_version 3 mcast_startup_query_interval 100",
        "addr add 10.1.0.4/24 dev rt",
        "link set eth0 master rt",
        "link set rt up",
    ] {
        router.ip(command);
    }
    eventually("the querier is known", || {
        let table = lab.switch.appctl(&["mdb/show", "br0"]);
        table.contains("querier").then_some(())
    });
    let capture = Capture::start(router, "eth0", "igmp");
    let join = |host: usize| {
        let own = Ipv4Addr::new(10, 1, 0, host as u8 + 1);
        lab.hosts[host].enter(|| {
            let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
            socket.join_multicast_v4(&GROUP, &own).unwrap();
            socket
        })
    };
    let wait_for = |wanted: bool| {
        eventually("the router's table follows", || {
            let table = router.run(&["bridge", "mdb", "show", "dev", "rt"]);
            (table.contains("grp 239.1.2.3") == wanted).then_some(())
        });
    };
    let first = join(0);
    wait_for(true);
    let second = join(1);
    lab.wait_for_member("239.1.2.3", 2, true);
    drop(first);
    lab.wait_for_member("239.1.2.3", 1, false);
    wait_for(true);
    drop(second);
    wait_for(false);
    let mac = lab.switch.get("interface", "br0", "mac_in_use").replace('"', "");
    let is_report = |frame: &Vec<u8>| frame.len() > 38 && frame[38] == 0x22 && frame[6..12] != router_mac(router);
    let reports: Vec<Vec<u8>> = capture.finish().into_iter().filter(is_report).collect();
    assert!(reports.len() >= 2);
    for report in reports {
        let from: Vec<String> = report[6..12].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((from.join(":"), &report[26..30]), (mac.clone(), &[0; 4][..]));
    }
}

/// The address of a host's device.
fn router_mac(host: &Netns) -> [u8; 6] {
    let shown = host.ip("-o link show eth0");
    let mac = shown.split("link/ether ").nth(1).unwrap();
    let bytes = mac[..17].split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    bytes.collect::<Vec<u8>>().try_into().unwrap()
}
