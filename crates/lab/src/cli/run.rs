//! `oxvs lab run`.

use crate::bed::Tag;
use crate::guest;
use crate::results;
use crate::run::{End, Options, Outcome, Repeat, Stop, decisions, reasons, run, span};
use crate::scenario::{Profile, Scenario, built_in, find};
use crate::systems::remote;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The scenarios, the duration and the output directory.
#[derive(Args, Debug)]
#[command(
    after_help = "An interrupted run, or one whose budget is spent, continues when it is started again with the same --out."
)]
pub(super) struct Run {
    /// Names of experiments (`S0.rtt.l3`; `S0` and `S0.rtt` mean all with this prefix), or your own
    /// files
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Two values of every dimension for a short time, on oxvs and one peer (default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Every point, with the durations and repetitions of the study: many hours
    #[arg(long)]
    full: bool,
    /// A switch to test (repeat for several); `oxvs lab list` names them
    #[arg(long = "switch", value_name = "NAME")]
    switches: Vec<String>,
    /// Directory for the results; an existing run is continued [default: lab-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Stop before a repetition that would end after this time
    #[arg(long, value_name = "MINUTES")]
    budget: Option<f64>,
    /// Repeat the experiments whose verdicts are undecided, twice as often each time, until all are
    /// decided that the chosen points can decide; each repetition has a testbed of its own
    #[arg(long, requires = "budget")]
    until_decided: bool,
    /// Run in a virtual machine, with all that Debian's kernel has
    #[arg(long)]
    in_guest: bool,
    /// Run the switches on another machine, reached by ssh as root and without a password; the
    /// hosts stay on this one. It needs the same build of oxvs
    #[arg(long, value_name = "HOST", requires = "wire", conflicts_with_all = ["in_guest", "inside"])]
    remote: Option<String>,
    /// The network devices that join the two machines, here and there
    #[arg(long, value_name = "HERE=THERE", requires = "remote", value_parser = remote::Options::wire)]
    wire: Option<(String, String)>,
    /// What tells the cables apart on the wire
    #[arg(long, value_enum, default_value_t, requires = "remote")]
    tag: Tag,
    /// The program on the other machine
    #[arg(long, value_name = "PATH", default_value = "oxvs", requires = "remote")]
    remote_program: String,
    /// What is started in place of ssh, with its options
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "remote")]
    ssh: String,
    /// This is the virtual machine; said by `--in-guest`
    #[arg(long, hide = true)]
    inside: bool,
}

/// Largest file of a scenario, in bytes.
const LARGEST: u64 = 1 << 20;

impl Run {
    /// Runs and prints the progress.
    ///
    /// # Errors
    /// An unknown scenario or switch, a failed set-up, or a failure during the run.
    pub(super) fn run(&self) -> Result<()> {
        ensure!(
            self.budget.is_none_or(|minutes| minutes.is_finite() && minutes > 0.0),
            "--budget wants minutes, more than 0"
        );
        if self.in_guest {
            return self.in_guest();
        }
        let scenarios = scenarios(&self.scenarios)?;
        let out = self.out.clone().unwrap_or_else(fresh_name);
        ensure!(
            rustix::process::geteuid().is_root(),
            "a run needs root: it makes network namespaces and devices"
        );
        let stop = Stop::on_signals()?;
        let options = Options {
            scenarios,
            switches: self.switches.clone(),
            profile: if self.full { Profile::Full } else { Profile::Quick },
            out: out.clone(),
            budget: self.budget.map(|minutes| minutes * 60.0),
            repeat: if self.until_decided {
                Repeat::Undecided
            } else {
                Repeat::No
            },
            in_guest: self.inside,
            remote: self.remote(),
        };
        let outcome = run(&options, &stop)?;
        self.tell(&options, &outcome)
    }

    fn remote(&self) -> Option<remote::Options> {
        let (here, there) = self.wire.clone()?;
        Some(remote::Options {
            host: self.remote.clone()?,
            program: self.remote_program.clone(),
            ssh: self.ssh.clone(),
            here,
            there,
            tag: self.tag,
        })
    }

    /// The same in virtual machines, which needs neither root nor features of this machine's
    /// kernel.
    fn in_guest(&self) -> Result<()> {
        // Reports their errors before the guest boots.
        scenarios(&self.scenarios)?;
        let out = self.out.clone().unwrap_or_else(fresh_name);
        let mut args = self.scenarios.clone();
        args.push(if self.full { "--full" } else { "--quick" }.to_owned());
        args.extend(
            self.switches
                .iter()
                .flat_map(|name| ["--switch".to_owned(), name.clone()]),
        );
        if self.until_decided {
            args.push("--until-decided".to_owned());
        }
        args.push("--inside".to_owned());
        let complete = |dir: &Path| {
            let invocations = results::load(dir)
                .map(|results| results.run.invocations)
                .unwrap_or_default();
            invocations
                .last()
                .is_some_and(|last| last.end.as_deref() == Some("complete"))
        };
        guest::run(&args, &out, self.budget, complete, &mut mgmt::out::Stdout)?;
        mgmt::outln!(
            "results are in {0}; 'oxvs lab report {0}' writes the report",
            out.display()
        );
        Ok(())
    }

    fn tell(&self, options: &Options, outcome: &Outcome) -> Result<()> {
        let dir = options.out.display();
        let results = results::load(&options.out)?;
        for (who, reason) in reasons(&results.skipped) {
            mgmt::outln!("left out: {who}: {reason}");
        }
        ensure!(
            outcome.wanted > 0,
            "nothing of this can be run here, for the reasons above"
        );
        let seconds: f64 = results.run.invocations.iter().filter_map(|one| one.seconds).sum();
        let share = 100.0 * outcome.samples as f64 / outcome.wanted.max(1) as f64;
        mgmt::outln!(
            "{} of {} samples ({share:.0} %) in {}",
            outcome.samples,
            outcome.wanted,
            span(seconds)
        );
        if outcome.void > 0 {
            mgmt::outln!(
                "{} samples do not count; the same command with --out {dir} takes them again",
                outcome.void
            );
        }
        if self.until_decided {
            mgmt::outln!("{}", decisions(&options.scenarios, &results)?);
        }
        match outcome.end {
            End::Complete => mgmt::outln!("complete; 'oxvs lab report {dir}' writes the report"),
            End::Budget => mgmt::outln!("the budget is spent; the same command with --out {dir} continues"),
            End::Interrupted => bail!("interrupted; the same command with --out {dir} continues"),
        }
        ensure!(
            outcome.failed == 0,
            "{} repetitions failed; 'oxvs lab run … --out {dir}' tries them again",
            outcome.failed
        );
        Ok(())
    }
}

/// The scenarios named on the command line: files and built-in experiments; without names all
/// built-in ones.
pub(super) fn scenarios(words: &[String]) -> Result<Vec<Scenario>> {
    let known = built_in()?;
    if words.is_empty() {
        return Ok(known);
    }
    let mut chosen: Vec<Scenario> = Vec::new();
    for word in words {
        let path = Path::new(word);
        let found: Vec<Scenario> =
            if path.extension().is_some_and(|extension| extension == "toml") || word.contains('/') {
                vec![read(path)?]
            } else {
                find(&known, word).into_iter().cloned().collect()
            };
        ensure!(
            !found.is_empty(),
            "there is no experiment '{word}'; 'oxvs lab list' names them"
        );
        for scenario in found {
            match chosen.iter().find(|other| other.id == scenario.id) {
                None => chosen.push(scenario),
                Some(other) if other.source == scenario.source => {}
                Some(other) => bail!("'{}' and '{}' both describe {}", other.file, scenario.file, scenario.id),
            }
        }
    }
    Ok(chosen)
}

fn read(path: &Path) -> Result<Scenario> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    ensure!(file.metadata()?.is_file(), "{}: is not a file", path.display());
    let mut text = String::new();
    file.take(LARGEST + 1)
        .read_to_string(&mut text)
        .with_context(|| path.display().to_string())?;
    ensure!(
        text.len() as u64 <= LARGEST,
        "{}: is too large for a scenario",
        path.display()
    );
    Ok(Scenario::parse(&path.display().to_string(), &text)?)
}

/// A name that sorts by time, in UTC.
pub(super) fn fresh_name() -> PathBuf {
    telemetry::timestamp("lab-%Y-%m-%d-%H%M%S").into()
}
