//! Queues and policers of interfaces: the configured ones, those in force, and errors.
//!
//! An invalid row keeps the previous configuration in force and reports the error in
//! `Port.status:error` (`QoS` and `Queue` rows) or `Interface.error`. A kernel datapath would set
//! the kernel's disciplines in [`Applied::settle`].

#[cfg(test)]
mod tests;

use crate::rows::Tables;
use dp::{Datapath, PortNo, QosReport};
use nanos::Nanos;
use ofproto::QueueInfo;
use ovsdb::rows;
use qos::keys::{self, Configured, KeyError, Link, QueueRow, Strings};
use qos::police::IngressPolicerConfig;
use qos::{Discipline, PortConfig, PortSpeed, Stats};
use std::collections::BTreeMap;

/// A `QoS` row with its `Queue` rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    kind: String,
    other_config: Strings,
    queues: BTreeMap<u32, QueueRow>,
}

/// A port's configured QoS. A row without a type configures none.
pub(crate) fn wanted(port: &rows::Port, tables: &Tables) -> Option<Wanted> {
    let row = tables.qos.get(&port.qos?).filter(|row| !row.type_.is_empty())?;
    let queue = |(number, uuid): (&i64, &ovsdb::Uuid)| {
        let queue = tables.queues.get(uuid)?;
        let row = QueueRow {
            other_config: queue.other_config.clone(),
            dscp: queue.dscp.and_then(|dscp| u8::try_from(dscp).ok()),
        };
        Some((u32::try_from(*number).ok()?, row))
    };
    Some(Wanted {
        kind: row.type_.clone(),
        other_config: row.other_config.clone(),
        queues: row.queues.iter().filter_map(queue).collect(),
    })
}

/// An interface's configured speed and ingress policing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    policing: Result<Option<IngressPolicerConfig>, KeyError>,
    speed: Result<Option<(u64, PortSpeed)>, KeyError>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            policing: Ok(None),
            speed: Ok(None),
        }
    }
}

/// Reads them.
pub(crate) fn limits(row: &rows::Interface) -> Limits {
    Limits {
        policing: keys::policing([
            row.ingress_policing_rate,
            row.ingress_policing_burst,
            row.ingress_policing_kpkts_rate,
            row.ingress_policing_kpkts_burst,
        ]),
        speed: keys::port_speed(&row.other_config),
    }
}

/// Errors and warnings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Errors of the port's rows, which are not in force.
    pub(crate) port: Vec<String>,
    /// Errors of the interface's row.
    pub(crate) interface: Vec<String>,
    /// Settings in force with a partial effect.
    pub(crate) warnings: Vec<String>,
}

impl Found {
    /// For an interface without a device, such as a patch port.
    pub(crate) fn without_device(wanted: Option<&Wanted>, limits: &Limits) -> Found {
        let mut found = Found::default();
        if wanted.is_some() {
            found.port.push("qos: there is no device here to queue for".to_owned());
        }
        if *limits != Limits::default() {
            let what = "policing and port-speed: there is no device here that they could be for";
            found.interface.push(what.to_owned());
        }
        found
    }

    /// All of it, for the log.
    pub(crate) fn all(&self) -> impl Iterator<Item = &String> {
        self.port.iter().chain(&self.interface).chain(&self.warnings)
    }
}

/// An interface in the datapath.
pub(crate) struct Target<'a> {
    pub(crate) datapath: &'a dyn Datapath,
    pub(crate) port: PortNo,
    pub(crate) link: Link,
    pub(crate) now: Nanos,
}

/// The configuration in force for an interface.
#[derive(Default)]
pub(crate) struct Applied {
    /// The last requested configuration, in force or not.
    asked: Option<(Option<Wanted>, Limits, Link)>,
    scheduled: Option<Scheduled>,
    speed: Option<(u64, PortSpeed)>,
    policing: Option<IngressPolicerConfig>,
    pub(crate) found: Found,
}

/// A discipline in force.
#[derive(Clone)]
struct Scheduled {
    kind: String,
    configured: Configured,
    /// When each queue was created.
    since: BTreeMap<u32, Nanos>,
}

impl Applied {
    /// Applies an interface's rows if they have changed.
    pub(crate) fn settle(&mut self, wanted: Option<&Wanted>, limits: &Limits, target: &Target<'_>) {
        let same = |(before, limited, link): &(Option<Wanted>, Limits, Link)| {
            before.as_ref() == wanted && limited == limits && *link == target.link
        };
        if self.asked.as_ref().is_some_and(same) {
            return;
        }
        self.asked = Some((wanted.cloned(), limits.clone(), target.link));
        self.found = Found::default();
        self.police(limits, target);
        self.schedule(wanted, limits, target);
    }

    fn police(&mut self, limits: &Limits, target: &Target<'_>) {
        let policing = match &limits.policing {
            Ok(policing) => *policing,
            Err(error) => return self.found.interface.push(column(error)),
        };
        if policing == self.policing {
            return;
        }
        match target.datapath.set_policing(target.port, policing.as_ref()) {
            Ok(()) => self.policing = policing,
            Err(error) => self.found.interface.push(format!("ingress policing: {error}")),
        }
    }

    fn schedule(&mut self, wanted: Option<&Wanted>, limits: &Limits, target: &Target<'_>) {
        let speed = match &limits.speed {
            Ok(speed) => *speed,
            Err(error) => {
                self.found.interface.push(format!("other_config:{}", column(error)));
                self.speed
            }
        };
        let link = Link {
            speed: speed.map(|(bits, _)| bits).or(target.link.speed),
            ..target.link
        };
        let configured =
            wanted.map(|wanted| keys::discipline(&wanted.kind, &wanted.other_config, &wanted.queues, &link));
        let scheduled = match (wanted, configured) {
            (Some(wanted), Some(Ok(configured))) => Some(self.scheduled_as(wanted, configured, target.now)),
            (_, Some(Err(error))) => {
                self.found.port.push(format!("qos: {error}"));
                self.scheduled.clone()
            }
            _ => None,
        };
        let nothing = self.scheduled.is_none() && self.speed.is_none();
        if nothing && scheduled.is_none() && speed.is_none() {
            return;
        }
        let config = PortConfig {
            discipline: scheduled
                .as_ref()
                .map_or(Discipline::Noop, |scheduled| scheduled.configured.discipline.clone()),
            speed: speed.map(|(_, speed)| speed),
        };
        let config = Some(config).filter(|config| !config.is_direct());
        match target.datapath.set_qos(target.port, config.as_ref()) {
            Ok(()) => {
                (self.scheduled, self.speed) = (scheduled, speed);
                if self.found.port.is_empty() {
                    let warnings = self
                        .scheduled
                        .iter()
                        .flat_map(|scheduled| &scheduled.configured.warnings);
                    self.found
                        .warnings
                        .extend(warnings.map(|warning| format!("qos: {warning}")));
                }
            }
            Err(error) => self.found.port.push(format!("qos: {error}")),
        }
    }

    /// Queues that stay keep their age.
    fn scheduled_as(&self, wanted: &Wanted, configured: Configured, now: Nanos) -> Scheduled {
        let before = self.scheduled.as_ref().filter(|before| before.kind == wanted.kind);
        let age = |number: &u32| {
            before
                .and_then(|before| before.since.get(number).copied())
                .unwrap_or(now)
        };
        Scheduled {
            kind: wanted.kind.clone(),
            since: configured.queues.keys().map(|number| (*number, age(number))).collect(),
            configured,
        }
    }

    /// Whether a discipline is in force, whose defaults can depend on the link.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled.is_some()
    }

    /// The DSCP that each queue sets.
    pub(crate) fn dscp(&self) -> BTreeMap<u32, u8> {
        let scheduled = self.scheduled.as_ref();
        scheduled
            .map(|scheduled| scheduled.configured.dscp.clone())
            .unwrap_or_default()
    }

    /// The kind of the discipline and its configuration, if it queues or polices.
    pub(crate) fn discipline(&self) -> Option<(&str, &Configured)> {
        let scheduled = self.scheduled.as_ref()?;
        let queues = !matches!(scheduled.configured.discipline, Discipline::Noop);
        queues.then_some((scheduled.kind.as_str(), &scheduled.configured))
    }

    /// The configured `port-speed` in bit/s.
    pub(crate) fn port_speed(&self) -> Option<u64> {
        self.speed.map(|(bits, _)| bits)
    }

    /// The queues in the terms of OpenFlow.
    pub(crate) fn queues(&self, report: Option<&QosReport>) -> Vec<QueueInfo> {
        let (Some(scheduled), Some((_, configured))) = (&self.scheduled, self.discipline()) else {
            return Vec::new();
        };
        let counters = counters(configured, report);
        let none = Stats::default();
        let queue = |(number, queue): (&u32, &keys::Queue)| {
            let stats = counters.get(number).unwrap_or(&none);
            let part = |rate: Option<u64>| Some(tenths_of_percent(rate?, configured.rate?));
            QueueInfo {
                number: *number,
                min_rate: part(queue.min_rate),
                max_rate: part(queue.max_rate),
                tx_packets: stats.packets,
                tx_bytes: stats.bytes,
                tx_errors: stats.all_dropped(),
                since: Some(scheduled.since.get(number).copied().unwrap_or_default()),
            }
        };
        configured.queues.iter().map(queue).collect()
    }
}

/// The counters of queues by number. A queue with children sums their counters.
pub(crate) fn counters(configured: &Configured, report: Option<&QosReport>) -> BTreeMap<u32, Stats> {
    let mut counters: BTreeMap<u32, Stats> = BTreeMap::new();
    for (number, stats) in report.map(|report| &report.queues[..]).unwrap_or_default() {
        let mut at = Some(*number);
        while let Some(number) = at {
            counters.entry(number).or_default().add(stats);
            at = configured.queues.get(&number).and_then(|queue| queue.parent);
        }
    }
    counters
}

fn tenths_of_percent(rate: u64, of: u64) -> u16 {
    (u128::from(rate) * 1000 / u128::from(of.max(1))).min(1000) as u16
}

/// An error in an interface's own row, without the row's name.
fn column(error: &KeyError) -> String {
    let text = error.to_string();
    text.strip_prefix("interface: ").map(str::to_owned).unwrap_or(text)
}
