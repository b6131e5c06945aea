//! Monitors: the updates that clients get, in the three forms (RFC 7047 §4.1.5 and §4.1.6,
//! ovsdb-server(7) §4.1.12 to §4.1.16).

mod common;

use common::*;
use ovsdb::{Commit, Database, Fanout, Monitor, MonitorVersion, Uuid, server_db};
use serde_json::{Value, json};

fn monitor(db: &Database, version: MonitorVersion, requests: Value) -> Monitor {
    Monitor::new(db, &requests, version).unwrap()
}

/// The only row update of a commit in table `root`, without its UUID.
fn told(monitor: &Monitor, commit: &Commit) -> Value {
    let Some(updates) = monitor.update(commit) else {
        return Value::Null;
    };
    let updates = updates.to_json();
    let rows = updates["root"].as_object().unwrap();
    assert_eq!(rows.len(), 1);
    rows.values().next().unwrap().clone()
}

#[test]
fn monitor_tells_of_old_and_new_values() {
    let mut db = database();
    let reply = ok(&mut db, json!([insert("root", json!({"name": "a", "n": 1}))]));
    let monitor = monitor(
        &db,
        MonitorVersion::Monitor,
        json!({"root": [{"columns": ["name", "n", "opt"]}]}),
    );
    let uuid = uuid_of(&reply[0]).to_string();
    let initial = json!({"root": {uuid: {"new": {"name": "a", "n": 1, "opt": ["set", []]}}}});
    assert_eq!(monitor.initial(&db).to_json(), initial);
    let commit_1 = commit(
        &mut db,
        json!([update("root", json!([]), json!({"n": 2, "real": 1.5}))]),
    );
    assert_eq!(
        told(&monitor, &commit_1),
        json!({"old": {"n": 1}, "new": {"name": "a", "n": 2, "opt": ["set", []]}})
    );
    let commit_2 = commit(&mut db, json!([update("root", json!([]), json!({"real": 2.5}))]));
    assert_eq!(told(&monitor, &commit_2), Value::Null, "nothing it watches changed");
    let commit_3 = commit(&mut db, json!([delete("root", json!([]))]));
    assert_eq!(
        told(&monitor, &commit_3),
        json!({"old": {"name": "a", "n": 2, "opt": ["set", []]}})
    );
}

#[test]
fn monitor_cond_tells_of_differences() {
    let mut db = database();
    let columns = json!({"root": [{"columns": ["name", "n", "ints", "map", "opt"]}]});
    let monitor = monitor(&db, MonitorVersion::Cond, columns);
    let steps = [
        (
            insert(
                "root",
                json!({"name": "a", "ints": ["set", [1, 2]], "map": ["map", [["k", "v"], ["l", "w"]]]}),
            ),
            json!({"insert": {"name": "a", "ints": ["set", [1, 2]], "map": ["map", [["k", "v"], ["l", "w"]]]}}),
        ),
        (
            update(
                "root",
                json!([]),
                json!({"ints": ["set", [2, 3]], "map": ["map", [["k", "x"], ["m", "y"]]], "opt": "ab", "n": 5}),
            ),
            json!({"modify": {"ints": ["set", [1, 3]], "map": ["map", [["k", "x"], ["l", "w"], ["m", "y"]]], "opt": "ab", "n": 5}}),
        ),
        (
            update("root", json!([]), json!({"opt": "cd"})),
            json!({"modify": {"opt": "cd"}}),
        ),
        (
            update("root", json!([]), json!({"opt": ["set", []], "ints": ["set", []]})),
            json!({"modify": {"opt": ["set", []], "ints": ["set", [2, 3]]}}),
        ),
        (delete("root", json!([])), json!({"delete": null})),
    ];
    for (op, expected) in steps {
        let commit = commit(&mut db, json!([op]));
        assert_eq!(told(&monitor, &commit), expected);
    }
}

#[test]
fn rows_enter_and_leave_a_condition() {
    let mut db = database();
    let requests = json!({"root": [{"columns": ["n"], "where": [["n", "==", 2], ["n", ">=", 5]]}]});
    let monitor = monitor(&db, MonitorVersion::CondSince, requests);
    let steps = [
        (insert("root", json!({"n": 1})), Value::Null),
        (update("root", json!([]), json!({"n": 2})), json!({"insert": {"n": 2}})),
        (update("root", json!([]), json!({"n": 5})), json!({"modify": {"n": 5}})),
        (update("root", json!([]), json!({"n": 3})), json!({"delete": null})),
        (delete("root", json!([])), Value::Null),
    ];
    for (op, expected) in steps {
        let commit = commit(&mut db, json!([op]));
        assert_eq!(told(&monitor, &commit), expected);
    }
    assert!(monitor.initial(&db).is_empty());
}

#[test]
fn select_flags_choose_events_and_columns() {
    let mut db = database();
    ok(&mut db, json!([insert("root", json!({"n": 1, "name": "a"}))]));
    let requests = json!({"root": [
        {"columns": ["n"], "select": {"initial": false}},
        {"columns": ["name"], "select": {"insert": false, "modify": false}},
    ]});
    let monitor = monitor(&db, MonitorVersion::Monitor, requests);
    let initial = monitor.initial(&db).to_json();
    assert_eq!(
        initial["root"].as_object().unwrap().values().next().unwrap(),
        &json!({"new": {"name": "a"}})
    );
    let renamed = commit(&mut db, json!([update("root", json!([]), json!({"name": "b"}))]));
    assert_eq!(told(&monitor, &renamed), Value::Null);
    let counted = commit(
        &mut db,
        json!([update("root", json!([]), json!({"n": 2, "name": "c"}))]),
    );
    assert_eq!(told(&monitor, &counted), json!({"old": {"n": 1}, "new": {"n": 2}}));
    let deleted = commit(&mut db, json!([delete("root", json!([]))]));
    assert_eq!(told(&monitor, &deleted), json!({"old": {"n": 2, "name": "c"}}));
    let inserted = commit(&mut db, json!([insert("root", json!({"n": 3, "name": "x"}))]));
    assert_eq!(told(&monitor, &inserted), json!({"new": {"n": 3}}));
}

#[test]
fn without_columns_all_but_the_uuid_are_watched() {
    let mut db = database();
    ok(&mut db, json!([insert("few", json!({"a": 3}))]));
    let monitor = monitor(&db, MonitorVersion::Monitor, json!({"few": {}}));
    let initial = monitor.initial(&db).to_json();
    let row = initial["few"].as_object().unwrap().values().next().unwrap()["new"].clone();
    assert_eq!(row.as_object().unwrap().keys().collect::<Vec<_>>(), ["_version", "a"]);
}

#[test]
fn a_changed_condition_tells_of_the_rows_that_come_and_go() {
    let mut db = database();
    ok(
        &mut db,
        json!([
            insert("root", json!({"n": 1})),
            insert("root", json!({"n": 2})),
            insert("root", json!({"n": 3}))
        ]),
    );
    let requests = json!({"root": [{"columns": ["n"], "where": [["n", "<", 3]]}], "few": [{}]});
    let mut monitor = monitor(&db, MonitorVersion::Cond, requests);
    let updates = monitor
        .change(&db, &json!({"root": [{"where": [["n", ">", 1]]}]}))
        .unwrap()
        .unwrap()
        .to_json();
    let mut kinds: Vec<String> = updates["root"]
        .as_object()
        .unwrap()
        .values()
        .map(Value::to_string)
        .collect();
    kinds.sort();
    assert_eq!(kinds, [r#"{"delete":null}"#, r#"{"insert":{"n":3}}"#]);
    assert!(
        monitor
            .change(&db, &json!({"root": [{"where": [["n", ">", 1]]}]}))
            .unwrap()
            .is_none()
    );
    let all = monitor.change(&db, &json!({"root": [{"where": []}]})).unwrap().unwrap();
    assert_eq!(all.len(), 1);
    for (bad, details) in [
        (
            json!({"pair": [{"where": []}]}),
            "no table named pair in monitor session",
        ),
        (json!({"nope": [{"where": []}]}), "no table named nope"),
        (json!({"root": 5}), "table root no monitor-cond-change JSON array"),
        (json!({"root": [{"columns": ["n"]}]}), "changing columns is unsupported"),
        (json!(5), "monitor-cond-change-requests must be object"),
    ] {
        assert_eq!(monitor.change(&db, &bad).unwrap_err().details(), Some(details));
    }
}

#[test]
fn requests_that_are_wrong_are_named() {
    let db = database();
    for (requests, details) in [
        (json!(5), "monitor-requests must be object"),
        (json!({"nope": [{}]}), "no table named nope"),
        (json!({"root": 5}), "Parsing table root failed: Object expected."),
        (
            json!({"root": [{"columns": ["nope"]}]}),
            "nope is not a valid column name",
        ),
        (json!({"root": [{"columns": [5]}]}), "array of column names expected"),
        (
            json!({"root": [{"columns": ["n"]}, {"columns": ["n"]}]}),
            "column n mentioned more than once",
        ),
        (
            json!({"root": [{"select": {"initial": 5}}]}),
            "Parsing table root select failed: Type mismatch for member 'initial'.",
        ),
        (
            json!({"root": [{"where": []}]}),
            "Parsing table root failed: Member 'where' is present but not allowed here.",
        ),
    ] {
        assert_eq!(
            Monitor::new(&db, &requests, MonitorVersion::Monitor)
                .unwrap_err()
                .details(),
            Some(details)
        );
    }
}

#[test]
fn a_client_that_comes_back_gets_what_it_missed() {
    let mut db = database();
    let monitor = monitor(&db, MonitorVersion::CondSince, json!({"root": [{"columns": ["n"]}]}));
    assert!(!monitor.since(&db, Uuid::ZERO).0);
    let first = commit(
        &mut db,
        json!([insert("root", json!({"n": 1})), insert("root", json!({"n": 10}))]),
    );
    assert_eq!(db.last_txn(), first.id);
    let (found, updates) = monitor.since(&db, first.id);
    assert!(found && updates.is_empty());
    commit(
        &mut db,
        json!([update("root", json!([["n", "==", 1]]), json!({"n": 2}))]),
    );
    commit(
        &mut db,
        json!([update("root", json!([["n", "==", 2]]), json!({"n": 3}))]),
    );
    commit(&mut db, json!([insert("root", json!({"n": 50}))]));
    commit(&mut db, json!([delete("root", json!([["n", ">=", 10]]))]));
    let (found, updates) = monitor.since(&db, first.id);
    assert!(found);
    let updates = updates.to_json();
    let mut rows: Vec<String> = updates["root"]
        .as_object()
        .unwrap()
        .values()
        .map(Value::to_string)
        .collect();
    rows.sort();
    assert_eq!(
        rows,
        [r#"{"delete":null}"#, r#"{"modify":{"n":3}}"#],
        "a row that came and went is not mentioned"
    );
    for _ in 0..200 {
        commit(&mut db, json!([mutate("root", json!([]), json!([["n", "+=", 1]]))]));
    }
    let (found, updates) = monitor.since(&db, first.id);
    assert!(!found, "the history is bounded");
    assert_eq!(updates.len(), 1);
}

#[test]
fn monitors_that_are_alike_share_their_text() {
    let mut db = database();
    let requests = |column: &str| json!({"root": [{"columns": [column]}]});
    let a = monitor(&db, MonitorVersion::Cond, requests("n"));
    let b = monitor(&db, MonitorVersion::Cond, requests("n"));
    let c = monitor(&db, MonitorVersion::Cond, requests("name"));
    assert!(a == b && a != c);
    let commit = commit(&mut db, json!([insert("root", json!({"n": 1}))]));
    let mut fanout = Fanout::new(&commit);
    let (first, second) = (fanout.text(&a).unwrap(), fanout.text(&b).unwrap());
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    assert_ne!(fanout.text(&c).unwrap(), first);
    assert_eq!(
        serde_json::from_str::<Value>(&first).unwrap(),
        a.update(&commit).unwrap().to_json()
    );
}

#[test]
fn the_server_database_tells_of_the_databases() {
    let db = database();
    let mut server = server_db::new(3).unwrap();
    let mut served = vec![server_db::ServedDatabase::standalone(db.schema().clone())];
    assert!(server_db::update(&mut server, &served).is_some());
    assert!(server_db::update(&mut server, &served).is_none(), "no news");
    let columns = ["name", "model", "connected", "leader", "cid", "index"];
    let expected = json!({"name": "Test", "model": "standalone", "connected": true, "leader": true, "cid": ["set", []], "index": ["set", []]});
    assert_eq!(rows(&mut server, "Database", &columns), [expected]);
    let schema = rows(&mut server, "Database", &["schema"])[0]["schema"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(serde_json::from_str::<Value>(&schema).unwrap(), db.schema().to_json());
    served.clear();
    assert!(server_db::update(&mut server, &served).is_some());
    assert!(rows(&mut server, "Database", &["name"]).is_empty());
}
