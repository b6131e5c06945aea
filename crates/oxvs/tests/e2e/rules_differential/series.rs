//! A series of rule sets, which one or more pairs of switches try.

use super::counters::Counters;
use super::side::Side;
use super::{Pair, Shown, number};
use crate::fixture::start;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testkit::{Options, Vswitch};

/// Rule sets after which captures are restarted.
const REBUILD: u64 = 40;
/// How often a rule set with a difference is tried again.
const AGAIN: u32 = 4;
/// Faults reported before the test ends, unless `OXVS_FAULTS` sets another number.
const FAULTS: u64 = 4;

/// Tried and remaining rule sets.
pub(super) struct Series {
    first: u64,
    next: u64,
    end: u64,
    tally: Tally,
    /// Rule sets with a difference in a packet or a counter.
    faults: Vec<u64>,
    /// The number of faults that ends the test.
    enough: u64,
    begin: Instant,
    told: Instant,
}

/// Counters of the series.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) sent: usize,
    pub(super) came_out: usize,
    /// Rule sets with a packet whose treatment may differ.
    pub(super) excused: u64,
    /// Such packets by reason.
    pub(super) reasons: BTreeMap<&'static str, u64>,
}

impl Series {
    /// A number of rule sets from a seed on.
    pub(super) fn new(first: u64, cases: u64) -> Series {
        let now = Instant::now();
        Series {
            first,
            next: first,
            end: first + cases,
            tally: Tally::default(),
            faults: Vec::new(),
            enough: number("OXVS_FAULTS").unwrap_or(FAULTS),
            begin: now,
            told: now,
        }
    }

    /// The seed of the next untried rule set; `None` at the end of the series.
    fn take(&mut self, tried: Tally) -> Option<u64> {
        self.tally.sent += tried.sent;
        self.tally.came_out += tried.came_out;
        self.tally.excused += tried.excused;
        for (reason, packets) in tried.reasons {
            *self.tally.reasons.entry(reason).or_default() += packets;
        }
        let seed = (self.next < self.end && (self.faults.len() as u64) < self.enough).then_some(self.next)?;
        self.next += 1;
        if self.told.elapsed() > Duration::from_secs(30) {
            self.told = Instant::now();
            let (passed, begun) = (self.begin.elapsed().as_secs(), seed - self.first);
            let (cases, Tally { sent, excused, .. }) = (self.end - self.first, &self.tally);
            println!("{passed} s: {begun} of {cases} rule sets, {excused} excused, {sent} packets");
        }
        Some(seed)
    }

    /// Prints the results and fails if there were faults.
    pub(super) fn conclude(self) {
        let (
            Tally {
                sent,
                came_out,
                excused,
                reasons,
            },
            cases,
        ) = (self.tally, self.end - self.first);
        println!("{sent} packets, {came_out} frames out, {excused} of {cases} rule sets excused");
        println!("{reasons:#?}");
        let packets: u64 = reasons.values().sum();
        assert!(
            packets * 20 <= sent as u64,
            "the excuses are too wide: {packets} packets"
        );
        assert!(
            self.faults.is_empty(),
            "differences, of the seeds {:?}, as told above",
            self.faults
        );
        assert!(came_out * 4 > sent, "nearly everything is dropped");
    }
}

impl Pair {
    pub(super) fn new(batches: usize) -> Pair {
        Pair {
            oracle: Side::new(Vswitch::debian(Options::default())),
            mine: Side::new(start(Options::default())),
            tally: Tally::default(),
            singled: Vec::new(),
            batches,
            counted: None,
            counters_here: Counters::new(),
            shown: Shown::default(),
        }
    }

    /// Tries the remaining rule sets of a series.
    pub(super) fn run(mut self, series: &Mutex<Series>) {
        let mut tried = 0;
        loop {
            // The other pairs take theirs while this one is tried.
            let next = locked(series).take(std::mem::take(&mut self.tally));
            let Some(seed) = next else { break };
            let fresh = tried % REBUILD == 0;
            tried += 1;
            let case = catch_unwind(AssertUnwindSafe(|| {
                if fresh {
                    self.rebuild();
                }
                match self.case(seed) {
                    Ok(()) => Ok(()),
                    Err(fault) => self.again(seed, fault),
                }
            }));
            let case = case.unwrap_or_else(|why| {
                // Pushed and popped labels sometimes end Open vSwitch by a failed assertion.
                let lost = self.oracle.is_lost();
                assert!(lost || !self.mine.has_ended(), "OXVS_SEED={seed}: the switch ended");
                self.restart_both();
                if lost {
                    return Ok(());
                }
                // If the whole machine stopped for a minute, a second try shows no difference.
                catch_unwind(AssertUnwindSafe(|| self.case(seed))).unwrap_or_else(|_| {
                    println!("OXVS_SEED={seed} shows it");
                    // The other pairs stop.
                    locked(series).end = 0;
                    resume_unwind(why);
                })
            });
            let Err(fault) = case else { continue };
            assert!(self.mine.switch.daemon().is_running(), "the switch ended:\n{fault}");
            if self.oracle.has_ended() {
                self.restart_both();
                continue;
            }
            self.counted = None;
            println!("OXVS_SEED={seed} shows it:\n{fault}");
            locked(series).faults.push(seed);
        }
    }

    /// Tries a rule set with a difference again. It is no fault if Open vSwitch does not repeat it
    /// at that step while our switch repeats this step and all before.
    fn again(&mut self, seed: u64, mut fault: String) -> Result<(), String> {
        for _ in 0..AGAIN {
            if self.oracle.has_ended() {
                return Err(fault);
            }
            self.counted = None;
            let before = std::mem::take(&mut self.shown);
            let outcome = self.case(seed);
            let further = outcome.is_ok() || self.shown.0.len() > before.0.len();
            if !further || !self.shown.0.starts_with(&before.0) {
                return Err(fault);
            }
            println!("OXVS_SEED={seed}, once and not again:\n{fault}");
            let reason = "what Open vSwitch did once it did not do when the same packets came again, of which the same came here";
            *self.tally.reasons.entry(reason).or_default() += 1;
            match outcome {
                Ok(()) => {
                    self.tally.excused += 1;
                    return Ok(());
                }
                Err(next) => fault = next,
            }
        }
        Err(fault)
    }

    /// Restarts both after Open vSwitch has ended.
    fn restart_both(&mut self) {
        self.oracle = Side::new(Vswitch::debian(Options::default()));
        self.mine = Side::new(start(Options::default()));
        self.rebuild();
        self.tally.excused += 1;
    }

    fn rebuild(&mut self) {
        self.oracle.rebuild();
        self.mine.rebuild();
        self.counted = None;
    }
}

fn locked(series: &Mutex<Series>) -> MutexGuard<'_, Series> {
    series.lock().unwrap_or_else(PoisonError::into_inner)
}
