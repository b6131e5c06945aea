//! Packets that do not go their way at once: those that wait at the ingress shaper of the port they came by,
//! and at the scheduler of the one they leave by.

use super::{BATCH, Pipeline, RxQueue};
use crate::poll::Poller;
use crate::scheduled::PortQueue;
use crate::stats::DropSink;
use flow::PortNo;
use netdev::Frame;
use qos::{ConfigError, PortConfig};
use std::sync::Arc;
use wire::Nanos;

impl Pipeline {
    /// Between stages 1 and 2, for a port that has asked for it: leaves the frames that come
    /// through now.
    #[cold]
    pub(super) fn pass_ingress(&mut self, frames: &mut Vec<Frame>, from: &mut RxQueue, now: Nanos) {
        let Some(ingress) = &from.ingress else {
            return;
        };
        let sink = DropSink {
            worker: &self.stats,
            port: Some(&from.stats),
        };
        let mut lost = |cause| {
            from.stats.rx_dropped.add(1);
            sink.count(cause, 1);
        };
        let mut ingress = ingress.lock();
        from.due = ingress.pass(frames, BATCH, now, &mut lost);
        let open = ingress.is_open();
        drop(ingress);
        if open {
            from.ingress = None;
        }
    }

    /// Takes a batch of the packets that a queue's ingress shaper releases now through all further stages.
    #[cold]
    pub(crate) fn release_ingress(&mut self, from: &mut RxQueue, now: Nanos) {
        self.apply_changes();
        from.upcalls.begin(self.sharing, self.others);
        if from.waits() {
            self.go_on(from, now);
        }
        let mut batch = std::mem::take(&mut self.batch);
        from.due = None;
        self.pass_ingress(&mut batch.frames, from, now);
        if !batch.frames.is_empty() {
            self.forward(&mut batch, from, now);
        }
        self.batch = batch;
        from.upcalls.end();
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
        self.stop_shortcuts(port);
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
