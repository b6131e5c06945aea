//! AF_XDP ports, configured by unmodified clients.

use crate::fixture::{in_namespace, stand_in};
use testkit::{Netns, Vswitch, eventually, ping, skip};

struct Lab {
    hosts: [Netns; 2],
    switch: Vswitch,
    ns: Netns,
}

impl Lab {
    fn new() -> Lab {
        let ns = Netns::new("sw");
        let switch = in_namespace(&ns);
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        let hosts =
            ["1", "2"].map(|n| Vswitch::host(&ns, &format!("h{n}"), &format!("h{n}"), &format!("10.1.0.{n}/24")));
        Lab { hosts, switch, ns }
    }

    fn reaches(&self) -> bool {
        ping(&self.hosts[0], "10.1.0.2", 2).received > 0
    }

    fn get(&self, port: &str, column: &str) -> String {
        self.switch
            .vsctl(&format!("get interface {port} {column}"))
            .trim()
            .to_owned()
    }

    fn has_program(&self, port: &str) -> bool {
        self.ns.ip(&format!("link show {port}")).contains("prog/xdp")
    }

    fn has_no_program(&self, port: &str) {
        eventually("the program is gone", || (!self.has_program(port)).then_some(()));
    }
}

fn cannot() -> Option<String> {
    testkit::missing(true, &["ip", "ping", "ovs-vsctl"])
}

#[test]
fn hosts_reach_each_other_by_afxdp_ports_and_status_tells_the_mode() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new();
    lab.switch.vsctl("add-port br0 h1 -- set interface h1 type=afxdp");
    lab.switch
        .vsctl("add-port br0 h2 -- set interface h2 type=afxdp options:xdp-mode=generic options:n_rxq=1");
    assert_eq!(lab.get("h1", "error"), "[]");
    let shown = lab.switch.appctl(&["dpctl/show"]);
    let expected = [
        "h1 (afxdp: n_rxq=1, use-need-wakeup=true, xdp-mode=best-effort, xdp-mode-in-use=native)",
        "h2 (afxdp: n_rxq=1, use-need-wakeup=true, xdp-mode=generic, xdp-mode-in-use=generic)",
    ];
    for line in expected {
        assert!(shown.contains(line), "{shown}");
    }
    if !stand_in() {
        assert_eq!(lab.get("h1", "status:xdp-mode"), "native");
        assert_eq!(lab.get("h2", "status:xdp-mode"), "generic");
        let log = std::fs::read_to_string(lab.switch.sandbox.path("switch.log")).unwrap();
        assert_eq!(log.matches("h1: AF_XDP takes segmentation offload").count(), 1, "{log}");
    }
    eventually("they reach each other", || lab.reaches().then_some(()));

    // The same interface by other means, and back, while the switch runs.
    for kind in ["system", "afxdp"] {
        lab.switch.vsctl(&format!("set interface h1 type={kind}"));
        assert_eq!(lab.has_program("h1"), kind == "afxdp");
        eventually("they reach each other", || lab.reaches().then_some(()));
    }
    lab.switch.vsctl("del-port h1");
    lab.has_no_program("h1");
    assert!(lab.has_program("h2"));
}

#[test]
fn wrong_options_are_told_in_the_interfaces_row_and_work_when_they_are_right() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new();
    lab.switch.try_vsctl(&[
        "add-port",
        "br0",
        "h1",
        "--",
        "set",
        "interface",
        "h1",
        "type=afxdp",
        "options:xdp-mode=fastest",
    ]);
    assert_eq!(lab.get("h1", "ofport"), "-1");
    let error = lab.get("h1", "error");
    assert!(error.contains("h1: could not set configuration ("), "{error}");
    lab.switch
        .try_vsctl(&["set", "interface", "h1", "options:xdp-mode=native-with-zerocopy"]);
    let error = lab.get("h1", "error");
    assert!(error.contains("could not add network device h1 to "), "{error}");
    if !stand_in() {
        assert!(error.contains("use options:xdp-mode=native or best-effort"), "{error}");
        lab.switch.try_vsctl(&[
            "set",
            "interface",
            "h1",
            "options:xdp-mode=native",
            "options:n_rxq=many",
        ]);
        let error = lab.get("h1", "error");
        assert!(error.contains("options:n_rxq=many is not a number"), "{error}");
    }
    lab.switch
        .vsctl("set interface h1 options:xdp-mode=native options:n_rxq=1");
    assert_eq!(lab.get("h1", "error"), "[]");
    assert!(lab.has_program("h1"));
}

#[test]
fn a_switch_that_is_killed_leaves_no_program_and_the_next_has_its_ports() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let mut lab = Lab::new();
    for port in ["h1", "h2"] {
        lab.switch
            .vsctl(&format!("add-port br0 {port} -- set interface {port} type=afxdp"));
    }
    eventually("they reach each other", || lab.reaches().then_some(()));
    lab.switch.kill();
    if !stand_in() {
        for port in ["h1", "h2"] {
            lab.has_no_program(port);
        }
    }
    lab.switch.boot();
    eventually("they reach each other", || lab.reaches().then_some(()));
}
