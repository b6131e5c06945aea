//! Captures: copies of what ports receive and send, for a person who watches them.
//!
//! A capture is a mirror whose copies go to the control plane. Unlike those of other mirrors, they
//! are what is on the wire: received packets before any decision, also those that the port refuses,
//! and sent ones as they are sent. If a received packet goes nowhere, its copy says why.

use super::pipeline::Pipeline;
use crate::bridge::Bridge;
use crate::mirror::Output;
use crate::port::Egress;
use dp::{Action, DropCause, PuntReason};

/// What the handle of a copy says ([`PuntReason::Capture`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The capture's number: less than [`Captured::MOST`].
    pub capture: u8,
    /// Whether the port sends the packet; otherwise it has received it.
    pub sent: bool,
    /// Why a received packet goes nowhere, if it does not.
    pub drop: Option<DropCause>,
    /// The port's number in OpenFlow 1.0.
    pub ofport: u16,
}

impl Captured {
    /// How many captures there may be at once.
    pub const MOST: usize = 32;

    /// What a handle says.
    pub fn of(handle: u32) -> Captured {
        let cause = (handle >> 16 & 0xff) as usize;
        Captured {
            capture: (handle >> 27) as u8,
            sent: handle >> 26 & 1 != 0,
            drop: cause
                .checked_sub(1)
                .and_then(|cause| DropCause::ALL.get(cause).copied()),
            ofport: handle as u16,
        }
    }

    fn handle(self) -> u32 {
        let cause = self.drop.map_or(0, |cause| cause as u32 + 1);
        u32::from(self.capture) << 27 | u32::from(self.sent) << 26 | cause << 16 | u32::from(self.ofport)
    }
}

impl Pipeline<'_> {
    /// Copies a packet that a port of the bridge has received, before anything is decided.
    pub(super) fn capture_received(&mut self, bridge: &Bridge, number: u32) {
        if !bridge.mirrors.has_captures() {
            return;
        }
        if let Some((port, _)) = bridge.of_ports.get(&number).copied() {
            let selected = bridge.mirrors.of_source(port);
            self.capture(bridge, selected, number, false);
        }
    }

    /// Copies a packet that leaves, as it is at this point.
    pub(super) fn capture_sent(&mut self, bridge: &Bridge, port: u32, egress: Egress) {
        if !bridge.mirrors.has_captures() {
            return;
        }
        let members = bridge
            .ports
            .get(&port)
            .map(|port| &port.members[..])
            .unwrap_or_default();
        if let Some(member) = members.iter().find(|member| member.wired == egress) {
            self.capture(bridge, bridge.mirrors.of_destination(port), member.number, true);
        }
    }

    fn capture(&mut self, bridge: &Bridge, selected: u32, number: u32, sent: bool) {
        let mut left = selected;
        while let Some(mirror) = bridge.mirrors.get(left.trailing_zeros()) {
            left &= left - 1;
            let Output::Capture(capture) = mirror.output else {
                continue;
            };
            if !self.passes(mirror) {
                continue;
            }
            self.commit_all();
            let captured = Captured {
                capture,
                sent,
                drop: None,
                ofport: flow::port_to_of10(number),
            };
            let most = u32::from(u16::MAX);
            self.actions.push(Action::Punt {
                reason: PuntReason::Capture,
                handle: captured.handle(),
                max_len: mirror.snaplen.unwrap_or(most).min(most) as u16,
            });
        }
    }

    /// Lets the copies of a received packet say why it goes nowhere. Of a translation that failed,
    /// nothing else stays.
    pub(super) fn explain_captures(&mut self, cause: DropCause) {
        for action in &mut self.actions {
            if let Action::Punt {
                reason: PuntReason::Capture,
                handle,
                ..
            } = action
            {
                let captured = Captured::of(*handle);
                if !captured.sent {
                    let drop = Some(cause);
                    *handle = Captured { drop, ..captured }.handle();
                }
            }
        }
    }
}

/// Whether an action copies a received packet for a capture.
pub(super) fn is_of_received(action: &Action) -> bool {
    matches!(action, Action::Punt { reason: PuntReason::Capture, handle, .. } if !Captured::of(*handle).sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_says_what_was_put_into_it() {
        let causes = DropCause::ALL.iter().map(|cause| Some(*cause)).chain([None]);
        for (n, drop) in causes.enumerate() {
            let captured = Captured {
                capture: (n % Captured::MOST) as u8,
                sent: n % 2 == 0,
                drop,
                ofport: 0xfffe - n as u16,
            };
            assert_eq!(Captured::of(captured.handle()), captured);
        }
    }
}
