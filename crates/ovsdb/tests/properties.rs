//! Random transactions: whatever clients send, the database stays consistent, its log replays to
//! the same rows, and replicas that follow monitors see the same.

mod common;

use common::*;
use ovsdb::{Database, DatabaseSchema, Datum, Monitor, MonitorVersion, TxnCtx, UpdateForm, Updates, log, no_names};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The UUIDs that generated transactions share.
fn uuids() -> impl Strategy<Value = String> {
    (0..6u8).prop_map(|n| format!("00000000-0000-4000-8000-00000000000{n}"))
}

fn reference() -> impl Strategy<Value = Value> {
    prop_oneof![
        30 => uuids().prop_map(|uuid| json!(["uuid", uuid])),
        1 => "[ab]".prop_map(|name| json!(["named-uuid", name])),
    ]
}

fn set_of(element: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    proptest::collection::vec(element, 0..4).prop_map(|mut elements| {
        elements.sort_by_key(Value::to_string);
        elements.dedup();
        json!(["set", elements])
    })
}

fn map_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    proptest::collection::btree_map("[k-m]", value, 0..3)
        .prop_map(|map| json!(["map", map.into_iter().collect::<Vec<_>>()]))
}

/// A column of a table with a value, mostly legal.
fn field(table: &'static str) -> BoxedStrategy<(&'static str, Value)> {
    fn named(
        name: &'static str,
        value: impl Strategy<Value = Value> + 'static,
    ) -> BoxedStrategy<(&'static str, Value)> {
        value.prop_map(move |value| (name, value)).boxed()
    }
    let number = || (-3..6i64).prop_map(Value::from);
    let word = || "[a-c]{0,3}".prop_map(Value::from);
    match table {
        "root" => prop_oneof![
            named("name", word()),
            named("ranged", prop_oneof![20 => number(), 1 => Just(json!(9999))]),
            named("n", number()),
            named("real", (-2.0..2.0f64).prop_map(Value::from)),
            named("opt", set_of("[a-c]{2}".prop_map(Value::from))),
            named("ints", set_of(number())),
            named("some", set_of(word())),
            named("map", map_of(word())),
            named("fleeting", word()),
            named("kids", set_of(reference())),
            named("kidmap", map_of(reference())),
            named(
                "mixed",
                proptest::collection::btree_map(uuids(), reference(), 0..3).prop_map(|map| {
                    json!([
                        "map",
                        map.into_iter()
                            .map(|(key, value)| json!([["uuid", key], value]))
                            .collect::<Vec<_>>()
                    ])
                })
            ),
            named("weak", set_of(reference())),
            named("weakmap", map_of(reference())),
        ]
        .boxed(),
        "kid" => prop_oneof![
            named("name", word()),
            named("n", number()),
            named("next", set_of(reference()))
        ]
        .boxed(),
        "needs" => named("to", set_of(reference())),
        "pair" => prop_oneof![named("a", number()), named("b", set_of(word())), named("c", number())].boxed(),
        _ => named("a", number()),
    }
}

fn row(table: &'static str) -> impl Strategy<Value = Value> {
    proptest::collection::vec(field(table), 0..5).prop_map(|fields| {
        Value::Object(
            fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<Map<_, _>>(),
        )
    })
}

fn condition(table: &'static str) -> impl Strategy<Value = Value> {
    let function = prop::sample::select(vec!["==", "!=", "includes", "excludes", "<"]);
    prop_oneof![
        1 => Just(json!([])),
        6 => uuids().prop_map(|uuid| json!([["_uuid", "==", ["uuid", uuid]]])),
        2 => (field(table), function).prop_map(|((column, value), function)| json!([[column, function, value]])),
    ]
}

/// A mutation whose operator mostly suits its column.
fn mutation(table: &'static str) -> impl Strategy<Value = Value> {
    let other = prop::sample::select(vec!["insert", "delete", "+=", "-=", "*=", "/=", "%="]);
    (field(table), other, any::<bool>(), 0..10u8).prop_map(|((column, value), other, plus, odd)| {
        let mutator = match (odd, value.is_number(), plus) {
            (0, ..) => other,
            (_, true, true) => "+=",
            (_, true, false) => "-=",
            (_, false, true) => "insert",
            (_, false, false) => "delete",
        };
        json!([column, mutator, value])
    })
}

fn operation() -> impl Strategy<Value = Value> {
    let table = prop::sample::select(vec!["root", "root", "root", "kid", "kid", "needs", "pair", "few"]);
    table.prop_flat_map(|table| {
        let names = (proptest::option::of(uuids()), proptest::option::of("[ab]"));
        let insert = (row(table), names).prop_map(move |(row, (uuid, name))| {
            let mut op = insert(table, row);
            if let Some(uuid) = uuid {
 op["uuid"] = json!(uuid);
}
            if let Some(name) = name {
 op["uuid-name"] = json!(name);
}
            op
        });
        let mutations = proptest::collection::vec(mutation(table), 1..3);
        prop_oneof![
            2 => insert,
            3 => (condition(table), row(table)).prop_map(move |(condition, row)| update(table, condition, row)),
            4 => (condition(table), mutations).prop_map(move |(condition, mutations)| mutate(table, condition, json!(mutations))),
            2 => condition(table).prop_map(move |condition| delete(table, condition)),
            1 => condition(table).prop_map(move |condition| select(table, condition, &["_uuid"])),
        ]
    })
}

/// Rows that refer to each other, for the random transactions to work on.
fn population() -> Vec<Value> {
    let uuid = |n: u8| format!("00000000-0000-4000-8000-00000000000{n}");
    let to = |n: u8| json!(["uuid", uuid(n)]);
    let at = |n: u8, mut op: Value| {
        op["uuid"] = json!(uuid(n));
        op
    };
    vec![
        at(
            0,
            insert(
                "root",
                json!({"name": "a", "kids": ["set", [to(0), to(1)]], "weak": ["set", [to(1), to(3), to(4)]]}),
            ),
        ),
        at(
            1,
            insert(
                "root",
                json!({"name": "b", "mixed": ["map", [[to(0), to(4)], [to(1), to(2)]]], "kidmap": ["map", [["k", to(1)], ["l", to(2)]]]}),
            ),
        ),
        at(
            2,
            insert(
                "root",
                json!({"name": "c", "kids": to(2), "weakmap": ["map", [["k", to(0)], ["l", to(0)], ["m", to(4)]]]}),
            ),
        ),
        at(0, insert("kid", json!({"name": "0"}))),
        at(1, insert("kid", json!({"name": "1", "next": to(3)}))),
        at(2, insert("kid", json!({"name": "2", "next": to(2)}))),
        at(3, insert("kid", json!({"name": "3", "next": to(4)}))),
        at(4, insert("kid", json!({"name": "4", "next": to(1)}))),
        at(0, insert("needs", json!({"to": ["set", [to(0), to(1)]]}))),
        at(0, insert("pair", json!({"a": 1, "c": 1}))),
        at(1, insert("pair", json!({"a": 2, "b": "b", "c": 2}))),
    ]
}

fn transactions() -> impl Strategy<Value = Vec<Vec<Value>>> {
    proptest::collection::vec(proptest::collection::vec(operation(), 1..4), 1..25).prop_map(|mut transactions| {
        transactions.insert(0, population());
        transactions
    })
}

/// Rows by table and UUID, in all columns but `_uuid` and `_version`, and the ephemeral ones if
/// `persistent`.
type Contents = BTreeMap<(String, String), BTreeMap<String, Datum>>;

fn contents(db: &Database, persistent: bool) -> Contents {
    let mut contents = Contents::new();
    for (at, table) in db.schema().tables().iter().enumerate() {
        for row in db.rows(at) {
            let columns = table
                .user_columns()
                .filter(|(_, column)| column.persistent || !persistent);
            let fields = columns
                .map(|(at, column)| (column.name.clone(), row.get(at).clone()))
                .collect();
            contents.insert((table.name().to_owned(), row.uuid().to_string()), fields);
        }
    }
    contents
}

/// Applies updates of all columns as a client does.
fn follow(schema: &DatabaseSchema, replica: &mut Contents, version: MonitorVersion, updates: &Updates) {
    let updates = updates.to_json();
    for (table, rows) in updates.as_object().unwrap() {
        let definition = schema.table(table).unwrap();
        for (uuid, update) in rows.as_object().unwrap() {
            let key = (table.clone(), uuid.clone());
            let default = || {
                definition
                    .user_columns()
                    .map(|(_, column)| (column.name.clone(), column.kind.default_datum()))
            };
            // `new` comes before `old` in the form of `monitor`; in the other form there is one
            // member.
            let (kind, row) = update.as_object().unwrap().iter().next().unwrap();
            match (version, kind.as_str()) {
                (MonitorVersion::Monitor, "old") | (_, "delete") => {
                    assert!(replica.remove(&key).is_some(), "unknown row deleted");
                    continue;
                }
                (_, "modify") => assert!(replica.contains_key(&key)),
                (MonitorVersion::Monitor, _) => {}
                _ => assert!(!replica.contains_key(&key), "known row inserted"),
            }
            let values = replica.entry(key).or_insert_with(|| default().collect());
            for (column, value) in row.as_object().unwrap() {
                let Some(column) = definition.column(column).filter(|column| !column.name.starts_with('_')) else {
                    continue;
                };
                let value = Datum::from_json_relaxed(value, &column.kind, &mut no_names).unwrap();
                let old = values.get_mut(&column.name).unwrap();
                *old = if kind == "modify" {
                    old.apply_diff(&value, &column.kind)
                } else {
                    value
                };
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_transactions_leave_a_consistent_database(transactions in transactions()) {
        let mut db = database();
        let all = json!({"root": {}, "kid": {}, "needs": {}, "pair": {}, "few": {}});
        let versions = [MonitorVersion::Monitor, MonitorVersion::Cond, MonitorVersion::CondSince];
        let monitors: Vec<Monitor> = versions.iter().map(|version| Monitor::new(&db, &all, *version).unwrap()).collect();
        let mut replicas = vec![Contents::new(); monitors.len()];
        let (mut late, mut late_txn) = (Contents::new(), None);
        let mut file = log::schema_record(db.schema());

        for ops in &transactions {
            let before = dump(&db);
            let (reply, commit) = run(&mut db, json!(ops));
            db.check().unwrap();
            let failed = reply.iter().any(|result| result.get("error").is_some());
            prop_assert!(!failed || commit.is_none());
            let Some(commit) = commit else {
                prop_assert_eq!(dump(&db), before);
                continue;
            };
            file.extend(log::commit_record(db.schema(), &commit, 0).unwrap_or_default());
            for (monitor, replica) in monitors.iter().zip(&mut replicas) {
                if let Some(updates) = monitor.update(&commit) {
                    follow(db.schema(), replica, monitor.version(), &updates);
                }
                prop_assert_eq!(&*replica, &contents(&db, false));
            }
            if late_txn.is_none() {
                late = contents(&db, false);
                late_txn = Some(commit.id);
            }
        }

        if let Some(txn) = late_txn {
            let (found, updates) = monitors[2].since(&db, txn);
            prop_assert!(found);
            follow(db.schema(), &mut late, MonitorVersion::CondSince, &updates);
            prop_assert_eq!(&late, &contents(&db, false));
        }
        let replayed = log::load(&file[..], 1).unwrap();
        prop_assert_eq!(replayed.damage, None);
        replayed.database.check().unwrap();
        prop_assert_eq!(contents(&replayed.database, true), contents(&db, true));

        let mut compact = log::schema_record(db.schema());
        compact.extend(log::snapshot_record(&db, None, 0).unwrap_or_default());
        prop_assert_eq!(contents(&log::load(&compact[..], 1).unwrap().database, true), contents(&db, true));
        let converted = db.convert((**db.schema()).clone(), 3).unwrap();
        converted.check().unwrap();
        prop_assert_eq!(contents(&converted, true), contents(&db, true));
    }

    #[test]
    fn a_database_that_follows_another_has_the_same_contents(transactions in transactions()) {
        let mut db = database();
        let all = json!({"root": {}, "kid": {}, "needs": {}, "pair": {}, "few": {}});
        for (version, form) in [(MonitorVersion::Monitor, UpdateForm::Rows), (MonitorVersion::CondSince, UpdateForm::Differences)] {
            let monitor = Monitor::new(&db, &all, version).unwrap();
            let (mut steady, mut late) = (database(), database());
            steady.adopt(&monitor.initial(&db).to_json(), form, None, &|_| false).unwrap();
            for (number, ops) in transactions.iter().enumerate() {
                if let (_, Some(commit)) = run(&mut db, json!(ops)) {
                    let updates = monitor.update(&commit).unwrap().to_json();
                    // A commit may change only the version of a row, which is not sent.
                    if let Some(followed) = steady.follow(&updates, form, Some(commit.id)).unwrap() {
                        prop_assert_eq!(followed.id, commit.id);
                    }
                    steady.check().unwrap();
                    prop_assert_eq!(contents(&steady, false), contents(&db, false));
                }
                if number % 8 == 7 {
                    // As after an interruption: what was missed comes as one change.
                    let initial = monitor.initial(&db).to_json();
                    late.adopt(&initial, form, None, &|_| false).unwrap();
                    late.check().unwrap();
                    prop_assert_eq!(contents(&late, false), contents(&db, false));
                    prop_assert!(late.adopt(&initial, form, None, &|_| false).unwrap().is_none());
                }
            }
        }
    }

    #[test]
    fn a_commit_taken_back_leaves_what_was(transactions in transactions()) {
        let mut db = database();
        for ops in &transactions {
            let before = dump(&db);
            if let (_, Some(commit)) = run(&mut db, json!(ops)) {
                let after = dump(&db);
                db.revert(&commit).unwrap();
                db.check().unwrap();
                prop_assert_eq!(dump(&db), before);
                prop_assert!(db.revert(&commit).is_err());
                run(&mut db, json!(ops));
                prop_assert_eq!(dump(&db).as_object().unwrap().len(), after.as_object().unwrap().len());
            }
        }
    }

    #[test]
    fn differences_turn_the_old_value_into_the_new(a in set_of((-5..9i64).prop_map(Value::from)), b in set_of((-5..9i64).prop_map(Value::from)),
                                                   c in map_of("[a-c]".prop_map(Value::from)), d in map_of("[a-c]".prop_map(Value::from))) {
        let db = database();
        let table = db.schema().table("root").unwrap();
        for (column, old, new) in [("ints", &a, &b), ("map", &c, &d)] {
            let kind = &table.column(column).unwrap().kind;
            let (old, new) = (Datum::from_plain_json(old, kind).unwrap(), Datum::from_plain_json(new, kind).unwrap());
            prop_assert_eq!(Datum::from_plain_json(&old.to_json(kind), kind).unwrap(), old.clone());
            prop_assert_eq!(serde_json::to_value(old.json(kind)).unwrap(), old.to_json(kind));
            let diff = old.diff(&new, kind);
            prop_assert_eq!(old.apply_diff(&diff, kind), new.clone());
            prop_assert_eq!(new.subtract(&new), Datum::EMPTY);
            prop_assert!(old.union(&new).includes(&old));
            prop_assert!(old.union(&new).len() <= old.len() + new.len());
        }
    }

    #[test]
    fn any_updates_leave_a_consistent_database(transactions in transactions(), updates in any_json(), rows in any_json()) {
        let mut db = database();
        for ops in &transactions {
            run(&mut db, json!(ops));
        }
        let mut before = contents(&db, false);
        for form in [UpdateForm::Rows, UpdateForm::Differences] {
            for updates in [updates.clone(), json!({"root": {SOME_UUID: rows.clone()}})] {
                let failed = db.follow(&updates, form, None).is_err() && db.adopt(&updates, form, None, &|_| true).is_err();
                db.check().unwrap();
                prop_assert!(!failed || contents(&db, false) == before);
                before = contents(&db, false);
            }
        }
    }

    #[test]
    fn any_json_has_a_reply(ops in proptest::collection::vec(any_json(), 0..3)) {
        let mut db = database();
        let _ = db.transact(&ops, &TxnCtx::PLAIN);
        db.check().unwrap();
        for value in &ops {
            let _ = Monitor::new(&db, value, MonitorVersion::CondSince);
            let _ = DatabaseSchema::from_json(value);
        }
    }
}

/// JSON that is built of the protocol's words.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "op", "insert", "select", "table", "root", "where", "row", "set", "map", "uuid", "n", "==", "columns", "x",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::hash_map(word.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
