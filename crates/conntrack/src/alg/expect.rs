//! Expected connections, and the control connections that announce them.

use super::lines::Lines;
use super::{Helper, ftp};
use crate::table::Id;
use crate::table::entry::Entry;
use crate::tcp::Segment;
use crate::tuple::Tuple;
use nanos::Nanos;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long a connection is expected, as in Linux.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Expected connections of one control connection at most; the oldest goes.
const MOST_OF_ONE: usize = 8;
/// Expected connections in total.
const MOST: usize = 4096;
/// FTP control connections whose lines are read at the same time.
const MOST_CONTROLS: usize = 4096;

/// What helpers know.
#[derive(Default)]
pub(crate) struct Alg {
    /// Number of expectations, so that packets of new connections need no lock while there is none.
    count: AtomicUsize,
    state: Mutex<State>,
    /// Announced connections for which there was no room.
    pub(crate) refused: AtomicU64,
    /// Announcements of an address that is not the sender's, or that NAT hides.
    pub(crate) ignored: AtomicU64,
}

#[derive(Default)]
struct State {
    expected: BTreeMap<Key, Expectation>,
    /// Expectations of each control connection, the oldest first.
    controls: BTreeMap<Id, Vec<Key>>,
    lines: BTreeMap<Id, [Lines; 2]>,
}

/// What the first packet of an expected connection has; its source port may be any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    zone: u16,
    protocol: u8,
    src: IpAddr,
    dst: IpAddr,
    dst_port: u16,
}

struct Expectation {
    control: Id,
    until: Nanos,
    expected: Expected,
}

/// An expected connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The control connection's original tuple, mark and label.
    pub(crate) parent: Tuple,
    pub(crate) mark: u32,
    pub(crate) label: u128,
    /// Source address, destination address and port behind the translation.
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    pub(crate) dst_port: u16,
}

/// A control connection, and the direction of the packet.
pub(crate) struct Control<'a> {
    pub(crate) id: Id,
    pub(crate) entry: &'a Entry,
    pub(crate) zone: u16,
    pub(crate) original: Tuple,
    pub(crate) reply: Tuple,
    pub(crate) mark: u32,
    pub(crate) label: u128,
    pub(crate) from_server: bool,
}

impl Control<'_> {
    /// Whether it has not ended. Under the lock: who ends a connection calls [`Alg::forget`] behind
    /// that, so nothing about an ended one stays.
    fn lives(&self) -> bool {
        self.entry.life() == self.id.life
    }
}

impl Alg {
    /// Reads a packet of an FTP control connection.
    #[cold]
    pub(crate) fn read_ftp(&self, control: &Control<'_>, segment: &Segment, data: &[u8], now: Nanos) {
        let mut found = Vec::new();
        let mut state = self.state.lock();
        if !control.lives() {
            return;
        }
        if !state.lines.contains_key(&control.id) {
            if state.lines.len() >= MOST_CONTROLS {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            state.lines.insert(control.id, Default::default());
        }
        if let Some(both) = state.lines.get_mut(&control.id) {
            let lines = &mut both[usize::from(control.from_server)];
            let mut seq = segment.seq;
            if segment.flags & crate::tcp::SYN != 0 {
                seq = seq.wrapping_add(1);
                lines.begin(seq);
            }
            lines.take(seq, data, |line| {
                found.extend(ftp::announced(line, control.from_server))
            });
        }
        drop(state);
        for announced in found {
            match data_connection(control, &announced) {
                Some((key, expected)) => self.expect(control, key, expected, now),
                None => drop(self.ignored.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    /// Reads a request of TFTP: the server answers from another port.
    #[cold]
    pub(crate) fn read_tftp(&self, control: &Control<'_>, data: &[u8], now: Nanos) {
        // Read or write request (RFC 1350 §5).
        if !control.from_server && matches!(data, [0, 1 | 2, _, ..]) {
            let port = (control.reply.dst_port(), control.original.src_port());
            let (key, expected) = from_server(control, port);
            self.expect(control, key, expected, now);
        }
    }

    /// Forgets a control connection and what it announced.
    pub(crate) fn forget(&self, id: Id) {
        let mut state = self.state.lock();
        state.lines.remove(&id);
        for key in state.controls.remove(&id).unwrap_or_default() {
            state.expected.remove(&key);
        }
        self.count.store(state.expected.len(), Ordering::Relaxed);
    }

    /// The expectation that a packet of no connection fulfils.
    pub(crate) fn find(&self, tuple: &Tuple, zone: u16, now: Nanos) -> Option<Expected> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let key = Key::of(tuple, zone);
        let state = self.state.lock();
        let found = state.expected.get(&key).filter(|found| found.until > now)?;
        Some(found.expected)
    }

    /// Removes an expectation that is fulfilled.
    pub(crate) fn fulfil(&self, tuple: &Tuple, zone: u16) {
        let mut state = self.state.lock();
        state.remove(&Key::of(tuple, zone));
        self.count.store(state.expected.len(), Ordering::Relaxed);
    }

    /// Connections that are expected.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn expect(&self, control: &Control<'_>, key: Key, expected: Expected, now: Nanos) {
        let mut state = self.state.lock();
        if !control.lives() {
            return;
        }
        let control = control.id;
        state.remove(&key);
        if state.expected.len() >= MOST {
            let old: Vec<Key> = state
                .expected
                .iter()
                .filter(|(_, e)| e.until <= now)
                .map(|(key, _)| *key)
                .collect();
            old.iter().for_each(|key| state.remove(key));
        }
        let own = state.controls.get(&control);
        let oldest = own.filter(|own| own.len() >= MOST_OF_ONE).map(|own| own[0]);
        if let Some(oldest) = oldest {
            state.remove(&oldest);
        }
        if state.expected.len() >= MOST {
            self.refused.fetch_add(1, Ordering::Relaxed);
        } else {
            state.controls.entry(control).or_default().push(key);
            let until = now + TIMEOUT;
            state.expected.insert(
                key,
                Expectation {
                    control,
                    until,
                    expected,
                },
            );
        }
        self.count.store(state.expected.len(), Ordering::Relaxed);
    }
}

impl State {
    fn remove(&mut self, key: &Key) {
        let Some(old) = self.expected.remove(key) else { return };
        if let Some(own) = self.controls.get_mut(&old.control) {
            own.retain(|other| other != key);
            if own.is_empty() {
                self.controls.remove(&old.control);
            }
        }
    }
}

impl Key {
    fn of(tuple: &Tuple, zone: u16) -> Key {
        Key {
            zone,
            protocol: tuple.protocol(),
            src: tuple.src(),
            dst: tuple.dst(),
            dst_port: tuple.dst_port(),
        }
    }
}

/// The data connection that a line of FTP announces; `None` if its address is of no use.
fn data_connection(control: &Control<'_>, announced: &ftp::Announced) -> Option<(Key, Expected)> {
    let port = announced.port;
    match control.from_server {
        true => {
            // The client will connect to what it calls the server.
            let server = control.reply.src();
            let plain = control.original.dst() == server;
            announced
                .address
                .is_none_or(|address| address == server && plain)
                .then_some(())?;
            let key = Key {
                zone: control.zone,
                protocol: control.original.protocol(),
                src: control.original.src(),
                dst: control.original.dst(),
                dst_port: port,
            };
            let expected = Expected {
                parent: control.original,
                mark: control.mark,
                label: control.label,
                src: control.reply.dst(),
                dst: server,
                dst_port: port,
            };
            Some((key, expected))
        }
        false => {
            // The server will connect to the address in the line: the client's own, not hidden.
            let client = control.original.src();
            let plain = control.reply.dst() == client;
            (announced.address == Some(client) && plain).then(|| from_server(control, (port, port)))
        }
    }
}

/// A connection from the server to a port of the client: as the server sees it, and the client.
fn from_server(control: &Control<'_>, (outer, inner): (u16, u16)) -> (Key, Expected) {
    let key = Key {
        zone: control.zone,
        protocol: control.original.protocol(),
        src: control.reply.src(),
        dst: control.reply.dst(),
        dst_port: outer,
    };
    let expected = Expected {
        parent: control.original,
        mark: control.mark,
        label: control.label,
        src: control.original.dst(),
        dst: control.original.src(),
        dst_port: inner,
    };
    (key, expected)
}

impl Helper {
    /// Whether it reads connections of this protocol.
    pub(crate) fn fits(self, protocol: u8) -> bool {
        match self {
            Helper::Ftp => protocol == crate::tuple::TCP,
            Helper::Tftp => protocol == crate::tuple::UDP,
        }
    }
}
