//! The inactivity probe of a connection.

use nanos::Nanos;
use std::time::Duration;

/// The state of the probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    interval: Option<Duration>,
    heard: Nanos,
    /// When the probe was sent; `None` after a message arrived.
    asked: Option<Nanos>,
}

/// What the connection has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probing {
    Wait,
    Ask,
    GiveUp,
}

impl Probe {
    pub(crate) fn new(interval: Option<Duration>, now: Nanos) -> Probe {
        Probe {
            interval: interval.filter(|interval| !interval.is_zero()),
            heard: now,
            asked: None,
        }
    }

    /// A message arrived.
    pub(crate) fn heard(&mut self, now: Nanos) {
        self.heard = now;
        self.asked = None;
    }

    /// When the last message arrived.
    pub(crate) fn last_heard(&self) -> Nanos {
        self.heard
    }

    pub(crate) fn due(&self) -> Option<Nanos> {
        Some(self.asked.unwrap_or(self.heard) + self.interval?)
    }

    pub(crate) fn tick(&mut self, now: Nanos) -> Probing {
        match self.due() {
            Some(due) if due <= now => {}
            _ => return Probing::Wait,
        }
        if self.asked.is_some() {
            return Probing::GiveUp;
        }
        self.asked = Some(now);
        Probing::Ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_asked_once_and_then_given_up() {
        let second = |n: u64| Nanos(n * 1_000_000_000);
        let mut probe = Probe::new(Some(Duration::from_secs(5)), second(0));
        assert_eq!(probe.tick(second(4)), Probing::Wait);
        assert_eq!(probe.tick(second(5)), Probing::Ask);
        assert_eq!(probe.tick(second(9)), Probing::Wait);
        probe.heard(second(9));
        assert_eq!(probe.tick(second(13)), Probing::Wait);
        assert_eq!(probe.tick(second(14)), Probing::Ask);
        assert_eq!(probe.tick(second(19)), Probing::GiveUp);
        let never = Probe::new(Some(Duration::ZERO), second(0));
        assert_eq!(never.due(), None);
    }
}
