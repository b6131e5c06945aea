//! The classes of `linux-hfsc`.

use super::family::{Family, promises};
use super::reader::Reader;
use super::{Configured, Details, KeyError, LEAST_RATE, Link, Queue, leaves, port_rate, rates};
use crate::discipline::Discipline;
use crate::{Curve, HfscClass, HfscConfig};
use std::collections::BTreeMap;

pub(super) fn read(
    port: &mut Reader<'_>,
    rows: &mut BTreeMap<u32, Reader<'_>>,
    link: &Link,
) -> Result<Configured, KeyError> {
    let rate = port_rate(port, link)?;
    let family = Family::read(rows)?;
    let mut reading = Reading {
        rate,
        link,
        promised: 0,
        warnings: Vec::new(),
    };
    let mut classes = Vec::new();
    let mut queues = BTreeMap::new();
    for (&number, row) in &mut *rows {
        let (class, queue) = reading.class(number, row, &family)?;
        classes.push(class);
        queues.insert(number, queue);
    }
    if reading.promised > rate {
        reading.warnings.push(promises(None, reading.promised, rate));
    }
    queues.entry(0).or_insert_with(|| Queue {
        details: shown_rates(LEAST_RATE.min(rate), rate),
        ..Queue::default()
    });
    let config = port.check(HfscConfig::new(rate, classes))?;
    Ok(Configured {
        discipline: Discipline::Hfsc(config),
        rate: Some(rate),
        details: vec![("max-rate", rate.to_string())],
        queues,
        dscp: BTreeMap::new(),
        warnings: reading.warnings,
    })
}

fn shown_rates(min: u64, max: u64) -> Details {
    vec![("min-rate", min.to_string()), ("max-rate", max.to_string())]
}

struct Reading<'a> {
    rate: u64,
    link: &'a Link,
    /// Sum of the leaves' guaranteed long-term rates.
    promised: u64,
    warnings: Vec<String>,
}

impl Reading<'_> {
    fn class(&mut self, number: u32, row: &mut Reader<'_>, family: &Family) -> Result<(HfscClass, Queue), KeyError> {
        let inner = family.is_inner(number);
        let (mut min, max) = rates(row)?;
        if let Some(wanted) = min.filter(|min| *min > self.rate) {
            let rate = self.rate;
            let row = row.row();
            self.warnings.push(format!(
                "{row}: min-rate={wanted} is more than the port's {rate}, which counts"
            ));
            min = Some(rate);
        }
        let curves = self.curves(row, inner, min, max)?;
        let mut class = row.check(HfscClass::new(number))?;
        if let Some(parent) = family.parent(number) {
            class = class.parent(parent);
        }
        class = curves.rt.map_or(class.clone(), |curve| class.rt(curve));
        class = curves.ls.map_or(class.clone(), |curve| class.ls(curve));
        class = curves.ul.map_or(class.clone(), |curve| class.ul(curve));

        let mut details = Details::new();
        if let Some(min) = curves.min {
            details.push(("min-rate", min.to_string()));
        }
        if !inner || max.is_some() {
            let max = max.map_or(self.rate, |max| max.max(curves.min.unwrap_or(0)).min(self.rate));
            details.push(("max-rate", max.to_string()));
        }
        for key in ["rt", "ls", "ul"] {
            details.extend(row.text(key).map(|text| (key, text.to_owned())));
        }
        if let Some(parent) = family.parent(number) {
            details.push(("parent", parent.to_string()));
        }
        if inner {
            if row.text("leaf").is_some() {
                return Err(row.refuse("leaf", "a queue with children takes no packets"));
            }
        } else {
            let (leaf, shown) = leaves::of_class(row, self.link)?;
            class = class.leaf(leaf);
            details.extend(shown);
            let told = min.is_some() || row.text("rt").is_some();
            let promise = curves.rt.filter(|_| told).map_or(0, |curve| curve.rate());
            self.promised = self.promised.saturating_add(promise);
        }
        let queue = Queue {
            details,
            parent: family.parent(number),
            min_rate: min.and(curves.min),
            max_rate: max.map(|max| max.min(self.rate)),
        };
        Ok((class, queue))
    }

    /// `rt`, `ls` and `ul`, with defaults from `min-rate` and `max-rate`.
    fn curves(
        &self,
        row: &mut Reader<'_>,
        inner: bool,
        min: Option<u64>,
        max: Option<u64>,
    ) -> Result<Curves, KeyError> {
        let (rt, ls, ul) = (row.curve("rt")?, row.curve("ls")?, row.curve("ul")?);
        if inner && rt.is_some() {
            return Err(row.refuse("rt", "only a queue without children can have a real-time curve"));
        }
        let flat = |curve: &Option<Curve>| curve.is_some_and(|curve| curve.rate() == 0);
        for (key, curve) in [("ls", &ls), ("ul", &ul)] {
            if flat(curve) {
                return Err(row.refuse(key, "its last slope must not be 0"));
            }
        }
        let alone = rt.is_none() && ls.is_none();
        let min = min
            .or(alone.then_some(LEAST_RATE))
            .map(|min| min.max(LEAST_RATE).min(self.rate));
        let linear = match min {
            Some(min) => Some(row.check(Curve::linear("min-rate", min))?),
            None => None,
        };
        let ls = ls.or(linear);
        let rt = if inner { None } else { rt.or(linear) };
        if ls.is_none() && flat(&rt) {
            return Err(row.refuse("rt", "its last slope must not be 0 where there is no ls"));
        }
        if ls.is_none() && (ul.is_some() || max.is_some()) {
            let key = if ul.is_some() { "ul" } else { "max-rate" };
            return Err(row.refuse(key, "it limits what ls gives, and there is neither ls nor min-rate"));
        }
        let limit = match max {
            Some(max) => Some(row.check(Curve::linear("max-rate", max.max(min.unwrap_or(0))))?),
            None => None,
        };
        Ok(Curves {
            min,
            rt,
            ls,
            ul: ul.or(limit),
        })
    }
}

struct Curves {
    /// The rate that stands for curves not given, if any.
    min: Option<u64>,
    rt: Option<Curve>,
    ls: Option<Curve>,
    ul: Option<Curve>,
}
