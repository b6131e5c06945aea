//! When to connect, to probe and to disconnect: the state machine of one connection to a peer, on
//! the caller's clock.
//!
//! Nothing here does input or output. [`Reconnect::poll`] returns what the caller has to do; the
//! caller reports the result: [`connected`], [`failed`], [`heard`], [`disconnected`]. It polls
//! again at [`Reconnect::deadline`], and after each event.
//!
//! ```text
//!            ┌────────────── failed, disconnected ───────────────┐
//!            ▼                                                   │
//! Void ─► Backoff ─ the pause is over ─► Connecting ─ connected ─► Active ─ silence ─► Idle
//!                                                                 ▲                    │
//!                                                                 └────── heard ───────┘
//! ```
//!
//! [`connected`]: Reconnect::connected
//! [`failed`]: Reconnect::failed
//! [`heard`]: Reconnect::heard
//! [`disconnected`]: Reconnect::disconnected

use std::time::Duration;

use nanos::Nanos;

/// How a connection is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The first pause between two attempts; each failure doubles it.
    pub min_backoff: Duration,
    /// The longest pause.
    pub max_backoff: Duration,
    /// The time after which a silent peer is probed, and after the same time again disconnected;
    /// `None` for never.
    pub probe: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            min_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(8),
            probe: Some(Duration::from_secs(5)),
        }
    }
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not wanted.
    Void,
    /// A pause between attempts.
    Backoff,
    /// An attempt is under way.
    Connecting,
    /// Connected, the peer responsive.
    Active,
    /// Connected, waiting for the answer to a probe.
    Idle,
}

impl State {
    /// The word for it in columns of the database (ovs-vswitchd.conf.db(5), `status:state`).
    pub fn as_str(self) -> &'static str {
        match self {
            State::Void => "VOID",
            State::Backoff => "BACKOFF",
            State::Connecting => "CONNECTING",
            State::Active => "ACTIVE",
            State::Idle => "IDLE",
        }
    }
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Begin an attempt.
    Connect,
    /// Probe the peer.
    Probe,
    /// Drop the attempt or the connection; the state has changed already.
    Disconnect(String),
}

/// The state machine of one connection.
#[derive(Debug, Clone)]
pub struct Reconnect {
    policy: Policy,
    state: State,
    /// Since when.
    entered: Nanos,
    backoff: Duration,
    heard: Nanos,
    connected: Option<Nanos>,
    disconnected: Option<Nanos>,
    last_error: Option<String>,
    attempts: u64,
}

impl Reconnect {
    /// A connection that is wanted from `now` on.
    pub fn new(policy: Policy, now: Nanos) -> Reconnect {
        Reconnect {
            policy,
            state: State::Backoff,
            entered: now,
            backoff: Duration::ZERO,
            heard: now,
            connected: None,
            disconnected: None,
            last_error: None,
            attempts: 0,
        }
    }

    /// Changes the policy. A pause longer than allowed now is cut short.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.backoff = self.backoff.min(policy.max_backoff.max(policy.min_backoff));
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The state of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Active | State::Idle)
    }

    /// The last pause between attempts.
    pub fn backoff(&self) -> Duration {
        self.backoff
    }

    /// Why the last attempt or connection ended.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The attempts so far.
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    /// How long ago the last connection began, if there was one.
    fn since_connect(&self, now: Nanos) -> Option<Duration> {
        self.connected.map(|then| passed(then, now))
    }

    /// How long ago the last connection ended, if one did.
    fn since_disconnect(&self, now: Nanos) -> Option<Duration> {
        self.disconnected.map(|then| passed(then, now))
    }

    /// The pairs of a `status` column (ovs-vswitchd.conf.db(5), Controller and Manager).
    pub fn status(&self, now: Nanos) -> Vec<(&'static str, String)> {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs().to_string());
        let pairs = [
            ("last_error", self.last_error.clone()),
            ("state", Some(self.state.as_str().to_owned())),
            ("sec_since_connect", seconds(self.since_connect(now))),
            ("sec_since_disconnect", seconds(self.since_disconnect(now))),
        ];
        pairs
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect()
    }

    /// What to do at `now`, if anything. Ask until there is nothing.
    pub fn poll(&mut self, now: Nanos) -> Option<Action> {
        if self.deadline()? > now {
            return None;
        }
        match self.state {
            State::Void => None,
            State::Backoff => {
                self.attempts += 1;
                self.enter(State::Connecting, now);
                Some(Action::Connect)
            }
            State::Connecting => {
                let why = "connection attempt timed out".to_owned();
                self.failed(&why, now);
                Some(Action::Disconnect(why))
            }
            State::Active => {
                self.enter(State::Idle, now);
                Some(Action::Probe)
            }
            State::Idle => {
                let waited = self.policy.probe.unwrap_or_default();
                let why = format!("no response to inactivity probe after {} seconds", waited.as_secs_f64());
                self.disconnected(&why, now);
                Some(Action::Disconnect(why))
            }
        }
    }

    /// When to ask [`Reconnect::poll`] again; `None` when only an event can change anything.
    pub fn deadline(&self) -> Option<Nanos> {
        match self.state {
            State::Void => None,
            State::Backoff => Some(after(self.entered, self.backoff)),
            State::Connecting => Some(after(self.entered, self.backoff.max(MIN_ATTEMPT))),
            State::Active => Some(after(self.entered.max(self.heard), self.policy.probe?)),
            State::Idle => Some(after(self.entered, self.policy.probe?)),
        }
    }

    /// The attempt succeeded.
    pub fn connected(&mut self, now: Nanos) {
        self.connected = Some(now);
        self.heard = now;
        self.enter(State::Active, now);
    }

    /// Something arrived from the peer.
    pub fn heard(&mut self, now: Nanos) {
        self.heard = now;
        if self.state == State::Idle {
            self.enter(State::Active, now);
        }
    }

    /// The attempt failed.
    pub fn failed(&mut self, why: &str, now: Nanos) {
        if self.state == State::Connecting {
            self.last_error = Some(why.to_owned());
            self.pause(now);
        }
    }

    /// The connection ended.
    pub fn disconnected(&mut self, why: &str, now: Nanos) {
        if self.is_connected() {
            self.last_error = Some(why.to_owned());
            self.disconnected = Some(now);
            // Retry at once if the connection lasted for a while, but not if the peer closed it at
            // once.
            if self
                .connected
                .is_some_and(|then| passed(then, self.heard) >= self.backoff)
            {
                self.backoff = Duration::ZERO;
            }
            self.pause(now);
        }
    }

    /// The connection is not wanted any more, or wanted again.
    pub fn enable(&mut self, wanted: bool, now: Nanos) {
        if wanted == (self.state == State::Void) {
            if self.is_connected() {
                self.disconnected = Some(now);
            }
            self.backoff = Duration::ZERO;
            self.enter(if wanted { State::Backoff } else { State::Void }, now);
        }
    }

    fn pause(&mut self, now: Nanos) {
        let most = self.policy.max_backoff.max(self.policy.min_backoff);
        self.backoff = (self.backoff * 2).clamp(self.policy.min_backoff, most);
        self.enter(State::Backoff, now);
    }

    fn enter(&mut self, state: State, now: Nanos) {
        self.state = state;
        self.entered = now;
    }
}

/// An attempt may take this long at least.
const MIN_ATTEMPT: Duration = Duration::from_secs(1);

fn passed(from: Nanos, to: Nanos) -> Duration {
    Duration::from_nanos(to.0.saturating_sub(from.0))
}

fn after(time: Nanos, wait: Duration) -> Nanos {
    Nanos(
        time.0
            .saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos(1_000_000_000_000 + ms * 1_000_000)
    }

    fn machine() -> Reconnect {
        Reconnect::new(Policy::default(), at(0))
    }

    #[test]
    fn attempts_are_made_after_one_second_then_two_up_to_the_most() {
        let mut machine = machine();
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..6 {
            assert_eq!(machine.poll(at(now)), Some(Action::Connect));
            assert_eq!(machine.state(), State::Connecting);
            machine.failed("refused", at(now));
            let next = (machine.deadline().unwrap().0 - at(0).0) / 1_000_000;
            pauses.push(next - now);
            assert_eq!(machine.poll(at(next - 1)), None);
            now = next;
        }
        assert_eq!(pauses, [1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(machine.last_error(), Some("refused"));
        assert_eq!(machine.attempts(), 6);
    }

    #[test]
    fn an_attempt_that_hangs_is_given_up() {
        let mut machine = machine();
        assert_eq!(machine.poll(at(0)), Some(Action::Connect));
        assert_eq!(machine.poll(at(999)), None);
        assert!(matches!(machine.poll(at(1000)), Some(Action::Disconnect(_))));
        assert_eq!(machine.state(), State::Backoff);
        // A later result of it is ignored.
        machine.failed("late", at(1001));
        assert_eq!(machine.last_error(), Some("connection attempt timed out"));
    }

    #[test]
    fn silence_is_probed_and_then_the_end() {
        let mut machine = machine();
        machine.poll(at(0));
        machine.connected(at(10));
        assert_eq!(machine.poll(at(5009)), None);
        assert_eq!(machine.poll(at(5010)), Some(Action::Probe));
        assert_eq!((machine.state().as_str(), machine.is_connected()), ("IDLE", true));
        machine.heard(at(6000));
        assert_eq!(machine.state(), State::Active);
        assert_eq!(machine.poll(at(10_999)), None);
        assert_eq!(machine.poll(at(11_000)), Some(Action::Probe));
        assert_eq!(machine.poll(at(15_999)), None);
        let why = "no response to inactivity probe after 5 seconds".to_owned();
        assert_eq!(machine.poll(at(16_000)), Some(Action::Disconnect(why)));
        assert_eq!(machine.state(), State::Backoff);
        assert_eq!(machine.poll(at(17_000)), Some(Action::Connect));
    }

    #[test]
    fn without_probes_silence_lasts_for_ever() {
        let policy = Policy {
            probe: None,
            ..Policy::default()
        };
        let mut machine = Reconnect::new(policy, at(0));
        machine.poll(at(0));
        machine.connected(at(0));
        assert_eq!(machine.deadline(), None);
        assert_eq!(machine.poll(at(u32::MAX.into())), None);
    }

    #[test]
    fn a_peer_that_hangs_up_at_once_waits_longer_each_time_and_one_that_stayed_does_not() {
        let mut machine = machine();
        let mut now = 0;
        for pause in [1000, 2000, 4000] {
            assert_eq!(machine.poll(at(now)), Some(Action::Connect));
            machine.connected(at(now));
            machine.disconnected("closed", at(now));
            assert_eq!(machine.backoff(), Duration::from_millis(pause));
            now += pause;
        }
        machine.poll(at(now));
        machine.connected(at(now));
        machine.heard(at(now + 60_000));
        machine.disconnected("closed", at(now + 60_001));
        assert_eq!(machine.backoff(), Duration::from_secs(1));
    }

    #[test]
    fn the_status_tells_what_is_known() {
        let mut machine = machine();
        assert_eq!(machine.status(at(0)), [("state", "BACKOFF".to_owned())]);
        machine.poll(at(0));
        machine.connected(at(1000));
        machine.disconnected("closed", at(3000));
        let status = machine.status(at(10_500));
        let expected = [
            ("last_error", "closed"),
            ("state", "BACKOFF"),
            ("sec_since_connect", "9"),
            ("sec_since_disconnect", "7"),
        ];
        assert_eq!(status, expected.map(|(key, value)| (key, value.to_owned())));
    }

    #[test]
    fn what_is_not_wanted_rests_until_it_is() {
        let mut machine = machine();
        machine.poll(at(0));
        machine.connected(at(0));
        machine.enable(false, at(5));
        assert_eq!((machine.state(), machine.deadline()), (State::Void, None));
        machine.enable(true, at(9));
        assert_eq!(machine.poll(at(9)), Some(Action::Connect));
    }

    #[test]
    fn a_shorter_limit_cuts_a_pause_short() {
        let mut machine = machine();
        let mut now = 0;
        for _ in 0..4 {
            machine.poll(at(now));
            machine.failed("refused", at(now));
            now += 10_000;
        }
        assert_eq!(machine.backoff(), Duration::from_secs(8));
        machine.set_policy(Policy {
            max_backoff: Duration::from_secs(1),
            ..Policy::default()
        });
        assert_eq!(machine.backoff(), Duration::from_secs(1));
    }
}
