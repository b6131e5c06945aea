//! Transactions: `--bundle` and `bundle`.

use super::Ctl;
use super::conn::Conn;
use super::flow_mods::{Reading, Source, for_version};
use super::groups::possible;
use super::notices::warn;
use crate::common::Failure;
use mgmt::vconn::{is_error, xid_of};
use openflow::model::{Body, BundleAdd, BundleControl, Message};
use openflow::text::print::message;
use openflow::text::{BundleStep, Protocols, parse_bundle_line};
use openflow::{ErrorBody, Version};

const OPEN: u16 = 0;
const COMMIT: u16 = 4;
const ATOMIC_ORDERED: u16 = 3;

/// How many bytes are sent at once: less than a socket buffer, so that the switch works while the
/// tool makes the next piece.
const PIECE: usize = 64 << 10;

/// An open bundle.
pub(crate) struct Transaction<'a> {
    ctl: &'a Ctl,
    conn: Conn,
    /// The transaction id of the first change; the others follow.
    first: u32,
    next: u32,
    piece: Vec<u8>,
    errors: Vec<Vec<u8>>,
}

impl<'a> Transaction<'a> {
    /// Opens a bundle for so many changes.
    pub(crate) fn open(ctl: &'a Ctl, target: &str, usable: Protocols, count: u32) -> Result<Transaction<'a>, Failure> {
        // OpenFlow 1.3 has bundles as an extension.
        let usable = usable & Protocols::since(Version::V13);
        let mut conn = ctl.open_for_change(target, usable)?;
        let first = ctl.xid();
        ctl.skip_xids(count.wrapping_sub(1));
        let open = control(&conn, ctl.xid(), OPEN);
        let reply = conn.transact(&open)?;
        let mut errors = Vec::new();
        if is_error(&reply) {
            errors.push(reply);
        }
        Ok(Transaction {
            ctl,
            conn,
            first,
            next: first,
            piece: Vec::new(),
            errors,
        })
    }

    pub(crate) fn version(&self) -> Version {
        self.conn.version
    }

    /// Whether changes with these usable formats fit the format in use.
    fn may_be(&self, usable: Protocols) -> bool {
        usable.has(self.conn.protocol)
    }

    /// Adds a change.
    pub(crate) fn add(&mut self, body: Body) -> Result<(), Failure> {
        let xid = self.next;
        self.next = xid.wrapping_add(1);
        let message = self.conn.encode(xid, body);
        let add = Body::BundleAdd(BundleAdd {
            bundle: 0,
            flags: ATOMIC_ORDERED,
            message,
        });
        let bytes = self.conn.encode(xid, add);
        self.piece.extend(bytes);
        match self.piece.len() >= PIECE {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let errors = &mut self.errors;
        let result = self.conn.vconn.stream_out(&self.piece, &mut |message| {
            if is_error(message) {
                errors.push(message.to_vec());
            }
            false
        });
        self.piece.clear();
        result.map_err(|e| self.conn.talking(e))
    }

    /// Commits the bundle. Returns the errors; if there are any, nothing was changed.
    pub(crate) fn commit(mut self) -> Result<Ended, Failure> {
        let barrier = self.ctl.xid();
        let bytes = self.conn.encode(barrier, Body::BarrierRequest);
        self.piece.extend(bytes);
        self.flush()?;
        self.wait_for(barrier)?;
        if self.errors.is_empty() {
            let xid = self.ctl.xid();
            self.piece = control(&self.conn, xid, COMMIT);
            self.flush()?;
            self.wait_for(xid)?;
        }
        Ok(Ended {
            name: self.conn.name,
            version: self.conn.version,
            first: self.first,
            count: self.next.wrapping_sub(self.first),
            errors: self.errors,
        })
    }

    /// Waits for the reply to a message and keeps errors about others.
    fn wait_for(&mut self, xid: u32) -> Result<(), Failure> {
        if self.errors.iter().any(|e| xid_of(e) == xid) {
            return Ok(());
        }
        loop {
            let message = self.conn.vconn.recv().map(<[u8]>::to_vec);
            let message = message.map_err(|e| self.conn.talking(e))?;
            let found = xid_of(&message) == xid;
            if is_error(&message) {
                self.errors.push(message);
            }
            if found {
                return Ok(());
            }
        }
    }
}

fn control(conn: &Conn, xid: u32, kind: u16) -> Vec<u8> {
    conn.encode(
        xid,
        Body::BundleControl(BundleControl {
            bundle: 0,
            kind,
            flags: ATOMIC_ORDERED,
        }),
    )
}

/// The result of a bundle.
pub(crate) struct Ended {
    name: String,
    version: Version,
    first: u32,
    count: u32,
    errors: Vec<Vec<u8>>,
}

/// Prints a bundle's errors. `find` returns the change by index, because errors quote only its
/// start.
pub(crate) fn transaction_end(
    ctl: &Ctl,
    target: &str,
    ended: Result<Ended, Failure>,
    find: impl Fn(u32) -> Result<Option<Body>, Failure>,
) -> Result<(), Failure> {
    let ended = ended?;
    if ended.errors.is_empty() {
        return Ok(());
    }
    let names = ctl.shown_names(target)?;
    let codec = openflow::Codec::new(ended.version);
    for error in &ended.errors {
        let Ok(Message {
            body: Body::Error(ErrorBody { kind, data }),
            ..
        }) = codec.decode(error)
        else {
            eprint!("***decode error***");
            continue;
        };
        let name = match kind {
            openflow::ErrorKind::Known(error) => error.name().to_owned(),
            openflow::ErrorKind::Unknown { kind, code, .. } => format!("type {kind}, code {code}"),
        };
        let xid = xid_of(error);
        let index = xid.wrapping_sub(ended.first);
        let whole = match index < ended.count {
            true => find(index)?.map(|body| codec.encode(&Message { xid, body })),
            false => None,
        };
        let quoted = whole.as_deref().unwrap_or(&data);
        eprint!("Error {name} for: ");
        warn(quoted);
        eprint!(
            "{}",
            message(quoted, names.as_ref(), ctl.options.verbosity.saturating_add(1))
        );
    }
    Err(Failure::new(format!("talking to {} (Protocol error)", ended.name)))
}

/// Applies the lines of a source as one bundle. `parse` reads a line, given the prefix of its error
/// messages; `body` makes the message for a version.
///
/// Lines are sent while they are read. After a mistake the bundle is never committed. The first
/// line chooses the format. If a later line cannot use that format, or the switch cannot be
/// reached, all lines are validated before the second attempt.
pub(super) fn bundled<M>(
    (ctl, target, source): (&Ctl, &str, &Source),
    reading: &Reading<'_>,
    parse: impl Fn(&str, &dyn Fn() -> String) -> Result<(M, Protocols), Failure>,
    body: impl Fn(M, Version) -> Result<Body, Failure>,
) -> Result<(), Failure> {
    let (mut usable, mut count) = (Protocols::ANY, 0);
    source.each(|line, place| {
        if count == 0 {
            usable = parse(line, place)?.1;
        }
        count += 1;
        Ok(())
    })?;
    reading.count();
    let before = ctl.xid.get();
    let mut tried = Transaction::open(ctl, target, usable, count).ok();
    source.each(|line, place| {
        let (change, of_this) = parse(line, place)?;
        usable &= of_this;
        if let Some(transaction) = &mut tried {
            if transaction.may_be(usable) {
                return transaction.add(body(change, transaction.version())?);
            }
            tried = None;
        }
        Ok(())
    })?;
    let transaction = match tried {
        Some(transaction) => transaction,
        None => {
            ctl.xid.set(before);
            let mut transaction = Transaction::open(ctl, target, usable, count)?;
            source.each(|line, place| transaction.add(body(parse(line, place)?.0, transaction.version())?))?;
            transaction
        }
    };
    let version = transaction.version();
    let ended = transaction.commit();
    transaction_end(ctl, target, ended, |index| {
        let (mut n, mut found) = (0, None);
        source.each(|line, place| {
            if n == index {
                found = Some(body(parse(line, place)?.0, version)?);
            }
            n += 1;
            Ok(())
        })?;
        Ok(found)
    })
}

pub(super) fn bundle(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let (target, file) = (&args[0], &args[1]);
    let source = Source::of(file, true)?;
    let reading = Reading::new(ctl, target);
    let parse = |line: &str, place: &dyn Fn() -> String| reading.read(place, |names| parse_bundle_line(line, names));
    let body = |step: BundleStep, version| match step {
        BundleStep::Flow(m) => Ok(Body::FlowMod(Box::new(for_version(*m, version)))),
        BundleStep::Group(m) => possible(&m, version).map(|()| Body::GroupMod(m)),
        BundleStep::PacketOut(p) => Ok(Body::PacketOut(p)),
    };
    bundled((ctl, target, &source), &reading, parse, body)
}
