//! A study's part of the page: its figures and tables with ours beside them, and the claims that
//! rest on them.

use super::method::anchor;
use super::{FigureView, Numbers};
use crate::report::exhibits::{Exhibit, Exhibits, Ours};
use crate::report::figure::{self, figures};
use crate::report::looks;
use crate::report::printed::Printed;
use crate::report::studies::Study;
use crate::report::summary::Summary;
use crate::report::tables::{self, View};
use crate::report::verdicts::{Mark, Row};
use crate::results::Results;
use crate::scenario::{Figure as Form, Scenario};
use crate::table::Table;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A study.
#[derive(Debug, Serialize)]
pub(super) struct StudyView {
    id: &'static str,
    anchor: String,
    title: &'static str,
    about: &'static str,
    exhibits: Vec<ExhibitView>,
    /// Claims that rest on no figure and no table.
    findings: Vec<FindingView>,
    /// Figures that stand beside none of the study.
    also: Vec<FigureView>,
    /// Figures and tables that are not on the page.
    absent: Vec<(String, String, String)>,
    /// Its experiments: the place on the page, and the name.
    experiments: Vec<(String, String)>,
}

#[derive(Debug, Serialize)]
struct ExhibitView {
    anchor: String,
    number: String,
    shows: String,
    /// Claims that are told of here.
    findings: Vec<FindingView>,
    /// Claims that are told of elsewhere.
    others: Vec<String>,
    /// The study's figure.
    theirs: Option<FigureView>,
    /// What the study shows instead of numbers.
    numbers: String,
    ours: Vec<FigureView>,
    matrices: Vec<View>,
    /// Why there is nothing of ours.
    nothing: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FindingView {
    #[serde(flatten)]
    row: Row,
    /// The study's own, then those of the systems.
    all: Vec<MarkView>,
}

#[derive(Debug, Serialize)]
struct MarkView {
    #[serde(flatten)]
    mark: Mark,
    /// The switch; empty: the study's own.
    of: String,
}

/// What all studies' parts are made of.
pub(super) struct Sources<'a> {
    pub(super) results: &'a Results,
    pub(super) printed: &'a Printed,
    pub(super) exhibits: &'a Exhibits,
    pub(super) tables: &'a BTreeMap<String, Table>,
    pub(super) rows: &'a [Row],
    pub(super) systems: &'a [&'a str],
}

impl StudyView {
    /// `scenarios` are the study's own experiments.
    pub(super) fn new(
        study: &'static Study,
        scenarios: &[&Scenario],
        sources: &Sources,
        numbers: &mut Numbers,
    ) -> StudyView {
        let prefix = format!("{}.", study.id);
        let mut told: BTreeSet<&str> = BTreeSet::new();
        let own: Vec<&Exhibit> = sources
            .exhibits
            .exhibit
            .iter()
            .filter(|e| e.study == study.id)
            .collect();
        let summaries: Vec<Summary> = scenarios
            .iter()
            .map(|scenario| Summary::new(scenario, &sources.results.samples, &sources.results.skipped))
            .collect();
        let exhibits: Vec<ExhibitView> = own
            .iter()
            .filter(|exhibit| exhibit.absent.is_none())
            .map(|exhibit| ExhibitView::new(exhibit, &summaries, sources, &mut told, numbers))
            .collect();
        let shown: Vec<&Ours> = own.iter().flat_map(|exhibit| &exhibit.ours).collect();
        let mut also = Vec::new();
        for summary in &summaries {
            for (form, figure) in figures(summary, sources.printed) {
                let is_shown = |form: &Form| shown.iter().any(|ours| ours.is(summary.scenario, form));
                if !is_shown(&summary.scenario.figures[form - 1]) {
                    let view = FigureView::ours(figure, summary, form, numbers);
                    also.push(view);
                }
            }
        }
        let rest = sources
            .rows
            .iter()
            .filter(|row| row.id.starts_with(&prefix) && !told.contains(row.id.as_str()));
        let absent = own.iter().filter_map(|exhibit| {
            let why = exhibit.absent.clone()?;
            Some((exhibit.number.clone(), exhibit.shows.clone(), why))
        });
        StudyView {
            id: study.id,
            anchor: if study.id.is_empty() {
                "own".into()
            } else {
                study.id.to_lowercase()
            },
            title: study.title,
            about: study.about,
            findings: rest.map(|row| FindingView::new(row, sources.systems)).collect(),
            exhibits,
            also,
            absent: absent.collect(),
            experiments: scenarios.iter().map(|s| (anchor(&s.id), s.id.clone())).collect(),
        }
    }
}

impl ExhibitView {
    fn new<'a>(
        exhibit: &'a Exhibit,
        summaries: &[Summary],
        sources: &Sources,
        told: &mut BTreeSet<&'a str>,
        numbers: &mut Numbers,
    ) -> ExhibitView {
        let (mut findings, mut others) = (Vec::new(), Vec::new());
        for id in &exhibit.findings {
            let Some(row) = sources.rows.iter().find(|row| row.id == *id) else {
                continue;
            };
            if told.insert(id) {
                findings.push(FindingView::new(row, sources.systems));
            } else {
                others.push(id.clone());
            }
        }
        let theirs = exhibit
            .drawn
            .as_ref()
            .and_then(|drawn| figure::study(drawn, sources.tables));
        let (mut ours, mut matrices, mut nothing) = (Vec::new(), Vec::new(), Vec::new());
        for wanted in &exhibit.ours {
            let Some(summary) = summaries
                .iter()
                .find(|summary| summary.scenario.id == wanted.experiment)
            else {
                continue;
            };
            if let Some(Form::Matrix { .. }) = wanted.form(summary.scenario) {
                matrices.extend(tables::matrices(summary));
            }
            match figure::beside_exhibit(summary, sources.printed, wanted) {
                Some(figure) => {
                    let forms = &summary.scenario.figures;
                    let form = forms.iter().position(|form| wanted.is(summary.scenario, form));
                    let shown = summary.only(&wanted.at);
                    ours.push(FigureView::ours(
                        figure,
                        &shown,
                        form.map_or(0, |form| form + 1),
                        numbers,
                    ));
                }
                None if matrices.is_empty() => nothing.push(why_nothing(summary, wanted)),
                None => {}
            }
        }
        let id = format!("{}-{}", exhibit.study, exhibit.number);
        let legal = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        };
        ExhibitView {
            anchor: id.chars().map(legal).collect(),
            number: exhibit.number.clone(),
            shows: exhibit.shows.clone(),
            findings,
            others,
            theirs: theirs.map(FigureView::theirs),
            numbers: exhibit.numbers.clone().unwrap_or_default(),
            ours,
            matrices,
            nothing,
        }
    }
}

/// Why there is no figure of ours.
fn why_nothing(summary: &Summary, wanted: &Ours) -> String {
    let reasons: BTreeSet<String> = summary
        .skipped
        .iter()
        .map(|skipped| {
            let who = if skipped.system.is_empty() {
                "all switches"
            } else {
                looks::title(&skipped.system)
            };
            format!("{who}: {}", skipped.reason)
        })
        .collect();
    let values: Vec<String> = wanted.at.values().map(|values| values.join(" or ")).collect();
    if !summary.systems.is_empty() {
        return format!(
            "{} has samples, but none of {} with these values ({}).",
            wanted.experiment,
            wanted.of,
            values.join(", ")
        );
    }
    match reasons.len() {
        0 => format!("{} was not run.", wanted.experiment),
        _ => format!(
            "{} was not run: {}.",
            wanted.experiment,
            reasons.into_iter().collect::<Vec<_>>().join("; ")
        ),
    }
}

impl FindingView {
    fn new(row: &Row, systems: &[&str]) -> FindingView {
        let own = MarkView {
            mark: row.own.clone(),
            of: String::new(),
        };
        let here = row.here.iter().zip(systems).map(|(mark, system)| MarkView {
            mark: mark.clone(),
            of: (*system).to_owned(),
        });
        FindingView {
            all: std::iter::once(own).chain(here).collect(),
            row: row.clone(),
        }
    }
}
