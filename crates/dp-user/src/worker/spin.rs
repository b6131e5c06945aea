//! How long a worker stays awake for more packets, and how it looks for them meanwhile.

use super::*;

/// Most queues that a spinning worker polls directly; with more of them epoll is faster.
pub(super) const LOOK_INTO: usize = 8;

/// Times that a worker looks into its queues before it asks epoll again, for commands, vanished
/// devices and the queues that it has not looked into, and the time after which it does however
/// often it has.
pub(super) const LOOKS: u32 = 64;
pub(super) const LOOKS_FOR: Duration = Duration::from_micros(100);
/// While some queues have packets, the others are asked every so many looks.
const LOOK_AT_IDLE: u32 = 8;

/// How long a worker waits awake that was not told how long, and the longest gap between packets
/// that speaks for waiting: about what it takes to wake a thread on a processor that sleeps, on a
/// virtual machine twice.
const SHORT_GAP: Duration = Duration::from_micros(50);
/// Points for waiting awake: a short gap gives one, a long gap takes [`LONG_GAP_TAKES`], with
/// [`ENOUGH_POINTS`] a worker waits.
const MOST_POINTS: u32 = 16;
const ENOUGH_POINTS: u32 = 8;
const LONG_GAP_TAKES: u32 = 4;

/// How often a worker looks into its queues before it asks epoll.
pub(super) struct Looks {
    pub(super) spin: Arc<SpinTime>,
    /// Times that it looked into its queues since it last asked epoll.
    pub(super) count: u32,
    /// When it asks epoll again at the latest.
    pub(super) until: Nanos,
    /// Queues that had packets when it last looked.
    pub(super) busy: usize,
    /// When packets last came.
    pub(super) active: Nanos,
    /// Points for waiting awake, of [`MOST_POINTS`].
    points: u32,
}

impl Looks {
    pub(super) fn new(spin: Arc<SpinTime>) -> Looks {
        Looks {
            spin,
            count: 0,
            until: Nanos::ZERO,
            busy: 0,
            active: Nanos::ZERO,
            points: 0,
        }
    }

    /// Packets have come.
    pub(super) fn brought_packets(&mut self, now: Nanos) {
        self.points = match now.since(self.active) < SHORT_GAP {
            true => (self.points + 1).min(MOST_POINTS),
            false => self.points.saturating_sub(LONG_GAP_TAKES),
        };
        self.active = now;
    }

    /// How long it waits awake for the next packets.
    pub(super) fn time(&self) -> Duration {
        match self.spin.get() {
            Some(told) => told,
            None if self.points >= ENOUGH_POINTS => SHORT_GAP,
            None => Duration::ZERO,
        }
    }
}

/// How long workers look for packets before they sleep, and how long they hold the latency request
/// after the last offloaded packet, in nanoseconds. The control plane writes it; all workers read
/// it.
pub(crate) struct SpinTime {
    /// [`BY_GAPS`]: each worker decides by the gaps between its packets.
    spin: AtomicU64,
    latency_hold: AtomicU64,
}

const BY_GAPS: u64 = u64::MAX;

impl SpinTime {
    pub(crate) fn new(time: Option<Duration>) -> SpinTime {
        SpinTime {
            spin: AtomicU64::new(time.map_or(BY_GAPS, nanos)),
            latency_hold: AtomicU64::new(0),
        }
    }

    pub(crate) fn set(&self, time: Option<Duration>) {
        self.spin.store(time.map_or(BY_GAPS, nanos), Ordering::Relaxed);
    }

    pub(crate) fn set_latency_hold(&self, time: Duration) {
        self.latency_hold.store(nanos(time), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        let time = self.spin.load(Ordering::Relaxed);
        (time != BY_GAPS).then(|| Duration::from_nanos(time))
    }

    pub(super) fn latency_hold(&self) -> Duration {
        Duration::from_nanos(self.latency_hold.load(Ordering::Relaxed))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Worker {
    /// Whether packets came so lately that it stays awake for more.
    pub(super) fn spins(&self) -> bool {
        self.turn.now.since(self.looks.active) < self.looks.time()
    }

    /// One batch of each queue that has packets, or, where the worker does not spin, of each that
    /// is looked into without a system call. While some have, the others are asked less often.
    pub(super) fn look(&mut self) {
        self.looks.count += 1;
        self.turn.now = clock();
        let began = cycles::now();
        self.turn.packets = 0;
        let (contended, spins) = (self.looks.busy > 1, self.spins());
        self.pipeline.share(self.looks.busy, OtherQueues::Ready);
        let rest = self.looks.busy > 0 && !self.looks.count.is_multiple_of(LOOK_AT_IDLE);
        self.looks.busy = 0;
        for place in 0..self.queues.len() {
            let Some(queue) = self.queues[place]
                .as_mut()
                .filter(|queue| queue.parked.is_none() && !queue.gone && !(rest && queue.idle))
                .filter(|queue| spins || queue.rx_queue.rx.is_free_to_ask())
            else {
                continue;
            };
            let before = cycles::now();
            match self.pipeline.receive(&mut queue.rx_queue, contended, self.turn.now) {
                Ok(0) => queue.idle = !queue.rx_queue.rx.is_free_to_ask(),
                Ok(packets) => {
                    queue.brought_packets(before, self.turn.now);
                    self.turn.packets += packets;
                    self.backlog.waiting |= queue.rx_queue.waits();
                    self.backlog.pending |= queue.rx_queue.has_pending();
                    self.looks.busy += 1;
                }
                Err(error) => self.receive_failed(place, &error, self.turn.now),
            }
        }
        if self.looks.busy > 0 {
            self.looks.brought_packets(self.turn.now);
        }
        self.pace(self.turn.now);
        let took = cycles::now().wrapping_sub(began);
        self.load.turn(self.turn.packets, took);
        self.load.gap(took);
    }
}
