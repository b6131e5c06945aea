//! What the underlay says of packets of tunnels that are too big, on its way to the switch.

use crate::state::State;
use netdev::HostTunnelConfig;
use parking_lot::Mutex;
use std::net::IpAddr;
use tokio::sync::Notify;

telemetry::counters! {
    /// ICMP errors that were not about a packet of a tunnel.
    IGNORED = "tunnel_path_mtus_ignored";
}

/// The length of the queue. What does not fit is told again by the next packet that is too big.
const MOST: usize = 256;

/// What was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TooBig {
    /// An ICMP error that came in by a bridge, from its IP header on.
    Error(Box<[u8]>),
    /// The host's stack has refused a packet of such tunnels to this destination with this mark.
    Refused(HostTunnelConfig, IpAddr, u32),
}

/// The queue, from workers to the daemon's thread.
#[derive(Default)]
pub(crate) struct PathMtus {
    queue: Mutex<Vec<TooBig>>,
    notify: Notify,
}

impl PathMtus {
    /// Queues what was told, unless it waits already. `false` if there is no room.
    pub(crate) fn push(&self, told: TooBig) -> bool {
        let mut queue = self.queue.lock();
        if queue.contains(&told) {
            return true;
        }
        let room = queue.len() < MOST;
        if room {
            queue.push(told);
            self.notify.notify_one();
        }
        room
    }

    /// Queues an ICMP error, which a frame has.
    pub(crate) fn push_frame(&self, frame: &[u8]) -> bool {
        let start = wire::headers::behind_tags(frame, usize::MAX).map_or(frame.len(), |(_, start)| start);
        self.push(TooBig::Error(frame[start.min(frame.len())..].into()))
    }

    /// Waits for something, and takes all.
    pub(crate) async fn take(&self) -> Vec<TooBig> {
        loop {
            let all: Vec<TooBig> = std::mem::take(&mut *self.queue.lock());
            if !all.is_empty() {
                return all;
            }
            self.notify.notified().await;
        }
    }
}

impl State {
    /// Learns from what was told.
    pub(crate) fn learn_path_mtus(&self, all: &[TooBig]) {
        for told in all {
            match told {
                TooBig::Error(packet) => {
                    // Translations go on meanwhile: anybody can send any number of these.
                    let told = self.shared.switch.read().path_mtu_told(packet);
                    match told {
                        Ok((destination, mtu)) => self.learn_path_mtu(destination, mtu),
                        Err(_) => IGNORED.inc(),
                    }
                }
                TooBig::Refused(config, destination, mark) => self.ask_for_path_mtu(*config, *destination, *mark),
            }
        }
    }

    fn learn_path_mtu(&self, destination: IpAddr, mtu: u16) {
        self.shared
            .update(|switch, now| switch.learn_path_mtu(destination, mtu, now));
    }

    /// Learns what the host's stack knows of the path to a destination.
    fn ask_for_path_mtu(&self, config: HostTunnelConfig, destination: IpAddr, mark: u32) {
        let mtu = match netdev::path_mtu(config, destination, mark) {
            Ok(mtu) => u16::try_from(mtu).unwrap_or(u16::MAX),
            Err(error) => {
                telemetry::warn_limited!(target: "tunnel", "{destination}: the kernel tells no path MTU: {error}");
                return;
            }
        };
        let of_device = {
            let switch = self.shared.switch.read();
            let underlay = switch.underlay();
            let route = underlay.routes.way(destination, mark, None);
            route.and_then(|route| underlay.mtus.get(&route.hop.device).copied())
        };
        if of_device.is_none_or(|own| mtu < own) {
            self.learn_path_mtu(destination, mtu);
        }
    }
}
