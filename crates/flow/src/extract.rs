//! From bytes and metadata to a key.
//!
//! The walk is that of [`wire::headers`]. A layer that is not whole ends it: the fields of outer
//! layers keep their values, those of inner ones are zero. Padding behind an IP packet is not read.

use crate::field::{Field, fill};
use crate::key::{Key, TAG_PRESENT};
use crate::meta::PacketMeta;
use wire::EtherType;
use wire::headers::{self, Frag, Ipv6};
use wire::nsh::Nsh;

mod plain;
mod slot;

pub use plain::repeats;
use plain::{Plain, origin};
pub use slot::{KeySlot, Reading};

/// What [`Field::EthType`] says of a frame that has a length instead of a type, and no SNAP header
/// with a type.
const NOT_A_TYPE: u16 = 0x05ff;
/// The protocol number of IGMP.
const IGMP: u8 = 2;

/// In a label stack entry: it is the last.
const BOTTOM_OF_STACK: u128 = 0x100;

/// Reads a packet's key. `None` where it is shorter than an Ethernet header or ends inside its
/// outermost VLAN tag.
pub fn extract(data: &[u8], meta: &PacketMeta) -> Option<Key> {
    let mut slot = KeySlot::default();
    (slot.read(data, meta, None) == Reading::Key).then(|| *slot)
}

/// Every packet of at least so many bytes has a key.
pub const KEYED_LEN: usize = 18;

/// Whether [`extract`] has a key to give.
#[inline]
pub fn has_key(data: &[u8]) -> bool {
    if data.len() >= KEYED_LEN {
        return true;
    }
    let header: Option<&[u8; 14]> = data.first_chunk();
    header.is_some_and(|header| !EtherType(u16::from_be_bytes([header[12], header[13]])).is_vlan())
}

/// What Ethernet carries. Inner layers are optional: where one is not whole, the packet has no more
/// fields.
fn payload(key: &mut Key, kind: EtherType, data: &[u8]) {
    let _ = match kind {
        EtherType::IPV4 => ipv4(key, data),
        EtherType::IPV6 => ipv6(key, data),
        EtherType::ARP | EtherType::RARP => arp(key, data),
        EtherType::MPLS | EtherType::MPLS_MULTICAST => mpls(key, data),
        EtherType::PBB => pbb(key, data),
        EtherType::NSH => nsh(key, data),
        _ => None,
    };
}

/// Ethernet. Returns the type of what it carries, and that.
#[inline(always)]
fn ethernet<'d>(key: &mut Key, data: &'d [u8], meta: &PacketMeta) -> Option<(EtherType, &'d [u8])> {
    fill(&mut key.words, origin(meta));
    let header: &[u8; 14] = data.first_chunk()?;
    let mut rest = &data[14..];
    let mut kind = u16::from_be_bytes([header[12], header[13]]);
    let mut tci = 0;
    if EtherType(kind).is_vlan() {
        let tpid = kind;
        tci = take_u16(&mut rest)? | TAG_PRESENT;
        kind = take_u16(&mut rest)?;
        let mut inner = (0, 0);
        // A second tag that is cut short is payload of the first, of a type that says VLAN.
        if EtherType(kind).is_vlan() && rest.len() >= 4 {
            inner = (kind, take_u16(&mut rest)? | TAG_PRESENT);
            kind = take_u16(&mut rest)?;
        }
        fill(
            &mut key.words,
            [
                (Field::VlanTpid0, tpid.into()),
                (Field::VlanTpid1, inner.0.into()),
                (Field::VlanTci1, inner.1.into()),
            ],
        );
    }
    if kind < EtherType::MIN.0 {
        kind = NOT_A_TYPE;
        if let Some(EtherType(snap)) = headers::snap(rest) {
            (kind, rest) = (snap, &rest[8..]);
        }
    }
    let dst = be(&header[..6]) as u64;
    fill(&mut key.words, [(Field::EthDst, dst), (Field::EthType, kind.into())]);
    let src = be(&header[6..12]) as u64;
    fill(&mut key.words, [(Field::EthSrc, src), (Field::VlanTci0, tci.into())]);
    Some((EtherType(kind), rest))
}

/// Up to three MPLS label stack entries (RFC 3032 §2.1).
fn mpls(key: &mut Key, data: &[u8]) -> Option<()> {
    let mut entries = data.chunks_exact(4);
    for field in [Field::MplsLse0, Field::MplsLse1, Field::MplsLse2] {
        let entry = be(entries.next()?);
        key.set(field, entry);
        if entry & BOTTOM_OF_STACK != 0 {
            break;
        }
    }
    Some(())
}

/// A backbone service instance tag (IEEE 802.1Q §9.7).
fn pbb(key: &mut Key, data: &[u8]) -> Option<()> {
    let tci = be(data.get(..4)?);
    key.set(Field::PbbIsid, tci);
    key.set(Field::PbbUca, tci >> 27);
    Some(())
}

/// A network service header. Context headers of variable length are not fields.
fn nsh(key: &mut Key, data: &[u8]) -> Option<()> {
    let nsh = Nsh::parse(data)?;
    for (field, value) in [
        (Field::NshFlags, u64::from(nsh.flags)),
        (Field::NshTtl, nsh.ttl.into()),
        (Field::NshMdtype, nsh.md_type.into()),
        (Field::NshNp, nsh.protocol.into()),
        (Field::NshSpi, nsh.path.into()),
        (Field::NshSi, nsh.index.into()),
    ] {
        key.set(field, value.into());
    }
    let fields = [Field::NshC1, Field::NshC2, Field::NshC3, Field::NshC4];
    for (field, context) in fields.into_iter().zip(nsh.context()) {
        key.set(field, context.into());
    }
    Some(())
}

/// ARP for IPv4 over Ethernet (RFC 826).
fn arp(key: &mut Key, data: &[u8]) -> Option<()> {
    let packet: &[u8; 28] = data.first_chunk().filter(|_| headers::is_arp(data))?;
    key.set(Field::ArpOp, be(&packet[6..8]));
    key.set(Field::ArpSha, be(&packet[8..14]));
    key.set(Field::ArpSpa, be(&packet[14..18]));
    key.set(Field::ArpTha, be(&packet[18..24]));
    key.set(Field::ArpTpa, be(&packet[24..28]));
    Some(())
}

#[inline(always)]
fn ipv4(key: &mut Key, data: &[u8]) -> Option<()> {
    let (header, ip) = headers::ipv4(data)?;
    fill(
        &mut key.words,
        [
            (Field::IpProto, ip.protocol.into()),
            (Field::IpTos, header[1].into()),
            (Field::IpTtl, header[8].into()),
            (Field::IpFrag, ip.frag as u64),
        ],
    );
    let (src, dst) = (be(&header[12..16]) as u64, be(&header[16..20]) as u64);
    fill(&mut key.words, [(Field::Ipv4Src, src), (Field::Ipv4Dst, dst)]);
    if ip.frag == Frag::Later {
        return None;
    }
    transport(key, ip.protocol, false, &data[ip.start..ip.end])
}

fn ipv6(key: &mut Key, data: &[u8]) -> Option<()> {
    let (header, chain) = headers::ipv6(data)?;
    key.set(Field::Ipv6Src, be(&header[8..24]));
    key.set(Field::Ipv6Dst, be(&header[24..40]));
    let Ipv6::Whole(ip) = chain else { return None };
    let first = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    fill(
        &mut key.words,
        [
            (Field::IpProto, ip.protocol.into()),
            (Field::IpTos, u64::from(first >> 20 & 0xff)),
            (Field::IpTtl, header[7].into()),
            (Field::IpFrag, ip.frag as u64),
            (Field::Ipv6Label, u64::from(first & 0xf_ffff)),
            (Field::Ipv6Exthdr, ip.extensions.into()),
        ],
    );
    if ip.frag == Frag::Later {
        return None;
    }
    transport(key, ip.protocol, true, &data[ip.start..ip.end])
}

#[inline(always)]
fn transport(key: &mut Key, protocol: u8, ipv6: bool, data: &[u8]) -> Option<()> {
    if !headers::is_whole(protocol, ipv6, data) {
        return if protocol == IGMP && !ipv6 {
            igmp(key, data)
        } else {
            None
        };
    }
    let flags = match protocol {
        6 => be(&data[12..14]) as u64,
        17 | 132 => 0,
        1 | 58 => return icmp(key, protocol, data),
        _ => return None,
    };
    let ports: &[u8; 4] = data.first_chunk()?;
    fill(
        &mut key.words,
        [
            (Field::TpSrc, be(&ports[..2]) as u64),
            (Field::TpDst, be(&ports[2..]) as u64),
            (Field::TcpFlags, flags),
        ],
    );
    Some(())
}

/// IGMP (RFC 2236): type and code stand where ports do, as in Open vSwitch. No rule can
/// match it; multicast snooping reads it.
fn igmp(key: &mut Key, data: &[u8]) -> Option<()> {
    let header = data.get(..8)?;
    key.set(Field::TpSrc, header[0].into());
    key.set(Field::TpDst, header[1].into());
    Some(())
}

/// ICMP (RFC 792), ICMPv6 (RFC 4443): at least a header's 8 bytes.
fn icmp(key: &mut Key, protocol: u8, data: &[u8]) -> Option<()> {
    let (kind, code) = (data[0], data[1]);
    fill(
        &mut key.words,
        [(Field::IcmpType, kind.into()), (Field::IcmpCode, code.into())],
    );
    if protocol == 58 && matches!(kind, 135 | 136) && code == 0 {
        return neighbour_discovery(key, &data[4..]);
    }
    Some(())
}

/// The reserved word, the target and the link-layer address options of a neighbour solicitation or
/// advertisement (RFC 4861 §4.3, §4.4, §4.6.1). An option that says it is longer than the packet,
/// or not long at all, is the last. One that comes twice makes target and addresses unknown.
fn neighbour_discovery(key: &mut Key, data: &[u8]) -> Option<()> {
    key.set(Field::NdReserved, be(data.get(..4)?));
    let target = data.get(4..20)?;
    let mut options = &data[20..];
    let (mut sll, mut tll) = (0, 0);
    while let Some(header) = options.first_chunk::<8>() {
        let len = usize::from(header[1]) * 8;
        if len == 0 || len > options.len() {
            break;
        }
        options = &options[len..];
        let address = match header[0] {
            1 if len == 8 => &mut sll,
            2 if len == 8 => &mut tll,
            _ => continue,
        };
        if *address != 0 {
            return None;
        }
        *address = be(&header[2..8]);
        if key.get(Field::NdOptionsType) == 0 {
            key.set(Field::NdOptionsType, header[0].into());
        }
    }
    key.set(Field::NdTarget, be(target));
    key.set(Field::NdSll, sll);
    key.set(Field::NdTll, tll);
    Some(())
}

/// Up to 16 bytes as a big-endian number.
#[inline(always)]
fn be(bytes: &[u8]) -> u128 {
    match bytes.len() {
        2 => u128::from(u16::from_be_bytes([bytes[0], bytes[1]])),
        4 => u128::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        6 => u128::from(u64::from_be_bytes([
            0, 0, bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5],
        ])),
        _ => bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)),
    }
}

#[inline(always)]
fn take_u16(rest: &mut &[u8]) -> Option<u16> {
    let (bytes, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests;
