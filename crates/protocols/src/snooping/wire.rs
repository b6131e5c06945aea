//! IGMP and MLD messages, from the Ethernet header on.
//!
//! A frame is read as a whole or not at all. IGMP is accepted with any time to live, as in Open
//! vSwitch: RFC 3376 §4 binds the sender only. MLD needs a hop limit of 1, the router alert option
//! and a link-local source (RFC 3810 §5); only reports may come from `::` (§5.2.13).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use wire::checksum::{checksum, pseudo_ipv6};
use wire::headers::{self, Frag, Ipv6};
use wire::{EtherType, MacAddr, Vid, VlanTag};

/// VLAN tags that a frame may have.
const TAGS: usize = 2;
const IGMP: u8 = 2;
const ICMPV6: u8 = 58;

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A router asks for members.
    Query(Query),
    /// A host says what it wants.
    Report(Report),
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The querier's address; unspecified where a switch asks that does not want to be elected.
    pub src: IpAddr,
    /// The group; `None` asks for all.
    pub group: Option<IpAddr>,
    /// The sources, of a group-and-source-specific query.
    pub sources: Vec<IpAddr>,
    /// The querier's version.
    pub version: Version,
    /// How long hosts may take to answer.
    pub response: Duration,
}

/// The version of a querier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// IGMPv1, which has no leave messages.
    V1,
    /// IGMPv2 or MLDv1, which know no sources.
    V2,
    /// IGMPv3 or MLDv2.
    V3,
}

/// A report or a leave message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether the host speaks IGMPv1, IGMPv2 or MLDv1, which know no sources.
    pub older: bool,
    /// Its records; those of unknown types are left out (RFC 3376 §4.2.12).
    pub records: Vec<Record>,
}

/// A group record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it says.
    pub kind: RecordKind,
    /// The group, a multicast address.
    pub group: IpAddr,
    /// The sources.
    pub sources: Vec<IpAddr>,
}

/// Types of group records (RFC 3376 §4.2.12, RFC 3810 §5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// `MODE_IS_INCLUDE`.
    IsInclude = 1,
    /// `MODE_IS_EXCLUDE`.
    IsExclude = 2,
    /// `CHANGE_TO_INCLUDE_MODE`.
    ToInclude = 3,
    /// `CHANGE_TO_EXCLUDE_MODE`.
    ToExclude = 4,
    /// `ALLOW_NEW_SOURCES`.
    Allow = 5,
    /// `BLOCK_OLD_SOURCES`.
    Block = 6,
}

impl RecordKind {
    fn of(number: u8) -> Option<RecordKind> {
        Some(match number {
            1 => RecordKind::IsInclude,
            2 => RecordKind::IsExclude,
            3 => RecordKind::ToInclude,
            4 => RecordKind::ToExclude,
            5 => RecordKind::Allow,
            6 => RecordKind::Block,
            _ => return None,
        })
    }
}

/// Why a frame is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It is neither IGMP nor MLD, or a fragment.
    OtherProtocol,
    /// A length contradicts the bytes.
    Length,
    /// A checksum is wrong.
    Checksum,
    /// An MLD message has another hop limit than 1.
    HopLimit,
    /// An MLD message has no router alert option.
    RouterAlert,
    /// The source is not one that may send the message.
    Source,
    /// A group is not a multicast address.
    Group,
}

/// Reads a frame.
///
/// # Errors
/// [`Malformed`].
pub fn parse(frame: &[u8]) -> Result<Message, Malformed> {
    let (kind, at) = headers::behind_tags(frame, TAGS).ok_or(Malformed::Length)?;
    match kind {
        EtherType::IPV4 => over_ipv4(&frame[at..]),
        EtherType::IPV6 => over_ipv6(&frame[at..]),
        _ => Err(Malformed::OtherProtocol),
    }
}

fn over_ipv4(data: &[u8]) -> Result<Message, Malformed> {
    let (header, ip) = headers::ipv4(data).ok_or(Malformed::Length)?;
    if header[0] >> 4 != 4 || ip.protocol != IGMP || ip.frag != Frag::No {
        return Err(Malformed::OtherProtocol);
    }
    let body = &data[ip.start..ip.end];
    if checksum(&data[..ip.start]) != 0 || checksum(body) != 0 {
        return Err(Malformed::Checksum);
    }
    let src = v4(&header[12..16])?;
    // Hosts without an address send from 0.0.0.0.
    if src.is_multicast() || src == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(Malformed::Source);
    }
    let Some(&[kind, max_response, _, _, a, b, c, d]) = body.first_chunk() else {
        return Err(Malformed::Length);
    };
    let group = IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    match kind {
        0x11 => {
            // Only IGMPv3 has longer queries (RFC 3376 §7.1).
            let (version, sources) = match (body.len(), max_response) {
                (8, 0) => (Version::V1, Vec::new()),
                (8, _) => (Version::V2, Vec::new()),
                (12.., _) => (Version::V3, addresses(&body[12..], count(&body[10..12]), 4, v4)?.0),
                _ => return Err(Malformed::Length),
            };
            let tenths = match version {
                Version::V1 => 100,
                Version::V2 => max_response.into(),
                Version::V3 => float(max_response.into(), 4),
            };
            let response = Duration::from_millis(u64::from(tenths) * 100);
            query(Query {
                src,
                group: Some(group),
                sources,
                version,
                response,
            })
        }
        0x12 | 0x16 => single(RecordKind::IsExclude, group),
        0x17 => single(RecordKind::ToInclude, group),
        0x22 => records(&body[8..], count(&body[6..8]), 4, v4),
        _ => Err(Malformed::OtherProtocol),
    }
}

fn over_ipv6(data: &[u8]) -> Result<Message, Malformed> {
    let (header, chain) = headers::ipv6(data).ok_or(Malformed::Length)?;
    let Ipv6::Whole(ip) = chain else {
        return Err(Malformed::Length);
    };
    if header[0] >> 4 != 6 || ip.protocol != ICMPV6 || ip.frag != Frag::No {
        return Err(Malformed::OtherProtocol);
    }
    let body = data.get(ip.start..ip.end).ok_or(Malformed::Length)?;
    let (src, dst) = (v6_of(&header[8..24])?, v6_of(&header[24..40])?);
    let Some(kind) = body.first().filter(|kind| matches!(kind, 130..=132 | 143)) else {
        return Err(Malformed::OtherProtocol);
    };
    let sum = pseudo_ipv6(src, dst, ICMPV6, body.len() as u32).bytes(body);
    if sum.finish() != 0 {
        return Err(Malformed::Checksum);
    }
    if header[7] != 1 {
        return Err(Malformed::HopLimit);
    }
    if header[6] != 0 || !has_router_alert(&data[header.len()..ip.start]) {
        return Err(Malformed::RouterAlert);
    }
    let is_link_local = src.segments()[0] & 0xffc0 == 0xfe80;
    if !is_link_local && (*kind == 130 || !src.is_unspecified()) {
        return Err(Malformed::Source);
    }
    if *kind == 143 {
        let head = body.get(..8).ok_or(Malformed::Length)?;
        return records(&body[8..], count(&head[6..]), 16, v6);
    }
    let group = v6(body.get(8..24).ok_or(Malformed::Length)?)?;
    let response = count(&body[4..6]) as u32;
    let asked = |version, milliseconds: u32, sources| {
        query(Query {
            src: src.into(),
            group: Some(group),
            sources,
            version,
            response: Duration::from_millis(milliseconds.into()),
        })
    };
    match (kind, body.len()) {
        (130, 24) => asked(Version::V2, response, Vec::new()),
        (130, 28..) => {
            let sources = addresses(&body[28..], count(&body[26..28]), 16, v6)?.0;
            asked(Version::V3, float(response, 12), sources)
        }
        (130, _) => Err(Malformed::Length),
        (131, _) => single(RecordKind::IsExclude, group),
        _ => single(RecordKind::ToInclude, group),
    }
}

/// Whether the hop-by-hop options at the start have the router alert of MLD (RFC 2711).
fn has_router_alert(extensions: &[u8]) -> bool {
    let len = extensions.get(1).map_or(0, |len| (usize::from(*len) + 1) * 8);
    let mut options = extensions.get(2..len).unwrap_or_default();
    while let [kind, rest @ ..] = options {
        if *kind == 0 {
            options = rest;
            continue;
        }
        let Some((len, rest)) = rest.split_first() else {
            return false;
        };
        let Some((value, behind)) = rest.split_at_checked(usize::from(*len)) else {
            return false;
        };
        if *kind == 5 && value == [0, 0] {
            return true;
        }
        options = behind;
    }
    false
}

/// Checks the group of a query; that of a general query is unspecified.
fn query(query: Query) -> Result<Message, Malformed> {
    let group = query.group.filter(|group| !group.is_unspecified());
    if group.is_some_and(|group| !group.is_multicast()) {
        return Err(Malformed::Group);
    }
    Ok(Message::Query(Query { group, ..query }))
}

/// A maximum response code: a number, or with the first bit a mantissa of `bits` bits and an
/// exponent of three (RFC 3376 §4.1.1, RFC 3810 §5.1.3).
fn float(code: u32, bits: u32) -> u32 {
    if code < 1 << (bits + 3) {
        return code;
    }
    let (mantissa, exponent) = (code & ((1 << bits) - 1), code >> bits & 7);
    (mantissa | 1 << bits) << (exponent + 3)
}

/// A message of a version without records.
fn single(kind: RecordKind, group: IpAddr) -> Result<Message, Malformed> {
    if !group.is_multicast() {
        return Err(Malformed::Group);
    }
    let record = Record {
        kind,
        group,
        sources: Vec::new(),
    };
    Ok(Message::Report(Report {
        older: true,
        records: vec![record],
    }))
}

type Address = fn(&[u8]) -> Result<IpAddr, Malformed>;

fn records(mut rest: &[u8], number: usize, len: usize, address: Address) -> Result<Message, Malformed> {
    let mut records = Vec::new();
    for _ in 0..number {
        let (head, behind) = rest.split_at_checked(4 + len).ok_or(Malformed::Length)?;
        let group = address(&head[4..])?;
        if !group.is_multicast() {
            return Err(Malformed::Group);
        }
        let (sources, behind) = addresses(behind, count(&head[2..4]), len, address)?;
        rest = behind.get(usize::from(head[1]) * 4..).ok_or(Malformed::Length)?;
        if let Some(kind) = RecordKind::of(head[0]) {
            records.push(Record { kind, group, sources });
        }
    }
    Ok(Message::Report(Report { older: false, records }))
}

fn addresses(rest: &[u8], number: usize, len: usize, address: Address) -> Result<(Vec<IpAddr>, &[u8]), Malformed> {
    let (list, behind) = rest.split_at_checked(number * len).ok_or(Malformed::Length)?;
    Ok((list.chunks(len).map(address).collect::<Result<_, _>>()?, behind))
}

fn count(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn v4(bytes: &[u8]) -> Result<IpAddr, Malformed> {
    let bytes: [u8; 4] = bytes.try_into().map_err(|_| Malformed::Length)?;
    Ok(Ipv4Addr::from(bytes).into())
}

fn v6(bytes: &[u8]) -> Result<IpAddr, Malformed> {
    v6_of(bytes).map(IpAddr::from)
}

fn v6_of(bytes: &[u8]) -> Result<Ipv6Addr, Malformed> {
    let bytes: [u8; 16] = bytes.try_into().map_err(|_| Malformed::Length)?;
    Ok(bytes.into())
}

/// The Ethernet address of a multicast group (RFC 1112 §6.4, RFC 2464 §7).
pub fn group_mac(group: IpAddr) -> MacAddr {
    match group {
        IpAddr::V4(group) => {
            let [_, a, b, c] = group.octets();
            MacAddr([0x01, 0x00, 0x5e, a & 0x7f, b, c])
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            MacAddr([0x33, 0x33, a, b, c, d])
        }
    }
}

/// A general query: IGMPv3 from an IPv4 address, MLDv2 from an IPv6 address. `response` and
/// `interval` are cut to 12 s and 127 s, which need no exponent (RFC 3376 §4.1.1, §4.1.7).
pub fn general_query(mac: MacAddr, vlan: Vid, src: IpAddr, response: Duration, interval: Duration) -> Vec<u8> {
    query_of(mac, vlan, src, None, response, interval)
}

/// As [`general_query`], for one group of the source's family if there is one. Routers keep their
/// timers then (the S flag, RFC 3376 §4.1.5).
pub(super) fn query_of(
    mac: MacAddr,
    vlan: Vid,
    src: IpAddr,
    group: Option<IpAddr>,
    response: Duration,
    interval: Duration,
) -> Vec<u8> {
    const ROBUSTNESS: u8 = super::timers::ROBUSTNESS as u8;
    let flags = ROBUSTNESS | if group.is_some() { 1 << 3 } else { 0 };
    let interval = interval.as_secs().min(127) as u8;
    match src {
        IpAddr::V4(src) => {
            let tenths = (response.as_millis() / 100).min(127) as u8;
            let mut body = [0x11, tenths, 0, 0, 0, 0, 0, 0, flags, interval, 0, 0];
            let mut dst = Ipv4Addr::new(224, 0, 0, 1);
            if let Some(IpAddr::V4(group)) = group {
                body[4..8].copy_from_slice(&group.octets());
                dst = group;
            }
            ipv4(mac, vlan, src, dst, &body)
        }
        IpAddr::V6(src) => {
            let mut body = [0; 28];
            body[0] = 130;
            body[4..6].copy_from_slice(&(response.as_millis().min(32767) as u16).to_be_bytes());
            (body[24], body[25]) = (flags, interval);
            let mut dst = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            if let Some(IpAddr::V6(group)) = group {
                body[8..24].copy_from_slice(&group.octets());
                dst = group;
            }
            ipv6(mac, vlan, src, dst, &body)
        }
    }
}

/// An IGMP message in a frame, with time to live 1 and the router alert option. Fills in the
/// checksums.
pub fn ipv4(mac: MacAddr, vlan: Vid, src: Ipv4Addr, dst: Ipv4Addr, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x46, 0xc0, 0, 0, 0, 0, 0, 0, 1, IGMP, 0, 0];
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend([0x94, 4, 0, 0]);
    let start = packet.len();
    packet.extend(body);
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    let sum = checksum(&packet[..start]).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    let sum = checksum(body).to_be_bytes();
    packet[start + 2..start + 4].copy_from_slice(&sum);
    framed(mac, vlan, dst.into(), EtherType::IPV4, &packet)
}

/// An MLD message in a frame, with hop limit 1 and the router alert option. Fills in the checksum.
pub fn ipv6(mac: MacAddr, vlan: Vid, src: Ipv6Addr, dst: Ipv6Addr, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 0, 1];
    packet[4..6].copy_from_slice(&(8 + body.len() as u16).to_be_bytes());
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend([ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
    let start = packet.len();
    packet.extend(body);
    let sum = pseudo_ipv6(src, dst, ICMPV6, body.len() as u32).bytes(body).finish();
    packet[start + 2..start + 4].copy_from_slice(&sum.to_be_bytes());
    framed(mac, vlan, dst.into(), EtherType::IPV6, &packet)
}

fn framed(mac: MacAddr, vlan: Vid, dst: IpAddr, kind: EtherType, packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(18 + packet.len());
    frame.extend(group_mac(dst).0);
    frame.extend(mac.0);
    if vlan != Vid::NONE {
        frame.extend(VlanTag::ctag(vlan).to_bytes());
    }
    frame.extend(kind.0.to_be_bytes());
    frame.extend(packet);
    frame
}
