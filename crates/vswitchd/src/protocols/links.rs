//! What control protocols say of interfaces: whether the other end is alive, whether the port
//! learns and forwards.

use std::collections::{BTreeMap, BTreeSet};
use switch::LinkState;

/// A protocol that watches the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watcher {
    /// Bidirectional forwarding detection.
    Bfd,
    /// Connectivity fault management.
    Cfm,
    /// Link aggregation.
    Lacp,
}

/// The verdicts of all protocols, by interface.
#[derive(Debug, Default)]
pub(crate) struct Links {
    interfaces: BTreeMap<String, Verdict>,
    /// Interfaces whose verdict has changed since [`Links::take_changed`].
    changed: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdict {
    /// Watchers that say that the other end does not receive or send.
    dead: BTreeSet<Watcher>,
    /// The port's spanning tree does not let it learn or forward.
    no_learn: bool,
    no_forward: bool,
}

impl Links {
    /// Notes what a watcher says of an interface; one that watches no more says `true`.
    pub(crate) fn set_alive(&mut self, interface: &str, by: Watcher, alive: bool) {
        self.change(interface, |verdict| match alive {
            true => _ = verdict.dead.remove(&by),
            false => _ = verdict.dead.insert(by),
        });
    }

    /// Notes what the spanning tree lets an interface do; one without a spanning tree does both.
    pub(crate) fn set_state(&mut self, interface: &str, learn: bool, forward: bool) {
        self.change(interface, |verdict| {
            (verdict.no_learn, verdict.no_forward) = (!learn, !forward);
        });
    }

    fn change(&mut self, interface: &str, change: impl FnOnce(&mut Verdict)) {
        let mut verdict = self.interfaces.get(interface).cloned().unwrap_or_default();
        change(&mut verdict);
        let before = match verdict == Verdict::default() {
            true => self.interfaces.remove(interface).unwrap_or_default(),
            false => {
                let entry = self.interfaces.entry(interface.to_owned()).or_default();
                std::mem::replace(entry, verdict.clone())
            }
        };
        if before != verdict {
            self.changed.insert(interface.to_owned());
        }
    }

    /// The link of an interface whose device is up or not.
    pub(crate) fn state(&self, interface: &str, up: bool) -> LinkState {
        let verdict = self.interfaces.get(interface);
        LinkState {
            up,
            alive: verdict.is_none_or(|verdict| verdict.dead.is_empty()),
            learn: verdict.is_none_or(|verdict| !verdict.no_learn),
            forward: verdict.is_none_or(|verdict| !verdict.no_forward),
        }
    }

    /// Interfaces with a verdict.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.interfaces.keys().map(String::as_str)
    }

    /// The interfaces whose verdict has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_alive_if_no_watcher_says_otherwise() {
        let mut links = Links::default();
        links.set_alive("p1", Watcher::Bfd, false);
        links.set_alive("p1", Watcher::Cfm, false);
        links.set_alive("p1", Watcher::Bfd, true);
        assert!(!links.state("p1", true).alive && links.state("p2", true).alive);
        links.set_alive("p1", Watcher::Cfm, true);
        assert_eq!(links.state("p1", true), LinkState::UP);
        assert_eq!(links.take_changed().len(), 1);
        links.set_state("p1", true, true);
        assert!(links.take_changed().is_empty() && links.interfaces().next().is_none());
    }
}
