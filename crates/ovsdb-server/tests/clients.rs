//! Clients of the other implementation, unmodified, against this server.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Server, database, directory, insert, other, output};
use serde_json::{Value, json};

fn switch_database(dir: &Path) -> std::path::PathBuf {
    let file = dir.join("conf.db");
    let schema = ovsdb::DatabaseSchema::from_text(ovsdb::schemas::OPEN_VSWITCH).unwrap();
    fs::write(&file, ovsdb::log::schema_record(&schema)).unwrap();
    file
}

fn remote(server: &Server) -> String {
    format!("unix:{}", server.socket().display())
}

#[test]
fn ovs_vsctl_configures_a_switch() {
    let Some(vsctl) = other("ovs-vsctl") else { return };
    let dir = directory();
    let file = switch_database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    let run = |args: &[&str]| {
        output(
            Command::new(&vsctl)
                .arg(format!("--db={}", remote(&server)))
                .arg("--no-wait")
                .args(args),
        )
    };
    run(&["init"]);
    run(&[
        "add-br",
        "br0",
        "--",
        "set",
        "bridge",
        "br0",
        "other_config:hwaddr=02:00:00:00:00:01",
    ]);
    run(&[
        "add-port",
        "br0",
        "p1",
        "tag=10",
        "--",
        "set",
        "interface",
        "p1",
        "type=internal",
    ]);
    assert_eq!(run(&["list-ports", "br0"]), "p1\n");
    assert_eq!(run(&["get", "port", "p1", "tag"]), "10\n");
    assert!(run(&["show"]).contains("Bridge br0"));
    run(&["del-br", "br0"]);
    assert_eq!(run(&["list-br"]), "");
    if let Some(tool) = other("ovsdb-tool") {
        let log = output(Command::new(tool).arg("show-log").arg(&file));
        assert!(log.contains("ovs-vsctl"), "{log}");
    }
}

#[test]
fn ovsdb_client_reads_writes_and_watches() {
    let Some(client) = other("ovsdb-client") else { return };
    let dir = directory();
    let server = Server::start(dir.path(), &database(dir.path()), &[]);
    let remote = remote(&server);
    let run = |args: &[&str]| output(Command::new(&client).args(args));
    assert_eq!(run(&["list-dbs", &remote]), "D\n_Server\n");
    assert_eq!(run(&["get-schema-version", &remote, "D"]), "1.0.0\n");

    let watching = Command::new(&client)
        .args(["monitor", &remote, "D", "T", "name", "--format=json"])
        .stdout(Stdio::piped())
        .spawn();
    let mut watching = common::Running(watching.unwrap());
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    while !server.control("memory/show", &[]).unwrap().contains("monitors:1") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let reply = run(&["transact", &remote, &json!(["D", insert("a")]).to_string()]);
    assert!(
        serde_json::from_str::<Value>(&reply).unwrap()[0]["uuid"].is_array(),
        "{reply}"
    );
    let heard = lines
        .find_map(|line| Some(line.unwrap()).filter(|line| line.contains("\"insert\"")))
        .unwrap();
    assert!(heard.contains("\"a\""), "{heard}");

    let dump = run(&["dump", &remote, "D"]);
    assert!(dump.contains("T table") && dump.contains('a'), "{dump}");
    let backup = run(&["backup", &remote, "D"]);
    assert!(backup.contains("\"name\":\"a\""), "{backup}");
}

#[test]
fn ovsdb_client_converts_online_and_waits() {
    let Some(client) = other("ovsdb-client") else { return };
    let dir = directory();
    let server = Server::start(dir.path(), &database(dir.path()), &[]);
    let remote = remote(&server);
    server.connect().transact(insert("a"));
    let schema = dir.path().join("new.ovsschema");
    fs::write(
        &schema,
        common::SCHEMA
            .replace("1.0.0", "1.1.0")
            .replace(r#""n":"#, r#""extra": {"type": "string"}, "n":"#),
    )
    .unwrap();
    let schema = schema.to_str().unwrap();
    let run = |args: &[&str]| output(Command::new(&client).args(args));
    assert_eq!(run(&["needs-conversion", &remote, schema]), "yes\n");
    run(&["convert", &remote, schema]);
    assert_eq!(run(&["needs-conversion", &remote, schema]), "no\n");
    run(&["--timeout=5", "wait", &remote, "D", "connected"]);
    assert_eq!(server.connect().names(), ["a"]);
    server.connect().transact(insert("b"));
    let file = dir.path().join("d.db");
    server.kill();
    let server = Server::start(dir.path(), &file, &[]);
    assert_eq!(server.connect().names(), ["a", "b"]);
    assert_eq!(
        server.connect().call("get_schema", json!(["D"]))["result"]["version"],
        "1.1.0"
    );
}

#[test]
fn ovs_appctl_directs_the_server() {
    let Some(appctl) = other("ovs-appctl") else { return };
    let dir = directory();
    let mut server = Server::start(dir.path(), &database(dir.path()), &[]);
    let target = dir.path().join("ctl");
    let run = |args: &[&str]| output(Command::new(&appctl).arg("-t").arg(&target).args(args));
    assert!(run(&["version"]).starts_with("ovsdb-server (Open vSwitch) 3.5.0\n"));
    assert_eq!(run(&["ovsdb-server/list-dbs"]), "D\n_Server\n");
    assert_eq!(run(&["ovsdb-server/sync-status"]), "state: active\n");
    let second = dir.path().join("second");
    let second_remote = format!("punix:{}", second.display());
    run(&["ovsdb-server/add-remote", &second_remote]);
    while !second.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(run(&["ovsdb-server/list-remotes"]).contains(&second_remote));
    run(&["ovsdb-server/remove-remote", &second_remote]);
    while second.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    run(&["ovsdb-server/remove-db", "D"]);
    assert_eq!(run(&["ovsdb-server/list-dbs"]), "_Server\n");
    run(&["ovsdb-server/add-db", dir.path().join("d.db").to_str().unwrap()]);
    assert_eq!(run(&["ovsdb-server/list-dbs"]), "D\n_Server\n");
    let mut client = server.connect();
    run(&["ovsdb-server/reconnect"]);
    assert_eq!(client.recv(), None);
    run(&["exit"]);
    assert!(server.child.wait().unwrap().success());
    assert!(!dir.path().join("sock").exists());
}

#[test]
fn managers_in_the_database_are_listened_on_and_told_so() {
    let dir = directory();
    let file = switch_database(dir.path());
    let server = Server::start(
        dir.path(),
        &file,
        &["--remote=db:Open_vSwitch,Open_vSwitch,manager_options"],
    );
    let mut client = server.connect();
    let socket = dir.path().join("managed");
    let manager = |name: &str, target: String| json!({"op": "insert", "table": "Manager", "uuid-name": name, "row": {"target": target}});
    let managers = json!(["set", [["named-uuid", "a"], ["named-uuid", "b"]]]);
    let params = json!([
        "Open_vSwitch",
        manager("a", format!("punix:{}", socket.display())),
        manager("b", "ptls:6640".into()),
        {"op": "insert", "table": "Open_vSwitch", "row": {"manager_options": managers}},
    ]);
    let reply = client.call("transact", params);
    assert!(reply["error"].is_null() && reply["result"][3].is_null(), "{reply}");
    // The file is there a moment before somebody listens.
    let stream = loop {
        match std::os::unix::net::UnixStream::connect(&socket) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    let mut managed = common::Client::new(stream);
    assert!(managed.call("list_dbs", json!([]))["result"].is_array());
    let select = json!(["Open_vSwitch", {"op": "select", "table": "Manager", "where": [], "columns": ["target", "is_connected", "status"]}]);
    let connected = loop {
        let reply = client.call("transact", select.clone());
        let rows = reply["result"][0]["rows"].as_array().unwrap().clone();
        if rows.iter().any(|row| row["is_connected"] == true) {
            break rows;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let unknown = connected.iter().find(|row| row["target"] == "ptls:6640").unwrap();
    let status = unknown["status"].to_string();
    assert!(
        status.contains("unknown connection method") && status.contains("VOID"),
        "{status}"
    );
    client.call("transact", json!(["Open_vSwitch", {"op": "update", "table": "Open_vSwitch", "where": [], "row": {"manager_options": ["set", []]}}]));
    assert_eq!(managed.recv(), None);
    while socket.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_database_of_an_older_release_is_converted_and_can_go_back() {
    let Some(tool) = other("ovsdb-tool") else { return };
    let older = Path::new("/usr/share/openvswitch/vswitch.ovsschema");
    assert!(older.exists(), "{} comes with ovsdb-tool", older.display());
    let dir = directory();
    let file = dir.path().join("conf.db");
    let run = |args: &[&Path]| output(Command::new(&tool).args(args)).trim_end().to_owned();
    run(&[Path::new("create"), &file, older]);
    let version = run(&[Path::new("db-version"), &file]);
    assert_ne!(version, "8.8.0", "nothing to convert");
    let insert = r#"["Open_vSwitch",{"op":"insert","table":"Queue","row":{"dscp":7}}]"#;
    run(&[Path::new("transact"), &file, Path::new(insert)]);
    let server = ovsdb_server::Server::open(ovsdb_server::Options {
        databases: vec![file.clone()],
        schema: Some(ovsdb::schemas::OPEN_VSWITCH.to_owned()),
        ..Default::default()
    });
    server.unwrap().shut_down();
    assert_eq!(run(&[Path::new("db-version"), &file]), "8.8.0");
    run(&[Path::new("convert"), &file, older]);
    assert_eq!(run(&[Path::new("db-version"), &file]), version);
    let select = r#"["Open_vSwitch",{"op":"select","table":"Queue","where":[],"columns":["dscp"]}]"#;
    let rows = run(&[Path::new("query"), &file, Path::new(select)]);
    assert_eq!(rows, r#"[{"rows":[{"dscp":7}]}]"#);
}
