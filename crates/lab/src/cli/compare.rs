//! `oxvs lab compare`.

use crate::compare::{Compared, Comparison, Criterion, Size, Verdict, compare, inconclusive, junit};
use crate::results::{Results, load};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Quick runs of one build differ from each other, some metrics by factors. Beside one run as the reference, only what stands out among
all cells is told. Three or more of them tell how much each metric varies, so that less differs wrongly and more is found.
Exit status 3: the last run is worse in some cell by more than --threshold.

Examples:
  oxvs lab compare before after
  oxvs lab compare before-1 before-2 before-3 before-4 after --threshold 10 --junit junit.xml";

/// The runs.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Compare {
    /// Directories of runs of one build, the reference
    #[arg(required = true, value_name = "REFERENCE")]
    reference: Vec<PathBuf>,
    /// A run's directory, compared with them
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    gate: Gate,
}

/// What counts, and how it is told.
#[derive(Args, Debug)]
pub(super) struct Gate {
    /// Differences up to so many percent are none
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    threshold: f64,
    /// Show every comparison, not only those that differ
    #[arg(long)]
    all: bool,
    /// Print JSON: every comparison
    #[arg(long)]
    json: bool,
    /// Write a report for JUnit to this file: what is worse has failed
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// The slowdown that must not be overlooked, as a factor.
pub(super) const MUCH: f64 = 3.0;

/// Exit status if something is worse.
const WORSE: u8 = 3;

impl Compare {
    /// Compares, prints, and says by its exit status whether something is worse.
    ///
    /// # Errors
    /// One of them is no run, one of several is there twice, or they have nothing in common.
    pub(super) fn run(&self) -> Result<ExitCode> {
        self.gate.check()?;
        let reference: Vec<Results> = self.reference.iter().map(|path| load(path)).collect::<Result<_>>()?;
        let run = load(&self.run)?;
        if reference.len() > 1 {
            self.check_that_runs_differ(&reference, &run)?;
        }
        let criterion = Criterion::once(self.gate.threshold());
        let compared = compare(&reference, &run, criterion);
        let open = inconclusive(&compared, MUCH).count();
        if open > 0 {
            eprintln!(
                "by {open} comparisons the run may be {MUCH} times worse, though it is not called worse; 'oxvs lab ab' repeats such cells"
            );
        }
        self.gate.tell(&compared)
    }

    /// Equal runs would tell that nothing varies.
    fn check_that_runs_differ(&self, reference: &[Results], run: &Results) -> Result<()> {
        let named: Vec<(&PathBuf, &Results)> = self.reference.iter().zip(reference).chain([(&self.run, run)]).collect();
        for (number, (path, run)) in named.iter().enumerate() {
            let same = named[..number].iter().find(|(_, before)| before.samples == run.samples);
            if let Some((before, _)) = same {
                bail!(
                    "{} has the same samples as {}: each run must be another",
                    path.display(),
                    before.display()
                );
            }
        }
        Ok(())
    }
}

impl Gate {
    /// Whether its options make sense.
    ///
    /// # Errors
    /// They do not.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(
            (0.0..=1000.0).contains(&self.threshold),
            "--threshold wants percent, 0 to 1000"
        );
        Ok(())
    }

    /// The factor beyond which a difference is one, less 1.
    pub(super) fn threshold(&self) -> f64 {
        self.threshold / 100.0
    }

    /// Prints, and says by its exit status whether something is worse.
    ///
    /// # Errors
    /// The runs have nothing in common; the report cannot be written.
    pub(super) fn tell(&self, compared: &Compared) -> Result<ExitCode> {
        if let Some(path) = &self.junit {
            std::fs::write(path, junit(compared)).with_context(|| path.display().to_string())?;
        }
        if self.json {
            mgmt::outln!("{}", serde_json::to_string_pretty(compared)?);
        } else {
            mgmt::out!("{}", table(compared, self.all));
        }
        ensure!(!compared.comparisons.is_empty(), "the runs have nothing in common");
        let is_worse = |one: &Comparison| one.verdict == Some(Verdict::Worse);
        Ok(if compared.comparisons.iter().any(is_worse) {
            ExitCode::from(WORSE)
        } else {
            ExitCode::SUCCESS
        })
    }
}

fn table(compared: &Compared, all: bool) -> String {
    let mut out = String::new();
    for remark in &compared.remarks {
        out += &format!("note: {remark}\n");
    }
    let shown: Vec<&Comparison> = compared.comparisons.iter().filter(|one| all || one.different).collect();
    let header = [
        "experiment",
        "switch",
        "cell",
        "metric",
        "reference",
        "run",
        "run/reference (95 %)",
        "p",
        "size",
        "",
    ]
    .map(str::to_owned);
    let rows: Vec<[String; 10]> = shown.iter().map(|one| row(one)).collect();
    if !rows.is_empty() {
        let widths: Vec<usize> = (0..header.len())
            .map(|column| {
                rows.iter()
                    .chain([&header])
                    .map(|row| row[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for row in [&header].into_iter().chain(&rows) {
            let line: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(text, width)| format!("{text:width$}"))
                .collect();
            // Writing to a string does not fail.
            let _ = writeln!(out, "{}", line.join("  ").trim_end());
        }
        out += "\n";
    }
    let different = compared.comparisons.iter().filter(|one| one.different).count();
    let n = compared.comparisons.len();
    let untold = compared.comparisons.iter().filter(|one| one.ratio.is_none()).count();
    out + &format!(
        "{different} of {n} comparisons differ ({untold} cannot be told apart from chance: too few repetitions, or a 0; Holm's correction for {n} comparisons, level {})\n",
        compared.level
    )
}

fn row(one: &Comparison) -> [String; 10] {
    let ratio = one.ratio.map_or("-".to_owned(), |[value, low, high]| {
        format!("{value:.3} ({low:.3} to {high:.3})")
    });
    let size = match one.size {
        Size::Negligible => "negligible",
        Size::Small => "small",
        Size::Medium => "medium",
        Size::Large => "large",
    };
    let verdict = match one.verdict {
        Some(Verdict::Better) => "better",
        Some(Verdict::Worse) => "worse",
        None if one.different => "different",
        None => "",
    };
    [
        one.scenario.clone(),
        one.system.clone(),
        one.place(),
        one.metric.clone(),
        format!("{} {}", number(one.a.mean), one.unit),
        format!("{} {}", number(one.b.mean), one.unit),
        ratio,
        if one.corrected < 0.001 {
            "< 0.001".to_owned()
        } else {
            format!("{:.3}", one.corrected)
        },
        size.to_owned(),
        verdict.to_owned(),
    ]
}

/// With four digits or so.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Summary;

    #[test]
    fn the_table_shows_what_differs_and_how_much_was_compared() {
        let summary = |mean| Summary {
            n: 5,
            mean,
            deviation: 1.0,
        };
        let one = Comparison {
            scenario: "S0.rtt.l3".to_owned(),
            system: "oxvs".to_owned(),
            at: [("speed".to_owned(), "100".to_owned())].into(),
            metric: "probe.rtt".to_owned(),
            unit: "µs".to_owned(),
            a: summary(100.0),
            b: summary(110.0),
            ratio: Some([1.1, 1.05, 1.15]),
            p: 1e-6,
            corrected: 2e-6,
            delta: 1.0,
            size: Size::Large,
            worst: Some(1.2),
            different: true,
            better: None,
            verdict: Some(Verdict::Worse),
        };
        let same = Comparison {
            system: "bridge".to_owned(),
            different: false,
            verdict: None,
            ..one.clone()
        };
        let compared = Compared {
            comparisons: vec![one, same],
            remarks: vec!["one run is quick".to_owned()],
            level: 0.05,
        };
        let text = table(&compared, false);
        assert!(
            text.contains("note: one run is quick") && text.contains("1.100 (1.050 to 1.150)  < 0.001  large  worse"),
            "{text}"
        );
        assert!(
            text.contains("1 of 2 comparisons differ") && !text.contains("bridge"),
            "{text}"
        );
        assert!(table(&compared, true).contains("bridge"));
    }
}
