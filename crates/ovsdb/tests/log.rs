//! The database file: its bytes, and missing or damaged records.

mod common;

use common::*;
use ovsdb::{Database, log};
use serde_json::{Value, json};

/// A file of three transactions, with the offset where each record ends.
fn file() -> (Database, Vec<u8>, Vec<usize>) {
    let mut db = database();
    let mut bytes = log::schema_record(db.schema());
    let mut ends = vec![bytes.len()];
    let transactions = [
        json!([insert("root", json!({"name": "a\nb", "ints": ["set", [1, 2]], "opt": "ab", "map": ["map", [["k", "v"]]]})),
               {"op": "comment", "comment": "one"}, {"op": "comment", "comment": "two"}]),
        json!([update(
            "root",
            json!([]),
            json!({"ints": ["set", [2, 3]], "opt": "cd", "map": ["map", [["k", "w"]]], "n": 7, "fleeting": "x"})
        )]),
        json!([
            insert("few", json!({})),
            update("root", json!([]), json!({"opt": ["set", []]}))
        ]),
    ];
    for ops in transactions {
        let commit = commit(&mut db, ops);
        bytes.extend(log::commit_record(db.schema(), &commit, 1_700_000_000_000).unwrap());
        ends.push(bytes.len());
    }
    (db, bytes, ends)
}

#[test]
fn records_are_a_header_line_and_a_json_line() {
    let (_, bytes, ends) = file();
    let text = std::str::from_utf8(&bytes[ends[1]..ends[2]]).unwrap();
    let (header, body) = text.split_once('\n').unwrap();
    let words: Vec<&str> = header.split(' ').collect();
    assert_eq!(words[..3], ["OVSDB", "JSON", body.len().to_string().as_str()]);
    assert_eq!(words[3].len(), 40);
    let mut json: Value = serde_json::from_str(body).unwrap();
    let rows = json["root"].as_object_mut().unwrap();
    let row = rows.values().next().unwrap().clone();
    assert_eq!(
        row,
        json!({"ints": ["set", [1, 3]], "opt": "cd", "map": ["map", [["k", "w"]]], "n": 7})
    );
    assert_eq!(
        (&json["_date"], &json["_is_diff"]),
        (&json!(1_700_000_000_000i64), &json!(true))
    );
    let first: Value = serde_json::from_slice(bytes[ends[0]..ends[1]].split(|&c| c == b'\n').nth(1).unwrap()).unwrap();
    assert_eq!(first["_comment"], "one\ntwo");
}

#[test]
fn changes_of_ephemeral_columns_alone_are_not_written() {
    let mut db = database();
    commit(&mut db, json!([insert("root", json!({}))]));
    let commit = commit(&mut db, json!([update("root", json!([]), json!({"fleeting": "x"}))]));
    assert_eq!(log::commit_record(db.schema(), &commit, 0), None);
}

#[test]
fn a_deleted_row_is_null_and_a_new_one_has_what_is_not_default() {
    let mut db = database();
    let first = commit(&mut db, json!([insert("few", json!({}))]));
    let last = commit(&mut db, json!([delete("few", json!([]))]));
    let body = |commit| -> Value {
        let record = log::commit_record(db.schema(), commit, 0).unwrap();
        serde_json::from_slice(record.split(|&c| c == b'\n').nth(1).unwrap()).unwrap()
    };
    let uuid = first.changes[0].uuid.to_string();
    assert_eq!(body(&first)["few"][&uuid], json!({}));
    assert_eq!(body(&last)["few"][&uuid], Value::Null);
}

#[test]
fn a_file_cut_at_any_byte_of_its_last_record_reads_to_the_record_before() {
    let (_, bytes, ends) = file();
    for cut in ends[2]..ends[3] {
        let loaded = log::load(&bytes[..cut], 1).unwrap();
        assert_eq!(
            (loaded.transactions, loaded.good_length),
            (2, ends[2] as u64),
            "cut at {cut}"
        );
        assert_eq!(loaded.damage.is_some(), cut > ends[2], "cut at {cut}");
        assert!(loaded.damage.is_none_or(|damage| damage.offset == ends[2] as u64));
        loaded.database.check().unwrap();
    }
    let whole = log::load(&bytes[..], 1).unwrap();
    assert_eq!(
        (whole.transactions, whole.good_length, whole.damage),
        (3, bytes.len() as u64, None)
    );
}

#[test]
fn a_byte_changed_anywhere_in_the_last_record_is_noticed() {
    let (_, bytes, ends) = file();
    for at in ends[2]..ends[3] {
        let mut bad = bytes.clone();
        bad[at] ^= 0x21;
        let loaded = log::load(&bad[..], 1).unwrap();
        assert_eq!(loaded.good_length, ends[2] as u64, "changed at {at}");
        assert!(loaded.damage.is_some());
    }
}

#[test]
fn a_record_with_nul_in_a_string_is_damage_as_for_open_vswitch() {
    use sha1_smol::Sha1;
    let (db, mut bytes, ends) = file();
    let uuid = db.rows(db.schema().table_index("root").unwrap()).next().unwrap().uuid();
    let body = format!("{{\"root\":{{\"{uuid}\":{{\"name\":\"a\\u0000b\"}}}}}}\n");
    let sum = Sha1::from(&body).digest();
    bytes.extend(format!("OVSDB JSON {} {sum}\n{body}", body.len()).bytes());
    let loaded = log::load(&bytes[..], 1).unwrap();
    assert_eq!(loaded.good_length, ends[3] as u64);
    let damage = loaded.damage.unwrap();
    assert_eq!(damage.offset, ends[3] as u64);
    assert!(
        damage.reason.contains("null bytes not supported in quoted strings"),
        "{damage}"
    );
}

#[test]
fn garbage_after_the_last_record_is_cut_off() {
    let (_, bytes, ends) = file();
    let sum = "0".repeat(40);
    for tail in [
        "\n",
        "garbage",
        "OVSDB JSON 999999999999999999 0",
        "OVSDB CLUSTER 5 x\n",
        "OVSDB JSON 18446744073709551616 x\n",
    ] {
        let mut bad = bytes.clone();
        bad.extend_from_slice(tail.as_bytes());
        assert_eq!(log::load(&bad[..], 1).unwrap().good_length, ends[3] as u64, "{tail}");
    }
    let mut bad = bytes.clone();
    bad.extend_from_slice(format!("OVSDB JSON 999999999999999 {sum}\n{{}}").as_bytes());
    let loaded = log::load(&bad[..], 1).unwrap();
    assert_eq!(loaded.good_length, ends[3] as u64);
    assert!(loaded.damage.unwrap().reason.contains("missing"));
    bad.truncate(ends[3]);
    bad.resize(ends[3] + 4096, 0);
    assert_eq!(
        log::load(&bad[..], 1).unwrap().good_length,
        ends[3] as u64,
        "a tail of zeros"
    );
}

#[test]
fn a_good_record_that_does_not_fit_the_rows_stops_the_reading() {
    let (db, bytes, ends) = file();
    let body = |json: Value| format!("{json}\n");
    let record = |body: &str| {
        format!(
            "OVSDB JSON {} {}\n{body}",
            body.len(),
            sha1_smol::Sha1::from(body).digest()
        )
    };
    let uuid = db
        .rows(db.schema().table_index("root").unwrap())
        .next()
        .unwrap()
        .uuid()
        .to_string();
    for json in [
        json!({"nope": {}}),
        json!({"root": 5}),
        json!({"root": {"x": {}}}),
        json!({"root": {SOME_UUID: null}}),
        json!({"root": {SOME_UUID: 5}}),
        json!({"root": {uuid.clone(): {"nope": 1}}}),
        json!({"root": {uuid.clone(): {"n": "x"}}}),
        json!({"_is_diff": true, "root": {uuid.clone(): {"some": ["set", [""]]}}}),
    ] {
        let mut bad = bytes.clone();
        bad.extend_from_slice(record(&body(json.clone())).as_bytes());
        let loaded = log::load(&bad[..], 1).unwrap();
        assert_eq!(loaded.good_length, ends[3] as u64, "{json}");
        loaded.database.check().unwrap();
    }
}

#[test]
fn records_of_whole_values_are_read_as_well() {
    let (db, bytes, _) = file();
    let uuid = db
        .rows(db.schema().table_index("root").unwrap())
        .next()
        .unwrap()
        .uuid()
        .to_string();
    let body = format!(
        "{}\n",
        json!({"_date": 1, "root": {uuid: {"ints": ["set", [9]], "opt": "zz"}}})
    );
    let mut more = bytes.clone();
    more.extend_from_slice(
        format!(
            "OVSDB JSON {} {}\n{body}",
            body.len(),
            sha1_smol::Sha1::from(&body).digest()
        )
        .as_bytes(),
    );
    let mut loaded = log::load(&more[..], 1).unwrap();
    assert_eq!(loaded.damage, None);
    assert_eq!(
        rows(&mut loaded.database, "root", &["ints", "opt", "n"]),
        [json!({"ints": 9, "opt": "zz", "n": 7})]
    );
}

#[test]
fn without_a_schema_there_is_no_database() {
    for bytes in [
        "",
        "x",
        "OVSDB JSON 3 0000000000000000000000000000000000000000\n{}\n",
        "OVSDB CLUSTER 3 0000000000000000000000000000000000000000\n{}\n",
    ] {
        assert!(log::load(bytes.as_bytes(), 1).is_err());
    }
}
