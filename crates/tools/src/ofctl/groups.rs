//! Groups.

use super::Ctl;
use super::flow_mods::{Reading, Source, change};
use super::names::Wanted;
use crate::common::Failure;
use openflow::Version;
use openflow::model::{ALL_GROUPS, ANY_GROUP, Body, GroupCommand, GroupMod, GroupType, StatsRequest};
use openflow::text::{Protocols, parse_group_line, parse_group_mod};

/// The deletion of all groups.
fn all() -> GroupMod {
    GroupMod {
        command: GroupCommand::Delete,
        kind: GroupType::All,
        group: ALL_GROUPS,
        bucket_id: u32::MAX,
        buckets: Vec::new(),
        selection: None,
    }
}

/// Checks that a version can express the change: parts of groups can be changed in OpenFlow 1.5,
/// and in 1.0 by Nicira's messages.
pub(super) fn possible(m: &GroupMod, version: Version) -> Result<(), Failure> {
    let name = match m.command {
        GroupCommand::InsertBucket => "insert-bucket",
        GroupCommand::RemoveBucket => "remove-bucket",
        _ => return Ok(()),
    };
    match version {
        Version::V10 | Version::V15 => Ok(()),
        _ => Err(Failure::new(format!(
            "{name} needs OpenFlow 1.5 or later ('-O OpenFlow15')"
        ))),
    }
}

fn change_groups(ctl: &Ctl, target: &str, source: &Source, command: Option<GroupCommand>) -> Result<(), Failure> {
    let reading = Reading::new(ctl, target);
    let parse = |line: &str, place: &dyn Fn() -> String| {
        if line.is_empty() && command == Some(GroupCommand::Delete) {
            return Ok((all(), Protocols::ANY));
        }
        let (m, usable) = reading.read(place, |names| match command {
            Some(command) => parse_group_mod(command, line, names),
            None => parse_group_line(line, names),
        })?;
        if m.kind == GroupType::Indirect && m.buckets.len() > 1 {
            let place = place();
            return Err(Failure::new(format!(
                "{place}Indirect groups can have at most one bucket."
            )));
        }
        Ok((m, usable))
    };
    let body = |m, version| possible(&m, version).map(|()| Body::GroupMod(m));
    change((ctl, target, source), &reading, parse, body)
}

fn with(ctl: &Ctl, args: &[String], command: Option<GroupCommand>, is_file: bool) -> Result<(), Failure> {
    let source = match args.get(1) {
        Some(word) => Source::of(word, is_file)?,
        None => Source::Word(String::new()),
    };
    let is_word = matches!(source, Source::Word(_));
    // Lines of a file may begin with a command; an argument does not.
    let command = command.or_else(|| is_word.then_some(GroupCommand::Add));
    change_groups(ctl, &args[0], &source, command)
}

pub(super) fn add(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    with(ctl, args, None, false)
}

pub(super) fn add_file(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    with(ctl, args, None, true)
}

pub(super) fn modify(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let command = match ctl.options.may_create {
        true => GroupCommand::AddOrMod,
        false => GroupCommand::Modify,
    };
    with(ctl, args, Some(command), false)
}

pub(super) fn delete(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    with(ctl, args, Some(GroupCommand::Delete), false)
}

pub(super) fn insert_buckets(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    with(ctl, args, Some(GroupCommand::InsertBucket), false)
}

pub(super) fn remove_buckets(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    with(ctl, args, Some(GroupCommand::RemoveBucket), false)
}

/// The group that a word means; a warning if it means none.
fn group(word: &str) -> Option<u32> {
    if word.eq_ignore_ascii_case("all") {
        return Some(ALL_GROUPS);
    }
    if word.eq_ignore_ascii_case("any") {
        return Some(ANY_GROUP);
    }
    let number = word.parse().ok();
    if number.is_none() {
        tracing::warn!(
            target: "ofp_group",
            "{word} is not a valid group ID.  (Valid group IDs are 32-bit nonnegative integers or the keywords ANY or ALL.)"
        );
    }
    number
}

pub(super) fn dump(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let mut conn = ctl.open(&args[0])?;
    let group = match args.get(1).map(String::as_str) {
        Some(word) => group(word).unwrap_or(ALL_GROUPS),
        None => ALL_GROUPS,
    };
    ctl.print_statistics(&mut conn, &args[0], StatsRequest::GroupDesc(group))
}

pub(super) fn stats(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let (group, usable) = ctl.read_with_names(target, Wanted::Both, |names| {
        let Some(text) = args.get(1) else {
            return Ok((ALL_GROUPS, Protocols::ANY));
        };
        parse_group_mod(GroupCommand::Delete, text, names).map(|(m, usable)| (m.group, usable))
    })?;
    let mut conn = ctl.open_for_change(target, usable)?;
    ctl.print_statistics(&mut conn, target, StatsRequest::Group(group))
}

pub(super) fn features(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    ctl.dump(&args[0], StatsRequest::GroupFeatures)
}
