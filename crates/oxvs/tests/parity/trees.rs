//! `stp/*` and `rstp/*` beside Open vSwitch's, with the columns, messages and traces of bridges
//! with spanning trees.

use crate::both::Both;
use std::time::Duration;
use testkit::skip;

macro_rules! needs {
    () => {
        skip!(unless "ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server");
    };
}

/// A line without addresses of dummies, and without what depends on when a status was written.
fn without_chance(line: &str) -> String {
    match line.split_once("addr:") {
        Some((before, _)) => before.to_owned(),
        None => without_seconds(line),
    }
}

fn without_seconds(line: &str) -> String {
    const KEY: &str = "stp_sec_in_state=\"";
    match line.split_once(KEY) {
        Some((before, rest)) => before.to_owned() + rest.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => line.to_owned(),
    }
}

/// A bridge with a spanning tree and two ports.
fn bridge(prefix: &str) -> Both {
    let both = Both::start(without_chance);
    both.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy other_config:hwaddr=aa:55:aa:55:00:00 \
         -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
         -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2 \
         -- add-br br1 -- set bridge br1 datapath_type=dummy",
    );
    both.appctl("time/stop");
    both.vsctl(&format!(
        "set bridge br0 {prefix}_enable=true -- set port p1 other_config:{prefix}-port-num=1 \
         -- set port p2 other_config:{prefix}-port-num=2"
    ));
    both
}

/// Compares what `show` says of a bridge with each of these keys of the bridge in turn, and of port
/// p1.
fn compare_keys(both: &Both, prefix: &str, bridge: &[(&str, &[&str])], port: &[(&str, &[&str])]) {
    let show = format!("{prefix}/show br0");
    for (table, row, keys) in [("bridge", "br0", bridge), ("port", "p1", port)] {
        for (key, values) in keys {
            for value in *values {
                both.vsctl(&format!("set {table} {row} other_config:{prefix}-{key}={value}"));
                both.come_to_agree(&show);
                // After a value that is not legal, Open vSwitch keeps the one before it. Without a
                // number of one port, it ends the tree.
                if *key != "port-num" {
                    both.vsctl(&format!("remove {table} {row} other_config {prefix}-{key}"));
                }
            }
        }
    }
    both.come_to_agree(&show);
}

#[test]
fn keys_of_stp_mean_what_they_mean_in_open_vswitch() {
    needs!();
    let both = bridge("stp");
    for command in [
        "stp/show br1",
        "stp/show nope",
        "stp/tcn br1",
        "stp/tcn",
        "rstp/show",
        "rstp/show br0",
    ] {
        both.agree(command);
    }
    let bridge: [(&str, &[&str]); 4] = [
        ("priority", &["0", "1", "4096", "65535", "abc"]),
        ("system-id", &["00\\:00\\:00\\:00\\:00\\:02", "abc"]),
        ("max-age", &["0", "6", "29", "34", "40", "41", "abc"]),
        ("forward-delay", &["0", "4", "30", "31", "abc"]),
    ];
    let port: [(&str, &[&str]); 4] = [
        ("path-cost", &["0", "1", "19", "65535"]),
        ("port-priority", &["0", "1", "16", "255", "0x10"]),
        ("port-num", &["7", "0x10", "255", "1"]),
        ("enable", &["false", "true", "abc"]),
    ];
    compare_keys(&both, "stp", &bridge, &port);
}

#[test]
fn keys_of_rstp_mean_what_they_mean_in_open_vswitch() {
    needs!();
    let both = bridge("rstp");
    for command in [
        "rstp/show br1",
        "rstp/show nope",
        "rstp/tcn br1",
        "rstp/tcn",
        "stp/show",
        "stp/show br0",
    ] {
        both.agree(command);
    }
    let bridge: [(&str, &[&str]); 4] = [
        ("priority", &["0", "1", "4096", "61440", "65535", "abc"]),
        ("address", &["00\\:00\\:00\\:00\\:00\\:02", "abc"]),
        ("max-age", &["0", "6", "28", "29", "41", "abc"]),
        ("forward-delay", &["3", "4", "30", "31", "abc"]),
    ];
    let port: [(&str, &[&str]); 3] = [
        ("path-cost", &["0", "1", "65536", "200000000", "200000001", "abc"]),
        ("port-priority", &["0", "1", "16", "240", "255", "0x10"]),
        ("enable", &["false", "true", "abc"]),
    ];
    compare_keys(&both, "rstp", &bridge, &port);
    // Both together are RSTP.
    both.vsctl("set bridge br0 stp_enable=true");
    both.come_to_agree("rstp/show br0");
    both.come_to_agree("stp/show br0");
}

/// Three bridges in a ring, each with the ports `a` and `b`.
fn ring(prefix: &str) -> Both {
    let both = Both::start(without_chance);
    both.appctl("time/stop");
    for n in 1..=3 {
        both.vsctl(&format!(
            "add-br br{n} -- set bridge br{n} datapath_type=dummy other_config:hwaddr=00:00:00:00:00:0{n} \
             {prefix}_enable=true -- add-port br{n} a{n} -- set port a{n} other_config:{prefix}-port-num=1 \
             -- set interface a{n} type=dummy ofport_request=1 options:pstream=punix:{{dir}}/a{n}.sock"
        ));
    }
    for n in 1..=3 {
        let next = n % 3 + 1;
        both.vsctl(&format!(
            "add-port br{n} b{n} -- set port b{n} other_config:{prefix}-port-num=2 \
             -- set interface b{n} type=dummy ofport_request=2 options:stream=unix:{{dir}}/a{next}.sock"
        ));
    }
    both
}

/// Moves time on by half a second; frames cross the dummies' sockets in real time.
fn half_a_second(both: &Both) {
    both.appctl("time/warp 500 500");
    std::thread::sleep(Duration::from_millis(10));
}

struct Words {
    prefix: &'static str,
    blocked: &'static str,
    root: &'static str,
    /// Of the statuses of a bridge and of a port.
    columns: &'static str,
}

const STP: Words = Words {
    prefix: "stp",
    blocked: "a3         alternate  blocking ",
    root: "b3         root       forwarding",
    columns: "status",
};

const RSTP: Words = Words {
    prefix: "rstp",
    blocked: "a3         Alternate  Discarding",
    root: "b3         Root       Forwarding",
    columns: "rstp_status",
};

fn compare_rings(words: &Words) {
    let prefix = words.prefix;
    let both = ring(prefix);
    let show = |bridge: u32| format!("{prefix}/show br{bridge}");
    both.agree_on(&show(3), words.blocked, || half_a_second(&both));
    both.agree_on(&show(3), words.root, || half_a_second(&both));
    for n in [1, 2] {
        both.agree_on(&show(n), "orwarding", || half_a_second(&both));
    }
    compare_statuses(&both, words.columns);
    let bpdu = "dl_dst=01:80:c2:00:00:00";
    for switch in &both.switches {
        switch.tool("ovs-ofctl", &["add-flow", "br3", "in_port=LOCAL,actions=1,2"]);
    }
    for trace in [
        "br3 in_port=LOCAL,dl_dst=ff:ff:ff:ff:ff:ff".to_owned(),
        "br3 in_port=1,dl_dst=ff:ff:ff:ff:ff:ff".to_owned(),
        "br2 in_port=1,dl_dst=ff:ff:ff:ff:ff:ff".to_owned(),
        format!("br2 in_port=1,{bpdu},dl_type=0x5ff"),
        format!("br2 in_port=LOCAL,{bpdu},dl_type=0x5ff"),
        format!("br2 in_port=1,{bpdu},dl_type=0x88b5"),
    ] {
        both.agree(&format!("ofproto/trace {trace}"));
    }
    // The way to the root fails, the other one takes its place, and both come back.
    both.appctl("netdev-dummy/set-admin-state b3 down");
    let detour = words.root.replace("b3", "a3");
    both.agree_on(&show(3), &detour, || half_a_second(&both));
    compare_statuses(&both, words.columns);
    both.appctl("netdev-dummy/set-admin-state b3 up");
    both.agree_on(&show(3), words.root, || half_a_second(&both));
    both.agree_on(&show(3), words.blocked, || half_a_second(&both));
    both.agree(&format!("{prefix}/tcn br3"));
    both.vsctl(&format!("set port a3 other_config:{prefix}-enable=false"));
    both.come_to_agree(&show(3));
    compare_statuses(&both, words.columns);
    both.vsctl(&format!("set bridge br3 {prefix}_enable=false"));
    both.come_to_agree(&show(3));
    compare_statuses(&both, words.columns);
}

/// Compares the columns of bridges and ports, and what controllers see.
fn compare_statuses(both: &Both, columns: &str) {
    for (table, rows) in [
        ("bridge", &["br1", "br2", "br3"][..]),
        ("port", &["a1", "b1", "a2", "b2", "a3", "b3"]),
    ] {
        for row in rows {
            both.agree_on(&format!("ovs-vsctl get {table} {row} {columns}"), "{", || {
                half_a_second(both)
            });
        }
    }
    for bridge in ["br1", "br2", "br3"] {
        both.come_to_agree(&format!("ovs-ofctl show {bridge}"));
        both.come_to_agree(&format!("ovs-ofctl -O OpenFlow13 dump-ports-desc {bridge}"));
    }
}

#[test]
fn a_ring_with_stp_settles_as_open_vswitchs_does() {
    needs!();
    compare_rings(&STP);
}

#[test]
fn a_ring_with_rstp_settles_as_open_vswitchs_does() {
    needs!();
    compare_rings(&RSTP);
}
