//! Programs whose reader goes away: `oxvs lab list | head -1`.

use crate::fixture::{binary, dummy, dummy_bridge, stand_in};
use std::process::{Command, Stdio};
use testkit::skip;

#[test]
fn every_program_ends_quietly_when_the_reader_of_its_output_is_gone() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        return;
    }
    let switch = dummy();
    dummy_bridge(&switch, "br0", &["p1"]);
    let database = switch.sandbox.arg("conf.db");
    let control = switch.sandbox.arg("switch.ctl");
    let show_log = format!("ovsdb-tool show-log {database}");
    let list_commands = format!("appctl -t {control} list-commands");
    let commands = [
        "--help",
        "--version",
        "run --help",
        "run --version",
        "vswitchd --help",
        "ovsdb-server --help",
        "ovsdb-server --version",
        "vsctl --help",
        "vsctl --version",
        "vsctl show",
        "vsctl list interface",
        "vsctl list-br",
        "ofctl --help",
        "ofctl --version",
        "ofctl show br0",
        "ofctl dump-flows br0",
        "appctl --help",
        "appctl --version",
        &list_commands,
        "ovsdb-client --help",
        "ovsdb-client --version",
        "ovsdb-client list-dbs",
        "ovsdb-client get-schema",
        "ovsdb-client dump",
        "ovsdb-client backup",
        "ovsdb-client monitor Open_vSwitch Bridge",
        "ovsdb-tool --help",
        "ovsdb-tool --version",
        &show_log,
        "lab --help",
        "lab list",
        "lab bench --list",
    ];
    for command in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let done = Command::new(binary())
            .args(command.split(' '))
            .envs(switch.sandbox.env())
            .stdin(Stdio::null())
            .stdout(writer)
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "oxvs {command}: {}; {said}", done.status);
        assert_eq!(said, "", "oxvs {command}");
    }
}
