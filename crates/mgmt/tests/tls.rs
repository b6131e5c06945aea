//! Streams under TLS: which peers are accepted, which are refused, and what happens when files
//! change or peers break the protocol.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mgmt::stream::tls::{Authority, Settings};
use mgmt::stream::{self, Listener, Remote, Stream, Tls};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Two authorities, `ca` and `other`, and a certificate of each: `one` and `two`.
struct Pki(TempDir);

impl Pki {
    fn new() -> Option<Pki> {
        if Command::new("openssl").arg("version").output().is_err() {
            eprintln!("skipped: needs openssl, which is not installed");
            return None;
        }
        let pki = Pki(TempDir::new().unwrap());
        fs::write(pki.file("version3"), "basicConstraints = CA:FALSE").unwrap();
        for (ca, name) in [("ca", "one"), ("other", "two")] {
            pki.authority(ca);
            pki.certificate(name, ca);
        }
        Some(pki)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn openssl(&self, line: &str) {
        let mut command = Command::new("openssl");
        let output = command
            .args(line.split_whitespace())
            .current_dir(self.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }

    fn authority(&self, name: &str) {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.pem -subj /CN={name} -days 10"
        ));
    }

    fn certificate(&self, name: &str, ca: &str) {
        self.issue(name, ca, "-extfile version3");
    }

    fn issue(&self, name: &str, ca: &str, options: &str) {
        self.openssl(&format!(
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -out {name}.pem -days 10 -CA {ca}.pem -CAkey {ca}.key -CAcreateserial {options}"
        ));
    }

    /// Shows the certificate of `name`, and trusts `ca`.
    fn settings(&self, name: &str, ca: &str) -> Settings {
        Settings {
            private_key: Some(self.file(&format!("{name}.key"))),
            certificate: Some(self.file(&format!("{name}.pem"))),
            authority: Authority::File(self.file(&format!("{ca}.pem"))),
            ..Settings::default()
        }
    }

    fn tls(&self, name: &str, ca: &str) -> Tls {
        Tls::new(self.settings(name, ca))
    }
}

async fn listen(tls: &Tls) -> (Listener, Remote) {
    let listener = Listener::bind(&"pssl:0:127.0.0.1".parse().unwrap(), tls).await.unwrap();
    let port = listener.tcp_address().unwrap().port();
    (listener, format!("ssl:127.0.0.1:{port}").parse().unwrap())
}

/// Connects and says something; what the other side answered, or why there was no answer.
async fn talk(remote: &Remote, tls: &Tls) -> Result<String, String> {
    let mut stream = stream::connect(remote, tls).await.map_err(|error| error.to_string())?;
    let mut heard = String::new();
    let said = async {
        stream.write_all(b"hello").await?;
        stream.flush().await?;
        stream.read_to_string(&mut heard).await
    };
    said.await.map_err(|error| error.to_string())?;
    Ok(heard)
}

/// Answers everybody with what they said.
async fn answer(mut listener: Listener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut heard = [0; 5];
            if stream.read_exact(&mut heard).await.is_ok() {
                let _ = stream.write_all(&heard).await;
                let _ = stream.flush().await;
            }
        });
    }
}

#[tokio::test(flavor = "current_thread")]
async fn both_sides_are_known_by_their_authority() {
    let Some(pki) = Pki::new() else { return };
    let (listener, remote) = listen(&pki.tls("one", "other")).await;
    tokio::spawn(answer(listener));
    assert_eq!(talk(&remote, &pki.tls("two", "ca")).await.as_deref(), Ok("hello"));
    let wrong = talk(&remote, &pki.tls("two", "other")).await.unwrap_err();
    assert!(wrong.contains("not issued by a trusted authority"), "{wrong}");
    // The server refuses after the client is through with its part of the handshake.
    let refused = talk(&remote, &pki.tls("one", "ca")).await.unwrap_err();
    assert!(refused.to_lowercase().contains("unknownca"), "{refused}");
    let unconfigured = talk(&remote, &Tls::default()).await.unwrap_err();
    assert!(unconfigured.starts_with("Protocol not available"), "{unconfigured}");
    assert_eq!(talk(&remote, &pki.tls("two", "ca")).await.as_deref(), Ok("hello"));
}

#[tokio::test(flavor = "current_thread")]
async fn certificates_of_ovs_pki_are_trusted() {
    let Some(pki) = Pki::new() else { return };
    if Command::new("ovs-pki").arg("--version").output().is_err() {
        eprintln!("skipped: needs ovs-pki, which is not installed");
        return;
    }
    let run = |line: &str| {
        let options = "--dir=pki --log=log";
        let script = format!("ovs-pki {options} {line}");
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(pki.path())
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    };
    run("init");
    run("req+sign sw switch");
    run("req+sign ctl controller");
    run("req self");
    run("self-sign self");
    let tls = |name: &str, authority: &str| {
        Tls::new(Settings {
            private_key: Some(pki.file(&format!("{name}-privkey.pem"))),
            certificate: Some(pki.file(&format!("{name}-cert.pem"))),
            authority: Authority::File(pki.file(authority)),
            ..Settings::default()
        })
    };
    let (controller, switch) = ("pki/controllerca/cacert.pem", "pki/switchca/cacert.pem");
    for (server, client) in [
        (tls("ctl", switch), tls("sw", controller)),
        (tls("self", "self-cert.pem"), tls("self", "self-cert.pem")),
    ] {
        let (listener, remote) = listen(&server).await;
        tokio::spawn(answer(listener));
        assert_eq!(talk(&remote, &client).await.as_deref(), Ok("hello"));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_certificate_of_version_1_is_refused_with_the_reason() {
    let Some(pki) = Pki::new() else { return };
    pki.issue("old", "ca", "");
    let error = stream::connect(&"ssl:127.0.0.1:1".parse().unwrap(), &pki.tls("old", "ca")).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("old.pem") && text.contains("X.509 version 3"), "{text}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_side_may_choose_to_trust_everybody() {
    let Some(pki) = Pki::new() else { return };
    let anyone = |name| {
        Tls::new(Settings {
            authority: Authority::Anyone,
            ..pki.settings(name, "ca")
        })
    };
    let (listener, remote) = listen(&anyone("one")).await;
    tokio::spawn(answer(listener));
    assert_eq!(talk(&remote, &anyone("two")).await.as_deref(), Ok("hello"));
}

#[tokio::test(flavor = "current_thread")]
async fn files_that_change_are_read_again_and_faulty_ones_are_not_taken() {
    let Some(pki) = Pki::new() else { return };
    let server = pki.tls("one", "other");
    let (listener, remote) = listen(&server).await;
    tokio::spawn(answer(listener));
    let client = pki.tls("two", "ca");
    assert!(talk(&remote, &client).await.is_ok());
    fs::write(pki.file("other.pem"), "torn").unwrap();
    assert!(talk(&remote, &client).await.is_ok());
    fs::copy(pki.file("ca.pem"), pki.file("other.pem")).unwrap();
    assert!(talk(&remote, &client).await.is_err());
    pki.certificate("two", "ca");
    assert_eq!(talk(&remote, &client).await.as_deref(), Ok("hello"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_key_that_is_not_the_certificates_is_an_error_that_names_both() {
    let Some(pki) = Pki::new() else { return };
    let tls = Tls::new(Settings {
        private_key: Some(pki.file("two.key")),
        ..pki.settings("one", "ca")
    });
    let error = stream::connect(&"ssl:127.0.0.1:1".parse().unwrap(), &tls)
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("two.key") && text.contains("one.pem"), "{text}");
}

#[tokio::test(flavor = "current_thread")]
async fn the_first_peer_may_bring_its_authority() {
    let Some(pki) = Pki::new() else { return };
    let server = Tls::new(Settings {
        peer_ca_cert: Some(pki.file("ca.pem")),
        ..pki.settings("one", "other")
    });
    let (listener, remote) = listen(&server).await;
    tokio::spawn(answer(listener));
    let client = Tls::new(Settings {
        authority: Authority::Bootstrap(pki.file("learnt.pem")),
        ..pki.settings("two", "ca")
    });
    assert_eq!(talk(&remote, &client).await.as_deref(), Ok("hello"));
    let der = |name: &str| {
        let text = fs::read_to_string(pki.file(name)).unwrap();
        text.lines().filter(|line| !line.starts_with('-')).collect::<String>()
    };
    assert_eq!(der("learnt.pem"), der("ca.pem"));
    assert_eq!(talk(&remote, &client).await.as_deref(), Ok("hello"));

    // From then on only that authority counts.
    server.set(pki.settings("two", "other"));
    let wrong = talk(&remote, &client).await.unwrap_err();
    assert!(wrong.contains("not issued by a trusted authority"), "{wrong}");

    // A peer that does not bring the authority that issued its certificate brings nothing.
    server.set(Settings {
        peer_ca_cert: Some(pki.file("ca.pem")),
        ..pki.settings("two", "other")
    });
    let client = Tls::new(Settings {
        authority: Authority::Bootstrap(pki.file("never.pem")),
        ..pki.settings("two", "ca")
    });
    assert!(talk(&remote, &client).await.is_err());
    assert!(!pki.file("never.pem").exists());
}

#[tokio::test(flavor = "current_thread")]
async fn one_self_signed_certificate_may_be_certificate_and_authority() {
    let Some(pki) = Pki::new() else { return };
    // `authority` makes it as `openssl req -x509` does unless it is told otherwise: CA:TRUE.
    let own = pki.settings("ca", "ca");
    let (listener, remote) = listen(&Tls::new(own.clone())).await;
    tokio::spawn(answer(listener));
    assert_eq!(talk(&remote, &Tls::new(own.clone())).await.as_deref(), Ok("hello"));
    let bootstrap = Tls::new(Settings {
        authority: Authority::Bootstrap(pki.file("learnt.pem")),
        ..own
    });
    for _ in 0..2 {
        assert_eq!(talk(&remote, &bootstrap).await.as_deref(), Ok("hello"));
    }
    assert!(pki.file("learnt.pem").exists());

    // One that is not trusted is refused, by either side, also under the name of a trusted one.
    let wrong = talk(&remote, &pki.tls("ca", "other")).await.unwrap_err();
    assert!(wrong.contains("an authority that is not trusted"), "{wrong}");
    pki.openssl(
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout false.key -out false.pem -subj /CN=ca",
    );
    assert!(talk(&remote, &pki.tls("other", "ca")).await.is_err());
    assert!(talk(&remote, &pki.tls("false", "ca")).await.is_err());

    // Nor is one that has expired.
    pki.openssl("x509 -in ca.pem -signkey ca.key -days 0 -out old.pem");
    fs::copy(pki.file("ca.key"), pki.file("old.key")).unwrap();
    let text = Command::new("openssl")
        .args(["x509", "-noout", "-text", "-in"])
        .arg(pki.file("old.pem"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&text.stdout).contains("CA:TRUE"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let old = pki.tls("old", "old");
    let (listener, remote) = listen(&old).await;
    tokio::spawn(answer(listener));
    let expired = talk(&remote, &old).await.unwrap_err();
    assert!(expired.contains("expired"), "{expired}");
}

#[tokio::test(flavor = "current_thread")]
async fn peers_that_stall_in_the_handshake_keep_nobody_else_out() {
    let Some(pki) = Pki::new() else { return };
    let (listener, remote) = listen(&pki.tls("one", "other")).await;
    let address = listener.tcp_address().unwrap();
    tokio::spawn(answer(listener));
    let mut stalled = Vec::new();
    for at in 0..200 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if at % 2 == 0 {
            stream.write_all(&[0x16, 3, 1, 2, 0, 1]).await.unwrap();
        }
        stalled.push(stream);
    }
    let client = pki.tls("two", "ca");
    let answer = timeout(Duration::from_secs(5), talk(&remote, &client))
        .await
        .expect("an answer");
    assert_eq!(answer.as_deref(), Ok("hello"));
    // The oldest were given up.
    let gone = timeout(Duration::from_secs(5), stalled[0].read(&mut [0; 8])).await;
    assert!(matches!(gone, Ok(Ok(0) | Err(_))), "{gone:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn junk_in_place_of_a_handshake_ends_that_connection_alone() {
    let Some(pki) = Pki::new() else { return };
    let (listener, remote) = listen(&pki.tls("one", "other")).await;
    let address = listener.tcp_address().unwrap();
    tokio::spawn(answer(listener));
    for junk in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0xff; 4096], &[0x16, 3, 1, 0, 0]] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(junk).await.unwrap();
        let _ = stream.shutdown().await;
        let mut left = Vec::new();
        let _ = timeout(Duration::from_secs(5), stream.read_to_end(&mut left))
            .await
            .expect("an end");
    }
    assert_eq!(talk(&remote, &pki.tls("two", "ca")).await.as_deref(), Ok("hello"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_session_that_nobody_waits_on_carries_megabytes_both_ways() {
    let Some(pki) = Pki::new() else { return };
    let (mut listener, remote) = listen(&pki.tls("one", "other")).await;
    let client = pki.tls("two", "ca");
    let (near, far) = tokio::join!(stream::connect(&remote, &client), listener.accept());
    let (near, Stream::Tls(far)) = (near.unwrap(), far.unwrap().0) else {
        panic!("not under TLS");
    };
    let session = far.into_session().unwrap();
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    let expected = data.clone();
    let peer = tokio::spawn(async move {
        let (mut reader, mut writer) = near.into_split();
        let echo = async {
            let mut buffer = vec![0; 10_000];
            loop {
                let n = reader.read(&mut buffer).await.unwrap();
                if n == 0 {
                    break;
                }
                writer.write_all(&buffer[..n]).await.unwrap();
                writer.flush().await.unwrap();
            }
        };
        let _ = timeout(Duration::from_secs(20), echo).await;
    });
    let (mut sent, mut back, mut buffer) = (0, Vec::new(), vec![0; 65_536]);
    while back.len() < data.len() {
        match session.write(&data[sent..]) {
            Ok(n) => sent += n,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let _ = session.flush();
        match session.read(&mut buffer) {
            Ok(n) => back.extend_from_slice(&buffer[..n]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        tokio::task::yield_now().await;
    }
    assert!(back == expected);
    drop(session);
    peer.await.unwrap();
}
