//! Benchmarks of the engine: transactions on a table of 10 000 rows, with what the server does for
//! each commit.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use ovsdb::{Commit, Database, DatabaseSchema, Fanout, Monitor, MonitorVersion, Outcome, TxnCtx, log};
use serde_json::{Value, json};
use std::hint::black_box;
use std::sync::Arc;

const ROWS: usize = 10_000;

const SCHEMA: &str = r#"{"name": "Bench", "version": "1.0.0", "tables": {
    "Item": {"isRoot": true, "indexes": [["name"]], "columns": {
        "name": {"type": "string"},
        "n": {"type": "integer"},
        "children": {"type": {"key": {"type": "uuid", "refTable": "Child"}, "min": 0, "max": "unlimited"}},
        "options": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
    "Child": {"columns": {"name": {"type": "string"}}}}}"#;

fn database() -> Database {
    let schema = DatabaseSchema::from_text(SCHEMA).expect("the schema is right");
    let mut db = Database::new(schema, 1);
    let rows: Vec<Value> = (0..ROWS)
        .map(|n| {
            let row = json!({"name": format!("item{n}"), "n": n, "options": ["map", [["a", "1"], ["b", "2"]]]});
            json!({"op": "insert", "table": "Item", "row": row})
        })
        .collect();
    assert!(run(&mut db, &rows).is_some());
    db
}

fn run(db: &mut Database, ops: &[Value]) -> Option<Arc<Commit>> {
    match db.transact(ops, &TxnCtx::PLAIN) {
        Outcome::Done { commit, .. } => commit,
        Outcome::Blocked { .. } => None,
    }
}

fn transactions(c: &mut Criterion) {
    let mut db = database();
    let table = db.schema().table_index("Item").unwrap_or_default();
    let uuid = db
        .rows(table)
        .next()
        .map(|row| row.uuid())
        .unwrap_or_default()
        .to_string();
    let by_uuid = json!([["_uuid", "==", ["uuid", uuid]]]);

    let mutate = [json!({"op": "mutate", "table": "Item", "where": by_uuid, "mutations": [["n", "+=", 1]]})];
    c.bench_function("mutate by uuid", |b| b.iter(|| black_box(run(&mut db, &mutate))));

    let by_name = json!([["name", "==", "item77"]]);
    let mutate_named = [json!({"op": "mutate", "table": "Item", "where": by_name, "mutations": [["n", "+=", 1]]})];
    c.bench_function("mutate by index", |b| b.iter(|| black_box(run(&mut db, &mutate_named))));

    let select = [json!({"op": "select", "table": "Item", "where": by_uuid, "columns": ["n"]})];
    c.bench_function("select by uuid", |b| {
        b.iter(|| black_box(db.transact(&select, &TxnCtx::PLAIN)))
    });

    let mut n = ROWS;
    let insert = move || {
        n += 1;
        let row = json!({"name": format!("item{n}"), "n": n});
        [json!({"op": "insert", "table": "Item", "row": row})]
    };
    c.bench_function("insert", |b| {
        b.iter_batched(insert, |ops| run(&mut db, &ops), BatchSize::SmallInput)
    });
}

fn commits(c: &mut Criterion) {
    let mut db = database();
    let mutate =
        [json!({"op": "mutate", "table": "Item", "where": [["name", "==", "item5"]], "mutations": [["n", "+=", 1]]})];
    let Some(commit) = run(&mut db, &mutate) else { return };
    c.bench_function("log record", |b| {
        b.iter(|| black_box(log::commit_record(db.schema(), &commit, 0)))
    });

    let requests = json!({"Item": [{"columns": ["name", "n"]}]});
    let monitor = || Monitor::new(&db, &requests, MonitorVersion::Cond).expect("the request is right");
    let monitors: Vec<Monitor> = (0..100).map(|_| monitor()).collect();
    c.bench_function("update of 100 alike monitors", |b| {
        b.iter(|| {
            let mut fanout = Fanout::new(&commit);
            monitors
                .iter()
                .filter_map(|monitor| fanout.text(monitor))
                .map(|text| text.len())
                .sum::<usize>()
        })
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(std::time::Duration::from_millis(300)).measurement_time(std::time::Duration::from_secs(1));
    targets = transactions, commits
}
criterion_main!(benches);
