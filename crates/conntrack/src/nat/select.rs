//! The tuples that a new connection may get, in the order in which to try them.

use super::{Nat, PortsBy, Range};
use crate::random;
use crate::tuple::{self, Tuple, fold};
use std::net::IpAddr;

/// Tuples to try for one connection. Where a range has more, a connection is refused although one
/// may be free: the search must not keep a worker.
const MOST: u32 = 1024;
/// Ports to try from one place in a large range.
const RUN: u32 = 64;
/// Ports for connections whose own port is taken.
const EPHEMERAL: (u16, u16) = (1024, 65535);

/// Tuples behind the translation, each at most once in a small range.
pub(crate) struct Candidates {
    tuple: Tuple,
    source: bool,
    /// First address of the range and how many there are; the packet's own if the range has none.
    addresses: Option<(IpAddr, u128)>,
    /// The first address to try, counted from the first of the range.
    offset: u128,
    /// Ports to choose the changed side's from: of a destination only if the range has some.
    ports: Option<(u16, u16)>,
    /// Whether the range says so; otherwise the own port comes first.
    ports_given: bool,
    random: u64,
    step: u32,
}

impl Candidates {
    /// `hash` is one of the tuple; `random` is another number for each connection. `None` if the
    /// range does not fit the tuple's family.
    pub(crate) fn new(tuple: &Tuple, nat: &Nat, hash: u64, random: u64) -> Option<Candidates> {
        let (range, source) = match nat {
            Nat::Existing => return None,
            Nat::Source(range) => (range, true),
            Nat::Destination(range) => (range, false),
        };
        let addresses = match range.addresses {
            Some((first, last)) if !(first.is_unspecified() && last == first) => {
                (first.is_ipv6() == tuple.is_ipv6()).then_some(())?;
                Some((first, count(first, last)?))
            }
            _ => None,
        };
        let by = match range.persistent {
            true => persistent(tuple),
            false => hash,
        };
        let numbered = has_ports(tuple);
        // An identifier of ICMP is not a port: a range of ports does not apply.
        let given = range.ports.filter(|_| numbered && !tuple.is_icmp());
        let ports = match (given, source) {
            (Some((first, last)), _) if first <= last => Some((first, last)),
            (Some(_), _) => return None,
            (None, true) if tuple.is_icmp() => Some((0, u16::MAX)),
            (None, true) => numbered.then_some(EPHEMERAL),
            (None, false) => None,
        };
        Some(Candidates {
            tuple: *tuple,
            source,
            addresses,
            offset: addresses.map_or(0, |(_, count)| u128::from(by >> 8) % count),
            ports,
            ports_given: given.is_some(),
            random: start(range, hash, random),
            step: 0,
        })
    }

    /// The tuple with this address and port on the changed side.
    fn with(&self, address: IpAddr, port: Option<u16>) -> Option<Tuple> {
        match self.source {
            true => self.tuple.with_src(address, port.unwrap_or(self.tuple.src_port())),
            false => self.tuple.with_dst(address, port.unwrap_or(self.tuple.dst_port())),
        }
    }

    /// The address of this round.
    fn address(&self, round: u32) -> Option<IpAddr> {
        match self.addresses {
            None if self.source => Some(self.tuple.src()),
            None => Some(self.tuple.dst()),
            Some((first, count)) => nth(first, (self.offset + u128::from(round)) % count),
        }
    }

    /// Addresses to try.
    fn rounds(&self) -> u32 {
        self.addresses
            .map_or(1, |(_, count)| u32::try_from(count).unwrap_or(MOST).min(MOST))
    }

    /// Ports to try at each address.
    fn tries(&self) -> u32 {
        let size = |(first, last): (u16, u16)| u32::from(last - first) + 1;
        let own = u32::from(!self.ports_given);
        let of_source = if has_ports(&self.tuple) { size(EPHEMERAL) } else { 0 };
        match (self.ports, self.source) {
            (Some(ports), true) => own + size(ports),
            (None, true) => 1,
            // A destination whose tuple is taken gets another source port.
            (Some(ports), false) => size(ports) + of_source,
            (None, false) => 1 + of_source,
        }
    }

    /// Candidate `number` of an address: the preferred ones first.
    fn candidate(&self, address: IpAddr, number: u32) -> Option<Tuple> {
        let size = |(first, last): (u16, u16)| u32::from(last - first) + 1;
        let port = |ports: (u16, u16), number: u32| {
            let size = size(ports);
            // A large range is tried in runs at random places.
            let jump = match size > MOST {
                true => random::next(&mut (self.random ^ u64::from(number / RUN))) as u32,
                false => self.random as u32,
            };
            (u32::from(ports.0) + (jump % size + number) % size) as u16
        };
        match (self.ports, self.source) {
            (Some(_), true) if !self.ports_given && number == 0 => self.with(address, None),
            (Some(ports), true) => self.with(address, Some(port(ports, number - u32::from(!self.ports_given)))),
            (None, true) => self.with(address, None),
            (ports, false) => {
                let of_range = ports.map_or(1, size);
                let own = ports.map(|ports| port(ports, number.min(of_range - 1)));
                let changed = self.with(address, own)?;
                match number.checked_sub(of_range) {
                    None => Some(changed),
                    Some(number) => changed.with_src(changed.src(), port(EPHEMERAL, number)),
                }
            }
        }
    }
}

impl Iterator for Candidates {
    type Item = Tuple;

    fn next(&mut self) -> Option<Tuple> {
        let (rounds, tries) = (self.rounds(), self.tries());
        let all = rounds.saturating_mul(tries).min(MOST);
        if self.step >= all {
            return None;
        }
        let step = self.step;
        self.step += 1;
        // Each address gets its share of the tries.
        let share = tries.min(all / rounds).max(1);
        let address = self.address(step / share)?;
        self.candidate(address, step % share)
    }
}

/// Whether the tuple has ports that NAT may change.
fn has_ports(tuple: &Tuple) -> bool {
    tuple.is_icmp() || matches!(tuple.protocol(), tuple::TCP | tuple::UDP | tuple::SCTP)
}

/// Where to begin in the range of ports.
fn start(range: &Range, hash: u64, random: u64) -> u64 {
    match range.ports_by {
        PortsBy::Default | PortsBy::Hash => fold(hash, 0x9e37_79b9_7f4a_7c15),
        PortsBy::Random => random,
    }
}

/// A hash of the source, whose connections all get one address. It has no seed, so a restart keeps
/// the choice too.
fn persistent(tuple: &Tuple) -> u64 {
    let bits = match tuple.src() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let mut state = bits as u64 ^ (bits >> 64) as u64;
    random::next(&mut state)
}

/// Addresses from first to last; `None` if they are of two families or in the wrong order.
fn count(first: IpAddr, last: IpAddr) -> Option<u128> {
    let difference = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => u128::from(last.to_bits().checked_sub(first.to_bits())?),
        (IpAddr::V6(first), IpAddr::V6(last)) => last.to_bits().checked_sub(first.to_bits())?,
        _ => return None,
    };
    Some(difference.saturating_add(1))
}

/// The address this far behind another one.
fn nth(first: IpAddr, n: u128) -> Option<IpAddr> {
    Some(match first {
        IpAddr::V4(first) => IpAddr::V4(first.to_bits().checked_add(u32::try_from(n).ok()?)?.into()),
        IpAddr::V6(first) => IpAddr::V6(first.to_bits().checked_add(n)?.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuple::{ICMP, UDP};
    use std::collections::BTreeSet;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn tuple(protocol: u8) -> Tuple {
        Tuple::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol, 5000, 80).unwrap()
    }

    fn range(first: u8, last: u8, ports: Option<(u16, u16)>) -> Range {
        Range {
            addresses: Some((address(first), address(last))),
            ports,
            ..Range::default()
        }
    }

    fn all(protocol: u8, nat: Nat, random: u64) -> Vec<Tuple> {
        Candidates::new(&tuple(protocol), &nat, 77, random).unwrap().collect()
    }

    #[test]
    fn a_small_range_is_tried_whole_and_nothing_twice() {
        let nat = Nat::Source(range(1, 3, Some((100, 109))));
        let tried = all(UDP, nat, 1);
        let distinct: BTreeSet<_> = tried.iter().map(|t| (t.src(), t.src_port())).collect();
        assert_eq!((tried.len(), distinct.len()), (30, 30));
        assert!(
            tried
                .iter()
                .all(|t| (100..=109).contains(&t.src_port()) && t.dst_port() == 80)
        );
    }

    #[test]
    fn without_a_range_of_ports_the_own_port_comes_first() {
        let tried = all(UDP, Nat::Source(range(1, 1, None)), 1);
        assert_eq!((tried[0].src(), tried[0].src_port()), (address(1), 5000));
        assert_eq!(tried.len(), MOST as usize);
        assert!(tried[1..].iter().all(|t| t.src_port() >= 1024));
        let distinct: BTreeSet<_> = tried.iter().map(|t| t.src_port()).collect();
        assert!(distinct.len() > 900, "{}", distinct.len());
        // An identifier of ICMP is kept, whatever the range of ports is.
        assert_eq!(all(ICMP, Nat::Source(range(1, 1, Some((7, 9)))), 1)[0].src_port(), 5000);
        // A protocol without ports has one tuple for each address.
        assert_eq!(all(47, Nat::Source(range(1, 9, None)), 1).len(), 9);
    }

    #[test]
    fn a_destination_keeps_the_source_port_unless_all_tuples_are_taken() {
        let tried = all(UDP, Nat::Destination(range(1, 1, Some((8080, 8081)))), 1);
        assert!(tried[..2].iter().all(|t| t.src_port() == 5000 && t.dst() == address(1)));
        assert_eq!(tried[0].dst_port() + tried[1].dst_port(), 8080 + 8081);
        assert!(tried[2..].iter().all(|t| (8080..=8081).contains(&t.dst_port())));
        let ports: BTreeSet<_> = tried[2..].iter().map(|t| t.src_port()).collect();
        assert!(ports.len() > 900);
    }

    #[test]
    fn hash_is_steady_random_is_not_and_persistent_depends_on_the_source_only() {
        let mut own = range(1, 250, Some((1, 60_000)));
        assert_eq!(all(UDP, Nat::Source(own), 1)[0], all(UDP, Nat::Source(own), 2)[0]);
        own.ports_by = PortsBy::Random;
        assert_ne!(
            all(UDP, Nat::Source(own), 1)[0].src_port(),
            all(UDP, Nat::Source(own), 2)[0].src_port()
        );
        own.persistent = true;
        let other = Tuple::new([10, 0, 0, 1].into(), [10, 9, 9, 9].into(), UDP, 1, 2).unwrap();
        let address = |tuple: &Tuple, hash| {
            Candidates::new(tuple, &Nat::Source(own), hash, 1)
                .unwrap()
                .next()
                .unwrap()
                .src()
        };
        assert_eq!(address(&tuple(UDP), 1 << 20), address(&other, 9 << 30));
    }

    #[test]
    fn ranges_that_fit_nothing_have_no_candidates() {
        let v6: IpAddr = [0xfd00, 0, 0, 0, 0, 0, 0, 1].into();
        for addresses in [(v6, v6), (address(2), address(1)), (address(1), v6)] {
            let nat = Nat::Source(Range {
                addresses: Some(addresses),
                ..Range::default()
            });
            assert!(Candidates::new(&tuple(UDP), &nat, 1, 1).is_none());
        }
        // All addresses of the family, which are more than there are tries.
        let nat = Nat::Source(Range {
            addresses: Some(([0, 0, 0, 1].into(), [255, 255, 255, 255].into())),
            ..Range::default()
        });
        assert_eq!(all(UDP, nat, 1).len(), MOST as usize);
    }
}
