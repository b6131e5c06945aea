//! Commands from the control plane to a worker.
//!
//! Commands wait in a queue that the worker empties between batches; an eventfd wakes it. A command
//! carries the channel for its answer. When the worker ends, the queue drops its commands; this
//! closes their channels, so that no caller waits for ever.

use crate::dep_epochs::PortOffload;
use crate::device_facts::DeviceFacts;
use crate::ingress::Ingress;
use crate::load::QueueLoad;
use crate::rx_queue::RxQueue;
use crate::scheduled::PortQueue;
use crate::stats::PortStats;
use dp::{Action, FlowDump, Limits, PutFlow, PutFlowError};
use flow::{Key, Mask, PortNo};
use netdev::{Frame, Netdev, State, Tx};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

/// Packets of [`Command::Execute`] and [`Command::SendAhead`] that may wait for a worker.
const EXECUTES: usize = 4096;

/// A receive queue on its way to a worker.
pub(crate) struct AssignedQueue {
    pub(crate) rx_queue: RxQueue,
    /// Its number among its port's.
    pub(crate) number: u32,
    /// The kernel's number of its device.
    pub(crate) ifindex: u32,
    pub(crate) load: Arc<QueueLoad>,
}

/// A change of one megaflow by hand.
#[derive(Clone)]
pub(crate) struct FlowEdit {
    pub(crate) key: Key,
    pub(crate) mask: Mask,
    /// Its actions; `None` removes it.
    pub(crate) actions: Option<(Arc<[Action]>, PutFlow)>,
}

/// Resources for a thread that may wait for the kernel to drop.
pub(crate) type Released = Box<dyn Send>;

pub(crate) enum Command {
    /// Use a port: send on it, and receive from those of its queues that are this worker's.
    AddPort {
        port: PortNo,
        device: Arc<dyn Netdev>,
        facts: DeviceFacts,
        /// The worker's transmit handle; `None` if the device could not be opened.
        tx: Option<Box<dyn Tx>>,
        stats: Arc<PortStats>,
        /// The same in the offload, where flows can be offloaded.
        offload: Option<PortOffload>,
        assigned_queues: Vec<AssignedQueue>,
        done: Sender<io::Result<()>>,
    },
    /// Give a port's receive queue up, to be another worker's.
    TakeQueue {
        port: PortNo,
        queue: u32,
        done: Sender<AssignedQueue>,
    },
    /// Receive from a queue of a port that is known.
    AddQueue {
        assigned: AssignedQueue,
        device: Arc<dyn Netdev>,
        done: Sender<io::Result<()>>,
    },
    /// The answer to a worker's question whether the device of a receive queue has vanished.
    Checked { port: PortNo, queue: u32, vanished: bool },
    /// The worker's transmit handle for a port, which lacked one. It belongs to `device`, which may
    /// no longer be the port's.
    Opened {
        port: PortNo,
        device: Arc<dyn Netdev>,
        tx: Box<dyn Tx>,
    },
    /// Remove a port. The answer is the port's resources that the worker held: closing a packet
    /// socket takes the kernel some ten milliseconds, in which a worker would forward nothing.
    DelPort { port: PortNo, done: Sender<Released> },
    /// Let a port's frames go through a queue, whose configuration may have changed.
    Schedule {
        port: PortNo,
        queue: Arc<PortQueue>,
        done: Sender<()>,
    },
    /// Let a port's packets pass an ingress shaper and policer, whose configuration may have
    /// changed.
    Ingress {
        port: PortNo,
        ingress: Arc<Mutex<Ingress>>,
        done: Sender<()>,
    },
    /// Offload flows, or no longer.
    Offload { enabled: bool, done: Sender<()> },
    /// The new state of a port's device; `None` if it has gone.
    Link { port: PortNo, device: Option<State> },
    /// The limits of the megaflow cache.
    Limit(Limits),
    /// Add, change or remove a megaflow by hand.
    EditFlow {
        edit: Box<FlowEdit>,
        done: Sender<Result<(), PutFlowError>>,
    },
    /// Forget all megaflows.
    Flush { done: Sender<()> },
    /// Report the counters of megaflows; the worker closes the channel when it is done.
    Push { done: Sender<()> },
    /// Copy all megaflows; the channel is closed at the end.
    Dump { flows: Sender<Vec<FlowDump>> },
    /// Send a packet through actions as if it had come in on a port.
    Execute {
        in_port: PortNo,
        frame: Frame,
        actions: Vec<Action>,
    },
    /// Send a frame out of a port ahead of all that is queued there.
    SendAhead { port: PortNo, frame: Frame },
    /// End.
    Stop,
}

/// The commands that wait for one worker.
pub(crate) struct CommandQueue {
    waiting: Mutex<Waiting>,
    /// Packets that were turned away.
    refused: AtomicU64,
    event: OwnedFd,
}

#[derive(Default)]
struct Waiting {
    commands: Vec<Command>,
    executes: usize,
    closed: bool,
}

impl CommandQueue {
    pub(crate) fn new() -> io::Result<CommandQueue> {
        Ok(CommandQueue {
            waiting: Mutex::default(),
            refused: AtomicU64::new(0),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Queues a command. Drops it if the worker has gone, and drops and counts a packet if too many
    /// wait.
    pub(crate) fn push(&self, command: Command) {
        let mut waiting = self.waiting.lock();
        let is_packet = matches!(command, Command::Execute { .. } | Command::SendAhead { .. });
        if waiting.closed || is_packet && waiting.executes >= EXECUTES {
            self.refused.fetch_add(is_packet.into(), Ordering::Relaxed);
            return;
        }
        waiting.executes += usize::from(is_packet);
        waiting.commands.push(command);
        let first = waiting.commands.len() == 1;
        // A worker that wakes takes the processor from this thread: it must not find the lock held.
        drop(waiting);
        if first {
            // It fails only where the count would overflow, and then the event is pending anyway.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Packets that were turned away.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Appends what waits to `out`.
    pub(crate) fn take(&self, out: &mut VecDeque<Command>) {
        let mut waiting = self.waiting.lock();
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        waiting.executes = 0;
        out.extend(waiting.commands.drain(..));
    }

    /// Drops the queued commands and all later ones.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.commands.clear();
    }

    /// Readable when commands wait.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_caller_that_waits_for_a_worker_that_has_gone_gets_an_error() {
        let queue = CommandQueue::new().unwrap();
        let (done, answer) = mpsc::channel();
        queue.push(Command::Flush { done });
        queue.close();
        assert!(answer.recv().is_err());
        let (done, answer) = mpsc::channel();
        queue.push(Command::Flush { done });
        assert!(answer.recv().is_err());
    }

    #[test]
    fn packets_wait_in_bounded_number() {
        let queue = CommandQueue::new().unwrap();
        let execute = || Command::Execute {
            in_port: PortNo(1),
            frame: Frame::from_slice(&[0; 60]),
            actions: Vec::new(),
        };
        (0..EXECUTES + 10).for_each(|_| queue.push(execute()));
        assert_eq!(queue.refused(), 10);
        let mut taken = VecDeque::new();
        queue.take(&mut taken);
        assert_eq!(taken.len(), EXECUTES);
        queue.push(execute());
        assert_eq!(queue.refused(), 10);
    }
}
