//! What clients may make the server hold, and what it gives back.

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
