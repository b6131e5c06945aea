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

/// What the rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every field.
    Exact,
    /// The two IP addresses, the second by prefixes of so many lengths in turn, 1 to [`MASKS`].
    Wildcard(u32),
}

/// The most lengths of prefixes.
pub const MASKS: u32 = 24;

/// Adds rules until the table has `at_most` of them or is full.
///
/// # Errors
/// The switch refuses a rule for another reason, or does not answer.
pub fn fill(connection: &mut Connection, shape: Shape, at_most: u32) -> Result<Filled> {
    let began = Instant::now();
    let mut rules = 0;
    while rules < at_most {
        let step = STEP.min(at_most - rules);
        for number in rules..rules + step {
            connection.rule(FlowCommand::Add, &(filler(number, shape) + ",actions=drop"))?;
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
pub(crate) fn drain(connection: &mut Connection, shape: Shape, filled: Filled, keep: u32) -> Result<()> {
    for number in keep..filled.rules {
        connection.rule(FlowCommand::DeleteStrict, &filler(number, shape))?;
    }
    match connection.barrier()?.first() {
        Some(refused) => bail!("a rule cannot be deleted: {:?}", refused.reason),
        None => Ok(()),
    }
}

/// A rule for packets from 11.0.0.0/8, which no host of a testbed has.
pub(super) fn filler(number: u32, shape: Shape) -> String {
    let source = Ipv4Addr::from((11 << 24) | number & 0x00ff_ffff);
    match shape {
        Shape::Exact => format!(
            "priority=100,udp,in_port=1,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,dl_vlan=0xffff,nw_src={source},nw_dst=12.0.0.1,nw_tos=0,\
             tp_src=1,tp_dst=2"
        ),
        Shape::Wildcard(masks) => {
            let length = 32 - number % masks.clamp(1, MASKS);
            let network = Ipv4Addr::from((12 << 24 | 1) & (u32::MAX << (32 - length)));
            format!("priority=100,ip,nw_src={source},nw_dst={network}/{length}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_differ_and_have_as_many_masks_as_wanted() {
        assert_eq!(
            filler(0, Shape::Wildcard(1)),
            "priority=100,ip,nw_src=11.0.0.0,nw_dst=12.0.0.1/32"
        );
        let rules: Vec<String> = (0..100).map(|number| filler(number, Shape::Wildcard(24))).collect();
        let lengths: std::collections::BTreeSet<&str> =
            rules.iter().filter_map(|rule| Some(rule.rsplit_once('/')?.1)).collect();
        assert_eq!(lengths.len(), 24);
        assert!(rules[23].ends_with("nw_dst=12.0.0.0/9"), "{}", rules[23]);
    }
}
