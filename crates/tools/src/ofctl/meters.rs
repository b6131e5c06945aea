//! Meters.

use super::Ctl;
use crate::common::Failure;
use openflow::Version;
use openflow::model::{ALL_METERS, Body, MeterCommand, MeterConfig, MeterMod, StatsRequest};
use openflow::text::{Protocols, parse_meter_mod, parse_meter_request};

fn usable() -> Protocols {
    Protocols::since(Version::V13)
}

fn change(ctl: &Ctl, args: &[String], command: MeterCommand) -> Result<(), Failure> {
    let target = &args[0];
    let m = match args.get(1) {
        Some(text) => parse_meter_mod(command, text).map_err(|e| Failure::new(e.to_string()))?,
        None => MeterMod {
            command,
            config: MeterConfig {
                meter: ALL_METERS,
                flags: 0,
                bands: Vec::new(),
            },
        },
    };
    let mut conn = ctl.open_for_change(target, usable())?;
    let request = conn.encode(ctl.xid(), Body::MeterMod(m));
    ctl.carry_out(&mut conn, target, &request)
}

pub(super) fn add(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    change(ctl, args, MeterCommand::Add)
}

pub(super) fn modify(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    change(ctl, args, MeterCommand::Modify)
}

pub(super) fn delete(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    change(ctl, args, MeterCommand::Delete)
}

fn request(ctl: &Ctl, args: &[String], request: fn(u32) -> StatsRequest) -> Result<(), Failure> {
    let target = &args[0];
    let meter = match args.get(1) {
        Some(text) => parse_meter_request(text).map_err(|e| Failure::new(e.to_string()))?,
        None => ALL_METERS,
    };
    let mut conn = ctl.open_for_change(target, usable())?;
    ctl.print_statistics(&mut conn, target, request(meter))
}

pub(super) fn dump(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    request(ctl, args, StatsRequest::MeterConfig)
}

pub(super) fn stats(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    request(ctl, args, StatsRequest::Meter)
}

pub(super) fn features(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    request(ctl, args, |_| StatsRequest::MeterFeatures)
}
