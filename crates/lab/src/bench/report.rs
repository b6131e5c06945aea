//! The results: a table to read, and a file for later comparisons.

use super::Case;
use super::case::{flows, name};
use crate::results::Machine;
use crate::stats::Series;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// A benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The measured switches with versions.
    pub switches: Vec<String>,
    /// Seconds of a turn.
    pub turn: f64,
    /// Case by case.
    pub measured: Vec<Measured>,
}

/// A case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What.
    pub case: Case,
    /// By switch.
    pub figures: BTreeMap<String, Figures>,
    /// oxvs over the peer; none without a peer.
    pub ratio: Option<Ratio>,
    /// oxvs over oxvs with the rules that it is measured beside; none where there are none.
    pub beside: Option<Ratio>,
    /// As they were, those that do not count too.
    pub rounds: Vec<Round>,
}

/// One switch in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Packets a second that it took in, in millions; the median of rounds.
    pub mpps: f64,
    /// Of packets taken in, the share that left by the sink.
    pub delivered: f64,
    /// Cycles a packet, if the processor counts them.
    pub cycles: Option<f64>,
    /// Instructions a packet, if the processor counts them.
    pub instructions: Option<f64>,
    /// Packets that each cache knew, and upcalls.
    pub hits: BTreeMap<String, u64>,
    /// Of its settings, the best that was found.
    pub setting: String,
    /// The commands that set it up.
    pub configuration: Vec<String>,
}

/// Of two rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median of the rounds' ratios.
    pub median: f64,
    /// The median's confidence interval at 95 %, or at the level that the number of rounds allows.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} [{:.2}, {:.2}]", self.median, self.low, self.high)
    }
}

/// A round: a turn of each switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Of each switch.
    pub turns: Vec<Turn>,
    /// Nanoseconds of a load from memory, before and after each turn.
    pub latency: Vec<f64>,
    /// Memory was as fast as usual.
    pub counts: bool,
}

/// The results of a switch's turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Received packets a second.
    pub received: f64,
    /// Packets a second that went out by the sink.
    pub sent: f64,
    /// Cycles and instructions of its workers for each received packet, if the processor counts
    /// them.
    pub executed: Option<(f64, f64)>,
}

impl Figures {
    pub(crate) fn new(
        rounds: &[Round],
        number: usize,
        hits: BTreeMap<String, u64>,
        setting: &str,
        configuration: &[String],
    ) -> Figures {
        let turns = || counting(rounds).map(|round| round.turns[number]);
        let median =
            |of: fn(Turn) -> Option<f64>| Some(Series::new(turns().filter_map(of)).quantile(0.5)).filter(|x| *x > 0.0);
        Figures {
            mpps: median(|turn| Some(turn.received)).unwrap_or(0.0) / 1e6,
            delivered: median(|turn| Some(turn.sent / turn.received)).unwrap_or(0.0),
            cycles: median(|turn| turn.executed.map(|executed| executed.0)),
            instructions: median(|turn| turn.executed.map(|executed| executed.1)),
            hits,
            setting: setting.to_owned(),
            configuration: configuration.to_vec(),
        }
    }

    /// The share of packets that were upcalls.
    fn upcall_share(&self) -> f64 {
        let all: u64 = self.hits.values().sum();
        super::subject::upcalls(&self.hits) as f64 / all.max(1) as f64
    }

    /// The caches' shares, `exact 98 % megaflow 2 %`.
    fn shares(&self) -> String {
        let all: u64 = self.hits.values().sum();
        let mut shares: Vec<(&String, u64)> = self.hits.iter().map(|(name, n)| (name, *n)).collect();
        shares.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let shares = shares.into_iter().filter(|(_, n)| *n * 200 >= all);
        let words: Vec<String> = shares
            .map(|(name, n)| {
                let name = name.trim_end_matches(" hits").trim_start_matches("miss with success ");
                format!("{name} {:.0} %", n as f64 * 100.0 / all as f64)
            })
            .collect();
        words.join(" ")
    }
}

/// The valid rounds; all of them if none is valid.
fn counting(rounds: &[Round]) -> impl Iterator<Item = &Round> {
    let any = rounds.iter().any(|round| round.counts);
    rounds.iter().filter(move |round| round.counts || !any)
}

/// Which turns of a round are of what oxvs is compared with; the first one is its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Others {
    pub(crate) peer: Option<usize>,
    pub(crate) beside: Option<usize>,
}

impl Measured {
    pub(crate) fn new(case: Case, figures: BTreeMap<String, Figures>, rounds: Vec<Round>, others: Others) -> Measured {
        let over = |other: Option<usize>| {
            let other = other?;
            let ratios = counting(&rounds).filter_map(|round| {
                let (ours, theirs) = (round.turns.first()?, round.turns.get(other)?);
                (theirs.received > 0.0).then(|| ours.received / theirs.received)
            });
            let ratios = Series::new(ratios);
            (ratios.n() > 0).then(|| ratio(&ratios))
        };
        Measured {
            case,
            figures,
            ratio: over(others.peer),
            beside: over(others.beside),
            rounds,
        }
    }
}

/// The median and its interval by ranks: as many values are left out on either side as 95 % allow.
fn ratio(ratios: &Series) -> Ratio {
    let mut sorted = ratios.values().to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // The probability that the median is beyond the k-th value from either end.
    let mut outside = 0.0;
    let mut choose = 1.0;
    let mut left = 0;
    for k in 0..n / 2 {
        outside += choose * 0.5_f64.powi(n as i32) * 2.0;
        if outside > 0.05 {
            break;
        }
        left = k;
        choose *= (n - k) as f64 / (k + 1) as f64;
    }
    Ratio {
        median: ratios.quantile(0.5),
        low: sorted[left],
        high: sorted[n - 1 - left],
    }
}

/// The heading of the table.
pub(crate) fn heading() -> String {
    format!(
        "{:<11} {:>6} {:<8} {:>5} {:>2} | {:>8} {:>6} {:>8} {:>6} | {:<20} | caches of oxvs; the peer's setting\n",
        "rules", "flows", "spread", "bytes", "w", "oxvs", "ns", "peer", "ns", "ratio [interval]"
    )
}

/// A line of the table.
pub(crate) fn line(measured: &Measured) -> String {
    let case = &measured.case;
    let mut out = format!(
        "{:<11} {:>6} {:<8} {:>5} {:>2} |",
        name(case.rules),
        flows(case.flows),
        name(case.distribution),
        name(case.size),
        case.workers
    );
    let figures = |name: &str| measured.figures.get(name);
    for switch in ["oxvs", "ovs-dpdk"] {
        // Writing to a string does not fail.
        let _ = match figures(switch) {
            Some(figures) => write!(out, " {:>8.2} {:>6.1}", figures.mpps, 1e3 / figures.mpps),
            None => write!(out, " {:>8} {:>6}", "-", "-"),
        };
    }
    let ratio = measured.ratio.map_or_else(|| "-".to_owned(), |ratio| ratio.to_string());
    let _ = write!(out, " | {ratio:<20} |");
    if let Some(ours) = figures("oxvs") {
        let _ = write!(out, " {}", ours.shares());
        if let (Some(cycles), Some(instructions)) = (ours.cycles, ours.instructions) {
            let _ = write!(out, " ({cycles:.0} cycles, {instructions:.0} instructions)");
        }
    }
    if let Some(peer) = figures("ovs-dpdk") {
        let _ = write!(out, "; {} ({})", peer.setting, peer.shares());
    }
    if let (Some(beside), Some(rules)) = (measured.beside, case.rules.beside()) {
        let _ = write!(out, "; {beside} of oxvs with {rules}");
    }
    let spoilt = measured.rounds.iter().filter(|round| !round.counts).count();
    if spoilt == measured.rounds.len() {
        out += " [memory was never steady: all rounds are shown, and none is reliable]";
    } else if spoilt > 0 {
        let _ = write!(out, " [{spoilt} rounds left out: memory was not as fast as usual]");
    }
    for (switch, figures) in &measured.figures {
        if case.rules.delivers() && figures.delivered < 0.99 {
            let _ = write!(out, " [{switch} delivered only {:.1} %]", figures.delivered * 100.0);
        }
    }
    for (switch, figures) in &measured.figures {
        let asked = figures.upcall_share();
        if asked > 0.01 && !case.rules.forgets() {
            let _ = write!(out, " [{switch} still looked up {:.0} % of packets]", asked * 100.0);
        } else if asked < 0.95 && case.rules.forgets() {
            let _ = write!(out, " [of {switch}'s packets only {:.0} % were new]", asked * 100.0);
        }
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_leaves_out_what_95_percent_allow() {
        let of = |n: usize| ratio(&Series::new((1..=n).map(|n| n as f64)));
        // With five values nothing can be left out, with nine one on either side (96.1 %), with
        // twelve two (96.1 %).
        assert_eq!((of(5).low, of(5).median, of(5).high), (1.0, 3.0, 5.0));
        assert_eq!((of(9).low, of(9).high), (2.0, 8.0));
        assert_eq!((of(12).low, of(12).high), (3.0, 10.0));
        assert_eq!((of(1).low, of(1).high), (1.0, 1.0));
    }

    #[test]
    fn a_ratio_is_of_turns_of_the_same_round() {
        let turn = |received| Turn {
            received,
            ..Turn::default()
        };
        let round = |ours, peers, counts| Round {
            turns: vec![turn(ours), turn(peers)],
            latency: Vec::new(),
            counts,
        };
        // The machine gets slower, and the ratio stays.
        let rounds = vec![round(10.0, 5.0, true), round(1.0, 5.0, false), round(6.0, 3.0, true)];
        let case = super::super::quick()[0];
        let others = Others {
            peer: Some(1),
            beside: None,
        };
        let measured = Measured::new(case, BTreeMap::new(), rounds, others);
        let ratio = measured.ratio.unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high), (2.0, 2.0, 2.0));
        assert_eq!(measured.beside, None);
    }
}
