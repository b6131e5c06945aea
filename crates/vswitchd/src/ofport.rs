//! OpenFlow port numbers of a bridge's interfaces.

use std::collections::{BTreeMap, BTreeSet};

/// The number of the bridge's own port (OFPP_LOCAL of OpenFlow 1.0).
pub(crate) const LOCAL: u16 = 0xfffe;

/// The largest number an ordinary port may have (below OFPP_MAX of OpenFlow 1.0).
const LARGEST: u16 = 0xfeff;

/// Assigns numbers that an interface keeps for its life, and does not reuse a number soon.
#[derive(Debug, Default)]
pub(crate) struct OfPorts {
    assigned: BTreeMap<String, u16>,
    last: u16,
}

/// An interface's wishes for [`OfPorts::assign`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    /// `ofport_request`: wins over a number already given.
    pub(crate) request: Option<u16>,
    /// The number it had when another daemon served this database.
    pub(crate) before: Option<u16>,
}

impl OfPorts {
    /// Assigns numbers to exactly these interfaces. An interface that gets none (all 65 279 are
    /// taken) is missing from the result.
    pub(crate) fn assign(&mut self, wishes: &BTreeMap<&str, Wish>) -> BTreeMap<String, u16> {
        let mut taken = BTreeSet::new();
        let mut result = BTreeMap::new();
        let mut take = |name: &str, number: Option<u16>, taken: &mut BTreeSet<u16>| {
            let Some(number) = number.filter(|n| (1..=LARGEST).contains(n)) else {
                return;
            };
            if !result.contains_key(name) && taken.insert(number) {
                result.insert(name.to_owned(), number);
            }
        };
        for (name, wish) in wishes {
            take(name, wish.request, &mut taken);
        }
        for name in wishes.keys() {
            take(name, self.assigned.get(*name).copied(), &mut taken);
        }
        for (name, wish) in wishes {
            take(name, wish.before, &mut taken);
        }
        for name in wishes.keys() {
            if !result.contains_key(*name) {
                let Some(free) = self.next_free(&taken) else { break };
                taken.insert(free);
                result.insert((*name).to_owned(), free);
            }
        }
        self.assigned.clone_from(&result);
        result
    }

    fn next_free(&mut self, taken: &BTreeSet<u16>) -> Option<u16> {
        for _ in 0..LARGEST {
            self.last = if self.last >= LARGEST { 1 } else { self.last + 1 };
            if !taken.contains(&self.last) {
                return Some(self.last);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes<'a>(list: &[(&'a str, Option<u16>)]) -> BTreeMap<&'a str, Wish> {
        list.iter()
            .map(|&(name, request)| {
                let wish = Wish { request, before: None };
                (name, wish)
            })
            .collect()
    }

    #[test]
    fn a_request_is_honoured_and_others_go_round_it() {
        let mut ports = OfPorts::default();
        let got = ports.assign(&wishes(&[("a", None), ("b", Some(1)), ("c", None)]));
        assert_eq!(got["b"], 1);
        assert_eq!((got["a"], got["c"]), (2, 3));
    }

    #[test]
    fn of_two_equal_requests_one_gets_another_number() {
        let mut ports = OfPorts::default();
        let got = ports.assign(&wishes(&[("a", Some(7)), ("b", Some(7))]));
        assert_eq!(got["a"], 7);
        assert_ne!(got["b"], 7);
    }

    #[test]
    fn a_number_stays_with_its_interface_and_is_not_reused_at_once() {
        let mut ports = OfPorts::default();
        assert_eq!(ports.assign(&wishes(&[("a", None), ("b", None)]))["b"], 2);
        assert_eq!(ports.assign(&wishes(&[("b", None)]))["b"], 2);
        let got = ports.assign(&wishes(&[("b", None), ("c", None)]));
        assert_eq!((got["b"], got["c"]), (2, 3));
    }

    #[test]
    fn the_number_of_a_former_daemon_is_kept() {
        let mut ports = OfPorts::default();
        let wish = Wish {
            request: None,
            before: Some(9),
        };
        assert_eq!(ports.assign(&BTreeMap::from([("a", wish)]))["a"], 9);
    }

    #[test]
    fn a_request_out_of_range_is_ignored() {
        let mut ports = OfPorts::default();
        assert_eq!(ports.assign(&wishes(&[("a", Some(0xff00))]))["a"], 1);
    }
}
