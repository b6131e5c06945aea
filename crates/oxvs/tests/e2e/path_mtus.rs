//! Packets that are too big for the path of a tunnel: through a bridge of the switch and through
//! the host's stack.

use crate::fixture::{in_namespace, stand_in, start};
use std::net::Ipv4Addr;
use testkit::{Capture, Devices, Iperf3, Netns, Options, Packet, Vswitch, checksum, eventually, pcap, skip, to_hex};

/// A switch with a tunnel to a peer, 198.51.100.2, behind a router. The switch has 172.31.0.1 at a
/// bridge or at a device of the kernel. A host behind `br-int` has 10.9.0.1 and fd10::1, the peer's
/// end of the tunnel 10.9.0.2 and fd10::2.
struct Lab {
    switch: Vswitch,
    host: Netns,
    router: Netns,
    peer: Netns,
    ns: Netns,
}

impl Lab {
    fn new(native: bool, options: &str) -> Lab {
        let [ns, host, router, peer] = ["pm", "pmh", "pmr", "pmp"].map(Netns::new);
        let switch = in_namespace(&ns);
        ns.veth("h0", &host, "eth0");
        ns.veth("p0", &router, "r0");
        // The kernel cuts segments before the cable, so that captures have packets as on a wire.
        let [tunnel, udp] = ["tx-udp_tnl-segmentation", "tx-udp-segmentation"];
        ns.run(&["ethtool", "-K", "p0", tunnel, "off", udp, "off"]);
        router.veth("r1", &peer, "p1");
        router.address("r0", "172.31.0.254/24");
        router.address("r1", "198.51.100.254/24");
        router.run(&["sysctl", "-qw", "net.ipv4.ip_forward=1"]);
        peer.address("p1", "198.51.100.2/24");
        peer.ip("route add default via 198.51.100.254");
        switch.vsctl("add-br br-int -- set bridge br-int datapath_type=netdev -- add-port br-int h0");
        let underlay = match native {
            true => {
                switch.vsctl("add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy p0");
                ns.ip("link set br-phy up");
                "br-phy"
            }
            false => "p0",
        };
        ns.address(underlay, "172.31.0.1/24");
        ns.ip("route add default via 172.31.0.254");
        switch.vsctl(&format!(
            "add-port br-int t0 \
             -- set interface t0 type=vxlan options:key=42 options:remote_ip=198.51.100.2 {options}"
        ));
        peer.ip("link add t0 type vxlan id 42 local 198.51.100.2 remote 172.31.0.1 dstport 4789");
        for (ns, device, n) in [(&host, "eth0", 1), (&peer, "t0", 2)] {
            ns.address(device, &format!("10.9.0.{n}/24"));
            ns.run(&["sysctl", "-qw", &format!("net.ipv6.conf.{device}.disable_ipv6=0")]);
            ns.ip(&format!("link set {device} up mtu 1500"));
            ns.ip(&format!("address add fd10::{n}/64 dev {device} nodad"));
        }
        let way = if native { "underlay=native" } else { "underlay=host" };
        switch.wait_for("interface", "t0", "status", |status| status.contains(way));
        let lab = Lab {
            switch,
            host,
            router,
            peer,
            ns,
        };
        eventually("small packets come back", || {
            lab.echo("10.9.0.2", "do", 100).then_some(())
        });
        lab
    }

    /// Whether an echo request whose packet has so many bytes is answered; `df` as `ping -M`.
    fn echo(&self, address: &str, df: &str, len: usize) -> bool {
        let headers = if address.contains(':') { 48 } else { 28 };
        let size = (len - headers).to_string();
        let words = ["ping", "-n", "-q", "-c", "1", "-W", "1", "-M", df, "-s", &size, address];
        self.host.try_run(&words, &[]).status == Some(0)
    }

    /// Waits until the host has learned that packets to an address must not be longer.
    fn host_learns(&self, address: &str, mtu: usize) {
        let mtu = format!("mtu {mtu} ");
        eventually(&mtu, || {
            let _ = self.echo(address, "do", 1500);
            let _ = self.echo(address, "do", 1400);
            self.host
                .ip(&format!("route get {address}"))
                .replace('\n', " ")
                .contains(&mtu)
                .then_some(())
        });
    }

    fn host_forgets(&self) {
        self.host.ip("route flush cache");
        self.host.ip("-6 route flush cache");
    }

    /// How often something has happened.
    fn count(&self, name: &str) -> u64 {
        let answer = self.switch.try_appctl(&["coverage/read-counter", name]);
        answer.stdout.trim().parse().unwrap_or(0)
    }
}

/// Senders learn of what their tunnel's underlay takes, and TCP goes on.
fn senders_are_told(native: bool) {
    let lab = Lab::new(native, "");
    // The device: 1500 without the outer headers of 50 bytes.
    assert!(lab.echo("10.9.0.2", "do", 1450));
    for address in ["10.9.0.2", "fd10::2"] {
        lab.host_learns(address, 1450);
    }
    assert!(lab.echo("10.9.0.2", "do", 1450) && lab.echo("fd10::2", "do", 1450));
    assert!(lab.count("drop_tunnel_too_big") >= 2 && lab.count("tunnel_too_big_answered") >= 2);
    // Who does not want to be told is dropped, and that is counted.
    let before = (lab.count("drop_tunnel_too_big"), lab.count("tunnel_too_big_answered"));
    lab.host_forgets();
    assert!(!lab.echo("10.9.0.2", "dont", 1500));
    eventually("the drop is counted", || {
        (lab.count("drop_tunnel_too_big") == before.0 + 1).then_some(())
    });
    assert_eq!(lab.count("tunnel_too_big_answered"), before.1);
    // A link behind the router takes less.
    lab.router.ip("link set r1 mtu 1400");
    lab.peer.ip("link set p1 mtu 1400");
    lab.host_learns("10.9.0.2", 1350);
    let shown = lab.switch.appctl(&["tnl/path-mtu/show"]);
    assert!(shown.contains("198.51.100.2") && shown.contains(" 1400 "), "{shown}");
    assert!(lab.echo("10.9.0.2", "do", 1350));
    lab.host_learns("fd10::2", 1350);
    let capture = Capture::start(&lab.peer, "p1", "src host 172.31.0.1");
    lab.host_forgets();
    assert!(Iperf3::tcp_bytes(3_000_000).run(&lab.host, &lab.peer, "10.9.0.2") > 0.0);
    let outer = capture.finish();
    assert!(!outer.is_empty());
    assert!(outer.iter().all(|frame| frame.len() <= 1414));
    // When it takes more again, that is found out when the size is forgotten.
    lab.router.ip("link set r1 mtu 1500");
    lab.peer.ip("link set p1 mtu 1500");
    lab.switch.appctl(&["tnl/path-mtu/flush"]);
    if native {
        lab.host_forgets();
        assert!(lab.echo("10.9.0.2", "do", 1450));
    }
    // The device of the underlay itself takes less: cached flows follow. That of a bridge has the
    // MTU of its ports.
    lab.ns.ip("link set p0 mtu 1300");
    lab.host_forgets();
    lab.host_learns("10.9.0.2", 1250);
}

#[test]
fn senders_are_told_what_the_path_of_a_tunnel_over_a_bridge_takes() {
    skip!(unless root, "ip", "ping", "iperf3", "tcpdump", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch tells senders nothing");
    }
    senders_are_told(true);
}

#[test]
fn senders_are_told_what_the_path_of_a_tunnel_through_the_hosts_stack_takes() {
    skip!(unless root, "ip", "ping", "iperf3", "tcpdump", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such underlay");
    }
    senders_are_told(false);
}

#[test]
fn a_tunnel_without_df_fragments_its_packets() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl");
    if stand_in() {
        skip!("Open vSwitch does not fragment");
    }
    for native in [true, false] {
        let lab = Lab::new(native, "options:df_default=false");
        let capture = Capture::start(&lab.peer, "p1", "udp or ip[6:2]&0x1fff!=0");
        // The peer's answers are whole: its tunnel device has a larger path.
        lab.peer.ip("link set t0 mtu 1400");
        let words = ["ping", "-n", "-q", "-c", "1", "-W", "1", "-s", "1472", "10.9.0.2"];
        lab.host.try_run(&words, &[]);
        let from_us = |frame: &&Vec<u8>| frame[26..30] == [172, 31, 0, 1];
        capture.wait_for("the last fragment", |frame| {
            frame[26..30] == [172, 31, 0, 1] && frame[20] & 0x3f | frame[21] != 0 && frame[20] & 0x20 == 0
        });
        let frames = capture.finish();
        assert!(
            frames
                .iter()
                .filter(from_us)
                .all(|frame| frame.len() <= 1514 && frame[20] & 0x40 == 0)
        );
        // The peer has put them together.
        eventually("the peer has received the request", || {
            let counts = lab.peer.run(&["nstat", "-az", "IpReasmOKs", "IcmpInEchos"]);
            let count = |name: &str| {
                let line = counts.lines().find(|line| line.starts_with(name))?;
                line.split_whitespace().nth(1)?.parse::<u64>().ok()
            };
            (count("IpReasmOKs")? > 0).then_some(())
        });
        assert_eq!(lab.count("drop_tunnel_too_big"), 0);
    }
}

/// An ICMP error of a router about a frame.
fn error_about(frame: &[u8], mtu: u16) -> Vec<u8> {
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(&frame[14..14 + 64]);
    let sum = checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let to: [u8; 4] = frame[26..30].try_into().unwrap();
    let (src, dst): ([u8; 6], [u8; 6]) = (frame[..6].try_into().unwrap(), frame[6..12].try_into().unwrap());
    let packet = Packet::new(src, dst).ipv4(Ipv4Addr::new(1, 1, 2, 254), Ipv4Addr::from(to));
    packet.protocol(1, &message).bytes()
}

/// A switch with dummy devices: `br0` with a host at `p9`, and tunnels over `under`, whose port
/// is `p1`. Time stands still.
struct Dummies {
    switch: Vswitch,
}

impl Dummies {
    /// With more configuration of `br0`.
    fn new(more: &str) -> Dummies {
        let switch = start(Options {
            devices: Devices::System,
            args: ["--enable-dummy", "--disable-system", "--disable-system-route"]
                .map(str::to_owned)
                .to_vec(),
            ..Options::default()
        });
        let path = |port: &str| switch.sandbox.path(&format!("{port}.tx"));
        switch.vsctl(&format!(
            "add-br under -- set bridge under datapath_type=dummy other_config:hwaddr=aa:55:aa:55:00:00 \
             -- add-port under p1 -- set interface p1 type=dummy options:tx_pcap={} \
             -- add-br br0 -- set bridge br0 datapath_type=dummy \
             -- add-port br0 p9 -- set interface p9 type=dummy ofport_request=9 options:tx_pcap={} {more}",
            path("p1").display(),
            path("p9").display(),
        ));
        for command in [
            "time/stop",
            "netdev-dummy/ip4addr under 1.1.2.88/24",
            "ovs/route/add 1.1.2.0/24 under",
            // They last longer than a path MTU.
            "tnl/neigh/aging 3600",
            "tnl/arp/set under 1.1.2.92 f8:bc:12:44:34:b6",
            "tnl/arp/set under 1.1.2.93 f8:bc:12:44:34:b7",
        ] {
            switch.appctl(&command.split(' ').collect::<Vec<_>>());
        }
        Dummies { switch }
    }

    fn receive(&self, port: &str, frame: &[u8]) {
        self.switch.appctl(&["netdev-dummy/receive", port, &to_hex(frame)]);
    }

    /// Waits until a port has sent so many frames of at least `len` bytes.
    fn sent(&self, port: &str, most: usize, len: usize) -> Vec<Vec<u8>> {
        let path = self.switch.sandbox.path(&format!("{port}.tx"));
        eventually("frames leave", || {
            let frames = pcap::frames(&path).into_iter().filter(|frame| frame.len() >= len);
            let frames: Vec<_> = frames.collect();
            (frames.len() == most).then_some(frames)
        })
    }

    fn count(&self, name: &str) -> u64 {
        let answer = self.switch.try_appctl(&["coverage/read-counter", name]);
        answer.stdout.trim().parse().unwrap_or(0)
    }

    fn shown(&self) -> String {
        self.switch.appctl(&["tnl/path-mtu/show"])
    }
}

/// A packet of TCP with "don't fragment" from one host to another. With 1430 bytes behind its IP
/// header it has 1514 in VXLAN.
fn packet_with_df(len: usize) -> Vec<u8> {
    let packet = Packet::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let packet = packet.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut inner = packet.protocol(6, &vec![7; len]).bytes();
    inner[20] = 0x40;
    inner[24..26].fill(0);
    let sum = checksum(&inner[14..34]).to_be_bytes();
    inner[24..26].copy_from_slice(&sum);
    inner
}

#[test]
fn a_path_mtu_is_learned_from_errors_about_own_packets_and_forgotten_after_ten_minutes() {
    skip!(unless "ovs-vsctl", "ovs-appctl");
    if stand_in() {
        skip!("Open vSwitch learns no path MTUs");
    }
    let lab = Dummies::new(
        "-- set bridge br0 fail_mode=secure -- add-port br0 t2 \
         -- set interface t2 type=vxlan ofport_request=2 options:key=7 options:remote_ip=1.1.2.92",
    );
    for rule in ["in_port=9,actions=output:2", "in_port=2,actions=output:9"] {
        lab.switch.tool("ovs-ofctl", &["add-flow", "br0", rule]).expect_ok();
    }
    let inner = packet_with_df(1430);
    lab.receive("p9", &inner);
    let outer = lab.sent("p1", 1, 1000).remove(0);
    assert_eq!(outer.len(), 1514);
    // Of another tunnel's packet, a bridge learns nothing.
    let mut other = outer.clone();
    other[48] = 8;
    lab.receive("p1", &error_about(&other, 1300));
    eventually("the error is ignored", || {
        (lab.count("tunnel_path_mtus_ignored") == 1).then_some(())
    });
    lab.receive("p1", &error_about(&outer, 1400));
    eventually("the error is heard", || lab.shown().contains("1.1.2.92").then_some(()));
    assert!(lab.shown().contains("1400   600 s"), "{}", lab.shown());

    lab.receive("p9", &inner);
    let answer = lab.sent("p9", 1, 1).remove(0);
    assert_eq!((&answer[..6], &answer[6..12]), (&inner[6..12], &inner[..6]));
    assert_eq!((&answer[26..30], &answer[30..34]), (&inner[30..34], &inner[26..30]));
    assert_eq!((answer[34], answer[35]), (3, 4));
    assert_eq!(u16::from_be_bytes([answer[40], answer[41]]), 1350);
    assert_eq!(answer[42..], inner[14..answer.len() - 28]);
    assert_eq!(lab.count("drop_tunnel_too_big"), 1);
    // Packets of the cached flow are answered at once, too.
    lab.receive("p9", &inner);
    lab.sent("p9", 2, 1);

    lab.switch.appctl(&["time/warp", "599000", "100000"]);
    assert!(lab.shown().contains("1400   1 s"), "{}", lab.shown());
    lab.switch.appctl(&["time/warp", "1000", "1000"]);
    assert!(!lab.shown().contains("1.1.2.92"), "{}", lab.shown());
    lab.receive("p9", &inner);
    lab.sent("p1", 2, 1514);
}

#[test]
fn an_error_does_not_teach_where_the_destination_is() {
    skip!(unless "ovs-vsctl", "ovs-appctl");
    if stand_in() {
        skip!("Open vSwitch tells senders nothing");
    }
    let lab = Dummies::new(
        "-- add-port br0 t2 -- set interface t2 type=vxlan options:remote_ip=1.1.2.92 \
         -- add-port br0 t3 -- set interface t3 type=vxlan options:remote_ip=1.1.2.93",
    );
    // Nobody knows which of the tunnels leads to the destination.
    let inner = packet_with_df(1430);
    lab.receive("p9", &inner);
    let outer = lab.sent("p1", 2, 1000);
    let outer = outer.iter().find(|frame| frame[30..34] == [1, 1, 2, 92]).unwrap();
    lab.receive("p1", &error_about(outer, 1400));
    eventually("the error is heard", || lab.shown().contains("1.1.2.92").then_some(()));
    lab.receive("p9", &inner);
    lab.sent("p9", 1, 1);
    let known = lab.switch.appctl(&["fdb/show", "br0"]);
    assert!(
        known.contains("02:00:00:00:00:01") && !known.contains("02:00:00:00:00:02"),
        "{known}"
    );
    // The next packets, of any length, still go to both.
    lab.sent("p1", 3, 1000);
    lab.receive("p9", &packet_with_df(1000));
    lab.sent("p1", 5, 1000);
}

#[test]
fn a_copy_of_a_mirror_that_is_too_big_is_dropped_without_an_error() {
    skip!(unless "ovs-vsctl", "ovs-appctl");
    if stand_in() {
        skip!("Open vSwitch tells senders nothing");
    }
    let lab = Dummies::new(
        "-- add-port br0 p8 -- set interface p8 type=dummy \
         -- add-port br0 t2 -- set interface t2 type=vxlan options:remote_ip=1.1.2.92 \
         -- --id=@t get port t2 -- --id=@m create mirror name=m select_all=true output_port=@t \
         -- set bridge br0 mirrors=@m",
    );
    let inner = packet_with_df(1430);
    lab.receive("p9", &inner);
    let outer = lab.sent("p1", 1, 1000).remove(0);
    lab.receive("p1", &error_about(&outer, 1400));
    eventually("the error is heard", || lab.shown().contains("1.1.2.92").then_some(()));
    lab.receive("p9", &inner);
    eventually("the copy is dropped", || {
        (lab.count("drop_tunnel_too_big") == 1).then_some(())
    });
    assert_eq!(lab.count("tunnel_too_big_answered"), 0);
    lab.sent("p1", 1, 1000);
    lab.sent("p9", 0, 1);
}
