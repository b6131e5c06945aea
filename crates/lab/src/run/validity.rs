//! What makes a sample void: the machine had other work, a clock was set, or packets were lost
//! where the experiment does not mean them to be.
//!
//! Senders that cannot keep up are found where their results are
//! ([`crate::traffic::Measured::void`]), carriers that are lost late where cables are cut
//! (`observe::cut`), processors that are stolen where sessions are watched
//! (`observe::liveness`).

use crate::results::{Acceleration, Loss};
use crate::scenario::{Observe, Setup};
use crate::traffic::{Flow, Test, may_be_loaded};
use rustix::time::{ClockId, clock_gettime};

/// The share of the processors that other work may use. What has a lower priority than the
/// laboratory does not count: it waits.
const LOAD: f64 = 0.5;

/// By how much the rate of the clock may differ from that of the hardware: what NTP may correct
/// (500 millionths), and as much again.
const RATE: f64 = 1e-3;

/// By how much the system's clock may be set, which cables with a delay go by, in seconds.
const STEP: f64 = 1e-3;

/// A guest by the processor itself has at least this share of its speed.
const KVM: f64 = 0.5;

/// The clocks at a moment, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    monotonic: f64,
    raw: f64,
    system: f64,
}

impl Clocks {
    pub(crate) fn now() -> Clocks {
        let read = |id| {
            let time = clock_gettime(id);
            time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
        };
        Clocks {
            monotonic: read(ClockId::Monotonic),
            raw: read(ClockId::MonotonicRaw),
            system: read(ClockId::Realtime),
        }
    }

    /// What is wrong with them since an earlier moment. `system`: whether the system's clock
    /// matters.
    pub(crate) fn fault(self, before: Clocks, system: bool) -> Option<String> {
        let passed = self.monotonic - before.monotonic;
        let rate = passed - (self.raw - before.raw);
        // The clocks are not read at the same time.
        if rate.abs() > RATE * passed.max(0.1) {
            return Some(format!(
                "the clock was {:.0} µs off the hardware's in {passed:.2} s",
                rate * 1e6
            ));
        }
        let step = self.system - before.system - passed;
        (system && step.abs() > STEP + RATE * passed)
            .then(|| format!("the system's clock was set by {:.1} ms", step * 1e3))
    }
}

/// Whether other work has used too much of so many processors.
pub(crate) fn load(processors: f64, load: f64) -> Option<String> {
    (load > LOAD * processors && !may_be_loaded())
        .then(|| format!("other work used {load:.1} of {processors:.0} processors"))
}

/// Whether guests were as fast as their acceleration says.
pub(crate) fn speed(acceleration: Acceleration, speed: Option<f64>) -> Option<String> {
    let speed = speed.filter(|speed| acceleration == Acceleration::Kvm && *speed < KVM)?;
    Some(format!(
        "a guest under KVM had {:.0} % of the processor's speed",
        speed * 100.0
    ))
}

/// Where flows of constant rates share the port of a switch, that port is the bottleneck, and no
/// other place may lose their packets.
pub(crate) fn bottleneck(setup: &Setup, losses: &[Loss]) -> Option<String> {
    let shares = |observed: &Observe| matches!(observed, Observe::Fairness { .. });
    let offers = |flow: &Flow| matches!(flow.test, Test::Cbr { .. });
    if !setup.observed.iter().any(|observed| shares(&observed.what)) || !setup.measured.iter().all(offers) {
        return None;
    }
    let elsewhere = |loss: &&Loss| ["cable", "sender", "receiver"].contains(&loss.cause.as_str());
    let lost: Vec<String> = losses
        .iter()
        .filter(elsewhere)
        .map(|loss| format!("{} at {} {}", loss.packets, loss.cause, loss.place))
        .collect();
    (!lost.is_empty()).then(|| {
        format!(
            "packets were lost outside the switch ({}): limit the switch's port (qos), not its cable",
            lost.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Observation;

    #[test]
    fn a_clock_that_runs_as_the_hardware_does_is_right_and_one_that_was_set_is_not() {
        let at = |monotonic, raw, system| Clocks { monotonic, raw, system };
        let begin = at(100.0, 50.0, 1e9);
        assert_eq!(at(101.0, 51.000_2, 1e9 + 1.0).fault(begin, true), None);
        let text = at(101.0, 50.99, 1e9 + 1.0).fault(begin, true).unwrap();
        assert!(text.contains("10000 µs off"), "{text}");
        let set = at(101.0, 51.0, 1e9 + 1.5);
        assert!(set.fault(begin, true).unwrap().contains("500.0 ms"));
        assert_eq!(set.fault(begin, false), None);
        assert_eq!(Clocks::now().fault(Clocks::now(), true), None);
    }

    #[test]
    fn a_machine_with_much_other_work_measures_nothing() {
        assert_eq!(load(2.0, 0.9), None);
        assert!(load(2.0, 1.1).unwrap().contains("1.1 of 2"));
    }

    #[test]
    fn a_guest_that_is_slow_is_not_under_kvm() {
        assert_eq!(speed(Acceleration::Tcg, Some(0.05)), None);
        assert_eq!(speed(Acceleration::Kvm, Some(0.9)), None);
        assert!(speed(Acceleration::Kvm, Some(0.05)).unwrap().contains("5 %"));
    }

    #[test]
    fn where_flows_share_a_port_the_cables_lose_nothing() {
        let loss = |cause: &str| Loss {
            cause: cause.to_owned(),
            place: "s-T towards T".to_owned(),
            packets: 7,
        };
        let mut setup = Setup::nothing();
        assert_eq!(bottleneck(&setup, &[loss("cable")]), None);
        setup.observed.push(Observation {
            name: "all".to_owned(),
            what: Observe::Fairness { flows: Vec::new() },
        });
        assert_eq!(bottleneck(&setup, &[loss("queue"), loss("port")]), None);
        let text = bottleneck(&setup, &[loss("queue"), loss("cable")]).unwrap();
        assert!(text.contains("(7 at cable s-T towards T)"), "{text}");
    }
}
