//! `bfd/show`, as Open vSwitch prints it.

use super::Session;
use super::wire::diagnostic;
use core::fmt::Write;
use core::time::Duration;
use nanos::Nanos;

impl Session {
    /// The session's state as text.
    pub fn show(&self, now: Nanos) -> String {
        let flag = |set: bool, name: &'static str| set.then_some(name);
        let local = [flag(self.poll.is_some(), "poll")];
        let remote = [
            flag(self.remote.demand, "demand"),
            flag(self.remote.control_plane_independent, "ctl"),
            flag(self.remote.is_final, "final"),
            flag(self.remote.poll, "poll"),
        ];
        let mut out = String::new();
        let _ = write!(
            out,
            "  Forwarding: {}\n  Detect Multiplier: {}\n  Concatenated Path Down: {}\n  \
             TX Interval: Approx {}ms\n  RX Interval: Approx {}ms\n  Detect Time: now {:+}ms\n  \
             Next TX Time: now {:+}ms\n  Last TX Time: now {:+}ms\n\n",
            self.is_forwarding(),
            self.config.multiplier,
            self.config.cpath_down,
            self.tx_interval().as_millis(),
            self.rx_interval().as_millis(),
            from_now(self.detect, now),
            from_now(self.next_tx, now),
            from_now(self.last_tx, now),
        );
        let _ = write!(
            out,
            "  Local Flags: {}\n  Local Session State: {}\n  Local Diagnostic: {}\n  \
             Local Discriminator: {:#x}\n  Local Minimum TX Interval: {}ms\n  \
             Local Minimum RX Interval: {}ms\n\n",
            flags(&local),
            self.state.name(),
            diagnostic::text(self.diagnostic),
            self.identity.discriminator,
            self.min_tx().as_millis(),
            self.current.min_rx.as_millis(),
        );
        let _ = write!(
            out,
            "  Remote Flags: {}\n  Remote Session State: {}\n  Remote Diagnostic: {}\n  \
             Remote Discriminator: {:#x}\n  Remote Minimum TX Interval: {}ms\n  \
             Remote Minimum RX Interval: {}ms\n  Remote Detect Multiplier: {}\n",
            flags(&remote),
            self.remote.state.name(),
            diagnostic::text(self.remote.diagnostic),
            self.remote.discriminator,
            self.remote.min_tx.as_millis(),
            self.remote.min_rx.max(Duration::from_millis(1)).as_millis(),
            self.remote.multiplier,
        );
        out
    }
}

/// Milliseconds from now to a time; one that is not known is the clock's origin.
fn from_now(at: Option<Nanos>, now: Nanos) -> i64 {
    let millis = |time: Nanos| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    millis(at.unwrap_or(Nanos::ZERO)) - millis(now)
}

fn flags(set: &[Option<&str>]) -> String {
    let names: Vec<&str> = set.iter().flatten().copied().collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(" "),
    }
}
