//! One member of an aggregation: the receive machine's state, what is known of the partner, and
//! when the next LACPDU is due (IEEE 802.1AX-2014 §6.4.12, §6.4.13, §6.4.16).

use super::MemberConfig;
use super::timers::{self, BURST, FAST};
use super::wire::{Info, State};
use nanos::Nanos;
use std::collections::VecDeque;

/// The states of the receive machine that last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// The partner's information is current.
    Current,
    /// The partner has been silent for too long; the member asks it to answer fast.
    Expired,
    /// There is no partner.
    Defaulted,
}

impl Receive {
    /// The name in `lacp/show`.
    pub const fn name(self) -> &'static str {
        match self {
            Receive::Current => "current",
            Receive::Expired => "expired",
            Receive::Defaulted => "defaulted",
        }
    }
}

/// What has happened at a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// LACPDUs sent.
    pub tx: u64,
    /// Frames of slow protocols received.
    pub rx: u64,
    /// Those that were not well-formed.
    pub rx_bad: u64,
    /// Marker requests received.
    pub rx_markers: u64,
    /// Marker responses received; nobody has asked for them.
    pub rx_marker_responses: u64,
    /// Marker responses sent.
    pub tx_marker_responses: u64,
    /// Times that the partner's information expired.
    pub expired: u64,
    /// Times that the member gave its partner up.
    pub defaulted: u64,
    /// Changes of the link.
    pub carrier_changes: u64,
}

/// A member, as `lacp/show` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus<'a> {
    /// The member's configuration.
    pub config: &'a MemberConfig,
    /// The receive machine's state.
    pub receive: Receive,
    /// Whether it belongs to the aggregation.
    pub attached: bool,
    /// Whether it may carry traffic.
    pub may_enable: bool,
    /// This end.
    pub actor: Info,
    /// The other end.
    pub partner: Info,
    /// What has happened.
    pub counters: Counters,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) config: MemberConfig,
    pub(super) receive: Receive,
    pub(super) attached: bool,
    pub(super) partner: Info,
    /// What the partner knows of this end, as its last LACPDU says or this end's did.
    pub(super) told: Info,
    /// When the partner's information expires.
    pub(super) expires: Option<Nanos>,
    /// When the next LACPDU is due.
    pub(super) due: Nanos,
    /// The carrier, as it was last.
    pub(super) up: bool,
    /// The last frames sent: no more than [`BURST`] in a [`FAST`] interval.
    sent: VecDeque<Nanos>,
    answered: VecDeque<Nanos>,
    pub(super) counters: Counters,
}

impl Member {
    pub(super) fn new(config: MemberConfig, now: Nanos) -> Member {
        Member {
            up: config.up,
            config,
            receive: Receive::Defaulted,
            attached: false,
            partner: Info::default(),
            told: Info::default(),
            expires: None,
            due: now,
            sent: VecDeque::new(),
            answered: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// The state EXPIRED: the partner is asked to answer, and fast.
    pub(super) fn set_expired(&mut self, now: Nanos) {
        self.receive = Receive::Expired;
        let state = self.partner.state.with(State::TIMEOUT, true);
        self.partner.state = state.with(State::SYNCHRONIZED, false);
        self.expires = Some(now + timers::timeout(true));
        self.due = now;
    }

    /// The state DEFAULTED: there is no partner.
    pub(super) fn set_defaulted(&mut self) {
        self.receive = Receive::Defaulted;
        self.partner = Info::default();
        self.expires = None;
    }

    /// When an LACPDU may be sent that is due at `due`.
    pub(super) fn may_send_at(&self, due: Nanos) -> Nanos {
        after_burst(&self.sent, due)
    }

    pub(super) fn note_sent(&mut self, now: Nanos) {
        note(&mut self.sent, now);
        self.counters.tx += 1;
        self.due = now + timers::interval(self.partner.state.has(State::TIMEOUT));
    }

    /// Whether a marker is answered now: no more often than LACPDUs are sent.
    pub(super) fn answers_marker(&mut self, now: Nanos) -> bool {
        let answers = after_burst(&self.answered, now) <= now;
        if answers {
            note(&mut self.answered, now);
            self.counters.tx_marker_responses += 1;
        }
        answers
    }
}

fn after_burst(sent: &VecDeque<Nanos>, due: Nanos) -> Nanos {
    match sent.front() {
        Some(first) if sent.len() >= BURST => due.max(*first + FAST),
        _ => due,
    }
}

fn note(sent: &mut VecDeque<Nanos>, now: Nanos) {
    if sent.len() >= BURST {
        sent.pop_front();
    }
    sent.push_back(now);
}
