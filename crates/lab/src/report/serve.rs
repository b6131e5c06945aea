//! Serves a report over HTTP on this machine and updates it while the run continues.
//!
//! Files are served from memory, by their names: a request never becomes a path. It answers only
//! requests with this machine's own name in the Host header, so that a foreign page cannot read the
//! report by DNS rebinding.

use super::{Input, write};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Longest request line and headers, in bytes.
const LONGEST: usize = 8192;
/// How long a client may take to ask, and to take a part of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most clients at a time.
const CLIENTS: usize = 32;

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    report: Arc<Report>,
}

/// Serves the report of a run's directory on 127.0.0.1 until the process ends, and prints the
/// address; port 0: any free port.
///
/// # Errors
/// The directory has no run; the port is in use.
pub fn serve(dir: &Path, port: u16) -> Result<()> {
    let server = Server::bind(dir, port)?;
    mgmt::outln!("The report of {} is at {} (end with ^C)", dir.display(), server.url()?);
    server.run();
    Ok(())
}

impl Server {
    /// Listens on 127.0.0.1.
    ///
    /// # Errors
    /// As [`serve`].
    pub fn bind(dir: &Path, port: u16) -> Result<Server> {
        let report = Report {
            dir: dir.to_owned(),
            made: Mutex::default(),
        };
        report.get("")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        Ok(Server {
            listener,
            report: Arc::new(report),
        })
    }

    /// Where the page is.
    ///
    /// # Errors
    /// The socket has no address.
    pub fn url(&self) -> Result<String> {
        Ok(format!("http://{}/", self.listener.local_addr()?))
    }

    /// Answers, each client in a thread of its own.
    pub fn run(&self) {
        let clients = Arc::new(AtomicUsize::new(0));
        for stream in self.listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors: some client ends before long.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS {
                clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (report, place) = (Arc::clone(&self.report), Place(Arc::clone(&clients)));
            std::thread::spawn(move || {
                let _place = place;
                // A client that goes away before its answer is its own affair.
                let _ = converse(&stream, &report);
            });
        }
    }
}

/// One of the places for clients.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A name, and what is in it.
type File = (&'static str, Arc<[u8]>);

#[derive(Debug)]
struct Report {
    dir: PathBuf,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    /// The files that the report was made from.
    of: Vec<Option<(SystemTime, u64)>>,
    files: BTreeMap<&'static str, Arc<[u8]>>,
}

impl Report {
    /// A file of the current report; none if it does not exist.
    fn get(&self, name: &str) -> Result<Option<File>> {
        let state = ["run.json", "samples.jsonl", super::CALIBRATION].map(|name| {
            let data = self.dir.join(name).metadata().ok()?;
            Some((data.modified().ok()?, data.len()))
        });
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.of != state {
            let files = write::render(&Input::read(&self.dir)?)?;
            made.files = files
                .into_iter()
                .map(|(name, text)| (name, text.into_bytes().into()))
                .collect();
            made.of = state.to_vec();
        }
        let name = if name.is_empty() { write::PAGE } else { name };
        Ok(made
            .files
            .get_key_value(name)
            .map(|(name, data)| (*name, Arc::clone(data))))
    }
}

fn converse(stream: &TcpStream, report: &Report) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(stream)?;
    let answer = answer(&head, report);
    let mut stream = stream;
    let length = answer.body.len();
    write!(
        stream,
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {length}\r\nConnection: close\r\nCache-Control: no-cache\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nX-Content-Type-Options: nosniff\r\n{}\r\n",
        answer.status, answer.kind, answer.headers
    )?;
    if !answer.only_head {
        stream.write_all(&answer.body)?;
    }
    stream.flush()
}

/// Request line and headers, truncated if they are too long.
fn read_head(stream: &TcpStream) -> std::io::Result<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    let mut byte = [0];
    while head.len() < LONGEST && !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        if reader.read(&mut byte)? == 0 {
            break;
        }
        head.push(byte[0]);
    }
    Ok(head)
}

struct Answer {
    status: &'static str,
    kind: &'static str,
    headers: &'static str,
    body: Arc<[u8]>,
    only_head: bool,
}

impl Answer {
    fn refuse(status: &'static str) -> Answer {
        Answer {
            status,
            kind: "text/plain; charset=utf-8",
            headers: "",
            body: format!("{status}\n").into_bytes().into(),
            only_head: false,
        }
    }
}

fn answer(head: &[u8], report: &Report) -> Answer {
    if head.len() >= LONGEST {
        return Answer::refuse("431 Request Header Fields Too Large");
    }
    let Some((method, target, host)) = std::str::from_utf8(head).ok().and_then(parse) else {
        return Answer::refuse("400 Bad Request");
    };
    if !is_here(host) {
        return Answer::refuse("403 Forbidden");
    }
    if method != "GET" && method != "HEAD" {
        return Answer {
            headers: "Allow: GET, HEAD\r\n",
            ..Answer::refuse("405 Method Not Allowed")
        };
    }
    let Some(name) = target.split(['?', '#']).next().and_then(|path| path.strip_prefix('/')) else {
        return Answer::refuse("400 Bad Request");
    };
    match report.get(name) {
        Ok(Some((name, body))) => Answer {
            status: "200 OK",
            kind: kind(name),
            headers: "",
            body,
            only_head: method == "HEAD",
        },
        Ok(None) => Answer::refuse("404 Not Found"),
        // Half a run.json, or a line that is being written: it is whole a moment later.
        Err(error) => Answer {
            headers: "Refresh: 2\r\n",
            body: format!("{error:#}\n").into_bytes().into(),
            ..Answer::refuse("503 Service Unavailable")
        },
    }
}

/// Method, target and host of an HTTP/1 request.
fn parse(head: &str) -> Option<(&str, &str, &str)> {
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let host = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let ends = head.ends_with("\r\n\r\n") || head.ends_with("\n\n");
    (is_method && ends && version.starts_with("HTTP/1.") && words.next().is_none()).then_some((method, target, host?))
}

fn is_here(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

fn kind(name: &str) -> &'static str {
    match Path::new(name).extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("csv") => "text/csv; charset=utf-8",
        _ => "application/octet-stream",
    }
}
