//! Measures the speed of a datapath: packets from memory through the whole switch to a sink.
//!
//! Each switch runs as its own daemon with real ports, tables, caches and counters; only devices
//! are memory: a source that copies the packets of a file into new frames as fast as the switch
//! takes them, and a sink that frees them. oxvs has them as interfaces of type `pcap` and `null`,
//! DPDK as `net_pcap` and `net_null`. Rates come from the ports' counters over OpenFlow, in the
//! same way for both.
//!
//! Both run in turns of a second or so, the other one stopped meanwhile (`SIGSTOP`), A B, B A, A B.
//! A round's ratio is of two turns at nearly the same time; the result is the median of the rounds.
//! Before each turn a [canary](canary::Canary) measures the memory's latency; a round in which it
//! changed is left out and repeated.
//!
//! - [`Case`]: rules, flows, packets, workers. `rules`, `trace`, `bond`, `tunnel`: their parts.
//! - `subject`: a measured switch. `tune`: the peer's cache settings, each of which is best for
//!   some case.
//! - `turns`: rounds. `report`: the table and the file.

mod bond;
mod canary;
mod case;
mod report;
mod rules;
mod subject;
mod trace;
mod tune;
mod tunnel;
mod turns;

pub use case::{Case, Distribution, Size};
pub(crate) use case::{FLOWS, NEW_FLOWS, full, name, quick};
pub use report::{Figures, Measured, Ratio, Report, Round, Turn};
pub(crate) use report::{heading, line};
pub use rules::Rules;
pub(crate) use subject::dpdk_missing;

use crate::results::Machine;
use crate::run::Stop;
use anyhow::{Context, Result, ensure};
use canary::Canary;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::time::Duration;
use subject::{Kind, Subject};

/// The cases to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// In this order.
    pub cases: Vec<Case>,
    /// Length of a turn.
    pub turn: Duration,
    /// Rounds of each case.
    pub rounds: usize,
    /// Open vSwitch with DPDK is measured too.
    pub peer: bool,
}

/// Measures cases and returns each when it is done; a failed case is reported with its error, and
/// the next one starts.
///
/// # Errors
/// No root, or another benchmark is running.
pub fn run(options: &Options, stop: &Stop, done: &mut dyn FnMut(&Case, Result<Measured>)) -> Result<Report> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the benchmark needs root: it makes network namespaces and sets huge pages apart"
    );
    let lock = File::create("/run/oxvs-lab-bench.lock").context("/run/oxvs-lab-bench.lock")?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).context("another benchmark runs")?;
    let mut report = Report {
        machine: Machine::here(),
        switches: vec![Kind::Oxvs.describe()],
        turn: options.turn.as_secs_f64(),
        measured: Vec::new(),
    };
    if options.peer {
        report.switches.push(Kind::Dpdk.describe());
    }
    let mut canary = Canary::new();
    for case in &options.cases {
        if stop.is_requested() {
            break;
        }
        let measured = measure(case, options, stop, &mut canary);
        if stop.is_requested() && measured.is_err() {
            break;
        }
        if let Ok(measured) = &measured {
            report.measured.push(measured.clone());
        }
        done(case, measured);
    }
    Ok(report)
}

fn measure(case: &Case, options: &Options, stop: &Stop, canary: &mut Canary) -> Result<Measured> {
    let allowed = sys::thread::allowed_cpus()?;
    ensure!(
        case.workers <= allowed.len(),
        "{} workers need as many processors, and there are {}",
        case.workers,
        allowed.len()
    );
    let cpus = &allowed[allowed.len() - case.workers..];
    let mut subjects = vec![Subject::start(Kind::Oxvs, case.rules)?];
    if options.peer {
        subjects.push(Subject::start(Kind::Dpdk, case.rules)?);
    }
    if let Some(rules) = case.rules.beside() {
        subjects.push(Subject::start(Kind::Oxvs, rules)?);
    }
    let traces = trace::write(case, subjects[0].files())?;
    let mut configurations = vec![String::new(); subjects.len()];
    for (subject, configuration) in subjects.iter_mut().zip(&mut configurations) {
        subject.prepare(case, &traces, cpus)?;
        if case.rules.forgets() {
            subject.moves()?;
        } else {
            subject.settle()?;
        }
        if subject.kind == Kind::Dpdk && !case.rules.forgets() {
            *configuration = tune::best(subject, stop)?;
        }
        subject.pause();
    }
    turns::measure(case, options, stop, canary, &mut subjects, cpus[0], &configurations)
}
