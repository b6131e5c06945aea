//! Opening of devices: numbers for them in the datapath, and retries of those that fail.

use super::{Bridges, OpenDevice};
use crate::dummy_port;
use crate::qos::Applied;
use dp::{DpError, PortNo};
use netdev::Spec;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

impl Bridges {
    /// Opens the missing devices. Returns the failures with their reasons.
    pub(super) fn open_missing(&mut self, wanted: &BTreeMap<&str, &Spec>) -> BTreeMap<String, String> {
        let mut failures = BTreeMap::new();
        for (&name, &spec) in wanted {
            if self.open.contains_key(name) {
                continue;
            }
            if let Err(failure) = self.open_device(name, spec) {
                self.note_failure(name, spec, &failure);
                failures.insert(name.to_owned(), failure.reason);
            }
        }
        self.retries
            .keep(|name, spec| failures.contains_key(name) && wanted.get(name) == Some(&spec));
        failures
    }

    /// When to retry devices that others held.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.retries.next()
    }

    /// Whether a failed device is retried soon enough for a start to wait for it.
    pub(crate) fn is_retrying_soon(&self) -> bool {
        self.retries.is_soon()
    }

    /// Retries the due devices. Returns whether one opened or failed for a new reason; then the
    /// next [`Bridges::apply`] makes the port or reports the reason.
    pub(crate) fn retry(&mut self) -> bool {
        let mut changed = false;
        for (name, spec) in self.retries.due(Instant::now()) {
            match self.open_device(&name, &spec) {
                Ok(()) => {
                    tracing::info!(target: "bridge", "{name}: opened the device");
                    self.retries.forget(&name);
                    changed = true;
                }
                Err(failure) => changed |= self.note_failure(&name, &spec, &failure),
            }
        }
        changed
    }

    /// Schedules a retry if the failure may be temporary. Returns whether its reason is new.
    fn note_failure(&mut self, name: &str, spec: &Spec, failure: &Failure) -> bool {
        if failure.may_pass {
            return self.retries.failed(name, spec, &failure.reason, Instant::now());
        }
        self.retries.forget(name);
        true
    }

    /// Whether a datapath port number is free.
    pub(super) fn is_free(&self, number: u32) -> bool {
        let mut used = self
            .open
            .values()
            .map(|open| open.port)
            .chain(self.tunnel_ports.values().copied());
        number != 0 && used.all(|port| port.0 != number)
    }

    /// The datapath port number for a new device: never used before, but for dummies.
    fn port_for(&self, name: &str, spec: &Spec) -> PortNo {
        let is_free = |number| self.is_free(number);
        let by_name = match spec {
            Spec::Dummy { .. } => dummy_port::number(name, is_free),
            _ => None,
        };
        let next = || {
            (1..=u32::MAX)
                .map(|step| self.last_port.wrapping_add(step))
                .find(|n| is_free(*n))
        };
        PortNo(by_name.or_else(next).unwrap_or_default())
    }

    fn open_device(&mut self, name: &str, spec: &Spec) -> Result<(), Failure> {
        let device = netdev::open(spec).map_err(|error| Failure {
            may_pass: error.may_pass(),
            reason: error.to_string(),
        })?;
        let link = device.state().map_err(|error| Failure {
            may_pass: netdev::may_pass(&error),
            reason: format!("{name}: {error}"),
        })?;
        let port = self.port_for(name, spec);
        self.datapath.add_port(port, device.clone()).map_err(|error| Failure {
            may_pass: matches!(&error, DpError::Device { source, .. } if netdev::may_pass(source)),
            reason: format!("could not add network device {name} to the datapath ({error})"),
        })?;
        self.last_port = self.last_port.max(port.0);
        let details = device.status();
        if let Some(warning) = details.get("warning") {
            tracing::warn!(target: "netdev", "{name}: {warning}");
        }
        let open = OpenDevice {
            spec: spec.clone(),
            link,
            details,
            device,
            port,
            qos: Applied::default(),
            contenders: BTreeSet::new(),
        };
        self.open.insert(name.to_owned(), open);
        Ok(())
    }

    /// Gives a device another number in the datapath. Its bridge follows with the next
    /// [`Bridges::apply`].
    ///
    /// # Errors
    /// The number is in use, or the datapath refuses the device; then it has no port any more.
    pub(crate) fn renumber(&mut self, name: &str, to: PortNo) -> Result<(), String> {
        let taken = !self.is_free(to.0);
        let open = self.open.get_mut(name).ok_or("unknown port")?;
        if taken {
            return Err("port number already in use".to_owned());
        }
        let (from, device) = (open.port, open.device.clone());
        let moved = self.datapath.del_port(from);
        let moved = moved.and_then(|()| self.datapath.add_port(to, device));
        open.port = to;
        if let Err(error) = moved {
            self.open.remove(name);
            return Err(error.to_string());
        }
        Ok(())
    }
}

/// Why a device could not be opened.
struct Failure {
    /// Another process holds the device and may release it soon.
    may_pass: bool,
    reason: String,
}
