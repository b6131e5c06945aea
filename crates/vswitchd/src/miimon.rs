//! MII monitoring of bonds' members (`bond-detect-mode=miimon`): asks their PHYs in turn, on a
//! thread of its own, because a PHY may take milliseconds to answer.

use crate::slowpath::Shared;
use netdev::Netdev;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// `bond-miimon-interval` where it has no legal value, as in Open vSwitch.
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);

/// The devices whose PHYs are asked.
pub(crate) struct Monitor {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

struct Inner {
    shared: Arc<Shared>,
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
    interval: Duration,
    due: Instant,
    /// The last answer.
    link: Option<bool>,
}

impl Monitor {
    pub(crate) fn new(shared: Arc<Shared>) -> Monitor {
        let inner = Inner {
            shared,
            watched: Mutex::default(),
            wake: Condvar::new(),
        };
        Monitor {
            inner: Arc::new(inner),
            thread: None,
        }
    }

    /// Asks these devices from now on, each at its interval. Returns whether others were asked
    /// before, which have the kernel's word again.
    pub(crate) fn follow(&mut self, wanted: &BTreeMap<String, (Arc<dyn Netdev>, Duration)>) -> bool {
        let mut watched = self.inner.watched.lock();
        let before = watched.devices.len();
        watched.devices.retain(|name, old| {
            wanted
                .get(name)
                .is_some_and(|(device, _)| Arc::ptr_eq(device, &old.device))
        });
        let gone = watched.devices.len() < before;
        for (name, (device, interval)) in wanted {
            let entry = watched.devices.entry(name.clone()).or_insert_with(|| Device {
                device: device.clone(),
                interval: *interval,
                due: Instant::now(),
                link: None,
            });
            if entry.interval != *interval {
                (entry.interval, entry.due) = (*interval, Instant::now());
            }
        }
        let starts = self.thread.is_none() && !watched.devices.is_empty();
        drop(watched);
        self.inner.wake.notify_one();
        if starts {
            let inner = self.inner.clone();
            let thread = std::thread::Builder::new().name("miimon".to_owned());
            match thread.spawn(move || inner.run()) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => tracing::error!(target: "bond", "cannot monitor by MII: {error}"),
            }
        }
        gone
    }

    /// Whether a device has a link by its PHY; `None` if it is not asked, or has not answered.
    pub(crate) fn link(&self, name: &str) -> Option<bool> {
        self.inner.watched.lock().devices.get(name)?.link
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
                        device.due = now + device.interval;
                        (name.clone(), device.device.clone())
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
            for (name, device) in asked {
                let link = device.link_by_mii();
                self.note(&name, &device, link);
            }
        }
    }

    fn note(&self, name: &str, asked: &Arc<dyn Netdev>, link: Option<bool>) {
        let mut watched = self.watched.lock();
        let device = watched.devices.get_mut(name);
        if let Some(device) = device.filter(|device| Arc::ptr_eq(&device.device, asked) && device.link != link) {
            device.link = link;
            self.shared.mii_notify.notify_one();
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
