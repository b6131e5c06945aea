//! Commands that read a match in the encoding of a message, print it, and show how encoding it
//! again differs. They need no switch.

use super::Ctl;
use super::offline::bytes;
use crate::common::{Failure, print};
use openflow::model::Match;
use openflow::text::{Names, Style, decode_nxm, encode_nxm, matching, nxm, nxm_outside_mask, parse_match, parse_nxm};
use openflow::{OfError, Version, decode_match10, decode_match11, encode_match10, encode_match11};
use std::io::Read;
use telemetry::ratelimit::RateLimit;

/// Standard input in lines.
fn input() -> Result<String, Failure> {
    let mut text = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut text);
    read.map_err(|e| Failure::new(format!("-: read failed ({})", mgmt::os_text(&e))))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A line without its comment.
fn content(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim_end()
}

pub(super) fn parse_nx_match(ctl: &Ctl, _: &[String]) -> Result<(), Failure> {
    round_trips(ctl, Version::V10)
}

pub(super) fn parse_oxm(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let version = args[0].parse().ok().filter(|v| *v >= Version::V12);
    let version = version.ok_or_else(|| Failure::new(format!("{}: not a valid version for OXM", args[0])))?;
    round_trips(ctl, version)
}

/// Prints each line's list of fields as a switch of a version gives it back.
fn round_trips(ctl: &Ctl, version: Version) -> Result<(), Failure> {
    let mut out = String::new();
    for line in input()?.lines() {
        let list = content(line);
        if list.trim().is_empty() {
            out += line;
            out.push('\n');
            continue;
        }
        let data = match parse_nxm(list) {
            Ok(data) => data,
            Err(error) => {
                print(&out)?;
                return Err(Failure::new(error.to_string()));
            }
        };
        let read = decode_nxm(&data, ctl.options.strict);
        match read {
            Ok((_, Some(_))) if version > Version::V10 && ctl.options.strict => {
                out += &format!("nx_pull_match() returned error {}\n", OfError::BmcBadField.name());
            }
            Ok((matching, cookie)) => {
                // Only Nicira's match has a cookie.
                let read = (matching, cookie.filter(|_| version == Version::V10));
                out += &nxm(&encode_nxm(&read, version));
                out.push('\n');
            }
            Err(error) => {
                if error == OfError::BmcBadWildcards {
                    outside_mask(&data);
                }
                out += &format!("nx_pull_match() returned error {error}\n");
            }
        }
    }
    print(&out)
}

/// Logs a value with bits outside its mask, but of many not all.
fn outside_mask(data: &[u8]) {
    const MODULE: &str = "nx_match";
    static LIMIT: RateLimit = RateLimit::new(60, 2);
    let Some(entry) = nxm_outside_mask(data) else { return };
    let Some(dropped) = LIMIT.admit(MODULE) else { return };
    if let Some(dropped) = dropped {
        tracing::warn!(target: MODULE, "{dropped}");
    }
    tracing::warn!(
        target: MODULE,
        "Rejecting NXM/OXM entry {entry} with 1-bits in value for bits wildcarded by the mask."
    );
}

pub(super) fn parse_ofp10_match(_: &Ctl, _: &[String]) -> Result<(), Failure> {
    structures(40, decode_match10, encode_match10)
}

pub(super) fn parse_ofp11_match(_: &Ctl, _: &[String]) -> Result<(), Failure> {
    // The command knows the type and length; a line need not say them rightly.
    const HEADER: [u8; 4] = [0, 0, 0, 88];
    let decode = |data: &[u8]| decode_match11(&[&HEADER, &data[HEADER.len()..]].concat());
    structures(88, decode, encode_match11)
}

/// Reads a match of a fixed size from each line of hexadecimal digits, prints it, and each byte
/// that differs when it is encoded again.
fn structures(
    size: usize,
    decode: impl Fn(&[u8]) -> Result<Match, OfError>,
    encode: impl Fn(&Match) -> Vec<u8>,
) -> Result<(), Failure> {
    let mut out = String::new();
    for line in input()?.lines() {
        let digits = content(line);
        if digits.trim().is_empty() {
            continue;
        }
        // Each `x` is any digit.
        let digits = digits.replace(['x', 'X'], "0");
        let fail = |out: &str, why: String| print(out).and(Err(Failure::new(why)));
        let Some(data) = bytes(&digits) else {
            return fail(&out, "Trailing garbage in hex data".into());
        };
        if data.len() != size {
            return fail(&out, format!("Input is {} bytes, expected {size}", data.len()));
        }
        match decode(&data) {
            Ok(read) => {
                out += &matching(&read, Style::of(Version::V10));
                out.push('\n');
                differences(&mut out, &data, &encode(&read));
            }
            Err(error) => out += &format!("bad ofp11_match: {error}\n"),
        }
        out.push('\n');
    }
    print(&out)
}

/// Appends a line for each byte that differs.
fn differences(out: &mut String, before: &[u8], after: &[u8]) {
    for (at, (before, after)) in before.iter().zip(after).enumerate() {
        if before != after {
            *out += &format!("{at:2}: {before:02x} -> {after:02x}\n");
        }
    }
}

/// Prints how each protocol writes a match of a VLAN tag, and reads it back.
pub(super) fn check_vlan(_: &Ctl, args: &[String]) -> Result<(), Failure> {
    let number = |word: &str| u16::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
    let (tci, mask) = (number(&args[0]), number(&args[1]));
    let mut asked = Match::ANY;
    asked.set(flow::MatchField::VlanTci, (tci & mask).into(), mask.into());
    let told = |m: &Match| {
        let (tci, mask) = m.get(flow::MatchField::VlanTci).unwrap_or((0, 0));
        format!("{tci:04x}/{mask:04x}")
    };
    let text = matching(&asked, Style::PLAIN);
    let again = parse_match(&text, &Names::default()).map_err(|e| Failure::new(e.to_string()))?;
    let mut out = format!("{text} -> {}\n", told(&again));
    let back = |version| {
        let data = encode_nxm(&(asked.clone(), None), version);
        let read = decode_nxm(&data, true).map(|(read, _)| read);
        read.map(|read| (nxm(&data), read))
            .map_err(|e| Failure::new(e.to_string()))
    };
    let (text, read) = back(Version::V10)?;
    out += &format!("NXM: {text} -> {}\n", told(&read));
    let (text, read) = back(Version::V12)?;
    let (vid, pcp) = (read.get(flow::MatchField::VlanVid), read.get(flow::MatchField::VlanPcp));
    let (value, vid_mask) = vid.unwrap_or((0, 0));
    out += &format!("OXM: {text} -> {value:04x}/{vid_mask:04x},");
    out += &match pcp {
        Some((pcp, _)) => format!("{pcp:02x}\n"),
        None => "--\n".to_owned(),
    };
    // Of each structure: its version's name, its bytes, and where wildcards, VLAN and priority are.
    let (v10, v11) = (encode_match10(&asked), encode_match11(&asked));
    let structures = [
        ("OF1.0", &v10, decode_match10(&v10), [0, 18, 20], [1 << 1, 1 << 20]),
        ("OF1.1", &v11, decode_match11(&v11), [8, 36, 38], [1 << 1, 1 << 2]),
    ];
    for (name, data, read, [wildcards, vid, pcp], [no_vid, no_pcp]) in structures {
        let read = read.map_err(|e| Failure::new(e.to_string()))?;
        let wild = data[wildcards..wildcards + 4]
            .iter()
            .fold(0u32, |n, byte| n << 8 | u32::from(*byte));
        out += &format!(
            "{name}: {:02x}{:02x}/{},{:02x}/{} -> {}\n",
            data[vid],
            data[vid + 1],
            u8::from(wild & no_vid != 0),
            data[pcp],
            u8::from(wild & no_pcp != 0),
            told(&read)
        );
    }
    print(&out)
}
