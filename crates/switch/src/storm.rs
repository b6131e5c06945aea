//! Storm control: how much broadcast, multicast and unknown unicast traffic a port may bring.
//!
//! Each limit is a meter of the datapath, which translations put before the copies that it limits
//! ([`crate::tables`]). A port without limits costs nothing.

use crate::bridge::Bridge;
use crate::config::PortConfig;
use crate::tables::{MeterChange, MeterNumbers};
use dp::{Band, BandEffect, DropCause, MeterConfig, MeterUnit};
use std::collections::BTreeMap;

/// A kind of traffic that a bridge sends to many ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storm {
    /// Packets to all stations.
    Broadcast,
    /// Packets to other group addresses.
    Multicast,
    /// Packets to a station that the bridge does not know, which NORMAL floods.
    UnknownUnicast,
}

/// The limits of a port by [`Storm`], each in the unit; `None` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormControl {
    /// The unit of the limits.
    pub unit: MeterUnit,
    /// The limits. The burst is what the limit passes in a second.
    pub limits: [Option<u32>; 3],
}

/// A limit of a port, for commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormLimit<'a> {
    /// The name of the port.
    pub port: &'a str,
    /// The traffic that it limits.
    pub storm: Storm,
    /// The unit of the rate.
    pub unit: MeterUnit,
    /// The rate.
    pub rate: u32,
    /// The datapath's meter, which counts what passes and what does not.
    pub meter: u32,
}

/// The meters of a bridge's ports, by port and kind of traffic.
#[derive(Debug, Default)]
pub(crate) struct StormMeters {
    meters: BTreeMap<(u32, Storm), (u32, MeterConfig)>,
}

impl Storm {
    /// All kinds, in the order of [`StormControl::limits`].
    pub const ALL: [Storm; 3] = [Storm::Broadcast, Storm::Multicast, Storm::UnknownUnicast];

    /// Its name in keys and commands.
    pub fn name(self) -> &'static str {
        match self {
            Storm::Broadcast => "broadcast",
            Storm::Multicast => "multicast",
            Storm::UnknownUnicast => "unknown-unicast",
        }
    }
}

impl Default for StormControl {
    fn default() -> StormControl {
        StormControl {
            unit: MeterUnit::Pktps,
            limits: [None; 3],
        }
    }
}

impl StormMeters {
    /// Follows the configuration of ports by number. New and changed meters go to `set`, the
    /// numbers of meters without use to `dead`.
    pub(crate) fn follow<'a>(
        &mut self,
        ports: impl Iterator<Item = (u32, &'a PortConfig)>,
        numbers: &mut MeterNumbers,
        set: &mut Vec<MeterChange>,
        dead: &mut Vec<u32>,
    ) {
        let mut old = std::mem::take(&mut self.meters);
        for (port, config) in ports {
            for (storm, rate) in Storm::ALL.into_iter().zip(config.storm.limits) {
                let Some(rate) = rate else { continue };
                let config = meter(config.storm.unit, rate);
                let before = old.remove(&(port, storm));
                let Some(number) = before.as_ref().map(|(number, _)| *number).or_else(|| numbers.take()) else {
                    continue;
                };
                if before.is_none_or(|(_, before)| before != config) {
                    let config = config.clone();
                    set.push(MeterChange::Set { number, config });
                }
                self.meters.insert((port, storm), (number, config));
            }
        }
        dead.extend(old.into_values().map(|(number, _)| number));
    }

    /// The meters of a port, in the order of [`Storm::ALL`].
    pub(crate) fn of_port(&self, port: u32) -> [Option<u32>; 3] {
        Storm::ALL.map(|storm| self.meters.get(&(port, storm)).map(|(number, _)| *number))
    }

    /// The numbers of all meters of a bridge that is gone.
    pub(crate) fn forget(self) -> impl Iterator<Item = u32> {
        self.meters.into_values().map(|(number, _)| number)
    }
}

impl Bridge {
    /// The limits of its ports.
    pub fn storm_limits(&self) -> impl Iterator<Item = StormLimit<'_>> {
        self.storms
            .meters
            .iter()
            .filter_map(|((port, storm), (meter, config))| {
                Some(StormLimit {
                    port: &self.ports.get(port)?.name,
                    storm: *storm,
                    unit: config.unit,
                    rate: config.bands.first()?.rate,
                    meter: *meter,
                })
            })
    }
}

fn meter(unit: MeterUnit, rate: u32) -> MeterConfig {
    MeterConfig {
        unit,
        bands: vec![Band {
            rate,
            burst: 0,
            effect: BandEffect::Drop,
        }],
        cause: DropCause::StormControl,
    }
}
