//! The laboratory's traffic, between hosts of a testbed that a cable joins.

use lab::bed::{self, Bed};
use lab::topology::Topology;
use lab::traffic::observe::{self, Broadcasts};
use lab::traffic::{self, Ends, Flow};
use std::path::Path;
use testkit::skip;

/// Two hosts and a cable.
fn pair(rate: &str) -> (Bed, Ends) {
    bed::use_program(Path::new(env!("CARGO_BIN_EXE_oxvs-lab")));
    let topology: Topology = toml::from_str(&format!(
        "host = [
            {{ name = 'PC1', address = [{{ ip = '10.9.0.1', prefix = 24 }}] }},
            {{ name = 'PC2', address = [{{ ip = '10.9.0.2', prefix = 24 }}] }},
        ]
        link = [{{ a = {{ at = 'PC1' }}, b = {{ at = 'PC2' }} {rate} }}]"
    ))
    .unwrap();
    let bed = Bed::build(&topology).unwrap();
    let ends = Ends::of(&bed, &topology).unwrap();
    (bed, ends)
}

fn flows(text: &str) -> Vec<Flow> {
    #[derive(serde::Deserialize)]
    struct File {
        flow: Vec<Flow>,
    }
    toml::from_str::<File>(text).unwrap().flow
}

#[test]
fn every_kind_of_traffic_is_measured_and_every_datagram_accounted_for() {
    skip!(unless root, "ip", "tc", "ethtool");
    let (bed, ends) = pair("");
    let measured = flows(
        "flow = [
            { name = 'rtt', from = 'PC1', to = 'PC2', test = 'rtt', payload = 100 },
            { name = 'rated', from = 'PC2', to = 'PC1', test = 'rtt', payload = 1440, interval = 2000, exchanges = 20 },
            { name = 'cbr', from = 'PC1', to = 'PC2', test = 'cbr', payload = 500, rate = 2_500_000 },
            { name = 'back', from = 'PC2', to = 'PC1', test = 'cbr', payload = 100, rate = 400_000, buffer = 400_000 },
            { name = 'new', from = 'PC1', to = 'PC2', test = 'new_flows', payload = 64, rate = 1000 },
            { name = 'stream', from = 'PC1', to = 'PC2', test = 'tcp_stream', streams = 2, buffer = 32768, message = 256 },
            { name = 'udp', from = 'PC1', to = 'PC2', test = 'udp_stream', streams = 2, message = 10000 },
            { name = 'rr', from = 'PC1', to = 'PC2', test = 'tcp_rr' },
            { name = 'crr', from = 'PC1', to = 'PC2', test = 'tcp_crr', streams = 2 },
            { name = 'udp_rr', from = 'PC2', to = 'PC1', test = 'udp_rr' },
        ]",
    );
    let background =
        flows("flow = [{ name = 'bg', from = 'PC2', to = 'PC1', test = 'cbr', payload = 500, rate = 1_000_000 }]");
    // Twice, because the remains of the first must not disturb the second.
    for _ in 0..2 {
        let result = traffic::run(&ends, &background, &measured, 0.5, 0.1).unwrap();
        let metric = |name: &str| {
            *result
                .metrics
                .get(name)
                .unwrap_or_else(|| panic!("{name}: {result:#?}"))
        };
        for name in [
            "rtt.rtt",
            "rated.rtt",
            "cbr.rate",
            "back.rate",
            "new.rate",
            "stream.throughput",
            "udp.throughput",
        ] {
            assert!(metric(name) > 0.0, "{name}");
        }
        for name in ["rr.latency", "crr.rate", "udp_rr.rate", "cbr.jitter", "back.share"] {
            assert!(metric(name) > 0.0, "{name}");
        }
        for name in ["stream.lost", "udp.lost", "rr.lost", "crr.lost", "udp_rr.lost"] {
            assert_eq!(metric(name), 0.0, "{name}: {:?}", result.remarks);
        }
        assert!(metric("rated.exchanges") <= 20.0);
        for name in ["rtt.rtt", "cbr.jitter", "cbr.pacing", "rr.latency"] {
            assert!(result.distributions[name].count > 0, "{name}");
        }
        let account = |flow: &str| result.accounts.iter().find(|account| account.flow == flow).unwrap();
        let dropped = |host: &str| {
            let at = result
                .losses
                .iter()
                .filter(|loss| loss.cause == "receiver" && loss.place == host);
            at.map(|loss| loss.packets).sum::<u64>()
        };
        // A bare cable loses nothing except by a full socket or the kernel's full backlog.
        for flow in ["cbr", "back", "new", "bg"] {
            let account = account(flow);
            assert!(
                account.received > 0 && account.received <= account.sent,
                "{account:?} {:?}",
                result.losses
            );
        }
        assert!(account("bg").sent >= account("bg").received);
        let kernel = bed.losses().unwrap();
        for host in ["PC1", "PC2"] {
            let known: u64 = kernel
                .iter()
                .filter(|loss| loss.place == host)
                .map(|loss| loss.packets)
                .sum();
            assert!(dropped(host) <= known, "{host}: {kernel:?}");
        }
    }
}

#[test]
fn a_cable_bounds_what_is_received_and_its_queue_says_what_it_lost() {
    skip!(unless root, "ip", "tc", "ethtool");
    let (bed, ends) = pair(", rate = 10_000_000");
    let measured =
        flows("flow = [{ name = 'cbr', from = 'PC1', to = 'PC2', test = 'cbr', payload = 1000, rate = 14_000_000 }]");
    let result = traffic::run(&ends, &[], &measured, 1.0, 0.2).unwrap();
    let share = result.metrics["cbr.share"];
    assert!(share < 0.95, "{result:?}");
    let account = &result.accounts[0];
    let losses = bed.losses().unwrap();
    // Other tests' packets may be among those that wait for ARP.
    let own = losses.iter().filter(|loss| loss.cause != "arp");
    let known: u64 = own.map(|loss| loss.packets).sum();
    assert_eq!(account.sent - account.received, known, "{losses:?}");
}

#[test]
fn hosts_tell_whom_they_reach_what_they_hear_and_what_a_capture_counts() {
    skip!(unless root, "ip", "tc", "ethtool");
    let (_bed, ends) = pair("");
    let result = observe::reachability(&ends, "ping", &[vec!["PC1".into(), "PC2".into()]]).unwrap();
    let metric = |name: &str| result.metrics[name];
    assert_eq!(
        (
            metric("ping.PC1-PC2"),
            metric("ping.PC2-PC1"),
            metric("ping.missing"),
            metric("ping.leaks")
        ),
        (1.0, 1.0, 0.0, 0.0)
    );
    assert!(metric("ping.heard.PC1-PC2") >= 1.0, "{result:?}");
    // The same, but they should not.
    let result = observe::reachability(&ends, "ping", &[vec!["PC1".into()], vec!["PC2".into()]]).unwrap();
    assert!(result.metrics["ping.leaks"] >= 2.0, "{result:?}");

    let result = observe::idle(&ends, "idle", 0.2).unwrap();
    assert_eq!(result.metrics["idle.frames"], 0.0, "there is no switch: {result:?}");

    let cbr =
        flows("flow = [{ name = 'cbr', from = 'PC1', to = 'PC2', test = 'cbr', payload = 500, rate = 4_000_000 }]");
    let result = observe::check(&ends, "check", &cbr[0], 0.5).unwrap();
    assert!((0.2..5.0).contains(&result.metrics["check.ratio"]), "{result:?}");
    let tcp = flows("flow = [{ name = 'tcp', from = 'PC1', to = 'PC2', test = 'tcp_stream' }]");
    let result = observe::check(&ends, "check", &tcp[0], 0.5).unwrap();
    assert!((0.2..5.0).contains(&result.metrics["check.ratio"]), "{result:?}");
}

#[test]
fn broadcasts_are_heard_by_everybody_else() {
    skip!(unless root, "ip", "tc", "ethtool");
    let (_bed, ends) = pair("");
    let broadcasts = Broadcasts {
        from: "PC1",
        rate: 100,
        payload: 64,
    };
    let topology = toml::from_str("link = [{ a = { at = 'PC1' }, b = { at = 'PC2' } }]").unwrap();
    let result = observe::broadcast(&ends, &topology, "bc", broadcasts, 0.3, &|| 0.0).unwrap();
    let metric = |name: &str| result.metrics[name];
    assert!(metric("bc.sent") > 0.0);
    assert_eq!((metric("bc.share"), metric("bc.leaks")), (1.0, 0.0));
}

#[test]
fn a_second_witness_sees_the_same_link() {
    skip!(unless root, "ip", "tc", "ethtool", "iperf3");
    let (_bed, ends) = pair(", rate = 10_000_000");
    let udp =
        flows("flow = [{ name = 'cbr', from = 'PC1', to = 'PC2', test = 'cbr', payload = 500, rate = 1_000_000 }]");
    let tcp = flows("flow = [{ name = 'tcp', from = 'PC1', to = 'PC2', test = 'tcp_stream' }]");
    for (flow, metric) in [(&udp[0], "cbr.rate"), (&tcp[0], "tcp.total")] {
        let result = traffic::run(&ends, &[], std::slice::from_ref(flow), 1.0, 0.0).unwrap();
        let tool = result.metrics[metric];
        let result = observe::witness(&ends, "witness", flow, 1, tool).unwrap();
        let (difference, iperf3) = (result.metrics["witness.difference"], result.metrics["witness.iperf3"]);
        assert!((difference - (tool / iperf3 - 1.0)).abs() < 1e-9);
        assert!((-0.8..4.0).contains(&difference), "{result:?}");
        assert_eq!(result.metrics["witness.tool"], tool);
    }
}

#[test]
fn hosts_that_are_not_there_are_an_error_with_their_names() {
    skip!(unless root, "ip", "tc", "ethtool");
    let (_bed, ends) = pair("");
    let strange = flows("flow = [{ name = 'x', from = 'PC1', to = 'PC9', test = 'cbr', payload = 100, rate = 8000 }]");
    let error = traffic::run(&ends, &[], &strange, 0.1, 0.0).unwrap_err();
    assert!(error.to_string().contains("PC9"), "{error}");
}
