//! What a switch is busy with while a flow is watched, as commands of its tools.

use super::{Asked, NEW_PORT, PATIENCE};
use crate::bed::command::batch;
use crate::bed::namespace::enter;
use crate::run::stage::Table;
use crate::scenario::{During, Setup};
use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The bridge that ports come to.
const BRIDGE: &str = "lab-gaps";

/// Packets of each flow until it is offloaded, and how many are sent a second.
pub(super) const PACKETS: u32 = 12;
pub(super) const RATE: u32 = 8000;

/// Where the known flow and the new ones go.
pub(super) struct Place {
    pub(super) bridge: String,
    pub(super) in_port: u32,
    pub(super) out_port: u32,
    pub(super) address: Ipv4Addr,
    /// The rules of the two.
    pub(super) rules: Vec<String>,
}

/// Something that happens, with what is to be there before.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) before: Vec<Step>,
    pub(super) steps: Vec<Step>,
    /// Shows the offloaded flows, if those are what it is about.
    pub(super) offloaded: Option<Command>,
}

/// A step of a part.
pub(super) enum Step {
    Run(Command),
    /// Packets of so many flows, until they are offloaded.
    Send(Flows),
}

/// All that happens, and what is left of it.
pub(super) struct Busy {
    pub(super) parts: Vec<Part>,
    _tidy: Option<Veths>,
}

/// Packets of many sources.
pub(super) struct Flows {
    socket: OwnedFd,
    to: Ipv4Addr,
    number: u32,
}

impl Place {
    /// With the rules of a known flow to a port, which workers forward, and of the new flows.
    pub(super) fn with_rules(mut self, port: u16) -> Place {
        let (from, to) = (self.in_port, self.out_port);
        self.rules = vec![
            format!("priority=60000,in_port={from},udp,tp_dst={port},actions=mod_nw_tos:32,output:{to}"),
            format!("priority=1,in_port={from},actions=output:{to}"),
            format!("priority=1,in_port={to},actions=output:{from}"),
        ];
        self
    }
}

impl Busy {
    /// Prepares it: files of rules, and devices.
    ///
    /// # Errors
    /// The switch has no such tools; no file or device.
    pub(super) fn prepare(table: &Table, setup: &Setup, place: &Place, asked: &Asked) -> Result<Busy> {
        let (number, bridge) = (asked.number, place.bridge.as_str());
        let directory = table.ground.bed.directory();
        let tool = |words: &[&str]| table.running.tool(words).map(Step::Run);
        let vsctl = |line: &str| {
            let words: Vec<&str> = ["vsctl", "--timeout=300"].into_iter().chain(line.split(' ')).collect();
            tool(&words)
        };
        let part = |name, steps: Vec<Step>| Part {
            name,
            before: Vec::new(),
            steps,
            offloaded: None,
        };
        let mut tidy = None;
        let parts = match asked.during {
            During::Nothing => vec![part("wait", Vec::new())],
            During::InternalPorts | During::VethPorts => {
                let internal = asked.during == During::InternalPorts;
                if !internal {
                    tidy = Some(Veths::make(table.ground.bed.namespace(), number)?);
                }
                vec![
                    part("come", vec![vsctl(&ports(number, internal))?]),
                    part("go", vec![vsctl(&format!("del-br {BRIDGE}"))?]),
                ]
            }
            During::Rules | During::Bundle => {
                let file = write(directory, "gaps-rules", &rules(number))?;
                let few = write(directory, "gaps-few", &few(place))?;
                let (come, go) = if asked.during == During::Bundle {
                    (
                        tool(&["ofctl", "--bundle", "add-flows", bridge, &file])?,
                        tool(&["ofctl", "--bundle", "replace-flows", bridge, &few])?,
                    )
                } else {
                    (
                        tool(&["ofctl", "add-flows", bridge, &file])?,
                        tool(&["ofctl", "del-flows", bridge, "cookie=7/-1"])?,
                    )
                };
                vec![part("come", vec![come]), part("go", vec![go])]
            }
            During::OffloadedRules | During::OffloadedFlows | During::OffloadedPort => {
                let file = write(directory, "gaps-rules", &flows(number, place))?;
                let go = match asked.during {
                    During::OffloadedRules => tool(&["ofctl", "del-flows", bridge, "cookie=7/-1"])?,
                    During::OffloadedFlows => tool(&["appctl", "--timeout=60", "dpctl/del-flows"])?,
                    _ => vsctl(&again(table, place)?)?,
                };
                let (from, _) = super::two_hosts(setup)?;
                let flows = Flows {
                    socket: table.ground.bed.host(from)?.enter(raw)?,
                    to: place.address,
                    number,
                };
                vec![Part {
                    name: "go",
                    before: vec![tool(&["ofctl", "add-flows", bridge, &file])?, Step::Send(flows)],
                    steps: vec![go],
                    offloaded: Some(table.running.tool(&[
                        "appctl",
                        "--timeout=60",
                        "dpctl/dump-flows",
                        "type=offloaded",
                    ])?),
                }]
            }
        };
        Ok(Busy { parts, _tidy: tidy })
    }
}

/// A socket for packets with their IP headers. The kernel fills in checksum and length.
fn raw() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::RAW)).context("raw socket")
}

fn write(directory: &Path, name: &str, text: &str) -> Result<String> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path.display().to_string())
}

/// One transaction that makes a bridge with so many ports.
fn ports(number: u32, internal: bool) -> String {
    let mut line = format!("add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev");
    for n in 1..=number {
        let _ = if internal {
            write!(line, " -- add-port {BRIDGE} gi{n} -- set interface gi{n} type=internal")
        } else {
            write!(line, " -- add-port {BRIDGE} gv{n}")
        };
    }
    line
}

/// Rules that no packet meets.
fn rules(number: u32) -> String {
    let mut text = String::new();
    for n in 0..number {
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(11, 0, 0, 0)) | n);
        let _ = writeln!(text, "table=0,cookie=7,priority=100,ip,nw_dst={address} actions=drop");
    }
    text
}

/// The rules that a bundle leaves.
fn few(place: &Place) -> String {
    let arp = "priority=50,arp,actions=flood".to_owned();
    let all: Vec<String> = place.rules.iter().cloned().chain([arp]).collect();
    all.join("\n") + "\n"
}

/// A rule for each source of the flows.
fn flows(number: u32, place: &Place) -> String {
    let mut text = String::new();
    for n in 0..number {
        let _ = writeln!(
            text,
            "table=0,cookie=7,priority=200,in_port={},ip,nw_src={} actions=output:{}",
            place.in_port,
            source(n),
            place.out_port
        );
    }
    text
}

fn source(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 64, 0, 0)) | n)
}

/// The transaction that removes the port of the second host and adds it again.
fn again(table: &Table, place: &Place) -> Result<String> {
    let found = format!("ofport={}", place.out_port);
    let mut find = table.running.tool(&[
        "vsctl",
        "--timeout=60",
        "--bare",
        "--columns=name",
        "find",
        "interface",
        &found,
    ])?;
    let said = crate::bed::command::run(&mut find)?;
    let Some(device) = said.split_whitespace().next() else {
        bail!("no port has the number {}", place.out_port);
    };
    let (bridge, number) = (&place.bridge, place.out_port);
    Ok(format!(
        "del-port {device} -- add-port {bridge} {device} -- set interface {device} ofport_request={number}"
    ))
}

/// Pairs of devices in the switch's namespace, with one end of each for a port.
struct Veths {
    namespace: String,
    number: u32,
    /// The setting before.
    disabled: String,
}

/// Otherwise each device sends some ten packets of IPv6 by itself, which go to all others.
const IP6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";

impl Veths {
    fn make(namespace: &str, number: u32) -> Result<Veths> {
        let disabled = enter(namespace, || {
            let before = fs::read_to_string(IP6).unwrap_or_default();
            // A kernel without IPv6 has no such setting.
            let _ = fs::write(IP6, "1");
            Ok(before)
        })?;
        let veths = Veths {
            namespace: namespace.to_owned(),
            number,
            disabled,
        };
        let mut lines = Vec::new();
        for n in 1..=number {
            lines.push(format!("link add gv{n} type veth peer name gw{n}"));
            lines.push(format!("link set gv{n} up"));
            lines.push(format!("link set gw{n} up"));
        }
        batch("ip", namespace, &lines)?;
        Ok(veths)
    }
}

impl Drop for Veths {
    fn drop(&mut self) {
        let lines: Vec<String> = (1..=self.number).map(|n| format!("link del gv{n}")).collect();
        let _ = batch("ip", &self.namespace, &lines);
        let _ = enter(&self.namespace, || {
            let _ = fs::write(IP6, self.disabled.trim());
            Ok(())
        });
    }
}

/// Does steps one after the other, until it is stopped.
#[derive(Clone, Default)]
pub(super) struct Runner(Arc<AtomicBool>);

/// Between two looks at whether a command has ended.
const LOOK: Duration = Duration::from_millis(2);

impl Runner {
    pub(super) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }

    pub(super) fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check()?;
            std::thread::sleep(end.saturating_duration_since(Instant::now()).min(50 * LOOK));
        }
        Ok(())
    }

    pub(super) fn run(&self, step: Step) -> Result<()> {
        match step {
            Step::Run(command) => self.command(command),
            Step::Send(flows) => self.send(&flows),
        }
    }

    fn command(&self, mut command: Command) -> Result<()> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| crate::bed::command::cannot_start(&command, &error))?;
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if self.check().is_err() || Instant::now() > end {
                let _ = child.kill();
                let _ = child.wait();
                self.check()?;
                bail!("a command has not ended after {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(LOOK);
        };
        if !status.success() {
            let said = child.stderr.map(std::io::read_to_string);
            let said = said.and_then(Result::ok).unwrap_or_default();
            let said: Vec<&str> = said.lines().take(3).collect();
            bail!("the switch's tool has failed ({status}): {}", said.join("; "));
        }
        Ok(())
    }

    /// Sends packets of all flows in turn.
    fn send(&self, flows: &Flows) -> Result<()> {
        let begin = Instant::now();
        let to = SocketAddrV4::new(flows.to, 0);
        for n in 0..flows.number * PACKETS {
            if n.is_multiple_of(RATE / 100) {
                self.check()?;
                let due = begin + Duration::from_secs(1) * n / RATE;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let packet = packet(source(n % flows.number), flows.to);
            sendto(&flows.socket, &packet, SendFlags::empty(), &to).context("send")?;
        }
        Ok(())
    }
}

/// A datagram without a checksum, with its IP header.
fn packet(from: Ipv4Addr, to: Ipv4Addr) -> [u8; 46] {
    let mut packet = [0; 46];
    (packet[0], packet[8], packet[9]) = (0x45, 64, 17);
    packet[2..4].copy_from_slice(&46_u16.to_be_bytes());
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    for (place, value) in [(20, 1), (22, NEW_PORT), (24, 26)] {
        packet[place..place + 2].copy_from_slice(&value.to_be_bytes());
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        let place = Place {
            bridge: "S1".to_owned(),
            in_port: 1,
            out_port: 2,
            address: Ipv4Addr::new(10, 0, 0, 2),
            rules: Vec::new(),
        };
        place.with_rules(19_014)
    }

    #[test]
    fn commands_and_rules_are_those_of_a_user() {
        assert_eq!(
            ports(2, false),
            "add-br lab-gaps -- set bridge lab-gaps datapath_type=netdev -- add-port lab-gaps gv1 -- add-port lab-gaps gv2"
        );
        assert!(ports(1, true).ends_with("-- add-port lab-gaps gi1 -- set interface gi1 type=internal"));
        assert!(rules(300).ends_with("nw_dst=11.0.1.43 actions=drop\n"));
        assert_eq!(
            flows(1, &place()),
            "table=0,cookie=7,priority=200,in_port=1,ip,nw_src=10.64.0.0 actions=output:2\n"
        );
        assert_eq!(few(&place()).lines().count(), 4);
    }

    #[test]
    fn a_stop_ends_a_command_and_a_failure_has_its_words() {
        let runner = Runner::default();
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Step::Run(command)
        };
        runner.run(shell("true")).unwrap();
        let error = runner
            .run(shell("echo no such bridge >&2; exit 1"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("no such bridge"), "{error}");
        runner.stop();
        let begin = Instant::now();
        assert!(runner.run(shell("sleep 60")).is_err());
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_packet_has_its_length_and_addresses() {
        let packet = packet(Ipv4Addr::new(10, 64, 0, 7), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(packet[..4], [0x45, 0, 0, 46]);
        assert_eq!(packet[12..20], [10, 64, 0, 7, 10, 0, 0, 2]);
        assert_eq!(packet[24..26], [0, 26]);
    }
}
