//! Updates that monitors send to clients.

use super::*;

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
fn a_reconnecting_client_of_a_standalone_database_gets_all_rows_again() {
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
    assert_eq!(last, zero);
    world.transact(other, insert("b"));
    let again = world.connect();
    let since = world.ask(
        again,
        "monitor_cond_since",
        json!(["D", "m", {"T": [{"columns": ["name"]}]}, last]),
    );
    assert_eq!(since["result"][0], false);
    assert_eq!(since["result"][1], zero);
    assert_eq!(since["result"][2]["T"].as_object().unwrap().len(), 2);
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
fn conditional_monitors_can_be_switched_off() {
    let mut world = World::new();
    let client = world.connect();
    world.core.disable_monitor_cond();
    world.flush();
    assert_eq!(world.core.take_closing().len(), 1, "the client has to ask again");
    world.core.disconnect(client);
    let client = world.connect();
    for method in ["monitor_cond", "monitor_cond_since", "monitor_cond_change"] {
        let reply = world.ask(client, method, json!(["D", "m", {"T": [{}]}]));
        assert_eq!(reply["error"], "unknown method", "{method}");
    }
    let reply = world.ask(client, "monitor", json!(["D", "m", {"T": {}}]));
    assert_eq!(reply["error"], Value::Null);
}
