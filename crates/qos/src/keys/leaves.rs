//! Disciplines without classes: of a port, or of a class's end.

use super::reader::Reader;
use super::{Configured, Details, KeyError, Link};
use crate::discipline::Discipline;
use crate::{CodelConfig, FifoConfig, FqCodelConfig, LeafConfig, SfqConfig};

/// What Linux gives a device that says nothing.
const DEFAULT_MTU: u32 = 1_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeafKind {
    Fifo,
    Sfq,
    Codel,
    FqCodel,
}

/// A port's.
pub(super) fn read(kind: LeafKind, port: &mut Reader<'_>, link: &Link) -> Result<Configured, KeyError> {
    let (config, details) = config(kind, port, link)?;
    Ok(Configured::single(Discipline::Leaf(config), details))
}

/// The discipline of a leaf class: the key `leaf` and the keys of the named discipline.
pub(super) fn of_class(row: &mut Reader<'_>, link: &Link) -> Result<(LeafConfig, Details), KeyError> {
    let (kind, name) = match row.text("leaf") {
        None => return config(LeafKind::Fifo, row, link).map(|(config, _)| (config, Details::new())),
        Some("fifo") => (LeafKind::Fifo, "fifo"),
        Some("sfq") => (LeafKind::Sfq, "sfq"),
        Some("codel") => (LeafKind::Codel, "codel"),
        Some("fq_codel") => (LeafKind::FqCodel, "fq_codel"),
        Some(_) => return Err(row.refuse("leaf", "not one of fifo, sfq, codel, fq_codel")),
    };
    let (config, mut details) = config(kind, row, link)?;
    details.insert(0, ("leaf", name.to_owned()));
    Ok((config, details))
}

fn config(kind: LeafKind, row: &mut Reader<'_>, link: &Link) -> Result<(LeafConfig, Details), KeyError> {
    match kind {
        LeafKind::Fifo => {
            let limit = row.number("limit", "packets")?.unwrap_or(1_000);
            let config = row.check(FifoConfig::new(limit))?;
            Ok((LeafConfig::Fifo(config), vec![("limit", limit.to_string())]))
        }
        LeafKind::Sfq => sfq(row, link),
        LeafKind::Codel => {
            let (config, details) = codel(row, false)?;
            Ok((LeafConfig::Codel(config), details))
        }
        LeafKind::FqCodel => fq_codel(row, link),
    }
}

fn sfq(row: &mut Reader<'_>, link: &Link) -> Result<(LeafConfig, Details), KeyError> {
    let mtu = u64::from(link.mtu.unwrap_or(DEFAULT_MTU).max(64));
    let perturb = row.number("perturb", "seconds")?.unwrap_or(10);
    let quantum = row.number("quantum", "bytes")?.unwrap_or(mtu);
    let limit = row.number("limit", "packets")?.unwrap_or(1_024);
    let depth = row.number("depth", "packets")?.unwrap_or(127);
    let flows = row.number("flows", "flows")?.unwrap_or(1_024);
    let config = row.check(SfqConfig::new(perturb, quantum))?;
    let config = row.check(config.limits(limit, depth, flows))?.seed(link.seed);
    let details = vec![
        ("quantum", quantum.to_string()),
        ("perturb", perturb.to_string()),
        ("limit", limit.to_string()),
        ("depth", depth.to_string()),
        ("flows", flows.to_string()),
    ];
    Ok((LeafConfig::Sfq(config), details))
}

fn codel(row: &mut Reader<'_>, ecn: bool) -> Result<(CodelConfig, Details), KeyError> {
    let target = row.number("target", "µs")?.unwrap_or(5_000);
    let limit = row.number("limit", "packets")?.unwrap_or(10_240);
    // A target that is longer than the default interval needs a longer one.
    let interval = row.number("interval", "µs")?.unwrap_or(target.max(100_000));
    let ecn = row.flag("ecn", ecn)?;
    let config = row.check(CodelConfig::new(target, interval, limit, ecn))?;
    let details = vec![
        ("target", target.to_string()),
        ("limit", limit.to_string()),
        ("interval", interval.to_string()),
        ("ecn", ecn.to_string()),
    ];
    Ok((config, details))
}

fn fq_codel(row: &mut Reader<'_>, link: &Link) -> Result<(LeafConfig, Details), KeyError> {
    let (codel, mut details) = codel(row, true)?;
    let flows = row.number("flows", "flows")?.unwrap_or(1_024);
    let quantum = row.number("quantum", "bytes")?.unwrap_or(1_514);
    let memory = row.number("memory_limit", "bytes")?.unwrap_or(32 << 20);
    let config = row.check(FqCodelConfig::new(codel, flows, quantum))?;
    let config = row.check(config.memory(memory))?.seed(link.seed);
    details.push(("flows", flows.to_string()));
    details.push(("quantum", quantum.to_string()));
    details.push(("memory_limit", memory.to_string()));
    Ok((LeafConfig::FqCodel(config), details))
}
