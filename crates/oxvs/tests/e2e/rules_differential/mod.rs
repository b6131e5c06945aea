//! The same random OpenFlow rules and the same random packets through the switch under test and
//! Debian's Open vSwitch: each port's output must be the same, byte for byte, and so must the
//! controllers' messages and the counters of rules, groups, meters, tables and ports.
//!
//! `OXVS_SOAK` multiplies the rule sets and gives each more packets, `OXVS_SEED` names the first
//! one, `OXVS_CASES` says how many. With `OXVS_EACH`, statistics are compared after that many
//! packets; 1 finds the packet that is counted differently.

mod allowed;
mod counters;
mod labels;
mod monitor;
mod recount;
mod series;
mod side;
mod timeouts;

use allowed::Uncounted;
use counters::Counters;
use series::{Series, Tally};
use side::{Batch, CONTROLLER, INPUTS, Output, Side};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use testkit::random::{self, RuleSet};
use testkit::{Rng, one_in, skip};

/// Rule sets tried.
const CASES: u64 = 20;
/// Rule sets for each `OXVS_SOAK`: at 20, as in `make soak`, a million packets.
const SOAKED: u64 = 60;
/// Batches of packets for each rule set, and those of a soak.
const BATCHES: (usize, usize) = (3, 14);
/// Packets in a batch. A dummy device's queue holds 100.
const PACKETS: usize = 80;
/// Number of polls, some milliseconds apart, for output that is late after the marks.
const PATIENCE: u32 = 150;
/// Packets tried together before each is tried alone.
const TOGETHER: usize = 8;
/// Pairs of switches that run at the same time in a soak.
const PAIRS: usize = 4;

#[test]
fn random_packets_leave_random_rules_as_they_leave_open_vswitch() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let soak = number("OXVS_SOAK");
    let usual = one_in(2, 0..CASES).count() as u64;
    let cases = number("OXVS_CASES").unwrap_or(soak.map_or(usual, |times| times * SOAKED));
    let series = Mutex::new(Series::new(number("OXVS_SEED").unwrap_or(1), cases));
    // The two switches of a pair mostly wait for each other.
    let (pairs, batches) = match soak {
        Some(_) => (PAIRS, BATCHES.1),
        None => (1, BATCHES.0),
    };
    std::thread::scope(|scope| {
        for _ in 0..pairs.min(cases as usize) {
            scope.spawn(|| Pair::new(batches).run(&series));
        }
    });
    series.into_inner().expect("no pair has panicked").conclude();
}

/// The number that a variable of the environment gives.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}

/// Both switches, and what went through them.
struct Pair {
    oracle: Side,
    mine: Side,
    tally: Tally,
    /// Kinds of packets with an allowed difference in this rule set.
    singled: Vec<allowed::Kind>,
    /// Batches of packets for each rule set.
    batches: usize,
    /// Both switches' counters when they were last equal.
    counted: Option<[Counters; 2]>,
    /// Our counters when they were last compared.
    counters_here: Counters,
    /// Our switch's output for each part of the rule set's packets, and the final counters.
    shown: Shown,
}

impl Pair {
    /// One rule set with its packets; a difference is the error.
    fn case(&mut self, seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        let mut set = RuleSet::random(&mut rng);
        self.singled.clear();
        self.shown = Shown::default();
        self.counters_here.clear();
        self.program(&mut set)?;
        let before = match self.counted.take() {
            Some(counted) if set.telling.is_none() => counted,
            // Until the controller is connected, marks are lost.
            _ => [self.oracle.counted(), self.mine.counted()],
        };
        let (mut excused, mut forgets, mut all) = (false, false, Batch::new());
        for _ in 0..self.batches {
            // A device that is down receives nothing, but Open vSwitch's dummies do.
            let inputs: Vec<_> = INPUTS
                .into_iter()
                .filter(|port| !set.ports.contains(&(port, "down")))
                .collect();
            let batch: Batch = (0..PACKETS)
                .map(|_| (*rng.pick(&inputs), self.frame(&mut rng)))
                .collect();
            // A learned rule applies to the next packet, so each packet passes alone. A controller
            // that gets too much at once misses messages.
            let (packets, size) = match (set.learning, set.telling) {
                (true, _) => (PACKETS / 3, 1),
                (_, Some(_)) => (PACKETS / 2, 8),
                _ => (PACKETS, PACKETS),
            };
            let each = number("OXVS_EACH").map(|each| each.max(1) as usize);
            let size = each.map_or(size, |each| each.min(size));
            let alone = |packet: &(&str, Vec<u8>)| allowed::loses_count(&packet.1);
            let runs = batch[..packets].chunk_by(|one, next| !alone(one) && !alone(next));
            for part in runs.flat_map(|run| run.chunks(size)) {
                self.tally.sent += part.len();
                all.extend_from_slice(part);
                // Open vSwitch also does not distinguish such a packet from others in its
                // megaflows.
                if set.learning || forgets || alone(&part[0]) {
                    self.forget_flows();
                }
                forgets = alone(&part[0]);
                let together = self.exchange(part);
                self.shown.add(&together.found);
                let Some(difference) = together.difference() else {
                    if each.is_some() && !excused {
                        let counted = self.compare_rules(&set);
                        let counted = counted.and_then(|()| self.compare_counters(&set, &before));
                        counted.map_err(|difference| format!("{difference}after{}", packets_text(part)))?;
                    }
                    continue;
                };
                let lesson = self.lesson(&set, part);
                let learned = self.learned(&set, part);
                match self.single_out(&set, part, &together) {
                    Cause::Fault(story) => return Err(format!("{}\n{story}", set.text())),
                    Cause::Allowed => excused = true,
                    Cause::Unknown => {
                        if let Some(reason) = lesson {
                            *self.tally.reasons.entry(reason).or_default() += 1;
                            excused = true;
                            continue;
                        }
                        // They may have learned differently from an earlier packet.
                        if set.learning {
                            match self.recount(&set, &all) {
                                Cause::Fault(story) => return Err(format!("{}\n{story}", set.text())),
                                Cause::Allowed => {
                                    self.tally.excused += 1;
                                    return Ok(());
                                }
                                Cause::Unknown => {}
                            }
                        }
                        let sent = packets_text(part);
                        return Err(format!("{}\nonly together:{sent}\n{difference}{learned}", set.text()));
                    }
                }
            }
        }
        if excused {
            self.tally.excused += 1;
            return Ok(());
        }
        let rules = self.mine.statistics(set.version, &Uncounted::of(&set));
        self.shown.add(&rules);
        let counted = self.compare_statistics(&set);
        let counted = counted.and_then(|()| self.compare_counters(&set, &before));
        self.shown.add(&self.counters_here);
        let Err(difference) = counted else {
            return Ok(());
        };
        match self.recount(&set, &all) {
            Cause::Fault(story) => Err(story),
            Cause::Allowed => {
                self.tally.excused += 1;
                Ok(())
            }
            Cause::Unknown => Err(format!("{difference}only together")),
        }
    }

    /// A random frame of a kind without an allowed difference, because singling out takes long.
    fn frame(&self, rng: &mut Rng) -> Vec<u8> {
        let mut frame = random::frame(rng);
        for _ in 0..20 {
            if !self.singled.contains(&allowed::kind(&frame)) {
                break;
            }
            frame = random::frame(rng);
        }
        frame
    }

    /// Why packets may come out differently because of earlier learning, which a single packet does
    /// not show.
    fn lesson(&mut self, set: &RuleSet, part: &[(&'static str, Vec<u8>)]) -> Option<&'static str> {
        if !set.learning {
            return None;
        }
        let rules = [&mut self.oracle, &mut self.mine].map(|side| side.statistics(set.version, &Uncounted::ALL));
        allowed::learned(set, &rules).or_else(|| {
            part.iter().find_map(|(port, frame)| {
                let trace = self.oracle_trace(port, frame);
                allowed::reason(set, frame, &trace)
            })
        })
    }

    /// Compares the learned rules and the packets' treatment with them.
    fn learned(&mut self, set: &RuleSet, batch: &[(&'static str, Vec<u8>)]) -> String {
        if !set.learning {
            return String::new();
        }
        let tell = |side: &mut Side| {
            let rules = side.statistics(set.version, &Uncounted::of(set)).join("\n");
            let traces: String = batch.iter().map(|(port, frame)| side.trace(port, frame)).collect();
            format!("{}{rules}\n{traces}", side.command("fdb/show", &["br0"]))
        };
        format!("there\n{}\nhere\n{}", tell(&mut self.oracle), tell(&mut self.mine))
    }

    /// Flushes both switches' megaflows, because Open vSwitch uses an outdated megaflow for up to
    /// half a second after learning.
    fn forget_flows(&mut self) {
        self.oracle.command("revalidator/purge", &[]);
    }

    /// Programs both. They must refuse the same rules, which leave the set.
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
                // Log lines of the tool with the time may come first.
                let text = answer.as_ref().err().map(|e| match e.find("OFPT_ERROR") {
                    Some(at) => e[at..].lines().next().unwrap_or_default().to_owned(),
                    None => e.lines().next().unwrap_or_default().to_owned(),
                });
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

    fn exchange(&mut self, batch: &[(&'static str, Vec<u8>)]) -> Outputs {
        self.exchange_within(batch, PATIENCE)
    }

    /// The same with a limited number of polls for output that is late after the marks.
    fn exchange_within(&mut self, batch: &[(&'static str, Vec<u8>)], patience: u32) -> Outputs {
        let ports = self.oracle.send(batch);
        self.mine.send(batch);
        let expected = self.oracle.receive(&ports, None);
        let found = self.mine.receive(&ports, Some((&expected, patience)));
        self.tally.came_out += expected.values().map(Vec::len).sum::<usize>();
        Outputs { expected, found }
    }

    /// Finds the packet of a batch that makes the difference by sending each alone through both.
    /// Returns its report. `together` is the batch's output.
    fn single_out(&mut self, set: &RuleSet, batch: &[(&'static str, Vec<u8>)], together: &Outputs) -> Cause {
        if set.learning {
            let programmed = self.oracle.program(set).and_then(|()| self.mine.program(set));
            if let Err(why) = programmed {
                return Cause::Fault(why);
            }
        }
        let mut cause = Cause::Unknown;
        let mut alone = Outputs::default();
        for part in batch.chunks(TOGETHER) {
            if part.len() > 1 {
                self.forget_flows();
                let outputs = self.exchange_within(part, PATIENCE / 10);
                if outputs.difference().is_none() {
                    alone.add(outputs);
                    continue;
                }
            }
            for packet in part {
                match self.judge_alone(set, packet) {
                    Ok(outputs) => alone.add(outputs),
                    Err(Cause::Allowed) => cause = Cause::Allowed,
                    Err(fault) => return fault,
                }
            }
        }
        if matches!(cause, Cause::Unknown) && !set.learning && alone.found == together.found {
            // Our switch treats each packet as it does alone, and as Open vSwitch does alone.
            let reason = "what Open vSwitch has decided for a packet it does with another, for which its rules say something else";
            *self.tally.reasons.entry(reason).or_default() += 1;
            cause = Cause::Allowed;
        }
        cause
    }

    /// Open vSwitch's trace of a packet.
    fn oracle_trace(&mut self, port: &'static str, frame: &[u8]) -> String {
        let trace = self.oracle.trace(port, frame);
        // Open vSwitch's trace really sends packets that are output within another action.
        self.oracle.exchange_marks();
        trace
    }

    /// Sends a packet alone through both, without megaflows. Returns the output, or the reason of a
    /// difference.
    fn judge_alone(&mut self, set: &RuleSet, packet: &(&'static str, Vec<u8>)) -> Result<Outputs, Cause> {
        let mut patience = PATIENCE / 10;
        loop {
            let (port, frame) = packet;
            // Rules learned from the packet apply to the next one.
            let unlearned = set.learning.then(|| self.oracle_trace(port, frame));
            self.forget_flows();
            let outputs = self.exchange_within(std::slice::from_ref(packet), patience);
            let Some(difference) = outputs.difference() else {
                return Ok(outputs);
            };
            let theirs = self.oracle_trace(port, frame);
            let unlearned = unlearned.and_then(|trace| allowed::reason(set, frame, &trace));
            if let Some(reason) = unlearned.or_else(|| allowed::reason(set, frame, &theirs)) {
                *self.tally.reasons.entry(reason).or_default() += 1;
                self.singled.push(allowed::kind(frame));
                return Err(Cause::Allowed);
            }
            if patience == PATIENCE {
                let mine = self.mine.trace(port, frame);
                let last = mine.find("Final flow").map_or(mine.as_str(), |at| &mine[at..]);
                return Err(Cause::Fault(format!(
                    "packet into {port}: {}\n{difference}Open vSwitch's trace:\n{theirs}\nhere:\n{last}",
                    testkit::to_hex(frame),
                )));
            }
            patience = PATIENCE;
        }
    }

    /// Rules and groups must have counted the same, and controllers must get the same messages when
    /// the rules are removed.
    fn compare_statistics(&mut self, set: &RuleSet) -> Result<(), String> {
        self.compare_rules(set)?;
        if set.telling.is_none() {
            return Ok(());
        }
        let uncounted = Uncounted::of(set);
        let expected = self.oracle.end(set.version, &uncounted);
        let found = self.mine.end(set.version, &uncounted);
        if expected == found {
            return Ok(());
        }
        Err(format!(
            "{}\ntold there {expected:#?}\ntold here {found:#?}",
            set.text()
        ))
    }

    /// Rules and groups must have counted the same.
    fn compare_rules(&mut self, set: &RuleSet) -> Result<(), String> {
        let uncounted = Uncounted::of(set);
        let expected = self.oracle.statistics(set.version, &uncounted);
        let found = self.mine.statistics(set.version, &uncounted);
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

impl Pair {
    /// Ports, tables and meters must have counted the same.
    fn compare_counters(&mut self, set: &RuleSet, before: &[Counters; 2]) -> Result<(), String> {
        let after = [self.oracle.counted(), self.mine.counted()];
        let [mut expected, mut found] = [0, 1].map(|at| counters::since(&before[at], &after[at]));
        let uncounted = Uncounted::of(set);
        for counters in [&mut expected, &mut found] {
            counters.retain(|name, _| !uncounted.counter(set, name));
        }
        self.counters_here.clone_from(&found);
        if expected == found {
            self.counted = Some(after);
            return Ok(());
        }
        let only = |some: &Counters, other: &Counters| {
            let only = some.iter().filter(|(name, number)| other.get(*name) != Some(number));
            only.map(|(name, number)| format!("  {name} {number}\n"))
                .collect::<String>()
        };
        Err(format!(
            "{}\ncounted, Open vSwitch only:\n{}here only:\n{}",
            set.text(),
            only(&expected, &found),
            only(&found, &expected)
        ))
    }
}

/// The results of the switch under test, step by step, to check that it repeats them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown(Vec<u64>);

impl Shown {
    fn add(&mut self, what: &impl Hash) {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        self.0.push(hasher.finish());
    }
}

/// Why a batch came out differently.
enum Cause {
    /// A packet, with its report.
    Fault(String),
    /// Packets whose treatment may differ.
    Allowed,
    /// None of the packets alone.
    Unknown,
}

/// The output of both switches.
#[derive(Default)]
struct Outputs {
    expected: Output,
    found: Output,
}

impl Outputs {
    /// The difference of their outputs, if any.
    fn difference(&self) -> Option<String> {
        let Outputs { expected, found } = self;
        (found != expected).then(|| {
            format!(
                "Open vSwitch only:\n{}here only:\n{}",
                only(expected, found),
                only(found, expected)
            )
        })
    }

    /// Adds the output of other packets.
    fn add(&mut self, other: Outputs) {
        for (all, more) in [(&mut self.expected, other.expected), (&mut self.found, other.found)] {
            for (port, frames) in more {
                let all = all.entry(port).or_default();
                all.extend(frames);
                all.sort();
            }
        }
    }
}

/// Packets with their ingress ports, one on each line.
fn packets_text(packets: &[(&str, Vec<u8>)]) -> String {
    let line = |(port, frame): &(&str, Vec<u8>)| format!("\n{port} {}", testkit::to_hex(frame));
    packets.iter().map(line).collect()
}

/// The part of one output that the other lacks.
fn only(some: &Output, other: &Output) -> String {
    let mut text = String::new();
    for (port, frames) in some {
        let mut rest = other.get(port).cloned().unwrap_or_default();
        for frame in frames {
            match rest.iter().position(|f| f == frame) {
                Some(at) => drop(rest.swap_remove(at)),
                None if *port == CONTROLLER => text += &String::from_utf8_lossy(frame),
                None => text += &format!("  {port} {}\n", testkit::to_hex(frame)),
            }
        }
    }
    text
}
