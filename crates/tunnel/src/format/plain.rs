//! The fast reader of plain outer headers: IPv4 without options and fragments, UDP, and an Ethernet
//! frame in VXLAN without extensions or in Geneve. Their fields have fixed places. The result is
//! that of the walk, which a test with changed bytes checks; the walk says what is wrong.

use super::geneve::{self, Options};
use super::ip::{IPV4_LEN, is_unicast};
use super::{Checksums, Decapsulated, Details, Format, Inner, Kind, be16, be32, udp, vxlan};
use std::net::Ipv4Addr;
use wire::EtherType;
use wire::checksum::{is_ipv4_header_right, pseudo_ipv4};

/// Where the header of VXLAN or Geneve begins, and where it ends.
const TUNNEL: usize = IPV4_LEN + udp::LEN;
const BEHIND: usize = TUNNEL + geneve::LEN;
/// The first word of a VXLAN header that has a VNI and nothing else.
const ONLY_VNI: u32 = 0x0800_0000;
/// Length of an Ethernet header.
const ETHERNET: usize = 14;

/// `None` where the packet is not plain, or wrong.
#[inline(always)]
pub(super) fn parse(format: Format, packet: &[u8], checksums: Checksums) -> Option<Decapsulated<'_>> {
    let header: &[u8; BEHIND] = packet.first_chunk()?;
    let total = usize::from(be16(header, 2));
    let len = usize::from(be16(header, IPV4_LEN + 4));
    let (csum, end) = (be16(header, IPV4_LEN + 6) != 0, IPV4_LEN + len);
    let is_plain = header[0] == 0x45 && be16(header, 6) & 0x3fff == 0 && header[9] == udp::PROTOCOL;
    if !is_plain || end > total || total > packet.len() {
        return None;
    }
    let [src, dst] = [12, 16].map(|at| Ipv4Addr::from_bits(be32(header, at)));
    if !is_unicast(src.into()) {
        return None;
    }
    let first = be32(header, TUNNEL);
    let (kind, details, start) = match format {
        Format::Vxlan { .. } if first == ONLY_VNI && header[BEHIND - 1] == 0 => {
            (Kind::Vxlan, Details::None, TUNNEL + vxlan::LEN)
        }
        Format::Geneve if first >> 30 == 0 && first as u16 == EtherType::BRIDGED.0 => {
            let start = BEHIND + (first >> 24) as usize * 4;
            let options = Options::new(packet.get(BEHIND..start)?).ok()?;
            (Kind::Geneve, Details::Geneve(options), start)
        }
        _ => return None,
    };
    if start + ETHERNET > end {
        return None;
    }
    if checksums == Checksums::Verify {
        let sum = || pseudo_ipv4(src, dst, udp::PROTOCOL, len as u32).bytes(&packet[IPV4_LEN..end]);
        if !is_ipv4_header_right(packet, IPV4_LEN) || csum && sum().finish() != 0 {
            return None;
        }
    }
    Some(Decapsulated {
        kind,
        src: src.into(),
        dst: dst.into(),
        tos: header[1],
        ttl: header[8],
        tp_src: be16(header, IPV4_LEN),
        tp_dst: be16(header, IPV4_LEN + 2),
        id: Some(u64::from(be32(header, TUNNEL + 4) >> 8)),
        csum,
        oam: kind == Kind::Geneve && first >> 16 & u32::from(geneve::O) != 0,
        details,
        start,
        end,
        inner: Inner::Ethernet,
    })
}
