//! Learning packets: after a failover of a bond its other end learns where stations are now.

use super::Protocols;
use super::ports::Ports;
use wire::{EtherType, MacAddr, Vid};

/// Learning packets that a change of a bond sends at most.
const MOST_LEARNING: usize = 8192;

/// A bond whose other end must learn the bridge's stations again.
pub(super) struct Announcement {
    pub(super) bridge: String,
    pub(super) port: String,
    pub(super) choose: ChooseMember,
}

/// The member by which a station in a VLAN is reached.
pub(crate) type ChooseMember = Box<dyn Fn(MacAddr, Vid) -> Option<String>>;

impl Protocols {
    /// Sends the learning packets of a bond.
    pub(super) fn announce(&self, ports: &Ports, of: &Announcement) {
        let frames: Vec<(String, Vec<u8>)> = {
            let switch = self.shared.switch.read();
            let Some(bridge) = switch.bridge(&of.bridge) else {
                return;
            };
            let stations = bridge.entries(self.shared.clock.now());
            let stations = stations.filter(|station| station.port != of.port);
            stations
                .filter_map(|station| {
                    let tag = bridge.tag_at(&of.port, station.vlan)?;
                    let member = (of.choose)(station.mac, station.vlan)?;
                    Some((member, learning_packet(station.mac, tag)))
                })
                .take(MOST_LEARNING)
                .collect()
        };
        tracing::debug!(target: "ofproto_dpif", "bond {}: sent {} gratuitous learning packets", of.port, frames.len());
        for (member, frame) in frames {
            if let Some(facts) = ports.get(&member) {
                self.send(facts, &frame, false);
            }
        }
    }
}

/// A broadcast from a station (RARP, RFC 903, as Open vSwitch sends): switches learn from its
/// source where the station is, and hosts ignore it.
fn learning_packet(station: MacAddr, tag: Option<Vid>) -> Vec<u8> {
    const RARP: u16 = 0x8035;
    const REQUEST: u16 = 3;
    let mut frame = Vec::with_capacity(64);
    frame.extend(MacAddr::BROADCAST.0);
    frame.extend(station.0);
    if let Some(vid) = tag {
        frame.extend(EtherType::VLAN.0.to_be_bytes());
        frame.extend(vid.get().to_be_bytes());
    }
    frame.extend(RARP.to_be_bytes());
    frame.extend([0, 1, 8, 0, 6, 4]);
    frame.extend(REQUEST.to_be_bytes());
    for address in [station.0; 2] {
        frame.extend(address);
        frame.extend([0; 4]);
    }
    frame.resize(frame.len().max(60), 0);
    frame
}
