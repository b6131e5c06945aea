//! `ovs-vtep` of Debian, unmodified, which makes a hardware VTEP of the switch: the kernel's VXLAN
//! at the other end.

use crate::fixture::in_namespace;
use std::path::Path;
use testkit::{Daemon, Netns, Vswitch, eventually, ping, skip, try_run};

const SCRIPT: &str = "/usr/share/openvswitch/scripts/ovs-vtep";
const SCHEMA: &str = "/usr/share/openvswitch/vtep.ovsschema";
/// The one that has Open vSwitch's library.
const PYTHON: &str = "/usr/bin/python3";

/// A switch that `ovs-vtep` has made a hardware VTEP: the physical switch `br0` with the port `p0`.
pub(crate) struct Emulator {
    pub(crate) switch: Vswitch,
    _emulator: Daemon,
}

impl Emulator {
    /// Why there can be none here.
    pub(crate) fn missing() -> Option<&'static str> {
        let is_there = Path::new(SCRIPT).exists() && try_run(&[PYTHON, "-c", "import ovs"], &[]).ok();
        (!is_there).then_some("needs ovs-vtep, which is not installed")
    }

    /// In a namespace that has a device `p0`, with this address as the end of its tunnels.
    pub(crate) fn start(ns: &Netns, address: &str) -> Emulator {
        let switch = in_namespace(ns);
        let sandbox = &switch.sandbox;
        let database = sandbox.arg("vtep.db");
        try_run(&["ovsdb-tool", "create", &database, SCHEMA], &[]).expect_ok();
        let control = std::fs::read_dir(sandbox.dir()).unwrap().find_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            (name.starts_with("ovsdb-server.") && name.ends_with(".ctl")).then(|| sandbox.arg(&name))
        });
        let words = ["ovs-appctl", "-t", &control.unwrap(), "ovsdb-server/add-db", &database];
        try_run(&words, &sandbox.env()).expect_ok();
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 p0");
        vtep_ctl(
            &switch,
            &format!("add-ps br0 -- set Physical_Switch br0 tunnel_ips={address}"),
        );
        let mut command = ns.prefix();
        command.extend([PYTHON, SCRIPT, "br0"].map(str::to_owned));
        let emulator = Emulator {
            _emulator: Daemon::start("ovs-vtep", &command, &switch.sandbox),
            switch,
        };
        eventually("the emulator has found the port", || {
            (emulator.ctl("list-ports br0") == "p0\n").then_some(())
        });
        emulator
    }

    /// Runs a command of `vtep-ctl`.
    #[track_caller]
    pub(crate) fn ctl(&self, command: &str) -> String {
        vtep_ctl(&self.switch, command)
    }
}

#[track_caller]
fn vtep_ctl(switch: &Vswitch, command: &str) -> String {
    let remote = format!("--db={}", switch.sandbox.db_remote());
    let options = ["vtep-ctl", "--timeout=10", &remote];
    let words: Vec<&str> = options.into_iter().chain(command.split(' ')).collect();
    try_run(&words, &switch.sandbox.env()).expect_ok()
}

#[test]
fn ovs_vtep_makes_a_hardware_vtep_of_the_switch() {
    skip!(unless long);
    skip!(unless root, "ip", "ping", "vtep-ctl", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovsdb-tool");
    if let Some(reason) = Emulator::missing() {
        skip!("{reason}");
    }
    let (near, far, host) = (Netns::new("near"), Netns::new("far"), Netns::new("host"));
    near.veth("under", &far, "under");
    near.address("under", "172.31.0.1/24");
    far.address("under", "172.31.0.2/24");
    near.veth("p0", &host, "eth0");
    host.address("eth0", "10.9.0.1/24");
    far.ip("link add vx type vxlan id 5000 remote 172.31.0.1 dstport 4789 dev under");
    far.ip("link set vx up");
    far.address("vx", "10.9.0.2/24");

    let emulator = Emulator::start(&near, "172.31.0.1");
    let vtep = |command: &str| emulator.ctl(command);
    vtep("add-ls ls0 -- set Logical_Switch ls0 tunnel_key=5000 -- bind-ls br0 p0 0 ls0");
    vtep(&format!(
        "add-ucast-remote ls0 {} 172.31.0.2 -- add-mcast-remote ls0 unknown-dst 172.31.0.2",
        far.mac_of("vx")
    ));
    eventually("the host reaches the other end", || {
        (ping(&host, "10.9.0.2", 1).received == 1).then_some(())
    });
    // The emulator tells of the stations that the switch has learned.
    let mac = host.mac_of("eth0");
    eventually("the station is told", || {
        vtep("list-local-macs ls0").contains(&mac).then_some(())
    });
    vtep("unbind-ls br0 p0 0");
    eventually("the host is cut off", || {
        (ping(&host, "10.9.0.2", 1).received == 0).then_some(())
    });
    let told = emulator.switch.sandbox.read("ovs-vtep.out");
    assert!(!told.contains("no key"), "{told}");
}
