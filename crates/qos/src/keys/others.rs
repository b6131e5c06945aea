//! netem, and policers.

use super::reader::Reader;
use super::{Configured, Details, KeyError, Link, Queue};
use crate::discipline::{Discipline, TrTcmPortConfig};
use crate::police::{EgressPolicerConfig, TrTcmConfig};
use crate::{ConfigError, NetemConfig};
use std::collections::BTreeMap;

pub(super) fn netem(port: &mut Reader<'_>, link: &Link) -> Result<Configured, KeyError> {
    let latency = port.number("latency", "µs")?.unwrap_or(0);
    let jitter = port.number("jitter", "µs")?.unwrap_or(0);
    let limit = port.number("limit", "packets")?.unwrap_or(1_000);
    let loss = port.text("loss").unwrap_or("0");
    let percent = Some(loss)
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| port.refuse("loss", "not a percentage between 0 and 100"))?;
    let config = port.check(NetemConfig::new(latency, jitter, percent, limit, link.seed))?;
    let details = vec![
        ("latency", latency.to_string()),
        ("jitter", jitter.to_string()),
        ("limit", limit.to_string()),
        ("loss", loss.to_owned()),
    ];
    Ok(Configured::single(Discipline::Netem(config), details))
}

pub(super) fn egress_policer(port: &mut Reader<'_>) -> Result<Configured, KeyError> {
    let mut needed = |key: &'static str, unit: &str| {
        let missing = ConfigError::Missing {
            key,
            kind: "egress-policer",
        };
        let value = port.number(key, unit)?;
        port.check(value.ok_or(missing))
    };
    let (cir, cbs) = (needed("cir", "bytes a second")?, needed("cbs", "bytes")?);
    let config = port.check(EgressPolicerConfig::new(cir, cbs))?;
    let details = vec![("cir", cir.to_string()), ("cbs", cbs.to_string())];
    Ok(Configured::single(Discipline::EgressPolicer(config), details))
}

/// The meters of the port and of the queues. Queue 0 has the port's parameters unless it has its
/// own.
pub(super) fn trtcm_policer(
    port: &mut Reader<'_>,
    rows: &mut BTreeMap<u32, Reader<'_>>,
) -> Result<Configured, KeyError> {
    let (own, details) = meter(port)?;
    let mut meters = Vec::new();
    let mut queues = BTreeMap::from([(
        0,
        Queue {
            details: details.clone(),
            ..Queue::default()
        },
    )]);
    for (number, row) in rows {
        let (config, details) = meter(row)?;
        meters.push((*number, config));
        let queue = Queue {
            details,
            ..Queue::default()
        };
        queues.insert(*number, queue);
    }
    Ok(Configured {
        discipline: Discipline::TrTcm(TrTcmPortConfig {
            port: own,
            queues: meters,
        }),
        rate: None,
        details,
        queues,
        dscp: BTreeMap::new(),
        warnings: Vec::new(),
    })
}

fn meter(row: &mut Reader<'_>) -> Result<(TrTcmConfig, Details), KeyError> {
    let mut value = |key, unit| row.number(key, unit).map(Option::unwrap_or_default);
    let cir = value("cir", "bytes a second")?;
    let cbs = value("cbs", "bytes")?;
    let eir = value("eir", "bytes a second")?;
    let ebs = value("ebs", "bytes")?;
    if cbs == 0 && ebs == 0 {
        return Err(row.refuse("cbs", "with ebs, one of them must be above 0 (RFC 4115, section 3)"));
    }
    let config = row.check(TrTcmConfig::new(cir, cbs, eir, ebs))?;
    let details = [("cir", cir), ("cbs", cbs), ("eir", eir), ("ebs", ebs)];
    Ok((config, details.map(|(key, value)| (key, value.to_string())).to_vec()))
}
