//! A statement about one number, and how the numbers stand to it.

use crate::stats::{Contrast, Estimate, Interval, Ratio};

/// That a quantity lies within bounds. It holds if the confidence interval lies within them, and
/// is refuted if the interval lies outside.
#[derive(Clone, Debug)]
pub struct Claim {
    /// About what.
    pub(super) name: String,
    pub(super) quantity: Quantity,
    pub(super) at_least: Option<f64>,
    pub(super) at_most: Option<f64>,
}

/// The number that a claim is about.
#[derive(Clone, Debug)]
pub(super) enum Quantity {
    /// A mean, in a unit.
    Mean(Estimate, String),
    /// A ratio.
    Ratio(Ratio),
    /// Two changes by a factor, as logarithms: their difference and their sum. The first is the
    /// larger if both have the same sign.
    Changes { difference: Contrast, sum: Contrast },
}

/// The result of a claim, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The interval lies outside of the bounds.
    Refuted,
    /// There is no result.
    Missing,
    /// The interval contains a bound.
    Undecided,
    /// The interval lies within the bounds.
    Holds,
}

/// The evidence of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The numbers, in words.
    pub text: String,
    /// For or against.
    pub outcome: Outcome,
    /// About how many repetitions would decide; none if it is decided or nobody can tell.
    pub needs: Option<u64>,
    /// The numbers, to draw; none if they are no ratio.
    pub effect: Option<Effect>,
}

/// A claim's number as a ratio: of two results, of two changes, or of a result to its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The best guess.
    pub value: f64,
    /// The interval that decides.
    pub interval: Option<Interval>,
    /// What the claim allows.
    pub at_least: Option<f64>,
    /// See [`Effect::at_least`].
    pub at_most: Option<f64>,
}

impl Quantity {
    /// A number that lies on one side of the second one where the quantity lies on that side of a
    /// bound.
    fn contrast(&self, bound: f64) -> (Contrast, f64) {
        match self {
            Quantity::Mean(estimate, _) => (Contrast::sum([(1.0, *estimate)]), bound),
            Quantity::Ratio(ratio) => (ratio.at(bound), 0.0),
            Quantity::Changes { difference, .. } => (*difference, bound),
        }
    }

    fn interval(&self, level: f64) -> Option<Interval> {
        match self {
            Quantity::Mean(estimate, _) => Contrast::sum([(1.0, *estimate)]).interval(level),
            Quantity::Ratio(ratio) => ratio.interval(level),
            Quantity::Changes { difference, .. } => difference.interval(level),
        }
    }
}

impl Claim {
    /// The probability of numbers as good as these, or better, if it were not true.
    pub fn holds(&self) -> f64 {
        match &self.quantity {
            Quantity::Changes { difference, sum } => same_sign(*difference, *sum),
            // Both bounds have to be shown; the less certain one counts.
            _ => self
                .sides()
                .map(|(bound, least)| self.beyond(bound, least))
                .fold(0.0, f64::max),
        }
    }

    /// The probability of numbers as bad as these, or worse, if it were true.
    pub fn refuted(&self) -> f64 {
        if let Quantity::Changes { difference, sum } = &self.quantity {
            return same_sign(difference.negative(), *sum);
        }
        let value = self.value();
        let is_within = self
            .sides()
            .all(|(bound, least)| if least { value >= bound } else { value <= bound });
        if is_within {
            // Values without spread may lie on the bound.
            return 1.0;
        }
        // Either bound can be broken: two chances to err.
        let chances = self.sides().count() as f64;
        let beyond = self.sides().map(|(bound, least)| self.beyond(bound, !least));
        (chances * beyond.fold(1.0, f64::min)).min(1.0)
    }

    /// Its bounds; whether each is a lower one.
    fn sides(&self) -> impl Iterator<Item = (f64, bool)> + '_ {
        let least = self.at_least.map(|bound| (bound, true));
        least.into_iter().chain(self.at_most.map(|bound| (bound, false)))
    }

    fn value(&self) -> f64 {
        match &self.quantity {
            Quantity::Mean(estimate, _) => estimate.mean(),
            Quantity::Ratio(ratio) => ratio.value(),
            Quantity::Changes { difference, .. } => difference.value,
        }
    }

    /// The probability of such numbers if the truth were on the other side of the bound.
    fn beyond(&self, bound: f64, above: bool) -> f64 {
        let (contrast, bound) = self.quantity.contrast(bound);
        if above {
            contrast.above(bound)
        } else {
            contrast.below(bound)
        }
    }

    /// How it stands, if it holds with a probability of error of `holds` and is refuted with one of
    /// `refutes`.
    pub(crate) fn evidence(&self, holds: f64, refutes: f64) -> Evidence {
        let outcome = if self.holds() <= holds {
            Outcome::Holds
        } else if self.refuted() <= refutes {
            Outcome::Refuted
        } else {
            Outcome::Undecided
        };
        let level = match outcome {
            Outcome::Refuted => refutes / self.sides().count().max(1) as f64,
            _ => holds,
        };
        let needs = (outcome == Outcome::Undecided)
            .then(|| self.needs(holds, refutes))
            .flatten();
        let mut text = format!("{}{}", self.name, self.numbers(1.0 - 2.0 * level));
        if let Some(n) = needs {
            text.push_str(&match n {
                ..=10_000 => format!("; about {n} repetitions would decide"),
                _ => "; more than 10 000 repetitions would be needed to decide".to_owned(),
            });
        }
        Evidence {
            text,
            outcome,
            needs,
            effect: self.effect(1.0 - 2.0 * level),
        }
    }

    fn effect(&self, level: f64) -> Option<Effect> {
        let interval = self.quantity.interval(level);
        match &self.quantity {
            Quantity::Ratio(ratio) => Some(Effect {
                value: ratio.value(),
                interval,
                at_least: self.at_least,
                at_most: self.at_most,
            }),
            Quantity::Mean(estimate, _) => {
                let bound = self.at_most.or(self.at_least).filter(|bound| *bound > 0.0)?;
                Some(Effect {
                    value: estimate.mean() / bound,
                    interval: interval.map(|interval| Interval {
                        low: interval.low / bound,
                        high: interval.high / bound,
                    }),
                    at_least: self.at_least.map(|least| least / bound),
                    at_most: self.at_most.map(|most| most / bound),
                })
            }
            Quantity::Changes { difference, .. } => Some(Effect {
                value: difference.value.exp(),
                interval: interval.map(|interval| Interval {
                    low: interval.low.exp(),
                    high: interval.high.exp(),
                }),
                at_least: Some(1.0),
                at_most: None,
            }),
        }
    }

    /// Repetitions that decide which way the best guess says.
    fn needs(&self, holds: f64, refutes: f64) -> Option<u64> {
        if let Quantity::Changes { difference, .. } = &self.quantity {
            return difference.needs(0.0, holds.min(refutes));
        }
        let value = self.value();
        let (within, broken): (Vec<_>, Vec<_>) = self
            .sides()
            .partition(|(bound, least)| if *least { value >= *bound } else { value <= *bound });
        let needs = |bound: f64, level: f64| {
            let (contrast, bound) = self.quantity.contrast(bound);
            contrast.needs(bound, level)
        };
        match broken.first() {
            Some((bound, _)) => needs(*bound, refutes),
            None => within.iter().filter_map(|(bound, _)| needs(*bound, holds)).max(),
        }
    }

    /// Value and interval.
    fn numbers(&self, level: f64) -> String {
        let (interval, claimed) = (self.quantity.interval(level), self.bounds());
        let shown = match &self.quantity {
            Quantity::Mean(estimate, unit) => {
                let unit = if unit.is_empty() {
                    String::new()
                } else {
                    format!(" {unit}")
                };
                format!("{}{unit}", short(estimate.mean()))
            }
            Quantity::Ratio(ratio) => {
                let (over, under) = ratio.sums();
                format!("{} / {} = {}", short(over), short(under), short(ratio.value()))
            }
            Quantity::Changes { difference, sum } => {
                let (one, other) = (
                    (sum.value + difference.value) / 2.0,
                    (sum.value - difference.value) / 2.0,
                );
                let shown = format!("factors of {} and {}", short(one.exp()), short(other.exp()));
                return match interval {
                    Some(Interval { low, high }) if low < high => format!(
                        "{shown}; one over the other {} to {} ({})",
                        short(low.exp()),
                        short(high.exp()),
                        percent(level)
                    ),
                    Some(_) => shown,
                    None => format!("{shown}, of one testbed: no interval"),
                };
            }
        };
        match interval {
            None => format!("{shown}, of one testbed: no interval; claimed {claimed}"),
            Some(Interval { low, high }) if low == high => format!("{shown}; claimed {claimed}"),
            Some(Interval { low, high }) => {
                format!(
                    "{shown} ({}: {} to {}); claimed {claimed}",
                    percent(level),
                    short(low),
                    short(high)
                )
            }
        }
    }

    fn bounds(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(least), Some(most)) if least == most => format!("exactly {}", short(least)),
            (Some(least), Some(most)) => format!("{} to {}", short(least), short(most)),
            (Some(least), None) => format!("at least {}", short(least)),
            (None, Some(most)) => format!("at most {}", short(most)),
            (None, None) => "nothing".to_owned(),
        }
    }
}

/// The probability of such numbers unless a difference and a sum have the same sign.
fn same_sign(difference: Contrast, sum: Contrast) -> f64 {
    let positive = difference.above(0.0).max(sum.above(0.0));
    let negative = difference.below(0.0).max(sum.below(0.0));
    positive.min(negative)
}

/// A probability of nearly 1 with as many nines as it has.
fn percent(level: f64) -> String {
    let rest = (1.0 - level).max(1e-9);
    let digits = (-(rest.log10() + 2.0)).ceil().clamp(0.0, 6.0) as usize;
    format!("{:.*} %", digits + usize::from(digits > 0), 100.0 * level)
}

/// Four significant digits.
pub(super) fn short(value: f64) -> String {
    // A few repetitions that differ widely have intervals without end.
    if value == f64::INFINITY {
        return "∞".to_owned();
    }
    if value.abs() >= 1e9 {
        return format!("{value:.0e}");
    }
    if value.abs() < 1e-6 {
        return "0".to_owned();
    }
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 9);
    format!("{value:.*}", digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(mean: f64, deviation: f64, n: u64, at_least: Option<f64>, at_most: Option<f64>) -> Claim {
        Claim {
            name: String::new(),
            quantity: Quantity::Mean(
                Estimate::Mean {
                    mean,
                    deviation,
                    n,
                    skew: 0.0,
                },
                "ms".into(),
            ),
            at_least,
            at_most,
        }
    }

    fn outcome(claim: &Claim) -> Outcome {
        claim.evidence(0.05, 0.05).outcome
    }

    #[test]
    fn a_bound_holds_only_if_the_interval_is_within_and_is_refuted_only_if_it_is_outside() {
        let at_most = |mean, deviation| outcome(&claim(mean, deviation, 10, None, Some(10.0)));
        assert_eq!(at_most(8.0, 1.0), Outcome::Holds);
        assert_eq!(at_most(12.0, 1.0), Outcome::Refuted);
        assert_eq!(at_most(9.0, 30.0), Outcome::Undecided, "a lack of power is no proof");
        assert_eq!(at_most(10.0, 0.0), Outcome::Holds);
        let within = |mean, deviation| outcome(&claim(mean, deviation, 10, Some(9.0), Some(11.0)));
        assert_eq!(within(10.0, 0.5), Outcome::Holds);
        assert_eq!(within(10.0, 5.0), Outcome::Undecided);
        assert_eq!(
            (within(13.0, 1.0), within(7.0, 1.0)),
            (Outcome::Refuted, Outcome::Refuted)
        );
    }

    #[test]
    fn the_text_has_the_interval_that_decided_and_what_would_decide() {
        let text = claim(9.0, 4.0, 10, None, Some(10.0)).evidence(0.05, 0.05).text;
        assert!(
            text.starts_with("9.000 ms (90 %: 6.681 to 11.32); claimed at most 10.00; about "),
            "{text}"
        );
        assert!(text.ends_with(" repetitions would decide"), "{text}");
        let text = claim(9.0, 0.1, 10, None, Some(10.0)).evidence(0.001, 0.05).text;
        assert!(text.contains("(99.80 %: ") && !text.contains("would decide"), "{text}");
        let single = Claim {
            quantity: Quantity::Mean(Estimate::Single(1.0), String::new()),
            ..claim(0.0, 0.0, 2, None, Some(10.0))
        };
        let evidence = single.evidence(0.05, 0.05);
        assert_eq!((evidence.outcome, evidence.needs), (Outcome::Undecided, None));
        let effect = evidence.effect.unwrap();
        assert_eq!((effect.value, effect.interval, effect.at_most), (0.1, None, Some(1.0)));
        assert!(evidence.text.contains("one testbed: no interval"), "{}", evidence.text);
    }
}
