//! Schemas: which are accepted, which are refused, and that a printed schema parses to the same.

use ovsdb::{DatabaseSchema, UNLIMITED};
use serde_json::{Value, json};

fn schema_of(columns: Value) -> Value {
    json!({"name": "T", "version": "1.0.0", "tables": {"t": {"columns": columns}}})
}

fn column_of(kind: Value) -> Value {
    schema_of(json!({"a": {"type": kind}}))
}

fn fault(json: &Value) -> String {
    DatabaseSchema::from_json(json)
        .unwrap_err()
        .details()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_schema_prints_as_it_was() {
    let table = json!({"isRoot": true, "maxRows": 3, "indexes": [["a"], ["a", "b"]], "columns": {
        "a": {"type": "string"},
        "b": {"type": {"key": {"type": "integer", "minInteger": 1, "maxInteger": 5}, "min": 0}},
        "c": {"type": {"key": "string", "value": {"type": "uuid", "refTable": "u"}, "min": 0, "max": "unlimited"}},
        "d": {"type": {"key": {"type": "uuid", "refTable": "u", "refType": "weak"}, "min": 0, "max": 4}, "ephemeral": true},
        "e": {"type": {"key": {"type": "string", "enum": ["set", ["x", "y"]]}}, "mutable": false},
        "f": {"type": {"key": {"type": "real", "minReal": -1.5}}},
        "g": {"type": {"key": {"type": "string", "minLength": 1, "maxLength": 8}}},
    }});
    let json = json!({"name": "T", "version": "1.2.3", "cksum": "1 2", "tables": {
        "t": table, "u": {"columns": {"x": {"type": "boolean"}}}}});
    assert_eq!(DatabaseSchema::from_json(&json).unwrap().to_json(), json);
}

#[test]
fn a_schema_without_roots_has_only_roots() {
    let schema = DatabaseSchema::from_json(&schema_of(json!({"a": {"type": "string"}}))).unwrap();
    assert!(schema.tables()[0].is_root());
}

#[test]
fn columns_with_weak_references_are_mutable() {
    let reference = json!({"key": {"type": "uuid", "refTable": "t", "refType": "weak"}});
    let schema = DatabaseSchema::from_json(&schema_of(json!({"a": {"type": reference, "mutable": false}}))).unwrap();
    assert!(schema.tables()[0].column("a").unwrap().mutable);
}

#[test]
fn limits_as_large_as_can_be_are_none() {
    let mut json = schema_of(json!({"a": {"type": "string"}}));
    json["tables"]["t"]["maxRows"] = json!(1i64 << 40);
    assert_eq!(
        DatabaseSchema::from_json(&json).unwrap().tables()[0].max_rows(),
        UNLIMITED
    );
}

#[test]
fn schemas_that_contradict_themselves_are_refused() {
    let base = |base: Value| column_of(json!({ "key": base }));
    let cases = [
        (
            json!({"name": "T"}),
            "Parsing database schema failed: Required 'tables' member is missing.",
        ),
        (
            json!({"name": "T", "version": "1.0", "tables": {}}),
            "schema version \"1.0\" not in format x.y.z",
        ),
        (
            json!({"name": "T", "tables": {"t": {"columns": {}}}}),
            "table must have at least one column",
        ),
        (column_of(json!("foo")), "\"foo\" is not an atomic-type"),
        (
            column_of(json!({"key": "string", "min": 2})),
            "ovsdb type fails constraint checks",
        ),
        (column_of(json!({"key": "string", "min": -1})), "bad min or max value"),
        (
            column_of(json!({"key": "string", "max": "many"})),
            "bad min or max value",
        ),
        (
            column_of(json!({"key": "string", "max": 0})),
            "ovsdb type fails constraint checks",
        ),
        (
            base(json!({"type": "integer", "minInteger": 5, "maxInteger": 3})),
            "minInteger exceeds maxInteger",
        ),
        (
            base(json!({"type": "string", "minLength": -1})),
            "minLength out of valid range 0 to 4294967295",
        ),
        (
            base(json!({"type": "integer", "enum": ["set", ["a"]]})),
            "expected integer",
        ),
        (
            base(json!({"type": "uuid", "refTable": "x"})),
            "column a key refers to undefined table x",
        ),
        (
            base(json!({"type": "uuid", "refTable": "t", "refType": "foo"})),
            "refType must be \"strong\" or \"weak\" (not \"foo\")",
        ),
    ];
    for (json, expected) in cases {
        assert_eq!(fault(&json), expected);
    }
    assert!(
        fault(&schema_of(json!({"_a": {"type": "string"}}))).starts_with("names beginning with \"_\" are reserved")
    );
    let mut json = schema_of(json!({"a": {"type": "string", "ephemeral": true}}));
    json["tables"]["t"]["indexes"] = json!([["a"]]);
    assert_eq!(fault(&json), "ephemeral columns (such as a) may not be indexed");
    json["tables"]["t"]["indexes"] = json!([["b"]]);
    assert_eq!(fault(&json), "b is not a valid column name");
}
