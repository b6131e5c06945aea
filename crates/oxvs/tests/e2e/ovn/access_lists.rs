//! Access lists beyond allow, drop and reject: logs, labels, sets of addresses, stateless entries,
//! and ICMP errors of a connection.

use super::{Chassis, Network, needs_ovn};
use std::net::UdpSocket;
use std::time::Duration;
use testkit::{Netns, eventually, ping};

/// The chassis of `pb`, where the entries for what goes to it are.
fn place(network: &Network) -> &Chassis {
    network.chassis.last().unwrap()
}

/// What a UDP socket of `from` learns about a datagram to that port: nothing where it is answered.
fn refusal(from: &Netns, to: &str) -> Option<std::io::ErrorKind> {
    from.enter(|| {
        let socket = UdpSocket::bind("[::]:0")
            .or_else(|_| UdpSocket::bind("0.0.0.0:0"))
            .unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        socket.connect(to).unwrap();
        socket.send(b"anyone?").unwrap();
        socket.recv(&mut [0; 10]).err().map(|error| error.kind())
    })
}

#[test]
fn entries_log_label_and_let_errors_of_connections_in() {
    needs_ovn!();
    let network = Network::new(1);
    let web = "outport==\"pb\" && tcp.dst==8080";
    let words = [
        "--log",
        "--severity=info",
        "--name=web",
        "--label=4660",
        "acl-add",
        "ls0",
        "to-lport",
        "1002",
    ];
    network.central.words(&[&words[..], &[web, "allow-related"]].concat());
    let words = [
        "--log",
        "--severity=alert",
        "--name=others",
        "acl-add",
        "ls0",
        "to-lport",
        "1001",
    ];
    network
        .central
        .words(&[&words[..], &["outport==\"pb\" && tcp", "drop"]].concat());
    network.central.sync();
    assert_eq!(network.page(&network.a, "10.1.0.12:8080"), "200");
    assert_eq!(network.page(&network.a, "10.1.0.12:8081"), "000");
    for logged in [
        "name=\"web\", verdict=allow, severity=info, direction=to-lport: tcp,",
        "name=\"others\", verdict=drop, severity=alert, direction=to-lport: tcp,",
    ] {
        eventually(logged, || place(&network).log().contains(logged).then_some(()));
    }
    let shown = place(&network).switch.appctl(&["dpctl/dump-conntrack"]);
    assert!(shown.contains("labels=0x1234000000000000000000000000"), "{shown}");
    network.configure("acl-del ls0");

    // Only what belongs to connections of `pa` comes in: also the error that no one listens.
    network.acl("to-lport", "1001", "outport==\"pa\" && ip", "drop");
    network.acl("from-lport", "1002", "inport==\"pa\" && ip", "allow-related");
    network.central.sync();
    assert_eq!(
        refusal(&network.a, "10.1.0.12:9"),
        Some(std::io::ErrorKind::ConnectionRefused)
    );
    assert_eq!(ping(&network.b, "10.1.0.11", 1).received, 0);
    network.reaches(&network.a, "10.1.0.12");
    network.configure("acl-del ls0");

    // Without state both ways need an entry, and no connection is kept.
    network.chassis[0].switch.appctl(&["dpctl/flush-conntrack"]);
    network.acl(
        "from-lport",
        "1002",
        "inport==\"pa\" && ip4.dst==10.1.0.12",
        "allow-stateless",
    );
    network.acl(
        "to-lport",
        "1002",
        "outport==\"pb\" && ip4.src==10.1.0.11",
        "allow-stateless",
    );
    network.acl("to-lport", "1001", "outport==\"pa\" && ip", "drop");
    network.central.sync();
    assert_eq!(ping(&network.a, "10.1.0.12", 1).received, 0);
    network.acl(
        "to-lport",
        "1002",
        "outport==\"pa\" && ip4.src==10.1.0.12",
        "allow-stateless",
    );
    network.central.sync();
    network.reaches(&network.a, "10.1.0.12");
    network.has_no_errors();
}

#[test]
fn senders_of_refused_datagrams_learn_of_it() {
    needs_ovn!();
    let network = Network::new(1);
    network.with_ipv6();
    network.set_ipv6();
    let servers = [(&network.a, "10.1.0.12:8080"), (&network.c, "[fd01::12]:8080")];
    for (host, server) in servers {
        eventually(server, || refusal(host, server).is_none().then_some(()));
    }
    network.acl("to-lport", "1002", "outport==\"pb\" && udp.dst==8080", "reject");
    network.central.sync();
    for (host, server) in servers {
        assert_eq!(
            refusal(host, server),
            Some(std::io::ErrorKind::ConnectionRefused),
            "{server}"
        );
    }
    network.has_counted("reject {");
    network.has_no_errors();
}

#[test]
fn logs_of_entries_have_the_rate_of_their_meter() {
    needs_ovn!();
    let network = Network::new(1);
    network.central.nb("meter-add few drop 2 pktps 2");
    let logged = |name: &str, more: &[&str]| {
        let name = format!("--name={name}");
        let words = [&["--log", &name][..], more].concat();
        let entry = ["acl-add", "ls0", "to-lport", "1001", "outport==\"pb\" && udp", "drop"];
        network.central.words(&[&words[..], &entry].concat());
        network.central.sync();
        network.a.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for _ in 0..60 {
                socket.send_to(b"hello", "10.1.0.12:9").unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        network.central.nb("acl-del ls0");
        name
    };
    let lines = |name: &str| {
        let text = format!("name=\"{}\"", name.trim_start_matches("--name="));
        place(&network)
            .log()
            .lines()
            .filter(|line| line.contains(&text))
            .count()
    };
    let all = logged("all", &[]);
    eventually("every packet is logged", || (lines(&all) == 60).then_some(()));
    let few = logged("few", &["--meter=few"]);
    eventually("some are logged", || (lines(&few) > 0).then_some(()));
    assert!(lines(&few) < 20, "{}", lines(&few));
    network.has_no_errors();
}

#[test]
fn sets_of_addresses_are_conjunctions_and_follow_their_members() {
    needs_ovn!();
    let network = Network::new(1);
    network
        .central
        .nb("create address_set name=clients addresses=10.1.0.11,10.1.0.91,10.1.0.92");
    network
        .central
        .nb("create address_set name=servers addresses=10.1.0.12,10.1.0.93");
    network.acl("to-lport", "1001", "outport==\"pb\" && ip", "drop");
    network.acl("to-lport", "1002", "ip4.src==$clients && ip4.dst==$servers", "allow");
    network.central.sync();
    let shown = network.chassis[0]
        .switch
        .tool("ovs-ofctl", &["-O", "OpenFlow15", "dump-flows", "br-int"]);
    assert!(shown.expect_ok().contains("conjunction("));
    network.reaches(&network.a, "10.1.0.12");
    assert_eq!(ping(&network.c, "10.1.0.12", 1).received, 0);
    network.configure("add address_set clients addresses 10.2.0.13");
    network.reaches(&network.c, "10.1.0.12");
    network.configure("remove address_set clients addresses 10.1.0.11");
    assert_eq!(ping(&network.a, "10.1.0.12", 1).received, 0);
    network.has_no_errors();
}
