//! A series of rule sets, which one or more pairs of switches try.

use super::side::Side;
use super::{Pair, number};
use crate::fixture::start;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testkit::{Options, Vswitch};

/// After so many rule sets captures are begun anew.
const REBUILD: u64 = 40;
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
                self.case(seed)
            }));
            let case = case.unwrap_or_else(|why| {
                // Labels put on and taken off make Open vSwitch fail an assertion now and then, and end.
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
