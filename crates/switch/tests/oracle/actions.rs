//! The effect of actions on a frame.

use dp::Action;
use wire::VlanTag;

/// A frame's tags, the outermost first, without their drop eligible indicators.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Frame(pub(crate) Vec<VlanTag>);

/// The frames that leave and their ports, sorted.
pub(crate) fn run(actions: &[Action], frame: &Frame) -> Vec<(u32, Frame)> {
    let mut frame = frame.clone();
    let mut out = Vec::new();
    for action in actions {
        match action {
            Action::Output(port) => out.push((port.0, frame.clone())),
            Action::PushVlan(tag) => frame.0.insert(0, *tag),
            Action::PopVlan if frame.0.is_empty() => {}
            Action::PopVlan => {
                frame.0.remove(0);
            }
            other => panic!("plain switching does not ask for {other}"),
        }
    }
    out.sort();
    out
}
