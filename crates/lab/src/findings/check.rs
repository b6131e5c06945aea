//! One check of a finding, on the cells of a table.

use crate::stats::{Estimate, Ratio, Relation};
use crate::table::{Cell, Table};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A statement about a table that holds, or does not. In all of them `at` chooses cells, `each`
/// makes the statement for every value of some dimensions, and several cells in place of one mean
/// their average.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// The ratio of two results.
    Ratio(RatioCheck),
    /// Results rise or fall along a dimension.
    Trend(TrendCheck),
    /// One of several is the highest or the lowest.
    Extreme(ExtremeCheck),
    /// Several values are the same within a tolerance.
    Alike(AlikeCheck),
    /// Results lie within bounds.
    Bounds(BoundsCheck),
    /// One dimension matters more than another.
    Effect(EffectCheck),
}

/// Values of dimensions: one each, or several to average over.
pub type Where = BTreeMap<String, OneOrMany>;

/// See [`Where`].
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// This value.
    One(String),
    /// Any of these.
    Many(Vec<String>),
}

/// See [`Check::Ratio`]. Every bound given must hold.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatioCheck {
    table: String,
    over: Where,
    under: Where,
    #[serde(default)]
    at: Where,
    #[serde(default)]
    each: Vec<String>,
    above: Option<f64>,
    below: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    similar: Option<f64>,
}

/// See [`Check::Trend`]. No step goes the other way, and the last differs from the first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrendCheck {
    table: String,
    along: String,
    direction: Direction,
    #[serde(default)]
    at: Where,
    #[serde(default)]
    each: Vec<String>,
    /// The values that matter, in their order; all without it.
    #[serde(default)]
    over: Vec<String>,
}

/// Upwards or downwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Later ones are larger.
    Rising,
    /// Later ones are smaller.
    Falling,
}

/// See [`Check::Extreme`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtremeCheck {
    table: String,
    among: String,
    is: String,
    end: End,
    #[serde(default)]
    at: Where,
    #[serde(default)]
    each: Vec<String>,
}

/// Which of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The largest.
    Highest,
    /// The smallest.
    Lowest,
}

/// See [`Check::Alike`]: the largest over the smallest is 1 within the tolerance.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlikeCheck {
    table: String,
    among: String,
    tolerance: f64,
    #[serde(default)]
    at: Where,
    #[serde(default)]
    each: Vec<String>,
}

/// See [`Check::Bounds`], in the table's unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundsCheck {
    table: String,
    #[serde(default)]
    at: Where,
    #[serde(default)]
    each: Vec<String>,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// See [`Check::Effect`]: the factor from one value of a dimension to another is further from 1.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectCheck {
    of: Change,
    exceeds: Change,
    #[serde(default)]
    each: Vec<String>,
}

/// From one value of a dimension to another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    table: String,
    dimension: String,
    from: String,
    to: String,
}

/// The result of a check, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The numbers speak against it.
    Fails,
    /// They are not there.
    Missing,
    /// They do not decide.
    Undecided,
    /// They bear it out.
    Holds,
}

impl From<Option<bool>> for Outcome {
    fn from(holds: Option<bool>) -> Outcome {
        match holds {
            Some(true) => Outcome::Holds,
            Some(false) => Outcome::Fails,
            None => Outcome::Undecided,
        }
    }
}

/// The evidence of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The numbers, in words.
    pub text: String,
    /// For or against.
    pub outcome: Outcome,
}

type Tables = BTreeMap<String, Table>;
type Group = BTreeMap<String, String>;

impl Check {
    /// Runs the check for each group of cells with the needed values.
    pub fn run(&self, tables: &Tables) -> Vec<Evidence> {
        let (each, found) = match self {
            Check::Ratio(check) => (&check.each, check.run(tables)),
            Check::Trend(check) => (&check.each, check.run(tables)),
            Check::Extreme(check) => (&check.each, check.run(tables)),
            Check::Alike(check) => (&check.each, check.run(tables)),
            Check::Bounds(check) => (&check.each, check.run(tables)),
            Check::Effect(check) => (&check.each, check.run(tables)),
        };
        if !found.is_empty() {
            return found;
        }
        let each = match each.join(", ") {
            each if each.is_empty() => String::new(),
            each => format!(" for each {each}"),
        };
        vec![Evidence {
            text: format!("no results in '{}' that this needs{each}", self.tables().join("', '")),
            outcome: Outcome::Missing,
        }]
    }
}

impl Check {
    /// Names of the tables that it looks at.
    pub fn tables(&self) -> Vec<&str> {
        match self {
            Check::Ratio(check) => vec![&check.table],
            Check::Trend(check) => vec![&check.table],
            Check::Extreme(check) => vec![&check.table],
            Check::Alike(check) => vec![&check.table],
            Check::Bounds(check) => vec![&check.table],
            Check::Effect(check) => vec![&check.of.table, &check.exceeds.table],
        }
    }
}

impl Check {
    /// Whether it chooses values of a dimension, or compares them; doing the same for each of them
    /// is neither.
    pub fn names(&self, dimension: &str) -> bool {
        let at = |wheres: &[&Where]| wheres.iter().any(|at| at.contains_key(dimension));
        match self {
            Check::Ratio(check) => at(&[&check.over, &check.under, &check.at]),
            Check::Trend(check) => check.along == dimension || at(&[&check.at]),
            Check::Extreme(check) => check.among == dimension || at(&[&check.at]),
            Check::Alike(check) => check.among == dimension || at(&[&check.at]),
            Check::Bounds(check) => at(&[&check.at]),
            Check::Effect(check) => [&check.of, &check.exceeds]
                .iter()
                .any(|change| change.dimension == dimension),
        }
    }
}

impl RatioCheck {
    fn run(&self, tables: &Tables) -> Vec<Evidence> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let judge = |group: Group| {
            let pick = |side: &Where| average(table, &group, &[&self.at, side]);
            let (over, under) = (pick(&self.over)?, pick(&self.under)?);
            let ratio = Ratio::new(over, under)?;
            let text = format!(
                "{}{} over {}: {}",
                name(&group),
                show(&self.over),
                show(&self.under),
                show_ratio(over, under, ratio)
            );
            Some(Evidence {
                text,
                outcome: self.judge(ratio),
            })
        };
        judge_each(table, &self.each, &self.at, judge)
    }

    fn judge(&self, ratio: Ratio) -> Outcome {
        let bounds = [
            self.above.map(|bound| ratio.above(bound)),
            self.below.map(|bound| is_below(ratio, bound)),
            self.at_least.map(|bound| not(is_below(ratio, bound))),
            self.at_most.map(|bound| not(ratio.above(bound))),
            self.similar.map(|tolerance| ratio.similar(tolerance)),
        ];
        bounds
            .into_iter()
            .flatten()
            .map(Outcome::from)
            .min()
            .unwrap_or(Outcome::Undecided)
    }
}

/// Whether it is below a number; `None` if its interval contains the number.
fn is_below(ratio: Ratio, number: f64) -> Option<bool> {
    let interval = ratio.interval(0.99);
    if interval.high < number {
        Some(true)
    } else if interval.low > number || interval.low == interval.high {
        Some(false)
    } else {
        None
    }
}

/// Only the opposite refutes "at least": a value that does not differ from the bound confirms it.
fn not(opposite: Option<bool>) -> Option<bool> {
    Some(opposite != Some(true))
}

impl TrendCheck {
    fn run(&self, tables: &Tables) -> Vec<Evidence> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let values = if self.over.is_empty() {
            table.values_of(&self.along)
        } else {
            self.over.clone()
        };
        let judge = |group: Group| {
            let points = values.iter().filter_map(|value| {
                let here = Where::from([(self.along.clone(), OneOrMany::One(value.clone()))]);
                Some((value, average(table, &group, &[&self.at, &here])?))
            });
            let points: Vec<(&String, Estimate)> = points.collect();
            let ((_, first), (_, last)) = (points.first()?, points.last()?);
            let steps = points
                .windows(2)
                .filter_map(|pair| Some(self.goes(pair[0].1, pair[1].1)?.0));
            let wrong = steps.filter(|relation| *relation == Relation::Below).count();
            let (whole, _) = self.goes(*first, *last)?;
            let outcome = match (points.len(), wrong, whole) {
                (1, ..) => return None,
                (_, 0, Relation::Above) => Outcome::Holds,
                (_, 0, Relation::Undecided) => Outcome::Undecided,
                _ => Outcome::Fails,
            };
            let shown: Vec<String> = points
                .iter()
                .map(|(value, at)| format!("{value}: {}", short(at.mean())))
                .collect();
            let text = format!("{}{} {}", name(&group), self.along, shown.join(", "));
            Some(Evidence { text, outcome })
        };
        judge_each(table, &self.each, &self.at, judge)
    }

    /// `Above` if it goes the right way.
    fn goes(&self, from: Estimate, to: Estimate) -> Option<(Relation, Ratio)> {
        let ratio = match self.direction {
            Direction::Rising => Ratio::new(to, from)?,
            Direction::Falling => Ratio::new(from, to)?,
        };
        Some((ratio.relation(), ratio))
    }
}

impl ExtremeCheck {
    fn run(&self, tables: &Tables) -> Vec<Evidence> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let judge = |group: Group| {
            let of = |value: &String| {
                let here = Where::from([(self.among.clone(), OneOrMany::One(value.clone()))]);
                average(table, &group, &[&self.at, &here])
            };
            let best = of(&self.is)?;
            let others: Vec<String> = table
                .values_of(&self.among)
                .into_iter()
                .filter(|value| *value != self.is)
                .collect();
            let others: Vec<(&String, Estimate)> =
                others.iter().filter_map(|other| Some((other, of(other)?))).collect();
            let mut outcome = if others.is_empty() {
                Outcome::Missing
            } else {
                Outcome::Holds
            };
            let mut text = format!("{}{} {}", name(&group), self.is, short(best.mean()));
            for (other, value) in others {
                let ratio = match self.end {
                    End::Highest => Ratio::new(best, value)?,
                    End::Lowest => Ratio::new(value, best)?,
                };
                outcome = outcome.min(match ratio.relation() {
                    Relation::Above => Outcome::Holds,
                    Relation::Below => Outcome::Fails,
                    Relation::Similar | Relation::Undecided => Outcome::Undecided,
                });
                text.push_str(&format!(", {other} {}", short(value.mean())));
            }
            Some(Evidence { text, outcome })
        };
        judge_each(table, &self.each, &self.at, judge)
    }
}

impl AlikeCheck {
    fn run(&self, tables: &Tables) -> Vec<Evidence> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let judge = |group: Group| {
            let values = table.values_of(&self.among);
            let of = |value: String| {
                let here = Where::from([(self.among.clone(), OneOrMany::One(value.clone()))]);
                Some((average(table, &group, &[&self.at, &here])?, value))
            };
            let mut all: Vec<(Estimate, String)> = values.into_iter().filter_map(of).collect();
            all.sort_by(|a, b| a.0.mean().total_cmp(&b.0.mean()));
            let ((low, lowest), (high, highest)) = (all.first()?, all.last()?);
            let ratio = Ratio::new(*high, *low).filter(|_| all.len() > 1)?;
            let text = format!(
                "{}{highest} over {lowest}: {}",
                name(&group),
                show_ratio(*high, *low, ratio)
            );
            Some(Evidence {
                text,
                outcome: ratio.similar(self.tolerance).into(),
            })
        };
        judge_each(table, &self.each, &self.at, judge)
    }
}

impl BoundsCheck {
    fn run(&self, tables: &Tables) -> Vec<Evidence> {
        let Some(table) = tables.get(&self.table) else {
            return Vec::new();
        };
        let judge = |group: Group| {
            let value = average(table, &group, &[&self.at])?;
            let interval = value.interval(0.99);
            let least = self
                .at_least
                .map(|bound| Outcome::from(decide(interval.low >= bound, interval.high < bound)));
            let most = self
                .at_most
                .map(|bound| Outcome::from(decide(interval.high <= bound, interval.low > bound)));
            let outcome = least.into_iter().chain(most).min().unwrap_or(Outcome::Undecided);
            let at = self.at.iter().filter(|(dimension, _)| !self.each.contains(dimension));
            let at: Where = at
                .map(|(dimension, values)| (dimension.clone(), values.clone()))
                .collect();
            let mut text = format!("{}{}", name(&group), show(&at));
            if !text.is_empty() && !text.ends_with(": ") {
                text.push_str(": ");
            }
            text.push_str(&short(value.mean()));
            if !table.unit.is_empty() {
                text.push_str(&format!(" {}", table.unit));
            }
            Some(Evidence { text, outcome })
        };
        judge_each(table, &self.each, &self.at, judge)
    }
}

fn decide(holds: bool, fails: bool) -> Option<bool> {
    (holds || fails).then_some(holds)
}

impl EffectCheck {
    fn run(&self, tables: &Tables) -> Vec<Evidence> {
        let (Some(one), Some(other)) = (tables.get(&self.of.table), tables.get(&self.exceeds.table)) else {
            return Vec::new();
        };
        let judge = |group: Group| {
            let (of, exceeds) = (self.of.factor(one, &group)?, self.exceeds.factor(other, &group)?);
            let known = of.is_known() && exceeds.is_known();
            let (of, exceeds) = (of.value, exceeds.value);
            let text = format!(
                "{}{} changes it by {}, {} by {}",
                name(&group),
                self.of.dimension,
                short(of),
                self.exceeds.dimension,
                short(exceeds)
            );
            Some(Evidence {
                text,
                outcome: known.then_some(of.ln().abs() > exceeds.ln().abs()).into(),
            })
        };
        judge_each(one, &self.each, &Where::new(), judge)
    }
}

impl Change {
    fn factor(&self, table: &Table, group: &Group) -> Option<Ratio> {
        let of = |value: &String| {
            let here = Where::from([(self.dimension.clone(), OneOrMany::One(value.clone()))]);
            average(table, group, &[&here])
        };
        Ratio::new(of(&self.to)?, of(&self.from)?)
    }
}

/// Judges a statement for each group with the needed values.
fn judge_each(table: &Table, each: &[String], at: &Where, judge: impl Fn(Group) -> Option<Evidence>) -> Vec<Evidence> {
    groups(table, each, at).into_iter().filter_map(judge).collect()
}

/// The values of some dimensions that chosen cells have, each combination once.
fn groups(table: &Table, each: &[String], at: &Where) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for cell in table.cells.iter().filter(|cell| chosen(cell, at)) {
        let group = each
            .iter()
            .filter_map(|dimension| Some((dimension.clone(), cell.at.get(dimension)?.clone())));
        let group: Group = group.collect();
        if group.len() == each.len() && !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// Whether a cell has the requested values; missing dimensions do not matter.
fn chosen(cell: &Cell, at: &Where) -> bool {
    at.iter()
        .all(|(dimension, wanted)| match (cell.at.get(dimension), wanted) {
            (Some(value), OneOrMany::One(wanted)) => value == wanted,
            (Some(value), OneOrMany::Many(wanted)) => wanted.contains(value),
            (None, _) => false,
        })
}

/// The average of the cells chosen, `None` of none.
fn average(table: &Table, group: &Group, at: &[&Where]) -> Option<Estimate> {
    let cells = table.cells.iter().filter(|cell| {
        group
            .iter()
            .all(|(dimension, value)| cell.at.get(dimension) == Some(value))
            && at.iter().all(|at| chosen(cell, at))
    });
    Estimate::average(&cells.map(|cell| cell.value).collect::<Vec<_>>())
}

fn name(group: &Group) -> String {
    if group.is_empty() {
        return String::new();
    }
    let values: Vec<String> = group
        .iter()
        .map(|(dimension, value)| show_value(dimension, value))
        .collect();
    format!("{}: ", values.join(", "))
}

fn show(at: &Where) -> String {
    let value = |(dimension, value): (&String, &OneOrMany)| match value {
        OneOrMany::One(value) => show_value(dimension, value),
        OneOrMany::Many(values) => show_value(dimension, &values.join(" or ")),
    };
    at.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// A value of a dimension; a number has the dimension's name with it.
fn show_value(dimension: &str, value: &str) -> String {
    if value.starts_with(|c: char| c.is_ascii_digit()) {
        format!("{dimension} {value}")
    } else {
        value.to_owned()
    }
}

fn show_ratio(over: Estimate, under: Estimate, ratio: Ratio) -> String {
    let values = format!(
        "{} / {} = {}",
        short(over.mean()),
        short(under.mean()),
        short(ratio.value)
    );
    if !ratio.is_known() {
        return format!("{values} (one repetition: no interval)");
    }
    let interval = ratio.interval(0.99);
    if interval.low == interval.high {
        return values;
    }
    format!("{values} ({} to {})", short(interval.low), short(interval.high))
}

/// Four significant digits.
fn short(value: f64) -> String {
    // A few repetitions that differ widely have intervals without end.
    if value >= 1e9 {
        return format!("{value:.0e}");
    }
    if value > 0.0 && value < 1e-6 {
        return "0".to_owned();
    }
    let digits = if value == 0.0 {
        0
    } else {
        (3 - value.abs().log10().floor() as i32).clamp(0, 9)
    };
    format!("{value:.*}", digits as usize)
}
