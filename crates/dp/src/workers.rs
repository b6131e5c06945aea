//! What the control plane asks of a datapath that moves packets by threads of its own, the
//! *workers*.

use flow::PortNo;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// The shortest time for [`WorkerControl::set_latency_hold`]: looking more often would cost more
/// than it saves.
pub const SHORTEST_LATENCY_HOLD: Duration = Duration::from_millis(1);

/// The workers of a datapath: where they run, which receive queues they serve, what they have done.
pub trait WorkerControl: Send + Sync {
    /// How many workers there are.
    fn count(&self) -> usize;

    /// Runs a worker on each of these cores, and none elsewhere; `None` for the usual number of
    /// workers, where the datapath's options put them. Does nothing where that is so already.
    ///
    /// # Errors
    /// Where the kernel gives no thread, epoll or eventfd; the workers are the same then.
    fn set_cores(&self, cores: Option<&[usize]>) -> io::Result<()>;

    /// Sets how long a worker keeps looking for packets after the last ones before it sleeps.
    /// `None`: a short time while packets come one soon after the other, and otherwise not at all.
    fn set_spin(&self, spin: Option<Duration>);

    /// Keeps all processors of the machine awake while offloaded flows carry packets, and for
    /// `hold` to twice `hold` after the last one. Less than [`SHORTEST_LATENCY_HOLD`] turns it off.
    ///
    /// # Errors
    /// Why the kernel does not keep the processors awake.
    fn set_latency_hold(&self, hold: Duration) -> io::Result<()>;

    /// Places queues by other rules. Returns the rules that cannot be followed, in words for the
    /// user.
    fn set_queue_rules(&self, rules: QueueRules) -> Vec<String>;

    /// Rebalances all queues by their recent load.
    fn rebalance(&self);

    /// Records what queues and workers have cost until now, and rebalances the queues where the
    /// rules ask for that. To be called every few seconds. Returns whether it rebalanced.
    fn sample(&self) -> bool;

    /// All workers, in the order of their cores, with what they have spent during about the last
    /// `window`.
    fn reports(&self, window: Duration) -> Vec<WorkerReport>;

    /// Sets the counters of [`WorkerReport::perf`] to zero: of all workers, or of that of one core.
    fn clear_perf(&self, core: Option<usize>);
}

/// Settings of the placement of queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueRules {
    /// How queues are spread that are not pinned.
    pub assign: Assign,
    /// Whether a worker that queues are pinned to serves no others.
    pub isolate: bool,
    /// Queues that are pinned: of a port, by number, to the worker of a core.
    pub affinity: BTreeMap<PortNo, BTreeMap<u32, usize>>,
    /// Whether queues are rebalanced automatically.
    pub balance: Option<AutoBalance>,
    /// The NUMA nodes of cores. A queue goes to a worker bound to a core on the node of its
    /// device, if there is one.
    pub nodes: BTreeMap<usize, usize>,
}

impl Default for QueueRules {
    fn default() -> QueueRules {
        QueueRules {
            assign: Assign::Cycles,
            isolate: true,
            affinity: BTreeMap::new(),
            balance: None,
            nodes: BTreeMap::new(),
        }
    }
}

/// When queues are rebalanced automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoBalance {
    /// At most once in so long.
    pub interval: Duration,
    /// Where a worker is busy for at least so many percent of the time.
    pub load_percent: u64,
    /// Where the variance of the workers' loads becomes smaller by at least so many percent.
    pub improvement_percent: u64,
}

/// How queues that nobody has pinned are spread over workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assign {
    /// The costliest first, to the workers in turn and back again.
    #[default]
    Cycles,
    /// As they come, to the workers in turn.
    RoundRobin,
    /// The costliest first, each to the worker that has least to do so far.
    Group,
}

impl Assign {
    /// The one of that name in `pmd-rxq-assign`.
    pub fn named(name: &str) -> Option<Assign> {
        match name {
            "cycles" => Some(Assign::Cycles),
            "roundrobin" => Some(Assign::RoundRobin),
            "group" => Some(Assign::Group),
            _ => None,
        }
    }
}

/// A worker, as `ovs-appctl dpif-netdev/pmd-…` shows it.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    /// The core that it is bound to, or its number where it is not bound.
    pub core: usize,
    /// Whether it serves only queues that are pinned to it.
    pub isolated: bool,
    /// Its queues, in the order of ports and numbers.
    pub queues: Vec<QueueReport>,
    /// Percent of the time that it was busy with other things than its queues; `None` before it is
    /// known.
    pub overhead: Option<u64>,
    /// What it has done since that was last cleared.
    pub perf: Perf,
    /// The cycles of its longest turn since then, without the wait for packets.
    pub longest: u64,
    /// One in a thousand of its turns took more cycles.
    pub p999: u64,
    /// How long ago it was cleared.
    pub since: Duration,
    /// The same, in cycles.
    pub cycles: u64,
    /// Cycles in a second.
    pub hertz: f64,
}

/// A queue of a worker.
#[derive(Clone, Copy, Debug)]
pub struct QueueReport {
    /// Its port.
    pub port: PortNo,
    /// Its number among the port's queues.
    pub number: u32,
    /// Percent of the time that the worker has spent on it; `None` before it is known.
    pub usage: Option<u64>,
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perf {
    /// Packets received.
    pub packets: u64,
    /// Turns: looks at everything that may be ready.
    pub turns: u64,
    /// Those that received packets.
    pub busy_turns: u64,
    /// What those cost, in cycles.
    pub busy_cycles: u64,
    /// Turns that waited first.
    pub sleeps: u64,
    /// For how long, in cycles.
    pub sleep_cycles: u64,
    /// Packets that went through the datapath again.
    pub recirculations: u64,
    /// Packets answered by the exact-match cache.
    pub exact_hits: u64,
    /// Packets answered by a megaflow.
    pub megaflow_hits: u64,
    /// Masks that were tried for those.
    pub subtables: u64,
    /// Packets that went up to the switch.
    pub upcalls: u64,
    /// Packets that would have, and were dropped.
    pub lost: u64,
    /// Packets that devices took.
    pub tx_packets: u64,
    /// In so many batches.
    pub tx_batches: u64,
}
