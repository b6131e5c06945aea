//! Comparison of sets of flows: `replace-flows` and `diff-flows`.

use super::bundle::{Transaction, transaction_end};
use super::conn::Conn;
use super::flow_mods::{Pipe, Reading, Source, for_version};
use super::out::Out;
use super::{Ctl, color, notices};
use crate::common::Failure;
use openflow::model::{Body, FlowCommand, FlowFlags, FlowMod, FlowStats, FlowStatsRequest, Instructions, Match};
use openflow::text::{Protocols, Style, instructions, matching, parse_flow_usable};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write;
use std::path::Path;

/// The identity of a flow.
type Key = (u8, u16, Match);

/// The attributes in which two flows of one identity may differ.
#[derive(Clone, Debug)]
struct Rest {
    cookie: u64,
    idle_timeout: u16,
    hard_timeout: u16,
    importance: u16,
    flags: FlowFlags,
    instructions: Instructions,
}

impl Rest {
    fn same(&self, other: &Rest) -> bool {
        self.cookie == other.cookie
            && self.idle_timeout == other.idle_timeout
            && self.hard_timeout == other.hard_timeout
            && self.importance == other.importance
            && self.instructions == other.instructions
    }
}

/// Flows of two sources, in the order in which they were first seen.
#[derive(Default)]
struct Both {
    places: HashMap<Key, usize>,
    flows: Vec<(Key, [Option<Rest>; 2])>,
}

impl Both {
    fn put(&mut self, side: usize, key: Key, rest: Rest) {
        let place = match self.places.entry(key) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.flows.push((entry.key().clone(), [None, None]));
                *entry.insert(self.flows.len() - 1)
            }
        };
        self.flows[place].1[side] = Some(rest);
    }

    /// Flows by table, the others in their order.
    fn sorted(&self) -> Vec<&(Key, [Option<Rest>; 2])> {
        let mut flows: Vec<_> = self.flows.iter().collect();
        flows.sort_by_key(|((table, ..), _)| *table);
        flows
    }

    fn read_file(&mut self, ctl: &Ctl, target: &str, name: &str, side: usize) -> Result<Protocols, Failure> {
        let source = Source::of(name, true).map_err(|mut e| {
            e.message = e.message.replace(": open failed (", ": open (");
            e
        })?;
        let reading = Reading::new(ctl, target);
        let mut usable = Protocols::ANY;
        let unnamed = notices::heard();
        source.each(|line, place| {
            let read = |names: &_| parse_flow_usable(FlowCommand::Add, line, names);
            let (m, formats) = match target {
                "" => {
                    let read = read(&unnamed).map_err(|e| Failure::new(format!("{}{e}", place())))?;
                    notices::log(unnamed.notices.take());
                    read
                }
                _ => reading.read(place, read)?,
            };
            usable &= formats;
            let rest = Rest {
                cookie: m.new_cookie.unwrap_or(0),
                idle_timeout: m.idle_timeout,
                hard_timeout: m.hard_timeout,
                importance: m.importance,
                flags: m.flags,
                instructions: m.instructions,
            };
            self.put(side, (m.table.unwrap_or(0), m.priority, m.matching), rest);
            Ok(())
        })?;
        Ok(usable)
    }

    fn read_switch(&mut self, ctl: &Ctl, conn: &mut Conn, side: usize) -> Result<(), Failure> {
        let request = FlowStatsRequest {
            nxm: conn.codec().nxm,
            ..FlowStatsRequest::default()
        };
        ctl.each_flow(conn, request, |flow: FlowStats| {
            let rest = Rest {
                cookie: flow.cookie,
                idle_timeout: flow.idle_timeout,
                hard_timeout: flow.hard_timeout,
                importance: flow.importance,
                flags: flow.flags,
                instructions: flow.instructions,
            };
            self.put(side, (flow.table, flow.priority, flow.matching), rest);
            Ok(())
        })
    }
}

/// A flow as text in a difference.
fn line(out: &mut String, sign: char, (key, rest): (&Key, &Rest), style: Style<'_>, colored: bool) {
    let (table, priority, covers) = key;
    out.push(sign);
    if *table != 0 {
        let _ = write!(out, "table={table} ");
    }
    let mut text = matching(covers, style);
    if *priority != 0x8000 {
        let comma = if text.is_empty() { "" } else { "," };
        text = format!("priority={priority}{comma}{text}");
    }
    match colored {
        true => color::conditions(out, &text),
        false => out.push_str(&text),
    }
    if rest.cookie != 0 {
        let _ = write!(out, " cookie={:#x}", rest.cookie);
    }
    for (name, value) in [
        ("idle_timeout", rest.idle_timeout),
        ("hard_timeout", rest.hard_timeout),
        ("importance", rest.importance),
    ] {
        if value != 0 {
            let _ = write!(out, " {name}={value}");
        }
    }
    out.push_str(" actions=");
    let text = instructions(&rest.instructions, style);
    match colored {
        true => color::list(out, &text),
        false => out.push_str(&text),
    }
    out.push('\n');
}

/// Whether a name is a file and not a switch.
fn is_file(name: &str) -> bool {
    name.starts_with(['/', '.']) || !name.contains(':') && Path::new(name).exists()
}

pub(super) fn diff(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let mut both = Both::default();
    let target = args.iter().find(|name| !is_file(name)).map_or("", String::as_str);
    let mut version = openflow::Version::V13;
    for (side, name) in args.iter().enumerate() {
        if is_file(name) {
            both.read_file(ctl, target, name, side)?;
        }
    }
    for (side, name) in args.iter().enumerate() {
        if !is_file(name) {
            let mut conn = ctl.open(name)?;
            ctl.set_format_for_dump(&mut conn, Protocols::ANY)?;
            version = conn.version;
            both.read_switch(ctl, &mut conn, side)?;
        }
    }
    let names = match target {
        "" => None,
        target => ctl.shown_names(target)?,
    };
    let style = Style {
        version,
        names: names.as_ref(),
    };
    let mut out = Out::default();
    let mut differ = false;
    for (key, [old, new]) in both.sorted() {
        if let (Some(old), Some(new)) = (old, new)
            && old.same(new)
        {
            continue;
        }
        differ = true;
        for (sign, rest) in [('-', old), ('+', new)] {
            if let Some(rest) = rest {
                line(&mut out.text, sign, (key, rest), style, ctl.options.color);
            }
        }
        out.flow()?;
    }
    out.flush()?;
    match differ {
        false => Ok(()),
        true => Err(Failure {
            message: String::new(),
            status: 2,
        }),
    }
}

/// The flow mod that adds or deletes a flow.
fn change(command: FlowCommand, (table, priority, covers): &Key, rest: &Rest) -> FlowMod {
    let mut m = FlowMod {
        command,
        table: Some(*table),
        priority: *priority,
        matching: covers.clone(),
        ..FlowMod::default()
    };
    if command == FlowCommand::Add {
        m.new_cookie = Some(rest.cookie);
        m.idle_timeout = rest.idle_timeout;
        m.hard_timeout = rest.hard_timeout;
        m.importance = rest.importance;
        m.flags = rest.flags;
        m.instructions = rest.instructions.clone();
    }
    m
}

pub(super) fn replace(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    const FILE: usize = 0;
    const SWITCH: usize = 1;
    let (target, file) = (&args[0], &args[1]);
    let mut both = Both::default();
    let usable = both.read_file(ctl, target, file, FILE)?;
    if ctl.options.accept_names() {
        ctl.skip_xids(4);
    }
    let mut conn = ctl.open(target)?;
    ctl.set_format_for_dump(&mut conn, usable)?;
    both.read_switch(ctl, &mut conn, SWITCH)?;
    let mut changes = Vec::new();
    for (key, sides) in both.sorted() {
        if let (None, Some(rest)) = (&sides[FILE], &sides[SWITCH]) {
            changes.push(change(FlowCommand::DeleteStrict, key, rest));
        }
    }
    for (key, sides) in both.sorted() {
        if let Some(rest) = &sides[FILE]
            && (ctl.options.readd || !sides[SWITCH].as_ref().is_some_and(|other| other.same(rest)))
        {
            changes.push(change(FlowCommand::Add, key, rest));
        }
    }
    if ctl.options.bundle {
        let count = u32::try_from(changes.len()).unwrap_or(u32::MAX);
        if count == 0 {
            return Ok(());
        }
        let mut transaction = Transaction::open(ctl, target, usable, count)?;
        for m in &changes {
            let m = for_version(m.clone(), transaction.version());
            transaction.add(Body::FlowMod(Box::new(m)))?;
        }
        let ended = transaction.commit();
        return transaction_end(ctl, target, ended, |index| {
            let m = changes.get(index as usize);
            Ok(m.map(|m| Body::FlowMod(Box::new(m.clone()))))
        });
    }
    let mut pipe = Pipe::new(ctl, target);
    for m in changes {
        pipe.send(&mut conn, Body::FlowMod(Box::new(m)))?;
    }
    pipe.finish(&mut conn)
}
