//! Limits on the memory that clients can make the server use, and the memory that it returns.

mod common;

use std::time::{Duration, Instant};

use common::{Server, database, directory};
use serde_json::{Value, json};

#[test]
fn memory_of_rows_that_were_deleted_is_given_back() {
    const ROWS: usize = 30_000;
    let dir = directory();
    let server = Server::start(dir.path(), &database(dir.path()), &[]);
    let mut client = server.connect();
    client.call("monitor", json!(["D", "m", {"T": {"columns": ["n"]}}]));
    let before = server.resident();
    for first in (0..ROWS).step_by(1000) {
        let insert =
            |n| json!({"op": "insert", "table": "T", "row": {"name": format!("a name of some length {n}"), "n": n}});
        let ops: Vec<Value> = (first..first + 1000).map(insert).collect();
        let params: Vec<Value> = std::iter::once(json!("D")).chain(ops).collect();
        assert!(client.call("transact", json!(params))["error"].is_null());
    }
    let full = server.resident();
    assert!(client.transact(json!({"op": "delete", "table": "T", "where": []}))["error"].is_null());
    let begin = Instant::now();
    loop {
        let now = server.resident();
        if now < before + (full - before) / 4 {
            println!("resident KiB: {before} at first, {full} with {ROWS} rows, {now} without them");
            break;
        }
        let waited = begin.elapsed();
        assert!(
            waited < Duration::from_secs(30),
            "{before} KiB, {full} with the rows, {now} without"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let given = server.control("coverage/read-counter", &["memory_given_back"]).unwrap();
    assert_ne!(given.trim(), "0");
}

#[test]
fn unfinished_messages_are_bounded_together_and_refused_without_ending_connections() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    const BUDGET: usize = 16 << 20;
    let dir = directory();
    let server = ovsdb_server::Server::open(ovsdb_server::Options {
        databases: vec![database(dir.path())],
        remotes: vec![format!("punix:{}", dir.path().join("sock").display())],
        memory_budget: BUDGET,
        ..Default::default()
    })
    .unwrap();
    let control = mgmt::unixctl::Server::new("test");
    server.register_unixctl(&control);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ask = async |stream: &mut tokio::net::UnixStream, rest: &str| -> Value {
        stream.write_all(rest.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        loop {
            assert_ne!(
                stream.read_buf(&mut bytes).await.unwrap(),
                0,
                "the connection has ended"
            );
            if let Ok(reply) = serde_json::from_slice(&bytes) {
                return reply;
            }
        }
    };
    tokio::task::LocalSet::new().block_on(&runtime, async {
        server.run_local().await.expect("it listens");
        let part = "x".repeat(1 << 20);
        let mut peers = Vec::new();
        for n in 0..20 {
            let mut stream = tokio::net::UnixStream::connect(dir.path().join("sock")).await.unwrap();
            stream
                .write_all(format!(r#"{{"id":{n},"method":"echo","params":[["#).as_bytes())
                .await
                .unwrap();
            for piece in 0..4 {
                stream
                    .write_all(format!(r#""{piece}{part}","#).as_bytes())
                    .await
                    .unwrap();
            }
            // The server has read the bytes so far: the next message to the client is a reply.
            tokio::task::yield_now().await;
            let usage = control.run("memory/show", &[]).await.unwrap();
            let held = usage.split(' ').find_map(|word| word.strip_prefix("session-bytes:"));
            let held: usize = held.unwrap().parse().unwrap();
            assert!(held <= BUDGET + 21 * (256 << 10), "{usage}");
            peers.push(stream);
        }
        let mut refused = 0;
        for (n, stream) in peers.iter_mut().enumerate() {
            let reply = ask(stream, "0]]}").await;
            assert_eq!(reply["id"], n);
            refused += usize::from(reply["error"]["error"] == "resources exhausted");
            let again = ask(stream, r#"{"id":"again","method":"echo","params":[1]}"#).await;
            assert_eq!(again["result"], json!([1]));
        }
        assert!((10..20).contains(&refused), "{refused} of 20 were refused");
        let counted = control
            .run("coverage/read-counter", &["ovsdb_input_refused".to_owned()])
            .await;
        assert_eq!(counted.unwrap(), refused.to_string());
    });
    server.shut_down();
}
