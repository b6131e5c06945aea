//! Locks, silence, databases that come and go, wrong requests.

use super::*;

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
fn a_session_cannot_keep_the_server_full_of_its_things() {
    let mut world = World::new();
    let (greedy, modest) = (world.connect(), world.connect());
    let text = "x".repeat(1 << 20);
    let mut refused = false;
    for id in 0..40 {
        world.send(
            greedy,
            json!({"id": id, "method": "transact", "params": ["D", wait_for("a"), {"op": "comment", "comment": text}]}),
        );
        let read = world.read(greedy);
        refused |= read
            .iter()
            .any(|reply| reply["error"]["error"] == "resources exhausted");
    }
    assert!(refused);
    assert!(world.core.usage().triggers < 20);
    for id in 0..40 {
        world.send(greedy, json!({"id": null, "method": "cancel", "params": [id]}));
    }
    world.read(greedy);
    assert!(
        world.call(greedy, "transact", json!(["D", wait_for("a")])).is_empty(),
        "what is over weighs no more"
    );
    assert_eq!(
        world.ask(modest, "lock", json!(["l"]))["result"],
        json!({"locked": true})
    );
}
