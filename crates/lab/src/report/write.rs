//! The files of a report.

use super::page::{FIGURES, Page};
use super::printed::Printed;
use super::summary::Summary;
use super::{Input, export, figure, verdicts};
use crate::findings;
use anyhow::{Context, Result, bail};
use minijinja::Environment;
use std::fs;
use std::path::{Path, PathBuf};

/// The name of the page.
pub(super) const PAGE: &str = "index.html";

/// A report as files: names, and what they hold. The page is the first.
///
/// # Errors
/// Only if the built-in templates are wrong.
pub fn render(input: &Input) -> Result<Vec<(&'static str, String)>> {
    let findings = findings::published()?;
    let printed = Printed::new(&findings)?;
    let rows = verdicts::rows(&findings, &printed, &input.scenarios, &input.results);
    let page = Page::new(input, &printed, &rows)?;
    let mut templates = Environment::new();
    templates.set_trim_blocks(true);
    templates.set_lstrip_blocks(true);
    templates.set_keep_trailing_newline(true);
    templates.add_template("report.html", include_str!("page/report.html"))?;
    let html = templates.get_template("report.html")?.render(&page)?;
    Ok(vec![
        (PAGE, html),
        ("samples.json", export::samples_json(&input.results)?),
        ("samples.csv", export::samples_csv(&input.results)?),
        ("distributions.csv", export::distributions_csv(&input.results)?),
        ("series.csv", export::series_csv(&input.results)?),
        ("losses.csv", export::losses_csv(&input.results)?),
        ("verdicts.json", serde_json::to_string_pretty(&rows)? + "\n"),
    ])
}

/// Writes a run's report to `report/` in its directory; returns the page's path.
///
/// # Errors
/// As [`Input::read`]; a file that cannot be written.
pub fn write(dir: &Path) -> Result<PathBuf> {
    let files = render(&Input::read(dir)?)?;
    let to = dir.join("report");
    fs::create_dir_all(&to).with_context(|| format!("{}: cannot be made", to.display()))?;
    for (name, text) in files {
        let path = to.join(name);
        fs::write(&path, text).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    Ok(to.join(PAGE))
}

/// Writes each figure as an SVG of its own, `SCENARIO-NUMBER.svg`, or those of them that are named
/// so; returns their paths.
///
/// # Errors
/// As [`write`]; a name that no figure has.
pub fn figures(dir: &Path, to: &Path, only: &[String]) -> Result<Vec<PathBuf>> {
    let input = Input::read(dir)?;
    let printed = Printed::new(&findings::published()?)?;
    fs::create_dir_all(to).with_context(|| format!("{}: cannot be made", to.display()))?;
    let mut paths = Vec::new();
    for scenario in &input.scenarios {
        let summary = Summary::new(scenario, &input.results.samples, &input.results.skipped);
        for (number, figure) in figure::figures(&summary, &printed) {
            let name = format!("{}-{number}", scenario.id.replace(['/', '\\'], "-"));
            if !only.is_empty() && !only.contains(&name) {
                continue;
            }
            let path = to.join(format!("{name}.svg"));
            fs::write(&path, figure.alone(FIGURES))
                .with_context(|| format!("{}: cannot be written", path.display()))?;
            paths.push(path);
        }
    }
    let written = |name: &&String| {
        paths
            .iter()
            .any(|path| path.file_stem().is_some_and(|stem| stem == name.as_str()))
    };
    if let Some(name) = only.iter().find(|name| !written(name)) {
        bail!("{}: there is no figure '{name}' in its report", dir.display());
    }
    Ok(paths)
}
