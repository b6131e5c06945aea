//! Testbeds of the laboratory stand as their topology says, and leave nothing behind.

use lab::bed::{self, Bed};
use lab::topology::Topology;
use std::path::Path;
use testkit::skip;

const PAIR: &str = "
host = [
    { name = 'PC1', address = [{ ip = '10.9.0.1', prefix = 24 }] },
    { name = 'PC2', address = [{ ip = '10.9.0.2', prefix = 24 }], gateway = '10.9.0.1' },
]
bridge = [{ name = 's1' }]
";

fn topology(links: &str) -> Topology {
    bed::use_program(Path::new(env!("CARGO_BIN_EXE_oxvs")));
    toml::from_str(&format!("{PAIR}\nlink = [{links}]")).unwrap()
}

fn ping(bed: &Bed) -> String {
    let mut command = bed
        .host("PC1")
        .unwrap()
        .command(&["ping", "-c", "2", "-i", "0.01", "-W", "5", "10.9.0.2"]);
    bed::command::run(&mut command).unwrap()
}

/// A plain bridge of the kernel in the switch's place.
fn bridge(bed: &Bed, name: &str) {
    let run = |words: &[&str]| bed::command::run(&mut bed.command(words)).unwrap();
    run(&["ip", "link", "add", name, "type", "bridge"]);
    for (at, _, device) in bed.ports().filter(|(at, ..)| *at == name) {
        run(&["ip", "link", "set", device, "master", at]);
    }
    run(&["ip", "link", "set", name, "up"]);
}

fn namespaces(prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(prefix)).collect()
}

#[test]
fn hosts_reach_each_other_across_bare_cables_and_nothing_is_left_behind() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let topology = topology("{ a = { at = 'PC1' }, b = { at = 's1' } }, { a = { at = 'PC2' }, b = { at = 's1' } }");
    let bed = Bed::build(&topology).unwrap();
    bridge(&bed, "s1");
    assert_eq!(bed.port_device("s1", "PC2").unwrap(), "s1-PC2");
    ping(&bed);
    assert!(bed.counters().unwrap()["s1-PC1"].rx_packets >= 2);
    assert_eq!(bed.losses().unwrap(), []);
    let prefix = bed.namespace().trim_end_matches("switch").to_owned();
    let directory = bed.directory().to_owned();
    assert_eq!(namespaces(&prefix).len(), 3);
    let mut left = bed.command(&["sleep", "1000"]).spawn().unwrap();
    drop(bed);
    assert_eq!(namespaces(&prefix), [""; 0]);
    assert!(!directory.exists());
    assert!(!left.wait().unwrap().success());
}

#[test]
fn a_cable_with_a_rate_carries_frames_both_ways() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let topology = topology("{ a = { at = 'PC1' }, b = { at = 'PC2' }, rate = 10_000_000 }");
    let bed = Bed::build(&topology).unwrap();
    ping(&bed);
    assert_eq!(bed.losses().unwrap(), []);
}

#[test]
fn guests_are_reached_across_cables_by_their_agents() {
    skip!(unless root, "ip", "tc", "ethtool", "qemu-system-x86_64");
    let links =
        "{ a = { at = 'PC1' }, b = { at = 's1' } }, { a = { at = 'PC2' }, b = { at = 's1' }, rate = 10_000_000 }";
    let mut topology = topology(links);
    for host in &mut topology.hosts {
        host.attachment = lab::topology::Attachment::Guest { memory: 512 };
    }
    let bed = Bed::build(&topology).unwrap();
    bridge(&bed, "s1");
    let echo = bed.host("PC2").unwrap().agent().unwrap();
    let prober = bed.host("PC1").unwrap().agent().unwrap();
    let task = |text: &str| serde_json::from_str(&text).unwrap();
    let server = echo.start(task(r#"{"echo": {}}"#)).unwrap();
    let port = server.ports()[0];
    let probe = format!(
        r#"{{"probe": {{"to": "10.9.0.2:{port}", "payload": 1000, "exchanges": 10, "seconds": 30, "timeout": 5000000}}}}"#
    );
    let mut probe = prober.start(task(&probe)).unwrap();
    probe.go().unwrap();
    let outcome = probe.wait(std::time::Duration::from_secs(60)).unwrap();
    let probed = &serde_json::to_value(outcome).unwrap()["probed"];
    assert_eq!(
        (&probed["sent"], &probed["answered"]),
        (&10.into(), &10.into()),
        "{probed}"
    );
    // Each frame of 1042 bytes and 24 of overhead takes 0.85 ms at 10 Mbit/s, there and back.
    assert!(probed["mean"].as_f64().unwrap() > 1700.0, "{probed}");
}
