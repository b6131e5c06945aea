//! Results over something that has an order: payload, window, streams; and distributions.

use super::canvas::{Anchor, Canvas, Drawing, width as width_of};
use super::scale::{Axis, Scale};

/// The plotted data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plot {
    /// Above it.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Names of the x values if they are not numbers: value `n` is at `n`.
    pub names: Vec<String>,
    /// Upwards.
    pub y: Axis,
    /// The scale upwards, the same in all panels of a figure.
    pub scale: Scale,
    /// The scale across.
    pub across: Scale,
    /// One for each series.
    pub lines: Vec<Line>,
}

/// A series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Line {
    /// Its tooltip.
    pub name: String,
    /// Its colour's class and its marker's shape.
    pub look: (String, usize),
    /// The switch whose results these are, if it is one's.
    pub of: String,
    /// In their order.
    pub points: Vec<Point>,
    /// No markers, since there are many points.
    pub plain: bool,
}

/// A point of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Point {
    /// Across.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// The ends of its interval.
    pub interval: Option<(f64, f64)>,
    /// Single repetitions.
    pub raw: Vec<f64>,
    /// Its tooltip.
    pub title: String,
}

/// How many kinds of dashes there are.
pub(crate) const DASHES: usize = 6;
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 232.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 10.0;
pub(super) const TOP: f64 = 40.0;
/// Size of a face that is as wide as titles in bold are in the widest of usual faces.
const BOLD: f64 = 15.0;
/// Height of a line of a title.
const TITLE: f64 = 16.0;
const BOTTOM: f64 = 42.0;

/// Draws it.
pub(crate) fn lines(plot: &Plot) -> Drawing {
    let mut canvas = Canvas::default();
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let title = wrapped(&plot.title, WIDTH);
    let top = TOP + TITLE * title.len().saturating_sub(1) as f64;
    let x = |value: f64| LEFT + plot.across.place(value) * width;
    let y = |value: f64| top + (1.0 - plot.scale.place(value)) * height;
    frame(
        &mut canvas,
        &title,
        &plot.y,
        &plot.scale,
        (WIDTH, LEFT, RIGHT, top, height),
    );
    let base = top + height;
    let mut free = f64::NEG_INFINITY;
    for (at, text) in &plot.across.ticks {
        let text = match plot.names.get(*at as usize) {
            Some(name) if at.fract() == 0.0 => name,
            _ => text,
        };
        canvas.line("tick", (x(*at), base), (x(*at), base + 4.0));
        let half = width_of(text, 11.0) / 2.0;
        // A number that would touch the one before it is left out; its tick stays.
        if x(*at) - half > free {
            canvas.text("t", (x(*at), base + 16.0), Anchor::Middle, text);
            free = x(*at) + half + 4.0;
        }
    }
    let label = plot.x.label(&plot.across);
    canvas.text("t axis", (LEFT + width / 2.0, base + 34.0), Anchor::Middle, &label);
    for line in &plot.lines {
        canvas.of(&line.of, |canvas| series(canvas, line, &x, &y));
    }
    canvas.done(
        WIDTH,
        base + BOTTOM,
        format!("{}: {} over {}", plot.title, plot.y.title, plot.x.title),
    )
}

/// Fewer points than this are not joined: a line between two says that what is between is known.
const JOINED: usize = 3;
/// How far single repetitions stand from their place.
const SPREAD: f64 = 4.0;

fn series(canvas: &mut Canvas, line: &Line, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    let (class, shape) = &line.look;
    let points: Vec<(f64, f64)> = line.points.iter().map(|point| (x(point.x), y(point.y))).collect();
    if line.plain || points.len() >= JOINED {
        canvas.polyline(&format!("line {class} d{}", shape % DASHES), &points);
    }
    if line.plain {
        // A marker near the middle distinguishes lines without colours.
        if let Some(at) = points.get(points.len() * (2 + shape) / 12) {
            canvas.marker(&format!("dot {class}"), *shape, *at, &line.name);
        }
        return;
    }
    for point in &line.points {
        let at = x(point.x);
        raw(canvas, class, (at, SPREAD), &point.raw, y);
        if let Some((low, high)) = point.interval {
            whisker(canvas, class, at, (y(low), y(high)));
        }
        canvas.marker(&format!("dot {class}"), *shape, (at, y(point.y)), &point.title);
    }
}

/// Single repetitions around a place across, one beside the other so that equal ones show.
pub(super) fn raw(canvas: &mut Canvas, class: &str, (x, spread): (f64, f64), values: &[f64], y: &dyn Fn(f64) -> f64) {
    for (n, value) in values.iter().enumerate() {
        // Multiples of the golden ratio fill an interval evenly, however many they are.
        let part = (n as f64 * 0.618_034 + 0.25).fract() * 2.0 - 1.0;
        canvas.circle(&format!("raw {class}"), (x + part * spread, y(*value)), 1.6, "");
    }
}

/// Title, grid and the axis upwards. `at` is the width, the margins left, right and above, and the
/// height within.
pub(super) fn frame(canvas: &mut Canvas, title: &[String], y: &Axis, scale: &Scale, at: (f64, f64, f64, f64, f64)) {
    let (width, left, right, top, height) = at;
    for (n, line) in title.iter().enumerate() {
        canvas.text("t panel", (0.0, 13.0 + TITLE * n as f64), Anchor::Start, line);
    }
    canvas.text("t axis", (0.0, top - 11.0), Anchor::Start, &y.label(scale));
    for (value, text) in &scale.ticks {
        let place = top + (1.0 - scale.place(*value)) * height;
        canvas.line("grid", (left, place), (width - right, place));
        canvas.text("t", (left - 6.0, place + 4.0), Anchor::End, text);
    }
    canvas.line("base", (left, top + height), (width - right, top + height));
}

/// A title in lines that fit, broken at commas, or at spaces where it must be.
pub(super) fn wrapped(title: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in title.split_inclusive(", ").flat_map(|part| {
        if width_of(part, BOLD) > width {
            part.split_inclusive(' ').collect()
        } else {
            vec![part]
        }
    }) {
        match lines.last_mut() {
            Some(line) if width_of(line, BOLD) + width_of(part.trim_end(), BOLD) <= width => line.push_str(part),
            _ => lines.push(part.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Height of the titles of a figure's panels, so that what is beside each other is level.
pub(super) fn title_height(title: &str, width: f64) -> f64 {
    TITLE * wrapped(title, width).len().saturating_sub(1) as f64
}

/// An interval.
pub(super) fn whisker(canvas: &mut Canvas, class: &str, x: f64, (low, high): (f64, f64)) {
    if (low - high).abs() < 1.0 {
        return;
    }
    let class = format!("whisker {class}");
    canvas.line(&class, (x, low), (x, high));
    for end in [low, high] {
        canvas.line(&class, (x - 3.0, end), (x + 3.0, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_units_its_points_and_stays_within_its_frame() {
        let point = |x, y| Point {
            x,
            y,
            interval: Some((y - 2.0, y + 2.0)),
            raw: vec![50.0, 20.0],
            title: format!("at {x}"),
        };
        let plot = Plot {
            title: "10 Mbit/s".into(),
            x: Axis {
                title: "payload".into(),
                unit: "B".into(),
            },
            names: Vec::new(),
            y: Axis {
                title: "RTT".into(),
                unit: "µs".into(),
            },
            scale: Scale::of_values([10.0, 20.0, 50.0]),
            across: Scale::of_steps(&[100.0, 1440.0], 6, false),
            lines: vec![Line {
                of: "oxvs".into(),
                name: "oxvs".into(),
                look: ("s0".into(), 1),
                points: vec![point(100.0, 10.0), point(1440.0, 20.0)],
                plain: false,
            }],
        };
        let drawing = lines(&plot);
        for part in [
            "payload (B)",
            "RTT (µs)",
            "at 1440",
            "class=\"whisker s0\"",
            "class=\"raw s0\"",
        ] {
            assert!(drawing.body().contains(part), "{part}: {}", drawing.body());
        }
        for attribute in ["x1=\"", "x2=\"", "cx=\""] {
            for value in drawing.body().split(attribute).skip(1) {
                let value: f64 = value.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=drawing.width).contains(&value), "{value}");
            }
        }
    }
}
