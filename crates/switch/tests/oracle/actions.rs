//! Actions as text and as what they do to a frame.

use dp::Action;
use flow::PortNo;
use wire::VlanTag;

/// A frame's tags, the outermost first, without their drop eligible indicators.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Frame(pub(crate) Vec<VlanTag>);

/// What comes out of which port, sorted.
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

/// Reads what Open vSwitch prints.
pub(crate) fn parse(text: &str) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() && rest != "drop" {
        let end = match rest.strip_prefix("push_vlan(") {
            Some(tag) => {
                let end = tag.find(')').unwrap();
                actions.push(Action::PushVlan(tag_of(&tag[..end])));
                "push_vlan(".len() + end + 1
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                match &rest[..end] {
                    "pop_vlan" => actions.push(Action::PopVlan),
                    port => actions.push(Action::Output(PortNo(port.parse().unwrap()))),
                }
                end
            }
        };
        rest = rest[end..].trim_start_matches(',');
    }
    actions
}

/// `tpid=0x88a8,vid=10,pcp=0`.
fn tag_of(text: &str) -> VlanTag {
    let mut tag = VlanTag { tpid: 0x8100, tci: 0 };
    for part in text.split(',') {
        match part.split_once('=').unwrap() {
            ("tpid", value) => tag.tpid = u16::from_str_radix(value.trim_start_matches("0x"), 16).unwrap(),
            ("vid", value) => tag.tci |= value.parse::<u16>().unwrap(),
            ("pcp", value) => tag.tci |= value.parse::<u16>().unwrap() << 13,
            other => panic!("{other:?}"),
        }
    }
    tag
}
