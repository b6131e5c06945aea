//! Compares two records.

use crate::record::Record;
use crate::scenario::{Near, Scenario};
use std::fmt;
use std::fmt::Write as _;

/// What differs.
#[derive(Debug, PartialEq)]
pub(crate) struct Difference {
    moved: usize,
    /// By either, by the kernel, by ours.
    fates: usize,
    dropped: [usize; 2],
    marked: [usize; 2],
    late: u64,
    /// The constant delay of the kernel's path.
    path: i64,
    share: f64,
    wait: u64,
    table: String,
    left: usize,
}

impl Difference {
    pub(crate) fn of(scenario: &Scenario, kernel: &Record, ours: &Record) -> Difference {
        let pairs = || kernel.fates.iter().zip(&ours.fates);
        let fates = pairs().filter(|(k, o)| k.left.is_some() != o.left.is_some()).count();
        let count = |record: &Record, what: fn(&crate::record::Fate) -> bool| {
            record.fates.iter().filter(|fate| what(fate)).count()
        };
        let mut lateness: Vec<i64> = pairs()
            .filter_map(|(k, o)| Some(k.left?.cast_signed() - o.left?.cast_signed()))
            .collect();
        lateness.sort_unstable();
        let path = lateness.get(lateness.len() / 2).copied().unwrap_or(0);
        let mut off: Vec<u64> = lateness.iter().map(|late| late.abs_diff(path)).collect();
        off.sort_unstable();
        let late = off.get(off.len() * 95 / 100).copied().unwrap_or(0);
        let series = Series::new(scenario, kernel);
        Difference {
            table: series.table(kernel, ours),
            moved: moved(kernel, ours),
            fates,
            dropped: [kernel, ours].map(|record| count(record, |fate| fate.left.is_none())),
            marked: [kernel, ours].map(|record| count(record, |fate| fate.marked)),
            late,
            path,
            share: series.shares_apart(kernel, ours),
            wait: series.waits_apart(kernel, ours, path),
            left: lateness.len(),
        }
    }

    /// Whether it is within the tolerances, else the one exceeded.
    pub(crate) fn within(&self, near: &Near) -> Result<(), String> {
        let beyond = |what: &str, value: usize, most: usize| {
            (value > most).then(|| format!("{what}: {value}, more than {most}"))
        };
        let apart = |[kernel, ours]: [usize; 2]| kernel.abs_diff(ours);
        let faults: Vec<String> = [
            (self.left == 0).then(|| "nothing came through both".to_owned()),
            beyond("places moved", self.moved, near.moved),
            beyond("other fates", self.fates, near.fates),
            beyond("drops apart", apart(self.dropped), near.drops),
            beyond("marks apart", apart(self.marked), near.drops),
            (self.late > near.late).then(|| format!("{} µs off, more than {}", self.late, near.late)),
            (self.share > near.share).then(|| format!("shares {:.4} apart, more than {}", self.share, near.share)),
            (self.wait > near.wait).then(|| format!("mean waits {} µs apart, more than {}", self.wait, near.wait)),
        ]
        .into_iter()
        .flatten()
        .collect();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(format!("{}\n{self}", faults.join("; ")))
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} left both, order moved by {}; ", self.left, self.moved)?;
        write!(
            f,
            "dropped {} and {} ({} by one only); ",
            self.dropped[0], self.dropped[1], self.fates
        )?;
        write!(f, "marked {} and {}; ", self.marked[0], self.marked[1])?;
        write!(f, "{} µs off beside {}; ", self.late, self.path)?;
        write!(
            f,
            "shares {:.4}, mean waits {} µs apart{}",
            self.share, self.wait, self.table
        )
    }
}

/// The most places by which a packet that left both is earlier or later in one order.
fn moved(kernel: &Record, ours: &Record) -> usize {
    let both = |order: Vec<usize>, other: &Record| -> Vec<usize> {
        order.into_iter().filter(|n| other.fates[*n].left.is_some()).collect()
    };
    let (kernel_order, our_order) = (both(kernel.order(), ours), both(ours.order(), kernel));
    let mut places = vec![0; kernel.fates.len()];
    for (place, n) in our_order.iter().enumerate() {
        places[*n] = place;
    }
    let moves = kernel_order
        .iter()
        .enumerate()
        .map(|(place, n)| place.abs_diff(places[*n]));
    moves.max().unwrap_or(0)
}

/// A scenario's packets by their class (or, where there is one class only, their flow) and by the
/// quarter of the time in which they left.
struct Series<'a> {
    scenario: &'a Scenario,
    one_class: bool,
    keys: usize,
    end: u64,
}

impl Series<'_> {
    fn new<'a>(scenario: &'a Scenario, kernel: &Record) -> Series<'a> {
        let offers = &scenario.offers;
        let one_class = offers.iter().all(|offer| offer.class == offers[0].class);
        let most = offers.iter().map(|offer| offer.class.max(offer.flow)).max();
        Series {
            scenario,
            one_class,
            keys: usize::from(most.unwrap_or(0)) + 1,
            end: kernel.fates.iter().filter_map(|fate| fate.left).max().unwrap_or(0) + 1,
        }
    }

    /// Of each class and quarter: bytes that left, packets that did, and the µs that they had
    /// waited.
    fn sums(&self, record: &Record) -> Vec<[f64; 3]> {
        let mut sums = vec![[0.0; 3]; self.keys * 4];
        for (fate, offer) in record.fates.iter().zip(&self.scenario.offers) {
            let Some(left) = fate.left else { continue };
            let key = if self.one_class { offer.flow } else { offer.class };
            let quarter = (left * 4 / self.end).min(3) as usize;
            let sum = &mut sums[quarter * self.keys + usize::from(key)];
            sum[0] += f64::from(offer.bytes);
            sum[1] += 1.0;
            sum[2] += (left - fate.sent) as f64;
        }
        sums
    }

    /// A line for each class that sent anything, with packets and mean waits (µs) in each quarter:
    /// the kernel's, ours.
    fn table(&self, kernel: &Record, ours: &Record) -> String {
        let (kernel, ours) = (self.sums(kernel), self.sums(ours));
        let mut text = String::new();
        let sends = |key: &usize| {
            (0..4).any(|quarter| kernel[quarter * self.keys + key][1] + ours[quarter * self.keys + key][1] > 0.0)
        };
        for key in (0..self.keys).filter(sends) {
            let _ = write!(text, "\n{key:4}");
            for quarter in 0..4 {
                let at = quarter * self.keys + key;
                let mean = |sum: &[f64; 3]| sum[2] / sum[1].max(1.0);
                let (k, o) = (&kernel[at], &ours[at]);
                let _ = write!(text, " | {:4} {:4} {:7.0} {:7.0}", k[1], o[1], mean(k), mean(o));
            }
        }
        text
    }

    /// The most that a class's bytes differ in a quarter, as a part of what all sent in it.
    fn shares_apart(&self, kernel: &Record, ours: &Record) -> f64 {
        let (kernel, ours) = (self.sums(kernel), self.sums(ours));
        let quarters = kernel.chunks(self.keys).zip(ours.chunks(self.keys));
        let apart = quarters.flat_map(|(kernel, ours)| {
            let all: f64 = kernel.iter().map(|sum| sum[0]).sum();
            let each = kernel.iter().zip(ours);
            each.map(move |(kernel, ours)| (kernel[0] - ours[0]).abs() / all.max(1.0))
        });
        apart.fold(0.0, f64::max)
    }

    /// The most that the mean wait of a class's packets differs in a quarter in which either sent
    /// 20 of them, in µs.
    fn waits_apart(&self, kernel: &Record, ours: &Record, path: i64) -> u64 {
        let (kernel, ours) = (self.sums(kernel), self.sums(ours));
        let mean = |sum: &[f64; 3]| sum[2] / sum[1].max(1.0);
        let each = kernel
            .iter()
            .zip(&ours)
            .filter(|(kernel, ours)| kernel[1].min(ours[1]) >= 20.0);
        let apart = each.map(|(kernel, ours)| (mean(kernel) - mean(ours) - path.clamp(0, 100) as f64).abs());
        apart.fold(0.0, f64::max) as u64
    }
}
