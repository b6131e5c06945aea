//! Between stages 1 and 2, for a port that has them: the ingress shaper and policer.

use super::Pipeline;
use crate::batch::{BATCH, Batch};
use crate::rx_queue::RxQueue;
use crate::stats::DropSink;
use nanos::Nanos;
use netdev::Frame;

impl Pipeline {
    /// Puts received frames into the ingress shaper, and leaves those that it releases now.
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

    /// Takes frames that have passed the ingress policer through the further stages, in batches: a
    /// policer cuts a long segment into packets, which may be more than a batch.
    pub(super) fn forward_released(&mut self, batch: &mut Batch, from: &mut RxQueue, now: Nanos) {
        while !batch.frames.is_empty() {
            let rest = match batch.frames.len() > BATCH {
                true => batch.frames.split_off(BATCH),
                false => Vec::new(),
            };
            self.forward(batch, from, now);
            batch.frames.clear();
            batch.frames.extend(rest);
            batch.received = Some(from.port);
        }
    }

    /// Takes a batch of the packets that a queue's ingress shaper releases now through all
    /// further stages.
    #[cold]
    pub(crate) fn release_ingress(&mut self, from: &mut RxQueue, now: Nanos) {
        self.apply_changes();
        self.upcalls.begin(from);
        if from.waits() {
            self.resume_queued(&mut from.source, now);
        }
        let mut batch = std::mem::take(&mut self.batch);
        from.due = None;
        batch.received = Some(from.port);
        self.pass_ingress(&mut batch.frames, from, now);
        self.forward_released(&mut batch, from, now);
        self.batch = batch;
        from.source.upcalls.end();
    }
}
