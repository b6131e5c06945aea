//! Every sample, as JSON and CSV.

use crate::results::{Results, Sample};
use anyhow::Result;
use serde_json::json;

/// Files beside the page, and what they hold.
pub(crate) const FILES: &[(&str, &str)] = &[
    (
        "samples.json",
        "the run and every sample, with distributions, losses and what was not run",
    ),
    ("samples.csv", "a line for each metric of each sample"),
    (
        "distributions.csv",
        "a line for each quantile of each distribution of each sample",
    ),
    (
        "series.csv",
        "a line for each moment of each series inside a sample (rates, processors, drops)",
    ),
    ("losses.csv", "a line for each cause and place of loss of each sample"),
    (
        "verdicts.json",
        "every finding with its verdicts and the numbers that decide",
    ),
];

/// The run and its samples.
///
/// # Errors
/// None that is known: all of it can be written.
pub(crate) fn samples_json(results: &Results) -> Result<String> {
    let all = json!({ "run": results.run, "samples": results.samples, "skipped": results.skipped });
    Ok(serde_json::to_string_pretty(&all)? + "\n")
}

/// `metric`, `value` for each sample.
///
/// # Errors
/// None that is known.
pub(crate) fn samples_csv(results: &Results) -> Result<String> {
    let cpu = |sample: &Sample| {
        let cpu = sample
            .cpu
            .iter()
            .map(|(who, seconds)| (format!("cpu.{who} (s)"), *seconds));
        let load = std::iter::once((String::from("load"), sample.load));
        cpu.chain(load).collect::<Vec<_>>()
    };
    table(results, &["metric", "value"], |sample| {
        let metrics = sample.metrics.iter().map(|(name, value)| (name.clone(), *value));
        metrics
            .chain(cpu(sample))
            .map(|(name, value)| vec![name, value.to_string()])
            .collect()
    })
}

/// `metric`, `share`, `value`, `count` for each sample.
///
/// # Errors
/// None that is known.
pub(crate) fn distributions_csv(results: &Results) -> Result<String> {
    table(results, &["metric", "share", "value", "count"], |sample| {
        let each = sample.distributions.iter();
        each.flat_map(|(name, distribution)| {
            let count = distribution.count.to_string();
            let line = move |(share, value): &(f64, f64)| {
                vec![name.clone(), share.to_string(), value.to_string(), count.clone()]
            };
            distribution.quantiles.iter().map(line)
        })
        .collect()
    })
}

/// `series`, `second`, `value` for each sample.
///
/// # Errors
/// None that is known.
pub(crate) fn series_csv(results: &Results) -> Result<String> {
    table(results, &["series", "second", "value"], |sample| {
        let each = sample.series.iter();
        let line =
            |name: &String, (second, value): &(f64, f64)| vec![name.clone(), second.to_string(), value.to_string()];
        each.flat_map(|(name, values)| values.iter().map(move |one| line(name, one)))
            .collect()
    })
}

/// `cause`, `place`, `packets` for each sample.
///
/// # Errors
/// None that is known.
pub(crate) fn losses_csv(results: &Results) -> Result<String> {
    table(results, &["cause", "place", "packets"], |sample| {
        let line = |loss: &crate::results::Loss| vec![loss.cause.clone(), loss.place.clone(), loss.packets.to_string()];
        sample.losses.iter().map(line).collect()
    })
}

/// Lines for each sample, what was varied in columns of its own.
fn table(results: &Results, columns: &[&str], lines: impl Fn(&Sample) -> Vec<Vec<String>>) -> Result<String> {
    let varied: std::collections::BTreeSet<&str> = results
        .samples
        .iter()
        .flat_map(|sample| sample.at.keys().map(String::as_str))
        .collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let fixed = ["scenario", "system", "repetition", "started", "seconds"];
    writer.write_record(fixed.iter().chain(&varied).chain(columns))?;
    for sample in &results.samples {
        let fixed = [
            sample.scenario.clone(),
            sample.system.clone(),
            sample.repetition.to_string(),
            sample.started.to_string(),
            sample.seconds.to_string(),
        ];
        let at = varied
            .iter()
            .map(|name| sample.at.get(*name).cloned().unwrap_or_default());
        let key: Vec<String> = fixed.into_iter().chain(at).collect();
        for line in lines(sample) {
            writer.write_record(key.iter().chain(&line))?;
        }
    }
    Ok(String::from_utf8(
        writer.into_inner().map_err(|error| error.into_error())?,
    )?)
}
