//! Aggregations in a simulated network.

use crate::lacp::{Config, Lacp, MemberConfig};
use nanos::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use testkit::network::{Network, Node, Quality};
use wire::MacAddr;

pub(super) fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

/// A configuration of members 0 to `members`, whose port numbers count from 1.
pub(super) fn config(system: u8, active: bool, members: u32) -> Config {
    let member = |number: u32| MemberConfig {
        port: number as u16 + 1,
        priority: 65535,
        key: 0,
        up: true,
        mac: mac(system + number as u8),
    };
    Config {
        active,
        fast: true,
        fallback: false,
        system_priority: 65534,
        system: mac(system),
        taken: BTreeSet::new(),
        members: (0..members)
            .map(|number| (number, member(number)))
            .collect::<BTreeMap<_, _>>(),
    }
}

/// A system whose ports belong to one aggregation, or to several.
pub(super) struct System {
    pub(super) groups: Vec<Lacp>,
}

impl System {
    pub(super) fn new(configs: &[Config]) -> System {
        System {
            groups: configs.iter().map(|config| Lacp::new(config, Nanos::ZERO)).collect(),
        }
    }

    fn of(&mut self, port: usize) -> Option<&mut Lacp> {
        self.groups
            .iter_mut()
            .find(|group| group.config().members.contains_key(&(port as u32)))
    }

    /// The members that may carry traffic, of all aggregations.
    pub(super) fn enabled(&self) -> Vec<u32> {
        let of = |group: &Lacp| -> Vec<u32> {
            let members = group.config().members.keys().copied();
            members.filter(|number| group.may_enable(*number)).collect()
        };
        self.groups.iter().flat_map(of).collect()
    }
}

impl Node for System {
    fn receive(&mut self, port: usize, frame: &[u8], now: Nanos) {
        if let Some(group) = self.of(port) {
            group.receive(port as u32, frame, now);
        }
    }

    fn tick(&mut self, now: Nanos) {
        self.groups.iter_mut().for_each(|group| group.tick(now));
    }

    fn next_event(&self) -> Option<Nanos> {
        self.groups.iter().filter_map(Lacp::next_event).min()
    }

    fn take_frame(&mut self) -> Option<(usize, Vec<u8>)> {
        let frame = self.groups.iter_mut().find_map(Lacp::take_frame);
        frame.map(|(number, frame)| (number as usize, frame))
    }

    fn link(&mut self, port: usize, up: bool, now: Nanos) {
        if let Some(group) = self.of(port) {
            let mut config = group.config().clone();
            if let Some(member) = config.members.get_mut(&(port as u32)) {
                member.up = up;
            }
            group.configure(&config, now);
        }
    }
}

/// Two systems with so many links, negotiated.
pub(super) fn pair(members: u32) -> Network<System> {
    let mut network = Network::new(1);
    for system in [10, 20] {
        network.add(System::new(&[config(system, true, members)]));
    }
    for port in 0..members as usize {
        network.connect(&[(0, port), (1, port)], Quality::delay(Duration::from_millis(1)));
    }
    network.run_for(Duration::from_secs(10));
    assert!(network.node(0).enabled().into_iter().eq(0..members));
    network
}
