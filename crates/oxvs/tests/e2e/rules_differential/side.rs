//! One of the two switches: programmed, sent frames to, and looked at.

use super::rules::{MARK, MARK_PORT, RuleSet};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use testkit::{Unixctl, Vswitch, pcap};

/// Ports that frames come in by; `br0` is LOCAL.
pub(super) const INPUTS: [&str; 5] = ["p1", "p2", "p3", "p4", "br0"];
const OUTPUTS: [&str; 6] = ["p1", "p2", "p3", "p4", "p5", "br0"];

/// What came out, by port; each port's sorted, since ports are served in any order.
pub(super) type Output = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// Frames to send, with the ports they come in by.
pub(super) type Batch = Vec<(&'static str, Vec<u8>)>;

pub(super) struct Side {
    pub(super) switch: Vswitch,
    control: Unixctl,
    outputs: BTreeMap<&'static str, pcap::Tail>,
    marks: Option<pcap::Tail>,
    generation: u32,
}

impl Side {
    pub(super) fn new(switch: Vswitch) -> Side {
        let control = switch.unixctl();
        Side {
            switch,
            control,
            outputs: BTreeMap::new(),
            marks: None,
            generation: 0,
        }
    }

    /// Makes the bridge anew, with new captures in place of those that grew.
    pub(super) fn rebuild(&mut self) {
        self.generation += 1;
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
            let file = self.switch.sandbox.path(&format!("{port}-{}.tx", self.generation));
            let mut words = match port.strip_prefix('p') {
                Some(number) => {
                    format!("add-port br0 {port} -- set interface {port} type=dummy ofport_request={number} -- ")
                }
                None => String::new(),
            };
            // Of what is too large for a port Open vSwitch drops whatever is sent with it, which depends on the time.
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
    }

    /// Puts a rule set in place of the one there is; what the switch answered, where it refused any of it.
    pub(super) fn program(&mut self, set: &RuleSet) -> Result<(), String> {
        self.ofctl("OpenFlow13", &["del-flows", "br0"])?;
        self.ofctl("OpenFlow13", &["del-groups", "br0"])?;
        self.ofctl("OpenFlow13", &["del-meters", "br0"])?;
        self.command("fdb/flush", &["br0"]);
        for meter in &set.meters {
            self.ofctl("OpenFlow13", &["add-meter", "br0", meter])?;
        }
        self.file("add-groups", "groups", set.version, &set.groups)?;
        self.file("add-flows", "rules", set.version, &set.rules)?;
        // What was decided by the rules before is not at once forgotten there.
        self.command("revalidator/purge", &[]);
        Ok(())
    }

    fn file(&self, command: &str, name: &str, version: &str, lines: &[String]) -> Result<(), String> {
        if lines.is_empty() {
            return Ok(());
        }
        let file = self.switch.sandbox.arg(name);
        std::fs::write(&file, lines.join("\n")).expect("the file is written");
        self.ofctl(version, &[command, "br0", &file]).map(drop)
    }

    /// `ovs-ofctl`; what it said where it failed.
    pub(super) fn ofctl(&self, version: &str, args: &[&str]) -> Result<String, String> {
        let words = [&["--timeout=20", "-O", version], args].concat();
        let done = self.switch.tool("ovs-ofctl", &words);
        if done.ok() { Ok(done.stdout) } else { Err(done.stderr) }
    }

    /// A command to the daemon, which must succeed.
    pub(super) fn command(&mut self, command: &str, args: &[&str]) -> String {
        let answer = self.control.call(command, args);
        answer.unwrap_or_else(|e| panic!("{command} {args:?}: {e}"))
    }

    /// What the daemon says of a frame on its way.
    pub(super) fn trace(&mut self, port: &str, frame: &[u8]) -> String {
        let number = port.strip_prefix('p').unwrap_or("LOCAL");
        let port = format!("in_port={number}");
        let answer = self
            .control
            .call("ofproto/trace", &["br0", &port, &testkit::to_hex(frame)]);
        answer.unwrap_or_else(|e| e)
    }

    /// Sends frames, and behind those of each port a mark; the ports.
    pub(super) fn send(&mut self, batch: &[(&'static str, Vec<u8>)]) -> Vec<&'static str> {
        let mut by_port: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for (port, frame) in batch {
            by_port.entry(port).or_default().push(testkit::to_hex(frame));
        }
        for (port, frames) in &mut by_port {
            frames.push(mark());
            let mut words: Vec<&str> = vec![port];
            words.extend(frames.iter().map(String::as_str));
            self.command("netdev-dummy/receive", &words);
        }
        by_port.into_keys().collect()
    }

    /// What comes out until the marks have, and, where it is known, as much as is expected.
    pub(super) fn receive(&mut self, ports: &[&'static str], expected: Option<&Output>) -> Output {
        self.await_marks(ports.len());
        // What is sent with a mark may be there after it, but not after one that is sent later.
        for port in ports {
            self.command("netdev-dummy/receive", &[port, &mark()]);
        }
        self.await_marks(ports.len());
        let mut output = Output::new();
        let begin = Instant::now();
        let count = |o: &Output| o.values().map(Vec::len).sum::<usize>();
        loop {
            for (port, tail) in &mut self.outputs {
                output.entry(port).or_default().extend(tail.take());
            }
            let short = expected.is_some_and(|e| count(&output) < count(e));
            if !short || begin.elapsed() > Duration::from_millis(300) {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        output.values_mut().for_each(|frames| frames.sort());
        output
    }

    fn await_marks(&mut self, mut missing: usize) {
        let begin = Instant::now();
        let tail = self.marks.as_mut().expect("the bridge is built");
        loop {
            // Floods come to this port too.
            let marks = tail
                .take()
                .iter()
                .filter(|frame| testkit::to_hex(frame) == mark())
                .count();
            missing = missing.saturating_sub(marks);
            if missing == 0 {
                return;
            }
            if begin.elapsed() > Duration::from_secs(10) {
                let said = self.switch.sandbox.read("switch.out") + &self.switch.sandbox.read("switch.log");
                let from = said.len() - said.len().min(3000);
                panic!(
                    "{missing} marks never came out; the switch said:\n{}",
                    said.get(from..).unwrap_or(&said)
                );
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    /// Rules as they are printed, with what they counted, and without what depends on the time.
    pub(super) fn statistics(&mut self, version: &str) -> Vec<String> {
        // Megaflows have counted what their rules are yet to be told.
        self.command("revalidator/purge", &[]);
        let text = self.ofctl(version, &["dump-flows", "br0"]);
        let text = text.unwrap_or_else(|e| panic!("dump-flows: {e}"));
        let timed = |word: &&str| !word.starts_with("duration=") && !word.contains("_age=");
        // Two ways to ask for no tag, which are one here.
        let untagged = |line: String| line.replace("vlan_tci=0x0000/0x1fff", "vlan_tci=0x0000");
        let line = |line: &str| untagged(line.split_whitespace().filter(timed).collect::<Vec<_>>().join(" "));
        let mut lines: Vec<_> = text.lines().filter(|l| l.contains("actions=")).map(line).collect();
        if version != "OpenFlow10" {
            let groups = self.ofctl(version, &["dump-group-stats", "br0"]);
            let groups = groups.unwrap_or_else(|e| panic!("dump-group-stats: {e}"));
            // A group without buckets counts nothing there. A rule that has a group twice is one reference by OpenFlow, and two there.
            let varies = |word: &&str| word.starts_with("duration=") || word.starts_with("ref_count=");
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
