//! Relays: who may have transactions forwarded, and what their memory is charged.

use mgmt::jsonrpc::Message;
use ovsdb::UpdateForm;

use super::*;

const RULES: &str = r#"{"name": "R", "version": "1.0.0", "tables": {
    "RBAC_Role": {"isRoot": true, "columns": {"name": {"type": "string"}, "permissions": {"type": {"key": "string",
        "value": {"type": "uuid", "refTable": "RBAC_Permission", "refType": "weak"}, "min": 0, "max": "unlimited"}}}},
    "RBAC_Permission": {"isRoot": true, "columns": {"table": {"type": "string"}, "insert_delete": {"type": "boolean"},
        "authorization": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
        "update": {"type": {"key": "string", "min": 0, "max": "unlimited"}}}},
    "T": {"isRoot": true, "columns": {"n": {"type": "integer"}}},
    "U": {"isRoot": true, "columns": {"n": {"type": "integer"}}}}}"#;

/// A world with the relay `R`, whose role `worker` may insert into `T`.
fn relay() -> World {
    let mut world = World::new();
    let now = world.now();
    assert!(world.core.add_relay("R", now));
    world.flush();
    let schema = DatabaseSchema::from_text(RULES).unwrap();
    world.core.set_relay_schema("R", schema, now);
    world.flush();
    let (role, permission) = (
        "550e8400-e29b-41d4-a716-446655440000",
        "550e8400-e29b-41d4-a716-446655440001",
    );
    let contents = json!({
        "RBAC_Role": {role: {"initial": {"name": "worker", "permissions": ["map", [["T", ["uuid", permission]]]]}}},
        "RBAC_Permission": {permission: {"initial": {"table": "T", "insert_delete": true, "authorization": ""}}},
    });
    let adopt = |db: &mut Database| db.adopt(&contents, UpdateForm::Differences, None, &|_| false);
    world.core.follow("R", adopt, now).unwrap();
    world.flush();
    world.core.set_relay_connected("R", true, false, now);
    world.flush();
    world
}

fn client(world: &mut World, role: &str) -> SessionId {
    let options = SessionOptions {
        name: "test".into(),
        remote: "r".into(),
        local: true,
        read_only: false,
        role: role.into(),
        client: Some("host".into()),
        probe: None,
    };
    let now = world.now();
    world.core.connect(options, now)
}

#[test]
fn a_relay_checks_the_role_before_it_forwards() {
    let mut world = relay();
    let insert = |table: &str| json!(["R", {"op": "insert", "table": table, "row": {}}]);
    let worker = client(&mut world, "worker");
    let reply = world.ask(worker, "transact", insert("U"));
    assert_eq!(reply["result"][0]["error"], "permission error", "{reply}");
    let wait = json!({"op": "wait", "table": "U", "where": [], "columns": ["n"], "until": "==", "rows": [{"n": 1}]});
    let hidden = json!(["R", wait, {"op": "insert", "table": "U", "row": {}}]);
    let reply = world.ask(worker, "transact", hidden);
    assert_eq!(reply["result"][0]["error"], "not supported", "{reply}");
    assert!(world.core.take_outgoing("R").is_empty());
    assert!(world.call(worker, "transact", insert("T")).is_empty());
    let sent = world.core.take_outgoing("R");
    assert!(matches!(&sent[..], [Message::Request { method, params, .. }]
        if method == "transact" && json!(params) == insert("T")));
    let free = client(&mut world, "");
    assert!(world.call(free, "transact", insert("U")).is_empty());
    assert_eq!(world.core.take_outgoing("R").len(), 1);
}

#[test]
fn forwarded_transactions_are_charged_until_their_reply() {
    let mut world = relay();
    let client = client(&mut world, "");
    let before = world.core.budget().0;
    let long = "x".repeat(1 << 20);
    let big = json!(["R", {"op": "insert", "table": "U", "row": {}}, {"op": "comment", "comment": long}]);
    let mut refused = 0;
    for id in 0..40 {
        world.send(client, json!({"id": id, "method": "transact", "params": big}));
        let read = world.read(client);
        refused += read
            .iter()
            .filter(|reply| reply["error"]["error"] == "resources exhausted")
            .count();
    }
    assert!(refused >= 20, "{refused}: a session may hold 16 MiB");
    for message in world.core.take_outgoing("R") {
        let Message::Request { id, .. } = message else { panic!() };
        world.core.forwarded("R", id.as_u64().unwrap(), Ok(json!([{}, {}])));
    }
    assert_eq!(world.read(client).len(), 40 - refused);
    assert_eq!(world.core.budget().0, before);
}
