//! The mirrors of a bridge (table `Mirror` in ovs-vswitchd.conf.db(5)): which packets are copied,
//! and where to. `tables::mirrors` makes the copies.

use crate::config::{MirrorConfig, MirrorOutput};
use crate::tables::words::{WORDS, match_words};
use crate::{VlanSet, port::Port};
use classifier::Match;
use std::collections::{BTreeMap, BTreeSet};
use wire::Vid;

/// Most mirrors of a bridge, as in Open vSwitch. The configuration's others are ignored.
pub const MAX_MIRRORS: usize = 32;

/// The mirrors of a bridge. A set of mirrors is a bit for each, in the order of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mirrors {
    list: Vec<Mirror>,
    /// The mirrors that select what is received on a port.
    by_source: BTreeMap<u32, u32>,
    /// The mirrors that select what is sent to a port.
    by_destination: BTreeMap<u32, u32>,
    /// Ports that are mirrors' outputs, and take no part in switching.
    outputs: BTreeSet<u32>,
    /// The mirrors that are captures.
    captures: u32,
}

/// A mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// Its number in the bridge, for counters; never reused.
    pub(crate) number: u32,
    /// The VLANs that it selects; empty means all.
    pub(crate) vlans: VlanSet,
    /// Packets that do not match are not copied.
    pub(crate) filter: Option<Match<WORDS>>,
    pub(crate) output: Output,
    /// The length that copies are cut to.
    pub(crate) snaplen: Option<u32>,
    /// The mirrors with the same output, itself among them: a packet goes to an output once.
    pub(crate) same_output: u32,
}

/// Where a mirror's copies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Port(u32),
    Vlan(Vid),
    Capture(u8),
}

/// What a mirror has copied since its row came, and its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounts {
    pub(crate) number: u32,
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets, before they are cut to `snaplen`.
    pub bytes: u64,
}

impl Mirrors {
    /// The mirrors of a configuration whose outputs exist. `port` gives a port's number, `number`
    /// that of a mirror.
    pub(crate) fn new(
        configs: &[MirrorConfig],
        ports: &BTreeMap<u32, Port>,
        port: impl Fn(&str) -> Option<u32>,
        mut number: impl FnMut(u128) -> u32,
    ) -> Mirrors {
        let mut mirrors = Mirrors::default();
        for config in configs.iter().take(MAX_MIRRORS) {
            let output = match &config.output {
                MirrorOutput::Port(name) => port(name).map(Output::Port),
                MirrorOutput::Vlan(vlan) => Some(Output::Vlan(*vlan)),
                MirrorOutput::Capture(capture) => Some(Output::Capture(*capture)),
            };
            let Some(output) = output else { continue };
            if let Output::Port(port) = output {
                mirrors.outputs.insert(port);
            }
            let own = 1 << mirrors.list.len();
            if let Output::Capture(_) = output {
                mirrors.captures |= own;
            }
            let selected = |names: &BTreeSet<String>| match config.select_all {
                true => ports.keys().copied().collect::<Vec<_>>(),
                false => names.iter().filter_map(|name| port(name)).collect(),
            };
            for port in selected(&config.select_src) {
                *mirrors.by_source.entry(port).or_default() |= own;
            }
            for port in selected(&config.select_dst) {
                *mirrors.by_destination.entry(port).or_default() |= own;
            }
            mirrors.list.push(Mirror {
                number: number(config.id),
                vlans: config.vlans.clone(),
                filter: config.filter.as_ref().map(match_words),
                output,
                snaplen: config.snaplen,
                same_output: 0,
            });
        }
        let outputs: Vec<Output> = mirrors.list.iter().map(|mirror| mirror.output).collect();
        for mirror in &mut mirrors.list {
            let same = outputs
                .iter()
                .enumerate()
                .filter(|(_, output)| **output == mirror.output);
            mirror.same_output = same.fold(0, |set, (n, _)| set | 1 << n);
        }
        mirrors
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The mirrors that are captures.
    pub(crate) fn captures(&self) -> u32 {
        self.captures
    }

    pub(crate) fn has_captures(&self) -> bool {
        self.captures != 0
    }

    /// The mirrors that select what is received on a port.
    pub(crate) fn of_source(&self, port: u32) -> u32 {
        self.by_source.get(&port).copied().unwrap_or_default()
    }

    /// The mirrors that select what is sent to a port.
    pub(crate) fn of_destination(&self, port: u32) -> u32 {
        self.by_destination.get(&port).copied().unwrap_or_default()
    }

    /// Whether a port is a mirror's output.
    pub(crate) fn is_output(&self, port: u32) -> bool {
        self.outputs.contains(&port)
    }

    /// The ports that are mirrors' outputs.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = u32> {
        self.outputs.iter().copied()
    }

    /// A mirror of a set.
    pub(crate) fn get(&self, place: u32) -> Option<&Mirror> {
        self.list.get(place as usize)
    }
}

impl Mirror {
    /// Whether it selects a VLAN.
    pub(crate) fn selects(&self, vlan: Vid) -> bool {
        self.vlans.is_empty() || self.vlans.contains(vlan)
    }
}
