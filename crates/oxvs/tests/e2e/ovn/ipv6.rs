//! IPv6: neighbours, routers and their advertisements, access lists, addresses by DHCPv6, and
//! balancers.

use super::services::ask;
use super::{Network, allow_ipv6, needs_ovn};
use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;
use testkit::{Capture, Netns, Packet, eventually, eventually_within, ping, send_frames};

impl Network {
    /// Gives everything of the network an address of IPv6 too.
    pub(super) fn with_ipv6(&self) {
        for (port, last, addresses) in [
            ("pa", 1, "10.1.0.11 fd01::11"),
            ("pb", 2, "10.1.0.12 fd01::12"),
            ("pc", 3, "10.2.0.13 fd02::13"),
        ] {
            let addresses = format!("50:54:00:00:00:0{last} {addresses}");
            self.central.words(&["lsp-set-addresses", port, &addresses]);
        }
        for (port, networks) in [
            ("r0-ls0", r#"networks="10.1.0.1/24","fd01::1/64""#),
            ("r0-ls1", r#"networks="10.2.0.1/24","fd02::1/64""#),
        ] {
            self.central.words(&["set", "logical_router_port", port, networks]);
        }
        self.central.sync();
    }

    /// Gives the hosts `pb` and `pc` theirs by hand.
    pub(super) fn set_ipv6(&self) {
        for (host, address, router) in [(&self.b, "fd01::12/64", "fd01::1"), (&self.c, "fd02::13/64", "fd02::1")] {
            allow_ipv6(host, "eth0");
            host.address("eth0", address);
            host.ip(&format!("route add default via {router}"));
        }
    }
}

/// A DHCPv6 Solicit (RFC 8415 §16) with a client's identifier and an identity association.
fn solicit() -> Vec<u8> {
    let mut message = vec![1, 7, 7, 7];
    message.extend([0, 1, 0, 10, 0, 3, 0, 1, 0x50, 0x54, 0, 0, 0, 1]);
    message.extend([0, 3, 0, 12, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]);
    message
}

fn is_expired(from: &Netns, address: &str) -> bool {
    let words = ["ping", "-c", "1", "-t", "1", "-W", "1", address];
    from.try_run(&words, &[]).stdout.contains("exceeded")
}

#[test]
fn hosts_of_ipv6_learn_their_routers_and_reach_each_other_as_access_lists_say() {
    needs_ovn!();
    let network = Network::new(1);
    network.with_ipv6();
    network.set_ipv6();
    network.configure("set logical_router_port r0-ls0 ipv6_ra_configs:address_mode=slaac");
    // Asks for routers, and makes an address of the prefix that it hears.
    network.a.run(&["sysctl", "-qw", "net.ipv6.conf.eth0.accept_ra=2"]);
    allow_ipv6(&network.a, "eth0");
    eventually("a router answers", || {
        let addresses = network.a.ip("-6 addr show dev eth0");
        let routes = network.a.ip("-6 route show default");
        (addresses.contains("fd01::5254:ff:fe00:1/64") && routes.contains("via fe80::200:ff:fe00:ff01")).then_some(())
    });
    network.a.address("eth0", "fd01::11/64");
    for address in ["fd01::12", "fd02::13", "fd01::1", "fd02::1"] {
        eventually(address, || (ping(&network.a, address, 1).received == 1).then_some(()));
        network.reaches(&network.a, address);
    }
    assert!(is_expired(&network.c, "fd01::12"));
    assert_eq!(network.page(&network.c, "[fd01::12]:8080"), "200");

    network.acl("to-lport", "1001", "outport==\"pb\" && ip6", "drop");
    let web = "outport==\"pb\" && ip6 && tcp.dst==8080";
    network.acl("to-lport", "1002", web, "allow-related");
    network.acl("from-lport", "1002", "inport==\"pb\" && ip6", "allow-related");
    network.central.sync();
    assert_eq!(network.page(&network.a, "[fd01::12]:8080"), "200");
    assert_eq!(network.page(&network.a, "[fd01::12]:8081"), "000");
    assert_eq!(ping(&network.a, "fd01::12", 1).received, 0);
    network.reaches(&network.b, "fd01::11");
    network.central.nb("acl-del ls0");
    network.acl("to-lport", "1002", "outport==\"pb\" && tcp.dst==8081", "reject");
    network.central.sync();
    let words = ["curl", "-s", "-g", "-m", "5", "http://[fd01::12]:8081/"];
    assert_eq!(network.a.try_run(&words, &[]).status, Some(7), "refused");
    network.configure("acl-del ls0");

    let balancer = [
        "lb-add",
        "lb6",
        "[fd09::9]:80",
        "[fd01::12]:8080,[fd01::12]:8081",
        "tcp",
    ];
    network.central.words(&balancer);
    network.configure("ls-lb-add ls0 lb6 -- ls-lb-add ls1 lb6");
    for host in [&network.a, &network.c] {
        for _ in 0..4 {
            assert_eq!(network.page(host, "[fd09::9]"), "200");
        }
    }
    network.has_no_errors();
}

#[test]
fn the_controller_answers_for_dhcpv6() {
    needs_ovn!();
    let network = Network::new(1);
    network.with_ipv6();
    network.central.words(&[
        "create",
        "dhcp_options",
        r#"cidr="fd01::/64""#,
        r#"options:server_id="00:00:00:00:ff:01""#,
    ]);
    let options = network.central.nb("--bare --columns=_uuid list dhcp_options");
    network.configure(&format!("lsp-set-dhcpv6-options pa {options}"));
    allow_ipv6(&network.a, "eth0");
    let answer = network.a.enter(|| {
        let socket = eventually("the port is free", || UdpSocket::bind("[::]:546").ok());
        let device = std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
        let line = device.lines().find(|line| line.ends_with("eth0")).unwrap();
        let scope = u32::from_str_radix(line.split(' ').nth(1).unwrap(), 16).unwrap();
        // The address of the link is tentative for a second.
        eventually("the link has its address", || {
            let to = std::net::SocketAddrV6::new("ff02::1:2".parse().unwrap(), 547, 0, scope);
            socket.send_to(&solicit(), to).ok()
        });
        ask(&socket, &format!("[ff02::1:2%{scope}]:547"), &solicit())
    });
    // An Advertise of the transaction, with the port's address.
    assert_eq!(answer[..4], [2, 7, 7, 7]);
    let address: std::net::Ipv6Addr = "fd01::11".parse().unwrap();
    assert!(answer.windows(16).any(|part| part == address.octets()), "{answer:x?}");
    network.has_no_errors();
}

#[test]
fn addresses_of_ipv6_are_translated() {
    needs_ovn!();
    let network = Network::new(1);
    network.with_ipv6();
    network.set_ipv6();
    network.configure("set logical_router r0 options:chassis=ch1");
    for words in [
        &["lr-nat-add", "r0", "dnat_and_snat", "fd02::100", "fd01::12"][..],
        &["lr-nat-add", "r0", "snat", "fd02::101", "fd01::/64"],
        &[
            "lb-add",
            "lb6",
            "[fd09::9]:80",
            "[fd01::12]:8080,[fd01::12]:8081",
            "tcp",
        ],
        &["lr-lb-add", "r0", "lb6"],
    ] {
        network.central.words(words);
    }
    network.central.sync();
    eventually("a translated address", || {
        (ping(&network.c, "fd02::100", 1).received == 1).then_some(())
    });
    network.reaches(&network.c, "fd02::100");
    assert_eq!(network.page(&network.c, "[fd02::100]:8080"), "200");
    for _ in 0..4 {
        assert_eq!(network.page(&network.c, "[fd09::9]"), "200");
    }
    allow_ipv6(&network.a, "eth0");
    network.a.address("eth0", "fd01::11/64");
    network.a.ip("route add default via fd01::1");
    for (host, seen) in [(&network.a, "fd02::101"), (&network.b, "fd02::100")] {
        let capture = Capture::start(&network.c, "eth0", "icmp6 and ip6[40]==128");
        network.reaches(host, "fd02::13");
        let seen: Ipv6Addr = seen.parse().unwrap();
        let frames = capture.finish();
        assert!(frames.len() >= 3, "{frames:x?}");
        for frame in frames {
            assert_eq!(frame[22..38], seen.octets());
        }
    }
    for logical in ["ct_snat(fd02::101", "ct_dnat(fd01::12", "backends=[fd01::12]:8080"] {
        network.has_counted(logical);
    }
    network.has_no_errors();
}

#[test]
fn routers_advertise_themselves_unasked() {
    needs_ovn!();
    let network = Network::new(1);
    network.with_ipv6();
    let capture = Capture::start(&network.a, "eth0", "icmp6 and ip6[40]==134");
    network.configure(
        "set logical_router_port r0-ls0 ipv6_ra_configs:address_mode=slaac ipv6_ra_configs:send_periodic=true \
         ipv6_ra_configs:max_interval=4 ipv6_ra_configs:min_interval=3",
    );
    let frames = eventually_within(Duration::from_secs(30), "a second advertisement", || {
        let frames = capture.frames();
        (frames.len() > 1).then_some(frames)
    });
    // The prefix, whose lifetimes are before it.
    let prefix: Ipv6Addr = "fd01::".parse().unwrap();
    for frame in frames {
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert!(frame.windows(16).any(|part| part == prefix.octets()), "{frame:x?}");
    }
    network.has_no_errors();
}

/// An advertisement of a neighbour (RFC 4861 §4.4) by the host `pa` to the host `pb`: it has the
/// address `target`.
fn advertisement(target: &str) -> Vec<u8> {
    let target: Ipv6Addr = target.parse().unwrap();
    let (own, peer) = ([0x50, 0x54, 0, 0, 0, 1], [0x50, 0x54, 0, 0, 0, 2]);
    let address = |text: &str| text.parse().unwrap();
    let mut message = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    message.extend(target.octets());
    message.extend([2, 1]);
    message.extend(own);
    let mut frame = Packet::new(own, peer)
        .ipv6(address("fd01::11"), address("fd01::12"))
        .protocol(58, &message)
        .bytes();
    frame[21] = 255;
    let mut sum = frame[22..54].to_vec();
    sum.extend([0, 0, 0, 32, 0, 0, 0, 58]);
    sum.extend(&message);
    frame[56..58].copy_from_slice(&testkit::checksum(&sum).to_be_bytes());
    frame
}

#[test]
fn ports_have_only_their_own_addresses_of_ipv6() {
    needs_ovn!();
    let network = Network::new(1);
    network.with_ipv6();
    network.set_ipv6();
    allow_ipv6(&network.a, "eth0");
    for address in ["fd01::11/64", "fd01::77/64"] {
        network.a.address("eth0", address);
    }
    let from = |source: &str| {
        let words = ["ping", "-c", "1", "-W", "1", "-I", source, "fd01::12"];
        network.a.try_run(&words, &[]).stdout.contains(" 1 received")
    };
    let announced = |target: &str| {
        let capture = Capture::start(&network.b, "eth0", "icmp6 and ip6[40]==136");
        let frame = advertisement(target);
        send_frames(&network.a, "eth0", &[frame.clone(), advertisement("fd01::11")]);
        capture.wait_for("the advertisement of the own address", |got| {
            got == advertisement("fd01::11")
        });
        capture.finish().contains(&frame)
    };
    eventually("both addresses work", || {
        (from("fd01::11") && from("fd01::77")).then_some(())
    });
    assert!(announced("fd01::77"));
    network
        .central
        .words(&["lsp-set-port-security", "pa", "50:54:00:00:00:01 10.1.0.11 fd01::11"]);
    network.central.sync();
    assert!(from("fd01::11") && !from("fd01::77"));
    assert!(!announced("fd01::77"));
    network.has_no_errors();
}
