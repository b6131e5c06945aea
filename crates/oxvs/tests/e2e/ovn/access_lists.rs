//! Access lists beyond allow, drop and reject: logs, labels, sets of addresses, stateless entries,
//! and ICMP errors of a connection.

use super::{Network, needs_ovn};
use std::net::UdpSocket;
use std::time::Duration;
use testkit::{Netns, eventually, ping};

/// The connections that the switch of the first chassis has.
fn connections(network: &Network) -> String {
    network.chassis[0].switch.appctl(&["dpctl/dump-conntrack"])
}

/// What a UDP socket of `from` learns about a datagram to that port of `pb`.
fn refusal(from: &Netns, port: u16) -> Option<std::io::ErrorKind> {
    from.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        socket.connect(("10.1.0.12", port)).unwrap();
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
        eventually(logged, || network.chassis[0].log().contains(logged).then_some(()));
    }
    let shown = connections(&network);
    assert!(shown.contains("labels=0x1234000000000000000000000000"), "{shown}");
    network.configure("acl-del ls0");

    // Only what belongs to connections of `pa` comes in: also the error that no one listens.
    network.acl("to-lport", "1001", "outport==\"pa\" && ip", "drop");
    network.acl("from-lport", "1002", "inport==\"pa\" && ip", "allow-related");
    network.central.sync();
    assert_eq!(refusal(&network.a, 9), Some(std::io::ErrorKind::ConnectionRefused));
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
