//! Results of things that have no order: grouped bars, with intervals; dots on a logarithmic scale
//! if they are far apart, which bars cannot show.

use super::canvas::{Anchor, Canvas, Drawing, width};
use super::lines::{TOP, frame, title_height, whisker, wrapped};
use super::scale::{Axis, Scale};

/// The plotted data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bars {
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

/// Bars that stand together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    /// Below it.
    pub name: String,
    /// From left to right; none: a gap.
    pub bars: Vec<Option<Bar>>,
}

/// A bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bar {
    /// Its colour's class and its marker's shape.
    pub look: (String, usize),
    /// Its height.
    pub value: f64,
    /// The ends of its interval.
    pub interval: Option<(f64, f64)>,
    /// Single results far from the others.
    pub outliers: Vec<f64>,
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

/// Draws it, as wide as its bars need.
pub(crate) fn bars(plot: &Bars) -> Drawing {
    let slots: usize = plot
        .groups
        .iter()
        .map(|group| group.bars.len())
        .max()
        .unwrap_or(1)
        .max(1);
    let lines_of = |group: &Group| group.name.split(", ").map(str::to_owned).collect::<Vec<_>>();
    let names = plot
        .groups
        .iter()
        .flat_map(lines_of)
        .map(|line| width(&line, 11.0) + 10.0);
    let wanted = names.fold(slots as f64 * 7.0 + 12.0, f64::max);
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
    let slot = ((pitch - 12.0) / slots as f64).min(26.0);
    for (n, group) in plot.groups.iter().enumerate() {
        let middle = LEFT + (n as f64 + 0.5) * pitch;
        for (n, line) in lines_of(group).iter().enumerate() {
            canvas.text("t", (middle, base + 16.0 + 13.0 * n as f64), Anchor::Middle, line);
        }
        let first = middle - slot * group.bars.len() as f64 / 2.0;
        for (place, bar) in group.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let (class, shape) = &bar.look;
            let (left, centre) = (first + place as f64 * slot, first + (place as f64 + 0.5) * slot);
            let end = y(bar.value);
            if !plot.scale.logarithmic {
                let (at, size) = ((left + 1.0, end.min(base - 1.0)), (slot - 2.0, (base - end).max(1.0)));
                canvas.rect(&format!("bar {class}"), at, size, 1.5, &bar.title);
                // Its shape, for readers who cannot distinguish the colours.
                if base - end > 18.0 {
                    canvas.small_marker("on-bar", *shape, (centre, base - 8.0), (slot / 3.5).min(3.4));
                }
            }
            if let Some(reference) = bar.reference {
                canvas.line("reference", (left, y(reference)), (left + slot, y(reference)));
            }
            if let Some((low, high)) = bar.interval {
                let class = if plot.scale.logarithmic {
                    class.as_str()
                } else {
                    "on-bar"
                };
                whisker(&mut canvas, class, centre, (y(low), y(high)));
            }
            for outlier in &bar.outliers {
                canvas.circle(&format!("outlier {class}"), (centre, y(*outlier)), 2.0, "outlier");
            }
            if plot.scale.logarithmic {
                canvas.marker(&format!("dot {class}"), *shape, (centre, end), &bar.title);
            }
        }
    }
    canvas.text(
        "t axis",
        (LEFT + inner / 2.0, base + below - 8.0),
        Anchor::Middle,
        &plot.x.label(false),
    );
    canvas.done(
        whole,
        base + below,
        format!("{}: {} by {}", plot.title, plot.y.title, plot.x.title),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(values: &[f64]) -> Bars {
        let bar = |value: &f64| {
            Some(Bar {
                look: ("s1".into(), 2),
                value: *value,
                interval: Some((value * 0.8, value * 1.2)),
                reference: Some(*value * 1.1),
                title: format!("{value}"),
                ..Bar::default()
            })
        };
        Bars {
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
                    bars: values.iter().map(bar).collect(),
                },
                Group {
                    name: "4/8".into(),
                    bars: vec![None],
                },
            ],
        }
    }

    #[test]
    fn bars_stand_on_zero_with_interval_and_reference() {
        let drawing = bars(&plot(&[5.0, 4.0]));
        assert_eq!(drawing.body.matches("class=\"bar s1").count(), 2);
        assert_eq!(drawing.body.matches("class=\"reference\"").count(), 2);
        assert!(drawing.body.contains("4/8") && drawing.body.contains("received (Mbit/s)"));
    }

    #[test]
    fn what_is_far_apart_is_dots_on_a_logarithmic_scale() {
        let drawing = bars(&plot(&[0.1, 400.0]));
        assert!(!drawing.body.contains("class=\"bar"));
        assert_eq!(drawing.body.matches("class=\"dot s1\"").count(), 2);
        assert!(drawing.body.contains("log scale"));
    }

    #[test]
    fn many_bars_make_a_wider_figure() {
        let many: Vec<f64> = (1..60).map(|n| 100.0 + f64::from(n)).collect();
        assert!(bars(&plot(&many)).width > 900.0);
    }
}
