//! The interface through which the agent reaches the switch and the datapath.

use dp::Change;
use flow::PortNo;
use nanos::Nanos;
use openflow::OfError;
use openflow::model::{CtFlush, IpfixStats};
use switch::Switch;
use switch::tables::{MeterChange, Patience, Translated};

/// A port's counters since it was created; `u64::MAX` for those that its device does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PortCounters {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_over_errors: u64,
    /// Counters of the device's own, with their names; OpenFlow 1.4 and later.
    pub custom: Vec<(String, u64)>,
}

/// A queue of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its number.
    pub number: u32,
    /// Its guaranteed rate in tenths of a percent of the port's rate, if configured.
    pub min_rate: Option<u16>,
    /// Its maximum rate in tenths of a percent of the port's rate, if configured.
    pub max_rate: Option<u16>,
    /// Sent packets.
    pub tx_packets: u64,
    /// Sent bytes.
    pub tx_bytes: u64,
    /// Dropped packets.
    pub tx_errors: u64,
    /// When it was created, if that is known.
    pub since: Option<Nanos>,
}

/// The switch around an agent. Every call is short.
pub trait Env {
    /// Reads the switch.
    fn look<R>(&self, look: impl FnOnce(&Switch) -> R) -> R;

    /// Changes the switch. The megaflows that the change makes stale, which it returns, are out of
    /// force when this returns.
    fn change<R>(&self, change: impl FnOnce(&mut Switch, Nanos) -> (R, Vec<Change>)) -> R;

    /// Changes meters in the switch and then in the datapath, in the order that
    /// [`Switch::meter_mod`] asks for.
    ///
    /// # Errors
    /// The error of the change; nothing is changed then.
    fn change_meters(
        &self,
        change: impl FnOnce(&mut Switch, Nanos) -> Result<(Vec<Change>, Vec<MeterChange>), OfError>,
    ) -> Result<(), OfError>;

    /// The statistics of a meter, by its number in the datapath.
    fn meter_stats(&self, number: u32) -> dp::MeterStats;

    /// Collects the datapath's statistics: rules are credited with all packets so far when this
    /// returns.
    fn push_statistics(&self);

    /// The counters of an interface; `None` if it has none.
    fn port_counters(&self, interface: &str) -> Option<PortCounters>;

    /// The queues of an interface, by number; none where it has no QoS.
    fn queues(&self, interface: &str) -> Vec<QueueInfo>;

    /// Translates a packet and executes its actions, as if it had arrived on a port of the datapath
    /// (0: on none). Other effects of the translation are applied first.
    ///
    /// Calls `translate` again if its budget is exhausted (`Some(None)`), or if its result has
    /// become stale. If it returns `None` there is no translation, and this returns `false`.
    fn send(
        &self,
        in_port: PortNo,
        packet: &[u8],
        translate: impl Fn(&Switch, Nanos, Patience<'_>) -> Option<Option<Translated>>,
    ) -> bool;

    /// Removes the tracked connections that fit.
    fn flush_connections(&self, flush: &CtFlush);

    /// Sets an interface up or down.
    ///
    /// # Errors
    /// The reason as text.
    fn set_port_up(&self, interface: &str, up: bool) -> Result<(), String>;

    /// The statistics of a bridge's IPFIX, or of its sets of collectors for the action `sample`;
    /// empty where there is none.
    fn ipfix(&self, _bridge: &str, _sets: bool) -> Vec<IpfixStats> {
        Vec::new()
    }
}
