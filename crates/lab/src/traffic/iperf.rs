//! An independent measurement by `iperf3`, if installed, run as a user would.

use super::protocol::Outcome;
use super::task::{Control, LOOK};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

/// Serves one test of `iperf3`, or until it is stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IperfServer {
    /// Its port.
    pub port: u16,
}

/// Runs a test of `iperf3`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IperfClient {
    /// The server.
    pub to: Ipv4Addr,
    /// Its port.
    pub port: u16,
    /// Whole seconds, 1 or more.
    pub seconds: u32,
    /// UDP at this many bit/s of payload; none: TCP.
    pub udp: Option<u64>,
    /// Bytes of a message; none: its own.
    pub message: Option<u32>,
    /// Bytes of the socket buffers; none: the system's.
    pub buffer: Option<u32>,
    /// TCP congestion control; none: the host's.
    pub congestion: Option<String>,
    /// Streams at a time.
    pub streams: u32,
}

/// The results of `iperf3`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witnessed {
    /// bit/s of payload that the receiver got.
    pub received: f64,
    /// Jitter, µs; UDP only.
    pub jitter: Option<f64>,
    /// Share of the datagrams that were lost; UDP only.
    pub loss: Option<f64>,
    /// Datagrams that were sent, and that were received; UDP only.
    #[serde(default)]
    pub datagrams: Option<(u64, u64)>,
}

impl IperfServer {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        let mut command = Command::new("iperf3");
        command.args(["-s", "-1", "--forceflush", "-p", &self.port.to_string()]);
        let mut process = Process::start(&mut command)?;
        let out = process.0.stdout.take().context("no output")?;
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        if !lines.any(|line| line.contains("listening")) {
            bail!("iperf3 -s: {}", process.complaint());
        }
        // It must be able to say the rest, too.
        std::thread::spawn(move || lines.for_each(drop));
        control.ready(vec![self.port]);
        while !control.stopped() && process.0.try_wait()?.is_none() {
            std::thread::sleep(LOOK);
        }
        Ok(Outcome::Served)
    }
}

impl IperfClient {
    pub(crate) fn run(&self, control: &Control) -> Result<Outcome> {
        let mut command = Command::new("iperf3");
        command.args(self.arguments());
        control.ready(Vec::new());
        if !control.await_go() {
            return Ok(Outcome::Witnessed(Witnessed::default()));
        }
        let mut process = Process::start(&mut command)?;
        let mut out = process.0.stdout.take().context("no output")?;
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).map(|_| text)
        });
        while process.0.try_wait()?.is_none() {
            if control.stopped() {
                bail!("iperf3 was stopped");
            }
            std::thread::sleep(LOOK);
        }
        let text = reader.join().ok().context("iperf3's output cannot be read")??;
        Ok(Outcome::Witnessed(witnessed(&text, self.udp.is_some())?))
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = ["-J", "-c"].map(str::to_owned).into();
        arguments.push(self.to.to_string());
        let mut option = |name: &str, value: Option<String>| {
            arguments.extend(value.map(|value| [name.to_owned(), value]).into_iter().flatten());
        };
        option("-p", Some(self.port.to_string()));
        option("-t", Some(self.seconds.max(1).to_string()));
        option("-P", (self.streams > 1).then(|| self.streams.to_string()));
        option("-l", self.message.map(|bytes| bytes.to_string()));
        option("-w", self.buffer.map(|bytes| bytes.to_string()));
        option("-C", self.congestion.clone());
        option("-b", self.udp.map(|rate| rate.to_string()));
        if self.udp.is_some() {
            arguments.push("-u".to_owned());
        }
        arguments
    }
}

/// Parses its JSON.
fn witnessed(text: &str, udp: bool) -> Result<Witnessed> {
    let value: Value = serde_json::from_str(text).context("iperf3 says something else than JSON")?;
    if let Some(error) = value["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let end = &value["end"];
    if !udp {
        let received = end["sum_received"]["bits_per_second"].as_f64();
        return Ok(Witnessed {
            received: received.context("iperf3 does not say what was received")?,
            ..Witnessed::default()
        });
    }
    let sum = &end["sum"];
    let sent = sum["bits_per_second"]
        .as_f64()
        .context("iperf3 does not say what was sent")?;
    let loss = sum["lost_percent"]
        .as_f64()
        .context("iperf3 does not say what was lost")?
        / 100.0;
    let count = |name: &str| sum[name].as_u64();
    let datagrams = count("packets").zip(count("lost_packets"));
    Ok(Witnessed {
        datagrams: datagrams.map(|(sent, lost)| (sent, sent.saturating_sub(lost))),
        received: sent * (1.0 - loss),
        jitter: sum["jitter_ms"].as_f64().map(|ms| ms * 1e3),
        loss: Some(loss),
    })
}

/// A process that ends with its task.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Result<Process> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(Process(command.spawn().context("iperf3 cannot be started")?))
    }

    /// Its error message.
    fn complaint(&mut self) -> String {
        let mut text = String::new();
        if let Some(err) = &mut self.0.stderr {
            let _ = err.read_to_string(&mut text);
        }
        text.trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_received_is_read_from_its_report() {
        let tcp = r#"{"end":{"sum_sent":{"bits_per_second":9.9e6},"sum_received":{"bits_per_second":9.5e6}}}"#;
        assert_eq!(witnessed(tcp, false).unwrap().received, 9.5e6);
        let udp = r#"{"end":{"sum":{"bits_per_second":1e6,"jitter_ms":0.02,"lost_percent":10,"packets":50,"lost_packets":5}}}"#;
        let said = witnessed(udp, true).unwrap();
        assert_eq!((said.received, said.jitter, said.loss), (9e5, Some(20.0), Some(0.1)));
        assert_eq!(said.datagrams, Some((50, 45)));
        let error = witnessed(r#"{"error":"unable to connect"}"#, true).unwrap_err();
        assert_eq!(error.to_string(), "iperf3: unable to connect");
        assert!(witnessed("{}", false).is_err() && witnessed("", true).is_err());
    }

    #[test]
    fn a_test_is_asked_for_as_a_user_would() {
        let client = IperfClient {
            to: Ipv4Addr::new(10, 0, 0, 2),
            port: 5201,
            seconds: 0,
            udp: Some(95_000_000),
            message: Some(1470),
            buffer: None,
            congestion: None,
            streams: 1,
        };
        assert_eq!(
            client.arguments().join(" "),
            "-J -c 10.0.0.2 -p 5201 -t 1 -l 1470 -b 95000000 -u"
        );
    }
}
