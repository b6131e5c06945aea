//! The content of the page, for its template: what came out, then study by study, then how it was
//! measured.

mod findings;
mod method;
mod study;

use super::exhibits::Exhibits;
use super::figure::{Figure, Key};
use super::printed::Printed;
use super::studies::{OWN, STUDIES};
use super::summary::Summary;
use super::svg::Drawing;
use super::tables::{Cell, View};
use super::verdicts::Row;
use super::{Input, looks, words};
use crate::findings::FindingsError;
use crate::results::Run;
use crate::scenario::Scenario;
use findings::Claims;
use method::ExperimentView;
use serde::Serialize;
use study::{Sources, StudyView};

/// The whole page.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    title: String,
    style: &'static str,
    script: &'static str,
    sentences: Vec<String>,
    claims: Claims,
    totals: View,
    studies: Vec<StudyView>,
    coverage: View,
    calibration: Option<View>,
    rates: Option<View>,
    power: Option<View>,
    experiments: Vec<ExperimentView>,
    machine: Vec<(String, String)>,
    systems: Vec<(String, String)>,
    invocations: View,
    files: Vec<(&'static str, &'static str)>,
    version: &'static str,
}

/// A figure as it stands on the page.
#[derive(Debug, Serialize)]
struct FigureView {
    /// As `Figure 3`; of a study: empty.
    name: String,
    caption: String,
    legend: Vec<KeyView>,
    panels: Vec<Panel>,
    rest: Vec<Panel>,
    /// The experiment: its place on the page, and its name.
    experiment: Option<(String, String)>,
    /// The command that measures and draws it again.
    rerun: String,
}

#[derive(Debug, Serialize)]
struct KeyView {
    of: String,
    svg: String,
    name: String,
}

#[derive(Debug, Serialize)]
struct Panel {
    of: String,
    svg: String,
    wide: bool,
}

/// Counts figures, and knows how to run them again.
struct Numbers<'a> {
    next: usize,
    run: &'a Run,
}

/// Most panels of a figure that are not folded away.
const PANELS: usize = 8;
/// The widest panel that others stand beside.
const NARROW: f64 = 430.0;

/// Style of figures.
pub(crate) const FIGURES: &str = include_str!("../style.css");
const STYLE: &str = concat!(include_str!("../style.css"), include_str!("page.css"));
const SCRIPT: &str = include_str!("page.js");

impl Page {
    /// Of a run. `rows` are its verdicts.
    ///
    /// # Errors
    /// None, unless a file in the program is wrong.
    pub(crate) fn new(input: &Input, printed: &Printed, rows: &[Row]) -> Result<Page, FindingsError> {
        let results = &input.results;
        let exhibits = Exhibits::published()?;
        let mut tables = printed.tables().clone();
        tables.extend(exhibits.tables()?);
        let systems = looks::in_order(results.samples.iter().map(|sample| sample.system.as_str()));
        let sources = Sources {
            results,
            printed,
            exhibits: &exhibits,
            tables: &tables,
            rows,
            systems: &systems,
        };
        let mut numbers = Numbers {
            // The first is that of the claims.
            next: 2,
            run: &results.run,
        };
        let mut studies = Vec::new();
        for study in STUDIES.iter().chain([&OWN]) {
            let own = |scenario: &&Scenario| match study.id {
                "" => !STUDIES.iter().any(|study| study.id == scenario.study),
                id => scenario.study == id,
            };
            let scenarios: Vec<&Scenario> = input.scenarios.iter().filter(own).collect();
            if study.id.is_empty() && scenarios.is_empty() {
                continue;
            }
            studies.push(StudyView::new(study, &scenarios, &sources, &mut numbers));
        }
        let experiments = input
            .scenarios
            .iter()
            .map(|scenario| ExperimentView::new(scenario, results, printed, rows));
        Ok(Page {
            title: "Virtual switches, measured".into(),
            style: STYLE,
            script: SCRIPT,
            sentences: findings::sentences(rows, &systems, results, &input.scenarios),
            claims: findings::claims(rows, &systems),
            totals: findings::totals(rows, &systems),
            studies,
            coverage: method::coverage(results, &input.scenarios),
            calibration: input.calibration.as_ref().map(|checks| method::calibration(checks)),
            rates: input.rates.as_ref().map(|rates| method::wrong(rates)),
            power: input.power.as_ref().map(|power| method::decides(power)),
            experiments: experiments.collect(),
            machine: words::machines(&results.run),
            systems: results
                .run
                .systems
                .iter()
                .map(|(name, what)| (looks::title(name).to_owned(), what.clone()))
                .collect(),
            invocations: method::invocations(results),
            files: super::export::FILES.to_vec(),
            version: env!("CARGO_PKG_VERSION"),
        })
    }
}

impl FigureView {
    fn new(figure: Figure) -> FigureView {
        let panel = |(of, drawing): &(String, Drawing)| Panel {
            of: of.clone(),
            svg: drawing.inline(),
            wide: drawing.width > NARROW,
        };
        let mut panels: Vec<Panel> = figure.panels.iter().map(panel).collect();
        let rest = panels.split_off(panels.len().min(PANELS));
        FigureView {
            name: String::new(),
            caption: figure.caption,
            legend: figure.legend.iter().map(KeyView::new).collect(),
            panels,
            rest,
            experiment: None,
            rerun: String::new(),
        }
    }

    /// A study's.
    fn theirs(figure: Figure) -> FigureView {
        FigureView::new(figure)
    }

    /// Ours. `form` is its number among those of the experiment, 0: it has none.
    fn ours(figure: Figure, summary: &Summary, form: usize, numbers: &mut Numbers) -> FigureView {
        let id = &summary.scenario.id;
        let mut figure = figure;
        let guests = summary.guests();
        if !guests.is_empty() {
            let names: Vec<String> = guests.iter().map(|kind| kind.name().to_owned()).collect();
            figure
                .caption
                .push_str(&format!(" Guests run under {}.", words::list(&names)));
        }
        let view = FigureView {
            name: format!("Figure {}", numbers.next),
            experiment: Some((method::anchor(id), id.clone())),
            rerun: numbers.rerun(summary, form),
            ..FigureView::new(figure)
        };
        numbers.next += 1;
        view
    }
}

impl Numbers<'_> {
    fn rerun(&self, summary: &Summary, form: usize) -> String {
        let scenario = summary.scenario;
        let file = self
            .run
            .scenarios
            .get(&scenario.id)
            .map(|experiment| experiment.file.as_str());
        let is_built_in = crate::report::studies::STUDIES
            .iter()
            .any(|study| study.id == scenario.study);
        let name = file.filter(|_| !is_built_in).unwrap_or(&scenario.id);
        let dir = format!("again-{}", scenario.id.replace(['/', '\\'], "-"));
        let switches: Vec<String> = summary
            .systems
            .iter()
            .map(|system| format!(" --switch {system}"))
            .collect();
        let guest = if self.run.in_guest { " --in-guest" } else { "" };
        let profile = self.run.profile.name();
        let figure = match form {
            0 => String::new(),
            n => format!(
                " --figures {dir}/figures --figure {}-{n}",
                scenario.id.replace(['/', '\\'], "-")
            ),
        };
        format!(
            "oxvs lab run {name} --{profile}{guest}{} --out {dir} && oxvs lab report {dir}{figure}",
            switches.concat()
        )
    }
}

impl KeyView {
    fn new(key: &Key) -> KeyView {
        KeyView {
            of: key.of.clone(),
            svg: key.svg(),
            name: key.name.clone(),
        }
    }

    fn of_system(system: &str) -> KeyView {
        KeyView::new(&Key {
            look: looks::of_system(system),
            name: looks::title(system).to_owned(),
            of: system.to_owned(),
        })
    }
}

fn cell(class: &str, text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        class: class.into(),
        ..Cell::default()
    }
}
