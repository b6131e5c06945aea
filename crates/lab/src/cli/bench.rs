//! `oxvs lab bench`.

use crate::bench::{
    Case, Distribution, FLOWS, NEW_FLOWS, Options, Rules, Size, dpdk_missing, full, heading, line, name, quick, run,
};
use crate::run::Stop;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const HELP: &str = "\
Packets from memory pass the whole switch and are freed at a sink: no device, no kernel and no host takes part. Open vSwitch
with DPDK runs beside oxvs if it is installed ('scripts/setup.sh peers' installs it). Each has turns of --seconds in each of
--rounds, while the other one is stopped, and the peer has its best cache setting. Compare ratios; absolute figures depend on
the machine and the hour.

Examples:
  oxvs lab bench                                        the usual cases: some minutes
  oxvs lab bench --rules port                           one rule, 1 to 1 M flows
  oxvs lab bench --rules acl,normal --flows 1k,1M --distribution zipf
  oxvs lab bench --rules port --flows 1k --size 60,imix --workers 1,2 --rounds 9 --seconds 2
  oxvs lab bench --full --out figures.json              everything: an hour or two

Columns: millions of packets a second and nanoseconds a packet of oxvs and the peer (all workers together); the median of the
rounds' ratios and its interval (95 %, or all rounds if there are less than six); the caches that knew the packets, cycles and
instructions a packet if the processor counts them; the peer's fastest setting. A note says if more than one packet in a hundred
was still an upcall during the measurement. With the rules 'new' every packet is an upcall, and the rate is of new connections.
A round whose memory latency differs by more than 10 % from the usual is repeated.";

/// The cases to measure.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Bench {
    /// Rule sets, separated by commas; --list shows them
    #[arg(long, value_delimiter = ',', hide_possible_values = true)]
    rules: Vec<Rules>,
    /// Number of flows, as 1, 10k, 1M [default: 1,1k,10k,100k,1M]
    #[arg(long, value_delimiter = ',', value_parser = flows)]
    flows: Vec<usize>,
    /// Bytes of a packet without FCS [default: 60]
    #[arg(long, value_delimiter = ',')]
    size: Vec<Size>,
    /// Distribution of packets over flows [default: uniform]
    #[arg(long, value_delimiter = ',')]
    distribution: Vec<Distribution>,
    /// Threads that move packets, each on a processor of its own [default: 1]
    #[arg(long, value_delimiter = ',')]
    workers: Vec<usize>,
    /// Length of a turn
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Rounds of each case; each switch has a turn in each round
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Peer to compare with oxvs [default: dpdk, if installed]
    #[arg(long)]
    peer: Option<Peer>,
    /// The usual cases (default)
    #[arg(long, conflicts_with_all = ["full", "rules", "flows", "size", "distribution", "workers"])]
    quick: bool,
    /// All rules with all numbers of flows, Zipf, sizes and two workers for some
    #[arg(long, conflicts_with_all = ["rules", "flows", "size", "distribution", "workers"])]
    full: bool,
    /// List rules and cases, and do nothing
    #[arg(long)]
    list: bool,
    /// Write every round, setting and command to this file, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    /// Open vSwitch with DPDK
    Dpdk,
    /// Nobody
    None,
}

fn flows(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(factor));
    number
        .filter(|n| (1..=1_000_000).contains(n))
        .ok_or_else(|| "a number of flows is from 1 to 1M".to_owned())
}

impl Bench {
    /// Measures and prints the results.
    ///
    /// # Errors
    /// An impossible request, a failed set-up, or no measured case.
    pub(super) fn run(&self) -> Result<()> {
        let cases = self.cases();
        if self.list {
            mgmt::out!("{}", list(&cases));
            return Ok(());
        }
        ensure!(
            self.seconds.is_finite() && (0.1..=600.0).contains(&self.seconds),
            "--seconds wants 0.1 to 600"
        );
        ensure!(self.rounds > 0, "--rounds wants one at least");
        let peer = match (self.peer, dpdk_missing()) {
            (Some(Peer::None), _) => false,
            (Some(Peer::Dpdk), Some(reason)) => bail!("{reason}"),
            (None, Some(reason)) => {
                eprintln!("oxvs alone: {reason}");
                false
            }
            (_, None) => true,
        };
        let options = Options {
            cases,
            turn: Duration::from_secs_f64(self.seconds),
            rounds: self.rounds,
            peer,
        };
        let stop = Stop::on_signals()?;
        let mut failed = 0;
        mgmt::out!("{}", heading());
        let report = run(&options, &stop, &mut |case, measured| match measured {
            Ok(measured) => mgmt::out!("{}", line(&measured)),
            Err(error) => {
                failed += 1;
                eprintln!("{case}: {error:#}");
            }
        })?;
        if let Some(path) = &self.out {
            let text = serde_json::to_string_pretty(&report)? + "\n";
            std::fs::write(path, text).with_context(|| path.display().to_string())?;
        }
        ensure!(!stop.is_requested(), "stopped");
        match failed {
            0 => Ok(()),
            failed => bail!("{failed} of {} cases could not be measured", options.cases.len()),
        }
    }

    fn cases(&self) -> Vec<Case> {
        if self.full {
            return full();
        }
        let chosen = [
            self.rules.is_empty(),
            self.flows.is_empty(),
            self.size.is_empty(),
            self.distribution.is_empty(),
            self.workers.is_empty(),
        ];
        if chosen.iter().all(|none| *none) {
            return quick();
        }
        let mut cases = Vec::new();
        for rules in or(&self.rules, &[Rules::Port]) {
            for distribution in or(&self.distribution, &[Distribution::Uniform]) {
                for size in or(&self.size, &[Size::B60]) {
                    for workers in or(&self.workers, &[1]) {
                        let usual = if rules.forgets() { &[NEW_FLOWS][..] } else { &FLOWS };
                        for flows in or(&self.flows, usual) {
                            cases.push(Case {
                                rules,
                                flows,
                                distribution,
                                size,
                                workers,
                            });
                        }
                    }
                }
            }
        }
        // Without an explicit number of flows, cases with minutes of preparation are left out.
        cases.retain(|case| !self.flows.is_empty() || case.is_usual());
        cases
    }
}

fn or<T: Copy>(asked: &[T], usual: &[T]) -> Vec<T> {
    if asked.is_empty() { usual } else { asked }.to_vec()
}

fn list(cases: &[Case]) -> String {
    let mut out = "Rules (--rules):\n".to_owned();
    for rules in Rules::ALL {
        let value = rules.to_possible_value();
        let help = value.and_then(|value| value.get_help().map(ToString::to_string));
        out += &format!("  {:<11}  {}\n", name(rules), help.unwrap_or_default());
    }
    out += "\nCases:\n";
    for case in cases {
        out += &format!("  {case}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_written_as_people_do() {
        assert_eq!(flows("10k"), Ok(10_000));
        assert_eq!(flows("1M"), Ok(1_000_000));
        assert_eq!(flows("64"), Ok(64));
        for wrong in ["", "0", "2M", "k", "-1", "1.5k"] {
            assert!(flows(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_list_has_a_line_for_every_rule_set_and_case() {
        let text = list(&quick());
        assert_eq!(text.lines().count(), 3 + Rules::ALL.len() + quick().len());
        assert!(text.contains("io           Drop every packet"), "{text}");
    }
}
