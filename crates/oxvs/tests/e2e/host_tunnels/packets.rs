//! Tunnels of packets without Ethernet headers through the host's stack.

use super::{Lab, with_host};
use crate::fixture::{in_namespace, stand_in};
use testkit::{Capture, Iperf3, Netns, Sandbox, Vswitch, eventually, one_in, ping, skip, tshark};

/// The Ethernet addresses of the near and the far host.
const HOSTS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];

/// Gives a host its addresses. It knows those of the other one: no ARP packet crosses.
fn knows(host: &Netns, own: usize) {
    host.ip("link set eth0 down");
    host.ip(&format!("link set eth0 address {}", HOSTS[own]));
    host.run(&["sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=0"]);
    host.ip("link set eth0 up");
    host.ip(&format!("address add fd10::{}/64 dev eth0 nodad", own + 1));
    for network in ["10.9.0.", "fd10::"] {
        host.ip(&format!(
            "neigh replace {network}{} lladdr {} dev eth0 nud permanent",
            2 - own,
            HOSTS[1 - own]
        ));
    }
}

/// The rules of a bridge whose tunnel carries packets, with labels or without.
fn rules(switch: &Vswitch, own: usize, labelled: bool) {
    switch.tool("ovs-ofctl", &["del-flows", "br-int"]).expect_ok();
    let host = format!("mod_dl_dst:{},h0", HOSTS[own]);
    let (push, pop) = match labelled {
        true => (
            "push_mpls:0x8847,set_field:100->mpls_label,",
            "mpls,actions=pop_mpls:0x0800,",
        ),
        false => ("", "ip,actions="),
    };
    for rule in [
        format!("in_port=h0,ip,actions={push}t0"),
        format!("in_port=t0,{pop}{host}"),
        "in_port=h0,ipv6,actions=t0".to_owned(),
        format!("in_port=t0,ipv6,actions={host}"),
    ] {
        switch
            .tool("ovs-ofctl", &["-O", "OpenFlow13", "add-flow", "br-int", &rule])
            .expect_ok();
    }
}

/// What tshark says of outer packets: no complaint. Returns how many have a field.
fn shown(frames: &[Vec<u8>], filter: &str) -> usize {
    let sandbox = Sandbox::new();
    let path = sandbox.path("packets");
    std::fs::write(&path, testkit::pcap::of_ethernet(frames)).unwrap();
    let ports = ["-d", "udp.port==6636,ip"];
    let wrong = [&ports[..], &["-Y", "_ws.malformed || _ws.expert.severity >= 0x600000"]].concat();
    assert_eq!(tshark(&path, &wrong), "");
    tshark(&path, &[&ports[..], &["-Y", filter]].concat()).lines().count()
}

#[test]
fn two_switches_reach_each_other_through_each_tunnel_of_packets() {
    skip!(unless root, "ip", "ping", "iperf3", "tcpdump", "tshark", "ovs-vsctl", "ovs-ofctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such underlay");
    }
    let lab = Lab::new();
    let other = in_namespace(&lab.peer);
    let far = with_host(&lab.peer, &other, "10.9.0.2/24");
    knows(&lab.host, 0);
    knows(&far, 1);
    let (v4, v6) = (["172.31.0.1", "172.31.0.2"], ["fd31::1", "fd31::2"]);
    let kinds = [
        ("type=gtpu options:key=5", v4, "gtp.teid == 5 && icmp"),
        ("type=gtpu options:key=6", v6, "gtp.teid == 6 && icmp"),
        ("type=bareudp options:dst_port=6636", v4, "udp.dstport == 6636 && icmp"),
        ("type=bareudp options:dst_port=6636", v6, "udp.dstport == 6636 && icmp"),
        (
            "type=bareudp options:dst_port=6635 options:payload_type=mpls",
            v4,
            "mpls.label == 100 && icmp",
        ),
        ("type=srv6", v6, "ipv6.routing.segleft == 0 && icmp"),
        (
            "type=gre options:key=7 options:packet_type=legacy_l3",
            v4,
            "gre.key == 7 && gre.proto == 0x0800 && icmp",
        ),
        (
            "type=vxlan options:key=8 options:exts=gpe options:dst_port=4790 options:packet_type=legacy_l3",
            v4,
            "vxlan.next_proto == 1 && icmp",
        ),
    ];
    for (kind, ends, filter) in one_in(3, kinds) {
        let labelled = kind.contains("mpls");
        for (switch, own) in [(&lab.switch, 0), (&other, 1)] {
            switch.vsctl(&format!(
                "--may-exist add-port br-int t0 -- set interface t0 {kind} options:remote_ip={}",
                ends[1 - own]
            ));
            switch.wait_for("interface", "t0", "status", |status| status.contains("underlay=host"));
            assert_eq!(switch.get("interface", "t0", "error"), "[]", "{kind}");
            rules(switch, own, labelled);
        }
        eventually(kind, || (ping(&lab.host, "10.9.0.2", 1).received == 1).then_some(()));
        let capture = Capture::start(&lab.peer, "p1", "");
        assert_eq!(ping(&lab.host, "10.9.0.2", 3).received, 3, "{kind}");
        assert_eq!(shown(&capture.finish(), filter), 6, "{kind}");
        for (client, server, end) in [(&lab.host, &far, 2), (&far, &lab.host, 1)] {
            assert!(Iperf3::tcp_bytes(3_000_000).run(client, server, &format!("10.9.0.{end}")) > 0.0);
            if !labelled {
                assert_eq!(ping(client, &format!("fd10::{end}"), 3).received, 3, "{kind}");
                assert!(Iperf3::tcp_bytes(3_000_000).run(client, server, &format!("fd10::{end}")) > 0.0);
            }
        }
        for switch in [&lab.switch, &other] {
            switch.vsctl("del-port br-int t0");
        }
    }
}

#[test]
fn the_hosts_stack_carries_segment_routing_to_and_from_the_kernels() {
    skip!(unless root, "ip", "ping", "iperf3", "ovs-vsctl", "ovs-ofctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such underlay");
    }
    let lab = Lab::new();
    let peer = &lab.peer;
    peer.run(&["sysctl", "-qw", "net.ipv6.conf.all.seg6_enabled=1"]);
    peer.run(&["sysctl", "-qw", "net.ipv6.conf.p1.seg6_enabled=1"]);
    peer.run(&["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
    peer.run(&["sysctl", "-qw", "net.ipv6.conf.all.forwarding=1"]);
    peer.address("lo", "10.9.0.2/32");
    let tables = peer.try_run(
        &[
            "ip",
            "-6",
            "route",
            "add",
            "fd32::2/128",
            "encap",
            "seg6local",
            "action",
            "End.DX4",
            "nh4",
            "10.9.0.2",
            "dev",
            "p1",
        ],
        &[],
    );
    let encap = peer.try_run(
        &[
            "ip",
            "route",
            "add",
            "10.9.0.1/32",
            "encap",
            "seg6",
            "mode",
            "encap",
            "segs",
            "fd31::1",
            "dev",
            "p1",
            "src",
            "10.9.0.2",
        ],
        &[],
    );
    if !tables.ok() || !encap.ok() {
        skip!("this kernel has no segment routing: {}{}", tables.stderr, encap.stderr);
    }
    knows(&lab.host, 0);
    lab.ns.ip("route add fd32::/64 via fd31::2");
    lab.tunnel("type=srv6 options:remote_ip=fd32::2");
    rules(&lab.switch, 0, false);
    // Packets of the kernel come from another address than the segment that ends there.
    lab.switch
        .vsctl("add-port br-int t1 -- set interface t1 type=srv6 options:remote_ip=fd31::2");
    let rule = format!("in_port=t1,ip,actions=mod_dl_dst:{},h0", HOSTS[0]);
    lab.switch.tool("ovs-ofctl", &["add-flow", "br-int", &rule]).expect_ok();
    lab.reaches();
    for (client, server, address) in [(&lab.host, peer, "10.9.0.2"), (peer, &lab.host, "10.9.0.1")] {
        assert!(Iperf3::tcp_bytes(3_000_000).run(client, server, address) > 0.0);
    }
}
