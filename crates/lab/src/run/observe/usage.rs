//! The switch's processor time and memory, and the processor time of each byte or datagram.

use crate::run::engine::Measurement;
use crate::scenario::{Observe, Setup};
use std::collections::BTreeMap;

/// What a switch and its machine have used while a cell was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// Processors that the switch's processes used, on average.
    pub(crate) system: f64,
    /// The same of the whole machine.
    pub(crate) all: f64,
    /// Bytes of memory of the switch's processes; none: it has none, or they are elsewhere.
    pub(crate) memory: Option<u64>,
}

impl Used {
    pub(crate) fn of(measurement: &Measurement, memory: Option<u64>) -> Used {
        let mean = |name: &str| {
            let seconds = measurement.cpu.get(name).copied().unwrap_or(0.0);
            if measurement.seconds > 0.0 {
                seconds / measurement.seconds
            } else {
                0.0
            }
        };
        Used {
            system: mean("system"),
            all: mean("all"),
            memory,
        }
    }
}

/// The metrics of a cell's observations, out of those of its flows. Linux's bridge has no
/// process, so only the whole machine's time is known.
pub(crate) fn usage(setup: &Setup, used: Used, metrics: &mut BTreeMap<String, f64>) {
    for observed in &setup.observed {
        let Observe::Usage { flow } = &observed.what else {
            continue;
        };
        let mut found = vec![("all", used.all)];
        if let Some(memory) = used.memory {
            found.push(("memory", memory as f64));
        }
        // A process on another machine has a time, and no memory that is known here.
        if used.memory.is_some() || used.system > 0.0 {
            found.push(("system", used.system));
        }
        let known = setup.measured.iter().find(|known| Some(&known.name) == flow.as_ref());
        let unit = known.and_then(|known| Some((known, known.test.arrives()?)));
        let amount = unit.and_then(|(known, (metric, scale))| {
            let value = metrics.get(&format!("{}.{metric}", known.name))?;
            Some(value * scale).filter(|amount| *amount > 0.0)
        });
        if let Some(amount) = amount {
            let costs = found.iter().filter_map(|(name, processors)| match *name {
                "all" => Some(("cost_all", processors * 1e9 / amount)),
                "system" => Some(("cost", processors * 1e9 / amount)),
                _ => None,
            });
            let costs: Vec<_> = costs.collect();
            found.extend(costs);
        }
        let named = |(metric, value): (&str, f64)| (format!("{}.{metric}", observed.name), value);
        metrics.extend(found.into_iter().map(named));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Observation;
    use crate::traffic::{Flow, Streams, Test};

    fn setup(test: Test) -> Setup {
        let mut setup = Setup::nothing();
        setup.measured.push(Flow {
            name: "flow".to_owned(),
            from: "a".to_owned(),
            to: "b".to_owned(),
            test,
        });
        setup.observed.push(Observation {
            name: "use".to_owned(),
            what: Observe::Usage {
                flow: Some("flow".to_owned()),
            },
        });
        setup
    }

    fn found(test: Test, metric: &str, value: f64, memory: Option<u64>) -> BTreeMap<String, f64> {
        let mut metrics = BTreeMap::from([(format!("flow.{metric}"), value)]);
        let used = Used {
            system: if memory.is_some() { 0.5 } else { 0.0 },
            all: 1.5,
            memory,
        };
        usage(&setup(test), used, &mut metrics);
        metrics
    }

    #[test]
    fn processor_time_is_divided_by_what_arrived() {
        let streams = Streams {
            streams: 1,
            message: None,
            buffer: None,
            congestion: None,
        };
        // A gigabyte a second.
        let metrics = found(Test::TcpStream(streams), "total", 8e9, Some(7));
        assert_eq!((metrics["use.cost"], metrics["use.cost_all"]), (0.5, 1.5));
        assert_eq!((metrics["use.system"], metrics["use.memory"]), (0.5, 7.0));
        let flood = Test::Flood {
            payload: 18,
            rate: None,
            of_most: None,
        };
        let metrics = found(flood.clone(), "rate", 1e6, Some(7));
        assert_eq!((metrics["use.cost"], metrics["use.cost_all"]), (500.0, 1500.0));
        assert!(!found(flood, "rate", 0.0, Some(7)).contains_key("use.cost"));
    }

    #[test]
    fn of_a_switch_in_the_kernel_only_the_machine_is_known() {
        let flood = Test::Flood {
            payload: 18,
            rate: None,
            of_most: None,
        };
        let metrics = found(flood, "rate", 1e6, None);
        let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
        assert_eq!(names, ["flow.rate", "use.all", "use.cost_all"]);
    }
}
