//! `memory/show`: numbers of objects that use memory.

use std::collections::BTreeMap;

/// Counts by name, e.g. `atoms` → 14.
pub type Usage = BTreeMap<&'static str, u64>;

/// `atoms:14 cells:20 monitors:0`, as `memory/show` and the log print it.
pub fn format(usage: &Usage) -> String {
    let parts: Vec<String> = usage.iter().map(|(name, count)| format!("{name}:{count}")).collect();
    parts.join(" ")
}
