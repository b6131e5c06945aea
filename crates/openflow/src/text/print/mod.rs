//! Messages in text, as `ovs-ofctl(8)` prints them: a line with the message's name, and its
//! contents.
//!
//! A message that cannot be decoded is printed as bytes, with the error that a switch would answer.
//! Printing never fails.

mod asynchronous;
mod bundle;
mod flow;
mod flush;
mod group;
mod hello;
mod hex;
mod ipfix;
mod kinds;
mod lenient;
mod lists;
mod match10;
mod meter;
mod name;
mod packet;
mod parts;
mod port;
mod port_stats;
mod queue;
mod switch;
mod table;
mod table_desc;
mod tlv;
mod warnings;

use super::{Names, Style};
use crate::check::Limits;
use crate::model::{ALL_QUEUES, Body, Message, StatsReply, StatsRequest};
use crate::{Codec, ErrorKind, HEADER_LEN, OfError, Version};
use hex::hex_dump;
pub use hex::hex_lines;
pub use packet::{packet, packet_match};
pub use port::port_desc;
use std::fmt::Write;
pub use table::TablePrinter;
pub use warnings::warnings;

/// A message as text that ends with a newline. `verbosity` 0 and 1 print the contents, 2 also
/// payloads as bytes, 3 more of them, 5 the whole message too.
pub fn message(data: &[u8], names: Option<&Names>, verbosity: u8) -> String {
    let mut out = String::new();
    message_to(&mut out, data, names, verbosity);
    out
}

/// The name of a message; `None` if it is of no known kind.
pub fn name(data: &[u8]) -> Option<&'static str> {
    data.first_chunk::<HEADER_LEN>()?;
    Some(name::Name::of(data).ok()?.text())
}

/// The verbosity from which on a message is printed as bytes too.
const WHOLE: u8 = 5;

/// As [`message`], but appends to `out`.
pub fn message_to(out: &mut String, data: &[u8], names: Option<&Names>, verbosity: u8) {
    message_at(out, data, names, verbosity, 0);
}

/// How deep errors print the messages that they quote, which may be errors themselves.
const DEEPEST: u8 = 8;

/// As [`message_to`], for a message that `depth` errors around it quote.
fn message_at(out: &mut String, data: &[u8], names: Option<&Names>, verbosity: u8, depth: u8) {
    let Some(header) = data.first_chunk::<HEADER_LEN>() else {
        let _ = match data.len() {
            0 => writeln!(out, "OpenFlow message is empty"),
            len => writeln!(out, "OpenFlow packet too short (only {len} bytes):"),
        };
        hex_dump(out, data);
        return;
    };
    let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if len > data.len() {
        if let Ok(name) = name::Name::of(data) {
            name.header(out);
            out.push('\n');
        }
        let _ = writeln!(out, "(***truncated to {} bytes from {len}***)", data.len());
        hex_dump(out, data);
        return;
    }
    if len < data.len() {
        let _ = writeln!(out, "(***only uses {len} bytes out of {}***)", data.len());
        hex_dump(out, data);
        return;
    }
    let error = match name::Name::of(data) {
        Err(error) => {
            let _ = writeln!(out, "***decode error: {error}***");
            Some(error)
        }
        Ok(name) => {
            name.header(out);
            let result = known(
                out,
                data,
                &name,
                Style {
                    version: Version::V10,
                    names,
                },
                (verbosity, depth),
            );
            if let Err(error) = result {
                if !out.ends_with([' ', '\n']) {
                    out.push(' ');
                }
                let _ = writeln!(out, "***decode error: {error}***");
            }
            result.err()
        }
    };
    if error.is_none() && !out.ends_with('\n') {
        out.push('\n');
    }
    if error.is_some() || verbosity >= WHOLE {
        hex_dump(out, data);
    }
}

/// The type of messages of an experimenter.
const EXPERIMENTER: u8 = 4;

/// Context for printing a message.
struct Printer<'a> {
    out: &'a mut String,
    data: &'a [u8],
    version: Version,
    style: Style<'a>,
    verbosity: u8,
    /// Number of errors around the message.
    depth: u8,
}

/// Prints the body of a message with a known name.
fn known(
    out: &mut String,
    data: &[u8],
    name: &name::Name,
    style: Style<'_>,
    (verbosity, depth): (u8, u8),
) -> Result<(), OfError> {
    if name.is_hello() {
        hello::hello(out, data);
        return Ok(());
    }
    name.flags(out);
    // Echoes and errors are read in any version; no error is known in an unknown one.
    let Some(version) = Version::from_number(data[0]) else {
        return match name.text().starts_with("OFPT_ECHO") {
            true => {
                echo(out, &data[HEADER_LEN..], verbosity);
                Ok(())
            }
            false => Err(OfError::BrcBadLen),
        };
    };
    let mut printer = Printer {
        out,
        data,
        version,
        style: Style { version, ..style },
        verbosity,
        depth,
    };
    if printer.raw(name)? {
        return Ok(());
    }
    let codec = Codec {
        version,
        nxm: name.is_nicira(),
        table_id: true,
    };
    match codec
        .decode(data)
        .or_else(|error| lenient::decode(codec, name, data, error))
    {
        Ok(message) => printer.body(&message),
        Err(error) => {
            if let Some(valid) = parts::valid(codec, name, data).filter(|valid| !parts::is_silent(valid)) {
                let before = printer.out.len();
                printer.body(&valid)?;
                if matches!(name.text(), "OFPST_GROUP reply" | "NXST_GROUP reply") {
                    printer.out.push_str(" ***parse error***");
                }
                if printer.out.len() > before && !printer.out.ends_with('\n') {
                    printer.out.push('\n');
                }
            }
            Err(error)
        }
    }
}

/// Prints the length of an echo's payload, and the payload if more than that is asked for.
fn echo(out: &mut String, payload: &[u8], verbosity: u8) {
    let _ = writeln!(out, " {} bytes of payload", payload.len());
    if verbosity > 1 {
        hex_dump(out, payload);
    }
}

impl Printer<'_> {
    /// Prints a message for which the model does not keep all printed data. Returns whether it was
    /// such a message.
    fn raw(&mut self, name: &name::Name) -> Result<bool, OfError> {
        match name.text() {
            "NXT_SET_FLOW_FORMAT" => self.flow_format(),
            "OFPST_TABLE reply" => self.table_stats(name)?,
            "OFPST_TABLE_FEATURES reply" | "OFPST_TABLE_FEATURES request" => self.table_features()?,
            "OFPST_TABLE_DESC reply" => self.table_descs(name)?,
            "OFPT_TABLE_STATUS" => self.table_status(name)?,
            "OFPT_TABLE_MOD" => self.table_mod(name)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn body(&mut self, message: &Message) -> Result<(), OfError> {
        match &message.body {
            Body::Hello(_) => {}
            Body::Error(error) => {
                let ErrorKind::Known(known) = error.kind else {
                    return Err(OfError::BrcBadLen);
                };
                self.out.push(' ');
                self.error(known, &error.data);
            }
            Body::EchoRequest(data) | Body::EchoReply(data) => {
                echo(self.out, data, self.verbosity);
            }
            Body::FeaturesReply(features) => self.features(features),
            Body::GetConfigReply(config) | Body::SetConfig(config) => self.config(*config),
            Body::PacketIn(packet) => self.packet_in(packet),
            Body::Resume(packet) => self.packet_in(packet),
            Body::FlowRemoved(removed) => self.flow_removed(removed),
            Body::PortStatus(status) => self.port_status(status),
            Body::PacketOut(packet) => self.packet_out(packet),
            Body::FlowMod(m) => {
                let limits = Limits {
                    tables: 255,
                    ports: 0xff00,
                    max_meter: u32::MAX,
                };
                crate::check::instructions(self.version, m.table, &m.matching, &m.instructions, &limits)?;
                let mut m = m.clone();
                m.table = m.table.or(Some(255));
                self.out.push(' ');
                let encoded = if self.verbosity > 2 { self.encoded_match() } else { None };
                super::put_flow_mod(self.out, &m, encoded.as_deref(), self.style);
            }
            Body::GroupMod(m) => self.group_mod(m),
            Body::PortMod(m) => self.port_mod(m),
            Body::MeterMod(m) => self.meter_mod(m),
            Body::QueueGetConfigRequest(port) => self.queue_config_request(*port),
            Body::QueueGetConfigReply { port, queues } => self.queue_config_reply(*port, queues),
            Body::RoleRequest(role) | Body::RoleReply(role) => self.role(*role),
            Body::GetAsyncReply(config) | Body::SetAsync(config) => self.asynchronous(config),
            Body::RoleStatus(status) => self.role_status(status),
            Body::RequestForward(forwarded) => {
                self.out.push_str(" reason=");
                if let Body::GroupMod(_) = forwarded.body {
                    self.out.push_str("group_mod");
                } else {
                    self.out.push_str("meter_mod");
                }
                self.body(forwarded)?;
            }
            Body::BundleControl(control) => self.bundle_control(*control),
            Body::BundleAdd(add) => self.bundle_add(add),
            Body::StatsRequest { request, .. } => self.stats_request(request),
            Body::StatsReply { reply, .. } => self.stats_reply(reply),
            Body::FlowModTableId(on) => self.out.push_str(if *on { " enable" } else { " disable" }),
            Body::SetPacketInFormat(format) => {
                let names = ["standard", "nxt_packet_in", "nxt_packet_in2"];
                let _ = write!(self.out, " format={}", names[*format as usize]);
            }
            Body::SetControllerId(id) => {
                let _ = write!(self.out, " id={id}");
            }
            Body::FlowMonitorCancel(id) => {
                let _ = write!(self.out, " id={id}");
            }
            Body::TlvTableMod { command, maps } => self.tlv_mod(*command, maps),
            Body::TlvTableReply(table) => self.tlv_table(table),
            Body::CtFlushZone(zone) => {
                let _ = write!(self.out, " zone_id={zone}");
            }
            Body::CtFlush(flush) => self.ct_flush(flush),
            _ => {}
        }
        Ok(())
    }

    fn flow_format(&mut self) {
        self.out.push_str(" format=");
        self.out.push_str(match self.data.last() {
            _ if self.data[16..19] != [0; 3] => "(unknown)",
            Some(0) => "openflow10",
            Some(2) => "nxm",
            _ => "(unknown)",
        });
    }

    /// The match of an OpenFlow 1.0 flow-mod as the message has it.
    fn encoded_match(&self) -> Option<String> {
        const NX_MATCH_LEN: usize = 40;
        const NX_MATCH: usize = 48;
        if self.version != Version::V10 {
            return None;
        }
        if self.data[1] == EXPERIMENTER {
            let len = self.data.get(NX_MATCH_LEN..)?.first_chunk()?;
            let end = NX_MATCH + usize::from(u16::from_be_bytes(*len));
            return Some(super::nxm(self.data.get(NX_MATCH..end)?));
        }
        let mut text = String::new();
        match10::match10(&mut text, self.data.get(HEADER_LEN..)?.first_chunk()?, self.style);
        Some(text)
    }

    fn stats_request(&mut self, request: &StatsRequest) {
        match request {
            StatsRequest::Flow(request) | StatsRequest::Aggregate(request) => self.flow_request(request),
            StatsRequest::Port(port) => {
                self.out.push_str(" port_no=");
                self.port(*port);
            }
            StatsRequest::PortDesc(port) => {
                self.out.push_str(" port=");
                self.port(*port);
            }
            StatsRequest::Queue { port, queue } => self.queue_request(*port, *queue),
            StatsRequest::QueueDesc { port, queue } => {
                self.out.push_str(" port=");
                self.port(*port);
                if *queue != ALL_QUEUES {
                    let _ = write!(self.out, " queue={queue}");
                }
            }
            StatsRequest::Group(group) | StatsRequest::GroupDesc(group) => self.group_request(*group),
            StatsRequest::Meter(meter) | StatsRequest::MeterConfig(meter) => {
                self.out.push(' ');
                meter::id(self.out, *meter, '=');
            }
            StatsRequest::FlowMonitor(requests) => self.monitor_requests(requests),
            _ => {}
        }
    }

    fn stats_reply(&mut self, reply: &StatsReply) {
        match reply {
            StatsReply::Desc(desc) => self.desc(desc),
            StatsReply::Flow { flows, .. } => self.flows(flows),
            StatsReply::Aggregate { stats, .. } => {
                let _ = write!(
                    self.out,
                    " packet_count={} byte_count={} flow_count={}",
                    stats.packets, stats.bytes, stats.flows
                );
            }
            StatsReply::Port(ports) => self.port_stats(ports),
            StatsReply::PortDesc(ports) => {
                self.out.push('\n');
                let mut ports: Vec<_> = ports.iter().collect();
                ports.sort_by_key(|port| port.port.0);
                for port in ports {
                    port_desc(self.out, port, self.version);
                }
            }
            StatsReply::Queue(queues) => self.queue_stats(queues),
            StatsReply::QueueDesc(queues) => self.queue_descs(queues),
            StatsReply::Group(groups) => self.group_stats(groups),
            StatsReply::GroupDesc(groups) => self.group_descs(groups),
            StatsReply::GroupFeatures(features) => self.group_features(features),
            StatsReply::Meter(meters) => self.meter_stats(meters),
            StatsReply::MeterConfig(meters) => self.meter_configs(meters),
            StatsReply::MeterFeatures(features) => self.meter_features(*features),
            StatsReply::FlowMonitor(updates) => self.flow_updates(updates),
            StatsReply::IpfixBridge(stats) => self.ipfix_bridge(stats),
            StatsReply::IpfixFlow(stats) => self.ipfix_flows(stats),
            _ => {}
        }
    }

    fn error(&mut self, error: OfError, data: &[u8]) {
        let _ = writeln!(self.out, "{error}");
        if matches!(error, OfError::HfcIncompatible | OfError::HfcEperm) {
            hex::printable(self.out, data);
            return;
        }
        match self.depth < DEEPEST {
            true => message_at(self.out, data, self.style.names, 1, self.depth + 1),
            false => hex_dump(self.out, data),
        }
    }

    fn port(&mut self, port: crate::model::Port) {
        self.out.push_str(&super::port(port, self.style));
    }
}

/// The names of the bits that are set, the lowest first, apart by `separator`; `0` for none, a
/// number for bits without a name.
fn bits(out: &mut String, bits: u32, separator: char, name: impl Fn(u32) -> Option<&'static str>) {
    if bits == 0 {
        out.push('0');
        return;
    }
    let mut rest = bits;
    let mut first = true;
    for n in 0..32 {
        if bits & 1 << n != 0
            && let Some(name) = name(n)
        {
            if !first {
                out.push(separator);
            }
            first = false;
            out.push_str(name);
            rest &= !(1 << n);
        }
    }
    if rest != 0 {
        if !first {
            out.push(separator);
        }
        let _ = write!(out, "{rest:#x}");
    }
}

/// A counter, `?` if it is unknown.
fn counter(out: &mut String, count: u64) {
    let _ = match count {
        u64::MAX => write!(out, "?"),
        count => write!(out, "{count}"),
    };
}

#[cfg(test)]
mod tests;
