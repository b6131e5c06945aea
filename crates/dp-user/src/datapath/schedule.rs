//! What holds a port's packets back, on both sides of it.

use super::{DpUser, Port};
use crate::command::Command;
use crate::ingress::Gate;
use crate::scheduled::PortQueue;
use crate::worker::clock;
use dp::{DpError, DropCause};
use flow::PortNo;
use parking_lot::Mutex;
use qos::{ConfigError, PortConfig};
use std::sync::Arc;
use wire::Nanos;

impl DpUser {
    /// Gives a port a scheduler and a speed, or another configuration of them, or takes them away.
    pub(super) fn schedule(&self, port: PortNo, config: Option<&PortConfig>) -> Result<(), DpError> {
        let _one_at_a_time = self.control.lock();
        let queue = {
            let mut ports = self.ports.write();
            let of = ports.get_mut(&port).ok_or(DpError::NoPort(port))?;
            let queue = self.configure(of, config)?;
            of.scheduled = config.is_some();
            queue
        };
        if let Some(queue) = queue {
            let schedule = |done| Command::Schedule {
                port,
                queue: queue.clone(),
                done,
            };
            self.ask_all(schedule).for_each(drop);
        }
        let speed = config.and_then(|config| config.speed);
        self.open_gate(port, speed.is_some(), |gate, now| gate.set_speed(speed, now))
    }

    /// The port's queue, where workers have to hear of it.
    fn configure(&self, port: &mut Port, config: Option<&PortConfig>) -> Result<Option<Arc<PortQueue>>, ConfigError> {
        match (&port.queue, config) {
            (Some(queue), Some(config)) => {
                let drops = [&self.drops, &port.drops];
                queue.reconfigure(config, clock(), &mut |cause| {
                    drops.iter().for_each(|drops| drops.add(cause, 1))
                })?;
            }
            (Some(queue), None) if port.scheduled => queue.release(clock()),
            (None, Some(config)) => port.queue = Some(Arc::new(PortQueue::new(&*port.device, config)?)),
            _ => return Ok(None),
        }
        Ok(port.queue.clone())
    }

    /// Changes what a port's packets pass as they come.
    pub(super) fn change_gate(
        &self,
        port: PortNo,
        change: impl FnOnce(&mut Gate, Nanos) -> Result<(), ConfigError>,
    ) -> Result<(), DpError> {
        let _one_at_a_time = self.control.lock();
        self.open_gate(port, true, change)
    }

    /// The same, where the caller holds `control`. A gate that is not there is made only where it
    /// is `needed`.
    fn open_gate(
        &self,
        port: PortNo,
        needed: bool,
        change: impl FnOnce(&mut Gate, Nanos) -> Result<(), ConfigError>,
    ) -> Result<(), DpError> {
        let gate = {
            let mut ports = self.ports.write();
            let port = ports.get_mut(&port).ok_or(DpError::NoPort(port))?;
            if port.gate.is_none() && !needed {
                return Ok(());
            }
            port.gate.get_or_insert_with(Arc::default).clone()
        };
        // Workers that have it may hold it for a batch, and nobody else.
        let unchanged = {
            let mut gate = gate.lock();
            let was_open = gate.is_open();
            change(&mut gate, clock())?;
            was_open && gate.is_open()
        };
        if !unchanged {
            let gate: &Arc<Mutex<Gate>> = &gate;
            self.ask_all(|done| Command::Gate {
                port,
                gate: gate.clone(),
                done,
            })
            .for_each(drop);
        }
        Ok(())
    }

    /// Counts what still waited at a port that is gone.
    pub(super) fn drop_queued(&self, port: &Port) {
        let queued = port.queue.as_ref().map_or(0, |queue| queue.clear());
        let coming = port.gate.as_ref().map_or(0, |gate| gate.lock().waiting());
        self.drops.add(DropCause::QueueRemoved, queued + coming);
    }
}
