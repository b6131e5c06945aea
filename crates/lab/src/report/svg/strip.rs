//! A claim's effects on one axis of ratios: what it allows, and for each switch the effect with its
//! interval.

use super::canvas::{Anchor, Canvas, Drawing};
use super::scale::number;

/// A switch's effect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effect {
    /// Its colour's class and its marker's shape.
    pub look: (String, usize),
    /// The switch.
    pub of: String,
    /// The ratio, more than 0.
    pub value: f64,
    /// The ends of its interval, if there is one.
    pub interval: Option<(f64, f64)>,
    /// The ends of what the claim allows.
    pub allowed: (Option<f64>, Option<f64>),
    /// Its tooltip.
    pub title: String,
}

/// The ends of the axis.
const RANGE: (f64, f64) = (1.0 / 16.0, 16.0);
const WIDTH: f64 = 320.0;
const ROW: f64 = 13.0;
const TICKS: [f64; 5] = [0.1, 0.5, 1.0, 2.0, 10.0];

/// Draws it: a row for each switch.
pub(crate) fn strip(effects: &[Effect], label: &str) -> Drawing {
    let mut canvas = Canvas::default();
    let height = ROW * effects.len().max(1) as f64 + 6.0;
    for tick in TICKS {
        let class = if tick == 1.0 { "base" } else { "grid" };
        canvas.line(class, (x(tick), 0.0), (x(tick), height));
    }
    for (n, effect) in effects.iter().enumerate() {
        let y = 3.0 + ROW * (n as f64 + 0.5);
        canvas.of(&effect.of, |canvas| row(canvas, effect, y));
    }
    canvas.done(WIDTH, height, label)
}

/// The axis below strips.
pub(crate) fn axis() -> Drawing {
    let mut canvas = Canvas::default();
    for tick in TICKS {
        canvas.line("tick", (x(tick), 0.0), (x(tick), 4.0));
        canvas.text("t", (x(tick), 16.0), Anchor::Middle, &format!("×{}", number(tick)));
    }
    canvas.done(WIDTH, 20.0, "Ratios from a sixteenth to sixteen")
}

fn row(canvas: &mut Canvas, effect: &Effect, y: f64) {
    let (class, shape) = &effect.look;
    let (least, most) = effect.allowed;
    let (low, high) = (x(least.unwrap_or(0.0)), x(most.unwrap_or(f64::INFINITY)));
    // A claim that allows a single value only is seen too.
    let (low, high) = (low.min(high - 1.5), high.max(low + 1.5));
    canvas.rect("allowed", (low, y - ROW / 2.0), (high - low, ROW), 0.0, "");
    if let Some((low, high)) = effect.interval {
        let whisker = format!("whisker {class}");
        canvas.line(&whisker, (x(low), y), (x(high), y));
        for (end, inside, towards) in [(low, low >= RANGE.0, 4.0), (high, high <= RANGE.1, -4.0)] {
            // An end that is not on the axis is an arrow.
            let at = x(end);
            if inside {
                canvas.line(&whisker, (at, y - 3.0), (at, y + 3.0));
            } else {
                canvas.line(&whisker, (at, y), (at + towards, y - 3.0));
                canvas.line(&whisker, (at, y), (at + towards, y + 3.0));
            }
        }
    }
    canvas.marker(&format!("dot {class}"), *shape, (x(effect.value), y), &effect.title);
}

/// The place of a ratio; one beyond the axis is at its end.
fn x(ratio: f64) -> f64 {
    const MARGIN: f64 = 6.0;
    let (low, high) = RANGE;
    let place = (ratio.clamp(low, high) / low).ln() / (high / low).ln();
    MARGIN + place.clamp(0.0, 1.0) * (WIDTH - 2.0 * MARGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_stay_on_the_axis_and_ends_beyond_it_are_arrows() {
        let effect = |value, interval| Effect {
            look: ("s0".into(), 0),
            of: "oxvs".into(),
            value,
            interval,
            allowed: (Some(0.9), Some(1.1)),
            title: "told".into(),
        };
        let effects = [
            effect(1.0, Some((0.5, 2.0))),
            effect(99.0, Some((0.0, f64::INFINITY))),
            effect(f64::NAN, None),
        ];
        let drawing = strip(&effects, "a claim");
        let body = drawing.body();
        assert_eq!(body.matches("<g data-s=\"oxvs\">").count(), 3);
        // Two ends of the first, two arrows of two lines each of the second.
        assert_eq!(body.matches("class=\"whisker s0\"").count(), 3 + 5);
        for value in body.split("x1=\"").skip(1) {
            let value: f64 = value.split('"').next().unwrap().parse().unwrap();
            assert!((0.0..=WIDTH).contains(&value), "{value}");
        }
        assert!(x(0.5) < x(1.0) && x(1.0) == WIDTH / 2.0);
    }
}
