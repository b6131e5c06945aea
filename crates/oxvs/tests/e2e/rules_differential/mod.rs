//! The same random OpenFlow rules and the same random packets through the switch under test and Debian's Open vSwitch: what comes out of each
//! port must be the same, byte for byte, and so must what the rules have counted afterwards.
//!
//! `OXVS_SOAK` multiplies the rule sets, `OXVS_SEED` names the first one.

mod actions;
mod allowed;
mod matches;
mod packets;
mod pools;
mod rules;
mod side;
mod timeouts;

use crate::fixture::start;
use rules::RuleSet;
use side::{Batch, INPUTS, Output, Side};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use testkit::{Options, Rng, Vswitch, skip};

/// Rule sets tried.
const CASES: u64 = 20;
/// Batches of packets for each.
const BATCHES: usize = 3;
/// Packets in a batch. A dummy device's queue holds 100.
const PACKETS: usize = 80;
/// After so many rule sets captures are begun anew.
const REBUILD: u64 = 40;
/// Faults told of before the test ends.
const FAULTS: usize = 4;

#[test]
fn random_packets_leave_random_rules_as_they_leave_open_vswitch() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let mut pair = Pair {
        oracle: Side::new(Vswitch::debian(Options::default())),
        mine: Side::new(start(Options::default())),
        sent: 0,
        came_out: 0,
        excused: 0,
        reasons: BTreeSet::new(),
    };
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let first = number("OXVS_SEED").unwrap_or(1);
    let cases = number("OXVS_CASES").unwrap_or(CASES) * number("OXVS_SOAK").unwrap_or(1);
    let mut faults = Vec::new();
    for seed in first..first + cases {
        if (seed - first).is_multiple_of(REBUILD) {
            pair.oracle.rebuild();
            pair.mine.rebuild();
        }
        let case = catch_unwind(AssertUnwindSafe(|| pair.case(seed))).unwrap_or_else(|why| {
            // Labels put on and taken off make Open vSwitch fail an assertion now and then, and end.
            if pair.oracle.switch.daemon().is_running() {
                resume_unwind(why);
            }
            pair.oracle = Side::new(Vswitch::debian(Options::default()));
            pair.oracle.rebuild();
            pair.mine.rebuild();
            pair.excused += 1;
            Ok(())
        });
        if let Err(fault) = case {
            faults.push(format!("OXVS_SEED={seed} shows it:\n{fault}"));
            if faults.len() >= FAULTS {
                break;
            }
        }
    }
    println!(
        "{} packets, {} frames out, {} of {cases} rule sets excused",
        pair.sent, pair.came_out, pair.excused
    );
    println!("{:#?}", pair.reasons);
    assert!(pair.excused * 2 <= cases, "the excuses are too wide");
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(pair.came_out * 4 > pair.sent, "nearly everything is dropped");
}

/// Both switches, and what went through them.
struct Pair {
    oracle: Side,
    mine: Side,
    sent: usize,
    came_out: usize,
    /// Rule sets with a packet whose treatment may differ.
    excused: u64,
    reasons: BTreeSet<&'static str>,
}

impl Pair {
    /// One rule set with its packets; a difference is the error.
    fn case(&mut self, seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let mut set = RuleSet::random(&mut rng);
        self.program(&mut set)?;
        let mut excused = false;
        for _ in 0..BATCHES {
            let batch: Batch = (0..PACKETS)
                .map(|_| (*rng.pick(&INPUTS), packets::frame(&mut rng)))
                .collect();
            // What is learned of one packet is for the next: each is let through before.
            let (packets, size) = if set.learning {
                (PACKETS / 3, 1)
            } else {
                (PACKETS, PACKETS)
            };
            for part in batch[..packets].chunks(size) {
                self.sent += part.len();
                if set.learning {
                    self.forget_flows();
                }
                let Err(difference) = self.exchange(part) else {
                    continue;
                };
                match self.single_out(&set, part) {
                    Cause::Fault(story) => return Err(format!("{}\n{story}", set.text())),
                    Cause::Allowed => excused = true,
                    Cause::Unknown => return Err(format!("{}\nonly together:\n{difference}", set.text())),
                }
            }
        }
        if excused {
            self.excused += 1;
            return Ok(());
        }
        self.compare_statistics(&set)
    }

    /// Makes both decide anew: Open vSwitch goes by what it has decided for up to half a second, whatever was learned since.
    fn forget_flows(&mut self) {
        self.oracle.command("revalidator/purge", &[]);
    }

    /// Programs both. What one refuses, the other must too; the set is left without it.
    fn program(&mut self, set: &mut RuleSet) -> Result<(), String> {
        let answers = (self.oracle.program(set), self.mine.program(set));
        if let (Ok(()), Ok(())) = &answers {
            return Ok(());
        }
        // One by one.
        let rules = std::mem::take(&mut set.rules);
        let started = (self.oracle.program(set), self.mine.program(set));
        if started.0.is_ok() != started.1.is_ok() {
            return Err(format!("groups {:#?}: {started:?}", set.groups));
        }
        for rule in rules {
            let add = ["add-flow", "br0", &rule];
            let answers = (self.oracle.ofctl(set.version, &add), self.mine.ofctl(set.version, &add));
            let reason = |answer: &Result<String, String>| {
                let text = answer.as_ref().err().and_then(|e| e.lines().next().map(str::to_owned));
                text.map(|line| line.split(" (xid").next().unwrap_or_default().to_owned())
            };
            if reason(&answers.0) != reason(&answers.1) {
                return Err(format!("{} {rule}: {answers:#?}", set.version));
            }
            match &answers.0 {
                Ok(_) => set.rules.push(rule),
                Err(why) => println!("refused: {} {rule}: {why}", set.version),
            }
        }
        Ok(())
    }

    fn exchange(&mut self, batch: &[(&'static str, Vec<u8>)]) -> Result<(), String> {
        let ports = self.oracle.send(batch);
        self.mine.send(batch);
        let expected = self.oracle.receive(&ports, None);
        let found = self.mine.receive(&ports, Some(&expected));
        self.came_out += expected.values().map(Vec::len).sum::<usize>();
        if found == expected {
            return Ok(());
        }
        Err(format!(
            "Open vSwitch only:\n{}here only:\n{}",
            only(&expected, &found),
            only(&found, &expected)
        ))
    }

    /// Finds the packet of a batch that makes the difference, sent alone through both: the story of its way.
    fn single_out(&mut self, set: &RuleSet, batch: &[(&'static str, Vec<u8>)]) -> Cause {
        let programmed = self.oracle.program(set).and_then(|()| self.mine.program(set));
        if let Err(why) = programmed {
            return Cause::Fault(why);
        }
        let mut cause = Cause::Unknown;
        for packet in batch {
            self.forget_flows();
            if let Err(difference) = self.exchange(std::slice::from_ref(packet)) {
                let (port, frame) = packet;
                let theirs = self.oracle.trace(port, frame);
                if let Some(reason) = allowed::reason(frame, &theirs) {
                    self.reasons.insert(reason);
                    cause = Cause::Allowed;
                    continue;
                }
                let mine = self.mine.trace(port, frame);
                let last = mine.find("Final flow").map_or(mine.as_str(), |at| &mine[at..]);
                return Cause::Fault(format!(
                    "packet into {port}: {}\n{difference}Open vSwitch's trace:\n{theirs}\nhere:\n{last}",
                    testkit::to_hex(frame),
                ));
            }
        }
        cause
    }

    fn compare_statistics(&mut self, set: &RuleSet) -> Result<(), String> {
        let expected = self.oracle.statistics(set.version);
        let found = self.mine.statistics(set.version);
        if expected == found {
            return Ok(());
        }
        let lines = |some: &[String], other: &[String]| {
            let only = some.iter().filter(|line| !other.contains(line));
            only.map(|line| format!("  {line}\n")).collect::<String>()
        };
        Err(format!(
            "{}\nstatistics, Open vSwitch only:\n{}here only:\n{}",
            set.text(),
            lines(&expected, &found),
            lines(&found, &expected)
        ))
    }
}

/// Why a batch came out differently.
enum Cause {
    /// A packet, whose story this is.
    Fault(String),
    /// Packets whose treatment may differ.
    Allowed,
    /// None of the packets alone.
    Unknown,
}

/// What one has and the other has not.
fn only(some: &Output, other: &Output) -> String {
    let mut text = String::new();
    for (port, frames) in some {
        let mut rest = other.get(port).cloned().unwrap_or_default();
        for frame in frames {
            match rest.iter().position(|f| f == frame) {
                Some(at) => drop(rest.swap_remove(at)),
                None => text += &format!("  {port} {}\n", testkit::to_hex(frame)),
            }
        }
    }
    text
}
