//! Frames of control protocols on their way from the workers to the protocols' thread.
//!
//! They have a queue of their own, so that packets for controllers and samples never delay a hello.

use crate::fair_queue::FairQueue;
use dp::{Punt, PuntReason};
use parking_lot::{Condvar, Mutex};
use std::time::Instant;
use switch::tables::ControlPort;

/// Length of the queue at most, and frames of one port at most.
const MOST: usize = 4096;
const MOST_OF_PORT: usize = 256;

/// A received frame.
pub(crate) struct Frame {
    pub(crate) at: ControlPort,
    pub(crate) reason: PuntReason,
    /// From the Ethernet header on.
    pub(crate) data: Box<[u8]>,
}

/// The queue, and what wakes its reader.
pub(crate) struct Frames {
    queue: Mutex<Waiting>,
    arrived: Condvar,
}

struct Waiting {
    frames: FairQueue<ControlPort, Frame>,
    /// There is something to do beside frames.
    called: bool,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            queue: Mutex::new(Waiting {
                frames: FairQueue::new(MOST, MOST_OF_PORT),
                called: false,
            }),
            arrived: Condvar::new(),
        }
    }
}

impl Frames {
    /// Queues a copy of a frame. `false` if there is no room.
    pub(crate) fn push(&self, punt: &Punt<'_>) -> bool {
        let at = ControlPort::of(punt.handle);
        let mut queue = self.queue.lock();
        let room = queue.frames.has_room(at);
        if room {
            let frame = Frame {
                at,
                reason: punt.reason,
                data: punt.packet.into(),
            };
            queue.frames.push(at, frame);
            // The reader must not find the lock held.
            drop(queue);
            self.arrived.notify_one();
        }
        room
    }

    /// Takes up to `most` frames.
    pub(crate) fn take(&self, most: usize) -> Vec<Frame> {
        let mut queue = self.queue.lock();
        std::iter::from_fn(|| queue.frames.pop()).take(most).collect()
    }

    /// Ends [`Frames::wait`] of the reader, at once or at its next call.
    pub(crate) fn call(&self) {
        self.queue.lock().called = true;
        self.arrived.notify_one();
    }

    /// Waits until a frame has come, [`Frames::call`] was called, or the time has come.
    pub(crate) fn wait(&self, until: Option<Instant>) {
        let mut queue = self.queue.lock();
        while queue.frames.is_empty() && !std::mem::take(&mut queue.called) {
            match until {
                None => self.arrived.wait(&mut queue),
                Some(until) => {
                    if self.arrived.wait_until(&mut queue, until).timed_out() {
                        return;
                    }
                }
            }
        }
    }
}
