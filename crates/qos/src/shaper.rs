//! The speed of a port: a link of a given rate behind a scheduler.
//!
//! As with a Cisco switch's `speed 10`, each packet occupies the link for its time on an Ethernet
//! cable ([`LinkLayer::ETHERNET`]), and the shaper dequeues the next one only when the link is
//! free. So the scheduler has the same queue as on such a link. The state is one time, when the
//! link becomes free, which is a token bucket: a late caller can catch up by `slack`, and by
//! [`LATE`] if packets were waiting all the time, because a link would have sent all the time.

use crate::scheduler::{Dropped, Enqueued, Scheduler};
use crate::{ConfigError, LinkLayer, Nanos, Packet, Rate, Stats};

/// The longest that a link makes up for calls that come late.
const SLACK: Nanos = Nanos::from_micros(500);

/// The same while packets wait: how long a thread can wait for a processor on an overloaded
/// machine.
const LATE: Nanos = Nanos::from_millis(20);

/// The speed of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpeed {
    rate: Rate,
    link: LinkLayer,
    slack: Nanos,
}

impl PortSpeed {
    /// A speed in bit/s, from 1000, on Ethernet.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `port-speed`.
    pub fn new(bits: u64) -> Result<PortSpeed, ConfigError> {
        ConfigError::range("port-speed", bits, 1_000, Rate::MAX)?;
        Ok(PortSpeed {
            rate: Rate::new("port-speed", bits)?,
            link: LinkLayer::ETHERNET,
            slack: SLACK,
        })
    }

    /// Counted with another link-layer overhead.
    pub fn link(self, link: LinkLayer) -> PortSpeed {
        PortSpeed { link, ..self }
    }

    /// Catching up by at most this much, at most a second (default 500 µs).
    pub fn slack(self, slack: Nanos) -> PortSpeed {
        PortSpeed {
            slack: slack.min(Nanos::from_secs(1)),
            ..self
        }
    }
}

/// A scheduler behind a link; without a speed it is the scheduler alone.
pub struct Shaper<S> {
    inner: S,
    speed: Option<PortSpeed>,
    /// When the link will be free, and the picoseconds that do not make a nanosecond.
    free: Nanos,
    rest: u64,
    /// A packet was given out since the link was last seen without work.
    busy: bool,
}

impl<S> Shaper<S> {
    /// Of a port with a speed, or without.
    pub fn new(inner: S, speed: Option<PortSpeed>) -> Shaper<S> {
        Shaper {
            inner,
            speed,
            free: Nanos(0),
            rest: 0,
            busy: false,
        }
    }

    /// Changes the speed. The queue stays; what is on the link already leaves at its old speed.
    pub fn set_speed(&mut self, speed: Option<PortSpeed>) {
        self.speed = speed;
    }

    /// Whether there is one.
    pub(crate) fn has_speed(&self) -> bool {
        self.speed.is_some()
    }

    /// The scheduler.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The scheduler, to be changed.
    pub(crate) fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<P: Packet, S: Scheduler<P>> Scheduler<P> for Shaper<S> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued {
        if self.busy && now > self.free && self.inner.packets() == 0 {
            self.busy = false;
        }
        self.inner.enqueue(packet, now, dropped)
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P> {
        let Some(speed) = self.speed else {
            return self.inner.dequeue(now, dropped);
        };
        if now < self.free {
            return None;
        }
        let Some(packet) = self.inner.dequeue(now, dropped) else {
            self.busy = false;
            return None;
        };
        let slack = if self.busy { speed.slack.max(LATE) } else { speed.slack };
        self.busy = true;
        let from = Nanos(now.0.saturating_sub(slack.0));
        if self.free < from {
            self.free = from;
            self.rest = 0;
        }
        let cost = speed.link.cost(packet.bytes(), packet.segments());
        let picos = speed.rate.picos(cost).max(0) as u64 + self.rest;
        self.free = self.free + Nanos(picos / 1_000);
        self.rest = picos % 1_000;
        Some(packet)
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        let next = self.inner.next_event(now)?;
        Some(if self.speed.is_some() {
            next.max(self.free)
        } else {
            next
        })
    }

    fn packets(&self) -> u64 {
        self.inner.packets()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats)) {
        self.inner.each_queue(each);
    }

    fn drain(&mut self, each: &mut dyn FnMut(P)) {
        self.inner.drain(each);
    }

    fn segment_above(&self, queue: u32) -> Option<u64> {
        let own = self.speed.map(|speed| speed.rate.bytes_in(Nanos::from_millis(1)));
        [own, self.inner.segment_above(queue)].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LeafConfig, Single};

    struct Frame;
    impl Packet for Frame {
        fn bytes(&self) -> u32 {
            1_226
        }
        fn flow_hash(&self) -> u64 {
            0
        }
        fn mark_ecn(&mut self) -> bool {
            false
        }
    }

    /// Frames that take 1 ms each.
    fn port(frames: usize) -> Shaper<Single<Frame>> {
        let speed = PortSpeed::new(10_000_000).unwrap();
        let mut port = Shaper::new(Single::new(&LeafConfig::default()), Some(speed));
        put(&mut port, frames, 1_000);
        port
    }

    fn put(port: &mut Shaper<Single<Frame>>, frames: usize, millis: u64) {
        for _ in 0..frames {
            let _ = port.enqueue(Frame, Nanos::from_millis(millis), &mut |_, _| ());
        }
    }

    fn sent(port: &mut Shaper<Single<Frame>>, millis: u64) -> usize {
        std::iter::from_fn(|| port.dequeue(Nanos::from_millis(millis), &mut |_, _| ())).count()
    }

    #[test]
    fn a_link_with_packets_waiting_makes_up_for_a_late_call_and_an_idle_one_for_none() {
        let mut port = port(100);
        assert_eq!(sent(&mut port, 1_000), 1);
        // 13 ms late.
        assert_eq!(sent(&mut port, 1_014), 14);
        // So late that only a stopped process explains it.
        assert_eq!(sent(&mut port, 1_300), 21);
        assert_eq!(sent(&mut port, 1_301), 1);
        let left = port.packets() as usize;
        for millis in 1_302..1_302 + left as u64 {
            assert_eq!(sent(&mut port, millis), 1);
        }
        // Nobody looks while it is idle.
        put(&mut port, 10, 1_500);
        assert_eq!(sent(&mut port, 1_500), 1);
        assert_eq!(sent(&mut port, 1_501), 1);
    }
}
