//! `ovsdb-tool` against Debian's, on the same files.

mod oracle;

use std::fs;

use oracle::{Alike, Sandbox};

const SCHEMA: &str = include_str!("oracle/small.ovsschema");

fn sandbox() -> Option<Sandbox> {
    let sandbox = Sandbox::new()?;
    sandbox.write("s.ovsschema", SCHEMA);
    sandbox.write(
        "new.ovsschema",
        &SCHEMA.replace("1.2.3", "1.2.4").replace("\"a\":", "\"b\":"),
    );
    sandbox.write(
        "strict.ovsschema",
        &SCHEMA.replace("\"integer\"", "{\"key\": {\"type\": \"integer\", \"minInteger\": 10}}"),
    );
    sandbox.write("bad.json", "foo\n");
    sandbox.write("bad2.json", "{}\n");
    sandbox.write("empty.db", "");
    Some(sandbox)
}

const TRANSACTIONS: [&str; 4] = [
    r#"["Small",{"op":"insert","table":"T","row":{"name":"one","a":1,"seen":1.5,"tags":["set",["x","y z"]],"options":["map",[["k","v"]]]}},{"op":"comment","comment":"first\nof all"}]"#,
    r#"["Small",{"op":"update","table":"T","where":[["a","==",1]],"row":{"a":5,"tags":["set",["y z","z"]]}}]"#,
    r#"["Small",{"op":"delete","table":"T","where":[["a","==",5]]},{"op":"comment","comment":"gone"}]"#,
    r#"["Small",{"op":"insert","table":"T","row":{"name":"two","a":2}}]"#,
];

#[test]
fn questions_about_files_are_answered_alike() {
    let Some(sandbox) = sandbox() else { return };
    assert_eq!(
        sandbox.theirs(&["ovsdb-tool", "create", "t.db", "s.ovsschema"]).status,
        Some(0)
    );
    for transaction in TRANSACTIONS {
        let said = sandbox.theirs(&["ovsdb-tool", "transact", "t.db", transaction]);
        assert_eq!(said.status, Some(0), "{said:?}");
    }
    let whole = fs::read(sandbox.path("t.db")).unwrap();
    fs::write(sandbox.path("torn.db"), &whole[..whole.len() - 5]).unwrap();
    let cluster = ["ovsdb-tool", "create-cluster", "c.db", "s.ovsschema", "tcp:127.0.0.1:1"];
    assert_eq!(sandbox.theirs(&cluster).status, Some(0));

    use Alike::{Exactly, Lines, Output};
    let mut cases: Vec<(Alike, String)> = Vec::new();
    for command in [
        "db-name",
        "db-version",
        "db-cksum",
        "db-cid",
        "db-is-clustered",
        "db-is-standalone",
    ] {
        for file in ["t.db", "nofile", "bad.json", "empty.db"] {
            cases.push((Exactly, format!("{command} {file}")));
        }
    }
    for command in ["schema-name", "schema-version", "schema-cksum"] {
        cases.push((Exactly, format!("{command} s.ovsschema")));
        cases.push((Exactly, format!("{command} nofile")));
        cases.push((Exactly, format!("{command} bad2.json")));
        cases.push((Output, format!("{command} bad.json")));
    }
    for comparison in [
        "1.2.3 < 1.2.4",
        "1.2.3 == 1.2.3",
        "1.2.3 > 1.2.3",
        "1.2 < 1.2.3",
        "a < b",
        "1.2.3 ~ 1.2.3",
        "1.2.3 != 1.2.4",
        "1.2.3 >= 1.2.3",
        "1.2.3 <= 0.9.9",
        "1.2.3",
    ] {
        cases.push((Exactly, format!("compare-versions {comparison}")));
    }
    for detail in ["", "-m ", "-mm ", "-m -m -m "] {
        cases.push((Lines, format!("{detail}show-log t.db")));
        cases.push((Output, format!("{detail}show-log torn.db")));
    }
    for command in [
        "db-is-clustered c.db",
        "db-is-standalone c.db",
        "db-version c.db",
        "compact c.db",
        "query c.db [\"Small\"]",
        "needs-conversion t.db s.ovsschema",
        "needs-conversion t.db new.ovsschema",
        "create t.db s.ovsschema",
        "create /nonexistent/t.db s.ovsschema",
        "show-log nofile",
        "show-log bad.json",
        "create a b c",
        "frobnicate",
        "",
        "--foo",
        "db-name t.db -m",
        "transact t.db []",
        "transact t.db [\"Other\"]",
        "transact t.db [\"Small\",{\"op\":\"x\"}]",
    ] {
        cases.push((Exactly, command.to_owned()));
    }
    cases.push((Output, "query torn.db [\"Small\"]".to_owned()));
    cases.push((Output, "transact t.db foo".to_owned()));
    // Theirs quotes the first value of the file's past, ours the one that is there.
    cases.push((Output, "convert t.db strict.ovsschema".to_owned()));
    for (alike, line) in cases {
        let words: Vec<&str> = std::iter::once("ovsdb-tool")
            .chain(line.split(' ').filter(|w| !w.is_empty()))
            .collect();
        sandbox.compare(alike, &words);
    }
    let select = r#"["Small",{"op":"select","table":"T","where":[],"columns":["name","a","tags","seen"]}]"#;
    sandbox.compare(Exactly, &["ovsdb-tool", "query", "t.db", select]);
    assert_eq!(
        fs::read(sandbox.path("t.db")).unwrap(),
        whole,
        "nothing of this changed the file"
    );
}

#[test]
fn what_ours_writes_theirs_reads() {
    let Some(sandbox) = sandbox() else { return };
    assert_eq!(sandbox.ours(&["ovsdb-tool", "create", "t.db", "s.ovsschema"]).err, "");
    for transaction in TRANSACTIONS {
        let ours = sandbox.ours(&["ovsdb-tool", "transact", "t.db", transaction]);
        assert_eq!((ours.status, ours.err.as_str()), (Some(0), ""));
    }
    sandbox.compare(Alike::Lines, &["ovsdb-tool", "-mm", "show-log", "t.db"]);
    let select = r#"["Small",{"op":"select","table":"T","where":[]}]"#;
    let before = sandbox.theirs(&["ovsdb-tool", "query", "t.db", select]);
    assert!(before.out.contains("two"), "{before:?}");

    assert_eq!(sandbox.ours(&["ovsdb-tool", "compact", "t.db"]).err, "");
    sandbox.compare(Alike::Lines, &["ovsdb-tool", "-mm", "show-log", "t.db"]);
    assert_eq!(
        sandbox
            .ours(&["ovsdb-tool", "convert", "t.db", "new.ovsschema", "u.db"])
            .err,
        ""
    );
    sandbox.compare(Alike::Lines, &["ovsdb-tool", "-mm", "show-log", "u.db"]);
    sandbox.compare(Alike::Exactly, &["ovsdb-tool", "db-version", "u.db"]);
}

#[test]
fn a_file_that_a_server_has_open_is_not_touched() {
    let Some(mut sandbox) = sandbox() else { return };
    sandbox.start_server(&[("t.db", "s.ovsschema")]);
    for words in [
        &["compact", "t.db"][..],
        &["convert", "t.db", "new.ovsschema"],
        &["transact", "t.db", r#"["Small"]"#],
    ] {
        sandbox.compare(Alike::Exactly, &[&["ovsdb-tool"][..], words].concat());
    }
}
