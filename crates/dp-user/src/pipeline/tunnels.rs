//! Packets of tunnels that the host's stack receives.

use super::{Pipeline, RxQueue};
use crate::stats::DropSink;
use netdev::Frame;
use tunnel::format::Format;

impl Pipeline {
    /// Takes the outer headers of received packets off, and drops those that have wrong ones.
    /// Returns whether any are left.
    #[inline(never)]
    pub(super) fn end_tunnels(&mut self, frames: &mut Vec<Frame>, from: &RxQueue, format: Format) -> bool {
        let drops = DropSink {
            worker: &self.stats,
            port: from.source.stats.as_deref(),
        };
        if self.actor.pop_tunnels(frames, from.port, format, drops) {
            frames.retain(|frame| !frame.is_empty());
        }
        !frames.is_empty()
    }
}
