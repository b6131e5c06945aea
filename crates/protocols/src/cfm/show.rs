//! `cfm/show`, as Open vSwitch prints it.

use super::MaintenancePoint;
use core::fmt::Write;
use nanos::Nanos;

impl MaintenancePoint {
    /// The state as text, without the interface's name.
    pub fn show(&self, now: Nanos) -> String {
        let extended = if self.config.extended { " extended" } else { "" };
        let forced = if self.forced.is_some() { " fault_override" } else { "" };
        let mut out = format!("MPID {}:{extended}{forced}\n", self.config.point);
        let faults = self.faults();
        if !faults.is_none() {
            let _ = writeln!(out, "  fault: {faults}");
        }
        let health = self.health.map_or("undefined".to_owned(), |health| health.to_string());
        let _ = write!(
            out,
            "  average health: {health}\n  opstate: {}\n  remote_opstate: {}\n  interval: {}ms\n  \
             next CCM tx: {}ms\n  next fault check: {}ms\n",
            up(self.config.up),
            up(self.remote_up),
            self.config.interval.millis,
            until(self.next_tx, now),
            until(self.next_look, now),
        );
        for (point, remote) in &self.remotes {
            let _ = write!(
                out,
                "Remote MPID {point}\n  recv since check: {}\n  opstate: {}\n",
                remote.heard,
                up(remote.up)
            );
        }
        out
    }
}

fn up(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

fn until(at: Nanos, now: Nanos) -> i64 {
    let millis = |time: Nanos| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    millis(at) - millis(now)
}
