//! OVN of Debian, unmodified, on the switch under test: `ovn-northd` with its two databases, and an
//! `ovn-controller` for each chassis.
//!
//! `E2E_OVN` says of what kinds the chassis are, in turn: with `ours,debian` every network has a
//! chassis of Debian's Open vSwitch too, and with `debian,ours` the first one is of that kind.

mod access_lists;
mod balancers;
mod cluster_page;
mod encapsulations;
mod ipv6;
mod networks;
mod offloaded;
mod outside;
mod restarts;
mod scale;
mod services;
mod switching;
mod vtep;

use crate::fixture::{binary, debian_in_namespace, in_namespace, stand_in};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;
use testkit::{Daemon, Done, Netns, Sandbox, Vswitch, eventually, ping, try_run};

/// Skips the test where a program that every test of OVN uses is missing.
macro_rules! needs_ovn {
    ($($more:literal),*) => {
        testkit::skip!(unless root, "ovn-nbctl", "ovn-northd", "ovn-controller", "ovs-vsctl", "ip", "curl", "python3", "tcpdump" $(, $more)*)
    };
}
use needs_ovn;

/// What a network is made of.
#[derive(Clone, Copy)]
struct Plan<'a> {
    /// The chassis: ours, or Debian's Open vSwitch (`false`).
    kinds: &'a [bool],
    /// The type of their tunnels, as `ovn-encap-type` has it.
    encapsulation: &'a str,
    /// The addresses of their tunnels' ends without the last number, and the length of the prefix.
    underlay: (&'a str, u32),
    /// Whether these belong to a bridge of the switch, or to a device of the host.
    bridged: bool,
    /// Whether our database server has OVN's databases.
    our_databases: bool,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Plan {
            kinds: &[true],
            encapsulation: "geneve",
            underlay: ("172.31.9.", 24),
            bridged: false,
            our_databases: false,
        }
    }
}

/// The kinds of at least so many chassis.
fn kinds(number: usize) -> Vec<bool> {
    let named = std::env::var("E2E_OVN").unwrap_or_default();
    let listed: Vec<bool> = match named.as_str() {
        "" => vec![!stand_in()],
        named => named.split(',').map(|kind| kind == "ours").collect(),
    };
    let number = number.max(listed.len());
    listed.into_iter().cycle().take(number).collect()
}

/// Databases and `ovn-northd`.
struct Central {
    sandbox: Sandbox,
    _daemons: Vec<Daemon>,
}

impl Central {
    fn new(our_databases: bool) -> Central {
        let sandbox = Sandbox::new();
        let mut daemons = Vec::new();
        for name in ["nb", "sb"] {
            let (db, socket) = (sandbox.arg(&format!("{name}.db")), sandbox.arg(&format!("{name}.sock")));
            let schema = format!("/usr/share/ovn/ovn-{name}.ovsschema");
            try_run(&["ovsdb-tool", "create", &db, &schema], &[]).expect_ok();
            let remote = format!("--remote=punix:{socket}");
            let control = format!("--unixctl={}", sandbox.arg(&format!("{name}.ctl")));
            let mut command = ["ovsdb-server", &db, &remote, &control].map(str::to_owned).to_vec();
            if our_databases {
                command.insert(0, binary().display().to_string());
            }
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

    fn tool(&self, program: &str, db: &str, words: &[&str]) -> Done {
        let db = format!("--db={}", self.remote(db));
        try_run(&[&[program, "--timeout=60", &db], words].concat(), &[])
    }

    /// Runs a command of `ovn-nbctl`; words with spaces are between double quotes.
    #[track_caller]
    fn nb(&self, command: &str) -> String {
        let mut words = Vec::new();
        for (at, part) in command.split('"').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace()),
                _ => words.push(part),
            }
        }
        self.words(&words)
    }

    /// Runs a command of `ovn-nbctl` whose words have double quotes in them.
    #[track_caller]
    fn words(&self, words: &[&str]) -> String {
        self.tool("ovn-nbctl", "nb", words).expect_ok().trim().to_owned()
    }

    /// Waits until every chassis does what the northbound database says.
    #[track_caller]
    fn sync(&self) {
        // A thousand ports without processor time take longer than any command may.
        for _ in 0..4 {
            if self.tool("ovn-nbctl", "nb", &["--wait=hv", "sync"]).ok() {
                return;
            }
        }
        self.nb("--wait=hv sync");
    }
}

/// A switch with an `ovn-controller`.
struct Chassis {
    switch: Vswitch,
    ns: Netns,
    controller: Option<Daemon>,
    command: Vec<String>,
    /// Whether its hosts leave checksums to devices.
    leaves_checksums: bool,
}

impl Chassis {
    /// The chassis of that number, in this namespace.
    fn new(central: &Central, ns: Netns, number: usize, is_ours: bool, plan: &Plan) -> Chassis {
        let switch = match is_ours {
            true => in_namespace(&ns),
            false => debian_in_namespace(&ns),
        };
        let (network, length) = plan.underlay;
        let address = format!("{network}{number}");
        let mut end = "under";
        // Open vSwitch's userspace tunnels end at addresses of its bridges.
        if (plan.bridged || !is_ours) && plan.kinds.len() > 1 {
            switch.vsctl("add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy under");
            ns.ip("link set br-phy up");
            end = "br-phy";
        }
        if plan.kinds.len() > 1 {
            allow_ipv6(&ns, end);
            ns.address(end, &format!("{address}/{length}"));
        }
        switch.vsctl(&format!(
            "set open_vswitch . external_ids:system-id=ch{number} external_ids:ovn-remote={} \
             external_ids:ovn-encap-type={} external_ids:ovn-encap-ip=\"{}\" \
             -- add-br br-int -- set bridge br-int fail-mode=secure datapath_type=netdev",
            central.remote("sb"),
            plan.encapsulation,
            address,
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
            // Open vSwitch takes checksums that the kernel leaves to devices for wrong ones.
            leaves_checksums: !plan.kinds.contains(&false),
        };
        if !chassis.leaves_checksums && plan.kinds.len() > 1 {
            without_offloads(&chassis.ns, "under");
        }
        chassis.start_controller();
        chassis
    }

    fn start_controller(&mut self) {
        self.controller = Some(Daemon::start("ovn-controller", &self.command, &self.switch.sandbox));
    }

    /// What the controller has logged.
    fn log(&self) -> String {
        self.switch.sandbox.read("ovn-controller.out")
    }

    /// A host with the address and the MAC address of a logical port.
    fn host(&self, port: &str, mac: &str, address: &str, router: &str) -> Netns {
        let host = Netns::new(port);
        let device = format!("v{port}");
        self.ns.veth(&device, &host, "eth0");
        host.ip(&format!("link set eth0 address {mac}"));
        host.ip("link set eth0 mtu 1400");
        if !self.leaves_checksums {
            without_offloads(&host, "eth0");
        }
        host.address("eth0", address);
        host.ip(&format!("route add default via {router}"));
        self.switch.vsctl(&format!(
            "add-port br-int {device} -- set interface {device} external_ids:iface-id={port}"
        ));
        host
    }

    /// How many packets the rules have counted that the controller made of logical flows with this
    /// text: a rule's cookie is the beginning of the identifier of its logical flow.
    #[track_caller]
    fn counted(&self, central: &Central, logical: &str) -> u64 {
        let number = |text: &str, name: &str| {
            let rest = text.split_once(name)?.1.trim_start_matches("0x");
            u64::from_str_radix(rest.split(|c: char| !c.is_ascii_hexdigit()).next()?, 16).ok()
        };
        let flows = central.tool("ovn-sbctl", "sb", &["--uuid", "lflow-list"]).expect_ok();
        let flows = flows.lines().filter(|line| line.contains(logical));
        let cookies: Vec<u64> = flows.filter_map(|line| number(line, "uuid=")).collect();
        assert!(!cookies.is_empty(), "no logical flow has {logical}");
        let words = ["-O", "OpenFlow15", "dump-flows", "br-int"];
        let rules = self.switch.tool("ovs-ofctl", &words).expect_ok();
        let rules = rules
            .lines()
            .filter(|line| number(line, "cookie=").is_some_and(|cookie| cookies.contains(&cookie)));
        let packets = rules.filter_map(|line| line.split_once("n_packets=")?.1.split(',').next()?.parse::<u64>().ok());
        packets.sum()
    }

    /// Nothing that the controller asked for was refused.
    #[track_caller]
    fn has_no_errors(&self) {
        self.has_no_errors_but("nothing");
    }

    /// The same without the lines that have this text.
    #[track_caller]
    fn has_no_errors_but(&self, text: &str) {
        let log = self.log();
        let wrong: Vec<&str> = log
            .lines()
            .filter(|line| !line.contains(text))
            .filter(|line| {
                line.contains("OFPT_ERROR") || line.contains("|ERR|") || line.contains("force recompute due")
            })
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// Links that device of every namespace with a bridge of the kernel, in a namespace of its own.
fn join<'a>(namespaces: impl Iterator<Item = &'a Netns>, device: &str) -> Netns {
    let wire = Netns::new("wire");
    wire.ip("link add wire type bridge");
    wire.ip("link set wire up");
    for (n, ns) in namespaces.enumerate() {
        plug(&wire, &format!("p{n}"), ns, device);
    }
    wire
}

/// Links a device of a namespace with the bridge of [`join`].
fn plug(wire: &Netns, port: &str, ns: &Netns, device: &str) {
    wire.veth(port, ns, device);
    wire.ip(&format!("link set {port} master wire"));
}

fn without_offloads(ns: &Netns, device: &str) {
    ns.run(&["ethtool", "-K", device, "tx", "off"]);
}

fn allow_ipv6(ns: &Netns, device: &str) {
    ns.run(&["sysctl", "-qw", &format!("net.ipv6.conf.{device}.disable_ipv6=0")]);
}

/// A logical switch `ls0` with hosts `pa` and `pb`, another, `ls1`, with `pc`, and a router `r0`
/// between them.
struct Network {
    central: Central,
    chassis: Vec<Chassis>,
    /// What joins the chassis, if there are several.
    wire: Option<Netns>,
    a: Netns,
    b: Netns,
    c: Netns,
    servers: Vec<Daemon>,
}

impl Network {
    /// With so many chassis of the switch under test, or more where there are further [`kinds`].
    /// `pa` is behind the first one, `pb` behind the last one.
    fn new(number: usize) -> Network {
        Network::of(Plan {
            kinds: &kinds(number),
            ..Plan::default()
        })
    }

    fn of(plan: Plan) -> Network {
        let number = plan.kinds.len();
        let central = Central::new(plan.our_databases);
        let namespaces: Vec<Netns> = (0..number).map(|n| Netns::new(&format!("ch{n}"))).collect();
        let wire = (number > 1).then(|| join(namespaces.iter(), "under"));
        let chassis: Vec<Chassis> = (1..)
            .zip(namespaces)
            .zip(plan.kinds)
            .map(|((n, ns), is_ours)| Chassis::new(&central, ns, n, *is_ours, &plan))
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
        let a = chassis[0].host("pa", "50:54:00:00:00:01", "10.1.0.11/24", "10.1.0.1");
        let b = chassis[number - 1].host("pb", "50:54:00:00:00:02", "10.1.0.12/24", "10.1.0.1");
        let c = chassis[(number - 1) / 2].host("pc", "50:54:00:00:00:03", "10.2.0.13/24", "10.2.0.1");
        let mut network = Network {
            central,
            chassis,
            wire,
            a,
            b,
            c,
            servers: Vec::new(),
        };
        for port in ["pa", "pb", "pc"] {
            network.wait_for(port);
        }
        network.central.sync();
        for port in ["8080", "8081"] {
            network.serve(port);
        }
        if number > 1 && (plan.bridged || plan.kinds.contains(&false)) {
            // Tunnels over a bridge ask for the other chassis with the first packet, and drop it.
            eventually("the chassis know each other", || {
                let known = |from, to| ping(from, to, 1).received == 1;
                (known(&network.a, "10.1.0.12") && known(&network.c, "10.1.0.12")).then_some(())
            });
        }
        network
    }

    /// Waits until a port is bound: a chassis that has not registered yet is not waited for by
    /// [`Central::sync`].
    fn wait_for(&self, port: &str) {
        self.central
            .nb(&format!("wait-until logical_switch_port {port} up=true"));
    }

    /// A web server at the host `pb`, whose page is the number of its port; UDP gets it too.
    fn serve(&mut self, port: &str) {
        let mut command = self.b.prefix();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/ovn/server.py");
        command.extend(["python3", script, port].map(str::to_owned));
        let server = Daemon::start(&format!("server{port}"), &command, &self.central.sandbox);
        self.servers.push(server);
        eventually("the server answers at its own host", || {
            (self.page(&self.b, &format!("127.0.0.1:{port}")) == "200").then_some(())
        });
    }

    /// The status of a page, `000` without an answer.
    fn page(&self, from: &Netns, server: &str) -> String {
        let url = format!("http://{server}/");
        let words = [
            "curl",
            "-s",
            "-g",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-m",
            "3",
            &url,
        ];
        from.try_run(&words, &[]).stdout
    }

    #[track_caller]
    fn configure(&self, command: &str) {
        self.central.nb(command);
        self.central.sync();
    }

    #[track_caller]
    fn reaches(&self, from: &Netns, address: &str) {
        assert_eq!(ping(from, address, 3).received, 3, "{address}");
    }

    /// Kills the switch of a chassis, and waits until the network works with it again.
    fn survives_kill(&mut self, chassis: usize) {
        let chassis = &mut self.chassis[chassis];
        chassis.switch.kill();
        chassis.switch.boot();
        eventually("the network works again", || {
            (ping(&self.a, "10.1.0.12", 1).received == 1).then_some(())
        });
        self.works();
    }

    /// What every network of OVN does.
    #[track_caller]
    fn works(&self) {
        self.reaches(&self.a, "10.1.0.12");
        self.reaches(&self.b, "10.2.0.13");
        self.reaches(&self.c, "10.2.0.1");
        assert_eq!(self.page(&self.a, "10.1.0.12:8080"), "200");
        assert_eq!(self.page(&self.c, "10.1.0.12:8080"), "200");
        let large = ["ping", "-c", "2", "-s", "4000", "-i", "0.2", "-W", "1", "10.1.0.12"];
        assert!(self.a.try_run(&large, &[]).stdout.contains(" 2 received"));
    }

    /// Adds an access list entry to `ls0`.
    #[track_caller]
    fn acl(&self, direction: &str, priority: &str, matching: &str, verdict: &str) {
        self.central
            .words(&["acl-add", "ls0", direction, priority, matching, verdict]);
    }

    /// Waits until the chassis' rules of logical flows with this text have counted packets.
    #[track_caller]
    fn has_counted(&self, logical: &str) {
        eventually(logical, || {
            let of_one = |chassis: &Chassis| chassis.counted(&self.central, logical);
            (self.chassis.iter().map(of_one).sum::<u64>() > 0).then_some(())
        });
    }

    #[track_caller]
    fn has_no_errors(&self) {
        self.chassis.iter().for_each(Chassis::has_no_errors);
    }
}

/// What a server of [`Network::serve`] says to a new connection: its port. Empty without an answer.
fn tcp_answer(from: &Netns, server: SocketAddr) -> String {
    from.enter(|| {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect_timeout(&server, Duration::from_secs(2)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
            let _ = std::io::Write::write_all(&mut stream, b"GET / HTTP/1.0\r\n\r\n");
            let _ = stream.read_to_string(&mut answer);
        }
        answer.rsplit('\n').next().unwrap_or_default().to_owned()
    })
}
