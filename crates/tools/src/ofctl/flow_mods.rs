//! Flow mods: `add-flow`, `add-flows`, `mod-flows`, `del-flows`.
//!
//! A file is read twice: first to validate all of it and to find a usable format, then to send it.
//! A mistake in the last line therefore changes nothing, and the tool holds only one piece of the
//! file in memory. (A bundle is sent while it is read: it can be discarded.)

use super::bundle::bundled;
use super::conn::Conn;
use super::names::Wanted;
use super::{Ctl, notices};
use crate::common::Failure;
use mgmt::os_text;
use mgmt::vconn::{is_error, xid_of};
use openflow::Version;
use openflow::model::{Body, FlowCommand, FlowMod};
use openflow::text::{Names, ParseError, Protocols, parse_flow_line, parse_flow_usable};
use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, stdin};

/// How many bytes are sent at once: less than a socket buffer, so that the switch works while the
/// tool makes the next piece.
const PIECE: usize = 64 << 10;

/// A source of lines that can be read repeatedly.
pub(crate) enum Source {
    /// The command line.
    Word(String),
    /// A regular file, read again each time.
    File(String),
    /// Standard input or another stream that can be read once: its name and text.
    Text(String, Vec<u8>),
}

impl Source {
    /// A source for a command line argument: the text itself, or the file of that name if
    /// `is_file`; `-` is standard input.
    pub(crate) fn of(word: &str, is_file: bool) -> Result<Source, Failure> {
        if word == "-" {
            let mut text = Vec::new();
            stdin()
                .lock()
                .read_to_end(&mut text)
                .map_err(|e| Failure::new(format!("-: read failed ({})", os_text(&e))))?;
            return Ok(Source::Text("-".into(), text));
        }
        match is_file {
            false => Ok(Source::Word(word.to_owned())),
            true => {
                let file = open(word)?;
                let regular = file.metadata().is_ok_and(|m| m.is_file());
                if regular {
                    return Ok(Source::File(word.to_owned()));
                }
                let mut text = Vec::new();
                let mut file = file;
                file.read_to_end(&mut text)
                    .map_err(|e| Failure::new(format!("{word}: read failed ({})", os_text(&e))))?;
                Ok(Source::Text(word.to_owned(), text))
            }
        }
    }

    /// Calls a function for each line with content, with the prefix of its error messages.
    pub(crate) fn each(
        &self,
        mut tell: impl FnMut(&str, &dyn Fn() -> String) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        match self {
            Source::Word(text) => tell(text, &String::new),
            Source::File(name) => lines(name, &mut BufReader::with_capacity(PIECE, open(name)?), tell),
            Source::Text(name, text) => lines(name, &mut Cursor::new(text), tell),
        }
    }
}

fn open(name: &str) -> Result<File, Failure> {
    File::open(name).map_err(|e| Failure::new(format!("{name}: open failed ({})", os_text(&e))))
}

fn lines(
    name: &str,
    from: &mut dyn BufRead,
    mut tell: impl FnMut(&str, &dyn Fn() -> String) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut number = 0u64;
    let mut line = String::new();
    loop {
        line.clear();
        let read = from
            .read_line(&mut line)
            .map_err(|e| Failure::new(format!("{name}: read failed ({})", os_text(&e))))?;
        if read == 0 {
            return Ok(());
        }
        number += 1;
        let said = line.split('#').next().unwrap_or_default();
        let said = said.trim_end_matches(['\n', '\r']);
        if !said.trim_ascii().is_empty() {
            tell(said, &|| format!("{name}:{number}: "))?;
        }
    }
}

/// Parses texts that may name ports and tables of a switch. Asks the switch for the names only if a
/// text cannot be parsed without them.
pub(crate) struct Reading<'a> {
    ctl: &'a Ctl,
    target: &'a str,
    none: Names,
    asked: OnceCell<Names>,
    /// The last line whose ignored parts were logged: lines are parsed more than once.
    told: Cell<Option<u64>>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(ctl: &'a Ctl, target: &'a str) -> Reading<'a> {
        Reading {
            ctl,
            target,
            none: notices::heard(),
            asked: OnceCell::new(),
            told: Cell::new(None),
        }
    }

    pub(crate) fn read<T>(
        &self,
        place: &dyn Fn() -> String,
        read: impl Fn(&Names) -> Result<T, ParseError>,
    ) -> Result<T, Failure> {
        let names = self.asked.get().unwrap_or(&self.none);
        let error = match read(names) {
            Ok(value) => {
                self.notice(place);
                return Ok(value);
            }
            Err(error) => error,
        };
        let fail = |e: ParseError| {
            notices::log(self.none.notices.take());
            Failure::new(format!("{}{e}", place()))
        };
        if self.asked.get().is_some() || !self.ctl.options.accept_names() {
            return Err(fail(error));
        }
        self.none.notices.take();
        let before = self.ctl.xid.get();
        let names = self.ctl.names(self.target, Wanted::Both)?;
        self.ctl.xid.set(before);
        let notices = self.none.notices.clone();
        let names = self.asked.get_or_init(|| Names { notices, ..names });
        let value = read(names).map_err(fail)?;
        self.notice(place);
        Ok(value)
    }

    /// Logs the ignored parts of a line, once.
    fn notice(&self, place: &dyn Fn() -> String) {
        let left_out = self.none.notices.take();
        if left_out.is_empty() {
            return;
        }
        let place = place();
        let mut words = place.trim_end_matches([':', ' ']).rsplit(':');
        let number = words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        if self.told.get().is_none_or(|told| told < number) {
            self.told.set(Some(number));
            notices::log(left_out);
        }
    }

    /// Skips the transaction ids that asking for names takes.
    pub(crate) fn count(&self) {
        if self.ctl.options.accept_names() {
            self.ctl.skip_xids(4);
        }
    }
}

/// A flow mod for a version: without a table it means table 0.
pub(crate) fn for_version(mut m: FlowMod, version: Version) -> FlowMod {
    let deletes = matches!(m.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
    if m.table.is_none() && (version == Version::V11 || version > Version::V11 && !deletes) {
        m.table = Some(0);
    }
    m
}

/// Applies the lines of a source, as one bundle with `--bundle`, otherwise one by one. `parse`
/// reads a line, given the prefix of its error messages; `body` makes the message for a version.
pub(crate) fn change<M>(
    (ctl, target, source): (&Ctl, &str, &Source),
    reading: &Reading<'_>,
    parse: impl Fn(&str, &dyn Fn() -> String) -> Result<(M, Protocols), Failure>,
    body: impl Fn(M, Version) -> Result<Body, Failure>,
) -> Result<(), Failure> {
    if ctl.options.bundle {
        return bundled((ctl, target, source), reading, parse, body);
    }
    let mut usable = Protocols::ANY;
    source.each(|line, place| {
        usable &= parse(line, place)?.1;
        Ok(())
    })?;
    reading.count();
    let mut conn = ctl.open_for_change(target, usable)?;
    let mut pipe = Pipe::new(ctl, target);
    source.each(|line, place| {
        let message = body(parse(line, place)?.0, conn.version)?;
        pipe.send(&mut conn, message)
    })?;
    pipe.finish(&mut conn)
}

fn change_flows(ctl: &Ctl, target: &str, source: &Source, command: Option<FlowCommand>) -> Result<(), Failure> {
    let reading = Reading::new(ctl, target);
    let parse = |line: &str, place: &dyn Fn() -> String| {
        reading.read(place, |names| match command {
            Some(command) => parse_flow_usable(command, line, names),
            None => parse_flow_line(line, names),
        })
    };
    let body = |m, version| Ok(Body::FlowMod(Box::new(for_version(m, version))));
    change((ctl, target, source), &reading, parse, body)
}

/// Sends changes without waiting for each, and receives errors meanwhile.
pub(crate) struct Pipe<'a> {
    ctl: &'a Ctl,
    target: &'a str,
    piece: Vec<u8>,
    sent: bool,
}

impl<'a> Pipe<'a> {
    pub(crate) fn new(ctl: &'a Ctl, target: &'a str) -> Pipe<'a> {
        Pipe {
            ctl,
            target,
            piece: Vec::new(),
            sent: false,
        }
    }

    pub(crate) fn send(&mut self, conn: &mut Conn, body: Body) -> Result<(), Failure> {
        let xid = self.ctl.xid();
        // The next transaction id is for a barrier, which only the last change needs.
        self.ctl.skip_xids(1);
        self.sent = true;
        self.piece.extend(conn.encode(xid, body));
        if self.piece.len() >= PIECE {
            self.flush(conn)?;
        }
        Ok(())
    }

    fn flush(&mut self, conn: &mut Conn) -> Result<(), Failure> {
        let mut error = None;
        let result = conn.vconn.stream_out(&self.piece, &mut |message| {
            if is_error(message) {
                error = Some(message.to_vec());
            }
            error.is_some()
        });
        self.piece.clear();
        result.map_err(|e| conn.talking(e))?;
        match error {
            Some(error) => self.ctl.refused(self.target, &error),
            None => Ok(()),
        }
    }

    /// Waits until the switch has done everything.
    pub(crate) fn finish(&mut self, conn: &mut Conn) -> Result<(), Failure> {
        if !self.sent {
            return Ok(());
        }
        let barrier = self.ctl.xid.get();
        self.piece.extend(conn.encode(barrier, Body::BarrierRequest));
        self.flush(conn)?;
        loop {
            let message = conn.vconn.recv().map(<[u8]>::to_vec);
            let message = message.map_err(|e| conn.talking(e))?;
            if is_error(&message) {
                return self.ctl.refused(self.target, &message);
            }
            if xid_of(&message) == barrier {
                return Ok(());
            }
        }
    }
}

pub(super) fn add_flow(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let source = Source::of(&args[1], false)?;
    // Lines of a file may begin with a command; an argument does not.
    let command = matches!(source, Source::Word(_)).then_some(FlowCommand::Add);
    change_flows(ctl, &args[0], &source, command)
}

pub(super) fn add_flows(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    change_flows(ctl, &args[0], &Source::of(&args[1], true)?, None)
}

pub(super) fn mod_flows(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let command = match ctl.options.strict {
        true => FlowCommand::ModifyStrict,
        false => FlowCommand::Modify,
    };
    change_flows(ctl, &args[0], &Source::of(&args[1], false)?, Some(command))
}

pub(super) fn del_flows(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let command = match ctl.options.strict {
        true => FlowCommand::DeleteStrict,
        false => FlowCommand::Delete,
    };
    let source = match args.get(1) {
        Some(word) => Source::of(word, false)?,
        None => Source::Word(String::new()),
    };
    change_flows(ctl, &args[0], &source, Some(command))
}
