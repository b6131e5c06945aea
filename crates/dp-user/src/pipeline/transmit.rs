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

    /// Gives a port its device's transmit handle. Returns the handle that the caller has to close:
    /// the port's previous one, or this one if the port has gone or has another device now.
    pub(crate) fn opened(&mut self, port: PortNo, device: &Arc<dyn Netdev>, tx: Box<dyn Tx>) -> Option<Box<dyn Tx>> {
        self.actor.egress.opened(port, device, tx)
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

#[cfg(test)]
mod tests {
    use super::*;
    use dp::{Answer, Changes, Effect, Slowpath, Translation, Upcall};
    use netdev::Dummy;
    use std::collections::BTreeMap;
    use std::time::Duration;

    struct NoSlowpath;

    impl Slowpath for NoSlowpath {
        fn try_upcall(&self, _: &Upcall<'_>, _: Nanos) -> Answer {
            Answer::Later
        }

        fn upcall(&self, _: &Upcall<'_>, _: Nanos) -> Translation {
            unreachable!("no packet comes")
        }

        fn refresh(&self, _: &[Effect], _: Nanos) {}

        fn port_failed(&self, _: PortNo) {}
    }

    #[test]
    fn a_transmit_handle_of_the_ports_former_device_is_not_taken() {
        let device = |name: &str| -> Arc<dyn Netdev> { Arc::new(Dummy::open(name, &BTreeMap::new()).unwrap()) };
        let (former, present) = (device("former"), device("present"));
        let changes = Arc::new(Changes::new());
        let mut pipeline = Pipeline::new(10, Duration::from_secs(10), Arc::new(NoSlowpath), changes);
        pipeline.add_port(PortNo(1), present.clone());
        let late = former.open_tx().unwrap();
        let late_is = std::ptr::from_ref(&*late).cast::<()>();
        let unused = pipeline.opened(PortNo(1), &former, late).expect("the former device's");
        assert_eq!(std::ptr::from_ref(&*unused).cast::<()>(), late_is);
        let handle = present.open_tx().unwrap();
        let handle_is = std::ptr::from_ref(&*handle).cast::<()>();
        let previous = pipeline.opened(PortNo(1), &present, handle);
        assert!(previous.is_none_or(|previous| std::ptr::from_ref(&*previous).cast::<()>() != handle_is));
        assert!(pipeline.opened(PortNo(2), &present, unused).is_some(), "no such port");
    }
}
