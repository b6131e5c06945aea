//! A switch under test between two hosts.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use testkit::{Devices, Netns, Options, Vswitch};

/// Which switch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Oxvs,
    Debian,
}

/// The addresses of the hosts.
pub(crate) const ADDRESSES: [&str; 2] = ["10.3.0.1", "10.3.0.2"];

/// A running switch with a bridge `br0` and two hosts at its ports 1 and 2.
pub(crate) struct System {
    pub(crate) kind: Kind,
    pub(crate) hosts: [Netns; 2],
    pub(crate) switch: Vswitch,
    _ns: Netns,
}

impl Kind {
    pub(crate) fn is_there(self) -> bool {
        self == Kind::Oxvs || testkit::has_tool("ovs-vswitchd")
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Oxvs => "oxvs",
            Kind::Debian => "ovs",
        }
    }
}

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_oxvs"))
}

impl System {
    pub(crate) fn start(kind: Kind) -> System {
        let ns = Netns::new("sw");
        let options = Options {
            devices: Devices::System,
            netns: Some(ns.name().to_owned()),
            ..Options::default()
        };
        let switch = match kind {
            Kind::Oxvs => Vswitch::oxvs(binary(), options),
            Kind::Debian => Vswitch::debian(options),
        };
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure");
        let hosts = [0, 1].map(|n| {
            let port = format!("p{}", n + 1);
            let host = Vswitch::host(&ns, &port, &port, &format!("{}/24", ADDRESSES[n]));
            // Open vSwitch's userspace datapath does not fill in checksums.
            host.run(&["ethtool", "-K", "eth0", "tx", "off"]);
            let add = format!("add-port br0 {port} -- set interface {port} ofport_request={}", n + 1);
            switch.vsctl(&add);
            host
        });
        // The hosts have static neighbours, so that no ARP is measured.
        for (n, host) in hosts.iter().enumerate() {
            let other = &hosts[1 - n];
            let mac = other.run(&["cat", "/sys/class/net/eth0/address"]);
            host.ip(&format!(
                "neigh replace {} lladdr {} dev eth0",
                ADDRESSES[1 - n],
                mac.trim()
            ));
        }
        System {
            kind,
            hosts,
            switch,
            _ns: ns,
        }
    }

    /// Seconds of a tool's run: `ours` for oxvs's own, else Debian's.
    pub(crate) fn timed(&self, ours: bool, args: &[&str]) -> f64 {
        let mut command = if ours {
            let mut command = Command::new(binary());
            command.arg("ofctl");
            command
        } else {
            Command::new("ovs-ofctl")
        };
        command.args(args).envs(self.switch.sandbox.env()).stdout(Stdio::null());
        let began = Instant::now();
        let status = command.status().expect("the tool can be started");
        assert!(status.success(), "{args:?} on {}", self.kind.name());
        began.elapsed().as_secs_f64()
    }

    /// Megabytes that the switch has resident.
    pub(crate) fn resident(&self) -> f64 {
        self.switch
            .daemons
            .last()
            .map_or(0.0, |daemon| daemon.resident_kib() as f64 / 1024.0)
    }
}
