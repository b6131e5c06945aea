//! Mirrors of what no rule forwards from port to port: frames of control protocols, packets of
//! controllers, and those from and to the bridge's own device.

use crate::fixture::{bridge_with_hosts, in_namespace};
use testkit::{Capture, Netns, Packet, Vswitch, eventually, mac, ping, skip, source_of, to_hex};

const SLOW_PROTOCOLS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 2];
const SLOW_TYPE: u16 = 0x8809;

/// A host, a watcher behind the mirror's output, and a bond whose other ends are not connected.
fn lab() -> (Netns, Vswitch, Vec<Netns>) {
    let ns = Netns::new("sw");
    let switch = in_namespace(&ns);
    let hosts = bridge_with_hosts(&ns, &switch, 2);
    for n in [1, 2] {
        ns.ip(&format!("link add v{n} type veth peer w{n}"));
        ns.ip(&format!("link set v{n} up"));
        ns.ip(&format!("link set w{n} up"));
    }
    switch.vsctl("add-bond br0 b0 v1 v2 lacp=active other_config:lacp-time=fast");
    (ns, switch, hosts)
}

fn mirror(switch: &Vswitch, columns: &str) {
    switch.vsctl(&format!(
        "-- --id=@out get port h2 -- --id=@b0 get port b0 -- --id=@h1 get port h1 -- --id=@br0 get port br0 \
         -- --id=@m create mirror name=m output_port=@out {columns} -- set bridge br0 mirrors=@m"
    ));
}

#[test]
fn frames_of_control_protocols_are_mirrored_both_ways() {
    skip!(unless root, "ip", "tcpdump", "ovs-vsctl");
    let (ns, switch, hosts) = lab();
    mirror(&switch, "select_src_port=@b0 select_dst_port=@b0");
    let watcher = Capture::start(&hosts[1], "eth0", "ether proto 0x8809");
    let at_the_end = Capture::start(&ns, "w1", "ether proto 0x8809 and inbound");
    let member = ns.mac_of("v1");
    let sent = |frame: &[u8]| source_of(frame) == member;
    watcher.wait_for("sent LACPDUs of each member", sent);
    // A frame that comes in goes to the protocol, and to the mirror before.
    let received = Packet::new(mac(7), SLOW_PROTOCOLS)
        .payload(SLOW_TYPE, &[10, 1, 2, 3])
        .padded()
        .bytes();
    ns.enter(|| {
        let socket = sys::PacketSocket::new().unwrap();
        let index = rustix::net::netdevice::name_to_index(&socket, "w2").unwrap();
        socket.bind(index, false).unwrap();
        rustix::net::send(&socket, &received, rustix::net::SendFlags::empty()).unwrap();
    });
    watcher.wait_for("the received frame", |frame| frame == received);
    let (copies, wire) = (watcher.finish(), at_the_end.finish());
    let copies = copies.iter().filter(|frame| sent(frame));
    let strangers: Vec<_> = copies
        .filter(|frame| !wire.contains(frame))
        .map(|frame| to_hex(frame))
        .collect();
    // The last one may be on its way when the captures end.
    assert!(strangers.len() <= 1, "{strangers:?}");
    eventually("the mirror counts them", || {
        let text = switch.get("mirror", "m", "statistics");
        let packets = text
            .split("tx_packets=")
            .nth(1)?
            .trim_end_matches('}')
            .parse::<u64>()
            .ok()?;
        (packets >= 2).then_some(())
    });
}

#[test]
fn packets_of_controllers_and_of_the_bridges_own_device_are_mirrored() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl", "ovs-ofctl");
    let (ns, switch, hosts) = lab();
    ns.address("br0", "10.1.0.9/24");
    ns.ip("link set br0 up");
    assert!(ping(&hosts[0], "10.1.0.9", 3).received > 0);
    let packet = Packet::new(mac(7), mac(8))
        .payload(0x88b5, b"from a controller")
        .padded()
        .bytes();
    let number = switch.get("interface", "h1", "ofport");
    let out = format!("in_port=controller packet={} actions=output:{number}", to_hex(&packet));
    mirror(&switch, "select_dst_port=@h1");
    let watcher = Capture::start(&hosts[1], "eth0", "ether proto 0x88b5");
    switch.tool("ovs-ofctl", &["packet-out", "br0", &out]).expect_ok();
    watcher.wait_for("the controller's packet", |frame| frame == packet);
    assert_eq!(watcher.finish().len(), 1);
    // Requests go to the bridge's device, replies come from it.
    const REQUEST: u8 = 8;
    for (columns, kinds) in [
        ("select_dst_port=@br0", &[REQUEST][..]),
        ("select_src_port=@br0", &[0]),
        ("select_all=true", &[REQUEST, 0]),
    ] {
        mirror(&switch, columns);
        let watcher = Capture::start(&hosts[1], "eth0", "icmp");
        assert_eq!(ping(&hosts[0], "10.1.0.9", 5).received, 5);
        for kind in kinds {
            watcher.wait_for("copies of pings", |frame| frame[34] == *kind);
        }
        let mut seen: Vec<u8> = watcher.finish().iter().map(|frame| frame[34]).collect();
        seen.sort_by(|a, b| b.cmp(a));
        let expected: Vec<u8> = kinds.iter().flat_map(|kind| [*kind; 5]).collect();
        assert_eq!(seen, expected, "{columns}");
    }
}
