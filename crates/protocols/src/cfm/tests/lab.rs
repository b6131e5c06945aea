//! Maintenance points in a simulated network.

use crate::cfm::{Config, Interval, MaintenancePoint, VlanTagging};
use nanos::Nanos;
use std::time::Duration;
use testkit::network::{Network, Node, Quality};
use wire::{MacAddr, Vid};

pub(super) const MS: Duration = Duration::from_millis(1);

pub(super) fn config(point: u64, millis: u32, extended: bool) -> Config {
    Config {
        point,
        extended,
        interval: Interval::of(millis, extended),
        demand: false,
        up: true,
        vlan: VlanTagging::Vlan(Vid::NONE),
        priority: 0,
        mac: MacAddr([2, 0, 0, 0, 0, point as u8]),
    }
}

/// A maintenance point with its interface's counter of received packets.
pub(super) struct End {
    pub(super) point: MaintenancePoint,
    pub(super) rx_packets: u64,
}

impl Node for End {
    fn receive(&mut self, _port: usize, frame: &[u8], _now: Nanos) {
        self.rx_packets += 1;
        self.point.receive(frame);
    }

    fn tick(&mut self, now: Nanos) {
        self.point.tick(self.rx_packets, now);
    }

    fn next_event(&self) -> Option<Nanos> {
        Some(self.point.next_event())
    }

    fn take_frame(&mut self) -> Option<(usize, Vec<u8>)> {
        self.point.take_frame().map(|frame| (0, frame))
    }
}

/// Ends that share a segment.
pub(super) fn network(configs: &[Config]) -> Network<End> {
    let mut network = Network::new(1);
    let mut ends = Vec::new();
    for config in configs {
        let point = MaintenancePoint::new(config, 1, Nanos::ZERO);
        ends.push((network.add(End { point, rx_packets: 0 }), 0));
    }
    network.connect(&ends, Quality::delay(MS));
    network
}

pub(super) fn silent() -> Quality {
    Quality {
        loss: 100,
        ..Quality::delay(MS)
    }
}

/// The faults of an end, by name.
pub(super) fn faults(network: &Network<End>, end: usize) -> String {
    network.node(end).point.faults().to_string()
}
