//! Logical switches: floods, groups of IGMP, ports that move, mirrors, samples of drops; and that
//! the end of a controller costs no packet.

use super::{Network, needs_ovn};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;
use testkit::{Capture, Daemon, Netns, eventually, ping};

/// Sends so many datagrams to a group or to all.
fn send(from: &Netns, to: &str, number: usize) {
    from.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_broadcast(true).unwrap();
        for _ in 0..number {
            socket.send_to(b"all of you", to).unwrap();
        }
    });
}

/// How many of these datagrams each host gets.
fn arrived(from: &Netns, to: &[&Netns], address: &str) -> Vec<usize> {
    let filter = format!("udp and dst host {}", address.split(':').next().unwrap_or_default());
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
    eventually("the group has a member", || {
        let words = ["--bare", "--columns=address", "list", "igmp_group"];
        let groups = network.central.tool("ovn-sbctl", "sb", &words).expect_ok();
        groups.contains("239.1.1.1").then_some(())
    });
    network.central.sync();
    eventually("its datagrams come", || {
        (arrived(&network.a, &hosts, "239.1.1.1:9") == [5, 0, 0]).then_some(())
    });
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
fn a_mirror_sends_copies_through_gre() {
    needs_ovn!();
    let network = Network::new(2);
    let capture = Capture::start(&network.chassis[1].ns, "under", "proto 47");
    network.configure("mirror-add m0 gre 7 from-lport 172.31.9.2 -- lsp-attach-mirror pa m0");
    network.reaches(&network.a, "10.1.0.12");
    // GRE with the key 7, and in it the request of the host.
    capture.wait_for("a copy", |frame| {
        frame[36..38] == [0x65, 0x58] && frame[38..42] == [0, 0, 0, 7] && frame[48..54] == [0x50, 0x54, 0, 0, 0, 1]
    });
    network.configure("lsp-detach-mirror pa m0 -- mirror-del m0");
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

#[test]
fn the_end_of_a_controller_costs_no_packet_and_that_of_a_switch_few() {
    needs_ovn!();
    let mut network = Network::new(2);
    network.reaches(&network.a, "10.1.0.12");
    let mut command = network.a.prefix();
    command.extend(["ping", "-n", "-i", "0.01", "10.1.0.12"].map(str::to_owned));
    let mut pings = Daemon::start("pings", &command, &network.central.sandbox);
    for chassis in &mut network.chassis {
        // The new one keeps the rules of the old one until it has its own.
        chassis
            .switch
            .vsctl("set open_vswitch . external_ids:ovn-ofctrl-wait-before-clear=2000");
        chassis.controller = None;
        chassis.start_controller();
    }
    network.central.sync();
    pings.terminate();
    let shown = network.central.sandbox.read("pings.out");
    let numbers: Vec<u32> = shown
        .lines()
        .filter_map(|line| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok())
        .collect();
    let all: Vec<u32> = (1..=numbers.len() as u32).collect();
    assert!(numbers.len() > 20 && numbers == all, "{shown}");

    let chassis = &mut network.chassis[0];
    chassis.switch.kill();
    chassis.switch.boot();
    eventually("the network works again", || {
        (ping(&network.a, "10.1.0.12", 1).received == 1).then_some(())
    });
    network.works();
    network.has_no_errors();
}
