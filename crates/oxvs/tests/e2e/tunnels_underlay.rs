//! The underlay of tunnels is a bridge like others: its queues and its bonds get the outer packets.

use crate::fixture::{Pair, stand_in};
use crate::tunnels::Lab;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;
use testkit::{Capture, Netns, Vswitch, eventually, ping, skip};

/// Packets that each queue of a port has sent.
fn sent_by_queues(switch: &Vswitch, bridge: &str, port: &str, queues: usize) -> Vec<u64> {
    (0..queues)
        .map(|queue| {
            let shown = switch.tool("ovs-ofctl", &["queue-stats", bridge, port, &queue.to_string()]);
            let shown = shown.expect_ok();
            let (_, behind) = shown.split_once("pkts=").unwrap_or_else(|| panic!("{shown}"));
            behind
                .split_once(',')
                .and_then(|(packets, _)| packets.parse().ok())
                .unwrap_or(0)
        })
        .collect()
}

#[test]
fn outer_packets_go_through_the_queue_that_rules_of_either_bridge_choose() {
    skip!(unless root, "ip", "ping", "ovs-vsctl", "ovs-ofctl");
    if stand_in() {
        skip!("Open vSwitch leaves queues to the kernel, which may not have them");
    }
    let lab = Lab::new("type=vxlan ofport_request=2 options:key=42 options:tos=inherit");
    let (switch, host) = (&lab.switch, &lab.host);
    switch.vsctl(
        "set interface h0 ofport_request=1 -- set port ph0 qos=@q \
         -- --id=@q create qos type=linux-htb other_config:max-rate=1000000000 queues:0=@a \
         queues:1=@b queues:2=@c queues:3=@d -- --id=@a create queue other_config:min-rate=1000000 \
         -- --id=@b create queue other_config:min-rate=1000000 -- --id=@c create queue other_config:min-rate=1000000 \
         -- --id=@d create queue other_config:min-rate=1000000",
    );
    lab.peer_has("type vxlan id 42 local 172.31.0.2 remote 172.31.0.1 dstport 4789");
    lab.reaches_peer();
    let rules = |inner: &str, outer: &str| {
        for (bridge, rule) in [("br-int", inner), ("br-phy", outer)] {
            switch.tool("ovs-ofctl", &["del-flows", bridge]).expect_ok();
            for rule in ["priority=0,actions=NORMAL", rule] {
                switch
                    .tool("ovs-ofctl", &["-O", "OpenFlow13", "add-flow", bridge, rule])
                    .expect_ok();
            }
        }
    };
    let all = "priority=1,actions=NORMAL";
    for (what, inner, outer, queue) in [
        ("the default", all, all, 0),
        (
            "the queue of the inner packet",
            "in_port=1,ip,actions=set_queue:1,output:2",
            all,
            1,
        ),
        (
            "a rule about the outer type of service, which is inherited",
            all,
            "in_port=LOCAL,udp,nw_tos=0x20,actions=set_queue:2,NORMAL",
            2,
        ),
        (
            "a rule about the mark",
            "in_port=1,ip,actions=set_field:7->pkt_mark,output:2",
            "in_port=LOCAL,pkt_mark=7,actions=set_queue:3,NORMAL",
            3,
        ),
        (
            "a rule about the outer source port, which differs by packet",
            all,
            "in_port=LOCAL,udp,tp_src=0x8000/0x8000,actions=set_queue:2,NORMAL",
            2,
        ),
        (
            "the underlay's rule before that of the inner packet",
            "in_port=1,ip,actions=set_queue:1,output:2",
            "in_port=LOCAL,udp,actions=set_queue:3,NORMAL",
            3,
        ),
    ] {
        rules(inner, outer);
        let before = sent_by_queues(switch, "br-phy", "ph0", 4);
        let words = [
            "ping", "-q", "-c", "20", "-i", "0.01", "-W", "1", "-Q", "0x20", "10.9.0.2",
        ];
        assert!(host.run(&words).contains(" 20 received"), "{what}");
        let after = sent_by_queues(switch, "br-phy", "ph0", 4);
        for other in 0..4 {
            let sent = after[other] - before[other];
            // The kernel asks for neighbours, and advertises its own.
            let right = if other == queue { sent >= 20 } else { sent < 10 };
            assert!(right, "{what}: {sent} by queue {other}");
        }
    }
}

/// Our switch and Open vSwitch, whose bridges `br0` have two cables between them and the addresses
/// 172.31.0.1 and 172.31.0.2, and a tunnel over them. Behind it are hosts, 10.9.0.1 and 10.9.0.2.
struct Bonded {
    ends: Pair,
    hosts: [Netns; 2],
}

impl Bonded {
    fn new(ours: &str, theirs: &str) -> Bonded {
        let ends = Pair::new(&["m1", "m2"]);
        let sides = [(&ends.ours, &ends.near, ours), (&ends.theirs, &ends.far, theirs)];
        let hosts = sides.map(|(switch, ns, settings)| {
            let n = if std::ptr::eq(ns, &ends.near) { 1 } else { 2 };
            match settings {
                // The bond at the other end has to prevent loops.
                "" => switch.vsctl("add-port br0 m1 -- add-port br0 m2"),
                _ => switch.vsctl(&format!("add-bond br0 bond0 m1 m2 {settings}")),
            };
            ns.address("br0", &format!("172.31.0.{n}/24"));
            ns.ip("link set br0 up");
            let host = Vswitch::host(ns, "h0", "h0", &format!("10.9.0.{n}/24"));
            host.ip("link set eth0 mtu 1400");
            // Open vSwitch cannot complete checksums.
            host.run(&["ethtool", "-K", "eth0", "tx", "off"]);
            switch.vsctl(&format!(
                "add-br br-int -- set bridge br-int datapath_type=netdev -- add-port br-int h0 \
                 -- add-port br-int t0 -- set interface t0 type=vxlan options:remote_ip=172.31.0.{} options:key=42",
                3 - n
            ));
            host
        });
        Bonded { ends, hosts }
    }

    fn wait_for_pings(&self, why: &str) {
        eventually(why, || {
            (ping(&self.hosts[0], "10.9.0.2", 3).received == 3).then_some(())
        });
    }

    /// The outer packets that leave by each member when the host sends packets of 40 flows, which
    /// all arrive.
    fn send(&self, why: &str) -> [usize; 2] {
        const FLOWS: u16 = 40;
        let filter = "udp dst port 4789 and src host 172.31.0.1";
        let captures = ["m1", "m2"].map(|member| Capture::start_large(&self.ends.far, member, filter));
        let to = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), 9);
        let receiver = self.hosts[1].enter(|| UdpSocket::bind(to).unwrap());
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        self.hosts[0].enter(|| {
            for port in 0..FLOWS {
                let socket = UdpSocket::bind((Ipv4Addr::new(10, 9, 0, 1), 20_000 + port)).unwrap();
                socket.send_to(&[7; 100], to).unwrap();
            }
        });
        let mut bytes = [0; 200];
        for _ in 0..FLOWS {
            let came = receiver.recv(&mut bytes);
            assert_eq!(came.ok(), Some(100), "{why}");
        }
        captures.map(|capture| {
            let frames = capture.finish();
            frames
                .iter()
                .filter(|frame| frame.len() == 14 + 20 + 8 + 8 + 142)
                .count()
        })
    }
}

macro_rules! needs {
    () => {
        skip!(unless root, "ip", "ping", "ethtool", "tcpdump", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server");
    };
}

/// Takes down the link of each member that carries packets: those of the tunnel go by the other
/// one, and none by the member that is down.
fn fails_over(bonded: &Bonded, why: &str) {
    for (number, link) in ["m1", "m2"].iter().enumerate() {
        bonded.ends.near.ip(&format!("link set {link} down"));
        eventually("the member is disabled", || {
            let shown = bonded.ends.ours.appctl(&["bond/show", "bond0"]);
            shown.contains(&format!("member {link}: disabled")).then_some(())
        });
        bonded.wait_for_pings("pings by the other link");
        let sent = bonded.send(why);
        assert_eq!((sent[number], sent[1 - number]), (0, 40), "{why}, without {link}");
        bonded.ends.near.ip(&format!("link set {link} up"));
        eventually("both members are enabled", || {
            let shown = bonded.ends.ours.appctl(&["bond/show", "bond0"]);
            (shown.matches(": enabled").count() == 2).then_some(())
        });
        bonded.wait_for_pings("pings by both links");
    }
}

#[test]
fn a_bond_without_lacp_carries_outer_packets_by_one_member_and_fails_over() {
    needs!();
    for mode in ["active-backup", "balance-slb"] {
        let bonded = Bonded::new(&format!("bond_mode={mode}"), "");
        bonded.wait_for_pings("pings");
        let mut sent = bonded.send(mode);
        sent.sort_unstable();
        assert_eq!(sent, [0, 40], "{mode}: the bridge has one address");
        fails_over(&bonded, mode);
    }
}

#[test]
fn a_bond_with_lacp_spreads_outer_packets_by_their_source_ports_and_fails_over() {
    needs!();
    let settings = "bond_mode=balance-tcp lacp=active other_config:lacp-time=fast";
    let bonded = Bonded::new(settings, settings);
    bonded.wait_for_pings("pings");
    let sent = bonded.send("balance-tcp");
    assert!(sent[0] + sent[1] == 40 && sent.iter().all(|sent| *sent > 5), "{sent:?}");
    fails_over(&bonded, "balance-tcp");
}
