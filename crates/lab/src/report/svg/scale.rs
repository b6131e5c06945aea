//! From numbers to places on an axis.

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    /// Its title.
    pub title: String,
    /// Of its numbers; none: empty.
    pub unit: String,
}

impl Axis {
    /// As it is written beside it.
    pub(crate) fn label(&self, scale: &Scale) -> String {
        let kind = if scale.logarithmic {
            ", log scale"
        } else if scale.is_cut {
            ", not from 0"
        } else {
            ""
        };
        self.named() + kind
    }

    /// Title and unit.
    pub(crate) fn named(&self) -> String {
        match self.unit.as_str() {
            "" => self.title.clone(),
            unit => format!("{} ({unit})", self.title),
        }
    }
}

/// A scale, with its ticks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    /// Whether equal distances are equal ratios.
    pub logarithmic: bool,
    /// Whether equal distances are equal ratios of what is missing to 1.
    tail: bool,
    /// Whether a scale for results begins above 0.
    is_cut: bool,
    /// Values with a tick, and what it says.
    pub ticks: Vec<(f64, String)>,
}

/// The ratio of the largest to the smallest value from which a logarithmic scale is used.
const WIDE: f64 = 10.0;
/// The ratio of the smallest to the largest value from which the scale begins above 0.
const NEAR: f64 = 0.7;

/// The largest share that a [`Scale::tail`] shows.
pub(crate) const TAIL: f64 = 0.999;

impl Scale {
    /// For results: from 0 to a little over the largest; logarithmic if they are far apart and all
    /// positive, around them if they are near each other.
    pub(crate) fn of_values(values: impl IntoIterator<Item = f64>) -> Scale {
        let values: Vec<f64> = values.into_iter().collect();
        let (low, high, positive) = range(values.iter().copied());
        if positive && high / low >= WIDE {
            return Scale::decades(low, high);
        }
        if positive && low < high && low >= NEAR * high {
            let step = step(high - low, 3.0);
            let (bottom, top) = ((low / step - 0.1).floor() * step, (high / step + 0.1).ceil() * step);
            return Scale {
                is_cut: bottom > 0.0,
                ..Scale::linear(bottom, top, step)
            };
        }
        Scale::from_zero(values)
    }

    /// From 0 to a little over the largest.
    pub(crate) fn from_zero(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high, _) = range(values);
        let high = if high <= 0.0 { 1.0 } else { high };
        let step = step(high.max(-low), 4.0);
        let bottom = if low < 0.0 { (low / step).floor() * step } else { 0.0 };
        let top = (high * 1.02 / step).ceil() * step;
        Scale::linear(bottom, top, step)
    }

    /// Shares of values, from none to all but one in a thousand: a decade of what lies above is as
    /// high as the next.
    pub(crate) fn tail() -> Scale {
        let ticks = [
            (0.0, "0"),
            (0.5, "50 %"),
            (0.9, "90 %"),
            (0.99, "99 %"),
            (0.999, "99.9 %"),
        ];
        Scale {
            low: 0.0,
            high: TAIL,
            logarithmic: false,
            tail: true,
            is_cut: false,
            ticks: ticks.map(|(at, text)| (at, text.to_owned())).into(),
        }
    }

    /// For a dimension: a tick at each value if there is room; logarithmic if requested or if they
    /// are very far apart.
    pub(crate) fn of_steps(values: &[f64], room: usize, logarithmic: bool) -> Scale {
        let (low, high, positive) = range(values.iter().copied());
        let logarithmic = positive && (logarithmic || high / low >= 100.0);
        let mut ticks: Vec<(f64, String)> = values.iter().map(|value| (*value, number(*value))).collect();
        if ticks.len() > room {
            let linear = Scale::linear(0.0, high, step(high, room as f64));
            ticks = if logarithmic {
                Scale::decades(low, high).ticks
            } else {
                linear.ticks
            };
            ticks.retain(|(value, _)| *value >= low && *value <= high);
        }
        let margin = 0.04;
        let (low, high) = if logarithmic {
            let part = (high / low).powf(margin);
            (low / part, high * part)
        } else {
            let part = if high > low { (high - low) * margin } else { 1.0 };
            (low - part, high + part)
        };
        Scale {
            low,
            high,
            logarithmic,
            tail: false,
            is_cut: false,
            ticks,
        }
    }

    /// For values without numbers: one beside the other.
    pub(crate) fn of_places(places: &[f64]) -> Scale {
        let last = places.last().copied().unwrap_or(0.0);
        Scale {
            low: -0.4,
            high: last + 0.4,
            logarithmic: false,
            tail: false,
            is_cut: false,
            ticks: places.iter().map(|place| (*place, String::new())).collect(),
        }
    }

    /// For the values of a distribution: covers all of them, logarithmic if they are far apart.
    pub(crate) fn of_distribution(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high, positive) = range(values);
        if positive && high / low >= 8.0 {
            return Scale::decades(low, high);
        }
        Scale::of_values([low.min(0.0), high])
    }

    fn linear(low: f64, high: f64, step: f64) -> Scale {
        let count = ((high - low) / step).round() as usize;
        let ticks = (0..=count).map(|n| low + n as f64 * step).map(|at| (at, number(at)));
        Scale {
            low,
            high,
            logarithmic: false,
            tail: false,
            is_cut: false,
            ticks: ticks.collect(),
        }
    }

    /// Ticks at powers of ten, and between them where there are few.
    fn decades(low: f64, high: f64) -> Scale {
        let (low, high) = (low / 1.15, high * 1.15);
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let steps: &[f64] = match high / low {
            ratio if ratio < 30.0 => &[1.0, 2.0, 5.0],
            ratio if ratio < 1000.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let every = ((last - first) / 6).max(1);
        let ticks = (first..=last)
            .filter(|decade| (decade - first) % every == 0)
            .flat_map(|decade| {
                let at = |step: &f64| step * 10f64.powi(decade);
                steps.iter().map(at).map(|at| (at, number(at))).collect::<Vec<_>>()
            });
        Scale {
            ticks: ticks.filter(|(at, _)| (low..=high).contains(at)).collect(),
            low,
            high,
            logarithmic: true,
            tail: false,
            is_cut: false,
        }
    }

    /// The position of a value: 0 at the start, 1 at the end; values outside are at the nearer end.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let place = if self.tail {
            (1.0 - value.min(self.high)).ln() / (1.0 - self.high).ln()
        } else if self.logarithmic {
            (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The least and the largest, and whether all are above zero.
fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64, bool) {
    let mut range = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.into_iter().filter(|value| value.is_finite()) {
        range = (range.0.min(value), range.1.max(value));
    }
    if range.0 > range.1 {
        return (0.0, 0.0, false);
    }
    (range.0, range.1, range.0 > 0.0)
}

/// A round step that divides a range into about this many parts.
fn step(range: f64, times: f64) -> f64 {
    if range <= 0.0 || !range.is_finite() {
        return 1.0;
    }
    let rough = range / times;
    let decade = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * decade >= rough * 0.999);
    factor.unwrap_or(10.0) * decade
}

/// An uncertainty as a person writes it: two digits that matter.
pub(crate) fn rough(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return number(value);
    }
    let unit = 10f64.powi(value.abs().log10().floor() as i32 - 1);
    number((value / unit).round() * unit)
}

/// A number as a person writes it: four digits that matter, thousands as k, M, G.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let (scaled, suffix) = match size {
        _ if size >= 999_950_000.0 => (value / 1e9, "G"),
        _ if size >= 999_950.0 => (value / 1e6, "M"),
        _ if size >= 9_999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    if size == 0.0 {
        return "0".into();
    }
    let digits = (3 - scaled.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let mut text = format!("{scaled:.digits$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    if text.is_empty() || text == "-0" {
        text = "0".into();
    }
    text + suffix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_begin_at_zero_and_end_at_a_round_number() {
        let scale = Scale::of_values([3.0, 9.3]);
        assert_eq!(scale.place(0.0), 0.0);
        assert_eq!(scale.place(10.0), 1.0);
        assert_eq!(scale.ticks.len(), 5, "{:?}", scale.ticks);
        assert!(!scale.logarithmic);
    }

    #[test]
    fn results_near_each_other_have_a_scale_around_them_that_says_so() {
        let scale = Scale::of_values([82.28, 87.4, 93.71]);
        assert_eq!((scale.place(80.0), scale.place(95.0)), (0.0, 1.0));
        assert!(Axis::default().label(&scale).contains("not from 0"));
        assert!(
            !Axis::default()
                .label(&Scale::of_values([5.0, 5.0]))
                .contains("not from 0")
        );
    }

    #[test]
    fn results_far_apart_have_a_logarithmic_scale_with_all_of_them_on_it() {
        let scale = Scale::of_values([0.12, 340.0]);
        assert!(scale.logarithmic && scale.place(0.12) > 0.0 && scale.place(340.0) < 1.0);
        assert!(scale.ticks.iter().any(|(at, text)| *at == 10.0 && text == "10"));
        assert!(!Scale::of_values([0.0, 340.0]).logarithmic);
    }

    #[test]
    fn a_tail_gives_each_decade_of_what_lies_above_the_same_height() {
        let scale = Scale::tail();
        assert_eq!((scale.place(0.0), scale.place(TAIL), scale.place(1.0)), (0.0, 1.0, 1.0));
        let decades = [0.0, 0.9, 0.99, 0.999].map(|share| scale.place(share));
        for (n, place) in decades.iter().enumerate() {
            assert!((place - n as f64 / 3.0).abs() < 1e-9, "{decades:?}");
        }
    }

    #[test]
    fn what_was_varied_has_its_own_values_as_ticks() {
        let scale = Scale::of_steps(&[4.0, 8.0, 16.0, 64.0], 8, true);
        assert!(scale.logarithmic);
        let texts: Vec<&str> = scale.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["4", "8", "16", "64"]);
        let many: Vec<f64> = (1..=30).map(|n| f64::from(n) * 50.0).collect();
        assert!(Scale::of_steps(&many, 6, false).ticks.len() <= 8);
    }

    #[test]
    fn nothing_and_nonsense_have_a_scale_too() {
        for scale in [
            Scale::of_values([]),
            Scale::of_values([f64::NAN, 0.0]),
            Scale::of_steps(&[5.0], 4, true),
        ] {
            assert!(
                scale.place(5.0).is_finite() && scale.place(f64::NAN).is_finite(),
                "{scale:?}"
            );
        }
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.00251, 0.1, 93.456, 1500.0, 12_345.6, 3_000_000.0, 9_999.9, 2.5e9].map(number);
        assert_eq!(
            texts,
            ["0", "0.00251", "0.1", "93.46", "1500", "12.35k", "3M", "10k", "2.5G"]
        );
    }
}
