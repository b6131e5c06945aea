//! Actions that change, encapsulate or track a packet, or hand samples of packets to the control
//! plane, and do nothing else: workers run them on whole batches, in place.

use crate::layers::Layers;
use crate::rewrite::{self, set_field};
use dp::Action;
use flow::PortNo;
use netdev::{Frame, FrameError};

/// The output of a megaflow's packets after its actions have changed or sampled them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// All leave by one port.
    Output(PortNo),
    /// All leave by a bond, whose member their keys select: what was changed before does not
    /// matter to it.
    Bond(u32),
    /// All are recirculated with one number.
    Recirculate(u32),
    /// All are recirculated with a number that carries a hash of each.
    RecirculateByHash,
    /// All lose their outer headers, and are recirculated as packets of a tunnel's port.
    TunnelPop,
    /// Anything else: the actions do more than to change the packets and then one of the above.
    Other,
}

/// What is done to packets before their [`Ending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Before {
    /// Nothing.
    Nothing,
    /// They pass the connection tracker, which does not translate them: only what it says of them
    /// changes.
    TracksOnly,
    /// They are changed.
    Changes,
    /// Samples are taken of them, and they may be changed.
    Samples,
    /// They are encapsulated once, and may be changed. Not packets that this
    /// [takes apart](crate::actions::takes_apart).
    Encapsulates,
    /// They pass the connection tracker, and may be changed.
    Tracks,
}

impl Ending {
    /// The ending of actions, and what they do before it.
    pub(crate) fn of(actions: &[Action]) -> (Ending, Before) {
        match actions {
            [edits @ .., last] if are_edits(edits) => {
                let ending = match last {
                    Action::Output(port) => Ending::Output(*port),
                    Action::OutputBond(bond) if edits.iter().all(keeps_bucket) => Ending::Bond(*bond),
                    Action::Recirc(id) => Ending::Recirculate(*id),
                    Action::RecircByHash { .. } => Ending::RecirculateByHash,
                    Action::TunnelPop { .. } => Ending::TunnelPop,
                    _ => return (Ending::Other, Before::Nothing),
                };
                let samples = edits.iter().any(|action| matches!(action, Action::Sample { .. }));
                let tracks = edits.iter().any(|action| matches!(action, Action::Ct(_)));
                let pushes = edits.iter().filter(|action| matches!(action, Action::TunnelPush(_)));
                let before = match (samples, tracks, pushes.count()) {
                    (true, false, 0) => Before::Samples,
                    (false, true, 0) if edits.iter().all(only_tracks) => Before::TracksOnly,
                    (false, true, 0) => Before::Tracks,
                    (false, false, 1) => Before::Encapsulates,
                    (false, false, 0) if edits.is_empty() => Before::Nothing,
                    (false, false, 0) => Before::Changes,
                    _ => return (Ending::Other, Before::Nothing),
                };
                (ending, before)
            }
            _ => (Ending::Other, Before::Nothing),
        }
    }

    /// The port that all packets leave by.
    pub(crate) fn port(self) -> Option<PortNo> {
        match self {
            Ending::Output(port) => Some(port),
            _ => None,
        }
    }

    /// Whether all packets are recirculated.
    #[inline]
    pub(crate) fn recirculates(self) -> bool {
        matches!(
            self,
            Ending::Recirculate(_) | Ending::RecirculateByHash | Ending::TunnelPop
        )
    }

    /// The number that all packets are recirculated with.
    pub(crate) fn recirculation(self) -> Option<u32> {
        match self {
            Ending::Recirculate(id) => Some(id),
            _ => None,
        }
    }
}

/// Runs changes on frames. A packet without room for another header is left without a byte; returns
/// whether there is such a packet.
#[inline]
pub(crate) fn edit_each(edits: &[Action], frames: &mut [Frame]) -> bool {
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

/// Whether a packet has the same bucket of a bond before and after a change.
fn keeps_bucket(action: &Action) -> bool {
    !matches!(
        action,
        Action::SetField(_) | Action::SetMpls { .. } | Action::TunnelPush(_) | Action::Ct(_)
    )
}

/// Whether an action tracks packets and leaves their bytes as they are: helpers change packets of
/// translated connections only.
fn only_tracks(action: &Action) -> bool {
    matches!(action, Action::Ct(track) if track.request.nat.is_none())
}

/// Whether actions are changes, and samples that do nothing but to punt.
fn are_edits(actions: &[Action]) -> bool {
    let mut rest = actions;
    while let [action, behind @ ..] = rest {
        rest = match (action, behind) {
            (Action::Sample { steps: 1, .. }, [Action::Punt { .. }, behind @ ..]) => behind,
            (action, behind) if is_edit(action) => behind,
            _ => return false,
        };
    }
    true
}

/// Whether an action changes, encapsulates or tracks the packet, and does nothing else.
fn is_edit(action: &Action) -> bool {
    match action {
        Action::SetField(_) | Action::SetMpls { .. } | Action::SetQueue(_) => true,
        Action::PushVlan(_) | Action::PopVlan | Action::CtClear | Action::TunnelPush(_) => true,
        Action::Ct(track) => !track.fragments,
        _ => false,
    }
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
        Action::CtClear => untrack(frame),
        _ => {}
    }
    Ok(())
}

/// Takes away what the tracker has said of a packet.
fn untrack(frame: &mut Frame) {
    if frame.meta.connection().is_some() {
        frame.meta.extra_mut().connection = None;
    }
}
