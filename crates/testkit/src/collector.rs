//! A collector of flow records on loopback, and what tshark reads in its datagrams.

use crate::Sandbox;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A socket that takes datagrams.
#[derive(Debug)]
pub struct Collector {
    socket: UdpSocket,
}

impl Collector {
    /// A collector on a free port.
    ///
    /// # Panics
    /// Loopback has no free port.
    pub fn new() -> Collector {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a timeout");
        Collector { socket }
    }

    /// Its address, as exporters have it.
    ///
    /// # Panics
    /// The socket is closed.
    pub fn target(&self) -> String {
        self.socket.local_addr().expect("an address").to_string()
    }

    /// The datagrams until `enough` says so, or until none has come for `quiet`.
    pub fn take(&self, quiet: Duration, enough: impl Fn(&[Vec<u8>]) -> bool) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        let mut last = Instant::now();
        let mut buffer = [0; 65_536];
        while last.elapsed() < quiet && !enough(&taken) {
            if let Ok(len) = self.socket.recv(&mut buffer) {
                taken.push(buffer[..len].to_vec());
                last = Instant::now();
            }
        }
        taken
    }
}

impl Default for Collector {
    fn default() -> Collector {
        Collector::new()
    }
}

/// What tshark reads in datagrams: for each, the named fields, which may have several values.
/// `dissector` is `cflow` or `sflow`.
///
/// # Panics
/// tshark fails, or calls a datagram malformed.
#[track_caller]
pub fn dissect(datagrams: &[Vec<u8>], dissector: &str, fields: &[&str]) -> Vec<Vec<Vec<String>>> {
    let sandbox = Sandbox::new();
    let file = sandbox.path("datagrams.pcap");
    std::fs::write(&file, capture(datagrams)).expect("a capture");
    let malformed = tshark(&file, dissector, &["-Y", "_ws.malformed"]);
    assert!(malformed.is_empty(), "{malformed}");
    let mut args = vec!["-T", "fields", "-E", "separator=|"];
    for field in fields {
        args.extend(["-e", field]);
    }
    let line = |line: &str| -> Vec<Vec<String>> {
        let fields = line
            .split('|')
            .map(|field| field.split(',').filter(|value| !value.is_empty()));
        fields.map(|values| values.map(str::to_owned).collect()).collect()
    };
    tshark(&file, dissector, &args).lines().map(line).collect()
}

#[track_caller]
fn tshark(file: &Path, dissector: &str, args: &[&str]) -> String {
    let out = Command::new("tshark")
        .args(["-n", "-d", &format!("udp.port=={PORT},{dissector}"), "-r"])
        .arg(file)
        .args(args)
        .output()
        .expect("tshark");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The port to which the datagrams of a capture go.
const PORT: u16 = 9995;

/// A capture of datagrams (pcap, LINKTYPE_RAW: IPv4 without Ethernet).
fn capture(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65_535, 101] {
        out.extend(word.to_be_bytes());
    }
    for (second, datagram) in (1_700_000_000_u32..).zip(datagrams) {
        let len = 28 + datagram.len() as u32;
        for word in [second, 0, len, len] {
            out.extend(word.to_be_bytes());
        }
        out.extend([0x45, 0]);
        out.extend((len as u16).to_be_bytes());
        out.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        for half in [PORT, PORT, len as u16 - 20, 0] {
            out.extend(half.to_be_bytes());
        }
        out.extend(datagram);
    }
    out
}
