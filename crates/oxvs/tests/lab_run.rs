//! A run of the laboratory from the command line: a small experiment on oxvs, resumed, reported,
//! compared, and errors for wrong requests.

use lab::results::{Sample, load};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testkit::skip;

/// Three hosts, round trips, and a flow larger than its cable.
const SMALL: &str = r#"
id = "X.small"
study = "X"
title = "Small"
about = "For a test."
host = [
    { name = "A", address = [{ ip = "10.9.1.1", prefix = 24 }] },
    { name = "B", address = [{ ip = "10.9.1.2", prefix = 24 }] },
    { name = "C", address = [{ ip = "10.9.1.3", prefix = 24 }] },
]
bridge = [{ name = "S1" }]
link = [
    { a = { at = "A" }, b = { at = "S1" } },
    { a = { at = "B" }, b = { at = "S1" } },
    { a = { at = "C" }, b = { at = "S1" }, rate = 10_000_000, queue = 15_140 },
]

[quick]
repetitions = 2
seconds = "SECONDS"

[full]
repetitions = 2
seconds = 1

[varied.payload]
title = "Payload"
unit = "B"
quick = [100, 1000]
full = [100]

[[measure]]
name = "probe"
from = "A"
to = "B"
test = "rtt"
payload = "$payload"

[[measure]]
name = "flood"
from = "A"
to = "C"
test = "cbr"
payload = 1000
rate = 40_000_000

[[metric]]
name = "probe.rtt"
title = "Round trip"
unit = "µs"
better = "lower"

[[metric]]
name = "flood.loss"
title = "Lost"
unit = ""
better = "lower"

[[figure]]
form = "bars"
groups = "payload"
y = "probe.rtt"
"#;

fn lab(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oxvs"));
    command.arg("lab").args(args).current_dir(dir).stdin(Stdio::null());
    // Other tests run at the same time.
    command.env("OXVS_LAB_ANY_LOAD", "");
    command
}

fn done(dir: &Path, args: &[&str]) -> (Output, String) {
    let output = lab(dir, args).output().unwrap();
    let said = [&output.stdout[..], b"\n", &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output, said)
}

fn write(dir: &Path, seconds: f64) {
    std::fs::write(
        dir.join("small.toml"),
        SMALL.replace("\"SECONDS\"", &seconds.to_string()),
    )
    .unwrap();
}

#[test]
fn what_happens_inside_a_repetition_is_recorded_and_drawn() {
    skip!(unless root, "ip", "tc", "ethtool");
    let dir = tempfile::tempdir().unwrap();
    let cable = r#"{ a = { at = "C" }, b = { at = "S1" }, rate = 10_000_000, queue = 15_140 }"#;
    let port = r#"{ a = { at = "C" }, b = { at = "S1", port = { qos = { kind = "htb", rate = 10_000_000 } } } }"#;
    let text = SMALL.replace(cable, port).replace("repetitions = 2", "repetitions = 1");
    let text = text.replace("\"SECONDS\"", "2").replace("[100, 1000]", "[100]");
    std::fs::write(dir.path().join("small.toml"), text).unwrap();
    for system in ["oxvs", "bridge"] {
        // Where the kernel lets `tc` wait, as while it takes down another test's namespaces, its
        // counters have no values. Not three times in a row.
        let mut run = None;
        for attempt in 0..3 {
            let out = format!("{system}-{attempt}");
            let (output, said) = done(dir.path(), &["run", "small.toml", "--switch", system, "--out", &out]);
            if said.contains("cannot run") || said.contains("nothing can run") {
                break;
            }
            assert!(output.status.success(), "{said}");
            let samples = load(&dir.path().join(&out)).unwrap().samples;
            let [sample] = &samples[..] else { panic!("{said}") };
            let read = sample.series.contains_key("drops");
            run = Some((out, sample.clone()));
            if read {
                break;
            }
        }
        let Some((out, sample)) = run else { continue };
        let mean = |name: &str| {
            let values = sample.series.get(name).unwrap_or_else(|| panic!("{name}: {sample:?}"));
            assert!(values.windows(2).all(|pair| pair[0].0 < pair[1].0), "{values:?}");
            assert!(values.iter().all(|(at, _)| *at < 5.0), "{values:?}");
            values.iter().map(|(_, value)| value).sum::<f64>() / values.len() as f64
        };
        let rate = mean("rate.C");
        assert!(rate > 1e6 && rate < 20e6, "C's port sends at 10 Mbit/s: {rate}");
        assert!(mean("rate.B") > 0.0 && mean("cpu.all") > 0.0);
        assert!(mean("queue.S1:C") > 1.0, "{:?}", sample.series);
        assert!(mean("drops") > 100.0, "{:?}", sample.series);
        assert!(
            sample.cpu["series"] > 0.0 && sample.cpu["series"] < sample.seconds,
            "{:?}",
            sample.cpu
        );
        let (output, said) = done(dir.path(), &["report", &out]);
        assert!(output.status.success(), "{said}");
        let report = dir.path().join(out).join("report");
        let table = std::fs::read_to_string(report.join("series.csv")).unwrap();
        assert!(table.contains(",queue.S1:C,"), "{table}");
        let page = std::fs::read_to_string(report.join("index.html")).unwrap();
        assert!(
            page.contains("Inside repetitions, over time") && page.contains(">S1:C"),
            "no figure"
        );
    }
}

const APPLICATION: &str = r#"
id = "X.applications"
study = "X"
title = "Applications"
about = "For a test."
host = [{ name = "A", address = [{ ip = "10.9.3.1", prefix = 24 }] }, { name = "B", address = [{ ip = "10.9.3.2", prefix = 24 }] }]
bridge = [{ name = "S1" }]
link = [{ a = { at = "A" }, b = { at = "S1" } }, { a = { at = "B" }, b = { at = "S1" } }]

[quick]
repetitions = 1
seconds = 1

[full]
repetitions = 1
seconds = 1

[varied.application]
title = "Application"
quick = ["web", "http3", "dns"]
full = ["web", "http3", "dns"]

[[observe]]
name = "app"
observe = "application"
application = "$application"
from = "A"
to = "B"
connections = 4
fresh = true

[[metric]]
name = "app.rate"
title = "Answers"
unit = "1/s"

[[figure]]
form = "bars"
groups = "application"
y = "app.rate"
"#;

#[test]
fn real_applications_answer_across_the_switch() {
    skip!(unless root, "ip", "tc", "ethtool", "nginx", "wrk", "caddy", "dnsmasq", "dnsperf");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("applications.toml"), APPLICATION).unwrap();
    let run = ["run", "applications.toml", "--switch", "oxvs", "--out", "out"];
    let (output, said) = done(dir.path(), &run);
    assert!(output.status.success(), "{said}");
    let samples = samples(dir.path());
    assert_eq!(samples.len(), 3, "{said}");
    for sample in samples {
        let metric = |name: &str| sample.metrics.get(name).copied().unwrap_or(-1.0);
        assert!(metric("app.rate") > 1.0 && metric("app.bits") > 100.0, "{sample:?}");
        assert!(metric("app.latency") > 0.0 && metric("app.lost") == 0.0, "{sample:?}");
        assert_eq!(metric("app.p99") > 0.0, sample.at["application"] != "dns", "{sample:?}");
        assert!(sample.series.contains_key("rate.B"), "{:?}", sample.series);
    }
}

/// Namespaces of this process.
fn namespaces(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with(&format!("oxvs-lab-{pid}-")))
        .collect()
}

fn samples(dir: &Path) -> Vec<Sample> {
    load(&dir.join("out"))
        .map(|results| results.samples)
        .unwrap_or_default()
}

#[test]
fn a_small_experiment_is_run_resumed_reported_and_compared_with_itself() {
    skip!(unless root, "ip", "tc", "ethtool");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 0.6);
    let run = ["run", "small.toml", "--switch", "oxvs", "--out", "out"];
    let (output, said) = done(dir.path(), &run);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("4 of 4 samples (100 %)"), "{said}");
    let taken = samples(dir.path());
    assert_eq!(taken.len(), 4);
    for sample in &taken {
        assert!(sample.metrics["probe.rtt"] > 0.0, "{sample:?}");
        assert!(
            sample.metrics["flood.loss"] > 0.5,
            "40 Mbit/s do not fit into 10: {sample:?}"
        );
        let cable: u64 = sample
            .losses
            .iter()
            .filter(|loss| loss.cause == "cable")
            .map(|loss| loss.packets)
            .sum();
        let all: u64 = sample.losses.iter().map(|loss| loss.packets).sum();
        assert!(cable * 10 > all * 8, "they are lost in the cable: {:?}", sample.losses);
        // With offloaded flows the switch's own processor time is next to nothing.
        assert!(sample.cpu["all"] > 0.0, "{:?}", sample.cpu);
        assert!(sample.cpu["system"] <= sample.cpu["all"], "{:?}", sample.cpu);
    }
    let configuration = std::fs::read_to_string(dir.path().join("out/configuration/X.small/oxvs.txt")).unwrap();
    assert!(configuration.contains("vsctl"), "{configuration}");

    let (output, said) = done(dir.path(), &run);
    assert!(output.status.success() && said.contains("4 of 4 samples"), "{said}");
    assert_eq!(samples(dir.path()).len(), 4, "nothing is measured twice");

    let (output, said) = done(dir.path(), &["report", "out"]);
    assert!(output.status.success(), "{said}");
    let (output, said) = done(dir.path(), &["compare", "out", "out"]);
    assert!(
        output.status.success() && said.contains("0 of 4 comparisons differ"),
        "{said}"
    );
    let (output, said) = done(dir.path(), &["compare", "out", "out", "out"]);
    assert!(
        output.status.code() == Some(1) && said.contains("out has the same samples as out"),
        "{said}"
    );

    write(dir.path(), 0.4);
    let (output, said) = done(dir.path(), &run);
    assert!(
        !output.status.success() && said.contains("its file has changed since"),
        "{said}"
    );
}

#[test]
fn each_repetition_of_a_full_run_has_hosts_and_a_switch_of_its_own() {
    skip!(unless root, "ip", "tc", "ethtool");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 0.6);
    let mut run = lab(
        dir.path(),
        &["run", "small.toml", "--full", "--switch", "oxvs", "--out", "out"],
    );
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut names = BTreeSet::new();
    until("the run ends", || {
        names.extend(namespaces(run.id()));
        run.try_wait().unwrap().is_some()
    });
    assert!(run.wait().unwrap().success());
    let testbeds: Vec<u32> = samples(dir.path()).iter().map(|sample| sample.testbed).collect();
    assert_eq!(testbeds, [1, 2]);
    // A control's testbed has no host C.
    let hosts = |letter: &str| {
        let own = names.iter().filter_map(|name| name.strip_suffix(letter));
        own.collect::<BTreeSet<_>>()
    };
    let with_all = hosts("-B").intersection(&hosts("-C")).count();
    assert_eq!(with_all, 2, "{names:?}");
}

#[test]
fn repetitions_until_a_verdict_is_decided_have_testbeds_of_their_own_and_end_with_the_budget() {
    skip!(unless root, "ip", "tc", "ethtool");
    let dir = tempfile::tempdir().unwrap();
    let run = ["run", "S1.idle", "--switch", "oxvs", "--out", "out", "--until-decided"];
    let (output, said) = done(dir.path(), &[&run[..], &["--budget", "0.4"]].concat());
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the budget is spent"), "{said}");
    let mut testbeds: Vec<u32> = samples(dir.path()).iter().map(|sample| sample.testbed).collect();
    assert!(!testbeds.is_empty(), "{said}");
    testbeds.dedup();
    assert_eq!(testbeds.len(), samples(dir.path()).len());
}

#[test]
fn a_run_until_its_verdicts_are_decided_ends_when_they_are() {
    skip!(unless root, "ip", "tc", "ethtool");
    skip!(unless long);
    let dir = tempfile::tempdir().unwrap();
    let run = ["run", "S1.idle", "--switch", "oxvs", "--out", "out", "--until-decided"];
    let (output, said) = done(dir.path(), &[&run[..], &["--budget", "30"]].concat());
    assert!(output.status.success(), "{said}");
    assert!(said.contains("decided: S1.12 on oxvs; undecided: none"), "{said}");
    assert!(said.contains("complete; "), "{said}");
}

#[test]
fn two_builds_run_in_turns_on_one_testbed_for_each_repetition() {
    skip!(unless root, "ip", "tc", "ethtool");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 0.4);
    let build = env!("CARGO_BIN_EXE_oxvs");
    let ab = ["ab", build, build, "small.toml", "--out", "out"];
    let (output, said) = done(
        dir.path(),
        &[
            &ab[..],
            &[
                "--repetitions",
                "2",
                "--factor",
                "none",
                "--junit",
                "junit.xml",
                "--all",
            ],
        ]
        .concat(),
    );
    assert!(output.status.success(), "{said}");
    assert!(said.contains("0 of 4 comparisons differ"), "{said}");
    let all = samples(dir.path());
    let of = |name: &str| all.iter().filter(|sample| sample.system == name).count();
    assert_eq!((of("A"), of("B")), (4, 4), "{said}");
    let repetitions: Vec<u32> = all.iter().map(|sample| sample.repetition).collect();
    assert_eq!(
        repetitions,
        [0, 0, 0, 0, 1, 1, 1, 1],
        "both builds before the next repetition"
    );
    let junit = std::fs::read_to_string(dir.path().join("junit.xml")).unwrap();
    assert!(junit.contains("tests=\"4\" failures=\"0\""), "{junit}");

    let (output, said) = done(
        dir.path(),
        &[&ab[..], &["--repetitions", "4", "--budget", "0.001"]].concat(),
    );
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the budget is spent after 8 of 16 samples"), "{said}");
    // Round trips differ by a few percent: two repetitions do not exclude a factor of 1.3.
    let repeat = [
        "--repetitions",
        "2",
        "--factor",
        "1.3",
        "--threshold",
        "25",
        "--budget",
        "0.5",
    ];
    let (output, said) = done(dir.path(), &[&ab[..], &repeat].concat());
    assert!(output.status.success(), "{said}");
    let all = samples(dir.path());
    let last = all.iter().map(|sample| sample.repetition).max();
    assert!(last >= Some(3), "cells that tell too little are repeated: {said}");
    let (output, said) = done(
        dir.path(),
        &[&ab[..], &["--factor", "1.2", "--threshold", "30"]].concat(),
    );
    assert!(
        output.status.code() == Some(1) && said.contains("--factor 1.2 must be more than 1.3"),
        "{said}"
    );
    let (output, said) = done(dir.path(), &["ab", build, "/bin/true", "small.toml", "--out", "other"]);
    assert!(output.status.code() == Some(1) && said.contains("/bin/true"), "{said}");
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn began(dir: &Path) -> Child {
    let mut run = lab(dir, &["run", "small.toml", "--switch", "oxvs", "--out", "out"]);
    let child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("a first sample", || !samples(dir).is_empty());
    child
}

#[test]
fn a_run_that_is_interrupted_keeps_its_samples_leaves_nothing_and_goes_on() {
    skip!(unless long);
    skip!(unless root, "ip", "tc", "ethtool");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 3.0);
    let child = began(dir.path());
    let pid = child.id();
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("interrupted; the same command with --out out continues"),
        "{said}"
    );
    assert_eq!(namespaces(pid), [] as [String; 0]);
    let before = samples(dir.path());
    assert!(!before.is_empty() && before.len() < 4, "{}", before.len());
    let (output, said) = done(dir.path(), &["run", "small.toml", "--switch", "oxvs", "--out", "out"]);
    assert!(output.status.success() && said.contains("4 of 4 samples"), "{said}");
    let after = samples(dir.path());
    assert_eq!(after[..before.len()], before[..]);
}

#[test]
fn a_switch_that_dies_during_the_run_is_recorded_and_the_run_goes_on() {
    skip!(unless long);
    skip!(unless root, "ip", "tc", "ethtool");
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 3.0);
    let child = began(dir.path());
    // The testbed of controls has a namespace for a switch, too, with none in it.
    let names = namespaces(child.id());
    let switches = names.iter().filter(|name| name.ends_with("-switch"));
    let pids = switches.map(|name| testkit::run(&["ip", "netns", "pids", name]));
    let pids = pids.collect::<Vec<_>>().join("\n");
    for pid in pids
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .filter_map(Pid::from_raw)
    {
        // One may have ended with the other.
        let _ = kill_process(pid, Signal::KILL);
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 repetitions failed"), "{said}");
    let results = load(&dir.path().join("out")).unwrap();
    assert_eq!(results.samples.len(), 3, "the others were taken on a new switch");
}

#[test]
fn wrong_requests_are_answered_with_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bad.toml"), "id = 3\n").unwrap();
    for (args, code, reason) in [
        (&["run", "--quick", "--full"][..], 2, "cannot be used with"),
        (&["fly"], 2, "unrecognized subcommand"),
        (
            &["run", "S9.nothing"],
            1,
            "there is no experiment 'S9.nothing'; 'oxvs lab list' names them",
        ),
        (&["run", "missing.toml"], 1, "missing.toml: No such file"),
        (&["run", "bad.toml"], 1, "bad.toml:1:"),
        (&["run", "--budget", "-3"], 2, "unexpected argument"),
        (&["run", "--budget", "0"], 1, "--budget wants minutes, more than 0"),
        (&["report", "."], 1, "holds no run"),
        (&["compare", ".", "nowhere"], 1, "holds no run"),
        (&["compare", "."], 2, "<RUN>"),
    ] {
        let (output, said) = done(dir.path(), args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(reason), "{args:?}: {said}");
    }
    let (output, said) = done(
        dir.path(),
        &["run", "S0.rtt.l3", "--switch", "catalyst", "--out", "out"],
    );
    assert_eq!(output.status.code(), Some(1), "{said}");
    let root = rustix::process::geteuid().is_root();
    assert!(
        said.contains(if root {
            "there is no switch 'catalyst'; there are oxvs"
        } else {
            "a run needs root"
        }),
        "{said}"
    );
    let (output, said) = done(dir.path(), &["list"]);
    assert!(
        output.status.success() && said.contains("S0.rtt.l3") && said.contains("  bridge "),
        "{said}"
    );
}

/// Two networks of Mininet's, on oxvs.
const MININET: &str = r#"
id = "X.mininet"
study = "X"
title = "Mininet"
about = "For a test."
systems = ["mininet"]

[quick]
repetitions = 1
seconds = 1

[full]
repetitions = 1
seconds = 1

[varied.topology]
title = "Topology"
quick = ["single,3", "linear,2"]
full = ["single,3"]

[derived]
rate = { by = "topology", is = { "linear,2" = 50_000_000 }, otherwise = "absent" }

[[observe]]
name = "net"
observe = "mininet"
topology = "$topology"
rate = "$rate"

[[metric]]
name = "net.received"
title = "Received"
unit = "Mbit/s"
scale = 1e-6
"#;

#[test]
fn mininet_makes_its_own_topologies_on_oxvs_and_its_tests_pass() {
    skip!(unless long);
    skip!(unless root, "ip", "tc", "ethtool", "ping", "iperf", "unshare");
    let system = lab::systems::named("mininet").unwrap();
    if let Some(reason) = system.missing(&lab::topology::Topology::default()) {
        skip!("{reason}");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("mininet.toml"), MININET).unwrap();
    let (output, said) = done(dir.path(), &["run", "mininet.toml", "--out", "out"]);
    assert!(output.status.success(), "{said}");
    let samples = samples(dir.path());
    assert_eq!(samples.len(), 2, "{said}");
    for sample in samples {
        let metric = |name: &str| sample.metrics.get(name).copied();
        assert_eq!(metric("net.dropped"), Some(0.0), "{sample:?}");
        let expected = match sample.at["topology"].as_str() {
            "single,3" => (3.0, 1.0),
            _ => (2.0, 2.0),
        };
        assert_eq!(
            (metric("net.hosts"), metric("net.switches")),
            (Some(expected.0), Some(expected.1))
        );
        assert!(metric("net.received") > Some(0.0), "{sample:?}");
        // A shaper passes a little more than its rate at the start.
        assert!(metric("net.of_asked").is_none_or(|share| share < 1.2), "{sample:?}");
    }
}
