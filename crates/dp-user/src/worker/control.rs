//! What the control plane asks of a worker.

use super::*;

/// Time for commands in one turn; the rest follows in the next turns.
const OBEY: Duration = Duration::from_micros(50);

/// Requests of the control plane.
pub(super) struct Control {
    pub(super) commands: Arc<CommandQueue>,
    /// Commands to follow, in order.
    pub(super) taken: VecDeque<Command>,
    pub(super) dumps: Vec<dump::Dump>,
    /// Reports of statistics under way, and who waits for them.
    pub(super) pushes: Vec<(Push, Sender<()>)>,
}

impl Control {
    pub(super) fn new(commands: Arc<CommandQueue>) -> Control {
        Control {
            commands,
            taken: VecDeque::new(),
            dumps: Vec::new(),
            pushes: Vec::new(),
        }
    }

    /// Whether the worker has to go on with a request at once.
    pub(super) fn goes_on(&self) -> bool {
        !self.dumps.is_empty() || !self.pushes.is_empty() || !self.taken.is_empty()
    }
}

impl Worker {
    /// Does what the control plane said, as far as it comes in [`OBEY`]; `false` when told to stop.
    pub(super) fn obey(&mut self, now: Nanos) -> bool {
        let mut go_on = true;
        while let Some(command) = self.control.taken.pop_front() {
            // The caller may have stopped waiting for the answer; that is no error.
            match command {
                Command::AddPort {
                    port,
                    device,
                    facts,
                    tx,
                    stats,
                    offload,
                    assigned_queues,
                    done,
                } => {
                    self.pipeline.add_tx_port(port, device.clone(), facts, tx, stats);
                    self.pipeline.add_offload_port(port, offload);
                    let added = assigned_queues
                        .into_iter()
                        .try_for_each(|assigned| self.add_queue(assigned, &device));
                    let _ = done.send(added);
                }
                Command::TakeQueue { port, queue, done } => {
                    if let Some(assigned) = self.take_queue(port, queue) {
                        let _ = done.send(assigned);
                    }
                }
                Command::AddQueue { assigned, device, done } => {
                    let _ = done.send(self.add_queue(assigned, &device));
                }
                Command::Checked { port, queue, vanished } => self.checked(port, queue, vanished),
                Command::Opened { port, device, tx } => {
                    let unused = self.pipeline.opened(port, &device, tx);
                    self.devices.drop(Box::new((device, unused)));
                }
                Command::DelPort { port, done } => {
                    let _ = done.send(self.del_port(port));
                }
                Command::Schedule { port, queue, done } => {
                    self.pipeline.schedule(port, queue, now);
                    let _ = done.send(());
                }
                Command::Ingress { port, ingress, done } => {
                    self.ingress(port, &ingress);
                    let _ = done.send(());
                }
                Command::Offload { enabled, done } => {
                    self.pipeline.set_offload(enabled);
                    let _ = done.send(());
                }
                Command::Link { port, device } => self.pipeline.link_changed(port, device),
                Command::Limit(limits) => self.pipeline.set_limits(limits),
                Command::EditFlow { edit, done } => _ = done.send(self.pipeline.edit_flow(&edit, now)),
                Command::Flush { done } => {
                    self.pipeline.flush();
                    let _ = done.send(());
                }
                Command::Push { done } => self.control.pushes.push((Push::default(), done)),
                Command::Dump { flows } => self.control.dumps.push(dump::Dump::new(flows)),
                Command::Execute {
                    in_port,
                    frame,
                    actions,
                } => {
                    self.pipeline.execute(in_port, frame, &actions, now);
                    self.backlog.pending = true;
                }
                Command::SendAhead { port, frame } => self.pipeline.send_ahead(port, frame, now),
                Command::Stop => go_on = false,
            }
            if clock().since(now) >= OBEY {
                break;
            }
        }
        go_on
    }
}
