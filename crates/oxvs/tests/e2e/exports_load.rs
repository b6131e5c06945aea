//! Flow export where there are more samples than anybody can take, where the collector is a device
//! of the switch itself, and where samples are to go to the kernel.

use crate::fixture::{in_namespace, ours, stand_in, start};
use std::net::UdpSocket;
use std::time::Duration;
use testkit::{Collector, Netns, Options, Packet, Vswitch, eventually, mac, ping, skip};

/// More than samples fit in the queue.
const PACKETS: u32 = 400_000;

/// A capture of packets of one flow.
fn capture() -> Vec<u8> {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let packet = packet.udp(1000, 2000, &[7; 60]).bytes();
    let len = (packet.len() as u32).to_le_bytes();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for _ in 0..PACKETS {
        file.extend([&[0; 8][..], &len, &len, &packet].concat());
    }
    file
}

/// The number behind a word.
fn number(text: &str, word: &str) -> u64 {
    let (_, rest) = text.split_once(word).unwrap_or_else(|| panic!("{word} in {text}"));
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

fn port(switch: &Vswitch, name: &str, word: &str) -> u64 {
    let shown = switch.appctl(&["dpctl/show", "-s"]);
    number(shown.split(&format!(": {name} ")).nth(1).unwrap(), word)
}

/// Packets and samples that the source's port has lost.
fn lost(switch: &Vswitch) -> (u64, u64) {
    let shown = switch.appctl(&["dpctl/show", "-s"]);
    let of_source = shown.split(": source ").nth(1).unwrap();
    let causes = of_source
        .lines()
        .find_map(|line| line.trim().strip_prefix("dropped by cause: "));
    let (mut packets, mut samples) = (0, 0);
    for (cause, lost) in causes
        .into_iter()
        .flat_map(str::split_whitespace)
        .filter_map(|cause| cause.split_once(':'))
    {
        let of = if cause == "drop_sample_budget" {
            &mut samples
        } else {
            &mut packets
        };
        *of += lost.parse::<u64>().unwrap();
    }
    (packets, samples)
}

/// The highest number of a flow sample in a datagram of sFlow.
fn last_sample(datagram: &[u8]) -> u64 {
    let word = |at: usize| u32::from_be_bytes(datagram[at..at + 4].try_into().unwrap());
    let (mut at, mut last) = (28, 0);
    for _ in 0..word(24) {
        if word(at) == 1 {
            last = last.max(u64::from(word(at + 8)));
        }
        at += 8 + word(at + 4) as usize;
    }
    last
}

#[test]
fn where_every_packet_is_sampled_none_is_lost_and_samples_without_room_are_counted() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch has no such devices");
    }
    for exporter in ["ipfix", "sflow"] {
        let switch = start(Options::default());
        let collector = Collector::new();
        let file = switch.sandbox.path("packets");
        std::fs::write(&file, capture()).unwrap();
        switch.vsctl(&format!(
            "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
             -- add-port br0 sink -- set interface sink type=null ofport_request=2 \
             -- --id=@e create {exporter} targets=\"{}\" sampling=1 -- set bridge br0 {exporter}=@e",
            collector.target()
        ));
        if exporter == "ipfix" {
            switch.vsctl("set ipfix . other_config:enable-output-sampling=false");
        } else {
            switch.vsctl("set sflow . polling=0 agent=127.0.0.1");
        }
        switch
            .tool("ovs-ofctl", &["add-flow", "br0", "in_port=1,actions=output:2"])
            .expect_ok();
        switch.vsctl(&format!(
            "add-port br0 source -- set interface source type=pcap options:rx_pcap={} ofport_request=1",
            file.display()
        ));
        eventually("all packets have come in", || {
            (port(&switch, "source", "RX packets:") == u64::from(PACKETS)).then_some(())
        });
        // The device begins before the bridge knows the port.
        let early = || lost(&switch).0;
        let passed = || port(&switch, "sink", "TX packets:");
        eventually("all packets have left", || {
            (passed() + early() == u64::from(PACKETS)).then_some(())
        });
        assert!(passed() > 10_000, "{}", passed());
        let mut samples = 0;
        eventually("each sample is taken or counted as lost", || {
            let taken = match exporter {
                "ipfix" => {
                    let done = switch.tool("ovs-ofctl", &["dump-ipfix-bridge", "br0"]).expect_ok();
                    number(&done, "sampled pkts=")
                }
                _ => {
                    let datagrams = collector.take(Duration::from_millis(300));
                    samples = datagrams
                        .iter()
                        .map(|datagram| last_sample(datagram))
                        .fold(samples, u64::max);
                    samples
                }
            };
            (taken + lost(&switch).1 == passed()).then_some(())
        });
    }
}

#[test]
fn a_collector_behind_the_switch_is_not_told_of_its_own_datagrams_for_ever() {
    skip!(unless root, "ip", "ping", "ovs-vsctl");
    let ns = Netns::new("sw");
    let switch = in_namespace(&ns);
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    let host = Vswitch::host(&ns, "h1", "h1", "10.1.0.1/24");
    switch.vsctl("add-port br0 h1");
    ns.address("br0", "10.1.0.9/24");
    ns.ip("link set br0 up");
    assert!(ping(&host, "10.1.0.9", 3).received > 0);
    // Hosts that ask for each other would be sampled, too.
    let (near, far) = (ns.mac_of("br0"), host.mac_of("eth0"));
    ns.ip(&format!("neigh replace 10.1.0.1 lladdr {far} dev br0 nud permanent"));
    host.ip(&format!("neigh replace 10.1.0.9 lladdr {near} dev eth0 nud permanent"));
    let sockets = host.enter(|| [6343, 4739, 2055].map(|port| UdpSocket::bind(("10.1.0.1", port)).unwrap()));
    sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    let taken = || {
        sockets.each_ref().map(|socket| {
            let mut buffer = [0; 2000];
            std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
        })
    };
    switch.vsctl(
        "-- --id=@s create sflow targets=\"10.1.0.1:6343\" agent=br0 sampling=1 polling=0 \
         -- --id=@i create ipfix targets=\"10.1.0.1:4739\" sampling=1 \
         -- --id=@n create netflow targets=\"10.1.0.1:2055\" active_timeout=1 \
         -- set open_vswitch . other_config:max-idle=500 -- set bridge br0 sflow=@s ipfix=@i netflow=@n",
    );
    let mut told = [0; 3];
    eventually("every collector is told of pings", || {
        assert!(ping(&host, "10.1.0.9", 3).received > 0);
        let more = taken();
        told = std::array::from_fn(|n| told[n] + more[n]);
        told.iter().all(|datagrams| *datagrams > 0).then_some(())
    });
    eventually("sFlow and IPFIX have nothing more to tell", || {
        std::thread::sleep(Duration::from_secs(2));
        let [sflow, ipfix, _] = taken();
        (sflow + ipfix == 0).then_some(())
    });
    assert!(ping(&host, "10.1.0.9", 3).received == 3);
}

#[test]
fn samples_for_the_kernel_are_refused_by_name_and_those_of_collectors_go_on() {
    if stand_in() {
        skip!("Debian's Open vSwitch has no such column");
    }
    let switch = start(Options {
        client: ours(),
        ..Options::default()
    });
    let collector = Collector::new();
    switch.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure -- add-port br0 p1 \
         -- set interface p1 type=dummy ofport_request=1 -- --id=@b get bridge br0 \
         -- --id=@i create ipfix targets=\"{}\" -- create Flow_Sample_Collector_Set id=7 bridge=@b ipfix=@i local_group_id=5",
        collector.target()
    ));
    let reason =
        "Flow_Sample_Collector_Set 7: local_group_id=5 is not supported: only the kernel sends to psample groups";
    switch.wait_for("bridge", "br0", "status", |status| status.contains(reason));
    eventually("the log says so", || {
        switch.sandbox.read("switch.log").contains(reason).then_some(())
    });
    let rule = "in_port=1,actions=sample(probability=65535,collector_set_id=7,obs_domain_id=1,obs_point_id=2)";
    switch.tool("ovs-ofctl", &["add-flow", "br0", rule]).expect_ok();
    let packet = Packet::new(mac(1), mac(2)).payload(0x88b5, &[7; 60]).hex();
    switch.appctl(&["netdev-dummy/receive", "p1", &packet]);
    eventually("the collector has its sample", || {
        (!collector.take(Duration::from_millis(300)).is_empty()).then_some(())
    });
    switch.vsctl("clear Flow_Sample_Collector_Set . local_group_id");
    switch.wait_for("bridge", "br0", "status", |status| !status.contains("local_group_id"));
}
