//! Hosts of the laboratory that are containers of Podman: the programs of a host run in its
//! container, and nothing of it is left behind.

use lab::bed::{self, Bed};
use lab::results::{Sample, load};
use lab::topology::Topology;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use testkit::skip;

/// A container and a namespace on a bare cable.
const PAIR: &str = "
host = [
    { name = 'PC1', address = [{ ip = '10.9.4.1', prefix = 24 }], attachment = 'podman' },
    { name = 'PC2', address = [{ ip = '10.9.4.2', prefix = 24 }] },
]
link = [{ a = { at = 'PC1' }, b = { at = 'PC2' } }]
";

/// Round trips between two containers.
const SMALL: &str = r#"
id = "X.boxes"
study = "X"
title = "Containers"
about = "For a test."
host = [
    { name = "A", attachment = "$what", address = [{ ip = "10.9.5.1", prefix = 24 }] },
    { name = "B", attachment = "$what", address = [{ ip = "10.9.5.2", prefix = 24 }] },
]
bridge = [{ name = "S1" }]
link = [{ a = { at = "A" }, b = { at = "S1" } }, { a = { at = "B" }, b = { at = "S1" } }]

[quick]
repetitions = 1
seconds = "SECONDS"

[full]
repetitions = 1
seconds = 1

[varied.what]
title = "Hosts"
quick = ["podman", "container"]
full = ["podman", "container"]

[[measure]]
name = "flood"
from = "A"
to = "B"
test = "tcp_stream"

[[metric]]
name = "flood.total"
title = "TCP"
unit = "bit/s"
better = "higher"
"#;

fn topology() -> Topology {
    bed::use_program(Path::new(env!("CARGO_BIN_EXE_oxvs-lab")));
    toml::from_str(PAIR).unwrap()
}

/// What is left of the containers of a bed: files, processes that name them, mounts, control
/// groups.
fn left(id: &str) -> Vec<String> {
    let directory = format!("/run/oxvs-lab/{id}");
    let mut found = Vec::new();
    found.extend(Path::new(&directory).exists().then(|| directory.clone()));
    found.extend(processes(&directory).into_iter().map(|(_, words)| words));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains(&directory));
    found.extend(mounts.map(str::to_owned));
    found.extend(groups(id).iter().map(|group| group.display().to_string()));
    found
}

/// Processes whose command line has these words.
fn processes(having: &str) -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let words = |pid: u32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        (pid, line.replace('\0', " "))
    };
    pids.map(words).filter(|(_, words)| words.contains(having)).collect()
}

/// The control groups of a bed's containers.
fn groups(id: &str) -> Vec<PathBuf> {
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let all = hierarchies.map(|entry| entry.path()).chain(["/sys/fs/cgroup".into()]);
    let groups = all.map(|hierarchy| hierarchy.join(format!("oxvs-lab-{id}")));
    groups.filter(|group| group.exists()).collect()
}

fn id_of(bed: &Bed) -> String {
    bed.directory().file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn the_programs_of_a_host_run_in_its_container_and_nothing_is_left_behind() {
    skip!(unless root, "ip", "tc", "ethtool");
    let topology = topology();
    if let Some(reason) = bed::missing(&topology) {
        skip!("{reason}");
    }
    let bed = Bed::build(&topology).unwrap();
    let id = id_of(&bed);
    let (inside, outside) = (bed.host("PC1").unwrap(), bed.host("PC2").unwrap());
    let (prober, echo) = (inside.agent().unwrap(), outside.agent().unwrap());

    // Its traffic crosses the cable that the bed has made, and is counted there.
    let task = |text: &str| serde_json::from_str(text).unwrap();
    let server = echo.start(task(r#"{"echo": {}}"#)).unwrap();
    let port = server.ports()[0];
    let probe = format!(
        r#"{{"probe": {{"to": "10.9.4.2:{port}", "payload": 1000, "exchanges": 100, "seconds": 30, "timeout": 5000000}}}}"#
    );
    let mut probe = prober.start(task(&probe)).unwrap();
    probe.go().unwrap();
    let outcome = probe.wait(Duration::from_secs(60)).unwrap();
    let probed = &serde_json::to_value(outcome).unwrap()["probed"];
    assert_eq!(
        (&probed["sent"], &probed["answered"]),
        (&100.into(), &100.into()),
        "{probed}"
    );

    // The agent has the limits of a container: a filter of system calls, a control group, a root.
    let pids = bed::command::run_words(&["ip", "netns", "pids", inside.namespace()]).unwrap();
    let agents: Vec<String> = processes("/oxvs-lab agent")
        .into_iter()
        .map(|(pid, _)| pid.to_string())
        .filter(|pid| pids.lines().any(|line| line == pid))
        .collect();
    assert_eq!(agents.len(), 1, "{pids}");
    let of_agent = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", agents[0])).unwrap();
    let status = of_agent("status");
    assert!(status.contains("Seccomp:\t2"), "{status}");
    assert!(of_agent("cgroup").contains(&format!("/oxvs-lab-{id}/")));
    let root = std::fs::read_dir(format!("/proc/{}/root", agents[0]))
        .unwrap()
        .flatten();
    assert!(
        root.map(|entry| entry.file_name())
            .all(|name| name != "root" && name != "home")
    );
    drop((prober, echo, server));
    drop(bed);
    assert_eq!(left(&id), [""; 0]);
}

fn lab(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oxvs"));
    command.arg("lab").args(args).current_dir(directory);
    command.stdin(Stdio::null()).env("OXVS_LAB_ANY_LOAD", "");
    command
}

fn write(directory: &Path, seconds: f64) {
    let text = SMALL.replace("\"SECONDS\"", &seconds.to_string());
    std::fs::write(directory.join("boxes.toml"), text).unwrap();
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], b"\n", &output.stderr].concat()).into_owned()
}

fn samples(directory: &Path) -> Vec<Sample> {
    load(&directory.join("out")).unwrap().samples
}

#[test]
fn a_run_in_containers_is_measured_as_one_in_namespaces_is() {
    skip!(unless root, "ip", "tc", "ethtool");
    if let Some(reason) = bed::missing(&topology()) {
        skip!("{reason}");
    }
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 1.0);
    let run = ["run", "boxes.toml", "--switch", "bridge", "--out", "out"];
    let output = lab(directory.path(), &run).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let samples = samples(directory.path());
    assert_eq!(samples.len(), 2, "{}", said(&output));
    let seconds_a_byte = |what: &str| {
        let sample = samples.iter().find(|sample| sample.at["what"] == what).unwrap();
        assert!(sample.metrics["flood.transfer"] > 1e6, "{sample:?}");
        sample.cpu["lab"] / sample.metrics["flood.transfer"]
    };
    // The programs in containers are the laboratory's, not other work.
    let (inside, outside) = (seconds_a_byte("podman"), seconds_a_byte("container"));
    assert!(inside > outside / 4.0, "{inside} {outside}");
}

#[test]
fn a_run_that_is_killed_leaves_no_container() {
    skip!(unless root, "ip", "tc", "ethtool");
    if let Some(reason) = bed::missing(&topology()) {
        skip!("{reason}");
    }
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 60.0);
    for even_the_warden in [false, true] {
        let run = ["run", "boxes.toml", "--switch", "bridge", "--out", "killed"];
        let mut command = lab(directory.path(), &run);
        let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = running.id();
        let ids = || -> Vec<String> {
            let entries = std::fs::read_dir("/run/oxvs-lab").into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            names.filter(|name| name.starts_with(&format!("{pid}-"))).collect()
        };
        testkit::eventually("containers run", || {
            let ids = ids();
            ids.into_iter()
                .find(|id| !processes(&format!("/run/oxvs-lab/{id}/podman/run")).is_empty() && !groups(id).is_empty())
        });
        let ids = ids();
        if even_the_warden {
            for (warden, _) in processes(&format!("/proc/{pid}/exe warden")) {
                bed::command::run_words(&["kill", "-KILL", &warden.to_string()]).unwrap();
            }
        }
        running.kill().unwrap();
        running.wait().unwrap();
        if even_the_warden {
            let output = lab(directory.path(), &["clean"]).output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
        }
        for id in ids {
            testkit::eventually("all is gone", || left(&id).is_empty().then_some(()));
        }
    }
}

#[test]
fn where_podman_cannot_run_a_container_the_results_have_the_reason_and_the_rest_runs() {
    skip!(unless root, "ip", "tc", "ethtool");
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 0.2);
    for name in ["podman", "crun", "runc"] {
        let program = directory.path().join(name);
        std::fs::write(
            &program,
            "#!/bin/sh\n[ $1 = rm ] || echo 'Error: not on this machine' >&2\nexit 125\n",
        )
        .unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", directory.path().display());
    let run = ["run", "boxes.toml", "--switch", "bridge", "--out", "out"];
    let output = lab(directory.path(), &run).env("PATH", path).output().unwrap();
    let said = said(&output);
    assert_eq!(samples(directory.path()).len(), 1, "{said}");
    let skipped = load(&directory.path().join("out")).unwrap().skipped;
    let reasons: Vec<&str> = skipped.iter().map(|skipped| skipped.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["host A is a container of Podman, and no container can run here: \
          crun: not on this machine; runc: not on this machine"],
        "{said}"
    );
}
