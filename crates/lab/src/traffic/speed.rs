//! How fast a host's processor is: a guest's may be emulated.

use super::clock::now;
use super::protocol::Outcome;
use super::task::Control;
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// Measures the speed of the processor, for some milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speed {}

/// How often the loop is measured; the fastest counts, since other work can only slow it.
const TURNS: usize = 5;

/// Steps of the loop, each of some instructions.
const STEPS: u64 = 1_000_000;

impl Speed {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        control.ready(Vec::new());
        control.await_go();
        Ok(Outcome::Speed(here()))
    }
}

/// Of this processor, in steps a second.
pub(crate) fn here() -> f64 {
    let least = (0..TURNS).map(|_| turn()).min().unwrap_or(0);
    STEPS as f64 * 1e9 / least.max(1) as f64
}

/// Nanoseconds of the loop.
fn turn() -> u64 {
    let begin = now();
    let mut state = std::hint::black_box(begin);
    for _ in 0..STEPS {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        state ^= state >> 29;
    }
    std::hint::black_box(state);
    now() - begin
}
