//! BPDUs, pauses and changes of settings, in any order, through both spanning trees.

use nanos::Nanos;
use protocols::stp::wire::{Bpdu, BridgeId, PortId};
use protocols::stp::{BridgeTimes, Event, Guards};
use protocols::{rstp, stp};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::MacAddr;

/// Ports of the bridge.
const PORTS: u32 = 3;

/// The same bytes through each machine. Both send well-formed frames only, never forward where they
/// do not learn, and have a next event that is not over once they have run.
pub fn trees(data: &[u8]) {
    let id = BridgeId::new(0x8000, MacAddr([2, 0, 0, 0, 0, 5]));
    let times = BridgeTimes::default();
    let now = Nanos::from_secs(5);
    let config = stp::Config {
        id,
        times,
        ports: BTreeMap::new(),
    };
    run(data, stp::Stp::new(&config, now), config, now);
    let config = rstp::Config {
        id,
        times,
        force_stp: false,
        transmit_hold_count: 6,
        ports: BTreeMap::new(),
    };
    run(data, rstp::Rstp::new(&config, now), config, now);
}

/// What both machines have.
trait Tree {
    type Config;
    fn configure(&mut self, config: &Self::Config, now: Nanos);
    fn receive(&mut self, port: u32, frame: &[u8], now: Nanos);
    fn tick(&mut self, now: Nanos);
    fn next_event(&self) -> Option<Nanos>;
    fn take_frame(&mut self) -> Option<(u32, Vec<u8>)>;
    fn take_event(&mut self) -> Option<Event>;
    fn force_topology_change(&mut self, now: Nanos);
    /// Changes a setting.
    fn set(config: &mut Self::Config, what: u8, value: u8);
}

macro_rules! delegate {
    ($machine:ty, $config:ty, $set:expr) => {
        impl Tree for $machine {
            type Config = $config;
            fn configure(&mut self, config: &Self::Config, now: Nanos) {
                self.configure(config, now);
            }
            fn receive(&mut self, port: u32, frame: &[u8], now: Nanos) {
                self.receive(port, frame, now);
            }
            fn tick(&mut self, now: Nanos) {
                self.tick(now);
            }
            fn next_event(&self) -> Option<Nanos> {
                self.next_event()
            }
            fn take_frame(&mut self) -> Option<(u32, Vec<u8>)> {
                self.take_frame()
            }
            fn take_event(&mut self) -> Option<Event> {
                self.take_event()
            }
            fn force_topology_change(&mut self, now: Nanos) {
                self.force_topology_change(now);
            }
            fn set(config: &mut Self::Config, what: u8, value: u8) {
                $set(config, what, value);
            }
        }
    };
}

delegate!(stp::Stp, stp::Config, |config: &mut stp::Config, what, value: u8| {
    let number = u32::from(value) % PORTS;
    let port = config.ports.entry(number).or_insert_with(|| stp::PortConfig {
        id: PortId(0x8001 + number as u16),
        cost: 19,
        mac: MacAddr([2, 0, 0, 0, 1, number as u8]),
        up: true,
        guards: Guards::default(),
    });
    match what % 8 {
        0 => port.up = !port.up,
        1 => port.cost = u16::from(value),
        2 => port.guards = guards(value),
        3 => port.id = PortId(u16::from(value) << 8 | (number as u16 + 1)),
        4 => _ = config.ports.remove(&number),
        5 => config.id = BridgeId::new(u16::from(value) << 8, config.id.mac()),
        6 => config.times.max_age = value.into(),
        _ => config.times.forward_delay = value.into(),
    }
});

delegate!(
    rstp::Rstp,
    rstp::Config,
    |config: &mut rstp::Config, what, value: u8| {
        let number = u32::from(value) % PORTS;
        let port = config.ports.entry(number).or_insert_with(|| rstp::PortConfig {
            id: PortId(0x8001 + number as u16),
            cost: 20_000,
            mac: MacAddr([2, 0, 0, 0, 1, number as u8]),
            up: true,
            full_duplex: true,
            point_to_point: rstp::PointToPoint::Auto,
            admin_edge: false,
            auto_edge: true,
            mcheck: false,
            guards: Guards::default(),
        });
        match what % 12 {
            0 => port.up = !port.up,
            1 => port.cost = u32::from(value) << 12,
            2 => port.guards = guards(value),
            3 => port.id = PortId(u16::from(value) << 8 & 0xf000 | (number as u16 + 1)),
            4 => _ = config.ports.remove(&number),
            5 => config.id = BridgeId::new(u16::from(value) << 8 & 0xf000, config.id.mac()),
            6 => config.times.max_age = value.into(),
            7 => config.times.hello_time = value.into(),
            8 => config.force_stp = !config.force_stp,
            9 => port.admin_edge = !port.admin_edge,
            10 => port.mcheck = !port.mcheck,
            _ => port.full_duplex = !port.full_duplex,
        }
    }
);

fn guards(bits: u8) -> Guards {
    Guards {
        bpdu_guard: bits & 8 != 0,
        bpdu_filter: bits & 16 != 0,
        root_guard: bits & 32 != 0,
        allowed_roots: (bits & 64 != 0)
            .then_some(MacAddr([2, 0, 0, 0, 0, 1]))
            .into_iter()
            .collect(),
    }
}

fn run<T: Tree>(data: &[u8], mut tree: T, mut config: T::Config, mut now: Nanos) {
    for number in 0..PORTS as u8 {
        T::set(&mut config, 1, number);
    }
    tree.configure(&config, now);
    let mut rest = data;
    while let [step, value, more @ ..] = rest {
        rest = more;
        match step % 5 {
            0 | 1 => {
                let length = usize::from(*value).min(rest.len());
                let (frame, more) = rest.split_at(length);
                rest = more;
                tree.receive(u32::from(*step) / 5 % PORTS, frame, now);
            }
            2 => {
                now += Duration::from_millis(u64::from(*value) * 40);
                tree.tick(now);
                assert!(
                    tree.next_event().is_none_or(|next| next > now),
                    "the next event is over"
                );
            }
            3 => {
                T::set(&mut config, *step / 5, *value);
                tree.configure(&config, now);
            }
            _ => tree.force_topology_change(now),
        }
        while let Some((port, frame)) = tree.take_frame() {
            assert!(port < PORTS);
            Bpdu::parse(&frame).expect("what a bridge sends is well-formed");
        }
        while let Some(event) = tree.take_event() {
            if let Event::Port { learn, forward, .. } = event {
                assert!(learn || !forward);
            }
        }
    }
}
