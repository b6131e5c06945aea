//! Helpers of the tests: a schema with a column of every kind, and short ways to run transactions.
#![allow(dead_code, reason = "each test file uses what it needs")]

use ovsdb::{Commit, Database, DatabaseSchema, Outcome, TxnCtx, Uuid};
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) const SCHEMA: &str = r#"{"name": "Test", "version": "1.2.3", "tables": {
  "root": {"isRoot": true, "columns": {
    "name": {"type": "string"},
    "ranged": {"type": {"key": {"type": "integer", "minInteger": -10, "maxInteger": 4095}}},
    "n": {"type": "integer"},
    "real": {"type": "real"},
    "flag": {"type": "boolean"},
    "color": {"type": {"key": {"type": "string", "enum": ["set", ["", "red", "green"]]}}},
    "opt": {"type": {"key": {"type": "string", "minLength": 2, "maxLength": 4}, "min": 0, "max": 1}},
    "optint": {"type": {"key": {"type": "integer", "minInteger": 3}, "min": 0, "max": 1}},
    "ints": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
    "some": {"type": {"key": "string", "min": 1, "max": 3}},
    "map": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
    "fixed": {"type": "string", "mutable": false},
    "fleeting": {"type": "string", "ephemeral": true},
    "any": {"type": "uuid"},
    "kids": {"type": {"key": {"type": "uuid", "refTable": "kid"}, "min": 0, "max": "unlimited"}},
    "kidmap": {"type": {"key": "string", "value": {"type": "uuid", "refTable": "kid"}, "min": 0, "max": "unlimited"}},
    "mixed": {"type": {"key": {"type": "uuid", "refTable": "kid", "refType": "weak"},
                       "value": {"type": "uuid", "refTable": "kid"}, "min": 0, "max": "unlimited"}},
    "weak": {"type": {"key": {"type": "uuid", "refTable": "kid", "refType": "weak"}, "min": 0, "max": "unlimited"}},
    "weakmap": {"type": {"key": "string", "value": {"type": "uuid", "refTable": "kid", "refType": "weak"}, "min": 0, "max": 5}}}},
  "kid": {"indexes": [["name"]], "columns": {
    "name": {"type": "string"},
    "n": {"type": "integer"},
    "next": {"type": {"key": {"type": "uuid", "refTable": "kid"}, "min": 0, "max": 1}}}},
  "needs": {"isRoot": true, "columns": {
    "to": {"type": {"key": {"type": "uuid", "refTable": "root", "refType": "weak"}, "min": 1, "max": 2}}}},
  "pair": {"isRoot": true, "indexes": [["a", "b"], ["c"]], "columns": {
    "a": {"type": "integer"}, "b": {"type": {"key": "string", "min": 0, "max": 1}}, "c": {"type": "integer"}}},
  "few": {"isRoot": true, "maxRows": 2, "columns": {"a": {"type": "integer"}}}}}"#;

pub(crate) const SOME_UUID: &str = "550e8400-e29b-41d4-a716-446655440000";

pub(crate) fn database() -> Database {
    Database::new(DatabaseSchema::from_text(SCHEMA).unwrap(), 7)
}

/// Runs a transaction: its reply and commit.
pub(crate) fn run(db: &mut Database, ops: Value) -> (Vec<Value>, Option<Arc<Commit>>) {
    match db.transact(ops.as_array().unwrap(), &TxnCtx::PLAIN) {
        Outcome::Done {
            reply: Value::Array(reply),
            commit,
        } => (reply, commit),
        other => panic!("{other:?}"),
    }
}

/// Runs a transaction that must succeed.
pub(crate) fn ok(db: &mut Database, ops: Value) -> Vec<Value> {
    let n = ops.as_array().unwrap().len();
    let (reply, _) = run(db, ops);
    assert!(
        reply.len() == n && reply.iter().all(|result| result.get("error").is_none()),
        "{reply:?}"
    );
    reply
}

/// Runs a transaction that must succeed and change something.
pub(crate) fn commit(db: &mut Database, ops: Value) -> Arc<Commit> {
    let (reply, commit) = run(db, ops);
    commit.unwrap_or_else(|| panic!("nothing changed: {reply:?}"))
}

/// Runs a transaction that must fail and change nothing: the failing operation's number (one past
/// the last for errors at commit), and the error's kind and details.
pub(crate) fn fails(db: &mut Database, ops: Value) -> (usize, String, String) {
    let before = dump(db);
    let n = ops.as_array().unwrap().len();
    let (reply, commit) = run(db, ops);
    assert!(commit.is_none());
    assert_eq!(dump(db), before, "a failed transaction left something");
    let at = reply
        .iter()
        .position(|result| result.get("error").is_some())
        .unwrap_or_else(|| panic!("{reply:?}"));
    assert!(
        reply[at + 1..].iter().all(Value::is_null) && (reply.len() == n || at == n),
        "{reply:?}"
    );
    let text = |name: &str| {
        reply[at]
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    (at, text("error"), text("details"))
}

/// Everything in the database, versions included, by table and UUID.
pub(crate) fn dump(db: &Database) -> Value {
    let mut tables = serde_json::Map::new();
    for (at, table) in db.schema().tables().iter().enumerate() {
        let all: Vec<usize> = (0..table.columns().len()).collect();
        let rows = db
            .rows(at)
            .map(|row| (row.uuid().to_string(), row.to_json(table, &all)));
        tables.insert(table.name().to_owned(), Value::Object(rows.collect()));
    }
    Value::Object(tables)
}

/// The rows of a table in these columns, sorted.
pub(crate) fn rows(db: &mut Database, table: &str, columns: &[&str]) -> Vec<Value> {
    let reply = ok(
        db,
        json!([{"op": "select", "table": table, "where": [], "columns": columns}]),
    );
    let mut rows = reply[0]["rows"].as_array().unwrap().clone();
    rows.sort_by_key(Value::to_string);
    rows
}

/// The UUID in the result of an insert.
pub(crate) fn uuid_of(result: &Value) -> Uuid {
    result["uuid"][1].as_str().unwrap().parse().unwrap()
}

pub(crate) fn insert(table: &str, row: Value) -> Value {
    json!({"op": "insert", "table": table, "row": row})
}

pub(crate) fn insert_named(table: &str, name: &str, row: Value) -> Value {
    json!({"op": "insert", "table": table, "uuid-name": name, "row": row})
}

pub(crate) fn update(table: &str, condition: Value, row: Value) -> Value {
    json!({"op": "update", "table": table, "where": condition, "row": row})
}

pub(crate) fn mutate(table: &str, condition: Value, mutations: Value) -> Value {
    json!({"op": "mutate", "table": table, "where": condition, "mutations": mutations})
}

pub(crate) fn delete(table: &str, condition: Value) -> Value {
    json!({"op": "delete", "table": table, "where": condition})
}

pub(crate) fn select(table: &str, condition: Value, columns: &[&str]) -> Value {
    json!({"op": "select", "table": table, "where": condition, "columns": columns})
}
