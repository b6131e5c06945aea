//! Reading settings of ports, tables and tunnel options.

use super::{Names, ParseError, number, parse_table};
use crate::Version;
use crate::model::{TlvMap, config};

fn error<T>(message: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError::new(message))
}

/// Reads a word of `mod-port`, in any case: the bit of [`config`], and whether it is set.
///
/// # Errors
/// An unknown word.
pub fn parse_port_config(word: &str) -> Result<(u32, bool), ParseError> {
    const WORDS: [(&str, u32, bool); 15] = [
        ("up", config::PORT_DOWN, false),
        ("down", config::PORT_DOWN, true),
        ("stp", config::NO_STP, false),
        ("no-stp", config::NO_STP, true),
        ("receive", config::NO_RECV, false),
        ("no-receive", config::NO_RECV, true),
        ("receive-stp", config::NO_RECV_STP, false),
        ("no-receive-stp", config::NO_RECV_STP, true),
        ("flood", config::NO_FLOOD, false),
        ("no-flood", config::NO_FLOOD, true),
        ("noflood", config::NO_FLOOD, true),
        ("forward", config::NO_FWD, false),
        ("no-forward", config::NO_FWD, true),
        ("packet-in", config::NO_PACKET_IN, false),
        ("no-packet-in", config::NO_PACKET_IN, true),
    ];
    match WORDS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(word)) {
        Some((_, bit, set)) => Ok((*bit, *set)),
        None => error(format!("unknown mod-port command '{word}'")),
    }
}

/// The action for packets that miss a table, until OpenFlow 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TableMiss {
    /// They go to the controller.
    Controller = 0,
    /// They go on with the next table.
    Continue = 1,
    /// They are dropped.
    Drop = 2,
}

/// A setting of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableSetting {
    /// The action for packets without a matching rule.
    Miss(TableMiss),
    /// Whether the switch may evict rules.
    Eviction(bool),
    /// Vacancy events: the percentages of free space at which the table counts as full, and as
    /// vacant again; `None` switches the events off.
    Vacancy(Option<(u8, u8)>),
}

impl TableSetting {
    /// The versions of OpenFlow that have it.
    pub const fn versions(self) -> [Version; 2] {
        match self {
            TableSetting::Miss(_) => [Version::V11, Version::V12],
            _ => [Version::V14, Version::V15],
        }
    }
}

/// Parses a table and its setting, the arguments of `mod-table`; `None` is all tables.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_table_mod(table: &str, setting: &str, names: &Names) -> Result<(Option<u8>, TableSetting), ParseError> {
    let table = match table.eq_ignore_ascii_case("all") {
        true => None,
        false => Some(parse_table(table, names)?).filter(|t| *t != 255),
    };
    let setting = match setting {
        "controller" => TableSetting::Miss(TableMiss::Controller),
        "continue" => TableSetting::Miss(TableMiss::Continue),
        "drop" => TableSetting::Miss(TableMiss::Drop),
        "evict" => TableSetting::Eviction(true),
        "noevict" => TableSetting::Eviction(false),
        "novacancy" => TableSetting::Vacancy(None),
        "vacancy" => return error("Vacancy down value missing"),
        _ => match setting.strip_prefix("vacancy:") {
            Some(range) => TableSetting::Vacancy(Some(vacancy(range)?)),
            None => return error(format!("invalid table_mod setting {setting}")),
        },
    };
    Ok((table, setting))
}

fn vacancy(text: &str) -> Result<(u8, u8), ParseError> {
    let mut parts = text.split(',').filter(|part| !part.is_empty());
    let mut next = |which: &str| match parts.next() {
        None => error(format!("Vacancy {which} value missing")),
        Some(part) => match number::unsigned(part) {
            Some(percent @ 0..=100) => Ok(percent as u8),
            _ => error(format!("Invalid vacancy {which} value \"{part}\"")),
        },
    };
    let (down, up) = (next("down")?, next("up")?);
    match down > up {
        true => error("Invalid vacancy range, vacancy up should be greater than vacancy down (OFPBPC_BAD_VALUE)"),
        false => Ok((down, up)),
    }
}

/// Parses tunnel options and their fields: `{class=CLASS,type=TYPE,len=LENGTH}->tun_metadataN`,
/// separated by commas. The switch checks lengths and field numbers.
///
/// # Errors
/// Any other text, and numbers too large for the message.
pub fn parse_tlv_maps(text: &str) -> Result<Vec<TlvMap>, ParseError> {
    let mut maps = Vec::new();
    let mut rest = text.trim_start_matches(',');
    while !rest.is_empty() {
        let Some((map, behind)) = tlv_map(rest) else {
            return error("invalid tlv mapping");
        };
        maps.push(map);
        rest = behind.trim_start_matches(',');
    }
    Ok(maps)
}

fn tlv_map(text: &str) -> Option<(TlvMap, &str)> {
    let (class, rest) = text.strip_prefix("{class=")?.split_once(',')?;
    let (kind, rest) = rest.strip_prefix("type=")?.split_once(',')?;
    let (len, rest) = rest.strip_prefix("len=")?.split_once("}->tun_metadata")?;
    let end = rest.find(',').unwrap_or(rest.len());
    let (index, rest) = rest.split_at(end);
    let map = TlvMap {
        class: narrow(class)?,
        kind: narrow(kind)?,
        len: narrow(len)?,
        index: narrow(index)?,
    };
    Some((map, rest))
}

fn narrow<T: TryFrom<u64>>(text: &str) -> Option<T> {
    T::try_from(number::unsigned(text)?).ok()
}
