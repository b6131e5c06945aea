//! Tunnels over a bridge of the switch, with the kernel's tunnel device at the other end.

use crate::fixture::{in_namespace, stand_in};
use testkit::{Netns, Vswitch, eventually, ping, skip};

/// A switch whose bridge `br-phy` has the address 172.31.0.1 and a cable to a peer, 172.31.0.2. A
/// host behind `br-int` has 10.9.0.1, the peer's end of the tunnel 10.9.0.2.
pub(crate) struct Lab {
    pub(crate) switch: Vswitch,
    pub(crate) host: Netns,
    pub(crate) peer: Netns,
    _ns: Netns,
}

impl Lab {
    pub(crate) fn new(options: &str) -> Lab {
        let (ns, host, peer) = (Netns::new("tun"), Netns::new("tunh"), Netns::new("tunp"));
        let switch = in_namespace(&ns);
        ns.veth("ph0", &peer, "ph1");
        ns.veth("h0", &host, "eth0");
        host.address("eth0", "10.9.0.1/24");
        host.ip("link set eth0 mtu 1400");
        peer.address("ph1", "172.31.0.2/24");
        switch.vsctl(
            "add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy ph0 \
             -- add-br br-int -- set bridge br-int datapath_type=netdev -- add-port br-int h0",
        );
        switch.vsctl(&format!(
            "add-port br-int t0 -- set interface t0 options:remote_ip=172.31.0.2 {options}"
        ));
        ns.address("br-phy", "172.31.0.1/24");
        ns.ip("link set br-phy up");
        Lab {
            switch,
            host,
            peer,
            _ns: ns,
        }
    }

    /// Waits until a packet of the host comes back through the tunnel.
    pub(crate) fn reaches_peer(&self) {
        eventually("a packet comes back", || {
            (ping(&self.host, "10.9.0.2", 1).received == 1).then_some(())
        });
    }

    pub(crate) fn peer_has(&self, device: &str) {
        self.peer.ip(&format!("link add t0 {device}"));
        self.peer.address("t0", "10.9.0.2/24");
        self.peer.ip("link set t0 up mtu 1400");
    }
}

#[test]
fn packets_go_to_and_fro_between_the_switch_and_the_kernels_vxlan() {
    skip!(unless root, "ip", "ping", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch drops tunnelled packets whose UDP checksums a veth device has not filled in");
    }
    let lab = Lab::new("type=vxlan options:key=42");
    lab.peer_has("type vxlan id 42 local 172.31.0.2 remote 172.31.0.1 dstport 4789");
    // The kernel's address and route reach the switch, which then asks for its neighbour.
    lab.reaches_peer();
    // Also by cached flows.
    assert_eq!(ping(&lab.host, "10.9.0.2", 10).received, 10);
    assert!(lab.switch.appctl(&["tnl/neigh/show"]).contains("172.31.0.2"));
    let flows = lab.switch.appctl(&["dpctl/dump-flows"]);
    assert!(flows.contains("tnl_pop(4789)"), "{flows}");
    assert!(flows.contains("tnl_push(tnl_port(4789)"), "{flows}");
    assert!(
        flows.contains("tunnel(tun_id=0x2a,src=172.31.0.2,dst=172.31.0.1"),
        "{flows}"
    );
    // A packet with another key is nobody's.
    lab.peer.ip("link del t0");
    lab.peer_has("type vxlan id 43 local 172.31.0.2 remote 172.31.0.1 dstport 4789");
    assert_eq!(ping(&lab.peer, "10.9.0.1", 1).received, 0);
    eventually("the drop is counted", || {
        let drops = lab.switch.appctl(&["coverage/show"]);
        drops.contains("drop_no_tunnel").then_some(())
    });
}

#[test]
fn a_neighbour_that_has_asked_for_the_bridge_need_not_be_asked() {
    skip!(unless root, "ip", "ping", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch drops tunnelled packets whose UDP checksums a veth device has not filled in");
    }
    let lab = Lab::new("type=vxlan options:key=42");
    lab.peer_has("type vxlan id 42 local 172.31.0.2 remote 172.31.0.1 dstport 4789");
    lab.switch
        .wait_for("interface", "t0", "status", |status| status.contains("underlay=native"));
    eventually("the peer reaches the bridge", || {
        (ping(&lab.peer, "172.31.0.1", 1).received == 1).then_some(())
    });
    let shown = lab.switch.appctl(&["tnl/neigh/show"]);
    assert!(shown.contains("172.31.0.2"), "{shown}");
    // The first packet of all goes through the tunnel.
    eventually("a packet comes back", || {
        (ping(&lab.host, "10.9.0.2", 1).received == 1).then_some(())
    });
    let dropped = lab
        .switch
        .try_appctl(&["coverage/read-counter", "drop_tunnel_neighbour"]);
    assert_eq!(dropped.stdout.trim(), "0");
}
