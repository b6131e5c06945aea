//! The control side: what [`Datapath`] asks, said to the workers.

use crate::Options;
use crate::command::{Command, CommandQueue};
use crate::gate::Gate;
use crate::meters::Meters;
use crate::pipeline::{Budget, Inlet, Pipeline};
use crate::scheduled::PortQueue;
use crate::stats::{ControlDrops, PortStats, WorkerStats};
use crate::worker::{SpinTime, Worker};
use dp::{
    Action, CacheStats, Changes, Datapath, DpError, DropCause, FlowDump, MeterConfig, MeterStats, PortCounters,
    QosReport, Slowpath,
};
use flow::PortNo;
use hashbrown::HashMap;
use netdev::{Frame, Netdev};
use parking_lot::{Mutex, RwLock};
use qos::PortConfig;
use qos::police::IngressPolicerConfig;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The userspace datapath. Its workers end when it is dropped.
///
/// Lock order: `control`, then `ports`. No lock is held that a [`Slowpath`] could need while a worker is waited for; a slowpath must not call
/// what waits for workers (everything but [`Datapath::execute`] and the statistics) from within a worker's call.
pub struct DpUser {
    options: Options,
    spin: Arc<SpinTime>,
    workers: Vec<Handle>,
    /// Held while ports come and go, so that these do so one at a time.
    control: Mutex<()>,
    ports: RwLock<HashMap<PortNo, Port>>,
    meters: Arc<Meters>,
    /// Most megaflows of a worker, and how long one stays, where that has been changed.
    limits: Mutex<Option<(usize, Duration)>>,
    /// Queued packets that were dropped when a configuration changed or a port went.
    drops: ControlDrops,
}

struct Handle {
    commands: Arc<CommandQueue>,
    stats: Arc<WorkerStats>,
    thread: Option<JoinHandle<()>>,
}

struct Port {
    device: Arc<dyn Netdev>,
    /// By worker.
    stats: Vec<Arc<PortStats>>,
    /// Workers that have one of its queues.
    receivers: Vec<usize>,
    /// The scheduler's, once it has had one.
    queue: Option<Arc<PortQueue>>,
    /// It has a scheduler now.
    scheduled: bool,
    /// What its packets pass as they come, once there was something.
    gate: Option<Arc<Mutex<Gate>>>,
    /// Queued packets that were dropped when the configuration changed.
    drops: ControlDrops,
}

/// The slices of processor time that workers run in.
const SLICE: Duration = Duration::from_micros(100);

/// The workers' nice value, where the process may have it: the whole of Open vSwitch runs with that, by its start script.
const NICE: i32 = -10;

impl DpUser {
    /// Starts the workers.
    ///
    /// # Errors
    /// Where the kernel gives no thread, epoll or eventfd.
    pub fn new(options: Options, slowpath: Arc<dyn Slowpath>, changes: Arc<Changes>) -> io::Result<Arc<DpUser>> {
        let mut datapath = DpUser {
            workers: Vec::new(),
            control: Mutex::new(()),
            ports: RwLock::default(),
            meters: Arc::default(),
            limits: Mutex::default(),
            drops: ControlDrops::default(),
            spin: Arc::new(SpinTime::new(options.spin)),
            options,
        };
        for number in 0..datapath.options.workers.max(1) {
            let handle = datapath.start(number, slowpath.clone(), changes.clone())?;
            datapath.workers.push(handle);
        }
        Ok(Arc::new(datapath))
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Changes [`Options::spin`] while the workers run.
    pub fn set_spin(&self, spin: Duration) {
        self.spin.set(spin);
    }

    /// Changes, while the workers run, how many megaflows all of them together cache at most, and how long one stays that carries nothing
    /// ([`Options::idle_timeout`]). What is beyond the limit goes little by little.
    pub fn set_limits(&self, flows: usize, idle: Duration) {
        let per_worker = flows.div_ceil(self.workers.len()).max(1);
        if self.limits.lock().replace((per_worker, idle)) == Some((per_worker, idle)) {
            return;
        }
        for worker in &self.workers {
            worker.commands.push(Command::Limit {
                flows: per_worker,
                idle,
            });
        }
    }

    /// How many megaflows all workers together cache at most.
    pub fn flow_limit(&self) -> usize {
        let per_worker = self.limits.lock().map_or(self.options.flow_limit, |(flows, _)| flows);
        per_worker * self.workers.len()
    }

    fn start(&self, number: usize, slowpath: Arc<dyn Slowpath>, changes: Arc<Changes>) -> io::Result<Handle> {
        let options = &self.options;
        let commands = Arc::new(CommandQueue::new()?);
        let pipeline = Pipeline::with_meters(
            options.flow_limit,
            options.idle_timeout,
            slowpath.clone(),
            changes,
            self.meters.clone(),
        );
        let stats = pipeline.stats().clone();
        let worker = Worker::new(number, pipeline, commands.clone(), slowpath, self.spin.clone())?;
        let core = options.affinity.get(number).copied();
        let thread = thread::Builder::new()
            .name(format!("oxvs-worker-{number}"))
            .spawn(move || {
                if let Some(core) = core {
                    // A processor that is not there is no reason not to forward.
                    let _ = sys::thread::pin_to_cpu(core);
                }
                // Where processors are busy, a packet would wait for whole slices of others. Without it the worker works as well, only later.
                let _ = sys::thread::set_slice(SLICE);
                // Packets go before what asks for them to be carried, as they do in the kernel.
                let _ = sys::thread::set_nice(NICE);
                // Timers are for packets that are due; they come 50 us late otherwise.
                let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
                worker.run();
            })?;
        Ok(Handle {
            commands,
            stats,
            thread: Some(thread),
        })
    }

    /// The worker with the fewest queues.
    fn least_loaded(&self, also: &[usize]) -> usize {
        let ports = self.ports.read();
        let mut load = vec![0; self.workers.len()];
        let receivers = ports.values().flat_map(|port| &port.receivers);
        for worker in receivers.chain(also) {
            load[*worker] += 1;
        }
        let least = load.iter().enumerate().min_by_key(|(_, queues)| **queues);
        least.map_or(0, |(worker, _)| worker)
    }

    /// Gives every worker a command and waits for all answers; those of workers that have gone are missing.
    fn ask_all<T>(&self, command: impl Fn(mpsc::Sender<T>) -> Command) -> impl Iterator<Item = T> {
        let (sender, answers) = mpsc::channel();
        for worker in &self.workers {
            worker.commands.push(command(sender.clone()));
        }
        answers.into_iter()
    }

    fn let_go(&self, port: PortNo) {
        self.ask_all(|done| Command::DelPort { port, done }).for_each(drop);
    }
}

impl Datapath for DpUser {
    fn kind(&self) -> &'static str {
        "netdev"
    }

    fn add_port(&self, port: PortNo, device: Arc<dyn Netdev>) -> Result<(), DpError> {
        let _one_at_a_time = self.control.lock();
        if self.ports.read().contains_key(&port) {
            return Err(DpError::PortExists(port));
        }
        let refused = |source| DpError::Device {
            device: device.name().to_owned(),
            source,
        };
        let queues = device.open_rx().map_err(refused)?;
        let stats: Vec<Arc<PortStats>> = self.workers.iter().map(|_| Arc::default()).collect();
        let mut receivers = Vec::new();
        let mut inlets: Vec<Vec<Inlet>> = self.workers.iter().map(|_| Vec::new()).collect();
        for rx in queues {
            let worker = self.least_loaded(&receivers);
            receivers.push(worker);
            let budget = Budget::new(self.options.upcall_budget, self.options.upcall_burst);
            inlets[worker].push(Inlet::new(port, rx, stats[worker].clone(), budget));
        }
        let (done, answers) = mpsc::channel();
        for ((worker, inlets), stats) in self.workers.iter().zip(inlets).zip(&stats) {
            worker.commands.push(Command::AddPort {
                port,
                device: device.clone(),
                stats: stats.clone(),
                inlets,
                done: done.clone(),
            });
        }
        drop(done);
        if let Some(source) = answers.into_iter().find_map(Result::err) {
            self.let_go(port);
            return Err(refused(source));
        }
        let added = Port {
            device,
            stats,
            receivers,
            queue: None,
            scheduled: false,
            gate: None,
            drops: ControlDrops::default(),
        };
        self.ports.write().insert(port, added);
        Ok(())
    }

    fn del_port(&self, port: PortNo) -> Result<(), DpError> {
        let _one_at_a_time = self.control.lock();
        let removed = self.ports.write().remove(&port).ok_or(DpError::NoPort(port))?;
        self.let_go(port);
        self.drop_queued(&removed);
        Ok(())
    }

    fn port_counters(&self, port: PortNo) -> Option<PortCounters> {
        let ports = self.ports.read();
        let port = ports.get(&port)?;
        let mut sum = PortCounters::default();
        for stats in &port.stats {
            stats.add_to(&mut sum);
        }
        for cause in DropCause::ALL {
            let dropped = port.drops.get(cause);
            sum.drops[cause as usize] += dropped;
            sum.tx_dropped += dropped;
        }
        let lost = port.device.drops();
        sum.rx_dropped += lost.queue_full + lost.truncated;
        sum.rx_errors += lost.rx_errors;
        Some(sum)
    }

    fn execute(&self, in_port: PortNo, packet: &[u8], actions: &[Action]) {
        // By the worker that receives from the port, so that order is kept with what the port's packets do.
        let ports = self.ports.read();
        let receiver = ports.get(&in_port).and_then(|port| port.receivers.first());
        let worker = &self.workers[receiver.copied().unwrap_or(0)];
        worker.commands.push(Command::Execute {
            in_port,
            frame: Frame::unpooled(packet),
            actions: actions.to_vec(),
        });
    }

    fn dump_flows(&self) -> Vec<FlowDump> {
        self.ask_all(|flows| Command::Dump { flows }).flatten().collect()
    }

    fn push_stats(&self) {
        self.ask_all(|done| Command::Push { done }).for_each(drop);
    }

    fn flush_flows(&self) {
        self.ask_all(|done| Command::Flush { done }).for_each(drop);
    }

    fn cache_stats(&self) -> CacheStats {
        let mut sum = CacheStats::default();
        for worker in &self.workers {
            worker.stats.add_to(&mut sum);
        }
        sum
    }

    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), DpError> {
        self.meters.set(id, config)
    }

    fn del_meter(&self, id: u32) -> Option<MeterStats> {
        self.meters.remove(id)
    }

    fn meter_stats(&self, id: u32) -> Option<MeterStats> {
        self.meters.stats(id)
    }

    fn set_qos(&self, port: PortNo, config: Option<&PortConfig>) -> Result<(), DpError> {
        self.schedule(port, config.filter(|config| !config.is_direct()))
    }

    fn set_policing(&self, port: PortNo, config: Option<&IngressPolicerConfig>) -> Result<(), DpError> {
        self.change_gate(port, |gate, now| {
            gate.police(config, now);
            Ok(())
        })
    }

    fn qos(&self, port: PortNo) -> Option<QosReport> {
        let ports = self.ports.read();
        let port = ports.get(&port).filter(|port| port.scheduled)?;
        port.queue.as_ref().map(|queue| queue.report())
    }

    fn drops(&self) -> Vec<(DropCause, u64)> {
        DropCause::ALL
            .into_iter()
            .map(|cause| {
                let by_worker = self.workers.iter().map(|w| w.stats.dropped(cause));
                let refused = match cause {
                    DropCause::DeviceFull => self.workers.iter().map(|w| w.commands.refused()).sum(),
                    _ => 0,
                };
                (cause, by_worker.sum::<u64>() + refused + self.drops.get(cause))
            })
            .collect()
    }
}

mod schedule;

impl Drop for DpUser {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.commands.push(Command::Stop);
        }
        for worker in &mut self.workers {
            // The last reference may be a slowpath's, dropped by the worker itself: it cannot wait for its own end.
            if let Some(thread) = worker.thread.take()
                && thread.thread().id() != thread::current().id()
            {
                let _ = thread.join();
            }
        }
    }
}
