//! Load balancers beyond TCP with hairpin: UDP, shares of servers, fields of the hash, affinity,
//! health checks, none left, flushes.

use super::{Network, needs_ovn, tcp_answer};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;
use testkit::{Netns, eventually};

/// Which server answers each of so many new sockets of UDP.
fn udp_answers(from: &Netns, server: &str, number: u32) -> BTreeMap<String, u32> {
    let mut answers = BTreeMap::new();
    from.enter(|| {
        for _ in 0..number {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            socket.connect(server).unwrap();
            socket.send(b"who?").unwrap();
            let mut answer = [0; 20];
            let len = socket.recv(&mut answer).unwrap_or(0);
            *answers
                .entry(String::from_utf8_lossy(&answer[..len]).into_owned())
                .or_default() += 1;
        }
    });
    answers
}

/// Which server answers each of so many connections of TCP.
fn tcp_answers(from: &Netns, server: &str, number: u32) -> BTreeMap<String, u32> {
    let mut answers = BTreeMap::new();
    for _ in 0..number {
        *answers.entry(tcp_answer(from, server.parse().unwrap())).or_default() += 1;
    }
    answers
}

#[track_caller]
fn are(answers: &BTreeMap<String, u32>, servers: &[&str]) {
    let keys: Vec<&str> = answers.keys().map(String::as_str).collect();
    assert_eq!(keys, servers, "{answers:?}");
}

const BOTH: &str = "10.1.0.12:8080,10.1.0.12:8081";

#[test]
fn new_connections_are_shared_by_the_servers_as_options_say() {
    needs_ovn!();
    let network = Network::new(1);
    network.configure(&format!(
        "lb-add lb0 10.9.9.9:80 {BOTH} tcp -- ls-lb-add ls0 lb0 -- lb-add lb1 10.9.9.9:53 {BOTH} udp \
         -- ls-lb-add ls0 lb1"
    ));
    are(&udp_answers(&network.a, "10.9.9.9:53", 30), &["8080", "8081"]);
    are(&tcp_answers(&network.a, "10.9.9.9:80", 30), &["8080", "8081"]);
    // The hash of the addresses alone: each client has its server.
    network.configure("set load_balancer lb0 selection_fields=ip_src,ip_dst");
    let answers = tcp_answers(&network.a, "10.9.9.9:80", 10);
    assert_eq!(answers.len(), 1, "{answers:?}");
    network.configure(&format!(
        "lb-add lb2 10.9.9.6:80 {BOTH} tcp -- set load_balancer lb2 options:affinity_timeout=60 -- ls-lb-add ls0 lb2"
    ));
    // OVN drops the first packet of a client, on Open vSwitch too: it only learns from it.
    let server = eventually("a server answers", || {
        Some(tcp_answer(&network.a, "10.9.9.6:80".parse().unwrap())).filter(|answer| !answer.is_empty())
    });
    are(&tcp_answers(&network.a, "10.9.9.6:80", 10), &[&server]);
    network.has_no_errors();
}

#[test]
fn servers_that_fail_or_go_get_no_connections() {
    needs_ovn!();
    let mut network = Network::new(1);
    network.configure(&format!("lb-add lb0 10.9.9.9:80 {BOTH} tcp -- ls-lb-add ls0 lb0"));
    network.central.words(&[
        "set",
        "load_balancer",
        "lb0",
        "ip_port_mappings:10.1.0.12=\"pb:10.1.0.254\"",
    ]);
    network.central.words(&[
        "--id=@check",
        "create",
        "load_balancer_health_check",
        "vip=\"10.9.9.9:80\"",
        "options:interval=1",
        "options:timeout=1",
        "options:success_count=1",
        "options:failure_count=1",
        "--",
        "add",
        "load_balancer",
        "lb0",
        "health_check",
        "@check",
    ]);
    let states = || {
        let shown = network.central.tool(
            "ovn-sbctl",
            "sb",
            &["--bare", "--columns=status", "list", "service_monitor"],
        );
        let mut states: Vec<String> = shown.expect_ok().split_whitespace().map(str::to_owned).collect();
        states.sort();
        states
    };
    eventually("both servers are healthy", || {
        (states() == ["online", "online"]).then_some(())
    });
    are(&tcp_answers(&network.a, "10.9.9.9:80", 30), &["8080", "8081"]);
    network.servers.truncate(1);
    eventually("one is not", || (states() == ["offline", "online"]).then_some(()));
    network.central.sync();
    are(&tcp_answers(&network.a, "10.9.9.9:80", 10), &["8080"]);

    // Without any server clients are refused.
    network.configure("lb-del lb0 -- lb-add lb1 10.9.9.8:80 \"\" tcp -- set load_balancer lb1 options:reject=true -- ls-lb-add ls0 lb1");
    let words = ["curl", "-s", "-m", "5", "http://10.9.9.8/"];
    assert_eq!(network.a.try_run(&words, &[]).status, Some(7), "refused");

    // Connections to a server that is taken out are forgotten.
    network.configure("lb-del lb1 -- lb-add lb2 10.9.9.7:53 10.1.0.12:8080 udp -- set load_balancer lb2 options:ct_flush=true -- ls-lb-add ls0 lb2");
    are(&udp_answers(&network.a, "10.9.9.7:53", 3), &["8080"]);
    let connections = || {
        let shown = network.chassis[0].switch.appctl(&["dpctl/dump-conntrack"]);
        shown.lines().filter(|line| line.contains("10.9.9.7")).count()
    };
    assert_eq!(connections(), 3);
    network.configure("lb-del lb2");
    eventually("the connections are flushed", || (connections() == 0).then_some(()));
    network.has_no_errors();
}
