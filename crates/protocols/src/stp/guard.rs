//! What a port of a spanning tree takes from its other end: guards, and the rate of BPDUs.
//!
//! STP and RSTP share it. No guard is in the standard; switches have them under these names.

use super::wire::{Bpdu, BridgeId};
use core::time::Duration;
use nanos::Nanos;
use std::collections::BTreeSet;
use wire::MacAddr;

/// BPDUs that a port takes at once, and in a second.
///
/// A bridge sends at most ten a second (802.1D-2004 table 17-1); a shared segment has several.
const BURST: u32 = 200;
const PER_SECOND: u32 = 100;

/// The guards of a port. All are off by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    /// A received BPDU disables the port, until its link goes down or the guard is changed.
    pub bpdu_guard: bool,
    /// The port neither sends nor takes BPDUs.
    pub bpdu_filter: bool,
    /// A claim of a better root than the present one blocks the port, until the claims stop.
    pub root_guard: bool,
    /// The addresses of bridges that may be the root by this port. A claim of another root blocks
    /// the port, until the claims stop. Empty: any bridge.
    pub allowed_roots: BTreeSet<MacAddr>,
}

/// The guard that has acted on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// [`Guards::bpdu_guard`]: the port is disabled.
    Bpdu,
    /// [`Guards::root_guard`]: the port is blocked.
    Root,
    /// [`Guards::allowed_roots`]: the port is blocked.
    Claim,
}

/// BPDUs that a port did not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Frames that have no well-formed BPDU.
    pub errors: u64,
    /// Beyond the rate.
    pub rate: u64,
    /// By the BPDU filter.
    pub filter: u64,
    /// By a guard.
    pub guard: u64,
}

/// The guards of one port and their state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate {
    pub(crate) guards: Guards,
    pub(crate) refused: Refused,
    /// The BPDU guard has disabled the port.
    pub(crate) disabled: bool,
    /// A root guard blocks the port until then.
    pub(crate) blocked_until: Option<Nanos>,
    /// The guard that blocks it.
    blocked_by: Option<Guard>,
    /// BPDUs of this second, and its begin.
    taken: u32,
    since: Nanos,
}

/// What becomes of a BPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The machine takes it.
    Take(Bpdu),
    /// It changes nothing.
    Refuse,
    /// It changes nothing, but the guard acts on the port. `true`: it did not before.
    Act(Guard, bool),
}

impl Gate {
    pub(crate) fn set_guards(&mut self, guards: &Guards) {
        if self.guards != *guards {
            self.guards = guards.clone();
            self.release();
        }
    }

    /// Ends what guards have done.
    pub(crate) fn release(&mut self) {
        self.disabled = false;
        self.blocked_until = None;
    }

    /// Judges a received frame. `root` is the present root; a block lasts `block` after the last
    /// claim.
    pub(crate) fn judge(&mut self, frame: &[u8], root: BridgeId, block: Duration, now: Nanos) -> Verdict {
        if self.guards.bpdu_filter {
            self.refused.filter += 1;
            return Verdict::Refuse;
        }
        if !self.has_room(now) {
            self.refused.rate += 1;
            return Verdict::Refuse;
        }
        let bpdu = Bpdu::parse(frame);
        if self.guards.bpdu_guard {
            self.refused.guard += 1;
            let first = !std::mem::replace(&mut self.disabled, true);
            return Verdict::Act(Guard::Bpdu, first);
        }
        let Ok(bpdu) = bpdu else {
            self.refused.errors += 1;
            return Verdict::Refuse;
        };
        if let Bpdu::Config(message, _) | Bpdu::Rst(message, _) = bpdu {
            let claim =
                !self.guards.allowed_roots.is_empty() && !self.guards.allowed_roots.contains(&message.root.mac());
            let guard = if claim {
                Some(Guard::Claim)
            } else {
                (self.guards.root_guard && message.root < root).then_some(Guard::Root)
            };
            if let Some(guard) = guard {
                self.refused.guard += 1;
                let first = self.blocked_until.replace(now + block).is_none();
                self.blocked_by = Some(guard);
                return Verdict::Act(guard, first);
            }
        }
        Verdict::Take(bpdu)
    }

    /// The guard that disables or blocks the port now.
    pub(crate) fn acting(&self) -> Option<Guard> {
        match self.disabled {
            true => Some(Guard::Bpdu),
            false => self.blocked_by.filter(|_| self.blocks()),
        }
    }

    /// Whether a guard blocks the port now.
    pub(crate) fn blocks(&self) -> bool {
        self.blocked_until.is_some()
    }

    /// Ends a block that is over. `true` if there was one.
    pub(crate) fn tick(&mut self, now: Nanos) -> bool {
        self.blocked_until.take_if(|until| *until <= now).is_some()
    }

    fn has_room(&mut self, now: Nanos) -> bool {
        let second = Duration::from_secs(1);
        let seconds = u32::try_from(now.since(self.since).as_secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            self.taken = self.taken.saturating_sub(seconds.saturating_mul(PER_SECOND));
            self.since = if self.taken == 0 {
                now
            } else {
                self.since + second * seconds
            };
        }
        let room = self.taken < BURST;
        self.taken += u32::from(room);
        room
    }
}
