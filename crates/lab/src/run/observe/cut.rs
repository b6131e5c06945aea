//! A cable that is cut while traffic flows.

use super::{Observer, Seen};
use crate::bed::command::run;
use crate::bed::namespace::enter;
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::Cause;
use crate::systems::MemberChange;
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time within which the switch's devices must lose the carrier, including the start of the
/// program that cuts the cable. The kernel stops a device, waits for all processors (RCU), and only
/// then reports the lost carrier to the other end: usually within milliseconds, but now and then
/// after seconds. The switch cannot know of the cut until then.
const LATEST_CARRIER_LOSS: Duration = Duration::from_millis(20);

/// A cable, and when it is cut. It is mended when this is dropped.
pub(super) struct Cut {
    /// What cuts it, and what mends it.
    how: [Vec<Step>; 2],
    by: Cause,
    after: Duration,
    /// How long it took, once it is cut.
    took: Option<Duration>,
}

/// A command, in a network namespace if one is given. (`ip -n` also makes a mount namespace, and
/// waits for RCU when it unmounts.)
struct Step {
    namespace: Option<String>,
    command: Command,
}

impl Cut {
    pub(super) fn begin(table: &Table, (a, b): (&str, &str), which: usize, by: Cause, after: f64) -> Result<Cut> {
        let cable = table.ground.bed.cable(a, b, which)?;
        let set = |(namespace, device): (&str, &str), state| {
            let mut command = Command::new("ip");
            command.args(["link", "set", device, state]);
            Step {
                namespace: Some(namespace.to_owned()),
                command,
            }
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
                    let steps = each.into_iter().map(|command| {
                        Ok(Step {
                            namespace: None,
                            command: command?,
                        })
                    });
                    steps.collect::<Result<Vec<_>>>()
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
fn late_carrier(by: Cause, took: Duration) -> Option<String> {
    (by == Cause::Carrier && took > LATEST_CARRIER_LOSS).then(|| {
        format!(
            "the kernel took {} ms to report the lost carrier; no switch can know of it before",
            took.as_millis()
        )
    })
}

/// Runs all of them at the same time: a cable has two ends.
fn run_all(steps: &mut [Step]) -> Result<()> {
    let take = |step: &mut Step| match &step.namespace {
        Some(namespace) => enter(namespace, || run(&mut step.command).map(drop)),
        None => run(&mut step.command).map(drop),
    };
    std::thread::scope(|scope| {
        let running = steps.iter_mut().map(|step| scope.spawn(|| take(step)));
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
        let took = self.took.context("the cable was not cut")?;
        let mut measured = Measured {
            void: late_carrier(self.by, took).into_iter().collect(),
            ..Measured::default()
        };
        measured.metrics.insert("took".to_owned(), 1e3 * took.as_secs_f64());
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
        let why = late_carrier(Cause::Carrier, late).unwrap();
        assert!(why.contains("took 730 ms"), "{why}");
        assert_eq!(late_carrier(Cause::Carrier, LATEST_CARRIER_LOSS), None);
        assert_eq!(late_carrier(Cause::Removal, late), None);
    }
}
