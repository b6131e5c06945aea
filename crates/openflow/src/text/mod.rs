//! The text of matches, actions and flows, as `ovs-ofctl(8)`, `ovs-fields(7)` and `ovs-actions(7)`
//! define it.
//!
//! Printed text parses to the same value. Several texts may parse to one value; it has one printed
//! form.
//!
//! Open vSwitch lacks some of OpenFlow's features. Their text is our own:
//! - `pbb` is short for `dl_type=0x88e7`, which backbone bridges' frames have. Such a frame's
//!   `pbb_isid` is a number of 24 bits, with or without a mask, and its `pbb_uca` 0 or 1. The
//!   actions are `push_pbb:0x88e7` and `pop_pbb`, and `set_field` of both fields.
//! - `ipv6_exthdr` says which extension headers IPv6 packets have: `hop|auth` for these and no
//!   others, `+frag-esp` for one and not another, or a number with or without a mask. The names,
//!   from the lowest bit: `nonext`, `esp`, `auth`, `dest`, `frag`, `router`, `hop`, `unrep` (one of
//!   them twice), `unseq` (not in the order that is preferred).
//! - `copy_ttl_in` and `copy_ttl_out`.

mod action_args;
mod action_in;
mod action_out;
mod ct_in;
mod exact;
mod field;
mod flow_in;
mod flow_out;
mod flush_in;
mod group_in;
mod group_out;
mod learn_in;
mod lines;
mod match_out;
mod meter;
mod names;
mod notice;
mod number;
mod nxm;
mod port_args;
pub mod print;
mod protocol;
mod quote;
mod requests;
mod settings;
mod token;

use crate::Version;
use crate::model::Port;
pub use action_args::wide_load;
pub use action_in::{parse_actions, parse_instructions};
pub use action_out::{actions, instructions};
pub use exact::parse_packet;
pub use flow_in::{parse_flow, parse_flow_usable, parse_match};
pub(crate) use flow_out::put_flow_mod;
pub use flow_out::{flow_mod, flow_stats, put_flow_stats};
pub use flush_in::{FlushError, parse_ct_flush};
pub use group_in::parse_group_mod;
pub use group_out::{group_desc, group_mod};
pub use lines::{
    BundleStep, Lines, parse_bundle_file, parse_bundle_line, parse_flow_file, parse_flow_line, parse_group_line,
};
pub use match_out::matching;
pub use meter::{meter_config, meter_mod, parse_meter_mod, parse_meter_request};
pub use notice::{LeftOut, Notice, Notices};
pub use nxm::{NxmMatch, decode_nxm, encode_nxm, nxm, nxm_outside_mask, parse_nxm};
pub use protocol::{Protocols, parse_protocols};
pub use requests::{parse_flow_monitor_request, parse_flow_stats_request, parse_packet_out};
pub use settings::{TableMiss, TableSetting, parse_port_config, parse_table_mod, parse_tlv_maps};
use std::collections::BTreeMap;
use thiserror::Error;

/// Text that makes no sense, with the words that users know.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ParseError(String);

impl ParseError {
    pub(crate) fn new(message: impl Into<String>) -> ParseError {
        ParseError(message.into())
    }
}

/// The pairs of keys and values in a text; a value that is not there is empty.
pub fn key_values(text: &str) -> Vec<(&str, &str)> {
    let mut rest = text;
    let mut pairs = Vec::new();
    while let Some(pair) = token::next(&mut rest) {
        pairs.push((pair.key, pair.value));
        if !pair.tail.is_empty() {
            pairs.push((pair.tail, ""));
        }
    }
    pairs
}

/// The names of a switch's ports and tables, and the collector of conditions left out of matches
/// that are parsed with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Ports.
    pub ports: BTreeMap<u32, String>,
    /// Tables.
    pub tables: BTreeMap<u8, String>,
    /// Collects conditions that are left out.
    pub notices: Notices,
}

/// Print options.
#[derive(Clone, Copy, Debug)]
pub struct Style<'a> {
    /// The version that a few actions are printed in the words of.
    pub version: Version,
    /// Names to print in place of numbers.
    pub names: Option<&'a Names>,
}

impl Style<'_> {
    /// Numbers only, in the words of OpenFlow 1.3.
    pub const PLAIN: Style<'static> = Style {
        version: Version::V13,
        names: None,
    };
}

/// The reserved ports that have a name in text.
const RESERVED: [(Port, &str); 9] = [
    (Port::UNSET, "UNSET"),
    (Port::IN_PORT, "IN_PORT"),
    (Port::TABLE, "TABLE"),
    (Port::NORMAL, "NORMAL"),
    (Port::FLOOD, "FLOOD"),
    (Port::ALL, "ALL"),
    (Port::CONTROLLER, "CONTROLLER"),
    (Port::LOCAL, "LOCAL"),
    (Port::ANY, "ANY"),
];

/// A value of a field of at most 128 bits as text.
pub fn field_value(of: flow::MatchField, value: u128, style: Style<'_>) -> String {
    field::format(of, value, of.info().valid, style)
}

/// Parses a part of a field: `FIELD`, `FIELD[]`, `FIELD[3]` or `FIELD[3..5]`.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_subfield(text: &str) -> Result<crate::model::Subfield, ParseError> {
    action_args::subfield(text)
}

/// A port as text: its name if it has one, else its number.
pub fn port(port: Port, style: Style<'_>) -> String {
    let mut out = String::new();
    put_port(&mut out, port, style);
    out
}

/// Appends a port.
fn put_port(out: &mut String, port: Port, style: Style<'_>) {
    if port.0 > 0xffff_ff00
        && let Some((_, name)) = RESERVED.iter().find(|(p, _)| *p == port)
    {
        out.push_str(name);
        return;
    }
    match style.names.and_then(|names| names.ports.get(&port.0)) {
        Some(name) => out.push_str(&quote::quoted(name)),
        // Reserved numbers without a name are 16 bits wide, as OpenFlow 1.0 has them.
        None if port.0 >= 0xffff_ff00 => number::put_decimal(out, (port.0 & 0xffff).into()),
        None => number::put_decimal(out, port.0.into()),
    }
}

/// The port that a text means: a reserved port's name in any case, a number, or a name.
pub fn parse_port(text: &str, names: &Names) -> Option<Port> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return match text.parse::<u64>().ok()? {
            number @ 0..0xff00 => Some(Port(number as u32)),
            // OpenFlow 1.0's numbers of reserved ports.
            number @ 0xff00..=0xffff => {
                let port = Port(number as u32 | 0xffff_0000);
                let known = RESERVED.iter().find(|(known, _)| *known == port);
                names.notices.warn("ofp_port", || match known {
                    Some((_, name)) => format!(
                        "referring to port {name} as {number} is deprecated for compatibility with OpenFlow 1.1 and later"
                    ),
                    None => format!(
                        "port {number} is a reserved OF1.0 port number that will be translated to {} when talking to an \
                         OF1.1 or later controller",
                        port.0
                    ),
                });
                Some(port)
            }
            number @ 0xffff_ff00..=0xffff_ffff => Some(Port(number as u32)),
            number => {
                names.notices.warn("ofp_port", || {
                    format!(
                        "port {number} is outside the supported range 0 through ffff or 0xffffff00 through 0xffffffff"
                    )
                });
                None
            }
        };
    }
    let upper = text.to_ascii_uppercase();
    let alias = if upper == "NONE" { "ANY" } else { &upper };
    if let Some((port, _)) = RESERVED.iter().find(|(_, name)| *name == alias) {
        return Some(*port);
    }
    let unquoted = quote::unquoted(text);
    let mut found = names.ports.iter().filter(|(_, name)| **name == unquoted);
    match (found.next(), found.next()) {
        (Some((number, _)), None) => Some(Port(*number)),
        _ => None,
    }
}

/// A table as text.
pub(crate) fn table(number: u8, style: Style<'_>) -> String {
    let name = style.names.and_then(|names| names.tables.get(&number));
    name.map_or_else(|| number.to_string(), |name| quote::quoted(name).into_owned())
}

/// The table that a text means.
fn parse_table(text: &str, names: &Names) -> Result<u8, ParseError> {
    if text.starts_with('-') {
        names.notices.warn("ofp_table", || {
            format!("Negative value {text} is not a valid table number.")
        });
    }
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>());
    if let Some(Ok(number)) = number {
        if let Ok(number) = u8::try_from(number) {
            return Ok(number);
        }
        names.notices.warn("ofp_table", || {
            format!("table {number} is outside the supported range 0 through 255")
        });
    }
    let unquoted = quote::unquoted(text);
    let found = names.tables.iter().find(|(_, name)| **name == unquoted);
    found
        .map(|(number, _)| *number)
        .ok_or_else(|| ParseError::new(format!("unknown table \"{text}\"")))
}
