//! The NUMA nodes of the machine's cores, or of invented ones (`--dummy-numa`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The most cores that `--dummy-numa` may invent.
const MOST_CORES: usize = 1024;

/// Which node each core is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numa {
    nodes: BTreeMap<usize, usize>,
    invented: bool,
}

impl Numa {
    /// As the kernel has it; without cores if it does not say.
    pub(crate) fn of_machine() -> Numa {
        let named = |path: &str, prefix: &str| -> Vec<usize> {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names
                .filter_map(|name| name.strip_prefix(prefix)?.parse().ok())
                .collect()
        };
        let mut nodes = BTreeMap::new();
        for node in named("/sys/devices/system/node", "node") {
            let cores = named(&format!("/sys/devices/system/node/node{node}"), "cpu");
            nodes.extend(cores.into_iter().map(|core| (core, node)));
        }
        Numa { nodes, invented: false }
    }

    /// The nodes of cores 0, 1, … as `--dummy-numa` lists them. Text that is no number counts as
    /// 0, as in Open vSwitch.
    pub(crate) fn invented(list: &str) -> Numa {
        let words = list.split([',', ' ']).filter(|word| !word.is_empty());
        let nodes = words.map(|word| word.parse().unwrap_or(0)).enumerate();
        Numa {
            nodes: nodes.take(MOST_CORES).collect(),
            invented: true,
        }
    }

    /// The node of a core; 0 if it is unknown.
    pub(crate) fn node_of(&self, core: usize) -> usize {
        self.nodes.get(&core).copied().unwrap_or(0)
    }

    /// All known cores with their nodes.
    pub(crate) fn nodes(&self) -> &BTreeMap<usize, usize> {
        &self.nodes
    }

    /// The cores that workers run on where a mask asks for `cores`: of invented ones those that
    /// exist, and without a mask the first of each node, as Open vSwitch has it.
    pub(crate) fn cores(&self, cores: Option<&[usize]>) -> Option<Vec<usize>> {
        if !self.invented || self.nodes.is_empty() {
            return cores.map(<[usize]>::to_vec);
        }
        let known = cores.into_iter().flatten().copied();
        let known: Vec<usize> = known.filter(|core| self.nodes.contains_key(core)).collect();
        if !known.is_empty() {
            return Some(known);
        }
        let mut seen = BTreeSet::new();
        let first = self.nodes.iter().filter(|(_, node)| seen.insert(**node));
        Some(first.map(|(core, _)| *core).collect())
    }

    /// Logs what was found, in Open vSwitch's words.
    pub(crate) fn log(&self) {
        let mut cores: BTreeMap<usize, usize> = BTreeMap::new();
        self.nodes
            .values()
            .for_each(|node| *cores.entry(*node).or_default() += 1);
        for (node, count) in &cores {
            tracing::info!(target: "ovs_numa", "Discovered {count} CPU cores on NUMA node {node}");
        }
        if !cores.is_empty() {
            let (nodes, all) = (cores.len(), self.nodes.len());
            tracing::info!(target: "ovs_numa", "Discovered {nodes} NUMA nodes and {all} CPU cores");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_the_node_of_each_core() {
        let numa = Numa::invented("0,0, 1,x,7");
        assert_eq!([0, 1, 2, 3, 4, 9].map(|core| numa.node_of(core)), [0, 0, 1, 0, 7, 0]);
    }

    #[test]
    fn workers_run_on_cores_that_exist_and_on_every_node_without_a_mask() {
        let numa = Numa::invented("0,0,1,1");
        assert_eq!(numa.cores(Some(&[1, 3, 9])), Some(vec![1, 3]));
        assert_eq!(numa.cores(Some(&[9])), Some(vec![0, 2]));
        assert_eq!(numa.cores(None), Some(vec![0, 2]));
    }

    #[test]
    fn a_machine_runs_workers_where_the_mask_says() {
        let numa = Numa::of_machine();
        assert_eq!(numa.cores(Some(&[9])), Some(vec![9]));
        assert_eq!(numa.cores(None), None);
        assert_eq!(Numa::invented("").cores(None), None, "nothing was invented");
    }
}
