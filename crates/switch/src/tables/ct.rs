//! The actions `ct` and `ct_clear`.
//!
//! The datapath tracks the packet when it runs the action, behind the translation. So what the
//! tracker says shows in another pass only: `ct` with a table recirculates a copy, which continues
//! in that table. The packet itself goes on as untracked.

use super::freeze::Origin;
use super::pipeline::Pipeline;
use super::report::Kind;
use super::words;
use crate::dep::Read;
use conntrack::{Helper, Nat, PolicyId, PortsBy, Range, Request, State};
use dp::{Action as Step, Track};
use flow::{Field, FlowState, MatchField, MatchPrerequisite};
use openflow::model::{self, Action, Ct, NatAddrs, NatKind, Zone};
use std::net::IpAddr;
use std::sync::Arc;

/// The ports that stand for helpers in the action.
const FTP: u16 = 21;
const TFTP: u16 = 69;

/// The fields of a connection that actions within `ct` set.
const OWN: [Field; 2] = [Field::CtMark, Field::CtLabel];

impl Pipeline<'_> {
    /// The action `ct`.
    pub(super) fn ct(&mut self, ct: &Ct) {
        self.commit();
        let (key, consulted) = (self.packet.state.key, self.consulted);
        OWN.into_iter()
            .for_each(|field| words::forget(&mut self.consulted, field));
        let nat = self.within_ct(&ct.actions);
        let written = |pipeline: &Self, field| {
            let mask = words::mask_of(&pipeline.consulted).get(field);
            (mask != 0).then(|| (pipeline.packet.state.key.get(field) & mask, mask))
        };
        let (mark, label) = (written(self, Field::CtMark), written(self, Field::CtLabel));
        for field in OWN {
            let mask = words::mask_of(&consulted).get(field);
            words::forget(&mut self.consulted, field);
            self.consult(field, mask);
            self.packet.state.key.set(field, key.get(field));
        }
        let zone = match &ct.zone {
            Zone::Immediate(zone) => *zone,
            Zone::Field(part) => self.read_bits(part) as u16,
        };
        let policy = match ct.commit {
            true => {
                self.depend(Read::TimeoutPolicy(zone));
                self.switch.timeout_policy(zone)
            }
            false => PolicyId::default(),
        };
        let request = Request {
            zone,
            commit: ct.commit,
            force: ct.force,
            mark: mark.map(|(value, mask)| (value as u32, mask as u32)),
            label,
            policy,
            nat,
            helper: match ct.alg {
                FTP => Some(Helper::Ftp),
                TFTP => Some(Helper::Tftp),
                _ => None,
            },
        };
        let fragments = self.read(Field::IpFrag) != 0;
        self.actions.push(Step::Ct(Arc::new(Track { request, fragments })));
        if let Some(table) = ct.table {
            self.detail(|_| {
                format!(
                    "A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table {table}."
                )
            });
            if let Some(handle) = self.keep_frozen(Vec::new(), Origin::Table(table)) {
                self.actions.push(Step::Recirc(handle));
                self.note_fork(handle, zone, nat);
            }
        }
        self.detail(|_| String::from("Sets the packet to an untracked state, and clears all the conntrack fields."));
        self.untrack();
    }

    /// Runs the actions within `ct`. Returns the translation of addresses among them.
    fn within_ct(&mut self, actions: &[Action]) -> Option<Nat> {
        if actions.is_empty() {
            self.line(Kind::Action, |_| String::from("drop"));
        }
        let mut nat = None;
        for action in actions {
            if let Action::Nat(one) = action {
                self.line(Kind::Action, |p| p.text_of_action(action));
                nat = Some(nat_of(one));
            } else {
                self.run_list(std::slice::from_ref(action));
            }
        }
        nat
    }

    /// The action `ct_clear`.
    pub(super) fn ct_clear(&mut self) {
        if self.packet.tracked {
            self.actions.push(Step::CtClear);
            self.untrack();
        }
    }

    /// Tables see the packet as untracked from here on.
    pub(super) fn untrack(&mut self) {
        self.packet.tracked = false;
        self.packet.state.key.clear_connection();
        self.packet.base.key.clear_connection();
    }

    /// Whether the packet belongs to a connection, whose original direction has addresses.
    pub(super) fn has_connection(&mut self) -> bool {
        self.consult(Field::CtState, (State::TRK | State::INV).bits().into());
        let state = State::from_bits(self.packet.state.key.get(Field::CtState) as u32);
        state.has(State::TRK) && !state.has(State::INV)
    }

    /// Whether `resubmit(,,ct)` can look the packet up.
    pub(super) fn may_resubmit_ct(&mut self) -> bool {
        let may = self.meets(MatchPrerequisite::Ip) && self.has_connection() && self.read(Field::CtProto) != 0;
        if !may {
            self.error(|_| String::from("resubmit(ct) with non-tracked or non-IP packet!"));
        }
        may
    }

    /// The packet's key with addresses, protocol and ports of the original direction of its
    /// connection in place of its own, for the lookup of `resubmit(,,ct)`.
    pub(super) fn with_original_tuple(&mut self) -> FlowState {
        const PAIRS: [(Field, Field); 7] = [
            (Field::IpProto, Field::CtProto),
            (Field::Ipv4Src, Field::CtIpv4Src),
            (Field::Ipv4Dst, Field::CtIpv4Dst),
            (Field::Ipv6Src, Field::CtIpv6Src),
            (Field::Ipv6Dst, Field::CtIpv6Dst),
            (Field::TpSrc, Field::CtTpSrc),
            (Field::TpDst, Field::CtTpDst),
        ];
        let mut state = self.packet.state;
        for (own, original) in PAIRS {
            let (value, before) = (self.read(original), state.key.get(own));
            state.key.set(own, value);
            state.key.set(original, before);
        }
        // Type and code of ICMP stand where ports do.
        if matches!(state.key.get(Field::IpProto), 1 | 58) {
            state.key.set(Field::IcmpType, state.key.get(Field::TpSrc));
            state.key.set(Field::IcmpCode, state.key.get(Field::TpDst));
            state.key.set(Field::TpSrc, 0);
            state.key.set(Field::TpDst, 0);
        }
        state
    }
}

/// Whether a field may be set within `ct`.
pub(super) fn is_own(field: MatchField) -> bool {
    matches!(field, MatchField::CtMark | MatchField::CtLabel)
}

/// The translation of addresses that `nat` asks for.
fn nat_of(nat: &model::Nat) -> Nat {
    let addresses: Option<(IpAddr, IpAddr)> = match nat.addrs {
        NatAddrs::None => None,
        NatAddrs::Ipv4(first, last) => Some((first.into(), last.unwrap_or(first).into())),
        NatAddrs::Ipv6(first, last) => Some((first.into(), last.unwrap_or(first).into())),
    };
    let range = Range {
        addresses,
        ports: nat.ports.map(|(first, last)| (first, last.unwrap_or(first))),
        ports_by: match (nat.random, nat.hash) {
            (true, _) => PortsBy::Random,
            (false, true) => PortsBy::Hash,
            (false, false) => PortsBy::Default,
        },
        persistent: nat.persistent,
    };
    match nat.kind {
        NatKind::None => Nat::Existing,
        NatKind::Src => Nat::Source(range),
        NatKind::Dst => Nat::Destination(range),
    }
}
