//! A cluster: two chassis with a switch and an `ovn-controller` each, and OVN's databases with
//! `ovn-northd`. OVN's programs are Debian's, unmodified.

use super::running::RunningSwitch;
use super::{Kind, boot, open_vswitch};
use crate::bed::Bed;
use crate::bed::command::{known, run};
use crate::results::Loss;
use crate::systems::Running;
use crate::systems::daemon::Daemon;
use crate::systems::layout::Layout;
use crate::systems::script::Script;
use crate::topology::{Topology, UNDERLAYS};
use anyhow::{Context, Result, bail};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// OVN's programs.
const PROGRAMS: [&str; 3] = ["ovn-northd", "ovn-controller", "ovn-nbctl"];

/// The programs of Open vSwitch that serve OVN's databases.
const DATABASE_PROGRAMS: [&str; 2] = ["ovsdb-tool", "ovsdb-server"];

/// The bridge below the tunnels of a chassis.
const UNDERLAY: &str = "underlay";

/// Why a kind of switch cannot be in the cluster; none if it can, or if there is none.
pub(super) fn missing(kind: Kind, topology: &Topology) -> Option<String> {
    if !topology.is_cluster() {
        return None;
    }
    if kind == Kind::Mininet {
        return Some("Mininet's OVSSwitch is no chassis of OVN".to_owned());
    }
    let ovn = PROGRAMS
        .iter()
        .find(|program| known(&[**program, "--version"]).is_err());
    let missing = ovn.or_else(|| DATABASE_PROGRAMS.iter().find(|program| open_vswitch(program).is_none()))?;
    Some(format!(
        "{missing} is not installed (Debian: packages ovn-central and ovn-host)"
    ))
}

/// Switches under OVN. Fields end in their order.
pub(super) struct Cluster {
    controllers: Vec<Daemon>,
    chassis: Vec<RunningSwitch>,
    central: Central,
    configuration: Vec<String>,
}

/// `ovn-northd` and the servers of the two databases.
struct Central {
    northd: Option<Daemon>,
    servers: Vec<Daemon>,
    directory: PathBuf,
    script: Script,
}

pub(super) fn start(kind: Kind, topology: &Topology, bed: &Bed) -> Result<Cluster> {
    let directory = bed.directory().join(boot::kind_directory(kind));
    let mut cluster = Cluster {
        controllers: Vec::new(),
        chassis: Vec::new(),
        central: Central::start(bed.namespace(), directory.join("ovn"))?,
        configuration: Vec::new(),
    };
    for (number, layout) in (1..).zip(Layout::new(topology, bed)?.of_each_bridge()) {
        cluster.add_chassis(kind, layout, number, bed, &directory)?;
    }
    if let Some(first) = cluster.chassis.first_mut() {
        boot::prepare_hosts(first, kind, topology, bed)?;
    }
    cluster.central.describe(topology, bed)?;
    cluster.configuration = cluster.text();
    Ok(cluster)
}

impl Central {
    fn start(namespace: &str, directory: PathBuf) -> Result<Central> {
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let mut script = Script::new(namespace);
        script.set("OVN_RUNDIR", &directory.to_string_lossy());
        for program in DATABASE_PROGRAMS {
            let file = open_vswitch(program).with_context(|| format!("{program} is not installed"))?;
            script.program(program, &file);
        }
        let mut central = Central {
            northd: None,
            servers: Vec::new(),
            directory,
            script,
        };
        let at = central.directory.display().to_string();
        for (name, what) in [("nb", "the northbound database"), ("sb", "the southbound database")] {
            let schema = format!("/usr/share/ovn/ovn-{name}.ovsschema");
            central
                .script
                .run(&format!("ovsdb-tool create {at}/{name}.db {schema}"))?;
            let line = format!(
                "ovsdb-server {at}/{name}.db --remote=punix:{at}/{name}.sock --unixctl={at}/{name}.ctl -vconsole:off --log-file={at}/{name}.log"
            );
            let mut server = central.launch(what, &line, &format!("{name}.log"))?;
            let socket = central.directory.join(format!("{name}.sock"));
            server.wait_until("its socket", || UnixStream::connect(&socket).is_ok())?;
            central.servers.push(server);
        }
        let line = format!(
            "ovn-northd --ovnnb-db=unix:{at}/nb.sock --ovnsb-db=unix:{at}/sb.sock --unixctl={at}/northd.ctl \
             --pidfile={at}/northd.pid -vconsole:off --log-file={at}/northd.log"
        );
        central.northd = Some(central.launch("ovn-northd", &line, "northd.log")?);
        central.nbctl(&["init"])?;
        Ok(central)
    }

    fn launch(&mut self, name: &'static str, line: &str, log: &str) -> Result<Daemon> {
        self.script.note(&format!("{line} &"));
        let words: Vec<&str> = line.split_whitespace().collect();
        Daemon::start(name, self.script.command(&words), &self.directory, log)
    }

    /// Runs `ovn-nbctl` and keeps the command.
    fn nbctl(&mut self, words: &[&str]) -> Result<String> {
        let quoted = |word: &&str| match word.contains(' ') {
            true => format!("\"{word}\""),
            false => (*word).to_owned(),
        };
        let db = format!("--db=unix:{}/nb.sock", self.directory.display());
        let words = [&["ovn-nbctl", &db, "--timeout=60"], words].concat();
        let text: Vec<String> = words.iter().map(quoted).collect();
        self.script.note(&text.join(" "));
        run(&mut self.script.command(&words))
    }

    /// Makes a logical switch of all hosts, and waits until the chassis forward as it says.
    fn describe(&mut self, topology: &Topology, bed: &Bed) -> Result<()> {
        self.nbctl(&["ls-add", "net"])?;
        for host in &topology.hosts {
            let name = host.name.as_str();
            let mut address = wire::MacAddr(bed.host(name)?.mac()).to_string();
            for own in &host.addresses {
                address += &format!(" {}", own.ip);
            }
            self.nbctl(&["lsp-add", "net", name, "--", "lsp-set-addresses", name, &address])?;
        }
        // A chassis that has not registered yet is not waited for by `sync`.
        for host in &topology.hosts {
            self.nbctl(&["wait-until", "logical_switch_port", &host.name, "up=true"])?;
        }
        self.nbctl(&["--wait=hv", "sync"]).map(drop)
    }
}

impl Cluster {
    fn add_chassis(&mut self, kind: Kind, layout: Layout, number: u32, bed: &Bed, directory: &Path) -> Result<()> {
        let bridge = layout.bridges.first().context("a chassis has a bridge")?.clone();
        let name = bridge.name.as_str();
        let switch = boot::boot(kind, layout, bed.namespace_of(name), directory.join(name))?;
        self.chassis.push(switch);
        let switch = self.chassis.last_mut().context("it was added")?;
        let (_, cable) = bridge.other_chassis.as_ref().context("a cable joins the two chassis")?;
        let mut end = cable.as_str();
        if kind.datapath() == "netdev" {
            // Open vSwitch in userspace sends through its own bridges only; oxvs offloads there.
            end = UNDERLAY;
            let mut line = format!("add-br {end} -- set bridge {end} datapath_type=netdev -- add-port {end} {cable}");
            if kind.is_afxdp() {
                line += &format!(" -- set interface {cable} type=afxdp");
            }
            switch.vsctl(&line)?;
        }
        boot::configure(switch, kind)?;
        let address = Ipv4Addr::from_bits(UNDERLAYS.to_bits() + number);
        switch.script.run(&format!("ip addr add {address}/24 dev {end}"))?;
        switch.script.undo(&format!("ip addr del {address}/24 dev {end}"));
        switch.script.run(&format!("ip link set {end} up"))?;
        for port in &bridge.ports {
            switch.vsctl(&format!(
                "set interface {} external_ids:iface-id={}",
                port.device, port.to
            ))?;
        }
        let central = self.central.directory.display();
        switch.vsctl(&format!(
            "set open_vswitch . external_ids:system-id={name} external_ids:ovn-remote=unix:{central}/sb.sock \
             external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip={address} external_ids:ovn-bridge={name}"
        ))?;
        let at = switch.directory.clone();
        switch.script.set("OVN_RUNDIR", &at.to_string_lossy());
        let files = at.display();
        let line = format!(
            "ovn-controller unix:{files}/db.sock --pidfile={files}/ovn-controller.pid -vconsole:off --log-file={files}/ovn-controller.log"
        );
        switch.script.note(&format!("{line} &"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let command = switch.script.command(&words);
        self.controllers
            .push(Daemon::start("ovn-controller", command, &at, "ovn-controller.log")?);
        switch.verify()
    }

    /// The commands of all machines, each under its name.
    fn text(&self) -> Vec<String> {
        let mut lines = vec!["# OVN's databases and ovn-northd".to_owned()];
        lines.extend_from_slice(self.central.script.lines());
        for switch in &self.chassis {
            lines.extend(
                switch
                    .layout
                    .bridges
                    .iter()
                    .map(|bridge| format!("# chassis {}", bridge.name)),
            );
            lines.extend_from_slice(switch.script.lines());
        }
        lines
    }

    fn of(&self, bridge: &str) -> Result<&RunningSwitch> {
        let mut chassis = self.chassis.iter();
        let has = |switch: &&RunningSwitch| switch.layout.bridges.iter().any(|known| known.name == bridge);
        chassis
            .find(has)
            .with_context(|| format!("there is no bridge {bridge}"))
    }
}

impl Running for Cluster {
    fn configuration(&self) -> &[String] {
        &self.configuration
    }

    fn remarks(&self) -> Vec<String> {
        self.chassis.first().map(Running::remarks).unwrap_or_default()
    }

    fn cpu(&self) -> f64 {
        let controllers: f64 = self.controllers.iter().map(Daemon::cpu).sum();
        self.chassis.iter().map(Running::cpu).sum::<f64>() + controllers
    }

    fn memory(&self) -> Option<u64> {
        let chassis = self.chassis.iter().map(Running::memory);
        chassis.chain(self.controllers.iter().map(Daemon::memory)).sum()
    }

    fn drops(&self) -> Result<Vec<Loss>> {
        let mut losses = Vec::new();
        for switch in &self.chassis {
            losses.extend(switch.drops()?);
        }
        Ok(losses)
    }

    fn openflow(&self, bridge: &str) -> Result<Option<UnixStream>> {
        self.of(bridge)?.openflow(bridge)
    }

    fn port_number(&self, bridge: &str, to: &str) -> Result<u32> {
        self.of(bridge)?.port_number(bridge, to)
    }

    fn set_controller(&mut self, _bridge: &str, _controller: Option<SocketAddr>) -> Result<()> {
        bail!("OVN controls the bridges of a cluster")
    }

    fn check(&mut self) -> Result<()> {
        for switch in &mut self.chassis {
            switch.check()?;
        }
        let central = self.central.servers.iter_mut().chain(&mut self.central.northd);
        for daemon in central.chain(&mut self.controllers) {
            daemon.check()?;
        }
        Ok(())
    }
}
