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

/// Where the user does not say how long to busy-poll, a worker does so for [`SHORT_GAP`] while its
/// score is at least [`POLL_SCORE`]. The score rises by 1 with each gap between packets that is
/// shorter than that, and falls by [`LONG_GAP_PENALTY`] with each longer one. To wake a thread on a
/// processor that sleeps takes about as long, on a virtual machine twice.
const SHORT_GAP: Duration = Duration::from_micros(50);
const POLL_SCORE: u32 = 8;
const MOST_SCORE: u32 = 16;
const LONG_GAP_PENALTY: u32 = 4;

/// How often a worker looks into its queues before it asks epoll.
pub(super) struct Looks {
    pub(super) spin: Arc<SpinTime>,
    /// Times that it looked into its queues since it last asked epoll.
    pub(super) count: u32,
    /// When it asks epoll again at the latest.
    pub(super) until: Nanos,
    /// Queues that had packets when it last looked.
    pub(super) busy: usize,
    /// Since when there has been nothing; none: packets came when it last looked.
    pub(super) idle_since: Option<Nanos>,
    /// Decides about busy-polling: see [`SHORT_GAP`].
    score: u32,
}

impl Looks {
    pub(super) fn new(spin: Arc<SpinTime>) -> Looks {
        Looks {
            spin,
            count: 0,
            until: Nanos::ZERO,
            busy: 0,
            idle_since: Some(Nanos::ZERO),
            score: 0,
        }
    }

    /// Packets have come.
    pub(super) fn note_arrival(&mut self, now: Nanos) {
        let gap = self.idle_since.take().map(|since| now.since(since));
        self.score = match gap.is_none_or(|gap| gap < SHORT_GAP) {
            true => (self.score + 1).min(MOST_SCORE),
            false => self.score.saturating_sub(LONG_GAP_PENALTY),
        };
    }

    /// No packets have come.
    pub(super) fn note_nothing(&mut self, now: Nanos) {
        self.idle_since.get_or_insert(now);
    }

    /// How long it polls for the next packets before it sleeps.
    pub(super) fn busy_poll_time(&self) -> Duration {
        match self.spin.get() {
            Some(configured) => configured,
            None if self.score >= POLL_SCORE => SHORT_GAP,
            None => Duration::ZERO,
        }
    }
}

/// How long workers look for packets before they sleep, and how long they hold the latency request
/// after the last offloaded packet, in nanoseconds. The control plane writes it; all workers read
/// it.
pub(crate) struct SpinTime {
    /// [`ADAPTIVE`]: each worker decides by the gaps between its packets.
    spin: AtomicU64,
    latency_hold: AtomicU64,
}

const ADAPTIVE: u64 = u64::MAX;

impl SpinTime {
    pub(crate) fn new(time: Option<Duration>) -> SpinTime {
        SpinTime {
            spin: AtomicU64::new(time.map_or(ADAPTIVE, nanos)),
            latency_hold: AtomicU64::new(0),
        }
    }

    pub(crate) fn set(&self, time: Option<Duration>) {
        self.spin.store(time.map_or(ADAPTIVE, nanos), Ordering::Relaxed);
    }

    pub(crate) fn set_latency_hold(&self, time: Duration) {
        self.latency_hold.store(nanos(time), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Duration> {
        let time = self.spin.load(Ordering::Relaxed);
        (time != ADAPTIVE).then(|| Duration::from_nanos(time))
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
        let time = self.looks.busy_poll_time();
        let idle_since = self.looks.idle_since;
        !time.is_zero() && idle_since.is_none_or(|since| self.turn.now.since(since) < time)
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
        match self.looks.busy {
            0 => self.looks.note_nothing(self.turn.now),
            _ => self.looks.note_arrival(self.turn.now),
        }
        self.pace(self.turn.now);
        let took = cycles::now().wrapping_sub(began);
        self.load.turn(self.turn.packets, took);
        self.load.gap(took);
    }
}
