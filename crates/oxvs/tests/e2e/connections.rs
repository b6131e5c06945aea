//! Connection tracking between hosts: a stateful firewall, translation of addresses, fragments,
//! errors of connections. The same with Debian's Open vSwitch as a stand-in.

mod flood;
mod helpers;
mod sctp;

use crate::fixture::in_namespace;
use testkit::{Iperf3, Netns, Vswitch, eventually, ping, skip};

/// A switch with two hosts: 10.9.0.1 behind port 1, 10.9.0.2 behind port 2.
struct Lab {
    switch: Vswitch,
    inside: Netns,
    outside: Netns,
    ns: Netns,
}

impl Lab {
    fn new(rules: &[&str]) -> Lab {
        let (ns, inside, outside) = (Netns::new("ct"), Netns::new("cti"), Netns::new("cto"));
        let switch = in_namespace(&ns);
        ns.veth("h1", &inside, "eth0");
        ns.veth("h2", &outside, "eth0");
        for (host, number) in [(&inside, 1), (&outside, 2)] {
            host.address("eth0", &format!("10.9.0.{number}/24"));
            host.run(&["sh", "-c", "echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6"]);
            host.address("eth0", &format!("fc09::{number}/64"));
            // Open vSwitch cannot complete the checksums that a veth device leaves to its peer.
            host.run(&["ethtool", "-K", "eth0", "tx", "off"]);
        }
        switch.vsctl(
            "add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure \
             -- add-port br0 h1 -- set interface h1 ofport_request=1 \
             -- add-port br0 h2 -- set interface h2 ofport_request=2",
        );
        let lab = Lab {
            switch,
            inside,
            outside,
            ns,
        };
        for rule in rules {
            lab.rule(rule);
        }
        lab
    }

    fn rule(&self, rule: &str) {
        self.switch.tool("ovs-ofctl", &["add-flow", "br0", rule]).expect_ok();
    }

    fn ovs_appctl(&self, command: &[&str]) -> String {
        self.switch.tool("ovs-appctl", command).expect_ok()
    }
}

const NEIGHBOURS: [&str; 3] = [
    "priority=10,arp,actions=normal",
    "priority=10,icmp6,icmp_type=135,actions=normal",
    "priority=10,icmp6,icmp_type=136,actions=normal",
];

/// Who is inside may begin connections, who is outside may answer.
const FIREWALL: [&str; 6] = [
    "priority=5,ip,actions=ct(table=1)",
    "priority=5,ipv6,actions=ct(table=1)",
    "table=1,in_port=1,ct_state=+trk+new,ip,actions=ct(commit),2",
    "table=1,in_port=1,ct_state=+trk+new,ipv6,actions=ct(commit),2",
    "table=1,in_port=1,ct_state=+trk+est,actions=2",
    "table=1,in_port=2,ct_state=+trk-new-inv,actions=1",
];

fn firewall() -> Lab {
    Lab::new(&[&NEIGHBOURS[..], &FIREWALL].concat())
}

#[test]
fn answers_pass_a_stateful_firewall_and_questions_do_not() {
    skip!(unless root, "ip", "ping", "ethtool", "iperf3", "ovs-vsctl", "ovs-ofctl");
    let lab = firewall();
    for address in ["10.9.0.2", "fc09::2"] {
        assert_eq!(ping(&lab.inside, address, 5).received, 5, "{address}");
    }
    for address in ["10.9.0.1", "fc09::1"] {
        assert_eq!(ping(&lab.outside, address, 1).received, 0, "{address}");
    }
    Iperf3::tcp_bytes(20 << 20).run(&lab.inside, &lab.outside, "10.9.0.2");
    Iperf3::tcp_bytes(1 << 20).run(&lab.inside, &lab.outside, "fc09::2");
    let flows = lab.ovs_appctl(&["dpctl/dump-flows"]);
    assert!(flows.contains("actions:ct,recirc("), "{flows}");
}

#[test]
fn fragments_are_tracked_as_the_packet_that_they_make() {
    skip!(unless root, "ip", "ping", "ethtool", "ovs-vsctl", "ovs-ofctl");
    let lab = firewall();
    let large = |host: &Netns, address: &str| {
        let done = host.try_run(&["ping", "-s", "4000", "-c", "3", "-i", "0.2", "-W", "1", address], &[]);
        done.stdout.contains(" 3 received")
    };
    assert!(large(&lab.inside, "10.9.0.2") && large(&lab.inside, "fc09::2"));
    assert!(!large(&lab.outside, "10.9.0.1"));
}

#[test]
fn an_error_about_a_connection_is_related_to_it() {
    skip!(unless root, "ip", "ethtool", "bash", "ovs-vsctl", "ovs-ofctl");
    let lab = firewall();
    lab.rule("table=1,priority=40000,in_port=2,ct_state=+trk+rel,icmp,actions=1");
    // Nobody listens: the host outside says so, and the one inside hears it.
    lab.inside.run(&["bash", "-c", "echo x > /dev/udp/10.9.0.2/9"]);
    eventually("the error is counted", || {
        let rules = lab
            .switch
            .tool("ovs-ofctl", &["dump-flows", "br0", "table=1"])
            .expect_ok();
        let rule = rules.lines().find(|line| line.contains("+rel"))?.to_owned();
        (!rule.contains("n_packets=0,")).then_some(())
    });
}

#[test]
fn translated_packets_have_the_new_address_and_their_answers_the_old_one() {
    skip!(unless root, "ip", "ping", "ethtool", "iperf3", "ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(&NEIGHBOURS);
    let mac = lab.inside.mac_of("eth0");
    lab.rule("priority=5,in_port=1,ip,actions=ct(commit,zone=1,nat(src=10.9.0.50-10.9.0.60:5000-6000)),2");
    lab.rule("priority=5,in_port=2,ip,actions=ct(zone=1,nat,table=1)");
    lab.rule(&format!("table=1,ct_state=+trk+est,ip,actions=mod_dl_dst:{mac},1"));
    for last in 50..=60 {
        let neighbour = format!("neigh replace 10.9.0.{last} lladdr {mac} dev eth0");
        lab.outside.ip(&neighbour);
    }
    let capture = testkit::Capture::start(&lab.outside, "eth0", "tcp");
    Iperf3::tcp_bytes(5 << 20).run(&lab.inside, &lab.outside, "10.9.0.2");
    assert_eq!(ping(&lab.inside, "10.9.0.2", 3).received, 3);
    let frames = capture.finish();
    let addresses = |frame: &[u8]| (frame[26..30].to_vec(), frame[30..34].to_vec());
    let is_new = |address: &[u8]| matches!(address, [10, 9, 0, 50..=60]);
    assert!(frames.len() > 10);
    for frame in &frames {
        let (src, dst) = addresses(frame);
        assert!(
            is_new(&src) && dst == [10, 9, 0, 2] || is_new(&dst) && src == [10, 9, 0, 2],
            "{frame:x?}"
        );
    }
}

#[test]
fn a_service_address_leads_to_a_server_and_its_mark_chooses_the_next_rule() {
    skip!(unless root, "ip", "ethtool", "iperf3", "ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(&NEIGHBOURS);
    let (mac, server) = (lab.inside.mac_of("eth0"), lab.outside.mac_of("eth0"));
    lab.inside
        .ip(&format!("neigh replace 10.9.0.80 lladdr {server} dev eth0"));
    lab.rule("priority=5,in_port=1,ip,nw_dst=10.9.0.80,actions=ct(zone=7,nat,table=1)");
    lab.rule(
        "table=1,ct_state=+trk+new,ip,\
         actions=ct(commit,zone=7,nat(dst=10.9.0.2),exec(set_field:5->ct_mark,set_field:0x77->ct_label),table=2)",
    );
    lab.rule("table=1,ct_state=+trk+est,ip,actions=resubmit(,2)");
    lab.rule("table=2,ct_mark=5,ct_label=0x77,ip,nw_dst=10.9.0.2,actions=2");
    lab.rule("priority=5,in_port=2,ip,actions=ct(zone=7,nat,table=3)");
    lab.rule(&format!(
        "table=3,ct_state=+trk+est+rpl,ct_mark=5,ip,nw_src=10.9.0.80,actions=mod_dl_dst:{mac},1"
    ));
    Iperf3::tcp_bytes(5 << 20).run(&lab.inside, &lab.outside, "10.9.0.80");
}
