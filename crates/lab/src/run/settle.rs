//! Rates that are a share of the highest one, which is measured just before a run.

use crate::scenario::{SETTLING, Setup};
use crate::traffic::{Ends, Flow, Test, run};
use anyhow::{Result, ensure};
use std::borrow::Cow;

/// A cell whose flows all have rates, or none.
///
/// # Errors
/// Those of [`run`]; nothing arrives of a flow.
pub(crate) fn settled<'a>(ends: &Ends, setup: &'a Setup) -> Result<Cow<'a, Setup>> {
    let mut settled = Cow::Borrowed(setup);
    if setup.unsettled().next().is_some() {
        let setup = settled.to_mut();
        for flow in setup.background.iter_mut().chain(&mut setup.measured) {
            settle(ends, flow, setup.seconds.min(SETTLING.seconds))?;
        }
    }
    Ok(settled)
}

fn settle(ends: &Ends, flow: &mut Flow, seconds: f64) -> Result<()> {
    let Test::Flood {
        payload,
        of_most: Some(share),
        ..
    } = flow.test
    else {
        return Ok(());
    };
    let with = |rate: Option<u64>| Test::Flood {
        payload,
        rate,
        of_most: None,
    };
    let fastest = Flow {
        test: with(None),
        ..flow.clone()
    };
    let measured = run(ends, &[], &[fastest], seconds, SETTLING.warmup)?;
    let highest = measured.metrics.get(&format!("{}.rate", flow.name)).copied();
    let rate = highest.unwrap_or(0.0) * share;
    ensure!(rate >= 1.0, "flow {}: nothing arrives at {}", flow.name, flow.to);
    flow.test = with(Some(rate as u64));
    Ok(())
}
