//! `oxvs lab`: the command line of the laboratory.

mod ab;
mod bench;
mod compare;
mod guest;
mod list;
mod run;
mod verdicts;

use anyhow::Context;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use telemetry::version::{CALLER, OXVS};

const EXAMPLES: &str = "\
Examples:
  oxvs lab list                                  experiments and switches that can run here
  oxvs lab run --quick                           all experiments at a few points, at most ten minutes
  oxvs lab run S0.rtt.l3 --switch oxvs --switch bridge
  oxvs lab run my.toml --full --out results      an experiment of your own, at length
  oxvs lab run --full --out results --budget 60  an hour of everything; the same command continues it
  oxvs lab run S0.rtt.l3 --remote root@far --wire eth1=eth1
                                                 the switch on another machine, the hosts on this one
  oxvs lab watch results                         the run live in a terminal
  oxvs lab report results                        a page with figures, tables and verdicts
  oxvs lab compare results-before results-after  the differences between two runs
  oxvs lab ab old/oxvs new/oxvs S0.rtt.l3        two builds in turns on the same testbeds
  oxvs lab bench                                 the datapath alone, beside Open vSwitch with DPDK
  oxvs lab clean                                 remove the remains of killed runs

A run needs root: it makes network namespaces, all named oxvs-lab-…, and removes them.";

/// Run experiments with virtual switches on this machine and compare the results with published
/// studies.
#[derive(Debug, Parser)]
#[command(name = "oxvs lab", bin_name = "oxvs lab", after_help = EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List experiments, and the switches that can be tested here
    List,
    /// Run experiments; without a name all of them
    Run(run::Run),
    /// Write the report of a run: report/index.html in its directory, and every sample as JSON and
    /// CSV beside it
    Report {
        /// A run's directory
        dir: PathBuf,
        /// Write each figure as an SVG of its own too
        #[arg(long, value_name = "DIR")]
        figures: Option<PathBuf>,
        /// Of those only this one, as `S0.rtt.l3-1` (repeat for several)
        #[arg(long = "figure", value_name = "NAME", requires = "figures")]
        only: Vec<String>,
        /// Write figures (TikZ) and tables (booktabs) for a paper too
        #[arg(long, value_name = "DIR")]
        latex: Option<PathBuf>,
    },
    /// Compare a run with one or more others: ratio, significance and size of every difference.
    /// Exit status 3 if something is worse
    Compare(compare::Compare),
    /// Run two builds of the switch in turns on the same testbeds, and compare them. Exit status 3
    /// if something is worse
    Ab(ab::Ab),
    /// Measure how fast the datapath is: packets from memory through rules to nowhere, beside Open
    /// vSwitch with DPDK
    Bench(bench::Bench),
    /// Show a run's report in a browser and update it during the run
    Serve {
        /// A run's directory
        dir: PathBuf,
        /// Port to listen on at 127.0.0.1; 0: any free port
        #[arg(long, default_value_t = 8080)]
        port: u16,
    },
    /// Show a run live in this terminal: cells done and to come, estimates, the effect so far
    Watch {
        /// A run's directory
        dir: PathBuf,
        /// Show it as it is now, and end
        #[arg(long)]
        once: bool,
    },
    /// Remove the remains of killed runs: processes, namespaces, directories
    Clean,
    /// Check the instruments: measure known rates and delays
    #[command(alias = "trust")]
    Calibrate {
        /// A run's directory, for whose report the results are kept
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Check the verdicts instead: simulate results, equal ones and ones with an effect, and
        /// count the wrong verdicts
        #[arg(long)]
        verdicts: bool,
        /// How often each is simulated
        #[arg(long, default_value_t = 10_000, requires = "verdicts", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
        runs: u32,
        /// How long the installed switch runs against itself on this machine; needs root; 0: not at
        /// all
        #[arg(long, value_name = "MINUTES", default_value_t = 3.0, requires = "verdicts")]
        budget: f64,
        /// Also say what `--full` decides with the noise that this run found: the directory of a
        /// run with several testbeds for each cell, as of `ab`
        #[arg(long, value_name = "DIR", requires = "verdicts")]
        noise: Option<PathBuf>,
    },
    /// Run a command in a virtual machine with Debian's cloud kernel, for features that this
    /// machine's kernel lacks
    Guest(guest::Guest),
    /// Sends, receives and measures in a host's namespace; started by `run`
    #[command(hide = true)]
    Agent,
    /// Loads a server of HTTP/3; started by `run`
    #[command(hide = true)]
    Http3Load(crate::traffic::http3::Load),
    /// Removes a testbed when the run that made it has ended; started by `run`
    #[command(hide = true)]
    Warden { id: String },
    /// Runs switches for `run --remote` of another machine, over its input and output
    #[command(hide = true)]
    RemoteSwitch,
    /// Delays frames in a cable's namespace; started by `run`
    #[command(hide = true)]
    Cable {
        a: String,
        b: String,
        #[command(flatten)]
        pace: crate::bed::delay::Pace,
    },
}

/// `oxvs-lab ARG…`: exit status 0 for success, 1 for a failure, 2 for wrong arguments, 3 if a
/// comparison finds something worse.
pub fn main(args: &mut dyn Iterator<Item = OsString>) -> ExitCode {
    if let Some(caller) = std::env::var_os(CALLER).filter(|caller| *caller != *OXVS) {
        let caller = caller.to_string_lossy();
        eprintln!("oxvs lab: oxvs is version {caller}, and oxvs-lab is version {OXVS}: install both from one build");
        return ExitCode::FAILURE;
    }
    let cli = match Cli::try_parse_from(std::iter::once(OsString::from("oxvs lab")).chain(args)) {
        Ok(cli) => cli,
        Err(error) => {
            // If the terminal is gone, nobody can read the error.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let done = match cli.command {
        Command::List => list::list(),
        Command::Run(run) => run.run(),
        Command::Report {
            dir,
            figures,
            only,
            latex,
        } => report(&dir, figures.as_deref(), &only, latex.as_deref()),
        Command::Compare(compare) => return told(compare.run()),
        Command::Ab(ab) => return told(ab.run()),
        Command::Bench(bench) => bench.run(),
        Command::Serve { dir, port } => crate::report::serve(&dir, port),
        Command::Watch { dir, once } => crate::report::watch(&dir, once),
        Command::Clean => clean(),
        Command::Calibrate {
            out,
            verdicts: true,
            runs,
            budget,
            noise,
        } => verdicts::run(out.as_deref(), runs, budget, noise.as_deref()),
        Command::Calibrate { out, .. } => calibrate(out.as_deref()),
        Command::Guest(guest) => return guest.run(),
        Command::Agent => crate::traffic::agent::main(std::io::stdin(), std::io::stdout()),
        Command::Http3Load(load) => crate::traffic::http3::main(&load).map(|line| mgmt::outln!("{line}")),
        Command::Warden { id } => crate::bed::warden::watch(&id),
        Command::RemoteSwitch => crate::systems::remote::main(std::io::stdin(), std::io::stdout().lock()),
        Command::Cable { a, b, pace } => crate::bed::delay::main(pace, &a, &b),
    };
    told(done.map(|()| ExitCode::SUCCESS))
}

fn told(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("oxvs lab: {error:#}");
        ExitCode::FAILURE
    })
}

fn report(dir: &Path, figures: Option<&Path>, only: &[String], latex: Option<&Path>) -> anyhow::Result<()> {
    mgmt::outln!("{}", crate::report::write(dir)?.display());
    if let Some(to) = figures {
        for path in crate::report::figures(dir, to, only)? {
            mgmt::outln!("{}", path.display());
        }
    }
    if let Some(to) = latex {
        mgmt::outln!("{}", crate::report::latex(dir, to)?.display());
    }
    Ok(())
}

fn calibrate(out: Option<&Path>) -> anyhow::Result<()> {
    let checks = crate::calibration::measure(2.0, &mut |what| eprintln!("{what} ..."))?;
    mgmt::out!("{}", crate::calibration::table(&checks));
    if let Some(dir) = out {
        let path = dir.join(crate::report::CALIBRATION);
        std::fs::write(&path, serde_json::to_string_pretty(&checks)? + "\n")
            .with_context(|| path.display().to_string())?;
    }
    match checks.iter().filter(|check| check.passed() == Some(false)).count() {
        0 => Ok(()),
        failed => anyhow::bail!("{failed} of {} checks failed", checks.len()),
    }
}

fn clean() -> anyhow::Result<()> {
    for what in crate::bed::clean()? {
        mgmt::outln!("removed {what}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn quick_and_full_exclude_each_other() {
        let parse = |args: &[&str]| Cli::try_parse_from([&["oxvs lab", "run"], args].concat());
        assert!(parse(&["--quick", "--full"]).is_err());
        assert!(parse(&["S0.rtt.l3", "--quick", "--switch", "oxvs", "--switch", "bridge"]).is_ok());
    }
}
