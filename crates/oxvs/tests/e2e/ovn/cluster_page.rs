//! The commands of `docs/cluster.md`, run as they are written there on two hosts. A host is a
//! network namespace with directories of its own for run files, databases and logs.

use super::needs_ovn;
use crate::fixture::binary;
use std::os::unix::fs::{PermissionsExt, symlink};
use testkit::{Daemon, Done, Netns, Sandbox, skip, try_run};

struct Host {
    ns: Netns,
    sandbox: Sandbox,
    first_process: Daemon,
    variables: String,
}

impl Host {
    fn new(name: &str) -> Host {
        let (ns, sandbox) = (Netns::new(name), Sandbox::new());
        std::fs::create_dir(sandbox.path("bin")).unwrap();
        symlink(binary(), sandbox.path("bin/oxvs")).unwrap();
        // The test is root already.
        std::fs::write(sandbox.path("bin/sudo"), "#!/bin/sh\nexec \"$@\"\n").unwrap();
        std::fs::set_permissions(sandbox.path("bin/sudo"), PermissionsExt::from_mode(0o755)).unwrap();
        let script = "for d in /run /var/lib/openvswitch /var/lib/ovn /var/log /etc/openvswitch /etc/ovn; do \
                      mkdir -p $d && mount -t tmpfs none $d || exit; done; echo ready; exec sleep infinity";
        let mut command = ns.prefix();
        // Whatever the commands start ends with the first process.
        command.extend(
            [
                "unshare",
                "-m",
                "-p",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                script,
            ]
            .map(str::to_owned),
        );
        let mut first_process = Daemon::start("host", &command, &sandbox);
        first_process.wait_until(|| sandbox.read("host.out").contains("ready"));
        Host {
            ns,
            sandbox,
            first_process,
            variables: String::new(),
        }
    }

    fn run(&self, command: &str) -> Done {
        let parent = self.first_process.pid();
        let inside = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        let path = format!("PATH={}:$PATH:/usr/sbin:/sbin", self.sandbox.arg("bin"));
        let script = format!("{path}; {} {command}", self.variables);
        // Daemons must not have the test's pipes.
        let script = format!("({script}) >/run/out 2>&1; status=$?; cat /run/out; exit $status");
        try_run(
            &[
                "nsenter",
                "-t",
                inside.trim(),
                "-m",
                "-n",
                "-p",
                "--",
                "sh",
                "-c",
                &script,
            ],
            &[],
        )
    }
}

/// The commands of the page with the names of the hosts that run each.
fn commands(page: &str) -> Vec<(&'static [usize], String)> {
    let mut on: &[usize] = &[];
    let mut commands = Vec::new();
    for line in page.lines() {
        match line {
            _ if line.starts_with("## ") && line.ends_with("on the first host") => on = &[0],
            _ if line.starts_with("## ") && line.ends_with("on each host") => on = &[0, 1],
            _ if line.starts_with("## ") => on = &[],
            _ if line.ends_with("irst one:") || line.ends_with("first host:") => on = &[0],
            "The second one:" => on = &[1],
            "Both:" => on = &[0, 1],
            _ => {}
        }
        if let Some(command) = line.strip_prefix("    ") {
            commands.push((on, command.to_owned()));
        }
    }
    commands
}

#[test]
fn the_commands_of_the_page_make_a_cluster() {
    needs_ovn!("unshare", "nsenter");
    if !std::path::Path::new("/usr/share/ovn/scripts/ovn-ctl").exists() {
        skip!("needs ovn-ctl, which is not installed");
    }
    let mut hosts = [Host::new("one"), Host::new("two")];
    hosts[0].ns.veth("eth0", &hosts[1].ns, "eth0");
    for (host, address) in hosts.iter().zip(["192.0.2.1/24", "192.0.2.2/24"]) {
        host.ns.address("eth0", address);
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cluster.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let commands = commands(&page);
    let count = commands
        .iter()
        .filter(|(_, command)| !command.contains("=one") && !command.contains("IP="))
        .count();
    assert!(count >= 10, "{commands:#?}");
    let mut last = String::new();
    for (on, command) in commands {
        assert!(!on.is_empty(), "no host runs {command}");
        for host in on {
            let host = &mut hosts[*host];
            if command.starts_with(|c: char| c.is_ascii_uppercase()) {
                host.variables = format!("{} {command};", host.variables);
            } else {
                last = host.run(&command).expect_ok();
            }
        }
    }
    assert!(last.contains(" 3 received"), "{last}");
    for host in &hosts {
        let log = host.run("cat /var/log/ovn/ovn-controller.log").expect_ok();
        assert!(log.contains("connected") && !log.contains("OFPT_ERROR"), "{log}");
    }
}
