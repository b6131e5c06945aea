//! Asks for the links of bonds' members, on a thread of its own: a PHY may take milliseconds to
//! answer, and the kernel may have to finish other changes of devices first.
//!
//! With `bond-detect-mode=miimon` their PHYs are asked, at the interval that is configured. Else
//! the kernel is asked for their carriers: it tells of a lost carrier by itself too, but of
//! hardware it does so at most once a second. A member that carries packets is asked every
//! [`BUSY`], another one every [`IDLE`], so that a switch without traffic sleeps.

use crate::slowpath::Shared;
use dp::Datapath;
use flow::PortNo;
use netdev::Netdev;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `bond-miimon-interval` where it has no legal value, as in Open vSwitch.
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);

/// How often a member that carries packets is asked for its carrier.
const BUSY: Duration = Duration::from_millis(4);

/// How often another one is.
const IDLE: Duration = Duration::from_millis(100);

/// What is asked for a member's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Its PHY, at this interval.
    Phy(Duration),
    /// The kernel, about this port of the datapath.
    Carrier(PortNo),
}

/// The devices that are asked for their links.
pub(crate) struct Monitor {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

struct Inner {
    shared: Arc<Shared>,
    datapath: Arc<dyn Datapath>,
    watched: Mutex<Watched>,
    wake: Condvar,
}

#[derive(Default)]
struct Watched {
    devices: BTreeMap<String, Device>,
    ended: bool,
}

struct Device {
    device: Arc<dyn Netdev>,
    ask: Ask,
    due: Instant,
    /// The last answer.
    link: Option<bool>,
    /// Packets that it had carried when it was asked last.
    carried: u64,
}

impl Monitor {
    pub(crate) fn new(shared: Arc<Shared>, datapath: Arc<dyn Datapath>) -> Monitor {
        let inner = Inner {
            shared,
            datapath,
            watched: Mutex::default(),
            wake: Condvar::new(),
        };
        Monitor {
            inner: Arc::new(inner),
            thread: None,
        }
    }

    /// Asks these devices from now on. Returns whether PHYs of others were asked before, which have
    /// the kernel's word again.
    pub(crate) fn follow(&mut self, wanted: &BTreeMap<String, (Arc<dyn Netdev>, Ask)>) -> bool {
        let mut watched = self.inner.watched.lock();
        let phys = |watched: &Watched| {
            let asked = watched.devices.values().map(|device| device.ask);
            asked.filter(|ask| matches!(ask, Ask::Phy(_))).count()
        };
        let before = phys(&watched);
        watched.devices.retain(|name, old| {
            let is_same = |(device, ask): &(Arc<dyn Netdev>, Ask)| {
                Arc::ptr_eq(device, &old.device) && std::mem::discriminant(ask) == std::mem::discriminant(&old.ask)
            };
            wanted.get(name).is_some_and(is_same)
        });
        let gone = phys(&watched) < before;
        for (name, (device, ask)) in wanted {
            let entry = watched.devices.entry(name.clone()).or_insert_with(|| Device {
                device: device.clone(),
                ask: *ask,
                due: Instant::now(),
                link: None,
                carried: 0,
            });
            if entry.ask != *ask {
                (entry.ask, entry.due) = (*ask, Instant::now());
            }
        }
        let starts = self.thread.is_none() && !watched.devices.is_empty();
        drop(watched);
        self.inner.wake.notify_one();
        if starts {
            let inner = self.inner.clone();
            let thread = std::thread::Builder::new().name("carriers".to_owned());
            match thread.spawn(move || inner.run()) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => tracing::error!(target: "bond", "cannot watch links of bonds: {error}"),
            }
        }
        gone
    }

    /// Whether a device has a link by its PHY; `None` if it is not asked, or has not answered.
    pub(crate) fn link(&self, name: &str) -> Option<bool> {
        let watched = self.inner.watched.lock();
        let device = watched.devices.get(name)?;
        device.link.filter(|_| matches!(device.ask, Ask::Phy(_)))
    }
}

impl Inner {
    fn run(&self) {
        loop {
            let now = Instant::now();
            let asked = {
                let mut watched = self.watched.lock();
                if watched.ended {
                    return;
                }
                let due = watched.devices.iter_mut().filter(|(_, device)| device.due <= now);
                let asked: Vec<_> = due
                    .map(|(name, device)| {
                        device.due = now + self.interval(device);
                        (name.clone(), device.device.clone(), device.ask)
                    })
                    .collect();
                if asked.is_empty() {
                    match watched.devices.values().map(|device| device.due).min() {
                        Some(due) => _ = self.wake.wait_until(&mut watched, due),
                        None => self.wake.wait(&mut watched),
                    }
                }
                asked
            };
            for (name, device, ask) in asked {
                let link = match ask {
                    Ask::Phy(_) => device.link_by_mii(),
                    Ask::Carrier(_) => device.carrier(),
                };
                self.note(&name, &device, link);
            }
        }
    }

    /// When a device is asked again.
    fn interval(&self, device: &mut Device) -> Duration {
        let port = match device.ask {
            Ask::Phy(interval) => return interval,
            Ask::Carrier(port) => port,
        };
        let counters = self.datapath.port_counters(port).unwrap_or_default();
        let carried = counters.rx_packets.wrapping_add(counters.tx_packets);
        match std::mem::replace(&mut device.carried, carried) == carried {
            true => IDLE,
            false => BUSY,
        }
    }

    fn note(&self, name: &str, asked: &Arc<dyn Netdev>, link: Option<bool>) {
        let mut watched = self.watched.lock();
        let device = watched.devices.get_mut(name);
        if let Some(device) = device.filter(|device| Arc::ptr_eq(&device.device, asked) && device.link != link) {
            let is_news = match device.ask {
                Ask::Phy(_) => true,
                // The state that is known is one with a carrier, or the kernel tells of it.
                Ask::Carrier(_) => device.link.is_some() || link == Some(false),
            };
            device.link = link;
            if is_news {
                self.shared.carriers_notify.notify_one();
            }
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.inner.watched.lock().ended = true;
        self.inner.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported.
            let _ = thread.join();
        }
    }
}
