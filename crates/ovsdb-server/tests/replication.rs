//! Active-backup replication: a backup has the contents of its active server, refuses changes, and
//! takes over. Beside Open vSwitch's server in either role, with either side killed.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Client, Server, Theirs, database, directory, eventually, insert, other, subdirectory};
use serde_json::{Value, json};

fn with_schema(dir: &Path, schema: &str) -> PathBuf {
    let file = dir.join("d.db");
    let schema = ovsdb::DatabaseSchema::from_text(schema).unwrap();
    fs::write(&file, ovsdb::log::schema_record(&schema)).unwrap();
    file
}

fn remote(server: &Server) -> String {
    format!("unix:{}", server.socket().display())
}

/// A server of ours that follows `source`.
fn backup(dir: &Path, source: &str, more: &[&str]) -> Server {
    let file = database(dir);
    let sync = format!("--sync-from={source}");
    Server::start(dir, &file, &[&[sync.as_str()], more].concat())
}

/// All rows of `T`, with their UUIDs.
fn rows(client: &mut Client) -> Vec<String> {
    let columns = json!(["_uuid", "name", "n"]);
    let reply = client.transact(json!({"op": "select", "table": "T", "where": [], "columns": columns}));
    let rows = reply["result"][0]["rows"].as_array().unwrap();
    let mut rows: Vec<String> = rows.iter().map(Value::to_string).collect();
    rows.sort();
    rows
}

#[test]
fn a_backup_has_the_rows_of_its_active_server_and_takes_over() {
    let dir = directory();
    let (one, two) = (subdirectory(dir.path(), "a"), subdirectory(dir.path(), "b"));
    let active = Server::start(&one, &database(&one), &[]);
    active.connect().transact(insert("before"));
    let source = remote(&active);
    let copy = backup(&two, &source, &[]);
    active.connect().transact(insert("after"));
    let mut writer = active.connect();
    writer.transact(json!({"op": "update", "table": "T", "where": [["name", "==", "before"]], "row": {"n": 7}}));
    let wanted = rows(&mut writer);
    eventually("the backup has the rows", || rows(&mut copy.connect()) == wanted);
    writer.transact(json!({"op": "delete", "table": "T", "where": [["name", "==", "after"]]}));
    let wanted = rows(&mut writer);
    eventually("the backup deletes the row", || rows(&mut copy.connect()) == wanted);

    let status = format!("state: backup\nreplicating: {source}\ndatabase: D\n");
    assert_eq!(copy.control("ovsdb-server/sync-status", &[]).unwrap(), status);
    assert_eq!(
        active.control("ovsdb-server/sync-status", &[]).unwrap(),
        "state: active\n"
    );

    let mut client = copy.connect();
    let reply = client.transact(insert("here"));
    let details = "insert operation not allowed when database server is in read only mode";
    assert_eq!(reply["result"], json!([{"error": "not allowed", "details": details}]));
    let reply = client.call(
        "transact",
        json!(["_Server", {"op": "delete", "table": "Database", "where": []}]),
    );
    let details = "delete operation not allowed when database server is in read only mode";
    assert_eq!(reply["result"][0]["details"], details);
    for method in ["lock", "steal", "unlock"] {
        let reply = client.call(method, json!(["x"]));
        assert_eq!(
            reply["error"],
            "lock and unlock methods not allowed, DB server is read only."
        );
    }

    active.kill();
    copy.control("ovsdb-server/disconnect-active-ovsdb-server", &[])
        .unwrap();
    eventually("clients are disconnected", || client.is_closed());
    assert_eq!(
        copy.control("ovsdb-server/sync-status", &[]).unwrap(),
        "state: active\n"
    );
    let reply = copy.connect().transact(insert("here"));
    assert!(reply["result"][0]["uuid"].is_array(), "{reply}");

    // What was replicated is in the file.
    copy.kill();
    let again = Server::start(&two, &two.join("d.db"), &[]);
    assert_eq!(again.connect().names(), ["before", "here"]);
}

#[test]
fn the_commands_set_and_show_the_active_server_and_the_tables_left_out() {
    let dir = directory();
    let (one, two) = (subdirectory(dir.path(), "a"), subdirectory(dir.path(), "b"));
    let active = Server::start(&one, &database(&one), &[]);
    active.connect().transact(insert("x"));
    let source = remote(&active);
    let copy = Server::start(&two, &database(&two), &[]);
    let control = |command: &str, args: &[&str]| copy.control(&format!("ovsdb-server/{command}"), args);
    copy.connect().transact(insert("mine"));
    let refusal = "Unable to connect: active server is not specified.\n";
    assert_eq!(control("connect-active-ovsdb-server", &[]).unwrap(), refusal);
    assert_eq!(control("get-active-ovsdb-server", &[]).unwrap().trim_end(), "");
    control("set-active-ovsdb-server", &[&source]).unwrap();
    control("set-sync-exclude-tables", &["D:T"]).unwrap();
    control("set-active-ovsdb-server-probe-interval", &["3000"]).unwrap();
    assert_eq!(control("get-active-ovsdb-server", &[]).unwrap().trim_end(), source);
    control("connect-active-ovsdb-server", &[]).unwrap();
    let status = format!("state: backup\nreplicating: {source}\ndatabase: D\nexclude: D:T\n");
    eventually("the backup follows", || control("sync-status", &[]).unwrap() == status);
    assert_eq!(copy.connect().names(), ["mine"], "the table is left out");
    // Open vSwitch 3.1 crashes without an argument.
    assert_eq!(
        control("set-sync-exclude-tables", &[]).unwrap_err().trim_end(),
        "\"ovsdb-server/set-sync-exclude-tables\" command requires at least 1 arguments"
    );
    control("set-sync-exclude-tables", &[""]).unwrap();
    assert_eq!(control("get-sync-exclude-tables", &[]).unwrap().trim_end(), "");
    eventually("the table is replicated", || copy.connect().names() == ["x"]);
    control("set-active-ovsdb-server", &["unix:/nowhere"]).unwrap();
    control("connect-active-ovsdb-server", &[]).unwrap();
    assert_eq!(
        control("sync-status", &[]).unwrap(),
        "state: backup\nconnecting: unix:/nowhere\n"
    );
}

#[test]
fn a_database_with_more_columns_is_replicated_and_one_with_fewer_becomes_active() {
    let dir = directory();
    let one = subdirectory(dir.path(), "a");
    let active = Server::start(&one, &database(&one), &[]);
    active.connect().transact(insert("x"));
    let source = format!("--sync-from={}", remote(&active));
    let more = subdirectory(dir.path(), "more");
    let schema = r#"{"name": "D", "version": "2.0.0", "tables": {"V": {"columns": {"m": {"type": "integer"}}},
        "T": {"isRoot": true, "columns": {"name": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "string"}}}}}"#;
    let larger = Server::start(&more, &with_schema(&more, schema), &[&source]);
    eventually("a larger schema follows", || larger.connect().names() == ["x"]);
    for (name, column, complaint) in [
        ("fewer", "", "Column n not present in the local db schema table T."),
        (
            "other",
            r#", "n": {"type": "string"}"#,
            "Column n mismatch in local db schema table T.",
        ),
    ] {
        let dir = subdirectory(dir.path(), name);
        let schema = r#"{"name": "D", "version": "1.0.0", "tables": {"T": {"isRoot": true, "columns": {"name": {"type": "string"}COLUMN}}}}"#;
        let file = with_schema(&dir, &schema.replace("COLUMN", column));
        let server = Server::start(&dir, &file, &[&source]);
        eventually("it becomes active", || {
            server.control("ovsdb-server/sync-status", &[]).unwrap() == "state: active\n"
        });
        let log = server.log();
        for line in [
            complaint,
            "D cannot be replicated.",
            "|replication|WARN|Nothing to replicate.",
        ] {
            assert!(log.contains(line), "{line}: {log}");
        }
        assert_eq!(server.connect().names(), [""; 0]);
    }
}

#[test]
fn a_server_does_not_follow_itself() {
    let dir = directory();
    let file = database(dir.path());
    let source = format!("--sync-from=unix:{}", dir.path().join("sock").display());
    let server = Server::start(dir.path(), &file, &[&source]);
    eventually("it becomes active", || {
        server.control("ovsdb-server/sync-status", &[]).unwrap() == "state: active\n"
    });
    let log = server.log();
    let line = "|ovsdb_error|ERR|unexpected ovsdb error: Server ID check failed: Self replicating is not allowed";
    assert!(log.contains(line), "{log}");
}

/// Transactions that touch all kinds of changes, with a repeatable choice.
fn churn(client: &mut Client, from: u64, to: u64) {
    for number in from..to {
        let kind = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        let name = format!("row{}", number % 40);
        let op = match kind {
            0..=7 => insert(&format!("row{number}")),
            8..=12 => json!({"op": "update", "table": "T", "where": [["name", "==", name]], "row": {"n": number}}),
            _ => json!({"op": "delete", "table": "T", "where": [["name", "==", name]]}),
        };
        client.transact(op);
    }
}

#[test]
fn either_server_follows_the_other_implementation_and_survives_kills() {
    let Some(program) = other("ovsdb-server") else { return };
    let dir = directory();
    // Ours follows theirs.
    let (one, two) = (subdirectory(dir.path(), "a"), subdirectory(dir.path(), "b"));
    database(&one);
    let theirs = Theirs::start(&program, &one, &[]);
    let source = format!("unix:{}", one.join("sock").display());
    let ours = backup(&two, &source, &[]);
    churn(&mut theirs.connect(), 0, 200);
    theirs.kill();
    let theirs = Theirs::start(&program, &one, &[]);
    churn(&mut theirs.connect(), 200, 300);
    ours.kill();
    churn(&mut theirs.connect(), 300, 400);
    let sync = format!("--sync-from={source}");
    let ours = Server::start(&two, &two.join("d.db"), &[&sync]);
    churn(&mut theirs.connect(), 400, 500);
    let wanted = rows(&mut theirs.connect());
    assert!(wanted.len() > 20);
    eventually("ours has what theirs has", || rows(&mut ours.connect()) == wanted);
    drop((ours, theirs));
    // Theirs follows ours.
    let (one, two) = (subdirectory(dir.path(), "c"), subdirectory(dir.path(), "d"));
    let ours = Server::start(&one, &database(&one), &[]);
    database(&two);
    let sync = format!("--sync-from={}", remote(&ours));
    let theirs = Theirs::start(&program, &two, &[&sync]);
    churn(&mut ours.connect(), 0, 200);
    ours.kill();
    let ours = Server::start(&one, &one.join("d.db"), &[]);
    churn(&mut ours.connect(), 200, 300);
    theirs.kill();
    churn(&mut ours.connect(), 300, 400);
    let theirs = Theirs::start(&program, &two, &[&sync]);
    churn(&mut ours.connect(), 400, 500);
    let wanted = rows(&mut ours.connect());
    assert!(wanted.len() > 20);
    eventually("theirs has what ours has", || rows(&mut theirs.connect()) == wanted);
}

/// An active server that answers as told.
fn play(listener: &UnixListener, schema: &Value, contents: &[u8]) {
    let (stream, _) = listener.accept().unwrap();
    let mut client = Client::new(stream);
    while let Some(request) = client.recv() {
        let result = match request["method"].as_str().unwrap_or_default() {
            "get_server_id" => json!("550e8400-e29b-41d4-a716-446655440000"),
            "list_dbs" => json!(["D"]),
            "get_schema" => schema.clone(),
            _ => {
                let _ = client.stream.write_all(contents);
                // Until the backup has had enough.
                while client.recv().is_some() {}
                return;
            }
        };
        client.send(&json!({"id": request["id"], "result": result, "error": null}).to_string());
    }
}

#[test]
fn a_hostile_active_server_changes_nothing_that_the_schema_forbids() {
    let dir = directory();
    let path = dir.path().join("hostile");
    let listener = UnixListener::bind(&path).unwrap();
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    let schema: Value = serde_json::from_str(common::SCHEMA).unwrap();
    let reply = |result: Value| json!({"id": "monitor", "result": result, "error": null}).to_string();
    let update = |updates: Value| {
        let good = reply(json!({"T": {uuid: {"new": {"name": "good", "n": 1}}}}));
        format!(
            "{good}{}",
            json!({"id": null, "method": "update", "params": ["D", updates]})
        )
    };
    let endless = |open: &str| open.repeat(1 << 20);
    let cases = [
        reply(json!({"T": {uuid: {"new": {"name": 3}}}})),
        reply(json!({"nosuch": {uuid: {"new": {"name": "x"}}}})),
        reply(json!({"T": {"no uuid": {"new": {"name": "x"}}}})),
        reply(json!({"T": {uuid: {"new": null}}})),
        reply(json!([1, 2])),
        update(json!({"T": {uuid: {"new": {"name": "bad", "n": "x"}}}})),
        update(json!({"T": {"650e8400-e29b-41d4-a716-446655440000": {"old": {}}}})),
        update(json!({"T": {"650e8400-e29b-41d4-a716-446655440000": {"new": {"name": "good"}}}})),
        update(json!(null)),
        endless("["),
        endless("{\"a\":"),
        format!("\"{}", endless("aaaa")),
        "}{".to_owned(),
    ];
    for (number, contents) in cases.iter().enumerate() {
        let two = subdirectory(dir.path(), &format!("b{number}"));
        let copy = backup(&two, &format!("unix:{}", path.display()), &[]);
        std::thread::scope(|scope| {
            let player = scope.spawn(|| play(&listener, &schema, contents.as_bytes()));
            let begin = Instant::now();
            while !player.is_finished() && begin.elapsed() < Duration::from_millis(300) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let names = copy.connect().names();
            assert!(names.is_empty() || names == ["good"], "{number}: {names:?}");
            assert!(copy.resident() < 200_000, "{number}: {} KiB", copy.resident());
            copy.control("ovsdb-server/disconnect-active-ovsdb-server", &[])
                .unwrap();
        });
        let reply = copy.connect().transact(insert("mine"));
        assert!(reply["result"][0]["uuid"].is_array(), "{number}: {reply}");
    }
}
