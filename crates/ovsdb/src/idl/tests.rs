use super::*;
use crate::rows::{self, Bridge, Interface, OpenVSwitch, TypedRow, bridge, interface, open_vswitch};
use crate::{Datum, Uuid, schemas};
use serde_json::{Value, json};

const A: &str = "00000000-0000-0000-0000-00000000000a";
const B: &str = "00000000-0000-0000-0000-00000000000b";

fn uuid(text: &str) -> Uuid {
    text.parse().unwrap()
}

/// A client of the switch's database that selects three tables, and its first contents.
fn synced(rows: Value) -> Idl {
    let mut selection = Selection::new();
    rows::select::<Bridge>(&mut selection);
    rows::select::<OpenVSwitch>(&mut selection);
    selection.columns(interface::TABLE, &[interface::columns::NAME]);
    selection.quiet(interface::TABLE, &[interface::columns::STATISTICS]);
    let mut idl = Idl::new("Open_vSwitch", selection, 1);
    answer_schema(&mut idl);
    let monitor = idl.poll_send().unwrap();
    assert_eq!(monitor["method"], "monitor_cond_since");
    assert_eq!(monitor["params"][3], Uuid::ZERO.to_string());
    let events = reply(&mut idl, &monitor, json!([false, A, rows]));
    assert_eq!(events, [Event::Changed]);
    assert!(idl.is_synced());
    idl
}

fn answer_schema(idl: &mut Idl) {
    let request = idl.poll_send().unwrap();
    assert_eq!(
        (&request["method"], &request["params"]),
        (&json!("get_schema"), &json!(["Open_vSwitch"]))
    );
    let schema: Value = serde_json::from_str(schemas::OPEN_VSWITCH).unwrap();
    reply(idl, &request, schema);
}

fn reply(idl: &mut Idl, request: &Value, result: Value) -> Vec<Event> {
    idl.handle(json!({ "id": request["id"], "result": result, "error": null }))
        .unwrap()
}

fn update3(idl: &mut Idl, txn: &str, updates: Value) -> Vec<Event> {
    idl.handle(json!({ "method": "update3", "id": null, "params": [["monid", "Open_vSwitch"], txn, updates] }))
        .unwrap()
}

fn bridge_of(idl: &Idl, at: &str) -> Bridge {
    rows::get(idl.tables(), uuid(at)).unwrap().unwrap()
}

#[test]
fn rows_start_with_defaults_and_follow_differences() {
    let mut idl = synced(json!({ "Bridge": { A: { "initial": { "name": "br0", "flood_vlans": ["set", [1, 2]] } } } }));
    assert_eq!(bridge_of(&idl, A).flood_vlans, [1, 2]);
    assert!(!bridge_of(&idl, A).stp_enable);
    let modify = json!({ "stp_enable": true, "fail_mode": "secure", "flood_vlans": ["set", [2, 3]],
        "other_config": ["map", [["a", "1"], ["b", "2"]]] });
    assert_eq!(
        update3(&mut idl, B, json!({ "Bridge": { A: { "modify": modify } } })),
        [Event::Changed]
    );
    let row = bridge_of(&idl, A);
    assert_eq!(
        (row.stp_enable, row.fail_mode.as_deref(), row.flood_vlans),
        (true, Some("secure"), vec![1, 3])
    );
    let modify = json!({ "fail_mode": ["set", []], "other_config": ["map", [["a", "1"], ["b", "3"], ["c", "4"]]] });
    update3(&mut idl, A, json!({ "Bridge": { A: { "modify": modify } } }));
    let row = bridge_of(&idl, A);
    assert_eq!(row.fail_mode, None);
    assert_eq!(
        Vec::from_iter(row.other_config),
        [("b".into(), "3".into()), ("c".into(), "4".into())]
    );
    update3(
        &mut idl,
        B,
        json!({ "Bridge": { A: { "delete": null }, B: { "insert": { "name": "br1" } } } }),
    );
    assert_eq!(rows::all::<Bridge>(idl.tables()).unwrap().len(), 1);
    let changes = idl.take_changes();
    assert_eq!(changes.of("Bridge").collect::<Vec<_>>(), [(uuid(B), Change::Inserted)]);
}

#[test]
fn quiet_columns_do_not_move_the_sequence_number() {
    let mut idl = synced(json!({ "Interface": { A: { "initial": { "name": "p" } } } }));
    let before = idl.seqno();
    idl.take_changes();
    let modify = json!({ "statistics": ["map", [["rx", 1]]] });
    assert_eq!(
        update3(&mut idl, B, json!({ "Interface": { A: { "modify": modify } } })),
        []
    );
    assert_eq!(idl.seqno(), before);
    assert!(!idl.take_changes().is_empty());
    assert_eq!(
        rows::get::<Interface>(idl.tables(), uuid(A))
            .unwrap()
            .unwrap()
            .statistics["rx"],
        1
    );
}

#[test]
fn old_servers_are_monitored_by_older_methods() {
    let mut idl = Idl::new("Open_vSwitch", Selection::new().column("Bridge", "name").clone(), 1);
    answer_schema(&mut idl);
    for method in ["monitor_cond_since", "monitor_cond"] {
        let request = idl.poll_send().unwrap();
        assert_eq!(request["method"], method);
        idl.handle(json!({ "id": request["id"], "result": null, "error": "unknown method" }))
            .unwrap();
    }
    let request = idl.poll_send().unwrap();
    assert_eq!(
        request["params"],
        json!(["Open_vSwitch", ["monid", "Open_vSwitch"], { "Bridge": [{ "columns": ["name"] }] }])
    );
    reply(
        &mut idl,
        &request,
        json!({ "Bridge": { A: { "new": { "name": "br0" } } } }),
    );
    assert_eq!(
        idl.tables().find("Bridge", "name", "br0").map(|(uuid, _)| uuid),
        Some(uuid(A))
    );
    let update = json!({ "Bridge": { A: { "old": { "name": "br0" } } } });
    idl.handle(json!({ "method": "update", "id": null, "params": [null, update] }))
        .unwrap();
    assert!(idl.tables().table("Bridge").unwrap().is_empty());
}

#[test]
fn a_transaction_names_its_new_rows_and_reports_their_uuids() {
    let mut idl = synced(json!({ "Open_vSwitch": { A: { "initial": {} } } }));
    let mut txn = idl.txn();
    let row = txn.insert(bridge::TABLE);
    txn.set(bridge::TABLE, row, bridge::columns::NAME, "br0");
    txn.verify(
        idl.tables(),
        open_vswitch::TABLE,
        uuid(A),
        open_vswitch::columns::BRIDGES,
    );
    txn.set_insert(open_vswitch::TABLE, uuid(A), open_vswitch::columns::BRIDGES, row);
    txn.increment(open_vswitch::TABLE, uuid(A), open_vswitch::columns::NEXT_CFG);
    txn.comment("test");
    let view = idl.view(&txn).unwrap();
    assert_eq!(view.get("Bridge", row, "name"), Some(Datum::one("br0")));
    assert_eq!(view.get("Bridge", row, "stp_enable"), Some(Datum::one(false)));
    assert_eq!(view.get("Open_vSwitch", uuid(A), "bridges"), Some(Datum::one(row)));
    let id = idl.commit(txn);
    let request = idl.poll_send().unwrap();
    let name = format!("row{}", row.to_string().replace('-', "_"));
    let this = json!([["_uuid", "==", ["uuid", A]]]);
    assert_eq!(
        request["params"],
        json!([
            "Open_vSwitch",
            { "op": "wait", "timeout": 0, "table": "Open_vSwitch", "where": this, "columns": ["bridges"], "until": "==",
              "rows": [{ "bridges": ["set", []] }] },
            { "op": "insert", "table": "Bridge", "row": { "name": "br0" }, "uuid-name": name },
            { "op": "mutate", "table": "Open_vSwitch", "where": this,
              "mutations": [["bridges", "insert", ["set", [["named-uuid", name]]]]] },
            { "op": "mutate", "table": "Open_vSwitch", "where": this, "mutations": [["next_cfg", "+=", 1]] },
            { "op": "select", "table": "Open_vSwitch", "where": this, "columns": ["next_cfg"] },
            { "op": "comment", "comment": "test" },
        ])
    );
    let result =
        json!([{}, { "uuid": ["uuid", B] }, { "count": 1 }, { "count": 1 }, { "rows": [{ "next_cfg": 5 }] }, {}]);
    let success = TxnStatus::Success {
        inserted: [(row, uuid(B))].into(),
        increment: Some(5),
    };
    assert_eq!(reply(&mut idl, &request, result), [Event::Committed(id, success)]);
}

#[test]
fn replies_to_transactions_are_told_apart() {
    let cases = [
        (json!([{ "error": "timed out" }, null]), TxnStatus::TryAgain),
        (json!([{ "error": "not owner" }, null]), TxnStatus::NotLocked),
        (
            json!([{ "count": 1 }, { "error": "constraint violation", "details": "x" }]),
            TxnStatus::Error(r#"{"details":"x","error":"constraint violation"}"#.into()),
        ),
        (
            json!([{ "count": 1 }]),
            TxnStatus::Success {
                inserted: [].into(),
                increment: None,
            },
        ),
    ];
    for (result, status) in cases {
        let mut idl = synced(json!({ "Bridge": { A: { "initial": { "name": "br0" } } } }));
        let mut txn = idl.txn();
        txn.set("Bridge", uuid(A), "stp_enable", true);
        let id = idl.commit(txn);
        let request = idl.poll_send().unwrap();
        assert_eq!(reply(&mut idl, &request, result), [Event::Committed(id, status)]);
    }
}

#[test]
fn a_transaction_without_effect_is_not_sent() {
    let mut idl = synced(json!({}));
    let mut txn = idl.txn();
    txn.comment("nothing");
    let id = idl.commit(txn);
    assert_eq!(idl.take_events(), [Event::Committed(id, TxnStatus::Unchanged)]);
    assert_eq!(idl.poll_send(), None);
}

#[test]
fn elements_put_in_and_taken_out_are_seen_by_later_steps() {
    let rows = json!({ "Bridge": { A: { "initial": { "name": "br0", "flood_vlans": ["set", [1, 2]],
        "other_config": ["map", [["k", "v"]]] } } } });
    let mut idl = synced(rows);
    let mut txn = idl.txn();
    txn.set_insert("Bridge", uuid(A), "flood_vlans", 3i64);
    txn.set_delete("Bridge", uuid(A), "flood_vlans", 1i64);
    txn.map_put("Bridge", uuid(A), "other_config", "k", "w");
    txn.map_put("Bridge", uuid(A), "other_config", "l", "x");
    let view = idl.view(&txn).unwrap();
    assert_eq!(view.get("Bridge", uuid(A), "flood_vlans"), Some(Datum::set([2i64, 3])));
    assert_eq!(
        view.get("Bridge", uuid(A), "other_config"),
        Some(Datum::map([("k", "w"), ("l", "x")]))
    );
    idl.commit(txn);
    let request = idl.poll_send().unwrap();
    assert_eq!(
        request["params"][1]["mutations"],
        json!([
            ["flood_vlans", "delete", ["set", [1]]],
            ["flood_vlans", "insert", ["set", [3]]],
            ["other_config", "delete", ["set", ["k", "l"]]],
            ["other_config", "insert", ["map", [["k", "w"], ["l", "x"]]]],
        ])
    );
}

#[test]
fn deleted_rows_vanish_from_view_and_inserted_ones_leave_no_trace() {
    let mut idl = synced(json!({ "Bridge": { A: { "initial": { "name": "br0" } } } }));
    let mut txn = idl.txn();
    let row = txn.insert("Bridge");
    txn.delete("Bridge", row);
    assert!(txn.is_empty());
    txn.delete("Bridge", uuid(A));
    assert_eq!(idl.view(&txn).unwrap().rows("Bridge"), []);
    idl.commit(txn);
    assert_eq!(
        idl.poll_send().unwrap()["params"],
        json!(["Open_vSwitch"]),
        "the server collects rows that are not roots"
    );
}

#[test]
fn transactions_wait_for_the_lock() {
    let mut idl = Idl::new("Open_vSwitch", Selection::new().column("Bridge", "name").clone(), 1);
    idl.set_lock("ovs_vswitchd");
    answer_schema(&mut idl);
    let lock = idl.poll_send().unwrap();
    assert_eq!(
        (&lock["method"], &lock["params"]),
        (&json!("lock"), &json!(["ovs_vswitchd"]))
    );
    let monitor = idl.poll_send().unwrap();
    reply(&mut idl, &monitor, json!([false, A, {}]));
    assert_eq!(reply(&mut idl, &lock, json!({ "locked": false })), [Event::Lock(false)]);
    let txn = |idl: &mut Idl| {
        let mut txn = idl.txn();
        txn.insert("Queue");
        txn
    };
    let refused = txn(&mut idl);
    let id = idl.commit(refused);
    assert_eq!(idl.take_events(), [Event::Committed(id, TxnStatus::NotLocked)]);
    let granted = idl
        .handle(json!({ "method": "locked", "params": ["ovs_vswitchd"], "id": null }))
        .unwrap();
    assert_eq!(granted, [Event::Lock(true)]);
    let sent = txn(&mut idl);
    idl.commit(sent);
    assert_eq!(
        idl.poll_send().unwrap()["params"][1],
        json!({ "op": "assert", "lock": "ovs_vswitchd" })
    );
}

#[test]
fn a_new_connection_resumes_after_the_last_transaction() {
    let mut idl = synced(json!({ "Bridge": { A: { "initial": { "name": "br0" } } } }));
    update3(&mut idl, B, json!({}));
    let mut txn = idl.txn();
    txn.set("Bridge", uuid(A), "stp_enable", true);
    let id = idl.commit(txn);
    idl.reset();
    assert_eq!(idl.take_events(), [Event::Committed(id, TxnStatus::TryAgain)]);
    assert_eq!(idl.tables().table("Bridge").unwrap().len(), 1);
    answer_schema(&mut idl);
    let monitor = idl.poll_send().unwrap();
    assert_eq!(monitor["params"][3], B);
    reply(
        &mut idl,
        &monitor,
        json!([true, B, { "Bridge": { A: { "modify": { "stp_enable": true } } } }]),
    );
    assert!(bridge_of(&idl, A).stp_enable);
    idl.take_changes();
    idl.reset();
    answer_schema(&mut idl);
    let monitor = idl.poll_send().unwrap();
    reply(
        &mut idl,
        &monitor,
        json!([false, B, { "Bridge": { B: { "initial": { "name": "br1" } } } }]),
    );
    let changes: Vec<_> = idl.take_changes().of("Bridge").collect();
    assert_eq!(changes, [(uuid(A), Change::Deleted), (uuid(B), Change::Inserted)]);
}

#[test]
fn echo_is_answered_and_nonsense_is_an_error() {
    let mut idl = synced(json!({}));
    idl.handle(json!({ "method": "echo", "params": [1], "id": "e" }))
        .unwrap();
    assert_eq!(
        idl.poll_send(),
        Some(json!({ "id": "e", "result": [1], "error": null }))
    );
    idl.handle(json!({ "method": "dance", "params": [], "id": 9 })).unwrap();
    assert_eq!(idl.poll_send().unwrap()["error"], "unknown method");
    idl.handle(json!({ "id": 77, "result": {}, "error": null })).unwrap();
    for updates in [
        json!(3),
        json!({ "Nonsense": {} }),
        json!({ "Bridge": { "x": {} } }),
        json!({ "Bridge": { A: { "modify": {} } } }),
        json!({ "Bridge": { A: { "insert": { "name": 3 } } } }),
    ] {
        let message = json!({ "method": "update3", "id": null, "params": [null, A, updates] });
        assert!(idl.handle(message).is_err(), "{updates}");
    }
    assert_eq!(Bridge::COLUMNS, bridge::columns::ALL);
}
