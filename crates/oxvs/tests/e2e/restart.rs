//! Crashes and restarts.

use crate::fixture::{binary, debian_in_namespace, dummy, dummy_bridge, in_namespace, stand_in};
use testkit::{Daemon, Netns, Packet, Rng, Sandbox, Vswitch, eventually, mac, pcap, skip, try_run};

#[test]
fn what_was_acknowledged_is_there_after_kill_9() {
    skip!(unless "ovs-vsctl", "setpriv");
    let mut switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    let mut rng = Rng::new(9);
    let mut acknowledged = 0;
    for _ in 0..6 {
        for _ in 0..rng.below(8) {
            acknowledged += 1;
            switch.vsctl(&format!(
                "--no-wait set bridge br0 external_ids:n={acknowledged} -- set port p1 tag={}",
                acknowledged % 4095
            ));
        }
        switch.kill();
        switch.boot();
        if acknowledged > 0 {
            let n = switch.get("bridge", "br0", "external_ids:n");
            assert_eq!(n.trim_matches('"'), acknowledged.to_string());
        }
    }
    assert_eq!(switch.get("port", "p1", "tag"), (acknowledged % 4095).to_string());
}

#[test]
fn a_restarted_switch_forwards_as_it_did() {
    skip!(unless "ovs-vsctl", "setpriv");
    let mut switch = dummy();
    dummy_bridge(&switch, "br0", &["p1", "p2", "p3"]);
    switch.vsctl("set port p1 tag=4 -- set port p2 tag=4 -- set port p3 tag=5");
    let uuid = switch.get("bridge", "br0", "_uuid");
    let id = switch.get("bridge", "br0", "datapath_id");
    let ofport = switch.get("interface", "p3", "ofport");
    switch.kill();
    for port in ["p1", "p2", "p3"] {
        let _ = std::fs::remove_file(switch.sandbox.path(&format!("{port}.tx")));
    }
    switch.boot();
    // Returns when the switch has read its configuration.
    switch.vsctl("set bridge br0 external_ids:restarted=true");
    assert_eq!(switch.get("bridge", "br0", "_uuid"), uuid);
    assert_eq!(switch.get("bridge", "br0", "datapath_id"), id);
    assert_eq!(switch.get("interface", "p3", "ofport"), ofport);
    let frame = Packet::new(mac(1), [0xff; 6]).payload(0x88b5, b"again").padded();
    switch.appctl(&["netdev-dummy/receive", "p1", &frame.hex()]);
    eventually("the frame comes out of the port in the same VLAN", || {
        let out = pcap::frames(&switch.sandbox.path("p2.tx"));
        out.contains(&frame.clone().bytes()).then_some(())
    });
    assert!(pcap::frames(&switch.sandbox.path("p3.tx")).is_empty());
}

#[test]
fn the_switch_forwards_as_another_user_and_has_its_crash_in_the_log() {
    use std::os::unix::fs::chown;
    skip!(unless root, "ip", "ping", "ovs-vsctl", "setpriv");
    let (ns, sandbox) = (Netns::new("sw"), Sandbox::new());
    let hosts = [1, 2].map(|n| Vswitch::host(&ns, "host", &format!("h{n}"), &format!("10.1.0.{n}/24")));
    chown(sandbox.dir(), Some(65534), None).unwrap();
    let mut words = ns.prefix();
    let ours = binary().display().to_string();
    words.extend([&ours, "run", "--user=nobody", "--log-file", "--pidfile"].map(str::to_owned));
    let mut switch = Daemon::start("switch", &words, &sandbox);
    let db = format!("--db={}", sandbox.db_remote());
    let words = "--timeout=20 add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 h1 -- add-port br0 h2";
    let words: Vec<&str> = ["ovs-vsctl", &db].into_iter().chain(words.split(' ')).collect();
    // The internal port needs a TUN device that every user may open, which is not so everywhere.
    eventually("it has a bridge", || {
        let done = try_run(&words, &[]);
        (done.ok() || done.stderr.contains("already exists")).then_some(())
    });
    hosts[0].run(&["ping", "-c", "3", "-i", "0.1", "-W", "5", "10.1.0.2"]);
    let pid = sandbox.read("ovs-vswitchd.pid").trim().parse().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("Uid:\t65534\t65534\t65534\t65534\n"), "{status}");

    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::SEGV).unwrap();
    eventually("it ends", || (!switch.is_running()).then_some(()));
    let log = sandbox.read("ovs-vswitchd.log");
    assert!(
        log.contains("|fatal_signal(crash)|EMER|SIGSEGV detected, backtrace:"),
        "{log}"
    );
    assert!(
        log.contains("|backtrace(crash)|EMER|0x") && log.contains("vswitchd::"),
        "{log}"
    );
}

#[test]
fn a_database_with_a_torn_end_opens_up_to_it() {
    skip!(unless "ovs-vsctl", "setpriv");
    let mut switch = dummy();
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy");
    switch.vsctl("--no-wait set bridge br0 external_ids:kept=yes");
    switch.kill();
    let file = switch.sandbox.path("conf.db");
    let mut bytes = std::fs::read(&file).expect("the database");
    let whole = bytes.len();
    bytes.extend(b"OVSDB JSON 70 0123456789abcdef0123456789abcdef01234567\n{\"Bridge\":{");
    std::fs::write(&file, &bytes).expect("the database");
    switch.boot();
    assert_eq!(switch.get("bridge", "br0", "external_ids"), "{kept=yes}");
    switch.vsctl("--no-wait set bridge br0 external_ids:more=yes");
    switch.kill();
    switch.boot();
    assert_eq!(switch.get("bridge", "br0", "external_ids"), "{kept=yes, more=yes}");
    if !stand_in() {
        let log = switch.sandbox.read("switch.log");
        assert!(log.contains("|ERR|") && log.contains("conf.db.cut-off"), "{log}");
    }
    assert!(std::fs::read(&file).expect("the database").len() > whole);
}

#[test]
fn the_first_start_on_a_machine_makes_its_directories() {
    skip!(unless "setpriv");
    let sandbox = Sandbox::new();
    let dirs = [("OVS_RUNDIR", "run/a"), ("OVS_DBDIR", "etc/b"), ("OVS_LOGDIR", "log/c")];
    let mut command = vec!["env".to_owned()];
    command.extend(
        dirs.iter()
            .map(|(variable, dir)| format!("{variable}={}", sandbox.arg(dir))),
    );
    command.extend([
        binary().display().to_string(),
        "run".to_owned(),
        "--log-file".to_owned(),
    ]);
    let mut daemon = Daemon::start("first", &command, &sandbox);
    daemon.wait_until(|| sandbox.path("run/a/db.sock").exists());
    assert!(sandbox.path("etc/b/conf.db").exists());
    eventually("the log is written", || {
        sandbox.path("log/c/ovs-vswitchd.log").exists().then_some(())
    });
    daemon.terminate();
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("file"), "in the way").unwrap();
    let done = std::process::Command::new(binary())
        .args(["run", "-vsyslog:off"])
        .env("OVS_RUNDIR", sandbox.path("file/run"))
        .env("OVS_DBDIR", sandbox.dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1));
    assert!(said.contains("file/run: Not a directory"), "{said}");
}

#[test]
fn restarts_of_every_kind_are_complete_when_the_start_returns() {
    skip!(unless root, "unshare", "ip");
    if stand_in() {
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/restarts.sh");
    let done = std::process::Command::new(script)
        .arg("4")
        .env("OXVS", binary())
        .output()
        .expect("the script runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert_eq!(said.matches(" 4 restarts in ").count(), 6, "{said}");
}

#[test]
fn an_internal_port_whose_name_is_taken_works_as_soon_as_it_is_free() {
    skip!(unless root, "ip", "ovs-vsctl", "setpriv");
    if stand_in() {
        return;
    }
    let ns = Netns::new("taken");
    let mut first = in_namespace(&ns);
    first.vsctl("add-br br0");
    let second = in_namespace(&ns);
    let done = second.try_vsctl(&["add-br", "br0"]);
    assert!(done.stderr.contains("Device or resource busy"), "{done:?}");
    assert_eq!(second.get("interface", "br0", "ofport"), "-1");
    first.kill();
    second.wait_for("interface", "br0", "error", |error| error == "[]");
    assert_eq!(second.get("interface", "br0", "ofport"), "65534");
}

#[test]
fn an_internal_port_takes_over_the_device_that_open_vswitch_left_behind() {
    skip!(unless root, "ip", "ovs-vsctl", "ovs-vswitchd", "setpriv");
    if stand_in() {
        return;
    }
    let ns = Netns::new("heir");
    let mut theirs = debian_in_namespace(&ns);
    theirs.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    ns.address("br0", "10.0.0.1/24");
    theirs.daemon().terminate();
    assert!(ns.ip("link show br0").contains("br0"), "it stays");
    let ours = in_namespace(&ns);
    ours.vsctl("add-br br0");
    assert_eq!(ours.get("interface", "br0", "error"), "[]");
    assert!(ns.ip("addr show br0").contains("10.0.0.1/24"));
    ours.vsctl("del-br br0");
    assert!(
        !ns.ip("link show").contains("br0"),
        "it is this switch's own, and goes with its port"
    );
}

#[test]
fn a_start_fails_where_a_socket_cannot_be_listened_at_and_names_it() {
    let sandbox = Sandbox::new();
    let start = || {
        let done = std::process::Command::new(binary())
            .args(["run", "--detach", "--enable-dummy=override", "-vsyslog:off"])
            .envs(sandbox.env())
            .output()
            .unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    std::fs::create_dir(sandbox.path("db.sock")).unwrap();
    let (status, said) = start();
    assert_eq!(status, Some(1));
    assert!(
        said.contains("db.sock: listen failed (the path is a directory)"),
        "{said}"
    );
    std::fs::remove_dir(sandbox.path("db.sock")).unwrap();
    assert!(!sandbox.path("ovs-vswitchd.pid").exists() && !sandbox.path("ovsdb-server.pid").exists());
}

#[test]
fn a_sighup_reopens_the_log_of_every_daemon_and_a_sigalrm_ends_it_in_order() {
    // Its package has the schema.
    skip!(unless "ovs-vswitchd");
    if stand_in() {
        return;
    }
    let kill = |pid: &str, signal: &str| {
        let done = testkit::try_run(&["kill", signal, pid], &[]);
        assert!(done.ok(), "{done:?}");
    };
    for layout in ["run", "apart"] {
        let sandbox = Sandbox::new();
        let start = |args: &[&str]| {
            let mut command = vec![binary().display().to_string()];
            command.extend(args.iter().map(|word| (*word).to_owned()));
            command.extend(["--detach", "--pidfile", "--log-file", "-vsyslog:off"].map(str::to_owned));
            testkit::try_run(&command, &sandbox.env()).expect_ok();
        };
        let remote = format!("--remote=punix:{}", sandbox.arg("db.sock"));
        let database = sandbox.arg("conf.db");
        let daemons: &[&str] = match layout {
            "run" => {
                start(&["run", "--enable-dummy=override"]);
                &["ovs-vswitchd"]
            }
            _ => {
                testkit::try_run(
                    &[&binary().display().to_string(), "ovsdb-tool", "create", &database],
                    &[],
                )
                .expect_ok();
                start(&["ovsdb-server", &remote, &database]);
                testkit::try_run(
                    &[&binary().display().to_string(), "vsctl", "--no-wait", "init"],
                    &sandbox.env(),
                )
                .expect_ok();
                start(&["vswitchd", "--enable-dummy=override"]);
                &["ovs-vswitchd", "ovsdb-server"]
            }
        };
        for daemon in daemons {
            let (log, pidfile) = (format!("{daemon}.log"), format!("{daemon}.pid"));
            let pid = sandbox.read(&pidfile).trim().to_owned();
            std::fs::rename(sandbox.path(&log), sandbox.path("old.log")).unwrap();
            kill(&pid, "-HUP");
            eventually("the log is opened again", || {
                sandbox.read(&log).contains("opened log file").then_some(())
            });
            assert_eq!(sandbox.read(&pidfile).trim(), pid);
            kill(&pid, "-ALRM");
            eventually("the pidfile goes", || (!sandbox.path(&pidfile).exists()).then_some(()));
            let said = sandbox.read(&log);
            assert!(said.contains("terminating with signal 14 (Alarm clock)"), "{said}");
        }
    }
}

#[test]
fn a_second_switch_on_a_database_waits_and_takes_over() {
    skip!(unless "ovs-vsctl", "ovs-vswitchd", "setpriv");
    let (ours, theirs) = (binary().display().to_string(), "ovs-vswitchd");
    for (number, pair) in [[true, true], [true, false], [false, true]].into_iter().enumerate() {
        let sandbox = Sandbox::new();
        let (db, remote) = (sandbox.arg("conf.db"), sandbox.db_remote());
        testkit::try_run(
            &["ovsdb-tool", "create", &db, "/usr/share/openvswitch/vswitch.ovsschema"],
            &[],
        )
        .expect_ok();
        let listen = format!("--remote=p{remote}");
        let server = [&ours, "ovsdb-server", &db, &listen, "--pidfile"].map(str::to_owned);
        let _server = Daemon::start("ovsdb-server", &server, &sandbox);
        eventually("the server listens", || {
            std::os::unix::net::UnixStream::connect(sandbox.path("db.sock")).ok()
        });
        let start = |name: &str, is_ours: bool| {
            let mut command = match is_ours {
                true => vec![ours.clone(), "vswitchd".to_owned()],
                false => vec![theirs.to_owned()],
            };
            command.extend([
                remote.clone(),
                "--enable-dummy=override".into(),
                "--disable-system".into(),
            ]);
            command.push(format!("--unixctl={}", sandbox.arg(&format!("{name}.ctl"))));
            command.push(format!("--log-file={}", sandbox.arg(&format!("{name}.log"))));
            Daemon::start(name, &command, &sandbox)
        };
        let bridges = |name: &str| {
            let control = sandbox.arg(&format!("{name}.ctl"));
            testkit::try_run(&["ovs-appctl", "-t", &control, "ofproto/list"], &sandbox.env()).stdout
        };
        let mut first = start("first", pair[0]);
        let add = ["ovs-vsctl", "--timeout=20", &format!("--db={remote}"), "add-br", "br0"];
        testkit::try_run(&add, &sandbox.env()).expect_ok();
        let _second = start("second", pair[1]);
        let said = "another ovs-vswitchd process is running, disabling this process (pid ";
        eventually("the second switch waits", || {
            sandbox.read("second.log").contains(said).then_some(())
        });
        assert_eq!(bridges("first"), "br0\n", "pair {number}");
        assert!(!bridges("second").contains("br0"), "pair {number}");
        first.kill();
        eventually("the second switch takes over", || {
            (bridges("second") == "br0\n").then_some(())
        });
    }
}
