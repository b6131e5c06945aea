//! Changes of the underlay while packets go through a tunnel: once a change is acknowledged, no
//! packet leaves with the outer headers of before.

use crate::fixture::{in_namespace, stand_in};
use std::time::Duration;
use testkit::{Capture, Daemon, Netns, Vswitch, eventually, ping, skip};

/// A switch with cables to two peers, each with the kernel's device for the tunnel, which both have
/// at 172.30.0.2: routes choose the peer. The first peer has 172.31.0.2, the second 172.32.0.2. A
/// host behind `br-int` has 10.9.0.1, the peers' end of the tunnel 10.9.0.2.
struct Lab {
    switch: Vswitch,
    host: Netns,
    peers: [Netns; 2],
    ns: Netns,
}

impl Lab {
    /// Through a bridge of the switch, or through the host's stack.
    fn new(native: bool) -> Lab {
        let [ns, host, one, other] = ["tch", "tchh", "tcha", "tchb"].map(Netns::new);
        let switch = in_namespace(&ns);
        ns.veth("h0", &host, "eth0");
        host.address("eth0", "10.9.0.1/24");
        host.ip("link set eth0 mtu 1400");
        switch.vsctl("add-br br-int -- set bridge br-int datapath_type=netdev -- add-port br-int h0");
        if native {
            switch.vsctl("add-br br-phy -- set bridge br-phy datapath_type=netdev");
            ns.ip("link set br-phy up");
        }
        let peers = [one, other];
        for (peer, n) in peers.iter().zip(1..) {
            ns.veth(&format!("p{n}"), peer, "eth0");
            peer.address("eth0", &format!("172.3{n}.0.2/24"));
            peer.address("lo", "172.30.0.2/32");
            if native {
                switch.vsctl(&format!("add-port br-phy p{n}"));
            }
            let device = if native { "br-phy".to_owned() } else { format!("p{n}") };
            ns.address(&device, &format!("172.3{n}.0.1/24"));
            peer_has(peer, &format!("172.3{n}.0.1"));
        }
        ns.ip("route add 172.30.0.2/32 via 172.31.0.2");
        switch.vsctl("add-port br-int t0 -- set interface t0 type=vxlan options:key=42 options:remote_ip=172.30.0.2");
        let lab = Lab {
            switch,
            host,
            peers,
            ns,
        };
        lab.reaches();
        lab
    }

    fn reaches(&self) {
        eventually("a packet comes back", || {
            (ping(&self.host, "10.9.0.2", 1).received == 1).then_some(())
        });
    }

    /// Waits until the switch has acknowledged all that was before.
    fn acknowledged(&self) {
        self.switch.vsctl("set open_vswitch . external_ids:asked=1");
        self.switch.vsctl("remove open_vswitch . external_ids asked");
    }

    fn rule(&self, rule: &str) {
        let args = ["-O", "OpenFlow13", "add-flow", "br-int", rule];
        self.switch.tool("ovs-ofctl", &args).expect_ok();
    }

    /// Pings 200 times a second until this is dropped.
    fn ping_on(&self) -> Daemon {
        let mut words = self.host.prefix();
        words.extend(["ping", "-q", "-i", "0.012", "10.9.0.2"].map(str::to_owned));
        Daemon::start("ping", &words, &self.switch.sandbox)
    }

    /// The outer packets that come to both peers from now on.
    fn come(&self) -> [Vec<Vec<u8>>; 2] {
        let captures = self
            .peers
            .each_ref()
            .map(|peer| Capture::start(peer, "eth0", "udp dst port 4789 and dst host 172.30.0.2"));
        std::thread::sleep(Duration::from_millis(300));
        captures.map(Capture::finish)
    }
}

/// The peer's end of the tunnel, which sends to the switch's address.
fn peer_has(peer: &Netns, switch: &str) {
    peer.ip(&format!(
        "link add t0 address 02:00:00:00:09:02 type vxlan id 42 local 172.30.0.2 remote {switch} dstport 4789"
    ));
    peer.address("t0", "10.9.0.2/24");
    peer.ip("link set t0 up mtu 1400");
}

macro_rules! needs {
    () => {
        skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl", "ovs-ofctl");
        if stand_in() {
            skip!("Open vSwitch drops packets whose UDP checksums a veth device has not filled in");
        }
    };
}

fn bytes_of(mac: &str) -> Vec<u8> {
    mac.split(':').map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect()
}

#[test]
fn packets_follow_a_route_that_flaps_and_none_goes_the_old_way() {
    needs!();
    for native in [true, false] {
        let lab = Lab::new(native);
        let _pings = lab.ping_on();
        for turn in 0..6 {
            let (new, old) = ((turn + 1) % 2, turn % 2);
            lab.ns
                .ip(&format!("route replace 172.30.0.2/32 via 172.3{}.0.2", new + 1));
            lab.acknowledged();
            let came = lab.come();
            let source = [172, 31 + new as u8, 0, 1];
            assert!(came[new].len() > 10, "{native} {turn}: {}", came[new].len());
            assert_eq!(came[old].len(), 0, "{native} {turn}");
            assert!(came[new].iter().all(|frame| frame[26..30] == source), "{native} {turn}");
            // The flow is in caches again before the next change.
            lab.reaches();
        }
        // Without a route packets leave by none, and are counted.
        let count = || -> u64 {
            let counted = lab.switch.try_appctl(&["coverage/read-counter", "drop_tunnel_route"]);
            counted.stdout.trim().parse().unwrap_or(0)
        };
        let before = count();
        lab.ns.ip("route del 172.30.0.2/32");
        lab.acknowledged();
        let came = lab.come();
        assert_eq!((came[0].len(), came[1].len()), (0, 0), "{native}");
        eventually("drops are counted", || (count() > before + 10).then_some(()));
        lab.ns.ip("route add 172.30.0.2/32 via 172.32.0.2");
        lab.reaches();
    }
}

#[test]
fn a_neighbour_that_dies_and_a_peer_that_restarts_are_found_by_their_new_addresses() {
    needs!();
    for native in [true, false] {
        let lab = Lab::new(native);
        let _pings = lab.ping_on();
        let peer = &lab.peers[0];
        for (turn, says) in [(1, "gratuitous"), (2, "asks"), (3, "gratuitous"), (4, "asks")] {
            let new = format!("02:00:00:00:77:0{turn}");
            peer.ip("link set eth0 down");
            if !native {
                lab.switch.wait_for("interface", "t0", "status", |status| {
                    status.contains("tunnel_egress_iface_carrier=down")
                });
            }
            peer.ip("link del t0");
            peer.ip(&format!("link set eth0 address {new}"));
            // As a host that boots: its first packets say its new address.
            let notify = if says == "gratuitous" { "1" } else { "0" };
            peer.run(&["sysctl", "-qw", &format!("net.ipv4.conf.eth0.arp_notify={notify}")]);
            peer.ip("link set eth0 up");
            peer_has(peer, "172.31.0.1");
            if says == "asks" {
                assert_eq!(ping(peer, "172.31.0.1", 1).sent, 1);
            }
            if native {
                eventually("the switch has heard of it", || {
                    let shown = lab.switch.appctl(&["tnl/neigh/show"]);
                    let gateway = shown.lines().find(|line| line.starts_with("172.31.0.2 "))?;
                    gateway.contains(&new).then_some(())
                });
            } else {
                lab.reaches();
            }
            let came = lab.come();
            let stale = came[0].iter().filter(|frame| frame[..6] != bytes_of(&new)[..]).count();
            assert!(
                came[0].len() > 10 && stale == 0,
                "{native} {says}: {} {stale}",
                came[0].len()
            );
            assert_eq!(came[1].len(), 0);
            lab.reaches();
        }
    }
}

#[test]
fn the_source_is_local_ip_as_soon_as_it_is_there() {
    needs!();
    for native in [true, false] {
        let lab = Lab::new(native);
        let device = if native { "br-phy" } else { "p1" };
        let _pings = lab.ping_on();
        let sources = |came: &[Vec<u8>]| -> std::collections::BTreeSet<Vec<u8>> {
            came.iter().map(|frame| frame[26..30].to_vec()).collect()
        };
        assert_eq!(sources(&lab.come()[0]), [vec![172, 31, 0, 1]].into());
        // The address comes later than the option.
        lab.switch.vsctl("set interface t0 options:local_ip=172.31.0.9");
        assert_eq!(lab.come()[0].len(), 0, "{native}");
        lab.ns.address(device, "172.31.0.9/24");
        lab.peers[0].ip("link del t0");
        peer_has(&lab.peers[0], "172.31.0.9");
        lab.reaches();
        let came = lab.come();
        assert!(came[0].len() > 10);
        assert_eq!(sources(&came[0]), [vec![172, 31, 0, 9]].into(), "{native}");
        // Packets to the other address of the switch are not this tunnel's.
        lab.peers[0].ip("link del t0");
        peer_has(&lab.peers[0], "172.31.0.1");
        assert_eq!(ping(&lab.host, "10.9.0.2", 2).received, 0);
        lab.switch.vsctl("remove interface t0 options local_ip");
        lab.reaches();
        assert_eq!(sources(&lab.come()[0]), [vec![172, 31, 0, 1]].into());
    }
}

#[test]
fn a_mark_of_outer_packets_chooses_the_route_by_the_kernels_rules() {
    needs!();
    for native in [true, false] {
        let lab = Lab::new(native);
        let _pings = lab.ping_on();
        lab.ns.ip("route add 172.30.0.2/32 via 172.32.0.2 table 9");
        lab.ns.ip("rule add fwmark 7 table 9");
        lab.acknowledged();
        let came = lab.come();
        assert!(came[0].len() > 10 && came[1].is_empty(), "{native}: without a mark");
        for (mark, to) in [("7", 1), ("8", 0), ("7", 1)] {
            lab.switch
                .vsctl(&format!("set interface t0 options:egress_pkt_mark={mark}"));
            let came = lab.come();
            let (right, wrong) = (came[to].len(), came[1 - to].len());
            assert!(right > 10 && wrong == 0, "{native} {mark}: {right} {wrong}");
            lab.reaches();
        }
        // The rule goes.
        lab.ns.ip("rule del fwmark 7 table 9");
        lab.acknowledged();
        let came = lab.come();
        assert!(came[0].len() > 10 && came[1].is_empty(), "{native}: without the rule");
    }
}

#[test]
fn rules_of_the_kernel_about_the_source_count_for_tunnels_that_have_one() {
    needs!();
    for native in [true, false] {
        let lab = Lab::new(native);
        let _pings = lab.ping_on();
        let device = if native { "br-phy" } else { "p1" };
        lab.ns.address(device, "172.31.0.9/24");
        lab.ns.ip("route add 172.30.0.2/32 via 172.32.0.2 table 9");
        lab.ns.ip("rule add from 172.31.0.9 table 9");
        for (local, to) in [(None, 0), (Some("172.31.0.9"), 1), (Some("172.31.0.1"), 0), (None, 0)] {
            lab.switch.vsctl(&match local {
                Some(local) => format!("set interface t0 options:local_ip={local}"),
                None => "remove interface t0 options local_ip".to_owned(),
            });
            let came = lab.come();
            let (right, wrong) = (came[to].len(), came[1 - to].len());
            assert!(right > 10 && wrong == 0, "{native} {local:?}: {right} {wrong}");
        }
        // The rule goes, and cached flows with it.
        lab.switch.vsctl("set interface t0 options:local_ip=172.31.0.9");
        assert!(lab.come()[1].len() > 10);
        lab.ns.ip("rule del from 172.31.0.9 table 9");
        lab.acknowledged();
        let came = lab.come();
        assert!(came[0].len() > 10 && came[1].is_empty(), "{native}: without the rule");
    }
}

#[test]
fn rules_choose_the_source_of_each_packet() {
    needs!();
    for native in [true, false] {
        let lab = Lab::new(native);
        let (device, peer) = (if native { "br-phy" } else { "p1" }, &lab.peers[0]);
        lab.ns.address(device, "172.31.0.9/24");
        // The peer has a tunnel to each address of the switch.
        peer.ip("link add t1 type vxlan id 43 local 172.30.0.2 remote 172.31.0.9 dstport 4789");
        peer.address("t1", "10.9.1.2/24");
        peer.ip("link set t1 up mtu 1400");
        lab.host.address("eth0", "10.9.1.1/24");
        lab.switch.vsctl(
            "del-port br-int t0 -- set interface h0 ofport_request=7 -- add-port br-int t9 -- set interface t9 \
             type=vxlan options:local_ip=flow options:remote_ip=flow options:key=flow ofport_request=9",
        );
        lab.switch.wait_for("interface", "t9", "ofport", |port| port == "9");
        lab.switch.wait_for("interface", "h0", "ofport", |port| port == "7");
        let ends = [("10.9.0.0/24", "172.31.0.1", 42), ("10.9.1.0/24", "172.31.0.9", 43)];
        for (network, source, key) in ends {
            for (kind, field) in [("ip", "nw_dst"), ("arp", "arp_tpa")] {
                let rule = format!(
                    "priority=9,in_port=7,{kind},{field}={network},actions=set_field:{source}->tun_src,\
                     set_field:172.30.0.2->tun_dst,set_field:{key}->tun_id,output:9"
                );
                lab.rule(&rule);
            }
            lab.rule(&format!(
                "priority=9,in_port=9,tun_dst={source},tun_id={key},actions=output:7"
            ));
        }
        lab.rule("priority=8,in_port=9,actions=drop");
        let capture = Capture::start(peer, "eth0", "udp dst port 4789 and dst host 172.30.0.2");
        for address in ["10.9.0.2", "10.9.1.2"] {
            eventually("a packet comes back", || {
                (ping(&lab.host, address, 1).received == 1).then_some(())
            });
            assert_eq!(ping(&lab.host, address, 5).received, 5, "{native} {address}");
        }
        let sent = capture.finish();
        for (_, source, key) in ends {
            let source: std::net::Ipv4Addr = source.parse().unwrap();
            let of_key = sent.iter().filter(|frame| frame[46..49] == [0, 0, key]);
            let sources: Vec<&[u8]> = of_key.map(|frame| &frame[26..30]).collect();
            assert!(
                sources.len() > 5 && sources.iter().all(|own| *own == source.octets()),
                "{native}"
            );
        }
        // What comes to one address with the key of the other is dropped by the rules.
        peer.ip("link del t1");
        peer.ip("link del t0");
        peer_has(peer, "172.31.0.9");
        assert_eq!(ping(peer, "10.9.0.1", 2).received, 0, "{native}");
    }
}

#[test]
fn fragments_of_outer_packets_are_joined_by_the_hosts_stack() {
    needs!();
    for native in [true, false] {
        let lab = Lab::new(native);
        let peer = &lab.peers[0];
        // The peer's tunnel fragments what its route does not take.
        peer.ip("route replace 172.31.0.0/24 dev eth0 src 172.31.0.2 mtu 700");
        let capture = Capture::start(peer, "eth0", "src host 172.30.0.2 and ip[6:2]&0x3fff!=0");
        let words = [
            "ping", "-n", "-q", "-c", "3", "-i", "0.1", "-W", "1", "-M", "dont", "-s", "1200", "10.9.0.1",
        ];
        eventually("large packets come back", || {
            (peer.try_run(&words, &[]).status == Some(0)).then_some(())
        });
        let fragments = capture.finish();
        assert!(!fragments.is_empty(), "{native}");
    }
}
