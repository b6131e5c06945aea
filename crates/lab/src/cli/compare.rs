//! `oxvs lab compare`.

use crate::compare::{Compared, Comparison, LEVEL, Size, Verdict, compare};
use crate::results::load;
use anyhow::{Result, ensure};
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;

/// Two runs.
#[derive(Args, Debug)]
pub(super) struct Compare {
    /// A run's directory, the reference
    a: PathBuf,
    /// A run's directory, compared with it
    b: PathBuf,
    /// Show every comparison, not only those that differ
    #[arg(long)]
    all: bool,
    /// Print JSON: every comparison
    #[arg(long)]
    json: bool,
}

impl Compare {
    /// Compares, and prints.
    ///
    /// # Errors
    /// One of them is no run, or they have nothing in common.
    pub(super) fn run(&self) -> Result<()> {
        let compared = compare(&load(&self.a)?, &load(&self.b)?);
        if self.json {
            mgmt::outln!("{}", serde_json::to_string_pretty(&compared)?);
            return Ok(());
        }
        mgmt::out!("{}", table(&compared, self.all));
        ensure!(!compared.comparisons.is_empty(), "the two runs have nothing in common");
        Ok(())
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
        "first",
        "second",
        "second/first (95 %)",
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
    out + &format!(
        "{different} of {n} comparisons differ (Welch's test, Holm's correction for {n} comparisons, level {LEVEL})\n"
    )
}

fn row(one: &Comparison) -> [String; 10] {
    let values: Vec<String> = one.at.iter().map(|(key, value)| format!("{key} {value}")).collect();
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
        values.join(", "),
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
            different: true,
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
