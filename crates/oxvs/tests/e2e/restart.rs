//! Crashes and restarts.

use crate::fixture::{dummy, dummy_bridge, stand_in};
use testkit::{Packet, Rng, eventually, mac, pcap, skip};

#[test]
fn what_was_acknowledged_is_there_after_kill_9() {
    skip!(unless "ovs-vsctl", "setpriv");
    let mut switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    let mut rng = Rng::new(9);
    let mut acknowledged = 0;
    for _ in 0..6 {
        for _ in 0..rng.below(8) {
            acknowledged += 1;
            switch.vsctl(&format!(
                "--no-wait set bridge br0 external_ids:n={acknowledged} -- set port p1 tag={}",
                acknowledged % 4095
            ));
        }
        switch.kill();
        switch.boot();
        if acknowledged > 0 {
            let n = switch.get("bridge", "br0", "external_ids:n");
            assert_eq!(n.trim_matches('"'), acknowledged.to_string());
        }
    }
    assert_eq!(switch.get("port", "p1", "tag"), (acknowledged % 4095).to_string());
}

#[test]
fn a_restarted_switch_forwards_as_it_did() {
    skip!(unless "ovs-vsctl", "setpriv");
    let mut switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2", "p3"]);
    switch.vsctl("set port p1 tag=4 -- set port p2 tag=4 -- set port p3 tag=5");
    let uuid = switch.get("bridge", "br0", "_uuid");
    let id = switch.get("bridge", "br0", "datapath_id");
    let ofport = switch.get("interface", "p3", "ofport");
    switch.kill();
    for port in ["p1", "p2", "p3"] {
        let _ = std::fs::remove_file(switch.sandbox.path(&format!("{port}.tx")));
    }
    switch.boot();
    // Returns when the switch has read its configuration.
    switch.vsctl("set bridge br0 external_ids:restarted=true");
    assert_eq!(switch.get("bridge", "br0", "_uuid"), uuid);
    assert_eq!(switch.get("bridge", "br0", "datapath_id"), id);
    assert_eq!(switch.get("interface", "p3", "ofport"), ofport);
    let frame = Packet::new(mac(1), [0xff; 6]).payload(0x88b5, b"again").padded();
    switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
    eventually("the frame comes out of the port in the same VLAN", || {
        let out = pcap::frames(&switch.sandbox.path("p2.tx"));
        out.contains(&frame.clone().bytes()).then_some(())
    });
    assert!(pcap::frames(&switch.sandbox.path("p3.tx")).is_empty());
}

#[test]
fn a_database_with_a_torn_end_opens_up_to_it() {
    skip!(unless "ovs-vsctl", "setpriv");
    let mut switch = dummy();
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy");
    switch.vsctl("--no-wait set bridge br0 external_ids:kept=yes");
    switch.kill();
    let file = switch.sandbox.path("conf.db");
    let mut bytes = std::fs::read(&file).expect("the database");
    let whole = bytes.len();
    bytes.extend(b"OVSDB JSON 70 0123456789abcdef0123456789abcdef01234567\n{\"Bridge\":{");
    std::fs::write(&file, &bytes).expect("the database");
    switch.boot();
    assert_eq!(switch.get("bridge", "br0", "external_ids"), "{kept=yes}");
    switch.vsctl("--no-wait set bridge br0 external_ids:more=yes");
    switch.kill();
    switch.boot();
    assert_eq!(switch.get("bridge", "br0", "external_ids"), "{kept=yes, more=yes}");
    if !stand_in() {
        let log = switch.sandbox.read("switch.log");
        assert!(log.contains("WARN") && log.contains("conf.db"), "{log}");
    }
    assert!(std::fs::read(&file).expect("the database").len() > whole);
}
