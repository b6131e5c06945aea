//! Role-based access control: what a client with a role may change depends on the rules in the
//! database and on the name in the client's certificate. The same requests to Open vSwitch's server
//! and ours.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Client, Server, Theirs, directory, eventually, other, subdirectory};
use serde_json::{Value, json};

const SCHEMA: &str = r#"{"name": "R", "version": "1.0.0", "tables": {
    "Root": {"isRoot": true, "columns": {"connections": {"type": {"key": {"type": "uuid", "refTable": "Connection"}, "min": 0, "max": "unlimited"}}}},
    "Connection": {"columns": {"target": {"type": "string"}, "role": {"type": "string"}}, "indexes": [["target"]]},
    "RBAC_Role": {"isRoot": true, "columns": {"name": {"type": "string"}, "permissions": {"type": {"key": "string",
        "value": {"type": "uuid", "refTable": "RBAC_Permission", "refType": "weak"}, "min": 0, "max": "unlimited"}}}},
    "RBAC_Permission": {"isRoot": true, "columns": {"table": {"type": "string"}, "insert_delete": {"type": "boolean"},
        "authorization": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
        "update": {"type": {"key": "string", "min": 0, "max": "unlimited"}}}},
    "T": {"isRoot": true, "columns": {"owner": {"type": "string"}, "n": {"type": "integer"},
        "m": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}}}},
    "U": {"isRoot": true, "columns": {"owner": {"type": "string"}}},
    "V": {"isRoot": true, "columns": {"n": {"type": "integer"}}}}}"#;

fn openssl(dir: &Path, args: &str) {
    let mut command = Command::new("openssl");
    command.args(args.split_whitespace()).current_dir(dir);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Fills the database, and lets the server listen: `targets` for clients with the role `worker`.
fn fill(client: &mut Client, targets: &[String]) {
    let permission = |name: &str, table: &str, may: bool, who: Value, update: Value| {
        json!({"op": "insert", "table": "RBAC_Permission", "uuid-name": name, "row":
            {"table": table, "insert_delete": may, "authorization": ["set", who], "update": ["set", update]}})
    };
    let mut ops = vec![
        json!("R"),
        permission("t", "T", true, json!(["owner", "m:who", "nosuch"]), json!(["n"])),
        permission("v", "V", false, json!([""]), json!(["n"])),
        json!({"op": "insert", "table": "RBAC_Role", "row": {"name": "worker",
            "permissions": ["map", [["T", ["named-uuid", "t"]], ["V", ["named-uuid", "v"]]]]}}),
        json!({"op": "insert", "table": "T", "row": {"n": 1, "owner": "host"}}),
        json!({"op": "insert", "table": "T", "row": {"n": 2, "owner": "other"}}),
        json!({"op": "insert", "table": "T", "row": {"n": 3, "m": ["map", [["who", "host"]]]}}),
        json!({"op": "insert", "table": "V", "row": {"n": 1}}),
        json!({"op": "insert", "table": "U", "row": {}}),
    ];
    let mut names = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        let name = format!("c{at}");
        ops.push(json!({"op": "insert", "table": "Connection", "uuid-name": name,
            "row": {"target": target, "role": "worker"}}));
        names.push(json!(["named-uuid", name]));
    }
    ops.push(json!({"op": "insert", "table": "Root", "row": {"connections": ["set", names]}}));
    let reply = client.call("transact", Value::Array(ops));
    assert!(
        reply["result"]
            .as_array()
            .unwrap()
            .iter()
            .all(|result| result["error"].is_null()),
        "{reply}"
    );
}

/// The requests, each in a transaction that leaves the database as it is.
fn requests() -> Vec<Value> {
    let of = |table: &str, n: i64| json!({"table": table, "where": [["n", "==", n]]});
    let op = |mut what: Value, op: &str, more: Value| {
        what["op"] = json!(op);
        for (name, value) in more.as_object().unwrap() {
            what[name] = value.clone();
        }
        what
    };
    let plus = json!({"mutations": [["n", "+=", 5]]});
    let mut all = Vec::new();
    for (table, n) in [("T", 1), ("T", 2), ("T", 3), ("T", 9), ("V", 1), ("V", 9)] {
        all.push(op(of(table, n), "update", json!({"row": {"n": 7}})));
        all.push(op(of(table, n), "mutate", plus.clone()));
        all.push(op(of(table, n), "delete", json!({})));
    }
    all.push(op(of("T", 1), "update", json!({"row": {"n": 7, "owner": "x"}})));
    all.push(op(of("T", 9), "update", json!({"row": {"owner": "x"}})));
    all.push(op(
        of("T", 3),
        "mutate",
        json!({"mutations": [["m", "insert", ["map", [["a", "b"]]]]]}),
    ));
    all.push(json!({"op": "update", "table": "T", "where": [], "row": {"n": 7}}));
    all.push(json!({"op": "update", "table": "T", "where": [], "row": {}}));
    all.push(json!({"op": "insert", "table": "T", "row": {"owner": "host"}}));
    all.push(json!({"op": "insert", "table": "T", "row": {"owner": "other"}}));
    all.push(json!({"op": "insert", "table": "V", "row": {}}));
    all.push(json!({"op": "insert", "table": "U", "row": {}}));
    all.push(json!({"op": "delete", "table": "U", "where": []}));
    all.push(json!({"op": "delete", "table": "U", "where": [["owner", "==", "nobody"]]}));
    all.push(json!({"op": "insert", "table": "T", "row": {"m": ["map", [["who", "host"]]]}}));
    all.push(json!({"op": "insert", "table": "T", "row": {}}));
    all.push(json!({"op": "mutate", "table": "T", "where": [["n", "==", 9]], "mutations": []}));
    all.push(json!({"op": "mutate", "table": "T", "where": [["n", "==", 2]], "mutations": []}));
    all.push(json!({"op": "select", "table": "U", "where": [], "columns": ["owner"]}));
    all
}

/// The results of the requests, without the UUIDs of new rows.
fn results(run: &mut dyn FnMut(&Value) -> Value) -> Vec<String> {
    let mut results = Vec::new();
    for request in requests() {
        let params = json!(["R", request, {"op": "abort"}]);
        let mut result = run(&params);
        if result[0].get("uuid").is_some() {
            result[0] = json!("inserted");
        }
        results.push(format!("{request}: {}", result[0]));
    }
    results
}

fn over_unix(socket: &Path) -> Vec<String> {
    eventually("the server listens", || {
        std::os::unix::net::UnixStream::connect(socket).is_ok()
    });
    let mut client = Client::new(std::os::unix::net::UnixStream::connect(socket).unwrap());
    results(&mut |params| client.call("transact", params.clone())["result"].clone())
}

fn over_tls(keys: &Path, client: &Path, port: u16) -> Vec<String> {
    results(&mut |params| {
        let mut command = Command::new(client);
        command
            .current_dir(keys)
            .args(["-p", "host.key", "-c", "host.pem", "-C", "server.pem"]);
        command.args(["transact", &format!("ssl:127.0.0.1:{port}"), &params.to_string()]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    })
}

#[test]
fn roles_restrict_clients_as_in_open_vswitch() {
    let (Some(program), Some(client)) = (other("ovsdb-server"), other("ovsdb-client")) else {
        return;
    };
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: needs openssl, which is not installed");
        return;
    }
    let dir = directory();
    for name in ["host", "server"] {
        let line = format!(
            "req -x509 -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.pem -subj /O=o/CN={name} -days 10"
        );
        openssl(dir.path(), &line);
    }
    let key = |name: &str| dir.path().join(name).display().to_string();
    let options = [
        format!("--private-key={}", key("server.key")),
        format!("--certificate={}", key("server.pem")),
        format!("--ca-cert={}", key("host.pem")),
        "--remote=db:R,Root,connections".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut said = Vec::new();
    for ours in [false, true] {
        let dir = subdirectory(dir.path(), if ours { "ours" } else { "theirs" });
        let file = dir.join("d.db");
        let schema = ovsdb::DatabaseSchema::from_text(SCHEMA).unwrap();
        fs::write(&file, ovsdb::log::schema_record(&schema)).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let nameless = dir.join("worker");
        let targets = [
            format!("pssl:{port}:127.0.0.1"),
            format!("punix:{}", nameless.display()),
        ];
        let (_ours, _theirs);
        let mut plain = if ours {
            _ours = Server::start(&dir, &file, &options);
            _ours.connect()
        } else {
            _theirs = Theirs::start(&program, &dir, &options);
            _theirs.connect()
        };
        fill(&mut plain, &targets);
        eventually("the server listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        // A client without a role may change everything.
        let free = results(&mut |params| plain.call("transact", params.clone())["result"].clone());
        assert!(free.iter().all(|result| !result.contains("RBAC rules")), "{free:?}");
        said.push([over_unix(&nameless), over_tls(dir.parent().unwrap(), &client, port)]);
    }
    let refused = |results: &[String]| {
        results
            .iter()
            .filter(|result| result.contains("permission error"))
            .count()
    };
    let pairs = said[0].iter().flatten().zip(said[1].iter().flatten());
    let different: Vec<_> = { pairs }.filter(|(theirs, ours)| theirs != ours).collect();
    assert!(different.is_empty(), "{different:#?}");
    assert_eq!(
        refused(&said[1][0]),
        requests().len() - 1,
        "a client without a name may only read"
    );
    let named = refused(&said[1][1]);
    assert!(named > 5 && named < requests().len() - 5, "{named}");
}
