//! Millions of packets a second through each discipline: one in, one out, on one core, with a
//! standing queue.
//!
//! `cargo bench -p qos -- htb 100` runs the benchmarks whose names have all these words; `--exact`
//! those with one of the given names. `--count` makes one short run of each, to count instructions
//! and cache misses, which do not depend on the machine's load:
//!
//! ```text
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*packets::round*' \
//!     target/release/deps/packets-… --count 'htb, 100 leaves, own'
//! ```

use qos::{
    CodelConfig, Curve, FifoConfig, FqCodelConfig, Hfsc, HfscClass, HfscConfig, Htb, HtbClass, HtbConfig, LeafConfig,
    Nanos, Netem, NetemConfig, Packet, PortSpeed, Scheduler, SfqConfig, Shaper, Single,
};
use std::error::Error;
use std::hint::black_box;

/// A handle as small as that of a frame, with the properties that a scheduler needs.
struct Handle {
    hash: u64,
    bytes: u32,
    queue: u32,
}

impl Packet for Handle {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn flow_hash(&self) -> u64 {
        self.hash
    }
    fn queue(&self) -> u32 {
        self.queue
    }
    fn mark_ecn(&mut self) -> bool {
        false
    }
}

const STANDING: u32 = 512;
const PACKETS: u32 = 400_000;
const RUNS: usize = 25;

/// Packets of a run for counting.
const COUNTED: u32 = 100_000;

/// Nanoseconds between packets: 64 kB/µs on the fast links of the rows below.
const STEP: u64 = 100;

/// The thread's processor time in nanoseconds, so that other work on the machine counts less.
fn clock() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Dequeues and enqueues again this many packets.
#[inline(never)]
fn round(
    scheduler: &mut impl Scheduler<Handle>,
    next: &mut impl FnMut(Handle) -> Handle,
    now: &mut Nanos,
    packets: u32,
) {
    let mut moved = 0;
    while moved < packets {
        *now = *now + Nanos(STEP);
        if let Some(handle) = scheduler.dequeue(*now, &mut |_, _| ()) {
            let _ = scheduler.enqueue(next(black_box(handle)), *now, &mut |_, _| ());
            moved += 1;
        }
    }
}

/// Packets circulate: each packet that leaves is enqueued again, in the next flow and queue.
/// Returns the median of the runs.
fn measure(name: &str, goal: Option<f64>, queues: u32, mut scheduler: impl Scheduler<Handle>) {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let is_meant = if std::env::args().any(|word| word == "--exact") {
        words.any(|word| name == word)
    } else {
        words.all(|word| name.contains(&word))
    };
    if !is_meant {
        return;
    }
    let mut now = Nanos::from_secs(1);
    let mut n = 0u32;
    let mut next = |mut handle: Handle| {
        n = n.wrapping_add(1);
        // An odd multiplier: flows and queues in a scattered order, evenly.
        let scattered = n.wrapping_mul(2_654_435_761);
        handle.hash = u64::from(scattered >> 24);
        handle.queue = ((u64::from(scattered) * u64::from(queues)) >> 32) as u32 + 1;
        handle
    };
    for _ in 0..STANDING.max(2 * queues) {
        let handle = Handle {
            hash: 0,
            bytes: 1_000,
            queue: 0,
        };
        let _ = scheduler.enqueue(next(handle), now, &mut |_, _| ());
    }
    if std::env::args().any(|word| word == "--count") {
        round(&mut scheduler, &mut next, &mut now, COUNTED);
        println!("{name}: {COUNTED} packets");
        return;
    }
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let begin = clock();
            round(&mut scheduler, &mut next, &mut now, PACKETS);
            (clock() - begin) as f64 / f64::from(PACKETS)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    let goal = goal.map_or(String::new(), |goal| format!(", goal {goal}"));
    println!(
        "{name:<34} {:>7.1} Mpps {:>7.1} ns{goal}",
        1e3 / runs[RUNS / 2],
        runs[RUNS / 2]
    );
}

fn htb(leaves: u32, rate: u64) -> Result<Htb<Handle>, Box<dyn Error>> {
    let classes = (1..=leaves)
        .map(|n| HtbClass::new(n)?.min_rate(rate / u64::from(leaves) / 2)?.max_rate(rate))
        .collect::<Result<_, _>>()?;
    Ok(Htb::new(&HtbConfig::new(rate, classes)?)?)
}

fn hfsc(leaves: u32, rate: u64, real_time: bool) -> Result<Hfsc<Handle>, Box<dyn Error>> {
    let classes = (1..=leaves)
        .map(|n| {
            let own = rate / u64::from(leaves) / 2;
            let class = HfscClass::new(n)?;
            if real_time {
                class.rates(own, Some(rate))
            } else {
                Ok(class.ls(Curve::linear("ls", own)?))
            }
        })
        .collect::<Result<_, _>>()?;
    Ok(Hfsc::new(&HfscConfig::new(rate, classes)?)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let limit = 100_000;
    // CoDel without drops, which have a cost of their own.
    let codel = CodelConfig::new(1_000_000, 10_000_000, limit, false)?;
    let fifo = FifoConfig::new(limit)?;
    let sfq = SfqConfig::default().limits(limit, 1_000, 1_024)?;
    measure("fifo", Some(50.0), 1, Single::new(&LeafConfig::Fifo(fifo)));
    measure("pfifo_fast", Some(50.0), 1, Single::new(&LeafConfig::PfifoFast(fifo)));
    measure("sfq, 256 flows", Some(25.0), 1, Single::new(&LeafConfig::Sfq(sfq)));
    measure("codel", None, 1, Single::new(&LeafConfig::Codel(codel)));
    let fq_codel = LeafConfig::FqCodel(FqCodelConfig::new(codel, 1_024, 1_514)?);
    measure("fq_codel, 256 flows", Some(25.0), 1, Single::new(&fq_codel));
    measure("netem", None, 1, Netem::new(NetemConfig::new(10, 5, 0.0, limit, 1)?));
    let port = Shaper::new(
        Single::new(&LeafConfig::Fifo(fifo)),
        Some(PortSpeed::new(100_000_000_000)?),
    );
    measure("fifo at a port speed", None, 1, port);
    for leaves in [10, 100, 1_000, 10_000] {
        // Just below the packets' rate, so that classes borrow and wait all the time.
        let rate = 79_000_000_000;
        let goal = |goal| (leaves == 100).then_some(goal);
        measure(
            &format!("htb, {leaves} leaves, borrowing"),
            goal(15.0),
            leaves,
            htb(leaves, rate)?,
        );
        measure(
            &format!("htb, {leaves} leaves, own rates"),
            None,
            leaves,
            htb(leaves, 8 * rate)?,
        );
        let shared = hfsc(leaves, rate, false)?;
        measure(&format!("hfsc, {leaves} leaves, sharing"), goal(8.0), leaves, shared);
        let real_time = hfsc(leaves, rate, true)?;
        measure(
            &format!("hfsc, {leaves} leaves, all curves"),
            goal(8.0),
            leaves,
            real_time,
        );
    }
    Ok(())
}
