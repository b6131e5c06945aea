//! A table filled with rules that match nothing of a run.

use super::connection::Connection;
use anyhow::{Result, bail};
use openflow::model::FlowCommand;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Rules between two barriers: a table that is full is noticed so soon.
const STEP: u32 = 5000;

/// The result of filling a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filled {
    /// Rules that it took.
    pub rules: u32,
    /// It said that it is full.
    pub full: bool,
    /// How long that took.
    pub took: Duration,
}

/// Adds rules until the table has `at_most` of them or is full. Every field is matched, or only the
/// two IP addresses.
///
/// # Errors
/// The switch refuses a rule for another reason, or does not answer.
pub fn fill(connection: &mut Connection, exact: bool, at_most: u32) -> Result<Filled> {
    let began = Instant::now();
    let mut rules = 0;
    while rules < at_most {
        let step = STEP.min(at_most - rules);
        for number in rules..rules + step {
            connection.rule(FlowCommand::Add, &(filler(number, exact) + ",actions=drop"))?;
        }
        let refused = connection.barrier()?;
        if let Some(other) = refused.iter().find(|refused| !refused.is_full()) {
            bail!(
                "rule {rules} or one of the {step} after it is refused: {:?}",
                other.reason
            );
        }
        rules += step - u32::try_from(refused.len()).unwrap_or(step).min(step);
        if !refused.is_empty() {
            let took = began.elapsed();
            return Ok(Filled {
                rules,
                full: true,
                took,
            });
        }
    }
    Ok(Filled {
        rules,
        full: false,
        took: began.elapsed(),
    })
}

/// Takes out the last of them until `keep` are left.
pub(crate) fn drain(connection: &mut Connection, exact: bool, filled: Filled, keep: u32) -> Result<()> {
    for number in keep..filled.rules {
        connection.rule(FlowCommand::DeleteStrict, &filler(number, exact))?;
    }
    match connection.barrier()?.first() {
        Some(refused) => bail!("a rule cannot be deleted: {:?}", refused.reason),
        None => Ok(()),
    }
}

/// A rule for packets from 11.0.0.0/8, which no host of a testbed has.
pub(super) fn filler(number: u32, exact: bool) -> String {
    let source = Ipv4Addr::from((11 << 24) | number & 0x00ff_ffff);
    if exact {
        return format!(
            "priority=100,udp,in_port=1,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,dl_vlan=0xffff,nw_src={source},nw_dst=12.0.0.1,nw_tos=0,\
             tp_src=1,tp_dst=2"
        );
    }
    format!("priority=100,ip,nw_src={source},nw_dst=12.0.0.1")
}
