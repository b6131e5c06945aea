//! Ports and tables by name.

use super::TextError;
use super::lex::c_number;
use crate::model::Port;
use flow::port_from_of10;
use std::fmt::Write;

/// Where names of ports and tables come from. By default, there are none.
pub trait Names {
    /// The port with a name.
    fn port(&self, _name: &str) -> Option<Port> {
        None
    }

    /// The name to print for a port.
    fn port_name(&self, _port: Port) -> Option<String> {
        None
    }

    /// The table with a name.
    fn table(&self, _name: &str) -> Option<u8> {
        None
    }

    /// The name to print for a table.
    fn table_name(&self, _table: u8) -> Option<String> {
        None
    }
}

/// Numbers only.
pub struct NoNames;

impl Names for NoNames {}

const RESERVED: [(&str, Port); 10] = [
    ("UNSET", Port::UNSET),
    ("IN_PORT", Port::IN_PORT),
    ("TABLE", Port::TABLE),
    ("NORMAL", Port::NORMAL),
    ("FLOOD", Port::FLOOD),
    ("ALL", Port::ALL),
    ("CONTROLLER", Port::CONTROLLER),
    ("LOCAL", Port::LOCAL),
    ("ANY", Port::ANY),
    ("NONE", Port::ANY),
];

/// Reads a port: a decimal number, a reserved port's name in any case, or a name of the caller's, which may be in double quotes.
pub fn parse_port(text: &str, names: &dyn Names) -> Option<Port> {
    if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        let number: u32 = text.parse().ok()?;
        return match number {
            0..0x1_0000 => Some(Port(port_from_of10(number as u16))),
            0xffff_ff00.. => Some(Port(number)),
            _ => None,
        };
    }
    let reserved = RESERVED.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    if let Some((_, port)) = reserved {
        return Some(*port);
    }
    match text.strip_prefix('"') {
        Some(quoted) => names.port(&unquote(quoted.strip_suffix('"')?)),
        None => names.port(text),
    }
}

/// Reads a table: a number or a name.
pub(super) fn parse_table(text: &str, names: &dyn Names) -> Option<u8> {
    match c_number(text) {
        Some(number) => number.try_into().ok(),
        None => match text.strip_prefix('"') {
            Some(quoted) => names.table(&unquote(quoted.strip_suffix('"')?)),
            None => names.table(text),
        },
    }
}

/// As `parse_table`, with the error of flows.
pub(super) fn table_of(text: &str, names: &dyn Names) -> Result<u8, TextError> {
    parse_table(text, names).ok_or_else(|| TextError::Unknown {
        what: "table",
        text: text.to_string(),
    })
}

/// Prints a port: a reserved port's name, the caller's name, or the number.
pub fn print_port(out: &mut String, port: Port, names: &dyn Names) {
    if let Some((name, _)) = RESERVED.iter().find(|(_, p)| *p == port) {
        out.push_str(name);
    } else if let Some(name) = names.port_name(port) {
        print_name(out, &name);
    } else if port.0 >= 0xffff_ff00 {
        let _ = write!(out, "{}", port.0 & 0xffff);
    } else {
        let _ = write!(out, "{}", port.0);
    }
}

/// Prints a table: the caller's name, or the number.
pub fn print_table(out: &mut String, table: u8, names: &dyn Names) {
    match names.table_name(table) {
        Some(name) => print_name(out, &name),
        None => {
            let _ = write!(out, "{table}");
        }
    }
}

/// Prints a name, in quotes where it could be taken for something else.
fn print_name(out: &mut String, name: &str) {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if first && name.chars().all(plain) {
        out.push_str(name);
        return;
    }
    out.push('"');
    for c in name.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

fn unquote(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            _ => out.push(c),
        }
    }
    out
}
