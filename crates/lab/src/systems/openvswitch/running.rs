//! A running switch and its answers.

use super::gauge::SwitchGauge;
use super::{Kind, drops, setup};
use crate::results::Loss;
use crate::scenario::Watcher;
use crate::systems::daemon::Daemon;
use crate::systems::kernel_drops;
use crate::systems::layout::{BridgeLayout, Layout};
use crate::systems::script::Script;
use crate::systems::{Alarms, Counted, Gauge, MemberChange, Running};
use crate::topology::Control;
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// How long a process may take to tidy up.
const ENDING: Duration = Duration::from_secs(10);

/// Whose tools speak to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tools {
    Oxvs,
    OpenVswitch,
}

/// Daemons with bridges.
pub(crate) struct RunningSwitch {
    pub(crate) kind: Kind,
    pub(crate) tools: Tools,
    pub(crate) namespace: String,
    pub(crate) directory: PathBuf,
    pub(crate) layout: Layout,
    /// Mininet.
    pub(crate) helper: Option<Daemon>,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) script: Script,
}

impl RunningSwitch {
    /// Runs `ovs-vsctl` and keeps the command.
    pub(crate) fn vsctl(&mut self, args: &str) -> Result<String> {
        self.script.note(&format!("{} {args}", self.vsctl_name()));
        self.ask_vsctl(args)
    }

    /// Runs `ovs-vsctl` for an answer.
    pub(crate) fn ask_vsctl(&self, args: &str) -> Result<String> {
        self.script.ask(&format!("{} --timeout=60 {args}", self.vsctl_name()))
    }

    pub(crate) fn appctl(&self, args: &str) -> Result<String> {
        let tool = match self.tools {
            Tools::Oxvs => "oxvs appctl",
            Tools::OpenVswitch => "ovs-appctl",
        };
        self.script.ask(&format!("{tool} --timeout=60 {args}"))
    }

    /// Runs `ovs-ofctl` and keeps the command.
    pub(crate) fn ofctl(&mut self, args: &str) -> Result<String> {
        self.script.run(&format!("{} {args}", self.ofctl_name()))
    }

    /// Runs `ovs-ofctl` for an answer.
    fn ask_ofctl(&self, args: &str) -> Result<String> {
        self.script.ask(&format!("{} {args}", self.ofctl_name()))
    }

    fn ofctl_name(&self) -> &'static str {
        match self.tools {
            Tools::Oxvs => "oxvs ofctl",
            Tools::OpenVswitch => "ovs-ofctl",
        }
    }

    fn vsctl_name(&self) -> &'static str {
        match self.tools {
            Tools::Oxvs => "oxvs vsctl",
            Tools::OpenVswitch => "ovs-vsctl",
        }
    }

    /// The directory of the names of Open vSwitch's programs that are oxvs; Mininet's switch alone
    /// has it.
    pub(crate) fn programs(&self) -> PathBuf {
        self.directory.join("bin")
    }

    fn bridge(&self, name: &str) -> Result<()> {
        let known = self.layout.bridges.iter().any(|bridge| bridge.name == name);
        if !known {
            bail!("there is no bridge {name}");
        }
        Ok(())
    }

    /// The daemon that forwards.
    fn switch_pid(&self) -> Option<u32> {
        self.daemons.last().map(Daemon::pid)
    }
}

impl Running for RunningSwitch {
    fn configuration(&self) -> &[String] {
        self.script.lines()
    }

    fn remarks(&self) -> Vec<String> {
        let text = match self.kind {
            Kind::Oxvs | Kind::OxvsSpin | Kind::OxvsAfxdp | Kind::Mininet => return Vec::new(),
            Kind::Userspace => {
                "hosts compute checksums and cut segments themselves (ethtool -K tx off): on packet sockets without \
                 userspace-tso-enable Open vSwitch passes on what is unfinished, and TCP hangs"
            }
            Kind::Afxdp => {
                "hosts compute checksums and cut segments themselves (ethtool -K tx off), as AF_XDP ports of Open vSwitch need it; \
                 their thread never sleeps"
            }
            Kind::Tso
                if self.layout.bridges.iter().any(|bridge| bridge.control == Control::Ovn)
                    || self.layout.tunnels().next().is_some() =>
            {
                "hosts compute checksums and cut segments themselves (ethtool -K tx off): Open vSwitch drops packets of \
                 tunnels whose checksums or segments are left to a device"
            }
            Kind::Tso => return Vec::new(),
            Kind::Kernel => "the kernel forwards in interrupts: only the CPU time of upcalls is the daemon's",
            Kind::Dpdk => return Vec::new(),
        };
        vec![text.to_owned()]
    }

    fn cpu(&self) -> f64 {
        self.daemons.iter().map(Daemon::cpu).sum()
    }

    fn memory(&self) -> Option<u64> {
        let each: Option<Vec<u64>> = self.daemons.iter().map(Daemon::memory).collect();
        Some(each?.iter().sum())
    }

    fn drops(&self) -> Result<Vec<Loss>> {
        let places = self.layout.places();
        let internal: Vec<&str> = self.layout.internal().collect();
        let counted = |device: &str| places.contains_key(device) || internal.contains(&device);
        let mut losses = kernel_drops::of_devices(&self.namespace, &self.layout)?;
        let devices = crate::bed::device_counters(&self.namespace)?;
        let show = self.appctl("dpctl/show -s")?;
        let ports = drops::ports(&show);
        if self.tools == Tools::Oxvs {
            for port in ports.iter().filter(|port| counted(&port.name)) {
                let kernel = devices.get(&port.name).copied().unwrap_or_default();
                losses.extend(drops::of_oxvs_port(port, &places, kernel));
            }
        } else {
            losses.push(kernel_drops::loss(
                "upcall",
                "datapath",
                &places,
                drops::lost_upcalls(&show),
            ));
            let coverage = self.appctl("coverage/show")?;
            losses.push(kernel_drops::loss(
                "port",
                "datapath",
                &places,
                drops::of_coverage(&coverage),
            ));
            if self.kind == Kind::Afxdp {
                for port in ports.iter().filter(|port| places.contains_key(&port.name)) {
                    let kernel = devices.get(&port.name).copied().unwrap_or_default();
                    let packets = port.rx_dropped.saturating_sub(kernel.rx_dropped)
                        + port.tx_dropped.saturating_sub(kernel.tx_dropped);
                    losses.push(kernel_drops::loss("port", &port.name, &places, packets));
                }
            }
            if let (Kind::Userspace | Kind::Tso, Some(pid)) = (self.kind, self.switch_pid()) {
                losses.extend(kernel_drops::before_sockets(&self.namespace, pid, &self.layout)?);
            }
        }
        losses.retain(|loss| loss.packets > 0);
        Ok(losses)
    }

    fn gauge(&self) -> Result<Option<Box<dyn Gauge>>> {
        let Some(pid) = self.switch_pid() else {
            return Ok(None);
        };
        let control = self.directory.join(format!("ovs-vswitchd.{pid}.ctl"));
        let processes = self.daemons.iter().map(Daemon::pid).collect();
        let gauge = SwitchGauge::new(self.tools, processes, &control, (&self.namespace, &self.layout))?;
        Ok(Some(Box::new(gauge)))
    }

    fn openflow(&self, bridge: &str) -> Result<Option<UnixStream>> {
        self.bridge(bridge)?;
        let path = self.directory.join(format!("{bridge}.mgmt"));
        UnixStream::connect(&path)
            .map(Some)
            .with_context(|| path.display().to_string())
    }

    fn port_number(&self, bridge: &str, to: &str) -> Result<u32> {
        let device = &self.layout.port(bridge, to)?.device;
        let said = self.ask_vsctl(&format!("get interface {device} ofport"))?;
        said.trim()
            .parse()
            .with_context(|| format!("port {device} of bridge {bridge} has no number: {}", said.trim()))
    }

    fn set_controller(&mut self, bridge: &str, controller: Option<SocketAddr>) -> Result<()> {
        self.bridge(bridge)?;
        let said = match controller {
            // An address of IPv6 prints in brackets, as this wants it.
            Some(controller) => self.vsctl(&format!("set-controller {bridge} tcp:{controller}")),
            None => self.ask_vsctl(&format!("del-controller {bridge}")),
        };
        said.map(drop_text)
    }

    fn limit_rules(&mut self, bridge: &str, limit: Option<u32>) -> Result<bool> {
        self.bridge(bridge)?;
        let said = match limit {
            Some(limit) => self.ask_vsctl(&format!(
                "-- --id=@t create flow_table flow_limit={limit} overflow_policy=refuse -- set bridge {bridge} flow_tables:0=@t"
            )),
            None => self.ask_vsctl(&format!("clear bridge {bridge} flow_tables")),
        };
        said.map(|_| true)
    }

    fn watch(
        &mut self,
        bridge: &str,
        by: Watcher,
        one_in: u32,
        (from, to): (&str, &str),
        collector: Option<SocketAddr>,
    ) -> Result<()> {
        self.bridge(bridge)?;
        let target = collector.map(|address| address.to_string()).unwrap_or_default();
        let said = match by {
            Watcher::None => self.ask_vsctl(&format!(
                "clear bridge {bridge} mirrors -- clear bridge {bridge} sflow -- clear bridge {bridge} ipfix -- clear bridge {bridge} netflow"
            )),
            Watcher::Mirror => {
                let device = |to: &str| Ok::<_, anyhow::Error>(self.layout.port(bridge, to)?.device.clone());
                let (source, output) = (device(from)?, device(to)?);
                self.vsctl(&format!(
                    "-- --id=@a get port {source} -- --id=@b get port {output} \
                     -- --id=@m create mirror name=watch select_src_port=@a output_port=@b -- set bridge {bridge} mirrors=@m"
                ))
            }
            Watcher::Sflow => self.vsctl(&format!(
                "-- --id=@s create sflow agent=lo targets=\"{target}\" sampling={one_in} polling=0 -- set bridge {bridge} sflow=@s"
            )),
            Watcher::Ipfix => self.vsctl(&format!(
                "-- --id=@i create ipfix targets=\"{target}\" sampling={one_in} obs_domain_id=1 obs_point_id=1 \
                 cache_active_timeout=1 cache_max_flows=10000 -- set bridge {bridge} ipfix=@i"
            )),
            Watcher::Netflow => self.vsctl(&format!(
                "-- --id=@n create netflow targets=\"{target}\" active_timeout=1 -- set bridge {bridge} netflow=@n"
            )),
        };
        said.map(drop_text)
    }

    fn count(&mut self, bridge: &str, host: &str) -> Result<()> {
        let port = self.port_number(bridge, host)?;
        for flow in ["priority=2,udp,", "priority=1,"] {
            self.ofctl(&format!("add-flow {bridge} {flow}in_port={port},actions=NORMAL"))?;
        }
        Ok(())
    }

    fn counted(&mut self, bridge: &str, host: &str) -> Result<Counted> {
        let port = self.port_number(bridge, host)?;
        let datagrams = self.ask_ofctl(&format!("dump-aggregate {bridge} udp,in_port={port}"))?;
        let all = self.ask_ofctl(&format!("dump-aggregate {bridge} in_port={port}"))?;
        self.ask_ofctl(&format!("del-flows {bridge} in_port={port}"))?;
        Ok(Counted {
            datagrams: aggregate(&datagrams, "packet_count").context("the counter of UDP datagrams")?,
            bytes: aggregate(&all, "byte_count").context("the counter of bytes")?,
        })
    }

    fn member(&self, bridge: &str, device: &str, change: MemberChange) -> Result<Command> {
        let bond = self.layout.bond_of(bridge, device)?;
        let mut ports = self.layout.ports().map(|(_, port)| port);
        let port = ports.find(|port| port.device == device);
        let line = match change {
            MemberChange::Remove => format!("--id=@i get interface {device} -- remove port {bond} interfaces @i"),
            MemberChange::Add => format!(
                "--id=@i create interface name={device}{} -- add port {bond} interfaces @i",
                port.map_or_else(String::new, setup::bfd)
            ),
        };
        let line = format!("{} --timeout=60 -- {line}", self.vsctl_name());
        Ok(self.script.command(&line.split(' ').collect::<Vec<_>>()))
    }

    fn liveness(&self, bridge: &str, to: &str) -> Result<(bool, Alarms)> {
        self.bridge(bridge)?;
        let known = self.layout.bridges.iter().find(|known| known.name == bridge);
        let (mut up, mut alarms) = (true, Alarms::default());
        for port in known.into_iter().flat_map(|known| &known.ports) {
            if port.to == to && port.port.bfd.is_some() {
                let said = self.ask_vsctl(&format!("get interface {} bfd_status", port.device))?;
                up &= status(&said, "state") == Some("up") && status(&said, "forwarding") == Some("true");
                alarms.flaps += status(&said, "flap_count").and_then(|n| n.parse().ok()).unwrap_or(0);
            }
        }
        for (bond, how, members) in known.into_iter().flat_map(BridgeLayout::bonds) {
            if how.lacp && members.iter().any(|member| member.to == to) {
                let said = self.appctl(&format!("lacp/show-stats {bond}"))?;
                alarms.expired += expired(&said);
            }
        }
        Ok((up, alarms))
    }

    fn lost_samples(&self) -> Result<Option<u64>> {
        Ok(match self.tools {
            Tools::Oxvs => Some(drops::lost_samples(&drops::ports(&self.appctl("dpctl/show -s")?))),
            Tools::OpenVswitch => None,
        })
    }

    fn end_flows(&mut self) -> Result<()> {
        self.appctl("revalidator/purge").map(drop_text)
    }

    fn beside(&self, words: &[&str]) -> Result<Command> {
        if self.kind != Kind::Mininet {
            bail!("only Mininet's switch has Open vSwitch's programs in its PATH");
        }
        let mut command = self.script.command(words);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.programs().display()));
        Ok(command)
    }

    fn tool(&self, words: &[&str]) -> Result<Command> {
        let [tool, rest @ ..] = words else {
            bail!("no tool");
        };
        let theirs = format!("ovs-{tool}");
        let program: &[&str] = match self.tools {
            Tools::Oxvs => &["oxvs", tool],
            Tools::OpenVswitch => &[&theirs],
        };
        Ok(self.script.command(&[program, rest].concat()))
    }

    fn check(&mut self) -> Result<()> {
        for daemon in self.daemons.iter_mut().chain(&mut self.helper) {
            daemon.check()?;
        }
        Ok(())
    }
}

fn drop_text(_: String) {}

/// A value of a map as `ovs-vsctl` prints it.
fn status<'a>(said: &'a str, key: &str) -> Option<&'a str> {
    let map = said.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut pairs = map.split(", ").filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(name, value)| (name == key).then(|| value.trim_matches('"')))
}

/// How often partners fell silent, of all members, by `lacp/show-stats`.
fn expired(said: &str) -> u64 {
    let lines = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Link Expired: "));
    lines.filter_map(|number| number.parse::<u64>().ok()).sum()
}

/// A number of `ovs-ofctl dump-aggregate`.
fn aggregate(said: &str, name: &str) -> Option<u64> {
    let mut words = said.split_whitespace();
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

impl Drop for RunningSwitch {
    fn drop(&mut self) {
        if self.tools == Tools::OpenVswitch && self.daemons.len() > 1 {
            // Its internal devices, and its flows in the kernel, would stay; the bed removes them
            // with its namespace if this fails.
            let _ = self.appctl("exit --cleanup");
            if let Some(switch) = self.daemons.last_mut() {
                switch.wait_for_end(ENDING);
            }
        }
        if let Some(mut helper) = self.helper.take() {
            // It ends with its input, and takes its switches along.
            drop(helper.child().stdin.take());
            helper.wait_for_end(ENDING);
        }
        while let Some(daemon) = self.daemons.pop() {
            drop(daemon);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_counters_of_links_are_read() {
        let said = "{diagnostic=\"No Diagnostic\", flap_count=\"3\", forwarding=\"true\", state=up}\n";
        assert_eq!(status(said, "state"), Some("up"));
        assert_eq!(status(said, "flap_count"), Some("3"));
        assert_eq!(status(said, "remote_state"), None);
        assert_eq!(status("{}\n", "state"), None);
        let said = "member: a:\n  RX PDUs: 7\n  Link Expired: 2\n\nmember: b:\n  Link Expired: 1\n";
        assert_eq!(expired(said), 3);
    }

    #[test]
    fn aggregates_are_read_in_both_versions_of_openflow() {
        let said = "NXST_AGGREGATE reply (xid=0x4): packet_count=12 byte_count=3400 flow_count=2\n";
        assert_eq!(aggregate(said, "packet_count"), Some(12));
        assert_eq!(aggregate(said, "byte_count"), Some(3400));
        let said = "OFPST_AGGREGATE reply (OF1.3) (xid=0x2): packet_count=7 byte_count=9 flow_count=1\n";
        assert_eq!(aggregate(said, "packet_count"), Some(7));
        assert_eq!(aggregate("no reply", "packet_count"), None);
    }
}
