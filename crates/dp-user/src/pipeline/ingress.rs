//! Between stages 1 and 2, for a port that has them: the ingress shaper and policer.

use super::Pipeline;
use crate::batch::{BATCH, Batch};
use crate::rx_queue::RxQueue;
use crate::stats::DropSink;
use nanos::Nanos;
use netdev::Frame;

impl Pipeline {
    /// Puts received frames into the ingress shaper and policer, and takes those that pass now
    /// through the further stages, in batches: a policer cuts a long segment into packets, which
    /// may be more than a batch.
    #[cold]
    pub(super) fn pass_ingress(&mut self, batch: &mut Batch, from: &mut RxQueue, now: Nanos) {
        self.shape(&mut batch.frames, from, now);
        let mut rest = batch.split_rest();
        while !batch.frames.is_empty() {
            self.forward(batch, from, now);
            batch.refill(&mut rest);
        }
    }

    /// Puts received frames into the ingress shaper and policer, and leaves those that pass now.
    fn shape(&mut self, frames: &mut Vec<Frame>, from: &mut RxQueue, now: Nanos) {
        let Some(ingress) = &from.ingress else {
            return;
        };
        let sink = DropSink {
            worker: &self.stats,
            port: from.source.stats.as_deref(),
        };
        let mut lost = |cause| {
            if let Some(stats) = sink.port {
                stats.rx_dropped.add(1);
            }
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
        self.pass_ingress(&mut batch, from, now);
        self.batch = batch;
        from.source.upcalls.end();
    }
}
