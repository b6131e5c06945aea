//! Tunnels that carry packets of any type (`packet_type=ptap`), beside Open vSwitch's.

use crate::fixture::start;
use std::net::Ipv4Addr;
use testkit::{Devices, Options, Packet, Vswitch, eventually, pcap, skip, to_hex};

const RULES: &str = "\
in_port=1,packet_type=(1,0x800),nw_dst=10.0.0.2,actions=encap(ethernet),set_field:02:00:00:00:00:02->eth_dst,9
in_port=1,packet_type=(1,0x800),nw_dst=10.0.0.3,actions=2
in_port=1,packet_type=(1,0x800),nw_dst=10.0.0.4,actions=9
in_port=1,packet_type=(1,0x800),nw_dst=10.0.0.5,actions=dec_ttl,encap(ethernet),9,2,3
in_port=1,packet_type=(1,0x800),nw_dst=10.0.0.6,actions=3
in_port=1,packet_type=(1,0x800),nw_dst=10.0.0.7,actions=ct(table=1)
table=1,packet_type=(1,0x800),actions=encap(ethernet),9
in_port=1,packet_type=(0,0),actions=9
in_port=1,ip,nw_dst=10.0.0.8,actions=9
in_port=1,packet_type=(1,0x86dd),actions=encap(ethernet),9
in_port=3,ip,actions=9
in_port=3,packet_type=(1,0x800),actions=2
in_port=9,ip,actions=decap(),1,2,3
";

/// Bridge `br0` with a host at `p9` and GRE tunnels through `under`, whose port is `p1`: `t1` and
/// `t2` carry packets of any type, `t3` packets without Ethernet headers.
fn side(switch: Vswitch) -> Vswitch {
    let path = |port: &str| switch.sandbox.path(&format!("{port}.tx"));
    let tunnel = |n: u8, kind: &str| {
        format!(
            "-- add-port br0 t{n} -- set interface t{n} type=gre ofport_request={n} \
             options:remote_ip=1.1.2.92 options:key={n} options:packet_type={kind}"
        )
    };
    switch.vsctl(&format!(
        "add-br under -- set bridge under datapath_type=dummy other_config:hwaddr=aa:55:aa:55:00:00 \
         -- add-port under p1 -- set interface p1 type=dummy options:tx_pcap={} \
         -- add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
         -- add-port br0 p9 -- set interface p9 type=dummy ofport_request=9 options:tx_pcap={} {} {} {}",
        path("p1").display(),
        path("p9").display(),
        tunnel(1, "ptap"),
        tunnel(2, "ptap"),
        tunnel(3, "legacy_l3"),
    ));
    for command in [
        "netdev-dummy/ip4addr under 1.1.2.88/24",
        "ovs/route/add 1.1.2.0/24 under",
        "tnl/arp/set under 1.1.2.92 f8:bc:12:44:34:b6",
    ] {
        switch.appctl(&command.split(' ').collect::<Vec<_>>());
    }
    for rule in RULES.lines() {
        switch
            .tool("ovs-ofctl", &["-O", "OpenFlow15", "add-flow", "br0", rule])
            .expect_ok();
    }
    switch
}

/// What comes to the end of a tunnel.
fn outer(key: u8, kind: [u8; 2], inner: &[u8]) -> Vec<u8> {
    let (src, dst) = (Ipv4Addr::new(1, 1, 2, 92), Ipv4Addr::new(1, 1, 2, 88));
    let packet = Packet::new([0xf8, 0xbc, 0x12, 0x44, 0x34, 0xb6], [0xaa, 0x55, 0xaa, 0x55, 0, 0]);
    let header = [0x20, 0, kind[0], kind[1], 0, 0, 0, key];
    packet.ipv4(src, dst).protocol(47, &[&header, inner].concat()).bytes()
}

/// An Ethernet packet to this host.
fn inner(host: u8) -> Vec<u8> {
    let packet = Packet::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, host]);
    let packet = packet.ipv4([10, 0, 0, 1].into(), [10, 0, 0, host].into());
    packet.udp(1, 2, &[7; 40]).bytes()
}

/// The packets, each with the port that it comes in by.
fn packets() -> Vec<(&'static str, Vec<u8>)> {
    let v6 = Packet::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv6(1.into(), 2.into());
    let v6 = v6.udp(1, 2, &[7; 40]).bytes();
    let mut all = Vec::new();
    for host in 2..9 {
        all.push(("p1", outer(1, [8, 0], &inner(host)[14..])));
    }
    all.extend([
        ("p1", outer(1, [0x65, 0x58], &inner(2))),
        ("p1", outer(1, [0x86, 0xdd], &v6[14..])),
        ("p1", outer(3, [8, 0], &inner(2)[14..])),
        ("p9", inner(2)),
    ]);
    all
}

#[test]
fn packets_of_any_type_pass_tunnels_as_in_open_vswitch() {
    skip!(unless "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let options = || Options {
        devices: Devices::System,
        args: ["--enable-dummy", "--disable-system", "--disable-system-route"]
            .map(str::to_owned)
            .into(),
        ..Options::default()
    };
    let sent = [Vswitch::debian(options()), start(options())].map(side).map(|switch| {
        // Each twice: the second packet meets the cached flow.
        for (port, packet) in packets().iter().flat_map(|packet| [packet, packet]) {
            switch.appctl(&["netdev-dummy/receive", port, &to_hex(packet)]);
        }
        [("p1", 14), ("p9", 12)].map(|(port, count)| {
            let path = switch.sandbox.path(&format!("{port}.tx"));
            let mut frames = eventually("all packets leave", || {
                let frames = pcap::frames(&path);
                (frames.len() >= count).then_some(frames)
            });
            if port == "p1" {
                // The identification of the outer packet, and its checksum.
                for frame in &mut frames {
                    frame[18..20].fill(0);
                    frame[24..26].fill(0);
                }
            }
            frames.sort();
            frames.iter().map(|frame| to_hex(frame)).collect::<Vec<_>>()
        })
    });
    assert_eq!(sent[0], sent[1]);
    assert_eq!((sent[0][0].len(), sent[0][1].len()), (14, 12));
}
