//! Stage 8: transmit ports and their schedulers.

use super::Pipeline;
use crate::device_facts::DeviceFacts;
use crate::poll::Poller;
use crate::scheduled::PortQueue;
use crate::stats::PortStats;
use flow::PortNo;
use nanos::Nanos;
use netdev::{Netdev, Tx};
use qos::{ConfigError, PortConfig};
use std::sync::Arc;

impl Pipeline {
    pub(crate) fn add_tx_port(
        &mut self,
        port: PortNo,
        device: Arc<dyn Netdev>,
        facts: DeviceFacts,
        tx: Option<Box<dyn Tx>>,
        stats: Arc<PortStats>,
    ) {
        self.flows.add_owner(port);
        self.actor.egress.add(port, device, facts.speed, tx, stats);
    }

    /// A port that has no way to send, and is to be given one by [`Pipeline::opened`].
    #[inline]
    pub(crate) fn take_closed(&mut self) -> Option<(PortNo, Arc<dyn Netdev>)> {
        self.actor.egress.take_closed()
    }

    /// Gives a port the device's sender. Returns the sender that the caller has to close: the
    /// port's previous one, or this one if the port has gone.
    pub(crate) fn opened(&mut self, port: PortNo, tx: Box<dyn Tx>) -> Option<Box<dyn Tx>> {
        self.actor.egress.opened(port, tx)
    }

    /// Schedules what leaves a port, or changes how; `None` sends it as it comes, once what is
    /// queued has gone.
    ///
    /// # Errors
    /// What the discipline refuses.
    pub fn set_qos(&mut self, port: PortNo, config: Option<&PortConfig>, now: Nanos) -> Result<(), ConfigError> {
        let egress = &self.actor.egress;
        let Some(device) = egress.device(port) else {
            return Ok(());
        };
        let queue = match (egress.port_queue(port), config) {
            (Some(queue), Some(config)) => {
                queue.reconfigure(config, now, &mut |cause| self.stats.count_drop(cause))?;
                queue
            }
            (Some(queue), None) => {
                queue.release(now);
                queue
            }
            (None, Some(config)) => Arc::new(PortQueue::new(&*device, config)?),
            (None, None) => return Ok(()),
        };
        self.schedule(port, queue, now);
        Ok(())
    }

    /// Sends what schedulers have held back until now.
    #[inline]
    pub fn pace(&mut self, now: Nanos) {
        self.actor.egress.pace(&self.stats, now);
    }

    /// When [`Pipeline::pace`] wants to be called next, if ever; may be too early.
    #[inline]
    pub fn due(&self) -> Option<Nanos> {
        self.actor.egress.due()
    }

    pub(crate) fn schedule(&mut self, port: PortNo, queue: Arc<PortQueue>, now: Nanos) {
        self.stop_offloaded(port);
        self.actor.egress.schedule(port, queue, &self.stats, now);
    }

    pub(crate) fn resume(&mut self, place: u32, now: Nanos) {
        self.actor.egress.resume(place, &self.stats, now);
    }

    #[inline]
    pub(crate) fn watch(&mut self, poller: &Poller, flag: u64) {
        self.actor.egress.watch(poller, flag);
    }
}
