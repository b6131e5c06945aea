//! The classes of `linux-htb`.

use super::family::{Family, promises};
use super::reader::Reader;
use super::{Configured, Details, KeyError, LEAST_RATE, Link, Queue, leaves, port_rate, rates};
use crate::discipline::Discipline;
use crate::{HtbClass, HtbConfig};
use std::collections::{BTreeMap, BTreeSet};

/// Priorities that classes can have; further ones share the last.
const PRIORITIES: usize = 8;

pub(super) fn read(
    port: &mut Reader<'_>,
    rows: &mut BTreeMap<u32, Reader<'_>>,
    link: &Link,
) -> Result<Configured, KeyError> {
    let rate = port_rate(port, link)?;
    let family = Family::read(rows)?;
    let mut warnings = Vec::new();
    let priorities = priorities(rows, &family, &mut warnings)?;
    let mut classes = Vec::new();
    let mut queues = BTreeMap::new();
    let mut promised = BTreeMap::new();
    for (&number, row) in &mut *rows {
        let (mut min, max) = rates(row)?;
        if let Some(wanted) = min.filter(|min| *min > rate) {
            warnings.push(format!(
                "{}: min-rate={wanted} is more than the port's {rate}, which counts",
                row.row()
            ));
            min = Some(rate);
        }
        let mut class = row.check(HtbClass::new(number))?;
        if let Some(parent) = family.parent(number) {
            class = class.parent(parent);
        }
        if let Some(min) = min {
            class = row.check(class.min_rate(min))?;
            promised.insert(number, min);
        }
        if let Some(max) = max {
            class = row.check(class.max_rate(max))?;
        }
        if let Some(burst) = row.number("burst", "bits")? {
            if burst == 0 {
                return Err(row.refuse("burst", "not at least 1"));
            }
            class = row.check(class.burst(burst))?;
        }
        let mut details = Details::new();
        if let Some((priority, rank)) = priorities.get(&number) {
            class = class.priority(*rank);
            details.push(("priority", priority.to_string()));
        }
        if let Some(parent) = family.parent(number) {
            details.push(("parent", parent.to_string()));
        }
        if family.is_inner(number) {
            if row.text("leaf").is_some() {
                return Err(row.refuse("leaf", "a queue with children takes no packets"));
            }
        } else {
            let (leaf, shown) = leaves::of_class(row, link)?;
            class = class.leaf(leaf);
            details.extend(shown);
        }
        classes.push(class);
        let queue = Queue {
            details,
            parent: family.parent(number),
            min_rate: min.map(|min| min.max(LEAST_RATE)),
            max_rate: max.map(|max| max.max(LEAST_RATE).min(rate)),
        };
        queues.insert(number, queue);
    }
    warnings.extend(
        family
            .overcommitted(&promised, rate)
            .into_iter()
            .map(|(p, sum, has)| promises(p, sum, has)),
    );
    let config = port.check(HtbConfig::new(rate, classes))?;
    queues.entry(0).or_default();
    show(&config, &mut queues);
    Ok(Configured {
        discipline: Discipline::Htb(config),
        rate: Some(rate),
        details: vec![("max-rate", rate.to_string())],
        queues,
        dscp: BTreeMap::new(),
        warnings,
    })
}

/// Each leaf's priority as its rank, since only the order counts.
fn priorities(
    rows: &mut BTreeMap<u32, Reader<'_>>,
    family: &Family,
    warnings: &mut Vec<String>,
) -> Result<BTreeMap<u32, (u64, u64)>, KeyError> {
    let mut given = BTreeMap::new();
    for (number, row) in rows.iter_mut().filter(|(number, _)| !family.is_inner(**number)) {
        if let Some(priority) = row.number("priority", "a rank")? {
            if priority > u64::from(u32::MAX) {
                return Err(row.refuse("priority", format!("not between 0 and {}", u32::MAX)));
            }
            given.insert(*number, priority);
        }
    }
    // Queues without the key have priority 0.
    let there: BTreeSet<u64> = given.values().copied().chain([0]).collect();
    if there.len() > PRIORITIES {
        warnings.push(format!(
            "QoS: there are {} priorities of queues; the last ones count as one, for {PRIORITIES} are told apart",
            there.len()
        ));
    }
    let ranks: BTreeMap<u64, u64> = there.into_iter().zip(0..).collect();
    Ok(given
        .into_iter()
        .map(|(number, priority)| (number, (priority, ranks[&priority])))
        .collect())
}

/// Adds the rates and bursts in force at the head of each queue's details.
fn show(config: &HtbConfig, queues: &mut BTreeMap<u32, Queue>) {
    let Ok(tree) = config.tree() else { return };
    let ceilings = config.ceilings(&tree);
    for (n, class) in config.classes.iter().enumerate() {
        let Some(queue) = queues.get_mut(&class.number) else {
            continue;
        };
        let min = class.min_rate.bits_per_second();
        let max = ceilings[n + 1].bits_per_second();
        let burst = HtbConfig::burst(class.min_rate, class.burst) * 8;
        let at = usize::from(queue.details.first().is_some_and(|(key, _)| *key == "priority"));
        queue.details.insert(0, ("burst", burst.to_string()));
        queue.details.insert(at + 1, ("min-rate", min.to_string()));
        queue.details.insert(at + 2, ("max-rate", max.to_string()));
    }
}
