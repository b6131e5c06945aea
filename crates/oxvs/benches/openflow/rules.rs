//! Rules in and out: by each switch's own tool and by Debian's for both, with a ping through the switch meanwhile.

use crate::system::{ADDRESSES, Kind, System};
use crate::{line, median};
use std::fmt::Write;
use std::path::Path;

/// What is measured of one system in one round.
#[derive(Default)]
struct Figures {
    cells: Vec<f64>,
}

const WHAT: [(&str, &str, bool); 12] = [
    ("add-flows, own tool", "s", false),
    ("add-flows, ovs-ofctl", "s", false),
    ("add-flows --bundle, own tool", "s", false),
    ("add-flows --bundle, ovs-ofctl", "s", false),
    ("dump-flows, own tool", "s", false),
    ("dump-flows, ovs-ofctl", "s", false),
    ("del-flows, own tool", "s", false),
    ("resident memory, no rules", "MB", false),
    ("resident memory, all rules", "MB", false),
    ("memory for each rule", "bytes", false),
    ("longest ping meanwhile", "ms", false),
    ("pings lost meanwhile", "", false),
];

pub(crate) fn compare(kinds: &[Kind], size: usize, rounds: usize) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("flows");
    std::fs::write(&file, flows(size)).expect("the flows can be written");
    let mut all: Vec<Vec<Figures>> = kinds.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for turn in 0..kinds.len() {
            let at = (turn + round) % kinds.len();
            all[at].push(measure(kinds[at], size, &file));
        }
    }
    println!(
        "\n{size} rules of two addresses, {rounds} rounds{:>27}{:>12}",
        "oxvs", "ovs"
    );
    for (cell, (what, unit, more)) in WHAT.iter().enumerate() {
        let figures: Vec<f64> = all
            .iter()
            .map(|rounds| median(rounds.iter().map(|figures| figures.cells[cell]).collect()))
            .collect();
        line(what, unit, &figures, *more);
    }
}

/// Distinct rules, and one behind them that lets everything else through.
pub(crate) fn flows(size: usize) -> String {
    let mut text = String::from("priority=1,actions=NORMAL\n");
    for n in 0..size {
        let (a, b) = (n >> 16 & 255, n & 0xffff);
        let _ = writeln!(
            text,
            "priority=100,ip,nw_src=10.{a}.{}.{},nw_dst=172.16.{}.{},actions=output:{}",
            b >> 8,
            b & 255,
            b & 255,
            a,
            1 + n % 2
        );
    }
    text
}

fn measure(kind: Kind, size: usize, file: &Path) -> Figures {
    let system = System::start(kind);
    let own = kind == Kind::Oxvs;
    let file = file.display().to_string();
    system.timed(false, &["add-flow", "br0", "priority=1,actions=NORMAL"]);
    let before = system.resident();
    let pinger = {
        let mut command = vec!["setpriv", "--pdeathsig", "KILL", "--"];
        command.extend(["ping", "-q", "-i", "0.01", "-W", "1", ADDRESSES[1]]);
        let words: Vec<String> = system.hosts[0]
            .prefix()
            .into_iter()
            .chain(command.into_iter().map(str::to_owned))
            .collect();
        std::process::Command::new(&words[0])
            .args(&words[1..])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("ping can be started")
    };
    let delete = || system.timed(own, &["del-flows", "br0", "ip"]);
    let add_own = system.timed(own, &["add-flows", "br0", &file]);
    let after = system.resident();
    let dump_own = system.timed(own, &["dump-flows", "br0"]);
    let dump_theirs = system.timed(false, &["dump-flows", "br0"]);
    let deleted = delete();
    let add_theirs = system.timed(false, &["add-flows", "br0", &file]);
    delete();
    let bundle_own = system.timed(own, &["--bundle", "add-flows", "br0", &file]);
    delete();
    let bundle_theirs = system.timed(false, &["--bundle", "add-flows", "br0", &file]);
    let pid = i32::try_from(pinger.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }
    let text = String::from_utf8_lossy(&pinger.wait_with_output().expect("ping ends").stdout).into_owned();
    let (lost, longest) = pings(&text);
    Figures {
        cells: vec![
            add_own,
            add_theirs,
            bundle_own,
            bundle_theirs,
            dump_own,
            dump_theirs,
            deleted,
            before,
            after,
            (after - before) * 1024.0 * 1024.0 / size as f64,
            longest,
            lost,
        ],
    }
}

/// Packets lost, and the longest round trip in milliseconds, as ping sums them up.
fn pings(text: &str) -> (f64, f64) {
    let number = |before: &str| -> Option<f64> {
        text.split(before)
            .next()?
            .rsplit([' ', '\n', ','])
            .find(|w| !w.is_empty())?
            .parse()
            .ok()
    };
    let sent = number(" packets transmitted").unwrap_or(f64::NAN);
    let received = number(" received").unwrap_or(f64::NAN);
    let times = text.split(" = ").nth(1).unwrap_or_default();
    let longest = times.split('/').nth(2).and_then(|t| t.parse().ok()).unwrap_or(f64::NAN);
    (sent - received, longest)
}
