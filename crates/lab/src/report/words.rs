//! Sentences of the report.

use super::looks;
use super::summary::Summary;
use super::svg::number;
use crate::results::{Machine, Results, Run};
use crate::scenario::{Profile, Scenario};
use std::collections::BTreeMap;

/// What was done, and how far it may be trusted.
pub(crate) fn summary(results: &Results, scenarios: &[Scenario]) -> String {
    let run = &results.run;
    let systems = looks::in_order(results.samples.iter().map(|sample| sample.system.as_str()));
    let names: Vec<&str> = systems.into_iter().map(looks::title).collect();
    let measured = scenarios
        .iter()
        .filter(|scenario| results.samples.iter().any(|sample| sample.scenario == scenario.id));
    let when = run
        .invocations
        .first()
        .map_or_else(String::new, |first| format!(" Begun {}.", date(first.began)));
    let profile = match run.profile {
        Profile::Quick => {
            "It is the quick profile, a few values of everything that is varied, briefly, each on one testbed: it shows numbers and decides nothing; \
             the full profile does, and --until-decided."
        }
        Profile::Full => "It is the full profile, with the studies' own values, durations and repetitions.",
    };
    let place = if run.in_guest { "in a virtual machine on" } else { "on" };
    let of = |machine: &Machine| {
        format!(
            "{} {} ({}), Linux {}",
            machine.cores,
            if machine.cores == 1 { "processor" } else { "processors" },
            machine.cpu,
            machine.kernel.split(' ').next().unwrap_or_default(),
        )
    };
    let second = run.remote.as_ref().map_or_else(String::new, |remote| {
        format!(", the switches on another with {}", of(&remote.machine))
    });
    let names = if names.is_empty() {
        "no switch yet".to_owned()
    } else {
        names.join(", ")
    };
    format!(
        "{} samples from {} of {} experiments on {names}, {place} a machine with {}{second}.{when} {profile}",
        results.samples.len(),
        measured.count(),
        scenarios.len(),
        of(&run.machine),
    )
}

/// Several things in a sentence.
pub(crate) fn list(things: &[String]) -> String {
    match things {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The description of a run's machine, or of both.
pub(crate) fn machines(run: &Run) -> Vec<(String, String)> {
    let mut facts = machine(&run.machine, run.in_guest);
    if let Some(remote) = &run.remote {
        facts.push(("The switches' machine".to_owned(), remote.host.clone()));
        facts.push(("Wire to it".to_owned(), remote.wire.clone()));
        let its = |(name, text): (String, String)| (format!("Its {}", name.to_lowercase()), text);
        facts.extend(machine(&remote.machine, false).into_iter().map(its));
    }
    facts
}

/// The description of a machine.
fn machine(machine: &Machine, in_guest: bool) -> Vec<(String, String)> {
    let memory = format!("{:.1} GiB", machine.memory as f64 / (1u64 << 30) as f64);
    let kind = match (in_guest, machine.virtualized) {
        (true, _) => "a virtual machine of the laboratory's own",
        (false, true) => "a virtual machine",
        (false, false) => "bare metal",
    };
    let facts = [
        ("Kernel", machine.kernel.clone()),
        ("Distribution", machine.distribution.clone()),
        ("Processors", format!("{} × {}", machine.cores, machine.cpu)),
        ("Memory", memory),
        ("Kind", kind.to_owned()),
        (
            "Frequency governor",
            machine.governor.clone().unwrap_or_else(|| "not visible".into()),
        ),
        ("Clock", machine.clock.clone()),
        ("Load at the beginning", number(machine.load)),
        (
            "Congestion control of TCP",
            machine.congestion.clone().unwrap_or_default(),
        ),
        (
            "Offloads of a host's interface",
            machine
                .offloads
                .iter()
                .map(|(name, state)| format!("{name} {state}"))
                .collect::<Vec<_>>()
                .join(", "),
        ),
    ];
    let known = facts.into_iter().filter(|(_, text)| !text.is_empty());
    known.map(|(name, text)| (name.to_owned(), text)).collect()
}

/// Text as paragraphs.
pub(crate) fn paragraphs(text: &str) -> Vec<String> {
    let paragraphs = text
        .split("\n\n")
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    paragraphs.filter(|part| !part.is_empty()).collect()
}

/// How much was done.
pub(crate) fn effort(scenario: &Scenario, results: &Results, summary: &Summary) -> String {
    let pace = scenario.pace(results.run.profile);
    let full = scenario.pace(Profile::Full);
    if summary.systems.is_empty() {
        return if results.run.scenarios.contains_key(&scenario.id) {
            "No sample was taken.".into()
        } else {
            "This run did not include it.".into()
        };
    }
    let taken = summary.all().count();
    let mut text = format!(
        "{taken} samples of {} cells: {} of {} s each{}.",
        summary.cells.len(),
        times(pace.repetitions),
        number(pace.seconds),
        if pace.warmup > 0.0 {
            format!(" after {} s of warm-up", number(pace.warmup))
        } else {
            String::new()
        }
    );
    if results.run.profile == Profile::Quick && (pace.repetitions, pace.seconds) != (full.repetitions, full.seconds) {
        text.push_str(&format!(
            " The full profile takes {} of {} s.",
            times(full.repetitions),
            number(full.seconds)
        ));
    }
    text
}

fn times(n: u32) -> String {
    if n == 1 {
        "one repetition".into()
    } else {
        format!("{n} repetitions")
    }
}

/// Remarks of samples, the most frequent first, with their number and switches.
pub(crate) fn remarks(summary: &Summary, most: usize) -> Vec<String> {
    let mut by: BTreeMap<&str, (usize, Vec<&str>)> = BTreeMap::new();
    for (_, sample) in summary.all() {
        for remark in &sample.remarks {
            let (count, systems) = by.entry(remark).or_default();
            *count += 1;
            systems.push(&sample.system);
        }
    }
    let mut all: Vec<(&str, usize, Vec<&str>)> = by
        .into_iter()
        .map(|(text, (count, systems))| (text, count, systems))
        .collect();
    all.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    let rest = all.len().saturating_sub(most);
    let line = |(text, count, systems): (&str, usize, Vec<&str>)| {
        let names: Vec<&str> = looks::in_order(systems.into_iter())
            .into_iter()
            .map(looks::title)
            .collect();
        format!(
            "{text} ({}; {count} {})",
            names.join(", "),
            if count == 1 { "sample" } else { "samples" }
        )
    };
    let mut lines: Vec<String> = all.into_iter().take(most).map(line).collect();
    if rest > 0 {
        lines.push(format!("and {rest} more, in the data"));
    }
    lines
}

/// Seconds since 1970 as a date and time of day, UTC.
pub(crate) fn date(seconds: f64) -> String {
    let seconds = if seconds.is_finite() { seconds } else { 0.0 };
    telemetry::timestamp_of((seconds * 1e3) as i64, "%Y-%m-%d %H:%M")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0.0), "1970-01-01 00:00");
        assert_eq!(date(951_782_400.0), "2000-02-29 00:00");
        assert_eq!(date(1_798_761_599.0), "2026-12-31 23:59");
        assert_eq!(date(f64::NAN), "1970-01-01 00:00");
    }

    #[test]
    fn lines_of_a_file_become_paragraphs() {
        assert_eq!(paragraphs("a\nb\n\n\n c \n"), ["a b", "c"]);
    }
}
