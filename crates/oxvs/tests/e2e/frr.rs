//! FRR's daemons, as other ends of the switch's protocols.

use std::fs;
use std::path::Path;
use testkit::{Daemon, Netns, Sandbox, eventually, run, try_run};

/// Where Debian has them.
const DAEMONS: &str = "/usr/lib/frr";

/// One of FRR's daemons with `zebra`, which tells it of devices.
pub(crate) struct Frr {
    _zebra: Daemon,
    daemon: Daemon,
    sandbox: Sandbox,
}

impl Frr {
    /// Whether a daemon is installed.
    pub(crate) fn has(daemon: &str) -> bool {
        Path::new(DAEMONS).join(daemon).exists()
    }

    /// Starts a daemon with a configuration.
    pub(crate) fn start(ns: &Netns, daemon: &str, config: &str) -> Frr {
        let sandbox = Sandbox::new();
        fs::write(sandbox.arg(&format!("{daemon}.conf")), config).unwrap();
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
        let more = match daemon {
            "bfdd" => vec!["--bfdctl".to_owned(), sandbox.arg("bfdd.sock")],
            _ => Vec::new(),
        };
        let daemon = start(daemon, &more);
        Frr {
            _zebra: zebra,
            daemon,
            sandbox,
        }
    }

    /// The daemon's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon.pid()
    }

    /// What a daemon answers to a command.
    pub(crate) fn show(&self, daemon: &str, command: &str) -> String {
        let directory = self.sandbox.arg("");
        let show = ["vtysh", "--vty_socket", &directory, "-d", daemon, "-c", command];
        try_run(&show, &[]).stdout
    }
}
