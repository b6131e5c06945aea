//! Commands without a switch: printing messages, parsing texts.

use super::flow_mods::{Source, for_version};
use super::{Ctl, notices};
use crate::common::{Failure, print};
use mgmt::os_text;
use openflow::model::FlowCommand;
use openflow::model::{Body, GroupCommand, Message};
use openflow::text::print::{hex_lines, message, message_to};
use openflow::text::{Names, Protocols, Style, parse_flow_usable, parse_group_mod};
use openflow::{Codec, HEADER_LEN, Hello, Version, Versions};
use std::io::Read;

/// The bytes of hexadecimal digits, with spaces anywhere.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .map(|c| c.to_digit(16).map(|d| d as u8))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks(2).map(|pair| Some(pair[0] << 4 | *pair.get(1)?));
    pairs.collect()
}

pub(super) fn ofp_print(_: &Ctl, args: &[String]) -> Result<(), Failure> {
    let trailing = || Failure::new("trailing garbage following hex bytes");
    let data = bytes(&args[0]).ok_or_else(trailing)?;
    let verbosity = args.get(1).map_or(2, |word| word.parse().unwrap_or(0));
    notices::warn(&data);
    print(&message(&data, None, verbosity))
}

pub(super) fn ofp_parse(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let name = &args[0];
    let mut data = Vec::new();
    let read = match name.as_str() {
        "-" => std::io::stdin().lock().read_to_end(&mut data),
        file => std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut data)),
    };
    read.map_err(|e| Failure::new(format!("{name}: open ({})", os_text(&e))))?;
    let mut out = String::new();
    let mut rest = &data[..];
    while !rest.is_empty() {
        let length = rest.get(2..4).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])));
        let Some(length) = length.filter(|_| rest.len() >= 8) else {
            print(&out)?;
            return Err(Failure::new(format!("{name}: unexpected end of file mid-message")));
        };
        if length < 8 {
            print(&out)?;
            return Err(Failure::new(format!(
                "{name}: {length}-byte message is too short for OpenFlow"
            )));
        }
        let Some((data, behind)) = rest.split_at_checked(length) else {
            print(&out)?;
            return Err(Failure::new(format!("{name}: unexpected end of file mid-message")));
        };
        notices::warn(data);
        message_to(&mut out, data, None, ctl.options.verbosity.saturating_add(2));
        rest = behind;
    }
    print(&out)
}

/// Prints the usable formats of flows, and each flow in the first allowed one.
fn show_flows(ctl: &Ctl, flows: Vec<openflow::model::FlowMod>, usable: Protocols) -> Result<(), Failure> {
    let mut out = format!("usable protocols: {usable}\n");
    let chosen = (usable & ctl.options.protocols).iter().next();
    let Some(chosen) = chosen else {
        print(&out)?;
        return Err(Failure::new("no usable protocol"));
    };
    out += &format!("chosen protocol: {chosen}\n");
    let version = chosen.version().unwrap_or(Version::V10);
    let is_in = |set: Protocols| !(chosen & set).is_empty();
    let codec = Codec {
        nxm: is_in(Protocols::NXM_ANY),
        table_id: is_in(Protocols::OF10_TABLE | Protocols::NXM_TABLE),
        ..Codec::new(version)
    };
    for flow in flows {
        let body = Body::FlowMod(Box::new(for_version(flow, version)));
        let data = codec.encode(&Message { xid: ctl.xid(), body });
        notices::warn(&data);
        message_to(&mut out, &data, None, ctl.options.verbosity);
    }
    print(&out)
}

fn parse_error(e: openflow::text::ParseError) -> Failure {
    Failure::new(e.to_string())
}

pub(super) fn parse_flow(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let names = notices::heard();
    let parsed = parse_flow_usable(FlowCommand::Add, &args[0], &names);
    notices::log(names.notices.take());
    let (flow, usable) = parsed.map_err(parse_error)?;
    show_flows(ctl, vec![flow], usable)
}

pub(super) fn parse_flows(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let source = Source::of(&args[0], true)?;
    let mut flows = Vec::new();
    let mut usable = Protocols::ANY;
    let names = notices::heard();
    source.each(|line, place| {
        let parsed = parse_flow_usable(FlowCommand::Add, line, &names);
        notices::log(names.notices.take());
        let (flow, formats) = parsed.map_err(|e| Failure::new(format!("{}{e}", place())))?;
        usable &= formats;
        flows.push(flow);
        Ok(())
    })?;
    show_flows(ctl, flows, usable)
}

pub(super) fn parse_group(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let (group, usable) = parse_group_mod(GroupCommand::Add, &args[0], &Names::default()).map_err(parse_error)?;
    let mut out = format!("usable protocols: {usable}\n");
    if let Some(version) = (usable & ctl.options.protocols).version() {
        out += &format!("chosen version: {version}\n");
        let body = Body::GroupMod(group);
        let data = Codec::new(version).encode(&Message { xid: ctl.xid(), body });
        message_to(&mut out, &data, None, ctl.options.verbosity);
    }
    print(&out)
}

/// Reads lists of actions or instructions in hexadecimal from standard input, one a line, and
/// prints each.
fn parse_hex(word: &str, what: &str, instructions: bool) -> Result<(), Failure> {
    let version: Version = word
        .parse()
        .map_err(|_| Failure::new(format!("{word}: not a valid OpenFlow version")))?;
    let mut input = String::new();
    std::io::stdin()
        .lock()
        .read_to_string(&mut input)
        .map_err(|e| Failure::new(format!("-: read failed ({})", os_text(&e))))?;
    let mut out = String::new();
    for line in input.lines() {
        let said = line.split('#').next().unwrap_or_default();
        if said.trim().is_empty() {
            continue;
        }
        let Some(data) = bytes(said) else {
            print(&out)?;
            return Err(Failure::new("Trailing garbage in hex data"));
        };
        let read = match instructions {
            true => openflow::decode_instructions(version, &data),
            false => openflow::decode_actions(version, &data).map(openflow::model::Instructions::apply),
        };
        match read {
            Ok(read) => {
                let text = openflow::text::instructions(&read, Style::of(version));
                out += &format!("actions={text}\n\n");
            }
            Err(error) => out += &format!("bad {version} {what}: {error}\n\n"),
        }
    }
    print(&out)
}

pub(super) fn parse_actions(_: &Ctl, args: &[String]) -> Result<(), Failure> {
    parse_hex(&args[0], "actions", false)
}

pub(super) fn parse_instructions(_: &Ctl, args: &[String]) -> Result<(), Failure> {
    parse_hex(&args[0], "instructions", true)
}

pub(super) fn print_error(_: &Ctl, args: &[String]) -> Result<(), Failure> {
    let name = &args[0];
    let found = openflow::OfError::ALL.iter().find(|e| e.name() == name);
    let Some(error) = found else {
        return Err(Failure::new(format!("unknown error \"{name}\"")));
    };
    let mut out = String::new();
    for version in Version::ALL {
        if let Some(code) = error.code(version) {
            let vendor = match code.vendor.number() {
                0 => "0".into(),
                number => format!("{number:#x}"),
            };
            let minor = version.number() - 1;
            out += &format!(
                "OpenFlow 1.{minor}: vendor {vendor}, type {}, code {}\n",
                code.kind, code.code
            );
        }
    }
    print(&out)
}

pub(super) fn encode_hello(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let word = &args[0];
    let bitmap = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => word.parse(),
    };
    // No version has number 0.
    let bitmap = bitmap.unwrap_or(0) & !1;
    let Some(newest) = bitmap.checked_ilog2() else {
        return Err(Failure::new(format!("{word}: no known version")));
    };
    let all = (2u64 << newest) - 2;
    let body = Body::Hello(Hello {
        version: newest as u8,
        bitmap: (u64::from(bitmap) != all).then(|| Versions::from_bitmap(bitmap)),
    });
    let data = Codec::new(Version::V10).encode(&Message { xid: ctl.xid(), body });
    let mut out = String::new();
    hex_lines(&mut out, &data);
    message_to(&mut out, &data, None, ctl.options.verbosity);
    print(&out)
}

/// Prints the bytes of the error that answers a message.
pub(super) fn encode_error_reply(_: &Ctl, args: &[String]) -> Result<(), Failure> {
    let name = &args[0];
    let found = openflow::OfError::ALL.iter().find(|e| e.name() == name);
    let error = found.ok_or_else(|| Failure::new(format!("unknown error \"{name}\"")))?;
    let request = bytes(&args[1]).ok_or_else(|| Failure::new("Trailing garbage in hex data"))?;
    let Some([version, _, high, low, xid @ ..]) = request.first_chunk::<HEADER_LEN>() else {
        return Err(Failure::new("Request too short"));
    };
    if usize::from(u16::from_be_bytes([*high, *low])) != request.len() {
        return Err(Failure::new("Request size inconsistent"));
    }
    let version = Version::from_number(*version).unwrap_or(Version::V10);
    let body = Body::Error(openflow::ErrorBody::of(*error, &request));
    let xid = u32::from_be_bytes(*xid);
    let mut out = String::new();
    hex_lines(&mut out, &Codec::new(version).encode(&Message { xid, body }));
    print(&out)
}

/// Prints the pairs of keys and values in each argument.
pub(super) fn parse_key_value(_: &Ctl, args: &[String]) -> Result<(), Failure> {
    let mut out = String::new();
    for text in args {
        let pairs: Vec<String> = openflow::text::key_values(text)
            .into_iter()
            .map(|(key, value)| match value {
                "" => key.to_owned(),
                value => format!("{key}={value}"),
            })
            .collect();
        out += &pairs.join(", ");
        out.push('\n');
    }
    print(&out)
}
