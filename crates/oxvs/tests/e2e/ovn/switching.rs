//! Logical switches: floods, groups of IGMP and MLD, ports that move, mirrors, samples of drops.

use super::{Network, allow_ipv6, needs_ovn};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use testkit::{Capture, Netns, eventually, ping};

/// Sends so many datagrams to a group or to all.
fn send(from: &Netns, to: &str, number: usize) {
    from.enter(|| {
        let own = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(own).unwrap();
        socket.set_broadcast(true).unwrap();
        for _ in 0..number {
            socket.send_to(b"all of you", to).unwrap();
        }
    });
}

/// How many of these datagrams each host gets.
fn arrived(from: &Netns, to: &[&Netns], address: &str) -> Vec<usize> {
    let host = address.parse::<SocketAddr>().unwrap().ip();
    let filter = format!("udp and dst host {host}");
    let start = |host: &&Netns| Capture::start(host, "eth0", &filter);
    let captures: Vec<Capture> = to.iter().map(start).collect();
    send(from, address, 5);
    captures.into_iter().map(|capture| capture.finish().len()).collect()
}

#[test]
fn floods_reach_the_hosts_of_a_switch_and_groups_their_members() {
    needs_ovn!();
    let network = Network::new(2);
    let near = network.chassis[0].host("pd", "50:54:00:00:00:04", "10.1.0.14/24", "10.1.0.1");
    network
        .central
        .nb("lsp-add ls0 pd -- lsp-set-addresses pd \"50:54:00:00:00:04 10.1.0.14\"");
    network.wait_for("pd");
    network.central.sync();
    let hosts = [&network.b, &near, &network.c];
    assert_eq!(arrived(&network.a, &hosts, "10.1.0.255:9"), [5, 5, 0]);
    // Nobody's address: to the ports that may have any.
    network
        .a
        .ip("neigh replace 10.1.0.77 lladdr 50:54:00:00:00:77 dev eth0");
    assert_eq!(arrived(&network.a, &hosts, "10.1.0.77:9"), [0, 0, 0]);
    network.configure("lsp-set-addresses pb unknown");
    assert_eq!(arrived(&network.a, &hosts, "10.1.0.77:9"), [5, 0, 0]);

    network.configure("set logical_switch ls0 other_config:mcast_snoop=true");
    network.a.ip("route add 239.0.0.0/8 dev eth0");
    assert_eq!(arrived(&network.a, &hosts, "239.1.1.1:9"), [0, 0, 0]);
    let socket = network.b.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
        let (group, own) = (Ipv4Addr::new(239, 1, 1, 1), Ipv4Addr::new(10, 1, 0, 12));
        socket.join_multicast_v4(&group, &own).unwrap();
        socket
    });
    only_members_get(&network, &hosts, "239.1.1.1:9");
    drop(socket);
    network.has_no_errors();
}

/// Waits until datagrams to a group come to the first host and to no other.
#[track_caller]
fn only_members_get(network: &Network, hosts: &[&Netns], group: &str) {
    let address = group.parse::<SocketAddr>().unwrap().ip().to_string();
    eventually("the group has a member", || {
        let words = ["--bare", "--columns=address", "list", "igmp_group"];
        let groups = network.central.tool("ovn-sbctl", "sb", &words).expect_ok();
        groups.contains(&address).then_some(())
    });
    network.central.sync();
    eventually("its datagrams come", || {
        (arrived(&network.a, hosts, group) == [5, 0, 0]).then_some(())
    });
}

#[test]
fn groups_of_ipv6_reach_their_members() {
    needs_ovn!();
    let network = Network::new(2);
    network.with_ipv6();
    let near = network.chassis[0].host("pd", "50:54:00:00:00:04", "10.1.0.14/24", "10.1.0.1");
    network.central.nb("lsp-add ls0 pd");
    let addresses = "50:54:00:00:00:04 10.1.0.14 fd01::14";
    network.central.words(&["lsp-set-addresses", "pd", addresses]);
    network.wait_for("pd");
    network.configure("set logical_switch ls0 other_config:mcast_snoop=true");
    network.set_ipv6();
    allow_ipv6(&network.a, "eth0");
    network.a.address("eth0", "fd01::11/64");
    let hosts = [&network.b, &near, &network.c];
    assert_eq!(arrived(&network.a, &hosts, "[ff0e::1234]:9"), [0, 0, 0]);
    let socket = network.b.enter(|| {
        let socket = UdpSocket::bind("[::]:9").unwrap();
        let group = Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 0x1234);
        socket.join_multicast_v6(&group, 0).unwrap();
        socket
    });
    only_members_get(&network, &hosts, "[ff0e::1234]:9");
    drop(socket);
    network.has_no_errors();
}

#[test]
fn a_port_that_moves_to_another_chassis_is_found_there() {
    needs_ovn!();
    let mut network = Network::new(2);
    network.reaches(&network.a, "10.1.0.12");
    network.chassis[1].switch.vsctl("del-port br-int vpb");
    network.central.nb("wait-until logical_switch_port pb up=false");
    network.central.sync();
    assert_eq!(ping(&network.a, "10.1.0.12", 1).received, 0);
    network.servers.clear();
    network.b = network.chassis[0].host("pb", "50:54:00:00:00:02", "10.1.0.12/24", "10.1.0.1");
    network.wait_for("pb");
    network.central.sync();
    network.reaches(&network.a, "10.1.0.12");
    network.reaches(&network.b, "10.2.0.13");
    network.has_no_errors();
}

#[test]
fn a_mirror_sends_copies_through_gre_and_erspan() {
    needs_ovn!();
    let network = Network::new(2);
    for (kind, protocol, headers) in [("gre", [0x65, 0x58], 42), ("erspan", [0x88, 0xbe], 50)] {
        let capture = Capture::start(&network.chassis[1].ns, "under", "proto 47");
        network.configure(&format!(
            "mirror-add m0 {kind} 7 from-lport 172.31.9.2 -- lsp-attach-mirror pa m0"
        ));
        network.reaches(&network.a, "10.1.0.12");
        // In the packet of GRE (RFC 2784) the request of the host.
        capture.wait_for("a copy", |frame| {
            let key = match kind {
                "gre" => u32::from_be_bytes(frame[38..42].try_into().unwrap()),
                // The session of ERSPAN type II.
                _ => u32::from(frame[44] & 3) << 8 | u32::from(frame[45]),
            };
            frame[36..38] == protocol && key == 7 && frame[headers + 6..headers + 12] == [0x50, 0x54, 0, 0, 0, 1]
        });
        network.configure("lsp-detach-mirror pa m0 -- mirror-del m0");
    }
    network.has_no_errors();
}

#[test]
fn what_is_dropped_is_sampled() {
    needs_ovn!();
    let network = Network::new(1);
    let collector = network.chassis[0]
        .ns
        .enter(|| UdpSocket::bind("127.0.0.1:4739").unwrap());
    collector.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    network.chassis[0].switch.vsctl(
        "-- --id=@i create ipfix targets=\"127.0.0.1:4739\" cache_active_timeout=0 \
         -- --id=@b get bridge br-int -- create flow_sample_collector_set id=5 bridge=@b ipfix=@i",
    );
    network.configure("set nb_global . options:debug_drop_collector_set=5 options:debug_drop_domain_id=9");
    network.acl("to-lport", "1001", "outport==\"pb\" && ip4", "drop");
    network.central.sync();
    assert_eq!(ping(&network.a, "10.1.0.12", 2).received, 0);
    let mut datagram = [0; 2000];
    eventually("a sample of the domain of drops", || {
        ping(&network.a, "10.1.0.12", 1);
        let len = collector.recv(&mut datagram).ok()?;
        (len > 16 && datagram[..2] == [0, 10] && datagram[12] == 9).then_some(())
    });
    network.has_no_errors();
}
