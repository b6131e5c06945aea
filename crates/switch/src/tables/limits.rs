//! How far a packet may go through tables, buckets and bridges.
//!
//! The limits are Open vSwitch's, and one for the stack. A packet that needs more is dropped as a whole; where it does so behind a patch port, the
//! bridge there does no more, and the one before goes on.

use super::pipeline::Pipeline;

/// How deep lookups of the same or an earlier table, groups and patch ports may be within each other.
const MAX_DEPTH: u32 = 64;
/// Lookups in all, but the first.
const MAX_LOOKUPS: u32 = 4096;
/// Steps for the datapath behind which there are no more lookups: what Open vSwitch has room for in 64 kB.
const MAX_STEPS: usize = 8192;
/// Lookups and copies within each other, also of later tables, of which Open vSwitch allows as many as lookups: what the stack of a worker has room for.
const MAX_NESTED: u32 = 320;

impl Pipeline<'_> {
    /// Whether there may be another lookup, which is then counted.
    pub(super) fn another_lookup(&mut self) -> bool {
        if self.lookups > MAX_LOOKUPS {
            self.fatal(|_| format!("over {MAX_LOOKUPS} resubmit actions"));
            return false;
        }
        if self.actions.len() > MAX_STEPS {
            // What there is is done.
            self.error(|_| String::from("resubmits yielded over 64 kB of actions"));
            self.exit = true;
            return false;
        }
        self.lookups += 1;
        true
    }

    /// Whether it may go deeper by so many levels, which it then does.
    pub(super) fn deeper(&mut self, levels: u32) -> bool {
        let may = self.depth + levels <= MAX_DEPTH;
        if may {
            self.depth += levels;
        } else {
            self.fatal(|_| format!("over max translation depth {MAX_DEPTH}"));
        }
        may
    }

    /// Whether there may be another lookup. At the limit there is none, even of a later table, which is no deeper.
    pub(super) fn has_room(&mut self) -> bool {
        let has = self.deeper(1);
        self.depth -= u32::from(has);
        has
    }

    pub(super) fn shallower(&mut self, levels: u32) {
        self.depth -= levels;
    }

    /// Whether there is room for one more call within calls, which is then taken.
    pub(super) fn nest(&mut self) -> bool {
        if self.nested == MAX_NESTED {
            self.fatal(|_| format!("over {MAX_NESTED} lookups and copies within each other"));
            return false;
        }
        self.nested += 1;
        true
    }
}
