//! Sessions in a simulated network.

use crate::bfd::datagram::{self, Addresses, DEFAULT_DESTINATION, DEFAULT_DESTINATION_MAC, DEFAULT_SOURCE};
use crate::bfd::wire::{Packet, State};
use crate::bfd::{Config, Identity, Session};
use nanos::Nanos;
use std::time::Duration;
use testkit::network::{Network, Node, Quality};
use wire::MacAddr;

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn identity(number: u32) -> Identity {
    Identity {
        discriminator: number,
        src_port: 49152,
        seed: number.into(),
    }
}

/// A configuration with both intervals in milliseconds.
pub(super) fn every(millis: u32) -> Config {
    Config {
        min_tx: MS * millis,
        min_rx: MS * millis,
        ..Config::default()
    }
}

/// A session with its interface's counter of received packets.
pub(super) struct End {
    pub(super) session: Session,
    pub(super) rx_packets: u64,
}

impl End {
    pub(super) fn new(number: u32, config: &Config) -> End {
        End {
            session: Session::new(config, identity(number), Nanos::ZERO),
            rx_packets: 0,
        }
    }
}

impl Node for End {
    fn receive(&mut self, _port: usize, frame: &[u8], now: Nanos) {
        self.rx_packets += 1;
        self.session.receive(frame, now);
    }

    fn tick(&mut self, now: Nanos) {
        if self.session.wants_count() {
            self.session.count(self.rx_packets, now);
        }
        self.session.tick(now);
    }

    fn next_event(&self) -> Option<Nanos> {
        self.session.next_event()
    }

    fn take_frame(&mut self) -> Option<(usize, Vec<u8>)> {
        self.session.take_frame().map(|frame| (0, frame))
    }
}

/// Two ends with a link that takes a millisecond. They count from 0; their discriminators are 10
/// and 20.
pub(super) fn pair(seed: u64, one: &Config, other: &Config) -> Network<End> {
    let mut network = Network::new(seed);
    network.add(End::new(10, one));
    network.add(End::new(20, other));
    network.connect(&[(0, 0), (1, 0)], Quality::delay(MS));
    network
}

/// A pair that is up.
pub(super) fn pair_up(one: &Config, other: &Config) -> Network<End> {
    let mut network = pair(1, one, other);
    network.run_for(SECOND * 5);
    assert_eq!(states(&network), [State::Up, State::Up]);
    network
}

pub(super) fn states(network: &Network<End>) -> [State; 2] {
    [0, 1].map(|number| network.node(number).session.status().state)
}

/// A packet that a peer with discriminator 20 would send to session 10.
pub(super) fn packet(state: State) -> Packet {
    Packet {
        diagnostic: 0,
        state,
        poll: false,
        is_final: false,
        control_plane_independent: false,
        demand: false,
        multiplier: 3,
        my_discriminator: 20,
        your_discriminator: 10,
        desired_min_tx: 100_000,
        required_min_rx: 100_000,
        required_min_echo_rx: 0,
    }
}

pub(super) fn frame(packet: &Packet) -> Vec<u8> {
    let addresses = Addresses {
        src_mac: MacAddr([2, 0, 0, 0, 0, 20]),
        dst_mac: DEFAULT_DESTINATION_MAC,
        src: DEFAULT_SOURCE,
        dst: DEFAULT_DESTINATION,
        src_port: 50000,
    };
    datagram::emit(&addresses, packet)
}

/// The frames that both ends have sent, as packets, since the network records.
pub(super) fn recorded(network: &mut Network<End>) -> Vec<(usize, Nanos, Packet)> {
    let sent = network.recorded();
    sent.iter()
        .filter_map(|sent| Some((sent.from.0, sent.at, datagram::parse(&sent.frame).ok()?)))
        .collect()
}
