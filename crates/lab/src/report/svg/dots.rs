//! Results of things that have no order: for each group and series the single repetitions, their
//! mean and its interval.

use super::canvas::{Anchor, Canvas, Drawing, width};
use super::lines::{TOP, frame, raw, title_height, whisker, wrapped};
use super::scale::{Axis, Scale};

/// The plotted data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dots {
    /// Above it.
    pub title: String,
    /// The axis of groups.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The scale upwards, the same in all panels of a figure.
    pub scale: Scale,
    /// From left to right.
    pub groups: Vec<Group>,
}

/// Results that stand together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    /// Below it.
    pub name: String,
    /// From left to right; none: a gap.
    pub dots: Vec<Option<Dot>>,
}

/// A result.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Dot {
    /// Its colour's class and its marker's shape.
    pub look: (String, usize),
    /// The switch whose result it is, if it is one's.
    pub of: String,
    /// The mean.
    pub value: f64,
    /// The ends of its interval.
    pub interval: Option<(f64, f64)>,
    /// Single repetitions.
    pub raw: Vec<f64>,
    /// A reference value, such as the offered load.
    pub reference: Option<f64>,
    /// Its tooltip.
    pub title: String,
}

const HEIGHT: f64 = 232.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 10.0;
const BOTTOM: f64 = 42.0;
const NARROW: f64 = 340.0;
/// Least and most width of a result, and the space between groups.
const SLOT: (f64, f64) = (9.0, 26.0);
const BETWEEN: f64 = 12.0;

/// Draws it, as wide as its results need.
pub(crate) fn dots(plot: &Dots) -> Drawing {
    let slots = plot.groups.iter().map(|group| group.dots.len()).max().unwrap_or(1);
    let slots = slots.max(1) as f64;
    let lines_of = |group: &Group| group.name.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let names = plot
        .groups
        .iter()
        .flat_map(lines_of)
        .map(|line| width(&line, 11.0) + 10.0);
    let wanted = names.fold(slots * SLOT.0 + BETWEEN, f64::max);
    let count = plot.groups.len().max(1) as f64;
    let inner = (wanted * count).max(NARROW - LEFT - RIGHT);
    let whole = inner + LEFT + RIGHT;
    let height = HEIGHT - TOP - BOTTOM;
    let top = TOP + title_height(&plot.title, whole);
    let y = |value: f64| top + (1.0 - plot.scale.place(value)) * height;
    let base = top + height;
    let most = plot.groups.iter().map(|group| lines_of(group).len()).max().unwrap_or(1);
    let below = BOTTOM + 13.0 * most.saturating_sub(1) as f64;

    let mut canvas = Canvas::default();
    frame(
        &mut canvas,
        &wrapped(&plot.title, whole),
        &plot.y,
        &plot.scale,
        (whole, LEFT, RIGHT, top, height),
    );
    let pitch = inner / count;
    let slot = ((pitch - BETWEEN) / slots).min(SLOT.1);
    for (n, group) in plot.groups.iter().enumerate() {
        let middle = LEFT + (n as f64 + 0.5) * pitch;
        if n > 0 {
            let between = LEFT + n as f64 * pitch;
            canvas.line("grid", (between, top), (between, base));
        }
        for (n, line) in lines_of(group).iter().enumerate() {
            canvas.text("t", (middle, base + 16.0 + 13.0 * n as f64), Anchor::Middle, line);
        }
        let first = middle - slot * group.dots.len() as f64 / 2.0;
        for (place, dot) in group.dots.iter().enumerate() {
            let Some(dot) = dot else { continue };
            let centre = first + (place as f64 + 0.5) * slot;
            canvas.of(&dot.of, |canvas| result(canvas, dot, (centre, slot), &y));
        }
    }
    canvas.text(
        "t axis",
        (LEFT + inner / 2.0, base + below - 8.0),
        Anchor::Middle,
        &plot.x.named(),
    );
    canvas.done(
        whole,
        base + below,
        format!("{}: {} by {}", plot.title, plot.y.title, plot.x.title),
    )
}

fn result(canvas: &mut Canvas, dot: &Dot, (centre, slot): (f64, f64), y: &dyn Fn(f64) -> f64) {
    let (class, shape) = &dot.look;
    if let Some(reference) = dot.reference {
        let (left, right) = (centre - slot / 2.0, centre + slot / 2.0);
        canvas.line("reference", (left, y(reference)), (right, y(reference)));
    }
    raw(canvas, class, (centre, slot * 0.3), &dot.raw, y);
    if let Some((low, high)) = dot.interval {
        whisker(canvas, class, centre, (y(low), y(high)));
    }
    canvas.marker(&format!("dot {class}"), *shape, (centre, y(dot.value)), &dot.title);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: &[f64]) -> Dots {
        let dot = |value: &f64| {
            Some(Dot {
                look: ("s1".into(), 2),
                of: "bridge".into(),
                value: *value,
                interval: Some((value * 0.8, value * 1.2)),
                raw: vec![value * 0.9, value * 1.1],
                reference: Some(*value * 1.1),
                title: format!("{value}"),
            })
        };
        Dots {
            title: "two senders".into(),
            x: Axis::default(),
            y: Axis {
                title: "received".into(),
                unit: "Mbit/s".into(),
            },
            scale: Scale::of_values(values.iter().copied()),
            groups: vec![
                Group {
                    name: "7/7".into(),
                    dots: values.iter().map(dot).collect(),
                },
                Group {
                    name: "4/8".into(),
                    dots: vec![None],
                },
            ],
        }
    }

    #[test]
    fn a_result_is_its_repetitions_their_mean_its_interval_and_a_reference() {
        let body = dots(&plot(&[5.0, 4.0])).body();
        let count = |part: &str| body.matches(part).count();
        assert_eq!(count("class=\"raw s1\""), 4);
        assert_eq!(count("class=\"dot s1\""), 2);
        assert_eq!(count("class=\"reference\""), 2);
        assert_eq!(count("<g data-s=\"bridge\">"), count("</g>"));
        assert!(body.contains("4/8") && body.contains("received (Mbit/s)"));
    }

    #[test]
    fn what_is_far_apart_has_a_logarithmic_scale() {
        let body = dots(&plot(&[0.1, 400.0])).body();
        assert!(body.contains("log scale"));
    }

    #[test]
    fn many_results_make_a_wider_figure() {
        let many: Vec<f64> = (1..60).map(|n| 100.0 + f64::from(n)).collect();
        assert!(dots(&plot(&many)).width > 900.0);
    }
}
