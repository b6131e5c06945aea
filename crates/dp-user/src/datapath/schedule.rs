//! What holds a port's packets back, on both sides of it.

use super::{DpUser, Port};
use crate::command::Command;
use crate::ingress::Ingress;
use crate::scheduled::PortQueue;
use crate::worker::clock;
use dp::{DpError, DropCause};
use flow::PortNo;
use nanos::Nanos;
use parking_lot::Mutex;
use qos::{ConfigError, PortConfig};
use std::sync::Arc;

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
        self.update_ingress(port, speed.is_some(), |ingress, now| ingress.set_speed(speed, now))
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

    /// Changes a port's ingress shaper and policer.
    pub(super) fn change_ingress(
        &self,
        port: PortNo,
        change: impl FnOnce(&mut Ingress, Nanos) -> Result<(), ConfigError>,
    ) -> Result<(), DpError> {
        let _one_at_a_time = self.control.lock();
        self.update_ingress(port, true, change)
    }

    /// The same for a caller that holds `control`. Creates the ingress shaper only if it is
    /// `needed`.
    fn update_ingress(
        &self,
        port: PortNo,
        needed: bool,
        change: impl FnOnce(&mut Ingress, Nanos) -> Result<(), ConfigError>,
    ) -> Result<(), DpError> {
        let ingress = {
            let mut ports = self.ports.write();
            let port = ports.get_mut(&port).ok_or(DpError::NoPort(port))?;
            if port.ingress.is_none() && !needed {
                return Ok(());
            }
            port.ingress.get_or_insert_with(Arc::default).clone()
        };
        // Workers that have it may hold it for a batch, and nobody else.
        let unchanged = {
            let mut ingress = ingress.lock();
            let was_open = ingress.is_open();
            change(&mut ingress, clock())?;
            was_open && ingress.is_open()
        };
        if !unchanged {
            let ingress: &Arc<Mutex<Ingress>> = &ingress;
            self.ask_all(|done| Command::Ingress {
                port,
                ingress: ingress.clone(),
                done,
            })
            .for_each(drop);
        }
        Ok(())
    }

    /// Counts what still waited at a port that is gone.
    pub(super) fn drop_queued(&self, port: &Port) {
        let queued = port.queue.as_ref().map_or(0, |queue| queue.clear());
        let coming = port.ingress.as_ref().map_or(0, |ingress| ingress.lock().waiting());
        self.drops.add(DropCause::QueueRemoved, queued + coming);
    }
}
