//! Constraints: limits of values, references, garbage collection, indexes, limits
//! of tables.

mod common;

use common::*;
use serde_json::{Value, json};

#[test]
fn values_out_of_their_type_are_refused_in_known_words() {
    let mut db = database();
    let cases = [
        (
            "ranged",
            json!(5000),
            "5000 is not in the valid range -10 to 4095 (inclusive)",
        ),
        ("optint", json!(2), "2 is less than minimum allowed value 3"),
        (
            "color",
            json!("blue"),
            "blue is not one of the allowed values ([\"\", green, red])",
        ),
        (
            "opt",
            json!("a"),
            "\"a\" length 1 is less than minimum allowed length 2",
        ),
        (
            "opt",
            json!("abcde"),
            "\"abcde\" length 5 is greater than maximum allowed length 4",
        ),
    ];
    for (column, value, expected) in cases {
        let (_, error, details) = fails(&mut db, json!([insert("root", json!({column: value}))]));
        assert_eq!((error.as_str(), details.as_str()), ("constraint violation", expected));
    }
    let cases = [
        ("n", json!("a"), "syntax error", "expected integer"),
        ("n", json!(1.5), "syntax error", "expected integer"),
        ("n", json!(18446744073709551615u64), "syntax error", "expected integer"),
        ("flag", json!(1), "syntax error", "expected boolean"),
        (
            "n",
            json!(["set", []]),
            "syntax error",
            "set must have exactly one member but 0 are present",
        ),
        (
            "some",
            json!(["set", []]),
            "syntax error",
            "set must have 1 to 3 members but 0 are present",
        ),
        (
            "some",
            json!(["set", ["a", "b", "c", "d"]]),
            "syntax error",
            "set must have 1 to 3 members but 4 are present",
        ),
        (
            "ints",
            json!(["set", [1, 2, 1]]),
            "ovsdb error",
            "set contains duplicate",
        ),
        (
            "map",
            json!(["map", [["a", "b"], ["a", "c"]]]),
            "ovsdb error",
            "map contains duplicate key",
        ),
        ("map", json!(["set", []]), "syntax error", "expected [\"map\", <array>]"),
        (
            "map",
            json!(["map", [["a"]]]),
            "syntax error",
            "expected 2-element array",
        ),
        ("any", json!("x"), "syntax error", "expected [\"uuid\", <string>]"),
        ("any", json!(["uuid", "x"]), "syntax error", "\"x\" is not a valid UUID"),
        (
            "any",
            json!(["named-uuid", "a b"]),
            "syntax error",
            "named-uuid string is not a valid <id>",
        ),
        ("nope", json!(1), "unknown column", "No column nope in table root."),
    ];
    for (column, value, kind, expected) in cases {
        let (_, error, details) = fails(&mut db, json!([insert("root", json!({column: value}))]));
        assert_eq!((error.as_str(), details.as_str()), (kind, expected), "{column}");
    }
    ok(&mut db, json!([insert("root", json!({"n": 3.0, "real": 1}))]));
}

#[test]
fn a_strong_reference_needs_its_row() {
    let mut db = database();
    for row in [
        json!({"kids": ["uuid", SOME_UUID]}),
        json!({"kidmap": ["map", [["a", ["uuid", SOME_UUID]]]]}),
        json!({"kids": ["named-uuid", "never"]}),
    ] {
        let (at, error, details) = fails(&mut db, json!([insert("root", row)]));
        assert_eq!((at, error.as_str()), (1, "referential integrity violation"));
        assert!(
            details.starts_with("Table root column kid") && details.contains(" references nonexistent row "),
            "{details}"
        );
    }
}

#[test]
fn a_row_with_references_cannot_be_deleted() {
    let mut db = database();
    let reply = ok(
        &mut db,
        json!([
            insert("root", json!({"kids": ["named-uuid", "k"]})),
            insert_named("kid", "k", json!({}))
        ]),
    );
    let (at, error, details) = fails(&mut db, json!([delete("kid", json!([]))]));
    assert_eq!((at, error.as_str()), (1, "referential integrity violation"));
    assert_eq!(
        details,
        format!(
            "cannot delete kid row {} because of 1 remaining reference(s)",
            uuid_of(&reply[1])
        )
    );
    ok(
        &mut db,
        json!([
            update("root", json!([]), json!({"kids": ["set", []]})),
            delete("kid", json!([]))
        ]),
    );
}

#[test]
fn rows_that_nothing_reaches_are_collected_with_what_only_they_reached() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert("root", json!({"kidmap": ["map", [["a", ["named-uuid", "k1"]]]]})),
            insert_named("kid", "k1", json!({"name": "1", "next": ["named-uuid", "k2"]})),
            insert_named("kid", "k2", json!({"name": "2", "next": ["named-uuid", "k3"]})),
            insert_named("kid", "k3", json!({"name": "3"})),
            insert("kid", json!({"name": "orphan"})),
        ]),
    );
    assert_eq!(rows(&mut db, "kid", &["name"]).len(), 3, "the orphan is gone");
    let commit = commit(
        &mut db,
        json!([mutate("root", json!([]), json!([["kidmap", "delete", ["set", ["a"]]]]))]),
    );
    assert_eq!(commit.changes.len(), 4, "the commit tells of the collected rows");
    assert!(rows(&mut db, "kid", &["name"]).is_empty());
}

#[test]
fn a_row_that_refers_only_to_itself_is_collected() {
    let mut db = database();
    ok(
        &mut db,
        json!([insert_named("kid", "k", json!({"next": ["named-uuid", "k"]}))]),
    );
    assert!(rows(&mut db, "kid", &["name"]).is_empty());
}

#[test]
fn a_reference_moved_within_a_transaction_keeps_the_row() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert("root", json!({"name": "a", "kids": ["named-uuid", "k"]})),
            insert("root", json!({"name": "b"})),
            insert_named("kid", "k", json!({"name": "kid"})),
        ]),
    );
    let kid = rows(&mut db, "kid", &["_uuid"])[0]["_uuid"].clone();
    ok(
        &mut db,
        json!([
            update("root", json!([["name", "==", "a"]]), json!({"kids": ["set", []]})),
            update("root", json!([["name", "==", "b"]]), json!({"kids": kid})),
        ]),
    );
    assert_eq!(rows(&mut db, "kid", &["name"]), [json!({"name": "kid"})]);
    ok(&mut db, json!([delete("root", json!([["name", "==", "b"]]))]));
    assert!(rows(&mut db, "kid", &["name"]).is_empty());
}

#[test]
fn weak_references_go_with_their_row() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert_named("kid", "k1", json!({"name": "1"})),
            insert_named("kid", "k2", json!({"name": "2"})),
            insert(
                "root",
                json!({"name": "strong", "kids": ["set", [["named-uuid", "k1"], ["named-uuid", "k2"]]]})
            ),
            insert(
                "root",
                json!({
                    "name": "weak", "weak": ["set", [["named-uuid", "k1"], ["named-uuid", "k2"], ["uuid", SOME_UUID]]],
                    "weakmap": ["map", [["x", ["named-uuid", "k1"]], ["y", ["named-uuid", "k2"]]]],
                })
            ),
        ]),
    );
    let kid2 = ok(
        &mut db,
        json!([select("kid", json!([["name", "==", "2"]]), &["_uuid"])]),
    )[0]["rows"][0]["_uuid"]
        .clone();
    let weak = |db: &mut _| {
        ok(
            db,
            json!([select(
                "root",
                json!([["name", "==", "weak"]]),
                &["weak", "weakmap", "_version"]
            )]),
        )[0]["rows"][0]
            .clone()
    };
    let before = weak(&mut db);
    assert_eq!(
        before["weak"][1].as_array().unwrap().len(),
        2,
        "a reference to nothing is not stored: {before}"
    );
    ok(
        &mut db,
        json!([update("root", json!([["name", "==", "strong"]]), json!({"kids": kid2}))]),
    );
    let after = weak(&mut db);
    assert_eq!(after["weak"], kid2);
    assert_eq!(after["weakmap"], json!(["map", [["y", kid2]]]));
    assert_ne!(after["_version"], before["_version"]);
    ok(&mut db, json!([delete("root", json!([["name", "==", "strong"]]))]));
    assert_eq!(weak(&mut db)["weak"], json!(["set", []]));
}

#[test]
fn a_pair_that_goes_with_its_weak_key_gives_up_its_strong_value() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert_named("kid", "k1", json!({"name": "1"})),
            insert_named("kid", "k2", json!({"name": "2"})),
            insert("root", json!({"name": "holder", "kids": ["named-uuid", "k1"]})),
            insert(
                "root",
                json!({"mixed": ["map", [[["named-uuid", "k1"], ["named-uuid", "k2"]]]]})
            ),
        ]),
    );
    assert_eq!(rows(&mut db, "kid", &["name"]).len(), 2);
    ok(&mut db, json!([delete("root", json!([["name", "==", "holder"]]))]));
    assert!(rows(&mut db, "kid", &["name"]).is_empty());
    db.check().unwrap();
}

#[test]
fn a_weak_column_that_may_not_be_empty_keeps_its_last_row() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert_named("root", "r", json!({})),
            insert("needs", json!({"to": ["named-uuid", "r"]}))
        ]),
    );
    let (at, error, details) = fails(&mut db, json!([delete("root", json!([]))]));
    assert_eq!((at, error.as_str()), (1, "constraint violation"));
    assert!(details.starts_with(
        "Deletion of 1 weak reference(s) to deleted (or never-existing) rows from column \"to\" in \"needs\""
    ));
    let (_, error, details) = fails(&mut db, json!([insert("needs", json!({}))]));
    assert_eq!(error, "constraint violation");
    assert!(details.contains("all-zeros UUID"), "{details}");
    ok(&mut db, json!([delete("root", json!([])), delete("needs", json!([]))]));
}

#[test]
fn an_index_admits_each_key_once() {
    let mut db = database();
    ok(&mut db, json!([insert("pair", json!({"a": 1, "b": "x", "c": 1}))]));
    let (at, error, details) = fails(&mut db, json!([insert("pair", json!({"a": 1, "b": "x", "c": 2}))]));
    assert_eq!((at, error.as_str()), (1, "constraint violation"));
    let expected = "Transaction causes multiple rows in \"pair\" table to have identical values (1 and x) for index on columns \"a\" \
                    and \"b\".  First row, with UUID ";
    assert!(details.starts_with(expected), "{details}");
    let (_, _, details) = fails(
        &mut db,
        json!([insert("pair", json!({"c": 9})), insert("pair", json!({"a": 4, "c": 9}))]),
    );
    assert!(
        details.contains("identical values (9) for index on column \"c\"."),
        "{details}"
    );
    ok(&mut db, json!([insert("pair", json!({"a": 1, "c": 2}))]));
    let (_, _, details) = fails(&mut db, json!([insert("pair", json!({"a": 1, "c": 3}))]));
    assert!(
        details.contains("(1 and [])"),
        "an empty column is a value as well: {details}"
    );
    ok(
        &mut db,
        json!([
            delete("pair", json!([["c", "==", 1]])),
            insert("pair", json!({"a": 1, "b": "x", "c": 1}))
        ]),
    );
}

#[test]
fn rows_may_swap_their_index_values() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert("pair", json!({"a": 1, "c": 1})),
            insert("pair", json!({"a": 2, "c": 2}))
        ]),
    );
    ok(
        &mut db,
        json!([
            update("pair", json!([["c", "==", 1]]), json!({"c": 77})),
            update("pair", json!([["c", "==", 2]]), json!({"c": 1})),
            update("pair", json!([["c", "==", 77]]), json!({"c": 2})),
        ]),
    );
    assert_eq!(
        rows(&mut db, "pair", &["a", "c"]),
        [json!({"a": 1, "c": 2}), json!({"a": 2, "c": 1})]
    );
    assert_eq!(
        ok(&mut db, json!([select("pair", json!([["c", "==", 2]]), &["a"])]))[0],
        json!({"rows": [{"a": 1}]})
    );
    assert_eq!(
        fails(
            &mut db,
            json!([update("pair", json!([["c", "==", 2]]), json!({"c": 1}))])
        )
        .1,
        "constraint violation"
    );
}

#[test]
fn a_table_keeps_to_its_number_of_rows() {
    let mut db = database();
    ok(
        &mut db,
        json!([insert("few", json!({"a": 1})), insert("few", json!({"a": 2}))]),
    );
    let (at, error, details) = fails(&mut db, json!([insert("few", json!({"a": 3}))]));
    assert_eq!((at, error.as_str()), (1, "constraint violation"));
    assert_eq!(
        details,
        "transaction causes \"few\" table to contain 3 rows, greater than the schema-defined limit of 2 row(s)"
    );
    ok(
        &mut db,
        json!([insert("few", json!({"a": 3})), delete("few", json!([["a", "==", 1]]))]),
    );
}

#[test]
fn hostile_values_get_errors() {
    let mut db = database();
    let deep = (0..100).fold(Value::Null, |inner, _| json!([inner]));
    let long = "x".repeat(100_000);
    for row in [
        json!({"n": deep}),
        json!({"map": ["map", deep]}),
        json!({"opt": long}),
        json!({"any": ["uuid", long]}),
        json!({long.clone(): 1}),
        json!({"ints": ["set", [[], {}, null]]}),
        json!({"kids": ["set", [["uuid"], ["uuid", "x", "y"]]]}),
    ] {
        let (at, error, _) = fails(&mut db, json!([insert("root", row)]));
        assert_eq!(at, 0);
        assert!(!error.is_empty());
    }
    for op in [
        json!(null),
        json!([]),
        json!({"op": "wait", "table": "root", "where": [], "until": "==", "rows": [], "timeout": 1e300}),
    ] {
        let _ = db.transact(&[op], &ovsdb::TxnCtx::PLAIN);
    }
}
