//! A policer, driven as the schedulers are.

use crate::common::Parcel;
use qos::police::IngressPolicer;
use qos::{Cause, Dropped, Enqueued, Nanos, Scheduler, Single, Stats};

/// A policer with nothing behind it.
pub(crate) struct Policed {
    pub policer: IngressPolicer,
    pub behind: Single<Parcel>,
}

impl Scheduler<Parcel> for Policed {
    fn enqueue(&mut self, packet: Parcel, now: Nanos, dropped: &mut Dropped<'_, Parcel>) -> Enqueued {
        if self.policer.pass(packet.bytes, 1, now) {
            return self.behind.enqueue(packet, now, dropped);
        }
        dropped(packet, Cause::Policed);
        Enqueued::Dropped(Cause::Policed)
    }
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, Parcel>) -> Option<Parcel> {
        self.behind.dequeue(now, dropped)
    }
    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        self.behind.next_event(now)
    }
    fn packets(&self) -> u64 {
        self.behind.packets()
    }
    fn bytes(&self) -> u64 {
        self.behind.bytes()
    }
    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats)) {
        self.behind.each_queue(each);
    }
    fn drain(&mut self, each: &mut dyn FnMut(Parcel)) {
        self.behind.drain(each);
    }
}
