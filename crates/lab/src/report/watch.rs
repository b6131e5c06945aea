//! A run, live in a terminal: cells done and to come, estimates, the effect so far.

use super::summary::Summary;
use super::svg::number;
use super::{Input, looks};
use crate::results::Results;
use crate::run::span;
use crate::scenario::{Metric, Scenario};
use crate::stats::Series;
use anyhow::Result;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How often a terminal is drawn.
const EVERY: Duration = Duration::from_secs(1);
/// Width without a terminal.
const WIDTH: usize = 120;
/// Most characters for the cells of an experiment.
const CELLS: usize = 30;
/// Most characters of a switch's name.
const NAME: usize = 20;

/// Shows a run until it ends. Without a terminal, or with `once`, shows it as it is now.
///
/// # Errors
/// The directory holds no run, or a file in it is damaged.
pub fn watch(dir: &Path, once: bool) -> Result<()> {
    let once = once || !std::io::stdout().is_terminal();
    loop {
        let input = Input::read(dir)?;
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let (width, height) = if once { (WIDTH, usize::MAX) } else { size() };
        let lines = frame(&input, now, width);
        if once {
            mgmt::out!("{}", lines.join("\n") + "\n");
            return Ok(());
        }
        let ended = input
            .results
            .run
            .invocations
            .last()
            .is_some_and(|last| last.end.is_some());
        let shown = if ended { lines } else { newest(lines, height) };
        // Home, each line up to its end, and away with what is left below.
        let text: String = shown.iter().map(|line| format!("{line}\x1b[K\r\n")).collect();
        let mut out = std::io::stdout().lock();
        write!(out, "\x1b[H{text}\x1b[J")?;
        out.flush()?;
        if ended {
            return Ok(());
        }
        drop(out);
        std::thread::sleep(EVERY);
    }
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    let (rows, columns) = console::Term::stdout().size();
    (usize::from(columns).max(40), usize::from(rows).max(5))
}

/// As many lines as there is room for: the heading, and the experiments that are measured last.
fn newest(lines: Vec<String>, height: usize) -> Vec<String> {
    let room = height.saturating_sub(1);
    if lines.len() <= room {
        return lines;
    }
    let (head, rest) = lines.split_at(2);
    let left_out = rest.len() + 3 - room.min(rest.len() + 2);
    let note = format!("({left_out} lines above are not shown: the terminal is too low)");
    [head, &[note], &rest[left_out.min(rest.len())..]].concat()
}

/// The lines to show at a moment, in seconds since 1970: what is to come first, what was measured
/// last at the end.
pub fn frame(input: &Input, now: f64, width: usize) -> Vec<String> {
    let results = &input.results;
    let mut lines = vec![heading(results, now), String::new()];
    let last = |scenario: &Scenario| {
        let own = results.samples.iter().filter(|sample| sample.scenario == scenario.id);
        own.map(|sample| sample.started).fold(0.0, f64::max)
    };
    let chosen = |scenario: &&Scenario| results.run.scenarios.contains_key(&scenario.id);
    let (mut begun, to_come): (Vec<&Scenario>, Vec<&Scenario>) = input
        .scenarios
        .iter()
        .filter(chosen)
        .partition(|scenario| last(scenario) > 0.0);
    begun.sort_by(|a, b| last(a).total_cmp(&last(b)));
    if !to_come.is_empty() {
        let names: Vec<&str> = to_come.iter().map(|scenario| scenario.id.as_str()).collect();
        lines.push(format!("To come: {}", names.join(", ")));
        lines.push(String::new());
    }
    for scenario in begun {
        lines.extend(experiment(scenario, results));
        lines.push(String::new());
    }
    lines.into_iter().map(|line| cut(line, width)).collect()
}

fn heading(results: &Results, now: f64) -> String {
    let run = &results.run;
    let wanted: u64 = run
        .scenarios
        .values()
        .flat_map(|experiment| experiment.chosen.values())
        .sum();
    let done = results.samples.len() as u64;
    let Some(last) = run.invocations.last() else {
        return format!("{} profile: {done} samples", run.profile.name());
    };
    let elapsed = (now - last.began).max(0.0);
    let fresh = results
        .samples
        .iter()
        .filter(|sample| sample.started >= last.began)
        .count();
    let state = match (&last.end, fresh) {
        (Some(end), _) => format!("ended: {end}, after {}", span(last.seconds.unwrap_or_default())),
        (None, n) if n > 0 && wanted > done => {
            let left = elapsed / n as f64 * (wanted - done) as f64;
            format!("for {}, about {} left", span(elapsed), span(left))
        }
        (None, _) => format!("for {}", span(elapsed)),
    };
    let of = if wanted > 0 {
        format!(" of {wanted}")
    } else {
        String::new()
    };
    format!("{} profile: {done}{of} samples, {state}", run.profile.name())
}

fn experiment(scenario: &Scenario, results: &Results) -> Vec<String> {
    let summary = Summary::new(scenario, &results.samples, &results.skipped);
    let has = |metric: &&Metric| {
        summary
            .all()
            .any(|(_, sample)| sample.metrics.contains_key(&metric.name))
    };
    let metric = scenario.metrics.iter().find(has);
    let title = metric.map_or_else(String::new, |metric| match metric.unit.as_str() {
        "" => metric.title.clone(),
        unit => format!("{} ({unit})", metric.title),
    });
    let mut lines = vec![format!("{}  {title}", scenario.id)];
    let chosen = results
        .run
        .scenarios
        .get(&scenario.id)
        .map(|experiment| &experiment.chosen);
    let chosen = chosen.into_iter().flat_map(|chosen| chosen.keys().map(String::as_str));
    let systems = looks::in_order(summary.systems.iter().copied().chain(chosen));
    for system in &systems {
        let name: String = looks::title(system).chars().take(NAME).collect();
        let cells = scenario.cells(results.run.profile).iter().map(|cell| {
            let place = summary.cells.iter().position(|at| *at == cell.at);
            let done = place.map_or(0, |place| summary.samples(system, place).len());
            let is_skipped = summary.skipped.iter().any(|skipped| {
                skipped.system == *system && skipped.at.iter().all(|(name, value)| cell.at.get(name) == Some(value))
            });
            (done, is_skipped)
        });
        let cells: Vec<(usize, bool)> = cells.collect();
        let done: usize = cells.iter().map(|(done, _)| done).sum();
        let each = scenario.pace(results.run.profile).repetitions as usize;
        let wanted = cells.iter().filter(|(_, is_skipped)| !is_skipped).count() * each;
        let result = metric.map_or_else(String::new, |metric| result(&summary, metric, &systems, system));
        lines.push(format!(
            "  {name:NAME$}  {}  {done:>4}/{wanted:<4}  {result}",
            bar(&cells, each)
        ));
    }
    lines
}

/// A character for each cell, or for several: done, begun, not run, to come.
fn bar(cells: &[(usize, bool)], each: usize) -> String {
    let step = cells.len().div_ceil(CELLS).max(1);
    let sign = |cells: &[(usize, bool)]| match cells {
        cells if cells.iter().all(|(done, _)| *done >= each) => '█',
        cells if cells.iter().any(|(done, _)| *done > 0) => '▒',
        cells if cells.iter().all(|(_, is_skipped)| *is_skipped) => '×',
        _ => '·',
    };
    let text: String = cells.chunks(step).map(sign).collect();
    format!("{text:<width$}", width = cells.len().min(CELLS))
}

/// Of a single cell the mean; of several the geometric mean of the ratios to the first switch.
fn result(summary: &Summary, metric: &Metric, systems: &[&str], system: &str) -> String {
    let of = |system: &str, cell: usize| summary.repeated(system, cell, &metric.name, metric.scale).beds;
    let all: Vec<f64> = (0..summary.cells.len())
        .map(|cell| of(system, cell))
        .filter(|series| series.n() > 0)
        .map(|series| series.mean())
        .collect();
    let range = all.iter().fold((f64::INFINITY, 0.0f64), |(low, high), mean| {
        (low.min(*mean), high.max(*mean))
    });
    let shown = match all.as_slice() {
        [] => return String::new(),
        [one] => number(*one),
        _ => format!("{} to {}", number(range.0), number(range.1)),
    };
    let Some(first) = systems.first().filter(|first| **first != system) else {
        return shown;
    };
    let mut logs = Vec::new();
    let mut variance = Some(0.0);
    for cell in 0..summary.cells.len() {
        let (own, other) = (of(system, cell), of(first, cell));
        if own.n() == 0 || other.n() == 0 || own.mean() <= 0.0 || other.mean() <= 0.0 {
            continue;
        }
        logs.push((own.mean() / other.mean()).ln());
        variance = variance
            .zip(relative(&own))
            .zip(relative(&other))
            .map(|((sum, a), b)| sum + a + b);
    }
    if logs.is_empty() {
        return shown;
    }
    let count = logs.len() as f64;
    let ratio = (logs.iter().sum::<f64>() / count).exp();
    let spread = variance.filter(|variance| *variance > 0.0).map(|variance| {
        // Two standard errors of the mean logarithm: about what 95 % lie within.
        let factor = (2.0 * variance.sqrt() / count).exp();
        format!(" ({} to {})", short(ratio / factor), short(ratio * factor))
    });
    let cells = if logs.len() == 1 { "cell" } else { "cells" };
    format!(
        "{shown}; ×{}{} of {} in {} {cells}",
        short(ratio),
        spread.unwrap_or_default(),
        looks::title(first),
        logs.len()
    )
}

/// A ratio to the thousandth.
fn short(ratio: f64) -> String {
    number((ratio * 1000.0).round() / 1000.0)
}

/// The variance of a mean's logarithm; none of one testbed.
fn relative(series: &Series) -> Option<f64> {
    (series.n() > 1).then(|| (series.deviation() / series.mean()).powi(2) / series.n() as f64)
}

fn cut(line: String, width: usize) -> String {
    match line.char_indices().nth(width) {
        Some(_) => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_done_begun_left_out_or_to_come() {
        let cells = [(2, false), (1, false), (0, true), (0, false)];
        assert_eq!(bar(&cells, 2), "█▒×·");
        assert_eq!(bar(&vec![(2, false); 90], 2).chars().count(), CELLS);
    }

    #[test]
    fn a_line_is_as_long_as_the_terminal_is_wide() {
        assert_eq!(cut("abcdef".into(), 4), "abc…");
        assert_eq!(cut("abcd".into(), 4), "abcd");
    }

    #[test]
    fn a_low_terminal_shows_the_heading_and_what_is_measured_last() {
        let lines: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let shown = newest(lines, 9);
        assert_eq!(shown.len(), 8);
        assert_eq!((shown[0].as_str(), shown[7].as_str()), ("0", "19"));
        assert!(shown[2].starts_with("(13 lines above"), "{}", shown[2]);
    }
}
