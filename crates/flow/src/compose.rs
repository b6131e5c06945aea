//! Packets built from keys.

use crate::{Field as F, Frag, Key, TAG_PRESENT};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::EtherType;
use wire::checksum::{Sum, checksum, pseudo_ipv4, pseudo_ipv6};
use wire::nsh::Nsh;

/// Bytes of payload if no length is given.
const PAYLOAD: u8 = 64;

/// The shortest frame: an Ethernet header.
const ETHERNET: usize = 14;

/// A packet with the given key, as far as headers can hold it. Fields that the key does not have
/// are zero, and checksums are right. With `len`, it has that many bytes from the Ethernet header
/// on, or as many as its headers need; bytes behind the headers are zero. Without `len`, 64 bytes
/// that count up follow the headers of TCP, UDP and ICMP; other packets have no payload.
pub fn compose(key: &Key, len: Option<usize>) -> Vec<u8> {
    let mut frame = Vec::with_capacity(len.unwrap_or(0).min(usize::from(u16::MAX)) + 128);
    frame.extend(bytes::<6>(key, F::EthDst));
    frame.extend(bytes::<6>(key, F::EthSrc));
    for (tci, tpid) in [(F::VlanTci0, F::VlanTpid0), (F::VlanTci1, F::VlanTpid1)] {
        let tag = key.get(tci) as u16;
        if tag & TAG_PRESENT != 0 {
            let tpid = match key.get(tpid) as u16 {
                0 => EtherType::VLAN.0,
                tpid => tpid,
            };
            frame.extend(tpid.to_be_bytes());
            frame.extend((tag & !TAG_PRESENT).to_be_bytes());
        }
    }
    let kind = key.get(F::EthType) as u16;
    frame.extend(kind.to_be_bytes());
    // An IP header says how long the packet is.
    let room = |headers: usize| len.map(|len| len.saturating_sub(headers));
    match kind {
        0x0800 => ipv4(key, &mut frame, room),
        0x86dd => ipv6(key, &mut frame, room),
        0x0806 | 0x8035 => arp(key, &mut frame),
        0x8847 | 0x8848 => labels(key, &mut frame),
        0x894f => nsh(key, &mut frame),
        0x88e7 => {
            let tag = key.get(F::PbbIsid) as u32 | (key.get(F::PbbUca) as u32) << 27;
            frame.extend(tag.to_be_bytes());
            frame.extend([0; ETHERNET]);
        }
        _ => {}
    }
    let behind = frame.len();
    frame.resize(behind.max(len.unwrap_or(0)), 0);
    if kind < EtherType::MIN.0 {
        // The field has a length instead of a type.
        let told = (frame.len() - behind) as u16;
        frame[behind - 2..behind].copy_from_slice(&told.to_be_bytes());
    }
    frame
}

/// As [`compose`], with this payload where it has one. `bad_sums` inverts the checksums.
pub fn compose_with(key: &Key, payload: &[u8], bad_sums: bool) -> Vec<u8> {
    let headers = compose(key, Some(0)).len();
    let usual = compose(key, None).len() - headers;
    let payload = if usual == 0 { &[] } else { payload };
    let mut frame = compose(key, Some(headers + payload.len()));
    if let Some(room) = frame.get_mut(headers..headers + payload.len()) {
        room.copy_from_slice(payload);
    }
    // Where a wider packet has no room for it, the payload is not there, and the sums are right.
    let _ = sums(key, &mut frame, bad_sums);
    frame
}

/// Puts the checksums of a composed packet right, or inverts them.
fn sums(key: &Key, frame: &mut [u8], bad: bool) -> Option<()> {
    let tags = [F::VlanTci0, F::VlanTci1].into_iter();
    let tags = tags.filter(|tci| key.get(*tci) as u16 & TAG_PRESENT != 0).count();
    let ip = ETHERNET + 4 * tags;
    let proto = key.get(F::IpProto) as u8;
    let header = match key.get(F::EthType) as u16 {
        0x0800 => 20,
        0x86dd if key.get(F::IpFrag) != 0 => 48,
        0x86dd => 40,
        _ => return None,
    };
    let spoil = |sum: [u8; 2]| if bad { sum.map(|byte| !byte) } else { sum };
    if header == 20 {
        let at = frame.get_mut(ip + 10..ip + 12)?;
        at.copy_from_slice(&spoil([at[0], at[1]]));
    }
    if key.get(F::IpFrag) == Frag::Later as u128 {
        return None;
    }
    let inner = frame.get_mut(ip + header..)?;
    let len = inner.len() as u32;
    let (at, begin) = match (proto, header) {
        (132, _) => {
            // It has no payload, so that its sum is right.
            let sum = inner.get_mut(8..12).filter(|_| bad)?;
            sum.iter_mut().for_each(|byte| *byte = !*byte);
            return Some(());
        }
        (1, _) => (2, Sum::ZERO),
        (6 | 17 | 58, _) => {
            let at = match proto {
                6 => 16,
                17 => 6,
                _ => 2,
            };
            let pseudo = match header {
                20 => pseudo_ipv4(
                    Ipv4Addr::from(bytes::<4>(key, F::Ipv4Src)),
                    Ipv4Addr::from(bytes::<4>(key, F::Ipv4Dst)),
                    proto,
                    len,
                ),
                _ => pseudo_ipv6(
                    Ipv6Addr::from(bytes::<16>(key, F::Ipv6Src)),
                    Ipv6Addr::from(bytes::<16>(key, F::Ipv6Dst)),
                    proto,
                    len,
                ),
            };
            (at, pseudo)
        }
        _ => return None,
    };
    inner.get_mut(at..at + 2)?.fill(0);
    let sum = begin.bytes(inner);
    let sum = if proto == 17 { sum.finish_udp() } else { sum.finish() };
    inner[at..at + 2].copy_from_slice(&spoil(sum.to_be_bytes()));
    Some(())
}

/// A network service header. Open vSwitch composes no context headers of variable length either.
fn nsh(key: &Key, frame: &mut Vec<u8>) {
    let md_type = key.get(F::NshMdtype) as u8;
    let word = |field| key.get(field) as u32;
    let context = [F::NshC1, F::NshC2, F::NshC3, F::NshC4].map(word);
    let header = Nsh {
        flags: key.get(F::NshFlags) as u8,
        ttl: key.get(F::NshTtl) as u8,
        md_type,
        protocol: key.get(F::NshNp) as u8,
        path: word(F::NshSpi),
        index: key.get(F::NshSi) as u8,
        metadata: &context.map(u32::to_be_bytes).concat()[..if md_type == 1 { 16 } else { 0 }],
    };
    let at = frame.len();
    frame.resize(at + header.header_len(), 0);
    // So few bytes fit.
    let _ = header.write(&mut frame[at..]);
}

/// A field's low bytes.
fn bytes<const N: usize>(key: &Key, field: F) -> [u8; N] {
    let all = key.get(field).to_be_bytes();
    let mut low = [0; N];
    low.copy_from_slice(&all[all.len() - N..]);
    low
}

/// A payload of this length, or of 64 bytes that count up.
fn payload(out: &mut Vec<u8>, len: Option<usize>) {
    match len {
        Some(len) => out.resize(out.len() + len, 0),
        None => out.extend(0..PAYLOAD),
    }
}

fn labels(key: &Key, frame: &mut Vec<u8>) {
    /// The bit that a stack's last entry has.
    const BOTTOM: u32 = 0x100;
    for field in [F::MplsLse0, F::MplsLse1, F::MplsLse2] {
        let entry = key.get(field) as u32;
        frame.extend(entry.to_be_bytes());
        if entry & BOTTOM != 0 {
            break;
        }
    }
}

fn arp(key: &Key, frame: &mut Vec<u8>) {
    frame.extend([0, 1, 8, 0, 6, 4]);
    frame.extend(bytes::<2>(key, F::ArpOp));
    frame.extend(bytes::<6>(key, F::ArpSha));
    frame.extend(bytes::<4>(key, F::ArpSpa));
    frame.extend(bytes::<6>(key, F::ArpTha));
    frame.extend(bytes::<4>(key, F::ArpTpa));
}

/// The part of a fragment's header that says which of its packet's parts it is, in units of 8
/// bytes, with the flag `more` in its place.
fn fragment(key: &Key, more: u16, shift: u32) -> u16 {
    const SOMEWHERE: u16 = 100;
    match key.get(F::IpFrag) {
        first if first == Frag::First as u128 => more,
        later if later == Frag::Later as u128 => more | SOMEWHERE << shift,
        _ => 0,
    }
}

fn ipv4(key: &Key, frame: &mut Vec<u8>, room: impl Fn(usize) -> Option<usize>) {
    const HEADER: usize = 20;
    const MORE: u16 = 0x2000;
    let before = frame.len();
    let (src, dst) = (bytes::<4>(key, F::Ipv4Src), bytes::<4>(key, F::Ipv4Dst));
    let proto = key.get(F::IpProto) as u8;
    let pseudo = |len| pseudo_ipv4(Ipv4Addr::from(src), Ipv4Addr::from(dst), proto, len);
    let inner = transport(key, pseudo, |header| room(before + HEADER + header));
    let mut header = vec![0x45, key.get(F::IpTos) as u8];
    header.extend(((HEADER + inner.len()) as u16).to_be_bytes());
    header.extend([0, 0]);
    header.extend(fragment(key, MORE, 0).to_be_bytes());
    header.extend([key.get(F::IpTtl) as u8, proto, 0, 0]);
    header.extend(src);
    header.extend(dst);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(inner);
}

fn ipv6(key: &Key, frame: &mut Vec<u8>, room: impl Fn(usize) -> Option<usize>) {
    const HEADER: usize = 40;
    const FRAGMENT: u8 = 44;
    const MORE: u16 = 1;
    let before = frame.len();
    let (src, dst) = (bytes::<16>(key, F::Ipv6Src), bytes::<16>(key, F::Ipv6Dst));
    let proto = key.get(F::IpProto) as u8;
    let mut extension = Vec::new();
    if key.get(F::IpFrag) != 0 {
        extension.extend([proto, 0]);
        extension.extend(fragment(key, MORE, 3).to_be_bytes());
        extension.extend([0; 4]);
    }
    let pseudo = |len| pseudo_ipv6(Ipv6Addr::from(src), Ipv6Addr::from(dst), proto, len);
    let inner = transport(key, pseudo, |header| room(before + HEADER + extension.len() + header));
    let first = 6 << 28 | (key.get(F::IpTos) as u32) << 20 | key.get(F::Ipv6Label) as u32;
    frame.extend(first.to_be_bytes());
    frame.extend(((extension.len() + inner.len()) as u16).to_be_bytes());
    frame.push(if extension.is_empty() { proto } else { FRAGMENT });
    frame.push(key.get(F::IpTtl) as u8);
    frame.extend(src);
    frame.extend(dst);
    frame.extend(extension);
    frame.extend(inner);
}

/// What is behind an IP header. `room` says how long the payload is behind so long a header; none
/// fits behind the longest that IP can hold.
fn transport(key: &Key, pseudo: impl Fn(u32) -> Sum, room: impl Fn(usize) -> Option<usize>) -> Vec<u8> {
    /// What every IP packet has room for behind its headers.
    const MOST: usize = 65_000;
    const FIN_SYN_RST: u16 = 7;
    let ports = [bytes::<2>(key, F::TpSrc), bytes::<2>(key, F::TpDst)].concat();
    let proto = key.get(F::IpProto) as u8;
    let room = |header| room(header).map(|len| len.min(MOST));
    let no_more = |header| room(header).or(Some(0));
    let mut out = Vec::new();
    if key.get(F::IpFrag) == Frag::Later as u128 {
        payload(&mut out, no_more(0));
        return out;
    }
    // Where the checksum is, if the protocol has one.
    let sum = match proto {
        6 => {
            out.extend(ports);
            out.extend([0; 8]);
            out.extend((5 << 12 | key.get(F::TcpFlags) as u16).to_be_bytes());
            out.extend([0; 6]);
            // A packet that opens or closes a connection has no payload.
            let silent = key.get(F::TcpFlags) as u16 & FIN_SYN_RST != 0;
            payload(&mut out, if silent { no_more(20) } else { room(20) });
            Some(16)
        }
        17 => {
            let len = room(8);
            out.extend(ports);
            out.extend((8 + len.unwrap_or(PAYLOAD.into()) as u16).to_be_bytes());
            out.extend([0; 2]);
            payload(&mut out, len);
            Some(6)
        }
        132 => {
            out.extend(ports);
            out.extend([0; 8]);
            payload(&mut out, no_more(12));
            let sum = wire::crc32c::crc32c(&out);
            out[8..12].copy_from_slice(&sum.to_le_bytes());
            None
        }
        1 | 58 => {
            out.extend([key.get(F::IcmpType) as u8, key.get(F::IcmpCode) as u8]);
            out.extend([0; 6]);
            match (proto, key.get(F::IcmpType)) {
                (58, 135 | 136) => {
                    discovery(key, &mut out);
                    let behind = out.len();
                    payload(&mut out, no_more(behind));
                }
                _ => payload(&mut out, room(8)),
            }
            Some(2)
        }
        _ => {
            payload(&mut out, no_more(0));
            None
        }
    };
    if let Some(at) = sum {
        let begin = match proto {
            1 => Sum::ZERO,
            _ => pseudo(out.len() as u32),
        };
        let sum = begin.bytes(&out);
        let sum = if proto == 17 { sum.finish_udp() } else { sum.finish() };
        out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    out
}

/// The target of a neighbour message, and the link-layer addresses that it tells (RFC 4861 §4.3,
/// §4.4).
fn discovery(key: &Key, out: &mut Vec<u8>) {
    out.extend(bytes::<16>(key, F::NdTarget));
    for (kind, field) in [(1, F::NdSll), (2, F::NdTll)] {
        if key.get(field) != 0 {
            out.extend([kind, 1]);
            out.extend(bytes::<6>(key, field));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PortNo, extract, parse_odp};

    fn key(text: &str) -> Key {
        parse_odp(text, &|_| None).unwrap().0
    }

    #[test]
    fn a_packet_made_of_a_key_has_that_key() {
        for text in [
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x88b5)",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0806),arp(sip=1.0.0.1,tip=1.0.0.2,op=1,sha=02:00:00:00:00:01,tha=00:00:00:00:00:00)",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),ipv4(src=1.2.3.4,dst=1.2.3.5,proto=6,tos=4,ttl=64,frag=no),tcp(src=1,dst=2),tcp_flags(syn)",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),ipv4(src=1.2.3.4,dst=1.2.3.5,proto=17,tos=0,ttl=64,frag=first),udp(src=1,dst=2)",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),ipv4(src=1.2.3.4,dst=1.2.3.5,proto=17,tos=0,ttl=64,frag=later)",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),ipv4(src=1.2.3.4,dst=1.2.3.5,proto=132,tos=0,ttl=1,frag=no),sctp(src=1,dst=2)",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),ipv4(src=1.2.3.4,dst=1.2.3.5,proto=1,tos=0,ttl=1,frag=no),icmp(type=8,code=0)",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=5,proto=6,tclass=8,hlimit=64,frag=no),tcp(src=1,dst=2),tcp_flags(0)",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0,proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type=135,code=0),nd(target=fe80::3,sll=02:00:00:00:00:01,tll=00:00:00:00:00:00)",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x0800),ipv4(src=1.2.3.4,dst=1.2.3.5,proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=2),tcp_flags(0))",
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x8847),mpls(label=5,tc=1,ttl=64,bos=1)",
        ] {
            let mut wanted = key(text);
            for len in [None, Some(60), Some(1514)] {
                let frame = compose(&wanted, len);
                let mut found = extract(&frame, &PortNo(1).into()).unwrap();
                // Texts do not say that a packet has no extension headers.
                for both in [&mut wanted, &mut found] {
                    both.set(F::Ipv6Exthdr, 0);
                    both.set(F::NdOptionsType, 0);
                }
                assert_eq!(found, wanted, "{text} {len:?}");
                if let Some(len) = len {
                    assert!(frame.len() >= len, "{text}: {} for {len}", frame.len());
                }
            }
        }
    }

    #[test]
    fn a_packet_made_of_a_key_is_the_one_that_open_vswitch_makes() {
        let counting: String = (0..64).map(|n| format!("{n:02x}")).collect();
        let ethernet = "020000000002020000000001";
        let cases = [
            (
                "eth_type(0x0800),ipv4(src=1.2.3.4,dst=1.2.3.5,proto=6,tos=4,ttl=64,frag=no),tcp(src=1,dst=2),tcp_flags(syn)",
                "08004504002800000000400672c0010203040102030500010002000000000000000050020000a7d30000",
            ),
            (
                "eth_type(0x0800),ipv4(src=1.2.3.4,dst=1.2.3.5,proto=17,tos=0,ttl=64,frag=later)",
                "08004500001400002064401152690102030401020305",
            ),
            (
                "eth_type(0x86dd),ipv6(src=fe80::1,dst=fe80::2,label=0,proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type=135,code=0),\
                 nd(target=fe80::3,sll=02:00:00:00:00:01,tll=00:00:00:00:00:00)",
                "86dd6000000000203afffe800000000000000000000000000001fe80000000000000000000000000000287007a1a00000000\
                 fe8000000000000000000000000000030101020000000001",
            ),
            ("eth_type(0x8847),mpls(label=5,tc=1,ttl=64,bos=1)", "884700005340"),
            (
                "eth_type(0x0800),ipv4(src=1.2.3.4,dst=1.2.3.5,proto=47,tos=0,ttl=64,frag=no)",
                "08004500001400000000402f72af0102030401020305",
            ),
        ];
        for (text, theirs) in cases {
            let key = key(&format!("eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),{text}"));
            let ours: String = compose(&key, None).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(ours, format!("{ethernet}{theirs}"), "{text}");
        }
        let udp = key("eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
             ipv4(src=1.2.3.4,dst=1.2.3.5,proto=17,tos=0,ttl=64,frag=first),udp(src=1,dst=2)");
        let ours: String = compose(&udp, None).iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(ours.ends_with(&counting), "{ours}");
        let long = compose(&udp, Some(200));
        // There the length that UDP tells is wrong where one is asked for.
        assert_eq!(long[38..40], 166u16.to_be_bytes());
        assert_eq!(long[42..], [0; 158][..]);
    }

    #[test]
    fn a_payload_is_behind_the_headers_and_in_the_sums() {
        let tcp = key("eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
             ipv4(src=1.2.3.4,dst=1.2.3.5,proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=2)");
        let sum = |frame: &[u8]| {
            let sum = pseudo_ipv4([1, 2, 3, 4].into(), [1, 2, 3, 5].into(), 6, frame.len() as u32 - 34);
            (checksum(&frame[14..34]), sum.bytes(&frame[34..]).finish())
        };
        let frame = compose_with(&tcp, b"abc", false);
        assert_eq!(frame[54..], *b"abc");
        assert_eq!(sum(&frame), (0, 0));
        let (ip, inner) = sum(&compose_with(&tcp, b"abc", true));
        assert!(ip != 0 && inner != 0);
        let counting: Vec<u8> = (0..64).collect();
        assert_eq!(compose_with(&tcp, &counting, false), compose(&tcp, None));
    }

    #[test]
    fn a_packet_made_of_a_key_is_as_long_as_is_asked_for_and_its_sums_are_right() {
        let key = key("eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
             ipv4(src=1.2.3.4,dst=1.2.3.5,proto=6,tos=0,ttl=64,frag=no),tcp(src=1,dst=2)");
        assert_eq!(compose(&key, None).len(), 14 + 20 + 20 + 64);
        let frame = compose(&key, Some(200));
        assert_eq!(frame.len(), 200);
        assert_eq!(checksum(&frame[14..34]), 0);
        let sum = pseudo_ipv4([1, 2, 3, 4].into(), [1, 2, 3, 5].into(), 6, 166);
        assert_eq!(sum.bytes(&frame[34..]).finish(), 0);
        assert_eq!(compose(&key, Some(3)).len(), 54);
    }
}
