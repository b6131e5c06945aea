//! OVN of Debian, unmodified, on the switch under test: `ovn-northd` with its two databases, and an
//! `ovn-controller` for each chassis.

use crate::fixture::{debian_in_namespace, in_namespace};
use std::path::Path;
use testkit::{Daemon, Done, Netns, Sandbox, Vswitch, eventually, ping, skip, try_run};

/// Databases and `ovn-northd`.
pub(crate) struct Central {
    sandbox: Sandbox,
    _daemons: Vec<Daemon>,
}

impl Central {
    fn new() -> Central {
        let sandbox = Sandbox::new();
        let mut daemons = Vec::new();
        for name in ["nb", "sb"] {
            let (db, socket) = (sandbox.arg(&format!("{name}.db")), sandbox.arg(&format!("{name}.sock")));
            let schema = format!("/usr/share/ovn/ovn-{name}.ovsschema");
            try_run(&["ovsdb-tool", "create", &db, &schema], &[]).expect_ok();
            let remote = format!("--remote=punix:{socket}");
            let control = format!("--unixctl={}", sandbox.arg(&format!("{name}.ctl")));
            let command = ["ovsdb-server", &db, &remote, &control].map(str::to_owned);
            let mut daemon = Daemon::start(name, &command, &sandbox);
            daemon.wait_until(|| Path::new(&socket).exists());
            daemons.push(daemon);
        }
        let remote = |name: &str| format!("unix:{}", sandbox.arg(&format!("{name}.sock")));
        let command = [
            "ovn-northd".to_owned(),
            format!("--ovnnb-db={}", remote("nb")),
            format!("--ovnsb-db={}", remote("sb")),
            format!("--unixctl={}", sandbox.arg("northd.ctl")),
            format!("--pidfile={}", sandbox.arg("northd.pid")),
        ];
        daemons.push(Daemon::start("northd", &command, &sandbox));
        let central = Central {
            sandbox,
            _daemons: daemons,
        };
        central.nb("init");
        central.tool("ovn-sbctl", "sb", &["init"]).expect_ok();
        central
    }

    fn remote(&self, name: &str) -> String {
        format!("unix:{}", self.sandbox.arg(&format!("{name}.sock")))
    }

    pub(crate) fn tool(&self, program: &str, db: &str, words: &[&str]) -> Done {
        let db = format!("--db={}", self.remote(db));
        try_run(&[&[program, "--timeout=60", &db], words].concat(), &[])
    }

    /// Runs a command of `ovn-nbctl`; words with spaces are between double quotes.
    #[track_caller]
    pub(crate) fn nb(&self, command: &str) -> String {
        let mut words = Vec::new();
        for (at, part) in command.split('"').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace()),
                _ => words.push(part),
            }
        }
        self.tool("ovn-nbctl", "nb", &words).expect_ok()
    }

    /// Waits until every chassis does what the northbound database says.
    #[track_caller]
    pub(crate) fn sync(&self) {
        self.nb("--wait=hv sync");
    }
}

/// A switch with an `ovn-controller`.
struct Chassis {
    switch: Vswitch,
    ns: Netns,
    controller: Option<Daemon>,
    command: Vec<String>,
}

impl Chassis {
    /// A chassis whose tunnels end at this address, in this namespace.
    fn new(central: &Central, ns: Netns, name: &str, address: &str, is_ours: bool) -> Chassis {
        let switch = match is_ours {
            true => in_namespace(&ns),
            false => debian_in_namespace(&ns),
        };
        if is_ours {
            ns.try_run(&["ip", "addr", "add", &format!("{address}/24"), "dev", "under"], &[]);
        } else {
            // Open vSwitch's userspace tunnels end at addresses of its bridges.
            switch.vsctl("add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy under");
            ns.address("br-phy", &format!("{address}/24"));
            ns.ip("link set br-phy up");
        }
        switch.vsctl(&format!(
            "set open_vswitch . external_ids:system-id={name} external_ids:ovn-remote={} \
             external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip={address} \
             -- add-br br-int -- set bridge br-int fail-mode=secure datapath_type=netdev",
            central.remote("sb")
        ));
        let mut command = ns.prefix();
        let sandbox = &switch.sandbox;
        command.extend([
            "env".to_owned(),
            format!("OVN_RUNDIR={}", sandbox.dir().display()),
            "ovn-controller".to_owned(),
            sandbox.db_remote(),
            format!("--pidfile={}", sandbox.arg("ovn-controller.pid")),
        ]);
        let mut chassis = Chassis {
            switch,
            ns,
            controller: None,
            command,
        };
        chassis.start_controller();
        chassis
    }

    fn start_controller(&mut self) {
        self.controller = Some(Daemon::start("ovn-controller", &self.command, &self.switch.sandbox));
    }

    /// A host with the address and the MAC address of a logical port.
    fn host(&self, port: &str, mac: &str, address: &str, router: &str) -> Netns {
        let host = Netns::new(port);
        let device = format!("v{port}");
        self.ns.veth(&device, &host, "eth0");
        host.ip(&format!("link set eth0 address {mac}"));
        host.address("eth0", address);
        host.ip(&format!("route add default via {router}"));
        self.switch.vsctl(&format!(
            "add-port br-int {device} -- set interface {device} external_ids:iface-id={port}"
        ));
        host
    }

    /// Nothing that the controller asked for was refused.
    #[track_caller]
    fn has_no_errors(&self) {
        let log = self.switch.sandbox.read("ovn-controller.out");
        let wrong: Vec<&str> = log
            .lines()
            .filter(|line| {
                line.contains("OFPT_ERROR") || line.contains("|ERR|") || line.contains("force recompute due")
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// A logical switch `ls0` with hosts `pa` and `pb`, another, `ls1`, with `pc`, and a router `r0`
/// between them.
pub(crate) struct Network {
    pub(crate) central: Central,
    chassis: Vec<Chassis>,
    pub(crate) a: Netns,
    pub(crate) b: Netns,
    pub(crate) c: Netns,
    servers: Vec<Daemon>,
}

impl Network {
    /// With one chassis, or with two: `pb` is then behind the second one.
    pub(crate) fn new(number: usize) -> Network {
        Network::of(&vec![true; number])
    }

    /// With a chassis of each kind: ours, or Debian's Open vSwitch.
    fn of(kinds: &[bool]) -> Network {
        let number = kinds.len();
        let central = Central::new();
        let namespaces: Vec<Netns> = (0..number).map(|n| Netns::new(&format!("ch{n}"))).collect();
        if let [one, other] = &namespaces[..] {
            one.veth("under", other, "under");
            // Open vSwitch takes checksums that the kernel leaves to devices for wrong ones. Its
            // hosts are without offloads.
            if kinds.contains(&false) {
                for ns in &namespaces {
                    ns.run(&["ethtool", "-K", "under", "tx", "off"]);
                }
            }
        }
        let chassis: Vec<Chassis> = (1..)
            .zip(namespaces)
            .zip(kinds)
            .map(|((n, ns), is_ours)| Chassis::new(&central, ns, &format!("ch{n}"), &format!("172.31.9.{n}"), *is_ours))
            .collect();
        central.nb(
            "lr-add r0 -- ls-add ls0 -- lsp-add ls0 pa -- lsp-set-addresses pa \"50:54:00:00:00:01 10.1.0.11\" \
             -- lsp-add ls0 pb -- lsp-set-addresses pb \"50:54:00:00:00:02 10.1.0.12\" \
             -- ls-add ls1 -- lsp-add ls1 pc -- lsp-set-addresses pc \"50:54:00:00:00:03 10.2.0.13\"",
        );
        for (switch, last, network) in [("ls0", 1, "10.1.0.1/24"), ("ls1", 2, "10.2.0.1/24")] {
            central.nb(&format!(
                "lrp-add r0 r0-{switch} 00:00:00:00:ff:0{last} {network} -- lsp-add {switch} {switch}-r0 \
                 -- lsp-set-type {switch}-r0 router -- lsp-set-addresses {switch}-r0 router \
                 -- lsp-set-options {switch}-r0 router-port=r0-{switch}"
            ));
        }
        let last = &chassis[number - 1];
        let a = chassis[0].host("pa", "50:54:00:00:00:01", "10.1.0.11/24", "10.1.0.1");
        let b = last.host("pb", "50:54:00:00:00:02", "10.1.0.12/24", "10.1.0.1");
        let c = chassis[0].host("pc", "50:54:00:00:00:03", "10.2.0.13/24", "10.2.0.1");
        for host in [&a, &b, &c] {
            host.ip("link set eth0 mtu 1400");
            if kinds.contains(&false) {
                host.run(&["ethtool", "-K", "eth0", "tx", "off"]);
            }
        }
        let mut network = Network {
            central,
            chassis,
            a,
            b,
            c,
            servers: Vec::new(),
        };
        // A chassis that has not registered yet is not waited for.
        for port in ["pa", "pb", "pc"] {
            network
                .central
                .nb(&format!("wait-until logical_switch_port {port} up=true"));
        }
        network.central.sync();
        for port in ["8080", "8081"] {
            network.serve(port);
        }
        network
    }

    /// A web server at the host `pb`.
    fn serve(&mut self, port: &str) {
        let mut command = self.b.prefix();
        command.extend(["python3", "-m", "http.server", port].map(str::to_owned));
        let server = Daemon::start(&format!("server{port}"), &command, &self.central.sandbox);
        self.servers.push(server);
        eventually("the server answers at its own host", || {
            (self.page(&self.b, &format!("127.0.0.1:{port}")) == "200").then_some(())
        });
    }

    /// The status of a page, `000` without an answer.
    fn page(&self, from: &Netns, server: &str) -> String {
        let url = format!("http://{server}/");
        let words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-m", "3", &url];
        from.try_run(&words, &[]).stdout
    }

    #[track_caller]
    pub(crate) fn configure(&self, command: &str) {
        self.central.nb(command);
        self.central.sync();
    }

    #[track_caller]
    pub(crate) fn reaches(&self, from: &Netns, address: &str) {
        assert_eq!(ping(from, address, 3).received, 3, "{address}");
    }

    /// What every network of OVN does.
    fn works(&self) {
        self.reaches(&self.a, "10.1.0.12");
        self.reaches(&self.b, "10.2.0.13");
        self.reaches(&self.c, "10.2.0.1");
        assert_eq!(self.page(&self.a, "10.1.0.12:8080"), "200");
        assert_eq!(self.page(&self.c, "10.1.0.12:8080"), "200");
        let large = ["ping", "-c", "2", "-s", "4000", "-i", "0.2", "-W", "1", "10.1.0.12"];
        assert!(self.a.try_run(&large, &[]).stdout.contains(" 2 received"));
    }

    pub(crate) fn has_no_errors(&self) {
        self.chassis.iter().for_each(Chassis::has_no_errors);
    }
}

impl Network {
    /// Adds an access list entry to `ls0`.
    #[track_caller]
    fn acl(&self, direction: &str, priority: &str, matching: &str, verdict: &str) {
        let words = ["acl-add", "ls0", direction, priority, matching, verdict];
        self.central.tool("ovn-nbctl", "nb", &words).expect_ok();
    }

    #[track_caller]
    fn filters(&self) {
        self.acl("to-lport", "1001", "outport==\"pb\" && ip", "drop");
        let web = "outport==\"pb\" && ip4 && tcp.dst==8080";
        self.acl("to-lport", "1002", web, "allow-related");
        self.acl("from-lport", "1002", "inport==\"pb\" && ip4", "allow-related");
        self.central.sync();
        assert_eq!(self.page(&self.a, "10.1.0.12:8080"), "200");
        assert_eq!(self.page(&self.a, "10.1.0.12:8081"), "000");
        assert_eq!(ping(&self.a, "10.1.0.12", 1).received, 0);
        // Answers come back.
        self.reaches(&self.b, "10.1.0.11");
        self.central.nb("acl-del ls0");
        // Whoever is refused learns of it.
        self.acl("to-lport", "1002", "outport==\"pb\" && tcp.dst==8081", "reject");
        self.central.sync();
        let words = ["curl", "-s", "-m", "5", "http://10.1.0.12:8081/"];
        assert_eq!(self.a.try_run(&words, &[]).status, Some(7), "refused");
        self.configure("acl-del ls0");
    }

    #[track_caller]
    fn balances(&self) {
        self.configure(
            "lb-add lb0 10.9.9.9:80 10.1.0.12:8080,10.1.0.12:8081 tcp -- lr-lb-add r0 lb0 -- ls-lb-add ls0 lb0 \
             -- ls-lb-add ls1 lb0",
        );
        for host in [&self.a, &self.c, &self.b] {
            for _ in 0..4 {
                assert_eq!(self.page(host, "10.9.9.9"), "200");
            }
        }
        self.configure("lb-del lb0");
    }

    #[track_caller]
    fn translates(&self) {
        self.configure(
            "set logical_router r0 options:chassis=ch1 -- lr-nat-add r0 dnat_and_snat 10.2.0.100 10.1.0.12 \
             -- lr-nat-add r0 snat 10.2.0.101 10.1.0.0/24",
        );
        assert_eq!(self.page(&self.c, "10.2.0.100:8080"), "200");
        let capture = testkit::Capture::start(&self.c, "eth0", "icmp");
        self.reaches(&self.a, "10.2.0.13");
        let frames = capture.finish();
        assert!(
            frames.iter().any(|frame| frame[26..30] == [10, 2, 0, 101]),
            "{frames:x?}"
        );
        self.configure("lr-nat-del r0 -- remove logical_router r0 options chassis");
    }
}

#[test]
fn one_chassis_switches_routes_filters_balances_and_translates() {
    skip!(unless root, "ovn-nbctl", "ovn-northd", "ovn-controller", "ovs-vsctl", "ip", "curl", "python3");
    let network = Network::new(1);
    network.works();
    let short = ["ping", "-c", "1", "-t", "1", "-W", "1", "10.1.0.12"];
    assert!(network.c.try_run(&short, &[]).stdout.contains("exceeded"));
    network.filters();
    network.balances();
    network.translates();
    network.works();
    network.has_no_errors();
}

#[test]
fn two_chassis_are_one_network_through_geneve_also_after_restarts() {
    skip!(unless root, "ovn-nbctl", "ovn-northd", "ovn-controller", "ovs-vsctl", "ip", "curl", "python3");
    let mut network = Network::new(2);
    network.works();
    network.filters();
    network.balances();
    // The controller comes back, then the switch after kill -9.
    let chassis = &mut network.chassis[1];
    chassis.controller = None;
    chassis.start_controller();
    network.central.sync();
    network.works();
    let chassis = &mut network.chassis[1];
    chassis.switch.kill();
    chassis.switch.boot();
    eventually("the network works again", || {
        (ping(&network.a, "10.1.0.12", 1).received == 1).then_some(())
    });
    network.works();
    network.has_no_errors();
}

#[test]
fn a_chassis_and_one_of_open_vswitch_are_one_network() {
    skip!(unless long);
    skip!(unless root, "ovn-nbctl", "ovn-northd", "ovn-controller", "ovs-vsctl", "ovs-vswitchd", "ip", "ethtool", "curl", "python3");
    for kinds in [[true, false], [false, true]] {
        let network = Network::of(&kinds);
        // Open vSwitch asks for the other chassis with the first packet, and drops it.
        eventually("the chassis know each other", || {
            (ping(&network.a, "10.1.0.12", 1).received == 1).then_some(())
        });
        network.works();
        network.filters();
        network.balances();
        network.has_no_errors();
    }
}
