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

/// After so many rule sets captures are begun anew.
const REBUILD: u64 = 40;
/// How often a rule set is tried again of which a difference was seen.
const AGAIN: u32 = 4;
/// Faults told of before the test ends, where `OXVS_FAULTS` does not say how many.
const FAULTS: u64 = 4;

/// What pairs have tried, and what is left to be tried.
pub(super) struct Series {
    first: u64,
    next: u64,
    end: u64,
    tally: Tally,
    /// Rule sets of which some packet or count differs.
    faults: Vec<u64>,
    /// So many of them end the test.
    enough: u64,
    begin: Instant,
    told: Instant,
}

/// What went through both switches.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) sent: usize,
    pub(super) came_out: usize,
    /// Rule sets with a packet whose treatment may differ.
    pub(super) excused: u64,
    /// Such packets, by why.
    pub(super) reasons: BTreeMap<&'static str, u64>,
}

impl Series {
    /// So many rule sets from a seed on.
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

    /// The seed of a rule set that nobody has tried; `None` where the series ends.
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

    /// Tells of all that was tried, and whether it was as it should be.
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

    /// Tries what is left of a series.
    pub(super) fn run(mut self, series: &Mutex<Series>) {
        let mut tried = 0;
        loop {
            // The others take theirs while this one is tried.
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
                // Labels put on and taken off make Open vSwitch fail an assertion now and then, and
                // end.
                let lost = self.oracle.is_lost();
                assert!(lost || !self.mine.has_ended(), "OXVS_SEED={seed}: the switch ended");
                self.begin_anew();
                if lost {
                    return Ok(());
                }
                // Where the whole machine stood still for a minute, once more shows nothing.
                catch_unwind(AssertUnwindSafe(|| self.case(seed))).unwrap_or_else(|_| {
                    println!("OXVS_SEED={seed} shows it");
                    // The others need not go on.
                    locked(series).end = 0;
                    resume_unwind(why);
                })
            });
            let Err(fault) = case else { continue };
            assert!(self.mine.switch.daemon().is_running(), "the switch ended:\n{fault}");
            if self.oracle.has_ended() {
                self.begin_anew();
                continue;
            }
            self.counted = None;
            println!("OXVS_SEED={seed} shows it:\n{fault}");
            locked(series).faults.push(seed);
        }
    }

    /// Tries a rule set again of which a difference was seen, which is none where Open vSwitch does
    /// not show it again at that step, and what is seen here of that step and all before is the
    /// same.
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

    /// Starts both again, as Open vSwitch has ended.
    fn begin_anew(&mut self) {
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
