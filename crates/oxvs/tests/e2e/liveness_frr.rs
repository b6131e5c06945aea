//! BFD with FRR's `bfdd` at the other end.

use crate::fixture::in_namespace;
use crate::liveness::wait_for;
use std::fs;
use std::path::Path;
use testkit::{Daemon, Netns, Sandbox, eventually, run, skip};

/// Where Debian has FRR's daemons.
const DAEMONS: &str = "/usr/lib/frr";

/// FRR with a BFD session from `10.9.0.2` on `m1` to `10.9.0.1`. `zebra` tells `bfdd` of devices.
struct Frr {
    _zebra: Daemon,
    bfdd: Daemon,
    sandbox: Sandbox,
}

impl Frr {
    fn start(ns: &Netns) -> Frr {
        let sandbox = Sandbox::new();
        let config = "bfd\n peer 10.9.0.1 local-address 10.9.0.2 interface m1\n  receive-interval 100\n  \
                      transmit-interval 100\n exit\nexit\n";
        fs::write(sandbox.arg("bfdd.conf"), config).unwrap();
        fs::write(sandbox.arg("zebra.conf"), "").unwrap();
        // They work as their own user.
        run(&["chown", "-R", "frr", &sandbox.arg("")]);
        let start = |name: &str, more: &[String]| {
            let file = |suffix: &str| sandbox.arg(&format!("{name}.{suffix}"));
            let mut command = ns.prefix();
            command.push(format!("{DAEMONS}/{name}"));
            command.extend(["-u", "frr", "-g", "frr", "--vty_socket", &sandbox.arg("")].map(str::to_owned));
            command
                .extend(["-f", &file("conf"), "-i", &file("pid"), "-z", &sandbox.arg("zserv.api")].map(str::to_owned));
            command.extend_from_slice(more);
            Daemon::start(name, &command, &sandbox)
        };
        let zebra = start("zebra", &[]);
        eventually("zebra answers", || {
            fs::exists(sandbox.arg("zserv.api")).unwrap_or(false).then_some(())
        });
        let control = sandbox.arg("bfdd.sock");
        let bfdd = start("bfdd", &["--bfdctl".to_owned(), control]);
        Frr {
            _zebra: zebra,
            bfdd,
            sandbox,
        }
    }

    /// What it says of its session.
    fn session(&self) -> String {
        let directory = self.sandbox.arg("");
        let show = [
            "vtysh",
            "--vty_socket",
            &directory,
            "-d",
            "bfdd",
            "-c",
            "show bfd peers",
        ];
        testkit::try_run(&show, &[]).stdout
    }

    fn wait_for(&self, what: &str) {
        eventually(&format!("bfdd says {what}"), || {
            self.session().lines().any(|line| line.trim() == what).then_some(())
        });
    }

    fn signal(&self, signal: &str) {
        run(&["kill", signal, &self.bfdd.pid().to_string()]);
    }
}

#[test]
fn bfd_to_frr_comes_up_agrees_on_intervals_and_notices_silence() {
    skip!(unless long);
    skip!(unless root, "ip", "vtysh", "ovs-vsctl", "setpriv");
    if !Path::new(DAEMONS).join("bfdd").exists() {
        skip!("needs bfdd, which is not installed");
    }
    let (near, far) = (Netns::new("near"), Netns::new("far"));
    near.veth("m1", &far, "m1");
    far.address("m1", "10.9.0.2/24");
    // The switch has no address there, and so answers no ARP request.
    far.ip(&format!(
        "neighbour add 10.9.0.1 lladdr {} dev m1 nud permanent",
        near.mac_of("m1")
    ));
    let switch = in_namespace(&near);
    switch.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 m1 -- set interface m1 bfd:enable=true \
         bfd:min_rx=100 bfd:min_tx=100 bfd:bfd_src_ip=10.9.0.1 bfd:bfd_dst_ip=10.9.0.2 bfd:bfd_local_dst_mac={}",
        far.mac_of("m1")
    ));
    let frr = Frr::start(&far);
    wait_for(&switch, "m1", "state", "up");
    wait_for(&switch, "m1", "remote_state", "up");
    wait_for(&switch, "m1", "forwarding", "true");
    frr.wait_for("Status: up");

    // New intervals are agreed on.
    switch.vsctl("set interface m1 bfd:min_tx=300 bfd:min_rx=250");
    frr.wait_for("Transmission interval: 300ms");
    frr.wait_for("Receive interval: 250ms");
    wait_for(&switch, "m1", "state", "up");

    // Ended here: the other end hears of it.
    switch.vsctl("set interface m1 bfd:enable=false");
    frr.wait_for("Status: down");
    switch.vsctl("set interface m1 bfd:enable=true");
    wait_for(&switch, "m1", "state", "up");
    frr.wait_for("Status: up");

    // A peer that falls silent, and speaks again.
    frr.signal("-STOP");
    wait_for(&switch, "m1", "diagnostic", "Control Detection Time Expired");
    wait_for(&switch, "m1", "forwarding", "false");
    frr.signal("-CONT");
    wait_for(&switch, "m1", "state", "up");
    frr.wait_for("Status: up");
}
