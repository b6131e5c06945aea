//! Restarts: connections that the next process takes over, and offloaded flows that go on
//! meanwhile.

use super::{Lab, OUTSIDE, Udp, exchange};
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;
use testkit::{eventually, ping};

/// Rules for packets of connections that are there: none begins one.
const RULES: [&str; 4] = [
    "priority=5,in_port=1,ip,actions=ct(zone=1,nat,table=1)",
    "table=1,ct_state=+trk+est,ip,actions=2",
    "priority=5,in_port=2,ip,actions=ct(zone=1,nat,table=2)",
    "table=2,ct_state=+trk+est,ip,actions=1",
];

/// Hosts with a connection of TCP and one of UDP, whose source is translated.
struct Translated {
    lab: Lab,
    client: TcpStream,
    server: TcpStream,
    udp: Udp,
    /// The source that the server sees.
    seen: SocketAddrV4,
}

impl Translated {
    fn new() -> Option<Translated> {
        let lab = Lab::new()?;
        let inner = lab.inside.mac_of("eth0");
        lab.outside
            .ip(&format!("neigh replace 10.9.0.50 lladdr {inner} dev eth0"));
        RULES.iter().for_each(|rule| lab.rule(rule));
        lab.rule("table=1,ct_state=+trk+new,ip,actions=ct(commit,zone=1,nat(src=10.9.0.50:9000-9999)),2");
        let (client, server) = lab.tcp((OUTSIDE, 7000), 7000);
        let udp = Udp::new(&lab, (OUTSIDE, 7000), 7000);
        let seen = udp.exchange();
        let made = Translated {
            lab,
            client,
            server,
            udp,
            seen,
        };
        made.wait_for_offload();
        Some(made)
    }

    fn exchange(&self) {
        exchange(&self.client, &self.server);
        assert_eq!(self.udp.exchange(), self.seen);
    }

    fn wait_for_offload(&self) {
        self.lab.wait_for_offload(|| self.exchange());
    }

    /// Sends so much that the numbers of TCP leave every window.
    fn send_much(&self) {
        let data = vec![7; 1 << 20];
        std::thread::scope(|scope| {
            scope.spawn(|| (0..16).for_each(|_| (&self.client).write_all(&data).unwrap()));
            let mut got = vec![0; 1 << 20];
            (0..16).for_each(|_| (&self.server).read_exact(&mut got).unwrap());
        });
    }

    /// The connection of a protocol without its counts, and these.
    fn counted(&self, protocol: &str) -> (String, Vec<u64>) {
        let line = self.lab.connections(protocol).remove(0);
        let is_count = |part: &&str| part.starts_with("packets=") || part.starts_with("bytes=");
        let parts: Vec<&str> = line.split([',', '(', ')']).collect();
        let counts = parts.iter().copied().filter(is_count);
        let counts = counts.map(|part| part.split('=').nth(1).unwrap().parse().unwrap());
        let rest = parts
            .iter()
            .copied()
            .filter(|part| !is_count(part) && !part.contains("timeout="));
        (rest.collect::<Vec<_>>().join(","), counts.collect())
    }

    fn both_counted(&self) -> [(String, Vec<u64>); 2] {
        ["tcp,", "udp,"].map(|protocol| self.counted(protocol))
    }

    fn log(&self) -> String {
        self.lab.switch.sandbox.read("switch.log")
    }
}

/// Whether connections are the same as before, and have this many packets more in each direction.
#[track_caller]
fn went_on(before: &[(String, Vec<u64>); 2], after: &[(String, Vec<u64>); 2], more: u64) {
    for ((before, counts), (after, now)) in before.iter().zip(after) {
        assert_eq!(after, before);
        assert_eq!((counts.len(), now.len()), (4, 4));
        let grew = counts.iter().zip(now).all(|(before, after)| *after >= before + more);
        assert!(grew, "{counts:?} {now:?}");
    }
}

#[test]
fn translated_connections_go_on_behind_a_restart_that_hands_them_over() {
    let Some(mut at) = Translated::new() else { return };
    let before = at.both_counted();

    at.lab.switch.daemon().terminate();
    // The kernel sends this again until somebody forwards it.
    (&at.client).write_all(&[3; 100]).unwrap();
    at.lab.switch.kill();
    at.lab.switch.boot();
    at.lab.switch.vsctl("set bridge br0 external_ids:restarted=true");
    RULES.iter().for_each(|rule| at.lab.rule(rule));
    let mut bytes = [0; 100];
    (&at.server).read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [3; 100]);
    (0..50).for_each(|_| at.exchange());
    at.wait_for_offload();
    went_on(&before, &at.both_counted(), 51);
    let log = at.log();
    assert!(
        log.contains("left 2 connections") && log.contains("took over 2 connections"),
        "{log}"
    );
    assert!(!log.contains("offloaded flows of"), "{log}");

    // Whoever wants to begin anew says so.
    let Lab { switch, .. } = &mut at.lab;
    switch.appctl(&["exit", "--cleanup"]);
    eventually("the switch ends", || (!switch.daemon().is_running()).then_some(()));
    switch.kill();
    switch.boot();
    switch.vsctl("set bridge br0 external_ids:restarted=again");
    assert_eq!(at.lab.connections(""), Vec::<String>::new());
}

#[test]
fn offloaded_connections_are_untouched_while_the_switch_restarts() {
    let Some(mut at) = Translated::new() else { return };
    at.lab
        .switch
        .vsctl("set open_vswitch . other_config:offload-hand-over=60");
    let before = at.both_counted();
    at.lab.switch.daemon().terminate();
    at.lab.switch.kill();
    // There is no switch.
    at.send_much();
    (0..100).for_each(|_| at.exchange());
    at.lab.switch.boot();
    at.lab.switch.vsctl("set bridge br0 external_ids:restarted=true");
    // There is one, without rules.
    at.send_much();
    (0..100).for_each(|_| at.exchange());
    assert_eq!(at.lab.of_rules("n_packets"), [0, 0]);
    let path = at.lab.switch.sandbox.path("ovs-vswitchd.flows");
    assert!(path.exists());
    went_on(&before, &at.both_counted(), 200);

    // All come at once, as those of OVN do.
    let file = at.lab.switch.sandbox.arg("rules");
    std::fs::write(&file, RULES.join("\n")).unwrap();
    at.lab.ofctl(&["--bundle", "add-flows", "br0", &file]);
    at.send_much();
    (0..100).for_each(|_| at.exchange());
    at.wait_for_offload();
    went_on(&before, &at.both_counted(), 300);
    assert!(at.lab.offloaded("") > 0 && at.lab.of_rules("n_packets")[0] > 300);
    eventually("the keeper ends", || (!path.exists()).then_some(()));
    let log = at.log();
    for text in [
        "left the offloaded flows of 2 devices in force for 60 s",
        "left 2 connections",
        "took over the offloaded flows of 2 devices",
        "took over 2 connections",
        "the offloaded flows of the process before end: rules have changed",
    ] {
        assert!(log.contains(text), "{text}: {log}");
    }
}

#[test]
fn flows_that_are_left_end_with_their_time_and_where_no_rules_are_to_come() {
    let Some(mut lab) = Lab::new() else { return };
    let received = |lab: &Lab| ping(&lab.inside, "10.9.0.2", 5).received;
    lab.switch
        .vsctl("set bridge br0 fail-mode=standalone -- set open_vswitch . other_config:offload-hand-over=2");
    lab.ofctl(&["add-flow", "br0", "actions=normal"]);
    eventually("pings are offloaded", || {
        (received(&lab) == 5 && lab.offloaded("") > 1).then_some(())
    });
    lab.switch.daemon().terminate();
    lab.switch.kill();
    assert_eq!(received(&lab), 5, "nobody is there, and flows are in force");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(received(&lab), 0, "their time is over");
    lab.switch.boot();
    lab.switch.vsctl("set open_vswitch . other_config:offload-hand-over=60");
    eventually("pings are offloaded again", || {
        (received(&lab) == 5 && lab.offloaded("") > 1).then_some(())
    });

    // A restart that pings do not notice.
    let Lab { switch, inside, .. } = &mut lab;
    let words = ["ping", "-q", "-n", "-i", "0.02", "-c", "250", "-W", "1", "10.9.0.2"];
    let text = std::thread::scope(|scope| {
        let pings = scope.spawn(|| inside.run(&words));
        std::thread::sleep(Duration::from_millis(500));
        switch.daemon().terminate();
        switch.kill();
        std::thread::sleep(Duration::from_millis(500));
        switch.boot();
        switch.vsctl("set bridge br0 external_ids:restarted=true");
        pings.join().unwrap()
    });
    assert!(text.contains(" 0% packet loss"), "{text}");
    let log = lab.switch.sandbox.read("switch.log");
    assert!(
        log.contains("process before end: the configuration is applied"),
        "{log}"
    );

    // Not asked for.
    lab.switch.vsctl("remove open_vswitch . other_config offload-hand-over");
    lab.switch.daemon().terminate();
    lab.switch.kill();
    assert_eq!(received(&lab), 0);
}
