//! A comparison as JUnit's XML, for programs that run tests.

use super::{Compared, Comparison, Verdict};
use crate::report::escape;
use std::fmt::Write as _;

/// One test case a comparison; those that are worse have failed.
pub fn junit(compared: &Compared) -> String {
    let is_worse = |one: &&Comparison| one.verdict == Some(Verdict::Worse);
    let count = |all: &[&Comparison]| (all.len(), all.iter().filter(|one| is_worse(one)).count());
    let all: Vec<&Comparison> = compared.comparisons.iter().collect();
    let (tests, failures) = count(&all);
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "<testsuites name=\"oxvs lab compare\" tests=\"{tests}\" failures=\"{failures}\">"
    );
    for suite in all.chunk_by(|one, other| one.scenario == other.scenario) {
        let (tests, failures) = count(suite);
        let name = suite.first().map_or("", |one| one.scenario.as_str());
        let _ = writeln!(
            out,
            "  <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\">",
            escape(name)
        );
        for one in suite {
            let _ = write!(
                out,
                "    <testcase classname=\"{}.{}\" name=\"{}\"",
                escape(&one.scenario),
                escape(&one.system),
                escape(format!("{} {}", one.metric, one.place()).trim_end())
            );
            let _ = match is_worse(one) {
                true => writeln!(
                    out,
                    "><failure message=\"worse\">{}</failure></testcase>",
                    escape(&one.in_words())
                ),
                false => writeln!(out, "/>"),
            };
        }
        out.push_str("  </testsuite>\n");
    }
    out + "</testsuites>\n"
}
