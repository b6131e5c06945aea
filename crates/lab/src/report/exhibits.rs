//! Every figure and table of the studies, and what of ours stands beside it: `lab/exhibits.toml`.

use crate::findings::{Findings, FindingsError};
use crate::scenario::{Figure as Form, Scenario};
use crate::table::{Layout, Table};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Values of dimensions: any of these.
pub(crate) type Among = BTreeMap<String, Vec<String>>;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exhibits {
    /// Tables that no finding is judged by.
    tables: BTreeMap<String, Layout>,
    /// In the order of the studies.
    pub exhibit: Vec<Exhibit>,
}

/// A figure or a table of a study, or several that are nothing to measure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exhibit {
    /// As `S0`.
    pub study: String,
    /// Its number or title there.
    pub number: String,
    /// What it shows.
    pub shows: String,
    /// The findings that rest on it, the most important first.
    #[serde(default)]
    pub findings: Vec<String>,
    /// The study's printed numbers, to draw.
    pub drawn: Option<Drawn>,
    /// What the study shows instead of numbers.
    pub numbers: Option<String>,
    /// Our figures beside it.
    #[serde(default)]
    pub ours: Vec<Ours>,
    /// Why it is not on the page.
    pub absent: Option<String>,
}

/// How a study's printed table is drawn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Drawn {
    /// Its name, here or in `lab/findings.toml`.
    pub table: String,
    /// The dimension of the axis.
    pub across: String,
    /// The dimension of the series. Others are panels.
    pub series: String,
    /// A table with the same dimensions, of lost streams.
    pub lost: Option<String>,
    /// Only these values.
    #[serde(default)]
    pub at: Among,
}

/// A figure of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ours {
    /// As `S0.rtt.l3`.
    pub experiment: String,
    /// The metric, the distribution or the observation that it shows.
    pub of: String,
    /// The form, unless it is the one that the experiment's file has for it.
    pub form: Option<Shape>,
    /// The ratio of two values of a dimension is drawn.
    pub ratio: Option<Quotient>,
    /// Only these cells.
    #[serde(default)]
    pub at: Among,
}

/// See [`Ours::form`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shape {
    /// A cumulative distribution.
    Cdf,
}

/// See [`Ours::ratio`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quotient {
    /// Of the axis.
    pub title: String,
    /// The dimension.
    pub dimension: String,
    /// Its value above the line.
    pub over: String,
    /// Its value below it.
    pub under: String,
}

impl Exhibits {
    /// Those of the program.
    ///
    /// # Errors
    /// None, unless the file in the program is wrong.
    pub(crate) fn published() -> Result<Exhibits, FindingsError> {
        Ok(toml::from_str(include_str!("../../../../lab/exhibits.toml"))?)
    }

    /// The tables that no finding is judged by.
    ///
    /// # Errors
    /// As [`Findings::printed`].
    pub(crate) fn tables(&self) -> Result<BTreeMap<String, Table>, FindingsError> {
        let findings = Findings {
            tables: self.tables.clone(),
            finding: Vec::new(),
        };
        findings.printed()
    }
}

impl Ours {
    /// The figure's form; none if the experiment has no such figure.
    pub(crate) fn form(&self, scenario: &Scenario) -> Option<Form> {
        if self.form == Some(Shape::Cdf) {
            return Some(Form::Cdf {
                of: self.of.clone(),
                series: None,
                panels: Vec::new(),
            });
        }
        scenario.figures.iter().find(|form| shown(form) == self.of).cloned()
    }

    /// Whether a figure of the experiment is this one, of all its cells or of some.
    pub(crate) fn is(&self, scenario: &Scenario, form: &Form) -> bool {
        let is_cdf = matches!(form, Form::Cdf { .. });
        self.experiment == scenario.id && shown(form) == self.of && is_cdf == (self.form == Some(Shape::Cdf))
    }
}

/// What a figure shows: a metric, a distribution, an observation.
fn shown(form: &Form) -> &str {
    match form {
        Form::Lines { y, .. } | Form::Bars { y, .. } | Form::Streams { y, .. } => y,
        Form::Shares { flows, .. } => flows.first().map_or("", String::as_str),
        Form::Cdf { of, .. } | Form::Matrix { of } => of,
    }
}

/// The table of docs/lab.md: every figure and table of the studies, and where it is on the page.
///
/// # Errors
/// None, unless the file in the program is wrong.
pub fn exhibits() -> Result<String, FindingsError> {
    let mut text = String::from("| study | figure or table | shows | on the page |\n|---|---|---|---|\n");
    for exhibit in Exhibits::published()?.exhibit {
        let theirs = match (&exhibit.drawn, &exhibit.numbers) {
            (Some(_), _) => "drawn from its numbers".to_owned(),
            (None, Some(numbers)) => format!("not drawn, the study prints {numbers}"),
            (None, None) => String::new(),
        };
        let mut ours: Vec<&str> = exhibit.ours.iter().map(|ours| ours.experiment.as_str()).collect();
        ours.dedup();
        let place = match &exhibit.absent {
            Some(why) => format!("no: {why}"),
            None => format!("{theirs}; beside it {}", ours.join(", ")),
        };
        text.push_str(&format!(
            "| {} | {} | {} | {place} |\n",
            exhibit.study, exhibit.number, exhibit.shows
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Profile, built_in};

    #[test]
    fn every_exhibit_is_on_the_page_or_has_a_reason_and_names_what_exists() {
        let exhibits = Exhibits::published().unwrap();
        let findings = crate::findings::published().unwrap();
        let mut tables = findings.printed().unwrap();
        tables.extend(exhibits.tables().unwrap());
        let scenarios = built_in().unwrap();
        for exhibit in &exhibits.exhibit {
            let name = format!("{} {}", exhibit.study, exhibit.number);
            assert_eq!(exhibit.absent.is_some(), exhibit.ours.is_empty(), "{name}");
            let is_there = exhibit.drawn.is_some() || exhibit.numbers.is_some();
            assert_eq!(is_there, exhibit.absent.is_none(), "{name}");
            for id in &exhibit.findings {
                assert!(findings.finding.iter().any(|finding| finding.id == *id), "{name}: {id}");
            }
            if let Some(drawn) = &exhibit.drawn {
                let cells = &tables[&drawn.table].cells;
                assert!(
                    cells[0].at.contains_key(&drawn.across) && cells[0].at.contains_key(&drawn.series),
                    "{name}"
                );
                for (dimension, values) in &drawn.at {
                    for value in values {
                        assert!(
                            cells.iter().any(|cell| cell.at.get(dimension) == Some(value)),
                            "{name}: {value}"
                        );
                    }
                }
            }
            for ours in &exhibit.ours {
                let scenario = scenarios
                    .iter()
                    .find(|scenario| scenario.id == ours.experiment)
                    .unwrap();
                assert!(ours.form(scenario).is_some(), "{name}: {}", ours.of);
                for (dimension, values) in &ours.at {
                    let known = scenario.varied.iter().find(|known| known.name == *dimension).unwrap();
                    for value in values {
                        assert!(
                            known.values(Profile::Full).contains(value),
                            "{name}: {dimension} {value}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_finding_of_a_study_rests_on_an_exhibit() {
        let exhibits = Exhibits::published().unwrap();
        let rests = |id: &String| exhibits.exhibit.iter().any(|exhibit| exhibit.findings.contains(id));
        let all = crate::findings::published().unwrap().finding;
        let loose: Vec<String> = all
            .into_iter()
            .map(|finding| finding.id)
            .filter(|id| !id.starts_with("S5.") && !rests(id))
            .collect();
        assert_eq!(loose, Vec::<String>::new());
    }
}
