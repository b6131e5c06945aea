//! BFD with FRR's `bfdd` at the other end.

use crate::fixture::in_namespace;
use crate::frr::Frr;
use crate::liveness::wait_for;
use testkit::{Netns, eventually, run, skip};

/// What `bfdd` says of its session.
fn session(frr: &Frr) -> String {
    frr.show("bfdd", "show bfd peers")
}

fn wait_for_line(frr: &Frr, what: &str) {
    eventually(&format!("bfdd says {what}"), || {
        session(frr).lines().any(|line| line.trim() == what).then_some(())
    });
}

#[test]
fn bfd_to_frr_comes_up_agrees_on_intervals_and_notices_silence() {
    skip!(unless long);
    skip!(unless root, "ip", "vtysh", "ovs-vsctl", "setpriv");
    if !Frr::has("bfdd") {
        skip!("needs bfdd, which is not installed");
    }
    let (near, far) = (Netns::new("near"), Netns::new("far"));
    near.veth("m1", &far, "m1");
    far.address("m1", "10.9.0.2/24");
    // The switch has no address there, and so answers no ARP request.
    far.ip(&format!(
        "neighbour add 10.9.0.1 lladdr {} dev m1 nud permanent",
        near.mac_of("m1")
    ));
    let switch = in_namespace(&near);
    switch.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 m1 -- set interface m1 bfd:enable=true \
         bfd:min_rx=100 bfd:min_tx=100 bfd:bfd_src_ip=10.9.0.1 bfd:bfd_dst_ip=10.9.0.2 bfd:bfd_local_dst_mac={}",
        far.mac_of("m1")
    ));
    let config = "bfd\n peer 10.9.0.1 local-address 10.9.0.2 interface m1\n  receive-interval 100\n  \
                  transmit-interval 100\n exit\nexit\n";
    let frr = Frr::start(&far, "bfdd", config);
    let signal = |signal: &str| run(&["kill", signal, &frr.pid().to_string()]);
    wait_for(&switch, "m1", "state", "up");
    wait_for(&switch, "m1", "remote_state", "up");
    wait_for(&switch, "m1", "forwarding", "true");
    wait_for_line(&frr, "Status: up");

    // New intervals are agreed on.
    switch.vsctl("set interface m1 bfd:min_tx=300 bfd:min_rx=250");
    wait_for_line(&frr, "Transmission interval: 300ms");
    wait_for_line(&frr, "Receive interval: 250ms");
    wait_for(&switch, "m1", "state", "up");

    // Ended here: the other end hears of it.
    switch.vsctl("set interface m1 bfd:enable=false");
    wait_for_line(&frr, "Status: down");
    switch.vsctl("set interface m1 bfd:enable=true");
    wait_for(&switch, "m1", "state", "up");
    wait_for_line(&frr, "Status: up");

    // A peer that falls silent, and speaks again.
    signal("-STOP");
    wait_for(&switch, "m1", "diagnostic", "Control Detection Time Expired");
    wait_for(&switch, "m1", "forwarding", "false");
    signal("-CONT");
    wait_for(&switch, "m1", "state", "up");
    wait_for_line(&frr, "Status: up");
}
