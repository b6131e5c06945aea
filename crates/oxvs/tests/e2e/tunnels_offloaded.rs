//! Flows into and out of tunnels that the kernel carries.

use crate::fixture::{cannot_offload, in_namespace, offloaded, offloads_nothing, packets_of, seen_by_workers};
use std::time::Duration;
use testkit::{Capture, Daemon, Iperf3, Netns, Sandbox, Vswitch, eventually, ping, tshark};

mod checksums;
mod copies;
mod marks;
mod options;
mod segments;
mod tags;

const TOOLS: [&str; 7] = ["ip", "ping", "tcpdump", "iperf3", "tshark", "ethtool", "ovs-vsctl"];

/// A switch with a host behind a tunnel's bridge. Its bridge `br-phy` has the address N of the
/// underlay and a cable; the host has 10.9.0.N.
struct Side {
    switch: Vswitch,
    host: Netns,
    ns: Netns,
}

impl Side {
    /// Takes the cable's end `ph` in `ns`.
    fn new(ns: Netns, number: u8, tunnel: &str) -> Side {
        Side::over(V4, ns, number, tunnel)
    }

    fn over((network, length): (&str, u32), ns: Netns, number: u8, tunnel: &str) -> Side {
        let host = Netns::new("tofh");
        let switch = in_namespace(&ns);
        ns.veth("h0", &host, "eth0");
        host.address("eth0", &format!("10.9.0.{number}/24"));
        host.ip("link set eth0 mtu 1400");
        switch.vsctl(
            "add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy ph \
             -- add-br br-int -- set bridge br-int datapath_type=netdev -- add-port br-int h0",
        );
        let other = 3 - number;
        switch.vsctl(&format!(
            "add-port br-int t0 -- set interface t0 options:remote_ip=\"{network}{other}\" {tunnel}"
        ));
        ns.run(&["sysctl", "-qw", "net.ipv6.conf.br-phy.disable_ipv6=0"]);
        ns.address("br-phy", &format!("{network}{number}/{length}"));
        ns.ip("link set br-phy up");
        Side { switch, host, ns }
    }

    fn reaches(&self, address: &str) {
        eventually("a packet comes back", || {
            (ping(&self.host, address, 1).received == 1).then_some(())
        });
    }

    /// The number of offloaded flows of the megaflows whose line contains this text.
    fn offloaded(&self, text: &str) -> u32 {
        offloaded(&self.switch, text)
    }

    /// The tunnel's counts: packets received and sent.
    fn counts(&self) -> [u64; 2] {
        packets_of(&self.switch, "br-int", "t0")
    }

    /// Number of packets that workers found in a cache.
    fn seen_by_workers(&self) -> u64 {
        seen_by_workers(&self.switch)
    }

    /// Drops of packets with outer headers, or by a device. The neighbour was not known at first.
    fn drops(&self) -> Vec<String> {
        let text = self.switch.appctl(&["coverage/show"]);
        let own = text.lines().filter(|line| {
            line.starts_with("drop_device_full")
                || line.starts_with("drop_tunnel") && !line.starts_with("drop_tunnel_neighbour")
        });
        own.map(str::to_owned).collect()
    }

    /// All of so many pings from a host to another are answered, however late: a machine under load
    /// may let the worker wait for longer than [`ping`] waits.
    #[track_caller]
    fn answers_all(&self, from: &Netns, address: &str, count: u32) {
        let text = count.to_string();
        let words = ["ping", "-n", "-D", "-O", "-c", &text, "-i", "0.1", "-W", "10", address];
        let said = from.try_run(&words, &[]).stdout;
        let coverage = self.switch.appctl(&["coverage/show"]);
        let counts: Vec<&str> = coverage
            .lines()
            .filter(|line| line.starts_with("drop_") || line.starts_with("offload_"))
            .collect();
        assert!(
            said.contains(&format!(" {count} received")),
            "{said}\n{counts:#?}\n{}\nneighbours:\n{}\n{}\n{}",
            self.switch.appctl(&["dpctl/dump-flows", "-m"]),
            self.switch.appctl(&["tnl/neigh/show"]),
            self.ns.ip("-s neigh show"),
            from.ip("-s neigh show"),
        );
    }

    /// Pings 200 times a second until this is dropped.
    fn ping_on(&self, address: &str) -> Daemon {
        let mut words = self.host.prefix();
        words.extend(["ping", "-q", "-i", "0.012", address].map(str::to_owned));
        Daemon::start("ping", &words, &self.switch.sandbox)
    }

    /// A flow is offered again by a packet after what it depends on has changed.
    fn wait_for_offload(&self, text: &str) {
        eventually(text, || {
            if self.offloaded(text) > 0 {
                return Some(());
            }
            for address in ["10.9.0.1", "10.9.0.2"] {
                self.host.try_run(&["ping", "-c", "1", "-W", "0.2", address], &[]);
            }
            None
        });
    }
}

/// Says why there can be no test, if there can be none.
fn skips() -> bool {
    cannot_offload(module_path!(), &TOOLS)
}

/// Addresses of an underlay without the last number, and the length of their prefix.
const V4: (&str, u32) = ("172.31.0.", 24);
const V6: (&str, u32) = ("fd00:31::", 64);

/// Two switches and a cable between them; `None` with a message if flows cannot be offloaded here.
fn two(tunnel: &str) -> Option<[Side; 2]> {
    two_over(V4, tunnel)
}

fn two_over(underlay: (&str, u32), tunnel: &str) -> Option<[Side; 2]> {
    let (one, other) = (Netns::new("tofa"), Netns::new("tofb"));
    one.veth("ph", &other, "ph");
    let sides = [(one, 1), (other, 2)].map(|(ns, number)| Side::over(underlay, ns, number, tunnel));
    sides[0].reaches("10.9.0.2");
    assert_eq!(ping(&sides[0].host, "10.9.0.2", 10).received, 10);
    if offloads_nothing(module_path!(), &sides[0].switch) {
        return None;
    }
    Some(sides)
}

const PUSH: &str = "tnl_push(";
const POP: &str = "tnl_pop(";
const INSIDE: &str = "tunnel(tun_id=0x2a";

#[test]
fn pings_and_tcp_between_two_switches_pass_by_the_workers_in_right_outer_headers() {
    if skips() {
        return;
    }
    for (tunnel, port, protocol) in [
        ("type=vxlan options:key=42", 4789, "vxlan.vni == 42"),
        ("type=geneve options:key=42", 6081, "geneve.vni == 42"),
    ] {
        let Some(sides) = two(tunnel) else { return };
        for side in &sides {
            for text in [PUSH, POP, INSIDE] {
                side.wait_for_offload(text);
            }
        }
        let before = sides.each_ref().map(|side| (side.counts(), side.seen_by_workers()));
        assert_eq!(ping(&sides[0].host, "10.9.0.2", 100).received, 100);
        eventually("tunnels have counted them", || {
            let counted = sides.iter().zip(before).all(|(side, ([rx, tx], _))| {
                let now = side.counts();
                now[0] >= rx + 100 && now[1] >= tx + 100
            });
            counted.then_some(())
        });
        for (side, (_, seen)) in sides.iter().zip(before) {
            let by_workers = side.seen_by_workers() - seen;
            assert!(by_workers < 50, "{by_workers} of 200 packets went through workers");
        }

        // Small packets and whole segments, both ways.
        let capture = Capture::start(&sides[1].ns, "ph", &format!("udp port {port}"));
        assert_eq!(ping(&sides[0].host, "10.9.0.2", 20).received, 20);
        for (from, to, address) in [(0, 1, "10.9.0.2"), (1, 0, "10.9.0.1")] {
            assert!(Iperf3::tcp_bytes(20_000_000).run(&sides[from].host, &sides[to].host, address) > 0.0);
        }
        let frames = capture.finish();
        assert!(frames.iter().any(|frame| frame.len() > 5000), "segments cross whole");
        let sandbox = Sandbox::new();
        let path = sandbox.path("packets");
        let packets: Vec<Vec<u8>> = frames.iter().take(2000).map(|frame| frame[14..].to_vec()).collect();
        std::fs::write(&path, testkit::pcap::of_ip(&packets)).unwrap();
        let wrong = format!("_ws.malformed || ip.checksum.status == \"Bad\" || !({protocol}) || !(ip.flags.df == 1)");
        let said = tshark(&path, &["-o", "ip.check_checksum:TRUE", "-Y", &wrong]);
        assert_eq!(said, "");
        // Lengths of outer headers are those of what is there.
        for frame in &frames {
            let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
            assert_eq!((word(16), word(38)), (frame.len() - 14, frame.len() - 34));
        }
        // Packets of one flow have one source port, those of other flows others.
        let ports = |protocol: u8, from: u8| -> std::collections::BTreeSet<[u8; 2]> {
            let own = frames.iter().filter(|frame| {
                let inner = &frame[50..];
                frame[29] == from && inner[12..14] == [8, 0] && inner[23] == protocol
            });
            own.map(|frame| [frame[34], frame[35]]).collect()
        };
        assert_eq!(ports(1, 1).len(), 1, "the pings");
        assert!(ports(6, 1).len() > 1, "TCP");
        assert_eq!(sides[0].drops(), Vec::<String>::new());
    }
}

/// A switch, and the kernel's VXLAN device at the other end, 10.9.0.2.
fn with_kernel(checksums: &str) -> Option<(Side, Netns)> {
    let (ns, peer) = (Netns::new("tofk"), Netns::new("tofp"));
    ns.veth("ph", &peer, "ph1");
    peer.address("ph1", "172.31.0.2/24");
    peer_has(&peer, 42, checksums);
    let side = Side::new(ns, 1, "type=vxlan options:key=42");
    side.reaches("10.9.0.2");
    assert_eq!(ping(&side.host, "10.9.0.2", 10).received, 10);
    if offloads_nothing(module_path!(), &side.switch) {
        return None;
    }
    Some((side, peer))
}

fn peer_has(peer: &Netns, vni: u32, checksums: &str) {
    peer.ip(&format!(
        "link add t0 address 02:00:00:00:09:02 type vxlan id {vni} local 172.31.0.2 remote 172.31.0.1 dstport 4789 \
         {checksums}"
    ));
    peer.address("t0", "10.9.0.2/24");
    peer.ip("link set t0 up mtu 1400");
}

#[test]
fn offloaded_flows_go_to_and_fro_between_the_switch_and_the_kernels_vxlan_by_key() {
    if skips() {
        return;
    }
    // With checksums of UDP too, but then the kernel leaves those of pings to be filled in.
    let Some((side, peer)) = with_kernel("udpcsum") else {
        return;
    };
    let tcp = |side: &Side, peer: &Netns| {
        for (from, to, address) in [(&side.host, peer, "10.9.0.2"), (peer, &side.host, "10.9.0.1")] {
            assert!(Iperf3::tcp_bytes(20_000_000).run(from, to, address) > 0.0);
        }
    };
    // On a busy machine the first transfer can be over before its flows are offloaded.
    eventually("TCP is offloaded", || {
        tcp(&side, &peer);
        let all = [PUSH, POP, INSIDE].iter().all(|text| side.offloaded(text) > 0);
        all.then_some(())
    });
    assert_eq!(ping(&peer, "10.9.0.1", 10).received, 10);
    drop((side, peer));

    let Some((side, peer)) = with_kernel("noudpcsum") else {
        return;
    };
    for text in [PUSH, POP, INSIDE] {
        side.wait_for_offload(text);
    }
    tcp(&side, &peer);
    assert_eq!(ping(&peer, "10.9.0.1", 10).received, 10);
    side.wait_for_offload(INSIDE);
    // The same packets with another key are nobody's.
    peer.ip("link del t0");
    peer_has(&peer, 43, "noudpcsum");
    let mac = side.host.mac_of("eth0");
    peer.ip(&format!("neigh replace 10.9.0.1 lladdr {mac} dev t0"));
    let capture = Capture::start(&side.host, "eth0", "icmp");
    assert!(side.offloaded(INSIDE) > 0);
    assert_eq!(ping(&peer, "10.9.0.1", 5).received, 0);
    assert_eq!(capture.finish().len(), 0);
    eventually("the drop is counted", || {
        let drops = side.switch.appctl(&["coverage/show"]);
        drops.contains("drop_no_tunnel").then_some(())
    });
}

#[test]
fn a_change_of_neighbours_routes_and_addresses_is_in_force_for_offloaded_flows_at_once() {
    if skips() {
        return;
    }
    let Some((side, peer)) = with_kernel("noudpcsum") else {
        return;
    };
    let _pings = side.ping_on("10.9.0.2");
    side.wait_for_offload(PUSH);
    side.wait_for_offload(INSIDE);
    let real = peer.mac_of("ph1");
    let (other, third) = ("02:00:00:00:00:99", "02:00:00:00:00:98");
    // Packets to an address from now on, and to all others of the tunnel.
    let sent_to = |mac: &str| {
        let capture = Capture::start(&peer, "ph1", "udp dst port 4789 and dst host 172.31.0.2");
        std::thread::sleep(Duration::from_millis(300));
        let wanted: Vec<u8> = mac.split(':').map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect();
        let frames = capture.finish();
        let right = frames.iter().filter(|frame| frame[..6] == wanted[..]).count();
        (right, frames.len() - right)
    };
    side.switch.appctl(&["tnl/neigh/set", "br-phy", "172.31.0.2", other]);
    let (right, stale) = sent_to(other);
    assert!(
        right > 10 && stale == 0,
        "{right} packets to the new neighbour, {stale} to another"
    );
    side.wait_for_offload(PUSH);
    side.switch.appctl(&["tnl/neigh/set", "br-phy", "172.31.0.3", third]);
    side.switch
        .appctl(&["ovs/route/add", "172.31.0.2/32", "br-phy", "172.31.0.3"]);
    let (right, stale) = sent_to(third);
    assert!(
        right > 10 && stale == 0,
        "{right} packets by the new route, {stale} by another"
    );
    side.wait_for_offload(PUSH);
    side.switch.appctl(&["ovs/route/del", "172.31.0.2/32"]);
    side.switch.appctl(&["tnl/neigh/set", "br-phy", "172.31.0.2", &real]);
    let (right, stale) = sent_to(&real);
    assert!(
        right > 10 && stale == 0,
        "{right} packets to the real neighbour, {stale} to another"
    );
    eventually("both ways are offloaded again", || {
        (side.offloaded(PUSH) > 0 && side.offloaded(INSIDE) > 0).then_some(())
    });
    side.switch.vsctl("del-port t0");
    let (sent, received) = (
        Capture::start(&peer, "ph1", "udp dst port 4789 and dst host 172.31.0.2"),
        Capture::start(&side.host, "eth0", "icmp[icmptype] == 0"),
    );
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(
        (sent.finish().len(), received.finish().len()),
        (0, 0),
        "without the port"
    );
    side.switch
        .vsctl("add-port br-int t0 -- set interface t0 options:remote_ip=172.31.0.2 type=vxlan options:key=42");
    for text in [PUSH, INSIDE] {
        side.wait_for_offload(text);
    }
    // A tunnel that ends at no address of the switch any more.
    side.switch.vsctl("set interface t0 options:key=44");
    let capture = Capture::start(&side.host, "eth0", "icmp[icmptype] == 0");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(capture.finish().len(), 0, "packets of the former key");
    side.switch.vsctl("set interface t0 options:key=42");
    side.wait_for_offload(INSIDE);
    side.ns.ip("address del 172.31.0.1/24 dev br-phy");
    eventually("no packet of the tunnel is taken", || {
        let capture = Capture::start(&side.host, "eth0", "icmp[icmptype] == 0");
        std::thread::sleep(Duration::from_millis(200));
        capture.finish().is_empty().then_some(())
    });
}
