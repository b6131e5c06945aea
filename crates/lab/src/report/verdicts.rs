//! Findings of the studies, judged by their printed results and by the measured ones.

use super::looks;
use super::printed::Printed;
use crate::findings::{self, Evidence, Finding, Findings, Judgement, Outcome, Verdict};
use crate::results::Results;
use crate::scenario::Scenario;
use serde::Serialize;
use std::collections::BTreeSet;

/// A finding with its verdicts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// As `S1.3`.
    pub id: String,
    /// The claim.
    pub says: String,
    /// The study's sentence.
    pub quote: String,
    /// Where the study has it.
    pub place: String,
    /// Why the study's own numbers are to be taken with care.
    pub cautions: Vec<String>,
    /// Why no table can tell, or with tables: why the study's own cannot.
    pub why: String,
    /// Names of the tables that it is judged by; none if nothing is judged.
    pub tables: Vec<String>,
    /// By the study's own table.
    pub own: Mark,
    /// By what was measured, for each system.
    pub here: Vec<Mark>,
}

/// A verdict as a page shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mark {
    /// Whose results; of the study's own: empty.
    pub system: String,
    /// `holds`, `refuted`, `undecided`, `not-testable`.
    pub class: &'static str,
    /// A sign that needs no colour.
    pub sign: &'static str,
    /// In words.
    pub text: &'static str,
    /// The numbers that decide, those against it first.
    pub evidence: Vec<Line>,
    /// How many more there are.
    pub more: usize,
    /// How far the result that decides is from what the claim allows; none: it is no ratio.
    pub effect: Option<Distance>,
}

/// A result beside what a claim allows, as ratios.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Distance {
    /// The ratio of two results, or of a result to its bound.
    pub value: f64,
    /// The ends of its interval.
    pub interval: Option<(f64, f64)>,
    /// The ends of what the claim allows.
    pub allowed: (Option<f64>, Option<f64>),
    /// In words.
    pub told: String,
}

/// A line of evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Line {
    /// `✓`, `✗`, `?` or `–`.
    pub sign: &'static str,
    /// The numbers.
    pub text: String,
}

/// Most lines of evidence that a page shows for a verdict.
const SHOWN: usize = 8;
/// All findings, judged for each system.
pub(crate) fn rows(findings: &Findings, printed: &Printed, scenarios: &[Scenario], results: &Results) -> Vec<Row> {
    let systems = looks::in_order(results.samples.iter().map(|sample| sample.system.as_str()));
    let columns = findings::judge(findings, scenarios, results, systems);
    let row = |(n, finding): (usize, &Finding)| Row {
        id: finding.id.clone(),
        says: finding.says.clone(),
        quote: finding.quote.clone(),
        place: finding.place.clone(),
        cautions: finding
            .tables()
            .filter_map(|table| findings.tables.get(table)?.caution.clone())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        why: finding.why.clone().unwrap_or_default(),
        tables: finding.tables().map(str::to_owned).collect(),
        own: mark("", finding.judge_printed(printed.tables()), &BTreeSet::new()),
        here: columns
            .iter()
            .map(|column| mark(column.system, column.judgements[n].clone(), &column.names))
            .collect(),
    };
    findings.finding.iter().enumerate().map(row).collect()
}

/// A verdict of a system's results, or without one of the study's own. `names` stand for the system
/// in the evidence.
fn mark(system: &str, judgement: Judgement, names: &BTreeSet<String>) -> Mark {
    let (class, sign, text) = match (judgement.verdict, system) {
        (Verdict::Holds, "") => ("holds", "✓", "borne out"),
        (Verdict::Holds, _) => ("holds", "✓", "holds"),
        (Verdict::Refuted, "") => ("refuted", "✗", "contradicted"),
        (Verdict::Refuted, _) => ("refuted", "✗", "refuted"),
        (Verdict::Undecided, _) => ("undecided", "?", "undecided"),
        (Verdict::NotTestable, "") => ("not-testable", "–", "no table"),
        (Verdict::NotTestable, _) => ("not-testable", "–", "not testable here"),
    };
    let title = looks::title(system).to_owned();
    let line = |evidence: &Evidence| Line {
        sign: match evidence.outcome {
            Outcome::Holds => "✓",
            Outcome::Refuted => "✗",
            Outcome::Undecided => "?",
            Outcome::Missing => "–",
        },
        text: names
            .iter()
            .fold(evidence.text.clone(), |text, name| renamed(&text, name, &title)),
    };
    Mark {
        evidence: judgement.evidence.iter().take(SHOWN).map(line).collect(),
        more: judgement.evidence.len().saturating_sub(SHOWN),
        // The evidence that decides stands first.
        effect: judgement.evidence.iter().find_map(|one| distance(one, line(one).text)),
        system: title,
        class,
        sign,
        text,
    }
}

fn distance(evidence: &Evidence, told: String) -> Option<Distance> {
    let effect = evidence.effect?;
    Some(Distance {
        value: effect.value,
        interval: effect
            .interval
            .filter(|one| one.low < one.high)
            .map(|one| (one.low, one.high)),
        allowed: (effect.at_least, effect.at_most),
        told,
    })
}

/// A text with another word in the place of a word.
fn renamed(text: &str, from: &str, to: &str) -> String {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
    let mut done = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from).filter(|_| !from.is_empty()) {
        let (before, after) = (&rest[..at], &rest[at + from.len()..]);
        let whole =
            !is_part(before.chars().next_back().or_else(|| done.chars().next_back())) && !is_part(after.chars().next());
        done.push_str(before);
        done.push_str(if whole { to } else { from });
        rest = after;
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_renamed() {
        assert_eq!(
            renamed("vm, ovs: CODEL 3, ovs-dpdk, novs", "ovs", "oxvs"),
            "vm, oxvs: CODEL 3, ovs-dpdk, novs"
        );
        assert_eq!(
            renamed("Open vSwitch: a", "Open vSwitch", "Open vSwitch, userspace"),
            "Open vSwitch, userspace: a"
        );
    }
}
