//! Meters (OpenFlow 1.5.1 §5.11) and their numbers in the datapath.

use super::update::Log;
use super::{FlowTables, Reason, users};
use dp::{Band, BandEffect, DropCause, MAX_BANDS, MAX_METERS, MAX_PORT_METERS, MeterUnit};
use nanos::Nanos;
use openflow::OfError;
use openflow::model::{self, BandKind, MeterCommand, meter_flags};
use std::collections::BTreeMap;

/// A meter of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meter {
    /// The configuration from the controller.
    pub config: model::MeterConfig,
    /// The datapath's meter.
    pub number: u32,
    /// When it was added.
    pub created: Nanos,
}

/// The calls of the datapath that a change of meters needs, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeterChange {
    /// [`Datapath::set_meter`](dp::Datapath::set_meter).
    Set {
        /// The datapath's number.
        number: u32,
        /// Its rates and bands.
        config: dp::MeterConfig,
    },
    /// [`Datapath::del_meter`](dp::Datapath::del_meter), after the changes that came with this are
    /// published.
    Delete {
        /// The datapath's number.
        number: u32,
    },
}

/// The meters of a bridge.
#[derive(Debug, Default)]
pub struct MeterTable {
    meters: BTreeMap<u32, Meter>,
}

/// Free meter numbers of the datapath.
#[derive(Debug)]
pub(crate) struct MeterNumbers {
    free: Vec<u32>,
    next: u32,
    end: u32,
}

impl MeterNumbers {
    /// Those for meters of rules.
    pub(crate) fn of_rules() -> MeterNumbers {
        MeterNumbers {
            free: Vec::new(),
            next: 0,
            end: MAX_METERS,
        }
    }

    /// Those for storm control.
    pub(crate) fn of_ports() -> MeterNumbers {
        MeterNumbers {
            free: Vec::new(),
            next: MAX_METERS,
            end: MAX_METERS + MAX_PORT_METERS,
        }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            return Some(number);
        }
        let number = self.next;
        (number < self.end).then(|| {
            self.next += 1;
            number
        })
    }

    pub(crate) fn give(&mut self, number: u32) {
        self.free.push(number);
    }
}

/// Meter numbers that rules cannot use: for packets to the slow path, for packets to controllers,
/// and for all meters.
const SLOWPATH: u32 = 0xffff_fffd;
/// See [`MeterTable::controller`].
const CONTROLLER: u32 = 0xffff_fffe;
/// Highest meter number for rules.
const MAX: u32 = 0xffff_0000;

impl MeterTable {
    /// The meter with a number.
    pub fn get(&self, id: u32) -> Option<&Meter> {
        self.meters.get(&id)
    }

    /// The meter of packets to controllers that have no meter of their own, if it exists.
    pub fn controller(&self) -> Option<&Meter> {
        self.get(CONTROLLER)
    }

    /// The meter of packets that miss the caches, if it exists.
    pub fn slowpath(&self) -> Option<&Meter> {
        self.get(SLOWPATH)
    }

    /// All meters in order of number for [`model::ALL_METERS`]; otherwise the meter with this
    /// number, if any.
    pub fn wanted(&self, id: u32) -> impl Iterator<Item = &Meter> {
        let range = if id == model::ALL_METERS { 0..=u32::MAX } else { id..=id };
        self.meters.range(range).map(|(_, meter)| meter)
    }

    /// Adds or changes a meter. Returns the calls that the datapath needs.
    pub(super) fn set(
        &mut self,
        change: &model::MeterMod,
        numbers: &mut MeterNumbers,
        now: Nanos,
    ) -> Result<MeterChange, OfError> {
        let config = &change.config;
        if !is_a_meter(config.meter) {
            return Err(OfError::MmfcInvalidMeter);
        }
        let there = self.meters.get(&config.meter);
        match (change.command, there) {
            (MeterCommand::Add, Some(_)) => return Err(OfError::MmfcMeterExists),
            (MeterCommand::Modify, None) => return Err(OfError::MmfcUnknownMeter),
            _ => {}
        }
        let for_datapath = for_datapath(config)?;
        let number = match there {
            Some(there) => there.number,
            None => numbers.take().ok_or(OfError::MmfcOutOfMeters)?,
        };
        let meter = Meter {
            config: config.clone(),
            number,
            created: there.map_or(now, |there| there.created),
        };
        self.meters.insert(config.meter, meter);
        Ok(MeterChange::Set {
            number,
            config: for_datapath,
        })
    }

    /// Removes one meter, or all.
    pub(super) fn remove(&mut self, id: u32) -> Vec<Meter> {
        if id == model::ALL_METERS {
            return std::mem::take(&mut self.meters).into_values().collect();
        }
        self.meters.remove(&id).into_iter().collect()
    }
}

impl FlowTables {
    /// Carries out a meter-mod. Returns the calls that the datapath needs. The numbers of deleted
    /// meters are free after these calls.
    pub(crate) fn meter_mod(
        &mut self,
        change: &model::MeterMod,
        numbers: &mut MeterNumbers,
        now: Nanos,
        log: &mut Log,
    ) -> Result<Vec<MeterChange>, OfError> {
        if change.command != MeterCommand::Delete {
            return Ok(vec![self.meters.set(change, numbers, now)?]);
        }
        let gone = self.meters.remove(change.config.meter);
        for meter in &gone {
            let rules: Vec<_> = users(&self.by_meter, meter.config.meter).collect();
            for at in rules.into_iter().filter(|at| self.is_latest(*at)).collect::<Vec<_>>() {
                self.drop_rule(at, Reason::MeterDelete, now, log);
            }
        }
        let delete = |meter: Meter| MeterChange::Delete { number: meter.number };
        Ok(gone.into_iter().map(delete).collect())
    }

    /// Removes all meters of a deleted bridge. Returns their numbers in the datapath.
    pub(crate) fn forget_meters(&mut self) -> Vec<u32> {
        let gone = self.meters.remove(model::ALL_METERS);
        gone.into_iter().map(|meter| meter.number).collect()
    }
}

/// A meter's counters for messages, from the datapath's measurements; `flows` rules use it.
pub fn meter_stats(meter: &Meter, flows: usize, measured: &dp::MeterStats, now: Nanos) -> model::MeterStats {
    let mut bands: Vec<(u64, u64)> = measured.bands.iter().map(|band| (band.packets, band.bytes)).collect();
    bands.resize(meter.config.bands.len(), (0, 0));
    model::MeterStats {
        meter: meter.config.meter,
        flows: u32::try_from(flows).unwrap_or(u32::MAX),
        packets: measured.packets,
        bytes: measured.bytes,
        duration: super::duration(now, meter.created),
        bands,
    }
}

/// The meter features that the switch supports.
pub fn meter_features() -> model::MeterFeatures {
    model::MeterFeatures {
        max_meters: MAX_METERS,
        // Drop and DSCP remark.
        band_types: 1 << 1 | 1 << 2,
        capabilities: u32::from(meter_flags::KBPS | meter_flags::PKTPS | meter_flags::BURST | meter_flags::STATS),
        max_bands: MAX_BANDS as u8,
        max_color: 0,
        features: 0,
    }
}

fn is_a_meter(id: u32) -> bool {
    (1..=MAX).contains(&id) || id == SLOWPATH || id == CONTROLLER
}

fn for_datapath(config: &model::MeterConfig) -> Result<dp::MeterConfig, OfError> {
    const KNOWN: u16 = meter_flags::KBPS | meter_flags::PKTPS | meter_flags::BURST | meter_flags::STATS;
    let flags = config.flags;
    let unit = match (flags & meter_flags::KBPS != 0, flags & meter_flags::PKTPS != 0) {
        (true, true) => return Err(OfError::MmfcBadFlags),
        (_, true) => MeterUnit::Pktps,
        // The specification's default unit is the kilobit.
        (_, false) => MeterUnit::Kbps,
    };
    if flags & !KNOWN != 0 {
        return Err(OfError::MmfcBadFlags);
    }
    if config.bands.len() > MAX_BANDS {
        return Err(OfError::MmfcOutOfBands);
    }
    if config.bands.is_empty() {
        return Err(OfError::MmfcBadBand);
    }
    let bands = config.bands.iter().map(|band| {
        if band.rate == 0 {
            return Err(OfError::MmfcBadRate);
        }
        let effect = match band.kind {
            BandKind::Drop => BandEffect::Drop,
            BandKind::DscpRemark(levels) if (1..=3).contains(&levels) => BandEffect::DscpRemark(levels),
            BandKind::DscpRemark(_) => return Err(OfError::MmfcBadBandValue),
        };
        Ok(Band {
            rate: band.rate,
            burst: if flags & meter_flags::BURST != 0 { band.burst } else { 0 },
            effect,
        })
    });
    Ok(dp::MeterConfig {
        unit,
        bands: bands.collect::<Result<_, _>>()?,
        cause: DropCause::Meter,
    })
}
