//! Options of the userspace datapath.

use dp::Limits;
use std::thread::available_parallelism;
use std::time::Duration;

/// Default maximum number of workers.
const DEFAULT_WORKERS: usize = 4;

/// Default time between two passes over all megaflows.
pub(crate) const AGEING_PERIOD: Duration = Duration::from_secs(1);

/// Options of the userspace datapath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that move packets, at least 1. By default one for every two cores that the process
    /// may use, at most 4: hosts on the same machine need cores too, and a reply that comes back to
    /// the worker that sent the request needs no other to be woken.
    pub workers: usize,
    /// The core that each worker stays on; workers beyond the list run where the kernel puts them.
    /// By default none is bound.
    pub affinity: Vec<usize>,
    /// How long a worker keeps polling after the last packets before it sleeps: saves the time to
    /// wake up and costs a core meanwhile. By default `None`: a short time while packets come one
    /// soon after the other, and otherwise not at all.
    pub spin: Option<Duration>,
    /// Most megaflows that a worker caches, at least 1. By default 200 000.
    pub flow_limit: usize,
    /// Idle timeout of a megaflow. By default 10 s.
    pub idle_timeout: Duration,
    /// Number of upcalls a turn; the receive queues with packets in the turn share it. Other
    /// packets of new flows wait for the next turn. A queue with such a backlog makes a quarter of
    /// the upcalls while queues without a backlog have packets, or had lately, and else twice as
    /// many. Copies for controllers have the same number for each batch in the long run while other
    /// ports wait too. By default 8.
    pub upcall_budget: u32,
    /// Packets of new flows that wait at a receive queue at most, while others have packets too;
    /// beyond, they are dropped. Copies for controllers that a port which made few has in reserve.
    /// By default 256.
    pub upcall_burst: u32,
}

impl Options {
    /// Initial limits of a worker's megaflow cache.
    pub fn limits(&self) -> Limits {
        Limits {
            flows: self.flow_limit,
            idle: self.idle_timeout,
            period: AGEING_PERIOD,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        let cores = available_parallelism().map_or(1, usize::from);
        Options {
            workers: (cores / 2).clamp(1, DEFAULT_WORKERS),
            affinity: Vec::new(),
            spin: None,
            flow_limit: 200_000,
            idle_timeout: Duration::from_secs(10),
            upcall_budget: 8,
            upcall_burst: 256,
        }
    }
}
