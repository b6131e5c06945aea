//! The gaps of a worker while the switch is busy with something else: ports come and go, rules are
//! loaded and deleted, offloaded flows close.
//!
//! Meanwhile the first host sends a packet of a known flow to the second one every 200 µs
//! ([`known`]), which workers forward and the kernel does not: its rule changes the packet in a way
//! that is not offloaded. It also opens 200 new flows a second. What happens is in [`busy`].
//!
//! By default workers of oxvs, the sender and the kernel's threads for packets run before all
//! others (`SCHED_FIFO`). Gaps then have no other program's slices, only the worker's own work and
//! what it waits for: locks and the kernel.

mod busy;
mod known;

use super::openflow::{agreed, bridge_of, connect, two_hosts};
use super::{Meanwhile, Observer, Seen};
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::{During, Setup};
use crate::traffic::Remote;
use crate::traffic::protocol::{Outcome, Task};
use crate::traffic::udp::{Receive, ReceiveFlow, Send, SendFlow};
use anyhow::{Context, Result, bail, ensure};
use busy::{Busy, Part, Place, Runner};
use known::{Known, Seen as Delays};
use openflow::model::FlowCommand;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The port that new flows go to.
const NEW_PORT: u16 = 19_015;

/// How many ports new flows have come from so far: none is used again while a switch may know it.
static PAIRS: AtomicU64 = AtomicU64::new(0);

/// New flows a second, and bytes of their datagrams.
const NEW: u64 = 200;
const NEW_PAYLOAD: u32 = 18;

/// How late packets may be after a part.
const LATE: Duration = Duration::from_millis(200);

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// The two flows and what happens beside them.
pub(super) struct Gaps {
    new_flows: Remote,
    receiver: Remote,
    runner: Runner,
    work: Option<Meanwhile>,
}

/// What is asked for.
pub(super) struct Asked {
    pub(super) during: During,
    pub(super) number: u32,
    pub(super) priority: bool,
}

impl Gaps {
    /// Installs the rules, prepares what is to happen, and starts the new flows.
    ///
    /// # Errors
    /// The switch has no OpenFlow or no tools of Open vSwitch's kind; a host is a guest.
    pub(super) fn begin(table: &mut Table, setup: &Setup, asked: &Asked) -> Result<Gaps> {
        let bridge = bridge_of(setup)?;
        let (from, to) = two_hosts(setup)?;
        let ends = &table.ground.ends;
        let address = ends.address(from, to)?;
        let ports = [from, to].map(|host| table.running.port_number(&bridge, host));
        let [in_port, out_port] = ports;
        let place = Place {
            bridge: bridge.clone(),
            in_port: in_port?,
            out_port: out_port?,
            address,
            rules: Vec::new(),
        };
        let place = place.with_rules(known::PORT);
        let mut connection = connect(table, &bridge)?;
        for rule in &place.rules {
            connection.rule(FlowCommand::Add, rule)?;
        }
        agreed(&mut connection)?;
        // Who says nothing for as long as rules are loaded would lose the connection.
        drop(connection);
        let runner = Runner::default();
        let busy = Busy::prepare(table, setup, &place, asked)?;
        let tools = Tools::of(table)?;
        let known = Known::new(table.ground.bed.host(from)?, table.ground.bed.host(to)?, address)?;
        let workers = if asked.priority { workers(table)? } else { Vec::new() };
        let receiver = ends.agent(to)?.start(Task::Receive(Receive {
            flows: vec![ReceiveFlow {
                flow: 1,
                ports: vec![NEW_PORT],
                buffer: None,
            }],
            quiet: 0,
        }))?;
        let mut new_flows = ends.agent(from)?.start(Task::Send(Send {
            flows: vec![SendFlow {
                flow: 1,
                to: address,
                ports: vec![NEW_PORT],
                port: 0,
                payload: NEW_PAYLOAD,
                rate: NEW * u64::from(NEW_PAYLOAD) * 8,
                new_flows: true,
                first_pair: PAIRS.load(Ordering::Relaxed),
                imix: false,
            }],
            warmup: 0.0,
            // Until it is stopped.
            seconds: 1e6,
            knock: true,
            spin: 0,
            pinned: false,
        }))?;
        new_flows.go()?;
        let work = Work {
            busy,
            known,
            tools,
            workers,
            runner: runner.clone(),
            around: Duration::try_from_secs_f64(setup.seconds)?,
            priority: asked.priority,
        };
        Ok(Gaps {
            new_flows,
            receiver,
            runner,
            work: Some(Box::new(move || work.measure())),
        })
    }
}

impl Observer for Gaps {
    fn meanwhile(&mut self) -> Option<Meanwhile> {
        self.work.take()
    }

    fn stop(&mut self) {
        self.runner.stop();
    }

    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured> {
        if let Outcome::Sent(sent) = self.new_flows.stop()? {
            let pairs = sent.flows.iter().map(|flow| flow.pairs).sum();
            PAIRS.fetch_add(pairs, Ordering::Relaxed);
        }
        self.receiver.stop()?;
        Ok(seen.brought.clone())
    }
}

/// The commands that clear and show how long workers' turns took.
struct Tools {
    clear: Command,
    show: Command,
}

impl Tools {
    fn of(table: &Table) -> Result<Tools> {
        let tool = |name: &str| table.running.tool(&["appctl", "--timeout=60", name]);
        Ok(Tools {
            clear: tool("dpif-netdev/pmd-stats-clear")?,
            show: tool("dpif-netdev/pmd-perf-show")?,
        })
    }
}

/// What is done while the flows flow.
struct Work {
    busy: Busy,
    known: Known,
    tools: Tools,
    workers: Vec<u32>,
    runner: Runner,
    /// For how long only the flows flow before a part, and what is tidied up afterwards counts too;
    /// if nothing happens, that is all.
    around: Duration,
    priority: bool,
}

/// The results of a part: ms, and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Gap {
    seconds: f64,
    /// Offloaded flows just before.
    flows: Option<usize>,
    turn: Option<f64>,
    delays: Delays,
}

impl Work {
    fn measure(mut self) -> Result<Measured> {
        let before_others = if self.priority {
            Some(BeforeOthers::begin(&self.workers)?)
        } else {
            None
        };
        let flowing = self.known.begin(self.priority)?;
        let parts = std::mem::take(&mut self.busy.parts);
        let measured = parts
            .into_iter()
            .map(|part| Ok((part.name, self.part(part, &flowing)?)))
            .collect::<Result<Vec<_>>>();
        drop(flowing);
        drop(before_others);
        Ok(result(&measured?))
    }

    fn part(&mut self, part: Part, flowing: &known::Flowing) -> Result<Gap> {
        for step in part.before {
            self.runner.run(step)?;
        }
        self.runner.sleep(self.around)?;
        let flows = part.offloaded.map(offloaded).transpose()?;
        crate::bed::command::run(&mut self.tools.clear)?;
        let begin = known::now();
        for step in part.steps {
            self.runner.run(step)?;
        }
        let seconds = (known::now() - begin) as f64 / 1e9;
        self.runner.sleep(self.around)?;
        let said = crate::bed::command::run(&mut self.tools.show)?;
        let end = known::now();
        self.runner.sleep(LATE)?;
        Ok(Gap {
            seconds,
            flows,
            turn: longest_turn(&said),
            delays: flowing.between(begin, end)?,
        })
    }
}

/// How many flows are offloaded, of the datapath's dump.
fn offloaded(mut dump: Command) -> Result<usize> {
    let said = crate::bed::command::run(&mut dump)?;
    let flows = said.lines().filter(|line| line.contains("actions:")).count();
    ensure!(flows > 0, "no flow is offloaded");
    Ok(flows)
}

/// The longest turn of all workers in ms, by `pmd-perf-show`; Open vSwitch does not tell of it.
fn longest_turn(said: &str) -> Option<f64> {
    let lines = said.lines();
    let turns = lines.filter_map(|line| line.trim().strip_prefix("Longest iteration (us): "));
    let micros = turns.filter_map(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    micros.reduce(f64::max).map(|micros| micros / 1e3)
}

/// `delay`, `turn` (the longest, ms) and `lost` of all parts, and the same of each part after its
/// name, with `median` and `p999` of the delay (ms), `seconds`, and `flows` that were offloaded.
fn result(parts: &[(&'static str, Gap)]) -> Measured {
    let mut measured = Measured::default();
    let mut add = |name: String, value: f64| {
        measured.metrics.insert(name, value);
    };
    for (name, gap) in parts {
        let of = |metric: &str| format!("{name}.{metric}");
        add(of("delay"), gap.delays.longest);
        add(of("median"), gap.delays.median);
        add(of("p999"), gap.delays.p999);
        add(of("lost"), gap.delays.lost as f64);
        add(of("seconds"), gap.seconds);
        if let Some(flows) = gap.flows {
            add(of("flows"), flows as f64);
        }
        if let Some(turn) = gap.turn {
            add(of("turn"), turn);
        }
    }
    let gaps = || parts.iter().map(|(_, gap)| gap);
    add(
        "delay".to_owned(),
        gaps().map(|gap| gap.delays.longest).fold(0.0, f64::max),
    );
    add("lost".to_owned(), gaps().map(|gap| gap.delays.lost as f64).sum());
    if let Some(turn) = gaps().filter_map(|gap| gap.turn).reduce(f64::max) {
        add("turn".to_owned(), turn);
    }
    measured
}

/// The threads of oxvs that forward. Those of Open vSwitch keep their priority.
fn workers(table: &Table) -> Result<Vec<u32>> {
    let gauge = table.running.gauge()?;
    let processes = gauge.iter().flat_map(|gauge| gauge.processes().to_vec());
    Ok(processes
        .flat_map(|pid| threads(&format!("/proc/{pid}/task")))
        .filter(|(_, name)| name.starts_with("oxvs-worker"))
        .map(|(id, _)| id)
        .collect())
}

/// Threads or processes in a directory of `/proc`, with their names.
fn threads(directory: &str) -> Vec<(u32, String)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        Some((id, std::fs::read_to_string(entry.path().join("comm")).ok()?))
    });
    named.collect()
}

/// The kernel's threads for packets, and workers of oxvs, run before all others until it is
/// dropped. Workers that asked for short time slices have those of the kernel then.
struct BeforeOthers(Vec<u32>);

/// Priorities of `SCHED_FIFO`: the kernel's threads for packets before the sender, and that before
/// workers.
const KERNEL: u32 = 50;
const SENDER: u32 = 45;
const WORKER: u32 = 40;

impl BeforeOthers {
    fn begin(workers: &[u32]) -> Result<BeforeOthers> {
        let kernel = threads("/proc")
            .into_iter()
            .filter(|(_, name)| name.starts_with("ksoftirqd/"))
            .map(|(id, _)| (id, KERNEL));
        let mut before = BeforeOthers(Vec::new());
        for (id, priority) in kernel.chain(workers.iter().map(|id| (*id, WORKER))) {
            chrt(&["-f", "-p", &priority.to_string(), &id.to_string()])?;
            before.0.push(id);
        }
        Ok(before)
    }
}

impl Drop for BeforeOthers {
    fn drop(&mut self) {
        for id in &self.0 {
            // A thread that has ended needs none.
            let _ = chrt(&["-o", "-p", "0", &id.to_string()]);
        }
    }
}

/// Sets the policy and the priority of a thread.
fn chrt(words: &[&str]) -> Result<()> {
    let done = Command::new("chrt").args(words).output().context("cannot start chrt")?;
    if !done.status.success() {
        bail!(
            "chrt {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&done.stderr).trim()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_turn_is_that_of_all_workers() {
        let said = "pmd thread numa_id 0 core_id 0:\n  Iterations: 7\n  Longest iteration (us): 1250  (99.9 % took up to 80 us)\n\
                    pmd thread numa_id 0 core_id 1:\n  Longest iteration (us): 310  (99.9 % took up to 9 us)\n";
        assert_eq!(longest_turn(said), Some(1.25));
        assert_eq!(longest_turn("  Iterations: 7\n"), None);
    }

    #[test]
    fn the_worst_of_the_parts_is_the_result() {
        let gap = |longest: f64, lost: u64, turn: f64| Gap {
            seconds: 1.0,
            flows: None,
            turn: Some(turn),
            delays: Delays {
                longest,
                lost,
                ..Delays::default()
            },
        };
        let metrics = result(&[("come", gap(3.0, 1, 0.5)), ("go", gap(2.0, 4, 0.7))]).metrics;
        assert_eq!((metrics["delay"], metrics["lost"], metrics["turn"]), (3.0, 5.0, 0.7));
        assert_eq!((metrics["go.delay"], metrics["come.turn"]), (2.0, 0.5));
    }
}
