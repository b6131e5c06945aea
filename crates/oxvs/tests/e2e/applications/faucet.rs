//! Faucet: VLANs and an access list on one switch, and a stack of two.

use super::{Lab, cannot, program, reaches, workspace};
use std::time::Duration;
use testkit::{Daemon, Iperf3, eventually_within, ping, skip};

const MINUTE: Duration = Duration::from_secs(60);

const FAUCET: &str = "
vlans:
  office: {vid: 100}
  guests: {vid: 200}
dps:
  sw1:
    dp_id: 0xa1
    hardware: Open vSwitch
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: office}
      3: {native_vlan: guests}
      4: {native_vlan: guests, acl_in: no-telnet}
acls:
  no-telnet:
    - rule: {dl_type: 0x800, nw_proto: 6, tcp_dst: 23, actions: {allow: 0}}
    - rule: {actions: {allow: 1}}
";

const STACK: &str = "
vlans:
  office: {vid: 100}
  guests: {vid: 200}
dps:
  sw1:
    dp_id: 0xa1
    hardware: Open vSwitch
    stack: {priority: 1}
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: guests}
      3: {stack: {dp: sw2, port: 3}}
      4: {stack: {dp: sw2, port: 4}}
  sw2:
    dp_id: 0xa2
    hardware: Open vSwitch
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: guests}
      3: {stack: {dp: sw1, port: 3}}
      4: {stack: {dp: sw1, port: 4}}
";

/// Starts Faucet beside a switch, at an address of that namespace.
fn faucet(lab: &Lab, config: &str, address: &str) -> Daemon {
    let file = lab.switch.sandbox.path("faucet.yaml");
    std::fs::write(&file, config).expect("the sandbox can be written to");
    let path = std::env::var("PATH").unwrap_or_default();
    let env = [
        (
            "PATH",
            format!("{}:{path}", workspace().join("target/controllers/bin").display()),
        ),
        ("FAUCET_CONFIG", file.display().to_string()),
        ("FAUCET_LOG", lab.switch.sandbox.arg("faucet.log")),
        ("FAUCET_EXCEPTION_LOG", lab.switch.sandbox.arg("faucet_exception.log")),
        ("FAUCET_PROMETHEUS_ADDR", "127.0.0.1".to_owned()),
        ("FAUCET_EVENT_SOCK", String::new()),
    ];
    let command = [
        program("faucet").display().to_string(),
        format!("--ryu-ofp-listen-host={address}"),
        "--ryu-ofp-tcp-listen-port=6653".to_owned(),
    ];
    lab.start("faucet", &command, &env)
}

/// What Faucet has said.
fn said(lab: &Lab) -> String {
    lab.switch.sandbox.read("faucet.log") + &lab.switch.sandbox.read("faucet.out")
}

/// Connects a switch with Faucet, and waits until it has rules.
fn connect(lab: &Lab, address: &str) {
    lab.switch.vsctl(&format!("set-controller br0 tcp:{address}:6653"));
    lab.switch
        .vsctl("set controller br0 max_backoff=1000 connection_mode=out-of-band");
    // A Python program takes its time to start.
    eventually_within(MINUTE, "Faucet programs the switch", || {
        (lab.flows("OpenFlow13").lines().count() >= 10).then_some(())
    });
}

#[test]
fn faucet_runs_vlans_and_an_acl() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new(
        "OpenFlow13",
        &["10.1.0.1/24", "10.1.0.2/24", "10.1.0.3/24", "10.1.0.4/24"],
    );
    let _faucet = faucet(&lab, FAUCET, "127.0.0.1");
    connect(&lab, "127.0.0.1");
    assert!(reaches(&lab.hosts[0], "10.1.0.2"), "{}", said(&lab));
    assert!(reaches(&lab.hosts[2], "10.1.0.4"), "{}", said(&lab));
    assert_eq!(ping(&lab.hosts[0], "10.1.0.3", 2).received, 0, "another VLAN");
    Iperf3::tcp_bytes(20_000_000).run(&lab.hosts[0], &lab.hosts[1], "10.1.0.2");
    let telnet = |from: usize, to: &str, port: u16| {
        let script = format!("exec 3<>/dev/tcp/{to}/{port}");
        let done = lab.hosts[from].try_run(&["timeout", "2", "bash", "-c", &script], &[]);
        done.stderr.contains("refused")
    };
    assert!(
        telnet(3, "10.1.0.3", 24),
        "a connection that no rule forbids is refused by the host"
    );
    assert!(!telnet(3, "10.1.0.3", 23), "the list lets no telnet through");
    assert!(!said(&lab).contains("Traceback"), "{}", said(&lab));
}

#[test]
fn a_stack_of_two_switches_is_one_network_that_survives_a_link() {
    skip!(unless long);
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let labs = [
        Lab::new("OpenFlow13", &["10.1.0.1/24", "10.1.0.2/24"]),
        Lab::new("OpenFlow13", &["10.1.0.3/24", "10.1.0.4/24"]),
    ];
    let [one, other] = &labs;
    other
        .switch
        .vsctl("set bridge br0 other-config:datapath-id=00000000000000a2");
    for device in ["c", "p3", "p4"] {
        one.ns.veth(device, &other.ns, device);
    }
    for (lab, address) in labs.iter().zip(["10.255.0.1/24", "10.255.0.2/24"]) {
        lab.ns.address("c", address);
        for n in [3, 4] {
            lab.switch
                .vsctl(&format!("add-port br0 p{n} -- set interface p{n} ofport_request={n}"));
        }
    }
    let _faucet = faucet(one, STACK, "10.255.0.1");
    for lab in &labs {
        connect(lab, "10.255.0.1");
    }
    let all = |from: usize, to: &str| {
        eventually_within(MINUTE, to, || {
            (ping(&one.hosts[from], to, 3).received == 3).then_some(())
        });
    };
    all(0, "10.1.0.3");
    all(1, "10.1.0.4");
    assert_eq!(ping(&one.hosts[0], "10.1.0.4", 2).received, 0, "another VLAN");
    Iperf3::tcp_bytes(5_000_000).run(&one.hosts[0], &other.hosts[0], "10.1.0.3");
    // One of the two links goes; which one has the packets is Faucet's choice.
    for device in ["p3", "p4"] {
        one.ns.ip(&format!("link set {device} down"));
        all(0, "10.1.0.3");
        all(1, "10.1.0.4");
        one.ns.ip(&format!("link set {device} up"));
        eventually_within(MINUTE, "Faucet uses the link again", || {
            let up = said(one).matches("state UP").count();
            (up >= if device == "p3" { 5 } else { 6 }).then_some(())
        });
    }
    assert!(!said(one).contains("Traceback"), "{}", said(one));
}
