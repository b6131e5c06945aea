//! The part of a bond in the switch: which packets it accepts, and by which member others leave.
//!
//! The control plane runs the bond ([`protocols::bond::Bond`]) and sets its [`BondState`] here
//! ([`Switch::set_bonds`](crate::Switch::set_bonds)).

use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::{Egress, Port};
use protocols::bond::{BUCKETS, LacpStatus, Mode, Outputs};
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::Vid;

/// A bond, as translations see it. Members are numbers of OpenFlow 1.1 and later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondState {
    /// The number by which the datapath knows it, if its mode is [`Mode::Tcp`].
    pub id: u32,
    /// How it shares traffic.
    pub mode: Mode,
    /// What LACP says.
    pub lacp: LacpStatus,
    /// Whether it works as active-backup where LACP finds no partner.
    pub fallback: bool,
    /// Whether multicast is accepted on all members of balance-slb.
    pub all_members_active: bool,
    /// Changes the hash.
    pub basis: u32,
    /// Where packets leave.
    pub outputs: Outputs,
    /// The member that is active.
    pub active: Option<u32>,
    /// The members that are enabled.
    pub enabled: BTreeSet<u32>,
    /// The member of each of the [`BUCKETS`] buckets; empty where the hash selects nothing.
    pub buckets: Vec<Option<u32>>,
}

/// What a bond does with a packet that a member receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Accept,
    Drop,
    /// Drop it if its source is on another port: most likely it is the bridge's own packet, which
    /// the other end sends back.
    DropIfMoved,
}

impl BondState {
    /// What happens to a packet that a member receives.
    pub(crate) fn admission(&self, member: u32, multicast: bool) -> Admission {
        let accept_if = |accepts: bool| if accepts { Admission::Accept } else { Admission::Drop };
        let is_active = self.active == Some(member);
        match (self.lacp, self.mode) {
            // The other end knows of the bond.
            (LacpStatus::Negotiated, _) => accept_if(self.enabled.contains(&member)),
            (LacpStatus::Configured, _) if !self.fallback => Admission::Drop,
            (LacpStatus::Off, Mode::Tcp) => Admission::Drop,
            (LacpStatus::Off, Mode::Slb) if multicast && self.all_members_active => Admission::DropIfMoved,
            _ if multicast && !is_active => Admission::Drop,
            (_, Mode::Slb) => Admission::DropIfMoved,
            _ => accept_if(is_active),
        }
    }

    /// Whether the datapath selects the same way as by this state, once it has this state's
    /// buckets.
    fn selects_like(&self, other: &BondState) -> bool {
        let other = BondState {
            buckets: self.buckets.clone(),
            ..other.clone()
        };
        self.outputs == Outputs::Tcp && *self == other
    }
}

impl Port {
    /// A bond whose member the datapath selects.
    pub(crate) fn egress_of_bond(&self, bond: &BondState) -> Egress {
        let enabled = self
            .members
            .iter()
            .filter(|member| bond.enabled.contains(&member.number));
        let member = enabled.filter_map(|member| member.wired.device()).next();
        member.map_or(Egress::None, |member| Egress::Bond { bond: bond.id, member })
    }

    /// Where packets of a bond leave whose hash selects this bucket, and the bucket for its load.
    pub(crate) fn egress_of_bucket(&self, bucket: u8) -> Egress {
        let member = self
            .bond
            .as_ref()
            .and_then(|bond| bond.buckets.get(usize::from(bucket)).copied());
        self.egress_of_member(member.flatten())
    }

    /// Where packets leave by a member.
    pub(crate) fn egress_of_member(&self, number: Option<u32>) -> Egress {
        let member = self.members.iter().find(|member| Some(member.number) == number);
        member.map_or(Egress::None, |member| member.wired)
    }
}

impl Bridge {
    /// Sets the bonds of ports, by the ports' names; `None` for a port that is none.
    pub(crate) fn set_bonds(&mut self, bonds: Vec<(String, Option<BondState>)>, stale: &mut Vec<Read>) {
        let before = stale.len();
        let names_members = self.names_members();
        for (name, bond) in bonds {
            let Some(id) = self.port_ids.get(&name) else { continue };
            let Some(port) = self.ports.get_mut(id) else { continue };
            if port.bond.as_deref() != bond.as_ref() {
                // The datapath has the buckets already.
                let cached = port.bond.as_ref().zip(bond.as_ref());
                let stays = cached.is_some_and(|(old, new)| new.selects_like(old)) && !names_members;
                port.bond = bond.map(Arc::new);
                port.settle();
                if !stays {
                    stale.push(Read::Port(self.id, *id));
                }
            }
        }
        if stale.len() > before {
            stale.push(Read::Flood(self.id));
        }
    }

    /// Whether exports or captures name the member of a bond that a packet leaves by, so that
    /// translations select it.
    pub(crate) fn names_members(&self) -> bool {
        self.export.is_some() || self.mirrors.has_captures()
    }

    /// The tag with which packets of a VLAN leave by a port: `None` where it does not carry the
    /// VLAN, `Some(None)` without one.
    pub fn tag_at(&self, port: &str, vlan: Vid) -> Option<Option<Vid>> {
        let port = self.ports.get(self.port_ids.get(port)?)?;
        port.vlans.tag_of(vlan)
    }

    /// Counts what a bucket of a bond has sent.
    pub(crate) fn credit_bond(&mut self, port: u32, bucket: u8, bytes: u64) {
        if let Some(port) = self.ports.get_mut(&port).filter(|port| port.bond.is_some()) {
            port.loads.resize(BUCKETS, 0);
            port.loads[usize::from(bucket)] += bytes;
        }
    }

    /// What the buckets of a bond have sent since the last call.
    pub(crate) fn take_bond_loads(&mut self, name: &str) -> Option<[u64; BUCKETS]> {
        let port = self.ports.get_mut(self.port_ids.get(name)?)?;
        std::mem::take(&mut port.loads).try_into().ok()
    }
}
