//! The session of one interface (RFC 5880 §6.8).
//!
//! - Reception (§6.8.6): [`Session::receive`].
//! - Detection (§6.8.4), poll sequences (§6.5) and periodic packets (§6.8.7): [`Session::tick`].
//! - Received data, for `decay_min_rx` and `forwarding_if_rx` as in Open vSwitch:
//!   [`Session::count`].
//!
//! A packet leaves at once when its content differs from the last one's, as §6.8.7 recommends.

use super::Config;
use super::datagram::{self, Addresses};
use super::timers::{self, CONTROL_WINDOW, COUNT_INTERVAL, DATA_WINDOW, LEAST_GAP, SHORTEST, SLOW};
use super::wire::{Packet, State, diagnostic};
use crate::random::Random;
use core::time::Duration;
use nanos::Nanos;

/// What tells a session from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Not 0, unique in the system, hard to guess.
    pub discriminator: u32,
    /// UDP source port: 49152 to 65535, unique in the system as far as they suffice.
    pub src_port: u16,
    /// For the jitter of its packets.
    pub seed: u64,
}

/// What is known of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) state: State,
    pub(super) diagnostic: u8,
    pub(super) discriminator: u32,
    pub(super) min_tx: Duration,
    /// Zero if it wants no periodic packets.
    pub(super) min_rx: Duration,
    pub(super) multiplier: u8,
    pub(super) demand: bool,
    pub(super) control_plane_independent: bool,
    pub(super) is_final: bool,
    pub(super) poll: bool,
}

impl Remote {
    /// Nothing.
    const UNKNOWN: Remote = Remote {
        state: State::Down,
        diagnostic: diagnostic::NONE,
        discriminator: 0,
        min_tx: Duration::ZERO,
        min_rx: SHORTEST,
        multiplier: 0,
        demand: false,
        control_plane_independent: false,
        is_final: false,
        poll: false,
    };
}

/// The intervals at which an end sends and wants to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Intervals {
    pub(super) min_tx: Duration,
    pub(super) min_rx: Duration,
}

/// The watch on data for `decay_min_rx`.
#[derive(Clone, Copy, Debug, Default)]
struct Decay {
    /// The interface is idle.
    active: bool,
    /// Control packets since the last look.
    control: u64,
    /// Received packets at the last look.
    seen: u64,
    /// The next look.
    due: Nanos,
}

/// The watch on data for `forwarding_if_rx`.
#[derive(Clone, Copy, Debug, Default)]
struct Data {
    /// Received packets at the last look; `None` before the first.
    seen: Option<u64>,
    /// Until then data is a sign of life,
    until: Nanos,
    /// if a control packet has come that long before.
    control_until: Nanos,
}

/// What the database shows of a session (`Interface.bfd_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether the interface may carry traffic.
    pub forwarding: bool,
    /// This end's state.
    pub state: State,
    /// Why it last changed.
    pub diagnostic: u8,
    /// The other end's state.
    pub remote_state: State,
    /// Why that last changed.
    pub remote_diagnostic: u8,
    /// How often `forwarding` has changed by itself.
    pub flap_count: u64,
}

/// Frames of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Control packets that were accepted.
    pub rx: u64,
    /// Frames that were refused, and changed nothing else.
    pub refused: u64,
    /// Control packets that were sent.
    pub tx: u64,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    pub(super) config: Config,
    pub(super) identity: Identity,
    pub(super) state: State,
    pub(super) diagnostic: u8,
    /// The intervals in force.
    pub(super) current: Intervals,
    /// What a poll sequence tells the other end; in force when it has answered.
    pub(super) poll: Option<Intervals>,
    pub(super) remote: Remote,
    /// When the other end counts as lost.
    pub(super) detect: Option<Nanos>,
    pub(super) last_tx: Option<Nanos>,
    /// `None` if the other end wants no periodic packets.
    pub(super) next_tx: Option<Nanos>,
    /// The interval for which `next_tx` was planned.
    planned: Option<Duration>,
    /// The last packet that was sent, without its poll and final bits.
    told: Option<Packet>,
    decay: Decay,
    data: Data,
    /// The last number of received packets, and when to look next.
    rx_packets: u64,
    next_count: Nanos,
    /// Set by an administrator.
    pub(super) forced: Option<bool>,
    forwarding: bool,
    flap_count: u64,
    random: Random,
    counters: Counters,
    frame: Option<Vec<u8>>,
    reported: Option<Status>,
}

impl Session {
    /// A session that is down. Its first packet is due at once.
    pub fn new(config: &Config, identity: Identity, now: Nanos) -> Session {
        let mut session = Session {
            config: config.clone(),
            identity,
            state: State::Down,
            diagnostic: diagnostic::NONE,
            current: Intervals {
                min_tx: config.min_tx,
                min_rx: config.min_rx,
            },
            poll: None,
            remote: Remote::UNKNOWN,
            detect: None,
            last_tx: None,
            next_tx: None,
            planned: None,
            told: None,
            decay: Decay::default(),
            data: Data::default(),
            rx_packets: 0,
            next_count: now,
            forced: None,
            forwarding: false,
            flap_count: 0,
            random: Random(identity.seed),
            counters: Counters::default(),
            frame: None,
            reported: None,
        };
        session.set_state(State::Down, diagnostic::NONE, now);
        session.settle(false, now);
        session
    }

    /// Applies settings. The session keeps its state; new intervals are agreed with the other end.
    pub fn configure(&mut self, config: &Config, now: Nanos) {
        if self.config == *config {
            return;
        }
        let before = std::mem::replace(&mut self.config, config.clone());
        if (before.decay_min_rx, before.min_rx) != (config.decay_min_rx, config.min_rx) {
            self.decay.active = false;
            self.look_again(now);
        }
        if before.cpath_down != config.cpath_down {
            self.set_state(self.state, diagnostic::NONE, now);
        }
        if before.forwarding_if_rx != config.forwarding_if_rx {
            (self.data.until, self.data.seen) = (Nanos::ZERO, None);
            if config.forwarding_if_rx && self.state == State::Up {
                self.note_data(now);
            }
        }
        if self.wants_count() {
            self.next_count = now;
        }
        self.settle(false, now);
    }

    /// Takes a frame, from the Ethernet header on (§6.8.6).
    pub fn receive(&mut self, frame: &[u8], now: Nanos) {
        let packet = datagram::parse(frame).ok();
        // The interface has chosen the session; a packet for another one is forged or late.
        let ours = |packet: &Packet| [0, self.identity.discriminator].contains(&packet.your_discriminator);
        let Some(packet) = packet.filter(ours) else {
            self.counters.refused += 1;
            return;
        };
        self.counters.rx += 1;
        self.decay.control += 1;
        self.accept(&packet, now);
        self.settle(packet.poll, now);
    }

    fn accept(&mut self, packet: &Packet, now: Nanos) {
        self.remote = Remote {
            state: packet.state,
            diagnostic: packet.diagnostic,
            discriminator: packet.my_discriminator,
            min_tx: timers::from_wire(packet.desired_min_tx),
            min_rx: timers::from_wire(packet.required_min_rx),
            multiplier: packet.multiplier,
            demand: packet.demand,
            control_plane_independent: packet.control_plane_independent,
            is_final: packet.is_final,
            poll: packet.poll,
        };
        if packet.is_final
            && let Some(agreed) = self.poll.take()
        {
            self.current = agreed;
        }
        match (self.state, packet.state) {
            (State::AdminDown | State::Down, State::AdminDown) => {}
            (_, State::AdminDown) => self.set_state(State::Down, diagnostic::NEIGHBOR_DOWN, now),
            (State::Down, State::Down) => self.set_state(State::Init, self.diagnostic, now),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.set_state(State::Up, self.diagnostic, now);
            }
            (State::Up, State::Down) => self.set_state(State::Down, diagnostic::NEIGHBOR_DOWN, now),
            (State::AdminDown, _)
            | (State::Down, State::Up)
            | (State::Init, State::Down)
            | (State::Up, State::Init | State::Up) => {}
        }
        let detection = self.detection_time(packet.multiplier);
        self.detect = matches!(self.state, State::Init | State::Up).then(|| now + detection);
        if self.config.forwarding_if_rx {
            self.data.control_until = now + self.config.min_rx * CONTROL_WINDOW;
        }
    }

    /// Takes the number of packets that the interface has received, when [`Session::wants_count`].
    /// Call it before [`Session::tick`].
    pub fn count(&mut self, rx_packets: u64, now: Nanos) {
        self.rx_packets = rx_packets;
        self.next_count = now + COUNT_INTERVAL;
        let seen = self.data.seen.replace(rx_packets);
        if self.config.forwarding_if_rx && seen.is_some_and(|seen| rx_packets > seen) {
            self.note_data(now);
        }
        if self.state == State::Up && self.config.decay_min_rx.is_some() && now >= self.decay.due {
            // The counter may lag behind the control packets: the margin is Open vSwitch's.
            let data = rx_packets.saturating_sub(self.decay.seen);
            self.decay.active = data <= 2 * self.decay.control.max(1);
            self.look_again(now);
        }
        self.settle(false, now);
    }

    /// Whether received data matters, and [`Session::count`] is to be called.
    pub fn wants_count(&self) -> bool {
        self.config.forwarding_if_rx || self.config.decay_min_rx.is_some()
    }

    /// Runs the timers that are due.
    pub fn tick(&mut self, now: Nanos) {
        if self.detect.is_some_and(|at| at <= now) {
            self.set_state(State::Down, diagnostic::EXPIRED, now);
        }
        self.settle(false, now);
    }

    /// When [`Session::tick`] is due.
    pub fn next_event(&self) -> Option<Nanos> {
        let count = self.wants_count().then_some(self.next_count);
        let lives_by_data = self.forwarding && self.state != State::Up;
        let data = lives_by_data.then(|| self.data.until.min(self.data.control_until));
        [self.detect, self.next_tx, count, data].into_iter().flatten().min()
    }

    /// The frame to send.
    pub fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.frame.take()
    }

    /// The last frame of a session that an administrator ends: the other end need not wait for the
    /// detection time (§6.8.16).
    #[must_use]
    pub fn end(mut self) -> Vec<u8> {
        self.state = State::AdminDown;
        self.diagnostic = diagnostic::ADMIN_DOWN;
        datagram::emit(&self.addresses(), &self.packet())
    }

    /// Overrides whether the interface may carry traffic, or no more.
    pub fn force(&mut self, forwarding: Option<bool>) {
        self.forced = forwarding;
    }

    /// Whether the interface may carry traffic.
    pub fn is_forwarding(&self) -> bool {
        self.forced.unwrap_or(self.forwarding)
    }

    /// What the database shows.
    pub fn status(&self) -> Status {
        Status {
            forwarding: self.is_forwarding(),
            state: self.state,
            diagnostic: self.diagnostic,
            remote_state: self.remote.state,
            remote_diagnostic: self.remote.diagnostic,
            flap_count: self.flap_count,
        }
    }

    /// Whether [`Session::status`] has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        let status = self.status();
        self.reported.replace(status) != Some(status)
    }

    /// Its discriminator.
    pub fn discriminator(&self) -> u32 {
        self.identity.discriminator
    }

    /// What has become of frames.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The interval at which it sends, before jitter (§6.8.2).
    pub(super) fn tx_interval(&self) -> Duration {
        self.min_tx().max(self.remote.min_rx)
    }

    /// The interval at which the other end sends at most (§6.8.4).
    pub(super) fn rx_interval(&self) -> Duration {
        self.current.min_rx.max(self.remote.min_tx)
    }

    /// The shortest interval at which it sends in this state (§6.8.3).
    pub(super) fn min_tx(&self) -> Duration {
        match self.state {
            State::Up => self.current.min_tx,
            _ => self.current.min_tx.max(SLOW),
        }
    }

    fn detection_time(&self, multiplier: u8) -> Duration {
        self.rx_interval() * multiplier.into()
    }

    fn set_state(&mut self, state: State, diagnostic: u8, now: Nanos) {
        let before = std::mem::replace(&mut self.state, state);
        self.diagnostic = match self.config.cpath_down {
            true => diagnostic::CONCATENATED_PATH_DOWN,
            false => diagnostic,
        };
        if before == state {
            return;
        }
        match state {
            State::Down | State::AdminDown => {
                self.remote = Remote::UNKNOWN;
                self.detect = None;
                self.poll = None;
                self.decay.active = false;
            }
            State::Init => {}
            State::Up => {
                self.look_again(now);
                // The other end has only heard of the slow interval (§6.8.3).
                if self.config.min_tx < SLOW {
                    self.start_poll();
                }
            }
        }
    }

    /// The intervals that the settings ask for.
    fn wanted(&self) -> Intervals {
        let decayed = self.config.decay_min_rx.filter(|_| self.decay.active);
        Intervals {
            min_tx: self.config.min_tx,
            min_rx: decayed.unwrap_or(self.config.min_rx),
        }
    }

    /// Starts a poll sequence. What makes packets more frequent is in force at once, the rest when
    /// the other end has answered (§6.8.3).
    fn start_poll(&mut self) {
        let wanted = self.wanted();
        self.current.min_tx = self.current.min_tx.min(wanted.min_tx);
        self.current.min_rx = self.current.min_rx.max(wanted.min_rx);
        self.poll = Some(wanted);
    }

    /// Brings intervals, forwarding and what the other end knows up to date, and sends what is due.
    /// `asked` says that the other end polls, which is answered at once.
    fn settle(&mut self, asked: bool, now: Nanos) {
        match self.state {
            State::Up if self.poll.is_none() && self.current != self.wanted() => self.start_poll(),
            State::Up => {}
            _ => self.current = self.wanted(),
        }
        self.settle_forwarding(now);
        if self.planned != self.interval() {
            self.plan(self.last_tx.unwrap_or(now));
        }
        if self.told != Some(self.packet()) {
            let soonest = self.last_tx.map_or(now, |last| last + LEAST_GAP);
            self.next_tx = Some(self.next_tx.map_or(soonest, |due| due.min(soonest)));
        }
        if asked || self.next_tx.is_some_and(|due| due <= now) {
            self.transmit(asked, now);
        }
    }

    fn settle_forwarding(&mut self, now: Nanos) {
        let lives_by_data = self.config.forwarding_if_rx && self.data.until > now && self.data.control_until > now;
        let path_down = [
            diagnostic::PATH_DOWN,
            diagnostic::CONCATENATED_PATH_DOWN,
            diagnostic::REVERSE_CONCATENATED_PATH_DOWN,
        ];
        let forwarding = (self.state == State::Up || lives_by_data) && !path_down.contains(&self.remote.diagnostic);
        if forwarding != self.forwarding {
            self.forwarding = forwarding;
            self.flap_count += 1;
        }
    }

    fn note_data(&mut self, now: Nanos) {
        let detection = self.detection_time(self.config.multiplier);
        self.data.until = now + detection.max(DATA_WINDOW);
    }

    /// Starts another interval of the watch for `decay_min_rx`.
    fn look_again(&mut self, now: Nanos) {
        let interval = self.config.decay_min_rx.unwrap_or_default().max(DATA_WINDOW);
        self.decay = Decay {
            active: self.decay.active,
            control: 0,
            seen: self.rx_packets,
            due: now + interval,
        };
    }

    /// The packet that tells this end's state, without poll and final bits.
    fn packet(&self) -> Packet {
        let intervals = self.poll.unwrap_or(Intervals {
            min_tx: self.min_tx(),
            ..self.current
        });
        Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: false,
            is_final: false,
            control_plane_independent: false,
            demand: false,
            multiplier: self.config.multiplier,
            my_discriminator: self.identity.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx: timers::to_wire(intervals.min_tx),
            required_min_rx: timers::to_wire(intervals.min_rx),
            required_min_echo_rx: 0,
        }
    }

    fn addresses(&self) -> Addresses {
        Addresses {
            src_mac: self.config.src_mac,
            dst_mac: self.config.dst_mac,
            src: self.config.src,
            dst: self.config.dst,
            src_port: self.identity.src_port,
        }
    }

    /// Sends a packet. An answer to a poll is not one itself (§6.5).
    fn transmit(&mut self, is_final: bool, now: Nanos) {
        let told = self.packet();
        let packet = Packet {
            poll: self.poll.is_some() && !is_final,
            is_final,
            ..told
        };
        self.frame = Some(datagram::emit(&self.addresses(), &packet));
        self.counters.tx += 1;
        self.told = Some(told);
        self.last_tx = Some(now);
        self.plan(now);
    }

    /// The interval of periodic packets; `None` if the other end wants none (§6.8.7).
    fn interval(&self) -> Option<Duration> {
        let both_up = self.state == State::Up && self.remote.state == State::Up;
        let silenced = self.remote.demand && both_up && self.poll.is_none();
        (!silenced && !self.remote.min_rx.is_zero()).then(|| self.tx_interval())
    }

    /// Plans the next periodic packet.
    fn plan(&mut self, last: Nanos) {
        self.planned = self.interval();
        let multiplier = self.config.multiplier;
        self.next_tx = self
            .planned
            .map(|interval| last + timers::jittered(interval, multiplier, &mut self.random));
    }
}
