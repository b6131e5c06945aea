//! A whole switch in a sandbox: Debian's Open vSwitch, or ours, behind the same commands.

use crate::command::{Done, try_run};
use crate::{Daemon, Netns, Sandbox, Unixctl, eventually};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The devices that the switch may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Devices {
    /// Every type is a dummy: no root, nothing outside the process (`--enable-dummy=override`).
    #[default]
    Dummy,
    /// The system's.
    System,
}

/// The programs that configure it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Client {
    /// `ovs-vsctl`, `ovs-appctl`, … as installed.
    #[default]
    Debian,
    /// `oxvs vsctl`, `oxvs appctl`, … of this binary.
    Ours(PathBuf),
}

/// How to start a switch.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The devices it may open.
    pub devices: Devices,
    /// The programs that configure it.
    pub client: Client,
    /// The namespace it runs in; the one of the test if `None`.
    pub netns: Option<String>,
    /// Further arguments of the daemon.
    pub args: Vec<String>,
}

/// A running switch; its processes and files go away with its value.
#[derive(Debug)]
pub struct Vswitch {
    /// Its directories.
    pub sandbox: Sandbox,
    /// Its processes; the last one forwards packets.
    pub daemons: Vec<Daemon>,
    kind: Kind,
    options: Options,
}

#[derive(Debug, Clone)]
enum Kind {
    Debian,
    Ours(PathBuf),
}

impl Vswitch {
    /// Starts Debian's `ovsdb-server` and `ovs-vswitchd`: the oracle.
    #[track_caller]
    pub fn debian(options: Options) -> Vswitch {
        Vswitch::start(Kind::Debian, options)
    }

    /// Starts `oxvs run`.
    #[track_caller]
    pub fn oxvs(binary: &Path, options: Options) -> Vswitch {
        Vswitch::start(Kind::Ours(binary.to_owned()), options)
    }

    #[track_caller]
    fn start(kind: Kind, options: Options) -> Vswitch {
        let mut switch = Vswitch {
            sandbox: Sandbox::new(),
            daemons: Vec::new(),
            kind,
            options,
        };
        switch.boot();
        switch
    }

    /// Restarts the processes after [`kill`](Vswitch::kill), with the files that are there.
    #[track_caller]
    pub fn boot(&mut self) {
        let sandbox = &self.sandbox;
        let _ = std::fs::remove_file(sandbox.path("db.sock"));
        let control = format!("--unixctl={}", sandbox.arg("switch.ctl"));
        let file_log = format!("--log-file={}", sandbox.arg("switch.log"));
        match self.kind.clone() {
            Kind::Debian => {
                let schema = "/usr/share/openvswitch/vswitch.ovsschema";
                let db = sandbox.arg("conf.db");
                if !Path::new(&db).exists() {
                    try_run(&["ovsdb-tool", "create", &db, schema], &[]).expect_ok();
                }
                let remote = format!("--remote=punix:{}", sandbox.arg("db.sock"));
                let db_control = format!("--unixctl={}", sandbox.arg("db.ctl"));
                let command = ["ovsdb-server", &db, &remote, &db_control, "--pidfile"];
                self.spawn("ovsdb-server", &command);
                self.sandbox_socket("db.sock");
                let init = try_run(&["ovs-vsctl", "--no-wait", "--timeout=10", "init"], &self.sandbox.env());
                init.expect_ok();
                self.spawn(
                    "switch",
                    &["ovs-vswitchd", &control, &file_log, "-vconsole:off", "--pidfile"],
                );
            }
            Kind::Ours(binary) => {
                let binary = binary.display().to_string();
                self.spawn("switch", &[&binary, "run", &control, &file_log, "--pidfile"]);
                self.sandbox_socket("db.sock");
            }
        }
        self.sandbox_socket("switch.ctl");
        self.link_control_sockets();
    }

    /// Lets `ovs-appctl` find the control sockets by the names of the daemons.
    fn link_control_sockets(&self) {
        let sandbox = &self.sandbox;
        for (daemon, socket) in [("ovs-vswitchd", "switch.ctl"), ("ovsdb-server", "db.ctl")] {
            let pid = sandbox.read(&format!("{daemon}.pid"));
            let name = sandbox.path(&format!("{daemon}.{}.ctl", pid.trim()));
            if sandbox.path(socket).exists() && !name.exists() {
                let _ = std::os::unix::fs::symlink(sandbox.path(socket), name);
            }
        }
    }

    #[track_caller]
    fn spawn(&mut self, name: &str, command: &[&str]) {
        let mut words = Vec::new();
        if let Some(ns) = &self.options.netns {
            words.extend(["ip", "netns", "exec", ns].map(str::to_owned));
        }
        words.extend(command.iter().map(|w| (*w).to_owned()));
        if name == "switch" {
            if self.options.devices == Devices::Dummy {
                let flags = ["--enable-dummy=override", "--disable-system"];
                words.extend(flags.map(str::to_owned));
            }
            words.extend(self.options.args.iter().cloned());
        }
        self.daemons.push(Daemon::start(name, &words, &self.sandbox));
    }

    #[track_caller]
    fn sandbox_socket(&mut self, name: &str) {
        let path = self.sandbox.path(name);
        if let Some(daemon) = self.daemons.last_mut() {
            // A socket is in its directory before anyone listens at it.
            daemon.wait_until(|| UnixStream::connect(&path).is_ok());
        }
    }

    /// Ends its processes at once, as a power cut would; the files stay.
    pub fn kill(&mut self) {
        self.daemons.clear();
    }

    /// The process that forwards packets.
    ///
    /// # Panics
    /// After [`kill`](Vswitch::kill).
    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemons.last_mut().expect("the switch runs")
    }

    /// `ovs-vsctl` with the words of `args` (quotes are not looked at), which must succeed within a
    /// minute.
    #[track_caller]
    pub fn vsctl(&self, args: &str) -> String {
        let words: Vec<&str> = args.split_whitespace().collect();
        self.try_vsctl(&words).expect_ok()
    }

    /// `ovs-vsctl`, whatever its exit status.
    #[track_caller]
    pub fn try_vsctl(&self, args: &[&str]) -> Done {
        let db = format!("--db={}", self.sandbox.db_remote());
        let mut words = vec!["--timeout=60", &db];
        words.extend(args);
        self.tool("ovs-vsctl", &words)
    }

    /// `ovs-appctl` to the process that forwards packets; it must succeed.
    #[track_caller]
    pub fn appctl(&self, args: &[&str]) -> String {
        self.try_appctl(args).expect_ok()
    }

    /// `ovs-appctl`, whatever its exit status.
    #[track_caller]
    pub fn try_appctl(&self, args: &[&str]) -> Done {
        let target = self.sandbox.arg("switch.ctl");
        let mut words = vec!["--timeout=60", "--target", &target];
        words.extend(args);
        self.tool("ovs-appctl", &words)
    }

    /// The control socket of the process that forwards packets.
    #[track_caller]
    pub fn unixctl(&self) -> Unixctl {
        Unixctl::connect(&self.sandbox.path("switch.ctl"))
    }

    /// Any client program, named as Open vSwitch names it, in the sandbox's environment.
    #[track_caller]
    pub fn tool(&self, program: &str, args: &[&str]) -> Done {
        let mut words: Vec<String> = match &self.options.client {
            Client::Debian => vec![program.to_owned()],
            Client::Ours(binary) => {
                vec![binary.display().to_string(), program.to_owned()]
            }
        };
        words.extend(args.iter().map(|w| (*w).to_owned()));
        try_run(&words, &self.sandbox.env())
    }

    /// A column of a record, as `ovs-vsctl get` prints it.
    #[track_caller]
    pub fn get(&self, table: &str, record: &str, column: &str) -> String {
        let value = self.try_vsctl(&["get", table, record, column]);
        value.expect_ok().trim_end().to_owned()
    }

    /// Waits until a column of a record satisfies `wanted`.
    #[track_caller]
    pub fn wait_for(&self, table: &str, record: &str, column: &str, wanted: impl Fn(&str) -> bool) {
        let what = format!("{table} {record} {column} is as wanted");
        eventually(&what, || {
            let done = self.try_vsctl(&["get", table, record, column]);
            (done.ok() && wanted(done.stdout.trim_end())).then_some(())
        });
    }

    /// Makes a host: a namespace whose `eth0`, with `address` (`10.0.0.1/24`), is linked to the
    /// device `port` in the switch's namespace `switch`.
    #[track_caller]
    pub fn host(switch: &Netns, label: &str, port: &str, address: &str) -> Netns {
        let host = Netns::new(label);
        host.veth("eth0", switch, port);
        host.address("eth0", address);
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Packet, mac, pcap, skip};

    #[test]
    fn the_oracle_forwards_between_dummy_ports() {
        skip!(unless "ovs-vswitchd", "ovsdb-server", "ovs-vsctl", "setpriv");
        let oracle = Vswitch::debian(Options::default());
        let out = oracle.sandbox.arg("p2.pcap");
        oracle.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail-mode=standalone");
        oracle.vsctl("add-port br0 p1 -- set interface p1 type=dummy");
        oracle.vsctl(&format!(
            "add-port br0 p2 -- set interface p2 type=dummy options:tx_pcap={out}"
        ));
        let frame = Packet::new(mac(1), mac(2)).payload(0x88b5, b"hello").padded();
        oracle.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
        eventually("the frame comes out", || {
            pcap::frames(Path::new(&out))
                .contains(&frame.clone().bytes())
                .then_some(())
        });
    }
}
