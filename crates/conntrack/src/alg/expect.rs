//! Expected connections, and the control connections that announce them.

use super::lines::Lines;
use super::shift::{Edit, Shift, rewrite};
use super::{Helper, ftp};
use crate::checksum::Checksum;
use crate::packet::Parsed;
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
/// Ports to try for an announced connection through a translated address.
const PORTS: u16 = 64;

/// What helpers know.
#[derive(Default)]
pub(crate) struct Alg {
    /// Number of expectations, so that packets of new connections need no lock while there is none.
    count: AtomicUsize,
    state: Mutex<State>,
    /// Announced connections for which there was no room.
    pub(crate) refused: AtomicU64,
    /// Announcements of an address that is not the sender's, or whose line cannot be changed as NAT
    /// needs it.
    pub(crate) ignored: AtomicU64,
}

#[derive(Default)]
struct State {
    expected: BTreeMap<Key, Expectation>,
    /// Expectations of each control connection, the oldest first.
    controls: BTreeMap<Id, Vec<Key>>,
    ftp: BTreeMap<Id, Ftp>,
}

/// Both directions of an FTP control connection, that of the client first.
#[derive(Default)]
struct Ftp {
    lines: [Lines; 2],
    shifts: [Shift; 2],
}

/// What becomes of a packet of a control connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Helped {
    /// It stays as it is.
    Unchanged,
    /// This packet takes its place.
    Replaced(Vec<u8>),
    /// It has a part only of what NAT has to replace: it must not go on.
    Cut,
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
    /// Reads a packet of an FTP control connection, and says what it is behind NAT.
    #[cold]
    pub(crate) fn read_ftp(
        &self,
        control: &Control<'_>,
        (data, sum): (&[u8], Checksum),
        parsed: &Parsed,
        segment: &Segment,
        now: Nanos,
    ) -> Helped {
        let side = usize::from(control.from_server);
        let mut state = self.state.lock();
        if !control.lives() {
            return Helped::Unchanged;
        }
        if !state.ftp.contains_key(&control.id) && state.ftp.len() >= MOST_CONTROLS {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Helped::Unchanged;
        }
        // Taken out, since what it announces is put in beside it.
        let mut ftp = state.ftp.remove(&control.id).unwrap_or_default();
        let mut seq = segment.seq;
        if segment.flags & crate::tcp::SYN != 0 {
            seq = seq.wrapping_add(1);
            ftp.lines[side].begin(seq);
        }
        let payload = &data[parsed.end - segment.len as usize..parsed.end];
        let mut found = Vec::new();
        ftp.lines[side].take(seq, payload, |line, at| {
            found.extend(ftp::announced(line, control.from_server).map(|announced| (announced, at)));
        });
        for (announced, at) in found {
            if let Some(edit) = self.announce(&mut state, control, &announced, at, now) {
                ftp.shifts[side].add(edit);
            }
        }
        let helped = match ftp.shifts.iter().all(Shift::is_empty) {
            true => Helped::Unchanged,
            false => rewrite(data, parsed, sum, segment, (&ftp.shifts[side], &ftp.shifts[1 - side]))
                .map_or(Helped::Cut, Helped::Replaced),
        };
        state.ftp.insert(control.id, ftp);
        helped
    }

    /// Expects an announced connection. Returns what takes the place of the line's address and
    /// port, if NAT changes them.
    fn announce(
        &self,
        state: &mut State,
        control: &Control<'_>,
        announced: &ftp::Announced,
        at: Option<u32>,
        now: Nanos,
    ) -> Option<Edit> {
        let ignored = || {
            self.ignored.fetch_add(1, Ordering::Relaxed);
        };
        let Some((mut key, expected)) = data_connection(control, announced) else {
            ignored();
            return None;
        };
        if key.dst != expected.dst && !state.find_port(&mut key, control.id, now) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let stays = announced.address.is_none_or(|address| address == key.dst) && announced.port == key.dst_port;
        if stays {
            self.expect(state, control, key, expected, now);
            return None;
        }
        let Some(at) = at else {
            ignored();
            return None;
        };
        self.expect(state, control, key, expected, now);
        Some(Edit {
            seq: at.wrapping_add(announced.text.start as u32),
            len: announced.text.len() as u32,
            text: announced.with(key.dst, key.dst_port),
        })
    }

    /// A segment of a control connection with the numbers that its sender and the sender of what it
    /// acknowledges have: the tracker knows each side by its own numbers. `again`: the packet was
    /// replaced already.
    #[cold]
    pub(crate) fn own_numbers(&self, id: Id, from_server: bool, again: bool, segment: &mut Segment) {
        let state = self.state.lock();
        let Some(ftp) = state.ftp.get(&id) else { return };
        let side = usize::from(from_server);
        match again {
            true => segment.seq = ftp.shifts[side].back(segment.seq),
            false if segment.flags & crate::tcp::ACK != 0 => segment.ack = ftp.shifts[1 - side].back(segment.ack),
            false => {}
        }
    }

    /// Reads a request of TFTP: the server answers from another port.
    #[cold]
    pub(crate) fn read_tftp(&self, control: &Control<'_>, data: &[u8], now: Nanos) {
        // Read or write request (RFC 1350 §5).
        if !control.from_server && matches!(data, [0, 1 | 2, _, ..]) {
            let port = (control.reply.dst_port(), control.original.src_port());
            let (key, expected) = from_server(control, port);
            let mut state = self.state.lock();
            if control.lives() {
                self.expect(&mut state, control, key, expected, now);
            }
        }
    }

    /// Forgets a control connection and what it announced.
    pub(crate) fn forget(&self, id: Id) {
        let mut state = self.state.lock();
        state.ftp.remove(&id);
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

    fn expect(&self, state: &mut State, control: &Control<'_>, key: Key, expected: Expected, now: Nanos) {
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
    /// Takes the first port, from that of the key on, at which nobody else expects a connection;
    /// false without one.
    fn find_port(&self, key: &mut Key, control: Id, now: Nanos) -> bool {
        let first = key.dst_port;
        (0..PORTS).any(|n| {
            key.dst_port = first.checked_add(n).unwrap_or(first - n);
            let other = self.expected.get(key);
            other.is_none_or(|other| other.control == control || other.until <= now)
        })
    }

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

/// The data connection that a line of FTP announces; `None` if its address is of no use: neither
/// the sender's own nor the one by which the other side knows it (RFC 2577 §3).
fn data_connection(control: &Control<'_>, announced: &ftp::Announced) -> Option<(Key, Expected)> {
    let port = announced.port;
    match control.from_server {
        true => {
            // The client will connect to what it calls the server.
            let (own, outer) = (control.reply.src(), control.original.dst());
            let right = announced
                .address
                .is_none_or(|address| address == own || address == outer);
            let key = Key {
                zone: control.zone,
                protocol: control.original.protocol(),
                src: control.original.src(),
                dst: outer,
                dst_port: port,
            };
            let expected = Expected {
                parent: control.original,
                mark: control.mark,
                label: control.label,
                src: control.reply.dst(),
                dst: own,
                dst_port: port,
            };
            right.then_some((key, expected))
        }
        false => {
            // The server will connect to what it calls the client.
            let (own, outer) = (control.original.src(), control.reply.dst());
            let right = announced
                .address
                .is_some_and(|address| address == own || address == outer);
            right.then(|| from_server(control, (port, port)))
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
