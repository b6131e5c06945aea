//! Figures of an experiment, in the form that its scenario names.

mod cdf;
mod data;
mod ratio;
mod series;
mod study;

pub(crate) use series::over_time;
pub(crate) use study::study;

use super::exhibits::Ours;
use super::looks::{self, Look};
use super::printed::Printed;
use super::summary::{Summary, named, within};
use super::svg::{
    self, Axis, DASHES, Dot, Dots, Drawing, Group, Line, Plot, Point, RADIUS, Scale, Shape, dots, lines, marker, number,
};
use crate::scenario::{Better, Figure as Form, Metric};
use crate::stats::Series;
use data::{
    Datum, Panel, SHOWN, axis_of, datum, dimension_of, distinct, gather, legend, panel, scales, scales_by, series_of,
    system_key,
};

/// A figure: drawings side by side, with one legend.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figure {
    /// Below it.
    pub caption: String,
    /// How its marks are read: below it where it stands alone.
    pub reading: String,
    /// The legend of colours and shapes.
    pub legend: Vec<Key>,
    /// One for each panel, with the switch that it is of; empty: of several.
    pub panels: Vec<(String, Drawing)>,
}

/// A line of a legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    /// Colour and shape.
    pub look: Look,
    /// Its meaning.
    pub name: String,
    /// The switch that it stands for, if it is one.
    pub of: String,
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
        self.shapes(x, y).iter().map(Shape::svg).collect()
    }

    /// Line and marker around a point.
    pub(crate) fn shapes(&self, x: f64, y: f64) -> [Shape; 2] {
        let (class, shape) = &self.look;
        let line = Shape {
            class: format!("line {class} d{}", shape % DASHES),
            title: String::new(),
            form: svg::Form::Line((x - 11.0, y), (x + 11.0, y)),
        };
        [line, marker(&format!("dot {class}"), *shape, (x, y), RADIUS, "")]
    }
}

impl Figure {
    /// As a file of its own: panels in two columns, the legend above them. `style` has the colours.
    pub(crate) fn alone(&self, style: &str) -> String {
        const GAP: f64 = 20.0;
        let widest = self.panels.iter().map(|(_, panel)| panel.width).fold(0.0, f64::max);
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
            for (n, (_, panel)) in row.iter().enumerate() {
                let left = GAP + n as f64 * (widest + GAP);
                body.push_str(&format!(
                    "<g transform=\"translate({left} {top})\">{}</g>",
                    panel.body()
                ));
            }
            top += row.iter().map(|(_, panel)| panel.height).fold(0.0, f64::max) + GAP / 2.0;
        }
        let label = svg::escape(&format!("{}{}", self.caption, self.reading));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {top:.0}\" width=\"{width:.0}\" height=\"{top:.0}\" role=\"img\" \
             aria-label=\"{label}\">\n<style>{style}</style>\n<rect width=\"100%\" height=\"100%\" style=\"fill:var(--paper)\"/>\n{body}\n</svg>\n"
        )
    }
}

/// Figures of an experiment, with their number among its forms; those without any data are left
/// out.
pub(crate) fn figures(summary: &Summary, printed: &Printed) -> Vec<(usize, Figure)> {
    let forms = summary.scenario.figures.iter().zip(1..);
    forms
        .filter_map(|(form, number)| Some((number, figure(summary, printed, form)?)))
        .collect()
}

/// A figure of ours that stands beside one of a study, if there are data for it.
pub(crate) fn beside_exhibit(summary: &Summary, printed: &Printed, ours: &Ours) -> Option<Figure> {
    let summary = summary.only(&ours.at);
    match &ours.ratio {
        Some(ratio) => ratio::quotient(&summary, &ours.of, ratio),
        None => figure(&summary, printed, &ours.form(summary.scenario)?),
    }
}

/// A figure of an experiment, if there are data for it.
pub(crate) fn figure(summary: &Summary, printed: &Printed, form: &Form) -> Option<Figure> {
    let figure = match form {
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
    };
    figure.filter(|figure| !figure.panels.is_empty())
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
    let mut caption = caption(metric, &format!("over {}", within(&dimension_of(summary, x).title)));
    let reading = marks(panels.iter().flat_map(|panel| &panel.data));
    if let Some(bound) = bound {
        caption.push_str(&format!(" The dashed line is {}.", within(&bound.title)));
    }
    // One value is no line: panels with no more stand together as groups.
    let (panels, alone): (Vec<Panel>, Vec<Panel>) = panels
        .into_iter()
        .partition(|panel| panel.data.iter().any(|datum| datum.x != panel.data[0].x));
    let across = Across::new(summary, x, log);
    let drawn = panels
        .iter()
        .zip(scales(&panels))
        .map(|(panel, scale)| (panel.of.clone(), across.draw(panel, upwards(metric), scale)));
    let mut drawn: Vec<(String, Drawing)> = drawn.collect();
    if let Some(other) = beside(summary, x, alone) {
        let values: Vec<String> = distinct(other.data.iter().map(|datum| datum.x.clone()));
        let scale = scales(std::slice::from_ref(&other)).remove(0);
        let of = other.of.clone();
        drawn.push((of, draw_dots(&other, &values, &Axis::default(), upwards(metric), scale)));
        if drawn.len() > 1 {
            caption.push_str(" The last panel has the conditions that were tried at one value only.");
        }
    }
    Some(Figure {
        caption,
        reading,
        legend,
        panels: drawn,
    })
}

/// Adds to each panel the mean of what its series have as their bound.
fn add_bound(panels: &mut [Panel], bounds: Vec<Panel>, metric: &Metric) {
    let key = Key {
        look: looks::of_bound(),
        name: metric.title.clone(),
        of: String::new(),
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
                raw: Vec::new(),
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
    let of = String::new();
    (!data.is_empty()).then_some(Panel { name, of, data })
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
        Across::of(axis_of(summary, x), summary.values_of(x), log)
    }

    fn of(axis: Axis, values: Vec<String>, log: bool) -> Across {
        let numbers: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
        let (names, scale) = match numbers {
            Some(numbers) => (Vec::new(), Scale::of_steps(&numbers, 9, log)),
            None => {
                let places: Vec<f64> = (0..values.len()).map(|n| n as f64).collect();
                (values.clone(), Scale::of_places(&places))
            }
        };
        Across {
            axis,
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
                    raw: datum.raw.clone(),
                    title: told(&key.name, &datum.x, datum, &y.unit),
                });
            let mut points: Vec<Point> = points.collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Line {
                of: key.of,
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
        .map(|(panel, scale)| (panel.of.clone(), draw_dots(panel, &values, &x, upwards(metric), scale)));
    let by = groups.map_or_else(String::new, |groups| {
        format!("by {}", within(&dimension_of(summary, groups).title))
    });
    Some(Figure {
        caption: caption(metric, &by),
        reading: marks(panels.iter().flat_map(|panel| &panel.data)),
        legend: legend(&panels),
        panels: drawn.collect(),
    })
}

fn draw_dots(panel: &Panel, values: &[String], x: &Axis, y: Axis, scale: Scale) -> Drawing {
    let series = series_of(&panel.data);
    let present = values
        .iter()
        .filter(|value| panel.data.iter().any(|datum| datum.x == **value));
    let groups = present.map(|value| {
        let dot = |(_, key): &(usize, Key)| {
            let datum = panel
                .data
                .iter()
                .find(|datum| datum.x == *value && datum.series.1 == *key)?;
            Some(Dot {
                look: key.look.clone(),
                of: key.of.clone(),
                value: datum.value,
                interval: datum.interval,
                raw: datum.raw.clone(),
                reference: datum.reference,
                title: told(&key.name, value, datum, &y.unit),
            })
        };
        Group {
            name: value.replace('_', " "),
            dots: series.iter().map(dot).collect(),
        }
    });
    dots(&Dots {
        title: panel.name.clone(),
        x: x.clone(),
        groups: groups.collect(),
        y: y.clone(),
        scale,
    })
}

/// Results of each flow of each system, with the offered load if a sample's flow has it.
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
                // Flows of one system share its colour and its marker; they stand in their order.
                let name = format!("{}, {}", key.name, flow.split('.').next().unwrap_or(flow));
                let key = Key { name, ..key };
                let values = summary.repeated(system, cell, flow, scale);
                let drawn = datum(x.clone(), (place * 16 + nth, key), &values).map(|datum| Datum {
                    reference: summary.offered(cell, flow).map(|load| load * scale),
                    ..datum
                });
                panel(&mut panels, summary.name(&rest), "").data.extend(drawn);
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
        .map(|(panel, scale)| (String::new(), draw_dots(panel, &values, &x, y.clone(), scale)));
    let names: Vec<&str> = flows
        .iter()
        .map(|flow| flow.split('.').next().unwrap_or(flow))
        .collect();
    let legend = summary.systems.iter().map(|system| system_key(system).1);
    let caption = format!(
        "What the receiver got of each flow ({}, from left to right within a colour), by {}. A line across a result is the load offered.",
        names.join(", "),
        within(&x.title)
    );
    Some(Figure {
        caption,
        reading: marks(panels.iter().flat_map(|panel| &panel.data)),
        panels: drawn.collect(),
        legend: legend.collect(),
    })
}

/// A line of each stream's rate, and how many streams were lost.
fn streams(summary: &Summary, printed: &Printed, x: &str, y: &str, lost: &str) -> Option<Figure> {
    let (got, lost) = (summary.scenario.metric(y)?, summary.scenario.metric(lost)?);
    let above = gather(summary, printed, got, Some(x), None);
    let below = gather(summary, printed, lost, Some(x), None);
    let across = Across::new(summary, x, false);
    let (values, axis) = (summary.values_of(x), axis_of(summary, x));
    let below_scales = scales(&below);
    let mut drawn = Vec::new();
    for (panel, scale) in above.iter().zip(scales(&above)) {
        drawn.push((String::new(), across.draw(panel, upwards(got), scale)));
        let same = below
            .iter()
            .zip(&below_scales)
            .find(|(other, _)| other.name == panel.name);
        let draw = |(other, scale): (&Panel, &Scale)| draw_dots(other, &values, &axis, upwards(lost), scale.clone());
        drawn.extend(same.map(|same| (String::new(), draw(same))));
    }
    Some(Figure {
        caption: caption(
            got,
            &format!("over {}; beside each, how many were lost", within(&axis.title)),
        ),
        reading: marks(above.iter().flat_map(|panel| &panel.data)),
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

fn caption(metric: &Metric, by: &str) -> String {
    let text = format!("{} {by}", metric.title).trim_end().to_owned();
    text + match metric.better {
        Some(Better::Higher) => " (more is better).",
        Some(Better::Lower) => " (less is better).",
        None => ".",
    }
}

/// What small dots and whiskers are, if there are any.
fn marks<'a>(data: impl Iterator<Item = &'a Datum> + Clone) -> String {
    let mut text = String::new();
    if data.clone().any(|datum| !datum.raw.is_empty()) {
        text.push_str(" Small dots are single repetitions, the large mark is their mean");
        text.push_str(if data.clone().any(|datum| datum.interval.is_some()) {
            ", its whisker the 95 % confidence interval, cut off where it leaves the frame."
        } else {
            "."
        });
        if data
            .clone()
            .any(|datum| !datum.raw.is_empty() && datum.interval.is_none())
        {
            text.push_str(" Where a mark has no whisker, the repetitions are of one testbed, or equal.");
        }
    }
    if data.clone().any(|datum| datum.raw.len() >= SHOWN) {
        text.push_str(&format!(" Of many repetitions {SHOWN} are drawn, evenly by rank."));
    }
    if data.clone().any(|datum| datum.series.0 >= looks::PRINTED) {
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
