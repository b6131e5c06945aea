//! Loading and dumping rules: by each switch's own tool and by Debian's for both, and delays
//! meanwhile.

use crate::meanwhile::{self, Noticed, noticed};
use crate::system::{Kind, System};
use crate::{line, median};
use std::fmt::Write;
use std::path::Path;

/// The figures of one system in one round.
struct Figures {
    seconds: Vec<f64>,
    noticed: Vec<Noticed>,
    /// Resident, without rules and with all.
    megabytes: [f64; 2],
}

/// The operations in turn, with the system's own tool or Debian's; preparations for the next one
/// are not measured.
const WHAT: [(&str, bool, &[&str]); 11] = [
    ("add-flows, own tool", true, &["add-flows", "br0", "FILE"]),
    ("dump-flows, own tool", true, &["dump-flows", "br0"]),
    ("dump-flows, ovs-ofctl", false, &["dump-flows", "br0"]),
    ("dump-aggregate, own tool", true, &["dump-aggregate", "br0"]),
    (
        "mod-flows of all but one, own tool",
        true,
        &["mod-flows", "br0", "ip,nw_src=10.0.0.0/8,actions=output:2"],
    ),
    ("del-flows of all but one, own tool", true, &["del-flows", "br0", "ip"]),
    ("add-flows, ovs-ofctl", false, &["add-flows", "br0", "FILE"]),
    ("del-flows, ovs-ofctl", false, &["del-flows", "br0", "ip"]),
    (
        "add-flows --bundle, own tool",
        true,
        &["--bundle", "add-flows", "br0", "FILE"],
    ),
    ("replace-flows, own tool", true, &["replace-flows", "br0", "FILE"]),
    ("del-flows, own tool", true, &["del-flows", "br0", "ip"]),
];
/// Measured last.
const LAST: (&str, bool, &[&str]) = (
    "add-flows --bundle, ovs-ofctl",
    false,
    &["--bundle", "add-flows", "br0", "FILE"],
);
/// Idle, and idle with processors busy otherwise.
const ALONE: [&str; 2] = ["nothing", "busy loops on all processors"];

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
    let figure = |get: &dyn Fn(&Figures) -> f64| -> Vec<f64> {
        all.iter()
            .map(|rounds| median(rounds.iter().map(get).collect()))
            .collect()
    };
    let operations = WHAT.iter().chain([&LAST]).map(|(what, ..)| *what);
    for (at, what) in operations.clone().enumerate() {
        line(what, "s", &figure(&|figures| figures.seconds[at]), false);
    }
    for (at, what) in ["resident memory, no rules", "resident memory, all rules"]
        .iter()
        .enumerate()
    {
        line(what, "MB", &figure(&|figures| figures.megabytes[at]), false);
    }
    let each = |figures: &Figures| (figures.megabytes[1] - figures.megabytes[0]) * 1024.0 * 1024.0 / size as f64;
    line("memory for each rule", "bytes", &figure(&each), false);

    let noticed = all.iter().map(|rounds| {
        let mut sum = vec![Noticed::default(); ALONE.len() + WHAT.len() + 1];
        for figures in rounds {
            sum.iter_mut()
                .zip(&figures.noticed)
                .for_each(|(sum, one)| sum.extend(one.clone()));
        }
        sum
    });
    let noticed: Vec<Vec<Noticed>> = noticed.collect();
    let what: Vec<&str> = ALONE.into_iter().chain(operations).collect();
    meanwhile::print(kinds, &what, &noticed);
}

/// Distinct rules, and one of lower priority that passes everything else.
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
    let mut figures = Figures {
        seconds: Vec::new(),
        noticed: Vec::new(),
        megabytes: [system.resident(), 0.0],
    };
    for alone in [
        || std::thread::sleep(std::time::Duration::from_secs(2)),
        meanwhile::busy,
    ] {
        figures.noticed.push(noticed(&system, alone).1);
    }
    for (at, (what, by_own, args)) in WHAT.iter().chain([&LAST]).enumerate() {
        let args: Vec<&str> = args
            .iter()
            .map(|arg| if *arg == "FILE" { &file } else { *arg })
            .collect();
        let (seconds, others) = noticed(&system, || system.timed(own && *by_own, &args));
        figures.seconds.push(seconds);
        figures.noticed.push(others);
        if at == 0 {
            figures.megabytes[1] = system.resident();
        }
        assert!(seconds > 0.0, "{what} of {size} rules");
    }
    figures
}
