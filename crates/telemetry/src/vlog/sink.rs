//! The destinations: standard error, the system's log, a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::pattern::{Record, expand};
use super::{Destination, Level, SpecError};
use crate::calendar;

/// How messages get to the system's log (`--syslog-method`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SyslogMethod {
    /// To `/dev/log`.
    #[default]
    Libc,
    /// To this datagram socket.
    Unix(PathBuf),
    /// By UDP to this address.
    Udp(String),
    /// Not at all.
    Null,
}

impl FromStr for SyslogMethod {
    type Err = SpecError;

    fn from_str(s: &str) -> Result<SyslogMethod, SpecError> {
        match s.split_once(':') {
            None if s == "libc" => Ok(SyslogMethod::Libc),
            None if s == "null" => Ok(SyslogMethod::Null),
            Some(("unix", file)) => Ok(SyslogMethod::Unix(file.into())),
            Some(("udp", address)) => Ok(SyslogMethod::Udp(address.to_owned())),
            _ => Err(SpecError::UnknownSyslogMethod(s.to_owned())),
        }
    }
}

pub(super) static SINKS: Mutex<Sinks> = Mutex::new(Sinks::new());
static FILE_OPEN: AtomicBool = AtomicBool::new(false);

/// Whether there is a log file, without the lock.
pub(super) fn file_is_open() -> bool {
    FILE_OPEN.load(Ordering::Relaxed)
}

/// The number of a facility of RFC 5424 by its name.
pub(super) fn facility(name: &str) -> Option<u8> {
    const NAMES: [&str; 24] = [
        "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "clock", "ftp", "ntp", "audit",
        "alert", "clock2", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7", "",
    ];
    // Position and number differ after `uucp`: RFC 5424 table 1 has `clock` at 9, `authpriv` at 10.
    const NUMBERS: [u8; 23] = [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
    ];
    let name = name.to_ascii_lowercase();
    NAMES
        .iter()
        .position(|n| !n.is_empty() && *n == name)
        .map(|i| NUMBERS[i])
}

/// The open destinations and what their lines look like.
pub(super) struct Sinks {
    program: String,
    subprogram: String,
    serial: u64,
    started: Option<Instant>,
    facility: u8,
    patterns: [Option<String>; 3],
    file: Option<File>,
    path: Option<PathBuf>,
    method: SyslogMethod,
    syslog: Socket,
    target: Option<UdpSocket>,
}

enum Socket {
    Closed,
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

const DEFAULT_PATTERNS: [&str; 3] = [
    "%D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m",
    "ovs|%05N|%c%T|%p|%m",
    "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m",
];

impl Sinks {
    const fn new() -> Sinks {
        Sinks {
            program: String::new(),
            subprogram: String::new(),
            serial: 0,
            started: None,
            facility: 3,
            patterns: [None, None, None],
            file: None,
            path: None,
            method: SyslogMethod::Libc,
            syslog: Socket::Closed,
            target: None,
        }
    }

    pub(super) fn set_program(&mut self, program: &str) {
        program.clone_into(&mut self.program);
        self.started.get_or_insert_with(Instant::now);
    }

    pub(super) fn set_subprogram(&mut self, name: &str) {
        name.clone_into(&mut self.subprogram);
    }

    pub(super) fn set_pattern(&mut self, destination: Destination, pattern: &str) {
        self.patterns[destination as usize] = Some(pattern.to_owned());
    }

    pub(super) fn set_facility(&mut self, facility: u8) {
        self.facility = facility;
    }

    pub(super) fn set_syslog_method(&mut self, method: SyslogMethod) {
        self.method = method;
        self.syslog = Socket::Closed;
    }

    pub(super) fn set_syslog_target(&mut self, target: &str) -> io::Result<()> {
        self.target = Some(udp(target)?);
        Ok(())
    }

    pub(super) fn open_file(&mut self, path: &Path) -> io::Result<()> {
        self.path = Some(path.to_owned());
        self.file = None;
        FILE_OPEN.store(false, Ordering::Relaxed);
        let file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
        self.file = Some(file);
        FILE_OPEN.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn close_file(&mut self) {
        self.file = None;
        FILE_OPEN.store(false, Ordering::Relaxed);
    }

    pub(super) fn file_is_open(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn file_path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    pub(super) fn list_pattern(&self) -> String {
        let mut out = String::from("         prefix                            format\n");
        out.push_str("         ------                            ------\n");
        for (d, prefix) in [
            (Destination::Syslog, "<%B>%A: "),
            (Destination::Console, "none"),
            (Destination::File, "none"),
        ] {
            let name = d.as_str().to_ascii_uppercase();
            out.push_str(&format!("{name:<8} {prefix:<33} {}\n", self.pattern(d)));
        }
        out
    }

    fn pattern(&self, destination: Destination) -> &str {
        let i = destination as usize;
        self.patterns[i].as_deref().unwrap_or(DEFAULT_PATTERNS[i])
    }

    /// Writes a message to the wanted destinations. What cannot be written is lost: there is
    /// nobody to tell.
    pub(super) fn write(&mut self, wanted: [bool; 3], module: &str, level: Level, (message, lines): (&str, bool)) {
        if !wanted.contains(&true) {
            return;
        }
        self.serial += 1;
        let thread = std::thread::current();
        let thread = thread.name().filter(|n| *n != "main").unwrap_or_default();
        let record = Record {
            program: self.program.clone(),
            subprogram: if thread.is_empty() { &self.subprogram } else { thread }.to_owned(),
            module,
            level,
            message,
            lines,
            serial: self.serial,
            priority: self.facility << 3 | level.severity(),
            started: self.started,
            now: calendar::since_epoch(),
        };
        for destination in Destination::ALL {
            if !wanted[destination as usize] {
                continue;
            }
            let mut line = expand(self.pattern(destination), &record);
            match destination {
                Destination::Console => {
                    line.push('\n');
                    let _ = io::stderr().write_all(line.as_bytes());
                }
                Destination::File => {
                    line.push('\n');
                    if let Some(file) = &mut self.file {
                        let _ = file.write_all(line.as_bytes());
                    }
                }
                Destination::Syslog => {
                    let line = format!("<{}>{}: {line}", record.priority, self.program);
                    self.send_syslog(line.as_bytes());
                }
            }
        }
    }

    /// Sends to the system's log, connecting again once if it was restarted. Never blocks.
    fn send_syslog(&mut self, line: &[u8]) {
        if let Some(target) = &self.target {
            let _ = target.send(line);
        }
        for _ in 0..2 {
            if matches!(self.syslog, Socket::Closed) {
                self.syslog = open_syslog(&self.method).unwrap_or(Socket::Closed);
            }
            let sent = match &self.syslog {
                Socket::Closed => return,
                Socket::Unix(socket) => socket.send(line),
                Socket::Udp(socket) => socket.send(line),
            };
            match sent {
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => self.syslog = Socket::Closed,
                _ => return,
            }
        }
    }
}

fn open_syslog(method: &SyslogMethod) -> io::Result<Socket> {
    let unix = |path: &Path| {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Socket::Unix(socket))
    };
    match method {
        SyslogMethod::Libc => unix(Path::new("/dev/log")),
        SyslogMethod::Unix(path) => unix(path),
        SyslogMethod::Udp(address) => Ok(Socket::Udp(udp(address)?)),
        SyslogMethod::Null => Ok(Socket::Closed),
    }
}

fn udp(address: &str) -> io::Result<UdpSocket> {
    use std::net::ToSocketAddrs;
    let unresolved = || io::Error::new(io::ErrorKind::NotFound, "no address");
    let address = address.to_socket_addrs()?.next().ok_or_else(unresolved)?;
    let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
