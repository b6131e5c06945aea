//! Mirrors on real devices, with flows that the kernel forwards.

use crate::fixture::{bridge_with_hosts, in_namespace};
use testkit::{Capture, Daemon, Netns, Vswitch, eventually, ping, skip};

/// A switch with two hosts that talk, and one that watches.
struct Lab {
    switch: Vswitch,
    hosts: Vec<Netns>,
    ns: Netns,
}

impl Lab {
    fn new() -> Lab {
        let ns = Netns::new("sw");
        let switch = in_namespace(&ns);
        let hosts = bridge_with_hosts(&ns, &switch, 3);
        let lab = Lab { switch, hosts, ns };
        lab.ping(5);
        lab
    }

    fn ping(&self, count: u32) {
        assert_eq!(ping(&self.hosts[0], "10.1.0.2", count).received, count);
    }

    fn mirror(&self, columns: &str) {
        self.switch.vsctl(&format!(
            "-- --id=@h1 get port h1 -- --id=@h3 get port h3 -- --id=@m create mirror name=m {columns} \
             -- set bridge br0 mirrors=@m"
        ));
    }

    /// Waits until the kernel forwards and mirrors pings, in so many directions.
    fn wait_for_offload(&self, ways: usize) {
        eventually("the mirrored pings are offloaded", || {
            self.ping(2);
            let flows = self.switch.appctl(&["dpctl/dump-flows", "-m"]);
            let offloaded = flows.lines().filter(|flow| {
                let actions = flow.split("actions:").nth(1).unwrap_or_default();
                let outputs = actions
                    .split(',')
                    .filter(|action| ["h1", "h2", "h3"].contains(&action.trim()));
                flow.contains("offloaded:") && outputs.count() > 1
            });
            (offloaded.count() >= ways).then_some(())
        });
    }

    /// The packets that the mirror has copied.
    fn counted(&self) -> u64 {
        let text = self.switch.get("mirror", "m", "statistics");
        let packets = text.split("tx_packets=").nth(1).unwrap_or("0}");
        packets.trim_end_matches('}').parse().unwrap()
    }

    /// A counter of the mirror's output port.
    fn h3(&self, name: &str) -> u64 {
        let ports = self.switch.appctl(&["dpctl/show", "-s"]);
        let port = ports.split(": h3").nth(1).unwrap();
        let tx = port.split("TX packets:").nth(1).unwrap();
        let number = match name {
            "tx_packets" => tx,
            _ => tx.split("dropped:").nth(1).unwrap(),
        };
        number.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Packets that the qdisc of the mirror's output has sent and dropped.
    fn qdisc(&self, place: usize) -> u64 {
        let shown = self.ns.run(&["tc", "-s", "qdisc", "show", "dev", "h3", "root"]);
        let line = shown.lines().find(|line| line.contains("Sent ")).unwrap();
        let number = |word: &str| line.split(word).next().unwrap().split_whitespace().next_back();
        let number = [
            number(" pkt"),
            line.split("dropped ").nth(1).and_then(|rest| rest.split(',').next()),
        ][place];
        number.unwrap().parse().unwrap()
    }

    /// Pings; the frames of pings and their replies at the first host and at the one that watches.
    fn seen(&self) -> [Vec<Vec<u8>>; 2] {
        let captures = [0, 2].map(|host: usize| Capture::start(&self.hosts[host], "eth0", "icmp or (vlan and icmp)"));
        self.ping(20);
        captures.map(|capture| {
            let mut frames = capture.finish();
            frames.sort();
            frames
        })
    }
}

#[test]
fn a_mirror_shows_what_its_ports_carry_also_of_flows_that_the_kernel_forwards() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl");
    let lab = Lab::new();
    let [_, nothing] = lab.seen();
    assert!(nothing.is_empty(), "{} frames before there is a mirror", nothing.len());
    lab.mirror("select_all=true output_port=@h3");
    lab.wait_for_offload(2);
    let before = lab.counted();
    let [sent, mirrored] = lab.seen();
    assert_eq!(sent.len(), 40);
    assert_eq!(sent, mirrored);
    eventually("the mirror's packets are counted", || {
        (lab.counted() >= before + 40).then_some(())
    });
    lab.switch
        .vsctl("set mirror m select_all=false select_src_port=[] -- set mirror m select_dst_port=[]");
    assert_eq!(lab.seen()[1].len(), 0, "no port is selected");
    lab.mirror("select_src_port=@h1 output_port=@h3 snaplen=50");
    let [sent, cut] = lab.seen();
    assert_eq!(cut.len(), 20);
    assert!(
        cut.iter()
            .all(|cut| cut.len() == 50 && sent.iter().any(|frame| frame.starts_with(cut)))
    );
    lab.mirror("select_dst_port=@h1 output_port=@h3");
    assert_eq!(lab.seen()[1].len(), 20);
    let counted = || lab.switch.get("mirror", "m", "statistics");
    eventually("the mirror's packets are counted", || {
        counted().contains("tx_packets=20").then_some(())
    });
    lab.switch.vsctl("clear bridge br0 mirrors");
    assert_eq!(lab.seen()[1].len(), 0, "the mirror is gone");
}

#[test]
fn a_mirror_into_a_vlan_is_offloaded_with_its_tag() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl");
    let lab = Lab::new();
    lab.switch
        .vsctl("set port h1 tag=10 -- set port h2 tag=10 -- set port h3 trunks=30 -- set port br0 tag=99");
    lab.mirror("select_src_port=@h1 output_vlan=30");
    lab.wait_for_offload(1);
    let [sent, mirrored] = lab.seen();
    let requests = sent.iter().filter(|frame| frame[34] == 8).map(|frame| {
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x00, 30]);
        tagged
    });
    assert_eq!(requests.collect::<Vec<_>>(), mirrored);
    lab.switch.vsctl("clear bridge br0 mirrors");
    assert_eq!(lab.seen()[1].len(), 0, "the mirror is gone");
}

#[test]
fn copies_that_a_full_output_does_not_take_are_counted_and_cost_the_traffic_nothing() {
    skip!(unless root, "ip", "ping", "tc", "tcpdump", "ovs-vsctl");
    let lab = Lab::new();
    let tc = |words: &str| lab.ns.run(&format!("tc qdisc {words}").split(' ').collect::<Vec<_>>());
    for columns in ["select_src_port=@h1", "select_dst_port=@h1"] {
        lab.mirror(&format!("{columns} output_port=@h3"));
        lab.wait_for_offload(1);
        // Room for a few frames, which leave in 80 ms each; not before, or copies that workers try
        // to send again would stand in the way of the offload.
        tc("add dev h3 root tbf rate 10kbit burst 2000 limit 400");
        let before = [lab.h3("tx_dropped"), lab.h3("tx_packets"), lab.qdisc(1), lab.qdisc(0)];
        let flood = ["ping", "-q", "-n", "-c", "500", "-i", "0.002", "10.1.0.2"];
        let done = lab.hosts[0].try_run(&flood, &[]).expect_ok();
        assert!(done.contains("500 received"), "{done}");
        let after = [lab.h3("tx_dropped"), lab.h3("tx_packets"), lab.qdisc(1), lab.qdisc(0)];
        let [dropped, sent, lost, _] = std::array::from_fn(|n| after[n] - before[n]);
        assert!(lost > 400, "{lost} lost");
        // The device refuses a copy of a worker more than once: it tries again.
        assert!(dropped > 400 && dropped <= lost, "{columns}: {dropped} of {lost}");
        assert!(
            (500..=503).contains(&(dropped + sent)),
            "{columns}: {dropped} and {sent}"
        );
        tc("del dev h3 root");
    }
    let shown = lab.switch.appctl(&["dpctl/show", "-s"]);
    let dropped = format!("drop_device_full: {}", lab.h3("tx_dropped"));
    assert!(shown.contains(&dropped), "{dropped} in {shown}");
}

#[test]
fn the_kernel_makes_whole_copies_and_workers_cut_them() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl");
    let lab = Lab::new();
    lab.mirror("select_all=true output_port=@h3 snaplen=1518");
    lab.wait_for_offload(2);
    lab.switch.vsctl("set mirror m snaplen=100");
    lab.ping(5);
    let flows = lab.switch.appctl(&["dpctl/dump-flows", "-m"]);
    let cut: Vec<&str> = flows.lines().filter(|flow| flow.contains("trunc(100)")).collect();
    assert!(!cut.is_empty(), "{flows}");
    assert!(cut.iter().all(|flow| !flow.contains("offloaded:")), "{flows}");
    // Copies of one length, or packets of one flow would go two ways.
    lab.switch.vsctl("clear mirror m snaplen");
    lab.wait_for_offload(2);
    lab.ns.ip("link set h3 mtu 1000");
    eventually("no copy goes to a device that takes less", || {
        lab.ping(2);
        let flows = lab.switch.appctl(&["dpctl/dump-flows", "-m"]);
        let is_offloaded = |flow: &str| flow.contains("offloaded:") && flow.contains("eth_type(0x0800)");
        (!flows.lines().any(is_offloaded)).then_some(())
    });
    lab.ns.ip("link set h3 mtu 1500");
    lab.wait_for_offload(2);
}

#[test]
fn the_end_of_a_mirror_acts_on_offloaded_flows_before_the_client_has_its_answer() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl");
    let lab = Lab::new();
    let mut words = lab.hosts[0].prefix();
    words.extend(["ping", "-q", "-i", "0.002", "10.1.0.2"].map(str::to_owned));
    let _pings = Daemon::start("ping", &words, &lab.switch.sandbox);
    for _ in 0..3 {
        lab.mirror("select_all=true output_port=@h3");
        lab.wait_for_offload(2);
        lab.switch.vsctl("clear bridge br0 mirrors");
        let capture = Capture::start(&lab.hosts[2], "eth0", "icmp");
        lab.ping(5);
        assert_eq!(capture.finish().len(), 0);
    }
}

#[test]
fn a_mirrors_statistics_go_on_when_its_settings_and_ports_change_and_end_with_its_row() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl");
    let lab = Lab::new();
    lab.mirror("select_src_port=@h1 output_port=@h3");
    let mut counted = 0;
    for change in [
        "set mirror m snaplen=1518",
        "set mirror m select_all=true",
        "add-port br0 h4 -- set interface h4 type=internal",
        "set bridge br0 other_config:mac-aging-time=500",
        "set mirror m select_vlan=0",
    ] {
        lab.wait_for_offload(1);
        lab.ping(10);
        let before = eventually("the pings are counted", || {
            Some(lab.counted()).filter(|now| *now >= counted + 10)
        });
        lab.switch.vsctl(change);
        counted = lab.counted();
        assert!(counted >= before, "{change}: {counted} after {before}");
    }
    lab.switch.vsctl("clear bridge br0 mirrors");
    lab.mirror("output_port=@h3");
    assert_eq!(lab.counted(), 0, "another row");
}

#[test]
fn a_mirrors_output_takes_no_part_in_switching_and_ends_with_its_port() {
    skip!(unless root, "ip", "ping", "tcpdump", "ovs-vsctl");
    let lab = Lab::new();
    assert_eq!(ping(&lab.hosts[2], "10.1.0.1", 3).received, 3);
    lab.mirror("select_src_port=@h1 output_port=@h3");
    assert_eq!(ping(&lab.hosts[2], "10.1.0.1", 1).received, 0, "into the output");
    lab.switch.vsctl("del-port br0 h3");
    assert_eq!(lab.switch.get("mirror", "m", "output_port"), "[]", "a weak reference");
    let said = "|bridge|ERR|bridge br0: mirror m does not specify output; ignoring";
    eventually("the log says so", || {
        lab.switch.sandbox.read("switch.log").contains(said).then_some(())
    });
    lab.ping(3);
    lab.switch.vsctl("add-port br0 h3");
    eventually("it is a port as any other", || {
        (ping(&lab.hosts[2], "10.1.0.1", 1).received == 1).then_some(())
    });
}
