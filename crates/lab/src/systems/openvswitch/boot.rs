//! Starting daemons, and telling them the layout.

use super::drops::{NO_NUMBER, interface_error};
use super::running::{RunningSwitch, Tools};
use super::{Kind, open_vswitch, setup, stateful};
use crate::bed::command::known;
use crate::bed::{Bed, switch_program};
use crate::systems::Running;
use crate::systems::daemon::Daemon;
use crate::systems::kernel;
use crate::systems::layout::{BridgeLayout, Layout, TunnelLayout};
use crate::systems::script::Script;
use crate::topology::{Control, Topology, UNDERLAY_PREFIX};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The database schema of Debian's package.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// The Python that Debian's packages are for.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn start(kind: Kind, topology: &Topology, bed: &Bed) -> Result<RunningSwitch> {
    let layout = Layout::new(topology, bed)?;
    let directory = bed.directory().join(kind_directory(kind));
    let mut switch = boot(kind, layout, bed.namespace(), directory)?;
    configure(&mut switch, kind)?;
    prepare_hosts(&mut switch, kind, topology, bed)?;
    switch.verify()?;
    Ok(switch)
}

/// Starts the daemons of a kind in a namespace.
pub(super) fn boot(kind: Kind, layout: Layout, namespace: &str, directory: PathBuf) -> Result<RunningSwitch> {
    let make = || {
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory)
    };
    make().with_context(|| directory.display().to_string())?;
    let mut script = Script::new(namespace);
    for name in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR"] {
        script.set(name, &directory.to_string_lossy());
    }
    let mut switch = RunningSwitch {
        kind,
        tools: if kind.is_oxvs() {
            Tools::Oxvs
        } else {
            Tools::OpenVswitch
        },
        namespace: namespace.to_owned(),
        directory,
        layout,
        helper: None,
        daemons: Vec::new(),
        script,
    };
    // From here on dropping the switch undoes all set-up.
    match kind {
        Kind::Oxvs | Kind::OxvsSpin | Kind::OxvsAfxdp => boot_oxvs(&mut switch, kind)?,
        Kind::Mininet => boot_mininet(&mut switch)?,
        _ => boot_open_vswitch(&mut switch, kind)?,
    }
    Ok(switch)
}

pub(super) fn kind_directory(kind: Kind) -> &'static str {
    if kind.is_oxvs() { "oxvs" } else { "ovs" }
}

fn boot_oxvs(switch: &mut RunningSwitch, kind: Kind) -> Result<()> {
    switch.script.program("oxvs", &switch_program()?);
    launch(switch, "oxvs", "oxvs run --pidfile --log-file -vconsole:off")?;
    if kind == Kind::OxvsSpin {
        switch.vsctl("set open_vswitch . other_config:worker-spin=20000 other_config:cpu-dma-latency-hold=20000")?;
    }
    Ok(())
}

fn boot_open_vswitch(switch: &mut RunningSwitch, kind: Kind) -> Result<()> {
    for program in super::PROGRAMS {
        let file = open_vswitch(program).with_context(|| format!("{program} is not installed"))?;
        switch.script.program(program, &file);
    }
    let directory = switch.directory.display().to_string();
    if kind == Kind::Kernel && !Path::new("/sys/module/openvswitch").exists() {
        switch.script.run("modprobe openvswitch")?;
    }
    switch
        .script
        .run(&format!("ovsdb-tool create {directory}/conf.db {SCHEMA}"))?;
    let server = format!("ovsdb-server --remote=punix:{directory}/db.sock --pidfile --log-file -vconsole:off");
    launch(switch, "ovsdb-server", &server)?;
    switch.vsctl("--no-wait init")?;
    if kind == Kind::Tso {
        switch.vsctl("--no-wait set open_vswitch . other_config:userspace-tso-enable=true")?;
    }
    // Only that kind uses the kernel's datapath.
    let system = if kind == Kind::Kernel { "" } else { " --disable-system" };
    launch(
        switch,
        "ovs-vswitchd",
        &format!("ovs-vswitchd{system} --pidfile --log-file -vconsole:off"),
    )
}

/// Starts a daemon and waits until its control socket answers.
fn launch(switch: &mut RunningSwitch, name: &'static str, line: &str) -> Result<()> {
    switch.script.note(&format!("{line} &"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let own = if name == "ovsdb-server" {
        "ovsdb-server"
    } else {
        "ovs-vswitchd"
    };
    let directory = switch.directory.clone();
    let mut daemon = Daemon::start(name, switch.script.command(&words), &directory, &format!("{own}.log"))?;
    let control = directory.join(format!("{own}.{}.ctl", daemon.pid()));
    let pidfile = directory.join(format!("{own}.pid"));
    let database = directory.join("db.sock");
    let ready = daemon.wait_until("its control socket", || {
        pidfile.exists() && UnixStream::connect(&control).is_ok() && UnixStream::connect(&database).is_ok()
    });
    switch.daemons.push(daemon);
    ready
}

/// Says the layout.
pub(super) fn configure(switch: &mut RunningSwitch, kind: Kind) -> Result<()> {
    underlays(switch, kind)?;
    if kind.is_oxvs() && switch.layout.bridges.iter().any(|bridge| !bridge.offload) {
        switch.vsctl("set open_vswitch . other_config:kernel-offload=false")?;
    }
    for bridge in switch.layout.bridges.clone() {
        if kind != Kind::Mininet {
            switch.vsctl(&setup::bridge(&bridge, kind))?;
        }
        for port in bridge.ports.iter().filter(|port| port.port.bond.is_none()) {
            let limit = port.port.qos.as_ref().and_then(|qos| qos.limit);
            if let (Some(limit), false) = (limit, kind.is_oxvs()) {
                let (line, undo) = kernel::queue_length(&port.device, limit);
                switch.script.run(&line)?;
                switch.script.undo(&undo);
            }
            if port.port.qos.is_some() && !kind.is_oxvs() {
                // It leaves its queueing discipline at the device, where the next switch's belongs.
                switch.script.undo(&format!("tc qdisc del dev {} root", port.device));
            }
            if kind != Kind::Mininet {
                switch.vsctl(&setup::port(&bridge.name, port, kind))?;
            } else if let Some(line) = setup::set_port(port, kind) {
                switch.vsctl(&line)?;
            }
            for line in setup::leaves(port, kind) {
                switch.script.run(&line)?;
            }
            if let Some(tunnel) = &port.tunnel {
                other_tunnels(switch, &bridge.name, tunnel)?;
            }
        }
        for (name, bond, members) in bridge.bonds() {
            switch.vsctl(&setup::bond(&bridge.name, &name, bond, &members, kind))?;
        }
        for rule in setup::class_rules(&switch.layout, &bridge) {
            switch.ofctl(&format!("add-flow {} {rule}", bridge.name))?;
        }
        for command in stateful::commands(&switch.layout, &bridge)? {
            switch.ofctl(&command)?;
        }
        for svi in &bridge.svis {
            if let Some(line) = setup::svi(&bridge.name, svi) {
                switch.vsctl(&line)?;
            }
        }
    }
    for bridge in switch.layout.bridges.clone() {
        for svi in &bridge.svis {
            for address in &svi.addresses {
                switch.script.run(&format!(
                    "ip addr add {}/{} dev {}",
                    address.ip, address.prefix, svi.device
                ))?;
            }
            switch.script.run(&format!("ip link set {} up", svi.device))?;
        }
    }
    let has_addresses = switch.layout.routes()
        || switch.layout.tunnels().next().is_some()
        || switch
            .layout
            .bridges
            .iter()
            .any(|bridge| bridge.other_chassis.is_some());
    if has_addresses && kind.datapath() == "netdev" && !kind.is_oxvs() {
        // The host's stack also receives the packets of Open vSwitch's packet sockets, and would
        // answer ARP for addresses of other devices.
        switch.script.sysctl("net.ipv4.conf.all.arp_ignore", "1")?;
    }
    if switch.layout.routes() {
        switch.script.sysctl("net.ipv4.ip_forward", "1")?;
    }
    Ok(())
}

/// What is below tunnels: bridges, and the switch's addresses.
fn underlays(switch: &mut RunningSwitch, kind: Kind) -> Result<()> {
    for (_, _, tunnel) in switch.layout.clone().tunnels() {
        let (address, device) = (tunnel.ends.switch, &tunnel.device);
        if let Some(line) = setup::underlay(tunnel, kind) {
            switch.vsctl(&line)?;
        }
        switch
            .script
            .run(&format!("ip addr add {address}/{UNDERLAY_PREFIX} dev {device}"))?;
        switch
            .script
            .undo(&format!("ip addr del {address}/{UNDERLAY_PREFIX} dev {device}"));
        switch.script.run(&format!("ip link set {device} up"))?;
        for [command, undo] in tunnel.protect() {
            switch.script.run(&format!("ip {command}"))?;
            switch.script.undo(&format!("ip {undo}"));
        }
    }
    Ok(())
}

/// All in one transaction, of which the configuration shows the first.
fn other_tunnels(switch: &mut RunningSwitch, bridge: &str, tunnel: &TunnelLayout) -> Result<()> {
    let lines = setup::other_tunnels(bridge, tunnel);
    let [first, rest @ ..] = lines.as_slice() else {
        return Ok(());
    };
    switch.vsctl(first)?;
    if let Some(last) = tunnel.others().last().filter(|_| !rest.is_empty()) {
        switch
            .script
            .note(&format!("# likewise up to {} with the key {}", last.0, last.1));
        switch.ask_vsctl(&rest.join(" -- "))?;
    }
    Ok(())
}

/// Hosts leave checksums and segmentation to their devices, which this datapath does not make up
/// for: it would pass on packets with wrong checksums, and TCP would hang.
pub(super) fn prepare_hosts(switch: &mut RunningSwitch, kind: Kind, topology: &Topology, bed: &Bed) -> Result<()> {
    if !sets_up_hosts(kind, topology) {
        return Ok(());
    }
    for host in &topology.hosts {
        let cabled = topology
            .links
            .iter()
            .any(|link| link.a.at == host.name || link.b.at == host.name);
        if cabled {
            // The device of a tunnel leaves both to the device below it.
            let device = host.tunnel.map_or(crate::bed::DEVICE, |_| crate::bed::UNDERLAY);
            let (off, on) = (
                format!("ethtool -K {device} tx off"),
                format!("ethtool -K {device} tx on"),
            );
            switch.script.on_host(bed, &host.name, &off, &on)?;
        }
    }
    Ok(())
}

/// Whether hosts need to be told so.
pub(super) fn sets_up_hosts(kind: Kind, topology: &Topology) -> bool {
    // Open vSwitch's tunnels do not make up for it with TSO either.
    let tunnels = kind == Kind::Tso && (topology.has_tunnels() || topology.is_cluster());
    matches!(kind, Kind::Userspace | Kind::Afxdp) || tunnels
}

/// Why Mininet cannot be used.
pub(crate) fn mininet_missing() -> Option<String> {
    let has = |words: &[&str]| known(words).is_ok();
    if !has(&[PYTHON, "-c", "import mininet.node"]) {
        return Some("Mininet is not installed (Debian: package mininet)".to_owned());
    }
    for (program, package) in [("mnexec", "mininet"), ("ifconfig", "net-tools")] {
        if !has(&["sh", "-c", &format!("PATH=$PATH:/usr/sbin:/sbin command -v {program}")]) {
            return Some(format!(
                "Mininet needs {program}, which is not installed (Debian: package {package})"
            ));
        }
    }
    None
}

/// oxvs under the names of Open vSwitch's programs, and Mininet's switches on it: a program of
/// Mininet's user that ends with its input.
fn boot_mininet(switch: &mut RunningSwitch) -> Result<()> {
    boot_oxvs(switch, Kind::Mininet)?;
    let links = switch.programs();
    fs::create_dir_all(&links).with_context(|| links.display().to_string())?;
    let binary = switch_program()?;
    for name in ["ovs-vsctl", "ovs-ofctl", "ovs-appctl"] {
        std::os::unix::fs::symlink(&binary, links.join(name)).with_context(|| name.to_owned())?;
    }
    let text = mininet_program(&switch.layout);
    for line in text.lines() {
        switch.script.note(&format!(">>> {line}"));
    }
    let file = switch.directory.join("switches.py");
    let ending = "print('ready', flush=True)\nimport sys\nsys.stdin.read()\n";
    let stop: String = switch
        .layout
        .bridges
        .iter()
        .map(|bridge| format!("{}.stop(deleteIntfs=False)\n", variable(bridge)))
        .collect();
    fs::write(&file, format!("{text}{ending}{stop}")).with_context(|| file.display().to_string())?;
    let mut command: Command = switch.beside(&[PYTHON, &file.to_string_lossy()])?;
    let said: PathBuf = switch.directory.join("mininet.out");
    let errors = fs::File::create(&said).with_context(|| said.display().to_string())?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    let mut helper = Daemon::spawn("Mininet", command, vec![said])?;
    let out = helper.child().stdout.take();
    switch.helper = Some(helper);
    let mut lines = BufReader::new(out.context("Mininet's output")?).lines();
    if lines.by_ref().map_while(Result::ok).any(|line| line == "ready") {
        return Ok(());
    }
    let Some(helper) = &mut switch.helper else {
        return Ok(());
    };
    // It has closed its output, and so is about to end.
    helper
        .wait_until("its switches", || false)
        .context("Mininet could not make its switches")
}

/// The Mininet user's code for such switches.
fn mininet_program(layout: &Layout) -> String {
    let mut text = "from mininet.link import Intf\nfrom mininet.node import OVSSwitch\nOVSSwitch.setup()\n".to_owned();
    for (number, bridge) in layout.bridges.iter().enumerate() {
        let variable = variable(bridge);
        let mode = if bridge.control == Control::Learning && bridge.stateful.is_none() {
            "standalone"
        } else {
            "secure"
        };
        let _ = writeln!(
            text,
            "{variable} = OVSSwitch('{}', inNamespace=False, dpid='{:x}', failMode='{mode}')",
            bridge.name,
            number + 1
        );
        for port in &bridge.ports {
            let _ = writeln!(text, "Intf('{}', node={variable})", port.device);
        }
        let _ = writeln!(text, "{variable}.start([])");
    }
    text
}

/// A name for a variable of Python: letters, digits and `_`.
fn variable(bridge: &BridgeLayout) -> String {
    let name: String = bridge
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name
    } else {
        format!("s_{name}")
    }
}

impl RunningSwitch {
    /// Waits until the members of a bond may send: by LACP that takes some seconds.
    fn wait_for_members(&self, name: &str) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let said = self.appctl(&format!("bond/show {name}"))?;
            let mut members = said.lines().filter(|line| line.starts_with("member ")).peekable();
            if members.peek().is_some() && members.all(|line| line.ends_with(": enabled")) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("members of {name} do not come up: {}", said.trim());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Errors in the switch's database, and schedulers that differ from the configured ones.
    pub(super) fn verify(&mut self) -> Result<()> {
        for daemon in &mut self.daemons {
            daemon.check()?;
        }
        // A controller adds ports of its own at any time: a new one waits for its number.
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let text = self.ask_vsctl("--format=json --columns=name,error,ofport list interface")?;
            match interface_error(&text)? {
                None => break,
                Some((name, error)) if error != NO_NUMBER || Instant::now() > end => bail!("port {name}: {error}"),
                Some(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let bonds = self
            .layout
            .bridges
            .iter()
            .flat_map(BridgeLayout::bonds)
            .map(|(name, ..)| name);
        for name in bonds.collect::<Vec<_>>() {
            self.wait_for_members(&name)?;
        }
        for (_, port) in self.layout.ports() {
            let kind = port.port.qos.as_ref().and_then(|qos| setup::qos_type(qos.kind));
            let Some(kind) = kind else { continue };
            let said = self.appctl(&format!("qos/show {}", port.device))?;
            if !said.contains(&format!("QoS: {} {kind}", port.device)) {
                bail!("port {} has no {kind}: {}", port.device, said.trim());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::layout::tests::{TWO_VLANS, layout};

    #[test]
    fn mininet_is_told_of_switches_and_their_ports() {
        let expected = "\
from mininet.link import Intf
from mininet.node import OVSSwitch
OVSSwitch.setup()
s1 = OVSSwitch('s1', inNamespace=False, dpid='1', failMode='standalone')
Intf('s1-PC1', node=s1)
Intf('s1-s2', node=s1)
s1.start([])
s2 = OVSSwitch('s2', inNamespace=False, dpid='2', failMode='secure')
Intf('s2-s1', node=s2)
Intf('s2-PC3', node=s2)
s2.start([])
";
        assert_eq!(mininet_program(&layout(TWO_VLANS)), expected);
    }
}
