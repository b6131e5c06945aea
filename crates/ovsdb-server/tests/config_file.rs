//! `--config-file`: the file names remotes and databases; a reload changes what differs, and
//! nothing if the file is wrong.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Running, Server, database, directory, eventually, insert, program, subdirectory};
use serde_json::{Value, json};

fn start(dir: &Path, config: &Value) -> Server {
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let child = command(dir).stdin(Stdio::null()).spawn().unwrap();
    let server = Server {
        child: Running(child),
        dir: dir.to_owned(),
    };
    server.connect();
    server
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new(program());
    command
        .arg(format!("--config-file={}", dir.join("config.json").display()))
        .arg(format!("--unixctl={}", dir.join("ctl").display()))
        .args(["-vconsole:off", "-vsyslog:off"])
        .env("OVS_RUNDIR", dir)
        .env("OVS_DBDIR", dir);
    command
}

fn reload(server: &Server, config: &Value) -> Result<String, String> {
    fs::write(server.dir.join("config.json"), config.to_string()).unwrap();
    server.control("ovsdb-server/reload", &[])
}

fn punix(path: &Path) -> String {
    format!("punix:{}", path.display())
}

#[test]
fn a_reload_changes_roles_and_remotes_without_closing_what_stays() {
    let dir = directory();
    let (one, two) = (subdirectory(dir.path(), "a"), subdirectory(dir.path(), "b"));
    let active = Server::start(&one, &database(&one), &[]);
    active.connect().transact(insert("theirs"));
    let source = format!("unix:{}", active.socket().display());
    database(&two);
    let remote = punix(&two.join("sock"));
    let server = start(&two, &json!({"remotes": {&remote: null}, "databases": {"d.db": {}}}));
    let mut client = server.connect();
    assert!(client.transact(insert("ours"))["result"][0]["uuid"].is_array());

    let more = punix(&two.join("more"));
    let backup = json!({"service-model": "active-backup", "backup": true, "source": {&source: null}});
    let config = json!({"remotes": {&remote: null, &more: {"read-only": true}}, "databases": {"d.db": backup}});
    assert_eq!(reload(&server, &config), Ok(String::new()));
    let status = format!("database: D\nstate: backup\nreplicating: {source}\n");
    eventually("the database is replicated", || {
        server.control("ovsdb-server/sync-status", &[]).unwrap() == status
    });
    let select = json!({"op": "select", "table": "T", "where": [], "columns": ["name"]});
    let rows = server.connect().transact(select.clone());
    assert_eq!(rows["result"][0]["rows"], json!([{"name": "theirs"}]));
    eventually("the new remote listens", || two.join("more").exists());

    let active_role = json!({"service-model": "active-backup", "backup": false});
    let config = json!({"remotes": {&remote: null}, "databases": {"d.db": active_role}});
    assert_eq!(reload(&server, &config), Ok(String::new()));
    assert_eq!(
        server.control("ovsdb-server/sync-status", &[]).unwrap(),
        "database: D\nstate: active\n"
    );
    assert!(server.connect().transact(insert("again"))["result"][0]["uuid"].is_array());
    eventually("the remote is gone", || !two.join("more").exists());

    let relay = json!({"service-model": "relay", "source": {&source: {"inactivity-probe": 0}}});
    let config = json!({"remotes": {&remote: null}, "databases": {"D": relay}});
    assert_eq!(reload(&server, &config), Ok(String::new()));
    eventually("the relay has the rows of its source", || {
        server.connect().transact(select.clone())["result"][0]["rows"] == json!([{"name": "theirs"}])
    });
}

#[test]
fn a_wrong_file_changes_nothing_and_is_named_with_place_and_rule() {
    let dir = directory();
    database(dir.path());
    let remote = punix(&dir.path().join("sock"));
    let server = start(
        dir.path(),
        &json!({"remotes": {&remote: null}, "databases": {"d.db": null}}),
    );
    let mut client = server.connect();
    let path = dir.path().join("config.json").display().to_string();
    let no_remotes = json!({});
    for (databases, rule) in [
        (
            json!({"d.db": {"service-model": "clustered"}}),
            "databases: d.db: service model 'clustered' is not supported",
        ),
        (json!({"gone.db": {}}), "databases: gone.db: No such file or directory"),
    ] {
        let error = reload(&server, &json!({"remotes": no_remotes, "databases": databases})).unwrap_err();
        assert_eq!(error.trim_end(), format!("{path}: {rule}"));
        assert_eq!(server.control("ovsdb-server/list-dbs", &[]).unwrap(), "D\n_Server\n");
        assert_eq!(
            server.control("ovsdb-server/list-remotes", &[]).unwrap(),
            format!("{remote}\n")
        );
    }
    assert!(client.transact(insert("still"))["result"][0]["uuid"].is_array());
    let error = server.control("ovsdb-server/add-remote", &["ptcp:0"]).unwrap_err();
    assert_eq!(
        error.trim_end(),
        format!("Update the {path} and use ovsdb-server/reload instead")
    );
}

#[test]
fn the_file_excludes_other_options_for_the_same() {
    let dir = directory();
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    for (argument, why) in [
        (
            "--active",
            "--config-file is mutually exclusive with --sync-from, --sync-exclude and --active",
        ),
        ("--remote=ptcp:0", "--config-file is mutually exclusive with --remote"),
        ("a.db", "Databases should be specified in a config file"),
    ] {
        let output = command(dir.path()).arg(argument).output().unwrap();
        assert!(!output.status.success());
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            format!("ovsdb-server: {why}\n")
        );
    }
    let plain = subdirectory(dir.path(), "plain");
    let server = Server::start(&plain, &database(&plain), &[]);
    let error = server.control("ovsdb-server/reload", &[]).unwrap_err();
    assert_eq!(error.trim_end(), "Configuration file was not specified on command line");
}
