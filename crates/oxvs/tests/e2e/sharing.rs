//! A device belongs to one switch.

use crate::fixture::{debian_in_namespace, in_namespace, stand_in};
use testkit::{Netns, Vswitch, eventually, skip};

/// A namespace with a device `p1`.
fn with_device() -> (Netns, Netns) {
    let ns = Netns::new("share");
    let host = Vswitch::host(&ns, "host", "p1", "10.0.0.1/24");
    (ns, host)
}

fn log_says(switch: &Vswitch, what: &str) {
    eventually(what, || switch.sandbox.read("switch.log").contains(what).then_some(()));
}

#[test]
fn a_second_switch_is_refused_a_port_and_has_it_when_the_first_is_killed() {
    skip!(unless root, "ip", "ovs-vsctl", "setpriv");
    if stand_in() {
        return;
    }
    let (ns, _host) = with_device();
    let mut first = in_namespace(&ns);
    first.vsctl("add-br br1 -- add-port br1 p1");
    let second = in_namespace(&ns);
    let pid = first.daemon().pid();
    for kind in ["system", "afxdp"] {
        let done = second.try_vsctl(&[
            "--may-exist",
            "add-br",
            "br2",
            "--",
            "--may-exist",
            "add-port",
            "br2",
            "p1",
            "--",
            "set",
            "interface",
            "p1",
            &format!("type={kind}"),
        ]);
        let error = second.get("interface", "p1", "error");
        assert!(
            error.contains(&format!("pid {pid} (ovs-vswitchd) has it")),
            "{error}; {done:?}"
        );
        assert_eq!(second.get("interface", "p1", "ofport"), "-1");
    }
    second.vsctl("set interface p1 type=system");
    log_says(&first, "p1: pid ");
    first.kill();
    second.wait_for("interface", "p1", "error", |error| error == "[]");
    assert_eq!(second.get("interface", "p1", "ofport"), "1");
}

#[test]
fn a_port_of_open_vswitch_is_refused_and_one_that_it_takes_is_warned_of() {
    skip!(unless root, "ip", "ovs-vsctl", "ovs-vswitchd", "setpriv");
    if stand_in() {
        return;
    }
    let (ns, _host) = with_device();
    let _other_host = Vswitch::host(&ns, "host2", "p2", "10.0.0.2/24");
    let theirs = debian_in_namespace(&ns);
    theirs.vsctl("add-br br1 -- set bridge br1 datapath_type=netdev -- add-port br1 p1");
    let ours = in_namespace(&ns);
    ours.try_vsctl(&[
        "add-br", "br2", "--", "add-port", "br2", "p1", "--", "add-port", "br2", "p2",
    ]);
    let error = ours.get("interface", "p1", "error");
    assert!(error.contains("(ovs-vswitchd) has it"), "{error}");
    assert_eq!(ours.get("interface", "p2", "error"), "[]");
    theirs.vsctl("del-port br1 p1 -- add-port br1 p2");
    ours.wait_for("interface", "p1", "error", |error| error == "[]");
    log_says(&ours, "p2: pid ");
}

#[test]
fn a_port_of_a_bridge_of_the_kernel_is_refused_and_one_that_it_takes_is_warned_of() {
    skip!(unless root, "ip", "ovs-vsctl", "setpriv");
    if stand_in() {
        return;
    }
    let (ns, _host) = with_device();
    ns.ip("link add lan type bridge");
    ns.ip("link set p1 master lan");
    let switch = in_namespace(&ns);
    switch.try_vsctl(&["add-br", "br0", "--", "add-port", "br0", "p1"]);
    let error = switch.get("interface", "p1", "error");
    assert!(error.contains("bridge lan has it"), "{error}");
    ns.ip("link set p1 nomaster");
    switch.wait_for("interface", "p1", "error", |error| error == "[]");
    ns.ip("link set p1 master lan");
    log_says(&switch, "p1: bridge lan also uses or wants this device");
}
