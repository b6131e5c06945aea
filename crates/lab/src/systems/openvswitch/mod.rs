//! oxvs, Open vSwitch, and Mininet's switch: the systems set up by `ovs-vsctl`.
//!
//! - `setup`: a layout as `ovs-vsctl` commands. `stateful`: rules that track connections.
//! - `boot`: the daemons of each kind. `cluster`: several of them, and OVN's.
//! - `running`: what answers while they run. `drops`: their counters, read.
//!   `gauge`: the same while traffic flows.

mod boot;
mod cluster;
mod drops;
mod gauge;
mod running;
mod setup;
mod stateful;

pub(crate) use boot::PYTHON;
pub(crate) use drops::interface_error;
pub(crate) use setup::leaf;

use super::kernel::{Part, lacks};
use super::layout::unfit;
use super::{Running, System};
use crate::bed::Bed;
use crate::bed::command::known;
use crate::topology::{BondMode, End, QosKind, Topology, Underlay};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// The programs of Open vSwitch that are used.
const PROGRAMS: [&str; 6] = [
    "ovs-vswitchd",
    "ovsdb-server",
    "ovs-vsctl",
    "ovs-ofctl",
    "ovs-appctl",
    "ovsdb-tool",
];

/// Which switch, and how it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// oxvs, its userspace datapath.
    Oxvs,
    /// The same with workers that look for packets for a while before they sleep.
    OxvsSpin,
    /// oxvs on AF_XDP sockets.
    OxvsAfxdp,
    /// Open vSwitch's userspace datapath on packet sockets.
    Userspace,
    /// The same with `userspace-tso-enable`.
    Tso,
    /// The same on AF_XDP sockets.
    Afxdp,
    /// Open vSwitch's kernel datapath.
    Kernel,
    /// Open vSwitch with DPDK.
    Dpdk,
    /// oxvs, its bridges made by Mininet.
    Mininet,
}

impl Kind {
    /// The switch that is the laboratory's own.
    pub(crate) const OURS: [Kind; 3] = [Kind::Oxvs, Kind::OxvsSpin, Kind::OxvsAfxdp];

    /// Those of others, and oxvs in others' hands.
    pub(crate) const PEERS: [Kind; 6] = [
        Kind::Userspace,
        Kind::Tso,
        Kind::Afxdp,
        Kind::Kernel,
        Kind::Dpdk,
        Kind::Mininet,
    ];

    /// Whether its daemon is oxvs.
    fn is_oxvs(self) -> bool {
        matches!(self, Kind::Oxvs | Kind::OxvsSpin | Kind::OxvsAfxdp | Kind::Mininet)
    }

    /// Whether its ports are of type `afxdp`.
    fn is_afxdp(self) -> bool {
        matches!(self, Kind::Afxdp | Kind::OxvsAfxdp)
    }

    /// `datapath_type` of its bridges.
    fn datapath(self) -> &'static str {
        if self == Kind::Kernel { "system" } else { "netdev" }
    }

    /// Why its programs cannot be run.
    fn not_installed(self) -> Option<String> {
        if self.is_oxvs() {
            return (self == Kind::Mininet).then(boot::mininet_missing).flatten();
        }
        for program in PROGRAMS {
            if open_vswitch(program).is_none() {
                return Some(format!(
                    "Open vSwitch's {program} is not installed (Debian: package openvswitch-switch)"
                ));
            }
        }
        None
    }

    /// Why it cannot have the tunnels.
    fn no_tunnels(self, topology: &Topology) -> Option<String> {
        let mut tunnels = topology.hosts.iter().filter_map(|host| host.tunnel).peekable();
        tunnels.peek()?;
        if self == Kind::Mininet {
            return Some("Mininet's OVSSwitch makes no tunnels".to_owned());
        }
        let native_only = self.datapath() == "netdev" && !self.is_oxvs();
        (native_only && tunnels.any(|tunnel| tunnel.underlay == Underlay::Host)).then(|| {
            "Open vSwitch's userspace datapath sends tunnels' packets through its own bridges only, not through the host's stack".to_owned()
        })
    }

    /// Why its ports cannot have the required type, scheduler or policer.
    fn no_qos(self, topology: &Topology) -> Option<String> {
        let by_source =
            |end: &End| matches!(&end.port.bond, Some(bond) if bond.mode == BondMode::BalanceSlb && !bond.lacp);
        if topology
            .links
            .iter()
            .any(|link| by_source(&link.a) && by_source(&link.b))
        {
            let why = "balance-slb without LACP takes broadcasts from one member only, and so needs a switch without a bond at the other end";
            return Some(why.to_owned());
        }
        if self.is_oxvs() {
            return None;
        }
        let ends = topology.links.iter().flat_map(|link| [&link.a, &link.b]);
        let ports: Vec<_> = ends
            .filter(|end| topology.bridges.iter().any(|bridge| bridge.name == end.at))
            .collect();
        if ports.iter().any(|end| end.port.speed.is_some()) {
            return Some("Open vSwitch has no port speeds".to_owned());
        }
        let kinds = ports
            .iter()
            .filter_map(|end| end.port.qos.as_ref())
            .filter(|qos| qos.kind != QosKind::Fifo);
        if self == Kind::Afxdp && kinds.clone().next().is_some() {
            return Some("Open vSwitch schedules by the kernel's disciplines, which AF_XDP ports pass by".to_owned());
        }
        if self != Kind::Kernel && kinds.clone().any(|qos| !qos.classes.is_empty()) {
            let why =
                "Open vSwitch's userspace datapath does not tell the kernel's disciplines which class a packet is of";
            return Some(why.to_owned());
        }
        let lacking = kinds
            .flat_map(|qos| std::iter::once(qos.kind).chain(qos.leaf))
            .find_map(|kind| lacks(Part::Qdisc(kind)));
        if let Some(reason) = lacking {
            return Some(format!(
                "Open vSwitch schedules by the kernel's disciplines, and {reason}"
            ));
        }
        if !ports.iter().any(|end| end.port.policing.is_some()) {
            return None;
        }
        match self {
            Kind::Kernel => lacks(Part::PoliceBasic)
                .map(|reason| format!("Open vSwitch polices by the kernel's policer, and {reason}")),
            _ => Some(
                "Open vSwitch polices by the kernel's policer, which its userspace datapath takes packets before"
                    .to_owned(),
            ),
        }
    }
}

impl System for Kind {
    fn name(&self) -> &'static str {
        match self {
            Kind::Oxvs => "oxvs",
            Kind::OxvsSpin => "oxvs-spin",
            Kind::OxvsAfxdp => "oxvs-afxdp",
            Kind::Userspace => "ovs-userspace",
            Kind::Tso => "ovs-tso",
            Kind::Afxdp => "ovs-afxdp",
            Kind::Kernel => "ovs-kernel",
            Kind::Dpdk => "ovs-dpdk",
            Kind::Mininet => "mininet",
        }
    }

    fn is_ours(&self) -> bool {
        self.is_oxvs()
    }

    fn describe(&self) -> String {
        let how = match self {
            Kind::Oxvs => "userspace datapath",
            Kind::OxvsSpin => "userspace datapath, worker-spin=20000 cpu-dma-latency-hold=20000",
            Kind::OxvsAfxdp => "userspace datapath on AF_XDP sockets",
            Kind::Mininet => {
                return format!(
                    "oxvs {}, its bridges made by Mininet's OVSSwitch",
                    env!("CARGO_PKG_VERSION")
                );
            }
            Kind::Userspace => "userspace datapath on packet sockets, hosts without offloads",
            Kind::Tso => "userspace datapath on packet sockets, userspace-tso-enable",
            Kind::Afxdp => "userspace datapath on AF_XDP sockets, hosts without offloads",
            Kind::Kernel => "kernel datapath",
            Kind::Dpdk => "userspace datapath with DPDK",
        };
        if self.is_oxvs() {
            return format!("oxvs {}, {how}", env!("CARGO_PKG_VERSION"));
        }
        let version = open_vswitch("ovs-vswitchd").and_then(|file| version(&file));
        match version {
            Some(version) => format!("Open vSwitch {version}, {how}"),
            None => format!("Open vSwitch, {how}"),
        }
    }

    fn missing(&self, topology: &Topology) -> Option<String> {
        if *self == Kind::Dpdk {
            return Some(no_dpdk());
        }
        if let Some(reason) = unfit(topology).or_else(|| self.not_installed()) {
            return Some(reason);
        }
        let needed = match self {
            Kind::Kernel => Some(Part::Openvswitch),
            // For bridges' own devices.
            _ => Some(Part::Tap),
        };
        needed
            .and_then(lacks)
            .or_else(|| cluster::missing(*self, topology))
            .or_else(|| self.no_tunnels(topology))
            .or_else(|| self.no_qos(topology))
    }

    fn sets_up_hosts(&self, topology: &Topology) -> Option<String> {
        boot::sets_up_hosts(*self, topology)
            .then(|| "its hosts compute checksums and cut segments, which is set up on its own machine only".to_owned())
    }

    fn start(&self, topology: &Topology, bed: &Bed) -> Result<Box<dyn Running>> {
        if let Some(reason) = self.missing(topology) {
            bail!("{reason}");
        }
        if topology.is_cluster() {
            return Ok(Box::new(cluster::start(*self, topology, bed)?));
        }
        Ok(Box::new(boot::start(*self, topology, bed)?))
    }
}

/// Hosts are attached by veth devices, which DPDK does not serve.
fn no_dpdk() -> String {
    let installed = Path::new("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk").exists();
    let why = "DPDK drives network cards: ports in memory can be compared with it, hosts in namespaces or guests of this testbed it does not serve";
    if installed {
        why.to_owned()
    } else {
        format!("not installed (Debian: package openvswitch-switch-dpdk); and {why}")
    }
}

/// A program of Open vSwitch; none if it is missing, or if the file is oxvs.
pub(crate) fn open_vswitch(program: &str) -> Option<PathBuf> {
    // Which one `ovs-vswitchd` is, with or without DPDK, is a matter of alternatives; this one is
    // always without.
    let first = PathBuf::from("/usr/lib/openvswitch-switch").join(program);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = ["/usr/sbin", "/usr/bin"]
        .into_iter()
        .map(PathBuf::from)
        .chain(std::env::split_paths(&path));
    let files = std::iter::once(first).chain(directories.map(|directory| directory.join(program)));
    files.into_iter().find(|file| file.is_file() && version(file).is_some())
}

/// The version of a program of Open vSwitch, `3.1.0`.
pub(crate) fn version(file: &Path) -> Option<String> {
    let said = known(&[&file.to_string_lossy(), "--version"]).ok()?;
    let ours = said.contains("oxvs");
    let first = said.lines().next().filter(|_| !ours)?;
    first.split_whitespace().last().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICED: &str = "
        host = [{ name = 'a', address = [] }]
        bridge = [{ name = 's1' }]
        link = [{ a = { at = 'a' }, b = { at = 's1', port = { policing = { rate = 1000, burst = 100 } } } }]";

    #[test]
    fn what_open_vswitch_leaves_to_the_kernel_is_missing_where_the_kernel_has_it_not() {
        let topology: Topology = toml::from_str(POLICED).unwrap();
        assert_eq!(Kind::Oxvs.no_qos(&topology), None);
        assert!(
            Kind::Userspace
                .no_qos(&topology)
                .unwrap()
                .contains("takes packets before")
        );
        let scheduled: Topology =
            toml::from_str(&POLICED.replace("policing = { rate = 1000, burst = 100 }", "qos = { kind = 'sfq' }"))
                .unwrap();
        assert!(Kind::Afxdp.no_qos(&scheduled).unwrap().contains("AF_XDP"));
        let reason = Kind::Tso.no_qos(&scheduled);
        assert_eq!(
            reason.is_some(),
            lacks(Part::Qdisc(QosKind::Sfq)).is_some(),
            "{reason:?}"
        );
    }

    #[test]
    fn open_vswitch_in_userspace_has_no_tunnels_over_the_hosts_stack() {
        let tunnelled = crate::systems::layout::tests::TUNNELLED;
        let missing = |kind: Kind, text: &str| kind.no_tunnels(&toml::from_str(text).unwrap());
        assert!(
            missing(Kind::Userspace, tunnelled)
                .unwrap()
                .contains("its own bridges only")
        );
        let native = tunnelled.replace("number", "underlay = 'native', number");
        for (kind, text) in [
            (Kind::Userspace, native.as_str()),
            (Kind::Oxvs, tunnelled),
            (Kind::Kernel, tunnelled),
        ] {
            assert_eq!(missing(kind, text), None, "{kind:?}");
        }
        assert!(missing(Kind::Mininet, &native).is_some());
    }

    #[test]
    fn dpdk_says_what_it_cannot_do_here() {
        assert!(Kind::Dpdk.missing(&Topology::default()).unwrap().contains("namespaces"));
    }
}
