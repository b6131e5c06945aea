//! The receive queues of a worker: they come and go with ports, and move between workers.

use super::*;

/// A receive queue as the worker sees it.
pub(super) struct Queue {
    pub(super) rx_queue: RxQueue,
    pub(super) number: u32,
    pub(super) load: Arc<QueueLoad>,
    pub(super) device: Arc<dyn Netdev>,
    pub(super) ifindex: u32,
    /// When it last brought packets, if ever.
    pub(super) active: Option<Nanos>,
    /// Errors, and wake-ups without a packet, in a row.
    pub(super) fruitless: u32,
    /// When the last of them was.
    pub(super) last_fruitless: Nanos,
    /// Until when it rests.
    pub(super) parked: Option<Nanos>,
    /// It was asked whether the device has vanished.
    pub(super) checked: bool,
    /// Brought no packet when it was last asked.
    pub(super) idle: bool,
    /// Its device has vanished; nobody asks it again.
    pub(super) gone: bool,
}

impl Worker {
    /// Lets go of a queue of a port that stays.
    pub(super) fn take_queue(&mut self, port: PortNo, number: u32) -> Option<AssignedQueue> {
        let is_it = |queue: &Queue| queue.rx_queue.port == port && queue.number == number;
        let place = self.queues.iter_mut().find(|place| place.as_ref().is_some_and(is_it))?;
        let Queue {
            rx_queue,
            number,
            ifindex,
            load,
            ..
        } = place.take()?;
        self.poller.remove(rx_queue.rx.fd());
        self.pipeline.stop_offloaded(port);
        Some(AssignedQueue {
            rx_queue,
            number,
            ifindex,
            load,
        })
    }

    pub(super) fn add_queue(&mut self, assigned: AssignedQueue, device: &Arc<dyn Netdev>) -> io::Result<()> {
        let AssignedQueue {
            rx_queue,
            number,
            ifindex,
            load,
        } = assigned;
        // Packets that its ingress shaper holds are this worker's to let go.
        self.backlog.shaped |= rx_queue.has_ingress();
        self.backlog.waiting |= rx_queue.waits();
        self.backlog.pending |= rx_queue.has_pending();
        let place = match self.queues.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.queues.push(None);
                self.queues.len() - 1
            }
        };
        self.poller.add(rx_queue.rx.fd(), place as u64)?;
        self.queues[place] = Some(Queue {
            rx_queue,
            number,
            load,
            device: device.clone(),
            ifindex,
            active: None,
            fruitless: 0,
            last_fruitless: Nanos::ZERO,
            parked: None,
            checked: false,
            idle: false,
            gone: false,
        });
        Ok(())
    }

    pub(super) fn ingress(&mut self, port: PortNo, ingress: &Arc<Mutex<Ingress>>) {
        for queue in self.queues.iter_mut().flatten() {
            if queue.rx_queue.port == port {
                queue.rx_queue.set_ingress(ingress.clone());
                self.pipeline.stop_offloaded(port);
                self.backlog.shaped = true;
            }
        }
    }

    /// Gives up a port; returns what it had, for others to close.
    pub(super) fn del_port(&mut self, port: PortNo) -> Released {
        let mut queues = Vec::new();
        for place in &mut self.queues {
            if let Some(mut queue) = place.take_if(|queue| queue.rx_queue.port == port) {
                self.poller.remove(queue.rx_queue.rx.fd());
                self.pipeline.give_up(&mut queue.rx_queue);
                queues.push(queue);
            }
        }
        Box::new((queues, self.pipeline.remove_port(port)))
    }
}

impl Queue {
    /// Notes that it was asked from that cycle on until now, and had packets.
    #[inline]
    pub(super) fn brought_packets(&mut self, since: u64, now: Nanos) {
        self.active = Some(now);
        self.fruitless = 0;
        self.idle = false;
        self.load.cycles.add(cycles::now().wrapping_sub(since));
    }
}
