//! Traffic between namespaces: ping, iperf3, captures.

use crate::{Daemon, Netns, Sandbox, eventually, pcap, to_hex};
use serde_json::Value;
use std::time::Duration;

/// What ping counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ping {
    /// Requests sent.
    pub sent: u32,
    /// Replies received.
    pub received: u32,
    /// Average round trip in ms, where a reply came.
    pub average_ms: Option<f64>,
}

/// Sends `count` echo requests from `from` to `address`, 10 a second, and waits a second for the
/// last reply.
#[track_caller]
pub fn ping(from: &Netns, address: &str, count: u32) -> Ping {
    let count = count.to_string();
    let done = from.try_run(
        &["ping", "-n", "-q", "-c", &count, "-i", "0.1", "-W", "1", address],
        &[],
    );
    let number = |word: &str| {
        let at = done.stdout.find(word)?;
        done.stdout[..at].split_whitespace().next_back()?.parse().ok()
    };
    let average = done
        .stdout
        .rsplit_once(" = ")
        .and_then(|(_, times)| times.split('/').nth(1).and_then(|avg| avg.parse().ok()));
    Ping {
        sent: number("packets transmitted").unwrap_or(0),
        received: number("received").unwrap_or(0),
        average_ms: average,
    }
}

/// Sends frames from a device as they are, in order. A receiver that takes 100 000 a second keeps
/// up.
#[track_caller]
pub fn send_frames(from: &Netns, device: &str, frames: &[Vec<u8>]) {
    let script = "import socket, sys, time\n\
                  s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
                  s.bind((sys.argv[1], 0))\n\
                  for n, frame in enumerate(open(sys.argv[2])):\n \
                  s.send(bytes.fromhex(frame))\n \
                  if n % 100 == 99: time.sleep(0.001)";
    let sandbox = Sandbox::new();
    let lines: Vec<String> = frames.iter().map(|frame| to_hex(frame)).collect();
    let written = std::fs::write(sandbox.path("frames"), lines.join("\n"));
    written.unwrap_or_else(|e| panic!("frames: {e}"));
    from.run(&["python3", "-c", script, device, &sandbox.arg("frames")]);
}

/// A bulk transfer by iperf3.
#[derive(Debug, Clone, Default)]
pub struct Iperf3 {
    /// How long to send, in seconds (fractions are not supported); 0 sends `bytes`.
    pub seconds: u32,
    /// How much to send where `seconds` is 0.
    pub bytes: u64,
    /// UDP at this rate in bit/s; 0 is TCP.
    pub udp_rate: u64,
    /// Further arguments of the client.
    pub extra: Vec<String>,
}

impl Iperf3 {
    /// TCP for some seconds.
    pub fn tcp(seconds: u32) -> Iperf3 {
        Iperf3 {
            seconds,
            ..Iperf3::default()
        }
    }

    /// TCP of some bytes.
    pub fn tcp_bytes(bytes: u64) -> Iperf3 {
        Iperf3 {
            bytes,
            ..Iperf3::default()
        }
    }

    /// Sends from `client` to `server`, which has `address`; the rate received by the server, in
    /// bit/s.
    ///
    /// # Panics
    /// If the transfer fails or hangs.
    #[track_caller]
    pub fn run(&self, client: &Netns, server: &Netns, address: &str) -> f64 {
        let sandbox = Sandbox::new();
        let mut command = server.prefix();
        command.extend(["iperf3", "-s", "-1", "--forceflush"].map(str::to_owned));
        let mut daemon = Daemon::start("iperf3", &command, &sandbox);
        daemon.wait_until(|| sandbox.read("iperf3.out").contains("listening"));

        let mut args: Vec<String> = ["iperf3", "-J", "--connect-timeout", "5000", "-c", address]
            .map(str::to_owned)
            .to_vec();
        if self.seconds > 0 {
            args.extend(["-t".to_owned(), self.seconds.to_string()]);
        } else {
            args.extend(["-n".to_owned(), self.bytes.to_string()]);
        }
        if self.udp_rate > 0 {
            args.extend(["-u".to_owned(), "-b".to_owned(), self.udp_rate.to_string()]);
        }
        args.extend(self.extra.iter().cloned());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let out = client.try_run(&args, &[]).expect_ok();
        daemon.wait(Duration::from_secs(5));
        received_rate(&out).unwrap_or_else(|| panic!("no rate in iperf3's report:\n{out}"))
    }
}

fn received_rate(report: &str) -> Option<f64> {
    let report: Value = serde_json::from_str(report).ok()?;
    let end = report.get("end")?;
    let sum = end.get("sum_received").or_else(|| end.get("sum"))?;
    sum.get("bits_per_second")?.as_f64()
}

/// A running tcpdump.
#[derive(Debug)]
pub struct Capture {
    sandbox: Sandbox,
    daemon: Daemon,
}

impl Capture {
    /// Starts capturing what `device` in `ns` receives and sends; `filter` in tcpdump's syntax, ""
    /// for all.
    #[track_caller]
    pub fn start(ns: &Netns, device: &str, filter: &str) -> Capture {
        Capture::start_with(ns, device, filter, &[])
    }

    /// As [`Capture::start`], with room for 8000 frames of at most 2000 bytes that tcpdump has not
    /// read yet; the other one has room for 256 where the device has offloads.
    #[track_caller]
    pub fn start_large(ns: &Netns, device: &str, filter: &str) -> Capture {
        Capture::start_with(ns, device, filter, &["-s", "2000"])
    }

    #[track_caller]
    fn start_with(ns: &Netns, device: &str, filter: &str, options: &[&str]) -> Capture {
        let sandbox = Sandbox::new();
        let file = sandbox.arg("capture");
        let mut command = ns.prefix();
        command.extend(
            [
                "tcpdump",
                "-n",
                "-U",
                "--immediate-mode",
                "-B",
                "16384",
                "-Z",
                "root",
                "-i",
                device,
                "-w",
                &file,
            ]
            .map(str::to_owned),
        );
        command.extend(options.iter().map(|word| (*word).to_owned()));
        command.extend(filter.split_whitespace().map(str::to_owned));
        let mut daemon = Daemon::start("tcpdump", &command, &sandbox);
        daemon.wait_until(|| sandbox.read("tcpdump.out").contains("listening on"));
        Capture { sandbox, daemon }
    }

    /// The frames captured so far.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        pcap::frames(&self.sandbox.path("capture"))
    }

    /// Waits for a captured frame that `wanted` accepts.
    #[track_caller]
    pub fn wait_for(&self, what: &str, wanted: impl Fn(&[u8]) -> bool) {
        eventually(what, || self.frames().iter().any(|f| wanted(f)).then_some(()));
    }

    /// Ends the capture and returns all frames. tcpdump leaves what it has not read when it is
    /// ended, so it has time to write what has come: until it waits for more and nothing comes, or
    /// was found waiting ten times, since packets can come all the time.
    pub fn finish(mut self) -> Vec<Vec<u8>> {
        let written = || std::fs::metadata(self.sandbox.path("capture")).map_or(0, |file| file.len());
        // Behind its name in parentheses: S is a process that waits.
        let stat = format!("/proc/{}/stat", self.daemon.pid());
        let waits = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
        let (mut before, mut waited) = (written(), 0);
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(50));
            let now = written();
            let is_waiting = waits();
            waited += u32::from(is_waiting);
            if now == before && is_waiting || waited >= 10 {
                break;
            }
            before = now;
        }
        self.daemon.terminate();
        self.frames()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;

    #[test]
    fn the_rate_is_what_the_receiver_saw() {
        let report = r#"{"end":{"sum_sent":{"bits_per_second":9.0},"sum_received":{"bits_per_second":7.5}}}"#;
        assert_eq!(received_rate(report), Some(7.5));
        assert_eq!(received_rate(r#"{"error":"unable to connect"}"#), None);
    }

    #[test]
    fn a_transfer_and_a_capture_of_it_work_over_a_plain_link() {
        skip!(unless root, "ip", "iperf3", "tcpdump", "setpriv");
        let a = Netns::new("a");
        let b = Netns::new("b");
        a.veth("eth0", &b, "eth0");
        a.address("eth0", "10.1.0.1/24");
        b.address("eth0", "10.1.0.2/24");
        let capture = Capture::start(&b, "eth0", "arp");
        assert!(Iperf3::tcp_bytes(1_000_000).run(&a, &b, "10.1.0.2") > 0.0);
        capture.wait_for("a request for the address", |f| f[38..42] == [10, 1, 0, 2]);
        assert!(capture.finish().len() >= 2);
    }
}
