//! Commands that compose and print packets. They need no switch.

use super::Ctl;
use super::offline::bytes;
use super::pcap::{cut_off, open, read};
use crate::common::{Failure, print};
use flow::{Field, FlowState, Key, MatchField, TAG_PRESENT};
use mgmt::os_text;
use openflow::model::Port;
use openflow::text::print::{hex_lines, packet, packet_match};
use openflow::text::{Names, Style, matching};
use std::io::Read;
use wire::EtherType;

/// Prints a packet with the fields of a flow, and perhaps a payload of hexadecimal digits.
pub(super) fn compose_packet(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let text = &args[0];
    let parsed = openflow::text::parse_packet(text, &Names::default());
    let fields = parsed.map_err(|error| Failure::new(format!("{text}: {error}")))?;
    let mut state = FlowState::new(Key::ZERO, Port::ANY.0);
    for entry in fields.entries() {
        state.set(entry.field, entry.value);
    }
    if state.get(MatchField::VlanTci) & u128::from(TAG_PRESENT) != 0 {
        state.key.set(Field::VlanTpid0, EtherType::VLAN.0.into());
    }
    let payload = match args.get(1) {
        Some(digits) => {
            Some(bytes(digits).ok_or_else(|| Failure::new(format!("{digits}: trailing garbage in packet data")))?)
        }
        None => None,
    };
    let mut frame = flow::compose(&state.key, None);
    if payload.is_some() || ctl.options.bad_csum {
        let headers = flow::compose(&state.key, Some(0)).len();
        let payload = payload.unwrap_or_else(|| frame.split_off(headers));
        frame = flow::compose_with(&state.key, &payload, ctl.options.bad_csum);
    }
    if ctl.options.bare {
        let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        return print(&format!("{digits}\n"));
    }
    let mut out = String::new();
    hex_lines(&mut out, &frame);
    print(&out)
}

/// Prints the headers of the packet on standard input.
pub(super) fn parse_packet(_: &Ctl, _: &[String]) -> Result<(), Failure> {
    let mut data = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut data);
    read.map_err(|e| Failure::new(format!("-: read failed ({})", os_text(&e))))?;
    let mut out = String::new();
    packet(&mut out, &data);
    print(&out)
}

/// Prints the headers of each packet in files.
pub(super) fn parse_pcap(_: &Ctl, args: &[String]) -> Result<(), Failure> {
    for name in args {
        let data = read(name)?;
        let (mut rest, parser) = open(name, &data)?;
        let mut out = String::new();
        while !rest.is_empty() {
            let Ok((after, captured)) = parser.next_raw_packet(rest) else {
                cut_off();
                break;
            };
            rest = after;
            let mut headers = packet_match(&captured.data);
            headers.set(MatchField::InPortOxm, Port::ANY.0.into(), u32::MAX.into());
            out += &matching(&headers, Style::PLAIN);
            out.push('\n');
        }
        print(&out)?;
    }
    Ok(())
}
