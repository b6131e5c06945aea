//! Multicast snooping with the kernel's IGMP and MLD hosts, beside Debian's Open vSwitch.

use crate::fixture::{bridge_with_hosts, debian_in_namespace, dummy, in_namespace, stand_in};
use crate::frr::Frr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, UdpSocket};
use testkit::{Capture, Netns, Packet, Vswitch, checksum, eventually, mac, pcap, ping, skip, source_of};

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
        let switch = match is_ours {
            true => in_namespace(&ns),
            false => debian_in_namespace(&ns),
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

/// Hosts join a group before a router of FRR; whether it knows the group, and who gets the packets.
fn with_a_router(is_ours: bool) -> Vec<Vec<usize>> {
    let lab = Lab::new(is_ours);
    let router = &lab.hosts[3];
    let config = "interface eth0\n ip pim\n ip igmp\n ip igmp query-interval 5\nexit\n";
    let frr = Frr::start(router, "pimd", config);
    eventually("the querier is known", || {
        let table = lab.switch.appctl(&["mdb/show", "br0"]);
        let is_querier = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.first() == Some(&"4") && words.get(2) == Some(&"querier")
        };
        table.lines().any(is_querier).then_some(())
    });
    let knows = |wanted: bool| {
        eventually("the router's groups follow", || {
            let groups = frr.show("pimd", "show ip igmp groups");
            (groups.contains("239.1.2.3") == wanted).then_some(())
        });
    };
    let mut seen = vec![lab.send()];
    let host = lab.hosts[1].enter(|| {
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
        socket.join_multicast_v4(&GROUP, &Ipv4Addr::new(10, 1, 0, 2)).unwrap();
        socket
    });
    lab.wait_for_member("239.1.2.3", 2, true);
    knows(true);
    seen.push(lab.send());
    drop(host);
    lab.wait_for_member("239.1.2.3", 2, false);
    knows(false);
    seen.push(lab.send());
    seen
}

#[test]
fn a_router_of_frr_asks_hears_the_members_and_gets_every_group() {
    skip!(unless long);
    skip!(unless root, "ip", "ping", "tcpdump", "vtysh", "ovs-vsctl", "ovs-vswitchd");
    if !Frr::has("pimd") {
        skip!("needs pimd, which is not installed");
    }
    let ours = with_a_router(true);
    let router = |seen: &Vec<usize>| seen[2];
    assert!(ours.iter().map(router).all(|packets| packets >= 5), "{ours:?}");
    let member: Vec<usize> = ours.iter().map(|seen| seen[0]).collect();
    assert_eq!(member, [0, 5, 0]);
    assert_eq!(with_a_router(false), ours);
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
    let asking = router.mac_of("eth0");
    let is_report = |frame: &Vec<u8>| frame.len() > 38 && frame[38] == 0x22 && source_of(frame) != asking;
    let reports: Vec<Vec<u8>> = capture.finish().into_iter().filter(is_report).collect();
    assert!(reports.len() >= 2);
    for report in reports {
        assert_eq!((source_of(&report), &report[26..30]), (mac.clone(), &[0; 4][..]));
    }
}

/// Two access ports in VLANs of their own and a trunk, on a clock that stands still.
fn dummies() -> Vswitch {
    let switch = dummy();
    switch.appctl(&["time/stop"]);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy mcast_snooping_enable=true");
    for (port, settings) in [("p1", "tag=10"), ("p2", "tag=20"), ("p3", "trunks=10")] {
        let pcap = switch.sandbox.arg(&format!("{port}.tx"));
        switch.vsctl(&format!(
            "add-port br0 {port} {settings} -- set interface {port} type=dummy options:tx_pcap={pcap}"
        ));
    }
    switch
}

/// An IGMP message from a host or router, with the checksums.
pub(crate) fn igmp(station: u32, from: Ipv4Addr, dst: Ipv4Addr, mut body: Vec<u8>) -> Packet {
    let sum = checksum(&body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x46, 0xc0, 0, 24 + body.len() as u8, 0, 0, 0, 0, 1, 2, 0, 0];
    ip.extend(from.octets());
    ip.extend(dst.octets());
    ip.extend([0x94, 4, 0, 0]);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(body);
    let [_, a, b, c] = dst.octets();
    Packet::new(mac(station), [1, 0, 0x5e, a & 0x7f, b, c])
        .payload(0x0800, &ip)
        .padded()
}

fn report(number: u8) -> String {
    let group = Ipv4Addr::new(239, 1, 2, number);
    let mut body = vec![0x16, 0, 0, 0];
    body.extend(group.octets());
    igmp(1, Ipv4Addr::new(10, 0, 0, 1), group, body).hex()
}

#[test]
fn a_querier_of_our_own_asks_in_each_vlan_until_another_does() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no querier");
    }
    let switch = dummies();
    switch.vsctl(
        "set bridge br0 other_config:mcast-snooping-querier=true \
         other_config:mcast-snooping-querier-address=10.0.0.5 other_config:mcast-snooping-query-interval=100",
    );
    // IGMPv3 and MLDv2 queries, as they leave by a port: in no VLAN, or in VLAN 10.
    let queries = |port: &str, tagged: bool| {
        let at = if tagged { 18 } else { 14 };
        let frames = pcap::frames(&switch.sandbox.path(&format!("{port}.tx")));
        let is = |frame: &&Vec<u8>, kind: [u8; 2], proto: usize, message: u8| {
            frame[at - 2..at] == kind && frame.get(at + proto) == Some(&message)
        };
        let v4 = frames.iter().filter(|frame| is(frame, [8, 0], 24, 0x11));
        let v4: Vec<&Vec<u8>> = v4.collect();
        assert!(v4.iter().all(|frame| frame[at + 12..at + 16] == [10, 0, 0, 5]));
        let v6 = frames.iter().filter(|frame| is(frame, [0x86, 0xdd], 48, 130)).count();
        (v4.len(), v6)
    };
    for (port, tagged) in [("p1", false), ("p2", false), ("p3", true)] {
        eventually("the first query", || (queries(port, tagged) == (1, 1)).then_some(()));
    }
    switch.appctl(&["time/warp", "25000"]);
    eventually("the second query follows soon", || {
        (queries("p1", false) == (2, 2)).then_some(())
    });
    // A querier with a lower address, in VLAN 10 only.
    let mut body = vec![0x11, 100, 0, 0, 0, 0, 0, 0, 2, 100];
    body.extend([0; 2]);
    let query = igmp(1, Ipv4Addr::new(10, 0, 0, 4), Ipv4Addr::new(224, 0, 0, 1), body).hex();
    switch.appctl(&["netdev-dummy/receive", "p1", &query]);
    eventually("it is known", || {
        switch.appctl(&["mdb/show", "br0"]).contains("querier").then_some(())
    });
    switch.appctl(&["time/warp", "100000"]);
    eventually("VLAN 20 is asked", || (queries("p2", false) == (3, 3)).then_some(()));
    eventually("MLD goes on", || (queries("p1", false) == (2, 3)).then_some(()));
    switch.vsctl("set bridge br0 other_config:mcast-snooping-querier-address=x");
    switch.wait_for("bridge", "br0", "status", |s| {
        s.contains("mcast-snooping-querier-address=x")
    });
}

#[test]
fn keys_bound_the_table_and_the_time_of_memberships() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch takes the oldest group");
    }
    let switch = dummies();
    switch.vsctl(
        "set bridge br0 other_config:mcast-snooping-table-size=10 other_config:mcast-snooping-aging-time=20 \
         other_config:mcast-snooping-fast-leave=false",
    );
    let groups = || switch.appctl(&["mdb/show", "br0"]).matches("239.1.2.").count();
    switch.appctl(&["netdev-dummy/receive", "p2", &report(200)]);
    eventually("a member", || (groups() == 1).then_some(()));
    for number in 1..=20 {
        switch.appctl(&["netdev-dummy/receive", "p1", &report(number)]);
    }
    eventually("the last report is in", || {
        switch
            .appctl(&["mdb/show", "br0"])
            .contains("239.1.2.20 ")
            .then_some(())
    });
    assert_eq!(groups(), 10);
    assert!(
        switch.appctl(&["mdb/show", "br0"]).contains("239.1.2.200 "),
        "the other port keeps its own"
    );
    let stats = switch.appctl(&["mdb/stats-show", "br0"]);
    assert!(
        stats.contains("p1: memberships=9, reports=20") && stats.contains("evicted=11"),
        "{stats}"
    );
    // A leave message acts when the hosts had time to answer.
    let mut body = vec![0x17, 0, 0, 0];
    body.extend([239, 1, 2, 200]);
    let leave = igmp(1, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(224, 0, 0, 2), body).hex();
    switch.appctl(&["netdev-dummy/receive", "p2", &leave]);
    eventually("the message is in", || {
        switch
            .appctl(&["mdb/stats-show", "br0"])
            .contains("p2: memberships=1, reports=2")
            .then_some(())
    });
    switch.appctl(&["time/warp", "2000"]);
    eventually("the member is gone", || (groups() == 9).then_some(()));
    switch.appctl(&["time/warp", "18000"]);
    eventually("all have aged", || (groups() == 0).then_some(()));
}
