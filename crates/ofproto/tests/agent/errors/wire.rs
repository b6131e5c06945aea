//! Messages written byte by byte, so that they can say what no encoder of ours says.

use openflow::model::*;
use openflow::{Codec, Version};

/// The number by which answers are known.
pub(crate) const XID: u32 = 0x0102_0304;

/// A message of a type.
pub(crate) fn message(version: Version, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![version.number(), kind];
    bytes.extend((8 + body.len() as u16).to_be_bytes());
    bytes.extend(XID.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A message that makes sense.
pub(crate) fn encode(version: Version, body: Body) -> Vec<u8> {
    Codec::new(version).encode(&Message { xid: XID, body })
}

/// Bytes of 16-bit numbers.
pub(crate) fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub(crate) fn barrier(version: Version) -> Vec<u8> {
    message(version, if version == Version::V10 { 18 } else { 20 }, &[])
}

/// A request for statistics.
pub(crate) fn multipart(version: Version, kind: u16, body: &[u8]) -> Vec<u8> {
    let head = words(if version == Version::V10 {
        &[0, 0]
    } else {
        &[0, 0, 0, 0]
    });
    let whole = [&kind.to_be_bytes(), &head[2..], body].concat();
    message(version, if version == Version::V10 { 16 } else { 18 }, &whole)
}

pub(crate) fn nicira(version: Version, subtype: u32, body: &[u8]) -> Vec<u8> {
    experimenter(version, 0x2320, subtype, body)
}

pub(crate) fn experimenter(version: Version, vendor: u32, subtype: u32, body: &[u8]) -> Vec<u8> {
    message(
        version,
        4,
        &[&vendor.to_be_bytes(), &subtype.to_be_bytes(), body].concat(),
    )
}

/// A rule that drops everything, changed.
pub(crate) fn flow(version: Version, change: impl FnOnce(&mut FlowMod)) -> Vec<u8> {
    let mut rule = crate::world::rule(9);
    if version == Version::V10 {
        rule.table = None;
    }
    change(&mut rule);
    encode(version, Body::FlowMod(Box::new(rule)))
}

fn patch_len(mut message: Vec<u8>) -> Vec<u8> {
    let len = message.len() as u16;
    message[2..4].copy_from_slice(&len.to_be_bytes());
    message
}

/// A rule with these instructions; in OpenFlow 1.0 with these actions.
pub(crate) fn instructions(version: Version, raw: &[u8]) -> Vec<u8> {
    patch_len([&flow(version, |_| {})[..], raw].concat())
}

/// A rule that does these actions.
pub(crate) fn actions(version: Version, raw: &[u8]) -> Vec<u8> {
    if version == Version::V10 {
        return instructions(version, raw);
    }
    let head = words(&[4, 8 + raw.len() as u16, 0, 0]);
    instructions(version, &[&head, raw].concat())
}

/// An action of a type, as long as it has to be.
pub(crate) fn action(kind: u16, body: &[u8]) -> Vec<u8> {
    let len = (4 + body.len()).next_multiple_of(8);
    let mut raw = words(&[kind, len as u16]);
    raw.extend(body);
    raw.resize(len, 0);
    raw
}

/// One of Nicira's.
pub(crate) fn nicira_action(subtype: u16, body: &[u8]) -> Vec<u8> {
    action(
        0xffff,
        &[&[0, 0, 0x23, 0x20], &subtype.to_be_bytes()[..], body].concat(),
    )
}

/// Sets a field that is written with its header: as the version has it, or as Nicira has it.
pub(crate) fn set_field(version: Version, field: &[u8]) -> Vec<u8> {
    let raw = match version {
        Version::V10 | Version::V11 => nicira_action(33, field),
        _ => action(25, field),
    };
    actions(version, &raw)
}

/// A condition on a field of OpenFlow's own class, or for OpenFlow 1.0 of Nicira's.
pub(crate) fn oxm(field: u8, masked: bool, bytes: &[u8]) -> Vec<u8> {
    let head = [0x80, 0, field << 1 | u8::from(masked), bytes.len() as u8];
    [&head, bytes].concat()
}

pub(crate) fn nxm(class: u8, field: u8, masked: bool, bytes: &[u8]) -> Vec<u8> {
    let head = [0, class, field << 1 | u8::from(masked), bytes.len() as u8];
    [&head, bytes].concat()
}

/// A rule with a match of these conditions.
pub(crate) fn matching(version: Version, conditions: &[u8]) -> Vec<u8> {
    let padded = |len: usize| len.next_multiple_of(8) - len;
    if version == Version::V10 {
        let mut body = vec![0; 8];
        body.extend(words(&[0, 0, 0, 9]));
        body.extend([0xff; 4]);
        body.extend(words(&[0xffff, 0, conditions.len() as u16, 0, 0, 0]));
        body.extend(conditions);
        body.extend(vec![0; padded(conditions.len())]);
        return nicira(version, 13, &body);
    }
    let mut bytes = flow(version, |_| {});
    bytes.truncate(48);
    bytes.extend(words(&[1, 4 + conditions.len() as u16]));
    bytes.extend(conditions);
    bytes.extend(vec![0; padded(4 + conditions.len())]);
    patch_len(bytes)
}

/// A group-mod: command, type, group, and the bytes behind.
pub(crate) fn group(version: Version, command: u16, kind: u8, group: u32, buckets: &[u8]) -> Vec<u8> {
    let mut body = words(&[command]);
    body.extend([kind, 0]);
    body.extend(group.to_be_bytes());
    if version >= Version::V15 {
        body.extend(words(&[buckets.len() as u16, 0, 0xffff, 0xffff]));
    }
    body.extend(buckets);
    message(version, 15, &body)
}

/// A bucket without actions that watches a port.
pub(crate) fn bucket(version: Version, watch_port: u32) -> Vec<u8> {
    let port = watch_port.to_be_bytes();
    if version < Version::V15 {
        return [&words(&[16, 0])[..], &port, &[0xff; 4], &[0; 4]].concat();
    }
    let property = [&words(&[1, 8])[..], &port].concat();
    [&words(&[16, 0, 0, 1])[..], &property].concat()
}

/// A meter-mod of these bands (type, rate, what follows).
pub(crate) fn meter(version: Version, command: u16, flags: u16, meter: u32, bands: &[(u16, u32, u32)]) -> Vec<u8> {
    let mut body = words(&[command, flags]);
    body.extend(meter.to_be_bytes());
    for (kind, rate, last) in bands {
        body.extend(words(&[*kind, 16]));
        body.extend(rate.to_be_bytes());
        body.extend([0; 4]);
        body.extend(last.to_be_bytes());
    }
    message(version, 29, &body)
}

/// A packet that goes nowhere.
pub(crate) fn packet_out(version: Version, change: impl FnOnce(&mut PacketOut)) -> Vec<u8> {
    let mut packet = PacketOut {
        buffer_id: None,
        in_port: Port(1),
        metadata: Match::ANY,
        actions: Vec::new(),
        data: vec![0x55; 60],
    };
    change(&mut packet);
    encode(version, Body::PacketOut(Box::new(packet)))
}

/// A bundle's control message.
pub(crate) fn bundle(version: Version, id: u32, kind: u16, flags: u16) -> Vec<u8> {
    let body = [&id.to_be_bytes()[..], &words(&[kind, flags])].concat();
    match version {
        Version::V13 => experimenter(version, 0x4f4e_4600, 2300, &body),
        _ => message(version, 33, &body),
    }
}

/// A message for a bundle.
pub(crate) fn bundled(version: Version, id: u32, flags: u16, message: &[u8]) -> Vec<u8> {
    let body = [&id.to_be_bytes()[..], &words(&[0, flags]), message].concat();
    match version {
        Version::V13 => experimenter(version, 0x4f4e_4600, 2301, &body),
        _ => self::message(version, 34, &body),
    }
}

/// A change of a role.
pub(crate) fn role(version: Version, role: u32, generation: u64) -> Vec<u8> {
    if version < Version::V12 {
        return nicira(version, 10, &(role.saturating_sub(1)).to_be_bytes());
    }
    let body = [&role.to_be_bytes()[..], &[0; 4], &generation.to_be_bytes()].concat();
    message(version, 24, &body)
}

/// A request for monitors.
pub(crate) fn monitor(version: Version, id: u32, flags: u16, command: u8) -> Vec<u8> {
    let any = [0xff; 4];
    match version {
        Version::V13 => {
            let body = [
                &id.to_be_bytes()[..],
                &words(&[flags, 4]),
                &any,
                &[0xff, 0, 0, 0],
                &words(&[1, 4, 0, 0]),
            ]
            .concat();
            let head = [0x4f, 0x4e, 0x46, 0, 0, 0, 0x07, 0x4e];
            multipart(version, 0xffff, &[&head[..], &body].concat())
        }
        Version::V10 | Version::V11 | Version::V12 => {
            let body = [
                &id.to_be_bytes()[..],
                &words(&[flags, 0xffff, 0]),
                &[0xff, 0, 0, 0, 0, 0],
            ]
            .concat();
            let head = [0, 0, 0x23, 0x20, 0, 0, 0, 2, 0, 0, 0, 0];
            let head = if version == Version::V10 { &head[..] } else { &head[..8] };
            multipart(version, 0xffff, &[head, &body].concat())
        }
        _ => {
            let body = [
                &id.to_be_bytes()[..],
                &any,
                &any,
                &flags.to_be_bytes(),
                &[0xff, command],
            ]
            .concat();
            multipart(version, 16, &[&body[..], &words(&[1, 4, 0, 0])].concat())
        }
    }
}
