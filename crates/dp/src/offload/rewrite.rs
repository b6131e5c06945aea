//! Which megaflows can be offloaded: a list of what is allowed. A new action or field has to be
//! entered here, or does not compile.

use super::Refused;
use crate::Action;
use flow::{Field, Mask};
use wire::{EtherType, VlanTag};

/// What an offload changes in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// Pushes a VLAN tag on a packet without one. Its TPID is 0x8100 or 0x88a8.
    PushVlan(VlanTag),
    /// Pops the packet's only VLAN tag.
    PopVlan,
}

impl Rewrite {
    /// What an offload changes in packets of a megaflow with these actions and this mask, which
    /// then leave by one port.
    ///
    /// # Errors
    /// [`Refused::Unsupported`].
    pub fn of(actions: &[Action], mask: &Mask, is_tagged: bool) -> Result<Option<Rewrite>, Refused> {
        if !DECIDED.covers(mask) {
            return Err(Refused::Unsupported(
                "match on a field that differs within a kind of packets",
            ));
        }
        let rewrite = match actions {
            [last] => return output(last).map(|()| None),
            [first, last] => {
                output(last)?;
                step(first)?
            }
            _ => return Err(Refused::Unsupported("list of so many actions")),
        };
        match rewrite {
            Some(Rewrite::PushVlan(tag)) if is_tagged || !EtherType(tag.tpid).is_vlan() => {
                Err(Refused::Unsupported("second or unusual VLAN tag"))
            }
            Some(Rewrite::PopVlan) if !is_tagged => Err(Refused::Unsupported("pop without a VLAN tag")),
            None => Err(Refused::Unsupported("second output")),
            rewrite => Ok(rewrite),
        }
    }
}

fn output(action: &Action) -> Result<(), Refused> {
    match step(action)? {
        None => Ok(()),
        Some(_) => Err(Refused::Unsupported("drop")),
    }
}

/// The rewrite that an action is; `None` for an output.
fn step(action: &Action) -> Result<Option<Rewrite>, Refused> {
    let name = match action {
        Action::Output(_) => return Ok(None),
        Action::PushVlan(tag) => return Ok(Some(Rewrite::PushVlan(*tag))),
        Action::PopVlan => return Ok(Some(Rewrite::PopVlan)),
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
    const PUSH: Action = Action::PushVlan(VlanTag { tpid: 0x8100, tci: 5 });

    fn rewrite(actions: &[Action], mask: &Mask, is_tagged: bool) -> Option<Option<Rewrite>> {
        Rewrite::of(actions, mask, is_tagged).ok()
    }

    #[test]
    fn packets_that_leave_by_one_port_as_they_are_or_with_one_tag_changed_are_offloaded() {
        let all = Mask::exact(Field::InPort);
        assert_eq!(rewrite(&[OUT], &all, false), Some(None));
        assert_eq!(rewrite(&[OUT], &all, true), Some(None));
        let pushed = Some(Rewrite::PushVlan(VlanTag { tpid: 0x8100, tci: 5 }));
        assert_eq!(rewrite(&[PUSH, OUT], &all, false), Some(pushed));
        assert_eq!(rewrite(&[PUSH, OUT], &all, true), None);
        assert_eq!(
            rewrite(&[Action::PopVlan, OUT], &all, true),
            Some(Some(Rewrite::PopVlan))
        );
        assert_eq!(rewrite(&[Action::PopVlan, OUT], &all, false), None);
    }

    #[test]
    fn packets_with_any_other_actions_are_not() {
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
            &[PUSH, PUSH],
            &[Action::PopVlan, PUSH, OUT],
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
                assert_eq!(rewrite(actions, &all, is_tagged), None, "{actions:?}");
            }
        }
    }

    #[test]
    fn packets_of_which_more_was_looked_at_than_a_kind_has_are_not() {
        assert!(rewrite(&[OUT], &Mask::exact(Field::TpDst), false).is_some());
        assert!(rewrite(&[OUT], &Mask::exact(Field::TcpFlags), false).is_none());
        assert!(rewrite(&[OUT], &Mask::full(), false).is_none());
    }

    #[test]
    fn a_refusal_names_why() {
        let refused = Rewrite::of(&[Action::Meter(1), OUT], &Mask::EMPTY, false).unwrap_err();
        assert_eq!(refused.to_string(), "offload has no meter");
    }
}
