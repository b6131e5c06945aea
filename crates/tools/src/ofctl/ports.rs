//! Ports and queues.

use super::Ctl;
use crate::common::Failure;
use openflow::Version;
use openflow::model::{ALL_QUEUES, Body, Port, PortDesc, PortMod, StatsRequest};
use openflow::text::parse_port_config;

pub(super) fn stats(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let mut conn = ctl.open(target)?;
    let port = match args.get(1) {
        Some(word) => ctl.port(target, word)?,
        None => Port::ANY,
    };
    ctl.print_statistics(&mut conn, target, StatsRequest::Port(port))
}

pub(super) fn descs(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let mut conn = ctl.open(target)?;
    let port = match args.get(1) {
        Some(word) => ctl.port(target, word)?,
        None => Port::ANY,
    };
    ctl.print_statistics(&mut conn, target, StatsRequest::PortDesc(port))
}

/// A queue's number; 0 if the text is not a number.
fn queue(word: &str) -> u32 {
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    match word.eq_ignore_ascii_case("all") {
        true => ALL_QUEUES,
        false => word[..digits].parse().unwrap_or(0),
    }
}

pub(super) fn queue_stats(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let mut conn = ctl.open(target)?;
    let port = match args.get(1) {
        Some(word) if !word.eq_ignore_ascii_case("all") => ctl.port(target, word)?,
        _ => Port::ANY,
    };
    let queue = match args.get(2) {
        Some(word) if !word.is_empty() => queue(word),
        _ => ALL_QUEUES,
    };
    ctl.print_statistics(&mut conn, target, StatsRequest::Queue { port, queue })
}

pub(super) fn queue_config(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let mut conn = ctl.open(target)?;
    let port = match args.get(1) {
        Some(word) => ctl.port(target, word)?,
        None => Port::ANY,
    };
    let queue = match args.get(2) {
        Some(word) => queue(word),
        None => ALL_QUEUES,
    };
    if conn.version >= Version::V14 {
        return ctl.print_statistics(&mut conn, target, StatsRequest::QueueDesc { port, queue });
    }
    if conn.version > Version::V10 || port != Port::ANY {
        return ctl.print_answer(&mut conn, target, Body::QueueGetConfigRequest(port));
    }
    // OpenFlow 1.0 has no number for all ports.
    for desc in ctl.ports(target)? {
        if desc.port.0 < 0xff00 {
            ctl.print_answer(&mut conn, target, Body::QueueGetConfigRequest(desc.port))?;
        }
    }
    Ok(())
}

impl Ctl {
    /// The port of a switch that a word means.
    fn port_desc(&self, target: &str, word: &str) -> Result<PortDesc, Failure> {
        let number = word.parse::<u32>().ok();
        let missing = || Failure::new(format!("{target}: couldn't find port `{word}'"));
        let found = self.ports(target)?.into_iter().find(|port| match number {
            Some(number) => port.port.0 == number,
            None => port.name == word,
        });
        found.ok_or_else(missing)
    }
}

pub(super) fn modify(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let (target, word, action) = (&args[0], &args[1], &args[2]);
    let port = ctl.port_desc(target, word)?;
    let (mask, on) = parse_port_config(action).map_err(|e| Failure::new(e.to_string()))?;
    let mut conn = ctl.open(target)?;
    let m = PortMod {
        port: port.port,
        hw_addr: port.hw_addr,
        config: if on { mask } else { 0 },
        mask,
        advertise: 0,
    };
    let request = conn.encode(ctl.xid(), Body::PortMod(m));
    ctl.carry_out(&mut conn, target, &request)
}
