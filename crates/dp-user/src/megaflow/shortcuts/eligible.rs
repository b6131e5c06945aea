//! Which megaflows' packets can take shortcuts: a list of what is allowed. What is new has to be
//! entered here, or does not compile.

use dp::Action;
use flow::{Field, Mask};
use netdev::shortcut::TagChange;
use wire::{EtherType, VlanTag};

/// What becomes of the tags of packets that megaflows with these actions, and this mask, let take a
/// shortcut; `None` where none may.
pub(super) fn tag_change(actions: &[Action], mask: &Mask, is_tagged: bool) -> Option<TagChange> {
    if !DECIDED.covers(mask) {
        return None;
    }
    let mut steps = actions.iter().map(step);
    let change = match steps.next()?? {
        Step::Output => TagChange::None,
        edit => {
            let Step::Output = steps.next()?? else { return None };
            match edit {
                Step::PushVlan(VlanTag { tpid, tci }) if !is_tagged && EtherType(tpid).is_vlan() => {
                    TagChange::Push { tpid, tci }
                }
                Step::PopVlan if is_tagged => TagChange::Pop,
                Step::PushVlan(_) | Step::PopVlan | Step::Output => return None,
            }
        }
    };
    steps.next().is_none().then_some(change)
}

/// What a shortcut can do with a packet.
enum Step {
    Output,
    PushVlan(VlanTag),
    PopVlan,
}

fn step(action: &Action) -> Option<Step> {
    match action {
        Action::Output(_) => Some(Step::Output),
        Action::PushVlan(tag) => Some(Step::PushVlan(*tag)),
        Action::PopVlan => Some(Step::PopVlan),
        Action::SetField(_)
        | Action::PushMpls { .. }
        | Action::PopMpls { .. }
        | Action::SetMpls { .. }
        | Action::Trunc(_)
        | Action::Controller { .. }
        | Action::Meter(_)
        | Action::Clone(_)
        | Action::IfLonger { .. }
        | Action::Recirc(_)
        | Action::SetQueue(_)
        | Action::PushPbb { .. }
        | Action::PopPbb
        | Action::CopyTtlOut
        | Action::CopyTtlIn => None,
    }
}

/// The fields that are the same in all packets of one
/// [`ShortcutKey`](netdev::shortcut::ShortcutKey).
const DECIDED: Mask = {
    let mut mask = Mask::EMPTY;
    let mut n = 0;
    while n < Field::ALL.len() {
        if is_decided(Field::ALL[n]) {
            mask.add(Field::ALL[n]);
        }
        n += 1;
    }
    mask
};

const fn is_decided(field: Field) -> bool {
    match field {
        // The key has them.
        Field::InPort
        | Field::EthDst
        | Field::EthType
        | Field::EthSrc
        | Field::VlanTci0
        | Field::VlanTpid0
        | Field::IpProto
        | Field::IpTos
        | Field::IpTtl
        | Field::IpFrag
        | Field::Ipv6Label
        | Field::Ipv4Src
        | Field::Ipv4Dst
        | Field::Ipv6Src
        | Field::Ipv6Dst
        | Field::TpSrc
        | Field::TpDst
        | Field::IcmpType
        | Field::IcmpCode => true,
        // What comes from a device and was not recirculated has none.
        Field::RecircId | Field::PktMark | Field::SkbPriority => true,
        // Packets that have a key are IP with at most one tag and no extension headers, and no
        // neighbour discovery.
        Field::VlanTci1
        | Field::VlanTpid1
        | Field::Ipv6Exthdr
        | Field::ArpSpa
        | Field::ArpTpa
        | Field::ArpSha
        | Field::ArpOp
        | Field::ArpTha
        | Field::NdOptionsType
        | Field::NdReserved
        | Field::NdTarget
        | Field::NdSll
        | Field::NdTll
        | Field::MplsLse0
        | Field::MplsLse1
        | Field::MplsLse2
        | Field::PbbIsid
        | Field::PbbUca => true,
        Field::TcpFlags => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::PortNo;

    const OUT: Action = Action::Output(PortNo(2));
    const PUSH: Action = Action::PushVlan(VlanTag { tpid: 0x8100, tci: 5 });

    #[test]
    fn packets_that_leave_by_one_port_as_they_are_or_with_one_tag_changed_take_shortcuts() {
        let all = Mask::exact(Field::InPort);
        assert_eq!(tag_change(&[OUT], &all, false), Some(TagChange::None));
        assert_eq!(tag_change(&[OUT], &all, true), Some(TagChange::None));
        let pushed = TagChange::Push { tpid: 0x8100, tci: 5 };
        assert_eq!(tag_change(&[PUSH, OUT], &all, false), Some(pushed));
        assert_eq!(tag_change(&[PUSH, OUT], &all, true), None);
        assert_eq!(tag_change(&[Action::PopVlan, OUT], &all, true), Some(TagChange::Pop));
        assert_eq!(tag_change(&[Action::PopVlan, OUT], &all, false), None);
    }

    #[test]
    fn packets_with_any_other_actions_take_none() {
        let all = Mask::EMPTY;
        let odd = Action::PushVlan(VlanTag { tpid: 0x9999, tci: 5 });
        for actions in [
            &[][..],
            &[PUSH],
            &[OUT, OUT],
            &[OUT, PUSH],
            &[PUSH, PUSH, OUT],
            &[PUSH, Action::PopVlan, OUT],
            &[odd, OUT],
            &[Action::Meter(1), OUT],
            &[Action::SetQueue(1), OUT],
            &[Action::Trunc(64), OUT],
            &[Action::Recirc(1)],
            &[OUT, Action::Controller { handle: 1, max_len: 64 }],
        ] {
            for is_tagged in [false, true] {
                assert_eq!(tag_change(actions, &all, is_tagged), None, "{actions:?}");
            }
        }
    }

    #[test]
    fn packets_of_which_more_was_looked_at_than_a_key_has_take_none() {
        assert!(tag_change(&[OUT], &Mask::exact(Field::TpDst), false).is_some());
        assert!(tag_change(&[OUT], &Mask::exact(Field::TcpFlags), false).is_none());
        assert!(tag_change(&[OUT], &Mask::full(), false).is_none());
    }
}
