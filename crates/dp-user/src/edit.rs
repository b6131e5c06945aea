//! Actions that change a packet and do nothing else: workers run them on whole batches, in place.

use crate::layers::Layers;
use crate::rewrite::{self, set_field};
use dp::Action;
use flow::PortNo;
use netdev::{Frame, FrameError};

/// The output of a megaflow's packets after its actions have changed them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All leave by one port.
    Output(PortNo),
    /// All are recirculated with one number.
    Recirculate(u32),
    /// Anything else: the actions do more than to change the packets and then one of the above.
    Other,
}

impl Ending {
    /// The ending of actions, and whether they change packets before it.
    pub(crate) fn of(actions: &[Action]) -> (Ending, bool) {
        match actions {
            [edits @ .., last] if edits.iter().all(is_edit) => {
                let ending = match last {
                    Action::Output(port) => Ending::Output(*port),
                    Action::Recirc(id) => Ending::Recirculate(*id),
                    _ => return (Ending::Other, false),
                };
                (ending, !edits.is_empty())
            }
            _ => (Ending::Other, false),
        }
    }

    /// The port that all packets leave by.
    pub(crate) fn port(self) -> Option<PortNo> {
        match self {
            Ending::Output(port) => Some(port),
            _ => None,
        }
    }

    /// The number that all packets are recirculated with.
    pub(crate) fn recirculation(self) -> Option<u32> {
        match self {
            Ending::Recirculate(id) => Some(id),
            _ => None,
        }
    }
}

/// Runs the changes that actions with an [`Ending`] make before it, action by action. A packet
/// without room for another header is left without a byte; returns whether there is such a packet.
#[inline]
pub(crate) fn edit_all(actions: &[Action], frames: &mut [Frame]) -> bool {
    let [edits @ .., _] = actions else { return false };
    let mut lost = false;
    for frame in frames {
        let mut layers = Layers::UNKNOWN;
        if edits.iter().any(|action| edit(action, frame, &mut layers).is_err()) {
            frame.truncate(0);
            lost = true;
        }
    }
    lost
}

/// Whether an action changes the packet, and does nothing else.
fn is_edit(action: &Action) -> bool {
    matches!(
        action,
        Action::SetField(_) | Action::SetMpls { .. } | Action::SetQueue(_) | Action::PushVlan(_) | Action::PopVlan
    )
}

/// Changes a packet; one without room for another header is left as it is.
#[inline]
pub(crate) fn edit(action: &Action, frame: &mut Frame, layers: &mut Layers) -> Result<(), FrameError> {
    match action {
        Action::SetField(set) => set_field(frame, layers, set),
        Action::SetMpls { lse, mask } => rewrite::set_mpls(frame, layers, *lse, *mask),
        Action::SetQueue(queue) => frame.meta.priority = *queue,
        Action::PushVlan(tag) => {
            layers.forget();
            return frame.push_vlan(*tag);
        }
        Action::PopVlan => {
            layers.forget();
            frame.pop_vlan();
        }
        _ => {}
    }
    Ok(())
}
