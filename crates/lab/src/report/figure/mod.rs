//! Figures of an experiment, in the form that its scenario names.

mod cdf;
mod data;

use super::looks::{self, Look};
use super::printed::Printed;
use super::summary::{Summary, named, within};
use super::svg::{
    self, Axis, Bar, Bars, Drawing, Group, Line, Plot, Point, RADIUS, Scale, bars, lines, marker, number,
};
use crate::scenario::{Better, Figure as Form, Metric};
use crate::stats::Series;
use data::{
    Datum, Panel, axis_of, datum, dimension_of, gather, legend, panel, scales, scales_by, series_of, system_key,
};

/// A figure: drawings side by side, with one legend.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figure {
    /// Below it.
    pub caption: String,
    /// The legend of colours and shapes.
    pub legend: Vec<Key>,
    /// One for each panel.
    pub panels: Vec<Drawing>,
}

/// A line of a legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    /// Colour and shape.
    pub look: Look,
    /// Its meaning.
    pub name: String,
}

impl Key {
    /// Colour and shape, for a legend.
    pub(crate) fn svg(&self) -> String {
        format!(
            "<svg viewBox=\"0 0 22 14\" aria-hidden=\"true\">{}</svg>",
            self.body(11.0, 7.0)
        )
    }

    fn body(&self, x: f64, y: f64) -> String {
        let (class, shape) = &self.look;
        let line = format!("<path class=\"line {class}\" d=\"M{} {y}H{}\"/>", x - 11.0, x + 11.0);
        line + &marker(&format!("dot {class}"), *shape, (x, y), RADIUS, "")
    }
}

impl Figure {
    /// As a file of its own: panels in two columns, the legend above them. `style` has the colours.
    pub(crate) fn alone(&self, style: &str) -> String {
        const GAP: f64 = 20.0;
        let widest = self.panels.iter().map(|panel| panel.width).fold(0.0, f64::max);
        let columns = if self.panels.len() > 1 && widest < 450.0 { 2 } else { 1 };
        let width = widest * columns as f64 + GAP * (columns - 1) as f64 + 2.0 * GAP;
        let mut body = String::new();
        let (mut x, mut y) = (GAP, 18.0);
        for key in &self.legend {
            let wide = 34.0 + svg::width(&key.name, 12.0) + 14.0;
            if x > GAP && x + wide > width {
                (x, y) = (GAP, y + 18.0);
            }
            body.push_str(&key.body(x + 11.0, y - 4.0));
            body.push_str(&format!(
                "<text class=\"t\" x=\"{}\" y=\"{y}\">{}</text>",
                x + 28.0,
                svg::escape(&key.name)
            ));
            x += wide;
        }
        let mut top = y + 14.0;
        for row in self.panels.chunks(columns) {
            for (n, panel) in row.iter().enumerate() {
                let left = GAP + n as f64 * (widest + GAP);
                body.push_str(&format!("<g transform=\"translate({left} {top})\">{}</g>", panel.body));
            }
            top += row.iter().map(|panel| panel.height).fold(0.0, f64::max) + GAP / 2.0;
        }
        let label = svg::escape(&self.caption);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {top:.0}\" width=\"{width:.0}\" height=\"{top:.0}\" role=\"img\" \
             aria-label=\"{label}\">\n<style>{style}</style>\n<rect width=\"100%\" height=\"100%\" style=\"fill:var(--paper)\"/>\n{body}\n</svg>\n"
        )
    }
}

/// Figures of an experiment; those without any data are left out.
pub(crate) fn figures(summary: &Summary, printed: &Printed) -> Vec<Figure> {
    let forms = summary.scenario.figures.iter();
    let drawn = forms.filter_map(|form| match form {
        Form::Lines {
            x,
            y,
            bound,
            series,
            log,
            ..
        } => over(summary, printed, (x, *log), (y, bound.as_deref()), series.as_deref()),
        Form::Bars { groups, y, series, .. } => grouped(summary, printed, groups.as_deref(), y, series.as_deref()),
        Form::Shares { groups, flows, .. } => shares(summary, groups, flows),
        Form::Streams { x, y, lost, .. } => streams(summary, printed, x, y, lost),
        Form::Cdf { of, series, .. } => cdf::distribution(summary, of, series.as_deref()),
        // It is a table: see `tables`.
        Form::Matrix { .. } => None,
    });
    drawn.filter(|figure| !figure.panels.is_empty()).collect()
}

fn over(
    summary: &Summary,
    printed: &Printed,
    (x, log): (&str, bool),
    (y, bound): (&str, Option<&str>),
    series: Option<&str>,
) -> Option<Figure> {
    let metric = summary.scenario.metric(y)?;
    let bound = bound.and_then(|bound| summary.scenario.metric(bound));
    let mut panels = gather(summary, printed, metric, Some(x), series);
    if let Some(bound) = bound {
        add_bound(&mut panels, gather(summary, printed, bound, Some(x), series), bound);
    }
    let legend = legend(&panels);
    let mut caption = caption(
        metric,
        &format!("over {}", within(&dimension_of(summary, x).title)),
        &panels,
    );
    if let Some(bound) = bound {
        caption.push_str(&format!(" The dashed line is {}.", within(&bound.title)));
    }
    // One value is no line: panels with no more stand together as groups of bars.
    let (panels, alone): (Vec<Panel>, Vec<Panel>) = panels
        .into_iter()
        .partition(|panel| panel.data.iter().any(|datum| datum.x != panel.data[0].x));
    let across = Across::new(summary, x, log);
    let drawn = panels
        .iter()
        .zip(scales(&panels))
        .map(|(panel, scale)| across.draw(panel, upwards(metric), scale));
    let mut drawn: Vec<Drawing> = drawn.collect();
    if let Some(other) = beside(summary, x, alone) {
        let values: Vec<String> = distinct(other.data.iter().map(|datum| datum.x.clone()));
        let scale = scales(std::slice::from_ref(&other)).remove(0);
        drawn.push(draw_bars(&other, &values, &Axis::default(), upwards(metric), scale));
        if drawn.len() > 1 {
            caption.push_str(" The last panel has the conditions that were tried at one value only.");
        }
    }
    Some(Figure {
        caption,
        legend,
        panels: drawn,
    })
}

/// Adds to each panel the mean of what its series have as their bound.
fn add_bound(panels: &mut [Panel], bounds: Vec<Panel>, metric: &Metric) {
    let key = Key {
        look: looks::of_bound(),
        name: metric.title.clone(),
    };
    for bound in bounds {
        let Some(panel) = panels.iter_mut().find(|panel| panel.name == bound.name) else {
            continue;
        };
        for x in distinct(bound.data.iter().map(|datum| datum.x.clone())) {
            let values = bound.data.iter().filter(|datum| datum.x == x);
            let mean = Series::new(values.map(|datum| datum.value)).mean();
            panel.data.push(Datum {
                x,
                series: (looks::BOUND, key.clone()),
                value: mean,
                interval: None,
                outliers: Vec::new(),
                reference: None,
            });
        }
    }
}

/// Panels with a single value each as the groups of one.
fn beside(summary: &Summary, x: &str, alone: Vec<Panel>) -> Option<Panel> {
    let dimension = dimension_of(summary, x);
    let at = distinct(alone.iter().filter_map(|panel| Some(panel.data.first()?.x.clone())));
    let same = at.len() == 1;
    let mut data = Vec::new();
    for panel in alone {
        for datum in panel.data {
            let at = if same { None } else { Some(named(&dimension, &datum.x)) };
            let parts = [Some(panel.name.clone()).filter(|name| !name.is_empty()), at];
            let x = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
            data.push(Datum { x, ..datum });
        }
    }
    let name = at
        .first()
        .filter(|_| same)
        .map_or_else(String::new, |at| named(&dimension, at));
    (!data.is_empty()).then_some(Panel { name, data })
}

fn distinct(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// The axis of a dimension with an order.
struct Across {
    axis: Axis,
    values: Vec<String>,
    names: Vec<String>,
    scale: Scale,
}

impl Across {
    fn new(summary: &Summary, x: &str, log: bool) -> Across {
        let values = summary.values_of(x);
        let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
        let (names, scale) = match numbers {
            Some(numbers) => (Vec::new(), Scale::of_steps(&numbers, 9, log)),
            None => {
                let places: Vec<f64> = (0..values.len()).map(|n| n as f64).collect();
                (values.clone(), Scale::of_places(&places))
            }
        };
        Across {
            axis: axis_of(summary, x),
            values,
            names,
            scale,
        }
    }

    fn place(&self, value: &str) -> f64 {
        match value.parse() {
            Ok(number) if self.names.is_empty() => number,
            _ => self.values.iter().position(|v| v == value).unwrap_or(0) as f64,
        }
    }

    fn draw(&self, panel: &Panel, y: Axis, scale: Scale) -> Drawing {
        let drawn = series_of(&panel.data).into_iter().map(|(_, key)| {
            let points = panel
                .data
                .iter()
                .filter(|datum| datum.series.1 == key)
                .map(|datum| Point {
                    x: self.place(&datum.x),
                    y: datum.value,
                    interval: datum.interval,
                    outliers: datum.outliers.clone(),
                    title: told(&key.name, &datum.x, datum, &y.unit),
                });
            let mut points: Vec<Point> = points.collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Line {
                name: key.name,
                look: key.look,
                points,
                plain: false,
            }
        });
        lines(&Plot {
            title: panel.name.clone(),
            x: self.axis.clone(),
            names: self.names.clone(),
            lines: drawn.collect(),
            y,
            scale,
            across: self.scale.clone(),
        })
    }
}

fn grouped(
    summary: &Summary,
    printed: &Printed,
    groups: Option<&str>,
    y: &str,
    series: Option<&str>,
) -> Option<Figure> {
    let metric = summary.scenario.metric(y)?;
    let panels = gather(summary, printed, metric, groups, series);
    let scales = scales(&panels);
    let values = groups.map_or_else(|| vec![String::new()], |groups| summary.values_of(groups));
    let x = groups.map_or_else(Axis::default, |groups| axis_of(summary, groups));
    let drawn = panels
        .iter()
        .zip(scales)
        .map(|(panel, scale)| draw_bars(panel, &values, &x, upwards(metric), scale));
    let by = groups.map_or_else(String::new, |groups| {
        format!("by {}", within(&dimension_of(summary, groups).title))
    });
    Some(Figure {
        caption: caption(metric, &by, &panels),
        legend: legend(&panels),
        panels: drawn.collect(),
    })
}

fn draw_bars(panel: &Panel, values: &[String], x: &Axis, y: Axis, scale: Scale) -> Drawing {
    let series = series_of(&panel.data);
    let present = values
        .iter()
        .filter(|value| panel.data.iter().any(|datum| datum.x == **value));
    let groups = present.map(|value| {
        let bar = |(_, key): &(usize, Key)| {
            let datum = panel
                .data
                .iter()
                .find(|datum| datum.x == *value && datum.series.1 == *key)?;
            Some(Bar {
                look: key.look.clone(),
                value: datum.value,
                interval: datum.interval,
                outliers: datum.outliers.clone(),
                reference: datum.reference,
                title: told(&key.name, value, datum, &y.unit),
            })
        };
        Group {
            name: value.replace('_', " "),
            bars: series.iter().map(bar).collect(),
        }
    });
    bars(&Bars {
        title: panel.name.clone(),
        x: x.clone(),
        groups: groups.collect(),
        y: y.clone(),
        scale,
    })
}

/// Bars for each flow of each system, with the offered load if a sample's flow has it.
fn shares(summary: &Summary, groups: &str, flows: &[String]) -> Option<Figure> {
    let first = summary.scenario.metric(flows.first()?)?;
    let mut panels: Vec<Panel> = Vec::new();
    for (cell, at) in summary.cells.iter().enumerate() {
        let mut rest = at.clone();
        let x = rest.remove(groups).unwrap_or_default();
        for system in &summary.systems {
            for (nth, flow) in flows.iter().enumerate() {
                let scale = summary.scenario.metric(flow).map_or(first.scale, |metric| metric.scale);
                let (place, key) = system_key(system);
                // Flows of one system share its colour; the order of the bars is theirs.
                let name = format!("{}, {}", key.name, flow.split('.').next().unwrap_or(flow));
                let key = Key { name, ..key };
                let values = summary.series(system, cell, flow, scale);
                let drawn = datum(x.clone(), (place * 16 + nth, key), &values).map(|datum| Datum {
                    reference: summary.offered(cell, flow).map(|load| load * scale),
                    ..datum
                });
                panel(&mut panels, summary.name(&rest)).data.extend(drawn);
            }
        }
    }
    panels.retain(|panel| !panel.data.is_empty());
    let y = Axis {
        title: "received".into(),
        unit: first.unit.clone(),
    };
    let values = summary.values_of(groups);
    let x = axis_of(summary, groups);
    let scales = scales_by(&panels, Scale::from_zero);
    let drawn = panels
        .iter()
        .zip(scales)
        .map(|(panel, scale)| draw_bars(panel, &values, &x, y.clone(), scale));
    let names: Vec<&str> = flows
        .iter()
        .map(|flow| flow.split('.').next().unwrap_or(flow))
        .collect();
    let legend = summary.systems.iter().map(|system| system_key(system).1);
    Some(Figure {
        caption: format!(
            "What the receiver got of each flow ({}, from left to right within a colour), by {}. A short line across a bar is the load offered; \
             whiskers are 95 % confidence intervals.",
            names.join(", "),
            within(&x.title)
        ),
        panels: drawn.collect(),
        legend: legend.collect(),
    })
}

/// A line of each stream's rate, and bars of lost streams.
fn streams(summary: &Summary, printed: &Printed, x: &str, y: &str, lost: &str) -> Option<Figure> {
    let (got, lost) = (summary.scenario.metric(y)?, summary.scenario.metric(lost)?);
    let above = gather(summary, printed, got, Some(x), None);
    let below = gather(summary, printed, lost, Some(x), None);
    let across = Across::new(summary, x, false);
    let (values, axis) = (summary.values_of(x), axis_of(summary, x));
    let below_scales = scales(&below);
    let mut drawn = Vec::new();
    for (panel, scale) in above.iter().zip(scales(&above)) {
        drawn.push(across.draw(panel, upwards(got), scale));
        let same = below
            .iter()
            .zip(&below_scales)
            .find(|(other, _)| other.name == panel.name);
        drawn.extend(same.map(|(other, scale)| draw_bars(other, &values, &axis, upwards(lost), scale.clone())));
    }
    Some(Figure {
        caption: caption(
            got,
            &format!("over {}; beside each, how many were lost", within(&axis.title)),
            &above,
        ),
        legend: legend(&above),
        panels: drawn,
    })
}

fn upwards(metric: &Metric) -> Axis {
    Axis {
        title: metric.title.clone(),
        unit: metric.unit.clone(),
    }
}

fn caption(metric: &Metric, by: &str, panels: &[Panel]) -> String {
    let data = || panels.iter().flat_map(|panel| &panel.data);
    let mut text = format!("{} {by}", metric.title).trim_end().to_owned();
    text.push_str(match metric.better {
        Some(Better::Higher) => " (more is better).",
        Some(Better::Lower) => " (less is better).",
        None => ".",
    });
    if data().any(|datum| datum.interval.is_some()) {
        text.push_str(" Whiskers are 95 % confidence intervals, cut off where they leave the frame.");
    }
    if data().any(|datum| !datum.outliers.is_empty()) {
        text.push_str(" Small circles are single results far from the others of their cell.");
    }
    if data().any(|datum| datum.series.0 >= looks::PRINTED) {
        text.push_str(" Grey is what the study printed.");
    }
    text
}

fn told(name: &str, x: &str, datum: &Datum, unit: &str) -> String {
    let interval = datum.interval.map_or_else(String::new, |(low, high)| {
        format!(" ({} to {})", number(low), number(high))
    });
    let at = if x.is_empty() {
        String::new()
    } else {
        format!(" at {x}")
    };
    format!("{name}{at}: {}{interval} {unit}", number(datum.value))
        .trim_end()
        .to_owned()
}
