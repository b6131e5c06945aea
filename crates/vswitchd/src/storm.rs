//! Storm control, by keys of our own in `Port.other_config`.

use crate::desired::Port;
use dp::MeterUnit;
use std::collections::BTreeMap;
use switch::Storm;

/// Sets the limits of a port. Wrong values are named in its row.
pub(crate) fn apply(config: &BTreeMap<String, String>, port: &mut Port) {
    let mut wrong = |key: &str, value: &str| {
        port.problems
            .push(format!("other_config:{key}={value} is not a legal value"));
    };
    let storm = &mut port.config.storm;
    match config.get("storm-control-unit").map(String::as_str) {
        None | Some("pps") => storm.unit = MeterUnit::Pktps,
        Some("kbps") => storm.unit = MeterUnit::Kbps,
        Some(other) => wrong("storm-control-unit", other),
    }
    for (kind, limit) in Storm::ALL.into_iter().zip(&mut storm.limits) {
        let key = format!("storm-control-{}", kind.name());
        let Some(text) = config.get(&key) else { continue };
        *limit = text.parse().ok().filter(|rate| *rate > 0);
        if limit.is_none() {
            wrong(&key, text);
        }
    }
}
