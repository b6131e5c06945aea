//! Measures the memory's latency, to detect changes of the machine's load.
//!
//! A switch with a million flows waits for memory, whose latency changes from minute to minute on a
//! shared machine.

use crate::stats::{Series, SplitMix};
use anyhow::{Result, anyhow};
use std::hint::black_box;
use std::time::Instant;

/// Bytes looked through: more than caches hold that are one's own.
const BYTES: usize = 64 << 20;

/// Dependent loads of one measurement: about 2 ms.
const LOADS: usize = 15_000;

/// Number of measurements. The median counts, because other processes interrupt some.
const TIMES: usize = 11;

/// A random cycle of pointers through memory.
pub(crate) struct Canary {
    next: Vec<[u32; 16]>,
    at: u32,
}

impl Canary {
    pub(crate) fn new() -> Canary {
        let n = BYTES / size_of::<[u32; 16]>();
        let mut order: Vec<u32> = (0..n as u32).collect();
        let mut random = SplitMix(7);
        for place in (1..n).rev() {
            order.swap(place, random.below(place + 1));
        }
        let mut next = vec![[0; 16]; n];
        for (place, &at) in order.iter().enumerate() {
            next[at as usize][0] = order[(place + 1) % n];
        }
        Canary { next, at: order[0] }
    }

    /// Nanoseconds of a load, on a processor.
    ///
    /// # Errors
    /// There is no such processor.
    pub(crate) fn measure(&mut self, cpu: usize) -> Result<f64> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| -> Result<f64> {
                sys::thread::pin_to_cpu(cpu)?;
                let mut once = || {
                    let began = Instant::now();
                    for _ in 0..LOADS {
                        self.at = self.next[self.at as usize][0];
                    }
                    black_box(self.at);
                    began.elapsed().as_secs_f64() * 1e9 / LOADS as f64
                };
                Ok(Series::new((0..TIMES).map(|_| once())).quantile(0.5))
            });
            thread
                .join()
                .map_err(|_| anyhow!("the measurement of memory panicked"))?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_leads_through_every_place() {
        let canary = Canary::new();
        let (mut at, mut steps) = (canary.next[0][0], 1);
        while at != 0 {
            at = canary.next[at as usize][0];
            steps += 1;
        }
        assert_eq!(steps, canary.next.len());
    }
}
