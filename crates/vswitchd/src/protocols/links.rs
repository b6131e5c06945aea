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
    /// Whether the other end receives and sends, as watchers say.
    alive: BTreeMap<Watcher, bool>,
    /// What the port's spanning tree lets it do.
    tree: Option<Passes>,
}

/// What a spanning tree lets a port do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passes {
    pub(crate) learn: bool,
    pub(crate) forward: bool,
}

impl Verdict {
    /// LACP has to agree. Of BFD and CFM one is enough where both watch, as in Open vSwitch.
    fn is_alive(&self) -> bool {
        let says = |watcher: &Watcher| self.alive.get(watcher).copied();
        let mut monitors = [Watcher::Bfd, Watcher::Cfm].iter().filter_map(says).peekable();
        let monitored = monitors.peek().is_none() || monitors.any(|alive| alive);
        says(&Watcher::Lacp) != Some(false) && monitored
    }
}

impl Links {
    /// Notes what a watcher says of an interface; `None` for one that does not watch it.
    pub(crate) fn set_alive(&mut self, interface: &str, by: Watcher, alive: Option<bool>) {
        self.change(interface, |verdict| match alive {
            None => _ = verdict.alive.remove(&by),
            Some(alive) => _ = verdict.alive.insert(by, alive),
        });
    }

    /// Notes what the spanning tree lets an interface do; `None` for one that takes no part.
    pub(crate) fn set_tree(&mut self, interface: &str, tree: Option<Passes>) {
        self.change(interface, |verdict| verdict.tree = tree);
    }

    /// Blocks the interfaces that begin to take part in a spanning tree, until the tree says what
    /// they do: a new port must not close a loop. `taking_part` has all that do.
    pub(crate) fn begin_trees(&mut self, taking_part: &BTreeSet<&str>) {
        const NOTHING: Passes = Passes {
            learn: false,
            forward: false,
        };
        let leaving = |(name, verdict): (&String, &Verdict)| {
            let leaves = verdict.tree.is_some() && !taking_part.contains(name.as_str());
            leaves.then(|| name.clone())
        };
        let left: Vec<String> = self.interfaces.iter().filter_map(leaving).collect();
        for name in left {
            self.set_tree(&name, None);
        }
        for name in taking_part {
            self.change(name, |verdict| _ = verdict.tree.get_or_insert(NOTHING));
        }
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
        let tree = verdict.and_then(|verdict| verdict.tree);
        LinkState {
            up,
            alive: verdict.is_none_or(Verdict::is_alive),
            learn: tree.is_none_or(|tree| tree.learn),
            forward: tree.is_none_or(|tree| tree.forward),
        }
    }

    /// Interfaces with a verdict.
    pub(crate) fn interfaces(&self) -> impl Iterator<Item = &str> {
        self.interfaces.keys().map(String::as_str)
    }

    /// Whether [`Links::take_changed`] has any.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
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
    fn an_interface_is_alive_if_lacp_and_one_of_its_monitors_say_so() {
        let mut links = Links::default();
        let mut says = |lacp, bfd, cfm| {
            for (watcher, alive) in [(Watcher::Lacp, lacp), (Watcher::Bfd, bfd), (Watcher::Cfm, cfm)] {
                links.set_alive("p1", watcher, alive);
            }
            assert!(links.state("p2", true).alive);
            links.state("p1", true).alive
        };
        for lacp in [None, Some(true), Some(false)] {
            let alive = lacp != Some(false);
            assert_eq!(says(lacp, None, None), alive);
            for (one, other) in [(Some(true), None), (None, Some(true)), (Some(true), Some(false))] {
                assert_eq!(says(lacp, one, other), alive, "{lacp:?} {one:?} {other:?}");
            }
            for (one, other) in [(Some(false), None), (None, Some(false)), (Some(false), Some(false))] {
                assert!(!says(lacp, one, other), "{lacp:?} {one:?} {other:?}");
            }
        }
        assert!(says(None, None, None));
        assert_eq!(links.state("p1", true), LinkState::UP);
        assert_eq!(links.take_changed().len(), 1);
        links.set_tree("p1", None);
        assert!(links.take_changed().is_empty() && links.interfaces().next().is_none());
    }

    #[test]
    fn a_port_of_a_tree_is_blocked_until_the_tree_opens_it() {
        let mut links = Links::default();
        links.begin_trees(&BTreeSet::from(["p1", "p2"]));
        assert!(!links.state("p1", true).learn && !links.state("p1", true).forward);
        let open = Passes {
            learn: true,
            forward: true,
        };
        links.set_tree("p1", Some(open));
        links.begin_trees(&BTreeSet::from(["p1"]));
        for open in ["p1", "p2", "p3"] {
            assert_eq!(links.state(open, true), LinkState::UP);
        }
    }
}
