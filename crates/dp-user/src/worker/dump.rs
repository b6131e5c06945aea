//! Copies of all megaflows for who asks, a chunk a turn.

use super::Worker;
use dp::{FlowDump, FlowStats};
use nanos::Nanos;
use std::sync::mpsc::Sender;

/// A dump of megaflows under way.
pub(super) struct Dump {
    /// The next offloaded flow whose packets are added to its megaflow.
    offloaded: Option<u32>,
    /// The next megaflow.
    next: u32,
    to: Sender<Vec<FlowDump>>,
}

impl Dump {
    pub(super) fn new(to: Sender<Vec<FlowDump>>) -> Dump {
        Dump {
            offloaded: Some(0),
            next: 0,
            to,
        }
    }
}

impl Worker {
    /// Goes on with the dumps under way by a chunk each.
    pub(super) fn dump(&mut self, now: Nanos) {
        for dump in &mut self.control.dumps {
            dump.offloaded = dump.offloaded.and_then(|first| self.pipeline.tell_carried(first));
        }
        let flows = self.pipeline.flows();
        let worker = self.number;
        self.control.dumps.retain_mut(|dump| {
            if dump.offloaded.is_some() {
                return true;
            }
            let mut chunk = Vec::new();
            let next = flows.walk(dump.next, |number, flow, key, mask| {
                chunk.push(FlowDump {
                    offloaded: flows.offloaded_of(number),
                    key: *key,
                    mask: *mask,
                    actions: flow.actions().0.clone(),
                    drop: flow.drop,
                    stats: FlowStats {
                        packets: flow.packets,
                        bytes: flow.bytes,
                        idle: (flow.packets > 0).then(|| now.since(flow.used)),
                    },
                    worker,
                });
            });
            dump.next = next.unwrap_or(u32::MAX);
            dump.to.send(chunk).is_ok() && next.is_some()
        });
    }
}
