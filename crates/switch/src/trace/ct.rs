//! Where a trace continues behind the connection tracker.

use crate::tables::Forked;
use conntrack::{Nat, Range, State};
use flow::{Connection, Field, FlowState};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The packet behind the tracker, which says `next` of it, and the lines that say so.
pub(super) fn resumed(fork: &Forked, next: Option<u32>) -> (FlowState, String) {
    let rule = "=".repeat(79);
    let mut head = format!("\n{rule}\nrecirc({:#x}) - resume conntrack with ", fork.handle);
    let bits = match next {
        Some(bits) => {
            let names = Connection::names_of_state(bits);
            let _ = writeln!(head, "ct_state={}", if names.is_empty() { "0" } else { &names });
            bits
        }
        None => {
            head.push_str("default ct_state=trk|new (use --ct-next to customize)\n");
            (State::TRK | State::NEW).bits()
        }
    };
    let mut state = fork.state;
    state.key.set(Field::RecircId, fork.handle.into());
    state.key.set(Field::CtState, bits.into());
    state.key.set(Field::CtZone, fork.zone.into());
    if let Some(nat) = &fork.nat {
        // Of an existing translation nothing is known here.
        let shown = |state: &FlowState| match nat {
            Nat::Existing => String::new(),
            _ => tuple(state),
        };
        let before = shown(&state);
        translate(&mut state, nat);
        let after = shown(&state);
        head.push_str("Replacing src/dst IP/ports to simulate NAT:\n");
        let _ = writeln!(head, " Initial flow: {before}\n Modified flow: {after}");
    }
    let _ = write!(head, "{rule}\n\n");
    (state, head)
}

/// Addresses and ports.
fn tuple(state: &FlowState) -> String {
    let get = |field| state.key.get(field);
    let (src, dst, name) = match get(Field::EthType) {
        0x86dd => {
            let address = |field| format!("[{}]", Ipv6Addr::from_bits(get(field)));
            (address(Field::Ipv6Src), address(Field::Ipv6Dst), "ipv6")
        }
        _ => {
            let address = |field| Ipv4Addr::from_bits(get(field) as u32).to_string();
            (address(Field::Ipv4Src), address(Field::Ipv4Dst), "nw")
        }
    };
    let (from, to) = ports(state);
    let (from, to) = (get(from), get(to));
    format!("{name}_src={src},tp_src={from},{name}_dst={dst},tp_dst={to}")
}

/// The fields that stand where ports do.
fn ports(state: &FlowState) -> (Field, Field) {
    match (state.key.get(Field::EthType), state.key.get(Field::IpProto)) {
        (0x800, 1) | (0x86dd, 58) => (Field::IcmpType, Field::IcmpCode),
        _ => (Field::TpSrc, Field::TpDst),
    }
}

/// Writes the first address and port of the range.
fn translate(state: &mut FlowState, nat: &Nat) {
    let (range, v4, v6, port): (&Range, _, _, _) = match nat {
        Nat::Existing => return,
        Nat::Source(range) => (range, Field::Ipv4Src, Field::Ipv6Src, ports(state).0),
        Nat::Destination(range) => (range, Field::Ipv4Dst, Field::Ipv6Dst, ports(state).1),
    };
    match range.addresses {
        Some((IpAddr::V4(first), _)) => state.key.set(v4, first.to_bits().into()),
        Some((IpAddr::V6(first), _)) => state.key.set(v6, first.to_bits()),
        None => {}
    }
    if let Some((first, _)) = range.ports {
        state.key.set(port, first.into());
    }
}
