//! LLDP with `lldpd` and Debian's Open vSwitch at the other end, and as tshark reads it.

use crate::fixture::{binary, debian_in_namespace, dummy, in_namespace, stand_in};
use serde_json::Value;
use std::process::Command;
use testkit::{Daemon, Netns, Sandbox, Vswitch, eventually, run, skip};

/// `lldp/show` of an interface, in JSON: its neighbors.
fn neighbors(switch: &Vswitch, interface: &str) -> Vec<Value> {
    let (binary, target) = (binary().display().to_string(), switch.sandbox.arg("switch.ctl"));
    let out = run(&[
        &binary,
        "appctl",
        "--format=json",
        "--target",
        &target,
        "lldp/show",
        interface,
    ]);
    let document: Value = serde_json::from_str(&out).expect("JSON");
    document["interfaces"][0]["neighbors"]
        .as_array()
        .cloned()
        .expect("neighbors")
}

/// A running `lldpd`.
struct Lldpd {
    daemon: Daemon,
    sandbox: Sandbox,
    ns: Netns,
}

impl Lldpd {
    fn start(ns: Netns) -> Lldpd {
        let sandbox = Sandbox::new();
        let mut command = ns.prefix();
        let socket = sandbox.arg("lldpd.sock");
        command.extend(["lldpd", "-d", "-u", &socket, "-I", "eth0"].map(str::to_owned));
        let daemon = Daemon::start("lldpd", &command, &sandbox);
        let lldpd = Lldpd { daemon, sandbox, ns };
        eventually("lldpd runs", || lldpd.ask(&["show", "chassis"]));
        lldpd
    }

    fn ask(&self, command: &[&str]) -> Option<String> {
        let socket = self.sandbox.arg("lldpd.sock");
        let options = ["lldpcli", "-u", &socket, "-f", "keyvalue"];
        let done = self.ns.try_run(&[&options, command].concat(), &[]);
        done.ok().then_some(done.stdout)
    }
}

#[test]
fn lldpd_and_the_switch_know_each_other() {
    skip!(unless root, "ip", "lldpd", "lldpcli", "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch does not show its neighbors");
    }
    let (near, far) = (Netns::new("near"), Netns::new("far"));
    near.veth("p1", &far, "eth0");
    let switch = in_namespace(&near);
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=netdev other_config:hwaddr=02:00:00:00:00:0b \
         -- add-port br0 p1 -- set interface p1 lldp:enable=true \
         -- --id=@a create autoattach system_name=oxvs-lab system_description=tested mappings:200=20 \
         -- set bridge br0 auto_attach=@a",
    );
    let mut lldpd = Lldpd::start(far);
    let theirs = eventually("lldpd knows the switch", || {
        lldpd
            .ask(&["show", "neighbors"])
            .filter(|out| out.contains("lldp.eth0.port.ifname="))
    });
    for line in [
        "lldp.eth0.chassis.mac=02:00:00:00:00:0b",
        "lldp.eth0.chassis.name=oxvs-lab",
        "lldp.eth0.chassis.descr=tested",
        "lldp.eth0.chassis.Bridge.enabled=on",
        "lldp.eth0.port.ifname=p1",
        "lldp.eth0.port.ttl=120",
    ] {
        assert!(theirs.lines().any(|known| known == line), "{line}\n{theirs}");
    }
    let seen = eventually("the switch knows lldpd", || neighbors(&switch, "p1").pop());
    let chassis = lldpd.ask(&["show", "chassis"]).expect("its chassis");
    let value = |key: &str| {
        let prefix = format!("local-chassis.chassis.{key}=");
        let line = chassis.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("{key}\n{chassis}")).to_owned()
    };
    assert_eq!(seen["chassis"]["id"], value("mac"));
    assert_eq!(seen["system_name"], value("name"));
    assert_eq!(seen["system_description"], value("descr"));
    assert_eq!(seen["port"]["type"], "mac");
    let text = switch.appctl(&["lldp/show"]);
    assert!(
        text.contains(&format!("    system name: {}\n", value("name"))),
        "{text}"
    );
    // Each takes its leave when it ends.
    lldpd.daemon.terminate();
    eventually("lldpd has taken its leave", || {
        neighbors(&switch, "p1").is_empty().then_some(())
    });
    let mut again = Lldpd::start(lldpd.ns);
    eventually("lldpd knows the switch again", || {
        again.ask(&["show", "neighbors"]).filter(|out| out.contains("oxvs-lab"))
    });
    switch.vsctl("set interface p1 lldp:enable=false");
    eventually("the switch has taken its leave", || {
        again
            .ask(&["show", "neighbors"])
            .filter(|out| !out.contains("oxvs-lab"))
    });
    again.daemon.terminate();
}

#[test]
fn open_vswitch_and_the_switch_know_each_other() {
    skip!(unless root, "ip", "ovs-vsctl", "ovs-vswitchd", "setpriv");
    if stand_in() {
        skip!("Open vSwitch does not show its neighbors");
    }
    let (near, far) = (Netns::new("near"), Netns::new("far"));
    near.veth("p1", &far, "q1");
    let switch = in_namespace(&near);
    let other = debian_in_namespace(&far);
    other.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 q1 -- set interface q1 lldp:enable=true \
         -- add-aa-mapping br0 300 30",
    );
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 p1 -- set interface p1 lldp:enable=true \
         -- add-aa-mapping br0 300 30",
    );
    eventually("Open vSwitch knows the switch", || {
        let statistics = other.appctl(&["autoattach/statistics"]);
        statistics.contains("insert cnt: 1").then_some(())
    });
    // Open vSwitch takes any auto-attach client for a server.
    let status = other.appctl(&["autoattach/status"]);
    assert!(status.contains("Auto Attach Primary Server Descr: oxvs "), "{status}");
    let seen = eventually("the switch knows Open vSwitch", || neighbors(&switch, "p1").pop());
    assert_eq!(seen["port"], serde_json::json!({"type": "ifname", "id": "q1"}));
    assert!(
        seen["system_description"]
            .as_str()
            .is_some_and(|text| text.starts_with("openvswitch "))
    );
    let isids = switch.appctl(&["autoattach/show-isid", "br0"]);
    // It asks for the service, so it has not answered.
    assert!(isids.contains("300      30   Switch      Undefined"), "{isids}");
}

#[test]
fn tshark_reads_every_field_of_what_is_sent() {
    skip!(unless "tshark", "ovs-vsctl", "setpriv");
    let switch = dummy();
    let file = switch.sandbox.arg("p1.pcap");
    switch.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=dummy \
         -- add-port br0 p1 -- set interface p1 type=dummy options:tx_pcap={file} \
         -- --id=@a create autoattach system_name=name system_description=text mappings:200=20 mappings:300=30 \
         -- set bridge br0 auto_attach=@a"
    ));
    switch.vsctl("set interface p1 lldp:enable=true");
    let tshark = |filter: &str| {
        let args = [
            "-n",
            "-r",
            &file,
            "-Y",
            filter,
            "-T",
            "fields",
            "-e",
            "lldp.tlv.type",
            "-e",
            "lldp.avaya.subtype",
        ];
        let out = Command::new("tshark").args(args).output().expect("tshark");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let sent = eventually("an LLDPDU is sent", || tshark("lldp").lines().next().map(str::to_owned));
    assert_eq!(sent.split('\t').next(), Some("1,2,3,5,6,7,127,127,0"), "{sent}");
    assert_eq!(tshark("_ws.malformed || _ws.expert.severity >= \"Warn\""), "");
}

#[test]
fn a_forged_neighbor_cannot_write_to_the_terminal() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch does not show its neighbors");
    }
    let switch = dummy();
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy -- add-port br0 p1 \
         -- set interface p1 type=dummy lldp:enable=true",
    );
    let frame = "0180c200000e02000000000988cc0207040200000000090402075b060200780a051b5b324a410000";
    switch.appctl(&["netdev-dummy/receive", "p1", frame]);
    let text = eventually("the neighbor is known", || {
        Some(switch.appctl(&["lldp/show", "p1"])).filter(|text| text.contains("1 neighbors"))
    });
    assert!(text.contains("system name: \u{fffd}[2JA\n"), "{text}");
}
