//! Real applications on two hosts: a web server (nginx) that `wrk` loads, one over QUIC (Caddy),
//! and a DNS server (dnsmasq) that `dnsperf` asks.

use super::{Meanwhile, Observer, Seen};
use crate::bed::Host;
use crate::bed::command::known;
use crate::controller::Measured;
use crate::run::stage::Table;
use crate::scenario::{Application, Setup};
use crate::systems::daemon::Daemon;
use anyhow::{Context, Result, anyhow, bail};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A server, and the program that loads it.
pub(super) struct Served {
    client: Arc<Mutex<Option<Child>>>,
    task: Option<Meanwhile>,
    _server: Daemon,
}

/// What is asked of an application.
pub(super) struct Asked<'a> {
    pub(super) application: Application,
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    /// Connections, or clients, at once.
    pub(super) connections: u32,
    /// Bytes of a page.
    pub(super) size: u32,
    /// Whether each page has a connection of its own.
    pub(super) fresh: bool,
}

/// The seconds after which a request is lost.
const TIMEOUT: u32 = 5;

/// What `wrk` does at its end.
const REPORT: &str = r#"
done = function(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format("result %d %d %d %d %f %d %d\n", summary.requests, summary.duration, summary.bytes,
        errors.connect + errors.read + errors.write + errors.status + errors.timeout,
        latency.mean, latency:percentile(50), latency:percentile(99)))
end
"#;

impl Served {
    pub(super) fn begin(table: &Table, setup: &Setup, asked: &Asked<'_>) -> Result<Served> {
        let bed = &table.ground.bed;
        let (from, to) = (bed.host(asked.from)?, bed.host(asked.to)?);
        let address = table.ground.ends.address(asked.from, asked.to)?;
        let directory = bed
            .directory()
            .join(format!("{}-{}", asked.application.name(), asked.to));
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let server = serve(asked, to, address, &directory)?;
        let command = load(asked, from, address, &directory, setup.whole_seconds())?;
        let client = Arc::new(Mutex::new(None));
        let task: Meanwhile = Box::new({
            let (client, application) = (client.clone(), asked.application);
            move || run(command, &client, application)
        });
        Ok(Served {
            client,
            task: Some(task),
            _server: server,
        })
    }
}

/// Starts the server and waits until it takes connections.
fn serve(asked: &Asked<'_>, host: &Host, address: Ipv4Addr, directory: &Path) -> Result<Daemon> {
    let write = |name: &str, text: &[u8]| -> Result<PathBuf> {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    };
    let (name, words, port) = match asked.application {
        Application::Web => {
            write("page", &vec![b'x'; asked.size as usize])?;
            let configuration = web_configuration(address, directory);
            let file = write("nginx.conf", configuration.as_bytes())?;
            let words = ["nginx", "-e", "stderr", "-c"].map(str::to_owned);
            ("nginx", [words.to_vec(), vec![file.display().to_string()]].concat(), 80)
        }
        Application::Http3 => {
            write("page", &vec![b'x'; asked.size as usize])?;
            let file = write("Caddyfile", caddy_configuration(address, directory).as_bytes())?;
            let (at, file) = (directory.display(), file.display());
            let words = format!(
                "env HOME={at} XDG_CONFIG_HOME={at} XDG_DATA_HOME={at} caddy run --config {file} --adapter caddyfile"
            );
            ("caddy", words.split_whitespace().map(str::to_owned).collect(), 443)
        }
        Application::Dns => {
            let words = format!(
                "dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --no-poll --user=root \
                 --pid-file= --bind-interfaces --listen-address={address} --except-interface=lo \
                 --address=/{DOMAIN}/{address}"
            );
            ("dnsmasq", words.split_whitespace().map(str::to_owned).collect(), 53)
        }
    };
    let mut daemon = Daemon::start(name, host.command(&words), directory, &format!("{name}.log"))?;
    let target = SocketAddrV4::new(address, port).into();
    let answers = || {
        let connect = || Ok(TcpStream::connect_timeout(&target, Duration::from_millis(200))?);
        host.enter(connect).is_ok()
    };
    daemon.wait_until("its port", answers)?;
    Ok(daemon)
}

/// The domain that the DNS server knows.
const DOMAIN: &str = "lab.test";

/// How many names of the domain are asked for.
const NAMES: u32 = 1000;

fn web_configuration(address: Ipv4Addr, directory: &Path) -> String {
    let at = directory.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = temporary
        .map(|kind| format!("    {kind}_temp_path {at}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid {at}/nginx.pid;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n{paths}    access_log off;\n    sendfile on;\n    tcp_nopush on;\n    keepalive_requests 1000000000;\n\
         \x20   server {{\n        listen {address}:80 backlog=4096;\n        root {at};\n    }}\n}}\n"
    )
}

/// A certificate of its own, and nothing asked of other hosts.
fn caddy_configuration(address: Ipv4Addr, directory: &Path) -> String {
    let at = directory.display();
    format!(
        "{{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n\tstorage file_system {at}/caddy\n\
         \tlog {{\n\t\tlevel ERROR\n\t}}\n}}\n\
         https://{address} {{\n\tbind {address}\n\ttls internal\n\troot * {at}\n\tfile_server\n}}\n"
    )
}

/// The command that loads the server.
fn load(asked: &Asked<'_>, host: &Host, address: Ipv4Addr, directory: &Path, seconds: u32) -> Result<Command> {
    let write = |name: &str, text: &str| -> Result<String> {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path.display().to_string())
    };
    let connections = asked.connections;
    let words = match asked.application {
        Application::Web => {
            let script = write("report.lua", REPORT)?;
            let close = if asked.fresh { " -H Connection:close" } else { "" };
            format!(
                "wrk --threads 1 --connections {connections} --duration {seconds}s --timeout {TIMEOUT}s --latency{close} \
                 --script {script} http://{address}/page"
            )
        }
        Application::Http3 => {
            let program = crate::bed::lab_program()?;
            let fresh = if asked.fresh { " --fresh" } else { "" };
            format!(
                "{} http3-load {address}:443 /page --connections {connections} --seconds {seconds} --timeout {TIMEOUT}{fresh}",
                program.display()
            )
        }
        Application::Dns => {
            let names: String = (0..NAMES).map(|n| format!("h{n}.{DOMAIN} A\n")).collect();
            let names = write("names", &names)?;
            format!("dnsperf -s {address} -d {names} -l {seconds} -c {connections} -q {connections} -t {TIMEOUT}")
        }
    };
    Ok(host.command(&words.split_whitespace().collect::<Vec<_>>()))
}

/// Loads the server, and reads what the program says.
fn run(mut command: Command, running: &Mutex<Option<Child>>, application: Application) -> Result<Measured> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| crate::bed::command::cannot_start(&command, &error))?;
    let pipes = (child.stdout.take(), child.stderr.take());
    *running.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    let (Some(mut out), Some(mut errors)) = pipes else {
        bail!("a program without output");
    };
    // Both are to be emptied while it runs.
    let complaints = std::thread::spawn(move || std::io::read_to_string(&mut errors).unwrap_or_default());
    let said = std::io::read_to_string(&mut out)?;
    let complaints = complaints.join().unwrap_or_default();
    let child = running.lock().unwrap_or_else(PoisonError::into_inner).take();
    let status = child.ok_or_else(|| anyhow!("the program was stopped"))?.wait()?;
    if !status.success() {
        bail!("{} has failed ({status}): {}", application.client(), complaints.trim());
    }
    let metrics = match application {
        Application::Web | Application::Http3 => web(&said),
        Application::Dns => dns(&said),
    };
    let metrics = metrics.with_context(|| format!("{} says something else: {said}", application.client()))?;
    Ok(Measured {
        metrics,
        ..Measured::default()
    })
}

type Metrics = BTreeMap<String, f64>;

fn metrics(all: &[(&str, f64)]) -> Metrics {
    all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

/// The line of [`REPORT`].
fn web(said: &str) -> Option<Metrics> {
    let line = said.lines().find_map(|line| line.strip_prefix("result "))?;
    let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [requests, micros, bytes, lost, latency, median, p99] = numbers[..] else {
        return None;
    };
    let per_second = |amount: f64| if micros > 0.0 { amount * 1e6 / micros } else { 0.0 };
    Some(metrics(&[
        ("rate", per_second(requests)),
        ("bits", per_second(bytes * 8.0)),
        ("latency", latency),
        ("median", median),
        ("p99", p99),
        ("lost", lost),
    ]))
}

/// The statistics of `dnsperf`, which prints neither median nor percentiles.
fn dns(said: &str) -> Option<Metrics> {
    let number = |name: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let latency = number("Average Latency (s):")? * 1e6;
    let (rate, lost) = (number("Queries per second:")?, number("Queries lost:")?);
    let size = said.lines().find_map(|line| {
        line.trim()
            .strip_prefix("Average packet size:")?
            .split("response ")
            .nth(1)
    });
    let bytes: f64 = size.and_then(|size| size.trim().parse().ok()).unwrap_or(0.0);
    Some(metrics(&[
        ("rate", rate),
        ("bits", rate * bytes * 8.0),
        ("latency", latency),
        ("lost", lost),
    ]))
}

impl Observer for Served {
    fn meanwhile(&mut self) -> Option<Meanwhile> {
        self.task.take()
    }

    fn stop(&mut self) {
        if let Some(client) = &mut *self.client.lock().unwrap_or_else(PoisonError::into_inner) {
            // It may have ended.
            let _ = client.kill();
        }
    }

    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured> {
        Ok(seen.brought.clone())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
        if let Some(mut client) = self.client.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = client.wait();
        }
    }
}

/// Why an application cannot be run; none if it can.
pub(super) fn missing(application: Application) -> Option<String> {
    application.programs().iter().find_map(|(program, package)| {
        let looked = format!("PATH=$PATH:/usr/sbin:/sbin command -v {program}");
        known(&["sh", "-c", &looked]).is_err().then(|| {
            format!(
                "the application needs {program}, which is not installed (Debian: package {package}; 'scripts/setup.sh peers' installs it)"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_load_generators_say_is_read() {
        let said = "Running 1s test @ http://10.0.0.2/page\n  3 requests in 1.00s\nresult 20000 2000000 4000000 3 150.5 140 900\n";
        let found = web(said).unwrap();
        let expected = [
            ("rate", 10_000.0),
            ("bits", 16e6),
            ("latency", 150.5),
            ("median", 140.0),
            ("p99", 900.0),
            ("lost", 3.0),
        ];
        assert_eq!(found, metrics(&expected));
        let said = "\
Statistics:

  Queries sent:         112
  Queries completed:    110 (98.21%)
  Queries lost:         2 (1.79%)

  Response codes:       NOERROR 110 (100.00%)
  Average packet size:  request 31, response 50
  Run time (s):         1.000
  Queries per second:   110.000000

  Average Latency (s):  0.000250 (min 0.000021, max 0.001)
  Latency StdDev (s):   0.000013
";
        let found = dns(said).unwrap();
        let expected = [("rate", 110.0), ("bits", 44_000.0), ("latency", 250.0), ("lost", 2.0)];
        assert_eq!(found, metrics(&expected));
        assert!(web("").is_none() && dns("").is_none());
    }

    #[test]
    fn the_web_servers_files_are_in_its_directory() {
        let text = web_configuration(Ipv4Addr::new(10, 0, 0, 2), Path::new("/d"));
        assert!(
            text.contains("listen 10.0.0.2:80") && text.contains("root /d;"),
            "{text}"
        );
        assert!(text.contains("    proxy_temp_path /d/proxy;\n"), "{text}");
    }
}
