//! Stage six of a packet's way: actions, run in order on one frame.

use crate::egress::Egress;
use crate::stats::DropSink;
use dp::{Action, DropCause};
use netdev::Frame;

/// Runs `actions` on a frame; outputs wait in `egress`. The last output takes the frame itself, those before it a copy.
///
/// `drop` says why, where the actions send it nowhere.
#[inline]
pub(crate) fn run(actions: &[Action], drop: Option<DropCause>, frame: Frame, egress: &mut Egress, drops: DropSink<'_>) {
    // Most packets go to one port as they are.
    if let [Action::Output(port)] = actions {
        if egress.queue(*port, frame).is_err() {
            drops.count(DropCause::PortDown, 1);
        }
        return;
    }
    run_list(actions, drop, frame, egress, drops);
}

fn run_list(actions: &[Action], drop: Option<DropCause>, mut frame: Frame, egress: &mut Egress, drops: DropSink<'_>) {
    let is_output = |action: &Action| matches!(action, Action::Output(_));
    let Some(last) = actions.iter().rposition(is_output) else {
        drops.count(drop.unwrap_or(DropCause::NoDestination), 1);
        return;
    };
    let (before, rest) = actions.split_at(last);
    for action in before {
        let done = match action {
            Action::Output(port) => {
                if egress.queue(*port, frame.duplicate()).is_err() {
                    drops.count(DropCause::PortDown, 1);
                }
                Ok(())
            }
            Action::PushVlan(tag) => frame.push_vlan(*tag),
            Action::PopVlan => {
                frame.pop_vlan();
                Ok(())
            }
        };
        if done.is_err() {
            // No room for another header: nobody's packet has so many.
            drops.count(DropCause::Malformed, 1);
            return;
        }
    }
    if let [Action::Output(port), ..] = rest
        && egress.queue(*port, frame).is_err()
    {
        drops.count(DropCause::PortDown, 1);
    }
}
