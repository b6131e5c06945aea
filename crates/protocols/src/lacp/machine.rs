//! The machines of an aggregation (IEEE 802.1AX-2014 §6.4.12 to §6.4.16).
//!
//! - Receive: [`Lacp::receive`] and the timeouts in [`Lacp::tick`].
//! - Periodic and transmit: a member sends when its interval is over, and when the partner does not
//!   know this end as it is.
//! - Selection: the best member's partner is the aggregation's. A member belongs to it if its
//!   partner has the same system and key, and both let links be aggregated.
//! - Key: that of the first member. It outlives that member: with another key the partner would
//!   detach all links.
//! - Mux: collecting and distributing are coupled. A member that belongs to the aggregation and
//!   whose partner is in sync may carry traffic.

use super::member::Member;
use super::timers;
use super::wire::{Info, SlowFrame, State};
use super::{Counters, MemberStatus, Receive};
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::MacAddr;

/// An aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether members send LACPDUs whatever the partner does.
    pub active: bool,
    /// Whether the partner is to send LACPDUs every second.
    pub fast: bool,
    /// Whether members without a partner stay in use, as in a bond without LACP.
    pub fallback: bool,
    /// This system's priority.
    pub system_priority: u16,
    /// This system's address.
    pub system: MacAddr,
    /// Keys of the system's other aggregations. A key that is not configured is none of them.
    pub taken: BTreeSet<u16>,
    /// Members, by numbers of the caller's choice.
    pub members: BTreeMap<u32, MemberConfig>,
}

/// A member of an aggregation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberConfig {
    /// The port's number.
    pub port: u16,
    /// The port's priority.
    pub priority: u16,
    /// The aggregation's key, if it is the first member's; 0 for that member's port number.
    pub key: u16,
    /// Whether its link is up.
    pub up: bool,
    /// The address that its frames come from.
    pub mac: MacAddr,
}

/// A member that provides the key, with what the key follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KeyMember {
    number: u32,
    port: u16,
    key: u16,
}

/// The protocol of one aggregation.
#[derive(Debug)]
pub struct Lacp {
    config: Config,
    members: BTreeMap<u32, Member>,
    /// The member that provides the key; `None` after it left.
    key_member: Option<KeyMember>,
    key: Option<u16>,
    /// Whether there has been more than one member. The last member's link stays aggregatable: the
    /// partner, which may still have the other members, would detach an individual link.
    aggregates: bool,
    negotiated: bool,
    frames: VecDeque<(u32, Vec<u8>)>,
}

impl Lacp {
    /// The protocol of an aggregation.
    pub fn new(config: &Config, now: Nanos) -> Lacp {
        let mut lacp = Lacp {
            config: Config {
                members: BTreeMap::new(),
                ..config.clone()
            },
            members: BTreeMap::new(),
            key_member: None,
            key: None,
            aggregates: false,
            negotiated: false,
            frames: VecDeque::new(),
        };
        lacp.configure(config, now);
        lacp
    }

    /// Applies a configuration. Members that stay keep what they know of their partners.
    pub fn configure(&mut self, config: &Config, now: Nanos) {
        self.config = config.clone();
        self.members.retain(|number, _| config.members.contains_key(number));
        let knows = config.active || self.negotiated;
        for (number, wanted) in &config.members {
            let member = self.members.entry(*number).or_insert_with(|| {
                let mut member = Member::new(wanted.clone(), now);
                if knows {
                    member.set_expired(now);
                }
                member
            });
            let carrier = member.up != wanted.up;
            let changed = (member.config.port, member.config.priority, member.config.key)
                != (wanted.port, wanted.priority, wanted.key);
            member.config = wanted.clone();
            member.up = wanted.up;
            if carrier {
                member.counters.carrier_changes += 1;
                if member.receive == Receive::Current || config.active {
                    member.set_expired(now);
                }
            } else if changed && knows {
                member.set_expired(now);
            }
        }
        self.choose_key();
        self.settle(now);
    }

    /// Sets the key if there is none, if the configuration of the member that provides it has
    /// changed, or if that member has left and another one has a configured key.
    fn choose_key(&mut self) {
        if self.members.is_empty() {
            (self.key, self.aggregates) = (None, false);
        }
        self.aggregates |= self.members.len() > 1;
        let old = self.key_member.filter(|old| self.members.contains_key(&old.number));
        let provides = |member: &&KeyMember| match old {
            Some(old) => old.number == member.number,
            None => self.key.is_none() || member.key != 0,
        };
        let members: Vec<KeyMember> = self.members.iter().map(KeyMember::of).collect();
        self.key_member = members.iter().find(provides).copied();
        if let Some(new) = self.key_member.filter(|new| old != Some(*new)) {
            let ports = std::iter::once(new.port).chain(members.iter().map(|member| member.port));
            let mut free = ports
                .chain((1..=u16::MAX).rev())
                .filter(|key| !self.config.taken.contains(key));
            self.key = match new.key {
                0 => free.next().or(Some(new.port)),
                key => Some(key),
            };
        }
    }

    /// Takes a frame of a member, from the Ethernet header on.
    pub fn receive(&mut self, number: u32, frame: &[u8], now: Nanos) {
        let fast = self.config.fast;
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        member.counters.rx += 1;
        match SlowFrame::parse(frame) {
            Ok(SlowFrame::Lacp { actor, partner }) => {
                member.receive = Receive::Current;
                member.expires = Some(now + timers::timeout(fast));
                member.told = partner;
                if member.partner.state.has(State::TIMEOUT) != actor.state.has(State::TIMEOUT) {
                    // A partner that wants to hear more often hears at once (§6.4.13).
                    member.due = member.due.min(now + timers::interval(actor.state.has(State::TIMEOUT)));
                }
                member.partner = actor;
            }
            Ok(SlowFrame::Marker(marker)) => {
                member.counters.rx_markers += 1;
                if member.answers_marker(now) {
                    let mac = member.config.mac;
                    self.frames
                        .push_back((number, SlowFrame::MarkerResponse(marker).emit(mac)));
                }
                return;
            }
            Ok(SlowFrame::MarkerResponse(_)) => return member.counters.rx_marker_responses += 1,
            Err(_) => return member.counters.rx_bad += 1,
        }
        self.settle(now);
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: Nanos) {
        for member in self.members.values_mut() {
            if member.expires.is_none_or(|at| at > now) {
                continue;
            }
            match member.receive {
                Receive::Current => {
                    member.set_expired(now);
                    member.counters.expired += 1;
                }
                Receive::Expired => {
                    member.set_defaulted();
                    member.counters.defaulted += 1;
                }
                Receive::Defaulted => {}
            }
        }
        self.settle(now);
    }

    /// When [`Lacp::tick`] is due.
    pub fn next_event(&self) -> Option<Nanos> {
        let members = self.members.iter();
        members
            .flat_map(|(number, member)| {
                let sends = self.may_send(member).then(|| {
                    let due = match tells_the_same(&self.actor(*number), &member.told) {
                        true => member.due,
                        false => Nanos::ZERO,
                    };
                    member.may_send_at(due)
                });
                [member.expires, sends]
            })
            .flatten()
            .min()
    }

    /// The next frame to send, and the member.
    pub fn take_frame(&mut self) -> Option<(u32, Vec<u8>)> {
        self.frames.pop_front()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether the aggregation has a partner.
    pub fn is_negotiated(&self) -> bool {
        self.negotiated
    }

    /// Whether a member may carry traffic. `false` for an unknown one.
    pub fn may_enable(&self, number: u32) -> bool {
        self.members.get(&number).is_some_and(|member| self.enables(member))
    }

    /// Whether a member has a partner (`Interface.lacp_current`).
    pub fn is_current(&self, number: u32) -> bool {
        self.members
            .get(&number)
            .is_some_and(|member| member.receive != Receive::Defaulted)
    }

    /// The aggregation's operational key.
    pub fn key(&self) -> Option<u16> {
        self.key
    }

    /// A member's counters.
    pub fn counters(&self, number: u32) -> Option<Counters> {
        self.members.get(&number).map(|member| member.counters)
    }

    /// A member's state.
    pub fn member(&self, number: u32) -> Option<MemberStatus<'_>> {
        let member = self.members.get(&number)?;
        Some(MemberStatus {
            config: &member.config,
            receive: member.receive,
            attached: member.attached,
            may_enable: self.enables(member),
            actor: self.actor(number),
            partner: member.partner,
            counters: member.counters,
        })
    }

    /// The numbers of members whose partner is this system itself.
    pub fn loops(&self) -> impl Iterator<Item = u32> {
        let looped = self.members.iter().filter(|(_, member)| self.is_loop(member));
        looped.map(|(number, _)| *number)
    }

    fn is_loop(&self, member: &Member) -> bool {
        member.partner.system == self.config.system
    }

    fn enables(&self, member: &Member) -> bool {
        let falls_back = self.config.fallback && member.receive == Receive::Defaulted;
        member.attached && (member.partner.state.has(State::SYNCHRONIZED) || falls_back)
    }

    /// Selects members, then sends what is due.
    fn settle(&mut self, now: Nanos) {
        self.select();
        let numbers: Vec<u32> = self.members.keys().copied().collect();
        for number in numbers {
            self.transmit(number, now);
        }
    }

    /// The selection logic.
    fn select(&mut self) {
        let lead = self.lead();
        self.negotiated = lead.is_some();
        let lead = lead.and_then(|number| {
            let member = self.members.get(&number)?;
            Some((number, member.partner, is_individual(member)))
        });
        let (fallback, system) = (self.config.fallback, self.config.system);
        for (number, member) in &mut self.members {
            let usable = member.partner.system != system && (member.receive != Receive::Defaulted || fallback);
            member.attached = usable
                && match lead {
                    None => true,
                    // A link whose partner does not aggregate it is alone in its aggregation.
                    Some((best, _, alone)) if alone || is_individual(member) => *number == best,
                    Some((_, partner, _)) => {
                        let of_lead = (member.partner.system, member.partner.key) == (partner.system, partner.key);
                        of_lead && !(fallback && member.receive == Receive::Defaulted)
                    }
                };
        }
    }

    /// The member whose partner is the aggregation's: one in sync before one that is not, then the
    /// one of the best port of the system that decides (§6.7.1).
    fn lead(&self) -> Option<u32> {
        let candidates = self
            .members
            .iter()
            .filter(|(_, member)| member.receive != Receive::Defaulted && !self.is_loop(member));
        candidates
            .min_by_key(|(number, member)| {
                let in_sync = member.attached && member.partner.state.has(State::SYNCHRONIZED);
                let (actor, partner) = (self.actor(**number), member.partner);
                let system = |info: &Info| (info.system_priority, info.system.0);
                let decides = match system(&actor) < system(&partner) {
                    true => actor,
                    false => partner,
                };
                (
                    !in_sync,
                    decides.system_priority,
                    decides.system.0,
                    decides.port_priority,
                    decides.port,
                    **number,
                )
            })
            .map(|(number, _)| *number)
    }

    /// This end of a member, as LACPDUs tell it.
    fn actor(&self, number: u32) -> Info {
        let Some(member) = self.members.get(&number) else {
            return Info::default();
        };
        let passes = member.attached || !self.negotiated;
        let state = State::default()
            .with(State::ACTIVITY, self.config.active)
            .with(State::TIMEOUT, self.config.fast)
            .with(State::AGGREGATION, self.aggregates)
            .with(State::SYNCHRONIZED, member.attached)
            .with(State::COLLECTING, passes)
            .with(State::DISTRIBUTING, passes)
            .with(State::DEFAULTED, member.receive == Receive::Defaulted)
            .with(State::EXPIRED, member.receive == Receive::Expired);
        Info {
            system_priority: self.config.system_priority,
            system: self.config.system,
            key: self.key().unwrap_or_default(),
            port_priority: member.config.priority,
            port: member.config.port,
            state,
        }
    }

    fn may_send(&self, member: &Member) -> bool {
        self.config.active || member.receive != Receive::Defaulted
    }

    fn transmit(&mut self, number: u32, now: Nanos) {
        let actor = self.actor(number);
        let active = self.config.active;
        let Some(member) = self.members.get_mut(&number) else {
            return;
        };
        if !active && member.receive == Receive::Defaulted {
            return;
        }
        let wants = now >= member.due || !tells_the_same(&actor, &member.told);
        if !wants || member.may_send_at(now) > now {
            return;
        }
        member.told = actor;
        member.note_sent(now);
        let pdu = SlowFrame::Lacp {
            actor,
            partner: member.partner,
        };
        self.frames.push_back((number, pdu.emit(member.config.mac)));
    }
}

impl KeyMember {
    fn of((number, member): (&u32, &Member)) -> KeyMember {
        KeyMember {
            number: *number,
            port: member.config.port,
            key: member.config.key,
        }
    }
}

/// Whether a member's partner does not let its link be aggregated with others (§6.7.1). The
/// partner of a member that has not heard from it is not known.
fn is_individual(member: &Member) -> bool {
    member.receive == Receive::Current && !member.partner.state.has(State::AGGREGATION)
}

/// Whether the partner knows this end well enough: the fields whose difference makes
/// `update_NTT` send (§6.4.9).
fn tells_the_same(actor: &Info, told: &Info) -> bool {
    const COMPARED: u8 = State::ACTIVITY.0 | State::TIMEOUT.0 | State::AGGREGATION.0 | State::SYNCHRONIZED.0;
    let masked = |info: &Info| Info {
        state: State(info.state.0 & COMPARED),
        ..*info
    };
    masked(actor) == masked(told)
}
