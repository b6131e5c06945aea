//! Transactions: written, taken back, waiting.

use super::*;

#[test]
fn nothing_is_sent_before_it_is_written_and_what_cannot_be_written_did_not_happen() {
    let mut world = World::new();
    let (client, watcher) = (world.connect(), world.connect());
    world.call(
        watcher,
        "monitor",
        json!(["D", null, {"T": {"columns": ["name", "n"]}}]),
    );
    world.transact(client, insert("kept"));
    world.read(watcher);

    for (id, op) in [
        (1, insert("a")),
        (2, set_n("kept", 9)),
        (3, json!({"op": "select", "table": "T", "where": []})),
    ] {
        world.send(client, json!({"id": id, "method": "transact", "params": ["D", op]}));
    }
    assert_eq!(world.core.outbox(client).unwrap().sendable(), b"");
    world.disk_full = true;
    let read = world.read(client);
    assert_eq!(kinds(&read), ["1", "2", "3"]);
    assert!(
        read.iter().all(|reply| reply["error"]["error"] == "I/O error"),
        "{read:?}"
    );
    assert!(world.read(watcher).is_empty());
    assert_eq!(world.names(client), ["kept"]);

    world.disk_full = false;
    world.transact(client, insert("a"));
    let heard = world.read(watcher);
    assert_eq!(kinds(&heard), ["update"]);
    let again = world.connect();
    assert_eq!(world.names(again), ["a", "kept"]);
    let file = String::from_utf8(world.file.clone()).unwrap();
    assert_eq!(file.matches("OVSDB JSON").count(), 2, "{file}");
}

#[test]
fn a_batch_is_written_before_anything_else_is_looked_at() {
    let mut world = World::new();
    let client = world.connect();
    world.send(
        client,
        json!({"id": 1, "method": "transact", "params": ["D", insert("a")]}),
    );
    let message = |method: &'static str, db: &str| Incoming::Request {
        method,
        params: vec![db.into()],
        id: 2.into(),
    };
    assert!(!world.core.must_flush(&message("transact", "D")));
    assert!(world.core.must_flush(&message("transact", "_Server")));
    assert!(world.core.must_flush(&message("monitor", "D")));
    world.flush();
    assert!(!world.core.must_flush(&message("monitor", "D")));
}

#[test]
fn a_durable_transaction_is_answered_after_the_disk_has_it() {
    let mut world = World::new();
    let client = world.connect();
    let params = json!(["D", insert("a"), {"op": "commit", "durable": true}]);
    world.send(client, json!({"id": 1, "method": "transact", "params": params}));
    let held = world.core.flushed(Ok(()));
    assert_eq!(held.len(), 1);
    assert_eq!(world.core.outbox(client).unwrap().backlog(), 0);
    world.core.synced(held, &Err(io::ErrorKind::Other.into()));
    assert_eq!(world.read(client)[0]["error"]["error"], "I/O error");
}

#[test]
fn a_wait_ends_when_another_client_meets_it() {
    let mut world = World::new();
    let (waiting, other) = (world.connect(), world.connect());
    assert!(
        world
            .call(waiting, "transact", json!(["D", wait_for("a"), insert("b")]))
            .is_empty()
    );
    world.transact(other, json!({"op": "insert", "table": "U", "row": {}}));
    assert!(world.read(waiting).is_empty());
    world.transact(other, insert("a"));
    let read = world.read(waiting);
    assert_eq!(read[0]["error"], Value::Null);
    assert_eq!(world.names(other), ["a", "b"]);
    assert_eq!(world.core.usage().triggers, 0);
}

#[test]
fn waits_that_meet_one_another_all_end() {
    let mut world = World::new();
    let client = world.connect();
    for (id, after, name) in [(1, "b", "c"), (2, "a", "b"), (3, "c", "d")] {
        world.send(
            client,
            json!({"id": id, "method": "transact", "params": ["D", wait_for(after), insert(name)]}),
        );
    }
    world.send(
        client,
        json!({"id": 4, "method": "transact", "params": ["D", insert("a")]}),
    );
    assert_eq!(kinds(&world.read(client)), ["4", "2", "1", "3"]);
    assert_eq!(world.names(client), ["a", "b", "c", "d"]);
}

#[test]
fn a_wait_ends_by_time_or_by_cancel() {
    let mut world = World::new();
    let client = world.connect();
    let mut timed = wait_for("a");
    timed["timeout"] = 200.into();
    world.send(client, json!({"id": "t", "method": "transact", "params": ["D", timed]}));
    world.send(
        client,
        json!({"id": "c", "method": "transact", "params": ["D", wait_for("a")]}),
    );
    assert_eq!(world.core.next_deadline(), Some(Nanos::from_millis(200)));
    world.send(client, json!({"id": null, "method": "cancel", "params": ["c"]}));
    assert_eq!(
        world.read(client),
        [json!({"id": "c", "result": null, "error": "canceled"})]
    );
    world.now = 200;
    let now = world.now();
    world.core.tick(now);
    let read = world.read(client);
    assert_eq!(read[0]["result"][0]["error"], "timed out");
    assert_eq!(world.core.next_deadline(), None);
}

#[test]
fn the_id_of_a_waiting_transaction_may_not_be_used_again() {
    let mut world = World::new();
    let client = world.connect();
    assert!(world.call(client, "transact", json!(["D", wait_for("a")])).is_empty());
    let reply = world.ask(client, "transact", json!(["D"]));
    assert_eq!(reply["error"]["details"], "transact: duplicate request ID");
}

#[test]
fn a_conversion_keeps_the_data_and_cancels_what_was_watched() {
    let mut world = World::new();
    let client = world.connect();
    world.ask(client, "set_db_change_aware", json!([true]));
    world.transact(client, insert("a"));
    world.call(client, "monitor", json!(["D", "m", {"T": {}}]));
    let schema = SCHEMA.replace("1.0.0", "2.0.0").replace(
        r#""n": {"type": "integer"}}, "indexes""#,
        r#""m": {"type": "integer"}}, "indexes""#,
    );
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let request = json!({"id": 1, "method": "convert", "params": ["D", schema]});
    let Some(Effect::Convert(conversion)) = world.send(client, request.clone()) else {
        panic!("no conversion")
    };
    let now = world.now();
    world
        .core
        .converted(*conversion, Err(io::ErrorKind::StorageFull.into()), now);
    assert_eq!(world.read(client)[0]["error"]["error"], "I/O error");
    let Some(Effect::Convert(conversion)) = world.send(client, request) else {
        panic!("no conversion")
    };
    world.core.converted(*conversion, Ok(()), now);
    assert_eq!(kinds(&world.read(client)), ["monitor_canceled", "1"]);
    assert_eq!(world.names(client), ["a"]);
    assert_eq!(
        world.ask(client, "get_schema", json!(["D"]))["result"]["version"],
        "2.0.0"
    );
    assert!(
        world
            .send(client, json!({"id": 1, "method": "convert", "params": ["_Server", {}]}))
            .is_none()
    );
}

#[test]
fn only_the_server_writes_to_its_own_database() {
    let mut world = World::new();
    let client = world.connect();
    let op = json!({"op": "delete", "table": "Database", "where": []});
    let reply = world.ask(client, "transact", json!(["_Server", op]));
    assert_eq!(
        reply["result"][0]["details"],
        "delete operation not allowed on table in reserved database _Server"
    );
    let op =
        json!({"op": "select", "table": "Database", "where": [["name", "==", "D"]], "columns": ["model", "connected"]});
    let reply = world.ask(client, "transact", json!(["_Server", op]));
    assert_eq!(
        reply["result"][0]["rows"],
        json!([{"model": "standalone", "connected": true}])
    );
}

#[test]
fn a_read_only_client_may_look_but_not_write() {
    let mut world = World::new();
    let options = SessionOptions {
        name: "test".into(),
        remote: "r".into(),
        local: true,
        read_only: true,
        role: String::new(),
        client: None,
        probe: None,
    };
    let now = world.now();
    let client = world.core.connect(options, now);
    assert_eq!(world.transact(client, insert("a"))["result"][0]["error"], "not allowed");
    assert!(world.names(client).is_empty());
}
