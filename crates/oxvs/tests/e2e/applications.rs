//! Controllers as their users run them: Faucet, and applications of os-ken, from the virtual
//! environment that `scripts/setup.sh` makes.

mod faucet;

use crate::fixture::in_namespace;
use std::path::{Path, PathBuf};
use testkit::{Capture, Daemon, Iperf3, Netns, Vswitch, eventually, ping, skip};

const TOOLS: [&str; 5] = ["ip", "ping", "iperf3", "ovs-vsctl", "ovs-ofctl"];

fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// A program of the controllers' virtual environment.
fn program(name: &str) -> PathBuf {
    workspace().join("target/controllers/bin").join(name)
}

fn application(name: &str) -> String {
    let file = workspace().join("crates/oxvs/tests/controllers").join(name);
    file.display().to_string()
}

fn cannot() -> Option<String> {
    let missing = testkit::missing(true, &TOOLS);
    missing.or_else(|| {
        let there = program("osken-manager").exists();
        (!there).then(|| "needs target/controllers, which scripts/setup.sh test makes".to_owned())
    })
}

/// A switch in a namespace, and a controller beside it.
struct Lab {
    hosts: Vec<Netns>,
    switch: Vswitch,
    ns: Netns,
}

impl Lab {
    fn new(protocols: &str, hosts: &[&str]) -> Lab {
        let ns = Netns::new("sw");
        let switch = in_namespace(&ns);
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev other-config:datapath-id=00000000000000a1");
        switch.vsctl(&format!("set bridge br0 protocols={protocols} fail_mode=secure"));
        let mut lab = Lab {
            hosts: Vec::new(),
            switch,
            ns,
        };
        for (n, address) in hosts.iter().enumerate() {
            let port = format!("h{}", n + 1);
            lab.hosts.push(Vswitch::host(&lab.ns, &port, &port, address));
            let add = format!("add-port br0 {port} -- set interface {port} ofport_request={}", n + 1);
            lab.switch.vsctl(&add);
        }
        lab
    }

    /// Starts a controller in the switch's namespace.
    fn start(&self, name: &str, command: &[String], env: &[(&str, String)]) -> Daemon {
        let mut all = self.ns.prefix();
        all.push("env".to_owned());
        all.extend(env.iter().map(|(key, value)| format!("{key}={value}")));
        all.extend_from_slice(command);
        Daemon::start(name, &all, &self.switch.sandbox)
    }

    fn osken(&self, app: &str, version: &str) -> Daemon {
        let command = [
            program("osken-manager").display().to_string(),
            "--ofp-listen-host=127.0.0.1".to_owned(),
            "--ofp-tcp-listen-port=6653".to_owned(),
            application(app),
        ];
        let daemon = self.start("app", &command, &[("OXVS_OFP", version.to_owned())]);
        self.switch.vsctl("set-controller br0 tcp:127.0.0.1:6653");
        self.switch
            .vsctl("set controller br0 max_backoff=1000 connection_mode=out-of-band");
        daemon
    }

    /// The application's output lines with a word.
    fn said(&self, word: &str) -> usize {
        let text = self.switch.sandbox.read("app.out");
        text.lines()
            .filter(|line| line.strip_prefix("APP ").is_some_and(|l| l.starts_with(word)))
            .count()
    }

    fn wait_for(&self, word: &str) {
        // A Python program takes its time to start.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(40);
        while self.said(word) == 0 {
            let text = || self.switch.sandbox.read("app.out");
            assert!(
                std::time::Instant::now() < end,
                "the application never said {word}:\n{}",
                text()
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    fn no_errors(&self) {
        assert_eq!(self.said("error"), 0, "{}", self.switch.sandbox.read("app.out"));
    }

    fn flows(&self, protocol: &str) -> String {
        let done = self.switch.tool("ovs-ofctl", &["-O", protocol, "dump-flows", "br0"]);
        done.expect_ok()
    }
}

/// Whether a ping gets through within a few attempts: the first packets wait for the controller.
fn reaches(from: &Netns, to: &str) -> bool {
    (0..5).any(|_| ping(from, to, 1).received > 0)
}

fn learning_switch(version: &str, protocol: &str) {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new(protocol, &["10.1.0.1/24", "10.1.0.2/24"]);
    let _app = lab.osken("learning_switch.py", version);
    lab.wait_for("ready");
    assert!(
        reaches(&lab.hosts[0], "10.1.0.2"),
        "{}",
        lab.switch.sandbox.read("app.out")
    );
    eventually("the application has rules for both directions", || {
        (lab.flows(protocol).matches("priority=10").count() >= 2).then_some(())
    });
    let before = lab.said("packet-in");
    assert_eq!(ping(&lab.hosts[0], "10.1.0.2", 5).received, 5);
    assert_eq!(lab.said("packet-in"), before, "known pairs do not go to the controller");
    Iperf3::tcp_bytes(20_000_000).run(&lab.hosts[0], &lab.hosts[1], "10.1.0.2");
    eventually("idle rules are told as removed, with their packets", || {
        let text = lab.switch.sandbox.read("app.out");
        let told = text.lines().filter(|l| l.starts_with("APP removed reason 0 packets"));
        let counted = told.filter(|l| !l.ends_with(" packets 0")).count();
        (counted >= 2).then_some(())
    });
    lab.switch
        .wait_for("controller", "br0", "is_connected", |v| v == "true");
    lab.no_errors();
}

#[test]
fn a_learning_switch_of_openflow_1_0() {
    learning_switch("1.0", "OpenFlow10");
}

#[test]
fn a_learning_switch_of_openflow_1_2() {
    learning_switch("1.2", "OpenFlow12");
}

#[test]
fn a_learning_switch_of_openflow_1_3() {
    learning_switch("1.3", "OpenFlow13");
}

#[test]
fn a_learning_switch_of_openflow_1_4() {
    learning_switch("1.4", "OpenFlow14");
}

#[test]
fn a_learning_switch_of_openflow_1_5() {
    learning_switch("1.5", "OpenFlow15");
}

#[test]
fn a_router_whose_routes_are_rules() {
    if let Some(reason) = cannot() {
        skip!("{reason}");
    }
    let lab = Lab::new("OpenFlow13", &["10.1.1.1/24", "10.1.2.1/24"]);
    for (host, gateway) in lab.hosts.iter().zip(["10.1.1.254", "10.1.2.254"]) {
        host.ip(&format!("route add default via {gateway}"));
    }
    let _app = lab.osken("router.py", "1.3");
    lab.wait_for("ready");
    // Each host makes itself known by an ARP request for its gateway.
    let _ = ping(&lab.hosts[0], "10.1.1.254", 1);
    let _ = ping(&lab.hosts[1], "10.1.2.254", 1);
    assert!(reaches(&lab.hosts[0], "10.1.2.1"), "{}", lab.flows("OpenFlow13"));
    let capture = Capture::start(&lab.hosts[1], "eth0", "icmp");
    assert_eq!(ping(&lab.hosts[0], "10.1.2.1", 3).received, 3);
    let frames = capture.finish();
    let routed = |f: &Vec<u8>| f[6..12] == [2, 0, 0, 0, 2, 0xfe] && f[22] == 63;
    assert!(
        frames.iter().any(routed),
        "the gateway's address and one hop less: {frames:x?}"
    );
    Iperf3::tcp_bytes(20_000_000).run(&lab.hosts[0], &lab.hosts[1], "10.1.2.1");
    lab.no_errors();
}
