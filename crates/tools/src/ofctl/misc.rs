//! Packet-outs, tunnel options, connection tracking, IPFIX.

use super::Ctl;
use super::names::Wanted;
use crate::common::Failure;
use openflow::model::{Action, Body, Match, PacketOut, Port, StatsRequest};
use openflow::text::{Protocols, parse_actions, parse_ct_flush, parse_packet_out, parse_port, parse_tlv_maps};

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
    let words: Vec<&str> = args[1..].iter().map(String::as_str).collect();
    // Marks and labels are of later releases of Open vSwitch.
    let is_later = |word: &str| word.starts_with("mark=") || word.starts_with("labels=");
    if words.iter().filter(|word| !is_later(word)).count() > 3 {
        return Err(Failure::new("'ct-flush' command takes at most 4 arguments"));
    }
    let (flush, _) = parse_ct_flush(&words).map_err(|error| Failure::new(format!("Failed to {error}")))?;
    let mut conn = ctl.open(target)?;
    let request = conn.encode(ctl.xid(), Body::CtFlush(Box::new(flush)));
    ctl.carry_out(&mut conn, target, &request)
}
