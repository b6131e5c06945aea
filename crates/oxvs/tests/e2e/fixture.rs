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

/// Says why there can be no test of offloaded flows with these tools, if there can be none.
pub(crate) fn cannot_offload(module: &str, tools: &[&str]) -> bool {
    if let Some(reason) = testkit::missing(true, tools) {
        testkit::say_skipped(module, &reason);
        return true;
    }
    if stand_in() {
        testkit::say_skipped(module, "Open vSwitch has no such offload");
        return true;
    }
    false
}

/// Says that the kernel refuses to offload flows, and why, if it does.
pub(crate) fn offloads_nothing(module: &str, switch: &Vswitch) -> bool {
    let log = std::fs::read_to_string(switch.sandbox.path("switch.log")).unwrap();
    let refused = log
        .lines()
        .find(|line| line.contains("flows are not offloaded to the kernel"));
    if let Some(line) = refused {
        testkit::say_skipped(module, line);
    }
    refused.is_some()
}

/// The number of offloaded flows of the megaflows whose line contains this text.
pub(crate) fn offloaded(switch: &Vswitch, text: &str) -> u32 {
    let flows = switch.appctl(&["dpctl/dump-flows", "-m"]);
    let own = flows.lines().filter(|flow| flow.contains(text));
    let counts = own.filter_map(|flow| flow.split("offloaded:").nth(1));
    counts
        .map(|rest| rest.split(',').next().unwrap().parse::<u32>().unwrap())
        .sum()
}

/// Packets that a port of a bridge has received and sent.
pub(crate) fn packets_of(switch: &Vswitch, bridge: &str, port: &str) -> [u64; 2] {
    let words = ["-O", "OpenFlow13", "dump-ports", bridge, port];
    let text = switch.tool("ovs-ofctl", &words).expect_ok();
    let number = |line: &str| -> u64 {
        let line = text.lines().find(|l| l.contains(line)).unwrap();
        let rest = line.split("pkts=").nth(1).unwrap();
        rest.split(',').next().unwrap().trim().parse().unwrap()
    };
    [number("rx "), number("tx ")]
}

/// Number of packets that workers found in a cache.
pub(crate) fn seen_by_workers(switch: &Vswitch) -> u64 {
    let text = switch.appctl(&["dpif-netdev/pmd-stats-show"]);
    let hits = text
        .lines()
        .filter(|line| line.contains("emc hits:") || line.contains("  megaflow hits:"));
    hits.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}
