//! A cable that is cut while traffic flows.

use super::{Observer, Seen};
use crate::bed::command::run;
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::Cause;
use crate::systems::MemberChange;
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long both ends may take to lose the carrier. Before the kernel takes it from the switch's
/// devices, it ends what passes at the cable's and waits for all processors (RCU), as a rule for a
/// few milliseconds. Until then packets are lost of which no switch can know.
const AT_ONCE: Duration = Duration::from_millis(25);

/// A cable, and when it is cut. It is mended when this is dropped.
pub(super) struct Cut {
    /// What cuts it, and what mends it.
    how: [Vec<Command>; 2],
    by: Cause,
    after: Duration,
    /// How long it took, once it is cut.
    took: Option<Duration>,
}

impl Cut {
    pub(super) fn begin(table: &Table, (a, b): (&str, &str), which: usize, by: Cause, after: f64) -> Result<Cut> {
        let cable = table.ground.bed.cable(a, b, which)?;
        let set = |(namespace, device): (&str, &str), state| {
            let mut command = Command::new("ip");
            command.args(["-n", namespace, "link", "set", device, state]);
            command
        };
        let plugs = [&cable.a, &cable.b];
        let how = match (by, &cable.namespace) {
            // Where the cable has devices of its own, the switch's lose the carrier and nothing
            // else.
            (Cause::Carrier, Some(own)) => {
                let all = |state| plugs.map(|plug| set((own, &plug.inner), state)).into();
                [all("down"), all("up")]
            }
            (Cause::Carrier, None) => {
                let all = |state| plugs.map(|plug| set((&plug.namespace, &plug.device), state)).into();
                [all("down"), all("up")]
            }
            (Cause::Silence, own) => {
                let own = own.as_deref().context("a bare cable cannot lose frames in silence")?;
                let all = |state| vec![set((own, "bridge"), state)];
                [all("down"), all("up")]
            }
            (Cause::Removal, _) => {
                let all = |change| {
                    let each = plugs.map(|plug| table.running.member(&plug.at, &plug.device, change));
                    each.into_iter().collect::<Result<Vec<_>>>()
                };
                [all(MemberChange::Remove)?, all(MemberChange::Add)?]
            }
        };
        Ok(Cut {
            how,
            by,
            after: Duration::try_from_secs_f64(after).unwrap_or_default(),
            took: None,
        })
    }
}

/// What is wrong with a cut that took so long.
fn slow(by: Cause, took: Duration) -> Option<String> {
    (by == Cause::Carrier && took > AT_ONCE).then(|| {
        format!(
            "the kernel took {} ms to take the carrier away: packets of that time are not the switch's",
            took.as_millis()
        )
    })
}

/// Runs all of them at the same time: a cable has two ends.
fn run_all(commands: &mut [Command]) -> Result<()> {
    std::thread::scope(|scope| {
        let running = commands
            .iter_mut()
            .map(|command| scope.spawn(|| run(command).map(drop)));
        let running: Vec<_> = running.collect();
        running.into_iter().try_for_each(|running| match running.join() {
            Ok(result) => result,
            Err(_) => bail!("a command's thread has panicked"),
        })
    })
}

impl Observer for Cut {
    fn at(&mut self, measured_for: Duration) -> Result<()> {
        if self.took.is_none() && measured_for >= self.after {
            let began = Instant::now();
            let result = run_all(&mut self.how[0]);
            self.took = Some(began.elapsed());
            result.context("the cable cannot be cut")?;
        }
        Ok(())
    }

    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured> {
        let mut measured = Measured {
            void: slow(self.by, self.took.unwrap_or_default()).into_iter().collect(),
            ..Measured::default()
        };
        let mut whole = [("silence", 0.0), ("lost", 0.0), ("overtaken", 0.0)];
        for flow in &seen.setup.measured {
            let of_flow = |metric: &str| seen.metrics.get(&format!("{}.{metric}", flow.name)).copied();
            let [(_, silence), (_, lost), (_, overtaken)] = &mut whole;
            *lost += of_flow("missing").unwrap_or(0.0);
            *overtaken += of_flow("reordered").unwrap_or(0.0);
            if let Some(of_flow) = of_flow("silence") {
                *silence = of_flow.max(*silence);
                measured.metrics.insert(format!("silence.{}", flow.name), of_flow);
            }
        }
        measured
            .metrics
            .extend(whole.map(|(name, value)| (name.to_owned(), value)));
        Ok(measured)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if self.took.is_some()
            && let Err(error) = run_all(&mut self.how[1])
        {
            eprintln!("oxvs lab: the cable cannot be mended: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_that_is_lost_late_measures_no_switch() {
        let late = Duration::from_millis(730);
        let why = slow(Cause::Carrier, late).unwrap();
        assert!(why.contains("took 730 ms"), "{why}");
        assert_eq!(slow(Cause::Carrier, AT_ONCE), None);
        assert_eq!(slow(Cause::Removal, late), None);
    }
}
