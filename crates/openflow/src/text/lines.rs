//! Files: one flow, group or change a line.

use super::{Names, ParseError, Protocols, parse_flow_usable, parse_group_mod, parse_packet_out};
use crate::model::{FlowCommand, FlowMod, GroupCommand, GroupMod, PacketOut};

/// The lines of a text that say something: without comments, which begin with `#`, and empty lines.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Lines<'a> {
    /// The lines of a text.
    pub fn new(text: &'a str) -> Lines<'a> {
        Lines { rest: text, number: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    /// A line's number, from 1, and the line.
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<(usize, &'a str)> {
        while !self.rest.is_empty() {
            let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
            self.rest = rest;
            self.number += 1;
            let said = line.split('#').next().unwrap_or("");
            if !said.trim_ascii().is_empty() {
                return Some((self.number, said));
            }
        }
        None
    }
}

/// Reads each line; errors say the file's name and the line's number.
fn each<'a, T>(
    name: &'a str,
    text: &'a str,
    read: impl Fn(&'a str) -> Result<T, ParseError> + 'a,
) -> impl Iterator<Item = Result<T, ParseError>> + 'a {
    Lines::new(text).map(move |(number, line)| read(line).map_err(|e| ParseError::new(format!("{name}:{number}: {e}"))))
}

/// Cuts a word off a line if one of `words` begins with it: keywords may be shortened.
fn keyword<T: Copy>(line: &mut &str, words: &[(&str, T)]) -> Option<T> {
    let text = line.trim_start_matches([' ', '\t', '\r', '\n']);
    let end = text.find([',', ' ', '\t', '\r', '\n']).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let (_, found) = words.iter().find(|(name, _)| name.starts_with(word))?;
    *line = rest;
    Some(*found)
}

/// Parses a flow, which may start with a command: `add`, `delete`, `delete_strict`, `modify` or
/// `modify_strict`; by default `add`.
///
/// # Errors
/// As [`parse_flow_usable`].
pub fn parse_flow_line(text: &str, names: &Names) -> Result<(FlowMod, Protocols), ParseError> {
    const COMMANDS: [(&str, FlowCommand); 5] = [
        ("add", FlowCommand::Add),
        ("delete", FlowCommand::Delete),
        ("delete_strict", FlowCommand::DeleteStrict),
        ("modify", FlowCommand::Modify),
        ("modify_strict", FlowCommand::ModifyStrict),
    ];
    let mut rest = text;
    let command = keyword(&mut rest, &COMMANDS).unwrap_or(FlowCommand::Add);
    parse_flow_usable(command, rest, names)
}

/// Parses a group, which may start with a command: `add`, `delete`, `modify`, `add_or_mod`,
/// `insert_bucket` or `remove_bucket`; by default `add`.
///
/// # Errors
/// As [`parse_group_mod`].
pub fn parse_group_line(text: &str, names: &Names) -> Result<(GroupMod, Protocols), ParseError> {
    const COMMANDS: [(&str, GroupCommand); 6] = [
        ("add", GroupCommand::Add),
        ("delete", GroupCommand::Delete),
        ("modify", GroupCommand::Modify),
        ("add_or_mod", GroupCommand::AddOrMod),
        ("insert_bucket", GroupCommand::InsertBucket),
        ("remove_bucket", GroupCommand::RemoveBucket),
    ];
    let mut rest = text;
    let command = keyword(&mut rest, &COMMANDS).unwrap_or(GroupCommand::Add);
    parse_group_mod(command, rest, names)
}

/// Parses a file of flows, one a line. Without `command`, each line may start with its own. The
/// name is for errors only, which begin `NAME:LINE: `.
pub fn parse_flow_file<'a>(
    name: &'a str,
    text: &'a str,
    command: Option<FlowCommand>,
    names: &'a Names,
) -> impl Iterator<Item = Result<(FlowMod, Protocols), ParseError>> + 'a {
    each(name, text, move |line| match command {
        Some(command) => parse_flow_usable(command, line, names),
        None => parse_flow_line(line, names),
    })
}

/// A line of a bundle's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleStep {
    /// `flow`, and a flow as in files of flows.
    Flow(Box<FlowMod>),
    /// `group`, and a group as in files of groups.
    Group(GroupMod),
    /// `packet-out`, and a packet.
    PacketOut(Box<PacketOut>),
}

/// Reads a bundle's file: flows, groups and packets, one a line, each behind a word that says which
/// it is.
pub fn parse_bundle_file<'a>(
    name: &'a str,
    text: &'a str,
    names: &'a Names,
) -> impl Iterator<Item = Result<(BundleStep, Protocols), ParseError>> + 'a {
    each(name, text, |line| parse_bundle_line(line, names))
}

/// Parses one line of a bundle's file.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_bundle_line(line: &str, names: &Names) -> Result<(BundleStep, Protocols), ParseError> {
    const KINDS: [(&str, u8); 3] = [("flow", 0), ("group", 1), ("packet-out", 2)];
    let mut rest = line;
    match keyword(&mut rest, &KINDS) {
        Some(0) => parse_flow_line(rest, names).map(|(m, usable)| (BundleStep::Flow(Box::new(m)), usable)),
        Some(1) => parse_group_line(rest, names).map(|(m, usable)| (BundleStep::Group(m), usable)),
        Some(_) => parse_packet_out(rest, names).map(|(m, usable)| (BundleStep::PacketOut(Box::new(m)), usable)),
        None => {
            let word = line.trim_start().split([',', ' ', '\t', '\r']).next().unwrap_or("");
            Err(ParseError::new(format!("Unsupported bundle message type: {word}")))
        }
    }
}
