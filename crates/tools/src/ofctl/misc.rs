//! Packet-outs, tunnel options, connection tracking, IPFIX.

use super::Ctl;
use super::names::Wanted;
use crate::common::Failure;
use openflow::model::{Action, Body, CtFlush, CtTuple, Match, PacketOut, Port, StatsRequest};
use openflow::text::{Protocols, parse_actions, parse_packet_out, parse_port, parse_tlv_maps};
use std::net::{Ipv4Addr, Ipv6Addr};

pub(super) fn packet_out(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    match args.len() {
        0..=2 => {}
        // Neither of the two forms.
        3 => return Err(Failure::new("Too many arguments (4)")),
        _ => return packet_outs(ctl, target, &args[1..]),
    }
    let (packet, usable) = ctl.read_with_names(target, Wanted::Both, |names| parse_packet_out(&args[1], names))?;
    let mut conn = ctl.open_for_change(target, usable)?;
    let request = conn.encode(ctl.xid(), Body::PacketOut(Box::new(packet)));
    ctl.carry_out(&mut conn, target, &request)
}

/// The older form: a port, actions, and packets.
fn packet_outs(ctl: &Ctl, target: &str, words: &[String]) -> Result<(), Failure> {
    let Some((port, rest)) = words.split_first() else {
        return Ok(());
    };
    let Some((text, packets)) = rest.split_first() else {
        return Ok(());
    };
    let (in_port, actions): (Option<Port>, Vec<Action>) = ctl.read_with_names(target, Wanted::Ports, |names| {
        Ok((parse_port(port, names), parse_actions(text, names)?))
    })?;
    let Some(in_port) = in_port else {
        return Err(Failure::new(format!("{target}: unknown port `{port}'")));
    };
    let mut conn = ctl.open(target)?;
    for digits in packets {
        let bad = || Failure::new("Trailing garbage in packet data");
        let data = super::offline::bytes(digits).ok_or_else(bad)?;
        let packet = PacketOut {
            buffer_id: None,
            in_port,
            metadata: Match::ANY,
            actions: actions.clone(),
            data,
        };
        let request = conn.encode(ctl.xid(), Body::PacketOut(Box::new(packet)));
        ctl.carry_out(&mut conn, target, &request)?;
    }
    Ok(())
}

fn tlv_map(ctl: &Ctl, target: &str, command: u16, text: &str) -> Result<(), Failure> {
    let maps = parse_tlv_maps(text).map_err(|e| Failure::new(e.to_string()))?;
    let mut conn = ctl.open_for_change(target, Protocols::NXM_ANY | Protocols::OXM_ANY)?;
    let request = conn.encode(ctl.xid(), Body::TlvTableMod { command, maps });
    ctl.carry_out(&mut conn, target, &request)
}

pub(super) fn add_tlv_map(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    tlv_map(ctl, &args[0], 0, &args[1])
}

pub(super) fn del_tlv_map(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    match args.get(1) {
        Some(text) => tlv_map(ctl, &args[0], 1, text),
        None => tlv_map(ctl, &args[0], 2, ""),
    }
}

pub(super) fn dump_tlv_map(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let mut conn = ctl.open(&args[0])?;
    ctl.print_answer(&mut conn, &args[0], Body::TlvTableRequest)
}

pub(super) fn ipfix_bridge(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    ctl.dump(&args[0], StatsRequest::IpfixBridge)
}

pub(super) fn ipfix_flow(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    ctl.dump(&args[0], StatsRequest::IpfixFlow)
}

pub(super) fn ct_flush_zone(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let (target, word) = (&args[0], &args[1]);
    let zone = number(word).ok_or_else(|| Failure::new(format!("invalid zone_id \"{word}\"")))?;
    let mut conn = ctl.open(target)?;
    let request = conn.encode(ctl.xid(), Body::CtFlushZone(zone));
    ctl.carry_out(&mut conn, target, &request)
}

fn number(word: &str) -> Option<u16> {
    match word.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

pub(super) fn ct_flush(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let mut rest = &args[1..];
    let mut flush = CtFlush::default();
    if let Some(word) = rest.first().and_then(|word| word.strip_prefix("zone=")) {
        let zone = number(word).ok_or_else(|| Failure::new("Failed to parse zone"))?;
        flush.zone = Some(zone);
        rest = &rest[1..];
    }
    for (n, text) in rest.iter().take(2).enumerate() {
        let fail = |why: String| Failure::new(format!("Failed to parse ct-tuple: {why}"));
        let tuple = if n == 0 { &mut flush.orig } else { &mut flush.reply };
        ct_tuple(text, tuple, &mut flush.proto).map_err(fail)?;
    }
    let ports = [flush.orig, flush.reply];
    if flush.proto == 0 && ports.iter().any(|t| t.src_port.or(t.dst_port).is_some()) {
        return Err(Failure::new("Failed to parse ct-tuple: port is set without protocol"));
    }
    if matches!(flush.proto, 1 | 58) {
        // ICMP needs all fields, in both directions.
        for tuple in [&mut flush.orig, &mut flush.reply] {
            tuple.icmp_id.get_or_insert(0);
            tuple.icmp_type.get_or_insert(0);
            tuple.icmp_code.get_or_insert(0);
        }
    }
    let mut conn = ctl.open(target)?;
    let request = conn.encode(ctl.xid(), Body::CtFlush(Box::new(flush)));
    ctl.carry_out(&mut conn, target, &request)
}

/// Parses one direction of a connection.
fn ct_tuple(text: &str, tuple: &mut CtTuple, proto: &mut u8) -> Result<(), String> {
    let icmp = |proto: u8| matches!(proto, 1 | 58);
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if value.is_empty() {
            return Err(format!("field {key} missing value"));
        }
        let bad = || format!("failed to parse field {key}");
        match key {
            "ct_nw_src" | "ct_nw_dst" | "ct_ipv6_src" | "ct_ipv6_dst" => {
                let address = match key.starts_with("ct_nw") {
                    true => value.parse::<Ipv4Addr>().map_err(|_| bad())?.to_ipv6_mapped(),
                    false => value.parse::<Ipv6Addr>().map_err(|_| bad())?,
                };
                let source = key.ends_with("src");
                let four = |address: Ipv6Addr| address.to_ipv4_mapped().is_some();
                if [tuple.src, tuple.dst]
                    .into_iter()
                    .flatten()
                    .any(|known| four(known) != four(address))
                {
                    return Err(format!("the L3 protocol does not match {value}"));
                }
                let known = if source { tuple.src } else { tuple.dst };
                if known.is_some() {
                    return Err(format!("{key} is set multiple times"));
                }
                *if source { &mut tuple.src } else { &mut tuple.dst } = Some(address);
            }
            "ct_nw_proto" => *proto = value.parse().map_err(|_| bad())?,
            "ct_tp_src" | "ct_tp_dst" => {
                let port = number(value).ok_or_else(bad)?;
                *if key.ends_with("src") {
                    &mut tuple.src_port
                } else {
                    &mut tuple.dst_port
                } = Some(port);
            }
            "icmp_type" | "icmp_code" | "icmp_id" => {
                let number = number(value).ok_or_else(bad)?;
                let byte = u8::try_from(number).map_err(|_| bad());
                match key {
                    "icmp_type" => tuple.icmp_type = Some(byte?),
                    "icmp_code" => tuple.icmp_code = Some(byte?),
                    _ => tuple.icmp_id = Some(number),
                }
            }
            key => return Err(format!("invalid conntrack tuple field: {key}")),
        }
    }
    let of_icmp = tuple.icmp_id.is_some() || tuple.icmp_type.is_some() || tuple.icmp_code.is_some();
    match of_icmp && !icmp(*proto) {
        true => Err("invalid L4 fields".into()),
        false => Ok(()),
    }
}
