//! Hostile or broken clients. The other clients must not notice them.

mod common;

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use common::{Client, Server, database, directory, insert};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

#[test]
fn what_is_not_the_protocol_closes_the_connection_and_disturbs_nobody() {
    let dir = directory();
    let server = Server::start(dir.path(), &database(dir.path()), &[]);
    let mut good = server.connect();
    let million = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let deep = format!(
        r#"{{"id":1,"method":"echo","params":{}{}}}"#,
        "[".repeat(500),
        "]".repeat(500)
    );
    for bad in [
        "garbage",
        "GET / HTTP/1.1\r\n\r\n",
        "[1]",
        r#"{"id":1,"method":"echo","params":5}"#,
        r#"{"id":1,"method":"echo"}"#,
        r#"{"id":1,"what":1}"#,
        r#"{"id":1,"result":{},"error":null}"#,
        "{\"id\":1,\"method\":\"echo\",\"params\":[\"\u{1}\"]}",
        // NUL in a string, which Open vSwitch's clients could not read back.
        r#"{"id":1,"method":"transact","params":["D",{"op":"insert","table":"T","row":{"name":"a\u0000b"}}]}"#,
        r#"{"id":1,"method":"echo","params":["\u0000"]}"#,
        r#"{"id":1,"method":"echo","params":[{"\u0000":1}]}"#,
        r#"{"id":"\u0000","method":"echo","params":[]}"#,
        r#"{"id":1,"method":"ec\u0000ho","params":[]}"#,
        r#"{"id":null,"method":"cancel","params":["\u0000"]}"#,
        // A surrogate without its other half.
        r#"{"id":1,"method":"echo","params":["\ud800x"]}"#,
        r#"{"id":1,"method":"echo","params":["\udc00"]}"#,
        &million,
        &format!(r#"{{"id":1,"method":"echo","params":{million}}}"#),
        &deep,
        "\u{0}\u{0}\u{0}\u{0}",
    ] {
        let mut client = server.connect();
        match client.stream.write_all(bad.as_bytes()) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => continue,
            Err(error) => panic!("{error}"),
        }
        let start: String = bad.chars().take(60).collect();
        assert_eq!(client.recv(), None, "{start}");
        assert_eq!(good.call("echo", json!(["x"]))["result"], json!(["x"]));
    }
    assert!(server.log().contains("|jsonrpc|WARN|"), "{}", server.log());
    assert!(good.names().is_empty(), "nothing of it is in the database");
}

#[test]
fn requests_before_the_garbage_are_answered() {
    let dir = directory();
    let server = Server::start(dir.path(), &database(dir.path()), &[]);
    let mut client = server.connect();
    let request = json!({"id": 1, "method": "transact", "params": ["D", insert("a")]});
    client.send(&format!("{request}zz"));
    assert_eq!(client.recv().unwrap()["id"], 1);
    assert_eq!(client.recv(), None);
    assert_eq!(server.connect().names(), ["a"]);
}

#[test]
fn a_client_that_never_reads_costs_little_and_gets_the_sum_in_the_end() {
    let dir = directory();
    let server = Server::start(dir.path(), &database(dir.path()), &[]);
    let mut silent = server.connect();
    silent.send(
        &json!({"id": 1, "method": "monitor_cond", "params": ["D", "m", {"T": [{"columns": ["name", "n"]}]}]})
            .to_string(),
    );
    // It also asks for much and takes nothing.
    silent.stream.set_nonblocking(true).unwrap();
    let ask = json!({"id": 2, "method": "get_schema", "params": ["_Server"]})
        .to_string()
        .repeat(1000);
    for _ in 0..50 {
        let _ = silent.stream.write(ask.as_bytes());
    }
    let mut busy = server.connect();
    let long = "y".repeat(10_000);
    busy.transact(insert("a"));
    let before = server.resident();
    for n in 0..3000 {
        let name = format!("{long}{n}");
        let row = json!({"op": "update", "table": "T", "where": [["name", "!=", "b"]], "row": {"name": name, "n": n}});
        assert!(busy.transact(row)["error"].is_null());
    }
    let after = server.resident();
    assert!(after < before + 20_000, "30 MB of updates cost {} KiB", after - before);
    silent.stream.set_nonblocking(false).unwrap();
    let last = loop {
        let message = silent.recv().unwrap();
        let rows = message["params"][1]["T"].as_object();
        let n = rows
            .and_then(|rows| rows.values().next())
            .and_then(|row| row["modify"]["n"].as_u64());
        if n == Some(2999) {
            break message;
        }
    };
    assert_eq!(last["method"], "update2");
}

#[test]
fn thousands_of_monitors_are_served() {
    let dir = directory();
    let server = Server::start(dir.path(), &database(dir.path()), &[]);
    let mut clients: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        for monitor in 0..1000 {
            let condition = json!([["n", "==", monitor % 500 + at]]);
            let request = json!({"T": [{"columns": ["name"], "where": condition}]});
            let reply = client.call("monitor_cond", json!(["D", monitor, request]));
            assert!(reply["error"].is_null(), "{reply}");
        }
    }
    assert!(server.control("memory/show", &[]).unwrap().contains("monitors:4000"));
    let mut writer = server.connect();
    writer.transact(json!({"op": "insert", "table": "T", "row": {"name": "a", "n": 7}}));
    for client in &mut clients {
        let heard: Vec<Value> = (0..2).map(|_| client.recv().unwrap()).collect();
        assert!(heard.iter().all(|update| update["method"] == "update2"));
    }
    drop(clients);
    while !server.control("memory/show", &[]).unwrap().contains("monitors:0") {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_message_without_end_is_not_kept() {
    let dir = directory();
    let server = Server::start(dir.path(), &database(dir.path()), &[]);
    let mut client = server.connect();
    let chunk = "x".repeat(1 << 20);
    client.send(r#"{"id":1,"method":"echo","params":[""#);
    let refused = (0..100).any(|_| client.stream.write_all(chunk.as_bytes()).is_err());
    assert!(refused, "100 MiB were taken");
    let mut other = server.connect();
    assert_eq!(other.call("echo", json!([]))["result"], json!([]));
}

/// Takes as many descriptors as the system gives. Call it when the server runs: it raises its own
/// limit.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn at_the_limit_the_client_that_is_idle_longest_gives_way() {
    let dir = directory();
    let server = Server::start(dir.path(), &database(dir.path()), &[]);
    raise_descriptor_limit();
    let mut busy = server.connect();
    assert!(busy.call("monitor", json!(["D", "m", {"T": {}}]))["error"].is_null());
    let mut owner = server.connect();
    assert_eq!(owner.call("lock", json!(["l"]))["result"], json!({"locked": true}));
    // Places for local clients are among the rest.
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..ovsdb_server::DEFAULT_MAX_SESSIONS + 100 {
        let mut client = server.connect();
        assert_eq!(client.call("echo", json!(["x"]))["result"], json!(["x"]));
        clients.push(client);
    }
    // The first to come were idle longest.
    let gone = 100 + 2 - 16;
    assert!(clients[..gone].iter_mut().all(|client| client.recv().is_none()));
    assert!(clients[gone..].iter_mut().all(|client| !client.is_closed()));
    for client in [&mut busy, &mut owner] {
        assert_eq!(client.call("echo", json!(["x"]))["result"], json!(["x"]));
    }
    let count = server
        .control("coverage/read-counter", &["ovsdb_session_gave_way"])
        .unwrap();
    assert_eq!(count.trim(), gone.to_string());
}

#[test]
fn clients_of_other_machines_that_fill_the_server_lock_out_no_local_one() {
    let dir = directory();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let remote = format!("--remote=ptcp:{port}:127.0.0.1");
    let server = Server::start(dir.path(), &database(dir.path()), &[&remote]);
    raise_descriptor_limit();
    let remote_client = || Client::over_tcp(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let mut remote = Vec::new();
    for _ in 0..ovsdb_server::DEFAULT_MAX_SESSIONS {
        let mut client = remote_client();
        assert!(client.call("monitor", json!(["D", "m", {"T": {}}]))["error"].is_null());
        remote.push(client);
    }
    assert_eq!(remote_client().recv(), None, "none of them is idle");
    let mut local = server.connect();
    assert_eq!(local.call("echo", json!(["x"]))["result"], json!(["x"]));
    assert!(remote.iter_mut().all(|client| !client.is_closed()));
    // One that is idle gives way to a local client before any other.
    assert!(remote[7].call("monitor_cancel", json!(["m"]))["error"].is_null());
    let mut second = server.connect();
    assert_eq!(second.call("echo", json!(["x"]))["result"], json!(["x"]));
    assert_eq!(remote[7].recv(), None);
}
