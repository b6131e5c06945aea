//! The queue of samples from workers to exporters, apart from the one of packets for controllers.
//!
//! Workers do not wait: a sample that there is no room for is counted and dropped. They do not wake
//! anybody for each sample either, which would cost more than all the rest: the exporters look by
//! themselves some times a second, and are woken when the queue fills up.

use dp::{PortNo, Punt};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use switch::tables::{Context, OuterHeaders, Sampled, Translated};
use tokio::sync::Notify;

/// The length of the queue, and the bytes that it holds at most.
const MOST: usize = 4096;
const MOST_BYTES: usize = 4 << 20;

/// The exporters are woken for so many samples. The rest of the queue is for the time that the
/// control thread takes to come: it shares the processors with all that sends and receives.
const MANY: usize = 256;

/// Samples, and what their handles stand for.
#[derive(Default)]
pub(crate) struct Samples {
    meanings: RwLock<HashMap<u32, Sampled>>,
    queue: Mutex<Queue>,
    notify: Notify,
}

/// A sample.
pub(crate) struct Sample {
    pub(crate) meaning: Sampled,
    pub(crate) in_port: PortNo,
    pub(crate) packet: Box<[u8]>,
    pub(crate) total_len: usize,
    /// The outer headers of a packet from a tunnel.
    pub(crate) outer: Option<OuterHeaders>,
}

#[derive(Default)]
struct Queue {
    samples: Vec<Sample>,
    bytes: usize,
    /// The samples of each port.
    ports: HashMap<PortNo, usize>,
}

impl Samples {
    /// Notes the contexts of a translation that the switch has accepted.
    pub(crate) fn know(&self, translated: &Translated) {
        let sampled = |(handle, context): &(u32, std::sync::Arc<Context>)| match **context {
            Context::Sampled(ref sampled) => Some((*handle, sampled.clone())),
            _ => None,
        };
        let mut new = translated.contexts.iter().filter_map(sampled).peekable();
        if new.peek().is_some() {
            self.meanings.write().extend(new);
        }
    }

    /// Removes handles that the switch has freed.
    pub(crate) fn forget(&self, handles: &[u32]) {
        if handles.is_empty() || self.meanings.read().is_empty() {
            return;
        }
        let mut known = self.meanings.write();
        for handle in handles {
            known.remove(handle);
        }
    }

    /// Queues a sample. `false` if there is no room, or its handle is not known.
    pub(crate) fn push(&self, punt: &Punt<'_>) -> bool {
        let meaning = self.meanings.read().get(&punt.handle).cloned();
        let Some(meaning) = meaning else {
            return false;
        };
        let mut queue = self.queue.lock();
        let (len, bytes) = (queue.samples.len(), queue.bytes);
        let own = queue.ports.entry(punt.in_port).or_default();
        // The last quarter is for ports with few samples in it.
        let most = if *own < MOST / 64 { MOST } else { MOST / 4 * 3 };
        if len >= most || bytes >= MOST_BYTES {
            return false;
        }
        *own += 1;
        queue.bytes += punt.packet.len();
        queue.samples.push(Sample {
            outer: punt.tunnel.filter(|_| meaning.from.is_some()).map(OuterHeaders::from),
            in_port: meaning.in_port.unwrap_or(punt.in_port),
            meaning,
            packet: punt.packet.into(),
            total_len: punt.total_len,
        });
        if queue.samples.len() == MANY {
            self.notify.notify_one();
        }
        true
    }

    /// Takes all samples.
    pub(crate) fn take(&self) -> Vec<Sample> {
        let mut queue = self.queue.lock();
        queue.bytes = 0;
        queue.ports.clear();
        std::mem::take(&mut queue.samples)
    }

    /// Waits until there are many samples.
    pub(crate) async fn many(&self) {
        self.notify.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dp::SampleData;
    use std::sync::Arc;

    fn known(samples: &Samples, handle: u32) {
        let mut switch = switch::Switch::new(1);
        switch.configure(switch::SwitchConfig::default(), nanos::Nanos(0));
        let upcall = dp::Upcall::new(&flow::Key::ZERO, &[]);
        let patience = switch::tables::Patience::Whole;
        let mut translated = switch.translate(&upcall, nanos::Nanos(0), patience).unwrap();
        let data = SampleData::Ipfix {
            output_port: 1,
            dropped: false,
        };
        let meaning = Sampled {
            bridge: 1,
            data,
            in_port: None,
            from: None,
            to: None,
        };
        translated.contexts = vec![(handle, Arc::new(Context::Sampled(meaning)))];
        samples.know(&translated);
    }

    fn punt(handle: u32, packet: &[u8]) -> Punt<'_> {
        Punt {
            reason: dp::PuntReason::Sample,
            handle,
            in_port: PortNo(1),
            packet,
            total_len: 2000,
            mark: 0,
            tunnel: None,
        }
    }

    #[test]
    fn samples_are_bounded_in_number_and_in_bytes_and_by_port() {
        for (len, room) in [(64, MOST / 4 * 3), (1500, MOST_BYTES / 1500 + 1)] {
            let samples = Samples::default();
            assert!(!samples.push(&punt(7, &[])), "nobody knows the handle");
            known(&samples, 7);
            let packet = vec![0; len];
            let taken = (0..2 * MOST).filter(|_| samples.push(&punt(7, &packet))).count();
            assert_eq!(taken, room);
            let other = Punt {
                in_port: PortNo(2),
                ..punt(7, &packet)
            };
            assert_eq!(samples.push(&other), len == 64);
            samples.forget(&[7]);
            assert!(!samples.push(&punt(7, &packet)));
        }
    }
}
