//! What happened inside a repetition: rates, processors, drops over time.

use super::data::system_key;
use super::{Figure, Key};
use crate::report::summary::Summary;
use crate::report::svg::{Axis, Drawing, Line, Plot, Point, Scale, lines};

/// Kinds of series, by the first word of their name: the axis, its unit, and the factor to that.
const KINDS: [(&str, &str, &str, f64); 4] = [
    ("rate", "Received", "Mbit/s", 1e-6),
    ("queue", "Queue", "packets", 1.0),
    ("cpu", "Busy", "processors", 1.0),
    ("drops", "Dropped", "packets/s", 1.0),
];

/// A figure for each kind that samples have: a panel for each cell and place, a line for each
/// switch, of its first repetition.
pub(crate) fn over_time(summary: &Summary) -> Vec<Figure> {
    KINDS.iter().filter_map(|kind| figure(summary, *kind)).collect()
}

/// The most panels of a figure.
const MOST: usize = 12;

/// A panel's title, and its lines with the numbers of their systems.
type Panel = (String, Vec<(usize, Key, Vec<Point>)>);

fn figure(summary: &Summary, (kind, title, unit, factor): (&str, &str, &str, f64)) -> Option<Figure> {
    let mut panels: Vec<Panel> = Vec::new();
    for (cell, at) in summary.cells.iter().enumerate() {
        for system in &summary.systems {
            let first = summary
                .samples(system, cell)
                .iter()
                .min_by_key(|sample| sample.repetition);
            for (name, values) in first.into_iter().flat_map(|sample| &sample.series) {
                let Some(place) = name
                    .strip_prefix(kind)
                    .filter(|rest| rest.is_empty() || rest.starts_with('.'))
                else {
                    continue;
                };
                let place = match place.trim_start_matches('.') {
                    "system" => "the switch's processes",
                    "all" => "the whole machine",
                    place => place,
                };
                let parts = [place.to_owned(), summary.name(at)];
                let name = parts
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join(", ");
                let point = |(x, y): &(f64, f64)| Point {
                    x: *x,
                    y: y * factor,
                    ..Point::default()
                };
                let (place, key) = system_key(system);
                let line = (place, key, values.iter().map(point).collect());
                match panels.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, all)) => all.push(line),
                    None => panels.push((name, vec![line])),
                }
            }
        }
    }
    // A place where nothing ever happens is not drawn.
    panels.retain(|(_, all)| all.iter().any(|(.., points)| points.iter().any(|point| point.y > 0.0)));
    let mut keys: Vec<(usize, Key)> = panels
        .iter()
        .flat_map(|(_, all)| all.iter().map(|(place, key, _)| (*place, key.clone())))
        .collect();
    keys.sort_by_key(|(place, _)| *place);
    keys.dedup();
    let rest = match panels.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(" {more} more are in series.csv."),
    };
    let drawn: Vec<(String, Drawing)> = panels
        .into_iter()
        .take(MOST)
        .map(|(name, all)| (String::new(), draw(name, all, title, unit)))
        .collect();
    (!drawn.is_empty()).then(|| Figure {
        caption: format!("{title} ({unit}) inside the first repetition of each cell.{rest}"),
        reading: String::new(),
        legend: keys.into_iter().map(|(_, key)| key).collect(),
        panels: drawn,
    })
}

fn draw(name: String, all: Vec<(usize, Key, Vec<Point>)>, title: &str, unit: &str) -> Drawing {
    let points = || all.iter().flat_map(|(.., points)| points);
    // From 0 on, with round marks however few the points are.
    let latest = points().map(|point| point.x).fold(0.0, f64::max);
    let times: Vec<f64> = (0..=8).map(|n| latest * f64::from(n) / 8.0).collect();
    let plot = Plot {
        title: name,
        x: Axis {
            title: "time".into(),
            unit: "s".into(),
        },
        names: Vec::new(),
        y: Axis {
            title: title.to_owned(),
            unit: unit.to_owned(),
        },
        scale: Scale::from_zero(points().map(|point| point.y)),
        across: Scale::of_steps(&times, 6, false),
        lines: all
            .iter()
            .map(|(_, key, points)| Line {
                name: key.name.clone(),
                look: key.look.clone(),
                of: key.of.clone(),
                points: points.clone(),
                plain: true,
            })
            .collect(),
    };
    lines(&plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_a_line_of_its_switch_in_the_panel_of_its_place() {
        let scenario = crate::report::tests::scenario();
        let sample = |system: &str, repetition: u32| -> crate::results::Sample {
            let json = format!(
                r#"{{"scenario":"S0.x","system":"{system}","at":{{"payload":"100"}},"repetition":{repetition},"started":0,"seconds":1,"load":0,
                    "metrics":{{"probe.rtt":1}},"series":{{"rate.b":[[0.1,2e6],[0.2,4e6],[0.3,{repetition}e6]],"drops":[[0.1,0]]}}}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        let samples = [sample("oxvs", 1), sample("oxvs", 0), sample("bridge", 0)];
        let figures = over_time(&Summary::new(&scenario, &samples, &[]));
        assert_eq!(figures.len(), 1, "a place where nothing happens is not drawn");
        assert_eq!((figures[0].panels.len(), figures[0].legend.len()), (1, 2));
        let body = figures[0].panels[0].1.body();
        assert!(
            body.contains(">b, 100 B<") && body.contains("Received (Mbit/s)"),
            "{body}"
        );
        assert_eq!(body.matches("<polyline").count(), 2);
    }
}
