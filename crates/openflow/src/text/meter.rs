//! Meters as text, both ways.

use super::{ParseError, number};
use crate::model::*;
use std::fmt::Write;

fn error<T>(message: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError::new(message))
}

/// The highest meter that a user can have.
const MAX: u32 = 0xffff_0000;

/// Meters that have a name.
const NAMED: [(u32, &str); 3] = [
    (0xffff_fffd, "slowpath"),
    (0xffff_fffe, "controller"),
    (ALL_METERS, "all"),
];

/// Flags, in the order in which they are printed.
const FLAGS: [(u16, &str); 4] = [
    (meter_flags::KBPS, "kbps"),
    (meter_flags::PKTPS, "pktps"),
    (meter_flags::BURST, "burst"),
    (meter_flags::STATS, "stats"),
];

fn separates(c: char) -> bool {
    c == ',' || c.is_ascii_whitespace()
}

/// Cuts a key off: up to `=`, a comma or white space.
fn key<'a>(text: &mut &'a str) -> Option<&'a str> {
    cut(text, |c| c == '=' || separates(c))
}

/// Cuts a value off: up to a comma or white space.
fn value<'a>(text: &mut &'a str, key: &str) -> Result<&'a str, ParseError> {
    cut(text, separates).ok_or_else(|| ParseError::new(format!("field {key} missing value")))
}

fn cut<'a>(text: &mut &'a str, ends: impl Fn(char) -> bool) -> Option<&'a str> {
    let rest = text.trim_start_matches(&ends);
    let end = rest.find(&ends).unwrap_or(rest.len());
    let (word, behind) = rest.split_at(end);
    *text = behind.get(1..).unwrap_or("");
    (!word.is_empty()).then_some(word)
}

/// Parses a meter-mod: the meter's number, unit, flags and bands; a deletion has the number only.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_meter_mod(command: MeterCommand, text: &str) -> Result<MeterMod, ParseError> {
    let makes = command != MeterCommand::Delete;
    let (head, bands) = match text.find("band") {
        Some(at) if makes => (&text[..at], text[at..].split_once('=').map(|(_, bands)| bands)),
        _ => (text, None),
    };
    if makes && bands.is_none() {
        return error("must specify bands");
    }
    let (mut meter, mut flags) = (None, 0);
    let mut rest = head;
    while let Some(key) = key(&mut rest) {
        let flag = FLAGS.iter().find(|(_, name)| makes && *name == key);
        if let Some((flag, _)) = flag {
            flags |= flag;
            continue;
        }
        let value = value(&mut rest, key)?;
        match key {
            "meter" => meter = Some(meter_number(value)?),
            _ => return error(format!("unknown keyword {key}")),
        }
    }
    let Some(meter) = meter else {
        return error("must specify 'meter'");
    };
    let mut config = MeterConfig {
        meter,
        flags,
        bands: Vec::new(),
    };
    if makes {
        if flags & (meter_flags::KBPS | meter_flags::PKTPS) == 0 {
            return error("meter must specify either 'kbps' or 'pktps'");
        }
        config.bands = self::bands(bands.unwrap_or(""), flags)?;
    }
    Ok(MeterMod { command, config })
}

/// Parses the meters of a request: `meter=NUMBER`, `meter=all` and such.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_meter_request(text: &str) -> Result<u32, ParseError> {
    Ok(parse_meter_mod(MeterCommand::Delete, text)?.config.meter)
}

fn meter_number(text: &str) -> Result<u32, ParseError> {
    if let Some((number, _)) = NAMED.iter().find(|(_, name)| *name == text) {
        return Ok(*number);
    }
    match number::u32(text)? {
        number @ 1..=MAX => Ok(number),
        _ => error("invalid value for meter"),
    }
}

/// A band as far as it is read.
struct Draft {
    remark: bool,
    rate: u32,
    burst: u32,
    precedence: u8,
}

impl Draft {
    fn finish(self, flags: u16) -> Result<MeterBand, ParseError> {
        let bursts = flags & meter_flags::BURST != 0;
        match (self.remark, self.precedence) {
            (true, 0) => return error("'dscp_remark' band must have 'prec_level'"),
            (false, 1..) => return error("Only 'dscp_remark' band may have 'prec_level'"),
            _ => {}
        }
        if self.rate == 0 {
            return error("band must have 'rate'");
        }
        if bursts && self.burst == 0 {
            return error("band must have 'burst_size' when 'burst' flag is set");
        }
        if !bursts && self.burst != 0 {
            return error("band may have 'burst_size' only when 'burst' flag is set");
        }
        Ok(MeterBand {
            rate: self.rate,
            burst: self.burst,
            kind: match self.remark {
                true => BandKind::DscpRemark(self.precedence),
                false => BandKind::Drop,
            },
        })
    }
}

fn bands(text: &str, flags: u16) -> Result<Vec<MeterBand>, ParseError> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mut rest = text;
    while let Some(key) = key(&mut rest) {
        let value = value(&mut rest, key)?;
        if key == "type" {
            let remark = match value {
                "drop" => false,
                "dscp_remark" => true,
                _ => return error(format!("field type unknown value {value}")),
            };
            drafts.push(Draft {
                remark,
                rate: 0,
                burst: 0,
                precedence: 0,
            });
            continue;
        }
        let Some(band) = drafts.last_mut() else {
            return error("band must start with the 'type' keyword");
        };
        match key {
            "rate" => band.rate = number::u32(value)?,
            "burst_size" => band.burst = number::u32(value)?,
            "prec_level" => band.precedence = number::named(value, "prec_level")?,
            _ => return error(format!("unknown keyword {key}")),
        }
    }
    if drafts.is_empty() {
        return error("meter must have bands");
    }
    drafts.into_iter().map(|d| d.finish(flags)).collect()
}

/// A meter's number as text: a name if it has one.
pub(crate) fn meter_name(meter: u32) -> String {
    match NAMED.iter().find(|(number, _)| *number == meter) {
        Some((_, name)) => (*name).to_string(),
        None => meter.to_string(),
    }
}

/// A meter: its number, its flags, and its bands, each on a line of its own.
pub fn meter_config(config: &MeterConfig) -> String {
    let mut out = format!("meter={} ", meter_name(config.meter));
    for (flag, name) in FLAGS {
        if config.flags & flag != 0 {
            let _ = write!(out, "{name} ");
        }
    }
    out += "bands=\n";
    for band in &config.bands {
        let name = match band.kind {
            BandKind::Drop => "drop",
            BandKind::DscpRemark(_) => "dscp_remark",
        };
        let _ = write!(out, "type={name} rate={}", band.rate);
        if config.flags & meter_flags::BURST != 0 {
            let _ = write!(out, " burst_size={}", band.burst);
        }
        if let BandKind::DscpRemark(precedence) = band.kind {
            let _ = write!(out, " prec_level={precedence}");
        }
        out.push('\n');
    }
    out
}

/// A change of a meter: the command, then the meter.
pub fn meter_mod(m: &MeterMod) -> String {
    let word = match m.command {
        MeterCommand::Add => "ADD",
        MeterCommand::Modify => "MOD",
        MeterCommand::Delete => "DEL",
    };
    format!("{word} {}", meter_config(&m.config))
}
