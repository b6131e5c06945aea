//! `dpif-netdev/pmd-*`: how busy workers and their queues are, in Open vSwitch's formats for its
//! poll-mode threads.
//!
//! A worker's *core* is the one that `pmd-cpu-mask` has bound it to; for an unbound worker it is
//! the worker's number. Its *idle* time is all time without forwarding, asleep or not. A datapath
//! name after the options is ignored, since there is only one datapath. So are unknown options and
//! values that are no numbers, as in Open vSwitch. Dummies other than `dummy-pmd` are not listed:
//! in Open vSwitch the main thread serves them.

use super::Answer;
use crate::show;
use crate::state::State;
use dp::{Perf, PortNo, WorkerControl, WorkerReport};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// The longest and the default period of usage figures.
const WINDOW: u64 = 60;

/// The first column that no number of `pmd-perf-show` reaches.
const COLUMN: usize = 34;

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    add("dpif-netdev/pmd-stats-show", "[-pmd core] [dp]", 0, 3, |state, args| {
        let asked = Asked::read(args);
        let mut out: String = asked
            .reports(state)?
            .iter()
            .map(|report| stats(state, report))
            .collect();
        if asked.core.is_none() {
            out.push_str("main thread:\n");
            out.push_str(&counts(&Perf::default()));
        }
        Ok(out)
    });
    add(
        "dpif-netdev/pmd-stats-clear",
        "[-pmd core] [dp]",
        0,
        3,
        |state, args| {
            workers(state)?.clear_perf(Asked::read(args).core);
            Ok(String::new())
        },
    );
    add(
        "dpif-netdev/pmd-perf-show",
        "[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]",
        0,
        8,
        |state, args| {
            let asked = Asked::read(args);
            let reports = asked.reports(state)?;
            Ok(reports
                .iter()
                .map(|report| perf(state, report, asked.histograms))
                .collect())
        },
    );
    add(
        "dpif-netdev/pmd-rxq-show",
        "[-pmd core] [-secs secs] [dp]",
        0,
        5,
        |state, args| {
            let asked = Asked::read(args);
            if asked.core.is_some() && asked.reports(state)?.is_empty() {
                return Ok(String::new());
            }
            let mut out = format!("Displaying last {} seconds pmd usage %\n", asked.seconds);
            out.extend(asked.reports(state)?.iter().map(|report| queues(state, report)));
            Ok(out)
        },
    );
    // A worker sleeps only when it has nothing to do; `pmd-sleep-max` is not supported yet.
    add("dpif-netdev/pmd-sleep-show", "[dp]", 0, 1, |state, args| {
        show::check_datapath(state, args.first())?;
        let reports = Asked::read(&[]).reports(state)?;
        let each = reports
            .iter()
            .map(|report| title(state, report) + "  max sleep:    0 us\n");
        Ok(std::iter::once("Default max sleep:    0 us\n".to_owned())
            .chain(each)
            .collect())
    });
    add("dpif-netdev/pmd-rxq-rebalance", "[dp]", 0, 1, |state, args| {
        show::check_datapath(state, args.first())?;
        workers(state)?.rebalance();
        Ok("pmd rxq rebalance requested.\n".to_owned())
    });
}

/// The options of a command.
struct Asked {
    histograms: bool,
    core: Option<usize>,
    seconds: u64,
}

impl Asked {
    fn read(args: &[String]) -> Asked {
        let mut asked = Asked {
            histograms: true,
            core: None,
            seconds: WINDOW,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || args.next().and_then(|value| value.parse::<u64>().ok());
            match arg.as_str() {
                "-pmd" => asked.core = number().and_then(|core| usize::try_from(core).ok()),
                "-secs" => asked.seconds = number().filter(|secs| (1..=WINDOW).contains(secs)).unwrap_or(WINDOW),
                "-nh" => asked.histograms = false,
                // Histories are recorded only under pmd-perf-metrics, which is not there.
                "-it" | "-ms" => _ = number(),
                _ => {}
            }
        }
        asked
    }

    fn reports(&self, state: &State) -> Result<Vec<WorkerReport>, String> {
        let mut reports = workers(state)?.reports(Duration::from_secs(self.seconds));
        let bridges = state.bridges.borrow();
        let devices = bridges
            .interfaces()
            .filter_map(|(_, _, interface)| Some((interface.port?, interface.device.as_ref()?)));
        let hidden: BTreeSet<PortNo> = devices
            .filter(|(_, device)| show::is_main_threads(&***device))
            .map(|(port, _)| port)
            .collect();
        let before: usize = reports.iter().map(|report| report.queues.len()).sum();
        reports
            .iter_mut()
            .for_each(|report| report.queues.retain(|queue| !hidden.contains(&queue.port)));
        let is_left = reports.iter().any(|report| !report.queues.is_empty());
        if before > 0 && !is_left {
            reports.clear();
        }
        if let Some(core) = self.core {
            reports.retain(|report| report.core == core);
        }
        Ok(reports)
    }
}

fn workers(state: &State) -> Result<&dyn WorkerControl, String> {
    let none = || "the datapath has no workers".to_owned();
    state.dp().workers().ok_or_else(none)
}

fn title(state: &State, report: &WorkerReport) -> String {
    let core = report.core;
    format!("pmd thread numa_id {} core_id {core}:\n", state.numa.node_of(core))
}

fn ratio(of: u64, by: u64) -> f64 {
    if by == 0 { 0.0 } else { of as f64 / by as f64 }
}

fn passes(perf: &Perf) -> u64 {
    perf.exact_hits + perf.megaflow_hits + perf.upcalls + perf.lost
}

/// `pmd-stats-show` of one worker.
fn stats(state: &State, report: &WorkerReport) -> String {
    let perf = &report.perf;
    let mut out = title(state, report) + &counts(perf);
    let total = report.cycles.max(perf.busy_cycles);
    let idle = total - perf.busy_cycles;
    let _ = writeln!(out, "  idle cycles: {idle} ({:.2}%)", 100.0 * ratio(idle, total));
    let busy = 100.0 * ratio(perf.busy_cycles, total);
    let _ = writeln!(out, "  processing cycles: {} ({busy:.2}%)", perf.busy_cycles);
    if perf.packets > 0 {
        for (name, cycles) in [("avg cycles", total), ("avg processing cycles", perf.busy_cycles)] {
            let each = ratio(cycles, perf.packets);
            let _ = writeln!(out, "  {name} per packet: {each:.2} ({cycles}/{})", perf.packets);
        }
    }
    out
}

fn counts(perf: &Perf) -> String {
    let recirculated = perf.packets + perf.recirculations;
    format!(
        "  packets received: {}\n  packet recirculations: {}\n  avg. datapath passes per packet: {:.2}\n  phwol hits: 0\n  \
         mfex opt hits: 0\n  simple match hits: 0\n  emc hits: {}\n  smc hits: 0\n  megaflow hits: {}\n  \
         avg. subtable lookups per megaflow hit: {:.2}\n  miss with success upcall: {}\n  miss with failed upcall: {}\n  \
         avg. packets per output batch: {:.2}\n",
        perf.packets,
        perf.recirculations,
        ratio(recirculated, perf.packets),
        perf.exact_hits,
        perf.megaflow_hits,
        ratio(perf.subtables, perf.megaflow_hits),
        perf.upcalls,
        perf.lost,
        ratio(perf.tx_packets, perf.tx_batches),
    )
}

/// `pmd-perf-show` of one worker.
fn perf(state: &State, report: &WorkerReport, histograms: bool) -> String {
    let perf = &report.perf;
    let seconds = report.since.as_secs_f64().max(1e-9);
    let total = report.cycles.max(perf.sleep_cycles);
    let used = total - perf.sleep_cycles;
    let idle = used.saturating_sub(perf.busy_cycles);
    let percent = |of, by| 100.0 * ratio(of, by);
    let mut out = format!(
        "\nTime: {}\nMeasurement duration: {seconds:.3} s\n\n{}\n",
        telemetry::timestamp("%H:%M:%S.###"),
        title(state, report)
    );
    let mut line = |label: &str, value: u64, more: &str| {
        let width = COLUMN.saturating_sub(label.len());
        let _ = writeln!(out, "{label}{value:>width$}{more}");
    };
    let each = ratio(used, perf.turns) / report.hertz * 1e6;
    line("  Iterations:", perf.turns, &format!("  ({each:.2} us/it)"));
    let of_total = format!("  ({:5.1} % of total cycles)", percent(used, total));
    line("  - Used TSC cycles:", used, &of_total);
    let of_used = |cycles| format!("  ({:5.1} % of used cycles)", percent(cycles, used));
    line(
        "  - idle iterations:",
        perf.turns.saturating_sub(perf.busy_turns),
        &of_used(idle),
    );
    line("  - busy iterations:", perf.busy_turns, &of_used(perf.busy_cycles));
    let slept = percent(perf.sleeps, perf.turns);
    line(
        "  - sleep iterations:",
        perf.sleeps,
        &format!("  ({slept:5.1} % of iterations)"),
    );
    let asleep = (perf.sleep_cycles as f64 / report.hertz * 1e6) as u64;
    let each = asleep.checked_div(perf.sleeps).unwrap_or(0);
    line("  Sleep time (us):", asleep, &format!("  ({each:3} us/iteration avg.)"));
    let kpps = |packets: u64| (packets as f64 / seconds / 1000.0) as u64;
    if let Some(cycles) = perf.busy_cycles.checked_div(perf.packets) {
        let more = format!("  ({} Kpps, {cycles} cycles/pkt)", kpps(perf.packets));
        line("  Rx packets:", perf.packets, &more);
        let passes = passes(perf);
        let each = ratio(passes, perf.packets);
        line("  Datapath passes:", passes, &format!("  ({each:.2} passes/pkt)"));
        let share = |hits| format!("  ({:5.1} %)", percent(hits, passes));
        line("  - PHWOL hits:", 0, &share(0));
        line("  - MFEX Opt hits:", 0, &share(0));
        line("  - Simple Match hits:", 0, &share(0));
        line("  - EMC hits:", perf.exact_hits, &share(perf.exact_hits));
        line("  - SMC hits:", 0, &share(0));
        let each = ratio(perf.subtables, perf.megaflow_hits);
        let hits = percent(perf.megaflow_hits, passes);
        let more = format!("  ({hits:5.1} %, {each:.2} subtbl lookups/hit)");
        line("  - Megaflow hits:", perf.megaflow_hits, &more);
        let upcalls = percent(perf.upcalls, passes);
        line(
            "  - Upcalls:",
            perf.upcalls,
            &format!("  ({upcalls:5.1} %, 0.0 us/upcall)"),
        );
        line("  - Lost upcalls:", perf.lost, &share(perf.lost));
    } else {
        line("  Rx packets:", 0, "");
    }
    if perf.tx_packets > 0 {
        line(
            "  Tx packets:",
            perf.tx_packets,
            &format!("  ({} Kpps)", kpps(perf.tx_packets)),
        );
        let each = ratio(perf.tx_packets, perf.tx_batches);
        line("  Tx batches:", perf.tx_batches, &format!("  ({each:.2} pkts/batch)"));
    } else {
        line("  Tx packets:", 0, "\n");
    }
    if histograms {
        // Open vSwitch has a table of them under pmd-perf-metrics.
        let micros = |cycles: u64| cycles as f64 / report.hertz * 1e6;
        let (longest, most) = (micros(report.longest), micros(report.p999));
        let _ = writeln!(
            out,
            "  Longest iteration (us): {longest:.0}  (99.9 % took up to {most:.0} us)"
        );
    }
    out
}

/// `pmd-rxq-show` of one worker.
fn queues(state: &State, report: &WorkerReport) -> String {
    let bridges = state.bridges.borrow();
    let mut named: Vec<_> = report
        .queues
        .iter()
        .map(|queue| (bridges.device_of(queue.port).unwrap_or_default(), queue))
        .collect();
    named.sort_by_key(|(name, queue)| (*name, queue.number));
    let usage = |usage: Option<u64>| usage.map_or("NOT AVAIL".to_owned(), |percent| format!("{percent:2} %"));
    let mut out = title(state, report);
    let _ = writeln!(out, "  isolated : {}", report.isolated);
    for (name, queue) in &named {
        let usage = usage(queue.usage);
        let _ = writeln!(
            out,
            "  port: {name:<16}  queue-id: {:2} (enabled)   pmd usage: {usage}",
            queue.number
        );
    }
    if !named.is_empty() {
        let _ = writeln!(out, "  overhead: {}", usage(report.overhead));
    }
    out
}
