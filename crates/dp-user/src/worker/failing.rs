//! Queues that bring nothing, or errors.
//!
//! After [`PATIENCE`] fruitless attempts a queue is *parked*, taken out of epoll, and tried again
//! after a rest, which doubles each time, up to a second. The first rests are short because the
//! queue may be healthy: the kernel can report a ring before it has copied a packet into it, and
//! that copy may be interrupted.
//!
//! A queue whose device has vanished is closed and reported once; another thread asks the kernel
//! about that, since it may take long.

use super::{Queue, Worker};
use crate::devices::{Request, What};
use crate::poll::Poller;
use flow::PortNo;
use nanos::Nanos;
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// Errors, or wake-ups without a packet, in a row before a queue is parked.
const PATIENCE: u32 = 16;

/// How long a parked queue rests the first time.
const SHORTEST_REST: Duration = Duration::from_micros(50);

/// How long a parked queue rests at most.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// Fruitless attempts that are further apart than this, such as a link that goes down now and then,
/// are not counted as in a row. Longer than the longest rest.
const UNRELATED: Duration = Duration::from_secs(3);

impl Worker {
    #[cold]
    pub(super) fn received_nothing(&mut self, place: usize, now: Nanos) {
        if let Some(queue) = self.queues[place].as_mut().filter(|queue| !queue.gone) {
            if now.since(queue.last_fruitless) > UNRELATED {
                queue.fruitless = 0;
            }
            queue.last_fruitless = now;
            queue.fruitless += 1;
            // A device that goes away wakes its queue twice at most, for going down and for going.
            // One that keeps failing may have vanished since the last check.
            let suspect = queue.fruitless <= 4 || queue.fruitless > PATIENCE;
            if suspect && !std::mem::replace(&mut queue.checked, true) {
                self.devices.ask(Request {
                    port: queue.rx_queue.port,
                    device: queue.device.clone(),
                    what: What::Check {
                        queue: queue.number,
                        ifindex: queue.ifindex,
                    },
                    to: self.control.commands.clone(),
                });
            }
            if queue.fruitless > PATIENCE {
                queue.park(&self.poller, now);
            }
        }
    }

    /// Hears whether the device of a queue has vanished.
    pub(super) fn checked(&mut self, port: PortNo, number: u32, vanished: bool) {
        let is_it = |queue: &Queue| queue.rx_queue.port == port && queue.number == number;
        let place = self.queues.iter().position(|place| place.as_ref().is_some_and(is_it));
        let Some(place) = place else { return };
        if let Some(queue) = &mut self.queues[place] {
            queue.checked = false;
            if vanished && !queue.gone {
                self.gone(place);
            }
        }
    }

    #[cold]
    pub(super) fn receive_failed(&mut self, place: usize, error: &io::Error, now: Nanos) {
        let errno = Errno::from_io_error(error);
        let Some(queue) = self.queues[place].as_mut().filter(|queue| !queue.gone) else {
            return;
        };
        if !matches!(errno, Some(Errno::AGAIN | Errno::INTR))
            && let Some(stats) = &queue.rx_queue.source.stats
        {
            stats.rx_errors.add(1);
        }
        if matches!(errno, Some(Errno::NODEV | Errno::NXIO | Errno::BADFD)) {
            self.gone(place);
        } else {
            self.received_nothing(place, now);
        }
    }

    /// Lets a queue whose device has vanished be silent until its port is removed.
    pub(super) fn gone(&mut self, place: usize) {
        if let Some(queue) = &mut self.queues[place] {
            self.poller.remove(queue.rx_queue.rx.fd());
            queue.parked = None;
            queue.gone = true;
            self.slowpath.port_failed(queue.rx_queue.port);
        }
    }

    /// Tries again the queues that have rested.
    pub(super) fn unpark(&mut self, now: Nanos) {
        for place in 0..self.queues.len() {
            let Some(queue) = &mut self.queues[place] else {
                continue;
            };
            if queue.parked.is_none_or(|until| until > now) {
                continue;
            }
            // One more fruitless attempt parks it again, for longer.
            queue.parked = None;
            if self.poller.add(queue.rx_queue.rx.fd(), place as u64).is_err() {
                queue.parked = Some(now + LONGEST_REST);
            }
        }
    }
}

impl Queue {
    /// Lets the queue rest, so that what it keeps reporting wakes nobody.
    fn park(&mut self, poller: &Poller, now: Nanos) {
        poller.remove(self.rx_queue.rx.fd());
        self.parked = Some(now + rest_after(self.fruitless));
    }
}

/// How long a queue rests after so many fruitless attempts.
fn rest_after(fruitless: u32) -> Duration {
    let doublings = fruitless.saturating_sub(PATIENCE + 1).min(31);
    SHORTEST_REST.saturating_mul(1 << doublings).min(LONGEST_REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rest_is_short_and_each_further_one_twice_as_long_up_to_a_second() {
        assert_eq!(rest_after(PATIENCE + 1), SHORTEST_REST);
        assert_eq!(rest_after(PATIENCE + 2), SHORTEST_REST * 2);
        assert_eq!(rest_after(PATIENCE + 11), SHORTEST_REST * 1024);
        assert_eq!(rest_after(PATIENCE + 16), LONGEST_REST);
        assert_eq!(rest_after(u32::MAX), LONGEST_REST);
    }
}
