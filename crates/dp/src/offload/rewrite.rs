//! Which megaflows can be offloaded: a list of what is allowed. A new action or field has to be
//! entered here, or does not compile.

use super::{MAX_OUTPUTS, Refused};
use crate::Action;
use flow::{Field, Mask, PortNo};
use smallvec::SmallVec;
use wire::{EtherType, VlanTag};

/// What an offload changes in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// Pushes a VLAN tag on a packet without one. Its TPID is 0x8100 or 0x88a8.
    PushVlan(VlanTag),
    /// Pops the packet's only VLAN tag.
    PopVlan,
}

/// Where packets of a megaflow leave, in the order of its actions: 1 to
/// [`MAX_OUTPUTS`](super::MAX_OUTPUTS) ports, each with what is changed in the packets since the
/// output before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs(SmallVec<[(PortNo, Option<Rewrite>); 2]>);

impl Outputs {
    /// Those of a megaflow with these actions and this mask, if an offload can send its packets.
    ///
    /// # Errors
    /// [`Refused::Unsupported`].
    pub fn of(actions: &[Action], mask: &Mask, is_tagged: bool) -> Result<Outputs, Refused> {
        if !DECIDED.covers(mask) {
            return Err(Refused::Unsupported(
                "match on a field that differs within a kind of packets",
            ));
        }
        let mut outputs = Outputs::default();
        let (mut tagged, mut rewrite) = (is_tagged, None);
        for action in actions {
            match step(action)? {
                Step::Output(port) if outputs.0.len() < MAX_OUTPUTS => outputs.0.push((port, rewrite.take())),
                Step::Output(_) => return Err(Refused::Unsupported("list of so many outputs")),
                Step::Rewrite(_) if rewrite.is_some() => {
                    return Err(Refused::Unsupported("list of so many actions"));
                }
                Step::Rewrite(Rewrite::PushVlan(tag)) if tagged || !EtherType(tag.tpid).is_vlan() => {
                    return Err(Refused::Unsupported("second or unusual VLAN tag"));
                }
                Step::Rewrite(Rewrite::PopVlan) if !tagged => {
                    return Err(Refused::Unsupported("pop without a VLAN tag"));
                }
                Step::Rewrite(own) => {
                    tagged = matches!(own, Rewrite::PushVlan(_));
                    rewrite = Some(own);
                }
            }
        }
        match outputs.0.is_empty() || rewrite.is_some() {
            true => Err(Refused::Unsupported("drop")),
            false => Ok(outputs),
        }
    }

    /// Each port, and what is changed before.
    pub fn iter(&self) -> impl Iterator<Item = (PortNo, Option<Rewrite>)> {
        self.0.iter().copied()
    }

    /// The ports.
    pub fn ports(&self) -> impl Iterator<Item = PortNo> {
        self.0.iter().map(|(port, _)| *port)
    }
}

/// What an offload does for an action.
enum Step {
    Output(PortNo),
    Rewrite(Rewrite),
}

fn step(action: &Action) -> Result<Step, Refused> {
    let name = match action {
        Action::Output(port) => return Ok(Step::Output(*port)),
        Action::PushVlan(tag) => return Ok(Step::Rewrite(Rewrite::PushVlan(*tag))),
        Action::PopVlan => return Ok(Step::Rewrite(Rewrite::PopVlan)),
        Action::SetField(_) => "set_field",
        Action::PushMpls { .. } | Action::PopMpls { .. } | Action::SetMpls { .. } => "MPLS",
        Action::Trunc(_) => "truncation",
        Action::Punt { .. } => "a copy for the control plane",
        Action::Meter(_) => "meter",
        Action::Clone(_) => "clone",
        Action::Sample { .. } => "sample",
        Action::IfLonger { .. } => "check of a packet's length",
        Action::Recirc(_) => "recirculation",
        Action::SetQueue(_) => "queue",
        Action::PushPbb { .. } | Action::PopPbb => "PBB",
        Action::CopyTtlOut | Action::CopyTtlIn => "copy of a TTL",
    };
    Err(Refused::Unsupported(name))
}

/// The fields that are the same in all packets of one [`PacketKind`](super::PacketKind).
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
        // A packet from a device that was not recirculated has none.
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
    const MIRROR: Action = Action::Output(PortNo(3));
    const TAG: VlanTag = VlanTag { tpid: 0x8100, tci: 5 };
    const PUSH: Action = Action::PushVlan(TAG);
    const POP: Action = Action::PopVlan;

    fn outputs(actions: &[Action], mask: &Mask, is_tagged: bool) -> Option<Vec<(u32, Option<Rewrite>)>> {
        let outputs = Outputs::of(actions, mask, is_tagged).ok()?;
        Some(outputs.iter().map(|(port, rewrite)| (port.0, rewrite)).collect())
    }

    #[test]
    fn packets_that_leave_as_they_are_or_with_one_tag_changed_are_offloaded() {
        let (push, pop) = (Some(Rewrite::PushVlan(TAG)), Some(Rewrite::PopVlan));
        for (actions, is_tagged, expected) in [
            (&[OUT][..], false, Some(vec![(2, None)])),
            (&[OUT], true, Some(vec![(2, None)])),
            (&[PUSH, OUT], false, Some(vec![(2, push)])),
            (&[PUSH, OUT], true, None),
            (&[POP, OUT], true, Some(vec![(2, pop)])),
            (&[POP, OUT], false, None),
            (&[MIRROR, OUT], false, Some(vec![(3, None), (2, None)])),
            (&[PUSH, MIRROR, POP, OUT], false, Some(vec![(3, push), (2, pop)])),
            (&[POP, OUT, PUSH, MIRROR], true, Some(vec![(2, pop), (3, push)])),
            (&[PUSH, MIRROR, PUSH, OUT], false, None),
            (&[OUT, MIRROR, OUT, MIRROR, OUT], false, None),
        ] {
            assert_eq!(
                outputs(actions, &Mask::exact(Field::InPort), is_tagged),
                expected,
                "{actions:?}"
            );
        }
    }

    #[test]
    fn packets_with_any_other_actions_are_not() {
        let all = Mask::EMPTY;
        let odd = Action::PushVlan(VlanTag { tpid: 0x9999, tci: 5 });
        for actions in [
            &[][..],
            &[PUSH],
            &[OUT, PUSH],
            &[PUSH, PUSH, OUT],
            &[PUSH, POP, OUT],
            &[odd, OUT],
            &[PUSH, PUSH],
            &[POP, PUSH, OUT],
            &[Action::Meter(1), OUT],
            &[Action::SetQueue(1), OUT],
            &[Action::Trunc(64), OUT],
            &[Action::Recirc(1)],
            &[
                OUT,
                Action::Punt {
                    reason: crate::PuntReason::Controller,
                    handle: 1,
                    max_len: 64,
                },
            ],
        ] {
            for is_tagged in [false, true] {
                assert_eq!(outputs(actions, &all, is_tagged), None, "{actions:?}");
            }
        }
    }

    #[test]
    fn packets_of_which_more_was_looked_at_than_a_kind_has_are_not() {
        assert!(outputs(&[OUT], &Mask::exact(Field::TpDst), false).is_some());
        assert!(outputs(&[OUT], &Mask::exact(Field::TcpFlags), false).is_none());
        assert!(outputs(&[OUT], &Mask::full(), false).is_none());
    }

    #[test]
    fn a_refusal_names_why() {
        let refused = Outputs::of(&[Action::Meter(1), OUT], &Mask::EMPTY, false).unwrap_err();
        assert_eq!(refused.to_string(), "offload has no meter");
    }
}
