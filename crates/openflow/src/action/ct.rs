//! The `ct` and `nat` actions in messages.

use super::{EXPERIMENTER, Encoder, NICIRA, Scope, decode_list, put};
use crate::buf::{Reader, Writer};
use crate::model::{Action, Ct, Nat, NatAddrs, NatKind, Zone};
use crate::{OfError, Version, oxm};
use std::net::{Ipv4Addr, Ipv6Addr};

const COMMIT: u16 = 1;
const FORCE: u16 = 2;
/// In place of a table: none.
const NO_TABLE: u8 = 255;

pub(super) fn decode(scope: Scope, mut body: Reader<'_>) -> Result<Action, OfError> {
    let flags = body.u16()?;
    if flags & !(COMMIT | FORCE) != 0 || flags == FORCE {
        return Err(OfError::BacBadArgument);
    }
    let named = body.peek().first_chunk() != Some(&[0; 4]);
    let zone = match named {
        false => {
            body.skip(4)?;
            Zone::Immediate(body.u16()?)
        }
        true => {
            let field = oxm::decode_name(&mut body)?;
            let part = oxm::decode_subfield(body.u16()?, field)?;
            match part.n_bits() {
                0..=16 => Zone::Field(part),
                _ => return Err(OfError::BacBadArgument),
            }
        }
    };
    let table = body.u8()?;
    body.zeros(3, OfError::BacBadArgument)?;
    let alg = body.u16()?;
    let actions = decode_list(scope.deeper(true)?, body.rest())?;
    for action in &actions {
        let allowed = match action {
            Action::Nat(_) => true,
            // Only the connection's fields can be set within the action.
            Action::SetField { field, .. } => connection(*field) && flags & COMMIT != 0,
            Action::Load { dst, .. } | Action::Move { dst, .. } => connection(dst.field()) && flags & COMMIT != 0,
            _ => false,
        };
        if !allowed {
            return Err(OfError::BacBadArgument);
        }
    }
    Ok(Action::Ct(Box::new(Ct {
        commit: flags & COMMIT != 0,
        force: flags & FORCE != 0,
        zone,
        table: (table != NO_TABLE).then_some(table),
        alg,
        actions,
    })))
}

fn connection(field: flow::MatchField) -> bool {
    matches!(field, flow::MatchField::CtMark | flow::MatchField::CtLabel)
}

pub(super) fn encode(encoder: &mut Encoder, out: &mut Writer, ct: &Ct) {
    put(out, EXPERIMENTER, |out| {
        out.u32(NICIRA);
        out.u16(35);
        out.u16(if ct.commit { COMMIT } else { 0 } | if ct.force { FORCE } else { 0 });
        match ct.zone {
            Zone::Immediate(zone) => {
                out.u32(0);
                out.u16(zone);
            }
            Zone::Field(part) => {
                oxm::encode_name(out, part.field(), Version::V10);
                out.u16(part.ofs() << 6 | (part.n_bits() - 1));
            }
        }
        out.u8(ct.table.unwrap_or(NO_TABLE));
        out.zeros(3);
        out.u16(ct.alg);
        encoder.encode(out, &ct.actions);
    });
}

const SRC: u16 = 1;
const DST: u16 = 2;
const PERSISTENT: u16 = 4;
const HASH: u16 = 8;
const RANDOM: u16 = 16;

const IPV4_MIN: u16 = 1;
const IPV4_MAX: u16 = 2;
const IPV6_MIN: u16 = 4;
const IPV6_MAX: u16 = 8;
const PORT_MIN: u16 = 16;
const PORT_MAX: u16 = 32;

pub(super) fn decode_nat(mut body: Reader<'_>) -> Result<Action, OfError> {
    body.zeros(2, OfError::NxBrcMustBeZero)?;
    let (flags, present) = (body.u16()?, body.u16()?);
    let bad = OfError::BacBadArgument;
    let kind = match flags & (SRC | DST) {
        0 => NatKind::None,
        SRC => NatKind::Src,
        DST => NatKind::Dst,
        _ => return Err(bad),
    };
    let (hash, random) = (flags & HASH != 0, flags & RANDOM != 0);
    if flags & !(SRC | DST | PERSISTENT | HASH | RANDOM) != 0
        || hash && random
        || kind == NatKind::None && (flags != 0 || present != 0)
    {
        return Err(bad);
    }
    let (v4, v6) = (present & (IPV4_MIN | IPV4_MAX), present & (IPV6_MIN | IPV6_MAX));
    let addrs = match (v4, v6) {
        (0, 0) => NatAddrs::None,
        (IPV4_MIN, 0) => NatAddrs::Ipv4(ipv4(&mut body)?, None),
        (_, 0) if v4 & IPV4_MIN != 0 => NatAddrs::Ipv4(ipv4(&mut body)?, Some(ipv4(&mut body)?)),
        (0, IPV6_MIN) => NatAddrs::Ipv6(ipv6(&mut body)?, None),
        (0, _) if v6 & IPV6_MIN != 0 => NatAddrs::Ipv6(ipv6(&mut body)?, Some(ipv6(&mut body)?)),
        _ => return Err(bad),
    };
    let ports = match present & (PORT_MIN | PORT_MAX) {
        0 => None,
        PORT_MIN => Some((body.u16()?, None)),
        PORT_MAX => return Err(bad),
        _ => Some((body.u16()?, Some(body.u16()?))),
    };
    let ordered = match addrs {
        NatAddrs::Ipv4(first, Some(last)) => first <= last,
        NatAddrs::Ipv6(first, Some(last)) => first <= last,
        _ => true,
    };
    if present >= PORT_MAX << 1 || !ordered || matches!(ports, Some((first, Some(last))) if first > last) {
        return Err(bad);
    }
    body.zeros(body.len(), OfError::NxBrcMustBeZero)?;
    Ok(Action::Nat(Nat {
        kind,
        persistent: flags & PERSISTENT != 0,
        hash,
        random,
        addrs,
        ports,
    }))
}

fn ipv4(body: &mut Reader<'_>) -> Result<Ipv4Addr, OfError> {
    body.u32().map(Ipv4Addr::from)
}

fn ipv6(body: &mut Reader<'_>) -> Result<Ipv6Addr, OfError> {
    body.array::<16>().map(Ipv6Addr::from)
}

pub(super) fn encode_nat(out: &mut Writer, nat: &Nat) {
    let kind = match nat.kind {
        NatKind::None => 0,
        NatKind::Src => SRC,
        NatKind::Dst => DST,
    };
    let flag = |set: bool, bit: u16| if set { bit } else { 0 };
    let addrs = match nat.addrs {
        NatAddrs::None => 0,
        NatAddrs::Ipv4(_, last) => IPV4_MIN | flag(last.is_some(), IPV4_MAX),
        NatAddrs::Ipv6(_, last) => IPV6_MIN | flag(last.is_some(), IPV6_MAX),
    };
    let ports = match nat.ports {
        None => 0,
        Some((_, last)) => PORT_MIN | flag(last.is_some(), PORT_MAX),
    };
    put(out, EXPERIMENTER, |out| {
        out.u32(NICIRA);
        out.u16(36);
        out.zeros(2);
        out.u16(kind | flag(nat.persistent, PERSISTENT) | flag(nat.hash, HASH) | flag(nat.random, RANDOM));
        out.u16(addrs | ports);
        match nat.addrs {
            NatAddrs::None => {}
            NatAddrs::Ipv4(first, last) => {
                for addr in std::iter::once(first).chain(last) {
                    out.bytes(&addr.octets());
                }
            }
            NatAddrs::Ipv6(first, last) => {
                for addr in std::iter::once(first).chain(last) {
                    out.bytes(&addr.octets());
                }
            }
        }
        if let Some((first, last)) = nat.ports {
            out.u16(first);
            if let Some(last) = last {
                out.u16(last);
            }
        }
    });
}
