//! `appctl` against Debian's `ovs-appctl`, both talking to Debian's server.

mod oracle;

use oracle::{Alike, Sandbox};

const SCHEMA: &str = include_str!("oracle/small.ovsschema");

#[test]
fn appctl_answers_as_ovs_appctl_does() {
    let Some(mut sandbox) = Sandbox::new() else { return };
    sandbox.write("small.ovsschema", SCHEMA);
    sandbox.start_server(&[("small.db", "small.ovsschema")]);
    let t = ["ovs-appctl", "-t", "ovsdb-server"];
    for words in [
        &["list-commands"][..],
        &["version"],
        &["vlog/list"],
        &["ovsdb-server/list-dbs"],
        &["ovsdb-server/list-remotes"],
        &["coverage/read-counter"],
        &["foo"],
        &["vlog/set", "a", "b"],
        &["vlog/set", "syslog:off", "--"],
        &["--", "vlog/set", "syslog:off"],
        &["version", "x"],
        &["--timeout=5", "version"],
        &["-T", "0", "version"],
        &["-T", "x", "version"],
        &["-T"],
        &["--t=3", "version"],
        &["--version=x"],
        &["-vfoo", "version"],
        &["-q"],
        &[],
    ] {
        sandbox.compare(Alike::Exactly, &[&t[..], words].concat());
    }
    std::fs::write(sandbox.path("stale.pid"), "1\n").unwrap();
    for words in [
        &["version"][..],
        &["-t", "nobody", "version"],
        &["-t", "stale", "version"],
        &["-t", "/nobody", "version"],
        &["-t", "unix:nobody", "version"],
        &["-t"],
    ] {
        sandbox.compare(Alike::Exactly, &[&["ovs-appctl"][..], words].concat());
    }
}

#[test]
fn a_daemon_that_does_not_answer_is_given_up_with_the_alarm_signal() {
    let Some(sandbox) = Sandbox::new() else { return };
    let path = sandbox.path("silent");
    let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let path = path.to_str().unwrap();
    sandbox.compare(Alike::Exactly, &["ovs-appctl", "-T", "1", "-t", path, "version"]);
}
