//! Flows as `ofproto/trace` prints them: all fields of the packet, and metadata that is not zero.

use flow::{Field, FlowState, Home, Mask, MatchField as F, MatchPrerequisite, RecircId, TAG_PRESENT, Tunnel};
use openflow::model::Match;
use openflow::text::{Style, matching};
use std::fmt::Write;

/// The type of service headers with four context words (RFC 8300 §2.4).
const FIXED: u128 = 1;

/// The protocol number of IGMP, whose type and code have no fields.
const IGMP: u128 = 2;

/// A packet's fields.
pub(super) fn flow(state: &FlowState, style: Style<'_>) -> String {
    let mut all = Match::ANY;
    for field in F::ALL.iter().filter(|field| field.info().canonical) {
        let value = state.get(*field);
        let info = field.info();
        let shown = match info.home {
            Home::Elsewhere => false,
            Home::Meta { .. } if matches!(*field, F::ActsetOutput | F::ConjId) => false,
            Home::Meta { .. } if *field == F::InPortOxm => true,
            Home::Meta { .. } => value != 0,
            // Without a tunnel it may be a rule's.
            Home::Key { .. } if *field == F::TunId && state.key.tunnel_addresses().is_none() => value != 0,
            Home::Key { field: home, .. } if home.is_of_tunnel() => shows_tunnel(state, *field),
            Home::Key { field: home, .. } if home.is_of_connection() => value != 0,
            Home::Key { field: home, .. } => match home {
                Field::RecircId | Field::SkbPriority | Field::PktMark => value != 0,
                // Open vSwitch shows these only where they matter.
                Field::Ipv6Exthdr | Field::NdReserved | Field::NdOptionsType => false,
                Field::NdSll | Field::NdTll => all.meets(MatchPrerequisite::Nd),
                Field::NshC1 | Field::NshC2 | Field::NshC3 | Field::NshC4
                    if state.key.get(Field::NshMdtype) != FIXED =>
                {
                    false
                }
                // Later fragments have only the protocol.
                Field::IcmpType | Field::IcmpCode if state.key.get(Field::IpFrag) & 2 != 0 => false,
                _ => all.meets(info.prerequisite),
            },
        };
        if shown {
            all.set(*field, value, info.valid);
        }
    }
    let id = RecircId(state.key.get(Field::RecircId) as u32);
    if let Some(hash) = id.hash() {
        all.set(F::RecircId, id.number().into(), F::RecircId.info().valid);
        // A trace may have more of it than the id carries.
        let whole = Some(state.get(F::DpHash)).filter(|whole| *whole != 0);
        all.set(F::DpHash, whole.unwrap_or(hash.into()), F::DpHash.info().valid);
    }
    let mut text = with_inner_tag(matching(&all, style), state);
    // A packet's flags have no signs, a match's do.
    for plain in ["tun_flags=-oam", "tun_flags=+oam"] {
        text = text.replace(plain, &format!("tun_flags={}", flags(state)));
    }
    if all.meets(MatchPrerequisite::Ipv4)
        && state.key.get(Field::IpProto) == IGMP
        && state.key.get(Field::IpFrag) & 2 == 0
    {
        let (kind, code) = (state.key.get(Field::TpSrc), state.key.get(Field::TpDst));
        let _ = write!(text, ",tp_src={kind},tp_dst={code}");
    }
    if all.meets(MatchPrerequisite::Nsh) {
        text.push_str(",nw_proto=0,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no");
    }
    let lse = |field| state.key.get(field) as u32;
    if all.meets(MatchPrerequisite::Mpls) && lse(Field::MplsLse0) & 0x100 == 0 {
        let _ = write!(text, ",mpls_lse1={}", lse(Field::MplsLse1));
        if lse(Field::MplsLse1) & 0x100 == 0 {
            let _ = write!(text, ",mpls_lse2={}", lse(Field::MplsLse2));
        }
    }
    text
}

/// The flags of a tunnel by their names.
fn flags(state: &FlowState) -> String {
    let set = state.key.get(Field::TunFlags) as u16;
    match Tunnel::names_of_flags(set) {
        names if names.is_empty() => String::from("0"),
        names => names,
    }
}

/// Whether a tunnel field is shown: the tunnel must have a destination, and the field must belong
/// to its kind.
fn shows_tunnel(state: &FlowState, field: F) -> bool {
    let leads = state.get(F::TunDst) != 0 || state.get(F::TunIpv6Dst) != 0;
    let version = state.get(F::TunErspanVer);
    leads
        && match field {
            F::TunId => state.key.get(Field::TunFlags) as u16 & Tunnel::KEY != 0,
            F::TunErspanIdx => version == 1,
            F::TunErspanDir | F::TunErspanHwid => version == 2,
            _ => true,
        }
}

/// Prints the second tag after the first.
fn with_inner_tag(text: String, state: &FlowState) -> String {
    if state.key.tag(0).is_none() {
        return text;
    }
    let inner = match state.key.tag(1) {
        Some(tag) => format!(",dl_vlan1={},dl_vlan_pcp1={}", tag.tci & 0xfff, tag.tci >> 13),
        None => String::from(",vlan_tci1=0x0000"),
    };
    text.replacen(",dl_src=", &format!("{inner},dl_src="), 1)
}

/// A megaflow: the bits of a packet in its mask.
pub(super) fn megaflow(mask: &Mask, state: &FlowState, style: Style<'_>) -> String {
    let mut all = Match::ANY;
    for field in F::ALL.iter().filter(|field| field.info().canonical) {
        if let Home::Key { field: home, shift } = field.info().home {
            let bits = mask.get(home) >> shift & field.info().valid;
            if *field != F::RecircId && bits != 0 {
                all.set(*field, state.get(*field) & bits, bits);
            }
        }
    }
    all.set(F::InPortOxm, state.get(F::InPortOxm), F::InPortOxm.info().valid);
    let all = all.normalized();
    let mut text = matching(&all, style);
    let (set, bits) = (state.key.get(Field::TunFlags), mask.get(Field::TunFlags));
    let signed = Tunnel::signed_flags(set as u16, bits as u16);
    if !signed.is_empty() {
        text = text.replacen(",in_port=", &format!(",tun_flags={signed},in_port="), 1);
    }
    if mask.get(Field::VlanTci1) as u16 & !TAG_PRESENT != 0
        && let Some(tag) = state.key.tag(1)
    {
        let _ = write!(text, ",dl_vlan1={}", tag.tci & 0xfff);
    }
    for (field, name) in [(Field::MplsLse1, "mpls_lse1"), (Field::MplsLse2, "mpls_lse2")] {
        let bits = mask.get(field) as u32;
        let value = state.key.get(field) as u32;
        let _ = match bits {
            _ if !all.meets(MatchPrerequisite::Mpls) => Ok(()),
            0 => Ok(()),
            u32::MAX => write!(text, ",{name}={value}"),
            _ => write!(text, ",{name}={:#010x}/{bits:#010x}", value & bits),
        };
    }
    for (field, name) in [(Field::IcmpType, "icmp_type"), (Field::IcmpCode, "icmp_code")] {
        text = with_mask(text, name, state.key.get(field) & mask.get(field), mask.get(field));
    }
    let id = RecircId(state.key.get(Field::RecircId) as u32);
    let mut recirc_id = match id.number() {
        0 => String::from("0"),
        number => format!("{number:#x}"),
    };
    let bits = mask.get(Field::RecircId) as u32 & RecircId::HASH_BITS;
    if let Some(hash) = id.hash().filter(|_| bits != 0) {
        let _ = match u32::from(hash) & bits {
            0 => write!(recirc_id, ",dp_hash=0/{bits:#x}"),
            hash => write!(recirc_id, ",dp_hash={hash:#x}/{bits:#x}"),
        };
    }
    let (mark, rest) = leading(&text, "pkt_mark=");
    let (priority, rest) = leading(rest, "skb_priority=");
    let (connection, rest) = leading(rest, "ct_");
    let eth = if state.key.get(Field::PacketType) == 0 {
        "eth,"
    } else {
        ""
    };
    format!("{mark}recirc_id={recirc_id},{priority}{connection}{eth}{rest}")
}

/// The text with a field's value in hexadecimal and with its mask.
fn with_mask(text: String, name: &str, value: u128, mask: u128) -> String {
    let parts = text.split(',').map(|part| match part.split_once('=') {
        Some((own, _)) if own == name => format!("{name}={value:#x}/{mask:#x}"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// The first parts of a list that begin with `name`, with their commas, and the rest.
fn leading<'t>(text: &'t str, name: &str) -> (&'t str, &'t str) {
    let mut end = 0;
    while text[end..].starts_with(name)
        && let Some(comma) = text[end..].find(',')
    {
        end += comma + 1;
    }
    text.split_at(end)
}

/// The error of a translation, as the last line prints it.
pub(super) fn failure(error: &str) -> &'static str {
    if error.contains("depth") || error.contains("within each other") {
        "Recursion too deep"
    } else if error.contains("resubmit") {
        "Too many resubmits"
    } else if error.contains("Recirculation context") {
        "No recirculation context"
    } else if error.contains("packet type") {
        "Unsupported packet type"
    } else if error.contains("MPLS") {
        "Too many MPLS labels"
    } else {
        "Stack too deep"
    }
}
