//! The environment of agents: their interface to the daemon.

use crate::state::State;
use crate::{connections, dummy_port, left_flows};
use dp::{Change, MeterStats, PortNo};
use nanos::Nanos;
use ofproto::{Env, PortCounters, QueueInfo};
use openflow::OfError;
use openflow::model::{CtFlush, IpfixStats};
use switch::Switch;
use switch::tables::{MeterChange, Patience, Translated};

impl Env for State {
    fn look<R>(&self, look: impl FnOnce(&Switch) -> R) -> R {
        look(&self.shared.switch.read())
    }

    fn change<R>(&self, change: impl FnOnce(&mut Switch, Nanos) -> (R, Vec<Change>)) -> R {
        let (mut result, mut changed) = (None, false);
        let inherits = self.inheritance.borrow().is_some();
        self.shared.update(|switch, now| {
            let (value, stale) = change(switch, now);
            result = Some(value);
            // The greeting of a controller changes what becomes of misses.
            changed = inherits && !stale.is_empty() && has_rules(switch);
            stale
        });
        if changed {
            left_flows::end(self, "rules have changed");
        }
        match result {
            Some(value) => value,
            None => unreachable!("an update runs what it is given"),
        }
    }

    fn change_meters(
        &self,
        change: impl FnOnce(&mut Switch, Nanos) -> Result<(Vec<Change>, Vec<MeterChange>), OfError>,
    ) -> Result<(), OfError> {
        let told = Env::change(self, |switch, now| match change(switch, now) {
            Ok((stale, told)) => {
                self.set_meters(&told);
                (Ok(told), stale)
            }
            Err(error) => (Err(error), Vec::new()),
        })?;
        self.forget_meters(&told);
        Ok(())
    }

    fn meter_stats(&self, number: u32) -> MeterStats {
        self.dp().meter_stats(number).unwrap_or_default()
    }

    fn push_statistics(&self) {
        self.collect_statistics();
    }

    fn port_counters(&self, interface: &str) -> Option<PortCounters> {
        let bridges = self.bridges.borrow();
        let name = interface;
        let interface = bridges.interface(name)?;
        if interface.tunnel.is_some() || interface.peer.is_some() {
            let counts = self.shared.switch.read().counts_of_port(name);
            return Some(PortCounters {
                rx_packets: counts.rx_packets,
                tx_packets: counts.tx_packets,
                rx_bytes: counts.rx_bytes,
                tx_bytes: counts.tx_bytes,
                rx_dropped: u64::MAX,
                tx_dropped: u64::MAX,
                rx_errors: u64::MAX,
                tx_errors: u64::MAX,
                rx_over_errors: u64::MAX,
                custom: Vec::new(),
            });
        }
        let counters = self.dp().port_counters(interface.port?)?;
        let lost = interface
            .device
            .as_ref()
            .map(|device| device.drops())
            .unwrap_or_default();
        let counted = PortCounters {
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            rx_bytes: counters.rx_bytes,
            tx_bytes: counters.tx_bytes,
            rx_dropped: counters.rx_dropped,
            tx_dropped: counters.tx_dropped,
            rx_errors: counters.rx_errors,
            tx_errors: counters.tx_errors,
            rx_over_errors: lost.queue_full,
            custom: Vec::new(),
        };
        let dummy = interface.device.as_ref().and_then(|device| device.as_dummy());
        Some(match dummy {
            None => counted,
            Some(dummy) => PortCounters {
                rx_dropped: u64::MAX,
                tx_dropped: u64::MAX,
                rx_errors: u64::MAX,
                tx_errors: u64::MAX,
                rx_over_errors: u64::MAX,
                custom: dummy_port::counters(&counters, dummy.queues()),
                ..counted
            },
        })
    }

    fn ipfix(&self, bridge: &str, sets: bool) -> Vec<IpfixStats> {
        self.exports.ipfix_statistics(bridge, sets)
    }

    fn queues(&self, interface: &str) -> Vec<QueueInfo> {
        let bridges = self.bridges.borrow();
        let Some(state) = bridges.interface(interface) else {
            return Vec::new();
        };
        let report = state.port.and_then(|port| self.dp().qos(port));
        let queues = bridges.qos(interface).map(|qos| qos.queues(report.as_ref()));
        let queues = queues.unwrap_or_default();
        let is_dummy = state.device.as_ref().is_some_and(|device| device.as_dummy().is_some());
        if !queues.is_empty() || !is_dummy {
            return queues;
        }
        // Test benches expect what Open vSwitch's dummies have: one queue without counters.
        vec![QueueInfo {
            number: 0,
            min_rate: None,
            max_rate: None,
            tx_packets: u64::MAX,
            tx_bytes: u64::MAX,
            tx_errors: u64::MAX,
            since: None,
        }]
    }

    fn send(
        &self,
        in_port: PortNo,
        packet: &[u8],
        translate: impl Fn(&Switch, Nanos, Patience<'_>) -> Option<Option<Translated>>,
    ) -> bool {
        self.shared.send(self.dp(), in_port, packet, translate)
    }

    fn flush_connections(&self, flush: &CtFlush) {
        // As in Open vSwitch, a flush of a connection that does not exist is no error.
        connections::flush(self.dp().conntrack(), flush, self.dp().now());
    }

    fn set_port_up(&self, interface: &str, up: bool) -> Result<(), String> {
        let device = {
            let bridges = self.bridges.borrow();
            let interface = bridges.interface(interface);
            interface.and_then(|interface| interface.device.clone())
        };
        let device = device.ok_or_else(|| format!("{interface}: there is no device"))?;
        device.set_up(up).map_err(|error| format!("{interface}: {error}"))?;
        self.recheck.notify_one();
        Ok(())
    }
}

/// Whether some bridge has rules.
fn has_rules(switch: &Switch) -> bool {
    let mut bridges = switch.bridge_names().filter_map(|name| switch.bridge(name));
    bridges.any(|bridge| !bridge.tables().is_empty())
}

impl State {
    /// Sets new and changed meters in the datapath.
    fn set_meters(&self, told: &[MeterChange]) {
        for change in told {
            if let MeterChange::Set { number, config } = change
                && let Err(error) = self.dp().set_meter(*number, config)
            {
                tracing::error!(target: "ofproto", "meter {number}: {error}");
            }
        }
    }

    /// Removes meters from the datapath and frees their numbers.
    fn forget_meters(&self, told: &[MeterChange]) {
        for change in told {
            if let MeterChange::Delete { number } = change {
                self.dp().del_meter(*number);
            }
        }
        Env::change(self, |switch, _| (switch.meters_deleted(told), Vec::new()));
    }

    /// Forgets the meters of bridges that are gone.
    pub(crate) fn forget_dead_meters(&self) {
        let dead = Env::change(self, |switch, _| (switch.take_meter_changes(), Vec::new()));
        if !dead.is_empty() {
            self.forget_meters(&dead);
        }
    }
}
