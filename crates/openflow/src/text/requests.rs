//! Parses packet-outs and requests for flow statistics and monitors.

use super::action_in::Reader;
use super::flow_in::{self, Conditions, Fields};
use super::{Names, Notices, ParseError, Protocols, number, parse_port, parse_table, token};
use crate::model::*;
use flow::MatchField as F;

fn error<T>(message: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError::new(message))
}

/// Whether a packet-out can have this field: the pipeline's fields that are not in the packet.
fn of_pipeline(field: F) -> bool {
    let name = field.name();
    let register = name.trim_start_matches('x').strip_prefix("reg").is_some();
    let tunnel = name.starts_with("tun_") || name.starts_with("gtpu_");
    let other = matches!(field, F::InPort | F::InPortOxm | F::Metadata | F::PacketType);
    register || tunnel || other
}

/// Parses a packet-out: `in_port` (by default the controller), metadata fields, `packet` in
/// hexadecimal, and `actions`. Also returns the flow formats that can carry it.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_packet_out(text: &str, names: &Names) -> Result<(PacketOut, Protocols), ParseError> {
    let (fields, actions) = flow_in::split_actions(text);
    let mut out = PacketOut {
        buffer_id: None,
        in_port: Port::CONTROLLER,
        metadata: Match::ANY,
        actions: Vec::new(),
        data: Vec::new(),
    };
    let mut conditions = Conditions::default();
    let mut rest = fields;
    while let Some(pair) = token::next(&mut rest) {
        if !pair.given || pair.value.is_empty() {
            return error(format!("field {} missing value", pair.key));
        }
        match pair.key {
            "in_port" => match parse_port(pair.value, names) {
                Some(port) => out.in_port = port,
                None => return error(format!("{} is not a valid OpenFlow port", pair.value)),
            },
            "packet" => out.data = packet(pair.value)?,
            key => match F::from_name(key) {
                Some(field) if of_pipeline(field) => {
                    conditions.take(&pair, names)?;
                }
                Some(_) => return error(format!("{key} is not a valid pipeline field for PACKET_OUT")),
                None => return error(format!("unknown keyword {key}")),
            },
        }
    }
    if out.data.is_empty() {
        return error("must specify packet");
    }
    let usable = std::mem::take(&mut conditions.usable);
    out.metadata = conditions.finish(names).0;
    out.metadata.clear(F::InPortOxm);
    if let Some(actions) = actions {
        out.actions = Reader::new(names, &usable).actions(actions)?;
    }
    Ok((out, usable.get()))
}

fn packet(digits: &str) -> Result<Vec<u8>, ParseError> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let pairs = digits.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?));
    match bytes.collect::<Option<Vec<u8>>>() {
        None => error("packet: Trailing garbage in packet data"),
        Some(bytes) if bytes.len() < 14 => error("packet: Packet data too short for Ethernet"),
        Some(bytes) => Ok(bytes),
    }
}

/// Parses a request for flow statistics, of `dump-flows` and `dump-aggregate`: a match, `table`,
/// `out_port`, `out_group`, `cookie=VALUE/MASK`. Also returns the flow formats that can carry it.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_flow_stats_request(text: &str, names: &Names) -> Result<(FlowStatsRequest, Protocols), ParseError> {
    let (m, usable) = flow_in::read(FlowCommand::Delete, Fields::REQUEST, text, names)?;
    let request = FlowStatsRequest {
        table: m.table,
        out_port: m.out_port,
        out_group: m.out_group,
        cookie: m.cookie,
        cookie_mask: m.cookie_mask,
        matching: m.matching,
        ..FlowStatsRequest::default()
    };
    Ok((request, usable))
}

/// A monitor's default flags: initial rules, additions, deletions, changes, with actions, own
/// changes too.
const ALL: u16 = 0x3f;

/// Keywords that clear a monitor's flags.
const WITHOUT: [(&str, u16); 6] = [
    ("!initial", 0x01),
    ("!add", 0x02),
    ("!delete", 0x04),
    ("!modify", 0x08),
    ("!actions", 0x10),
    ("!own", 0x20),
];

/// Parses a monitor's request, the text behind `watch:` of `monitor`: a match, `table`, `out_port`,
/// `out_group`, and the events to exclude. Also returns the flow formats that can carry it.
///
/// # Errors
/// Error texts are those of `ovs-ofctl`.
pub fn parse_flow_monitor_request(text: &str, names: &Names) -> Result<(FlowMonitorRequest, Protocols), ParseError> {
    let mut request = FlowMonitorRequest {
        flags: ALL,
        ..FlowMonitorRequest::default()
    };
    let mut conditions = Conditions::default();
    let mut rest = text;
    while let Some(pair) = token::next(&mut rest) {
        if let Some((_, flag)) = WITHOUT.iter().find(|(name, _)| *name == pair.key) {
            request.flags &= !flag;
            continue;
        }
        if conditions.take(&pair, names)? {
            continue;
        }
        let value = pair.value;
        if value.is_empty() {
            return error(format!("{text}: field {} missing value", pair.key));
        }
        match pair.key {
            "table" => request.table = Some(parse_table(value, names)?).filter(|t| *t != 255),
            "out_port" => {
                // Old numbers of reserved ports are usual here: no warning.
                let names = Names {
                    notices: Notices::default(),
                    ..names.clone()
                };
                match parse_port(value, &names) {
                    Some(port) => request.out_port = port,
                    None => return error(format!("{value} is not a valid OpenFlow port")),
                }
            }
            "out_group" => request.out_group = number::u32(value)?,
            key => return error(format!("{text}: unknown keyword {key}")),
        }
    }
    let usable = conditions.usable.get();
    let (matching, asked) = conditions.finish(names);
    names.notices.tell(asked, &matching);
    request.matching = matching;
    Ok((request, usable))
}
