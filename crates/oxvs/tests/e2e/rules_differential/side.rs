//! One of the two switches: programs it, sends frames, and reads its output and counters.

use super::allowed::Uncounted;
use super::counters;
use super::monitor::Monitor;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use testkit::random::{MARK, MARK_PORT, RuleSet};
use testkit::{Unixctl, Vswitch, pcap};

/// Ingress ports; `br0` is LOCAL.
pub(super) const INPUTS: [&str; 5] = ["p1", "p2", "p3", "p4", "br0"];
const OUTPUTS: [&str; 6] = ["p1", "p2", "p3", "p4", "p5", "br0"];

/// The pseudo port of controllers' messages.
pub(super) const CONTROLLER: &str = "controller";

/// Output by port; each port's is sorted, since ports are served in any order.
pub(super) type Output = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// Frames to send with their ingress ports.
pub(super) type Batch = Vec<(&'static str, Vec<u8>)>;

pub(super) struct Side {
    pub(super) switch: Vswitch,
    control: Unixctl,
    outputs: BTreeMap<&'static str, pcap::Tail>,
    marks: Option<pcap::Tail>,
    monitor: Option<Monitor>,
    /// Ports whose packets are dropped, so that no mark is sent there.
    mute: Vec<&'static str>,
    /// Changed port settings to undo.
    changed: Vec<(&'static str, &'static str)>,
    frags: &'static str,
    groups: bool,
    /// Numbers of bridges made and of programmings.
    generation: (u32, u32),
}

impl Side {
    pub(super) fn new(switch: Vswitch) -> Side {
        let control = switch.unixctl();
        Side {
            switch,
            control,
            outputs: BTreeMap::new(),
            marks: None,
            monitor: None,
            mute: Vec::new(),
            changed: Vec::new(),
            frags: "normal",
            groups: false,
            generation: (0, 0),
        }
    }

    /// Whether the switch has ended, or does so now.
    pub(super) fn has_ended(&mut self) -> bool {
        (0..20).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            !self.switch.daemon().is_running()
        })
    }

    /// Whether the switch has ended or no longer answers: Open vSwitch's traces sometimes do not
    /// end.
    pub(super) fn is_lost(&mut self) -> bool {
        if self.has_ended() {
            return true;
        }
        let asked = || self.switch.unixctl().call("version", &[]);
        !matches!(catch_unwind(AssertUnwindSafe(asked)), Ok(Ok(_)))
    }

    /// Makes the bridge again with new captures, because the old ones have grown.
    pub(super) fn rebuild(&mut self) {
        self.generation.0 += 1;
        self.monitor = None;
        (self.changed, self.frags, self.groups) = (Vec::new(), "normal", false);
        self.switch.vsctl("--if-exists del-br br0");
        for (_, tail) in std::mem::take(&mut self.outputs) {
            tail.remove();
        }
        if let Some(tail) = self.marks.take() {
            tail.remove();
        }
        self.switch
            .vsctl("set open_vswitch . other_config:vlan-limit=2 -- add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
        let mark = format!("p{MARK_PORT}");
        for port in OUTPUTS.into_iter().chain([mark.as_str()]) {
            let file = self.switch.sandbox.path(&format!("{port}-{}.tx", self.generation.0));
            let mut words = match port.strip_prefix('p') {
                Some(number) => {
                    format!("add-port br0 {port} -- set interface {port} type=dummy ofport_request={number} -- ")
                }
                None => String::new(),
            };
            // For a packet too large for a port Open vSwitch drops all packets of its batch, which
            // depends on the time.
            words += &format!(
                "set interface {port} mtu_request=9000 options:tx_pcap={}",
                file.display()
            );
            self.switch.vsctl(&words);
            let tail = pcap::Tail::new(file);
            match OUTPUTS.iter().find(|name| **name == port) {
                Some(name) => drop(self.outputs.insert(name, tail)),
                None => self.marks = Some(tail),
            }
        }
        for meter in RuleSet::METERS {
            let added = self.ofctl("OpenFlow13", &["add-meter", "br0", meter]);
            added.unwrap_or_else(|e| panic!("{meter}: {e}"));
        }
    }

    /// Replaces the rule set. Returns the switch's answer if it refused a part.
    pub(super) fn program(&mut self, set: &RuleSet) -> Result<(), String> {
        self.generation.1 += 1;
        self.monitor = None;
        // Open vSwitch would credit the megaflows' pending counters to the new rules.
        self.command("revalidator/purge", &[]);
        self.change_ports(set)?;
        self.command("fdb/flush", &["br0"]);
        if self.groups {
            // Rules that use them go too.
            self.ofctl("OpenFlow13", &["del-groups", "br0"])?;
        }
        self.groups = !set.groups.is_empty();
        self.file("add-groups", "groups", set.version, &set.groups)?;
        let rules = [&["delete".to_owned()], &set.rules[..]].concat();
        self.file("add-flows", "rules", set.version, &rules)?;
        if let Some(form) = set.telling {
            let name = format!("monitor-{}", self.generation.1);
            self.monitor = Some(Monitor::start(&self.switch, &name, set.version, form));
            self.await_monitor();
        }
        // Open vSwitch does not flush the old rules' megaflows at once.
        self.command("revalidator/purge", &[]);
        Ok(())
    }

    fn change_ports(&mut self, set: &RuleSet) -> Result<(), String> {
        for (port, word) in std::mem::take(&mut self.changed) {
            let back = if word == "down" {
                "up"
            } else {
                word.trim_start_matches("no-")
            };
            self.ofctl("OpenFlow10", &["mod-port", "br0", port, back])?;
        }
        for (port, word) in &set.ports {
            self.ofctl("OpenFlow10", &["mod-port", "br0", port, word])?;
            self.changed.push((port, word));
            if *word == "down" {
                self.switch
                    .wait_for("interface", port, "admin_state", |state| state == "down");
            }
        }
        if self.frags != set.frags {
            self.ofctl("OpenFlow10", &["set-frags", "br0", set.frags])?;
            self.frags = set.frags;
        }
        let mute = set
            .ports
            .iter()
            .filter(|(_, word)| *word != "no-flood" && *word != "no-forward");
        self.mute = mute.map(|(port, _)| *port).collect();
        Ok(())
    }

    /// Waits until the monitor is connected.
    fn await_monitor(&mut self) {
        let hears = |side: &mut Side| side.monitor.as_mut().is_some_and(|monitor| monitor.take().1 > 0);
        for _ in 0..500 {
            self.command("netdev-dummy/receive", &["br0", &mark()]);
            std::thread::sleep(Duration::from_millis(5));
            if hears(self) {
                break;
            }
        }
        // Late marks.
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(4));
            hears(self);
            self.marks.as_mut().map(pcap::Tail::take);
        }
    }

    fn file(&self, command: &str, name: &str, version: &str, lines: &[String]) -> Result<(), String> {
        if lines.is_empty() {
            return Ok(());
        }
        let file = self.switch.sandbox.arg(name);
        std::fs::write(&file, lines.join("\n")).expect("the file is written");
        self.ofctl(version, &[command, "br0", &file]).map(drop)
    }

    /// Runs `ovs-ofctl`; the error is its output.
    pub(super) fn ofctl(&self, version: &str, args: &[&str]) -> Result<String, String> {
        let words = [&["--timeout=120", "-O", version], args].concat();
        let done = self.switch.tool("ovs-ofctl", &words);
        if done.ok() { Ok(done.stdout) } else { Err(done.stderr) }
    }

    /// A command to the daemon, which must succeed.
    pub(super) fn command(&mut self, command: &str, args: &[&str]) -> String {
        let answer = self.control.call(command, args);
        answer.unwrap_or_else(|e| panic!("{command} {args:?}: {e}"))
    }

    /// The daemon's trace of a frame.
    pub(super) fn trace(&mut self, port: &str, frame: &[u8]) -> String {
        let number = port.strip_prefix('p').unwrap_or("LOCAL");
        let port = format!("in_port={number}");
        let answer = self
            .control
            .call("ofproto/trace", &["br0", &port, &testkit::to_hex(frame)]);
        answer.unwrap_or_else(|e| e)
    }

    /// Sends frames, and after those of each port a mark. Returns the ports with marks.
    pub(super) fn send(&mut self, batch: &[(&'static str, Vec<u8>)]) -> Vec<&'static str> {
        let mut by_port: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for (port, frame) in batch {
            by_port.entry(port).or_default().push(testkit::to_hex(frame));
        }
        by_port.entry("br0").or_default();
        for (port, frames) in &mut by_port {
            if !self.mute.contains(port) {
                frames.push(mark());
            }
            let mut words: Vec<&str> = vec![port];
            words.extend(frames.iter().map(String::as_str));
            self.command("netdev-dummy/receive", &words);
        }
        by_port.into_keys().filter(|port| !self.mute.contains(port)).collect()
    }

    /// Discards the output.
    pub(super) fn exchange_marks(&mut self) {
        let ports = self.send(&[]);
        self.receive(&ports, None);
    }

    /// The output until the marks, and the expected amount if known, with a limited number of
    /// polls.
    pub(super) fn receive(&mut self, ports: &[&'static str], expected: Option<(&Output, u32)>) -> Output {
        self.await_marks(ports.len());
        // A packet sent with a mark can arrive after it, but not after a later mark.
        for port in ports {
            self.command("netdev-dummy/receive", &[port, &mark()]);
        }
        self.await_marks(ports.len());
        let mut output = Output::new();
        let count = |o: &Output| o.values().map(Vec::len).sum::<usize>();
        let mut heard = 0;
        // Counts polls instead of time, so that a stopped process has not waited.
        for waited in 0.. {
            for (port, tail) in &mut self.outputs {
                output.entry(port).or_default().extend(tail.take());
            }
            if let Some(monitor) = &mut self.monitor {
                let (told, marks) = monitor.take();
                heard += marks;
                output
                    .entry(CONTROLLER)
                    .or_default()
                    .extend(told.into_iter().map(String::into_bytes));
            }
            let short = expected.is_some_and(|(e, looks)| count(&output) < count(e) && waited < looks);
            let deaf = self.monitor.is_some() && heard < 2 * ports.len() && waited < 2000;
            // Without marks of a port its packet-ins can arrive at any time.
            let unmarked = self.monitor.is_some() && !self.mute.is_empty() && waited < 15;
            if !short && !deaf && !unmarked {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Open vSwitch's dummies do not report the state of a device that is down.
        output.retain(|port, _| !self.changed.contains(&(port, "down")));
        output.values_mut().for_each(|frames| frames.sort());
        output
    }

    fn await_marks(&mut self, mut missing: usize) {
        for waited in 0..30_000 {
            if waited % 1000 == 999 && !self.switch.daemon().is_running() {
                break;
            }
            // Floods reach this port too.
            let frames = self.marks.as_mut().expect("the bridge is built").take();
            let marks = frames.iter().filter(|frame| testkit::to_hex(frame) == mark());
            missing = missing.saturating_sub(marks.count());
            if missing == 0 {
                return;
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        let said = self.switch.sandbox.read("switch.out") + &self.switch.sandbox.read("switch.log");
        let from = said.len() - said.len().min(3000);
        panic!(
            "{missing} marks never came out; the switch said:\n{}",
            said.get(from..).unwrap_or(&said)
        );
    }

    /// Removes all rules. Returns the controllers' messages about them.
    pub(super) fn end(&mut self, version: &str, uncounted: &Uncounted) -> Vec<String> {
        // Before OpenFlow 1.3 a dump does not show the flag for flow-removed messages.
        let rules = self.ofctl("OpenFlow13", &["dump-flows", "br0"]);
        let rules = rules.unwrap_or_else(|e| panic!("dump-flows: {e}"));
        let expected = rules.lines().filter(|line| line.contains("send_flow_rem")).count();
        let deleted = self.ofctl(version, &["del-flows", "br0"]);
        deleted.unwrap_or_else(|e| panic!("del-flows: {e}"));
        let mut told = Vec::new();
        for _ in 0..3000 {
            if let Some(monitor) = &mut self.monitor {
                told.extend(monitor.take().0);
            }
            if told.len() >= expected {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let counted = |message: &String| {
            let words = message.split(' ').filter(|word| !uncounted.word(word));
            // oxvs leaves out parts that OpenFlow 1.0 cannot express; Open vSwitch prints something
            // else.
            let words = words.filter(|word| version != "OpenFlow10" || !word.starts_with("priority="));
            words.collect::<Vec<_>>().join(" ")
        };
        let mut told: Vec<_> = told.iter().map(counted).collect();
        told.sort();
        told
    }

    /// Counters of ports, tables and meters since they were made.
    pub(super) fn counted(&mut self) -> counters::Counters {
        self.command("revalidator/purge", &[]);
        let asked = ["dump-ports", "dump-tables", "meter-stats"].map(|command| {
            let text = self.ofctl("OpenFlow13", &[command, "br0"]);
            text.unwrap_or_else(|e| panic!("{command}: {e}"))
        });
        counters::of(&asked)
    }

    /// Printed rules with their counters, without parts that depend on the time.
    pub(super) fn statistics(&mut self, version: &str, uncounted: &Uncounted) -> Vec<String> {
        // Pushes the megaflows' pending counters to the rules.
        self.command("revalidator/purge", &[]);
        let text = self.ofctl(version, &["dump-flows", "br0"]);
        let text = text.unwrap_or_else(|e| panic!("dump-flows: {e}"));
        let timed = |word: &&str| !word.starts_with("duration=") && !word.contains("_age=") && !uncounted.word(word);
        // Two ways to match untagged packets, which oxvs prints as one.
        let untagged = |line: String| line.replace("vlan_tci=0x0000/0x1fff", "vlan_tci=0x0000");
        let line = |line: &str| untagged(line.split_whitespace().filter(timed).collect::<Vec<_>>().join(" "));
        let mut lines: Vec<_> = text
            .lines()
            .filter(|l| l.contains("actions=") && !l.contains(&format!("dl_type=0x{MARK:x} ")))
            .map(line)
            .collect();
        if version != "OpenFlow10" {
            let groups = self.ofctl(version, &["dump-group-stats", "br0"]);
            let groups = groups.unwrap_or_else(|e| panic!("dump-group-stats: {e}"));
            // In Open vSwitch a group without buckets counts nothing, and a rule that uses a group
            // twice is two references, in OpenFlow one.
            let varies = |word: &&str| {
                ["duration=", "ref_count="].iter().any(|name| word.starts_with(name)) || uncounted.word(word)
            };
            let still = |line: &str| {
                let words = line.trim().split(',').filter(|word| !varies(word));
                words.collect::<Vec<_>>().join(",")
            };
            lines.extend(groups.lines().filter(|l| l.contains("bucket0")).map(still));
        }
        lines.sort();
        lines
    }
}

/// The frame that marks an end.
fn mark() -> String {
    let mut mark = vec![2; 12];
    mark.extend(MARK.to_be_bytes());
    mark.resize(60, 0);
    testkit::to_hex(&mark)
}
