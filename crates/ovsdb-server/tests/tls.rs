//! Protocols and ciphers that columns of a database choose.

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Server, directory, program};
use serde_json::json;

const SCHEMA: &str = r#"{"name": "D", "version": "1.0.0", "tables": {"S": {"isRoot": true, "columns": {
    "protocols": {"type": "string"}, "ciphers": {"type": "string"}, "suites": {"type": "string"},
    "number": {"type": "integer"}}}}}"#;

const COLUMNS: [&str; 3] = [
    "--ssl-protocols=db:D,S,protocols",
    "--ssl-ciphers=db:D,S,ciphers",
    "--ssl-ciphersuites=db:D,S,suites",
];

fn openssl(dir: &Path, args: &str) -> std::process::Output {
    let mut command = Command::new("openssl");
    command.args(args.split_whitespace()).current_dir(dir);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Version and cipher of a handshake, if it succeeds.
fn handshake(dir: &Path, port: u16, options: &str) -> Option<(String, String)> {
    let line = format!("s_client -connect 127.0.0.1:{port} -cert cert.pem -key key.pem {options}");
    let said = String::from_utf8_lossy(&openssl(dir, &line).stdout).into_owned();
    let (_, rest) = said.split_once("New, ")?;
    let (version, rest) = rest.split_once(", Cipher is ")?;
    let cipher = rest.lines().next()?;
    (cipher != "(NONE)").then(|| (version.to_owned(), cipher.to_owned()))
}

#[test]
fn columns_choose_protocols_and_ciphers_as_they_change() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skipped: needs openssl, which is not installed");
        return;
    }
    let dir = directory();
    let made = openssl(
        dir.path(),
        "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -subj /CN=x -days 10",
    );
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let file = dir.path().join("d.db");
    let schema = ovsdb::DatabaseSchema::from_text(SCHEMA).unwrap();
    fs::write(&file, ovsdb::log::schema_record(&schema)).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let keys = [
        format!("--private-key={}", dir.path().join("key.pem").display()),
        format!("--certificate={}", dir.path().join("cert.pem").display()),
        "--ca-cert=none".to_owned(),
        format!("--remote=pssl:{port}:127.0.0.1"),
    ];
    let args: Vec<&str> = keys.iter().map(String::as_str).chain(COLUMNS).collect();
    let server = Server::start(dir.path(), &file, &args);
    let mut client = server.connect();
    let mut choose = |row: serde_json::Value| {
        let op = json!({"op": "update", "table": "S", "where": [], "row": row});
        assert!(client.transact(op)["error"].is_null());
    };
    let becomes = |options: &str, wanted: Option<(&str, &str)>| {
        let begin = Instant::now();
        loop {
            let found = handshake(dir.path(), port, options);
            if found
                .as_ref()
                .map(|(version, cipher)| (version.as_str(), cipher.as_str()))
                == wanted
            {
                return;
            }
            let waited = begin.elapsed();
            assert!(
                waited < Duration::from_secs(20),
                "{options}: {found:?}: {}",
                server.log()
            );
        }
    };
    server
        .connect()
        .transact(json!({"op": "insert", "table": "S", "row": {}}));
    becomes("", Some(("TLSv1.3", "TLS_AES_256_GCM_SHA384")));
    choose(json!({"suites": "TLS_CHACHA20_POLY1305_SHA256"}));
    becomes("", Some(("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256")));
    choose(json!({"protocols": "TLSv1.2", "ciphers": "ECDHE-RSA-AES128-GCM-SHA256"}));
    becomes("", Some(("TLSv1.2", "ECDHE-RSA-AES128-GCM-SHA256")));
    becomes("-tls1_3", None);
    // Unusable settings are logged and change nothing.
    choose(json!({"protocols": "SSLv9", "ciphers": "RC4-SHA"}));
    becomes("-cipher ECDHE-RSA-AES256-GCM-SHA384 -tls1_2", None);
    becomes("", Some(("TLSv1.2", "ECDHE-RSA-AES128-GCM-SHA256")));
    let log = server.log();
    assert!(
        log.contains("|stream_ssl|ERR|SSLv9: SSL protocol not recognized"),
        "{log}"
    );
    assert!(log.contains("|stream_ssl|ERR|RC4-SHA: no cipher match"), "{log}");
    choose(json!({"protocols": "", "ciphers": "", "suites": ""}));
    becomes("", Some(("TLSv1.3", "TLS_AES_256_GCM_SHA384")));
}

#[test]
fn a_column_that_is_not_there_or_holds_no_strings_is_refused_at_the_start() {
    let dir = directory();
    let file = dir.path().join("d.db");
    let schema = ovsdb::DatabaseSchema::from_text(SCHEMA).unwrap();
    fs::write(&file, ovsdb::log::schema_record(&schema)).unwrap();
    for (option, error) in [
        ("--ssl-ciphers=db:D,S,nosuch", "table \"S\" has no column \"nosuch\""),
        ("--ssl-protocols=db:D,S,number", "type mismatch"),
        ("--ssl-ciphersuites=db:D,S", "invalid syntax"),
        ("--ssl-ciphersuites=TLS_NONE", "no cipher suite match"),
    ] {
        let mut command = Command::new(program());
        command.arg(&file).args(["--unixctl=none", "-vconsole:off", option]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(error), "{option}: {said}");
    }
}
