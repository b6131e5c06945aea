//! Mininet with one of its own topologies on the switch under test: its `pingall` and its `iperf`
//! test.
//!
//! Mininet makes hosts, links and bridges itself, in the namespace of a system whose bridges are
//! Mininet's. It runs in its own PID namespace, because its `iperf` test kills all visible
//! processes of that name, and so that its hosts always end with it.

use super::{Meanwhile, Observer, Seen};
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::Setup;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The Python program, with topology and requested rate as arguments.
const PROGRAM: &str = include_str!("mininet.py");

/// Between two looks at whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Mininet, at work.
pub(super) struct Mininet {
    running: Arc<Mutex<Option<Child>>>,
    task: Option<Meanwhile>,
}

impl Mininet {
    pub(super) fn begin(table: &Table, setup: &Setup, topology: &str, rate: Option<u64>) -> Result<Mininet> {
        let rate = rate.map_or(String::new(), |rate| rate.to_string());
        let seconds = setup.whole_seconds().to_string();
        let python = crate::systems::PYTHON;
        let words = [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            python,
            "-c",
            PROGRAM,
            topology,
            &rate,
            &seconds,
        ];
        let mut command = table.running.beside(&words)?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().context("Mininet cannot be started")?;
        let running = Arc::new(Mutex::new(Some(child)));
        let task: Meanwhile = Box::new({
            let running = running.clone();
            move || finish(&running)
        });
        Ok(Mininet {
            running,
            task: Some(task),
        })
    }
}

/// Waits for its end and reads its results.
fn finish(running: &Mutex<Option<Child>>) -> Result<Measured> {
    let gone = || anyhow!("Mininet was stopped");
    let pipes = || {
        let mut held = running.lock().unwrap_or_else(PoisonError::into_inner);
        let child = held.as_mut()?;
        Some((child.stdout.take()?, child.stderr.take()?))
    };
    let (mut out, mut errors) = pipes().ok_or_else(gone)?;
    // Both are to be emptied while it runs.
    let complaints = std::thread::spawn(move || std::io::read_to_string(&mut errors).unwrap_or_default());
    let said = std::io::read_to_string(&mut out).context("Mininet's output")?;
    let complaints = complaints.join().unwrap_or_default();
    let status = loop {
        let mut held = running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = held.as_mut().ok_or_else(gone)?.try_wait()? {
            break status;
        }
        drop(held);
        std::thread::sleep(LOOK);
    };
    if !status.success() {
        let last: Vec<&str> = complaints.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = last[last.len().saturating_sub(5)..].join("\n");
        bail!("Mininet has failed ({status}); it said last:\n{last}");
    }
    found(&said)
}

/// Parses the program's last line.
fn found(said: &str) -> Result<Measured> {
    let last = said.lines().last().unwrap_or_default();
    let value: Value = serde_json::from_str(last).context("Mininet's program says something else than JSON")?;
    let mut measured = Measured::default();
    for metric in ["hosts", "switches", "dropped"] {
        let number = value[metric]
            .as_f64()
            .with_context(|| format!("Mininet's program says nothing of {metric}"))?;
        measured.metrics.insert(metric.to_owned(), number);
    }
    for metric in ["received", "sent"] {
        let said = value[metric].as_str().unwrap_or_default();
        let rate = bits(said).with_context(|| format!("Mininet's iperf says {said:?} where a rate should be"))?;
        measured.metrics.insert(metric.to_owned(), rate);
    }
    if let (Some(asked), Some(received)) = (value["asked"].as_f64(), measured.metrics.get("received").copied()) {
        measured.metrics.insert("of_asked".to_owned(), received / asked);
    }
    Ok(measured)
}

/// `942 Mbits/sec`, in bit/s.
fn bits(said: &str) -> Option<f64> {
    let (number, unit) = said.split_once(' ')?;
    let scale = match unit {
        "bits/sec" => 1.0,
        "Kbits/sec" => 1e3,
        "Mbits/sec" => 1e6,
        "Gbits/sec" => 1e9,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * scale)
}

impl Observer for Mininet {
    fn meanwhile(&mut self) -> Option<Meanwhile> {
        self.task.take()
    }

    fn stop(&mut self) {
        if let Some(child) = &mut *self.running.lock().unwrap_or_else(PoisonError::into_inner) {
            // It may have ended; its hosts go with it.
            let _ = child.kill();
        }
    }

    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured> {
        Ok(seen.brought.clone())
    }
}

impl Drop for Mininet {
    fn drop(&mut self) {
        self.stop();
        if let Some(mut child) = self.running.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = child.wait();
        }
    }
}

/// Why Mininet's own tests cannot be run; none if they can.
pub(super) fn missing() -> Option<String> {
    for (program, package) in [("iperf", "iperf"), ("unshare", "util-linux"), ("ping", "iputils-ping")] {
        let looked = format!("PATH=$PATH:/usr/sbin:/sbin command -v {program}");
        if crate::bed::command::known(&["sh", "-c", &looked]).is_err() {
            return Some(format!(
                "Mininet's tests need {program}, which is not installed (Debian: package {package})"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_found_is_read_in_bits_a_second() {
        let said = "warning\n{\"hosts\": 4, \"switches\": 3, \"dropped\": 0.25, \"received\": \"95.6 Mbits/sec\", \
                    \"sent\": \"1.2 Gbits/sec\", \"asked\": 100000000}\n";
        let metrics = found(said).unwrap().metrics;
        let expected = [
            ("dropped", 0.25),
            ("hosts", 4.0),
            ("of_asked", 0.956),
            ("received", 95.6e6),
            ("sent", 1.2e9),
            ("switches", 3.0),
        ];
        assert_eq!(metrics, expected.map(|(name, value)| (name.to_owned(), value)).into());
        let unlimited = said.replace("100000000", "null");
        assert!(!found(&unlimited).unwrap().metrics.contains_key("of_asked"));
    }

    #[test]
    fn what_is_no_result_is_an_error() {
        assert!(found("").is_err());
        let error = found(r#"{"hosts": 2, "switches": 1, "dropped": 0, "received": "", "sent": ""}"#).unwrap_err();
        assert!(
            error.to_string().contains("received") || error.to_string().contains("\"\""),
            "{error}"
        );
        assert_eq!(bits("12 furlongs/sec"), None);
    }
}
