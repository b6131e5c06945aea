//! The daemon as agents need it.

use crate::state::State;
use dp::{Change, PortNo};
use ofproto::{Env, PortCounters};
use switch::Switch;
use switch::tables::Translated;
use wire::Nanos;

impl Env for State {
    fn look<R>(&self, look: impl FnOnce(&Switch) -> R) -> R {
        look(&self.shared.switch.read())
    }

    fn change<R>(&self, change: impl FnOnce(&mut Switch, Nanos) -> (R, Vec<Change>)) -> R {
        let mut result = None;
        self.shared.update(|switch, now| {
            let (value, stale) = change(switch, now);
            result = Some(value);
            stale
        });
        match result {
            Some(value) => value,
            None => unreachable!("an update runs what it is given"),
        }
    }

    fn push_statistics(&self) {
        self.dp().push_stats();
    }

    fn port_counters(&self, interface: &str) -> Option<PortCounters> {
        let bridges = self.bridges.borrow();
        let interface = bridges.interface(interface)?;
        let counters = self.dp().port_counters(interface.port?)?;
        let lost = interface
            .device
            .as_ref()
            .map(|device| device.drops())
            .unwrap_or_default();
        Some(PortCounters {
            rx_packets: counters.rx_packets,
            tx_packets: counters.tx_packets,
            rx_bytes: counters.rx_bytes,
            tx_bytes: counters.tx_bytes,
            rx_dropped: counters.rx_dropped,
            tx_dropped: counters.tx_dropped,
            rx_errors: counters.rx_errors,
            tx_errors: counters.tx_errors,
            rx_over_errors: lost.queue_full,
        })
    }

    fn execute(&self, in_port: PortNo, packet: &[u8], translated: &Translated) {
        self.shared.accept(translated);
        self.dp().execute(in_port, packet, &translated.translation.actions);
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
