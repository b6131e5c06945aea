//! Figures and tables for a paper: files to `\input`.

use super::exhibits::Exhibits;
use super::figure::{self, Figure, Key};
use super::printed::Printed;
use super::summary::Summary;
use super::svg::latex_escape as escape;
use super::tables::{self, View};
use super::{Input, verdicts};
use crate::findings;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The package with the styles.
const STYLE: &str = include_str!("oxvs-lab.sty");
/// More rows than this are no table for a page.
const ROWS: usize = 60;

/// Writes `figures/NAME.tex`, `tables/NAME.tex`, the package `oxvs-lab.sty`, and `all.tex`, which
/// shows all of them; returns the path of that.
///
/// # Errors
/// As [`super::write`].
pub fn latex(dir: &Path, to: &Path) -> Result<PathBuf> {
    let input = Input::read(dir)?;
    let findings = findings::published()?;
    let printed = Printed::new(&findings)?;
    let mut files: Vec<(String, String, String)> = Vec::new();
    for scenario in &input.scenarios {
        let summary = Summary::new(scenario, &input.results.samples, &input.results.skipped);
        for (number, figure) in figure::figures(&summary, &printed) {
            let name = format!("figures/{}-{number}", plain(&scenario.id));
            files.push((name, pictures(&figure), format!("{}{}", figure.caption, figure.reading)));
        }
        for metric in &scenario.metrics {
            let view = tables::results(&summary, &printed, metric);
            if !view.rows.is_empty() && view.rows.len() <= ROWS {
                let name = format!("tables/{}-{}", plain(&scenario.id), plain(&metric.name));
                files.push((
                    name,
                    tabular(&view),
                    format!("{}: {}. {}", scenario.id, view.title, view.notes.join(" ")),
                ));
            }
        }
    }
    let exhibits = Exhibits::published()?;
    let mut own = printed.tables().clone();
    own.extend(exhibits.tables()?);
    for exhibit in &exhibits.exhibit {
        let Some(figure) = exhibit.drawn.as_ref().and_then(|drawn| figure::study(drawn, &own)) else {
            continue;
        };
        let name = format!("figures/{}-study-{}", exhibit.study, plain(&exhibit.number));
        let caption = format!(
            "Study {}, {}: {}. {}",
            exhibit.study, exhibit.number, exhibit.shows, figure.caption
        );
        files.push((name, pictures(&figure), caption));
    }
    let rows = verdicts::rows(&findings, &printed, &input.scenarios, &input.results);
    files.push(("tables/claims".into(), claims(&rows), String::new()));
    for folder in ["figures", "tables"] {
        fs::create_dir_all(to.join(folder)).with_context(|| format!("{}: cannot be made", to.display()))?;
    }
    let put = |name: &str, text: &str| {
        let path = to.join(name);
        fs::write(&path, text).with_context(|| format!("{}: cannot be written", path.display()))
    };
    put("oxvs-lab.sty", STYLE)?;
    let mut all = String::from(
        "\\documentclass{article}\n\\usepackage[margin=2cm]{geometry}\n\\usepackage{longtable,graphicx}\n\\usepackage{oxvs-lab}\n\\begin{document}\n",
    );
    for (name, text, caption) in &files {
        put(&format!("{name}.tex"), text)?;
        all.push_str(&if caption.is_empty() {
            format!("\\input{{{name}}}\n")
        } else {
            format!(
                "\\par\\noindent\\input{{{name}}}\\par\\noindent{{\\small {}\\par}}\\bigskip\n",
                escape(caption)
            )
        });
    }
    all.push_str("\\end{document}\n");
    put("all.tex", &all)?;
    Ok(to.join("all.tex"))
}

/// The legend, then the panels, as many side by side as there is room for.
fn pictures(figure: &Figure) -> String {
    let legend: Vec<String> = figure.legend.iter().map(entry).collect();
    let panels = figure.panels.iter().map(|(_, drawing)| {
        // One that is wider than the text is made smaller.
        if drawing.width > 640.0 {
            format!("\\resizebox{{\\linewidth}}{{!}}{{%\n{}}}\n", drawing.tikz())
        } else {
            drawing.tikz()
        }
    });
    format!(
        "{{\\raggedright\\footnotesize {}\\par\\smallskip\n{}\\par}}\n",
        legend.join("\\quad\n"),
        panels.collect::<Vec<_>>().join("\\hfil\n")
    )
}

fn entry(key: &Key) -> String {
    let shapes: String = key.shapes(11.0, 7.0).iter().map(super::svg::Shape::tikz).collect();
    format!(
        "\\mbox{{\\begin{{tikzpicture}}[oxvs lab, baseline=-7pt]\n{shapes}\\end{{tikzpicture}} {}}}",
        escape(&key.name)
    )
}

fn tabular(view: &View) -> String {
    let columns: String = view
        .head
        .iter()
        .map(|cell| if cell.class.contains("number") { 'r' } else { 'l' })
        .collect();
    let line = |cells: &[tables::Cell]| {
        let cells = cells.iter().map(|cell| {
            let small = if cell.small.is_empty() {
                String::new()
            } else {
                format!(" {{\\scriptsize {}}}", escape(&cell.small))
            };
            let text = escape(&cell.text);
            if cell.class.contains("best") {
                format!("\\textbf{{{text}}}{small}")
            } else {
                text + &small
            }
        });
        cells.collect::<Vec<_>>().join(" & ") + " \\\\\n"
    };
    let rows: String = view.rows.iter().map(|row| line(row)).collect();
    format!(
        "\\begin{{tabular}}{{{columns}}}\n\\toprule\n{}\\midrule\n{rows}\\bottomrule\n\\end{{tabular}}\n",
        line(&view.head)
    )
}

/// All claims with their verdicts, on several pages.
fn claims(rows: &[verdicts::Row]) -> String {
    let systems = rows.first().map_or(&[][..], |row| &row.here);
    let head: String = systems
        .iter()
        .map(|mark| format!(" & {}", escape(&mark.system)))
        .collect();
    let mut text = format!(
        "{{\\footnotesize\n\\begin{{longtable}}{{lp{{7cm}}{}}}\n\\toprule\n & claim{head} \\\\\n\\midrule\\endhead\n",
        "l".repeat(systems.len())
    );
    for row in rows {
        let marks: String = row
            .here
            .iter()
            .map(|mark| format!(" & {}", escape(mark.text)))
            .collect();
        text.push_str(&format!("{} & {}{marks} \\\\\n", escape(&row.id), escape(&row.says)));
    }
    text + "\\bottomrule\n\\end{longtable}}\n"
}

/// A name for a file that TeX reads.
fn plain(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    name.chars().map(legal).collect::<String>().replace('.', "-")
}
