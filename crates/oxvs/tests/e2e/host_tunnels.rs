//! Tunnels whose packets the host's stack carries, with the kernel's tunnel device or another
//! switch at the other end.

use crate::fixture::{in_namespace, stand_in};
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;
use testkit::{Capture, Iperf3, Netns, Sandbox, Vswitch, eventually, ping, skip, tshark};

mod packets;

/// A switch in a namespace whose device `p0` has the addresses 172.31.0.1 and fd31::1, with a
/// cable to a peer, 172.31.0.2 and fd31::2. A host behind `br-int` has 10.9.0.1 and the peer's end
/// of the tunnel 10.9.0.2.
struct Lab {
    switch: Vswitch,
    host: Netns,
    peer: Netns,
    ns: Netns,
}

/// A bridge with a host behind it.
fn with_host(ns: &Netns, switch: &Vswitch, address: &str) -> Netns {
    let host = Netns::new("htnh");
    ns.veth("h0", &host, "eth0");
    host.address("eth0", address);
    host.ip("link set eth0 mtu 1400");
    switch.vsctl("add-br br-int -- set bridge br-int datapath_type=netdev -- add-port br-int h0");
    host
}

impl Lab {
    fn new() -> Lab {
        let (ns, peer) = (Netns::new("htn"), Netns::new("htnp"));
        ns.veth("p0", &peer, "p1");
        for (ns, device, address) in [(&ns, "p0", 1), (&peer, "p1", 2)] {
            ns.address(device, &format!("172.31.0.{address}/24"));
            ns.run(&["sysctl", "-qw", &format!("net.ipv6.conf.{device}.disable_ipv6=0")]);
            ns.ip(&format!("address add fd31::{address}/64 dev {device} nodad"));
        }
        let switch = in_namespace(&ns);
        let host = with_host(&ns, &switch, "10.9.0.1/24");
        Lab { switch, host, peer, ns }
    }

    fn tunnel(&self, options: &str) {
        self.switch
            .vsctl(&format!("add-port br-int t0 -- set interface t0 {options}"));
        self.switch.wait_for("interface", "t0", "ofport", |port| port != "[]");
    }

    fn peer_has(&self, device: &str) {
        self.peer.ip(&format!("link add t0 {device}"));
        self.peer.address("t0", "10.9.0.2/24");
        self.peer.ip("link set t0 up mtu 1400");
    }

    fn reaches(&self) {
        eventually("a packet comes back", || {
            (ping(&self.host, "10.9.0.2", 1).received == 1).then_some(())
        });
        assert_eq!(ping(&self.host, "10.9.0.2", 5).received, 5);
    }

    fn counts(&self, cause: &str) {
        eventually(cause, || {
            let drops = self.switch.appctl(&["coverage/show"]);
            drops.contains(cause).then_some(())
        });
    }
}

#[test]
fn the_hosts_stack_carries_vxlan_to_the_kernels_device() {
    skip!(unless root, "ip", "ping", "iperf3", "tcpdump", "tshark", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such underlay");
    }
    for (remote, local) in [("172.31.0.2", "172.31.0.1"), ("fd31::2", "fd31::1")] {
        let lab = Lab::new();
        lab.tunnel(&format!(
            "type=vxlan options:key=42 options:remote_ip={remote} options:tos=0x20"
        ));
        lab.peer_has(&format!("type vxlan id 42 local {remote} remote {local} dstport 4789"));
        lab.reaches();
        let status = lab.switch.get("interface", "t0", "status");
        for part in [
            "tunnel_egress_iface=p0",
            "tunnel_egress_iface_carrier=up",
            "underlay=host",
        ] {
            assert!(status.contains(part), "{status}");
        }
        // The tunnel's counters, in the database and over OpenFlow.
        lab.switch.wait_for("interface", "t0", "statistics", |counts| {
            ["rx_packets", "tx_packets"].iter().all(|name| {
                let value = counts.split(&format!("{name}=")).nth(1);
                value.is_some_and(|value| !value.starts_with(['0', ',']))
            })
        });
        let ports = lab.switch.tool("ovs-ofctl", &["dump-ports", "br-int", "t0"]).stdout;
        assert!(ports.contains("rx pkts=") && !ports.contains("rx pkts=0,"), "{ports}");
        // Segments stay whole in both directions, and what they carry arrives.
        let capture = Capture::start(&lab.peer, "p1", "udp port 4789");
        for (client, server, address) in [(&lab.host, &lab.peer, "10.9.0.2"), (&lab.peer, &lab.host, "10.9.0.1")] {
            assert!(Iperf3::tcp_bytes(20_000_000).run(client, server, address) > 0.0);
        }
        let sandbox = Sandbox::new();
        let path = sandbox.path("packets");
        let frames = capture.finish();
        // Segments that crossed the cable whole are no packets of a wire.
        let packets = frames.iter().filter(|frame| frame.len() <= 1514).take(300);
        let packets: Vec<Vec<u8>> = packets.map(|frame| frame[14..].to_vec()).collect();
        assert!(!packets.is_empty() && packets.len() < frames.len());
        std::fs::write(&path, testkit::pcap::of_ip(&packets)).unwrap();
        let bad = tshark(&path, &["-Y", "_ws.malformed || vxlan && !(vxlan.vni == 42)"]);
        assert_eq!(bad, "");
        let tos = tshark(
            &path,
            &[
                "-Y",
                "ip.src == 10.9.0.1 && (ip.dsfield == 0x20 || ipv6.tclass == 0x20)",
            ],
        );
        assert!(!tos.is_empty());
        // A packet with another key is nobody's.
        lab.peer.ip("link del t0");
        lab.peer_has(&format!("type vxlan id 43 local {remote} remote {local} dstport 4789"));
        assert_eq!(ping(&lab.peer, "10.9.0.1", 1).received, 0);
        lab.counts("drop_no_tunnel");
    }
}

#[test]
fn two_switches_reach_each_other_through_each_type_of_tunnel() {
    skip!(unless root, "ip", "ping", "iperf3", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such underlay");
    }
    let lab = Lab::new();
    let other = in_namespace(&lab.peer);
    let far = with_host(&lab.peer, &other, "10.9.0.2/24");
    let types = [
        "type=vxlan options:key=5 options:csum=true",
        "type=geneve options:key=5",
        "type=gre options:key=5 options:seq=true options:csum=true",
        "type=erspan options:key=5 options:erspan_ver=1 options:erspan_idx=3",
    ];
    let v6 = [
        "type=geneve options:key=5 options:df_default=false",
        "type=ip6gre options:key=5",
        "type=ip6erspan options:key=5 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=4",
    ];
    let all = types.iter().map(|kind| (kind, ["172.31.0.1", "172.31.0.2"]));
    for (kind, [near_ip, far_ip]) in all.chain(v6.iter().map(|kind| (kind, ["fd31::1", "fd31::2"]))) {
        for (switch, remote) in [(&lab.switch, far_ip), (&other, near_ip)] {
            switch.vsctl(&format!(
                "--may-exist add-port br-int t0 -- set interface t0 {kind} options:remote_ip={remote}"
            ));
        }
        eventually(kind, || (ping(&lab.host, "10.9.0.2", 1).received == 1).then_some(()));
        assert_eq!(ping(&lab.host, "10.9.0.2", 3).received, 3, "{kind}");
        assert!(Iperf3::tcp_bytes(3_000_000).run(&lab.host, &far, "10.9.0.2") > 0.0);
        for switch in [&lab.switch, &other] {
            switch.vsctl("del-port br-int t0");
        }
    }
}

#[test]
fn the_way_follows_the_kernels_routes_at_once() {
    skip!(unless root, "ip", "ping", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such underlay");
    }
    let lab = Lab::new();
    lab.tunnel("type=vxlan options:key=42 options:remote_ip=172.30.0.2");
    lab.peer_has("type vxlan id 42 local 172.30.0.2 remote 172.31.0.1 dstport 4789");
    lab.peer.ip("address add 172.30.0.2/32 dev p1");
    assert_eq!(ping(&lab.host, "10.9.0.2", 1).received, 0);
    for _ in 0..3 {
        // A route that comes makes cached flows of drops go.
        lab.ns.ip("route add 172.30.0.2/32 via 172.31.0.2");
        lab.reaches();
        lab.switch
            .wait_for("interface", "t0", "status", |status| status.contains("underlay=host"));
        lab.ns.ip("route del 172.30.0.2/32");
        lab.switch
            .wait_for("interface", "t0", "status", |status| status == "{}");
        assert_eq!(ping(&lab.host, "10.9.0.2", 1).received, 0);
    }
    // A bridge of the switch gets the address: the tunnel then leaves by that bridge.
    lab.switch
        .vsctl("add-br br-phy -- set bridge br-phy datapath_type=netdev");
    lab.ns.ip("link set br-phy up");
    lab.ns.address("br-phy", "172.30.0.1/24");
    lab.switch
        .wait_for("interface", "t0", "status", |status| status.contains("underlay=native"));
}

#[test]
fn a_port_that_the_kernels_device_has_is_an_error_until_it_is_released() {
    skip!(unless root, "ip", "ping", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such underlay");
    }
    let lab = Lab::new();
    lab.ns
        .ip("link add taken type vxlan id 1 dstport 4789 remote 172.31.0.9 dev p0");
    lab.ns.ip("link set taken up");
    lab.tunnel("type=vxlan options:key=42 options:remote_ip=172.31.0.2");
    lab.switch.wait_for("interface", "t0", "error", |error| {
        error.contains("Address already in use")
    });
    lab.ns.ip("link del taken");
    lab.switch.wait_for("interface", "t0", "error", |error| error == "[]");
    lab.peer_has("type vxlan id 42 local 172.31.0.2 remote 172.31.0.1 dstport 4789");
    lab.reaches();
}

#[test]
fn hostile_datagrams_are_counted_and_flow_on_none() {
    skip!(unless root, "ip", "ping", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such underlay");
    }
    let lab = Lab::new();
    lab.tunnel("type=geneve options:key=flow options:remote_ip=flow");
    lab.switch.wait_for("interface", "t0", "error", |error| error == "[]");
    lab.peer.enter(|| {
        let socket = UdpSocket::bind("172.31.0.2:0").unwrap();
        // Geneve with options that are longer than the packet, cut at each byte.
        let packet: Vec<u8> = [&[0x3f, 0x40, 0x65, 0x58, 0, 0, 7, 0][..], &[1, 2, 0x80, 0x1f], &[0; 60]].concat();
        for len in 0..packet.len() {
            socket.send_to(&packet[..len], "172.31.0.1:6081").unwrap();
        }
    });
    lab.counts("drop_tunnel_malformed");
    assert!(lab.switch.appctl(&["tnl/ports/show"]).contains("genev_sys_6081"));
}

#[test]
fn rules_choose_among_ten_thousand_other_ends() {
    skip!(unless root, "ip", "ping", "ovs-vsctl", "ovs-ofctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such underlay");
    }
    const ENDS: u32 = 10_000;
    let lab = Lab::new();
    lab.tunnel("type=vxlan options:key=flow options:remote_ip=flow ofport_request=9");
    let flows: String = (0..ENDS)
        .map(|end| {
            let (dst, remote) = (
                std::net::Ipv4Addr::from(0x0a64_0000 + end),
                std::net::Ipv4Addr::from(0x0a00_0000 + end),
            );
            format!(
                "table=0,priority=9,ip,nw_dst={dst},actions=set_field:{remote}->tun_dst,set_field:{end}->tun_id,9\n"
            )
        })
        .collect();
    let path = lab.switch.sandbox.path("flows");
    std::fs::write(&path, flows).unwrap();
    let done = lab
        .switch
        .tool("ovs-ofctl", &["add-flows", "br-int", path.to_str().unwrap()]);
    assert_eq!(done.status, Some(0), "{}", done.stderr);
    lab.ns.ip("route add 10.0.0.0/16 via 172.31.0.2");
    lab.host.ip("route add 10.100.0.0/16 via 10.9.0.9");
    lab.host.ip("neigh add 10.9.0.9 lladdr 02:00:00:00:00:07 dev eth0");
    let capture = Capture::start_large(&lab.peer, "p1", "udp port 4789");
    let mut missing: BTreeSet<u32> = (0..ENDS).collect();
    eventually("a packet to each end leaves", || {
        lab.host.enter(|| {
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            for (sent, end) in missing.iter().enumerate() {
                let to = std::net::Ipv4Addr::from(0x0a64_0000 + end);
                // A full queue is no failure: the packet is sent again.
                let _ = socket.send_to(b"packet", (to, 9));
                if sent % 64 == 63 {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        for frame in capture.frames() {
            let number = |at: usize| u32::from(frame[at]) << 8 | u32::from(frame[at + 1]);
            let (remote, key, inner) = (number(32), number(47), number(82));
            assert_eq!(frame[30..32], [10, 0]);
            assert!(
                remote == inner && key == inner,
                "{inner} left for {remote} with key {key}"
            );
            missing.remove(&inner);
        }
        missing.is_empty().then_some(())
    });
}
