//! The peer's caches: each is best for some numbers of flows and worse than none for others, so all
//! of them are tried.

use super::subject::Subject;
use crate::run::Stop;
use anyhow::{Result, bail};
use std::time::Duration;

/// How long a setting is measured.
const TRIAL: Duration = Duration::from_millis(300);

/// How long a setting needs to take effect in the caches.
const CHANGE: Duration = Duration::from_millis(400);

/// A cache setting: its name, the inverse insertion probability of the exact-match cache (0: off),
/// and whether the signature cache is on.
const SETTINGS: [(&str, u32, bool); 5] = [
    ("EMC", 100, false),
    ("EMC always", 1, false),
    ("no EMC", 0, false),
    ("SMC", 0, true),
    ("EMC+SMC", 100, true),
];

/// Finds and sets the best, vector instructions included.
///
/// # Errors
/// The switch refuses a setting, or does not answer.
pub(crate) fn best(subject: &mut Subject, stop: &Stop) -> Result<String> {
    let mut best: Option<(f64, usize)> = None;
    for number in 0..SETTINGS.len() {
        if stop.is_requested() {
            bail!("stopped");
        }
        set(subject, number)?;
        std::thread::sleep(CHANGE);
        let rate = subject.measure(TRIAL)?.received;
        if best.is_none_or(|(most, _)| rate > most) {
            best = Some((rate, number));
        }
    }
    let (rate, number) = best.unwrap_or_default();
    set(subject, number)?;
    if vectors(subject, true).is_ok() {
        std::thread::sleep(CHANGE);
        if subject.measure(TRIAL)?.received > rate * 1.03 {
            return Ok(format!("{}, AVX-512", SETTINGS[number].0));
        }
        vectors(subject, false)?;
    }
    Ok(SETTINGS[number].0.to_owned())
}

fn set(subject: &mut Subject, number: usize) -> Result<()> {
    let (_, emc, smc) = SETTINGS[number];
    subject.vsctl(&format!(
        "set open_vswitch . other_config:emc-insert-inv-prob={emc} other_config:smc-enable={smc}"
    ))
}

/// Switches parsing and lookup by AVX-512 on or off, if the processor has it.
fn vectors(subject: &Subject, on: bool) -> Result<()> {
    let commands = match on {
        true => [
            "dpif-netdev/dpif-impl-set dpif_avx512",
            "dpif-netdev/subtable-lookup-prio-set avx512_gather 5",
            "dpif-netdev/miniflow-parser-set study",
        ],
        false => [
            "dpif-netdev/dpif-impl-set dpif_scalar",
            "dpif-netdev/subtable-lookup-prio-set avx512_gather 0",
            "dpif-netdev/miniflow-parser-set scalar",
        ],
    };
    commands
        .iter()
        .try_for_each(|command| subject.appctl(command).map(drop))
}
