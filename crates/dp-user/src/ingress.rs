//! Ingress shaper and policer, between the device and the lookup: a port may have a link of the
//! port's speed, then a policer.
//!
//! The link acts as a slow cable does: packets come one after the other at its speed, and faster
//! ones wait in the queue that a sender's own interface has, a `pfifo_fast` of 1000 packets. If
//! that queue is full, the packet is lost. So a sender with congestion control meets the delay and
//! the loss of a real link of that speed.

use crate::flow_look::FlowSecret;
use crate::queued::{Queued, cut, drop_cause, wire_size};
use dp::DropCause;
use nanos::Nanos;
use netdev::{Frame, Gso};
use qos::police::{IngressPolicer, IngressPolicerConfig};
use qos::{ConfigError, Discipline, FifoConfig, LeafConfig, PortConfig, PortSpeed, Scheduler};

/// See the module's page.
#[derive(Default)]
pub(crate) struct Ingress {
    link: Option<Link>,
    policer: Option<IngressPolicer>,
    scratch: Vec<Frame>,
    /// Frames that have passed, while there are any to pass; empty otherwise.
    passed: Vec<Frame>,
}

struct Link {
    queue: qos::Port<Queued>,
    secret: FlowSecret,
    /// The port has no speed any more: queued frames pass on.
    released: bool,
}

impl Ingress {
    /// Changes the policer; with `None` all packets pass.
    pub(crate) fn police(&mut self, config: Option<&IngressPolicerConfig>, now: Nanos) {
        match (&mut self.policer, config.filter(|config| !config.is_off())) {
            (_, None) => self.policer = None,
            (Some(policer), Some(config)) => policer.change(*config, qos::Nanos(now.0)),
            (policer, Some(config)) => *policer = Some(IngressPolicer::new(*config)),
        }
    }

    /// Changes the speed. Queued frames go on waiting, at the new speed.
    ///
    /// # Errors
    /// None that a speed can cause.
    pub(crate) fn set_speed(&mut self, speed: Option<PortSpeed>, now: Nanos) -> Result<(), ConfigError> {
        let discipline = match speed {
            Some(_) => Discipline::Noop,
            None => Discipline::Leaf(LeafConfig::Fifo(FifoConfig::new(1_000_000)?)),
        };
        let config = PortConfig { discipline, speed };
        match &mut self.link {
            Some(link) => {
                link.queue.reconfigure(&config, qos::Nanos(now.0), &mut |_, _| ())?;
                link.released = speed.is_none();
            }
            None if speed.is_some() => {
                self.link = Some(Link {
                    queue: qos::Port::new(&config)?,
                    secret: FlowSecret::default(),
                    released: false,
                });
            }
            None => {}
        }
        Ok(())
    }

    /// Whether all packets pass at once.
    pub(crate) fn is_open(&self) -> bool {
        self.link.is_none() && self.policer.is_none()
    }

    /// Frames that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.queue.packets())
    }

    /// Takes the frames out of the vector, and puts in those that pass now, up to `most`. Reports
    /// lost packets. Returns the time at which more frames pass.
    pub(crate) fn pass(
        &mut self,
        frames: &mut Vec<Frame>,
        most: usize,
        now: Nanos,
        lost: &mut dyn FnMut(DropCause),
    ) -> Option<Nanos> {
        let now = qos::Nanos(now.0);
        let mut next = None;
        if let Some(link) = &mut self.link {
            link.pass(frames, &mut self.scratch, most, now, lost);
            next = link.queue.next_event(now).map(|next| Nanos(next.0));
            if link.released && next.is_none() {
                self.link = None;
            }
        }
        if let Some(policer) = &mut self.policer {
            police(policer, frames, (&mut self.scratch, &mut self.passed), now, lost);
        }
        next
    }
}

impl Link {
    fn pass(
        &mut self,
        frames: &mut Vec<Frame>,
        scratch: &mut Vec<Frame>,
        most: usize,
        now: qos::Nanos,
        lost: &mut dyn FnMut(DropCause),
    ) {
        let above = self.queue.segment_above(0);
        for frame in frames.drain(..) {
            let good = cut(frame, above, scratch, |mut frame| {
                frame.compact();
                let queued = Queued::new(frame, &self.secret);
                let _ = self.queue.enqueue(queued, now, &mut |_, cause| lost(drop_cause(cause)));
            });
            if !good {
                lost(DropCause::Malformed);
            }
        }
        while frames.len() < most {
            let Some(packet) = self.queue.dequeue(now, &mut |_, cause| lost(drop_cause(cause))) else {
                break;
            };
            frames.push(packet.frame);
        }
    }
}

/// Leaves the frames that find tokens. Of a large segment that does not, the packets that do.
fn police(
    policer: &mut IngressPolicer,
    frames: &mut Vec<Frame>,
    (scratch, passed): (&mut Vec<Frame>, &mut Vec<Frame>),
    now: qos::Nanos,
    lost: &mut dyn FnMut(DropCause),
) {
    let mut passes = |frame: &Frame| {
        let (packets, bytes) = wire_size(frame);
        policer.pass(bytes, packets, now)
    };
    if frames.iter().all(|frame| frame.offload.gso == Gso::None) {
        frames.retain(|frame| {
            let pass = passes(frame);
            if !pass {
                lost(DropCause::Policed);
            }
            pass
        });
        return;
    }
    for frame in frames.drain(..) {
        if passes(&frame) {
            passed.push(frame);
        } else if frame.offload.gso == Gso::None {
            lost(DropCause::Policed);
        } else if !cut(frame, Some(0), scratch, |packet| match passes(&packet) {
            true => passed.push(packet),
            false => lost(DropCause::Policed),
        }) {
            lost(DropCause::Malformed);
        }
    }
    std::mem::swap(frames, passed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(count: u32, len: usize) -> Vec<Frame> {
        (0..count)
            .map(|n| {
                let mut packet = vec![0; len];
                packet[14..18].copy_from_slice(&n.to_be_bytes());
                Frame::from_slice(&packet)
            })
            .collect()
    }

    fn number(frame: &Frame) -> u32 {
        u32::from_be_bytes(*frame.data()[14..].first_chunk().unwrap())
    }

    fn never(cause: DropCause) {
        panic!("lost: {cause:?}");
    }

    #[test]
    fn a_link_lets_packets_come_at_its_speed_and_loses_what_its_queue_has_no_room_for() {
        let mut ingress = Ingress::default();
        let mut now = Nanos::from_secs(1);
        ingress
            .set_speed(Some(PortSpeed::new(10_000_000).unwrap()), now)
            .unwrap();
        let mut lost = 0;
        // 1 ms each, with the overhead of Ethernet.
        let mut batch = frames(1_050, 1_226);
        let mut next = ingress.pass(&mut batch, 32, now, &mut |cause| {
            assert_eq!(cause, DropCause::QueueFull);
            lost += 1;
        });
        assert_eq!(lost, 50);
        let mut came: Vec<u32> = batch.drain(..).map(|frame| number(&frame)).collect();
        while let Some(at) = next {
            now = at;
            next = ingress.pass(&mut batch, 32, now, &mut never);
            came.extend(batch.drain(..).map(|frame| number(&frame)));
        }
        assert!(came.iter().copied().eq(0..1_000));
        let took = now.since(Nanos::from_secs(1));
        assert!((998..1_000).contains(&took.as_millis()), "{took:?}");
    }

    #[test]
    fn what_waits_for_a_link_goes_on_when_the_port_has_no_speed_any_more() {
        let mut ingress = Ingress::default();
        let now = Nanos::from_secs(1);
        ingress
            .set_speed(Some(PortSpeed::new(10_000_000).unwrap()), now)
            .unwrap();
        let mut batch = frames(100, 1_226);
        assert!(ingress.pass(&mut batch, 32, now, &mut never).is_some());
        let before = batch.len();
        ingress.set_speed(None, now).unwrap();
        assert_eq!(ingress.waiting() as usize + before, 100);
        let mut more = Vec::new();
        assert_eq!(ingress.pass(&mut more, 200, now, &mut never), None);
        assert_eq!(more.len() + before, 100);
        assert!(ingress.is_open());
    }

    #[test]
    fn a_policer_counts_what_it_drops_and_takes_a_large_segment_apart_rather_than_dropping_it() {
        let mut ingress = Ingress::default();
        let now = Nanos::from_secs(1);
        // 1 kbit at once: 125 bytes of frames.
        ingress.police(Some(&IngressPolicerConfig::new(1, 80, 0, 0).unwrap()), now);
        let mut lost = Vec::new();
        let mut batch = frames(5, 4_000);
        ingress.pass(&mut batch, 32, now, &mut |cause| lost.push(cause));
        assert_eq!((batch.len(), &lost[..]), (2, &[DropCause::Policed; 3][..]));

        let mut ingress = Ingress::default();
        ingress.police(Some(&IngressPolicerConfig::new(1, 80, 0, 0).unwrap()), now);
        let mut segment = vec![0; 54 + 20_000];
        segment[12..14].copy_from_slice(&[8, 0]);
        segment[14] = 0x45;
        segment[23] = 6;
        segment[46] = 0x50;
        let mut frame = Frame::from_slice(&segment);
        frame.offload.gso = Gso::Tcp4;
        frame.offload.gso_size = 946;
        frame.offload.csum = netdev::Csum::Partial { start: 34, offset: 16 };
        let mut batch = vec![frame];
        lost.clear();
        ingress.pass(&mut batch, 32, now, &mut |cause| lost.push(cause));
        assert_eq!((batch.len(), lost.len()), (10, 12));
        ingress.police(None, now);
        assert!(ingress.is_open());
    }
}
