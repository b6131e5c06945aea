//! The scheduler of a port: any discipline, behind a policer where it is one, before a link of a
//! given speed.

use crate::discipline::{Discipline, PortConfig, TrTcmPortConfig};
use crate::police::{Color, EgressPolicer, TrTcm};
use crate::scheduler::{Dropped, Enqueued, Scheduler};
use crate::{Cause, ConfigError, FifoConfig, Hfsc, Htb, LeafConfig, Nanos, Netem, Packet, Shaper, Single, Stats};
use std::mem::{Discriminant, discriminant};

/// Bytes of a frame that policers do not count: they count from the IP header on. Tags are counted.
const ETHERNET: u32 = 14;

/// See the module's page.
pub struct Port<P> {
    sort: Sort,
    police: Police,
    scheduler: Shaper<Kind<P>>,
}

enum Kind<P> {
    Single(Box<Single<P>>),
    Htb(Box<Htb<P>>),
    Hfsc(Box<Hfsc<P>>),
    Netem(Box<Netem<P>>),
}

impl<P: Packet> Port<P> {
    /// An empty one.
    ///
    /// # Errors
    /// What the discipline refuses.
    pub fn new(config: &PortConfig) -> Result<Port<P>, ConfigError> {
        Ok(Port {
            sort: sort(&config.discipline),
            police: Police::new(&config.discipline),
            scheduler: Shaper::new(Kind::new(&config.discipline)?, config.speed),
        })
    }

    /// Takes another configuration. Queued packets stay in each flow's order as far as they fit.
    /// Another kind of discipline starts with new counters.
    ///
    /// # Errors
    /// The discipline's error; then nothing changes.
    pub fn reconfigure(
        &mut self,
        config: &PortConfig,
        now: Nanos,
        dropped: &mut Dropped<'_, P>,
    ) -> Result<(), ConfigError> {
        self.scheduler.inner_mut().change(&config.discipline, now, dropped)?;
        self.scheduler.set_speed(config.speed);
        self.police.change(&config.discipline, now);
        let sort = sort(&config.discipline);
        if let Kind::Single(single) = self.scheduler.inner_mut()
            && sort != self.sort
        {
            single.reset_counters();
        }
        self.sort = sort;
        Ok(())
    }
}

impl<P: Packet> Port<P> {
    /// Whether an arriving packet would leave at once if a policer passes it: no packet waits or
    /// has to wait, and the discipline keeps no state of packets. Such packets bypass the queue
    /// with [`Port::pass`].
    pub fn is_open(&self) -> bool {
        let single = match self.scheduler.inner() {
            Kind::Single(single) => single,
            Kind::Htb(_) | Kind::Hfsc(_) | Kind::Netem(_) => return false,
        };
        !self.scheduler.has_speed() && single.is_open()
    }

    /// Polices and counts a packet (not a segment) for a queue as if it were enqueued and dequeued
    /// at once.
    ///
    /// # Errors
    /// The cause of its drop.
    #[inline]
    pub fn pass(&mut self, bytes: u32, queue: u32, now: Nanos) -> Result<(), Cause> {
        if !self.police.pass(bytes, 1, queue, now) {
            return Err(Cause::Policed);
        }
        if let Kind::Single(single) = self.scheduler.inner_mut() {
            single.passed(bytes);
        }
        Ok(())
    }
}

impl<P: Packet> Scheduler<P> for Port<P> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued {
        if !self.police.pass(packet.bytes(), packet.segments(), packet.queue(), now) {
            dropped(packet, Cause::Policed);
            return Enqueued::Dropped(Cause::Policed);
        }
        self.scheduler.enqueue(packet, now, dropped)
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P> {
        self.scheduler.dequeue(now, dropped)
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        self.scheduler.next_event(now)
    }

    fn packets(&self) -> u64 {
        self.scheduler.packets()
    }

    fn bytes(&self) -> u64 {
        self.scheduler.bytes()
    }

    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats)) {
        match &self.police {
            Police::Off => self.scheduler.each_queue(each),
            Police::One { policed, .. } => {
                let mut stats = self.scheduler.stats();
                stats.drops[Cause::Policed as usize] += policed;
                each(0, &stats);
            }
            Police::Two(police) => police.each_queue(&self.scheduler.stats(), each),
        }
    }

    fn drain(&mut self, each: &mut dyn FnMut(P)) {
        self.scheduler.drain(each);
    }

    fn segment_above(&self, queue: u32) -> Option<u64> {
        let scheduler = self.scheduler.segment_above(queue);
        [scheduler, self.police.segment_above()].into_iter().flatten().min()
    }
}

impl<P: Packet> Kind<P> {
    fn new(discipline: &Discipline) -> Result<Kind<P>, ConfigError> {
        Ok(match discipline {
            Discipline::Leaf(config) => Kind::Single(Box::new(Single::new(config))),
            Discipline::Htb(config) => Kind::Htb(Box::new(Htb::new(config)?)),
            Discipline::Hfsc(config) => Kind::Hfsc(Box::new(Hfsc::new(config)?)),
            Discipline::Netem(config) => Kind::Netem(Box::new(Netem::new(*config))),
            Discipline::EgressPolicer(_) | Discipline::TrTcm(_) | Discipline::Noop => {
                Kind::Single(Box::new(Single::new(&DEFAULT)))
            }
        })
    }

    fn change(&mut self, discipline: &Discipline, now: Nanos, dropped: &mut Dropped<'_, P>) -> Result<(), ConfigError> {
        match (&mut *self, discipline) {
            (Kind::Single(single), Discipline::Leaf(config)) => single.change(config, now, dropped),
            (Kind::Single(single), Discipline::EgressPolicer(_) | Discipline::TrTcm(_) | Discipline::Noop) => {
                single.change(&DEFAULT, now, dropped);
            }
            (Kind::Htb(htb), Discipline::Htb(config)) => htb.change(config, now, dropped)?,
            (Kind::Hfsc(hfsc), Discipline::Hfsc(config)) => hfsc.change(config, now, dropped)?,
            (Kind::Netem(netem), Discipline::Netem(config)) => netem.change(*config),
            _ => {
                let mut new = Kind::new(discipline)?;
                self.drain(&mut |packet| {
                    // Dropped packets are returned.
                    let _ = new.enqueue(packet, now, dropped);
                });
                *self = new;
            }
        }
        Ok(())
    }
}

/// Which discipline it is, whatever its parameters.
type Sort = (Discriminant<Discipline>, Option<Discriminant<LeafConfig>>);

fn sort(discipline: &Discipline) -> Sort {
    let leaf = match discipline {
        Discipline::Leaf(leaf) => Some(discriminant(leaf)),
        _ => None,
    };
    (discriminant(discipline), leaf)
}

/// The queue before a link without a configured discipline.
const DEFAULT: LeafConfig = LeafConfig::PfifoFast(FifoConfig::DEFAULT);

/// Calls the scheduler, whatever its kind.
macro_rules! each_kind {
    ($kind:expr, $scheduler:ident => $call:expr) => {
        match $kind {
            Kind::Single($scheduler) => $call,
            Kind::Htb($scheduler) => $call,
            Kind::Hfsc($scheduler) => $call,
            Kind::Netem($scheduler) => $call,
        }
    };
}

impl<P: Packet> Scheduler<P> for Kind<P> {
    #[inline]
    fn enqueue(&mut self, packet: P, now: Nanos, dropped: &mut Dropped<'_, P>) -> Enqueued {
        each_kind!(self, scheduler => scheduler.enqueue(packet, now, dropped))
    }

    #[inline]
    fn dequeue(&mut self, now: Nanos, dropped: &mut Dropped<'_, P>) -> Option<P> {
        each_kind!(self, scheduler => scheduler.dequeue(now, dropped))
    }

    fn next_event(&self, now: Nanos) -> Option<Nanos> {
        each_kind!(self, scheduler => scheduler.next_event(now))
    }

    fn packets(&self) -> u64 {
        each_kind!(self, scheduler => scheduler.packets())
    }

    fn bytes(&self) -> u64 {
        each_kind!(self, scheduler => scheduler.bytes())
    }

    fn each_queue(&self, each: &mut dyn FnMut(u32, &Stats)) {
        each_kind!(self, scheduler => scheduler.each_queue(each));
    }

    fn drain(&mut self, each: &mut dyn FnMut(P)) {
        each_kind!(self, scheduler => scheduler.drain(each));
    }

    fn segment_above(&self, queue: u32) -> Option<u64> {
        each_kind!(self, scheduler => scheduler.segment_above(queue))
    }
}

/// The policer before the queue.
enum Police {
    Off,
    One {
        policer: EgressPolicer,
        burst: u64,
        policed: u64,
    },
    Two(Box<TwoLevels>),
}

impl Police {
    fn new(discipline: &Discipline) -> Police {
        match discipline {
            Discipline::EgressPolicer(config) => Police::One {
                policer: EgressPolicer::new(*config),
                burst: config.burst(),
                policed: 0,
            },
            Discipline::TrTcm(config) => Police::Two(Box::new(TwoLevels::new(config))),
            _ => Police::Off,
        }
    }

    fn change(&mut self, discipline: &Discipline, now: Nanos) {
        match (&mut *self, discipline) {
            (Police::One { policer, burst, .. }, Discipline::EgressPolicer(config)) => {
                policer.change(*config, now);
                *burst = config.burst();
            }
            (Police::Two(police), Discipline::TrTcm(config)) => police.change(config, now),
            _ => *self = Police::new(discipline),
        }
    }

    /// A segment without enough tokens is dropped whole, and one larger than the bucket always.
    fn segment_above(&self) -> Option<u64> {
        match self {
            Police::Off => None,
            Police::One { burst, .. } => Some(burst / 4),
            Police::Two(police) => Some(police.burst / 4),
        }
    }

    #[inline]
    fn pass(&mut self, bytes: u32, segments: u32, queue: u32, now: Nanos) -> bool {
        let network_bytes = bytes.saturating_sub(segments.saturating_mul(ETHERNET));
        match self {
            Police::Off => true,
            Police::One { policer, policed, .. } => {
                let pass = policer.pass(network_bytes, now);
                *policed += u64::from(!pass);
                pass
            }
            Police::Two(police) => police.pass(bytes, network_bytes, queue, now),
        }
    }
}

/// The meters of `trtcm-policer`.
struct TwoLevels {
    port: TrTcm,
    /// The least of all bursts.
    burst: u64,
    /// By number; the first is queue 0.
    queues: Vec<PolicedQueue>,
}

struct PolicedQueue {
    number: u32,
    meter: TrTcm,
    /// Passed and dropped packets.
    stats: Stats,
}

impl TwoLevels {
    fn new(config: &TrTcmPortConfig) -> TwoLevels {
        let mut queues = vec![(0, config.port)];
        queues.extend_from_slice(&config.queues);
        // Of two queues with one number the later one counts: a configured queue 0 replaces the
        // default one.
        queues.reverse();
        queues.sort_by_key(|(number, _)| *number);
        queues.dedup_by_key(|(number, _)| *number);
        let queue = |&(number, meter): &_| PolicedQueue {
            number,
            meter: TrTcm::new(meter),
            stats: Stats::default(),
        };
        TwoLevels {
            port: TrTcm::new(config.port),
            burst: queues.iter().map(|(_, meter)| meter.burst()).min().unwrap_or(0),
            queues: queues.iter().map(queue).collect(),
        }
    }

    fn change(&mut self, config: &TrTcmPortConfig, now: Nanos) {
        let mut new = TwoLevels::new(config);
        for queue in &mut new.queues {
            let Ok(at) = self.queues.binary_search_by_key(&queue.number, |old| old.number) else {
                continue;
            };
            let old = &mut self.queues[at];
            let own = config.queues.iter().rfind(|(number, _)| *number == queue.number);
            old.meter.change(own.map_or(config.port, |(_, meter)| *meter), now);
            std::mem::swap(queue, old);
        }
        self.queues = new.queues;
        self.burst = new.burst;
        self.port.change(config.port, now);
    }

    #[inline]
    fn pass(&mut self, bytes: u32, network_bytes: u32, queue: u32, now: Nanos) -> bool {
        let at = self.queues.binary_search_by_key(&queue, |queue| queue.number);
        let queue = &mut self.queues[at.unwrap_or(0)];
        let color = queue.meter.color(network_bytes, Color::Green, now);
        let pass = self.port.color(network_bytes, color, now) != Color::Red;
        if pass {
            queue.stats.packets += 1;
            queue.stats.bytes += u64::from(bytes);
        } else {
            queue.stats.drops[Cause::Policed as usize] += 1;
        }
        pass
    }

    /// The queues' counters; those of queue 0 include the packets that wait after all queues.
    fn each_queue(&self, behind: &Stats, each: &mut dyn FnMut(u32, &Stats)) {
        for queue in &self.queues {
            if queue.number == 0 {
                let mut stats = behind.clone();
                (stats.packets, stats.bytes) = (0, 0);
                stats.add(&queue.stats);
                each(0, &stats);
            } else {
                each(queue.number, &queue.stats);
            }
        }
    }
}
