//! Networks with a way out: a network of the chassis' own links (localnet), gateways and their
//! failover, translated addresses, routes and policies, L2 gateways.

use super::{Network, allow_ipv6, join, needs_ovn, plug, without_offloads};
use std::net::TcpStream;
use std::time::Duration;
use testkit::{Capture, Netns, eventually, eventually_within, ping, skip};

/// A network with a link to the outside at each chassis.
struct Outside {
    network: Network,
    wire: Netns,
}

impl Outside {
    fn new(chassis: usize) -> Outside {
        let network = Network::new(chassis);
        let wire = join(network.chassis.iter().map(|chassis| &chassis.ns), "ext");
        for chassis in &network.chassis {
            chassis.switch.vsctl(
                "add-br br-ex -- set bridge br-ex datapath_type=netdev -- add-port br-ex ext \
                 -- set open_vswitch . external_ids:ovn-bridge-mappings=phys:br-ex",
            );
        }
        Outside { network, wire }
    }

    /// A host outside.
    fn host(&self, label: &str, address: &str) -> Netns {
        let host = Netns::new(label);
        plug(&self.wire, label, &host, "eth0");
        host.address("eth0", address);
        host.ip("link set eth0 mtu 1400");
        if !self.network.chassis[0].leaves_checksums {
            without_offloads(&host, "eth0");
        }
        host
    }

    /// The switch `public` of the outside, with the router's port there: 172.16.0.1.
    fn public(&self) {
        self.network.central.nb(
            "ls-add public -- lsp-add public out -- lsp-set-type out localnet -- lsp-set-addresses out unknown \
             -- lsp-set-options out network_name=phys \
             -- lrp-add r0 r0-public 00:00:00:00:ff:09 172.16.0.1/24 -- lsp-add public public-r0 \
             -- lsp-set-type public-r0 router -- lsp-set-addresses public-r0 router \
             -- lsp-set-options public-r0 router-port=r0-public nat-addresses=router",
        );
    }
}

/// Waits until a host is reached: also behind a failover, and after a database of many changes.
#[track_caller]
fn soon(from: &Netns, address: &str) {
    eventually_within(Duration::from_secs(60), address, || {
        (ping(from, address, 1).received == 1).then_some(())
    });
}

/// Whether an IPv4 frame of ICMP is from this address.
fn is_from(frame: &[u8], address: [u8; 4]) -> bool {
    frame[26..30] == address
}

/// Whether a frame announces the address with ARP: by a broadcast about itself.
fn announces(frame: &[u8], address: [u8; 4]) -> bool {
    frame[..6] == [0xff; 6] && frame[28..32] == address && frame[38..42] == address
}

#[test]
fn translated_addresses_have_their_gateway_which_fails_over() {
    skip!(unless long);
    needs_ovn!();
    let mut outside = Outside::new(3);
    let host = outside.host("px", "172.16.0.100/24");
    let announced = Capture::start(&host, "eth0", "arp");
    outside.public();
    let network = &mut outside.network;
    network.configure(
        "lrp-set-gateway-chassis r0-public ch2 20 -- lrp-set-gateway-chassis r0-public ch3 10 \
         -- lr-nat-add r0 snat 172.16.0.1 10.1.0.0/24 -- lr-nat-add r0 dnat_and_snat 172.16.0.13 10.2.0.13 \
         -- lr-nat-add r0 dnat_and_snat 172.16.0.12 10.1.0.12 pb 00:00:00:00:ff:12",
    );
    soon(&network.a, "172.16.0.100");
    // Whose address was asked for is known.
    let known = network
        .central
        .tool("ovn-sbctl", "sb", &["--bare", "--columns=ip", "list", "mac_binding"]);
    assert!(known.expect_ok().contains("172.16.0.100"));
    announced.wait_for("the gateway's address is announced", |frame| {
        announces(frame, [172, 16, 0, 1])
    });
    announced.wait_for("a floating address is announced", |frame| {
        announces(frame, [172, 16, 0, 12])
    });

    let capture = Capture::start(&host, "eth0", "icmp");
    network.reaches(&network.a, "172.16.0.100");
    network.reaches(&network.b, "172.16.0.100");
    let frames = capture.finish();
    for source in [[172, 16, 0, 1], [172, 16, 0, 12]] {
        assert!(frames.iter().any(|frame| is_from(frame, source)), "{source:?}");
    }
    for floating in ["172.16.0.12", "172.16.0.13"] {
        network.reaches(&host, floating);
    }
    assert_eq!(network.page(&host, "172.16.0.12:8080"), "200");

    // The gateway dies; BFD says so, and the other one takes its place. Floating addresses of other
    // chassis do not need it.
    let dead = &mut network.chassis[1];
    dead.controller = None;
    dead.switch.kill();
    network.reaches(&host, "172.16.0.12");
    soon(&network.a, "172.16.0.100");
    network.reaches(&network.a, "172.16.0.100");
    // And back.
    let alive = &mut network.chassis[1];
    alive.switch.boot();
    alive.start_controller();
    network.central.sync();
    soon(&host, "172.16.0.13");
    soon(&network.a, "172.16.0.100");
    network.reaches(&network.a, "172.16.0.100");
    network.has_no_errors();
}

/// Tries so many connections to a port where nobody listens. (Open vSwitch's symmetric hash has no
/// ports of UDP.)
fn send(from: &Netns, to: &str, number: u32) {
    let to = to.parse().unwrap();
    from.enter(|| {
        for _ in 0..number {
            let _ = TcpStream::connect_timeout(&to, Duration::from_millis(20));
        }
    });
}

#[test]
fn a_gateway_says_by_icmp_which_packets_are_too_large_for_its_link() {
    needs_ovn!();
    let outside = Outside::new(1);
    let host = outside.host("px", "172.16.0.100/24");
    outside.public();
    let network = &outside.network;
    network.with_ipv6();
    network.set_ipv6();
    allow_ipv6(&host, "eth0");
    host.address("eth0", "fd16::100/64");
    host.ip("route add 10.0.0.0/8 via 172.16.0.1");
    host.ip("route add default via fd16::1");
    let networks = r#"networks="172.16.0.1/24","fd16::1/64""#;
    network
        .central
        .words(&["set", "logical_router_port", "r0-public", networks]);
    network.configure(
        "set logical_router r0 options:chassis=ch1 \
         -- set logical_router_port r0-public options:gateway_mtu=1300",
    );
    for (address, error, refusal) in [
        ("172.16.0.100", "icmp4_error", "mtu = 1300"),
        ("fd16::100", "icmp6_error", "mtu"),
    ] {
        soon(&network.b, address);
        let whole = ["ping", "-M", "do", "-c", "1", "-W", "1", "-s", "1320", address];
        let shown = network.b.try_run(&whole, &[]).stdout;
        assert!(shown.contains(refusal) && shown.contains("1300"), "{shown}");
        network.has_counted(error);
        // A host that knows it sends fragments.
        let fragments = ["ping", "-c", "2", "-i", "0.2", "-W", "1", "-s", "1320", address];
        eventually("large packets arrive", || {
            let shown = network.b.try_run(&fragments, &[]).stdout;
            shown.contains(" 2 received").then_some(())
        });
    }
    network.has_no_errors();
}

#[test]
fn packets_go_by_several_routes_and_as_policies_say() {
    needs_ovn!();
    let outside = Outside::new(1);
    let hosts = [
        outside.host("px", "172.16.0.101/24"),
        outside.host("py", "172.16.0.102/24"),
    ];
    outside.public();
    let network = &outside.network;
    network.configure(
        "set logical_router r0 options:chassis=ch1 -- lr-route-add r0 172.16.8.0/24 172.16.0.101 \
         -- --ecmp lr-route-add r0 172.16.8.0/24 172.16.0.102",
    );
    for host in &hosts {
        host.address("lo", "172.16.8.1/32");
        host.ip("route add 10.0.0.0/8 via 172.16.0.1");
    }
    // Makes the next hops known.
    eventually("the addresses of both are known", || {
        ping(&network.a, "172.16.8.1", 1);
        let known = network
            .central
            .tool("ovn-sbctl", "sb", &["--bare", "--columns=ip", "list", "mac_binding"]);
        let known = known.expect_ok();
        send(&network.a, "172.16.8.1:9", 10);
        (known.contains("172.16.0.101") && known.contains("172.16.0.102")).then_some(())
    });
    network.central.sync();
    let arrived = |number| {
        let captures = [0, 1].map(|n: usize| Capture::start_large(&hosts[n], "eth0", "tcp and dst host 172.16.8.1"));
        send(&network.a, "172.16.8.1:9", number);
        captures.map(|capture| capture.finish().len())
    };
    let [one, other] = arrived(64);
    assert!(one >= 8 && other >= 8 && one + other == 64, "{one} {other}");
    network.central.words(&[
        "lr-policy-add",
        "r0",
        "100",
        "ip4.src==10.1.0.11 && ip4.dst==172.16.8.0/24",
        "reroute",
        "172.16.0.102",
    ]);
    network.central.sync();
    assert_eq!(arrived(20), [0, 20]);
    let drop = ["lr-policy-add", "r0", "200", "ip4.src==10.1.0.11 && tcp.dst==9", "drop"];
    network.central.words(&drop);
    network.central.sync();
    assert_eq!(arrived(20), [0, 0]);
    network.has_no_errors();
}

#[test]
fn a_gateway_of_layer_2_joins_a_logical_switch_and_a_link() {
    needs_ovn!();
    let outside = Outside::new(2);
    let host = outside.host("px", "10.1.0.99/24");
    let network = &outside.network;
    network.configure(
        "lsp-add ls0 gw -- lsp-set-type gw l2gateway -- lsp-set-addresses gw unknown \
         -- lsp-set-options gw network_name=phys l2gateway-chassis=ch1",
    );
    for from in [&network.a, &network.b] {
        soon(from, "10.1.0.99");
        network.reaches(from, "10.1.0.99");
    }
    network.reaches(&host, "10.1.0.12");
    network.has_no_errors();
}
