//! Results as they are drawn: by panel, by series, with their scales.

use super::{Key, Printed, Summary};
use crate::report::looks;
use crate::report::summary::{At, named};
use crate::report::svg::{Axis, Scale};
use crate::scenario::{Dimension, Metric};
use crate::stats::{Estimate, Repeated};

/// Most single repetitions that are drawn of a result.
pub(super) const SHOWN: usize = 30;
/// The level of intervals.
const LEVEL: f64 = 0.95;

/// A result that is to be drawn.
pub(super) struct Datum {
    /// Value of the dimension across.
    pub(super) x: String,
    /// Place and name of the series.
    pub(super) series: (usize, Key),
    pub(super) value: f64,
    pub(super) interval: Option<(f64, f64)>,
    /// The single repetitions, if there are several.
    pub(super) raw: Vec<f64>,
    /// The offered load that this is a part of.
    pub(super) reference: Option<f64>,
}

pub(super) struct Panel {
    pub(super) name: String,
    /// The switch that all of it is of; empty: of several.
    pub(super) of: String,
    pub(super) data: Vec<Datum>,
}

/// Results of a metric by panel; `x` and `series` are dimensions, without `series` a series is a
/// system.
pub(super) fn gather(
    summary: &Summary,
    printed: &Printed,
    metric: &Metric,
    x: Option<&str>,
    series: Option<&str>,
) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    for (cell, at) in summary.cells.iter().enumerate() {
        let mut rest: At = at.clone();
        let across = x.and_then(|x| rest.remove(x)).unwrap_or_default();
        let own = series.and_then(|series| rest.remove(series));
        for system in &summary.systems {
            let values = summary.repeated(system, cell, &metric.name, metric.scale);
            let key = match &own {
                Some(value) => value_key(summary, series.unwrap_or_default(), value),
                None => system_key(system),
            };
            let name = panel_name(summary, &rest, own.as_ref().map(|_| *system));
            panel(&mut panels, name, own.as_ref().map_or("", |_| *system))
                .data
                .extend(datum(across.clone(), key, &values));
        }
        let alike = own.is_none() && !summary.systems.is_empty();
        for (nth, value) in printed
            .alike(summary, cell, &metric.name)
            .into_iter()
            .enumerate()
            .filter(|_| alike)
        {
            let key = Key {
                look: looks::of_print(nth),
                name: value.label(),
                of: String::new(),
            };
            let estimate = value.estimate.times(value.scale * metric.scale);
            let datum = Datum {
                x: across.clone(),
                series: (looks::PRINTED + nth, key),
                value: estimate.mean(),
                interval: interval(estimate, LEVEL, estimate.mean() >= 0.0),
                raw: Vec::new(),
                reference: None,
            };
            let name = panel_name(summary, &rest, None);
            panel(&mut panels, name, "").data.push(datum);
        }
    }
    panels.retain(|panel| !panel.data.is_empty());
    panels
}

pub(super) fn datum(x: String, series: (usize, Key), values: &Repeated) -> Option<Datum> {
    let all = values.all.values();
    (!all.is_empty()).then(|| Datum {
        x,
        series,
        value: values.beds.mean(),
        interval: interval(values.beds.estimate(), LEVEL, all.iter().all(|value| *value >= 0.0)),
        raw: if all.len() > 1 { shown(all) } else { Vec::new() },
        reference: None,
    })
}

/// Single repetitions to draw: all, or as many of them as show how they are distributed.
fn shown(all: &[f64]) -> Vec<f64> {
    if all.len() <= SHOWN {
        return all.to_vec();
    }
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    (0..SHOWN).map(|n| sorted[n * last / (SHOWN - 1)]).collect()
}

/// The interval of a mean; of what is never negative, its part that can be.
pub(super) fn interval(estimate: Estimate, level: f64, is_never_negative: bool) -> Option<(f64, f64)> {
    let interval = estimate.interval(level);
    let low = if is_never_negative {
        interval.low.max(0.0)
    } else {
        interval.low
    };
    (low < interval.high).then_some((low, interval.high))
}

pub(super) fn panel<'a>(panels: &'a mut Vec<Panel>, name: String, of: &str) -> &'a mut Panel {
    let place = panels.iter().position(|panel| panel.name == name).unwrap_or_else(|| {
        panels.push(Panel {
            name,
            of: of.to_owned(),
            data: Vec::new(),
        });
        panels.len() - 1
    });
    &mut panels[place]
}

pub(super) fn panel_name(summary: &Summary, at: &At, system: Option<&str>) -> String {
    let parts = [
        system.map(|system| looks::title(system).to_owned()),
        Some(summary.name(at)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

pub(super) fn system_key(system: &str) -> (usize, Key) {
    let key = Key {
        look: looks::of_system(system),
        name: looks::title(system).to_owned(),
        of: system.to_owned(),
    };
    (looks::place(system), key)
}

pub(super) fn value_key(summary: &Summary, dimension: &str, value: &str) -> (usize, Key) {
    let place = summary
        .values_of(dimension)
        .iter()
        .position(|v| v == value)
        .unwrap_or(0);
    let key = Key {
        look: (format!("s{}", place % looks::COLOURS), place),
        name: named(&dimension_of(summary, dimension), value),
        of: String::new(),
    };
    (place, key)
}

pub(super) fn dimension_of(summary: &Summary, name: &str) -> Dimension {
    let found = summary
        .scenario
        .varied
        .iter()
        .find(|dimension| dimension.name == name)
        .cloned();
    found.unwrap_or_else(|| Dimension {
        name: name.to_owned(),
        title: name.to_owned(),
        unit: String::new(),
        quick: Vec::new(),
        full: Vec::new(),
    })
}

pub(super) fn axis_of(summary: &Summary, name: &str) -> Axis {
    let dimension = dimension_of(summary, name);
    Axis {
        title: dimension.title,
        unit: dimension.unit,
    }
}

/// Each once, in their order.
pub(super) fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// One scale for all panels if it fits them all, else one for each.
pub(super) fn scales(panels: &[Panel]) -> Vec<Scale> {
    scales_by(panels, Scale::of_values)
}

pub(super) fn scales_by(panels: &[Panel], scale: fn(Vec<f64>) -> Scale) -> Vec<Scale> {
    let values = |panel: &Panel| -> Vec<f64> {
        let of = |datum: &Datum| {
            let ends = datum.interval.into_iter().flat_map(|(low, high)| [low, high]);
            // Intervals of two or three repetitions would leave no room for the results, so they
            // are clipped at the frame.
            let near = datum.value / 2.0..=datum.value * 1.5;
            let ends = ends.filter(|end| near.contains(end)).collect::<Vec<_>>();
            [
                vec![datum.value],
                ends,
                datum.raw.clone(),
                datum.reference.into_iter().collect(),
            ]
            .concat()
        };
        panel.data.iter().flat_map(of).collect()
    };
    let each: Vec<Vec<f64>> = panels.iter().map(values).collect();
    let tops = each
        .iter()
        .map(|values| values.iter().copied().fold(0.0, f64::max))
        .filter(|top| *top > 0.0);
    let (least, most) = tops.fold((f64::INFINITY, 0.0), |(least, most), top| {
        (top.min(least), top.max(most))
    });
    if most > 4.0 * least {
        return each.into_iter().map(scale).collect();
    }
    let one = scale(each.concat());
    vec![one; panels.len()]
}

pub(super) fn series_of(data: &[Datum]) -> Vec<(usize, Key)> {
    let mut series: Vec<(usize, Key)> = Vec::new();
    for datum in data {
        if !series.contains(&datum.series) {
            series.push(datum.series.clone());
        }
    }
    series.sort_by_key(|(place, _)| *place);
    series
}

pub(super) fn legend(panels: &[Panel]) -> Vec<Key> {
    let mut all: Vec<(usize, Key)> = Vec::new();
    for panel in panels {
        all.extend(
            series_of(&panel.data)
                .into_iter()
                .filter(|series| !all.contains(series))
                .collect::<Vec<_>>(),
        );
    }
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_what_is_never_negative_ends_at_zero() {
        let of = |values: &[f64]| {
            let values = Repeated::new((1..).zip(values.iter().copied()));
            datum(String::new(), (0, system_key("oxvs").1), &values).and_then(|datum| datum.interval)
        };
        assert_eq!(of(&[0.0, 10.0]).map(|(low, _)| low), Some(0.0));
        assert!(of(&[-1.0, 10.0]).is_some_and(|(low, _)| low < -1.0));
        assert_eq!(of(&[3.0]), None);
    }

    #[test]
    fn repetitions_on_one_testbed_are_drawn_without_an_interval() {
        let of = |beds: [u32; 3]| {
            let values = Repeated::new(beds.into_iter().zip([10.0, 12.0, 11.0]));
            datum(String::new(), (0, system_key("oxvs").1), &values).unwrap()
        };
        let quick = of([1, 1, 1]);
        assert_eq!((quick.value, quick.interval, quick.raw.len()), (11.0, None, 3));
        assert!(of([1, 2, 3]).interval.is_some());
    }

    #[test]
    fn of_many_repetitions_the_first_and_the_last_are_drawn() {
        let all: Vec<f64> = (0..1000).rev().map(f64::from).collect();
        let shown = shown(&all);
        assert_eq!((shown.len(), shown[0], shown[SHOWN - 1]), (SHOWN, 0.0, 999.0));
    }
}
