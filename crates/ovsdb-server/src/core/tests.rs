//! The core against clients that are a few lines each, on virtual time and without a file.

use std::io;
use std::time::Duration;

use mgmt::jsonrpc::Message;
use ovsdb::{Database, DatabaseSchema};
use serde_json::{Value, json};
use wire::Nanos;

use super::{BACKLOG, Core, Effect, Now, SessionId, SessionOptions};

const SCHEMA: &str = r#"{"name": "D", "version": "1.0.0", "tables": {
    "T": {"isRoot": true, "columns": {"name": {"type": "string"}, "n": {"type": "integer"}}, "indexes": [["name"]]},
    "U": {"isRoot": true, "columns": {"n": {"type": "integer"}}}}}"#;

/// A core with the database `D`, driven as the server drives it.
struct World {
    core: Core,
    now: u64,
    /// Whether the file can be written.
    disk_full: bool,
    /// What was written.
    file: Vec<u8>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            core: Core::new(7),
            now: 0,
            disk_full: false,
            file: Vec::new(),
        };
        let schema = DatabaseSchema::from_text(SCHEMA).unwrap();
        let now = world.now();
        assert!(world.core.add_database(Database::new(schema, 1), now));
        world.flush();
        world
    }

    fn now(&self) -> Now {
        Now {
            monotonic: Nanos::from_millis(self.now),
            date_ms: 1_700_000_000_000,
        }
    }

    fn connect(&mut self) -> SessionId {
        self.connect_probed(None)
    }

    fn connect_probed(&mut self, probe: Option<Duration>) -> SessionId {
        let options = SessionOptions {
            name: "test".into(),
            remote: "r".into(),
            read_only: false,
            probe,
        };
        let now = self.now();
        self.core.connect(options, now)
    }

    fn flush(&mut self) {
        let records = self.core.batch().records().to_vec();
        let held = if self.disk_full && !records.is_empty() {
            self.core.flushed(Err(&io::ErrorKind::StorageFull.into()))
        } else {
            self.file.extend(records);
            self.core.flushed(Ok(()))
        };
        if !held.is_empty() {
            self.core.synced(held, &Ok(()));
            self.core.flushed(Ok(()));
        }
    }

    /// Sends without a flush.
    fn send(&mut self, session: SessionId, message: Value) -> Option<Effect> {
        let message = Message::from_value(message).unwrap();
        if self.core.must_flush(&message) {
            self.flush();
        }
        let now = self.now();
        self.core.handle(session, message, now)
    }

    /// All that the client reads.
    fn read(&mut self, session: SessionId) -> Vec<Value> {
        self.flush();
        let Some(outbox) = self.core.outbox(session) else {
            return Vec::new();
        };
        let bytes = outbox.sendable().to_vec();
        outbox.sent(bytes.len());
        self.core.drained(session);
        serde_json::Deserializer::from_slice(&bytes)
            .into_iter()
            .map(Result::unwrap)
            .collect()
    }

    fn call(&mut self, session: SessionId, method: &str, params: Value) -> Vec<Value> {
        self.send(session, json!({"id": 1, "method": method, "params": params}));
        self.read(session)
    }

    /// The result of a request that nothing but its reply follows.
    fn ask(&mut self, session: SessionId, method: &str, params: Value) -> Value {
        let mut read = self.call(session, method, params);
        assert_eq!(read.len(), 1, "{read:?}");
        read.remove(0)
    }

    fn transact(&mut self, session: SessionId, op: Value) -> Value {
        self.ask(session, "transact", json!(["D", op]))
    }

    /// The names in `T`, sorted.
    fn names(&mut self, session: SessionId) -> Vec<String> {
        let reply = self.transact(
            session,
            json!({"op": "select", "table": "T", "where": [], "columns": ["name"]}),
        );
        let rows = reply["result"][0]["rows"].as_array().unwrap().iter();
        let mut names: Vec<String> = rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }
}

fn insert(name: &str) -> Value {
    json!({"op": "insert", "table": "T", "row": {"name": name}})
}

fn set_n(name: &str, n: usize) -> Value {
    json!({"op": "update", "table": "T", "where": [["name", "==", name]], "row": {"n": n}})
}

fn wait_for(name: &str) -> Value {
    json!({"op": "wait", "table": "T", "where": [["name", "==", name]], "columns": ["name"], "until": "==", "rows": [{"name": name}]})
}

/// The methods of notifications and the ids of replies.
fn kinds(messages: &[Value]) -> Vec<String> {
    let kind = |message: &Value| {
        message["method"]
            .as_str()
            .map_or_else(|| message["id"].to_string(), str::to_owned)
    };
    messages.iter().map(kind).collect()
}

#[test]
fn a_client_hears_of_its_own_change_before_the_reply() {
    let mut world = World::new();
    let client = world.connect();
    world.call(client, "monitor", json!(["D", "m", {"T": {}}]));
    world.call(client, "monitor_cond", json!(["D", ["m", 2], {"T": [{}]}]));
    let read = world.call(client, "transact", json!(["D", insert("a")]));
    assert_eq!(kinds(&read), ["update", "update2", "1"]);
    assert_eq!(read[1]["params"][0], json!(["m", 2]));
}

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
    let message = |method: &str, db: &str| Message::request(method, vec![db.into()], 2);
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
fn a_client_that_does_not_read_is_not_listened_to_and_then_told_of_the_sum() {
    let mut world = World::new();
    let (slow, busy) = (world.connect(), world.connect());
    world.call(slow, "monitor_cond", json!(["D", "m", {"T": [{}]}]));
    world.call(
        slow,
        "monitor_cond_since",
        json!(["D", "s", {"T": [{}]}, "00000000-0000-0000-0000-000000000000"]),
    );
    world.transact(busy, insert("a"));
    let long = "x".repeat(BACKLOG / 8);
    let mut round = 0;
    while world.core.listens(slow) {
        let renamed = json!({"op": "insert", "table": "T", "row": {"name": format!("{long}{round}")}});
        world.transact(busy, renamed);
        round += 1;
        assert!(round < 20);
    }
    let backlog = world.core.outbox(slow).unwrap().backlog();
    for n in 0..1000 {
        world.transact(busy, set_n("a", n + 1));
        world.transact(busy, insert("gone"));
        world.transact(
            busy,
            json!({"op": "delete", "table": "T", "where": [["name", "==", "gone"]]}),
        );
    }
    assert_eq!(
        world.core.outbox(slow).unwrap().backlog(),
        backlog,
        "no more is kept for it"
    );
    assert_eq!(world.read(slow).len(), 2 * (1 + round));
    assert!(world.core.listens(slow));
    let sum = world.read(slow);
    assert_eq!(kinds(&sum), ["update2", "update3"]);
    let rows = sum[0]["params"][1]["T"].as_object().unwrap();
    assert_eq!(rows.len(), 1, "rows that came and went are not told of");
    assert!(rows.values().all(|row| row["modify"]["n"] == 1000));
    world.transact(busy, set_n("a", 5));
    assert_eq!(kinds(&world.read(slow)), ["update2", "update3"]);
}

#[test]
fn a_reconnecting_client_gets_what_it_missed() {
    let mut world = World::new();
    let (client, other) = (world.connect(), world.connect());
    let zero = "00000000-0000-0000-0000-000000000000";
    let first = world.ask(
        client,
        "monitor_cond_since",
        json!(["D", "m", {"T": [{"columns": ["name"]}]}, zero]),
    );
    assert_eq!(first["result"][0], false);
    world.transact(other, insert("a"));
    let last = world.read(client)[0]["params"][1].clone();
    world.transact(other, insert("b"));
    let again = world.connect();
    let since = world.ask(
        again,
        "monitor_cond_since",
        json!(["D", "m", {"T": [{"columns": ["name"]}]}, last]),
    );
    assert_eq!(since["result"][0], true);
    let rows = since["result"][2]["T"].as_object().unwrap();
    assert_eq!(rows.values().collect::<Vec<_>>(), [&json!({"insert": {"name": "b"}})]);
}

#[test]
fn the_update_of_a_changed_condition_comes_before_the_reply_and_under_the_new_id() {
    let mut world = World::new();
    let client = world.connect();
    world.call(
        client,
        "monitor_cond",
        json!(["D", "old", {"T": [{"columns": ["name"], "where": [["name", "==", "a"]]}]}]),
    );
    world.call(
        client,
        "monitor_cond",
        json!(["D", "twin", {"T": [{"columns": ["name"], "where": [["name", "==", "a"]]}]}]),
    );
    world.transact(client, insert("b"));
    let read = world.call(
        client,
        "monitor_cond_change",
        json!(["old", "new", {"T": [{"where": [true]}]}]),
    );
    assert_eq!(kinds(&read), ["update2", "1"]);
    assert_eq!(read[0]["params"][0], "new");
    assert_eq!(
        world.ask(client, "monitor_cancel", json!(["old"]))["error"],
        "unknown monitor"
    );
    let read = world.call(client, "transact", json!(["D", insert("c")]));
    assert_eq!(kinds(&read), ["update2", "1"], "the twin kept its own condition");
    world.call(client, "monitor_cancel", json!(["new"]));
    assert_eq!(world.core.usage().monitors, 1);
}

#[test]
fn locks_are_told_to_who_gains_and_loses_them() {
    let mut world = World::new();
    let (a, b) = (world.connect(), world.connect());
    assert_eq!(world.ask(a, "lock", json!(["l"]))["result"], json!({"locked": true}));
    assert_eq!(world.ask(b, "steal", json!(["l"]))["result"], json!({"locked": true}));
    assert_eq!(
        world.read(a),
        [json!({"id": null, "method": "stolen", "params": ["l"]})]
    );
    let assert_lock = json!({"op": "assert", "lock": "l"});
    assert_eq!(
        world.transact(a, assert_lock.clone())["result"][0]["error"],
        "not owner"
    );
    assert_eq!(world.transact(b, assert_lock)["result"][0], json!({}));
    world.core.disconnect(b);
    assert_eq!(
        world.read(a),
        [json!({"id": null, "method": "locked", "params": ["l"]})]
    );
}

#[test]
fn silent_clients_are_probed_and_then_given_up() {
    let mut world = World::new();
    let client = world.connect_probed(Some(Duration::from_secs(5)));
    let tick = |world: &mut World, at: u64| {
        world.now = at;
        let now = world.now();
        world.core.tick(now);
    };
    tick(&mut world, 4999);
    assert!(world.read(client).is_empty());
    tick(&mut world, 5000);
    assert_eq!(kinds(&world.read(client)), ["echo"]);
    let now = world.now();
    world.core.heard(client, now);
    world.send(client, json!({"id": "echo", "result": [], "error": null}));
    assert!(world.core.take_closing().is_empty());
    tick(&mut world, 10_000);
    tick(&mut world, 15_000);
    assert_eq!(world.core.take_closing().len(), 1);
    assert!(!world.core.listens(client));
}

#[test]
fn clients_learn_of_databases_that_come_and_go() {
    let mut world = World::new();
    let (aware, unaware) = (world.connect(), world.connect());
    world.ask(aware, "set_db_change_aware", json!([true]));
    world.call(aware, "monitor", json!(["D", "d", {"T": {}}]));
    world.call(
        aware,
        "monitor_cond",
        json!(["_Server", "s", {"Database": [{"columns": ["name"]}]}]),
    );
    assert!(world.call(aware, "transact", json!(["D", wait_for("a")])).is_empty());
    let now = world.now();
    assert!(world.core.remove_database("D", now));
    let read = world.read(aware);
    assert_eq!(kinds(&read), ["1", "monitor_canceled", "update2"]);
    assert_eq!(read[0]["error"], "canceled");
    let closing: Vec<SessionId> = world.core.take_closing().into_iter().map(|(id, _)| id).collect();
    assert_eq!(closing, [unaware]);
    assert_eq!(world.ask(aware, "list_dbs", json!([]))["result"], json!(["_Server"]));
    assert!(!world.core.remove_database("_Server", now));
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
fn wrong_requests_get_the_words_that_users_know() {
    let mut world = World::new();
    let client = world.connect();
    for (method, params, details) in [
        (
            "get_schema",
            json!([1]),
            "get_schema request params must begin with <db-name>",
        ),
        (
            "transact",
            json!(["X"]),
            "transact request specifies unknown database X",
        ),
        (
            "set_db_change_aware",
            json!([1]),
            "set_db_change_aware: true or false parameter expected",
        ),
        ("lock", json!(["9 x"]), "lock request params must be <id>"),
        (
            "unlock",
            json!(["x"]),
            "unlock: \"unlock\" without \"lock\" or \"steal\"",
        ),
        ("monitor", json!(["D"]), "invalid parameters"),
        ("monitor", json!(["D", 1, {"X": {}}]), "no table named X"),
        (
            "monitor_cond_since",
            json!(["D", 1, {}, "x"]),
            "last-txn-id must be UUID format.",
        ),
        ("monitor_cond_change", json!([1, 2, {}]), "unknown monitor session"),
        ("convert", json!(["D"]), "array expected"),
        (
            "convert",
            json!(["D", {"name": "E", "version": "1.0.0", "tables": {}}]),
            "new schema name (E) does not match database name (D)",
        ),
    ] {
        assert_eq!(
            world.ask(client, method, params)["error"]["details"],
            details,
            "{method}"
        );
    }
    for (method, params, error) in [
        ("nonsense", json!([]), "unknown method"),
        ("monitor_cancel", json!([5]), "unknown monitor"),
        ("monitor_cancel", json!([]), "invalid parameters"),
    ] {
        assert_eq!(world.ask(client, method, params)["error"], error, "{method}");
    }
}

#[test]
fn a_read_only_client_may_look_but_not_write() {
    let mut world = World::new();
    let options = SessionOptions {
        name: "test".into(),
        remote: "r".into(),
        read_only: true,
        probe: None,
    };
    let now = world.now();
    let client = world.core.connect(options, now);
    assert_eq!(world.transact(client, insert("a"))["result"][0]["error"], "not allowed");
    assert!(world.names(client).is_empty());
}
