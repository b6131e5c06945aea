//! A cable that is cut while traffic flows.

use super::{Observer, Seen};
use crate::bed::command::run_words;
use crate::controller::Measured;
use crate::run::stage::Table;
use anyhow::{Context, Result};
use std::time::Duration;

/// A cable, and when it is cut. It is mended when this is dropped.
pub(super) struct Cut {
    /// Namespace and device of both ends.
    ends: [(String, String); 2],
    after: Duration,
    cut: bool,
}

impl Cut {
    pub(super) fn begin(table: &Table, between: &(String, String), which: usize, after: f64) -> Result<Cut> {
        let bed = &table.ground.bed;
        let end = |at: &str, to: &str| {
            if let Ok(host) = bed.host(at) {
                return Ok((host.namespace().to_owned(), crate::bed::DEVICE.to_owned()));
            }
            let devices = bed.port_devices(at, to);
            let device = devices
                .get(which)
                .with_context(|| format!("there is no cable {which} between {at} and {to}"))?;
            Ok::<_, anyhow::Error>((bed.namespace().to_owned(), (*device).to_owned()))
        };
        let (a, b) = between;
        Ok(Cut {
            ends: [end(a, b)?, end(b, a)?],
            after: Duration::try_from_secs_f64(after).unwrap_or_default(),
            cut: false,
        })
    }

    fn set(&self, state: &str) -> Result<()> {
        for (namespace, device) in &self.ends {
            run_words(&["ip", "-n", namespace, "link", "set", device, state])?;
        }
        Ok(())
    }
}

impl Observer for Cut {
    fn at(&mut self, measured_for: Duration) -> Result<()> {
        if !self.cut && measured_for >= self.after {
            self.cut = true;
            self.set("down").context("the cable cannot be cut")?;
        }
        Ok(())
    }

    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured> {
        let mut measured = Measured::default();
        for flow in &seen.setup.measured {
            if let Some(silence) = seen.metrics.get(&format!("{}.silence", flow.name)) {
                measured.metrics.insert(format!("silence.{}", flow.name), *silence);
            }
        }
        Ok(measured)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if self.cut
            && let Err(error) = self.set("up")
        {
            eprintln!("oxvs lab: the cable cannot be mended: {error:#}");
        }
    }
}
