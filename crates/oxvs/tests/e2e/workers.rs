//! Workers and their queues, by the keys and commands of Open vSwitch's poll-mode threads, beside
//! Debian's where that is installed.

use crate::fixture::{binary, stand_in, start};
use testkit::{Options, Packet, Vswitch, eventually, mac, skip};

const SHOW: &str = "dpif-netdev/pmd-rxq-show";

/// A switch with two workers and two ports of four and of two queues.
fn two_ports(switch: &Vswitch) {
    switch.vsctl("set open_vswitch . other_config:pmd-cpu-mask=3");
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=standalone");
    for (port, queues) in [("p0", 4), ("p1", 2)] {
        switch.vsctl(&format!(
            "add-port br0 {port} -- set interface {port} type=dummy-pmd options:n_rxq={queues}"
        ));
    }
}

/// The command's output for the two ports, without load figures.
fn shown(switch: &Vswitch, args: &[&str]) -> Vec<String> {
    let all = switch.appctl(&[&[SHOW], args].concat());
    let lines = all
        .lines()
        .filter(|line| !line.contains("port: br0") && !line.contains("overhead"));
    lines
        .map(|line| line.split("pmd usage:").next().unwrap_or_default().to_owned())
        .collect()
}

fn switches() -> Vec<Vswitch> {
    let options = Options {
        args: vec!["--dummy-numa=0,0".to_owned()],
        ..Options::default()
    };
    let mut switches = vec![start(Options::default())];
    if !stand_in() && testkit::has_tool("ovs-vswitchd") {
        switches.push(Vswitch::debian(options));
    }
    switches
}

#[test]
fn queues_are_where_they_are_pinned_and_are_shown_as_open_vswitch_shows_them() {
    skip!(unless "ovs-vsctl", "setpriv");
    let switches = switches();
    for switch in &switches {
        two_ports(switch);
        switch.vsctl("set interface p0 other_config:pmd-rxq-affinity=0:0,1:1,2:1,3:0");
        switch.vsctl("set interface p1 other_config:pmd-rxq-affinity=0:1,1:0");
        let expected = [
            "Displaying last 60 seconds pmd usage %",
            "pmd thread numa_id 0 core_id 0:",
            "  isolated : true",
            "  port: p0                queue-id:  0 (enabled)   ",
            "  port: p0                queue-id:  3 (enabled)   ",
            "  port: p1                queue-id:  1 (enabled)   ",
            "pmd thread numa_id 0 core_id 1:",
            "  isolated : true",
            "  port: p0                queue-id:  1 (enabled)   ",
            "  port: p0                queue-id:  2 (enabled)   ",
            "  port: p1                queue-id:  0 (enabled)   ",
        ];
        eventually("all queues are pinned", || {
            (shown(switch, &[]) == expected).then_some(())
        });
        let one = shown(switch, &["-pmd", "1", "-secs", "5"]);
        assert_eq!(one[0], "Displaying last 5 seconds pmd usage %");
        assert_eq!(one[1..], expected[6..]);

        switch.vsctl(
            "remove interface p0 other_config pmd-rxq-affinity -- remove interface p1 other_config pmd-rxq-affinity",
        );
        switch.vsctl("set open_vswitch . other_config:pmd-rxq-assign=roundrobin");
        eventually("queues are spread", || {
            let shown = shown(switch, &[]);
            let of = |core: &str| {
                let from = shown.iter().position(|line| line.contains(core))?;
                let lines = shown[from + 1..].iter().take_while(|line| !line.contains("core_id"));
                Some(lines.filter(|line| line.contains("port:")).count())
            };
            (of("core_id 0") == Some(3) && of("core_id 1") == Some(3)).then_some(())
        });
        let answer = switch.appctl(&["dpif-netdev/pmd-rxq-rebalance"]);
        assert_eq!(answer, "pmd rxq rebalance requested.\n");
    }
}

#[test]
fn what_workers_did_is_counted_and_shown_as_open_vswitch_shows_it() {
    skip!(unless "ovs-vsctl", "setpriv");
    let switches = switches();
    let mut labels = Vec::new();
    for switch in &switches {
        two_ports(switch);
        switch.vsctl("set interface p0 other_config:pmd-rxq-affinity=0:0");
        switch.appctl(&["dpif-netdev/pmd-stats-clear"]);
        let packet = Packet::new(mac(1), mac(2)).payload(0x88b5, b"hello").padded();
        for _ in 0..5 {
            switch.appctl(&["netdev-dummy/receive", "p0", &packet.hex()]);
        }
        let shown = eventually("all packets are counted", || {
            let shown = switch.appctl(&["dpif-netdev/pmd-stats-show"]);
            let sum = |label: &str| -> u64 {
                let values = shown.lines().filter_map(|line| line.strip_prefix(label));
                values.map(|value| value.trim().parse::<u64>().unwrap()).sum()
            };
            let hits = sum("  emc hits:") + sum("  megaflow hits:");
            let counts = (sum("  packets received:"), hits, sum("  miss with success upcall:"));
            // The bridge's own port sends no packets.
            (counts == (5, 4, 1)).then_some(shown)
        });
        let label = |line: &str| line.split([':', '(']).next().unwrap_or_default().to_owned();
        let mut found: Vec<String> = shown.lines().map(label).collect();
        let perf = switch.appctl(&["dpif-netdev/pmd-perf-show", "-nh", "-it", "3", "-ms", "3"]);
        found.extend(perf.lines().map(label));
        labels.push(found);
        switch.appctl(&["dpif-netdev/pmd-stats-clear"]);
        let cleared = switch.appctl(&["dpif-netdev/pmd-stats-show"]);
        assert_eq!(cleared.matches("packets received: 0\n").count(), 3, "{cleared}");
    }
    if let [ours, theirs] = &labels[..] {
        assert_eq!(ours, theirs);
    }
}

#[test]
fn workers_follow_the_mask_and_wrong_keys_are_told() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("it is about the words of our log");
    }
    let switch = Vswitch::oxvs(binary(), Options::default());
    two_ports(&switch);
    let workers = || switch.appctl(&[SHOW]).matches("pmd thread").count();
    assert_eq!(workers(), 2);
    switch.vsctl("set open_vswitch . other_config:pmd-cpu-mask=2");
    assert_eq!(workers(), 1);
    let packet = Packet::new(mac(1), [0xff; 6]).payload(0x88b5, b"still").padded();
    let received = |switch: &Vswitch| switch.appctl(&["dpctl/show", "-s"]).contains("RX packets:3 ");
    for queue in ["0", "1", "3"] {
        switch.appctl(&["netdev-dummy/receive", "p0", "--qid", queue, &packet.hex()]);
    }
    eventually("every queue is served", || received(&switch).then_some(()));
    // As in Open vSwitch, a core that is no number chooses none.
    let all = switch.appctl(&["dpif-netdev/pmd-stats-show", "-pmd", "x"]);
    assert!(all.contains("core_id 1:") && all.contains("main thread:"), "{all}");
    switch.vsctl("set open_vswitch . other_config:pmd-cpu-mask=zz other_config:pmd-rxq-assign=best");
    switch.vsctl("set interface p0 other_config:pmd-rxq-affinity=0:77,1");
    switch.vsctl("set interface p1 other_config:pmd-rxq-affinity=0:77");
    let log = std::fs::read_to_string(switch.sandbox.path("switch.log")).unwrap();
    for told in [
        "other_config:pmd-cpu-mask=zz is not a mask of cores",
        "other_config:pmd-rxq-assign=best is none of",
        "interface p0: other_config:pmd-rxq-affinity=0:77,1 is not a list of QUEUE:CORE",
        "core 77 has no worker for receive queue 0 of p1",
    ] {
        assert_eq!(log.matches(told).count(), 1, "{told}: {log}");
    }
}
