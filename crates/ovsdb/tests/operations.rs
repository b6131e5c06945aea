//! Every operation of a transaction (RFC 7047 §5.2), its results and its errors.

mod common;

use common::*;
use ovsdb::{Outcome, TxnCtx};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn insert_fills_in_defaults_and_reports_the_uuid() {
    let mut db = database();
    let reply = ok(&mut db, json!([insert("root", json!({"name": "a"}))]));
    let rows = rows(
        &mut db,
        "root",
        &[
            "_uuid", "name", "n", "real", "flag", "opt", "ints", "some", "map", "any",
        ],
    );
    let expected = json!({
        "_uuid": reply[0]["uuid"], "name": "a", "n": 0, "real": 0, "flag": false, "opt": ["set", []], "ints": ["set", []],
        "some": "", "map": ["map", []], "any": ["uuid", "00000000-0000-0000-0000-000000000000"],
    });
    assert_eq!(rows, [expected]);
}

#[test]
fn insert_takes_a_uuid_that_is_free() {
    let mut db = database();
    let op = json!({"op": "insert", "table": "root", "row": {}, "uuid": SOME_UUID});
    assert_eq!(ok(&mut db, json!([op]))[0]["uuid"][1], SOME_UUID);
    let (at, error, _) = fails(&mut db, json!([op]));
    assert_eq!((at, error.as_str()), (0, "duplicate uuid"));
    let (at, error, _) = fails(&mut db, json!([delete("root", json!([])), op]));
    assert_eq!(
        (at, error.as_str()),
        (1, "duplicate uuid"),
        "not even after its deletion in the same transaction"
    );
    let (_, error, details) = fails(
        &mut db,
        json!([{"op": "insert", "table": "root", "row": {}, "uuid": "x"}]),
    );
    assert_eq!((error.as_str(), details.as_str()), ("syntax error", "bad uuid"));
}

#[test]
fn named_uuids_work_before_and_after_the_insert_that_makes_them() {
    let mut db = database();
    let name = json!(["named-uuid", "k"]);
    let reply = ok(
        &mut db,
        json!([
            insert("root", json!({"kids": name, "any": name})),
            insert_named("kid", "k", json!({"name": "kid"})),
            mutate("kid", json!([["_uuid", "==", name]]), json!([["n", "+=", 5]])),
        ]),
    );
    assert_eq!(
        rows(&mut db, "root", &["any", "kids"]),
        [json!({"any": reply[1]["uuid"], "kids": reply[1]["uuid"]})]
    );
    assert_eq!(rows(&mut db, "kid", &["n"]), [json!({"n": 5})]);
}

#[test]
fn a_name_is_given_once() {
    let mut db = database();
    let (at, error, _) = fails(
        &mut db,
        json!([
            insert_named("root", "x", json!({})),
            insert_named("root", "x", json!({}))
        ]),
    );
    assert_eq!((at, error.as_str()), (1, "duplicate uuid-name"));
}

#[test]
fn select_shows_the_columns_asked_for_or_all() {
    let mut db = database();
    ok(&mut db, json!([insert("few", json!({"a": 3}))]));
    let reply = ok(
        &mut db,
        json!([select("few", json!([]), &["a"]), {"op": "select", "table": "few", "where": []}]),
    );
    assert_eq!(reply[0], json!({"rows": [{"a": 3}]}));
    let all: Vec<&String> = reply[1]["rows"][0].as_object().unwrap().keys().collect();
    assert_eq!(all, ["_uuid", "_version", "a"]);
    assert_eq!(
        fails(&mut db, json!([select("few", json!([]), &["b"])])).1,
        "syntax error"
    );
    assert_eq!(
        fails(&mut db, json!([select("few", json!([]), &["a", "a"])])).1,
        "syntax error"
    );
}

#[test]
fn select_shows_equal_rows_once() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert("root", json!({"n": 1})),
            insert("root", json!({"n": 1})),
            insert("root", json!({"n": 2}))
        ]),
    );
    assert_eq!(rows(&mut db, "root", &["n"]), [json!({"n": 1}), json!({"n": 2})]);
    assert_eq!(rows(&mut db, "root", &["_uuid", "n"]).len(), 3);
}

#[test]
fn update_counts_rows_and_refuses_immutable_columns() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert("root", json!({"n": 1})),
            insert("root", json!({"n": 2})),
            insert("root", json!({"n": 2}))
        ]),
    );
    let reply = ok(
        &mut db,
        json!([update("root", json!([["n", "==", 2]]), json!({"name": "two"}))]),
    );
    assert_eq!(reply[0], json!({"count": 2}));
    for column in ["fixed", "_uuid", "_version"] {
        let value = if column == "fixed" {
            json!("x")
        } else {
            json!(["uuid", SOME_UUID])
        };
        let (_, error, details) = fails(&mut db, json!([update("root", json!([]), json!({column: value}))]));
        assert_eq!(error, "constraint violation");
        assert_eq!(
            details,
            format!("Cannot update immutable column {column} in table root.")
        );
    }
}

#[test]
fn a_changed_row_has_a_new_version_and_an_unchanged_one_has_not() {
    let mut db = database();
    ok(&mut db, json!([insert("root", json!({"n": 1}))]));
    let before = rows(&mut db, "root", &["_version"]);
    assert!(
        run(&mut db, json!([update("root", json!([]), json!({"n": 1}))]))
            .1
            .is_none()
    );
    assert!(
        run(
            &mut db,
            json!([mutate("root", json!([]), json!([["n", "+=", 1], ["n", "-=", 1]]))])
        )
        .1
        .is_none()
    );
    assert_eq!(rows(&mut db, "root", &["_version"]), before);
    ok(&mut db, json!([update("root", json!([]), json!({"n": 2}))]));
    assert_ne!(rows(&mut db, "root", &["_version"]), before);
}

#[test]
fn numbers_mutate_within_their_range() {
    let mut db = database();
    ok(
        &mut db,
        json!([insert("root", json!({"n": 5, "real": 2.5, "ints": ["set", [1, 5, 9]]}))]),
    );
    let steps = [
        (json!(["n", "+=", 2]), "n", json!(7)),
        (json!(["n", "-=", 10]), "n", json!(-3)),
        (json!(["n", "*=", 4]), "n", json!(-12)),
        (json!(["n", "/=", 5]), "n", json!(-2)),
        (json!(["n", "%=", 2]), "n", json!(0)),
        (json!(["real", "*=", 3]), "real", json!(7.5)),
        (json!(["ints", "+=", 1]), "ints", json!(["set", [2, 6, 10]])),
        (json!(["optint", "+=", 1]), "optint", json!(["set", []])),
    ];
    for (mutation, column, expected) in steps {
        ok(&mut db, json!([mutate("root", json!([]), json!([mutation]))]));
        assert_eq!(
            rows(&mut db, "root", &[column]),
            [json!({column: expected})],
            "{mutation}"
        );
    }
    ok(
        &mut db,
        json!([update("root", json!([]), json!({"n": i64::MIN, "real": 1e308}))]),
    );
    let faults = [
        (json!(["n", "/=", 0]), "domain error"),
        (json!(["n", "%=", 0]), "domain error"),
        (json!(["real", "/=", 0]), "domain error"),
        (json!(["n", "/=", -1]), "range error"),
        (json!(["n", "%=", -1]), "range error"),
        (json!(["n", "-=", 1]), "range error"),
        (json!(["n", "*=", 2]), "range error"),
        (json!(["real", "*=", 1e308]), "range error"),
        (json!(["ranged", "+=", 5000]), "constraint violation"),
        (json!(["ints", "*=", 0]), "constraint violation"),
        (json!(["real", "%=", 1]), "syntax error"),
        (json!(["name", "+=", 1]), "syntax error"),
        (json!(["flag", "+=", 1]), "syntax error"),
        (json!(["map", "+=", 1]), "syntax error"),
        (json!(["n", "insert", 1]), "syntax error"),
        (json!(["n", "+=", "x"]), "syntax error"),
        (json!(["n", "**", 1]), "unknown mutator"),
        (json!(["nope", "+=", 1]), "unknown column"),
        (json!(["fixed", "insert", "x"]), "constraint violation"),
        (json!(["n", "+="]), "syntax error"),
        (json!(7), "syntax error"),
    ];
    for (mutation, expected) in faults {
        assert_eq!(
            fails(&mut db, json!([mutate("root", json!([]), json!([mutation]))])).1,
            expected,
            "{mutation}"
        );
    }
}

#[test]
fn sets_and_maps_mutate_by_insert_and_delete() {
    let mut db = database();
    ok(
        &mut db,
        json!([insert(
            "root",
            json!({"some": "x", "map": ["map", [["k", "v"], ["l", "w"]]]})
        )]),
    );
    let steps = [
        (
            json!(["ints", "insert", ["set", [3, 1]]]),
            "ints",
            json!(["set", [1, 3]]),
        ),
        (json!(["ints", "insert", 2]), "ints", json!(["set", [1, 2, 3]])),
        (
            json!(["ints", "delete", ["set", [2, 77]]]),
            "ints",
            json!(["set", [1, 3]]),
        ),
        (
            json!(["some", "insert", ["set", ["a", "b"]]]),
            "some",
            json!(["set", ["a", "b", "x"]]),
        ),
        (json!(["opt", "insert", "two"]), "opt", json!("two")),
        (json!(["opt", "delete", "two"]), "opt", json!(["set", []])),
        (
            json!(["map", "insert", ["map", [["k", "new"], ["m", "x"]]]]),
            "map",
            json!(["map", [["k", "v"], ["l", "w"], ["m", "x"]]]),
        ),
        (
            json!(["map", "delete", ["map", [["k", "other"], ["m", "x"]]]]),
            "map",
            json!(["map", [["k", "v"], ["l", "w"]]]),
        ),
        (
            json!(["map", "delete", ["set", ["k", "zz"]]]),
            "map",
            json!(["map", [["l", "w"]]]),
        ),
        (json!(["map", "delete", "l"]), "map", json!(["map", []])),
    ];
    for (mutation, column, expected) in steps {
        ok(&mut db, json!([mutate("root", json!([]), json!([mutation]))]));
        assert_eq!(
            rows(&mut db, "root", &[column]),
            [json!({column: expected})],
            "{mutation}"
        );
    }
    let (_, error, details) = fails(
        &mut db,
        json!([mutate("root", json!([]), json!([["some", "insert", "c"]]))]),
    );
    assert_eq!(error, "constraint violation");
    assert_eq!(details, "Attempted to store 4 elements in set of 1 to 3 strings.");
    let (_, _, details) = fails(
        &mut db,
        json!([mutate(
            "root",
            json!([]),
            json!([["some", "delete", ["set", ["a", "b", "x"]]]])
        )]),
    );
    assert_eq!(details, "Attempted to store 0 elements in set of 1 to 3 strings.");
}

#[test]
fn conditions_select_by_every_function() {
    let mut db = database();
    let row =
        json!({"n": 7, "name": "x", "real": 1.5, "optint": 5, "ints": ["set", [1, 5]], "map": ["map", [["k", "v"]]]});
    let reply = ok(&mut db, json!([insert("root", row)]));
    let uuid = &reply[0]["uuid"];
    let cases = [
        (json!([]), true),
        (json!([true]), true),
        (json!([false]), false),
        (json!([true, false]), false),
        (json!([["n", "==", 7]]), true),
        (json!([["n", "!=", 7]]), false),
        (json!([["n", "<", 7]]), false),
        (json!([["n", "<=", 7], ["n", ">=", 7]]), true),
        (json!([["n", ">", 6]]), true),
        (json!([["n", "includes", 7]]), true),
        (json!([["n", "excludes", 7]]), false),
        (json!([["real", ">", 1]]), true),
        (json!([["optint", "<", 6]]), true),
        (json!([["opt", "==", ["set", []]]]), true),
        (json!([["ints", "==", ["set", [5, 1]]]]), true),
        (json!([["ints", "includes", 1]]), true),
        (json!([["ints", "includes", ["set", []]]]), true),
        (json!([["ints", "includes", ["set", [1, 2]]]]), false),
        (json!([["ints", "excludes", ["set", [2, 3]]]]), true),
        (json!([["map", "includes", ["map", [["k", "v"]]]]]), true),
        (json!([["map", "includes", ["map", [["k", "w"]]]]]), false),
        (json!([["map", "excludes", ["map", [["k", "w"]]]]]), true),
        (json!([["_uuid", "==", uuid]]), true),
        (json!([["_uuid", "!=", uuid]]), false),
        (json!([["_uuid", "==", ["uuid", SOME_UUID]]]), false),
    ];
    for (condition, expected) in cases {
        let reply = ok(&mut db, json!([select("root", condition.clone(), &["n"])]));
        assert_eq!(
            reply[0]["rows"].as_array().unwrap().len(),
            usize::from(expected),
            "{condition}"
        );
    }
    let faults = [
        (json!([["name", "<", "y"]]), "syntax error"),
        (json!([["ints", "<", 3]]), "syntax error"),
        (json!([["flag", ">", true]]), "syntax error"),
        (json!([["optint", "<", ["set", []]]]), "syntax error"),
        (json!([["n", "~", 3]]), "unknown function"),
        (json!([["nope", "==", 3]]), "unknown column"),
        (json!([["n", "=="]]), "syntax error"),
        (json!([["n", "==", 1, 2]]), "syntax error"),
        (json!([5]), "syntax error"),
        (json!([["ranged", "==", 9999]]), "constraint violation"),
    ];
    for (condition, expected) in faults {
        assert_eq!(fails(&mut db, json!([select("root", condition, &[])])).1, expected);
    }
}

#[test]
fn a_condition_on_an_index_sees_what_the_transaction_did() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert("pair", json!({"a": 1, "c": 1})),
            insert("pair", json!({"a": 2, "c": 2}))
        ]),
    );
    let reply = ok(
        &mut db,
        json!([
            update("pair", json!([["c", "==", 1]]), json!({"c": 10})),
            select("pair", json!([["c", "==", 1]]), &["a"]),
            select("pair", json!([["c", "==", 10]]), &["a"]),
            insert("pair", json!({"a": 3, "c": 3})),
            select("pair", json!([["c", "==", 3]]), &["a"]),
            delete("pair", json!([["c", "==", 2]])),
            select("pair", json!([["c", "==", 2]]), &["a"]),
        ]),
    );
    assert_eq!(reply[1], json!({"rows": []}));
    assert_eq!(reply[2], json!({"rows": [{"a": 1}]}));
    assert_eq!(reply[4], json!({"rows": [{"a": 3}]}));
    assert_eq!(reply[6], json!({"rows": []}));
}

#[test]
fn wait_compares_rows_as_sets() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert("root", json!({"n": 1, "name": "a"})),
            insert("root", json!({"n": 1, "name": "b"}))
        ]),
    );
    let wait = |until: &str, columns: Value, rows: Value| json!([{"op": "wait", "table": "root", "where": [], "timeout": 0, "columns": columns, "until": until, "rows": rows}]);
    assert_eq!(ok(&mut db, wait("==", json!(["n"]), json!([{"n": 1}]))), [json!({})]);
    assert_eq!(ok(&mut db, wait("!=", json!(["n"]), json!([{"n": 2}]))), [json!({})]);
    let (_, error, details) = fails(&mut db, wait("==", json!(["n"]), json!([{"n": 2}])));
    assert_eq!(
        (error.as_str(), details.as_str()),
        ("timed out", "\"where\" clause test failed")
    );
    assert_eq!(fails(&mut db, wait("<", json!(["n"]), json!([]))).1, "syntax error");
    assert_eq!(
        fails(&mut db, wait("==", json!(["n"]), json!([{"zz": 1}]))).1,
        "unknown column"
    );
}

#[test]
fn an_unmet_wait_blocks_until_its_time_is_over() {
    let mut db = database();
    let wait = json!({"op": "wait", "table": "root", "where": [], "timeout": 100, "columns": ["n"], "until": "!=", "rows": []});
    let ops = [insert("few", json!({})), wait];
    let blocked = db.transact(&ops, &TxnCtx::PLAIN);
    assert!(
        matches!(blocked, Outcome::Blocked { timeout: Some(t) } if t == Duration::from_millis(100)),
        "{blocked:?}"
    );
    assert!(
        rows(&mut db, "few", &["a"]).is_empty(),
        "what came before the wait is undone"
    );
    let late = TxnCtx {
        waited: Duration::from_millis(100),
        ..TxnCtx::PLAIN
    };
    let Outcome::Done { reply, commit: None } = db.transact(&ops, &late) else {
        panic!()
    };
    assert_eq!(reply[1]["error"], "timed out");
    ok(&mut db, json!([insert("root", json!({}))]));
    assert!(matches!(
        db.transact(&ops, &late),
        Outcome::Done { commit: Some(_), .. }
    ));
}

#[test]
fn commit_comment_assert_and_abort_do_what_they_say() {
    let mut db = database();
    let ops = json!([
        {"op": "comment", "comment": "first"}, insert("few", json!({})), {"op": "comment", "comment": "second"},
        {"op": "commit", "durable": true},
    ]);
    let commit = commit(&mut db, ops);
    assert_eq!(commit.comment.as_deref(), Some("first\nsecond"));
    assert!(commit.durable);
    let (at, error, details) = fails(
        &mut db,
        json!([insert("few", json!({})), {"op": "abort"}, insert("few", json!({}))]),
    );
    assert_eq!(
        (at, error.as_str(), details.as_str()),
        (1, "aborted", "aborted by request")
    );
    let assert = [json!({"op": "assert", "lock": "l"})];
    let (_, error, details) = fails(&mut db, json!(assert));
    assert_eq!(
        (error.as_str(), details.as_str()),
        ("not owner", "Asserted lock l not held.")
    );
    let owner = TxnCtx {
        holds_lock: &|lock| lock == "l",
        ..TxnCtx::PLAIN
    };
    let Outcome::Done { reply, .. } = db.transact(&assert, &owner) else {
        panic!()
    };
    assert_eq!(reply, json!([{}]));
}

#[test]
fn a_client_that_may_only_read_reads() {
    let mut db = database();
    let ctx = TxnCtx {
        read_only: true,
        ..TxnCtx::PLAIN
    };
    for op in [
        insert("few", json!({})),
        delete("few", json!([])),
        update("few", json!([]), json!({})),
        mutate("few", json!([]), json!([])),
    ] {
        let Outcome::Done { reply, commit: None } = db.transact(&[op], &ctx) else {
            panic!()
        };
        assert_eq!(reply[0]["error"], "not allowed");
    }
    let Outcome::Done { reply, .. } = db.transact(&[select("few", json!([]), &["a"])], &ctx) else {
        panic!()
    };
    assert_eq!(reply, json!([{"rows": []}]));
}

#[test]
fn malformed_operations_are_named() {
    let mut db = database();
    let cases = [
        (json!(5), "Parsing ovsdb operation 1 of 1 failed: Object expected."),
        (
            json!({}),
            "Parsing ovsdb operation 1 of 1 failed: Required 'op' member is missing.",
        ),
        (
            json!({"op": 5}),
            "Parsing ovsdb operation 1 of 1 failed: Type mismatch for member 'op'.",
        ),
        (
            json!({"op": "x"}),
            "Parsing ovsdb operation 1 of 1 failed: No operation \"x\"",
        ),
        (
            json!({"op": "insert"}),
            "Parsing ovsdb operation 1 of 1 failed: Required 'table' member is missing.",
        ),
        (
            json!({"op": "insert", "table": "zz", "row": {}}),
            "Parsing ovsdb operation 1 of 1 failed: No table named zz.",
        ),
        (
            json!({"op": "insert", "table": "few", "row": 5}),
            "Parsing ovsdb operation 1 of 1 failed: Type mismatch for member 'row'.",
        ),
        (
            json!({"op": "insert", "table": "few", "row": {}, "x": 1}),
            "Parsing ovsdb operation 1 of 1 failed: Member 'x' is present but not allowed here.",
        ),
        (
            json!({"op": "commit"}),
            "Parsing ovsdb operation 1 of 1 failed: Required 'durable' member is missing.",
        ),
    ];
    for (op, expected) in cases {
        let (_, error, details) = fails(&mut db, json!([op]));
        assert_eq!((error.as_str(), details.as_str()), ("syntax error", expected));
    }
}
