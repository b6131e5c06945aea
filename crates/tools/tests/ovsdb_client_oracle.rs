//! `ovsdb-client` against Debian's, both talking to Debian's server.

mod oracle;

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use oracle::{Alike, Sandbox};

const SCHEMA: &str = include_str!("oracle/small.ovsschema");

const FILL: &str = r#"["Small",
 {"op":"insert","table":"T","uuid-name":"one","row":{"name":"one","a":1,"seen":1.5,
   "tags":["set",["x","y z","<&\""]],"options":["map",[["k","v"],["l","a,b"]]]}},
 {"op":"insert","table":"T","row":{"name":"two","a":2,"peers":["named-uuid","one"]}},
 {"op":"insert","table":"T","row":{"name":"three","a":2,"tags":"\u00e4"}}]"#;

fn sandbox() -> Option<Sandbox> {
    let mut sandbox = Sandbox::new()?;
    sandbox.write("s.ovsschema", SCHEMA);
    sandbox.write("new.ovsschema", &SCHEMA.replace("1.2.3", "1.2.4"));
    sandbox.write("bad.json", "foo\n");
    sandbox.write("bad2.json", "{}\n");
    sandbox.start_server(&[("t.db", "s.ovsschema")]);
    let said = sandbox.theirs(&["ovsdb-client", "transact", FILL]);
    assert_eq!(said.status, Some(0), "{said:?}");
    Some(sandbox)
}

#[test]
fn questions_are_answered_alike() {
    let Some(sandbox) = sandbox() else { return };
    use Alike::{Exactly, Lines, Output, Status};
    let mut cases: Vec<(Alike, String)> = Vec::new();
    for format in ["table", "list", "html", "csv", "json"] {
        for data in ["string", "bare", "json"] {
            let style = format!("-f {format} -d {data}");
            cases.push((Exactly, format!("{style} dump Small")));
            cases.push((Exactly, format!("{style} --no-headings dump Small T name tags")));
            cases.push((Exactly, format!("{style} --pretty dump Small T options a")));
        }
    }
    for line in [
        "list-tables",
        "list-columns Small",
        "list-columns Small T",
        "list-columns Small Nope",
    ] {
        cases.push((Lines, line.to_owned()));
    }
    for line in [
        "list-dbs",
        "get-schema",
        "--pretty get-schema",
        "get-schema _Server",
        "get-schema-version",
        "get-schema-cksum",
        "get-schema unix:db.sock Small",
        "dump T",
        "dump T _version _uuid",
        "dump Small Nope",
        "dump Small T nope",
        "--bare dump T name",
        "--max-column-width=5 dump T",
        "list-dbs foo:db.sock",
        "list-dbs unix:nothere",
        "list-dbs tcp:127.0.0.1:1",
        "list-dbs ssl:127.0.0.1:1",
        "-vfoo list-dbs",
        "list-dbs --no",
        "--pretty=x",
        "--format",
        "-q",
        "--format=foo",
        "--data=foo",
        "",
        "foo",
        "get-schema a b c d",
        "list-tables foo",
        "transact {}",
        "transact []",
        "transact [1]",
        "transact",
        "query []",
        "query [\"nodb\"]",
        "wait Small added",
        "wait Small connected",
        "wait nodb removed",
        "wait Small foo",
        "-t 1 wait nodb added",
        "needs-conversion s.ovsschema",
        "needs-conversion new.ovsschema",
        "needs-conversion nofile",
        "needs-conversion bad2.json",
        "monitor Nope",
        "monitor T nope",
        "monitor T !foo",
        "monitor T name name",
        "monitor",
        "monitor-cond T",
        "unlock",
        "-t x list-dbs",
    ] {
        cases.push((Exactly, line.to_owned()));
    }
    cases.push((Output, "transact foo".to_owned()));
    cases.push((Output, "needs-conversion bad.json".to_owned()));
    cases.push((Output, "monitor-cond [1] T".to_owned()));
    cases.push((Status, "list-dbs tcp:".to_owned()));
    for (alike, line) in cases {
        let words: Vec<&str> = std::iter::once("ovsdb-client")
            .chain(line.split(' ').filter(|w| !w.is_empty()))
            .collect();
        sandbox.compare(alike, &words);
    }
    for transaction in [
        r#"["Small",{"op":"select","table":"T","where":[["a","==",1]],"columns":["name","options"]}]"#,
        r#"["nodb",{"op":"select"}]"#,
        r#"["Small",{"op":"foo"}]"#,
    ] {
        for command in ["transact", "query"] {
            sandbox.compare(Exactly, &["ovsdb-client", command, transaction]);
            sandbox.compare(Exactly, &["ovsdb-client", "--pretty", command, transaction]);
        }
    }
}

#[test]
fn backups_of_either_are_restored_by_either() {
    let Some(sandbox) = sandbox() else { return };
    let theirs = sandbox.command("ovsdb-client").arg("backup").output().unwrap().stdout;
    let ours = sandbox
        .our_command(&["ovsdb-client", "backup"])
        .output()
        .unwrap()
        .stdout;
    let dump = || {
        sandbox
            .theirs(&["ovsdb-client", "dump", "T", "name", "a", "tags", "options"])
            .out
    };
    let before = dump();
    for backup in [&theirs, &ours] {
        let restore = ["ovsdb-client", "restore"];
        let clear = r#"["Small",{"op":"delete","table":"T","where":[]}]"#;
        for ours in [false, true] {
            sandbox.theirs(&["ovsdb-client", "transact", clear]);
            sandbox.write("backup", "");
            fs::write(sandbox.path("backup"), backup).unwrap();
            let file = fs::File::open(sandbox.path("backup")).unwrap();
            let mut command = match ours {
                true => sandbox.our_command(&restore),
                false => sandbox.command("ovsdb-client"),
            };
            if !ours {
                command.arg("restore");
            }
            let output = command.stdin(Stdio::from(file)).output().unwrap();
            assert!(output.status.success(), "ours: {ours}: {output:?}");
            assert_eq!(dump(), before);
            let peers = sandbox.theirs(&["ovsdb-client", "-f", "csv", "dump", "T", "name", "peers"]);
            let pointing = peers.out.lines().filter(|line| line.len() > 36).count();
            assert_eq!(pointing, 1, "references survive: {peers:?}");
        }
    }
    for input in [&b""[..], b"{}", b"foo"] {
        let (theirs, ours) = sandbox.both_with_input(&["ovsdb-client", "restore"], input);
        assert_eq!(theirs, ours);
    }
}

#[test]
fn a_database_is_converted_by_either() {
    let Some(sandbox) = sandbox() else { return };
    assert_eq!(sandbox.ours(&["ovsdb-client", "convert", "new.ovsschema"]).err, "");
    assert_eq!(sandbox.theirs(&["ovsdb-client", "get-schema-version"]).out, "1.2.4\n");
    sandbox.compare(Alike::Exactly, &["ovsdb-client", "convert", "s.ovsschema"]);
}

#[test]
fn changes_are_watched_alike() {
    let Some(sandbox) = sandbox() else { return };
    for (number, line) in [
        "monitor T name,a",
        "monitor Small T a !initial,tags",
        "-f csv monitor T name,a,!modify",
        "-f json monitor T name,a,options",
        "-f list monitor T name,a",
        "monitor-cond [[\"name\",\"==\",\"new\"]] T name,a,tags",
        "monitor-cond-since [] T name,a",
        "monitor ALL",
    ]
    .iter()
    .enumerate()
    {
        let words: Vec<&str> = std::iter::once("ovsdb-client").chain(line.split(' ')).collect();
        let files = [
            sandbox.path(&format!("theirs{number}")),
            sandbox.path(&format!("ours{number}")),
        ];
        let mut theirs = sandbox.command(words[0]);
        theirs.args(&words[1..]);
        let mut children = Vec::new();
        for (mut command, file) in [theirs, sandbox.our_command(&words)].into_iter().zip(&files) {
            let out = fs::File::create(file).unwrap();
            children.push(command.stdout(out).stderr(Stdio::null()).spawn().unwrap());
        }
        // Both print the rows that there are first; one command here has none to print.
        let started = || files.iter().all(|f| fs::metadata(f).is_ok_and(|m| m.len() > 0));
        let end = Instant::now() + Duration::from_secs(if line.contains("\"new\"") { 1 } else { 10 });
        while !started() && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        for operation in [
            r#"{"op":"insert","table":"T","row":{"name":"new","a":7}}"#,
            r#"{"op":"update","table":"T","where":[["a","==",7]],"row":{"a":8,"tags":"q"}}"#,
            r#"{"op":"mutate","table":"T","where":[["a","==",8]],"mutations":[["options","insert",["map",[["x","y"]]]]]}"#,
            r#"{"op":"delete","table":"T","where":[["a","==",8]]}"#,
        ] {
            let said = sandbox.theirs(&["ovsdb-client", "transact", &format!(r#"["Small",{operation}]"#)]);
            assert_eq!(said.status, Some(0), "{said:?}");
        }
        sleep(Duration::from_millis(200));
        let by_rows = !line.contains("list") && !line.contains("json");
        let read = |file| normalized(&fs::read_to_string(file).unwrap(), by_rows);
        let end = Instant::now() + Duration::from_secs(5);
        while read(&files[0]) != read(&files[1]) && Instant::now() < end {
            sleep(Duration::from_millis(20));
        }
        for child in &mut children {
            let _ = child.kill();
            let _ = child.wait();
        }
        assert!(!read(&files[0]).is_empty(), "{line}");
        assert_eq!(read(&files[0]), read(&files[1]), "{line}");
    }
}

/// The output of a monitor without the order of its initial rows, which is theirs to choose. Where
/// rows are not lines, without any order.
fn normalized(text: &str, by_rows: bool) -> String {
    if !by_rows {
        let mut chars: Vec<char> = text.chars().collect();
        chars.sort_unstable();
        return chars.into_iter().collect();
    }
    let mut blocks: Vec<Vec<&str>> = text.split("\n\n").map(|block| block.lines().collect()).collect();
    blocks.iter_mut().take(3).for_each(|block| block.sort_unstable());
    blocks.iter().map(|b| b.join("\n")).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn a_detached_client_goes_on_printing_and_is_controlled_by_appctl() {
    let Some(sandbox) = sandbox() else { return };
    let run = |words: &[&str], out: &str| {
        let out = fs::File::create(sandbox.path(out)).unwrap();
        let mut command = sandbox.our_command(words);
        command.stdout(out).status().unwrap()
    };
    let daemon = ["ovsdb-client", "--detach", "--no-chdir", "--pidfile"];
    let appctl = |words: &[&str]| sandbox.theirs(&[&["ovs-appctl", "-t", "ovsdb-client"][..], words].concat());
    let ends = || {
        assert_eq!(appctl(&["exit"]).status, Some(0));
        let end = Instant::now() + Duration::from_secs(5);
        while sandbox.path("ovsdb-client.pid").exists() {
            assert!(Instant::now() < end, "exit ends it");
            sleep(Duration::from_millis(20));
        }
    };

    assert!(run(&[&daemon[..], &["monitor-cond", "[]", "T", "name,a"]].concat(), "out").success());
    let out = || fs::read_to_string(sandbox.path("out")).unwrap();
    assert!(out().contains("initial three 2"), "{}", out());
    let listed = appctl(&["list-commands"]).out;
    assert!(listed.contains("\n  ovsdb-client/cond_change TABLE COND\n"), "{listed}");
    let condition = r#"[["name","==","three"]]"#;
    assert_eq!(appctl(&["ovsdb-client/cond_change", "T", condition]).err, "");
    let end = Instant::now() + Duration::from_secs(5);
    while out().matches("delete").count() < 2 {
        assert!(Instant::now() < end, "rows that no longer match go: {}", out());
        sleep(Duration::from_millis(20));
    }
    ends();

    assert!(run(&[&daemon[..], &["lock", "l"]].concat(), "out").success());
    assert_eq!(out(), "{\"locked\":true}\n");
    assert_eq!(appctl(&["lock", "m"]).out, "{\"locked\":true}\n");
    assert_eq!(appctl(&["unlock", "m"]).out, "{}\n");
    assert_eq!(
        sandbox.theirs(&["ovsdb-client", "-t", "1", "lock", "l"]).out,
        "{\"locked\":false}\n"
    );
    ends();
}
