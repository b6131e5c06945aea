//! Relays: they have the contents of their source, forward changes to it, and survive its end.
//! Beside Open vSwitch's server in either role.

mod common;

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use common::{Client, Server, Theirs, database, directory, eventually, insert, other, subdirectory};
use serde_json::{Value, json};

fn relay(dir: &Path, source: &Path) -> Server {
    let argument = format!("relay:D:unix:{}", source.display());
    Server::start(dir, Path::new(&argument), &[])
}

/// The row of `D` in `_Server`; null if the server closes the connection, as it does when the relay
/// gets its contents.
fn row(client: &mut Client) -> Value {
    let columns = json!(["model", "connected", "leader", "index", "schema"]);
    let select = json!({"op": "select", "table": "Database", "where": [["name", "==", "D"]], "columns": columns});
    let reply = client
        .try_call("transact", json!(["_Server", select]))
        .unwrap_or_default();
    reply["result"][0]["rows"][0].clone()
}

fn connected(server: &Server) -> bool {
    row(&mut server.connect())["connected"] == true
}

#[test]
fn a_relay_serves_reads_and_forwards_changes() {
    let dir = directory();
    let (one, two) = (subdirectory(dir.path(), "a"), subdirectory(dir.path(), "r"));
    let server = relay(&two, &one.join("sock"));
    let none = json!(["set", []]);
    let wanted = json!({"model": "relay", "connected": false, "leader": false, "index": none, "schema": none});
    assert_eq!(row(&mut server.connect()), wanted);
    let reply = server.connect().call("get_schema", json!(["D"]));
    assert_eq!(reply["error"]["error"], "database not available");
    assert_eq!(
        server.connect().transact(insert("x"))["error"]["error"],
        "database not available"
    );

    let source = Server::start(&one, &database(&one), &[]);
    source.connect().transact(insert("there"));
    eventually("the relay is connected", || connected(&server));
    let now = row(&mut server.connect());
    assert_eq!((&now["model"], &now["leader"]), (&json!("relay"), &json!(false)));
    assert!(now["schema"].as_str().unwrap().contains("\"name\":\"D\""));

    let mut client = server.connect();
    client.call("monitor_cond", json!(["D", "m", {"T": [{"columns": ["name"]}]}]));
    client.send(&json!({"id": 7, "method": "transact", "params": ["D", insert("here")]}).to_string());
    let update = client.recv().unwrap();
    assert_eq!(
        update["method"], "update2",
        "the update comes before the reply: {update}"
    );
    let reply = client.recv().unwrap();
    assert!(reply["id"] == 7 && reply["result"][0]["uuid"].is_array(), "{reply}");
    assert_eq!(source.connect().names(), ["here", "there"]);
    assert_eq!(server.connect().names(), ["here", "there"]);
    let reply = client.transact(insert("here"));
    assert_eq!(reply["result"][1]["error"], "constraint violation", "{reply}");
    let reply = client.call(
        "convert",
        json!(["D", serde_json::from_str::<Value>(common::SCHEMA).unwrap()]),
    );
    assert_eq!(reply["error"]["error"], "not allowed");
    assert_eq!(server.control("ovsdb-server/compact", &["D"]).unwrap(), "");
    assert_eq!(
        server.control("ovsdb-server/get-db-storage-status", &["D"]).unwrap(),
        "status: ok\n"
    );
}

#[test]
fn a_relay_outlives_its_source() {
    let dir = directory();
    let (one, two) = (subdirectory(dir.path(), "a"), subdirectory(dir.path(), "r"));
    let file = database(&one);
    let source = Server::start(&one, &file, &[]);
    let server = relay(&two, &source.socket());
    eventually("the relay is connected", || connected(&server));
    let mut client = server.connect();
    assert!(client.transact(insert("before"))["result"][0]["uuid"].is_array());
    // The source does not answer this one before it dies.
    let wait = json!({"op": "wait", "table": "T", "where": [], "columns": ["name"], "until": "==", "rows": []});
    client.send(&json!({"id": "lost", "method": "transact", "params": ["D", wait, insert("lost")]}).to_string());
    std::thread::sleep(Duration::from_millis(100));
    source.kill();
    let reply = client.recv().unwrap();
    assert_eq!((&reply["id"], &reply["error"]), (&json!("lost"), &json!("canceled")));
    eventually("the relay is disconnected", || !connected(&server));
    assert_eq!(server.connect().names(), ["before"]);
    // Transactions wait for the source, and can be canceled meanwhile.
    client.send(&json!({"id": "gone", "method": "transact", "params": ["D", insert("gone")]}).to_string());
    client.send(&json!({"id": null, "method": "cancel", "params": ["gone"]}).to_string());
    let reply = client.recv().unwrap();
    assert_eq!((&reply["id"], &reply["error"]), (&json!("gone"), &json!("canceled")));
    client.send(&json!({"id": "later", "method": "transact", "params": ["D", insert("later")]}).to_string());
    let source = Server::start(&one, &file, &[]);
    let reply = client.recv().unwrap();
    assert!(
        reply["id"] == "later" && reply["result"][0]["uuid"].is_array(),
        "{reply}"
    );
    assert_eq!(source.connect().names(), ["before", "later"]);
    eventually("the relay has the row", || {
        server.connect().names() == ["before", "later"]
    });
}

#[test]
fn relays_are_added_and_removed_by_commands() {
    let dir = directory();
    let (one, two) = (subdirectory(dir.path(), "a"), subdirectory(dir.path(), "r"));
    let source = Server::start(&one, &database(&one), &[]);
    source.connect().transact(insert("x"));
    let server = Server::start(&two, Path::new("--no-dbs"), &[]);
    let control = |command: &str, argument: &str| server.control(&format!("ovsdb-server/{command}"), &[argument]);
    for (argument, error) in [
        ("relay:D", "ovsdb error: relay:D: invalid syntax"),
        ("relay:", "ovsdb error: relay:: invalid syntax"),
        ("relay::unix:x", "ovsdb error: relay::unix:x: invalid syntax"),
    ] {
        assert_eq!(control("add-db", argument).unwrap_err().trim_end(), error);
    }
    // The first of the remotes does not work.
    let argument = format!("relay:D:unix:/nowhere,unix:{}", source.socket().display());
    control("add-db", &argument).unwrap();
    let error = control("add-db", &argument).unwrap_err();
    assert_eq!(error.trim_end(), "ovsdb error: D: duplicate database name");
    eventually("the relay is connected", || connected(&server));
    assert_eq!(server.connect().names(), ["x"]);
    control("remove-db", "D").unwrap();
    assert_eq!(
        server.connect().call("list_dbs", json!([]))["result"],
        json!(["_Server"])
    );
}

#[test]
fn relays_of_both_implementations_follow_each_other() {
    let Some(program) = other("ovsdb-server") else { return };
    let dir = directory();
    let dirs = ["a", "b", "c", "d"].map(|name| subdirectory(dir.path(), name));
    let relay_of = |at: usize| format!("relay:D:unix:{}", dirs[at].join("sock").display());
    // Theirs, ours, theirs, ours: each a relay of the one before.
    database(&dirs[0]);
    let first = Theirs::start(&program, &dirs[0], &[]);
    let second = Server::start(&dirs[1], Path::new(&relay_of(0)), &[]);
    eventually("the second is connected", || connected(&second));
    let third = Theirs::serve(&program, &dirs[2], &relay_of(1), &[]);
    eventually("the third is connected", || {
        row(&mut third.connect())["connected"] == true
    });
    let last = Server::start(&dirs[3], Path::new(&relay_of(2)), &[]);
    eventually("the last is connected", || connected(&last));
    for number in 0..60 {
        let name = format!("row{number}");
        let reply = match number % 3 {
            0 => last.connect().transact(insert(&name)),
            1 => third.connect().transact(insert(&name)),
            _ => second
                .connect()
                .transact(json!({"op": "delete", "table": "T", "where": [["name", "==", "row0"]]})),
        };
        assert!(
            reply["error"].is_null() && reply["result"][0]["error"].is_null(),
            "{reply}"
        );
    }
    let wanted = first.connect().names();
    assert_eq!(wanted.len(), 39);
    for names in [
        &mut || second.connect().names(),
        &mut || third.connect().names(),
        &mut || last.connect().names(),
    ] as [&mut dyn FnMut() -> Vec<String>; 3]
    {
        eventually("it has the rows", || names() == wanted);
    }
}

/// A source that numbers its transactions, as a cluster does. It records the transaction that each
/// connection continues from.
fn numbered_source(listener: &UnixListener, replies: &[(Value, Vec<Value>)]) -> Vec<Value> {
    let mut asked = Vec::new();
    for (contents, updates) in replies {
        let (stream, _) = listener.accept().unwrap();
        let mut client = Client::new(stream);
        while let Some(request) = client.recv() {
            let schema: Value = serde_json::from_str(common::SCHEMA).unwrap();
            let method = request["method"].as_str().unwrap_or_default();
            let result = if method == "get_schema" {
                schema
            } else {
                contents.clone()
            };
            client.send(&json!({"id": request["id"], "result": result, "error": null}).to_string());
            if method == "monitor_cond_since" {
                asked.push(request["params"][3].clone());
                for update in updates {
                    client.send(&json!({"id": null, "method": "update3", "params": update}).to_string());
                }
                std::thread::sleep(Duration::from_millis(300));
                break;
            }
        }
    }
    asked
}

#[test]
fn a_relay_and_its_clients_continue_after_the_last_transaction() {
    let dir = directory();
    let path = dir.path().join("source");
    let listener = UnixListener::bind(&path).unwrap();
    let uuid = |n: u8| format!("550e8400-e29b-41d4-a716-4466554400{n:02}");
    let insert = |n: u8| json!({"T": {uuid(n): {"insert": {"name": format!("r{n}")}}}});
    let initial = json!({"T": {uuid(1): {"initial": {"name": "r1"}}}});
    let replies = [
        (
            json!([false, uuid(51), initial]),
            vec![json!(["D", uuid(52), insert(2)])],
        ),
        (
            json!([true, uuid(53), insert(3)]),
            vec![json!(["D", uuid(54), insert(4)])],
        ),
    ];
    let asked = std::thread::scope(|scope| {
        let source = scope.spawn(|| numbered_source(&listener, &replies));
        let server = relay(&subdirectory(dir.path(), "r"), &path);
        eventually("the relay has two rows", || {
            connected(&server) && server.connect().names() == ["r1", "r2"]
        });
        eventually("the relay has four rows", || {
            server.connect().names() == ["r1", "r2", "r3", "r4"]
        });
        let mut client = server.connect();
        let reply = client.call(
            "monitor_cond_since",
            json!(["D", "m", {"T": [{"columns": ["name"]}]}, uuid(53)]),
        );
        assert_eq!(reply["result"], json!([true, uuid(54), insert(4)]));
        let reply = client.call(
            "monitor_cond_since",
            json!(["D", "n", {"T": [{"columns": ["name"]}]}, uuid(9)]),
        );
        assert_eq!(
            (&reply["result"][0], &reply["result"][1]),
            (&json!(false), &json!(uuid(54)))
        );
        source.join().unwrap()
    });
    assert_eq!(
        asked,
        [
            json!(uuid(0).replace(
                "550e8400-e29b-41d4-a716-446655440000",
                "00000000-0000-0000-0000-000000000000"
            )),
            json!(uuid(52))
        ]
    );
}

#[test]
fn a_hostile_source_does_not_break_a_relay() {
    let dir = directory();
    let path = dir.path().join("source");
    let listener = UnixListener::bind(&path).unwrap();
    let uuid = "550e8400-e29b-41d4-a716-446655440000";
    let schema: Value = serde_json::from_str(common::SCHEMA).unwrap();
    let contents =
        |updates: Value| json!({"id": "monitor", "result": [false, uuid, updates], "error": null}).to_string();
    let update = |updates: Value| {
        let good = contents(json!({"T": {uuid: {"initial": {"name": "good"}}}}));
        format!(
            "{good}{}",
            json!({"id": null, "method": "update3", "params": ["D", uuid, updates]})
        )
    };
    let cases = [
        (schema.clone(), contents(json!({"T": {uuid: {"initial": {"name": 3}}}}))),
        (schema.clone(), contents(json!({"nosuch": {}}))),
        (schema.clone(), contents(json!(7))),
        (
            schema.clone(),
            "{\"id\":\"monitor\",\"result\":[],\"error\":null}".to_owned(),
        ),
        (
            schema.clone(),
            update(json!({"T": {uuid: {"modify": {"name": ["set", ["a", "b"]]}}}})),
        ),
        (
            schema.clone(),
            update(json!({"T": {"650e8400-e29b-41d4-a716-446655440000": {"modify": {}}}})),
        ),
        (
            schema.clone(),
            update(json!({"T": {"650e8400-e29b-41d4-a716-446655440000": {"insert": {"name": "good"}}}})),
        ),
        (schema.clone(), "[".repeat(1 << 22)),
        (
            schema.clone(),
            "{\"id\":99,\"result\":1,\"error\":null}{\"id\":\"monitor\",\"error\":1,\"result\":null}".to_owned(),
        ),
        (json!({"name": "E", "tables": {}}), String::new()),
        (json!("no schema"), String::new()),
    ];
    for (number, (schema, bytes)) in cases.iter().enumerate() {
        let server = relay(&subdirectory(dir.path(), &format!("r{number}")), &path);
        let (stream, _) = listener.accept().unwrap();
        let mut client = Client::new(stream);
        client
            .stream
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let request = client.recv().unwrap();
        client.send(&json!({"id": request["id"], "result": schema, "error": null}).to_string());
        let _ = client.stream.write_all(bytes.as_bytes());
        std::thread::sleep(Duration::from_millis(100));
        eventually("the relay answers", || row(&mut server.connect())["model"] == "relay");
        assert!(server.resident() < 200_000, "{number}: {} KiB", server.resident());
    }
}

#[test]
fn a_relay_probes_a_silent_source_at_the_interval_that_a_command_sets() {
    let dir = directory();
    let source = dir.path().join("source");
    let relay = format!("relay:R:unix:{}", source.display());
    let server = Server::start(dir.path(), &database(dir.path()), &[&relay]);
    let set = |interval: &str| server.control("ovsdb-server/set-relay-source-probe-interval", &[interval]);
    assert_eq!(
        set("x").unwrap().trim_end(),
        "Invalid probe interval, integer value expected"
    );
    assert_eq!(set("10"), Ok(String::new()));
    let listener = UnixListener::bind(&source).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut text = String::new();
    while !text.contains("\"echo\"") {
        let mut bytes = [0; 4096];
        let n = std::io::Read::read(&mut stream, &mut bytes).unwrap();
        assert!(n > 0, "the relay ended the connection without a probe: {text}");
        text += std::str::from_utf8(&bytes[..n]).unwrap();
    }
}
