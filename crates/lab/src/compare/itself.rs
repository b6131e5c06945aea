//! A run of a build against itself: whatever is found different is found wrongly.

use super::{Compared, Comparison};
use crate::findings::Rates;

/// The rates of wrong verdicts on the comparisons of a build with itself; none if nothing varies.
///
/// Each comparison is taken for two claims with the truth at their bound: that the second is not
/// below the first, and that it is not above.
pub fn itself(compared: &Compared, experiment: &str) -> Option<Rates> {
    // What is the same in all repetitions cannot be called different.
    let varies = |one: &&Comparison| one.a.n > 1 && one.b.n > 1 && one.a.deviation + one.b.deviation > 0.0;
    let all: Vec<&Comparison> = compared.comparisons.iter().filter(varies).collect();
    let share = |is_wrong: &dyn Fn(&Comparison) -> bool| {
        let wrong = all.iter().filter(|one| is_wrong(one)).count();
        wrong as f64 / all.len() as f64
    };
    // `p` is of both sides.
    let beyond = |one: &Comparison| one.p / 2.0 <= crate::findings::LEVEL;
    let different = all.iter().filter(|one| one.different).count();
    (!all.is_empty()).then(|| Rates {
        kind: format!("A against A here, {experiment}: {different} of {} differ", all.len()),
        noise: "measured".to_owned(),
        repetitions: all.iter().map(|one| one.a.n as u32).max().unwrap_or(0),
        runs: all.len() as u32,
        false_holds: share(&|one| beyond(one) && one.b.mean > one.a.mean),
        false_refuted: share(&|one| beyond(one) && one.b.mean < one.a.mean),
        power_holds: None,
        power_refuted: None,
    })
}
