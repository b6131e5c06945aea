//! Topology changes: which bridges learn of them, and when learned addresses are flushed.

use super::Event;
use super::machine::Stp;
use super::wire::Times;
use nanos::Nanos;

impl Stp {
    /// §8.6.14.
    pub(super) fn topology_change_detection(&mut self, now: Nanos) {
        if self.is_root() {
            let time = Times::duration(self.own.max_age) + Times::duration(self.own.forward_delay);
            self.change_until = Some(now + time);
            self.set_topology_change(true, now);
        } else if !self.detected {
            self.transmit_tcn();
            self.tcn_at = Some(now + Times::duration(self.own.hello_time));
        }
        self.detected = true;
    }

    /// While the topology changes, what was learned becomes stale in a forward delay (§8.3.5). The
    /// bridge flushes the addresses at the start, once in every forward delay, and at the end.
    pub(super) fn set_topology_change(&mut self, change: bool, now: Nanos) {
        if self.topology_change == change {
            return;
        }
        self.topology_change = change;
        self.topology_changes += u64::from(change);
        self.flush();
        self.flush_at = change.then(|| now + Times::duration(self.times.forward_delay));
    }

    pub(super) fn flush(&mut self) {
        let flushed = self.ports.keys().map(|&port| Event::Flush { port });
        self.events.extend(flushed);
    }
}
