//! TLS between Debian's programs and ours, with the keys that ovs-pki makes.

mod oracle;

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use oracle::{Said, Sandbox};

/// Keys of a switch and of a controller, and their two authorities, as `ovs-pki` lays them out.
fn make_keys(sandbox: &Sandbox) {
    let pki = format!("--dir={}", sandbox.path("pki").display());
    let log = format!("--log={}", sandbox.path("ovs-pki.log").display());
    for words in [
        &["init"][..],
        &["req+sign", "sw", "switch"],
        &["req+sign", "ctl", "controller"],
    ] {
        let output = sandbox
            .command("ovs-pki")
            .args([&pki, &log])
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn has_pki() -> bool {
    let found = ["ovs-pki", "openssl"].iter().all(|tool| {
        let mut tried = Command::new(tool);
        tried.arg("--help").stdout(Stdio::null()).stderr(Stdio::null());
        tried.status().is_ok()
    });
    if !found {
        eprintln!("skipped: no ovs-pki or openssl to make keys with");
    }
    found
}

/// The keys that a server shows and the authority that it trusts.
const SERVER: &[&str] = &[
    "--private-key=ctl-privkey.pem",
    "--certificate=ctl-cert.pem",
    "--ca-cert=pki/switchca/cacert.pem",
];

/// The options of a client whose keys are `name`'s.
fn client(name: &str, ca: &str) -> [String; 3] {
    [
        format!("--private-key={name}-privkey.pem"),
        format!("--certificate={name}-cert.pem"),
        format!("--ca-cert=pki/{ca}/cacert.pem"),
    ]
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, Debian's or ours; returns it with its port.
fn serve(mut command: Command) -> (Server, String) {
    command.args(["conf.db", "--remote=punix:db.sock", "--remote=pssl:0:127.0.0.1"]);
    command
        .args(SERVER)
        .args(["--log-file=server.log", "-vconsole:off", "-vsyslog:off"]);
    let server = Server(command.stderr(Stdio::null()).spawn().unwrap());
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < end, "the server does not listen");
        if let Some(port) = listening_port(server.0.id()) {
            return (server, format!("ssl:127.0.0.1:{port}"));
        }
        sleep(Duration::from_millis(20));
    }
}

/// The TCP port that a process listens on: one of its descriptors is that socket.
fn listening_port(pid: u32) -> Option<u16> {
    let sockets = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let inodes: Vec<String> = sockets
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter_map(|link| {
            let link = link.to_str()?;
            Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ours = words[3] == "0A" && inodes.iter().any(|inode| inode == words[9]);
        let port = words[1].split(':').nth(1)?;
        ours.then(|| u16::from_str_radix(port, 16).ok()).flatten()
    })
}

fn run(sandbox: &Sandbox, ours: bool, words: &[&str]) -> Said {
    if ours {
        sandbox.ours(words)
    } else {
        sandbox.theirs(words)
    }
}

/// What a client of either kind may and may not do at a server.
fn check(sandbox: &Sandbox, remote: &str) {
    for ours in [false, true] {
        let say = |words: &[&str], keys: &[String]| {
            let mut all = words.to_vec();
            all.extend(keys.iter().map(String::as_str));
            run(sandbox, ours, &all)
        };
        let good = client("sw", "controllerca");
        let listed = say(&["ovsdb-client", "--timeout=10", "list-dbs", remote], &good);
        assert_eq!(
            (listed.status, listed.out.as_str()),
            (Some(0), "Open_vSwitch\n_Server\n"),
            "{listed:?}"
        );

        let db = format!("--db={remote}");
        let mut words = vec!["ovs-vsctl", "--no-wait", "--timeout=10", &db];
        words.extend(good.iter().map(String::as_str));
        let bridge = if ours { "ours" } else { "theirs" };
        words.extend(["--may-exist", "add-br", bridge, "--", "list-br"]);
        let changed = run(sandbox, ours, &words);
        assert!(changed.status == Some(0) && changed.out.contains(bridge), "{changed:?}");

        // A dump of more than one record of TLS.
        let dumped = say(&["ovsdb-client", "--timeout=10", "get-schema", remote], &good);
        assert!(dumped.status == Some(0) && dumped.out.len() > 10_000, "{dumped:?}");

        for (keys, why) in [
            (
                client("sw", "switchca"),
                "an authority that did not issue the server's certificate",
            ),
            (
                client("ctl", "controllerca"),
                "a certificate that the server does not trust",
            ),
        ] {
            let refused = say(&["ovsdb-client", "--timeout=10", "list-dbs", remote], &keys);
            assert!(
                refused.status != Some(0) && refused.out.is_empty(),
                "{why}: {refused:?}"
            );
        }
        let plain = remote.replacen("ssl:", "tcp:", 1);
        let refused = run(sandbox, ours, &["ovsdb-client", "--timeout=3", "list-dbs", &plain]);
        assert_ne!(refused.status, Some(0), "{refused:?}");
    }
}

fn prepared() -> Option<Sandbox> {
    let sandbox = Sandbox::new()?;
    if !has_pki() {
        return None;
    }
    sandbox.write("schema", ovsdb::schemas::OPEN_VSWITCH);
    make_keys(&sandbox);
    assert_eq!(sandbox.theirs(&["ovsdb-tool", "create", "conf.db", "schema"]).err, "");
    Some(sandbox)
}

#[test]
fn our_clients_and_debians_are_served_by_debians_server() {
    let Some(sandbox) = prepared() else { return };
    let (_server, remote) = serve(sandbox.command("ovsdb-server"));
    let init = sandbox.theirs(&["ovs-vsctl", "--no-wait", "--db=unix:db.sock", "init"]);
    assert_eq!(init.status, Some(0), "{init:?}");
    check(&sandbox, &remote);
}

#[test]
fn our_clients_and_debians_are_served_by_our_server() {
    let Some(sandbox) = prepared() else { return };
    let (_server, remote) = serve(sandbox.our_command(&["ovsdb-server"]));
    let init = sandbox.theirs(&["ovs-vsctl", "--no-wait", "--db=unix:db.sock", "init"]);
    assert_eq!(init.status, Some(0), "{init:?}");
    check(&sandbox, &remote);
    let log = std::fs::read_to_string(sandbox.path("server.log")).unwrap();
    assert!(
        log.contains("certificate is not issued by a trusted authority"),
        "{log}"
    );
    assert!(log.contains("|stream_ssl|WARN|ssl:127.0.0.1:"), "{log}");
}

#[test]
fn a_server_trusts_the_authority_of_its_first_peer_when_told_to() {
    let Some(sandbox) = prepared() else { return };
    let words = ["ovsdb-server", "--peer-ca-cert=pki/controllerca/cacert.pem"];
    let (_server, remote) = serve(sandbox.our_command(&words));
    for ours in [false, true] {
        let file = format!("--bootstrap-ca-cert=learnt-{ours}.pem");
        let words = [
            "ovsdb-client",
            "--timeout=10",
            "--private-key=sw-privkey.pem",
            "--certificate=sw-cert.pem",
            &file,
            "list-dbs",
            &remote,
        ];
        run(&sandbox, ours, &words);
        let again = run(&sandbox, ours, &words);
        assert_eq!(
            (again.status, again.out.as_str()),
            (Some(0), "Open_vSwitch\n_Server\n"),
            "{again:?}"
        );
        // From then on it is as if the file had been named.
        let file = format!("--ca-cert=learnt-{ours}.pem");
        let keys = ["--private-key=sw-privkey.pem", "--certificate=sw-cert.pem", &file];
        for ours in [false, true] {
            let mut words = vec!["ovsdb-client", "--timeout=10", "list-dbs", &remote];
            words.extend(keys);
            assert_eq!(run(&sandbox, ours, &words).status, Some(0));
        }
    }
}
