//! Which megaflows can be offloaded: a list of what is allowed. A new action or field has to be
//! entered here, or does not compile.

use super::{MAX_OUTPUTS, Refused};
use crate::{Action, FlowHash, TunnelPush};
use flow::{Field, Mask, PortNo};
use smallvec::SmallVec;
use std::sync::Arc;
use wire::{EtherType, VlanTag};

/// What an offload changes in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// Pushes a VLAN tag, in the place of the packet's only one if there is one. Its TPID is 0x8100
    /// or 0x88a8.
    PushVlan(VlanTag),
    /// Pops the packet's only VLAN tag.
    PopVlan,
}

/// Where packets of a megaflow leave, in the order of its actions: 1 to
/// [`MAX_OUTPUTS`](super::MAX_OUTPUTS) ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    ports: SmallVec<[PortOutput; 2]>,
    push: Option<Arc<TunnelPush>>,
}

/// How packets leave by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOutput {
    /// The port.
    pub to: PortNo,
    /// What is changed in them before, since the output before.
    pub rewrite: Option<Rewrite>,
    /// The length that longer ones are cut to, in bytes from the Ethernet header on with a tag. An
    /// offload cuts no packets, so there must not be longer ones.
    pub cut: Option<u32>,
}

/// The VLAN tag of a packet at one point of the actions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    /// The one that it came with.
    Own,
    Pushed(VlanTag),
    None,
}

impl Outputs {
    /// Those of a megaflow with these actions and this mask, if an offload can send its packets.
    /// `member` selects the member of a bond for them.
    ///
    /// # Errors
    /// [`Refused::Unsupported`].
    pub fn of(
        actions: &[Action],
        mask: &Mask,
        is_tagged: bool,
        mut member: impl FnMut(u32) -> Option<PortNo>,
    ) -> Result<Outputs, Refused> {
        if !is_decided(mask) {
            return Err(Refused::Unsupported(
                "match on a field that differs within a kind of packets",
            ));
        }
        let mut outputs = Outputs::default();
        let mut tag = if is_tagged { Tag::Own } else { Tag::None };
        let (mut sent_with, mut cut) = (tag, None);
        for action in actions {
            let step = match step(action)? {
                Step::Bond(bond) if outputs.push.is_none() => {
                    Step::Output(member(bond).ok_or(Refused::Unsupported("drop"))?)
                }
                step => step,
            };
            match step {
                Step::Output(_) if outputs.ports.len() == MAX_OUTPUTS => {
                    return Err(Refused::Unsupported("list of so many outputs"));
                }
                Step::Output(_) if outputs.push.is_some() && !outputs.ports.is_empty() => {
                    return Err(Refused::Unsupported("copies of a tunnel's packets"));
                }
                Step::Output(to) => {
                    let rewrite = match tag {
                        _ if tag == sent_with => None,
                        Tag::Pushed(tag) => Some(Rewrite::PushVlan(tag)),
                        Tag::None | Tag::Own => Some(Rewrite::PopVlan),
                    };
                    sent_with = tag;
                    let cut = cut.take();
                    outputs.ports.push(PortOutput { to, rewrite, cut });
                }
                Step::Push(push) => {
                    if outputs.push.is_some() || !outputs.ports.is_empty() || tag != Tag::None || cut.is_some() {
                        return Err(Refused::Unsupported("copies, tags or tunnels inside of a tunnel"));
                    }
                    outputs.push = Some(push.clone());
                }
                Step::Bond(_) => {
                    // It selects a member by the outer headers.
                    return Err(Refused::Unsupported("tunnel over a bond"));
                }
                Step::Cut(len) => cut = Some(len),
                Step::Rewrite(Rewrite::PushVlan(pushed)) => {
                    if tag != Tag::None || !EtherType(pushed.tpid).is_vlan() {
                        return Err(Refused::Unsupported("second or unusual VLAN tag"));
                    }
                    tag = Tag::Pushed(pushed);
                }
                Step::Rewrite(Rewrite::PopVlan) if tag == Tag::None => {
                    return Err(Refused::Unsupported("pop without a VLAN tag"));
                }
                Step::Rewrite(Rewrite::PopVlan) => tag = Tag::None,
            }
        }
        match outputs.ports.is_empty() || tag != sent_with {
            true => Err(Refused::Unsupported("drop")),
            false => Ok(outputs),
        }
    }

    /// Each port, and how packets leave by it.
    pub fn iter(&self) -> impl Iterator<Item = PortOutput> {
        self.ports.iter().copied()
    }

    /// The ports.
    pub fn ports(&self) -> impl Iterator<Item = PortNo> {
        self.ports.iter().map(|output| output.to)
    }

    /// The outer headers that packets get before they leave, by one port.
    pub fn push(&self) -> Option<&Arc<TunnelPush>> {
        self.push.as_ref()
    }
}

/// Whether the fields of a mask are the same in all packets of one
/// [`PacketKind`](super::PacketKind), of the same connections.
pub fn is_decided(mask: &Mask) -> bool {
    DECIDED.covers(mask)
}

/// Whether a hash is the same of all packets of one [`PacketKind`](super::PacketKind).
pub fn is_hash_decided(hash: &FlowHash) -> bool {
    match hash {
        FlowHash::L4 { .. } | FlowHash::SymmetricL4 { .. } => true,
        FlowHash::Fields(of) => of.fields.iter().all(|(field, _)| is_field_decided(*field)),
    }
}

/// What an offload does for an action.
enum Step<'a> {
    Output(PortNo),
    Bond(u32),
    Push(&'a Arc<TunnelPush>),
    Rewrite(Rewrite),
    Cut(u32),
}

fn step(action: &Action) -> Result<Step<'_>, Refused> {
    let name = match action {
        Action::Output(port) => return Ok(Step::Output(*port)),
        Action::OutputBond(bond) => return Ok(Step::Bond(*bond)),
        Action::TunnelPush(push) => return Ok(Step::Push(push)),
        Action::PushVlan(tag) => return Ok(Step::Rewrite(Rewrite::PushVlan(*tag))),
        Action::PopVlan => return Ok(Step::Rewrite(Rewrite::PopVlan)),
        Action::Trunc(len) => return Ok(Step::Cut(*len)),
        Action::SetField(_) => "set_field without a connection",
        Action::PushMpls { .. } | Action::PopMpls { .. } | Action::SetMpls { .. } => "MPLS",
        Action::Punt { .. } => "a copy for the control plane",
        Action::Meter(_) => "meter",
        Action::Clone(_) => "clone",
        Action::Sample { .. } => "sample",
        Action::IfLonger { .. } => "check of a packet's length",
        Action::Recirc(_) | Action::RecircByHash { .. } => "recirculation behind an output",
        Action::SetQueue(_) => "queue",
        Action::PushPbb { .. } | Action::PopPbb => "PBB",
        Action::PushEth { .. } | Action::PopEth | Action::AddMpls { .. } => "packet type",
        Action::PushNsh(_) | Action::PopNsh => "NSH",
        Action::CopyTtlOut | Action::CopyTtlIn => "copy of a TTL",
        Action::TunnelPop { .. } => "tunnel's end without its inner packet",
        Action::Ct(_) | Action::CtClear => "connection tracking behind an output",
    };
    Err(Refused::Unsupported(name))
}

/// The fields that are the same in all packets of one [`PacketKind`](super::PacketKind).
const DECIDED: Mask = {
    let mut mask = Mask::EMPTY;
    let mut n = 0;
    while n < Field::ALL.len() {
        if is_field_decided(Field::ALL[n]) {
            mask.add(Field::ALL[n]);
        }
        n += 1;
    }
    mask
};

const fn is_field_decided(field: Field) -> bool {
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
        | Field::PbbUca
        | Field::PacketType
        | Field::NshFlags
        | Field::NshTtl
        | Field::NshMdtype
        | Field::NshNp
        | Field::NshSpi
        | Field::NshSi
        | Field::NshC1
        | Field::NshC2
        | Field::NshC3
        | Field::NshC4 => true,
        // The outer headers that decide these are part of a tunnel's kind; other packets have none.
        Field::TunId
        | Field::TunSrc
        | Field::TunDst
        | Field::TunIpv6Src
        | Field::TunIpv6Dst
        | Field::TunFlags
        | Field::TunTtl
        | Field::TunTos
        | Field::TunGbpId
        | Field::TunGbpFlags
        | Field::TunErspanVer
        | Field::TunErspanIdx
        | Field::TunErspanDir
        | Field::TunErspanHwid
        | Field::TunGtpuFlags
        | Field::TunGtpuMsgtype
        | Field::TunOptions => true,
        // Offloaded packets are not tracked, or belong to connections that do not change.
        Field::CtState
        | Field::CtProto
        | Field::CtZone
        | Field::CtTpSrc
        | Field::CtTpDst
        | Field::CtMark
        | Field::CtLabel
        | Field::CtIpv4Src
        | Field::CtIpv4Dst
        | Field::CtIpv6Src
        | Field::CtIpv6Dst => true,
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
        let outputs = Outputs::of(actions, mask, is_tagged, |_| None).ok()?;
        Some(outputs.iter().map(|output| (output.to.0, output.rewrite)).collect())
    }

    #[test]
    fn the_member_of_a_bond_is_an_output() {
        let actions = [PUSH, Action::OutputBond(4)];
        let of =
            |member: Option<PortNo>| Outputs::of(&actions, &Mask::EMPTY, false, |bond| member.filter(|_| bond == 4));
        let outputs: Vec<PortOutput> = of(Some(PortNo(7))).unwrap().iter().collect();
        let expected = PortOutput {
            to: PortNo(7),
            rewrite: Some(Rewrite::PushVlan(TAG)),
            cut: None,
        };
        assert_eq!(outputs, [expected]);
        assert!(of(None).is_err());
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
            (&[POP, PUSH, MIRROR, OUT], true, Some(vec![(3, push), (2, None)])),
            (&[OUT, POP, PUSH, MIRROR], true, Some(vec![(2, None), (3, push)])),
            (&[PUSH, POP, OUT], false, Some(vec![(2, None)])),
        ] {
            assert_eq!(
                outputs(actions, &Mask::exact(Field::InPort), is_tagged),
                expected,
                "{actions:?}"
            );
        }
    }

    #[test]
    fn a_cut_is_that_of_the_next_output_alone() {
        let outputs = Outputs::of(&[Action::Trunc(64), OUT, MIRROR], &Mask::EMPTY, false, |_| None).unwrap();
        let cuts: Vec<Option<u32>> = outputs.iter().map(|output| output.cut).collect();
        assert_eq!(cuts, [Some(64), None]);
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
            &[odd, OUT],
            &[PUSH, PUSH],
            &[POP, POP, OUT],
            &[POP, PUSH, PUSH, OUT],
            &[OUT; MAX_OUTPUTS + 1],
            &[Action::Meter(1), OUT],
            &[Action::SetQueue(1), OUT],
            &[Action::Clone(1), OUT, OUT],
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
        let refused = Outputs::of(&[Action::Meter(1), OUT], &Mask::EMPTY, false, |_| None).unwrap_err();
        assert_eq!(refused.to_string(), "offload has no meter");
    }
}
