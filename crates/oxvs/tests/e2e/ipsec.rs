//! Tunnels with IPsec, where no daemon of IKE runs: nothing passes unencrypted. Where something
//! encrypts, `scripts/ipsec.sh` tries them.

use crate::fixture::{in_namespace, stand_in};
use testkit::{Capture, Daemon, Netns, Vswitch, eventually, ping, skip};

/// A switch in a namespace whose device `p0` has the address 172.31.0.1, with a cable to a peer,
/// 172.31.0.2, whose VXLAN of the kernel encrypts nothing. A host behind `br-int` has 10.9.0.1, the
/// peer's end of the tunnel 10.9.0.2.
struct Lab {
    switch: Vswitch,
    host: Netns,
    peer: Netns,
    ns: Netns,
}

const VXLAN: &str = "type=vxlan options:key=42 options:remote_ip=172.31.0.2";

impl Lab {
    fn new() -> Lab {
        let (ns, peer, host) = (Netns::new("sec"), Netns::new("secp"), Netns::new("sech"));
        ns.veth("p0", &peer, "p1");
        ns.veth("h0", &host, "eth0");
        ns.address("p0", "172.31.0.1/24");
        peer.address("p1", "172.31.0.2/24");
        host.address("eth0", "10.9.0.1/24");
        peer.ip("link add t0 type vxlan id 42 local 172.31.0.2 remote 172.31.0.1 dstport 4789");
        peer.address("t0", "10.9.0.2/24");
        peer.ip("link set t0 up mtu 1400");
        let switch = in_namespace(&ns);
        switch.vsctl("add-br br-int -- set bridge br-int datapath_type=netdev -- add-port br-int h0");
        Lab { switch, host, peer, ns }
    }

    fn count(&self, counter: &str) -> u64 {
        let read = self.switch.appctl(&["coverage/read-counter", counter]);
        read.trim().parse().unwrap_or(0)
    }

    /// Waits until a counter grows while both sides send.
    fn counts(&self, counter: &str) {
        let before = self.count(counter);
        eventually(counter, || {
            assert_eq!(ping(&self.host, "10.9.0.2", 1).received, 0);
            assert_eq!(ping(&self.peer, "10.9.0.1", 1).received, 0);
            (self.count(counter) > before).then_some(())
        });
    }

    fn reaches(&self) {
        eventually("a packet comes back", || {
            (ping(&self.host, "10.9.0.2", 1).received == 1).then_some(())
        });
    }

    /// The directions that unencrypted packets are blocked in.
    fn blocked(&self) -> Vec<&'static str> {
        let policies = self.ns.ip("xfrm policy list");
        let mut found = Vec::new();
        let blocks = policies.split("src ").filter(|text| text.contains("action block"));
        // The third one is about errors that quote packets.
        for policy in blocks.filter(|text| !text.contains("proto icmp type 3 code 3")) {
            let vxlan = policy.contains("dport 4789") && policy.contains("172.31.0.2/32");
            assert!(vxlan && policy.contains("proto udp"), "{policies}");
            found.push(if policy.contains("dir in") { "in" } else { "out" });
        }
        found.sort_unstable();
        found
    }

    fn awaits_blocks(&self, expected: &[&str]) {
        eventually("the policies", || (self.blocked() == expected).then_some(()));
    }
}

/// Whether the kernel can encrypt.
fn has_esp(ns: &Netns) -> bool {
    let state = "ip xfrm state add src 10.1.1.1 dst 10.1.1.2 proto esp spi 0x100 mode transport";
    let keys = "auth hmac(sha256) 0x0102030405060708 enc cbc(aes) 0x0102030405060708090a0b0c0d0e0f10";
    let command = format!("{state} {keys}");
    let words: Vec<&str> = command.split(' ').collect();
    ns.try_run(&words, &[]).status == Some(0)
}

#[test]
fn nothing_passes_a_tunnel_with_ipsec_unencrypted_from_the_first_packet_on() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath encrypts nothing");
    }
    let lab = Lab::new();
    let capture = Capture::start(&lab.peer, "p1", "udp port 4789 and src 172.31.0.1");
    lab.switch.vsctl(&format!(
        "add-port br-int t0 -- set interface t0 {VXLAN} options:psk=swordfish"
    ));
    assert_eq!(lab.blocked(), ["in", "out"]);
    // Both sides send in the clear.
    lab.counts("ipsec_in_blocked");
    lab.counts("drop_host_policy");
    let error = lab.switch.get("interface", "t0", "error");
    match has_esp(&lab.ns) {
        true => assert_eq!(error, "[]"),
        false => assert!(error.contains("no ESP over IPv4"), "{error}"),
    }
    assert_eq!(capture.finish(), Vec::<Vec<u8>>::new(), "in the clear");
    // Without IPsec it is a usual tunnel, and with it again it is not.
    lab.switch.vsctl("remove interface t0 options psk");
    lab.awaits_blocks(&[]);
    lab.reaches();
    lab.switch.vsctl("set interface t0 options:psk=swordfish");
    assert_eq!(lab.blocked(), ["in", "out"]);
    let capture = Capture::start(&lab.peer, "p1", "udp port 4789 and src 172.31.0.1");
    lab.counts("ipsec_in_blocked");
    assert_eq!(capture.finish(), Vec::<Vec<u8>>::new(), "in the clear");
    lab.switch.vsctl("del-port br-int t0");
    lab.awaits_blocks(&[]);
}

#[test]
fn policies_outlive_a_killed_switch_and_come_back_when_somebody_removes_them() {
    skip!(unless root, "ip", "ping", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath encrypts nothing");
    }
    let mut lab = Lab::new();
    // Those of others stay.
    lab.ns
        .ip("xfrm policy add dir out src 10.1.1.1/32 dst 10.1.1.2/32 proto udp priority 7 action allow");
    lab.switch.vsctl(&format!(
        "add-port br-int t0 -- set interface t0 {VXLAN} options:psk=swordfish"
    ));
    let numbers = |lab: &Lab| {
        let policies = lab.ns.ip("-s xfrm policy list");
        let words: Vec<&str> = policies.split_whitespace().collect();
        let after = words.windows(2).filter(|pair| pair[0] == "index");
        let mut all: Vec<String> = after.map(|pair| pair[1].to_owned()).collect();
        all.sort_unstable();
        all
    };
    let before = numbers(&lab);
    assert_eq!((lab.blocked().len(), before.len()), (2, 4));
    lab.switch.kill();
    assert_eq!(numbers(&lab), before);
    lab.switch.boot();
    lab.switch.wait_for("interface", "t0", "ofport", |port| port != "[]");
    lab.counts("ipsec_in_blocked");
    assert_eq!(numbers(&lab), before, "taken over");
    lab.ns.ip("xfrm policy flush");
    lab.awaits_blocks(&["in", "out"]);
    // Those of a killed switch go where the next one has no use for them.
    lab.switch.kill();
    lab.ns
        .ip("xfrm policy add dir out src 10.1.1.1/32 dst 10.1.1.2/32 proto udp priority 7 action allow");
    lab.switch.boot();
    lab.switch.vsctl("set interface t0 options:remote_ip=172.31.0.3");
    eventually("the policies of another end", || {
        let policies = lab.ns.ip("xfrm policy list");
        (policies.contains("172.31.0.3/32") && !policies.contains("172.31.0.2/32")).then_some(())
    });
    // An orderly end leaves none of its own.
    lab.switch.daemon().terminate();
    assert_eq!(lab.blocked(), Vec::<&str>::new());
    assert!(lab.ns.ip("xfrm policy list").contains("10.1.1.2/32"));
}

#[test]
fn a_bridge_of_the_underlay_takes_no_unencrypted_packet_for_the_tunnels() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath encrypts nothing");
    }
    let lab = Lab::new();
    // The address moves to a bridge of the switch, which decapsulates by itself.
    lab.ns.ip("address flush dev p0");
    lab.switch
        .vsctl("add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy p0");
    lab.ns.ip("link set br-phy up");
    lab.ns.address("br-phy", "172.31.0.1/24");
    lab.switch
        .vsctl(&format!("add-port br-int t0 -- set interface t0 {VXLAN}"));
    lab.reaches();
    lab.switch.vsctl("set interface t0 options:psk=swordfish");
    let capture = Capture::start(&lab.peer, "p1", "udp port 4789 and src 172.31.0.1");
    lab.counts("drop_tunnel_not_encrypted");
    assert_eq!(capture.finish(), Vec::<Vec<u8>>::new(), "in the clear");
    lab.switch
        .wait_for("interface", "t0", "status", |status| status.contains("underlay=host"));
    // Another end without IPsec that has the same type is as before.
    lab.switch.vsctl(
        "set interface t0 options:remote_ip=172.31.0.3 options:key=1 -- add-port br-int t1 -- set interface t1 \
         type=vxlan options:key=42 options:remote_ip=172.31.0.2",
    );
    lab.reaches();
}

#[test]
fn nothing_passes_unencrypted_while_somebody_removes_all_policies_again_and_again() {
    skip!(unless root, "ip", "ping", "tcpdump", "nft", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath encrypts nothing");
    }
    let mut lab = Lab::new();
    lab.switch.vsctl(&format!(
        "add-port br-int t0 -- set interface t0 {VXLAN} options:psk=swordfish"
    ));
    lab.awaits_blocks(&["in", "out"]);
    let flood = |from: &Netns, to: &str| {
        let mut words = from.prefix();
        words.extend(["ping", "-q", "-n", "-i", "0.002", to].map(str::to_owned));
        Daemon::start("ping", &words, &lab.switch.sandbox)
    };
    let _pings = [flood(&lab.host, "10.9.0.2"), flood(&lab.peer, "10.9.0.1")];
    let sent = Capture::start(&lab.peer, "p1", "udp port 4789 and src 172.31.0.1");
    let received = Capture::start(&lab.host, "eth0", "src 10.9.0.2");
    for _ in 0..20 {
        lab.ns.ip("xfrm policy flush");
        lab.awaits_blocks(&["in", "out"]);
    }
    // The table alone keeps them back where the switch cannot put its policies back.
    lab.switch.kill();
    lab.ns.ip("xfrm policy flush");
    lab.switch.boot();
    lab.awaits_blocks(&["in", "out"]);
    // And the policies, where somebody removes all tables.
    for _ in 0..5 {
        lab.ns.run(&["nft", "flush", "ruleset"]);
        eventually("the table is back", || {
            lab.ns
                .run(&["nft", "list", "tables"])
                .contains("oxvs-ipsec")
                .then_some(())
        });
    }
    assert_eq!(sent.finish(), Vec::<Vec<u8>>::new(), "sent in the clear");
    assert_eq!(received.finish(), Vec::<Vec<u8>>::new(), "received in the clear");
    lab.counts("ipsec_in_blocked");
    lab.switch.vsctl("remove interface t0 options psk");
    lab.awaits_blocks(&[]);
    assert_eq!(lab.ns.run(&["nft", "list", "tables"]), "");
    lab.reaches();
}
