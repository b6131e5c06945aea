//! Reading the `ct` and `nat` actions.

use super::action_args::subfield;
use super::action_in::{Reader, error};
use super::{ParseError, number, parse_table, token};
use crate::model::{Action, Ct, Nat, NatAddrs, NatKind, Zone};
use flow::MatchField as F;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(super) fn parse(reader: &Reader<'_>, text: &str) -> Result<Ct, ParseError> {
    let mut ct = Ct {
        commit: false,
        force: false,
        zone: Zone::Immediate(0),
        table: None,
        alg: 0,
        actions: Vec::new(),
    };
    let mut rest = text;
    while let Some(pair) = token::next(&mut rest) {
        let value = pair.value;
        match pair.key {
            "commit" => ct.commit = true,
            "force" => ct.force = true,
            "table" => {
                let table = parse_table(value, reader.names);
                let table = table.map_err(|_| ParseError::new(format!("unknown table {value}")))?;
                if table == 255 {
                    return error(format!("invalid table {table:#x}"));
                }
                ct.table = Some(table);
            }
            "zone" => {
                ct.zone = match number::unsigned(value).and_then(|n| u16::try_from(n).ok()) {
                    Some(zone) => Zone::Immediate(zone),
                    None => {
                        let part = subfield(value)?;
                        if part.n_bits() > 16 {
                            return error(format!("{value}: zone must be 16 bits at most"));
                        }
                        Zone::Field(part)
                    }
                }
            }
            "alg" => {
                ct.alg = match value {
                    "ftp" => 21,
                    "tftp" => 69,
                    _ => match number::named(value, "alg") {
                        Ok(port) => port,
                        Err(_) => return error(format!("invalid conntrack helper \"{value}\"")),
                    },
                }
            }
            "nat" => ct.actions.push(Action::Nat(parse_nat(pair.given.then_some(value))?)),
            "exec" => {
                for action in reader.of_connection()?.actions(value)? {
                    let field = match &action {
                        Action::SetField { field, .. } => Some(*field),
                        Action::Load { dst, .. } | Action::Move { dst, .. } => Some(dst.field()),
                        _ => None,
                    };
                    match field {
                        Some(F::CtMark | F::CtLabel) => ct.actions.push(action),
                        Some(field) => {
                            return error(format!("ct action doesn't support nested modification of {field}"));
                        }
                        None => {
                            let name = action.name();
                            return error(format!("ct action doesn't support nested action {name}"));
                        }
                    }
                }
            }
            key => return error(format!("invalid argument to \"ct\" action: `{key}'")),
        }
    }
    if ct.force && !ct.commit {
        return error("\"force\" flag requires \"commit\" flag.");
    }
    Ok(ct)
}

/// Parses the parentheses of `nat`, if there are any.
pub(super) fn parse_nat(text: Option<&str>) -> Result<Nat, ParseError> {
    let mut nat = Nat {
        kind: NatKind::None,
        persistent: false,
        hash: false,
        random: false,
        addrs: NatAddrs::None,
        ports: None,
    };
    let mut rest = text.unwrap_or("");
    while let Some(pair) = token::next(&mut rest) {
        match pair.key {
            "src" | "dst" => {
                if nat.kind != NatKind::None {
                    return error("May only specify one of \"src\" or \"dst\".");
                }
                nat.kind = if pair.key == "src" { NatKind::Src } else { NatKind::Dst };
                if pair.given {
                    range(&mut nat, pair.value)?;
                }
            }
            "persistent" => nat.persistent = true,
            "hash" => nat.hash = true,
            "random" => nat.random = true,
            key => return error(format!("invalid key \"{key}\" in \"nat\" argument")),
        }
    }
    if nat.kind == NatKind::None && (nat.persistent || nat.hash || nat.random) {
        return error("Flags allowed only with \"src\" or \"dst\".");
    }
    match nat.hash && nat.random {
        true => error("Both \"hash\" and \"random\" are not allowed."),
        false => Ok(nat),
    }
}

/// `addr[-addr][:port[-port]]`, IPv6 addresses in brackets where ports follow.
fn range(nat: &mut Nat, text: &str) -> Result<(), ParseError> {
    let reversed = || ParseError::new(format!("invalid nat range \"{text}\""));
    let bad = || ParseError::new(format!("garbage ({text}) after nat range \"{text}\" (pos: 0)"));
    let bracket = text.rfind(']');
    let colons = text.bytes().filter(|b| *b == b':').count();
    let (addrs, ports) = match bracket {
        Some(at) => (&text[..=at], text[at + 1..].strip_prefix(':')),
        None if colons > 1 => (text, None),
        None => match text.split_once(':') {
            Some((addrs, ports)) => (addrs, Some(ports)),
            None => (text, None),
        },
    };
    let bare = |text: &str| text.trim_matches(['[', ']']).to_string();
    let (first, last) = match addrs.split_once('-') {
        Some((first, last)) => (bare(first), Some(bare(last))),
        None => (bare(addrs), None),
    };
    nat.addrs = if first.is_empty() {
        NatAddrs::None
    } else if let Ok(first) = first.parse::<Ipv4Addr>() {
        let last = last.map(|l| l.parse::<Ipv4Addr>()).transpose().map_err(|_| bad())?;
        if last.is_some_and(|last| last < first) {
            return Err(reversed());
        }
        NatAddrs::Ipv4(first, last.filter(|last| *last != first))
    } else if let Ok(first) = first.parse::<Ipv6Addr>() {
        let last = last.map(|l| l.parse::<Ipv6Addr>()).transpose().map_err(|_| bad())?;
        if last.is_some_and(|last| last < first) {
            return Err(reversed());
        }
        NatAddrs::Ipv6(first, last.filter(|last| *last != first))
    } else {
        return Err(bad());
    };
    if let Some(ports) = ports {
        let number = |text: &str| text.parse::<u16>().map_err(|_| bad());
        nat.ports = Some(match ports.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return Err(reversed());
                }
                (first, (last != first).then_some(last))
            }
            None => (number(ports)?, None),
        });
    }
    Ok(())
}
