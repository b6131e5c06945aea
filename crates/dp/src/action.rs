//! The actions of a datapath.

use crate::show::Context;
use crate::user_data::{ToController, UserData};
use crate::{FlowHash, NshPush, PuntReason, SetField, Track, TunnelPush};
use flow::{PortNo, RecircId};
use std::fmt;
use std::sync::Arc;
use tunnel::format::Format;
use wire::{EtherType, MacAddr, VlanTag};

/// An action of a datapath; an empty list drops the packet.
///
/// Actions run in order on one packet: a tag that one action pushes is on the packet for all later
/// ones. A change keeps correct checksums correct, and wrong ones wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send the packet, as it is at this point, out of a port.
    Output(PortNo),
    /// Send the packet, as it is at this point, out of the member of a bond
    /// ([`Datapath::set_bond`](crate::Datapath::set_bond)) that the hash of its flow selects.
    /// [`DropCause::PortDown`](crate::DropCause::PortDown) if the bond does not exist.
    OutputBond(u32),
    /// Insert a VLAN tag (IEEE 802.1Q §9.6) behind the source address, outside any other tag.
    PushVlan(VlanTag),
    /// Remove the outermost VLAN tag; no effect on a packet without one.
    PopVlan,
    /// Write to a header field; no effect on a packet without the field.
    SetField(SetField),
    /// Insert an MPLS label stack entry (RFC 3032) behind the VLAN tags, outside any other entry. A
    /// packet without an EtherType stays as it is.
    PushMpls {
        /// The packet's EtherType from here on: 0x8847 or 0x8848.
        ethertype: u16,
        /// Label (20 bits), traffic class (3), bottom of stack (1), time to live (8), as it stands
        /// in the packet.
        lse: u32,
    },
    /// Remove the outermost MPLS label stack entry, whether it is the last or not; nothing happens
    /// to a packet without one.
    PopMpls {
        /// The packet's EtherType from here on.
        ethertype: u16,
    },
    /// Write to the outermost MPLS label stack entry; no effect on a packet without one.
    SetMpls {
        /// What to write, laid out as in [`Action::PushMpls`].
        lse: u32,
        /// The bits to write.
        mask: u32,
    },
    /// Copy the time to live from the next header to the outermost MPLS label stack entry (OpenFlow
    /// 1.3.5 §5.12): from the entry behind it, or from the IP header behind the last one. Nothing
    /// happens to a packet without an entry, or with something else behind the last one. Labels do
    /// not say what they are before: it is IPv4 if the version is 4, the header is whole and its
    /// checksum is right, IPv6 if the version is 6 and the length is that of the packet.
    CopyTtlOut,
    /// Copy the time to live from the outermost MPLS label stack entry to the next header, as found
    /// by [`Action::CopyTtlOut`].
    CopyTtlIn,
    /// Cut the packet to this many bytes, counted from its Ethernet header, in the next
    /// [`Action::Output`] and only there. Pending segmentation and checksums are done before.
    Trunc(u32),
    /// Hand a copy of the packet, as it is at this point, to
    /// [`Slowpath::punt`](crate::Slowpath::punt).
    Punt {
        /// Why.
        reason: PuntReason,
        /// The switch's handle for this punt. For controllers it stands for the rule, the
        /// controller and the metadata.
        handle: u32,
        /// Most bytes of the packet to hand over.
        max_len: u16,
    },
    /// Measure the packet by a meter ([`Datapath::set_meter`](crate::Datapath::set_meter)), which
    /// may drop it or change its DSCP. An unknown meter lets it pass.
    Meter(u32),
    /// Run this many of the actions that follow on a copy of the packet, then continue after them
    /// with the packet as it was here.
    Clone(u32),
    /// As [`Action::Clone`], for some of the packets, chosen at random.
    Sample {
        /// A packet is chosen with (`probability` + 1) / 2^32: `u32::MAX` chooses all.
        probability: u32,
        /// Number of actions.
        steps: u32,
    },
    /// Run the first `then` of the actions that follow on a copy of the packet if it is longer than
    /// `len` bytes, counted from its Ethernet header; otherwise run the next `otherwise` actions on
    /// a copy. Continue after both with the packet as it was here. If a device is to segment the
    /// packet, each segment is measured.
    IfLonger {
        /// In bytes.
        len: u16,
        /// Number of actions for longer packets.
        then: u32,
        /// Number of actions for the others, which follow those of `then`.
        otherwise: u32,
    },
    /// Recirculate a copy of the packet as it is at this point: extract its key with this number
    /// (not 0) in [`Field::RecircId`](flow::Field::RecircId), and look the key up. A packet that
    /// recirculates more than [`MAX_RECIRCULATIONS`] times is dropped under
    /// [`DropCause::Recirculation`](crate::DropCause::Recirculation).
    Recirc(u32),
    /// As [`Action::Recirc`], with a number that carries a hash of the packet as it is at this
    /// point ([`RecircId::hash`]).
    RecircByHash {
        /// The number, with the hash 0.
        id: RecircId,
        /// What the hash depends on.
        hash: FlowHash,
    },
    /// Later outputs go through this queue of their port:
    /// [`Field::SkbPriority`](flow::Field::SkbPriority).
    SetQueue(u32),
    /// Put a backbone header before the packet (IEEE 802.1Q §9.7): its own Ethernet addresses, type
    /// 0x88e7, and this tag control information, with the packet, all of it, behind. The new
    /// addresses are those of the packet.
    PushPbb {
        /// Priority (3 bits), drop eligible, use customer addresses, reserved (3), service instance
        /// (24), as it stands in the packet.
        tci: u32,
    },
    /// Take the backbone header off: the packet behind it has the VLAN tags before it as its
    /// outermost. Nothing happens to a packet without one, or with less than an Ethernet header
    /// behind it.
    PopPbb,
    /// Give a packet of another type an Ethernet header; no effect on an Ethernet packet.
    PushEth {
        /// Source address.
        src: MacAddr,
        /// Destination address.
        dst: MacAddr,
    },
    /// Take the Ethernet header off: the packet is of its type. No effect on a packet that has
    /// none.
    PopEth,
    /// Put a network service header before the packet, which is then of that type.
    PushNsh(Arc<NshPush>),
    /// Take the network service header off: the packet is of the type that it names. A packet
    /// without one, or with something else behind it than IP, Ethernet or another such header, is
    /// dropped under [`DropCause::Malformed`](crate::DropCause::Malformed).
    PopNsh,
    /// Put an MPLS label stack entry before the packet, all of it, which is then of that type.
    AddMpls {
        /// The packet's type from here on: 0x8847 or 0x8848.
        ethertype: u16,
        /// The entry, laid out as in [`Action::PushMpls`].
        lse: u32,
    },
    /// Put a tunnel's outer headers before the packet. From there on it is the packet with the
    /// outer headers, which the tunnel's underlay sends. What is pending on the inner packet is
    /// done before. [`DropCause::TooBig`](crate::DropCause::TooBig) if no IP packet is that long,
    /// [`DropCause::TunnelTooBig`](crate::DropCause::TunnelTooBig) if the path takes none that
    /// long: the sender then gets an ICMP error, by the tunnel's datapath port, if there is one for
    /// the packet.
    TunnelPush(Arc<TunnelPush>),
    /// Take a tunnel's outer headers off and recirculate what is left, as a packet that the
    /// tunnel's datapath port has just received. A packet that the format refuses is dropped, and
    /// its cause counted.
    TunnelPop {
        /// The tunnel's datapath port.
        port: PortNo,
        /// What it takes for an encapsulation.
        format: Format,
    },
    /// Track the packet: find or make its connection, translate its addresses if that is asked for,
    /// and keep what the tracker says in its metadata, for the next recirculation.
    Ct(Arc<Track>),
    /// Take away what the tracker said of the packet.
    CtClear,
}

impl Action {
    /// How many of the actions that follow belong to this one: it runs them on a copy.
    pub fn steps(&self) -> usize {
        match self {
            Action::Clone(steps) | Action::Sample { steps, .. } => *steps as usize,
            Action::IfLonger { then, otherwise, .. } => (*then + *otherwise) as usize,
            _ => 0,
        }
    }
}

/// Recirculations of one packet at most.
pub const MAX_RECIRCULATIONS: u32 = 6;

/// Prints as `ovs-dpctl dump-flows` prints datapath actions. Fields that several protocols share
/// have the names of IPv4 and TCP; [`ActionList`](crate::ActionList) prints those of the packet's
/// protocols.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Output(port) => write!(f, "{}", port.0),
            Action::OutputBond(bond) => write!(f, "lb_output({bond})"),
            Action::PopVlan => f.write_str("pop_vlan"),
            Action::PushVlan(tag) => {
                f.write_str("push_vlan(")?;
                if tag.tpid != EtherType::VLAN.0 {
                    write!(f, "tpid=0x{:04x},", tag.tpid)?;
                }
                write!(f, "vid={},pcp={})", tag.tci & 0xfff, tag.tci >> 13)
            }
            Action::SetField(set) => crate::show::set(f, &[*set], Context::default()),
            Action::PushMpls { ethertype, lse } => {
                f.write_str("push_mpls(")?;
                mpls(f, *lse, u32::MAX)?;
                write!(f, ",eth_type=0x{ethertype:x})")
            }
            Action::PopMpls { ethertype } => write!(f, "pop_mpls(eth_type=0x{ethertype:x})"),
            Action::SetMpls { lse, mask } => {
                f.write_str("set(mpls(")?;
                mpls(f, *lse, *mask)?;
                f.write_str("))")
            }
            Action::CopyTtlOut => f.write_str("copy_ttl_out"),
            Action::CopyTtlIn => f.write_str("copy_ttl_in"),
            Action::Trunc(len) => write!(f, "trunc({len})"),
            Action::Punt {
                reason: PuntReason::Controller,
                handle,
                max_len,
            } => UserData::Controller(ToController::unknown(*handle)).userspace(f, *max_len),
            Action::Punt { reason, .. } => write!(f, "userspace(pid=0,slow_path({}))", reason.name()),
            Action::Meter(id) => write!(f, "meter({id})"),
            Action::Clone(actions) => write!(f, "clone({actions})"),
            Action::Sample { probability, steps } => write!(f, "sample({probability},actions({steps}))"),
            Action::IfLonger { len, then, otherwise } => {
                write!(f, "check_pkt_len(size={len},gt({then}),le({otherwise}))")
            }
            Action::Recirc(id) => write!(f, "recirc(0x{id:x})"),
            Action::RecircByHash { id, hash } => write!(f, "{hash},recirc(0x{:x})", id.number()),
            Action::SetQueue(queue) => write!(f, "set(skb_priority(0x{queue:x}))"),
            Action::PushPbb { tci } => {
                let (isid, uca, pcp) = (tci & 0xff_ffff, tci >> 27 & 1, tci >> 29);
                write!(f, "push_pbb(isid={isid},uca={uca},pcp={pcp})")
            }
            Action::PopPbb => f.write_str("pop_pbb"),
            Action::PushEth { src, dst } => write!(f, "push_eth(src={src},dst={dst})"),
            Action::PopEth => f.write_str("pop_eth"),
            Action::PushNsh(push) => fmt::Display::fmt(push, f),
            Action::PopNsh => f.write_str("pop_nsh()"),
            Action::AddMpls { ethertype, lse } => {
                f.write_str("add_mpls(")?;
                mpls(f, *lse, u32::MAX)?;
                write!(f, ",eth_type=0x{ethertype:x})")
            }
            Action::TunnelPush(push) => fmt::Display::fmt(push, f),
            Action::TunnelPop { port, .. } => write!(f, "tnl_pop({port})"),
            Action::Ct(track) => fmt::Display::fmt(track, f),
            Action::CtClear => f.write_str("ct_clear"),
        }
    }
}

/// The parts of a label stack entry, each with a mask if not all its bits are set.
pub(crate) fn mpls(f: &mut fmt::Formatter<'_>, lse: u32, mask: u32) -> fmt::Result {
    let parts = |entry: u32| (entry >> 12, entry >> 9 & 7, entry & 0xff, entry >> 8 & 1);
    let (label, tc, ttl, bos) = parts(lse);
    if mask == u32::MAX {
        return write!(f, "label={label},tc={tc},ttl={ttl},bos={bos}");
    }
    let masks = parts(mask);
    write!(f, "label={label}/0x{:x},tc={tc}/{:x}", masks.0, masks.1)?;
    write!(f, ",ttl={ttl}/0x{:x},bos={bos}/{:x}", masks.2, masks.3)
}
