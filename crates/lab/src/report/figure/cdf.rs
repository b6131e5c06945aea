//! Cumulative distributions.

use super::data::{panel_name, system_key, value_key};
use super::{Figure, Key, Summary};
use crate::report::summary::within;
use crate::report::svg::{Axis, Drawing, Line, Plot, Point, Scale, TAIL, lines};

/// A distribution of a series: its place and look, and shares with values.
type Drawn = (usize, Key, Vec<(f64, f64)>);

/// A panel for each cell, a line for each series; `of` is the distribution's name.
pub(super) fn distribution(summary: &Summary, of: &str, series: Option<&str>) -> Option<Figure> {
    let known = summary.scenario.metric(of);
    let scale = known.map_or(1.0, |metric| metric.scale);
    let title = known.map_or(of, |metric| metric.title.as_str());
    let unit = known.map_or("", |metric| metric.unit.as_str());
    let mut panels: Vec<((String, String), Vec<Drawn>)> = Vec::new();
    for (cell, at) in summary.cells.iter().enumerate() {
        let mut rest = at.clone();
        let own = series.and_then(|series| rest.remove(series));
        for system in &summary.systems {
            let values = summary.distribution(system, cell, of, scale);
            if values.is_empty() {
                continue;
            }
            let (place, key) = match &own {
                Some(value) => value_key(summary, series.unwrap_or_default(), value),
                None => system_key(system),
            };
            let name = (
                panel_name(summary, &rest, own.as_ref().map(|_| *system)),
                own.as_ref().map_or_else(String::new, |_| (*system).to_owned()),
            );
            match panels.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push((place, key, values)),
                None => panels.push((name, vec![(place, key, values)])),
            }
        }
    }
    let mut legend: Vec<(usize, Key)> = Vec::new();
    let drawn: Vec<(String, Drawing)> = panels
        .into_iter()
        .map(|((name, of), mut all)| {
            all.sort_by_key(|(place, ..)| *place);
            for (place, key, _) in &all {
                if !legend.iter().any(|(_, known)| known == key) {
                    legend.push((*place, key.clone()));
                }
            }
            let values = all.iter().flat_map(|(.., values)| {
                values
                    .iter()
                    .filter(|(share, _)| *share <= TAIL)
                    .map(|(_, value)| *value)
            });
            let across = Scale::of_distribution(values);
            let lines_of = all.iter().map(|(_, key, values)| Line {
                name: key.name.clone(),
                look: key.look.clone(),
                of: key.of.clone(),
                points: values
                    .iter()
                    .filter(|(share, _)| *share <= TAIL)
                    .map(|(share, value)| Point {
                        x: *value,
                        y: *share,
                        ..Point::default()
                    })
                    .collect(),
                plain: true,
            });
            let drawing = lines(&Plot {
                title: name,
                x: Axis {
                    title: title.to_owned(),
                    unit: unit.to_owned(),
                },
                names: Vec::new(),
                y: Axis {
                    title: "share of values up to it".into(),
                    unit: String::new(),
                },
                scale: Scale::tail(),
                across,
                lines: lines_of.collect(),
            });
            (of, drawing)
        })
        .collect();
    legend.sort_by_key(|(place, _)| *place);
    Some(Figure {
        caption: format!(
            "Cumulative distribution of {}, averaged over the repetitions.",
            within(title)
        ),
        reading: " Each decade of what lies above is as high as the next, so that the tail shows.".into(),
        legend: legend.into_iter().map(|(_, key)| key).collect(),
        panels: drawn,
    })
}
