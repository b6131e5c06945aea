//! Control sockets and streams over real sockets.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use mgmt::stream::{self, Listener, Remote, Tls};
use mgmt::unixctl::{self, Server};
use tempfile::TempDir;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

#[test]
fn commands_are_answered_as_ovs_appctl_expects() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ctl");
    block_on(async {
        let server = Server::new("test");
        server.register("say", "WHAT [MORE]", 1, 2, Box::new(|args| Ok(args.join(" "))));
        server.register_deferred(
            "later",
            "",
            0,
            0,
            Box::new(|_| {
                Box::pin(async {
                    tokio::task::yield_now().await;
                    Err("no".to_owned())
                })
            }),
        );
        server.register_memory(|usage| {
            usage.insert("cells", 7);
        });
        tokio::task::spawn_local(server.serve(Server::bind(&path).await.unwrap()));

        let call = async |method: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
            unixctl::call(&path, method, &args).await.unwrap()
        };
        assert_eq!(call("say", &["a", "b"]).await, Ok("a b\n".to_owned()));
        assert_eq!(call("later", &[]).await, Err("no\n".to_owned()));
        assert_eq!(call("memory/show", &[]).await, Ok("cells:7\n".to_owned()));
        assert_eq!(
            call("say", &[]).await,
            Err("\"say\" command requires at least 1 arguments\n".to_owned())
        );
        assert_eq!(
            call("version", &["x"]).await,
            Err("\"version\" command takes at most 0 arguments\n".to_owned())
        );
        assert_eq!(
            call("foo", &[]).await,
            Err(
                "\"foo\" is not a valid command (use \"list-commands\" to see a list of valid \
                 commands)\n"
                    .to_owned()
            )
        );
        let commands = call("list-commands", &[]).await.unwrap();
        assert!(
            commands.contains("\n  say                     WHAT [MORE]\n"),
            "{commands}"
        );
        assert!(call("vlog/list", &[]).await.unwrap().contains("unixctl"));
    });
}

#[test]
fn a_client_that_sends_garbage_is_closed_and_others_are_served() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ctl");
    telemetry::vlog::set("console:off").unwrap();
    block_on(async {
        let server = Server::new("test");
        tokio::task::spawn_local(server.serve(Server::bind(&path).await.unwrap()));
        for garbage in [
            "GET / HTTP/1.0\r\n",
            "[[[[[[[[[[[[",
            "{}",
            r#"{"method":"a","params":{},"id":1}"#,
        ] {
            let path = path.clone();
            let read = tokio::task::spawn_blocking(move || {
                let mut client = UnixStream::connect(path).unwrap();
                client.write_all(garbage.as_bytes()).unwrap();
                client.read(&mut [0]).unwrap_or(0)
            });
            assert_eq!(read.await.unwrap(), 0, "{garbage}");
        }
        assert!(unixctl::call(&path, "version", &[]).await.unwrap().is_ok());
    });
}

#[test]
fn sockets_with_long_names_are_reached_and_stale_ones_replaced() {
    let dir = TempDir::new().unwrap();
    let deep = dir.path().join("d".repeat(100)).join("e".repeat(60));
    std::fs::create_dir_all(&deep).unwrap();
    for path in [dir.path().join("s"), deep.join("s")] {
        block_on(async {
            let passive = Remote::PassiveUnix(path.clone());
            let mut listener = Listener::bind(&passive, &Tls::default()).await.unwrap();
            let other = Listener::bind(&passive, &Tls::default()).await;
            assert_eq!(other.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
            // The probe of the second listener is the first to be accepted.
            listener.accept().await.unwrap();
            let client = stream::connect(&Remote::Unix(path.clone()), &Tls::default())
                .await
                .unwrap();
            let (_, name) = listener.accept().await.unwrap();
            assert_eq!(name, "unix#1");
            drop((client, listener));
            assert!(!path.exists(), "its name goes with a listener");
        });
        block_on(async {
            // What a killed daemon leaves.
            let stale: PathBuf = dir.path().join("stale");
            drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
            assert!(stale.exists());
            Listener::bind(&Remote::PassiveUnix(stale), &Tls::default())
                .await
                .unwrap();
        });
    }
}

#[test]
fn tcp_is_listened_on_and_connected_to() {
    block_on(async {
        let mut listener = Listener::bind(&"ptcp:0:127.0.0.1".parse().unwrap(), &Tls::default())
            .await
            .unwrap();
        let port = listener.tcp_address().unwrap().port();
        let remote: Remote = format!("tcp:127.0.0.1:{port}").parse().unwrap();
        let client = stream::connect(&remote, &Tls::default()).await.unwrap();
        let (_, name) = listener.accept().await.unwrap();
        assert!(name.starts_with("tcp:127.0.0.1:"), "{name}");
        drop(client);
    });
}

#[test]
fn idle_clients_of_a_control_socket_give_way_to_others() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ctl");
    block_on(async {
        let server = Server::new("test");
        let listener = Server::bind(&path).await.unwrap();
        tokio::task::spawn_local(server.serve(listener));
        // More than are served at once, each in the middle of a command.
        let mut idle = Vec::new();
        for _ in 0..100 {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"{\"method\":\"ver").unwrap();
            idle.push(stream);
        }
        let said = unixctl::call(&path, "version", &[]).await.unwrap().unwrap();
        assert!(said.starts_with("test"), "{said}");
        // Otherwise they leave when their patience has ended.
        let gave_way = telemetry::coverage::read("unixctl_gave_way");
        assert!(gave_way.is_some_and(|count| count >= 100 + 1 - 64), "{gave_way:?}");
    });
}
