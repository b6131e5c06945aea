//! The laboratory's controller with a real switch.

use crate::fixture::{dummy, dummy_bridge};
use lab::controller::{self, Connection, Conversation, Endpoint, Learning, Policy, Shape, Transport};
use lab::controller::{MASKS, conversation_rules};
use lab::scenario::{Matching, Rewrite};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use testkit::{Vswitch, eventually};

fn connection(switch: &Vswitch) -> Connection {
    let stream = UnixStream::connect(switch.sandbox.path("br0.mgmt")).expect("the bridge's socket");
    Connection::open(stream).expect("a connection")
}

fn ofctl(switch: &Vswitch, args: &[&str]) -> String {
    switch.tool("ovs-ofctl", args).expect_ok()
}

fn rules(switch: &Vswitch) -> usize {
    let dump = ofctl(switch, &["dump-flows", "br0"]);
    dump.lines().filter(|line| line.contains("actions=")).count()
}

#[test]
fn a_table_takes_rules_until_it_is_full_and_answers_then() {
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    switch.vsctl("-- --id=@t create Flow_Table flow_limit=7000 -- set Bridge br0 flow_tables:0=@t");
    ofctl(&switch, &["del-flows", "br0"]);
    let mut connection = connection(&switch);
    for shape in [Shape::Exact, Shape::Wildcard(1), Shape::Wildcard(MASKS)] {
        let filled = controller::fill(&mut connection, shape, 20_000).unwrap();
        assert_eq!((filled.rules, filled.full), (7000, true));
        connection.echo().unwrap();
        ofctl(&switch, &["del-flows", "br0"]);
    }
    let filled = controller::fill(&mut connection, Shape::Wildcard(1), 6000).unwrap();
    assert_eq!((filled.rules, filled.full, rules(&switch)), (6000, false, 6000));
}

#[test]
fn rules_and_statistics_have_their_rates_and_delays() {
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    ofctl(&switch, &["del-flows", "br0"]);
    let mut connection = connection(&switch);
    let measured = controller::rates(&mut connection, 1000).unwrap();
    let names: Vec<&str> = measured.metrics.keys().map(String::as_str).collect();
    assert_eq!(names, ["delete", "install", "modify"]);
    assert!(measured.metrics.values().all(|rate| *rate > 0.0));
    assert_eq!(rules(&switch), 0);
    let (every, time) = (Duration::from_millis(1), Duration::from_millis(50));
    for measured in [
        controller::rule_statistics(&mut connection, every, time),
        controller::port_statistics(&mut connection, every, time),
        controller::barrier(&mut connection, time),
    ] {
        let measured = measured.unwrap();
        assert!(measured.metrics["delay"] > 0.0 && measured.distributions["delay"].count > 0);
    }
    assert_eq!(rules(&switch), 0, "the barrier's rules are taken out again");
}

#[test]
fn rules_of_a_conversation_forward_it_and_change_it_there_and_back() {
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let port = |name: &str| {
        switch
            .vsctl(&format!("get Interface {name} ofport"))
            .trim()
            .parse()
            .unwrap()
    };
    let end = |port: u32, last: u8| Endpoint {
        port,
        mac: [2, 0, 0, 0, 0, last],
        ip: [10, 0, 0, last].into(),
        transport_port: 1000 * u16::from(last),
    };
    let (first, second): (u32, u32) = (port("p1"), port("p2"));
    let conversation = Conversation {
        transport: Transport::Udp,
        from: end(first, 1),
        to: end(second, 2),
    };
    let mut connection = connection(&switch);
    let packet = |ports: (u32, u32), ips: (&str, &str), transport: (u16, u16)| {
        let [from, to] = [ports.0, ports.1].map(|p| if p == first { 1 } else { 2 });
        format!(
            "in_port={},dl_src=02:00:00:00:00:0{from},dl_dst=02:00:00:00:00:0{to},udp,nw_src={},nw_dst={},nw_tos=0,udp_src={},udp_dst={}",
            ports.0, ips.0, ips.1, transport.0, transport.1
        )
    };
    let matchings = [
        Matching::Port,
        Matching::Mac,
        Matching::Ip,
        Matching::UdpPort,
        Matching::Exact,
    ];
    let alone = matchings.map(|matching| (matching, Rewrite::None));
    let changes = [
        (Rewrite::Ip, "set(ipv4(src=10.0.0.65))", "set(ipv4(dst=10.0.0.1))"),
        (Rewrite::UdpPort, "set(udp(src=1001))", "set(udp(dst=1000))"),
    ];
    for (matching, rewrite) in alone
        .into_iter()
        .chain(changes.map(|(rewrite, ..)| (Matching::Exact, rewrite)))
    {
        ofctl(&switch, &["del-flows", "br0"]);
        for rule in conversation_rules(conversation, matching, rewrite) {
            connection.rule(openflow::model::FlowCommand::Add, &rule).unwrap();
        }
        assert!(connection.barrier().unwrap().is_empty());
        let client = if rewrite == Rewrite::Ip {
            "10.0.0.65"
        } else {
            "10.0.0.1"
        };
        let client_port = if rewrite == Rewrite::UdpPort { 1001 } else { 1000 };
        let ways = [
            packet((first, second), ("10.0.0.1", "10.0.0.2"), (1000, 2000)),
            packet((second, first), ("10.0.0.2", client), (2000, client_port)),
        ];
        let change = changes.iter().find(|(changing, ..)| *changing == rewrite);
        for (at, way) in ways.iter().enumerate() {
            let trace = switch.appctl(&["ofproto/trace", "br0", way]);
            let actions = trace.lines().last().unwrap_or_default().to_owned();
            assert!(!actions.contains("drop"), "{matching:?} {rewrite:?}: {trace}");
            if let Some((_, there, back)) = change {
                assert!(
                    actions.contains([there, back][at]),
                    "{matching:?} {rewrite:?}: {actions}"
                );
            }
        }
    }
}

#[test]
fn a_learning_controller_is_asked_once_for_each_direction() {
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2"]);
    let controller = Learning::start(Policy::Learn).unwrap();
    switch.vsctl("set-fail-mode br0 secure");
    switch.vsctl(&format!("set-controller br0 tcp:{}", controller.address()));
    controller.await_switches(1, Duration::from_secs(20)).unwrap();
    let send = |port: &str, from: u8, to: u8| {
        let packet = testkit::Packet::new([2, 0, 0, 0, 0, from], [2, 0, 0, 0, 0, to])
            .ipv4([10, 0, 0, from].into(), [10, 0, 0, to].into())
            .udp(1, 2, b"")
            .bytes();
        let hex: String = packet.iter().map(|byte| format!("{byte:02x}")).collect();
        switch.appctl(&["netdev-dummy/receive", port, &hex]);
    };
    let asked = |number: u64| {
        eventually("the controller is asked", || {
            (controller.packet_ins() >= number).then_some(())
        });
        // More would have arrived at once.
        assert_eq!(controller.packet_ins(), number);
    };
    send("p1", 1, 2);
    asked(1);
    send("p2", 2, 1);
    asked(2);
    eventually("the way back has its rule", || {
        ofctl(&switch, &["dump-flows", "br0"])
            .contains("dl_src=02:00:00:00:00:02")
            .then_some(())
    });
    send("p1", 1, 2);
    asked(3);
    eventually("the way there has its rule", || {
        ofctl(&switch, &["dump-flows", "br0"])
            .contains("dl_src=02:00:00:00:00:01")
            .then_some(())
    });
    for _ in 0..5 {
        send("p1", 1, 2);
        send("p2", 2, 1);
    }
    asked(3);
}
