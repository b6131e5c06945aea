//! A collector of flow records on loopback, and what tshark reads in its datagrams.

use crate::{Sandbox, pcap, tshark};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A socket that takes datagrams. A thread reads it, so that none is lost while nobody asks.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    taken: Arc<Mutex<Vec<Vec<u8>>>>,
    reader: Option<JoinHandle<()>>,
    over: Arc<AtomicBool>,
}

impl Collector {
    /// A collector on a free port.
    ///
    /// # Panics
    /// Loopback has no free port.
    pub fn new() -> Collector {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a timeout");
        let address = socket.local_addr().expect("an address");
        let (taken, over) = (Arc::<Mutex<Vec<Vec<u8>>>>::default(), Arc::<AtomicBool>::default());
        let (into, ends) = (taken.clone(), over.clone());
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !ends.load(Relaxed) {
                if let Ok(len) = socket.recv(&mut buffer) {
                    into.lock().expect("no reader panics").push(buffer[..len].to_vec());
                }
            }
        });
        Collector {
            address,
            taken,
            reader: Some(reader),
            over,
        }
    }

    /// Its address, as exporters have it.
    pub fn target(&self) -> String {
        self.address.to_string()
    }

    /// The datagrams, when none has come for `quiet`.
    ///
    /// # Panics
    /// The reader has panicked.
    pub fn take(&self, quiet: Duration) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        let mut last = Instant::now();
        while last.elapsed() < quiet {
            std::thread::sleep(Duration::from_millis(20));
            let more = std::mem::take(&mut *self.taken.lock().expect("no reader panics"));
            if !more.is_empty() {
                last = Instant::now();
                taken.extend(more);
            }
        }
        taken
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
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
    let malformed = dissected(&file, dissector, &["-Y", "_ws.malformed"]);
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
    dissected(&file, dissector, &args).lines().map(line).collect()
}

#[track_caller]
fn dissected(file: &Path, dissector: &str, args: &[&str]) -> String {
    let decode = format!("udp.port=={PORT},{dissector}");
    // It calls records malformed whose template has more fields, 60 without this.
    let options = ["-d", &decode, "-o", "cflow.max_template_fields:0"];
    tshark(file, &[&options, args].concat())
}

/// The port to which the datagrams of a capture go.
const PORT: u16 = 9995;

/// A capture of datagrams.
fn capture(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let packets: Vec<Vec<u8>> = datagrams.iter().map(|datagram| ipv4(datagram)).collect();
    pcap::of_ip(&packets)
}

/// A datagram with its IPv4 and UDP headers.
fn ipv4(datagram: &[u8]) -> Vec<u8> {
    let len = 28 + datagram.len() as u16;
    let mut out = vec![0x45, 0];
    out.extend(len.to_be_bytes());
    out.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
    for half in [PORT, PORT, len - 20, 0] {
        out.extend(half.to_be_bytes());
    }
    out.extend(datagram);
    out
}
