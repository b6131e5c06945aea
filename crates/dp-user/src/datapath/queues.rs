//! Which workers there are, and which of them serves which queue.
//!
//! A queue that moves is given up by one worker between two batches and taken over by another
//! before its next: no packet is lost, and the order of its packets stays. The megaflows that they
//! made stay with the old worker until they are idle; the new one makes its own.
//!
//! A queue stays where it is unless something asks for it to move: another set of workers, another
//! rule, a command, the automatic balance.

use super::{DpUser, Handle, Port, Usage, open_tx};
use crate::command::Command;
use crate::latency_request;
use crate::placement::{Placed, Wish, improvement, place};
use crate::worker::clock;
use dp::offload::OffloadPort;
use dp::{Assign, QueueRules, SHORTEST_LATENCY_HOLD, WorkerControl, WorkerReport};
use flow::PortNo;
use nanos::Nanos;
use netdev::Rx;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// How far back the cost of a queue counts when queues are placed.
const LATELY: Duration = Duration::from_secs(60);

/// A queue by its port and number.
type QueueId = (PortNo, u32);

impl WorkerControl for DpUser {
    fn count(&self) -> usize {
        self.workers.read().len()
    }

    fn set_cores(&self, cores: Option<&[usize]>) -> io::Result<()> {
        let _one_at_a_time = self.control.lock();
        let wanted: Vec<Option<usize>> = match cores.filter(|cores| !cores.is_empty()) {
            Some(cores) => cores.iter().copied().map(Some).collect(),
            None => self.usual_workers(),
        };
        let mut before = self.workers.read().clone();
        if before.iter().map(|worker| worker.core).eq(wanted.iter().copied()) {
            return Ok(());
        }
        let mut next_id = before.iter().map(|worker| worker.id + 1).max().unwrap_or(0);
        let (mut now, mut new) = (Vec::new(), Vec::new());
        for (place, core) in wanted.into_iter().enumerate() {
            if let Some(at) = before.iter().position(|worker| worker.core == core) {
                now.push(before.remove(at));
                continue;
            }
            let slowpath = self.slowpath.upgrade().ok_or(io::ErrorKind::NotConnected)?;
            match self.start(next_id, core.unwrap_or(place), core, slowpath).map(Arc::new) {
                Ok(handle) => {
                    next_id += 1;
                    new.push(handle.clone());
                    now.push(handle);
                }
                Err(error) => {
                    new.iter().for_each(|worker| worker.commands.push(Command::Stop));
                    return Err(error);
                }
            }
        }
        for worker in &new {
            self.introduce(worker);
        }
        *self.workers.write() = now;
        self.replace(Scope::All, &before);
        before.iter().for_each(|worker| self.end(worker));
        Ok(())
    }

    fn set_queue_rules(&self, rules: QueueRules) -> Vec<String> {
        let _one_at_a_time = self.control.lock();
        let before = std::mem::replace(&mut *self.rules.lock(), rules.clone());
        let anew = (before.assign, before.isolate, &before.nodes) != (rules.assign, rules.isolate, &rules.nodes);
        if anew || before.affinity != rules.affinity {
            self.replace(if anew { Scope::All } else { Scope::Needed }, &[]);
        }
        let ports = self.ports.read();
        let workers = self.workers.read();
        let mut missing = Vec::new();
        for (port, affinity) in &rules.affinity {
            let Some(known) = ports.get(port) else { continue };
            for (queue, core) in affinity {
                let name = known.device.name();
                if *queue as usize >= known.queues.len() {
                    missing.push(format!("pmd-rxq-affinity: {name} has no receive queue {queue}"));
                } else if !workers.iter().any(|worker| worker.number == *core) {
                    missing.push(format!(
                        "pmd-rxq-affinity: core {core} has no worker for receive queue {queue} of {name}: pmd-cpu-mask gives it one"
                    ));
                }
            }
        }
        missing
    }

    fn rebalance(&self) {
        let _one_at_a_time = self.control.lock();
        self.replace(Scope::All, &[]);
    }

    fn sample(&self) -> bool {
        let _one_at_a_time = self.control.lock();
        let now = clock();
        for port in self.ports.write().values_mut() {
            for queue in &mut port.queues {
                queue.usage.sample(now, queue.load.cycles.get());
            }
        }
        for worker in &*self.workers.read() {
            worker.usage.lock().sample(now, worker.load.busy_cycles.get());
        }
        let due = self.is_balance_due(now);
        if due {
            self.replace(Scope::All, &[]);
        }
        due
    }

    fn set_spin(&self, spin: Option<Duration>) {
        self.spin.set(spin);
    }

    fn set_latency_hold(&self, hold: Duration) -> io::Result<()> {
        self.spin.set_latency_hold(hold);
        match hold < SHORTEST_LATENCY_HOLD {
            true => Ok(()),
            false => latency_request::request().map(drop),
        }
    }

    fn reports(&self, window: Duration) -> Vec<WorkerReport> {
        self.worker_reports(window)
    }

    fn clear_perf(&self, core: Option<usize>) {
        self.clear_counters(core);
    }
}

impl DpUser {
    /// Whether a worker has too much to do and another placement is better.
    fn is_balance_due(&self, now: Nanos) -> bool {
        let rules = self.rules.lock().clone();
        let Some(balance) = rules.balance.filter(|_| rules.assign != Assign::RoundRobin) else {
            return false;
        };
        let workers = self.workers.read().clone();
        let (_, mut wishes) = self.wishes(&workers, &rules, Scope::Needed);
        let placed = place(&nodes(&workers, &rules), &wishes, rules.assign, rules.isolate);
        let open = placed.isolated.iter().filter(|isolated| !**isolated).count();
        let served = |worker: usize| placed.workers.iter().filter(|at| **at == worker).count();
        let several = (0..workers.len()).any(|worker| !placed.isolated[worker] && served(worker) > 1);
        let hertz = self.hertz();
        let mut busiest = 0;
        let mut seen = true;
        for (worker, isolated) in workers.iter().zip(&placed.isolated) {
            if !isolated {
                let usage = worker.usage.lock();
                seen &= usage.since(now) >= balance.interval;
                let percent = usage.percent(worker.load.busy_cycles.get(), now, balance.interval, hertz);
                busiest = busiest.max(percent.unwrap_or(0));
            }
        }
        if open < 2 || !several || !seen || busiest < balance.load_percent {
            return false;
        }
        let as_is = loads(&wishes, &placed);
        for wish in &mut wishes {
            wish.stay = None;
        }
        let better = place(&nodes(&workers, &rules), &wishes, rules.assign, rules.isolate);
        let due = improvement(&as_is, &loads(&wishes, &better)) >= balance.improvement_percent.max(1);
        if due {
            // The next look is at what comes now.
            workers
                .iter()
                .for_each(|worker| *worker.usage.lock() = Usage::at(now, worker.load.busy_cycles.get()));
        }
        due
    }

    /// The workers for the queues of a port that is to come.
    pub(super) fn place_new(
        &self,
        port: PortNo,
        queues: usize,
        node: Option<usize>,
        workers: &[Arc<Handle>],
    ) -> Vec<usize> {
        let rules = self.rules.lock().clone();
        let (_, mut wishes) = self.wishes(workers, &rules, Scope::Needed);
        let before = wishes.len();
        wishes.extend((0..queues as u32).map(|queue| Wish {
            pinned: pinned(&rules, port, queue, workers),
            node,
            ..Wish::default()
        }));
        place(&nodes(workers, &rules), &wishes, rules.assign, rules.isolate)
            .workers
            .split_off(before)
    }

    /// Which workers serve only queues that are pinned to them.
    pub(super) fn isolated(&self, workers: &[Arc<Handle>]) -> Vec<bool> {
        let rules = self.rules.lock().clone();
        let (_, wishes) = self.wishes(workers, &rules, Scope::Needed);
        place(&nodes(workers, &rules), &wishes, rules.assign, rules.isolate).isolated
    }

    /// All queues in the order of their ports, and what is wished of each.
    fn wishes(&self, workers: &[Arc<Handle>], rules: &QueueRules, scope: Scope) -> (Vec<QueueId>, Vec<Wish>) {
        let now = clock();
        let ports = self.ports.read();
        let mut sorted: Vec<(&PortNo, &Port)> = ports.iter().collect();
        sorted.sort_by_key(|(port, _)| port.0);
        let mut found = (Vec::new(), Vec::new());
        for (port, known) in sorted {
            for (number, queue) in (0..).zip(&known.queues) {
                let stay = workers.iter().position(|worker| worker.id == queue.worker);
                found.0.push((*port, number));
                found.1.push(Wish {
                    pinned: pinned(rules, *port, number, workers),
                    stay: stay.filter(|_| scope == Scope::Needed),
                    cycles: queue.usage.spent(queue.load.cycles.get(), now, LATELY),
                    node: known.node,
                });
            }
        }
        found
    }

    /// Moves the queues that are to be elsewhere, those of workers that are `leaving` too. The
    /// caller holds `control`.
    fn replace(&self, scope: Scope, leaving: &[Arc<Handle>]) {
        let rules = self.rules.lock().clone();
        let workers = self.workers.read().clone();
        let (ids, wishes) = self.wishes(&workers, &rules, scope);
        let placed = place(&nodes(&workers, &rules), &wishes, rules.assign, rules.isolate);
        for ((port, number), to) in ids.into_iter().zip(placed.workers) {
            let from = |id| workers.iter().chain(leaving).find(|worker| worker.id == id);
            self.move_queue((port, number), from, &workers[to]);
        }
    }

    /// Does something with all receive queues of the ports that can be offloaded, one after the
    /// other. Meanwhile its worker does not serve a queue.
    pub(super) fn with_offloaded_queues(&self, mut act: impl FnMut(&OffloadPort, &mut dyn Rx)) {
        let _one_at_a_time = self.control.lock();
        let workers = self.workers.read().clone();
        let queues: Vec<_> = {
            let ports = self.ports.read();
            let offloaded = ports
                .iter()
                .filter_map(|(port, known)| Some((*port, known, known.offload.as_ref()?)));
            offloaded
                .flat_map(|(port, known, offload)| {
                    let numbers = (0..).zip(&known.queues);
                    numbers.map(move |(number, queue)| {
                        (port, number, queue.worker, known.device.clone(), offload.port.clone())
                    })
                })
                .collect()
        };
        for (port, queue, worker, device, offload) in queues {
            let Some(worker) = workers.iter().find(|handle| handle.id == worker) else {
                continue;
            };
            let (done, answer) = mpsc::channel();
            worker.commands.push(Command::TakeQueue { port, queue, done });
            let Ok(mut assigned) = answer.recv() else { continue };
            act(&offload, &mut *assigned.rx_queue.rx);
            let (done, answer) = mpsc::channel();
            worker.commands.push(Command::AddQueue { assigned, device, done });
            // As in `move_queue`.
            let _ = answer.recv();
        }
    }

    fn move_queue<'a>(&self, (port, number): QueueId, holder: impl Fn(u64) -> Option<&'a Arc<Handle>>, to: &Handle) {
        let (from, stats, device) = {
            let ports = self.ports.read();
            let Some(known) = ports.get(&port) else { return };
            let Some(queue) = known.queues.get(number as usize) else {
                return;
            };
            let stats = known.stats.iter().find(|(worker, _)| *worker == to.id);
            match stats {
                Some((_, stats)) if queue.worker != to.id => (queue.worker, stats.clone(), known.device.clone()),
                _ => return,
            }
        };
        let Some(from) = holder(from) else { return };
        let (done, answer) = mpsc::channel();
        from.commands.push(Command::TakeQueue {
            port,
            queue: number,
            done,
        });
        let Ok(mut assigned) = answer.recv() else { return };
        // A counter has one writer.
        assigned.rx_queue.source.stats = Some(stats);
        let (done, answer) = mpsc::channel();
        to.commands.push(Command::AddQueue { assigned, device, done });
        // It fails where the kernel cannot watch one descriptor more; the port is then as one whose
        // device is gone.
        let _ = answer.recv();
        if let Some(known) = self.ports.write().get_mut(&port)
            && let Some(queue) = known.queues.get_mut(number as usize)
        {
            queue.worker = to.id;
        }
    }

    /// Has others visit the schedulers that a worker was to visit which has ended.
    fn pass_on_schedulers(&self) {
        let ports = self.ports.read();
        let queues = ports
            .iter()
            .filter_map(|(port, known)| Some((*port, known.queue.clone()?)));
        let queues: Vec<_> = queues.collect();
        drop(ports);
        for (port, queue) in queues {
            queue.unclaim();
            let schedule = |done| Command::Schedule {
                port,
                queue: queue.clone(),
                done,
            };
            self.ask_all(schedule).for_each(drop);
        }
    }

    /// Lets a new worker send on all ports.
    fn introduce(&self, worker: &Handle) {
        for (port, known) in &mut *self.ports.write() {
            let stats = Arc::default();
            known.stats.push((worker.id, Arc::clone(&stats)));
            let (done, _) = mpsc::channel();
            worker.commands.push(Command::AddPort {
                port: *port,
                device: known.device.clone(),
                facts: known.facts,
                tx: open_tx(&*known.device),
                stats,
                offload: known.offload.clone(),
                assigned_queues: Vec::new(),
                done,
            });
            if let Some(queue) = known.queue.as_ref().filter(|_| known.scheduled) {
                let (done, _) = mpsc::channel();
                worker.commands.push(Command::Schedule {
                    port: *port,
                    queue: queue.clone(),
                    done,
                });
            }
        }
    }

    /// Ends a worker that has no queue any more.
    fn end(&self, worker: &Handle) {
        // What its megaflows have carried counts.
        let (done, reported) = mpsc::channel();
        worker.commands.push(Command::Push { done });
        reported.into_iter().for_each(drop);
        let ports: Vec<PortNo> = self.ports.read().keys().copied().collect();
        for port in ports {
            let (done, gone) = mpsc::channel();
            worker.commands.push(Command::DelPort { port, done });
            gone.into_iter().for_each(drop);
        }
        worker.commands.push(Command::Stop);
        worker.join();
        self.pass_on_schedulers();
        worker.stats.flows.set(0);
        worker.stats.masks.set(0);
        self.ended.lock().push(worker.stats.clone());
    }
}

/// The NUMA nodes of workers that are bound to cores.
fn nodes(workers: &[Arc<Handle>], rules: &QueueRules) -> Vec<Option<usize>> {
    let node = |worker: &Arc<Handle>| rules.nodes.get(&worker.core?).copied();
    workers.iter().map(node).collect()
}

/// What each of the workers that are not isolated has to do.
fn loads(wishes: &[Wish], placed: &Placed) -> Vec<u64> {
    let mut loads = vec![0; placed.isolated.len()];
    for (wish, at) in wishes.iter().zip(&placed.workers) {
        loads[*at] += wish.cycles;
    }
    let open = loads
        .into_iter()
        .zip(&placed.isolated)
        .filter(|(_, isolated)| !**isolated);
    open.map(|(load, _)| load).collect()
}

/// Which queues may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// All.
    All,
    /// Those that cannot stay.
    Needed,
}

/// The place of the worker that a queue is pinned to, where there is one.
fn pinned(rules: &QueueRules, port: PortNo, queue: u32, workers: &[Arc<Handle>]) -> Option<usize> {
    let core = rules.affinity.get(&port)?.get(&queue)?;
    workers.iter().position(|worker| worker.number == *core)
}
