//! The IDL of Open vSwitch's Python library, as it is on PyPI, drives our database server.

use crate::controllers::secure;
use crate::fixture::{dummy, dummy_bridge};
use std::net::TcpListener;
use testkit::{Vswitch, eventually, skip, try_run};

/// Of the virtual environment that `scripts/setup.sh test` makes.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/controllers/bin/python3");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/controllers/idl.py");

/// What the script prints.
const ALL: [&str; 8] = [
    "all tables",
    "chosen columns, changes, insertion and increment",
    "verification, mutation, no change",
    "refusal",
    "index",
    "conditions",
    "locks",
    "reconnection and removal",
];

fn drive(switch: &Vswitch, remote: &str, keys: &[String]) -> Vec<String> {
    let schema = switch.sandbox.arg("schema");
    let unix = switch.sandbox.db_remote();
    let text = try_run(&["ovsdb-client", "get-schema", &unix, "Open_vSwitch"], &[]).expect_ok();
    std::fs::write(&schema, text).unwrap();
    let mut command = vec![PYTHON.to_owned(), SCRIPT.to_owned(), remote.to_owned(), schema];
    command.extend_from_slice(keys);
    let said = try_run(&command, &switch.sandbox.env()).expect_ok();
    said.lines().map(str::to_owned).collect()
}

#[test]
fn every_kind_of_use_works_over_unix_tcp_and_ssl() {
    skip!(unless "ovs-vsctl", "ovsdb-client", "ovs-pki", "openssl", "setpriv");
    if !try_run(&[PYTHON, "-c", "import ovs.db.idl"], &[]).ok() {
        skip!("needs target/controllers, which scripts/setup.sh test makes");
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    secure::make_keys(&switch);
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .unwrap()
            .port()
    };
    let (tcp, ssl) = (free(), free());
    switch.vsctl(&format!("set-manager ptcp:{tcp}:127.0.0.1 pssl:{ssl}:127.0.0.1"));
    for port in [tcp, ssl] {
        eventually("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    }
    let file = |name: &str| switch.sandbox.arg(name);
    let keys = [
        file("ctl-privkey.pem"),
        file("ctl-cert.pem"),
        file("pki/switchca/cacert.pem"),
    ];
    assert_eq!(drive(&switch, &switch.sandbox.db_remote(), &[]), ALL);
    assert_eq!(drive(&switch, &format!("tcp:127.0.0.1:{tcp}"), &[]), ALL);
    assert_eq!(drive(&switch, &format!("ssl:127.0.0.1:{ssl}"), &keys), ALL);
    // Then the library monitors in the way of RFC 7047.
    let control = ["-t", "ovsdb-server", "ovsdb-server/disable-monitor-cond"];
    switch.tool("ovs-appctl", &control).expect_ok();
    let mut plain = ALL;
    plain[5] = "conditions without effect";
    assert_eq!(drive(&switch, &switch.sandbox.db_remote(), &[]), plain);
}
