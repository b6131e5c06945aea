//! Offloaded flows are switched, counted and stopped like packets of workers.

use crate::fixture::{bridge_with_hosts, cannot_offload, in_namespace, offloaded, offloads_nothing, seen_by_workers};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use testkit::{Capture, Daemon, Iperf3, Netns, Vswitch, eventually, ping};

const TOOLS: [&str; 5] = ["ip", "ping", "tcpdump", "iperf3", "ovs-vsctl"];

/// A switch with two hosts, between which flows can be offloaded.
struct Lab {
    hosts: Vec<Netns>,
    switch: Vswitch,
    ns: Netns,
}

impl Lab {
    /// `None` with a message if this machine cannot have one.
    fn new() -> Option<Lab> {
        if cannot_offload(module_path!(), &TOOLS) {
            return None;
        }
        let ns = Netns::new("sw");
        let switch = in_namespace(&ns);
        let hosts = bridge_with_hosts(&ns, &switch, 2);
        let lab = Lab { hosts, switch, ns };
        lab.ping(5);
        if offloads_nothing(module_path!(), &lab.switch) {
            return None;
        }
        Some(lab)
    }

    /// Number of answered pings, of `count`.
    fn ping(&self, count: u32) -> u32 {
        ping(&self.hosts[0], "10.1.0.2", count).received
    }

    /// The first host pings 200 times a second until this is dropped.
    fn ping_on(&self) -> Daemon {
        let mut words = self.hosts[0].prefix();
        words.extend(["ping", "-q", "-i", "0.012", "10.1.0.2"].map(str::to_owned));
        Daemon::start("ping", &words, &self.switch.sandbox)
    }

    /// How many offloaded flows there are.
    fn offloaded(&self) -> u32 {
        offloaded(&self.switch, "")
    }

    /// Adds a bridge with one more host.
    fn bridge(&self, bridge: &str, port: &str, address: &str) -> Netns {
        let host = Vswitch::host(&self.ns, port, port, address);
        self.switch.vsctl(&format!(
            "add-br {bridge} -- set bridge {bridge} datapath_type=netdev -- add-port {bridge} {port}"
        ));
        host
    }

    /// Number of packets that workers found in a cache.
    fn seen_by_workers(&self) -> u64 {
        seen_by_workers(&self.switch)
    }

    /// How many offloaded flows packets of a host have.
    fn offloaded_of(&self, host: &Netns) -> u32 {
        offloaded(&self.switch, &format!("eth(src={}", host.mac_of("eth0")))
    }

    fn wait_for_offload(&self) {
        eventually("flows are offloaded", || {
            // A switch that has just started has no datapath yet.
            let has_datapath = !self.switch.appctl(&["dpctl/dump-dps"]).trim().is_empty();
            (has_datapath && self.offloaded() >= 2).then_some(())
        });
    }

    fn ofctl(&self, args: &[&str]) -> String {
        self.switch.tool("ovs-ofctl", args).expect_ok()
    }

    /// OpenFlow's counters of a port: packets and bytes received and sent.
    fn of_port(&self, port: &str) -> [u64; 4] {
        let text = self.ofctl(&["dump-ports", "br0", port]);
        let number = |line: &str, name: &str| -> u64 {
            let line = text.lines().find(|l| l.contains(line)).unwrap();
            let rest = line.split(&format!("{name}=")).nth(1).unwrap();
            rest.split(',').next().unwrap().trim().parse().unwrap()
        };
        [("rx ", "pkts"), ("rx ", "bytes"), ("tx ", "pkts"), ("tx ", "bytes")].map(|(line, name)| number(line, name))
    }

    /// The kernel's counters of its device.
    fn of_device(&self, device: &str) -> [u64; 4] {
        let text = self.ns.ip(&format!("-s link show {device}"));
        let numbers_below = |title: &str| -> Vec<u64> {
            let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with(title));
            let line = lines.nth(1).unwrap();
            line.split_whitespace().map(|word| word.parse().unwrap()).collect()
        };
        let (rx, tx) = (numbers_below("RX:"), numbers_below("TX:"));
        [rx[1], rx[0], tx[1], tx[0]]
    }
}

fn minus(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|n| a[n] - b[n])
}

#[test]
fn packets_of_offloaded_flows_are_counted_by_ports_rules_and_megaflows() {
    let Some(lab) = Lab::new() else { return };
    // Both at one time: hosts send a packet of their own now and then.
    let before = ["h1", "h2"].map(|port| {
        eventually("no packet comes between", || {
            let (openflow, device) = (lab.of_port(port), lab.of_device(port));
            (lab.of_port(port) == openflow && lab.of_device(port) == device).then_some((openflow, device))
        })
    });
    assert_eq!(lab.ping(30), 30);
    // More than needed, because iperf3 does not wait for unsent data at its end.
    Iperf3::tcp_bytes(40_000_000).run(&lab.hosts[0], &lab.hosts[1], "10.1.0.2");
    Iperf3::tcp_bytes(40_000_000).run(&lab.hosts[1], &lab.hosts[0], "10.1.0.1");
    assert!(lab.offloaded() >= 4, "both ways of the pings and of TCP");
    eventually("a port has counted what its device has", || {
        let same = ["h1", "h2"]
            .iter()
            .zip(before)
            .all(|(port, (openflow, device))| minus(lab.of_port(port), openflow) == minus(lab.of_device(port), device));
        (same && lab.of_port("h1")[1] > 20_000_000).then_some(())
    });
    let [packets, ..] = lab.of_port("h1");
    let text = lab.ofctl(&["dump-flows", "br0"]);
    let of_rule: u64 = text
        .split("n_packets=")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        of_rule >= packets,
        "the rule has seen what came in by both ports: {text}"
    );
    let flows = lab.switch.appctl(&["dpctl/dump-flows"]);
    let all = flows.split("packets:").skip(1);
    let all: u64 = all
        .map(|rest| rest.split(',').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert!(all + 100 > of_rule, "{all} packets of megaflows, {of_rule} of the rule");
    eventually("the interface's statistics have them too", || {
        let text = lab.switch.get("interface", "h1", "statistics");
        let rx = text
            .split("rx_bytes=")
            .nth(1)?
            .split([',', '}'])
            .next()?
            .parse::<u64>()
            .ok()?;
        (rx > 20_000_000).then_some(())
    });
}

#[test]
fn tags_are_pushed_and_popped_on_offloaded_flows() {
    let Some(lab) = Lab::new() else { return };
    // From one bridge to another by a cable, and back.
    lab.ns.ip("link add trunk0 type veth peer name trunk1");
    lab.ns.ip("link set trunk0 up");
    lab.ns.ip("link set trunk1 up");
    lab.switch.vsctl(
        "del-port h2 -- set port h1 tag=10 -- add-port br0 trunk0 -- set port trunk0 trunks=10,20 \
         -- add-br br1 -- set bridge br1 datapath_type=netdev -- add-port br1 trunk1 trunks=10,20",
    );
    lab.switch.vsctl("add-port br1 h2 tag=10");
    let is_offloaded = |action: &str| {
        let flows = lab.switch.appctl(&["dpctl/dump-flows", "-m"]);
        flows
            .lines()
            .any(|flow| flow.contains("offloaded:") && flow.contains(action))
    };
    assert_eq!(lab.ping(5), 5);
    eventually("both ways are offloaded", || {
        assert_eq!(lab.ping(1), 1);
        (is_offloaded("push_vlan(vid=10,pcp=0)") && is_offloaded("pop_vlan")).then_some(())
    });
    assert_eq!(lab.ping(20), 20);
    for (from, to, address) in [(0, 1, "10.1.0.2"), (1, 0, "10.1.0.1")] {
        Iperf3::tcp_bytes(20_000_000).run(&lab.hosts[from], &lab.hosts[to], address);
    }
    assert_eq!(lab.ping(5), 5);
    let capture = Capture::start(&lab.ns, "trunk0", "vlan 10 and icmp");
    assert_eq!(lab.ping(20), 20);
    assert_eq!(capture.finish().len(), 40, "requests and replies are tagged");

    // Some other packets of the hosts do not go to the other host.
    eventually("the tags' bytes are counted where they are", || {
        let before = ["h1", "trunk0"].map(|port| lab.of_port(port));
        assert_eq!(lab.ping(20), 20);
        let [h1, trunk] = ["h1", "trunk0"].map(|port| lab.of_port(port));
        let ([rx, rx_bytes, tx, tx_bytes], trunk) = (minus(h1, before[0]), minus(trunk, before[1]));
        (trunk == [tx, tx_bytes + 4 * tx, rx, rx_bytes + 4 * rx]).then_some(())
    });
}

#[test]
fn a_rule_is_in_force_for_packets_of_offloaded_flows_when_it_is_acknowledged() {
    let Some(lab) = Lab::new() else { return };
    let _pings = lab.ping_on();
    for _ in 0..5 {
        lab.wait_for_offload();
        lab.ofctl(&["add-flow", "br0", "priority=9,icmp,actions=drop"]);
        let sent = lab.of_device("h2")[2];
        std::thread::sleep(Duration::from_millis(300));
        let now = lab.of_device("h2")[2];
        assert!(now - sent <= 3, "{} packets after the barrier", now - sent);
        assert_eq!(lab.offloaded(), 0);
        lab.ofctl(&["del-flows", "br0", "icmp"]);
    }
    lab.wait_for_offload();
    // A rule that changes the packet goes through the worker.
    lab.ofctl(&[
        "add-flow",
        "br0",
        "priority=9,icmp,in_port=h1,actions=mod_nw_tos:32,NORMAL",
    ]);
    let capture = Capture::start(&lab.hosts[1], "eth0", "icmp[icmptype] == 8");
    capture.wait_for("a changed packet", |frame| frame[15] == 32);
    assert!(capture.finish().iter().all(|frame| frame[15] == 32));
}

#[test]
fn flows_through_a_select_group_are_offloaded_and_a_change_of_its_buckets_is_in_force_at_once() {
    let Some(lab) = Lab::new() else { return };
    let buckets = |actions: &str| {
        format!("group_id=1,type=select,bucket=bucket_id=1,weight=1,{actions},bucket=bucket_id=2,weight=2,{actions}")
    };
    let group = |command: &str, actions: &str| {
        lab.ofctl(&["-O", "OpenFlow15", command, "br0", &buckets(actions)]);
    };
    let of_group = || -> u64 {
        let text = lab.ofctl(&["-O", "OpenFlow15", "dump-group-stats", "br0", "group_id=1"]);
        let count = text.split(",packet_count=").nth(1).unwrap();
        count.split(',').next().unwrap().parse().unwrap()
    };
    group("add-group", "actions=output:h2");
    lab.ofctl(&["add-flow", "br0", "priority=9,icmp,in_port=h1,actions=group:1"]);
    let _pings = lab.ping_on();
    for _ in 0..3 {
        eventually("the megaflows of the hash and of the slot are offloaded", || {
            (offloaded(&lab.switch, "hash(sym_l4(0))") > 0 && offloaded(&lab.switch, "recirc_id(0x") > 0).then_some(())
        });
        let (seen, counted) = (lab.seen_by_workers(), of_group());
        eventually("the group counts what the kernel forwards", || {
            (of_group() >= counted + 100).then_some(())
        });
        let seen = lab.seen_by_workers() - seen;
        assert!(seen < 100, "workers have got {seen} packets");
        group("mod-group", "actions=drop");
        let sent = lab.of_device("h2")[2];
        std::thread::sleep(Duration::from_millis(300));
        let now = lab.of_device("h2")[2];
        assert!(now - sent <= 3, "{} packets after the barrier", now - sent);
        group("mod-group", "actions=output:h2");
    }
}

#[test]
fn what_a_port_is_told_to_do_with_packets_ends_its_offloaded_flows() {
    let Some(lab) = Lab::new() else { return };
    let _pings = lab.ping_on();
    lab.wait_for_offload();
    lab.switch
        .vsctl("set interface h1 ingress_policing_rate=100000 ingress_policing_burst=1000");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(lab.offloaded(), 1, "only the answers are still offloaded");
    lab.switch.vsctl("set interface h1 ingress_policing_rate=0");
    lab.wait_for_offload();
    lab.switch.vsctl(
        "set port h1 qos=@q -- --id=@q create qos type=linux-htb other-config:max-rate=50000000 queues:0=@d \
         -- --id=@d create queue other-config:max-rate=50000000",
    );
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(lab.offloaded(), 1, "only the requests are still offloaded");
    let speed = Iperf3::tcp(2).run(&lab.hosts[1], &lab.hosts[0], "10.1.0.1");
    assert!(speed < 60e6, "{speed} bit/s past a scheduler");
}

#[test]
fn offloaded_flows_follow_their_devices() {
    let Some(lab) = Lab::new() else { return };
    lab.ns.ip("link set h2 down");
    eventually("no offloaded flow leads to a device that is down", || {
        (lab.offloaded() == 0).then_some(())
    });
    assert_eq!(lab.ping(2), 0);
    lab.ns.ip("link set h2 up");
    eventually("they are back", || {
        (lab.ping(5) == 5 && lab.offloaded() >= 2).then_some(())
    });

    // Packets above the device's MTU do not leave by it.
    lab.ns.ip("link set h2 mtu 1000");
    eventually("flows are offloaded again", || (lab.offloaded() == 0).then_some(()));
    let large = ["ping", "-c", "4", "-i", "0.05", "-W", "1", "-s", "1200", "10.1.0.2"];
    assert!(!lab.hosts[0].try_run(&large, &[]).ok());
    assert_eq!(lab.ping(5), 5);
    lab.wait_for_offload();
    assert!(!lab.hosts[0].try_run(&large, &[]).ok());

    lab.switch.vsctl("del-port h2");
    assert_eq!(lab.offloaded(), 0);
    lab.switch.vsctl("add-port br0 h2");
    assert_eq!(lab.ping(5), 5);
    lab.wait_for_offload();
}

#[test]
fn what_packets_keep_alive_lives_on_where_they_are_offloaded() {
    let Some(lab) = Lab::new() else { return };
    lab.ofctl(&["add-flow", "br0", "priority=5,idle_timeout=2,icmp,actions=NORMAL"]);
    let pings = lab.ping_on();
    lab.wait_for_offload();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(500));
        let rules = lab.ofctl(&["dump-flows", "br0"]);
        assert!(rules.contains("idle_timeout=2"), "{rules}");
    }
    let learned = lab.switch.appctl(&["fdb/show", "br0"]);
    let ages: Vec<u32> = learned
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(3)?.parse().ok())
        .collect();
    assert!(ages.len() >= 2 && ages.iter().all(|age| *age <= 3), "{learned}");
    assert!(lab.offloaded() >= 2);
    drop(pings);
    eventually("the rule ends when the packets do", || {
        (!lab.ofctl(&["dump-flows", "br0"]).contains("idle_timeout=2")).then_some(())
    });
}

#[test]
fn flows_are_offloaded_or_not_as_the_user_says() {
    let Some(lab) = Lab::new() else { return };
    let captured = |lab: &Lab| {
        let capture = Capture::start(&lab.ns, "h2", "icmp[icmptype] == 8");
        assert_eq!(lab.ping(20), 20);
        capture.finish().len()
    };
    assert_eq!(captured(&lab), 20, "captures on the port see what is offloaded");
    lab.switch.vsctl("set open_vswitch . other_config:kernel-offload=false");
    assert_eq!(lab.ping(5), 5);
    assert_eq!(lab.offloaded(), 0);
    lab.switch
        .vsctl("set open_vswitch . other_config:kernel-offload=sometimes");
    assert_eq!(captured(&lab), 20, "as unless it is set");
    lab.switch.vsctl(
        "remove open_vswitch . other_config kernel-offload -- set open_vswitch . other_config:worker-shortcuts=false",
    );
    assert_eq!(lab.ping(5), 5);
    assert_eq!(lab.offloaded(), 0, "the former name works");
}

#[test]
fn processors_are_kept_awake_for_offloaded_flows_while_packets_come_where_a_user_asks_for_it() {
    const DEVICE: &str = "/dev/cpu_dma_latency";
    let Some(lab) = Lab::new() else { return };
    if !std::path::Path::new(DEVICE).exists() {
        testkit::say_skipped(module_path!(), "the kernel takes no requests for a latency");
        return;
    }
    let open_files = format!("/proc/{}/fd", lab.switch.daemons.last().unwrap().pid());
    let keeps_awake = || {
        let mut files = std::fs::read_dir(&open_files).unwrap();
        files.any(|file| std::fs::read_link(file.unwrap().path()).is_ok_and(|to| to == std::path::Path::new(DEVICE)))
    };
    let pinging = lab.ping_on();
    lab.wait_for_offload();
    assert!(!keeps_awake());
    lab.switch
        .vsctl("set open_vswitch . other_config:cpu-dma-latency-hold=20000");
    eventually("processors are kept awake", || keeps_awake().then_some(()));
    drop(pinging);
    eventually("processors may sleep", || (!keeps_awake()).then_some(()));
    let pinging = lab.ping_on();
    eventually("processors are kept awake again", || keeps_awake().then_some(()));
    lab.switch
        .vsctl("remove open_vswitch . other_config cpu-dma-latency-hold");
    eventually("nobody asks for it", || (!keeps_awake()).then_some(()));
    drop(pinging);
    let log = || std::fs::read_to_string(lab.switch.sandbox.path("switch.log")).unwrap();
    assert!(!log().contains("cpu-dma-latency-hold"), "{}", log());
    lab.switch
        .vsctl("set open_vswitch . other_config:cpu-dma-latency-hold=2s other_config:worker-spin=2s");
    let complaint = "other_config:cpu-dma-latency-hold=2s is neither 0 nor a number of microseconds";
    eventually("a bad value is named", || log().contains(complaint).then_some(()));
    let complaint = "other_config:worker-spin=2s is not a number from 0 to 1000000; it is taken for 0";
    eventually("a bad value is named", || log().contains(complaint).then_some(()));
}

#[test]
fn a_killed_switch_forwards_nothing_and_goes_on_when_it_is_back() {
    let Some(mut lab) = Lab::new() else { return };
    let _pings = lab.ping_on();
    lab.wait_for_offload();
    lab.switch.kill();
    let sent = lab.of_device("h2")[2];
    std::thread::sleep(Duration::from_millis(200));
    assert!(
        lab.of_device("h2")[2] - sent <= 1,
        "offloaded flows go with the process"
    );
    lab.switch.boot();
    lab.wait_for_offload();
    assert_eq!(lab.ping(5), 5);
}

#[test]
fn what_one_bridge_learns_leaves_the_offloaded_flows_of_another_in_force() {
    let Some(lab) = Lab::new() else { return };
    let other = lab.bridge("br1", "h3", "10.2.0.3/24");
    let stop = AtomicBool::new(false);
    let (seen, learned) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            other.enter(|| {
                let socket = sys::PacketSocket::new().unwrap();
                let device = rustix::net::netdevice::name_to_index(&socket, "eth0").unwrap();
                socket.bind(device, false).unwrap();
                let mut sent = 0_u32;
                while !stop.load(Relaxed) {
                    for _ in 0..4 {
                        sent += 1;
                        let frame = testkit::Packet::new(testkit::mac(1000 + sent), testkit::mac(1));
                        let frame = frame.payload(0x1234, &[0; 46]).bytes();
                        let _ = rustix::net::send(&socket, &frame, rustix::net::SendFlags::empty());
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        });
        std::thread::sleep(Duration::from_millis(300));
        let before = lab.seen_by_workers();
        let pinged = lab.hosts[0].run(&["ping", "-q", "-i", "0.005", "-c", "400", "10.1.0.2"]);
        assert!(pinged.contains(" 0% packet loss"), "{pinged}");
        let seen = lab.seen_by_workers() - before;
        stop.store(true, Relaxed);
        flood.join().unwrap();
        // The title and a line for each station.
        let learned = lab.switch.appctl(&["fdb/show", "br1"]).lines().count() - 1;
        (seen, learned)
    });
    assert!(learned > 400, "{learned} stations");
    assert!(
        seen < 100,
        "workers saw {seen} of 800 packets while br1 learned {learned} stations"
    );
}

#[test]
fn a_change_of_any_bridge_that_packets_cross_is_in_force_when_it_is_acknowledged() {
    let Some(lab) = Lab::new() else { return };
    lab.switch.vsctl(
        "del-port h2 -- add-br br1 -- set bridge br1 datapath_type=netdev -- add-port br1 h2 \
         -- add-port br0 p0 -- set interface p0 type=patch options:peer=p1 \
         -- add-port br1 p1 -- set interface p1 type=patch options:peer=p0",
    );
    let _pings = lab.ping_on();
    for bridge in ["br0", "br1"] {
        lab.wait_for_offload();
        lab.ofctl(&["add-flow", bridge, "priority=9,icmp,actions=drop"]);
        let sent = lab.of_device("h2")[2];
        std::thread::sleep(Duration::from_millis(300));
        let now = lab.of_device("h2")[2];
        assert!(now - sent <= 3, "{} packets after the barrier of {bridge}", now - sent);
        lab.ofctl(&["del-flows", bridge, "icmp"]);
    }
    lab.wait_for_offload();
}

#[test]
fn a_port_with_many_flows_leaves_offloaded_flows_to_others() {
    let Some(lab) = Lab::new() else { return };
    let third = Vswitch::host(&lab.ns, "h3", "h3", "10.1.0.3/24");
    lab.switch.vsctl("add-port br0 h3");
    let stop = AtomicBool::new(false);
    let send = |host: &Netns, kinds: u16, pause: Option<Duration>| {
        host.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            while !stop.load(Relaxed) {
                for kind in 0..kinds {
                    // The ICMP error of a closed port can be returned for a later datagram.
                    let _ = socket.send_to(&[0; 20], ("10.1.0.2", 10_000 + kind));
                    pause.into_iter().for_each(std::thread::sleep);
                }
            }
        });
    };
    let wait = |done: &dyn Fn() -> bool| {
        (0..300).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            done()
        })
    };
    let (most, few) = std::thread::scope(|scope| {
        scope.spawn(|| send(&lab.hosts[0], 12_000, None));
        let most = || lab.offloaded_of(&lab.hosts[0]);
        // A busy machine may not get so far.
        if !wait(&|| most() > 6000) {
            stop.store(true, Relaxed);
            return (most(), None);
        }
        scope.spawn(|| send(&third, 500, Some(Duration::from_micros(50))));
        let enough = wait(&|| lab.offloaded_of(&third) >= 450);
        let counts = (most(), Some(enough));
        stop.store(true, Relaxed);
        counts
    });
    let Some(few) = few else {
        let reason =
            format!("this machine made only {most} offloaded flows of 12000 flows, too few to make them short");
        testkit::say_skipped(module_path!(), &reason);
        return;
    };
    assert!(few, "a port finds no offloaded flows while another has {most}");
}

#[test]
fn a_limit_of_storms_acts_on_offloaded_floods_and_leaves_known_stations_offloaded() {
    let Some(lab) = Lab::new() else { return };
    let socket = lab.hosts[0].enter(|| UdpSocket::bind("10.1.0.1:0").unwrap());
    socket.set_broadcast(true).unwrap();
    let storm = || {
        for _ in 0..100 {
            let _ = socket.send_to(&[0; 1000], "10.1.0.255:9");
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    let mac = lab.hosts[0].mac_of("eth0");
    let broadcasts = || {
        let flows = lab.switch.appctl(&["dpctl/dump-flows", "-m"]);
        let own = format!("eth(src={mac},dst=ff:ff:ff:ff:ff:ff)");
        let found: Vec<String> = flows
            .lines()
            .filter(|flow| flow.contains(&own))
            .map(str::to_owned)
            .collect();
        found
    };
    eventually("the flood has a flow", || {
        storm();
        (!broadcasts().is_empty()).then_some(())
    });
    lab.switch
        .vsctl("set port h1 other_config:storm-control-unit=kbps other_config:storm-control-broadcast=8");
    let capture = Capture::start(&lab.hosts[1], "eth0", "udp and dst port 9");
    // In the limit are eight of these packets a second, and as many at once.
    let before = Instant::now();
    storm();
    storm();
    eventually("the limit acts", || {
        let shown = lab.switch.appctl(&["storm-control/show", "br0"]);
        let count =
            |name: &str| -> Option<u64> { shown.split(name).nth(1)?.split(&[',', '\n'][..]).next()?.parse().ok() };
        (count("passed=")? + count("dropped=")? >= 200).then_some(())
    });
    let passed = capture.finish().len() as u64;
    let most = 8 + 1 + before.elapsed().as_secs() * 8 + 8;
    assert!((1..=most).contains(&passed), "{passed} of 200, at most {most}");
    let limited = broadcasts();
    assert!(
        limited
            .iter()
            .all(|flow| flow.contains("meter(") && !flow.contains("offloaded:")),
        "{limited:?}"
    );
    let _pings = lab.ping_on();
    lab.wait_for_offload();
}
