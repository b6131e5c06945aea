//! `dpctl/ct-*-limits`: how many connections zones may have.

use super::{Answer, Asked, at_most, fail, text, without_datapath};
use crate::commands::scanned_number;
use crate::state::State;
use std::fmt::Write;

fn wrong<T>(what: &str) -> Result<T, String> {
    fail(what, "Invalid argument")
}

/// While the database has limits, it alone changes them.
fn check_owner(state: &State) -> Result<(), String> {
    match state.bridges.borrow().has_zone_limits() {
        true => fail("the zone limits are set via database", "Operation not permitted"),
        false => Ok(()),
    }
}

/// `ct-set-limits`. Nothing changes unless all words are right.
pub(super) fn set(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    let mut words = without_datapath(state, &asked.words, usize::MAX)?;
    check_owner(state)?;
    let mut default = None;
    if let [first, rest @ ..] = words
        && let Some(limit) = first.strip_prefix("default=")
    {
        match scanned_number(limit) {
            Some(limit) => default = Some(limit),
            None => return wrong("invalid default limit"),
        }
        words = rest;
    }
    let limits = words
        .iter()
        .map(|word| zone_limit(word))
        .collect::<Result<Vec<_>, _>>()?;
    let conntrack = state.dp().conntrack();
    if let Some(limit) = default {
        conntrack.set_default_zone_limit(limit);
    }
    for (zone, limit) in limits {
        conntrack.set_zone_limit(zone, Some(limit));
    }
    Ok(String::new())
}

/// Reads `zone=N,limit=L`.
fn zone_limit(word: &str) -> Result<(u16, u32), String> {
    let (mut zone, mut limit) = (None, None);
    for part in word.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if value.is_empty() {
            return wrong(&format!("field {key} missing value"));
        }
        let number = number(value);
        match key {
            "zone" => zone = number.and_then(|number| u16::try_from(number).ok()),
            "limit" => limit = number.map(|number| number as u32),
            _ => return wrong(&format!("invalid zone limit field: {key}")),
        }
        if (key == "zone" && zone.is_none()) || (key == "limit" && limit.is_none()) {
            return wrong(&format!("failed to parse field {key}"));
        }
    }
    zone.zip(limit)
        .ok_or_else(|| text("failed to parse zone limit", "Invalid argument"))
}

/// A number as C reads one of any base.
fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let number = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16),
        None if digits.len() > 1 && digits.starts_with('0') => i64::from_str_radix(digits, 8),
        None => digits.parse(),
    };
    let number = number.ok().filter(|number| *number >= 0)?;
    Some(if negative { -number } else { number })
}

/// Reads `zone=N1,N2…`.
fn zones(word: &str) -> Result<Vec<u16>, String> {
    let Some(list) = word.strip_prefix("zone=") else {
        return wrong(&format!("invalid argument {word}"));
    };
    let zones = list.split([',', ' ']).filter(|zone| !zone.is_empty());
    let zones = zones.map(|zone| Some(scanned_number(zone)? as u16));
    zones
        .collect::<Option<_>>()
        .ok_or_else(|| text("invalid zone", "Invalid argument"))
}

/// `ct-del-limits`.
pub(super) fn delete(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    at_most(2, &asked.words, |word| word == "default", "ct-del-limits")?;
    let most = if asked.words[0] == "default" { usize::MAX } else { 2 };
    let mut words = without_datapath(state, &asked.words, most)?;
    check_owner(state)?;
    let conntrack = state.dp().conntrack();
    let mut default = false;
    if let ["default", rest @ ..] = words {
        (words, default) = (rest, true);
    }
    let zones = words.first().map(|word| zones(word)).transpose()?;
    if default {
        conntrack.set_default_zone_limit(0);
    }
    for zone in zones.into_iter().flatten() {
        conntrack.set_zone_limit(zone, None);
    }
    Ok(String::new())
}

/// `ct-get-limits`.
pub(super) fn get(state: &State, args: &[String]) -> Answer {
    let asked = Asked::read(args)?;
    let words = without_datapath(state, &asked.words, usize::MAX)?;
    let zones = words.first().map(|word| zones(word)).transpose()?.unwrap_or_default();
    let conntrack = state.dp().conntrack();
    let mut out = format!("default limit={}\n", conntrack.default_zone_limit());
    let limits = match zones.is_empty() {
        true => conntrack.zone_limits(),
        false => zones.iter().map(|zone| conntrack.zone_limit(*zone)).collect(),
    };
    for zone in limits {
        let _ = writeln!(out, "zone={},limit={},count={}", zone.zone, zone.limit, zone.count);
    }
    Ok(out)
}
