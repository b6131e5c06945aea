//! The findings of the studies, judged by the tables that the studies print.

use lab::findings::{Findings, Outcome, Verdict, published};
use lab::stats::Estimate;
use lab::table::Table;
use std::collections::BTreeMap;

fn printed() -> (Findings, BTreeMap<String, Table>) {
    let findings = published().unwrap();
    let tables = findings.printed().unwrap();
    (findings, tables)
}

#[test]
fn what_a_study_s_own_table_contradicts_comes_out_contradicted_and_nothing_else() {
    let (findings, tables) = printed();
    let mut wrong = Vec::new();
    for finding in &findings.finding {
        let judgement = finding.judge_printed(&tables);
        if (judgement.verdict == Verdict::Refuted) != finding.contradicted {
            wrong.push(format!(
                "{} {:?}: {:#?}",
                finding.id,
                judgement.verdict,
                judgement.evidence.first()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_printed_tables_decide_most_findings_and_say_of_the_rest_that_they_are_not_there() {
    let (findings, tables) = printed();
    let count = |verdict| {
        findings
            .finding
            .iter()
            .filter(|f| f.judge_printed(&tables).verdict == verdict)
            .count()
    };
    let untestable: Vec<&str> = findings
        .finding
        .iter()
        .filter(|finding| finding.judge_printed(&tables).verdict == Verdict::NotTestable)
        .map(|finding| finding.id.as_str())
        .collect();
    assert_eq!(
        untestable,
        [
            "S0.1", "S0.2", "S0.3", "S0.4", "S0.5", "S0.6", "S0.7", "S0.8", "S0.9", "S0.10", "S0.11", "S0.12", "S1.9",
            "S1.11", "S1.12", "S2.1", "S2.8", "S3.3", "S3.4", "S3.5", "S3.14", "S5.1", "S5.2", "S5.3", "S5.4", "S5.5",
            "S5.6", "S5.7", "S5.8", "S5.9", "S5.10", "S5.11", "S5.12", "S5.13", "S5.14", "S5.15", "S5.16", "S5.17",
            "S5.18", "S5.19", "S5.20",
        ]
    );
    assert!(count(Verdict::Holds) >= 18, "{}", count(Verdict::Holds));
}

#[test]
fn results_that_contradict_a_finding_turn_its_verdict() {
    let (findings, tables) = printed();
    // The same numbers the other way up, and so that what was alike is alike no more.
    let turned = |uneven: bool| -> BTreeMap<String, Table> {
        let mut tables = tables.clone();
        for table in tables.values_mut() {
            let most = table.cells.iter().map(|cell| cell.value.mean()).fold(0.0, f64::max);
            for (n, cell) in table.cells.iter_mut().enumerate() {
                let stretched = if uneven { 2f64.powi((n % 7) as i32) } else { 1.0 };
                cell.value = Estimate::Point(stretched * (1.01 * most - cell.value.mean())).into();
            }
        }
        tables
    };
    let (even, uneven) = (turned(false), turned(true));
    for finding in findings
        .finding
        .iter()
        .filter(|f| f.judge_printed(&tables).verdict == Verdict::Holds)
    {
        let judgements = [&even, &uneven].map(|tables| finding.judge_printed(tables));
        let against = judgements
            .iter()
            .find(|judgement| judgement.verdict == Verdict::Refuted);
        let against = against.unwrap_or_else(|| panic!("{} {judgements:#?}", finding.id));
        assert_eq!(
            against.evidence[0].outcome,
            Outcome::Refuted,
            "what decides stands first"
        );
    }
}

#[test]
fn a_wrong_file_is_refused_with_its_line_and_what_is_wrong() {
    let error = Findings::read("[[finding]]\nid = 'X.1'\nsays = 'so'\nchecks = [{ ratoi = {} }]\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 4") && error.contains("ratoi"), "{error}");
    let error = Findings::read("[[finding]]\nid = 'X.1'\nsays = 'so'\n")
        .unwrap_err()
        .to_string();
    assert_eq!(error, "finding X.1: it has neither checks nor a reason for having none");
    let file = "[tables.x]\nfile = 'none.csv'\nunit = ''\nkeys = []\nvalue = { mean = 'v' }\n[[finding]]\nid='X.1'\nsays=''\nwhy='x'";
    let error = Findings::read(file).unwrap().printed().unwrap_err().to_string();
    assert_eq!(error, "table 'x': there is no published file 'none.csv'");
}
