//! Switches to test.

use std::path::Path;
use testkit::{Client, Devices, Netns, Options, Vswitch};

/// The binary under test.
pub(crate) fn binary() -> &'static Path {
    Path::new(option_env!("CARGO_BIN_EXE_oxvs").unwrap_or("oxvs"))
}

/// Whether Debian's Open vSwitch replaces ours.
pub(crate) fn stand_in() -> bool {
    std::env::var("E2E_SWITCH").is_ok_and(|s| s == "debian")
}

/// The switch under test, configured by Debian's clients.
pub(crate) fn start(options: Options) -> Vswitch {
    if stand_in() {
        let switch = Vswitch::debian(options);
        switch.vsctl("--no-wait set open_vswitch . other_config:userspace-tso-enable=true");
        switch
    } else {
        Vswitch::oxvs(binary(), options)
    }
}

/// The switch under test with devices of memory only.
pub(crate) fn dummy() -> Vswitch {
    start(Options::default())
}

/// The switch under test with the system's devices, in a namespace.
pub(crate) fn in_namespace(ns: &Netns) -> Vswitch {
    start(Options {
        devices: Devices::System,
        netns: Some(ns.name().to_owned()),
        ..Options::default()
    })
}

/// Debian's Open vSwitch with the system's devices, in a namespace.
pub(crate) fn debian_in_namespace(ns: &Netns) -> Vswitch {
    Vswitch::debian(Options {
        devices: Devices::System,
        netns: Some(ns.name().to_owned()),
        ..Options::default()
    })
}

/// Our switch and Open vSwitch, each with a bridge `br0` without ports, and links between them that
/// have the same name at both ends.
pub(crate) struct Pair {
    pub(crate) ours: Vswitch,
    pub(crate) theirs: Vswitch,
    pub(crate) near: Netns,
    pub(crate) far: Netns,
}

impl Pair {
    pub(crate) fn new(links: &[&str]) -> Pair {
        let (near, far) = (Netns::new("near"), Netns::new("far"));
        for link in links {
            near.veth(link, &far, link);
        }
        let pair = Pair {
            ours: in_namespace(&near),
            theirs: debian_in_namespace(&far),
            near,
            far,
        };
        pair.both("add-br br0 -- set bridge br0 datapath_type=netdev");
        pair
    }

    /// Changes the configuration of both.
    pub(crate) fn both(&self, settings: &str) {
        for switch in [&self.ours, &self.theirs] {
            switch.vsctl(settings);
        }
    }
}

/// Adds a bridge `br0` with so many hosts in namespaces of their own: host `n` has the address
/// `10.1.0.n`, and is behind the port `hn`.
pub(crate) fn bridge_with_hosts(ns: &Netns, switch: &Vswitch, hosts: u32) -> Vec<Netns> {
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    let add = |n| {
        let port = format!("h{n}");
        let host = Vswitch::host(ns, &port, &port, &format!("10.1.0.{n}/24"));
        switch.vsctl(&format!("add-port br0 {port}"));
        host
    };
    (1..=hosts).map(add).collect()
}

/// Our own tools for the switch under test.
pub(crate) fn ours() -> Client {
    if stand_in() {
        Client::Debian
    } else {
        Client::Ours(binary().to_owned())
    }
}

/// Adds a bridge of devices of memory.
pub(crate) fn dummy_bridge(switch: &Vswitch, name: &str, ports: &[&str]) {
    switch.vsctl(&format!(
        "add-br {name} -- set bridge {name} datapath_type=dummy fail-mode=standalone"
    ));
    for port in ports {
        let pcap = switch.sandbox.arg(&format!("{port}.tx"));
        switch.vsctl(&format!(
            "add-port {name} {port} -- set interface {port} type=dummy options:tx_pcap={pcap}"
        ));
    }
}
