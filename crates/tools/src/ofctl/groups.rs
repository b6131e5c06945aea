//! Groups.

use super::Ctl;
use super::bundle::{Transaction, transaction_end};
use super::flow_mods::{Pipe, Reading, Source};
use super::names::Wanted;
use crate::common::Failure;
use openflow::model::{ALL_GROUPS, Body, GroupCommand, StatsRequest};
use openflow::text::{Protocols, parse_group_line, parse_group_mod};

fn change(ctl: &Ctl, target: &str, source: &Source, command: Option<GroupCommand>) -> Result<(), Failure> {
    let reading = Reading::new(ctl, target);
    let parse = |line: &str, place: &dyn Fn() -> String| {
        reading.read(place, |names| match command {
            Some(command) => parse_group_mod(command, line, names),
            None => parse_group_line(line, names),
        })
    };
    let mut usable = Protocols::ANY;
    let mut count = 0u32;
    source.each(|line, place| {
        usable &= parse(line, place)?.1;
        count += 1;
        Ok(())
    })?;
    reading.count();
    if ctl.options.bundle {
        let mut transaction = Transaction::open(ctl, target, usable, count)?;
        source.each(|line, place| transaction.add(Body::GroupMod(parse(line, place)?.0)))?;
        let ended = transaction.commit();
        return transaction_end(ctl, target, ended, |index| {
            let (mut n, mut found) = (0, None);
            source.each(|line, place| {
                if n == index {
                    found = Some(Body::GroupMod(parse(line, place)?.0));
                }
                n += 1;
                Ok(())
            })?;
            Ok(found)
        });
    }
    let mut conn = ctl.open_for_change(target, usable)?;
    let mut pipe = Pipe::new(ctl, target);
    source.each(|line, place| pipe.send(&mut conn, Body::GroupMod(parse(line, place)?.0)))?;
    pipe.finish(&mut conn)
}

fn with(ctl: &Ctl, args: &[String], command: Option<GroupCommand>, is_file: bool) -> Result<(), Failure> {
    let source = match args.get(1) {
        Some(word) => Source::of(word, is_file)?,
        None => Source::Word(String::new()),
    };
    change(ctl, &args[0], &source, command)
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

pub(super) fn dump(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let mut conn = ctl.open(&args[0])?;
    let group = match args.get(1).map(String::as_str) {
        None => ALL_GROUPS,
        Some(word) if word.eq_ignore_ascii_case("all") => ALL_GROUPS,
        Some(word) => match word.parse() {
            Ok(number) => number,
            Err(_) => return Err(Failure::new(format!("unknown group id '{word}'"))),
        },
    };
    ctl.print_statistics(&mut conn, &args[0], StatsRequest::GroupDesc(group))
}

pub(super) fn stats(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let text = args.get(1).map_or("", String::as_str);
    let (m, usable) = ctl.read_with_names(target, Wanted::Both, |names| {
        parse_group_mod(GroupCommand::Delete, text, names)
    })?;
    let mut conn = ctl.open_for_change(target, usable)?;
    ctl.print_statistics(&mut conn, target, StatsRequest::Group(m.group))
}

pub(super) fn features(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    ctl.dump(&args[0], StatsRequest::GroupFeatures)
}
