//! The commands of the control socket, with their answers and errors.

mod common;

use std::fs;

use common::{Server, database, directory};
use serde_json::json;

#[test]
fn commands_answer_and_refuse_as_in_open_vswitch() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    let copy = dir.path().join("copy.db");
    fs::copy(&file, &copy).unwrap();
    let copy = copy.to_str().unwrap();
    for (command, args, answer) in [
        ("get-db-storage-status", &["D"][..], Ok("status: ok")),
        ("get-db-storage-status", &["X"], Err("Failed to find the database.")),
        ("compact", &["_Server"], Err("cannot compact built-in databases")),
        ("compact", &["X"], Err("no database by that name")),
        ("memory-trim-on-compaction", &["on"], Ok("")),
        ("compact", &["D"], Ok("")),
        ("memory-trim-on-compaction", &["off"], Ok("")),
        ("memory-trim-on-compaction", &["perhaps"], Err("invalid argument")),
        (
            "perf-counters-show",
            &[],
            Ok("performance counter is not supported on this platform"),
        ),
        ("perf-counters-clear", &[], Ok("")),
        ("add-db", &[copy], Err("ovsdb error: D: duplicate database name")),
        ("add-remote", &["db:a"], Err("\"db:a\": invalid syntax")),
        ("add-remote", &["db:X,Y,Z"], Err("\"db:X,Y,Z\": no database named X")),
        ("remove-remote", &["ptcp:9"], Err("no such remote")),
        ("tlog-set", &["D:T", "on"], Ok("")),
        ("tlog-set", &["D:T", "x"], Err("invalid command argument")),
        ("tlog-set", &["D:X", "on"], Err("no such table")),
        ("tlog-set", &["X:T", "on"], Err("no such database")),
        ("tlog-set", &["D", "on"], Err("invalid DB:TABLE argument")),
    ] {
        let said = server.control(&format!("ovsdb-server/{command}"), args);
        let said = said.as_deref().map(str::trim_end).map_err(|error| error.trim_end());
        assert_eq!(said, answer, "{command} {args:?}");
    }
    let log = server.log();
    assert!(
        log.contains("|ovsdb_server|INFO|memory trimming after compaction enabled."),
        "{log}"
    );
}

#[test]
fn the_log_has_the_port_that_the_system_chose() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(
        dir.path(),
        &file,
        &["--remote=ptcp:0:127.0.0.1", "--remote=ptcp:0:[::1]"],
    );
    let log = server.log();
    for (spec, host) in [("0:127.0.0.1", "127.0.0.1"), ("0:[::1]", "::1")] {
        let mark = format!("|socket_util|INFO|{spec}: listening on port ");
        let rest = log.split(&mark).nth(1).unwrap_or_else(|| panic!("{mark}: {log}"));
        let port: u16 = rest.lines().next().unwrap().parse().unwrap();
        std::net::TcpStream::connect((host, port)).unwrap();
    }
}

#[test]
fn clients_that_monitor_under_conditions_are_disconnected_when_that_is_switched_off() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    let mut before = server.connect();
    before.call("monitor_cond", json!(["D", "m", {"T": [{}]}]));
    server.control("ovsdb-server/disable-monitor-cond", &[]).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !before.is_closed() {
        assert!(std::time::Instant::now() < end, "the connection stays open");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let mut after = server.connect();
    let reply = after.call("monitor_cond", json!(["D", "m", {"T": [{}]}]));
    assert_eq!(reply["error"], "unknown method");
}

#[test]
fn changes_of_the_chosen_tables_are_logged() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    let mut client = server.connect();
    client.transact(common::insert("silent"));
    server.control("ovsdb-server/tlog-set", &["D:T", "on"]).unwrap();
    let list = server.control("ovsdb-server/tlog-list", &[]).unwrap();
    let line = format!("{:16}{:<27} ON\n", "", "T");
    assert!(list.contains(&line), "{list}");
    let reply = client.transact(json!({"op": "insert", "table": "T", "row": {"name": "q r", "n": 3}}));
    let uuid = reply["result"][0]["uuid"][1].as_str().unwrap().to_owned();
    client.transact(json!({"op": "update", "table": "T", "where": [["name", "==", "q r"]], "row": {"n": 0}}));
    client.transact(json!({"op": "delete", "table": "T", "where": [["name", "==", "q r"]]}));
    server.control("ovsdb-server/tlog-set", &["D:T", "off"]).unwrap();
    client.transact(common::insert("silent again"));
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("|transaction|INFO|"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 3, "{log}");
    for (line, op, columns) in [
        (lines[0], "inserted", ",n:3,name:\"q r\""),
        (lines[1], "updated", ",name:\"q r\""),
        (lines[2], "deleted", ",name:\"q r\""),
    ] {
        assert!(
            line.contains(&format!("|table:T,op:{op},_uuid:{uuid},_version:")),
            "{line}"
        );
        assert!(line.ends_with(columns), "{line}");
    }
}
