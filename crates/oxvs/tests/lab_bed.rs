//! Testbeds of the laboratory match their topology, and leave nothing behind.

use lab::bed::{self, Bed, DEVICE};
use lab::topology::{Attachment, Topology};
use lab::traffic::Remote;
use lab::traffic::capture::{Capture, Captured};
use lab::traffic::protocol::{Outcome, Task};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use testkit::skip;

const PAIR: &str = "
host = [
    { name = 'PC1', address = [{ ip = '10.9.0.1', prefix = 24 }] },
    { name = 'PC2', address = [{ ip = '10.9.0.2', prefix = 24 }], gateway = '10.9.0.1' },
]
bridge = [{ name = 's1' }]
";

fn topology(links: &str) -> Topology {
    bed::use_program(Path::new(env!("CARGO_BIN_EXE_oxvs-lab")));
    toml::from_str(&format!("{PAIR}\nlink = [{links}]")).unwrap()
}

fn ping(bed: &Bed) -> String {
    let mut command = bed
        .host("PC1")
        .unwrap()
        .command(&["ping", "-c", "2", "-i", "0.01", "-W", "5", "10.9.0.2"]);
    bed::command::run(&mut command).unwrap()
}

/// A plain kernel bridge in place of the switch.
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
    let prefix = bed.namespace().trim_end_matches("switch").to_owned();
    let directory = bed.directory().to_owned();
    assert_eq!(namespaces(&prefix).len(), 3);
    let mut left = bed.command(&["sleep", "1000"]).spawn().unwrap();
    testkit::eventually("it has entered the namespace", || {
        let pids = bed::command::run_words(&["ip", "netns", "pids", bed.namespace()]).unwrap();
        pids.split_whitespace()
            .any(|pid| pid == left.id().to_string())
            .then_some(())
    });
    drop(bed);
    assert_eq!(namespaces(&prefix), [""; 0]);
    assert!(!directory.exists());
    assert!(!left.wait().unwrap().success());
}

/// Cables of every kind, with little room in their queues where they have one.
const KINDS: [&str; 4] = [
    "",
    "rate = 10_000_000, queue = 6000",
    "rate = 10_000_000, queue = 6000, delay = 300",
    "rate = 10_000_000, queue = 6000, serial = true",
];

fn joined(kind: &str) -> Bed {
    let comma = if kind.is_empty() { "" } else { ", " };
    Bed::build(&topology(&format!(
        "{{ a = {{ at = 'PC1' }}, b = {{ at = 'PC2' }}{comma}{kind} }}"
    )))
    .unwrap()
}

fn captured(remote: Remote) -> Captured {
    match remote.stop().unwrap() {
        Outcome::Captured(captured) => captured,
        other => panic!("{other:?}"),
    }
}

#[test]
fn cables_of_every_kind_carry_frames_both_ways_tagged_ones_as_they_are() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    for kind in KINDS {
        let bed = joined(kind);
        ping(&bed);
        let (one, other) = (bed.host("PC1").unwrap(), bed.host("PC2").unwrap());
        let agent = other.agent().unwrap();
        let capture = agent.start(Task::Capture(Capture::default())).unwrap();
        let tagged = [
            &other.mac()[..],
            &one.mac()[..],
            &[0x81, 0, 0x60, 10, 0x88, 0xb5],
            &[7; 1500],
        ]
        .concat();
        let send = || {
            let socket = sys::PacketSocket::new()?;
            socket.bind(rustix::net::netdevice::name_to_index(&socket, DEVICE)?, false)?;
            Ok(rustix::net::send(&socket, &tagged, rustix::net::SendFlags::empty())?)
        };
        assert_eq!(one.enter(send).unwrap(), 1518);
        // A later packet on the cable has arrived, so this one has too.
        ping(&bed);
        let captured = captured(capture);
        let seen: Vec<_> = captured
            .seen
            .iter()
            .filter(|seen| seen.kind.ether_type == 0x88b5)
            .collect();
        assert_eq!(seen.len(), 1, "{kind}: {captured:?}");
        assert_eq!(
            (seen[0].kind.vlan, seen[0].frames, seen[0].bytes),
            (Some(10), 1, 1518),
            "{kind}"
        );
    }
}

#[test]
fn what_a_full_queue_drops_is_counted_at_its_cable_and_direction() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    for kind in &KINDS[1..] {
        // So slow that even a sender that waits for a processor is faster.
        let bed = joined(&kind.replace("10_000_000", "1_000_000"));
        ping(&bed);
        let (one, other) = (bed.host("PC1").unwrap(), bed.host("PC2").unwrap());
        let agent = other.agent().unwrap();
        let capture = agent.start(Task::Capture(Capture::default())).unwrap();
        let send = || {
            let socket = UdpSocket::bind("10.9.0.1:0")?;
            for _ in 0..200 {
                // The ICMP error of a closed port can be returned for a later datagram.
                let _ = socket.send_to(&[0; 1000], "10.9.0.2:9");
            }
            Ok(())
        };
        let before = lost_towards(&bed, "PC2");
        one.enter(send).unwrap();
        let arrived = testkit::eventually("all have arrived or were dropped", || {
            let lost = lost_towards(&bed, "PC2") - before;
            (counters_of(other) + lost >= 200).then(|| 200 - lost)
        });
        let udp = captured(capture);
        let udp: u64 = udp
            .seen
            .iter()
            .filter(|seen| seen.kind.protocol == Some(17))
            .map(|seen| seen.frames)
            .sum();
        assert_eq!(udp, arrived, "{kind}");
        assert!(arrived < 200, "{kind}: the queue was never full");
        let losses = bed.losses().unwrap();
        // The ports of those that arrived were closed.
        assert!(
            losses
                .iter()
                .any(|loss| loss.cause == "receiver" && loss.place == "PC2" && loss.packets == arrived),
            "{losses:?}"
        );
    }
}

/// Losses of the cable between the hosts in one direction.
fn lost_towards(bed: &Bed, host: &str) -> u64 {
    let place = format!("PC1-PC2 towards {host}");
    let losses = bed.losses().unwrap();
    let here = losses
        .iter()
        .filter(|loss| loss.cause == "cable" && loss.place == place);
    here.map(|loss| loss.packets).sum()
}

/// UDP datagrams that a host has received.
fn counters_of(host: &lab::bed::Host) -> u64 {
    let text = host
        .enter(|| Ok(std::fs::read_to_string("/proc/thread-self/net/snmp")?))
        .unwrap();
    let numbers = text.lines().filter(|line| line.starts_with("Udp:")).nth(1).unwrap();
    let numbers: Vec<u64> = numbers
        .split_whitespace()
        .skip(1)
        .map(|word| word.parse().unwrap())
        .collect();
    // InDatagrams, NoPorts, InErrors.
    numbers[..3].iter().sum()
}

/// A laboratory that is measuring in a testbed.
fn busy() -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oxvs-lab"));
    let child = command
        .args(["calibrate"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    testkit::eventually("the laboratory measures", || {
        (!processes(&format!("/proc/{}/exe agent", child.id())).is_empty()).then_some(())
    });
    child
}

/// Processes whose command line starts with this.
fn processes(command: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let words = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .unwrap_or_default()
            .replace('\0', " ")
    };
    pids.filter(|pid| words(pid).starts_with(command)).collect()
}

/// The remains of a laboratory with that process id.
fn left(pid: u32) -> (Vec<String>, Vec<u32>, bool) {
    let records = std::fs::read_dir("/run/oxvs-lab").into_iter().flatten().flatten();
    let mut names = records.map(|entry| entry.file_name().to_string_lossy().into_owned());
    (
        namespaces(&format!("oxvs-lab-{pid}-")),
        processes(&format!("/proc/{pid}/exe ")),
        names.any(|name| name.trim_start_matches('.').starts_with(&format!("{pid}-"))),
    )
}

#[test]
fn a_laboratory_that_is_killed_leaves_nothing() {
    skip!(unless root, "ip", "tc", "ethtool");
    let mut lab = busy();
    lab.kill().unwrap();
    lab.wait().unwrap();
    testkit::eventually("all is gone", || {
        (left(lab.id()) == (vec![], vec![], false)).then_some(())
    });
}

/// Held by tests that clean up: each would do so for the others.
static CLEANING: Mutex<()> = Mutex::new(());

#[test]
fn clean_removes_what_even_the_warden_could_not_and_leaves_a_run_that_lives_alone() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let _alone = CLEANING.lock();
    let living = joined("");
    let mut lab = busy();
    for warden in processes(&format!("/proc/{}/exe warden", lab.id())) {
        bed::command::run_words(&["kill", "-KILL", &warden.to_string()]).unwrap();
    }
    lab.kill().unwrap();
    lab.wait().unwrap();
    assert!(!left(lab.id()).0.is_empty());
    clean();
    testkit::eventually("all is gone", || {
        (left(lab.id()) == (vec![], vec![], false)).then_some(())
    });
    ping(&living);
}

fn clean() {
    let status = Command::new(env!("CARGO_BIN_EXE_oxvs"))
        .args(["lab", "clean"])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn a_namespace_of_that_name_that_exists_is_an_error_and_stays() {
    skip!(unless root, "ip", "tc", "ethtool");
    let _alone = CLEANING.lock();
    let script = "ip netns add oxvs-lab-$$-0-host-one && exec \"$0\" lab calibrate";
    let mut lab = Command::new("sh");
    lab.args(["-c", script, env!("CARGO_BIN_EXE_oxvs")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let lab = lab.spawn().unwrap();
    let pid = lab.id();
    let output = lab.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let taken = format!("oxvs-lab-{pid}-0-host-one");
    assert!(
        said.contains(&format!(
            "namespace {taken} exists, and this run has not made it; 'oxvs lab clean'"
        )),
        "{said}"
    );
    assert!(!output.status.success());
    assert_eq!(left(pid), (vec![taken], vec![], false));
    clean();
    assert_eq!(left(pid).0, [""; 0]);
}

#[test]
fn guests_are_reached_across_cables_by_their_agents() {
    skip!(unless root, "ip", "tc", "ethtool", "qemu-system-x86_64");
    reach_each_other(Attachment::Guest { memory: 512 });
}

#[test]
fn guests_of_libvirt_are_reached_as_those_of_the_laboratory() {
    skip!(unless root, "ip", "tc", "ethtool", "qemu-system-x86_64", "virt-qemu-run");
    let attachment = Attachment::Libvirt { memory: 512 };
    let mut topology = topology("{ a = { at = 'PC1' }, b = { at = 's1' } }");
    topology.hosts[0].attachment = attachment;
    if let Some(reason) = bed::missing(&topology) {
        skip!("{reason}");
    }
    reach_each_other(attachment);
    let own = format!("oxvs-guest-{}-", std::process::id());
    let lines = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    let left: Vec<String> = lines
        .filter(|line| line.contains(&own) && line.contains("/libvirt/"))
        .collect();
    assert_eq!(left, [""; 0]);
}

/// Two guests, a bridge and two kinds of cables.
fn reach_each_other(attachment: Attachment) {
    let links = "{ a = { at = 'PC1' }, b = { at = 's1' } }, { a = { at = 'PC2' }, b = { at = 's1' }, rate = 10_000_000, serial = true }";
    let mut topology = topology(links);
    for host in &mut topology.hosts {
        host.attachment = attachment;
    }
    let bed = Bed::build(&topology).unwrap();
    bridge(&bed, "s1");
    let echo = bed.host("PC2").unwrap().agent().unwrap();
    let prober = bed.host("PC1").unwrap().agent().unwrap();
    let task = |text: &str| serde_json::from_str(text).unwrap();
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
    assert!(probed["mean"].as_f64().unwrap() > 1600.0, "{probed}");
}
