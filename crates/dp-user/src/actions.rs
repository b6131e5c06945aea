//! Stage six of a packet's way: actions, run in order on one frame.

use crate::egress::Egress;
use crate::stats::WorkerStats;
use dp::{Action, DropCause};
use netdev::Frame;

/// Runs `actions` on a frame; outputs wait in `egress`. The last output takes the frame itself, those before it a copy.
///
/// `drop` says why, where the actions send it nowhere.
#[inline]
pub(crate) fn run(actions: &[Action], drop: Option<DropCause>, frame: Frame, egress: &mut Egress, stats: &WorkerStats) {
    // Most packets go to one port as they are.
    if let [Action::Output(port)] = actions {
        if egress.queue(*port, frame).is_err() {
            stats.count_drop(DropCause::PortDown, 1);
        }
        return;
    }
    run_list(actions, drop, frame, egress, stats);
}

fn run_list(actions: &[Action], drop: Option<DropCause>, mut frame: Frame, egress: &mut Egress, stats: &WorkerStats) {
    let is_output = |action: &Action| matches!(action, Action::Output(_));
    let Some(last) = actions.iter().rposition(is_output) else {
        stats.count_drop(drop.unwrap_or(DropCause::NoDestination), 1);
        return;
    };
    let (before, rest) = actions.split_at(last);
    for action in before {
        let done = match action {
            Action::Output(port) => {
                if egress.queue(*port, frame.duplicate()).is_err() {
                    stats.count_drop(DropCause::PortDown, 1);
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
            stats.count_drop(DropCause::Malformed, 1);
            return;
        }
    }
    if let [Action::Output(port), ..] = rest
        && egress.queue(*port, frame).is_err()
    {
        stats.count_drop(DropCause::PortDown, 1);
    }
}
