//! Pipelines that others program: of Antrea and of Neutron's agent, from files, each on our switch
//! and on Debian's Open vSwitch.

use crate::fixture::{debian_in_namespace, in_namespace};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use testkit::{Daemon, Netns, Sandbox, Vswitch, eventually, ping, skip};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/");

fn switch(ns: &Netns, is_ours: bool) -> Vswitch {
    match is_ours {
        true => in_namespace(ns),
        false => debian_in_namespace(ns),
    }
}

/// Loads a file of rules, with words replaced.
#[track_caller]
fn load(switch: &Vswitch, command: &str, bridge: &str, file: &str, words: &[(&str, &str)]) {
    let path = format!("{PROGRAMS}pipelines/{file}");
    let mut rules = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    for (word, value) in words {
        rules = rules.replace(word, value);
    }
    let copy = switch.sandbox.path(file);
    std::fs::write(&copy, rules).unwrap();
    let copy = copy.display().to_string();
    let loaded = switch.tool("ovs-ofctl", &["-O", "OpenFlow15", command, bridge, &copy]);
    loaded.expect_ok();
}

/// A host with a fixed address of Ethernet behind a port. It completes checksums itself: Open
/// vSwitch cannot.
fn host(ns: &Netns, port: &str, mac: &str, address: &str) -> Netns {
    let host = Vswitch::host(ns, port, port, address);
    host.ip(&format!("link set eth0 address {mac}"));
    host.run(&["ethtool", "-K", "eth0", "tx", "off"]);
    host
}

/// A server that answers with the number of its port.
fn serve(host: &Netns, port: &str, sandbox: &Sandbox) -> Daemon {
    let mut command = host.prefix();
    command.extend(["python3", &format!("{PROGRAMS}ovn/server.py"), port].map(str::to_owned));
    let server = Daemon::start(&format!("server{port}"), &command, sandbox);
    eventually("the server answers at its own host", || {
        (answer(host, &format!("127.0.0.1:{port}"), SHORT) == port).then_some(())
    });
    server
}

/// How long a connection may take that is to succeed, on a busy machine; and one that is to fail.
const LONG: Duration = Duration::from_secs(8);
const SHORT: Duration = Duration::from_secs(1);

/// What a server says to a new connection; empty without an answer.
fn answer(from: &Netns, server: &str, patience: Duration) -> String {
    let server: SocketAddr = server.parse().unwrap();
    from.enter(|| {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect_timeout(&server, patience) {
            let _ = stream.set_read_timeout(Some(LONG));
            let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
            let _ = stream.read_to_string(&mut answer);
        }
        answer.rsplit('\n').next().unwrap_or_default().to_owned()
    })
}

fn answers(from: &Netns, server: &str, number: usize, patience: Duration) -> BTreeSet<String> {
    (0..number).map(|_| answer(from, server, patience)).collect()
}

/// A node of Antrea: the gateway and three Pods.
fn node(is_ours: bool) {
    let ns = Netns::new("node");
    let (switch, sandbox) = (switch(&ns, is_ours), Sandbox::new());
    switch.vsctl("add-br br-int -- set bridge br-int datapath_type=netdev fail-mode=secure");
    let mut hosts = Vec::new();
    for n in 1..=4 {
        let port = format!("p{n}");
        hosts.push(host(
            &ns,
            &port,
            &format!("0a:00:00:00:00:0{n}"),
            &format!("10.10.0.{n}/24"),
        ));
        switch.vsctl(&format!(
            "add-port br-int {port} -- set interface {port} ofport_request={n}"
        ));
    }
    let [gateway, pod, one, other] = &hosts[..] else {
        unreachable!()
    };
    for pod in [pod, one, other] {
        pod.ip("route add default via 10.10.0.1");
    }
    load(&switch, "add-groups", "br-int", "antrea.groups", &[]);
    load(&switch, "add-flows", "br-int", "antrea.flows", &[]);
    let _servers = [serve(one, "8080", &sandbox), serve(other, "8081", &sandbox)];
    for (from, to) in [(pod, "10.10.0.1"), (gateway, "10.10.0.2"), (one, "10.10.0.2")] {
        assert_eq!(ping(from, to, 2).received, 2, "{to}");
    }
    // Who may ask the Endpoints, directly and as a Service.
    assert_eq!(ping(pod, "10.10.0.3", 1).received, 0);
    assert_eq!(answer(pod, "10.10.0.3:8080", LONG), "8080");
    assert_eq!(answer(gateway, "10.10.0.4:8081", LONG), "8081");
    assert_eq!(answer(other, "10.10.0.3:8080", SHORT), "");
    let both = BTreeSet::from(["8080", "8081"].map(str::to_owned));
    assert_eq!(answers(pod, "10.96.0.10:80", 40, LONG), both);
    let heard = answers(pod, "10.96.0.11:80", 10, LONG);
    assert_eq!(heard.len(), 1, "{heard:?}");
    // An Endpoint asks its own Service: of the two it may ask itself only.
    let heard = answers(one, "10.96.0.10:80", 16, SHORT);
    assert_eq!(heard, BTreeSet::from(["", "8080"].map(str::to_owned)));
    let shown = switch
        .tool("ovs-appctl", &["dpctl/dump-conntrack", "zone=65520"])
        .expect_ok();
    assert!(shown.contains("labels=0x2") && shown.contains("mark=19"), "{shown}");
    // Nobody sends from another's address, and other nodes' gateways have their address.
    pod.address("eth0", "10.10.0.77/24");
    let spoofed = ["ping", "-c", "1", "-W", "1", "-I", "10.10.0.77", "10.10.0.1"];
    assert!(pod.try_run(&spoofed, &[]).stdout.contains(" 0 received"));
    pod.ip("route add 10.10.1.0/24 dev eth0 src 10.10.0.2");
    ping(pod, "10.10.1.1", 1);
    assert!(pod.ip("neigh show 10.10.1.1").contains("aa:bb:cc:dd:ee:ff"));
}

#[test]
fn antreas_pipeline_guards_balances_and_filters() {
    skip!(unless root, "ip", "ping", "ethtool", "python3", "ovs-vsctl", "ovs-ofctl", "ovs-vswitchd");
    for is_ours in [true, false] {
        node(is_ours);
    }
}

/// A host of Neutron: two bridges, two ports, and a tunnel to another host.
struct Compute {
    switch: Vswitch,
    hosts: Vec<Netns>,
    ns: Netns,
}

impl Compute {
    fn new(is_ours: bool, number: u32, vlan: &str) -> Compute {
        let ns = Netns::new(&format!("compute{number}"));
        let switch = switch(&ns, is_ours);
        switch.vsctl(
            "add-br br-int -- set bridge br-int datapath_type=netdev fail-mode=secure \
             -- add-br br-tun -- set bridge br-tun datapath_type=netdev fail-mode=secure \
             -- add-port br-int patch-tun -- set interface patch-tun type=patch options:peer=patch-int ofport_request=3 \
             -- add-port br-tun patch-int -- set interface patch-int type=patch options:peer=patch-tun ofport_request=1",
        );
        let mut hosts = Vec::new();
        let mut words = vec![("LocalVlan", vlan.to_owned())];
        for (n, [mac, ip]) in (1..).zip([["FirstMac", "FirstIp"], ["SecondMac", "SecondIp"]]) {
            let (port, own) = (format!("tap{n}"), format!("fa:16:3e:00:0{number}:0{n}"));
            let address = format!("10.20.0.{number}{n}");
            hosts.push(host(&ns, &port, &own, &format!("{address}/24")));
            hosts.last().unwrap().ip("link set eth0 mtu 1400");
            switch.vsctl(&format!(
                "add-port br-int {port} tag={vlan} -- set interface {port} ofport_request={n}"
            ));
            words.extend([(mac, own), (ip, address)]);
        }
        let words: Vec<(&str, &str)> = words.iter().map(|(word, value)| (*word, value.as_str())).collect();
        load(&switch, "add-flows", "br-int", "agent-int.flows", &words);
        load(&switch, "add-flows", "br-tun", "agent-tun.flows", &words);
        Compute { switch, hosts, ns }
    }

    /// Links it with the other one.
    fn join(&self, device: &str, own: &str, other: &str) {
        // The userspace tunnels of Open vSwitch end at addresses of its bridges.
        self.switch.vsctl(&format!(
            "add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy {device} \
             -- add-port br-tun vxlan0 -- set interface vxlan0 type=vxlan options:in_key=flow options:out_key=flow \
             options:local_ip={own} options:remote_ip={other} ofport_request=2"
        ));
        self.ns.address("br-phy", &format!("{own}/24"));
        self.ns.ip("link set br-phy up");
    }
}

fn agents(kinds: [bool; 2]) {
    let computes = [Compute::new(kinds[0], 1, "5"), Compute::new(kinds[1], 2, "9")];
    computes[0].ns.veth("under", &computes[1].ns, "under");
    computes[0].join("under", "192.0.2.1", "192.0.2.2");
    computes[1].join("under", "192.0.2.2", "192.0.2.1");
    let sandbox = Sandbox::new();
    let [near, far] = &computes;
    let _servers = [
        serve(&near.hosts[1], "8080", &sandbox),
        serve(&far.hosts[1], "8081", &sandbox),
    ];
    // Through the tunnel, whose first packets wait for the other end's address.
    eventually("the hosts reach each other", || {
        (ping(&near.hosts[0], "10.20.0.22", 1).received == 1).then_some(())
    });
    for (from, to) in [
        (&near.hosts[0], "10.20.0.12"),
        (&near.hosts[0], "10.20.0.22"),
        (&far.hosts[1], "10.20.0.11"),
    ] {
        assert_eq!(ping(from, to, 3).received, 3, "{to}");
    }
    for compute in &computes {
        let learned = compute
            .switch
            .tool("ovs-ofctl", &["dump-flows", "br-tun", "table=20"])
            .expect_ok();
        assert!(
            learned.contains("cookie=0x77") && learned.contains("dl_dst=fa:16:3e:"),
            "{learned}"
        );
    }
    // Members of the group, on this host and on the other one, and others.
    for (from, to, answered) in [
        (&near.hosts[0], "10.20.0.12:8080", "8080"),
        (&far.hosts[0], "10.20.0.12:8080", "8080"),
        (&near.hosts[0], "10.20.0.22:8081", "8081"),
        (&far.hosts[1], "10.20.0.12:8080", ""),
        (&near.hosts[1], "10.20.0.22:8081", ""),
    ] {
        let patience = if answered.is_empty() { SHORT } else { LONG };
        assert_eq!(answer(from, to, patience), answered, "{to}");
    }
    let shown = near
        .switch
        .tool("ovs-appctl", &["dpctl/dump-conntrack", "zone=5"])
        .expect_ok();
    assert!(shown.contains("dst=10.20.0.12"), "{shown}");
}

#[test]
fn flows_of_neutrons_agent_translate_vlans_learn_and_filter() {
    skip!(unless root, "ip", "ping", "ethtool", "python3", "ovs-vsctl", "ovs-ofctl", "ovs-vswitchd");
    for kinds in [[true, true], [true, false], [false, false]] {
        agents(kinds);
    }
}
