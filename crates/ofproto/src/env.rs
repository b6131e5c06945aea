//! What the agent needs of the world.

use dp::Change;
use flow::PortNo;
use openflow::OfError;
use switch::Switch;
use switch::tables::{MeterChange, Patience, Translated};
use wire::Nanos;

/// A port's counters, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

/// A queue of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its number.
    pub number: u32,
    /// What it is sure of, in tenths of a percent of the port's rate, where it was told.
    pub min_rate: Option<u16>,
    /// What it never exceeds, in tenths of a percent of the port's rate, where it was told.
    pub max_rate: Option<u16>,
    /// Packets that it has sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that it has dropped.
    pub tx_errors: u64,
    /// When it came.
    pub since: Nanos,
}

/// The switch around an agent. Every call is short.
pub trait Env {
    /// Looks at the switch.
    fn look<R>(&self, look: impl FnOnce(&Switch) -> R) -> R;

    /// Changes the switch. What the change makes stale, which it returns, is out of force when this
    /// returns.
    fn change<R>(&self, change: impl FnOnce(&mut Switch, Nanos) -> (R, Vec<Change>)) -> R;

    /// Changes meters: what the switch says is to be told the datapath, is told it, in the order
    /// that [`Switch::meter_mod`] asks for.
    ///
    /// # Errors
    /// Those of the change; nothing is changed then.
    fn change_meters(
        &self,
        change: impl FnOnce(&mut Switch, Nanos) -> Result<(Vec<Change>, Vec<MeterChange>), OfError>,
    ) -> Result<(), OfError>;

    /// What the datapath has measured by a meter of its own number.
    fn meter_stats(&self, number: u32) -> dp::MeterStats;

    /// Makes the statistics of rules what they are now: what datapaths have carried since they last
    /// said so is credited when this returns.
    fn push_statistics(&self);

    /// What an interface has carried; `None` where it has no counters.
    fn port_counters(&self, interface: &str) -> Option<PortCounters>;

    /// The queues of an interface, by number; none where it has no QoS.
    fn queues(&self, interface: &str) -> Vec<QueueInfo>;

    /// Translates a packet and has it go as that says, as if it had come in on a port of the
    /// datapath (0 where it came in on none). What else the translation asks for is done first.
    ///
    /// `translate` is called again where its patience is over (`Some(None)`), or where what it
    /// returned cannot be used any more. Where it returns `None`, there is no translation, and
    /// `false` is returned.
    fn send(
        &self,
        in_port: PortNo,
        packet: &[u8],
        translate: impl Fn(&Switch, Nanos, Patience<'_>) -> Option<Option<Translated>>,
    ) -> bool;

    /// Takes an interface up or down.
    ///
    /// # Errors
    /// Its text says why it cannot be done.
    fn set_port_up(&self, interface: &str, up: bool) -> Result<(), String>;

    /// A request was refused because a bridge does not have a feature, which `what` names in words
    /// for the log.
    fn unsupported(&self, _bridge: &str, _what: &'static str) {}
}
