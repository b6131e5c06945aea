//! The data that survives when the server, its file or its disk fails.

mod common;

use std::fs;
use std::process::Command;
use std::time::Duration;

use common::{Server, database, directory, insert};
use serde_json::json;

#[test]
fn every_acknowledged_transaction_survives_kill_9() {
    let dir = directory();
    let file = database(dir.path());
    let mut acknowledged = Vec::new();
    let mut next = 0;
    // A thousand transactions, killed at other points each time: a multiplicative step makes these
    // look random.
    for round in 0..12u64 {
        let server = Server::start(dir.path(), &file, &[]);
        let mut client = server.connect();
        let present = client.names();
        for name in &acknowledged {
            assert!(
                present.contains(name),
                "{name} was acknowledged and is lost after kill number {round}"
            );
        }
        let kill_after = 20 + (round * 7919 + 13) % 130;
        // Sent without waiting, so that the server dies in the middle of its work.
        for at in next..next + 150 {
            client.send(
                &json!({"id": at, "method": "transact", "params": ["D", insert(&format!("row{at}"))]}).to_string(),
            );
        }
        next += 150;
        for _ in 0..kill_after {
            let reply = client.recv().unwrap();
            assert!(reply["error"].is_null());
            acknowledged.push(format!("row{}", reply["id"]));
        }
        server.kill();
        // Replies that the client has not read yet count too.
        while let Some(reply) = client.recv() {
            acknowledged.push(format!("row{}", reply["id"]));
        }
    }
    assert!(acknowledged.len() > 500, "{}", acknowledged.len());
}

#[test]
fn a_file_cut_at_every_byte_of_its_last_record_loses_that_record_alone() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    server.connect().transact(insert("kept"));
    let good = fs::read(&file).unwrap().len();
    server.connect().transact(insert("last"));
    server.kill();
    let whole = fs::read(&file).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for cut in good..=whole.len() {
        fs::write(&file, &whole[..cut]).unwrap();
        let options = ovsdb_server::Options {
            databases: vec![file.clone()],
            ..Default::default()
        };
        let server = ovsdb_server::Server::open(options).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            server.run_local().await.unwrap();
            let names = ask_names(&server).await;
            let expected: &[&str] = if cut == whole.len() {
                &["kept", "last"]
            } else {
                &["kept"]
            };
            assert_eq!(names, expected, "cut at {cut}");
        });
        server.shut_down();
        let left = fs::metadata(&file).unwrap().len() as usize;
        assert_eq!(
            left,
            if cut == whole.len() { whole.len() } else { good },
            "cut at {cut}"
        );
    }
}

#[test]
fn garbage_after_good_records_is_cut_off_and_kept_aside() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    server.connect().transact(insert("a"));
    let good = fs::read(&file).unwrap();
    server.connect().transact(insert("b"));
    server.connect().transact(insert("c"));
    server.kill();
    let mut damaged = fs::read(&file).unwrap();
    damaged[good.len() + 100] ^= 1;
    fs::write(&file, &damaged).unwrap();
    let server = Server::start(dir.path(), &file, &[]);
    assert_eq!(server.connect().names(), ["a"]);
    server.connect().transact(insert("d"));
    let log = server.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("|ERR|")).collect();
    let lost = format!("{} bytes, 2 record(s)", damaged.len() - good.len());
    assert!(lines.len() == 1 && lines[0].contains(&lost), "{log}");
    assert!(lines[0].contains("1 transaction(s) remain"), "{log}");
    assert!(lines[0].contains(&format!("offset {}", good.len())), "{log}");
    server.kill();
    assert_eq!(
        fs::read(dir.path().join("d.db.cut-off")).unwrap(),
        &damaged[good.len()..]
    );
    let server = Server::start(dir.path(), &file, &[]);
    assert_eq!(server.connect().names(), ["a", "d"]);
}

#[test]
fn what_is_cut_off_is_kept_even_if_it_is_a_single_torn_record_and_never_overwritten() {
    let dir = directory();
    let file = database(dir.path());
    for (round, kept) in ["d.db.cut-off", "d.db.cut-off.1"].into_iter().enumerate() {
        let server = Server::start(dir.path(), &file, &[]);
        server.connect().transact(insert(&format!("kept{round}")));
        let good = fs::read(&file).unwrap().len();
        server.connect().transact(insert("torn"));
        server.kill();
        let torn = fs::read(&file).unwrap();
        fs::write(&file, &torn[..torn.len() - 5]).unwrap();
        Server::start(dir.path(), &file, &[]).kill();
        assert_eq!(fs::read(dir.path().join(kept)).unwrap(), &torn[good..torn.len() - 5]);
    }
    let server = Server::start(dir.path(), &file, &[]);
    assert_eq!(server.connect().names(), ["kept0", "kept1"]);
}

#[test]
fn a_damaged_schema_and_what_is_no_regular_file_are_errors_in_the_log_as_well() {
    let dir = directory();
    let file = database(dir.path());
    let mut content = fs::read(&file).unwrap();
    content[100] ^= 1;
    fs::write(&file, &content).unwrap();
    let fifo = dir.path().join("fifo.db");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let log = dir.path().join("log");
    for (file, error) in [(&file, "not a database"), (&fifo, "open failed (Not a regular file)")] {
        let output = Command::new(common::program())
            .arg(file)
            .args(["--unixctl=none", "-vconsole:off"])
            .arg(format!("--log-file={}", log.display()))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(said.contains(error) && said.contains(name), "{said}");
        let logged = fs::read_to_string(&log).unwrap();
        let is_it = |line: &&str| line.contains("|EMER|") && line.contains(error) && line.contains(name);
        assert_eq!(logged.lines().filter(is_it).count(), 1, "{logged}");
    }
    assert_eq!(fs::read(&file).unwrap(), content, "the file is as it was");
}

#[test]
fn every_acknowledged_transaction_survives_kill_9_in_the_middle_of_compactions() {
    let dir = directory();
    let file = database(dir.path());
    let mut acknowledged = Vec::new();
    let mut next = 0;
    for round in 0..15u64 {
        let server = Server::start(dir.path(), &file, &[]);
        let mut client = server.connect();
        let present = client.names();
        for name in &acknowledged {
            assert!(present.contains(name), "{name} is lost after kill number {round}");
        }
        std::thread::scope(|scope| {
            // The server compacts all the time until it is killed.
            let compact = || while server.try_control("ovsdb-server/compact", &["D"]).is_ok() {};
            scope.spawn(compact);
            for at in next..next + 200 {
                client.send(
                    &json!({"id": at, "method": "transact", "params": ["D", insert(&format!("row{at}"))]}).to_string(),
                );
            }
            next += 200;
            for _ in 0..(20 + (round * 7919 + 13) % 170) {
                acknowledged.push(format!("row{}", client.recv().unwrap()["id"]));
            }
            server.signal_kill();
        });
        server.kill();
        while let Some(reply) = client.recv() {
            acknowledged.push(format!("row{}", reply["id"]));
        }
    }
    let server = Server::start(dir.path(), &file, &[]);
    assert!(server.connect().names().len() >= acknowledged.len());
    assert!(
        !dir.path().join("d.db.tmp").exists(),
        "unfinished compactions are removed"
    );
}

#[test]
fn files_that_are_no_databases_are_refused_by_name_offset_and_rule() {
    let dir = directory();
    let refused = |name: &str, content: Option<&[u8]>| {
        let file = dir.path().join(name);
        if let Some(content) = content {
            fs::write(&file, content).unwrap();
        }
        let output = Command::new(common::program())
            .arg(&file)
            .args(["--unixctl=none", "-vconsole:off"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            content.map(<[u8]>::to_vec),
            fs::read(&file).ok(),
            "the file is as it was"
        );
        String::from_utf8(output.stderr).unwrap()
    };
    let missing = refused("missing.db", None);
    assert!(missing.starts_with("ovsdb-server: I/O error: "), "{missing}");
    assert!(
        missing.ends_with("missing.db: open failed (No such file or directory)\n"),
        "{missing}"
    );
    let garbage = refused("garbage.db", Some(b"garbage here\n"));
    assert!(
        garbage.contains("garbage.db") && garbage.contains(" 0: the header line"),
        "{garbage}"
    );
    let empty = refused("empty.db", Some(b""));
    assert!(empty.contains("empty.db") && empty.contains("empty"), "{empty}");
}

#[test]
fn two_servers_do_not_share_a_database() {
    let dir = directory();
    let file = database(dir.path());
    let _server = Server::start(dir.path(), &file, &[]);
    let second = Command::new(common::program())
        .arg(&file)
        .arg("--unixctl=none")
        .output()
        .unwrap();
    let error = String::from_utf8(second.stderr).unwrap();
    assert!(
        error.ends_with("failed to lock lockfile (Resource temporarily unavailable)\n"),
        "{error}"
    );
    let holder = format!(
        "|lockfile|WARN|{}: cannot lock file because it is already locked by pid ",
        dir.path().canonicalize().unwrap().join(".d.db.~lock~").display()
    );
    assert!(error.contains(&holder), "{error}");
    if let Some(theirs) = common::other("ovsdb-server") {
        let third = Command::new(theirs)
            .arg(&file)
            .args(["--unixctl=none", "--remote=punix:x"])
            .output()
            .unwrap();
        let error = String::from_utf8(third.stderr).unwrap();
        assert!(error.contains("failed to lock lockfile"), "{error}");
    }
}

#[test]
fn a_full_disk_fails_transactions_and_nothing_else() {
    let dir = directory();
    let file = database(dir.path());
    // A limit of the file's size stands for the full disk: the shell sets it, and ignores the
    // signal that comes with it.
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec {} {} --remote=punix:{} --unixctl=none -vconsole:off -vsyslog:off",
        common::program().display(),
        file.display(),
        dir.path().join("sock").display()
    );
    let child = Command::new("/bin/bash").args(["-c", &script]).spawn().unwrap();
    let server = Server {
        child: common::Running(child),
        dir: dir.path().to_owned(),
    };
    let mut client = server.connect();
    let mut written = Vec::new();
    let error = loop {
        let name = format!("{}{}", "x".repeat(100), written.len());
        let reply = client.transact(insert(&name));
        if reply["error"].is_null() {
            written.push(name);
            assert!(written.len() < 1000);
        } else {
            break reply["error"].clone();
        }
    };
    assert_eq!(error["error"], "I/O error");
    written.sort();
    assert_eq!(client.names(), written, "memory holds what the file holds");
    drop(client);
    server.kill();
    let server = Server::start(dir.path(), &file, &[]);
    assert_eq!(server.connect().names(), written);
    server.connect().transact(insert("again"));
    assert!(server.connect().names().contains(&"again".to_owned()));
}

#[test]
fn compaction_loses_nothing_that_happens_meanwhile() {
    let dir = directory();
    let file = database(dir.path());
    let server = Server::start(dir.path(), &file, &[]);
    let mut client = server.connect();
    for at in 0..300 {
        client.transact(insert(&format!("row{at}")));
    }
    for at in 0..200 {
        client.transact(json!({"op": "delete", "table": "T", "where": [["name", "==", format!("row{at}")]]}));
    }
    let before = fs::metadata(&file).unwrap().len();
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut client = server.connect();
            (0..200).for_each(|at| drop(client.transact(insert(&format!("new{at}")))));
        });
        for _ in 0..5 {
            server.control("ovsdb-server/compact", &["D"]).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        worker.join().unwrap();
    });
    server.control("ovsdb-server/compact", &[]).unwrap();
    client.transact(json!({"op": "insert", "table": "T", "row": {"name": "after"}}));
    assert!(fs::metadata(&file).unwrap().len() < before);
    let names = client.names();
    assert_eq!(names.len(), 301);
    server.kill();
    assert!(!dir.path().join("d.db.tmp").exists());
    let server = Server::start(dir.path(), &file, &[]);
    assert_eq!(server.connect().names(), names);
    let second = Command::new(common::program())
        .arg(&file)
        .args(["--unixctl=none", "-vconsole:off"])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1), "the lock held through the compaction");
}

/// The names in the table, over a connection in memory.
async fn ask_names(server: &ovsdb_server::Server) -> Vec<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = server.connect_in_memory().unwrap();
    let op = json!({"op": "select", "table": "T", "where": [], "columns": ["name"]});
    let request = json!({"id": 1, "method": "transact", "params": ["D", op]});
    stream.write_all(request.to_string().as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    loop {
        stream.read_buf(&mut bytes).await.unwrap();
        if let Ok(reply) = serde_json::from_slice::<serde_json::Value>(&bytes) {
            let rows = reply["result"][0]["rows"].as_array().unwrap().iter();
            let mut names: Vec<String> = rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect();
            names.sort();
            return names;
        }
    }
}
