//! Settings of mirrors: wrong ones beside Open vSwitch, filters, and a mirror that continues on
//! the next switch (RSPAN).

use crate::fixture::{dummy_bridge, in_namespace, ours, stand_in, start};
use std::collections::BTreeSet;
use testkit::{Capture, Netns, Options, Packet, Vswitch, eventually, mac, pcap, skip};

/// What the log says of mirrors, each sentence once.
fn said(switch: &Vswitch) -> BTreeSet<String> {
    let log = switch.sandbox.read("switch.log");
    let of_mirrors = log.lines().filter(|line| line.contains("mirror"));
    // Behind the time and the number of the line.
    let bare = of_mirrors.filter_map(|line| line.splitn(3, '|').last());
    let of_bridges = bare.filter(|text| text.starts_with("bridge|") || text.starts_with("ofproto_dpif_mirror|"));
    of_bridges.map(str::to_owned).collect()
}

#[test]
fn wrong_mirrors_are_named_in_the_log_as_open_vswitch_names_them() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let [theirs, ours] = [Vswitch::debian(Options::default()), start(Options::default())].map(|switch| {
        dummy_bridge(&switch, "br0", &["p1", "p2"]);
        dummy_bridge(&switch, "br1", &["q1"]);
        switch.vsctl("set port p1 tag=5");
        for columns in [
            "name=nowhere select_all=true",
            "name=elsewhere select_all=true output_port=@q1",
            "name=both select_all=true output_port=@p1 output_vlan=7",
            "name=stranger select_src_port=@q1 output_port=@p2",
            // It copies what it sends: a loop that both switches cut.
            "name=loop select_all=true output_port=@p1",
            // A VLAN that ports are in.
            "name=switched select_all=true output_vlan=5",
        ] {
            switch.vsctl(&format!(
                "-- --id=@p1 get port p1 -- --id=@p2 get port p2 -- --id=@q1 get port q1 \
                 -- --id=@m create mirror {columns} -- set bridge br0 mirrors=@m"
            ));
            let packet = Packet::new(mac(1), mac(9)).payload(0x88b5, b"payload").padded();
            let sent = switch.unixctl().call("netdev-dummy/receive", &["p2", &packet.hex()]);
            sent.unwrap_or_else(|error| panic!("{columns}: {error}"));
        }
        said(&switch)
    });
    assert_eq!(theirs, ours);
    for part in [
        "does not specify output",
        "not on bridge",
        "both output port and output vlan",
        "nonexistent port",
    ] {
        assert!(ours.iter().any(|line| line.contains(part)), "{part}: {ours:?}");
    }
}

/// The VLANs of the copies of a new packet.
fn copied_to(switch: &Vswitch, src: u32) -> BTreeSet<u16> {
    let packet = Packet::new(mac(src), mac(9)).payload(0x88b5, b"payload").padded();
    let sent = switch.unixctl().call("netdev-dummy/receive", &["p1", &packet.hex()]);
    sent.unwrap_or_else(|error| panic!("{error}"));
    // A second packet without copies of its own marks the end of those of the first.
    let last = Packet::new(mac(src), mac(10)).payload(0x88b5, b"last").padded();
    let sent = switch.unixctl().call("netdev-dummy/receive", &["p3", &last.hex()]);
    sent.unwrap_or_else(|error| panic!("{error}"));
    let frames = || pcap::frames(&switch.sandbox.path("p2.tx"));
    let is = |frame: &[u8], dst: u32| frame[..6] == mac(dst) && frame[6..12] == mac(src);
    eventually("the last packet is there", || {
        frames().iter().any(|frame| is(frame, 10)).then_some(())
    });
    let all = frames();
    let copies = all.iter().filter(|frame| is(frame, 9) && frame[12..14] == [0x81, 0]);
    copies
        .map(|frame| u16::from_be_bytes([frame[14], frame[15]]) & 0xfff)
        .collect()
}

#[test]
fn a_bridge_has_32_mirrors_and_further_ones_wait_as_in_open_vswitch() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    const FIRST: u16 = 100;
    let [theirs, ours] = [Vswitch::debian(Options::default()), start(Options::default())].map(|switch| {
        dummy_bridge(&switch, "br0", &["p1", "p2", "p3"]);
        let add = |numbers: std::ops::Range<u16>| {
            let one = |n| {
                format!(
                    "-- --id=@m{n} create mirror name=m{n} select_src_port=@p output_vlan={} \
                     -- add bridge br0 mirrors @m{n} ",
                    FIRST + n
                )
            };
            let all: String = numbers.map(one).collect();
            switch.vsctl(&format!("-- --id=@p get port p1 {all}"));
        };
        add(0..30);
        // A mirror that is in force stays, also where a row that comes later has the lesser UUID.
        for n in 30..37 {
            add(n..n + 1);
        }
        let full = copied_to(&switch, 1);
        let refused = said(&switch);
        // The end of one makes room for one of those that wait.
        switch.vsctl("-- --id=@m get mirror m7 -- remove bridge br0 mirrors @m");
        let after = copied_to(&switch, 2);
        let came: Vec<u16> = after.difference(&full).map(|vlan| vlan - FIRST).collect();
        let uuid = |n: &u16| switch.get("mirror", &format!("m{n}"), "_uuid");
        let least = (32..37).min_by_key(uuid);
        assert_eq!(came, Vec::from_iter(least), "the first one that waits");
        assert_eq!(after.len(), 32);
        (full, refused)
    });
    assert_eq!(theirs, ours);
    assert_eq!(ours.0, (FIRST..FIRST + 32).collect());
    let sentence = "|WARN|maximum of 32 port mirrors reached, cannot create m36";
    assert!(ours.1.iter().any(|line| line.ends_with(sentence)), "{ours:?}");
}

#[test]
fn a_filter_chooses_the_copied_packets_and_a_wrong_one_is_named() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Debian's Open vSwitch has no such column");
    }
    let switch = start(Options {
        client: ours(),
        ..Options::default()
    });
    dummy_bridge(&switch, "br0", &["p1", "p2", "out"]);
    switch.vsctl(
        "-- --id=@o get port out -- --id=@m create mirror name=m select_all=true output_port=@o \
         filter=\"in_port=p1,dl_type=0x88b5\" -- set bridge br0 mirrors=@m",
    );
    let copies = || pcap::frames(&switch.sandbox.path("out.tx"));
    let send = |port: &str, src: u32, kind: u16| {
        let packet = Packet::new(mac(src), mac(9)).payload(kind, b"payload").padded();
        let sent = switch.unixctl().call("netdev-dummy/receive", &[port, &packet.hex()]);
        sent.unwrap_or_else(|error| panic!("{error}"));
        packet.bytes()
    };
    let first = send("p1", 1, 0x88b5);
    send("p1", 2, 0x88b6);
    send("p2", 3, 0x88b5);
    let second = send("p1", 4, 0x88b5);
    eventually("both copies are there", || (copies().len() == 2).then_some(()));
    assert_eq!(copies(), [first, second]);
    switch.vsctl("set mirror m filter=\"no_such_field=1\"");
    let reason = "bridge br0: mirror m filter is invalid: ";
    eventually("the log says so", || {
        switch.sandbox.read("switch.log").contains(reason).then_some(())
    });
    // A mirror that is ignored copies nothing, and its output is a port as any other.
    switch.vsctl("set mirror m filter=\"dl_type=0x88b6\"");
    let third = send("p2", 5, 0x88b6);
    eventually("the filter is in force", || {
        (copies().last() == Some(&third)).then_some(())
    });
    switch.vsctl("clear mirror m filter");
    let fourth = send("p2", 6, 0x88b7);
    eventually("all packets are copied", || {
        (copies().last() == Some(&fourth)).then_some(())
    });
}

#[test]
fn a_mirror_into_a_vlan_reaches_the_watcher_of_the_next_switch() {
    skip!(unless root, "ip", "tcpdump", "ovs-vsctl");
    let ns = Netns::new("sw");
    let switch = in_namespace(&ns);
    let host = |n: u32| Vswitch::host(&ns, &format!("h{n}"), &format!("h{n}"), &format!("10.1.0.{n}/24"));
    let hosts = [1, 2, 3].map(host);
    ns.ip("link add t0 type veth peer t1");
    for device in ["t0", "t1"] {
        ns.ip(&format!("link set {device} up"));
    }
    // Two hosts at the first switch, the watcher at the second, the trunk between them. The VLAN of
    // copies teaches no addresses, or the switches would take the hosts to be behind the trunk.
    const VLAN: u16 = 50;
    switch.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=netdev -- add-br br1 -- set bridge br1 datapath_type=netdev \
         flood_vlans={VLAN} -- add-port br0 h1 tag=10 -- add-port br0 h2 tag=10 -- add-port br0 t0 trunks={VLAN} \
         -- add-port br1 t1 trunks={VLAN} -- add-port br1 h3 \
         -- --id=@h1 get port h1 -- --id=@m create mirror name=far select_src_port=@h1 select_dst_port=@h1 \
         output_vlan={VLAN} -- set bridge br0 mirrors=@m \
         -- --id=@h3 get port h3 -- --id=@n create mirror name=near select_all=true select_vlan={VLAN} \
         output_port=@h3 -- set bridge br1 mirrors=@n"
    ));
    let captures = [0, 2].map(|host: usize| Capture::start(&hosts[host], "eth0", "icmp or (vlan and icmp)"));
    assert_eq!(testkit::ping(&hosts[0], "10.1.0.2", 10).received, 10);
    let [at_host, at_watcher] = captures;
    for capture in [&at_host, &at_watcher] {
        eventually("all are captured", || (capture.frames().len() >= 20).then_some(()));
    }
    let mut sent: Vec<Vec<u8>> = at_host.finish();
    let mut seen = at_watcher.finish();
    let tagged = |frame: &mut Vec<u8>| drop(frame.splice(12..12, [0x81, 0, 0, VLAN as u8]));
    sent.iter_mut().for_each(tagged);
    sent.sort();
    seen.sort();
    assert_eq!(sent.len(), 20);
    assert_eq!(sent, seen);
}
