//! The control side: what [`Datapath`] asks, said to the workers.

use crate::Options;
use crate::actions::Shared;
use crate::command::{AssignedQueue, Command, CommandQueue, FlowEdit};
use crate::dep_epochs::{DepEpochs, PortOffload};
use crate::device_facts::DeviceFacts;
use crate::devices::Devices;
use crate::ingress::Ingress;
use crate::load::{QueueLoad, WorkerLoad};
use crate::pipeline::{Budget, Pipeline, RxQueue};
use crate::scheduled::PortQueue;
use crate::stats::{ControlDrops, OFFLOAD_EVENTS, PortStats, WorkerStats};
use crate::worker::{SpinTime, Worker, clock};
use conntrack::Conntrack;
use dp::offload::FlowOffload;
use dp::{
    Action, BOND_BUCKETS, BondTable, CacheStats, Changes, Datapath, DpError, DropCause, FlowDump, Limits, MeterConfig,
    MeterStats, PortCounters, PutFlow, PutFlowError, QosReport, QueueRules, Slowpath, WorkerControl,
};
use flow::{Key, Mask, PortNo};
use hashbrown::HashMap;
use nanos::Nanos;
use netdev::{Frame, Netdev, State, Tx};
pub use offload::LeftFlows;
use parking_lot::{Mutex, RwLock};
use qos::PortConfig;
use qos::police::IngressPolicerConfig;
use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroU64;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The userspace datapath. Its workers end when it is dropped.
///
/// Lock order: `control`, then `ports`, then `workers`, then others. No lock is held that a
/// [`Slowpath`] could need while a worker is waited for; a slowpath must not call what waits for
/// workers (everything but [`Datapath::execute`] and the statistics) from within a worker's call.
pub struct DpUser {
    options: Options,
    spin: Arc<SpinTime>,
    devices: Devices,
    /// For workers that are started later; workers hold it as long as there are any.
    slowpath: Weak<dyn Slowpath>,
    changes: Arc<Changes>,
    /// Those that run, in the order of their cores. There is always one.
    workers: RwLock<Vec<Arc<Handle>>>,
    /// What workers that have ended have counted.
    ended: Mutex<Vec<Arc<WorkerStats>>>,
    rules: Mutex<QueueRules>,
    /// When this began, by both clocks.
    began: (Nanos, u64),
    /// Held while ports come and go, so that these do so one at a time.
    control: Mutex<()>,
    ports: RwLock<HashMap<PortNo, Port>>,
    shared: Shared,
    /// Those of a worker, where they have been changed.
    limits: Mutex<Option<Limits>>,
    /// Queued packets that were dropped when a configuration changed or a port went.
    drops: ControlDrops,
    /// Made with the first port that can be offloaded; why not, where the kernel refused.
    offload: OnceLock<io::Result<Arc<DepEpochs>>>,
    load_offload: OnceLock<Box<LoadOffload>>,
    offload_enabled: Mutex<bool>,
    /// Why the last port that was refused is not offloaded.
    unattached: Mutex<Option<String>>,
}

type LoadOffload = dyn Fn() -> io::Result<Arc<dyn FlowOffload>> + Send + Sync;

/// A worker as the control side knows it.
struct Handle {
    /// Different for each worker that there ever was.
    id: u64,
    /// The core that it is bound to.
    core: Option<usize>,
    /// What it is called: its core, or its place among those that are not bound.
    number: usize,
    commands: Arc<CommandQueue>,
    stats: Arc<WorkerStats>,
    load: Arc<WorkerLoad>,
    usage: Mutex<Usage>,
    /// What its counters were when they were last cleared.
    cleared: Mutex<Cleared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Port {
    device: Arc<dyn Netdev>,
    /// The device's NUMA node, if it is known.
    node: Option<usize>,
    facts: DeviceFacts,
    /// By the worker's id.
    stats: Vec<(u64, Arc<PortStats>)>,
    /// Its receive queues, by number.
    queues: Vec<QueuePlace>,
    /// The scheduler's, once it has had one.
    queue: Option<Arc<PortQueue>>,
    /// It has a scheduler now.
    scheduled: bool,
    /// The same in the offload, where flows can be offloaded.
    offload: Option<PortOffload>,
    /// What its packets pass as they come, once there was something.
    ingress: Option<Arc<Mutex<Ingress>>>,
    /// Queued packets that were dropped when the configuration changed.
    drops: ControlDrops,
}

/// A receive queue as the control side knows it.
struct QueuePlace {
    /// The worker that has it, by its id.
    worker: u64,
    load: Arc<QueueLoad>,
    usage: Usage,
}

/// The slices of processor time that workers run in.
const SLICE: Duration = Duration::from_micros(100);

impl DpUser {
    /// Starts the workers.
    ///
    /// # Errors
    /// Where the kernel gives no thread, epoll or eventfd.
    pub fn new(options: Options, slowpath: Arc<dyn Slowpath>, changes: Arc<Changes>) -> io::Result<Arc<DpUser>> {
        let datapath = DpUser {
            offload: OnceLock::new(),
            load_offload: OnceLock::new(),
            offload_enabled: Mutex::new(true),
            unattached: Mutex::default(),
            slowpath: Arc::downgrade(&slowpath),
            changes,
            workers: RwLock::default(),
            ended: Mutex::default(),
            rules: Mutex::default(),
            began: (clock(), sys::cycles::now()),
            control: Mutex::new(()),
            ports: RwLock::default(),
            shared: Shared::default(),
            limits: Mutex::default(),
            drops: ControlDrops::default(),
            spin: Arc::new(SpinTime::new(options.spin)),
            devices: Devices::start()?,
            options,
        };
        for (number, core) in datapath.usual_workers().into_iter().enumerate() {
            let handle = datapath.start(number as u64, number, core, slowpath.clone())?;
            datapath.workers.write().push(Arc::new(handle));
        }
        Ok(Arc::new(datapath))
    }

    /// The cores of the workers that there are where nobody asks for others.
    fn usual_workers(&self) -> Vec<Option<usize>> {
        let core = |number| self.options.affinity.get(number).copied();
        (0..self.options.workers.max(1)).map(core).collect()
    }

    fn start(&self, id: u64, number: usize, core: Option<usize>, slowpath: Arc<dyn Slowpath>) -> io::Result<Handle> {
        let options = &self.options;
        let commands = Arc::new(CommandQueue::new()?);
        let told = *self.limits.lock();
        let limits = told.unwrap_or_else(|| options.limits());
        let mut pipeline = Pipeline::with_shared(
            limits.flows,
            limits.idle,
            slowpath.clone(),
            self.changes.clone(),
            self.shared.clone(),
        );
        pipeline.set_limits(limits);
        pipeline.set_offload(*self.offload_enabled.lock());
        let stats = pipeline.stats().clone();
        let worker = Worker::new(
            number,
            pipeline,
            commands.clone(),
            slowpath,
            self.spin.clone(),
            self.devices.clone(),
        )?;
        let load = worker.load().clone();
        let thread = thread::Builder::new()
            .name(format!("oxvs-worker-{number}"))
            .spawn(move || {
                if let Some(core) = core {
                    // A processor that is not there is no reason not to forward.
                    let _ = sys::thread::pin_to_cpu(core);
                }
                // Where processors are busy, a packet would wait for whole slices of others.
                // Without it the worker works as well, only later.
                let _ = sys::thread::set_slice(SLICE);
                // Timers are for packets that are due; they come 50 us late otherwise.
                let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
                worker.run();
            })?;
        let now = clock();
        Ok(Handle {
            id,
            core,
            number,
            commands,
            stats,
            load,
            usage: Mutex::new(Usage::new(now)),
            cleared: Mutex::new(Cleared::new(now)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Gives every worker a command and waits for all answers; those of workers that have gone are
    /// missing.
    fn ask_all<T>(&self, command: impl Fn(mpsc::Sender<T>) -> Command) -> impl Iterator<Item = T> {
        let (sender, answers) = mpsc::channel();
        for worker in &*self.workers.read() {
            worker.commands.push(command(sender.clone()));
        }
        answers.into_iter()
    }

    fn let_go(&self, port: PortNo) {
        self.ask_all(|done| Command::DelPort { port, done }).for_each(drop);
    }
}

impl Port {
    /// Takes note of its device's state; `None` where that has gone.
    fn note_state(&mut self, state: Option<&State>) {
        if let Some(offload) = &mut self.offload {
            offload.device = state.cloned();
        }
        if let Some(state) = state {
            self.facts.speed = DeviceFacts::speed_of(state);
            // It may have no scheduler now, and get one again.
            self.queue.iter().for_each(|queue| queue.set_speed(self.facts.speed));
        }
    }
}

impl Datapath for DpUser {
    fn add_port(&self, port: PortNo, device: Arc<dyn Netdev>) -> Result<(), DpError> {
        let _one_at_a_time = self.control.lock();
        if self.ports.read().contains_key(&port) {
            return Err(DpError::PortExists(port));
        }
        let refused = |source| DpError::Device {
            device: device.name().to_owned(),
            source,
        };
        let mut queues = device.open_rx().map_err(refused)?;
        let facts = DeviceFacts::of(&*device);
        let offload = self.offload_port(&*device, &mut queues);
        let workers = self.workers.read().clone();
        let stats: Vec<(u64, Arc<PortStats>)> = workers.iter().map(|worker| (worker.id, Arc::default())).collect();
        let node = device.numa_node();
        let placed = self.place_new(port, queues.len(), node, &workers);
        let mut assigned_queues: Vec<Vec<AssignedQueue>> = workers.iter().map(|_| Vec::new()).collect();
        let mut places = Vec::new();
        for ((number, rx), worker) in queues.into_iter().enumerate().zip(placed) {
            let budget = Budget::new(self.options.upcall_budget, self.options.upcall_burst);
            let load = Arc::<QueueLoad>::default();
            let mut rx_queue = RxQueue::new(port, rx, stats[worker].1.clone(), budget);
            rx_queue.offload_port = offload.as_ref().map(|offload| offload.port.clone());
            rx_queue.tunnel = device.tunnel_format();
            assigned_queues[worker].push(AssignedQueue {
                rx_queue,
                number: number as u32,
                ifindex: facts.ifindex,
                load: load.clone(),
            });
            places.push(QueuePlace {
                worker: workers[worker].id,
                load,
                usage: Usage::new(clock()),
            });
        }
        let (done, answers) = mpsc::channel();
        for ((worker, assigned_queues), (_, stats)) in workers.iter().zip(assigned_queues).zip(&stats) {
            worker.commands.push(Command::AddPort {
                port,
                device: device.clone(),
                facts,
                tx: open_tx(&*device),
                stats: stats.clone(),
                offload: offload.clone(),
                assigned_queues,
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
            node,
            facts,
            stats,
            queues: places,
            offload,
            queue: None,
            scheduled: false,
            ingress: None,
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
        for (_, stats) in &port.stats {
            stats.add_to(&mut sum);
        }
        for cause in DropCause::ALL {
            let dropped = port.drops.get(cause);
            sum.drops[cause as usize] += dropped;
            sum.tx_dropped += dropped;
        }
        if let Some(offload) = &port.offload {
            offload::add_carried(&mut sum, offload);
        }
        let lost = port.device.drops();
        sum.rx_dropped += lost.queue_full + lost.truncated;
        sum.rx_errors += lost.rx_errors;
        Some(sum)
    }

    fn execute(&self, in_port: PortNo, packet: &[u8], actions: &[Action]) {
        // By the worker that receives from the port, so that order is kept with what the port's
        // packets do.
        let ports = self.ports.read();
        let receiver = ports.get(&in_port).and_then(|port| port.queues.first());
        let workers = self.workers.read();
        let its = receiver.and_then(|queue| workers.iter().find(|worker| worker.id == queue.worker));
        let Some(worker) = its.or(workers.first()) else { return };
        worker.commands.push(Command::Execute {
            in_port,
            frame: Frame::unpooled(packet),
            actions: actions.to_vec(),
        });
    }

    fn send_ahead(&self, port: PortNo, packet: &[u8]) {
        let workers = self.workers.read();
        let Some(worker) = workers.get(port.0 as usize % workers.len().max(1)) else {
            return;
        };
        worker.commands.push(Command::SendAhead {
            port,
            frame: Frame::unpooled(packet),
        });
    }

    fn dump_flows(&self) -> Vec<FlowDump> {
        self.ask_all(|flows| Command::Dump { flows }).flatten().collect()
    }

    fn put_flow(&self, key: &Key, mask: &Mask, actions: &[Action], how: PutFlow) -> Result<(), PutFlowError> {
        let ports = self.ports.read();
        let queues = ports.get(&key.in_port()).map(|port| &port.queues[..]);
        let receives = |id| queues.is_some_and(|queues| queues.iter().any(|queue| queue.worker == id));
        let workers = self.workers.read();
        // A port that no worker receives from may get one that does.
        let any = workers.iter().any(|worker| receives(worker.id));
        let edit = FlowEdit {
            key: *key,
            mask: *mask,
            actions: Some((actions.into(), how)),
        };
        let (done, answers) = mpsc::channel();
        let chosen = workers.iter().filter(|worker| !any || receives(worker.id));
        for worker in chosen {
            let (edit, done) = (Box::new(edit.clone()), done.clone());
            worker.commands.push(Command::EditFlow { edit, done });
        }
        drop((done, workers, ports));
        // A worker whose flow has aged already may have none to change.
        let answers: Vec<_> = answers.iter().collect();
        match answers.iter().find(|answer| answer.is_err()) {
            Some(Err(PutFlowError::Missing)) if answers.contains(&Ok(())) => Ok(()),
            Some(error) => *error,
            None => Ok(()),
        }
    }

    fn del_flow(&self, key: &Key, mask: &Mask) -> bool {
        let edit = FlowEdit {
            key: *key,
            mask: *mask,
            actions: None,
        };
        let answers = self.ask_all(|done| Command::EditFlow {
            edit: Box::new(edit.clone()),
            done,
        });
        answers.fold(false, |any, one| any | one.is_ok())
    }

    fn push_stats(&self) {
        self.ask_all(|done| Command::Push { done }).for_each(drop);
    }

    fn flush_flows(&self) {
        self.ask_all(|done| Command::Flush { done }).for_each(drop);
    }

    fn cache_stats(&self) -> CacheStats {
        let mut sum = CacheStats::default();
        for worker in &*self.workers.read() {
            worker.stats.add_to(&mut sum);
        }
        for stats in &*self.ended.lock() {
            stats.add_to(&mut sum);
        }
        sum
    }

    fn set_bond(&self, id: u32, table: Option<BondTable>) {
        let members = self.shared.bonds.set(id, table);
        self.suspend_offloaded(&members);
    }

    fn take_bond_loads(&self, id: u32) -> Option<[u64; BOND_BUCKETS]> {
        self.shared.bonds.take_loads(id)
    }

    fn set_meter(&self, id: u32, config: &MeterConfig) -> Result<(), DpError> {
        self.shared.meters.set(id, config)
    }

    fn del_meter(&self, id: u32) -> Option<MeterStats> {
        self.shared.meters.remove(id)
    }

    fn meter_stats(&self, id: u32) -> Option<MeterStats> {
        self.shared.meters.stats(id)
    }

    fn now(&self) -> Nanos {
        clock()
    }

    fn conntrack(&self) -> &Arc<Conntrack> {
        &self.shared.conntrack
    }

    fn set_qos(&self, port: PortNo, config: Option<&PortConfig>) -> Result<(), DpError> {
        self.schedule(port, config.filter(|config| !config.is_direct()))
    }

    fn set_policing(&self, port: PortNo, config: Option<&IngressPolicerConfig>) -> Result<(), DpError> {
        self.change_ingress(port, |ingress, now| {
            ingress.police(config, now);
            Ok(())
        })
    }

    fn qos(&self, port: PortNo) -> Option<QosReport> {
        let ports = self.ports.read();
        let port = ports.get(&port).filter(|port| port.scheduled)?;
        port.queue.as_ref().map(|queue| queue.report())
    }

    fn default_limits(&self) -> Limits {
        let each = self.options.limits();
        Limits {
            flows: each.flows * self.workers.read().len(),
            ..each
        }
    }

    fn set_limits(&self, limits: Limits) {
        let workers = self.workers.read();
        let each = Limits {
            flows: limits.flows.div_ceil(workers.len().max(1)).max(1),
            ..limits
        };
        if self.limits.lock().replace(each) == Some(each) {
            return;
        }
        for worker in &*workers {
            worker.commands.push(Command::Limit(each));
        }
    }

    fn flow_limit(&self) -> usize {
        let told = self
            .limits
            .lock()
            .map_or(self.options.flow_limit, |limits| limits.flows);
        let workers = self.workers.read();
        let limits = workers.iter().map(|worker| worker.stats.limit.get() as usize);
        // A worker that has not looked yet has said nothing.
        limits.map(|limit| if limit == 0 { told } else { limit }).sum()
    }

    fn ageing_took(&self) -> Duration {
        let workers = self.workers.read();
        let took = workers.iter().map(|worker| worker.stats.pass.get()).max();
        Duration::from_millis(took.unwrap_or(0))
    }

    fn set_offload(&self, enabled: bool) {
        let _one_at_a_time = self.control.lock();
        if std::mem::replace(&mut *self.offload_enabled.lock(), enabled) != enabled {
            self.ask_all(|done| Command::Offload { enabled, done }).for_each(drop);
        }
    }

    fn offload_error(&self) -> Option<String> {
        let error = self.offload.get()?.as_ref().err().map(sys::strerror);
        error.or_else(|| self.unattached.lock().clone())
    }

    fn offload_events(&self) -> Vec<(&'static str, u64)> {
        let (workers, ended) = (self.workers.read(), self.ended.lock());
        let count = |n: usize| {
            let stats = workers.iter().map(|worker| &worker.stats).chain(&*ended);
            stats.map(|stats| stats.offloaded[n].get()).sum()
        };
        let named = OFFLOAD_EVENTS.iter().enumerate();
        named.map(|(n, name)| (*name, count(n))).collect()
    }

    fn links_changed(&self, devices: &BTreeSet<&str>) {
        let _one_at_a_time = self.control.lock();
        let changed: Vec<(PortNo, Arc<dyn Netdev>)> = {
            let ports = self.ports.read();
            ports
                .iter()
                .filter(|(_, port)| devices.contains(port.device.name()))
                .map(|(number, port)| (*number, port.device.clone()))
                .collect()
        };
        for (port, device) in changed {
            // Read here, because workers must not wait for the kernel.
            let state = device.state().ok();
            if let Some(known) = self.ports.write().get_mut(&port) {
                known.note_state(state.as_ref());
            }
            for worker in &*self.workers.read() {
                worker.commands.push(Command::Link {
                    port,
                    device: state.clone(),
                });
            }
        }
    }

    fn workers(&self) -> Option<&dyn WorkerControl> {
        Some(self)
    }

    fn drops(&self) -> Vec<(DropCause, u64)> {
        let (workers, ended) = (self.workers.read(), self.ended.lock());
        let by_offload = self.offload_table().map_or(0, |table| table.dropped());
        DropCause::ALL
            .into_iter()
            .map(|cause| {
                let stats = workers.iter().map(|worker| &worker.stats).chain(&*ended);
                let by_worker = stats.map(|stats| stats.dropped(cause));
                let refused = match cause {
                    DropCause::DeviceFull => workers.iter().map(|w| w.commands.refused()).sum::<u64>() + by_offload,
                    _ => 0,
                };
                (cause, by_worker.sum::<u64>() + refused + self.drops.get(cause))
            })
            .collect()
    }
}

/// A worker's way to send. Without one the worker asks the devices thread with the first packet
/// that it has for the port.
fn open_tx(device: &dyn Netdev) -> Option<Box<dyn Tx>> {
    let opened = device.open_tx();
    if let Err(error) = &opened {
        let (name, error) = (device.name(), sys::strerror(error));
        telemetry::warn_limited!(target: "dpif_netdev", "{name}: cannot open the device to send: {error}");
    }
    opened.ok()
}

mod offload;
mod queues;
mod report;
mod schedule;

use report::{Cleared, Usage};

impl Drop for DpUser {
    fn drop(&mut self) {
        for worker in &*self.workers.read() {
            worker.commands.push(Command::Stop);
        }
        for worker in &*self.workers.read() {
            worker.join();
        }
    }
}

impl Handle {
    /// Waits for the worker's end.
    fn join(&self) {
        // The last reference may be a slowpath's, dropped by the worker itself: it cannot wait for
        // its own end.
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
