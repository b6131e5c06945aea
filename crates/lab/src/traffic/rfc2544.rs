//! The tests of RFC 2544 with datagrams: throughput (section 26.1) by binary search, latency at
//! that rate (26.2), frame loss rate (26.3), back-to-back frames (26.4); and the same of several
//! senders into one port, as the microbursts of RFC 8239 (section 4).
//!
//! Trials are shorter than the 60 s of the standard where a profile's time is; no loss at all is
//! allowed in them, as there. A trial whose generator could not keep up says nothing about the
//! network: the search goes on below, and the result is marked as limited.

use super::{Ends, Flow, Measured, Test, run};
use anyhow::Result;

/// What is tested.
#[derive(Clone, Copy, Debug)]
pub struct Suite<'a> {
    /// The sending host.
    pub from: &'a str,
    /// Hosts that send beside it, each the same.
    pub beside: &'a [String],
    /// The receiving host.
    pub to: &'a str,
    /// UDP payload in bytes.
    pub payload: u32,
    /// Three lengths, as of [`Test::Cbr`].
    pub imix: bool,
    /// The highest rate of all senders together, bit/s of payload.
    pub most: u64,
    /// The distance of two rates at which the search ends, as a share of `most`.
    pub resolution: f64,
    /// Whether more than throughput is tested.
    pub whole: bool,
    /// Length of a trial, in seconds.
    pub seconds: f64,
}

/// Share of a trial that goes before it as a warm-up.
const WARMUP: f64 = 0.2;

/// The shortest burst, in seconds.
const LEAST_BURST: f64 = 0.001;

/// Between two exchanges while latency is measured, µs.
const EXCHANGES: u64 = 1000;

/// Bytes of their payload.
const PROBE: u32 = 64;

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trial {
    sent: f64,
    lost: f64,
    /// The generator sent what it was to send.
    whole: bool,
}

/// Runs the tests; metrics after `name.`, as [`crate::scenario::Observe::Rfc2544`] lists them.
///
/// # Errors
/// A host that has gone.
pub fn rfc2544(ends: &Ends, name: &str, suite: Suite<'_>) -> Result<Measured> {
    let mut measured = Measured::default();
    let (mut accounts, mut limited) = (Vec::new(), false);
    let mut trial = |rate: u64, seconds: f64, warmup: f64| -> Result<Trial> {
        let flows = suite.flows("trial", rate);
        let tried = run(ends, &[], &flows, seconds, warmup)?;
        let of = |metric: &str| {
            let each = flows.iter().map(|flow| format!("{}.{metric}", flow.name));
            each.filter_map(|name| tried.metrics.get(&name)).sum::<f64>()
        };
        let whole = tried.void.is_empty();
        let sent = of("offered") * seconds / f64::from(suite.mean() * 8);
        accounts.extend(tried.accounts.clone());
        Ok(Trial {
            sent,
            lost: of("missing"),
            whole,
        })
    };
    let warmup = suite.seconds * WARMUP;
    let step = suite.most as f64 * suite.resolution;
    let throughput = search(suite.most as f64, step, |rate| {
        let trial = trial(rate as u64, suite.seconds, warmup)?;
        limited |= !trial.whole;
        Ok(trial.whole && trial.lost == 0.0)
    })?;
    let mut add = |metric: &str, value: f64| {
        measured.metrics.insert(format!("{name}.{metric}"), value);
    };
    add("throughput", throughput);
    add("frames", throughput / f64::from(suite.mean() * 8));
    if suite.whole {
        let mut without = 0;
        for percent in (1..=10).rev().map(|tenth| tenth * 10) {
            let trial = trial(suite.most / 100 * percent, suite.seconds, warmup)?;
            if !trial.whole {
                continue;
            }
            add(&format!("loss.{percent}"), trial.lost / trial.sent.max(1.0));
            without = if trial.lost == 0.0 { without + 1 } else { 0 };
            if without == 2 {
                break;
            }
        }
        let longest = search(
            suite.seconds,
            LEAST_BURST.max(suite.seconds * suite.resolution),
            |seconds| {
                // A warm-up at this rate would fill the queues.
                let trial = trial(suite.most, seconds, 0.0)?;
                Ok(trial.whole && trial.lost == 0.0)
            },
        )?;
        add(
            "burst",
            (longest * suite.most as f64 / f64::from(suite.mean() * 8)).floor(),
        );
    }
    add("limited", f64::from(u8::from(limited)));
    if throughput > 0.0 && suite.whole {
        let probe = Flow {
            name: "probe".to_owned(),
            test: Test::Rtt {
                payload: PROBE,
                exchanges: None,
                interval: EXCHANGES,
                new: false,
                ip6: false,
            },
            ..suite.flow("probe", suite.from, 1)
        };
        let load = suite.flows("load", throughput as u64);
        let loaded = run(ends, &load, &[probe], suite.seconds, suite.seconds * WARMUP)?;
        if let Some(one_way) = loaded.metrics.get("probe.one_way") {
            add("latency", *one_way);
        }
        accounts.extend(loaded.accounts);
    }
    measured.accounts = accounts;
    Ok(measured)
}

impl Suite<'_> {
    /// A flow of each sender, which together have this rate.
    fn flows(&self, name: &str, rate: u64) -> Vec<Flow> {
        let senders: Vec<&str> = [self.from]
            .into_iter()
            .chain(self.beside.iter().map(String::as_str))
            .collect();
        let each = rate / senders.len() as u64;
        let flow = |(n, from): (usize, &&str)| self.flow(&format!("{name}{n}"), from, each);
        senders.iter().enumerate().map(flow).collect()
    }

    fn flow(&self, name: &str, from: &str, rate: u64) -> Flow {
        Flow {
            name: name.to_owned(),
            from: from.to_owned(),
            to: self.to.to_owned(),
            test: Test::Cbr {
                payload: self.payload,
                rate: rate.max(1),
                buffer: Some(BUFFER),
                pinned: false,
                imix: self.imix,
            },
        }
    }

    /// Mean bytes of a payload.
    fn mean(&self) -> u32 {
        if self.imix { super::udp::IMIX_MEAN } else { self.payload }
    }
}

/// The receiver's socket buffer in bytes: what the network delivers is not to be lost there.
const BUFFER: u32 = 8 << 20;

/// The highest value up to `most` that passes, by halves down to `step`; first `most` itself, as
/// the standard says. 0 if none passes.
fn search(most: f64, step: f64, mut passes: impl FnMut(f64) -> Result<bool>) -> Result<f64> {
    if passes(most)? {
        return Ok(most);
    }
    let (mut good, mut bad) = (0.0, most);
    while bad - good > step {
        let middle = f64::midpoint(good, bad);
        if passes(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_share_the_rate() {
        let suite = Suite {
            from: "a",
            beside: &["b".to_owned(), "c".to_owned()],
            to: "d",
            payload: 100,
            imix: false,
            most: 3000,
            resolution: 0.1,
            whole: false,
            seconds: 1.0,
        };
        let flows = suite.flows("trial", 900);
        let told = |flow: &Flow| (flow.name.clone(), flow.from.clone());
        let told: Vec<_> = flows.iter().map(told).collect();
        let expected = [("trial0", "a"), ("trial1", "b"), ("trial2", "c")];
        assert_eq!(told, expected.map(|(name, from)| (name.to_owned(), from.to_owned())));
        assert!(
            flows
                .iter()
                .all(|flow| matches!(flow.test, Test::Cbr { rate: 300, .. }))
        );
    }

    #[test]
    fn the_search_ends_just_below_the_limit() {
        let mut tried = 0;
        let found = search(1000.0, 10.0, |rate| {
            tried += 1;
            Ok(rate <= 333.0)
        })
        .unwrap();
        assert!((323.0..=333.0).contains(&found), "{found}");
        assert_eq!(tried, 8);
        assert_eq!(search(1000.0, 10.0, |_| Ok(true)).unwrap(), 1000.0);
        assert_eq!(search(1000.0, 100.0, |_| Ok(false)).unwrap(), 0.0);
        assert!(search(1000.0, 100.0, |_| anyhow::bail!("gone")).is_err());
    }
}
